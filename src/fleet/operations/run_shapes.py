"""What is told of runs: in a table, in full, and what came of them."""

from __future__ import annotations

from fleet.operations import fields
from fleet.operations.common import DiffCount, UsageCount
from fleet.operations.fields import choice, flag, integer, moment, number, shape, shapes, string, strings
from fleet.operations.spec import Shape, iso_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Self

    from fleet.domain.run import Run
    from fleet.operations.call import Call
    from fleet.ports.store import Record
    from fleet.services.logs import LogEntry
    from fleet.services.run_summaries import ProcessUsage

ENDED = ("completed", "completed_no_changes", "blocked", "failed", "killed")
LIVE = ("running", "waiting", "unknown")
_NO_DIFF = {"files": 0, "added": 0, "removed": 0}
_NOTHING: Mapping[str, Any] = {}
STATES = ("queued", "preparing", *LIVE, "settling", *ENDED)


class ProcessRow(Shape):
    pid: int = integer()
    start: str = string()
    boot: str = string()


class LoadRow(Shape):
    """What the processes of an agent use."""

    cpu_percent: float = number("Of one core.")
    memory_bytes: int = integer()
    processes: int = integer()

    @classmethod
    def of_usage(cls, usage: ProcessUsage | None) -> LoadRow | None:
        return usage and cls.of(usage, cpu_percent=round(usage.cpu_percent, 1))


class OutsideRow(Shape):
    """A change outside of an agent's workspace during one of its turns."""

    what: str = string(of="kind", key=True)
    name: str = string(key=True)
    old: str | None = string(key=True, optional=True)
    new: str | None = string(key=True, optional=True)
    weight: str = choice(("note", "restored", "hold"), key=True)
    run: str = string()
    turn: int = integer()


class CommitRow(Shape):
    sha: str = string()
    subject: str = string()


class ResultView(Shape):
    """What came of a run, as git tells it."""

    status: str = string()
    summary: str = string()
    reason: str = string()
    files_changed: tuple[str, ...] = strings()
    commits: tuple[CommitRow, ...] = shapes(CommitRow)
    tests: str = string()
    next_steps: tuple[str, ...] = strings()
    usage: UsageCount = shape(UsageCount)


class RunLine(Shape):
    """A run in a list."""

    id: str = string(key=True)
    branch: str = string(key=True)
    batch: str | None = string(optional=True)
    project: str = string(key=True)
    coder: str = string(key=True)
    model: str = string()
    state: str = choice(STATES, key=True)
    state_since: float | None = moment()
    state_reason: str = string(key=True)
    waits_for: str | None = string("What the supervisor needs before it can go on.", optional=True)
    has_work: bool = flag("Whether the supervisor still has something to do for it.")
    host: str = string()
    workspace: str | None = string(optional=True)
    workspace_state: str = choice(("none", "made", "ready", "removed"))
    started_at: float | None = moment()
    usage: UsageCount = shape(UsageCount, key=True)
    diff: DiffCount = shape(DiffCount, key=True)
    said: str = string(key=True)
    held: str | None = string(optional=True)
    load: LoadRow | None = shape(LoadRow)

    @classmethod
    def of_record(cls, record: Record, load: ProcessUsage | None) -> RunLine:
        """Read a run straight from its record, in which what has its default value is missing."""
        body: dict[str, Any] = dict(record.body.items())  # to ask a body for each field would cost more
        get = body.get
        used: Callable[..., Any] = get("usage", _NOTHING).get
        tokens = used("input_tokens", 0), used("output_tokens", 0), used("cached_tokens", 0)
        return cls.of_complete(
            {
                "id": body["id"],
                "branch": body["branch"],
                "batch": get("batch") or None,
                "project": body["project"],
                "coder": body["coder"],
                "model": get("model", ""),
                "state": get("state", "queued"),
                "state_since": get("state_since") or None,
                "state_reason": get("state_reason", ""),
                "waits_for": get("waits_for") or None,
                "has_work": "work" in record.fields,
                "host": get("host", ""),
                "workspace": get("workspace") or None,
                "workspace_state": get("workspace_state", "none"),
                "started_at": get("started_at") or None,
                "usage": UsageCount.of_complete(
                    {
                        "input_tokens": tokens[0],
                        "output_tokens": tokens[1],
                        "cached_tokens": tokens[2],
                        "total_tokens": sum(tokens),
                        "cost_usd": used("cost_usd"),
                    }
                ),
                "diff": DiffCount.of_complete(_NO_DIFF | get("diff", _NOTHING)),
                "said": get("said", ""),
                "held": get("held") or None,
                "load": LoadRow.of_usage(load),
            }
        )

    @property
    def needs_supervisor(self) -> bool:
        """False: `fleet list` and `fleet wait` start one, and looking at a result does not."""
        return False

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    @property
    def is_live(self) -> bool:
        return self.state in LIVE

    @property
    def is_removed(self) -> bool:
        return self.workspace_state == "removed"

    @property
    def has_workspace(self) -> bool:
        return self.workspace_state in ("made", "ready")

    @property
    def needs_person(self) -> bool:
        """Whether it cannot go on without a person; one that waits for its next prompt gives no reason."""
        return bool(self.held or self.state == "blocked" or (self.state == "waiting" and self.state_reason))


