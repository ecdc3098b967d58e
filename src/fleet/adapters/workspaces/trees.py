"""The tree of a snapshot: equal to the files on disk, whatever git thinks of them."""

from __future__ import annotations

import filecmp
import os
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fleet.adapters.workspaces.command import git, joined
from fleet.adapters.workspaces.folders import delete_tree, free, free_name
from fleet.adapters.workspaces.index import DURABLE, stage, write_tree
from fleet.adapters.workspaces.readback import Comparison, Stamp, compare
from fleet.adapters.workspaces.recovery import reading_aside
from fleet.adapters.workspaces.status import Status
from fleet.adapters.workspaces.survey import LARGEST_SAVED, MOST_SAVED, Survey
from fleet.adapters.workspaces.worktrees import Site
from fleet.errors import Failed

_TRIES = 4


@dataclass(slots=True, kw_only=True)
class TreeWriter:
    """Brings an index that nobody else uses to where its tree has every file as it is on disk."""

    site: Site
    env: Mapping[str, str]  # git as the workspace has it: with filters and line ends
    raw_env: Mapping[str, str]  # git that changes no byte
    seen: Survey
    absent: Collection[str] = ()  # in the tree, and left out of the folder by a sparse checkout
    stamps: Mapping[str, Stamp] = field(default_factory=dict[str, Stamp])  # of the files that were compared
    converted: set[str] = field(default_factory=set[str])  # unchanged for git, though not the bytes it has
    filtered: set[str] = field(default_factory=set[str])  # large ones of these: their filter gives them back

    def write(self, status: Status, *, leave_out: Collection[str]) -> str:
        """Return the tree. What git refuses to hold goes to `seen.aside`.

        git says what has changed, which is quick. Then the tree is compared with the disk, and whatever git
        has overlooked is added by name. Raises `Failed` if an object cannot be read back.
        """
        skipped = {*leave_out, *self.seen.unsaveable}
        add = [name for name in (*status.changed, *status.untracked) if name not in skipped]
        add += [name for name in self.seen.ignored if name not in skipped]
        hidden = [name for name in leave_out if name in {*status.changed, *status.added}]
        tree = self._stage(add=add, delete=[*status.deleted, *hidden])
        found = self._compare(tree)
        if not found.is_equal:
            self._sort_overlooked({*found.unequal} - {*add})
        for _ in range(_TRIES):
            if found.is_equal:
                self.stamps = found.stamps
                return tree
            wrong = [name for name in found.unequal if name not in self.filtered]
            tree = self._stage(add=wrong, delete=[*wrong, *found.gone])
            found = self._compare(tree)
        name = next(iter((*found.unequal, *found.gone)))
        raise Failed(
            f"{str(self.site.path)!r} cannot be saved: {name!r} cannot be read back from the repository",
            hint=f"nothing was removed; run `git -C {self.site.place.repository} fsck`",
        )

    def _compare(self, tree: str) -> Comparison:
        skipped = {*self.seen.aside, *self.filtered, *self.absent}
        where, env = (self.site.common, tree, self.site.path), reading_aside(self.site)
        return compare(*where, required=self.seen.files, aside=skipped, env=env)

    def _stage(self, *, add: Collection[str], delete: Collection[str]) -> str:
        refused = stage(self.site.path, self.raw_env, add=add, delete=delete, settings=DURABLE)
        self.seen.set_aside(refused)
        return write_tree(self.site.path, self.raw_env)

    def _sort_overlooked(self, names: Collection[str]) -> None:
        """Note the files that filters or line-end conversion change; large ones are left to their filter."""
        sizes = {name: (self.site.path / name).lstat().st_size for name in names}
        self.converted = set(names)
        large, total = list[str](), 0
        for name, size in sorted(sizes.items(), key=lambda item: item[1]):
            total += size
            if size > LARGEST_SAVED or total > MOST_SAVED:
                large.append(name)
        if large:
            self.filtered = self._given_back(large)

    def _given_back(self, names: Collection[str]) -> set[str]:
        """Return those names of which git's filters make, of what is in the index, the bytes on disk."""
        folder = free_name(self.site.done.with_name(f"{self.site.place.run}.filtered.done"))
        command = ("checkout-index", "-z", "--stdin", f"--prefix={folder}/")
        try:
            git(*command, cwd=self.site.path, env=self.env, input=joined(names))
            return {name for name in names if _are_equal(folder / name, self.site.path / name)}
        finally:
            free(folder)


def _are_equal(one: Path, other: Path) -> bool:
    try:
        return one.lstat().st_mode == other.lstat().st_mode and filecmp.cmp(one, other, shallow=False)
    except OSError:
        return False


@contextmanager
def raw_environment(site: Site, git_dir: Path, objects: Mapping[str, str]) -> Generator[Mapping[str, str]]:
    """Give git a folder of its own, where no attribute changes a byte of a file; its objects are elsewhere.

    `info/attributes` outranks every `.gitattributes`, but the repository's own belongs to the user.
    """
    folder = git_dir / "fleet-raw"
    delete_tree(folder)
    for name in ("info", "refs"):
        (folder / name).mkdir(parents=True)
    extensions = "[extensions]\n\tobjectFormat = sha256\n" if len(site.place.base_sha) == 64 else ""
    included = str(site.common / "config").replace("\\", r"\\").replace('"', r"\"")
    files = {
        "HEAD": "ref: refs/heads/none\n",
        "config": f'[core]\n\trepositoryformatversion = 1\n{extensions}[include]\n\tpath = "{included}"\n',
        "info/attributes": "* -text !eol !filter -ident !working-tree-encoding\n",
    }
    for name, text in files.items():
        (folder / name).write_bytes(os.fsencode(text))
    own = {"GIT_DIR": str(folder), "GIT_COMMON_DIR": str(folder), "GIT_WORK_TREE": str(site.path)}
    try:
        yield {**own, **objects}
    finally:
        delete_tree(folder)
