"""Hand one prompt to one agent, follow it, and clear away after it: tasks that end with their turn."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from fleet.domain.event import Json
from fleet.domain.ids import RunId, new_task_id
from fleet.domain.naming import refuse_option
from fleet.domain.prompt_task import OVER, PromptTask, PromptTaskState, state_of
from fleet.domain.report import PLEASE
from fleet.domain.task import Task, TaskState, check_task
from fleet.errors import BadConfig, Conflict, FleetError, HintPart, InvalidInput, Next, NotFound, Shell
from fleet.records.spawns import PromptTasks
from fleet.services.machine import login_steps, require_binary
from fleet.services.texts import check_text

if TYPE_CHECKING:
    from fleet.domain.run import Run
    from fleet.records.tasks import Hold
    from fleet.services.fleet import Fleet

CLEAN_UP_SECONDS = 30.0
MOST_FLAGS = 50


class Obstacle(NamedTuple):
    """What keeps a prompt task from going on."""

    told: tuple[HintPart, ...]
    needs_person: bool = False


class PromptTaskDetail(NamedTuple):
    prompt_task: PromptTask
    task: Task
    run: Run | None
    question: str = ""  # the id of what its agent asks, whether or not its turn has ended
    obstacle: Obstacle | None = None

    @property
    def state(self) -> PromptTaskState:
        return state_of(self.prompt_task, self.task, self.run)

    @property
    def is_over(self) -> bool:
        return self.state in OVER

    @property
    def is_cleared(self) -> bool:
        """Whether it is over, and its workspace is gone."""
        return self.is_over and (self.run is None or not self.run.has_workspace)


class Removal(NamedTuple):
    """What was cleared away after a prompt task, and why something was not."""

    workspace: bool
    branch: bool
    kept: tuple[str, ...]


class PromptTaskService:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._prompt_tasks = PromptTasks(fleet.store)

    def start(
        self,
        *,
        folder: str,
        name: str,
        prompt: str,
        base: str = "HEAD",
        coder: str = "",
        model: str = "",
        effort: str = "",
        seconds: float = 0.0,
        profile: str = "",
        labels: tuple[str, ...] = (),
        metadata: Mapping[str, Json] | None = None,
        flags: tuple[str, ...] = (),
        origin: str = "",  # the spawn that it comes from
    ) -> PromptTaskDetail:
        """Check everything, then record a prompt task and its task; what is empty comes from the settings."""
        check_text(name, prompt, base, effort, profile, *labels, *flags)
        if not prompt.strip() or not name.strip():
            raise InvalidInput("a worker needs a name and a prompt")
        facts = self._fleet.coder(coder or self._fleet.settings.coder_default).facts
        require_binary(facts)
        self.check_flags(coder, flags)
        refuse_option(model, "model")
        refuse_option(effort, "reasoning effort")
        repository = self._fleet.repositories.inspect(folder, base, ())
        now = time.time()
        effort_flags = tuple(word.format(effort) for word in facts.effort_flags if effort)
        task = Task(
            id=new_task_id(now),
            title=name.strip(),
            description=prompt + PLEASE,
            created_at=now,
            updated_at=now,
            cwd=repository.top,
            project=repository.top,
            coder=facts.name,
            model=model,
            labels=labels,
            flags=(*flags, *effort_flags),
            turn_seconds=seconds,
            base=repository.base_sha,
            base_host=self._fleet.host,
            ends_with_turn=True,
            keeps_workspace=True,
            origin=origin,
        )
        check_task(task)
        prompt_task = PromptTask(
            id=task.id, name=task.title, created_at=now, profile=profile, metadata=dict(metadata or {})
        )
        # First this one: without its task it is nothing, and nothing of it is shown.
        self._prompt_tasks.add(prompt_task)
        self._fleet.tasks.add(task)
        return PromptTaskDetail(prompt_task, task, None)

    def check_flags(self, coder: str, flags: Sequence[str]) -> None:
        """Raise `InvalidInput` for flags that may change what an agent may do, or that are too many."""
        if not flags:
            return
        facts = self._fleet.coder(coder or self._fleet.settings.coder_default).facts
        if len(flags) > MOST_FLAGS:
            raise InvalidInput(f"an agent's CLI takes at most {MOST_FLAGS} flags of yours, not {len(flags)}")
        waiting = ""  # the flag that wants a value still
        for word in flags:
            name, equals, _ = word.partition("=")
            if waiting and not word.startswith("-"):
                waiting = ""
            elif waiting:
                break
            elif name in facts.free_flags:
                waiting = "" if equals else name
            else:
                known = f"{facts.name} can be given {', '.join(facts.free_flags) or 'none'}"
                told = f"{word!r} may change what an agent may do without asking: {known}"
                setting = Shell("fleet config set coder.skip_permissions true")
                raise InvalidInput(told, hint=("that is for the settings: ", setting))
        if waiting:  # it would take the next flag for one, which may be ours
            raise InvalidInput(f"{waiting!r} has no value", hint=f"give both: {waiting}=VALUE")

    # looking

    def list(self, name: str = "") -> list[PromptTaskDetail]:
        """Return all prompt tasks, or those of a name, oldest first."""
        known = [one for one in self._prompt_tasks.each() if not name or one.name == name]
        # Ids of the same second tell no order.
        found = (
            (one, self._fleet.tasks.peek(one.id)) for one in sorted(known, key=lambda one: one.created_at)
        )
        return [self._with_run(prompt_task, task) for prompt_task, task in found if task]

    def get(self, name: str) -> PromptTaskDetail:
        """Return the prompt task of an id, or of a name that no other has that is not cleared away."""
        check_text(name)
        known = self._prompt_tasks.peek(name) if name else None
        if known and (task := self._fleet.tasks.peek(known.id)):
            return self._with_run(known, task)
        if found := self._named(name):
            return found
        raise NotFound(f"there is no worker {name!r}", hint="list the workers")

    def _named(self, name: str) -> PromptTaskDetail | None:
        """Return what a name means; those that were cleared away count only if there is no other."""
        named = self.list(name) if name else []
        there = [detail for detail in named if not detail.is_cleared]
        if len(there) > 1:
            ids = ", ".join(detail.prompt_task.id for detail in there)
            raise Conflict(f"{len(there)} workers are named {name!r}: {ids}", hint="name one by its id")
        return next(reversed(there or named), None)

    def run_named(self, name: str) -> Run | None:
        """Return the run of a prompt task's name; None if none has it, and `NotFound` before its start."""
        check_text(name)
        detail = self._named(name)
        if detail and detail.run is None:
            hint = ("see ", Next("task.show", task_id=detail.prompt_task.id))
            raise NotFound(f"worker {detail.prompt_task.id} was not started yet", hint=hint)
        return detail.run if detail else None

    def id_meant(self, name: str, *, folder: str) -> str:
        """Return the id of the prompt task of a name; the name as it is, if none has it, or a branch does."""
        check_text(name)
        is_known = any(one.name == name for one in self._prompt_tasks.each())
        named = self._named(name) if is_known and not self._fleet.runs.is_branch(folder, name) else None
        return named.prompt_task.id if named else name

    def name_behind(self, run_id: str) -> str | None:
        """Return what the task of a run is called; None if it has none."""
        run = self._fleet.runs.peek(RunId(run_id))
        task = self._fleet.tasks.peek(run.task) if run and run.task else None
        return task.title if task else None

    def _with_run(self, prompt_task: PromptTask, task: Task) -> PromptTaskDetail:
        run = self._fleet.tasks.run_of(task)
        if task.is_over:
            return PromptTaskDetail(prompt_task, task, run)
        asked = self._fleet.questions.about({task.id})
        question = asked.id if asked else task.question
        try:
            obstacle = self._obstacle(task)
        except BadConfig as problem:  # the settings of its project cannot be read: nor can it be started
            obstacle = Obstacle((problem.message, "; ", *problem.hint_parts))
        return PromptTaskDetail(prompt_task, task, run, question, obstacle)

    def _obstacle(self, task: Task) -> Obstacle | None:
        if hold := self._fleet.queue.hold_of(task):
            return Obstacle(self._told_of(hold), needs_person=not hold.until)
        if task.state is not TaskState.OPEN:
            return None
        if (reason := self._fleet.queue.paused()) is not None:
            told = f"the queue is paused{f' ({reason})' if reason else ''}: "
            return Obstacle((told, Next("queue.resume"), " goes on"))
        refusal = self._fleet.queue.refusals([task]).get(task.id, "")
        return Obstacle((f"waits for room: {refusal}",)) if refusal else None

    def hold_on(self, names: Collection[str]) -> tuple[HintPart, ...]:
        """Return what a person must do for things, or parts of them, to go on; () if there is nothing."""
        hold = self._fleet.queue.hold_on(names)
        return self._told_of(hold) if hold else ()

    def holds(self) -> Sequence[tuple[HintPart, ...]]:
        """Return the coders that are paused, each with why and what to do."""
        return [self._told_of(hold) for hold in self._fleet.queue.holds()]

    def _told_of(self, hold: Hold) -> tuple[HintPart, ...]:
        """Return why a coder is paused, and what to do about it."""
        told, resume = f"{hold.coder} is paused: {hold.reason}", Next("queue.resume", coder=hold.coder)
        if hold.until:
            return (f"{told}; it goes on by itself, or now with ", resume)
        remedy = "fix that"
        with suppress(FleetError):  # the coder may be a project's own, seen from elsewhere
            facts = self._fleet.coder(hold.coder).facts
            if facts.login_hint or facts.login_variables:
                remedy = f"{login_steps(facts)}, if that is what is missing"
        return (f"{told}; {remedy}, then ", resume)

    def prompt(self, run: Run, text: str) -> Run:
        """Give a run a further prompt; after its prompt task is over, too, while it has its workspace."""
        prompt_task = self._prompt_tasks.peek(run.task) if run.task else None
        detail = self.get(prompt_task.id) if prompt_task else None
        if detail is not None and detail.state is PromptTaskState.PENDING:
            raise Conflict(
                f"worker {detail.prompt_task.id} has not begun with what it was last asked for",
                hint=("wait for it; see ", Next("task.show", task_id=detail.prompt_task.id)),
            )
        if detail is None or detail.run is None or not detail.is_over:
            return self._fleet.runs.prompt(RunId(run.id), text)
        if not detail.run.has_workspace or detail.run.is_to_end:
            hint = f"start another one from the branch {run.branch!r}"
            raise Conflict(f"the workspace of worker {detail.prompt_task.id} was removed", hint=hint)
        if not text.strip():
            raise InvalidInput("there is nothing in the prompt")
        self._fleet.tasks.ask_more(detail.task, detail.run, text, owner=self._fleet.host)
        return self._fleet.runs.get(run.id)

    # ending

    def cancel(self, name: str, *, by: str) -> PromptTaskDetail:
        """End a prompt task and its agent; what it did is saved. Raises `Conflict` if it is over."""
        detail = self.get(name)
        if detail.is_over:
            hint = "clean it up to remove what it left"
            raise Conflict(f"worker {detail.prompt_task.id} is {detail.state} already", hint=hint)
        self._fleet.tasks.close(detail.task.id, f"cancelled by {by}", by=by)
        now = time.time()
        self._prompt_tasks.update(
            detail.prompt_task.id, lambda prompt_task: replace(prompt_task, cancelled_at=now)
        )
        return self.get(detail.prompt_task.id)

    def clean_up(
        self, name: str, *, branch: bool = True, workspace: bool = True, discard: bool = False
    ) -> Removal:
        """Remove what all attempts at a prompt task left, saved first.

        A branch goes only if its work is in the current branch, or in that of a later attempt, unless it is
        to be discarded, and was saved whole: `fleet undo` brings it back.
        """
        detail = self.get(name)
        if not detail.is_over:
            hint = "cancel it first"
            raise Conflict(f"worker {detail.prompt_task.id} is {detail.state}", hint=hint)
        if workspace and detail.task.state is not TaskState.CLOSED:
            self._fleet.tasks.close(detail.task.id, "cleared away")
        # All attempts at it, the newest first.
        runs = [run for run in reversed(self._fleet.runs.list(everything=True)) if run.task == detail.task.id]
        if workspace:
            self._fleet.runs.clean([run for run in runs if run.has_workspace], also_kept=True)
            runs = self._fleet.runs.wait(
                [RunId(run.id) for run in runs],
                until=lambda run: run.is_removed or not run.has_workspace,
                timeout_seconds=CLEAN_UP_SECONDS,
            )
        there = [run.workspace for run in runs if run.has_workspace]
        kept = [f"the workspace {path} is still being removed; call again" for path in there if workspace]
        told = [
            self._drop_branch(run, newer=runs[:at], discard=discard)
            for at, run in enumerate(runs if branch else ())
        ]
        reasons = [reason for reason in told if reason]
        return Removal(
            workspace=workspace and not there,
            branch=branch and bool(runs) and not reasons,
            kept=(*kept, *reasons),
        )

    def _drop_branch(self, run: Run, *, newer: Sequence[Run], discard: bool) -> str:
        """Delete a branch that has no work of its own left, or whose work is not wanted; else say why not."""
        if not self._fleet.runs.has_branch(run):
            return ""
        if run.has_workspace:
            return f"branch {run.branch} is kept: its workspace is there still"
        repositories, keeps = self._fleet.repositories, f"branch {run.branch} is kept: "
        try:
            tip = repositories.inspect(run.project, f"refs/heads/{run.branch}", ()).base_sha
            later = [f"refs/heads/{one.branch}" for one in newer if self._fleet.runs.has_branch(one)]
            places = ("HEAD", run.base_sha, *later)
            is_elsewhere = any(repositories.contains(run.project, tip, there) for there in places)
            if not is_elsewhere and not discard:
                return (
                    f"{keeps}it has work that is in no other branch; merge it, then clean up again,"
                    " or discard the branch"
                )
            # It can be brought back if nobody has committed on it since it was saved.
            if not is_elsewhere and not (
                run.saved_ref and repositories.contains(run.project, tip, run.saved_ref)
            ):
                return (
                    f"{keeps}it has commits that are not in what was saved of its workspace,"
                    " and could not be brought back; merge it, or delete it with git"
                )
            repositories.drop_branch(run.project, run.branch, tip)
        except FleetError as problem:
            return f"{keeps}{problem.message}"
        return ""
