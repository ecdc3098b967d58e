"""Making a workspace: its branch, its place among the repository's worktrees, its files.

The state of a half-made workspace is told by what is there, in the order in which it is made:

1. `refs/fleet/base/<run>` and the branch, in one transaction: the ref says that the branch is ours;
2. the folder, with nothing in it but its link `.git`;
3. the worktree's git folder, renamed into place whole;
4. the files, and the copied ones;
5. `fleet-ready` in the worktree's git folder.

Until then `fleet-making` is in that folder, too: no agent has ever been in the workspace, and it may be
thrown away and made again. An agent that deletes either of them costs nothing.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from fleet.adapters.workspaces import filters, folders, locks, refs, repository, survey
from fleet.adapters.workspaces.command import git, git_patiently
from fleet.errors import BranchTaken, Conflict, GitFailed, NotFound
from fleet.ports.workspace import Place

READY = "fleet-ready"
MAKING = "fleet-making"
OWNER = "fleet-run"
COMMON = "commondir"  # git's own name for where a worktree says which repository it belongs to
COPIED = "fleet-copied"
REFUSED = "fleet-refused"  # names of what no commit can have: repositories, and names that git forbids
RESTORING = "fleet-restoring"  # the files are back; what was set aside is being put back


class Site:
    """A place, and everything that belongs to it by name."""

    def __init__(self, place: Place, common: Path, path: Path) -> None:
        self.place = place
        self.common = common  # the repository's git folder
        self.path = path
        self.link = path / ".git"  # leads to the worktree's own git folder
        self.branch_ref = f"refs/heads/{place.branch}"
        self.base_ref = f"refs/fleet/base/{place.run}"  # says that the branch is ours
        self.saved_ref = f"refs/fleet/saved/{place.run}"  # leads to the snapshot
        self.run_lock = common / "fleet" / f"{place.run}.lock"
        self.repository_lock = common / "fleet" / "lock"
        self.deleting = common / "fleet" / "deleting"  # names the refs whose deletion has begun
        # Says that the removed workspace's base ref could not be deleted.
        self.undeleted = common / "fleet" / f"{place.run}.undeleted"
        self.trash = path.parent / ".trash" / place.run  # the folder, while it is being removed
        # Says that the folder in the trash was not compared with its snapshot yet.
        self.moving = self.trash.with_name(f"{place.run}.moving")
        self.done = self.trash.with_name(f"{place.run}.done")  # what anybody may delete
        self.kept = path.parent / ".kept" / place.run
        self.kept_files = self.kept / "files"  # those that a snapshot cannot hold
        self.kept_modules = self.kept / "modules"
        self.kept_objects = self.kept / "objects"  # of the snapshot

    def has_folder(self) -> bool:
        return self.path.is_dir()

    def git_dir(self) -> Path | None:
        """Return the worktree's own git folder. One that names another repository is turned back to ours."""
        folder = self.common / "worktrees"
        # Where the usual name was taken, git and we put something after it.
        others = folder.glob(f"{glob.escape(_name_in_git(self.path.name))}*")
        for found in chain([folder / self.path.name], others):
            if folders.read_text(found / "gitdir").removesuffix("\n") == str(self.link):
                if not self._belongs_here(found):
                    with suppress(OSError):
                        folders.write_whole(found / COMMON, "../..\n")
                return found
        return None

    def _belongs_here(self, git_dir: Path) -> bool:
        named = folders.read_text(git_dir / COMMON).removesuffix("\n")
        try:
            return bool(named) and os.path.realpath(git_dir / named) == str(self.common)
        except (OSError, ValueError):  # no path at all
            return False

    def is_ours(self, git_dir: Path) -> bool:
        if owner := folders.read_text(git_dir / OWNER).strip():
            return owner == self.place.run
        # The agent deleted it: its folder has the run's name, and the run once made a workspace.
        return self.is_on_branch(git_dir) or refs.has_ref(self.common, self.base_ref)

    def is_on_branch(self, git_dir: Path) -> bool:
        return folders.read_text(git_dir / "HEAD").strip() == f"ref: {self.branch_ref}"

    def was_used(self, git_dir: Path) -> bool:
        """Tell whether an agent may have worked here."""
        if any((git_dir / mark).exists() for mark in (READY, RESTORING)):
            return True
        return not (git_dir / MAKING).exists() and not has_link_alone(self)


def worktrees_inside(site: Site) -> list[Path]:
    """Return the git folders of the worktrees that an agent made inside its workspace."""
    files = (site.common / "worktrees").glob("*/gitdir")
    links = [(file.parent, folders.read_text(file).strip()) for file in files]
    inside = f"{site.path}/"
    return [folder for folder, link in links if link.startswith(inside) and link != str(site.link)]


