"""The engine's context: the stores, ports and settings that its steps share, and what they all do."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ParamSpec, TypeVar

from fleet.config.settings import Settings
from fleet.domain.event import Event, EventKind, Json
from fleet.domain.ids import RunId, TaskId
from fleet.domain.run import Run, RunState
from fleet.domain.task import Task
from fleet.domain.task_prompts import PLAN, read_plan
from fleet.domain.turn import Story
from fleet.domain.usage import Usage
from fleet.engine.clock import Clock
from fleet.engine.log import RunLog, Threads
from fleet.engine.tmux import Tmux
from fleet.errors import FleetError
from fleet.files.untrusted import read_plain
from fleet.ports.boundary import Boundary
from fleet.ports.checkout import Checkouts
from fleet.ports.coder import Coder, Facts, Turn
from fleet.ports.history import History
from fleet.ports.merging import Merging
from fleet.ports.repository import Repositories
from fleet.ports.store import Store
from fleet.ports.transport import Transport
from fleet.ports.workspace import Place, Workspaces
from fleet.records.collection import encode_item
from fleet.records.runs import Runs
from fleet.records.tasks import QueueState, Tasks
from fleet.records.trials import Trials
from fleet.shim.client import Shim

Answer = TypeVar("Answer")
Arguments = ParamSpec("Arguments")
DEFAULT_GRACE_SECONDS = 10.0
TASK_COMMANDS = ("fleet task close", "fleet task comment", "fleet ask", "fleet show")
RUN_FILE = "run.json"  # in a run's folder: its record, for the day that the store is damaged
RETRY_SECONDS = 2.0  # until the next look at what failed for a reason that passes


@dataclass(frozen=True, kw_only=True)
class Member:
    """A place where agents run. Today there is one: the machine that the supervisor is on."""

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

    def free_mb(self) -> int:
        return shutil.disk_usage(self.root).free >> 20

    async def read_tail(self, path: str, most: int) -> str:
        size = await self.transport.size(path)
        return (await self.transport.read(path, offset=max(0, size - most))).decode(errors="replace")


@dataclass(kw_only=True)
class EngineContext:
    """What every part of the engine works with. One per supervisor."""

    home: Path
    host: str
    store: Store
    member: Member  # where agents run
    merging: Merging
    history: History
    settings_for: Callable[[str], Settings]  # of a project's top folder
    coder_for: Callable[[str, str], Coder]  # name, project
    wishes: Callable[[], AsyncIterator[str]] | None  # yields "kind/key" of what any host writes; "": anything
    lease_seconds: float  # of hosts that share the work; 0: there are none
    host_labels: frozenset[str]  # what tasks may need of a host; its name is one
    price: Callable[[str, Facts, Usage], float | None]  # of a model, as it was asked for, and its tokens
    clock: Clock = field(default_factory=Clock)
    nudges: dict[str, asyncio.Event] = field(default_factory=dict[str, asyncio.Event])  # of runs and trials
    nudge_supervisor: Callable[[], None] = lambda: None  # a job has ended: there may be a next one

    def __post_init__(self) -> None:
        self.runs = Runs(self.store)
        self.tasks = Tasks(self.store)
        self.queue_state = QueueState(self.store)
        self.trials = Trials(self.store)
        self.store_threads = Threads(4, thread_name_prefix="store")
        self.queue_thread = Threads(1, thread_name_prefix="queue")
        self.notice_thread = Threads(1, thread_name_prefix="notices")
        self.beat_thread = Threads(1, thread_name_prefix="heartbeat")
        self.git_threads = Threads(2 * (os.cpu_count() or 1) + 2, thread_name_prefix="git")
        self._logs: dict[RunId, RunLog] = {}

    @property
    def is_sharing(self) -> bool:
        """Whether other hosts work on the same store, which is not on this one then."""
        return self.wishes is not None

    async def get(self, run_id: RunId) -> Run:
        return await self.read(self.runs.get, run_id)

    async def prompt(self, run_id: RunId, number: int) -> str | None:
        return await self.read(self.runs.prompt, run_id, number)

    async def update(self, run_id: RunId, change: Callable[[Run], Run]) -> Run:
        return await self.store_threads.run(self.runs.update, run_id, change)

    async def task_of(self, run: Run) -> Task | None:
        return await self.read(self.tasks.peek, run.task) if run.task else None

    async def why_superseded(self, run: Run) -> str:
        """Tell why a run's word counts no more, if its task is closed or somebody else's by now; else ""."""
        if run.task is None:
            return ""
        task = await self.task_of(run)
        return task.why_superseded(run.id, run.token) if task else f"there is no task {run.task} any more"

    async def become(
        self,
        run_id: RunId,
        state: RunState,
        *,
        reason: str | None = None,
        also: Callable[[Run], Run] = lambda run: run,
        events: tuple[Event, ...] = (),
    ) -> Run:
        """Move a run to another state, change what goes with it, and tell it in its log, all in one write."""

        def change(run: Run) -> Run:
            return also(run.become(state, now=time.time(), reason=reason))

        def tell(before: Run, after: Run) -> tuple[Event, ...]:
            if before.state is after.state:
                return events
            data: dict[str, Json] = {"reason": reason} if reason else {}
            return (*events, Event(kind=EventKind.STATE, text=state, data=data))

        return await (await self.log(run_id)).change(change, tell)

    async def log(self, run_id: RunId) -> RunLog:
        if run_id not in self._logs:
            self._logs[run_id] = await RunLog.open(self.runs, run_id, self.store_threads)
        return self._logs[run_id]

    def forget(self, run_id: RunId) -> None:
        """Drop what is remembered of a run whose job is done."""
        self._logs.pop(run_id, None)
        self.nudges.pop(run_id, None)

    async def note(self, run: Run) -> None:
        """Write a run's record into its folder, too."""
        text = json.dumps(encode_item(run), ensure_ascii=False)
        path = f"{self.member.run_folder(run.id)}/{RUN_FILE}"
        await self.member.transport.write(path, f"{text}\n".encode(errors="backslashreplace"))

    async def read(
        self, function: Callable[Arguments, Answer], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Answer:
        """Read from the store. One on this host is asked at once: to hand over to a thread costs more."""
        if self.is_sharing:
            return await self.store_threads.run(function, *args, **kwargs)
        return function(*args, **kwargs)

    def inputs_folder(self, task_id: TaskId) -> Path:
        """Return where a task's agent finds what it is to read and must not change."""
        return self.home / "inputs" / task_id

    def task_folder(self, task_id: TaskId) -> Path:
        """Return where a task's plan, knowledge and questions are kept, over all of its runs."""
        return self.home / "tasks" / task_id / "artifacts"

    def plan_of(self, task_id: TaskId) -> str:
        """Return how far a task is as its agent says in its plan: "completed", say."""
        return read_plan(read_plain(self.task_folder(task_id) / PLAN))

    def coder(self, run: Run) -> Coder:
        return self.coder_for(run.coder, run.project)

    def turn_for(self, run: Run, prompt: str, folder: str) -> Turn:
        """Return what a run's coder is told to launch an agent on a prompt."""
        settings = self.settings_for(run.project)
        folders = [*self.member.workspaces_of(run).git_folders(Place.of(run))]
        if run.task is not None:
            folders.append(str(self.task_folder(run.task)))
            if (inputs := self.inputs_folder(run.task)).is_dir():
                folders.append(str(inputs))
        return Turn(
            prompt=prompt,
            folder=folder,
            workspace=run.workspace,
            git_folders=tuple(folders),
            hook=("sh", str(self.member.hook_script), f"{folder}/hooks"),
            mode=run.mode,
            role=run.role,
            model=run.model,
            session=run.session,
            # The same for all of the run: a CLI that had no time to confirm its session is offered it again.
            new_session=str(uuid.uuid5(uuid.NAMESPACE_OID, run.id)),
            flags=run.flags,
            allow_commands=(*settings.permissions_allow_commands, *(TASK_COMMANDS if run.task else ())),
            skip_permissions=run.skip_permissions,
        )

    def told_session(self, run: Run) -> str:
        """Return the session that a run's CLI is told to use, if it can be told; else ""."""
        return self.coder(run).launch(self.turn_for(run, "", "")).session

    def can_resume(self, run: Run) -> bool:
        """Whether an ended run can be asked for more in its own session."""
        try:
            return bool(run.session) and self.coder(run).facts.resumes and run.has_workspace
        except FleetError:  # the coder was taken out of the configuration meanwhile
            return False

    def priced(self, run: Run, story: Story) -> Usage:
        """Return what a run used; tokens without a cost are priced by the model, if that is known."""
        usage = story.meter.total
        model = story.model or run.model
        if usage.cost_usd is not None or not usage.total_tokens or not model:
            return usage
        try:
            return replace(usage, cost_usd=self.price(model, self.coder(run).facts, usage))
        except FleetError:  # the coder was taken out of the configuration meanwhile
            return usage

    def tmux(self, run: Run) -> Tmux:
        return Tmux(self.member.transport, run.id, run.tmux)

    def grace_seconds(self, run: Run) -> float:
        try:
            return self.settings_for(run.project).stop_grace_seconds
        except FleetError:  # a broken configuration must not keep an agent from being stopped
            return DEFAULT_GRACE_SECONDS

    def nudge_of(self, key: str) -> asyncio.Event:
        """Return what wakes whoever waits for something to happen to a run or a trial."""
        return self.nudges.setdefault(key, asyncio.Event())
