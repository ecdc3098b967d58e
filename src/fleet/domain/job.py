"""The engine's next job for a run, decided from its record alone."""

from __future__ import annotations

from enum import StrEnum

from fleet.domain.run import Run, Wanted


class Job(StrEnum):
    TURN = "turn"  # prepare, launch, follow, settle
    REMOVE = "remove"  # save and remove the workspace
    RESTORE = "restore"  # bring the workspace back


def next_job(run: Run) -> Job | None:
    """Return what is to be done for a run now; None when it is as it is wanted."""
    if not run.has_work:
        return None
    if not run.has_ended:
        return Job.TURN
    match run.wanted:
        case Wanted.RUN:
            return Job.TURN
        case Wanted.STOP | Wanted.CLEAN:
            return Job.REMOVE
        case Wanted.RESTORE:
            return Job.RESTORE
