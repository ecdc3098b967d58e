"""The objects of a snapshot, gathered in `.kept/<run>` beside the workspaces, where no agent's git looks.

`objects/` is where git writes what belongs to a snapshot: a prune or gc of the repository that runs
meanwhile deletes nothing there. When the snapshot is whole, all that leads to it from the run's base is one
pack, `saved` names its commit, and the pack is linked into the repository before the ref is written. What
is in `.kept` stays: a second copy, should somebody delete the ref or its objects.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Collection, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from fleet.adapters.workspaces import folders, locks, refs
from fleet.adapters.workspaces.command import git, is_loss
from fleet.adapters.workspaces.commits import is_known_ancestor, point, read_commits
from fleet.adapters.workspaces.indexes import DURABLE
from fleet.adapters.workspaces.worktrees import Site
from fleet.errors import GitFailed

log = logging.getLogger(__name__)

_QUICKLY = ("-c", "pack.threads=1", "-c", "pack.writeReverseIndex=false")


def writing_aside(site: Site, objects: Path | None = None) -> dict[str, str]:
    """Return what makes git write objects to `.kept`, or elsewhere, and read the repository's as well."""
    objects = objects or site.kept_objects
    (objects / "pack").mkdir(parents=True, exist_ok=True)
    return _objects(objects, site.common / "objects")


def reading_aside(site: Site) -> dict[str, str]:
    """Return what makes git read objects of `.kept` where the repository has none."""
    return _objects(site.common / "objects", site.kept_objects)


def _objects(own: Path, others: Path) -> dict[str, str]:
    listed = str(others)
    if ":" in listed or listed.startswith('"'):  # git takes a list of paths apart at each colon
        escaped = listed.replace("\\", r"\\").replace('"', r"\"")
        listed = f'"{escaped}"'
    return {"GIT_OBJECT_DIRECTORY": str(own), "GIT_ALTERNATE_OBJECT_DIRECTORIES": listed}


def keep(site: Site, sha: str, *, is_new: bool, needed: Collection[str] | None = None) -> None:
    """Pack a snapshot in `.kept`, and point its ref at it. Raises `GitFailed` if an object cannot be read.

    `is_new` says that its commit was written to `.kept`, and is not in the repository yet. `needed` are the
    trees of which nothing may be missing, if others may lack what is gone.
    """
    packs = site.kept_objects / "pack"
    if kept_snapshot(site) != sha or not (sha == site.place.base_sha or any(packs.glob("pack-*.idx"))):
        older = {*packs.iterdir()} if packs.is_dir() else set[Path]()
        base = site.place.base_sha
        made = _pack(site, site.kept_objects, sha, [base], needed) if sha != base else ""
        folders.write_whole(site.kept / "saved", f"{sha}\n")
        for file in older:
            if not made or made not in file.name:
                folders.remove_file(file)
    for loose in site.kept_objects.glob("??"):
        folders.delete_tree(loose)
    _publish(site, sha, is_new=is_new)


def _pack(
    site: Site, objects: Path, sha: str, known: Iterable[str], needed: Collection[str] | None = None
) -> str:
    """Pack what leads to a commit from those that are known, in a folder of objects; return its name."""
    command = (*DURABLE, *_QUICKLY, "pack-objects", "--non-empty", "--quiet", "--window=0")
    target = ("--delta-base-offset", str(objects / "pack" / "pack"))
    env = writing_aside(site, objects)
    wanted = "".join(f"{line}\n" for line in (sha, *(f"^{one}" for one in known))).encode()
    try:
        made = git(*command, "--revs", *target, cwd=site.common, env=env, input=wanted)
    except GitFailed as exc:
        if needed is None or not is_loss(exc):
            raise
        listed = _readable(site, env, wanted, needed)
        made = git(*command, *target, cwd=site.common, env=env, input=listed)
    return made.decode().strip()


