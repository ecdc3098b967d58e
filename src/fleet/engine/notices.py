"""Tells a person that one is needed: by a command of theirs, and by a webhook. Never stops the queue."""

from __future__ import annotations

import json
import logging
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from shlex import quote

from fleet.config import Settings
from fleet.domain.pair import Pair, PairState
from fleet.domain.task import Task, TaskState
from fleet.domain.train import Train, TrainState
from fleet.domain.workflow import StageState, Workflow, told_of_questions
from fleet.engine.context import EngineContext
from fleet.errors import FleetError
from fleet.records.pairs import Pairs
from fleet.records.tasks import Hold, QueueState, Tasks
from fleet.records.trains import Trains
from fleet.records.workflows import Workflows

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 20.0
MOST_TRIES = 8
PAUSE_SECONDS = 15.0  # after the first try that failed; it doubles with each: half an hour in all


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    # workflow.asks, task.blocked, task.asks, task.held, pair.undecided, train.halted or coder.held
    kind: str
    about: str  # id of what it is about, or name of the coder
    title: str
    text: str
    command: str  # what to type
    project: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tries:
    count: int = 0
    next_at: float = 0.0


class Notices:
    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._tasks = Tasks(context.store)
        self._pairs = Pairs(context.store)
        self._workflows = Workflows(context.store)
        self._trains = Trains(context.store)
        self._state = QueueState(context.store)
        self._tries: dict[str, _Tries] = {}

    def send_due(self) -> None:
        """Send what was not told yet, each at most a few times. Blocks for a while: call it in a thread."""
        now = time.monotonic()
        for notice in self._due():
            tried = self._tries.get(notice.about, _Tries())
            if now < tried.next_at:
                continue
            if self._send(notice) or tried.count + 1 >= MOST_TRIES:
                self._tries.pop(notice.about, None)
                self._mark(notice)
            else:
                pause = PAUSE_SECONDS * 2**tried.count
                self._tries[notice.about] = _Tries(count=tried.count + 1, next_at=now + pause)

    def _due(self) -> Iterator[Notice]:
        for task in self._tasks.find("untold", self._context.host):
            yield _about_task(task)
        for pair in self._pairs.find("untold", self._context.host):
            yield _about_pair(pair)
        for workflow in self._workflows.find("untold", self._context.host):
            yield _about_workflow(workflow)
        for train in self._trains.find("untold", self._context.host):
            yield _about_train(train)
        for hold in self._state.holds().values():
            if not hold.until and not hold.is_told:
                yield _about_coder(hold)

    def _mark(self, notice: Notice) -> None:
        if notice.kind == "coder.held":
            self._state.mark_told(notice.about)
        elif notice.kind == "workflow.asks":
            self._workflows.update(notice.about, told_of_questions)
        elif notice.kind == "pair.undecided":
            self._pairs.update(notice.about, lambda pair: _told_of_pair(pair, notice))
        elif notice.kind == "train.halted":
            self._trains.update(notice.about, lambda train: _told_of_train(train, notice))
        else:
            self._tasks.update(notice.about, lambda task: _told(task, notice))

    def _send(self, notice: Notice) -> bool:
        try:
            settings = self._context.settings_for(notice.project)
            outcomes = [_run_command(settings, notice), _post(settings, notice)]
        except FleetError as problem:  # a broken configuration
            log.error("notice.failed", extra={"about": notice.about, "reason": problem.message})
            return False
        return all(outcomes)


def _about_task(task: Task) -> Notice:
    if task.is_held:
        return Notice(
            kind="task.held",
            about=task.id,
            title=f"{task.id} is held: {task.title}",
            text=task.reason,
            command=f"fleet boundary show {quote(task.branch)}",
            project=task.project,
        )
    asks = bool(task.question)
    return Notice(
        kind="task.asks" if asks else "task.blocked",
        about=task.id,
        title=f"{task.id} {'asks' if asks else 'needs you'}: {task.title}",
        text=task.reason,
        command=f'fleet answer {task.question} "…"' if asks else f"fleet show {task.id}",
        project=task.project,
    )


def _about_workflow(workflow: Workflow) -> Notice:
    index = next(at for at, one in enumerate(workflow.progress) if one.state is StageState.ASKING)
    stage = workflow.stages[index].name
    return Notice(
        kind="workflow.asks",
        about=workflow.id,
        title=f"{workflow.id} asks: {workflow.name}, stage {stage}",
        text=workflow.progress[index].reason,
        command=f"fleet workflow approve {workflow.id} {stage}",
        project=workflow.project,
    )


def _about_pair(pair: Pair) -> Notice:
    return Notice(
        kind="pair.undecided",
        about=pair.id,
        title=f"{pair.id} needs your decision: {pair.prompt.strip().partition(chr(10))[0][:100]}",
        text=pair.reason,
        command=f"fleet pair show {pair.id}",
        project=pair.project,
    )


def _told_of_pair(pair: Pair, notice: Notice) -> Pair:
    is_same = pair.state is PairState.UNDECIDED and _about_pair(pair) == notice
    return replace(pair, is_told=True) if is_same else pair


def _about_train(train: Train) -> Notice:
    return Notice(
        kind="train.halted",
        about=train.id,
        title=f"{train.id} into {train.target} needs you",
        text=train.reason,
        command=f"fleet train show {train.id}",
        project=train.project,
    )


def _told_of_train(train: Train, notice: Notice) -> Train:
    is_same = train.state is TrainState.HALTED and _about_train(train) == notice
    return replace(train, is_told=True) if is_same else train


def _about_coder(hold: Hold) -> Notice:
    return Notice(
        kind="coder.held",
        about=hold.coder,
        title=f"no task is started with {hold.coder}",
        text=hold.reason,
        command=f"fleet resume {hold.coder}",
    )


def _told(task: Task, notice: Notice) -> Task:
    """Return the task as one that a person knows of, unless something else is the matter with it by now."""
    needs_person = task.state is TaskState.BLOCKED or task.is_held
    is_same = needs_person and _about_task(task) == notice
    return replace(task, is_told=True) if is_same else task


def _run_command(settings: Settings, notice: Notice) -> bool:
    if not settings.notify_command:
        return True
    try:
        done = subprocess.run(
            ["sh", "-c", settings.notify_command],
            input=json.dumps(asdict(notice), ensure_ascii=False).encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=PATIENCE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        return _failed(notice, "notify.command", str(problem))
    said = done.stderr.decode(errors="replace").strip()[-300:]
    return done.returncode == 0 or _failed(notice, "notify.command", f"exit code {done.returncode}: {said}")


def _post(settings: Settings, notice: Notice) -> bool:
    """Post as ntfy takes it: the text is the body, the title a header."""
    if not settings.notify_webhook:
        return True
    import urllib.error  # they take long to load, and few have a webhook
    import urllib.request

    title = notice.title.encode("ascii", "replace").decode().replace("\n", " ")
    request = urllib.request.Request(
        settings.notify_webhook,
        data=f"{notice.text}\n{notice.command}".encode(),
        headers={"Title": title, "Content-Type": "text/plain; charset=utf-8"},
        method="POST",
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS):
            return True
    except (OSError, ValueError, urllib.error.URLError) as problem:
        return _failed(notice, "notify.webhook", str(problem))


def _failed(notice: Notice, means: str, reason: str) -> bool:
    log.error("notice.failed", extra={"about": notice.about, "means": means, "reason": reason})
    return False
