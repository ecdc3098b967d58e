"""Tasks: wanted work with dependencies, gates and priorities, which the queue starts."""

from __future__ import annotations

from fleet.operations import fields
from fleet.operations.common import LEAST_BUDGET_USD, ListAll
from fleet.operations.fields import choice, flag, integer, moment, number, shape, shapes, string, strings
from fleet.operations.questions import QuestionView
from fleet.operations.spec import Next, Operation, Shape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Self

    from fleet.domain.task import Task
    from fleet.operations.call import Call
    from fleet.services.fleet import Fleet
    from fleet.services.queue import QueueService
    from fleet.services.tasks import Edit

STATES = ("open", "in_progress", "blocked", "closed")
TIERS = ("cheap", "standard", "premium")


class PortableTask(Shape):
    """What of a task can be taken elsewhere: a line of `fleet task export`."""

    id: str = string(key=True)
    title: str = string(key=True)
    description: str = string()
    state: str = choice(STATES, key=True)
    reason: str = string(key=True)
    priority: int = integer(key=True)
    cwd: str = string()
    coder: str | None = string(optional=True)
    model: str | None = string(optional=True)
    tier: str | None = string(optional=True)
    deps: tuple[str, ...] = strings(key=True)
    gates: tuple[str, ...] = strings()
    labels: tuple[str, ...] = strings()
    batch: str | None = string(optional=True)
    needs: tuple[str, ...] = strings()
    budget_usd: float | None = number()
    created_at: float | None = moment()
    closed_at: float | None = moment()
    close_reason: str | None = string()


class TaskView(PortableTask):
    project: str = string()
    unmet: tuple[str, ...] = strings(key=True)
    is_ready: bool = flag(key=True)
    updated_at: float | None = moment()
    started_at: float | None = moment()
    not_before: float | None = moment()
    host: str | None = string(optional=True)
    run: str | None = string(optional=True, key=True)
    branch: str | None = string(optional=True, key=True)
    tries: int = integer()
    coder_used: str | None = string(optional=True)
    model_used: str | None = string(optional=True)
    failures: int = integer()
    restarts: int = integer()
    handovers: int = integer()
    question: str | None = string(optional=True, key=True)
    spent_usd: float = number()
    peak_context: int = integer()

    @classmethod
    def of(cls, task: Task, /, **computed: Any) -> Self:
        has_begun = bool(task.token)
        own = {"host": task.owner or None, "branch": task.branch if has_begun else None, "tries": task.token}
        return super().of(task, **own, **computed)

    @property
    def is_settled(self) -> bool:
        return self.state in ("blocked", "closed")


class Choice(Shape):
    """What a task is, or would be, started with."""

    coder: str = string()
    model: str | None = string(optional=True)
    is_default_coder: bool = flag()
    is_default_model: bool = flag()


class QueuedTask(TaskView):
    """A task in a list."""

    effective: Choice | None = shape(Choice)
    refusal: str | None = string("Why there is no room, money or host for it.", optional=True)

    @classmethod
    def of_queue(cls, queue: QueueService, task: Task, **computed: Any) -> Self:
        from fleet.errors import BadConfig

        try:
            effective = Choice.of(queue.choice(task))
        except BadConfig:  # of its project; whoever looks at the task itself is told
            effective = None
        return cls.of(task, effective=effective, **computed)

    @classmethod
    def listed(cls, queue: QueueService, tasks: Sequence[Task]) -> list[Self]:
        """Make one of each task, with why it does not start on this host."""
        why = queue.obstacles(tasks)
        return [cls.of_queue(queue, task, refusal=why.get(task.id)) for task in tasks]


class CreatedTask(TaskView):
    paused: str | None = string("Why the queue is paused; null if it is not.")
    is_draining: bool = flag("Whether the supervisor starts no more tasks.")
    warnings: tuple[str, ...] = strings()


class EditedTask(TaskView):
    warnings: tuple[str, ...] = strings()


