"""What is there of a removed workspace: looked up, never assumed."""

from __future__ import annotations

import os

from fleet.adapters.workspaces.command import git
from fleet.adapters.workspaces.folders import below
from fleet.adapters.workspaces.recovery import kept_snapshot, reading_aside
from fleet.adapters.workspaces.refs import read_ref
from fleet.adapters.workspaces.removal import kept_file
from fleet.adapters.workspaces.snapshots import read_snapshot
from fleet.adapters.workspaces.worktrees import Site
from fleet.errors import FleetError, GitFailed
from fleet.ports.workspace import Remains


def find_remains(site: Site) -> Remains:
    """Look for the snapshot, read every object of it, and look for the files that were set aside."""
    ref, copy = read_ref(site.common, site.saved_ref), kept_snapshot(site)
    sha = copy or ref
    set_aside = aside_names(site)
    return Remains(
        snapshot=sha,
        has_ref=bool(ref),
        damage=_damage(site, sha) if sha else "",
        kept_in=str(site.kept) if site.kept.is_dir() else "",
        aside=tuple(name for name in set_aside if _is_kept(site, name)),
        missing=tuple(name for name in set_aside if not _is_kept(site, name)),
    )


def aside_names(site: Site) -> tuple[str, ...]:
    """Return the names of the files that were set aside when the workspace was removed."""
    try:
        return tuple(read_snapshot(site, site.saved_ref).manifest.aside)
    except FleetError:
        return ()


def kept_names(site: Site) -> tuple[str, ...]:
    """Return the names of the set-aside files that are in `.kept`."""
    if not (site.kept / "files").is_dir():
        return ()
    return tuple(name for name in aside_names(site) if _is_kept(site, name))


def _is_kept(site: Site, name: str) -> bool:
    return os.path.lexists(kept_file(site, name)) or os.path.lexists(below(site.trash, name))


def _damage(site: Site, sha: str) -> str:
    """Return why a snapshot cannot be read in full, "" if it can."""
    env = reading_aside(site)
    check = ("rev-list", "--quiet", "--objects", "--verify-objects")
    try:
        git(*check, "--no-walk", sha, cwd=site.common, env=env)
        git(*check, sha, "--not", site.place.base_sha, cwd=site.common, env=env)
    except GitFailed as exc:
        return exc.reason
    return ""
