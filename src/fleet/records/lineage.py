"""Where something comes from: the spawn behind a run, a task or work made of tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from fleet.ports.store import Store
from fleet.records.runs import Runs
from fleet.records.tasks import Tasks
from fleet.work.registry import find_work

if TYPE_CHECKING:
    from fleet.domain.spawn import Spawn

LONGEST_LINE = 50  # of what asked for what; a loop in it is not followed


class Lineage:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._runs = Runs(store)
        self._tasks = Tasks(store)

    def runs_behind(self, name: str) -> Iterator[str]:
        """Yield the runs whose agents asked for something, the nearest first."""
        for _ in range(LONGEST_LINE):
            spawn = self.spawn_behind(name)
            if spawn is None or not spawn.run:
                return
            yield spawn.run
            name = spawn.run

    def parents_of(self, task_id: str) -> set[str]:
        """Return the tasks whose agents asked for a task, directly or through others."""
        found = (self._runs.peek(name) for name in self.runs_behind(task_id))
        return {run.task for run in found if run and run.task}

    def spawn_behind(self, name: str) -> Spawn | None:
        """Return the spawn that something comes from, directly or as a part; None for what a person began."""
        origin = next((origin for origin, _ in self._line_of(name) if origin), "")
        if not origin:
            return None
        from fleet.records.spawns import Spawns  # most commands never ask

        return Spawns(self._store).peek(origin)

    def wholes_of(self, name: str) -> Iterator[str]:
        """What something is a part of, the nearest first: its task, that one's race, say, and on."""
        return (whole for _, whole in self._line_of(name) if whole)

    def is_part_of(self, name: str, wholes: Collection[str]) -> bool:
        """Whether something, or what it is a part of, is among those that are named."""
        return any(one in wholes for one in (name, *self.wholes_of(name)))

    def _line_of(self, name: str) -> Iterator[tuple[str, str]]:
        """Yield the origin of something, that of what it is a part of, and on."""
        for _ in range(LONGEST_LINE):
            if run := self._runs.peek(name):
                origin, name = run.origin, run.task or ""
            elif task := self._tasks.peek(name):
                origin, name = task.origin, task.part_of
            elif found := find_work(self._store, name):
                origin, name = found.work.origin, found.work.parent
            else:
                return
            yield origin, name
            if not name:
                return