class Hold(Shape):
    """A coder that no tasks are started with."""

    coder: str = string()
    until: float | None = moment("Null: until a person resumes it.")
    reason: str = string()


class Neighbour(Shape):
    """A task that another one waits for, or that waits for it."""

    id: str = string()
    title: str = string()
    state: str = choice(STATES)


class LogEntry(Shape):
    at: float | None = moment()
    kind: str | None = string()
    text: str | None = string()
    by: str | None = string()

    @classmethod
    def of_note(cls, entry: Mapping[str, Any]) -> LogEntry:
        at = entry.get("at")
        when = at if isinstance(at, int | float) else None
        return cls(at=when, **{name: entry.get(name) for name in ("kind", "text", "by")})


class TaskDetail(TaskView):
    state_since: float | None = moment()
    effective: Choice = shape(Choice)
    run_state: str | None = string(optional=True)
    dependents: tuple[str, ...] = strings()
    questions: tuple[QuestionView, ...] = shapes(QuestionView)
    hold: Hold | None = shape(Hold)
    paused: str | None = string()
    refusal: str | None = string(optional=True)
    spent_usd: float = number()
    run_host: str | None = string(optional=True)
    is_shared: bool = flag("Whether several hosts share the queue.")
    is_held: bool = flag()
    base: str | None = string(optional=True)
    base_host: str | None = string(optional=True)
    waits_for_base: bool = flag()
    unmet_tasks: tuple[Neighbour, ...] = shapes(Neighbour)
    dependent_tasks: tuple[Neighbour, ...] = shapes(Neighbour)
    folder: str = string("Where its files are.")
    log: tuple[LogEntry, ...] = shapes(LogEntry, "The newest entries.")

    @classmethod
    def of_task(cls, fleet: Fleet, task: Task) -> TaskDetail:
        from fleet.services.queue import state_since

        tasks, queue, log = fleet.tasks, fleet.queue, fleet.tasks.log(task)
        run, dependents, effective = tasks.run_of(task), tasks.dependents(task), queue.choice(task)
        hold = next((hold for hold in queue.holds() if hold.coder == effective.coder), None)
        unmet = (tasks.peek(dep) for dep in task.unmet)
        return cls.of(
            task,
            state_since=state_since(task, log),
            effective=Choice.of(effective),
            run_state=str(run.state) if run else None,
            run_host=run.host if run else None,
            dependents=tuple(one.id for one in dependents),
            questions=tuple(map(QuestionView.of, fleet.questions.of_task(task))),
            hold=hold and Hold.of(hold),
            paused=queue.paused(),
            refusal=queue.refusals([task]).get(task.id),
            spent_usd=queue.spent_usd(task),
            is_shared=bool(fleet.settings.database_url),
            unmet_tasks=tuple(Neighbour.of(one) for one in unmet if one),
            dependent_tasks=tuple(map(Neighbour.of, dependents)),
            folder=str(tasks.folder_of(task)),
            log=tuple(map(LogEntry.of_note, log[-20:])),
        )


class TaskFile(Shape):
    """The log of a task, or one of the files that its agent keeps."""

    task: str = string(key=True)
    file: str = string(key=True)
    text: str | None = string()
    entries: tuple[LogEntry, ...] = shapes(LogEntry)


class ImportedTasks(Shape):
    added: tuple[str, ...] = strings()
    present: tuple[str, ...] = strings("They were here already, and stay as they are.")
    renamed: dict[str, str] = fields.json("Ids that another task has here, and the ids given instead.")


# creating and changing


