"""The Boundary port on git's own files: read without git, but for the state of the main checkout."""

from __future__ import annotations

import os
import re
import stat
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from fleet.adapters.workspaces import commits, filters, folders, indexes, refs, repository, worktrees
from fleet.adapters.workspaces.command import git, git_patiently, run_git
from fleet.adapters.workspaces.status import STATUS, status_records
from fleet.domain.boundary import NOTHING, UNCOMMITTED, Content, Guarded, Outside, OutsideKind
from fleet.errors import Conflict, FleetError, GitFailed
from fleet.files.private import make_private
from fleet.ports.workspace import Place

LARGEST_KEPT = 1 << 18
_STASH = re.compile(r"(?:WIP on|On) ([^:]+):")
MOST_RUNS = 200
_REPLACED = "values that were replaced"
_GIT_FILES = (
    *("config", "config.worktree", "info/attributes", "info/exclude", "info/grafts", "info/sparse-checkout"),
    *("objects/info/alternates", "shallow"),
)


class GitBoundary:
    def __init__(self, home: Path) -> None:
        self._home = home
        self._taken: dict[str, tuple[float, Guarded]] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._configurations: dict[Path, tuple[list[str], filters.Configuration]] = {}

    def is_there(self, project: str) -> bool:
        try:
            common = repository.common_git_dir(project)
        except FleetError:
            return False
        return (common / "objects").is_dir() and (common / "HEAD").is_file()

    def take(self, project: str, before: Guarded | None = None) -> Guarded:
        if before is not None:
            return self._take(project, before)
        asked = time.monotonic()
        with self._locks.setdefault(project, threading.Lock()):
            # Runs that start together share a look, if it began after all of them had asked for one.
            begun, taken = self._taken.get(project, (0.0, None))
            if taken is None or begun < asked:
                begun, taken = time.monotonic(), self._take(project, None)
                self._taken[project] = (begun, taken)
            return taken

    def _take(self, project: str, before: Guarded | None) -> Guarded:
        common = repository.common_git_dir(project)
        at = time.time()
        head = folders.read_text(common / "HEAD").strip()
        known = refs.all_refs(common)
        config, entries = self._look(project, common, before)
        names = {*_files(common, Path(project), self._home), *map(Path, config.files)}
        files = {str(file): _content(file) for file in names}
        return Guarded(
            at=at,
            refs=known,
            head=head,
            commit=known.get(head.removeprefix("ref: "), head),
            stashes=_stashes(common),
            files={name: content for name, content in files.items() if content.stamp},
            config_files=config.files,
            filters=config.filters,
            entries=entries,
            worktrees=dict(_worktrees(common)),
            runs=_runs(self._home, before),
        )

    def _look(
        self, project: str, common: Path, before: Guarded | None
    ) -> tuple[filters.Configuration, dict[str, str]]:
        """Return git's configuration, and the paths that are not as committed, by the filters of `before`."""
        if before is None:
            return self._read_configuration(common), _status(project, common, {})
        known, nothing = _configuration_of(before), Content("")
        stamps = {name: before.files.get(name, nothing).stamp for name in before.config_files}
        if all(_content(Path(name)).stamp == stamp for name, stamp in stamps.items()):
            return known, _status(project, common, {})
        try:
            config = filters.read_configuration(common)
            return config, _status(project, common, filters.override(before.filters, config.filters))
        except GitFailed:  # a file of its configuration was broken: that holds the run, and can be restored
            return known, dict(before.entries)

    def _read_configuration(self, common: Path) -> filters.Configuration:
        """Ask git for its configuration only if a file of it has changed."""
        known = self._configurations.get(common)
        if known is None or known[0] != [_fingerprint(name) for name in known[1].files]:
            config = filters.read_configuration(common)
            known = ([_fingerprint(name) for name in config.files], config)
            self._configurations[common] = known
        return known[1]

    def explain_config(self, old: bytes, new: bytes) -> tuple[list[str], list[str]]:
        before, after = filters.settings_in(old), filters.settings_in(new)
        lost = [f"{key}={value}" for key, value in before if (key, value) not in after]
        won = [f"{key}={value}" for key, value in after if (key, value) not in before]
        return lost, won

    def was_made_in(self, project: str, worktree: str, commit: str) -> bool:
        git_dir = repository.common_git_dir(project) / "worktrees" / worktree
        return commits.was_made_in(git_dir, commit, besides=("checkout:",))

    def stashed_on(self, project: str, commit: str) -> str:
        command = ("show", "--no-patch", "--format=%s", commit, "--")
        told = run_git(*command, cwd=repository.common_git_dir(project), codes=range(256)).stdout
        found = _STASH.match(os.fsdecode(told))
        return found[1] if found else ""

    def content(self, path: str) -> Content:
        return _content(Path(path))

    def forget(self, run: str) -> None:
        folders.delete_tree(self._kept_folder(run))

    def pin(self, place: Place, taken: Guarded) -> None:
        site = worktrees.site_of(place)
        git_dir = site.git_dir()
        if git_dir is None:
            return
        has_own = (git_dir / "config.worktree").exists()
        config = filters.read_configuration(site.common, git_dir) if has_own else _configuration_of(taken)
        filters.pin(site.path, config)

    def unpin(self, place: Place) -> None:
        filters.unpin(worktrees.site_of(place).path)

    def put_back(self, project: str, found: Outside) -> None:
        common = repository.common_git_dir(project)
        if refs.read_ref(common, found.name) == found.old:
            return
        if indexes.missing_objects(common, None, [found.old]):
            raise GitFailed("cat-file", f"{found.old} is not there any more")
        git_patiently("update-ref", "--no-deref", "-m", "fleet: put back", found.name, found.old, cwd=common)

    def keep(self, project: str, run: str, before: Guarded, found: Sequence[Outside]) -> list[Outside]:
        old = [one.old for one in found if one.kind in (OutsideKind.REF, OutsideKind.STASH)]
        told = "".join(f"{one}\n" for one in found).encode(errors="replace")
        common, what = repository.common_git_dir(project), "values before a turn"
        try:
            commit = _write_kept(common, run, what, {"changes": told}, [*old, before.commit])
        except GitFailed:  # its configuration was broken: that can be restored, and then the rest accepted
            commit = ""

        def kept(one: Outside) -> str:
            if one.kind is OutsideKind.FILE:
                content = before.files.get(one.name)
                return self._keep_file(run, content) if content else NOTHING
            is_lost = one.kind is OutsideKind.CHECKOUT and one.old == UNCOMMITTED  # nobody has it any more
            return "" if is_lost else commit

        return [replace(one, kept=kept(one)) for one in found]

    def _kept_folder(self, run: str) -> Path:
        return self._home / "boundary" / f"{run}-kept"

    def _keep_file(self, run: str, content: Content) -> str:
        """Keep what a file held, for its owner alone: it can hold passwords. Return what finds it."""
        if content.data is None:
            return ""
        make_private(self._kept_folder(run))
        text = content.data.decode("utf-8", "surrogateescape")
        folders.write_whole(self._kept_folder(run) / content.stamp, text)
        return content.identity

    def restore(self, project: str, run: str, found: Outside) -> None:
        common = repository.common_git_dir(project)
        with folders.in_our_words(f"restoring {found.name}"):
            match found.kind:
                case OutsideKind.REF:
                    _restore_ref(project, common, run, found)
                case OutsideKind.HEAD:
                    target = found.old.removeprefix("ref: refs/heads/")
                    words = (target,) if found.old.startswith("ref: ") else ("--detach", target)
                    how = ("--quiet", "--no-guess", "--no-recurse-submodules")
                    git("checkout", *how, *words, "--", cwd=project)
                case OutsideKind.STASH:
                    if found.old not in _stashes(common):
                        git("stash", "store", "-m", "restored by a person", found.old, cwd=project)
                case OutsideKind.FILE:
                    self._restore_file(run, found)
                case OutsideKind.CHECKOUT | OutsideKind.INDEX:
                    now = _content(Path(project, found.name)).data
                    if now is not None:
                        _write_kept(common, run, _REPLACED, {f"checkout/{found.name}": now})
                    git("--literal-pathspecs", "reset", "--quiet", "--", found.name, cwd=project)
                    if found.kind is OutsideKind.CHECKOUT:
                        git("--literal-pathspecs", "checkout", "--quiet", "--", found.name, cwd=project)
                case _:
                    problem = f"{found.kind} {found.name} cannot be restored"
                    raise Conflict(problem, hint="accept it, or undo it yourself")

    def _restore_file(self, run: str, found: Outside) -> None:
        file = Path(found.name)
        now = _content(file)
        if now.identity == found.kept or (found.kept == NOTHING and not now.stamp):
            return
        if now.identity != found.stamp:
            raise Conflict(f"{found.name} was changed again since", hint="accept the change instead")
        self._keep_file(run, now)
        if found.kept == NOTHING:
            file.unlink(missing_ok=True)
            return
        sha, _, mode = found.kept.partition(" ")
        data = _content(self._kept_folder(run) / sha).data or b""
        if sha256(data).hexdigest() != sha:
            problem = f"what {found.name} held is not there any more"
            raise Conflict(problem, hint="accept the change, or undo it yourself")
        file.parent.mkdir(parents=True, exist_ok=True)
        folders.write_whole(file, data.decode("utf-8", "surrogateescape"))
        file.chmod(int(mode, 8))


