"""Stale folders, which a supervisor that was killed could not delete: set aside at start, then deleted."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

from fleet.domain.task import TaskState
from fleet.engine.context import EngineContext
from fleet.errors import FleetError
from fleet.files.private import make_private, tighten_folder

log = logging.getLogger(__name__)

ASIDE = "leftovers"


def set_aside(context: EngineContext) -> None:
    """Take them out of the way, which is quick. Call it before there are jobs, which may want the names."""
    aside = context.home / ASIDE
    try:
        for folder in _stale(context):
            make_private(aside)
            folder.rename(aside / os.urandom(16).hex())
    except (FleetError, OSError) as problem:  # they are in nobody's way: the next supervisor tries again
        log.warning("leftovers.kept", extra={"reason": str(problem)})


def tighten(context: EngineContext) -> None:
    """Close the folders to others that an earlier version left open, and with them all that is in them."""
    for name in ("runs", "tasks", "trials", "inputs", ASIDE, "workspaces"):
        tighten_folder(context.home / name)


def delete(context: EngineContext) -> None:
    """Delete what was set aside; it may take its time."""
    for folder in _folders(context.home / ASIDE):
        try:
            context.member.checkouts.discard(str(folder))
        except FleetError as problem:
            log.warning("leftovers.kept", extra={"reason": problem.message})


def _stale(context: EngineContext) -> Iterator[Path]:
    """Yield folders of ended trials and closed tasks; an unknown one may be another store's of this home."""
    for folder in _folders(context.home / "trials"):
        if (trial := context.trials.peek(folder.name)) is not None and trial.has_ended:
            yield folder
    for folder in _folders(context.home / "inputs"):
        task = context.tasks.peek(folder.name)
        if task is not None and task.state is TaskState.CLOSED:
            run = context.runs.of_task(task)
            if run is None or not run.has_work:
                yield folder


def _folders(parent: Path) -> list[Path]:
    return list(parent.iterdir()) if parent.is_dir() else []