class TaskFields(Operation):
    """What a task may say of itself."""

    description: str | None = string(
        "All that its agent must know (- is stdin).",
        brief="All that its agent must know.",
        default=None,
        short="d",
        stdin=True,
    )
    coder: str | None = string(
        "Coder to start.", default=None, short="a", complete="coder", default_text="coder.default"
    )
    model: str | None = string("Model.", default=None, short="m", default_text="the coder's")
    tier: str | None = choice(TIERS, "Strength of the model, whichever the coder.", default=None)
    priority: int | None = integer(
        "Priority; 0 goes first.",
        minimum=0,
        maximum=4,
        default=None,
        short="p",
        metavar="0-4",
        default_text="2",
    )
    depends_on: tuple[str, ...] = strings(
        "Task that must be closed first.",
        brief="task ids",
        default=(),
        option="dep",
        metavar="ID",
        complete="task",
    )
    gates: tuple[str, ...] | None = strings("Command that must succeed.", default=None, metavar="CMD")
    labels: tuple[str, ...] | None = strings("Label.", default=None, short="l", metavar="LABEL")
    batch: str | None = string("Batch; its tasks share budget.batch_usd.", default=None, metavar="NAME")
    needs: tuple[str, ...] | None = strings(
        "Name or label of a host that must do it.", default=None, option="needs", metavar="LABEL"
    )
    budget_usd: float | None = number(
        "Budget of the task.", minimum=LEAST_BUDGET_USD, default=None, default_text="budget.task_usd"
    )

    @property
    def edit(self) -> Edit:
        """What was given of a task; a blank text alone in a list stands for none at all."""
        given: Any = {name: value for name in _EDITED if (value := getattr(self, name)) is not None}
        for name in given.keys() & {"gates", "labels", "needs"}:
            given[name] = tuple(dict.fromkeys(text.strip() for text in given[name] if text.strip()))
        return given


_EDITED = ("title", *(name for name in TaskFields.fields if name != "depends_on"))
_MEASURES = ("gates", "budget_usd", "batch", "needs")  # what the agent of a task is held to


class CreateTask(
    TaskFields,
    op="task.create",
    brief="Write down wanted work; the queue starts it when what it depends on is done.",
    access="start",
    keeps_budget=True,
    examples=(
        'fleet task create "Fix the login" -d "It fails for empty passwords." --gate "make test"',
        'fleet task create "Release it" --dep t-1a2b3c4d5e --priority 1 --tier premium',
    ),
):
    """Create a task.

    It belongs to the repository of this folder. --dep, --gate, --label and --needs may be repeated. A
    title that begins with a dash goes after `--`.
    """

    title: str = string("What is wanted, in a line.", position=1, metavar="TITLE")
    repo_path: str = string(
        "Folder in a git repository.",
        default=".",
        option="cwd",
        metavar="DIR",
        default_text="this folder",
        tool_required=True,
    )

    def __call__(self, call: Call) -> tuple[CreatedTask, list[Next]]:
        call.refuse_agent("gates", given=self.gates)
        made = call.fleet.tasks.create(
            self.title, self.edit, folder=self.repo_path, deps=self.depends_on, origin=call.origin
        )
        queue = call.fleet.queue
        return CreatedTask.of(
            made,
            paused=queue.paused(),
            is_draining=queue.is_draining(),
            warnings=tuple(call.fleet.tasks.warnings_of(made.coder)),
        ), [Next("task.show", task_id=made.id), Next("queue.tasks")]


class OneTask(Operation):
    task_id: str = string("Id of a task, or its end.", position=1, complete="task")

    def find_own(self, call: Call) -> Task:
        """Return the task; raise `Refused` for an agent that has neither it nor started it."""
        task = call.fleet.tasks.get(self.task_id)
        call.is_agent_of(task)
        return task