def _restore_ref(project: str, common: Path, run: str, found: Outside) -> None:
    is_readable = not found.new or refs.SHA.fullmatch(found.new)
    if found.old and not is_readable and refs.all_refs(common).get(found.name) == found.new:
        refs.replace_packed(common, found.name, found.old)  # git itself cannot read it
    now = refs.read_ref(common, found.name)
    if now == found.old:
        return
    if now != found.new:
        hint = "accept the change instead"
        raise Conflict(f"{found.name} was moved again since, to {now or 'nothing'}", hint=hint)
    if now:
        _write_kept(common, run, _REPLACED, parents=[now])
    if not found.old:
        git_patiently("update-ref", "--no-deref", "-d", found.name, now, cwd=common)
        return
    if folders.read_text(common / "HEAD").strip() == f"ref: {found.name}" and now:
        # With the files that belong to it; git refuses where that would undo what is not committed.
        git("reset", "--keep", "--quiet", found.old, cwd=project)
        return
    commits.point(common, {}, found.name, to=found.old, before=now, why="fleet: restored by a person")


def _configuration_of(taken: Guarded) -> filters.Configuration:
    return filters.Configuration(tuple(taken.config_files), dict(taken.filters))


def _files(common: Path, project: Path, home: Path) -> Iterator[Path]:
    yield from (common / name for name in _GIT_FILES)
    with suppress(OSError):
        for hook in sorted(os.listdir(common / "hooks")):  # noqa: PTH208 - a list of names is all it takes
            if not hook.endswith(".sample"):
                yield common / "hooks" / hook
    yield from (home / "config.toml", project / ".fleet" / "config.toml")
    for workflows in (home / "workflows", project / ".fleet" / "workflows"):
        with suppress(OSError):
            yield from sorted(workflows.iterdir())


