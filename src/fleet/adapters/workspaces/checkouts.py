"""The Checkouts port: repositories of their own that borrow the objects of the user's."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from fleet.adapters.workspaces import folders
from fleet.adapters.workspaces.command import git, joined, names_in
from fleet.adapters.workspaces.repository import common_git_dir
from fleet.domain.trial import Patch

MADE = "fleet-made"  # a file in its git folder: it is whole


class GitCheckouts:
    def make(self, repository: str, commit: str, path: str, *, patches: Sequence[Patch] = ()) -> None:
        folder = Path(path)
        made = folder / ".git" / MADE
        if made.exists():
            return
        with folders.in_our_words("making a checkout"):
            folders.delete_tree(folder)
            folder.parent.mkdir(parents=True, exist_ok=True)
            git("init", "--quiet", "--template=", path, cwd=folder.parent)
            info = folder / ".git" / "objects" / "info"
            info.mkdir(exist_ok=True)
            borrowed = f"{common_git_dir(repository) / 'objects'}\n"
            folders.write_whole(info / "alternates", borrowed, durable=False)
            with folders.BUSY:
                git("checkout", "--quiet", "--detach", commit, "--", cwd=folder)
                for patch in patches:
                    _apply(folder, patch)
            folders.write_whole(made, "", durable=False)

    def lock(self, path: str) -> None:
        with folders.in_our_words("locking a checkout"):
            for folder, _, files in os.walk(path, topdown=False):
                for entry in (*(Path(folder, name) for name in files), Path(folder)):
                    mode = entry.lstat().st_mode
                    if not stat.S_ISLNK(mode):
                        entry.chmod(stat.S_IMODE(mode) & ~0o222)

    def discard(self, path: str) -> None:
        with folders.in_our_words("removing a checkout"):
            folders.delete_tree(Path(path))


def _apply(folder: Path, patch: Patch) -> None:
    """Take the paths as they are in the patch's commit, and nothing of them where it has none."""
    listed = git("ls-tree", "-r", "-z", "--name-only", "--full-tree", patch.commit, cwd=folder)
    there = {*names_in(listed)}
    for name in patch.paths:
        if folders.is_inside(name) and not folders.is_behind_link(folder, name):
            folders.delete_tree(folder / name)
    kept = [name for name in patch.paths if name in there or any(one.startswith(f"{name}/") for one in there)]
    if kept:
        wanted = joined(f":(literal){name}" for name in kept)
        from_file = ("--pathspec-from-file=-", "--pathspec-file-nul")
        git("checkout", "--quiet", *from_file, patch.commit, cwd=folder, input=wanted)
