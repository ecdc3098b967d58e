"""Who calls over MCP, and what that caller may start, read or change."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from fleet.config import Settings
from fleet.domain.event import Json
from fleet.domain.run import Run
from fleet.domain.spawn import (
    RUN,
    TOKEN,
    Access,
    Caller,
    Mark,
    Spawn,
    check_access,
    check_own,
    check_repository,
    holds_key,
    own_mark,
)
from fleet.errors import InvalidInput, Refused
from fleet.ports.pairs import Pairs
from fleet.ports.races import Races
from fleet.ports.records import Runs
from fleet.ports.spawns import Spawns
from fleet.ports.store import Store
from fleet.ports.tasks import Tasks
from fleet.ports.workflows import Workflows
from fleet.services.projects import project_at

LONGEST_LINE = 50  # of what asked for what; a loop in it is not followed


class SpawnService:
    def __init__(
        self, *, store: Store, settings: Callable[[], Settings], home_settings: Callable[[], Settings]
    ) -> None:
        self._store = store
        self._settings = settings
        self._home_settings = home_settings  # without what the environment of the caller says
        self._spawns = Spawns(store)
        self._runs = Runs(store)
        self._tasks = Tasks(store)

    # who calls

    def identify(self, own: Mark, ancestors: Sequence[Mark]) -> Caller:
        """Return whose process calls: by its own marks and those of the processes that it comes from.

        What is said in the environment counts as far as the token proves it. Raises `Refused` for a mark
        without the token that belongs to it, be it forged, missing or of a run that has ended.
        """
        known = [mark for mark in ancestors if mark.run and self._runs.peek(mark.run)]
        mark = own_mark([own, *known])
        if mark is None:
            settings = self._settings()
            return Caller(repositories=_real(settings.allowed_repos), most_depth=settings.max_spawn_depth)
        run = self._runs.peek(mark.run)
        if run is None or not holds_key(run, mark.token):
            raise Refused(
                f"this process says that it belongs to run {mark.run!r}, and cannot prove it",
                hint=f"an agent's environment has {RUN} and {TOKEN}: hand both on, as they are",
            )
        if run.has_ended:
            raise Refused(f"run {run.id} has ended: nothing of it may act any more", hint="ask a person")
        return self._agent(run)

    def _agent(self, run: Run) -> Caller:
        spawn = self._spawn_of(run)
        settings = self._home_settings()
        if spawn is None:  # it was started from a command line
            return Caller(
                run=run,
                repositories=_real(settings.allowed_repos),
                most_depth=settings.max_spawn_depth,
            )
        return Caller(
            run=run, depth=spawn.depth, repositories=spawn.repositories, most_depth=spawn.most_depth
        )

    # what may be

    def admit(self, caller: Caller, access: Access, *, folder: str | None = None) -> str:
        """Raise `Refused` if the caller may not; return the id of a spawn for what it is about to start."""
        check_access(caller, access)
        if access is Access.READ or folder is None:
            return ""
        project = project_at(folder)
        if project is None:
            raise InvalidInput(
                f"{folder!r} is in no git repository", hint="name a folder of one in repo_path"
            )
        check_repository(caller, project)
        return self._new_spawn(caller) if access is Access.START else ""

    def _new_spawn(self, caller: Caller) -> str:
        spawn = Spawn(
            id=secrets.token_hex(8),
            run=caller.run.id if caller.run else "",
            depth=caller.child_depth,
            repositories=caller.repositories,
            most_depth=caller.most_depth,
            created_at=time.time(),
        )
        self._spawns.add(spawn)
        return spawn.id

    def require_own(self, caller: Caller, name: str) -> None:
        """Raise `Refused` if an agent is to change what it has not started; `name` is of any kind."""
        if caller.run is not None:
            check_own(caller, set(self._lineage(name)))

    # where something comes from

    def _lineage(self, name: str) -> Iterator[str]:
        """Yield the runs whose agents asked for something, the nearest first."""
        for _ in range(LONGEST_LINE):
            spawn = self._spawn_behind(name)
            if spawn is None or not spawn.run:
                return
            yield spawn.run
            name = spawn.run

    def _spawn_of(self, run: Run) -> Spawn | None:
        return self._spawn_behind(run.id)

    def _spawn_behind(self, name: str) -> Spawn | None:
        """Return the spawn that a run, task, pair, race or workflow comes from, directly or as a part."""
        for _ in range(LONGEST_LINE):
            origin, whole = self._origin_of(name)
            if origin:
                return self._spawns.peek(origin)
            if not whole:
                return None
            name = whole
        return None

    def _origin_of(self, name: str) -> tuple[str, str]:
        """Return the spawn that something names itself, and what it is a part of."""
        if run := self._runs.peek(name):
            return "", run.task or ""
        if task := self._tasks.peek(name):
            return task.origin, task.part_of
        if pair := Pairs(self._store).peek(name):
            return pair.origin, pair.part_of
        if race := Races(self._store).peek(name):
            return race.origin, ""
        if workflow := Workflows(self._store).peek(name):
            return workflow.origin, workflow.parent
        return "", ""

    # what was called

    def record(self, caller: Caller | None, event: Mapping[str, Json]) -> None:
        """Keep a call and whose it was, in a stream for each day."""
        who: Json = None if caller is None else caller.run.id if caller.run else ""
        now = time.time()
        day = time.strftime("%Y-%m-%d", time.gmtime(now))
        depth = None if caller is None else caller.depth
        self._store.append(f"mcp/{day}", [{"at": now, "run": who, "depth": depth, **event}])


def _real(folders: Sequence[str]) -> tuple[str, ...]:
    return tuple(str(Path(folder).expanduser().resolve()) for folder in folders)
