"""Tells a person that one is needed: by a command of theirs, and by a webhook. Never stops the queue."""

from __future__ import annotations

import json
import logging
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from shlex import quote

from fleet.config.settings import Settings
from fleet.domain.task import Task, TaskState
from fleet.engine.context import EngineContext
from fleet.errors import FleetError
from fleet.work.registry import find_work, kinds
from fleet.work.spec import Notice

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 20.0
MOST_TRIES = 8
PAUSE_SECONDS = 15.0  # after the first try that failed; it doubles with each: half an hour in all


class Notices:
    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._tries: dict[str, tuple[int, float]] = {}  # how often, and when to try again

    def send_due(self) -> None:
        """Send what was not told yet, each at most a few times. Blocks for a while: call it in a thread."""
        now = time.monotonic()
        for notice in self._due():
            count, next_at = self._tries.get(notice.about, (0, 0.0))
            if now < next_at:
                continue
            if self._send(notice) or count + 1 >= MOST_TRIES:
                self._tries.pop(notice.about, None)
                self._mark(notice)
            else:
                self._tries[notice.about] = (count + 1, now + PAUSE_SECONDS * 2**count)

    def _due(self) -> Iterator[Notice]:
        for task in self._context.tasks.find("untold", self._context.host):
            yield _about_task(task)
        for kind in kinds():
            for work in kind.collection(self._context.store).find("untold", self._context.host):
                if notice := kind.notice(work):
                    yield notice
        for hold in self._context.queue_state.holds().values():
            if not hold.until and not hold.is_told:
                title = f"no task is started with {hold.coder}"
                yield Notice("coder.held", hold.coder, title, hold.reason, f"fleet resume {hold.coder}")

    def _mark(self, notice: Notice) -> None:
        """Mark a notice as sent, unless something else is the matter by now."""

        def told(task: Task) -> Task:
            needs_person = task.state is TaskState.BLOCKED or task.is_held
            return replace(task, is_told=True) if needs_person and _about_task(task) == notice else task

        if notice.kind == "coder.held":
            self._context.queue_state.mark_told(notice.about)
        elif found := find_work(self._context.store, notice.about):
            kind = found.kind
            kind.collection(self._context.store).update(
                notice.about, lambda work: kind.mark_told(work) if kind.notice(work) == notice else work
            )
        else:
            self._context.tasks.update(notice.about, told)

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
        kind, needs, command = "task.held", "is held", f"fleet boundary show {quote(task.branch)}"
    elif task.question:
        kind, needs, command = "task.asks", "asks", f'fleet answer {task.question} "…"'
    else:
        kind, needs, command = "task.blocked", "needs you", f"fleet show {task.id}"
    title = f"{task.id} {needs}: {task.title}"
    return Notice(kind, task.id, title, task.reason, command, task.project)


def _run_command(settings: Settings, notice: Notice) -> bool:
    if not settings.notify_command:
        return True
    try:
        done = subprocess.run(
            ["sh", "-c", settings.notify_command],
            input=json.dumps(notice._asdict(), ensure_ascii=False).encode(),
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