class EditTask(
    OneTask,
    TaskFields,
    op="task.edit",
    brief="Change a task. Lists replace those it has; depends_on adds.",
    access="own",
    examples=("fleet task edit t-1a2b3c4d5e --priority 0 --model opus",),
):
    """Change a task.

    What is not given stays. --gate, --label and --needs replace what there is (an empty text leaves
    none), --dep adds. An empty --coder or --model inherits again. An agent at work is not told, and no
    agent can change gates, budget, batch or needs.
    """

    title: str | None = string("New title.", default=None, metavar="TEXT")
    repo_path: str | None = string(
        "Folder in another git repository.", default=None, option="cwd", metavar="DIR"
    )

    def __call__(self, call: Call) -> tuple[EditedTask, list[Next]]:
        from fleet.errors import InvalidInput

        edit = self.edit
        if not edit and self.repo_path is None and not self.depends_on:
            raise InvalidInput("nothing to change", hint="give at least one of the fields of a task")
        tasks, task = call.fleet.tasks, self.find_own(call)
        call.refuse_agent(
            "gates, budget, batch or needs of a task", given=not edit.keys().isdisjoint(_MEASURES)
        )
        changed = tasks.edit(task.id, edit, folder=self.repo_path, deps=self.depends_on)
        return EditedTask.of(changed, warnings=tuple(tasks.warnings_of(self.coder or ""))), []


class CloseTasks(
    Operation,
    op="task.close",
    brief="Close tasks and end their agents; the gates of your own are run first.",
    access="self",
    tool="close_tasks",
    is_destructive=True,
    reaches_out=True,
    examples=('fleet task close t-1a2b3c4d5e --reason "not needed any more"',),
):
    """Close tasks; those that wait for them may start.

    An agent that works on one is ended, and its work is saved. Called by a task's own agent it means
    that the task is done: the gates are run first. Without an ID it is the agent's own task.
    """

    task_ids: tuple[str, ...] = strings(
        "Ids of tasks.", default=(), tool_required=True, position=1, many=True, metavar="ID", complete="task"
    )
    reason: str = string("What was done, or why it is not wanted.", default="", short="r")

    def __call__(self, call: Call) -> tuple[list[TaskView], list[Next]]:
        from fleet.errors import InvalidInput

        service, run = call.fleet.tasks, call.caller.run
        names = self.task_ids or ((run.task,) if run and run.task else ())
        if not names:
            raise InvalidInput("name a task to close", hint=("see ", Next("task.list")))
        found = {task.id: task for task in map(service.get, names)}
        # None is closed if one of them cannot be.
        own = {task.id: call.is_agent_of(task) for task in found.values()}
        return [
            TaskView.of(
                service.close(name, self.reason, run=call.run_id if own[name] else "", by=call.caller.name)
            )
            for name in found
        ], []


class BlockTask(
    OneTask,
    op="task.block",
    access="own",
    examples=('fleet task block t-1a2b3c4d5e --reason "wait for the release"',),
):
    """Keep an open task from being started until it is reopened."""

    reason: str = string("Why.", default="", short="r")

    def __call__(self, call: Call) -> tuple[TaskView, list[Next]]:
        blocked = call.fleet.tasks.block(self.find_own(call).id, self.reason, by=call.caller.name)
        return TaskView.of(blocked), [Next("task.reopen", task_id=blocked.id)]


class ReopenTask(
    OneTask, op="task.reopen", access="own", reaches_out=True, examples=("fleet task reopen t-1a2b3c4d5e",)
):
    """Have a blocked or closed task done again.

    Its failures are forgotten, its questions are withdrawn, and a fresh agent goes on from its last turn.
    Tasks that depend on it and have not started wait for it again.
    """

    def __call__(self, call: Call) -> tuple[TaskView, list[Next]]:
        task = call.fleet.tasks.get(self.task_id)
        _refuse_own_agent(call, task, "reopen it")
        call.require_repository(task.project)
        return TaskView.of(call.fleet.tasks.reopen(task.id, by=call.caller.name)), []


def _refuse_own_agent(call: Call, task: Task, what: str) -> None:
    """Raise `Refused` if the agent that works on a task, or one that has no say in it, is to change it."""
    if call.is_agent_of(task):
        from fleet.errors import Refused

        hint = ("ask a person with ", Next("question.ask", text="…"))
        raise Refused(f"the agent of a task cannot {what}", hint=hint)