def site_of(place: Place) -> Site:
    return Site(place, repository.common_git_dir(place.repository), Path(os.path.realpath(place.path)))


def in_worktree(git_dir: Path) -> dict[str, str]:
    """Return what makes git look from a worktree's own git folder.

    The repository is the one that we know, not the one that `commondir` names there: an agent writes in that
    folder, and git runs commands that a repository's configuration names.
    """
    return {"GIT_DIR": str(git_dir), "GIT_COMMON_DIR": str(git_dir.parent.parent)}


def environment(git_dir: Path, path: Path) -> dict[str, str]:
    """Return what makes git work on a worktree whatever became of its `.git`, with the filters of before."""
    return {**filters.overrides(path, git_dir), **in_worktree(git_dir), "GIT_WORK_TREE": str(path)}


def stands(site: Site, git_dir: Path | None) -> bool:
    """Tell whether the workspace has been made; mend what an agent, or a save that was killed, left of it."""
    if not (git_dir and site.has_folder() and site.is_ours(git_dir) and site.was_used(git_dir)):
        return False
    if (git_dir / RESTORING).exists():
        return False
    if not os.path.lexists(site.link):
        write_link(site, git_dir)
    if not (git_dir / READY).exists():
        mark_ready(git_dir)
    survey.close_left_open(git_dir)
    return True


def mark_ready(git_dir: Path, snapshot: str = "") -> None:
    """Say that the workspace has been made, or brought back from a snapshot."""
    folders.write_whole(git_dir / READY, snapshot)
    for mark in (RESTORING, MAKING):
        folders.remove_file(git_dir / mark)


def clear_way(site: Site, git_dir: Path | None) -> None:
    """Throw away what a killed `make` has left; raise `Conflict` for what is somebody else's."""
    if git_dir and not site.is_ours(git_dir):
        raise _occupied(site)
    if git_dir and (git_dir / RESTORING).exists():
        hint = f"run `fleet undo {site.place.run}` again"
        raise Conflict(f"{str(site.path)!r} is being brought back", hint=hint)
    if git_dir:
        if os.path.lexists(site.path):
            folders.free(folders.rename_free(site.path, site.done))
        forget(site, git_dir)
    elif has_link_alone(site):
        folders.delete_tree(site.path)
    elif os.path.lexists(site.path):
        if not site.has_folder() or site.path.is_symlink() or linked_git_dir(site) is None:
            raise _occupied(site)
        # Its git folder was deleted, by whomever. An agent may have worked here: keep it all.
        folders.rename_free(site.path, site.kept.with_name(f"{site.place.run}-unlinked"))


def has_link_alone(site: Site) -> bool:
    """Tell whether a folder is all that a kill left of one being made: empty, or with its link in it."""
    if not site.has_folder() or site.path.is_symlink():
        return False
    names = {entry.name for entry in site.path.iterdir()}
    return names <= {".git.new"} or (names <= {".git", ".git.new"} and linked_git_dir(site) is not None)


def linked_git_dir(site: Site) -> Path | None:
    """Return where the folder's link leads; None if it is no workspace of the repository."""
    linked = folders.read_text(site.link).removeprefix("gitdir: ").strip() if site.link.is_file() else ""
    found = Path(linked)
    return found if found.parent == site.common / "worktrees" else None


def _occupied(site: Site) -> Conflict:
    return Conflict(f"{str(site.path)!r} is there already, and is not this run's workspace")


def attach(site: Site, *, head: str = "", name: str = "") -> Path:
    """Make a worktree without files on the branch, or on another head; return its git folder."""
    with locks.hold(site.repository_lock):
        if (site.common / "config.worktree").exists():
            return _attach_by_git(site, head or site.branch_ref)
        return write_git_dir(site, head or site.branch_ref, name or site.path.name)


