"""Typed records on the Store port: what services and engine share, and the only way they meet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from fleet.domain.event import Event, EventKind, Json
from fleet.domain.ids import RunId
from fleet.domain.run import Run
from fleet.domain.task import Task
from fleet.errors import Next
from fleet.ports.store import Record, read_all
from fleet.records.collection import Collection

RUN = "run"
PROMPT = "prompt"
BRANCH = "branch"  # one per live branch of a project: who holds the name


def branch_key(project: str, branch: str) -> str:
    """Names a branch of a project. Case does not tell two of them apart: not every file system can."""
    return f"{project}\n{branch.casefold()}"


class Runs(Collection[Run]):
    kind, make = RUN, Run
    missing_hint = ("see them with ", Next("run.list", all=True))

    @staticmethod
    def index(run: Run) -> dict[str, str]:
        found_by = {"project": run.project, "branch": branch_key(run.project, run.branch)}
        if run.batch:
            found_by["batch"] = run.batch
        if run.has_work:
            found_by["work"] = run.host
        if run.held:
            found_by["held"] = "yes"
        if not run.is_removed or run.has_work:
            found_by["shown"] = "yes"
        return found_by

    def of_task(self, task: Task | None) -> Run | None:
        """Return the newest run of a task, if it has had one."""
        return self.peek(task.run) if task and task.run else None

    # prompts: numbered from 1; number N is turn N's

    def add_prompt(self, run_id: RunId, number: int, text: str) -> None:
        self._store.put(Record(kind=PROMPT, key=_prompt_key(run_id, number), body={"text": text}))

    def drop_prompt(self, run_id: RunId, number: int) -> None:
        """Forget a prompt that was never counted among the run's."""
        if record := self._store.get(PROMPT, _prompt_key(run_id, number)):
            self._store.remove(record)

    def prompt(self, run_id: RunId, number: int) -> str | None:
        record = self._store.get(PROMPT, _prompt_key(run_id, number))
        return str(record.body["text"]) if record else None

    def claim_branch(self, run: Run) -> None:
        """Take the name of a run's branch for it; raise `Stale` if somebody else does so at the same time."""
        key = branch_key(run.project, run.branch)
        held = self._store.get(BRANCH, key) or Record(kind=BRANCH, key=key, body={})
        if held.body.get("run") != run.id:
            self._store.put(held._replace(body={"run": run.id, "at": time.time()}))

    def change(
        self,
        run_id: RunId,
        change: Callable[[Run], Run],
        tell: Callable[[Run, Run], Sequence[Mapping[str, Json]]],
        *,
        expect: int,
    ) -> Run:
        """Do as `update` does, and tell of it in the run's events, if `expect` is the last one's number."""
        return self._update(run_id, change, f"run/{run_id}", tell, expect)

    def append(self, run_id: RunId, events: Iterable[Mapping[str, Json]], *, expect: int) -> int:
        return self._store.append(f"run/{run_id}", events, expect=expect)

    def events(self, run_id: RunId, *, after: int = 0) -> Iterable[tuple[int, Mapping[str, Json]]]:
        """Yield a run's events past a number, oldest first."""
        return read_all(self._store, f"run/{run_id}", after=after)

    def event_page(self, run_id: RunId, *, after: int) -> Sequence[tuple[int, Mapping[str, Json]]]:
        """Return the next events past a number; none when there are no more."""
        return self._store.read(f"run/{run_id}", after=after)


def _prompt_key(run_id: RunId, number: int) -> str:
    return f"{run_id}/{number:06d}"


def encode_event(event: Event, *, at: float, turn: int, offset: int) -> dict[str, Json]:
    """Return an event as it stands in the log; `offset` is where its line ends in the raw output."""
    body: dict[str, Json] = {"kind": str(event.kind), "at": at, "turn": turn, "offset": offset}
    if event.text:
        body["text"] = event.text
    if event.data:
        body["data"] = dict(event.data)
    return body


_KINDS = frozenset(EventKind)


def decode_event(body: Mapping[str, Json]) -> Event:
    data = body.get("data")
    kind = str(body["kind"])
    return Event(
        kind=EventKind(kind) if kind in _KINDS else EventKind.NOTE,  # a newer fleet may have written it
        text=str(body.get("text", "")),
        data=data if isinstance(data, dict) else {},
    )
