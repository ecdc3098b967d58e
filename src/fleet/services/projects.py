"""Which repository a folder belongs to, told by its files alone: asking git would take longer."""

from __future__ import annotations

import os
from pathlib import Path


def project_at(folder: str) -> str | None:
    """Return the top of the repository that a folder is in, its main checkout's also from a linked worktree.

    None where there is no repository.
    """
    try:
        here = Path(os.path.realpath(folder))
    except FileNotFoundError:  # the folder that this process is in is gone
        return None
    for place in (here, *here.parents):
        git = place / ".git"
        if git.is_file():
            return _main_checkout(git)
        if _is_git_folder(git):
            return str(place)
        if _is_git_folder(place) and (place / "objects").is_dir():
            return str(place)  # a bare one
    return None


def is_linked(folder: str) -> bool:
    """Tell whether a folder is in a linked worktree: another checkout than the repository's main one."""
    here = Path(os.path.realpath(folder))
    for place in (here, *here.parents):
        if (place / ".git").exists():
            return project_at(str(place)) != str(place)
    return False


def _is_git_folder(folder: Path) -> bool:
    return os.path.lexists(folder / "HEAD")


def _main_checkout(git: Path) -> str:
    """Follow the file that stands in a linked worktree for a git folder; a submodule is on its own."""
    try:
        named = git.read_text(errors="surrogateescape").removeprefix("gitdir:").strip()
    except OSError:
        return str(git.parent)
    private = Path(os.path.realpath(git.parent / named))  # <common git folder>/worktrees/<name>
    if private.parent.name != "worktrees":
        return str(git.parent)
    common = private.parent.parent
    return str(common.parent if common.name == ".git" else common)