def claim_branch(site: Site, tip: str) -> None:
    """Call the branch ours, and make it at a commit; an empty `tip` makes none."""
    own, branch_file = site.common / site.base_ref, site.common / site.branch_ref
    wish = f"update {site.base_ref} {site.place.base_sha}\n"
    wish += f"create {site.branch_ref} {tip}\n" if tip else ""
    try:
        with locks.hold(site.repository_lock):
            folders.remove_file(site.undeleted)
            # One that was killed here had locked the run's own ref first, then the branch.
            if locks.lock_of(own).exists() or (own.exists() and not branch_file.exists()):
                folders.remove_file(locks.lock_of(branch_file))
                folders.remove_file(locks.lock_of(own))
            git_patiently("update-ref", "--stdin", cwd=site.common, input=os.fsencode(wish))
    except GitFailed as exc:
        if "nonexistent object" in exc.reason or "not a valid SHA1" in exc.reason:
            problem = f"commit {tip or site.place.base_sha} is not in {site.place.repository!r} any more"
            raise NotFound(problem) from exc
        if "exist" not in exc.reason:
            raise
        branch = look_up_branch(site)
        if branch is None or not git("for-each-ref", site.base_ref, cwd=site.common):  # made for nobody of us
            problem = f"branch {site.place.branch!r} cannot be made: {exc.reason}"
            raise BranchTaken(problem, hint="choose another name") from exc
        if branch.checked_out_at:
            problem = f"branch {site.place.branch!r} is checked out in {branch.checked_out_at!r}"
            raise Conflict(problem, hint="switch that checkout to another branch") from exc


class Branch(NamedTuple):
    tip: str
    checked_out_at: str


def look_up_branch(site: Site) -> Branch | None:
    wanted = "--format=%(refname)%00%(objectname)%00%(worktreepath)"
    for line in git_patiently("for-each-ref", wanted, site.branch_ref, cwd=site.common).splitlines():
        name, tip, folder = os.fsdecode(line).split("\0")
        if name == site.branch_ref:
            return Branch(tip, folder)
    return None


def _attach_by_git(site: Site, head: str) -> Path:
    """Let git attach the worktree: it alone knows how to hand on a configuration per worktree."""
    target = (site.place.branch,) if head == site.branch_ref else ("--detach", head)
    git_patiently("worktree", "add", "--no-checkout", str(site.path), *target, cwd=site.common)
    git_dir = site.git_dir()
    if git_dir is None:
        raise GitFailed("worktree add", f"it made no worktree at {site.path}")
    folders.write_whole(git_dir / OWNER, site.place.run)
    folders.write_whole(git_dir / MAKING, "")
    return git_dir


def write_git_dir(site: Site, head: str, name: str, mark: str = MAKING) -> Path:
    """Make a worktree's git folder: what `git worktree add` does, in a few microseconds.

    It appears whole, so neither git nor a second supervisor ever reads a half-made one; and
    only after the link that leads to it, so `git worktree prune` never takes it for stale.
    """
    draft = site.common / "fleet" / f"{site.place.run}.draft"
    folders.delete_tree(draft)
    draft.mkdir(parents=True)
    head_line = f"ref: {head}" if head.startswith("refs/") else head
    files = {"HEAD": head_line, COMMON: "../..", "gitdir": str(site.link), OWNER: site.place.run, mark: ""}
    for file, text in files.items():
        (draft / file).write_bytes(os.fsencode(f"{text}\n"))
    folder = site.common / "worktrees"
    folder.mkdir(parents=True, exist_ok=True)
    site.path.mkdir(parents=True, exist_ok=True)
    git_dir = folders.free_name(folder / _name_in_git(name))
    if not os.path.lexists(site.link):
        write_link(site, git_dir)
    draft.rename(git_dir)
    return git_dir


def _name_in_git(name: str) -> str:
    return re.sub(r"[^\w.-]|^\.+|\.lock$", "-", name)


def write_link(site: Site, git_dir: Path) -> None:
    draft = site.path / ".git.new"
    folders.remove_file(draft)
    with os.fdopen(os.open(draft, folders.NEW_FILE, 0o666), "wb") as file:
        file.write(os.fsencode(f"gitdir: {git_dir}\n"))
    draft.rename(site.link)


def check_out(git_dir: Path, path: Path, tree: str = "HEAD", *, umask: int = -1) -> None:
    """Fill a worktree that has no files yet."""
    with folders.BUSY:
        git("read-tree", "--reset", "-u", tree, cwd=path, env=environment(git_dir, path), umask=umask)


def forget(site: Site, git_dir: Path) -> None:
    """Take a worktree off the repository's list, and no other (`git worktree prune` takes all it can)."""
    # The git folders of its submodules are kept: commits may be in them that are nowhere else.
    if (modules := git_dir / "modules").is_dir():
        folders.move_whole(modules, folders.free_name(site.kept_modules))
    gone = site.common / "fleet" / f"{site.place.run}.gone"
    with locks.hold(site.repository_lock):
        shutil.rmtree(gone, ignore_errors=True)
        gone.parent.mkdir(parents=True, exist_ok=True)
        git_dir.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)
