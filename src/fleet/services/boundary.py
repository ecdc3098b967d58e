"""Runs that are held for what changed outside of their workspaces: look, restore, accept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fleet.domain.boundary import Outside, OutsideKind, Weight, why_held
from fleet.errors import Conflict, FleetError, Next
from fleet.ports.workspace import Place
from fleet.records.boundary import AcceptedChanges
from fleet.records.runs import Runs

if TYPE_CHECKING:
    from fleet.domain.run import Run
    from fleet.services.fleet import Fleet


def refuse_held(run: Run) -> None:
    """Raise `Conflict` if a person must look before a run's work is used."""
    if run.held:
        hint = ("look at it with ", Next("boundary.show", run=run.branch), ", then restore or accept it")
        raise Conflict(f"{run.branch!r} is held: {run.held}", hint=hint)


class BoundaryService:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._runs = Runs(fleet.store)
        self._accepted = AcceptedChanges(fleet.store)

    def held(self) -> list[Run]:
        return self._runs.find("held", "yes")

    def accept(self, name: str, *, by: str) -> Run:
        """Accept what changed as it is now, also for other runs that are held for the same change."""
        found = self._require(name)
        holding = _holding(found)
        for one in holding:
            self._accepted.add(found.project, one, by)
        released = self._resolve(found, holding)
        if not released.held:
            self._fleet.guard.forget(found.id)
        return released

    def accept_file(self, file: str, by: str) -> None:
        """Let a file of settings be as it is now: a person wrote it with a command of fleet's."""
        now = Outside(kind=OutsideKind.FILE, name=file, stamp=self._fleet.guard.content(file).identity)
        self._accepted.add("", now, by, is_state=True)

    def restorable(self, name: str) -> tuple[Run, list[Outside]]:
        """Return a run, and what of its changes can be brought back."""
        found = self._require(name)
        if found.host != self._fleet.host:
            raise Conflict(f"{found.branch!r} worked on another host", hint=f"run this on {found.host}")
        return found, [one for one in _holding(found) if one.kept]

    def restore(self, name: str, *, by: str) -> tuple[Run, list[str]]:
        """Restore what changed; return the run, and what could not be restored and why."""
        found, wanted = self.restorable(name)
        done, problems = list[Outside](), list[str]()
        for one in reversed(wanted):  # the latest first: what changed twice goes back step by step
            try:
                self._fleet.guard.restore(found.project, found.id, one)
                self._accepted.add(found.project, self._as_restored(found.project, one), by, is_state=True)
                done.append(one)
            except FleetError as problem:
                problems.append(f"{one.kind} {one.name}: {problem.message}")
        return self._resolve(found, done), problems

    def _as_restored(self, project: str, one: Outside) -> Outside:
        """Return how a run that began after the change will see what was restored."""
        match one.kind:
            case OutsideKind.FILE:
                return replace(one, stamp=self._fleet.guard.content(one.name).identity)
            case OutsideKind.CHECKOUT:
                return replace(one, stamp=self._fleet.guard.content(f"{project}/{one.name}").stamp)
            case OutsideKind.INDEX:
                return replace(one, stamp="", new="as committed")
            case _:
                return replace(one, stamp="", new=one.old)

    def _require(self, name: str) -> Run:
        found = self._fleet.runs.get(name)
        if not found.held:
            hint = ("see held ones with ", Next("boundary.list"))
            raise Conflict(f"{found.branch!r} is not held", hint=hint)
        return found

    def _resolve(self, run: Run, settled: Sequence[Outside]) -> Run:
        """Let go of every run that was held for nothing but these changes."""
        keys = {one.key for one in settled}
        for other in self.held():
            if other.project == run.project and keys & {one.key for one in _holding(other)}:
                self._runs.update(other.id, lambda run: _without(run, keys))
                self._fleet.guard.unpin(Place.of(other))
        self._fleet.link.wake()
        return self._runs.get(run.id)


def _holding(run: Run) -> list[Outside]:
    return [one for one in run.outside if one.weight is Weight.HOLD]


def _without(run: Run, keys: Iterable[str]) -> Run:
    outside = tuple(replace(one, weight=Weight.NOTE) if one.key in keys else one for one in run.outside)
    return replace(run, outside=outside, held=why_held(outside) if run.held else "")
