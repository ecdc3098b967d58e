"""The queue as a whole: what it works on, pausing it, and the log of the supervisor that serves it."""

from __future__ import annotations

from fleet.operations.fields import flag, integer, moment, shapes, string, strings
from fleet.operations.spec import Next, Operation, Shape
from fleet.operations.tasks import Hold, QueuedTask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fleet.domain.task import Task
    from fleet.operations.call import Call
    from fleet.services.fleet import Fleet


class UnderwayTask(QueuedTask):
    """A task that an agent works on."""

    events: int = integer()
    last_event_at: float | None = moment()
    context_tokens: int = integer("The fullest that the agent's context has been.")
    is_held: bool = flag()

    @classmethod
    def of_fleet(cls, fleet: Fleet, task: Task) -> UnderwayTask:
        run = fleet.tasks.run_of(task)
        events, last_at = fleet.queue.activity(run) if run else (0, None)
        return cls.of_queue(
            fleet.queue,
            task,
            refusal=None,
            events=events,
            last_event_at=last_at,
            context_tokens=max(task.peak_context, run.context_tokens if run else 0),
        )


class QueueView(Shape):
    """What the queue does, and what keeps it from starting tasks."""

    paused: str | None = string("Why it is paused; null if it is not.")
    holds: tuple[Hold, ...] = shapes(Hold)
    tasks: tuple[UnderwayTask, ...] = shapes(UnderwayTask)
    in_progress: int = integer(key=True)
    open: int = integer(key=True)
    blocked: int = integer(key=True)
    questions: int = integer(key=True)

    @property
    def is_settled(self) -> bool:
        return not self.in_progress and not self.open


class PausedQueue(Shape):
    reason: str = string()
    was_paused: bool = flag(key=True)
    in_progress: int = integer("Tasks that agents still work on.")


class ResumedQueue(Shape):
    coder: str | None = string(optional=True)
    was_held: bool = flag(key=True)
    paused: str | None = string("Why the queue is paused; null if it is not.")
    holds: tuple[Hold, ...] = shapes(Hold)


class SupervisorLog(Shape):
    path: str = string()
    lines: tuple[str, ...] = strings("JSON objects, oldest first.")


class ShowQueue(Operation, op="queue.tasks", tool="get_queue", examples=("fleet tasks -w",)):
    """Show the tasks that are in progress.

    Of all projects, newest first. A coder or model that the task names itself is bold, an inherited one
    dim. Idle is the time since the agent's last event; context is its fullest so far, in tokens. Paused
    queues and coders, and held tasks, are listed with their reasons.
    """

    limit: int = integer("Maximum number of tasks.", minimum=1, default=50, short="n")

    def __call__(self, call: Call) -> tuple[QueueView, list[Next]]:
        from fleet.domain.task import TaskState

        queue, tasks = call.fleet.queue, call.fleet.tasks.list(TaskState.IN_PROGRESS)
        return QueueView(
            paused=queue.paused(),
            holds=tuple(map(Hold.of, queue.holds())),
            tasks=tuple(UnderwayTask.of_fleet(call.fleet, task) for task in tasks[::-1][: self.limit]),
            **queue.counts(),
            questions=len(call.fleet.questions.pending()),
        ), []


class PauseQueue(
    Operation,
    op="queue.pause",
    access="person",
    is_idempotent=True,
    examples=('fleet pause "the build is broken"',),
):
    """Start no more tasks; those in progress go on.

    Stays in force across restarts, until `fleet resume`. A new reason replaces the old one.
    """

    reason: str = string("Why.", default="", position=1, metavar="REASON")

    def __call__(self, call: Call) -> tuple[PausedQueue, list[Next]]:
        queue = call.fleet.queue
        before = queue.paused()
        if before is None or self.reason:
            queue.pause(self.reason)
        told = PausedQueue(
            reason=self.reason or before or "",
            was_paused=before is not None,
            in_progress=queue.counts()["in_progress"],
        )
        return told, [Next("queue.resume")]


class ResumeQueue(
    Operation,
    op="queue.resume",
    access="person",
    tool_set="health",
    brief="Let a coder that is paused go on; without one, a paused queue.",
    is_idempotent=True,
    reaches_out=True,
    examples=("fleet resume", "fleet resume claude"),
):
    """Start tasks again, or those of one coder.

    A coder is paused until its provider's limit has passed, or until it is logged in again.
    """

    coder: str = string(
        "Coder to resume.", brief="", default="", position=1, metavar="CODER", complete="hold"
    )

    def __call__(self, call: Call) -> tuple[ResumedQueue, list[Next]]:
        queue = call.fleet.queue
        was_held = queue.resume_coder(self.coder) if self.coder else queue.resume()
        told = ResumedQueue(
            coder=self.coder or None,
            was_held=was_held,
            paused=queue.paused(),
            holds=tuple(map(Hold.of, queue.holds())),
        )
        return told, [Next("queue.resume")] if told.paused is not None else []


class ReadSupervisorLog(Operation, op="queue.log", tool="get_supervisor_log", examples=("fleet log 20",)):
    """Print the supervisor's log.

    The whole of it, or its last N lines. One JSON object a line.
    """

    count: int | None = integer(
        "Number of lines.", minimum=1, default=None, position=1, metavar="N", tool_default=50
    )

    def __call__(self, call: Call) -> tuple[SupervisorLog, list[Next]]:
        path, lines = call.fleet.queue.supervisor_log(self.count)
        return SupervisorLog(path=path, lines=tuple(lines)), []
