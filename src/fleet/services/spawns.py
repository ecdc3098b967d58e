"""Who calls over MCP, and what that caller may start, read or change."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fleet.domain import spawn as rules
from fleet.domain.event import Json
from fleet.domain.queue import LEAST_USD
from fleet.domain.run import Run
from fleet.domain.spawn import RUN, TOKEN, Access, Ancestry, Caller, Mark, Spawn
from fleet.domain.task import Task
from fleet.errors import InvalidInput, Refused
from fleet.records.lineage import Lineage
from fleet.records.runs import Runs
from fleet.records.spawns import Spawns
from fleet.records.tasks import QueueState, Tasks
from fleet.services.fleet import Fleet
from fleet.services.folders import project_at

if TYPE_CHECKING:
    from fleet.config.settings import Settings


class Admission(NamedTuple):
    """What a caller may do: where, and from where on."""

    spawn: str = ""  # the id of one, for what is about to be started
    folder: str = ""  # the repository that was checked; "": whichever the caller names
    base: str = ""  # the commit that the caller's base names there


class SpawnService:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    # The store is opened when it is needed: who acts as a person may be about to say where it is.

    @cached_property
    def _spawns(self) -> Spawns:
        return Spawns(self._fleet.store)

    @cached_property
    def _runs(self) -> Runs:
        return Runs(self._fleet.store)

    # who calls

    def identify(
        self, own: Mark, process: Ancestry, peers: Sequence[Ancestry] | None = None, *, user: str = ""
    ) -> Caller:
        """Return who calls, by the marks of this process and, over HTTP, of those at the other end.

        `peers` is empty for a client on another machine; `user` names who is at the terminal of a command.
        Raises `Refused` for a mark of another home's run, of one that has ended, with a wrong token, or in
        the hands of a process that is not the run's. A command may lack the token where the tree of processes
        proves the run: some agent CLIs hide variables named like secrets from their tools.
        """
        found = (mark for one in (process, *(peers or ())) for mark in one.marks)
        marks = [mark for mark in (own, *found) if any(mark)]
        known = [mark for mark in marks if mark.run and self._runs.peek(mark.run)]
        mark = rules.own_mark([own, *known])
        if mark is None and not marks:
            return replace(_free_caller(self._fleet.settings), user=user)
        run = self._runs.peek(mark.run) if mark else None
        if mark is None or run is None:
            name = mark.run if mark else marks[0].run
            hint = "an agent uses the fleet that started it"
            raise Refused(f"this process is an agent's, and run {name!r} belongs to another home", hint=hint)
        agents = self._fleet.live_agents(run)
        needs_token = bool(mark.token) or not user or agents is None
        if needs_token and not rules.holds_key(run, mark.token):
            raise Refused(
                f"this process says that it belongs to run {mark.run!r}, and cannot prove it",
                hint=f"an agent's environment has {RUN} and {TOKEN}: hand both on, as they are",
            )
        if run.has_ended:
            raise Refused(f"run {run.id} has ended: nothing of it may act any more", hint="ask a person")
        clients = () if peers is None else peers or (Ancestry(),)  # on another machine nobody is the run's
        is_own = peers is None or any((own.run, *process.marks))
        callers = [*clients, *([process] if is_own else ())]
        if agents is not None and not all(rules.is_of_run(one, run.id, agents) for one in callers):
            raise Refused(
                f"a process that claims run {run.id} was not started by that run's agent",
                hint=f"leave ${RUN} and ${TOKEN} to the agent that they were given to, and to what it starts",
            )
        return self._agent(run)

    def _agent(self, run: Run) -> Caller:
        spawn = Lineage(self._fleet.store).spawn_behind(run.id)
        if spawn is None:  # it was started from a command line
            return replace(_free_caller(self._fleet.home_settings), run=run)
        return Caller(
            run=run, depth=spawn.depth, repositories=spawn.repositories, most_depth=spawn.most_depth
        )

    # what may be

    def admit(
        self,
        caller: Caller,
        access: Access,
        *,
        folder: str | None = None,
        base: str = "HEAD",
        budget_usd: float = 0.0,
        is_recorded: bool = True,
    ) -> Admission:
        """Raise `Refused` if the caller may not; return where it may, and a spawn for what it is to start.

        Part of an agent's budget goes over to the spawn. Raises `OverLimit` if there is too little left.
        """
        rules.check_access(caller, access)
        if folder is None:
            return Admission()
        if project_at(folder) is None:
            hint = "use a folder that is in one"
            raise InvalidInput(f"not a git repository: {folder!r}", hint=hint)
        admission = Admission()
        if caller.is_bounded:  # git is asked once for the repository: whoever works there is not to ask again
            found = self._fleet.repositories.inspect(folder, base, ())
            if not found.is_plain:
                hint = "name the main checkout of a repository in repo_path"
                raise Refused(f"{folder!r} has its git folder elsewhere, in {found.git_dir}", hint=hint)
            self.require_repository(caller, found.top)
            admission = Admission(folder=found.top, base=found.base_sha)
        if access is not Access.START or not is_recorded:
            return admission
        return admission._replace(spawn=self.new_spawn(caller, budget_usd))

    def new_spawn(self, caller: Caller, budget_usd: float = 0.0) -> str:
        """Record what agents that a caller starts may start in turn; return the id of that."""
        rules.check_budget(budget_usd)
        spawn = Spawn(
            # First the money is gone, then somebody has it: no kill in between makes it more.
            budget_usd=self._hand_on(caller.run, budget_usd) if caller.run else budget_usd,
            id=secrets.token_hex(8),
            run=caller.run.id if caller.run else "",
            depth=caller.child_depth,
            repositories=caller.repositories,
            most_depth=caller.most_depth,
            created_at=time.time(),
        )
        self._spawns.add(spawn)
        return spawn.id

    def _hand_on(self, run: Run, wanted_usd: float) -> float:
        """Take money out of a run's budget for what it starts; return how much. 0: there is no limit."""
        share = 0.0

        def lowered(run: Run) -> Run:
            nonlocal share
            share = rules.share_of(run, wanted_usd)
            return rules.paying(run, share)

        self._move(self._runs.update(run.id, lowered), share)
        return share

    def _move(self, run: Run, usd: float) -> None:
        """Let what a run gave, or got back, count for the next attempt at its task, too."""
        tasks = Tasks(self._fleet.store)
        if not run.budget_usd or run.task is None or tasks.peek(run.task) is None:
            return
        before_usd = run.budget_usd + usd

        def changed(task: Task) -> Task:
            # What the run had is what was in force; the settings that its agent can reach tell nothing.
            budget = task.budget_usd or before_usd + task.spent_usd - task.run_usd
            return replace(task, budget_usd=max(LEAST_USD, budget - usd))

        tasks.update(run.task, changed)
        QueueState(self._fleet.store).change_ledger(lambda ledger: ledger.hand_on(str(run.task), usd))

    def give_back(self, name: str) -> None:
        """Return the money of a spawn that nothing came of; if something did, it has nothing to spend."""
        spawn = self._spawns.peek(name) if name else None
        if spawn is None or not spawn.run or not spawn.budget_usd:
            return
        usd = spawn.budget_usd
        self._spawns.update(name, lambda spawn: replace(spawn, budget_usd=LEAST_USD))
        self._move(self._runs.update(spawn.run, lambda run: rules.paying(run, -usd)), -usd)

    def budget_of(self, name: str) -> float:
        """Return what all that comes of a spawn may cost together; 0: no limit."""
        spawn = self._spawns.peek(name) if name else None
        return spawn.budget_usd if spawn else 0.0

    def require_own(self, caller: Caller, name: str) -> None:
        """Raise `Refused` if an agent is to change what it has not started; `name` is of any kind."""
        if caller.run is not None:
            rules.check_own(caller, set(Lineage(self._fleet.store).runs_behind(name)))

    def require_repository(self, caller: Caller, project: str) -> None:
        """Raise `Refused` if the caller may not have work go on in a repository, as it is recorded."""
        rules.check_repository(caller, project, kept_places=self._kept_places())

    def _kept_places(self) -> Iterator[str]:
        yield str(self._fleet.home.resolve())
        yield from (str(Path(run.workspace).resolve()) for run in self._runs.each() if run.workspace)

    # what was called

    def record(self, caller: Caller | None, event: Mapping[str, Json]) -> None:
        """Keep a call and whose it was, in a stream for each day."""
        who: Json = None if caller is None else caller.run.id if caller.run else ""
        now = time.time()
        day = time.strftime("%Y-%m-%d", time.gmtime(now))
        depth = None if caller is None else caller.depth
        self._fleet.store.append(f"mcp/{day}", [{"at": now, "run": who, "depth": depth, **event}])


def _free_caller(settings: Settings) -> Caller:
    """Return a caller whom nobody started: only the settings say what it may."""
    folders = tuple(str(Path(folder).expanduser().resolve()) for folder in settings.limits_allowed_repos)
    return Caller(repositories=folders, most_depth=settings.limits_max_spawn_depth)
