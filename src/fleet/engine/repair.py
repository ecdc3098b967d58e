"""Rebuild the records of runs after their store was damaged, from what is left of the runs themselves.

A run's own folder has its facts (`run.json`), its prompts, how its agents' processes stand, and its result;
its repository has its branch, its worktree and its refs. No agent is started a second time for it.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from fleet.domain.event import EventKind, Json, count_in
from fleet.domain.ids import RunId
from fleet.domain.process import Phase
from fleet.domain.rebuilding import Remains, Trace, newest, rebuild
from fleet.domain.run import Result, Run
from fleet.domain.task import Task, TaskState
from fleet.engine.context import RUN_FILE
from fleet.engine.follow import turn_start
from fleet.ports.store import Store
from fleet.records.collection import decode_item
from fleet.records.runs import Runs, encode_event
from fleet.records.tasks import QueueState, Tasks
from fleet.shim.client import Shim
from fleet.work.registry import KINDS

PAUSED = "the store was repaired: see what became of the tasks, then resume the queue"
UNKNOWN_CODER = "unknown"
# What the repositories of projects and of workspaces in a folder tell of runs, by run.
FindTraces = Callable[[set[str], Path], Mapping[str, Trace]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """What was done to the records."""

    corrected: tuple[Run, ...]  # those that the store knew otherwise, or not at all
    lost: tuple[str, ...]  # what could not be rebuilt, a line each
    is_paused: bool  # tasks wait for a person to look at them


class Rebuilder:
    def __init__(self, *, home: Path, host: str, store: Store, shim: Shim, find_traces: FindTraces) -> None:
        self._home = home
        self._host = host
        self._store = store
        self._runs = Runs(store)
        self._tasks = Tasks(store)
        self._shim = shim
        self._find_traces = find_traces
        self._lost: list[str] = []

    async def rebuild(self) -> Rebuilt:
        await self._shim.install()
        records = {run.id: run for run in self._runs.find()}
        places = self._home / "runs"
        folders = [place.name for place in places.iterdir() if place.is_dir()] if places.is_dir() else []
        noted: dict[str, Run] = {}
        for name in folders:
            with contextlib.suppress(ValueError, KeyError, TypeError):  # what somebody else has put there
                run = decode_item(Run, _decode(_read_text(places / name / RUN_FILE)))
                if run.id == name:
                    noted[name] = run
        projects = {run.project for run in (*records.values(), *noted.values())}
        traces = self._find_traces(projects, self._home / "workspaces")
        corrected: list[Run] = []
        for name in sorted({*records, *noted, *traces, *folders}):
            run_id, record = RunId(name), records.get(RunId(name))
            if record is not None and record.host not in ("", self._host):
                continue
            known = newest(record, noted.get(name))
            run = await self._rebuild_one(run_id, known, traces.get(name))
            if run is not None and run != record:
                self._write(run, is_new=record is None)
                corrected.append(run)
        is_paused = self._hold_tasks(self._runs.find())
        return Rebuilt(
            corrected=tuple(self._runs.get(run.id) for run in corrected),
            lost=tuple(self._lost),
            is_paused=is_paused,
        )

    async def _rebuild_one(self, run_id: RunId, known: Run | None, trace: Trace | None) -> Run | None:
        remains = await self._remains(run_id, trace)
        now = time.time()
        if known is not None:
            return rebuild(known, remains, now=now)
        if remains.process is not None and not remains.process.has_ended:
            self._lost.append(
                f"run {run_id}: its agent runs, and nothing tells whose it is; it was left alone"
            )
        elif trace is None or not trace.branch:
            self._lost.append(f"run {run_id}: nothing tells its repository and branch; see its folder")
        else:
            bare = Run(
                id=run_id,
                project=trace.repository,
                branch=trace.branch,
                coder=UNKNOWN_CODER,
                created_at=now,
                base_sha=trace.base_sha,
                host=self._host,
            )
            # Without its record an ended agent's outcome is its result, or is not known.
            return rebuild(bare, replace(remains, turn=0, has_folder=False), now=now)
        return None

    async def _remains(self, run_id: RunId, trace: Trace | None) -> Remains:
        folder = self._home / "runs" / run_id
        turn, process, session, result = 0, None, "", None
        for number in sorted(_turns(folder), reverse=True):
            found = await self._shim.state(str(folder / f"turn-{number}"))
            if found.phase is not Phase.ABSENT:
                turn, process = number, found
                break
        events = _read_events(folder)
        for data in _data_of(events, EventKind.SESSION):
            session = str(data.get("session_id") or session)
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):  # nothing like one
            result = decode_item(Result, _decode(_read_text(folder / "result.json")))
        return Remains(
            turn=turn,
            process=process,
            result=result,
            settled=max((count_in(event.get("turn")) for event in events), default=0),
            session=session,
            has_folder=folder.is_dir(),
            trace=trace,
        )

    def _write(self, run: Run, *, is_new: bool) -> None:
        folder = self._home / "runs" / run.id
        for turn in _turns(folder):
            if self._runs.prompt(run.id, turn) is None:
                self._runs.add_prompt(run.id, turn, _read_text(folder / f"turn-{turn}" / "prompt"))
        self._write_events(run, folder)
        if is_new:
            self._runs.add(run)
        else:
            self._runs.update(run.id, lambda _: run)
        if not run.is_removed and not run.is_shared:
            self._runs.claim_branch(run)

    def _write_events(self, run: Run, folder: Path) -> None:
        """Add the events that only the folder has; for a live agent also the one that begins its turn."""
        stored = list(self._runs.events(run.id))
        last = stored[-1][0] if stored else 0
        bodies = [body for _, body in stored]
        more = [event for event in _read_events(folder) if count_in(event.get("seq")) > last]
        bodies += [{name: event[name] for name in event if name != "seq"} for event in more]
        opened = 0  # the last turn that a process of its own was started for
        for data in _data_of(bodies, EventKind.TURN_START):
            opened = count_in(data.get("turn")) if data.get("fresh") is not False else opened
        if run.is_live and (turn := max(_turns(folder), default=0)) > opened:
            opening = turn_start(turn, _read_text(folder / f"turn-{turn}" / "prompt"), fresh=True)
            bodies.append(encode_event(opening, at=time.time(), turn=turn, offset=0))
        if fresh := bodies[len(stored) :]:
            self._runs.append(run.id, fresh, expect=last)

    def _hold_tasks(self, runs: Iterable[Run]) -> bool:
        """Give tasks back the runs that they have lost, and start none before a person has looked."""
        for run in sorted((run for run in runs if run.task is not None), key=lambda run: run.token):
            task = self._tasks.peek(run.task or "")
            if task is None:
                self._lost.append(f"task {run.task}: its record is lost; its run on {run.branch!r} is kept")
                self._runs.update(run.id, lambda run: replace(run, task=None, token=0))
            elif run.token > task.token:
                prompt = self._runs.prompt(run.id, max(run.prompts, 1)) or ""
                self._tasks.update(task.id, lambda task, run=run, prompt=prompt: _held(task, run, prompt))
        is_paused = any(task.state is not TaskState.CLOSED for task in self._tasks.each())
        # Between two of its tasks a workflow has none that is open, and wants the next one at once.
        is_paused = is_paused or any(self._store.find(kind, "work", self._host, limit=1) for kind in KINDS)
        if is_paused:
            QueueState(self._store).pause(PAUSED)
        return is_paused


def _held(task: Task, run: Run, prompt: str) -> Task:
    """Return a task as its run's attempt: its claim was lost with the store's last writes."""
    return replace(
        task,
        state=TaskState.IN_PROGRESS,
        owner=run.host,
        token=run.token,
        run=run.id,
        turn=max(run.prompts, 1),
        prompt=prompt,
        coder_used=run.coder,
        model_used=run.model,
        reason="",
        close_reason=None,
        closed_at=None,
        started_at=task.started_at or run.started_at,
    )


def _turns(folder: Path) -> list[int]:
    """Return the turns that have a folder: a process was, or was to be, started for each."""
    numbers = (path.name.removeprefix("turn-") for path in folder.glob("turn-*") if path.is_dir())
    return [int(number) for number in numbers if number.isdecimal()]


def _data_of(events: Iterable[Mapping[str, Json]], kind: EventKind) -> Iterator[Mapping[str, Json]]:
    for event in events:
        if event.get("kind") == kind and isinstance(data := event.get("data"), dict):
            yield data


def _read_events(folder: Path) -> list[dict[str, Json]]:
    """Return the events that were written when the run last ended; up to the first that makes no sense."""
    events: list[dict[str, Json]] = []
    for line in _read_text(folder / "events.jsonl").splitlines():
        body = _decode(line)
        if "kind" not in body or "seq" not in body:
            break
        events.append(body)
    return events


def _decode(text: str) -> dict[str, Any]:
    try:
        body: object = json.loads(text)
    except ValueError:
        return {}
    return cast("dict[str, Any]", body) if isinstance(body, dict) else {}


def _read_text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