def _readable(site: Site, env: Mapping[str, str], wanted: bytes, needed: Collection[str]) -> bytes:
    """List the objects to pack without those that are gone. Raises `GitFailed` if a needed tree is."""
    command = ("rev-list", "--objects", "--missing=print", "--stdin")
    trees = "".join(f"{tree}\n" for tree in needed).encode()
    if needed and (gone := _gone(git(*command, cwd=site.common, env=env, input=trees))):
        raise GitFailed("rev-list --objects …", f"unable to read {gone[0]}")
    # An agent's commit is kept though somebody has deleted a file of it: with all that it has besides.
    listed = git(*command, cwd=site.common, env=env, input=wanted)
    gone = _gone(listed)
    log.warning("workspace.objects_gone", extra={"run_id": site.place.run, "objects": gone[:20]})
    return b"".join(line + b"\n" for line in listed.splitlines() if not line.startswith(b"?"))


def _gone(listed: bytes) -> list[str]:
    return [line[1:].decode() for line in listed.splitlines() if line.startswith(b"?")]


def publishing(site: Site, objects: Path, sha: str, known: Iterable[str]) -> AbstractContextManager[None]:
    """Give the repository a commit that was written elsewhere; no prune or gc deletes it meanwhile."""
    _pack(site, objects, sha, known)  # a prune deletes loose objects that no ref leads to yet, and no packs
    return linked_packs(site, objects)


def _publish(site: Site, sha: str, *, is_new: bool) -> None:
    """Give the repository the pack if it is new there, then the ref."""
    before = refs.read_ref(site.common, site.saved_ref)
    if before == sha:
        return
    if not before and refs.has_ref(site.common, site.saved_ref):  # an agent has made it lead to another ref
        [found] = read_commits(site.common, {}, site.saved_ref)
        before = found.sha if found else ""
    with linked_packs(site, site.kept_objects) if is_new else nullcontext():
        folders.remove_file(locks.lock_of(site.common / site.saved_ref))
        point(site.common, {}, site.saved_ref, to=sha, before=before, why="fleet: save workspace")


@contextmanager
def linked_packs(site: Site, objects: Path) -> Generator[None]:
    """Put the packs of a folder into the repository; meanwhile, marks keep a gc from deleting them.

    A gc lists packs before it looks what is reachable, and deletes none that was marked when it began.
    """
    target = site.common / "objects" / "pack"
    target.mkdir(parents=True, exist_ok=True)
    packs = list((objects / "pack").glob("pack-*.pack"))
    marks = [(target / pack.name).with_suffix(".keep") for pack in packs]
    try:
        for pack, mark in zip(packs, marks, strict=True):
            mark.write_text(f"fleet: {site.place.run}\n")
            for file in (pack, pack.with_suffix(".idx")):  # git finds packs by their index, which comes last
                _link(file, target / file.name)
        yield
    finally:
        for mark in marks:
            folders.remove_file(mark)


def _link(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except FileExistsError:
        return
    except OSError:  # another disk, or one without links
        draft = target.with_name(f"tmp_{target.name}.{os.getpid()}")
        shutil.copyfile(source, draft)
        draft.chmod(0o444)
        draft.rename(target)


def kept_snapshot(site: Site) -> str:
    """Return the snapshot that `.kept` has a copy of, "" if none."""
    named = folders.read_text(site.kept / "saved").strip()
    return named if refs.SHA.fullmatch(named) else ""


def bring_back_ref(site: Site) -> None:
    """Point the recovery ref at its snapshot again if it was deleted or moved."""
    kept, current = kept_snapshot(site), refs.read_ref(site.common, site.saved_ref)
    if not kept or kept == current or (current and is_known_ancestor(site.common, kept, current)):
        return  # where the ref leads to it, a later snapshot was saved by an earlier version
    _publish(site, kept, is_new=read_commits(site.common, {}, kept)[0] is None)
    log.warning("workspace.recovery_ref_restored", extra={"run_id": site.place.run, "was": current})


def read_every_object(site: Site, *commits: str, env: Mapping[str, str] | None = None) -> None:
    """Read snapshots, and all that leads to the first from the run's base. Raises `GitFailed`."""
    check = ("rev-list", "--quiet", "--objects", "--verify-objects")
    git(*check, "--no-walk", *commits, cwd=site.common, env=env)
    git(*check, commits[0], "--not", *filter(None, [site.place.base_sha]), cwd=site.common, env=env)