class RunView(RunLine):
    task: str | None = string(key=True, optional=True)
    task_name: str | None = string(key=True, optional=True)
    mode: str = choice(("headless", "tmux"))
    mode_wanted: str | None = string(optional=True)
    role: str = choice(("doer", "reviewer"))
    is_at_rest: bool = flag(key=True)
    has_screen: bool = flag("Whether its screen can be attached to now.")
    created_at: float | None = moment()
    ended_at: float | None = moment()
    removed_at: float | None = moment()
    base_ref: str = string()
    base_sha: str = string()
    saved_ref: str | None = string(optional=True)
    session: str | None = string(optional=True)
    tmux: str | None = string(optional=True)
    agent: ProcessRow | None = shape(ProcessRow)
    prompts: int = integer()
    turn: int = integer()
    context_tokens: int = integer()
    changed_outside: tuple[OutsideRow, ...] = shapes(OutsideRow)
    result: ResultView | None = shape(ResultView)

    @classmethod
    def of(cls, run: Run, /, **more: Any) -> Self:
        given = {
            "task_name": None,
            "load": None,
            "changed_outside": tuple(OutsideRow.of(one, run=run.id) for one in run.outside),
        }
        return super().of(run, **given | more)

    @classmethod
    def of_call(cls, call: Call, run: Run, **more: Any) -> Self:
        """Make one with the name of the run's task."""
        task = call.fleet.tasks.peek(run.task) if run.task else None
        return cls.of(run, **{"task_name": task.title if task else None} | more)

    @property
    def is_settled(self) -> bool:
        return self.is_at_rest


class RemovedRun(RunView):
    """A run whose workspace was removed and can be restored."""

    set_aside: tuple[str, ...] = strings("Files that its snapshot cannot hold, kept beside it.")


class RestoredRun(RunView):
    """A run after changes outside of its workspace were restored."""

    restored: tuple[OutsideRow, ...] = shapes(OutsideRow)
    problems: tuple[str, ...] = strings("What could not be restored, and why.")


class LogRow(Shape):
    """An entry of a run's log, in words."""

    number: int = integer()
    at: float | None = moment()
    turn: int = integer()
    kind: str = string()
    text: str = string()


class EventRow(LogRow):
    """An entry of a run's log, as it was recorded."""

    data: Mapping[str, Any] = fields.table()

    @classmethod
    def of(cls, entry: LogEntry, /, **computed: Any) -> Self:
        event = entry.event
        return super().of(entry, kind=str(event.kind), text=event.text, data=dict(event.data), **computed)

    @property
    def is_told(self) -> bool:
        """Whether it says something to a reader; the state of a run, and its cost, are told elsewhere."""
        return self.kind not in ("usage", "session", "tool_done", "ready") or self._is_failed_tool

    @property
    def _is_failed_tool(self) -> bool:
        return self.kind == "tool_done" and self.data.get("ok") is False

    def in_words(self, date: Callable[[float], str | None] = iso_time) -> str:
        match self.kind:
            case "tool":
                summary = self.data.get("summary")
                return f"{self.text}: {summary}" if summary else self.text
            case "tool_done":
                return "it failed" if self._is_failed_tool else ""
            case "state" | "turn_end":
                reason = self.data.get("reason")
                return f"{self.text} ({reason})" if reason else self.text
            case "turn_start":
                return f"prompt {self.data.get('turn', self.turn)}: {self.text}"
            case "limit":
                resets_at = self.data.get("resets_at")
                until = date(resets_at) if isinstance(resets_at, int | float) else None
                return (self.text or "limit reached") + (f", until {until}" if until else "")
            case _:
                return self.text


class LogPage(Shape):
    run: str = string(key=True)
    entries: tuple[LogRow, ...] = shapes(LogRow, key=True)
    next_after: int | None = integer(optional=True)


class DiffPage(Shape):
    run: str = string(key=True)
    diff: str = string(key=True)
    next_offset: int | None = integer(optional=True)
