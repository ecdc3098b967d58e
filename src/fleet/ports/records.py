"""Typed records on the Store port: what services and engine share, and the only way they meet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar, cast

from fleet.domain.event import Event, Json, Kind
from fleet.domain.ids import BatchId, RunId
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
from fleet.errors import NotFound, Stale
from fleet.ports.store import Record, Store, find_all

RUN = "run"
PROMPT = "prompt"
BRANCH = "branch"  # one per live branch of a project: who holds the name

Flat = TypeVar("Flat", Usage, Diff, ProcessId, Commit)


class Runs:
    """The runs in a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, run_id: RunId) -> Run:
        return decode_run(self._record(run_id).body)

    def add(self, run: Run) -> None:
        self._store.put(_record_of(run))

    def update(self, run_id: RunId, change: Callable[[Run], Run]) -> Run:
        """Apply a pure change to the newest version of a run, however many others write to it."""
        while True:
            record = self._record(run_id)
            old = decode_run(record.body)
            new = change(old)
            if new == old:
                return old
            try:
                self._store.put(replace(_record_of(new), version=record.version))
            except Stale:
                continue
            return new

    def find(self, field: str = "", value: str = "") -> list[Run]:
        """Return runs, oldest first: all of them, or those found by a field of `index_of`."""
        return [decode_run(record.body) for record in find_all(self._store, RUN, field, value)]

    def _record(self, run_id: RunId) -> Record:
        record = self._store.get(RUN, run_id)
        if record is None:
            raise NotFound(f"there is no run {run_id!r}", hint="run `fleet list --all`")
        return record

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


def _record_of(run: Run) -> Record:
    return Record(kind=RUN, key=run.id, body=encode_run(run), fields=index_of(run))


def index_of(run: Run) -> dict[str, str]:
    """What a run can be found by."""
    found_by = {"project": run.project, "branch": branch_key(run.project, run.branch)}
    if run.batch:
        found_by["batch"] = run.batch
    if run.has_work:
        found_by["work"] = run.host
    if not run.is_removed or run.has_work:
        found_by["shown"] = "yes"
    return found_by


def branch_key(project: str, branch: str) -> str:
    """Names a branch of a project. Case does not tell two of them apart: not every file system can."""
    return f"{project}\n{branch.casefold()}"


_DEFAULTS: dict[str, object] = {
    name: spec.default for name, spec in Run.__dataclass_fields__.items() if name != "id"
}


def encode_run(run: Run) -> dict[str, Json]:
    """Return a run as a JSON document; what has its default value is left out."""
    body: dict[str, Json] = {}
    for name in Run.__dataclass_fields__:
        value = getattr(run, name)
        if name in _DEFAULTS and value == _DEFAULTS[name]:
            continue
        body[name] = encode_value(value)
    return body


def encode_value(value: object) -> Json:
    """Turn a domain value into JSON: dataclasses to objects, tuples to lists."""
    if isinstance(value, str):  # also every enum of ours
        return str(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, tuple):
        return [encode_value(item) for item in cast("tuple[object, ...]", value)]
    return {spec.name: encode_value(getattr(value, spec.name)) for spec in fields(cast("Any", value))}


_DECODERS: dict[str, Callable[[Any], object]] = {
    "id": RunId,
    "batch": BatchId,
    "mode": Mode,
    "mode_wanted": Mode,
    "role": Role,
    "wanted": Wanted,
    "state": RunState,
    "workspace_state": WorkspaceState,
    "flags": tuple,
    "agent": lambda body: decode_flat(ProcessId, body),
    "usage": lambda body: decode_flat(Usage, body),
    "diff": lambda body: decode_flat(Diff, body),
    "result": lambda body: decode_result(body),
}


def decode_run(body: Mapping[str, Json]) -> Run:
    known = Run.__dataclass_fields__
    values: dict[str, Any] = {
        name: _DECODERS[name](value) if name in _DECODERS and value is not None else value
        for name, value in body.items()
        if name in known
    }
    return Run(**values)


def decode_flat(kind: type[Flat], body: Mapping[str, Any]) -> Flat:
    return kind(**{name: value for name, value in body.items() if name in kind.__dataclass_fields__})


def decode_result(body: Mapping[str, Any]) -> Result:
    return Result(
        status=RunState(body["status"]),
        summary=body.get("summary", ""),
        reason=body.get("reason", ""),
        files_changed=tuple(body.get("files_changed", ())),
        commits=tuple(decode_flat(Commit, commit) for commit in body.get("commits", ())),
        tests=body.get("tests", ""),
        next_steps=tuple(body.get("next_steps", ())),
        usage=decode_flat(Usage, body.get("usage", {})),
    )


def encode_event(event: Event, *, at: float, turn: int, offset: int) -> dict[str, Json]:
    """Return an event as it stands in the log; `offset` is where its line ends in the raw output."""
    body: dict[str, Json] = {"kind": str(event.kind), "at": at, "turn": turn, "offset": offset}
    if event.text:
        body["text"] = event.text
    if event.data:
        body["data"] = dict(event.data)
    return body


_KINDS = frozenset(Kind)


def decode_event(body: Mapping[str, Json]) -> Event:
    data = body.get("data")
    kind = str(body["kind"])
    return Event(
        kind=Kind(kind) if kind in _KINDS else Kind.NOTE,  # a newer fleet may have written it
        text=str(body.get("text", "")),
        data=data if isinstance(data, dict) else {},
    )
