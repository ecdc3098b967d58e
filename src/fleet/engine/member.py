"""A member: a place where agents run, and everything that is done there."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from fleet.domain.ids import TrialId
from fleet.domain.run import Run
from fleet.ports.boundary import Boundary
from fleet.ports.checkout import Checkouts
from fleet.ports.repository import Repositories
from fleet.ports.transport import Transport
from fleet.ports.workspace import Workspaces
from fleet.shim.client import Shim


@dataclass(frozen=True, kw_only=True)
class Member:
    """One place for agents. Today there is one: the machine that the supervisor is on."""

    name: str
    root: Path  # fleet's folder there
    transport: Transport
    shim: Shim
    hook_script: Path
    workspaces: Workspaces
    checkout: Workspaces  # the user's own
    checkouts: Checkouts  # clean ones, for gates and trials
    repositories: Repositories
    boundary: Boundary

    def workspaces_of(self, run: Run) -> Workspaces:
        return self.checkout if run.is_shared else self.workspaces

    def run_folder(self, run_id: str) -> Path:
        return self.root / "runs" / run_id

    def turn_folder(self, run_id: str, turn: int) -> str:
        return str(self.run_folder(run_id) / f"turn-{turn}")

    def trial_folder(self, trial_id: TrialId) -> Path:
        return self.root / "trials" / trial_id

    def free_mb(self) -> int:
        """Return how much room is left on the disk of its root."""
        return shutil.disk_usage(self.root).free >> 20
