"""Typed records on the Store port: what services and engine share, and the only way they meet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fleet.domain.boundary import Outside, OutsideKind, Weight
from fleet.domain.cause import Cause
from fleet.domain.event import Event, EventKind, Json
from fleet.domain.ids import BatchId, RunId, TaskId
from fleet.domain.process import ProcessId
from fleet.domain.run import (
    Commit,
    Diff,
    Mode,
    Result,
    Role,
    Run,
    RunState,
    Wanted,
    WorkspaceState,
)
from fleet.domain.usage import Usage
from fleet.ports.store import Record, Store
from fleet.records.collection import Codec, Collection, tuple_of, value_of

RUN = "run"
PROMPT = "prompt"
BRANCH = "branch"  # one per live branch of a project: who holds the name


class Runs(Collection[Run]):
    """The runs in a store."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, RUN_CODEC)

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

    # events

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
        while page := self.event_page(run_id, after=after):
            yield from page
            after = page[-1][0]

    def event_page(self, run_id: RunId, *, after: int) -> Sequence[tuple[int, Mapping[str, Json]]]:
        """Return the next events past a number; none when there are no more."""
        return self._store.read(f"run/{run_id}", after=after)


def _prompt_key(run_id: RunId, number: int) -> str:
    return f"{run_id}/{number:06d}"


def index_of(run: Run) -> dict[str, str]:
    """What a run can be found by."""
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


def branch_key(project: str, branch: str) -> str:
    """Names a branch of a project. Case does not tell two of them apart: not every file system can."""
    return f"{project}\n{branch.casefold()}"


def _cause(word: str) -> Cause:
    return Cause(word) if word in _CAUSES else Cause.CRASH  # a newer fleet may know more of them


_CAUSES = frozenset(Cause)
decode_outside = tuple_of(Outside, kind=OutsideKind, weight=Weight)
decode_result = value_of(
    Result,
    status=RunState,
    cause=_cause,
    files_changed=tuple,
    commits=tuple_of(Commit),
    next_steps=tuple,
    usage=value_of(Usage),
)
_DECODERS: dict[str, Callable[[Any], object]] = {
    "id": RunId,
    "batch": BatchId,
    "task": TaskId,
    "mode": Mode,
    "mode_wanted": Mode,
    "role": Role,
    "wanted": Wanted,
    "state": RunState,
    "workspace_state": WorkspaceState,
    "flags": tuple,
    "keys": tuple,
    "agent": value_of(ProcessId),
    "usage": value_of(Usage),
    "diff": value_of(Diff),
    "result": decode_result,
    "outside": decode_outside,
}


RUN_CODEC = Codec(
    kind=RUN, make=Run, decoders=_DECODERS, index=index_of, missing_hint="run `fleet list --all`"
)


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
