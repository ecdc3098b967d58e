"""The Repositories port on the git command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fleet.adapters.workspaces import comparing, repository
from fleet.adapters.workspaces.worktrees import site_of
from fleet.ports.workspace import Place, Repository


class GitRepositories:
    def inspect(self, folder: str, base_ref: str, branches: Sequence[str]) -> Repository:
        found = repository.inspect_for(Path(folder), base_ref, branches)
        return Repository(top=found.top, base_sha=found.base_sha)

    def diff_text(self, place: Place, *, stat: bool = False) -> str:
        return comparing.diff_text(site_of(place), stat=stat)