def _content(file: Path) -> Content:
    try:
        status = file.lstat()
    except OSError:
        return Content("")
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        return Content(f"link {file.readlink()}", mode)
    if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_KEPT:
        return Content(f"{status.st_mode:o} {status.st_size} {status.st_mtime_ns}", mode)
    try:
        data = file.read_bytes()
    except OSError:
        return Content("unreadable", mode)
    return Content(sha256(data).hexdigest(), mode, data)


def _status(project: str, common: Path, env: dict[str, str]) -> dict[str, str]:
    """Return every path of the main checkout that is not as committed, and how it differs."""
    if Path(project).resolve() == common:  # a bare repository
        return {}
    with _whole_index(project, common) as index:
        told = git(*STATUS, "--untracked-files=normal", cwd=project, env={**env, **index})
    found: dict[str, str] = {}
    for kind, fields in status_records(told):
        state, path = fields[0], fields[-1]
        if kind == "1":
            found[path] = f"{state}{fields[3]} {fields[6][:12]}" if state[0] != "." else state
        else:
            found[path] = "UU" if kind == "u" else "?"
    return found


@contextmanager
def _whole_index(project: str, common: Path) -> Generator[dict[str, str]]:
    """Give git an index that looks at every file, if somebody has told the checkout's own not to."""
    index = common / "index"
    try:
        content = index.read_bytes()
    except OSError:
        content = b""
    id_bytes = 32 if "objectformat = sha256" in folders.read_text(common / "config").lower() else 20
    if not content or not indexes.may_have_flags(content, id_bytes=id_bytes):
        yield {}
        return
    with indexes.scratch_index({}) as env:
        copy = Path(env["GIT_INDEX_FILE"])
        copy.write_bytes(content)
        indexes.clear_flags(Path(project), env, copy, id_bytes=id_bytes)
        yield env