class CommentTask(
    OneTask,
    op="task.comment",
    access="self",
    examples=('fleet task comment t-1a2b3c4d5e "see also the report of last week"',),
):
    """Add a comment to a task's log."""

    text: str = string("The comment.", position=2, metavar="TEXT")

    def __call__(self, call: Call) -> tuple[TaskView, list[Next]]:
        task = self.find_own(call)
        return TaskView.of(call.fleet.tasks.comment(task.id, self.text, by=call.caller.name)), []


class ChangeDependency(
    Operation,
    op="task.dep",
    access="own",
    tool="change_dependency",
    examples=("fleet task dep add t-1a2b3c4d5e t-5e4d3c2b1a",),
):
    """Let a task wait for another one, or no longer.

    ID waits for ON. A cycle is refused.
    """

    action: str = choice(("add", "rm"), "Add or remove.", position=1, metavar="add|rm")
    task_id: str = string("Id of a task, or its end.", position=2, complete="task")
    on: str = string("Task that it waits for.", position=3, metavar="ON", complete="task")

    def __call__(self, call: Call) -> tuple[TaskView, list[Next]]:
        tasks = call.fleet.tasks
        task = tasks.get(self.task_id)
        if self.action == "add":
            call.is_agent_of(task)
            return TaskView.of(tasks.add_dep(task.id, self.on)), []
        _refuse_own_agent(call, task, "remove what it waits for")
        return TaskView.of(tasks.remove_dep(task.id, self.on)), []


# looking


class ShowTask(OneTask, op="task.show", tool="show_task", examples=("fleet show t-1a2b3c4d5e",)):
    """Show everything about one task.

    A coder or model that is inherited from the settings is tagged (default).
    """

    def __call__(self, call: Call) -> tuple[TaskDetail, list[Next]]:
        task = TaskDetail.of_task(call.fleet, call.fleet.tasks.get(self.task_id))
        return task, follow_ups(task)


def follow_ups(task: TaskDetail) -> list[Next]:
    """What a person does next, as the task stands."""
    reopen = Next("task.reopen", task_id=task.id)
    if asked := next((one for one in task.questions if one.state == "pending"), None):
        return [Next("question.answer", question_id=asked.id, answer="…")]
    match task.state:
        case "open" if task.unmet:
            return [Next("task.tree", task_id=task.id)]
        case "open" if task.paused is not None:
            return [Next("queue.resume")]
        case "in_progress" if task.is_held and task.run_state:
            return [Next("boundary.show", run=task.branch)]
        case "in_progress" if task.run_state:
            return [Next("run.logs", run=task.run, follow=True)]
        case "blocked" if task.budget_usd and task.spent_usd >= task.budget_usd:
            return [Next("task.edit", task_id=task.id, budget_usd="…"), reopen]
        case "blocked":
            return [*([Next("run.logs", run=task.run)] if task.run_state else ()), reopen]
        case "closed":
            return [Next("run.diff", run=task.run) if task.run_state else reopen]
        case _:
            return [Next("queue.tasks")]


class ListTasks(ListAll, op="task.list", examples=("fleet task list --state blocked",)):
    """List the tasks that are not closed, newest first.

    Of all projects, wherever you are.
    """

    state: str | None = choice(STATES, "Only tasks in this state.", default=None)
    label: str = string("Only tasks with this label.", default="", short="l", metavar="LABEL")

    def __call__(self, call: Call) -> tuple[list[QueuedTask], list[Next]]:
        from fleet.domain.task import TaskState

        found = call.fleet.tasks.list(TaskState(self.state) if self.state else None)
        is_wide = self.all or self.state
        shown = [
            task
            for task in reversed(found)
            if (is_wide or task.state is not TaskState.CLOSED)
            and (not self.label or self.label in task.labels)
        ]
        return QueuedTask.listed(call.fleet.queue, shown), []