def _stashes(common: Path) -> tuple[str, ...]:
    """Return the commits that `git stash` keeps."""
    lines = folders.read_text(common / "logs" / "refs" / "stash").splitlines()
    return tuple(fields[1] for line in lines if len(fields := line.split(" ")) > 2)


def _worktrees(common: Path) -> Iterator[tuple[str, tuple[str, str]]]:
    with suppress(OSError):
        for entry in os.scandir(common / "worktrees"):
            head = folders.read_text(Path(entry.path, "HEAD")).strip()
            yield entry.name, (folders.read_text(Path(entry.path, worktrees.OWNER)).strip(), head)


def _runs(home: Path, before: Guarded | None) -> dict[str, str]:
    """Return what identifies the results of the newest runs, or of those that were looked at before."""
    try:
        there = sorted(os.listdir(home / "runs"))  # noqa: PTH208
    except OSError:
        return {}
    names = there[-MOST_RUNS:] if before is None else [name for name in there if name in before.runs]
    return {name: _fingerprint(f"{home}/runs/{name}/result.json") for name in names}


def _fingerprint(file: str) -> str:
    try:
        status = os.stat(file)  # noqa: PTH116 - for hundreds of them
    except OSError:
        return ""
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ino}"


def _write_kept(
    common: Path, run: str, what: str, blobs: Mapping[str, bytes] | None = None, parents: Sequence[str] = ()
) -> str:
    """Make a commit of blobs that keeps commits, too, and point a run's ref to it; return it."""
    ref = f"refs/fleet/before/{run}"
    before = refs.read_ref(common, ref)
    lines = [f"100644 {indexes.write_blob(common, data)}\t{name}" for name, data in (blobs or {}).items()]
    tree = indexes.edit_tree(common, {}, lines, base=before)  # so that all of it is in the last tree
    named = (refs.SHA.match(value) for value in dict.fromkeys(parents))  # an agent may have written more
    wanted = (f"{sha[0]}^{{commit}}" for sha in named if sha)
    found = [one.sha for one in commits.read_commits(common, {}, *wanted) if one]
    commit = commits.write_commit(common, tree, [*found, *filter(None, [before])], f"fleet: {what}")
    commits.point(common, {}, ref, to=commit, before=before, why=f"fleet: {what}")
    for name, data in (blobs or {}).items():  # a prune beside us may have deleted it before the ref was there
        if git("cat-file", "blob", f"{commit}:{name}", cwd=common) != data:
            raise GitFailed("cat-file", f"{name!r} of {ref} is not what was written")
    return commit