class ListReadyTasks(Operation, op="task.ready", tool="list_ready_tasks", examples=("fleet ready -n 10",)):
    """Show the tasks that may start now, in their order.

    Of all projects. They start by priority, which rises while they wait, as soon as there is room.
    """

    count: int = integer(
        "Maximum number of tasks.",
        minimum=1,
        default=50,
        option="limit",
        short="n",
        tool=False,
        tool_default=1_000_000,
    )

    def __call__(self, call: Call) -> tuple[list[QueuedTask], list[Next]]:
        queue = call.fleet.queue
        return QueuedTask.listed(queue, queue.ready(self.count)), []


class ShowTaskTree(
    Operation,
    op="task.tree",
    brief="A task and all that it waits for; without one, all that are not closed. `deps` links them.",
    tool="get_task_tree",
    examples=("fleet task tree", "fleet task tree t-1a2b3c4d5e"),
):
    """Show what waits for what.

    Below each task is what it waits for. Without an ID, all tasks that are not closed.
    """

    task_id: str = string("Id of a task, or its end.", default="", position=1, complete="task")

    def __call__(self, call: Call) -> tuple[list[TaskView], list[Next]]:
        return [TaskView.of(task) for task in call.fleet.tasks.tree(self.task_id)], []


class ReadTask(
    OneTask,
    op="task.read",
    brief="The log of a task, or the plan, knowledge or questions that its agent keeps.",
    examples=("fleet task t-1a2b3c4d5e log",),
):
    """Print the log of a task, or one of its files.

    `fleet task ID log`, or plan, knowledge, qa.
    """

    what: str = choice(
        ("log", "plan", "knowledge", "qa"), "What to print.", position=2, metavar="log|plan|knowledge|qa"
    )

    def __call__(self, call: Call) -> tuple[TaskFile, list[Next]]:
        tasks = call.fleet.tasks
        task = tasks.get(self.task_id)
        is_log = self.what == "log"
        return TaskFile(
            task=task.id,
            file=self.what,
            text=None if is_log else tasks.read_file(task, self.what),
            entries=tuple(map(LogEntry.of_note, tasks.log(task))) if is_log else (),
        ), []


# files


class ExportTasks(
    Operation,
    op="task.export",
    brief="All tasks as import_tasks takes them, oldest first.",
    tool="export_tasks",
    in_full=True,
    examples=("fleet task export tasks.jsonl",),
):
    """Write all tasks as lines of JSON.

    To FILE, or to stdout (-). Closed ones too; logs are not exported.
    """

    def __call__(self, call: Call) -> tuple[list[PortableTask], list[Next]]:
        return [PortableTask.of(task) for task in call.fleet.tasks.list()], []


class ImportTasks(
    Operation,
    op="task.import",
    brief="Create tasks from lines of JSON, one object each; all of them, or none if a line is wrong.",
    access="person",
    tool="import_tasks",
    reaches_out=True,
    examples=("fleet task import tasks.jsonl",),
):
    """Create tasks from lines of JSON.

    From FILE, or from stdin (-), as `task export` writes them, or bd. If a line is wrong nothing is
    imported. Tasks that are here already stay as they are. A line needs nothing but a title.
    """

    lines: str = string(
        "File with lines of JSON.",
        brief="JSON objects with a title each",
        position=1,
        metavar="FILE",
        file=True,
    )
    repo_path: str | None = string(
        "Repository of tasks that name no folder of this machine.", default=None, option="cwd", metavar="DIR"
    )

    def __call__(self, call: Call) -> tuple[ImportedTasks, list[Next]]:
        from fleet.services.task_import import read_drafts

        call.record_start()
        done = call.fleet.tasks.bring_in(
            read_drafts(self.lines),
            folder=self.repo_path,
            require_repository=call.require_repository,
            origin=call.origin,
        )
        return ImportedTasks.of(done), []
