"""Hand one prompt to one agent, follow it, and clear away after it: tasks that end with their turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from fleet.domain.errand import OVER, Errand, ErrandState, state_of
from fleet.domain.event import Json
from fleet.domain.ids import RunId, new_task_id
from fleet.domain.naming import refuse_option
from fleet.domain.report import PLEASE
from fleet.domain.task import Task, TaskState, check_task
from fleet.errors import Conflict, FleetError, InvalidInput, NotFound
from fleet.ports.spawns import Errands
from fleet.services.programs import require_binary
from fleet.services.tasks import check_text

if TYPE_CHECKING:
    from fleet.config import Settings
    from fleet.domain.run import Run
    from fleet.ports.coder import Coder, Facts
    from fleet.ports.repository import Repositories
    from fleet.ports.store import Store
    from fleet.services.runs import RunService
    from fleet.services.tasks import TaskService

CLEAN_UP_SECONDS = 30.0
MOST_FLAGS = 50


class ErrandWish(NamedTuple):
    """What is wanted of an errand; what is empty comes from the settings."""

    folder: str
    name: str
    prompt: str
    base: str = "HEAD"
    coder: str = ""
    model: str = ""
    effort: str = ""
    seconds: float = 0.0
    profile: str = ""
    labels: tuple[str, ...] = ()
    metadata: Mapping[str, Json] = {}
    flags: tuple[str, ...] = ()
    origin: str = ""  # the spawn that it comes from


class ErrandDetail(NamedTuple):
    errand: Errand
    task: Task
    run: Run | None

    @property
    def state(self) -> ErrandState:
        return state_of(self.errand, self.task, self.run)

    @property
    def is_over(self) -> bool:
        return self.state in OVER


class Removal(NamedTuple):
    """What was cleared away after an errand, and why something was not."""

    workspace: bool
    branch: bool
    kept: tuple[str, ...]


class ErrandService:
    def __init__(
        self,
        *,
        host: str,
        settings: Callable[[], Settings],
        store: Store,
        repositories: Repositories,
        coder: Callable[[str], Coder],
        runs: RunService,
        tasks: TaskService,
    ) -> None:
        self._host = host
        self._settings = settings
        self._errands = Errands(store)
        self._repositories = repositories
        self._coder = coder
        self._runs = runs
        self._tasks = tasks

    def start(self, wish: ErrandWish) -> ErrandDetail:
        """Record an errand and its task, and wake the supervisor. All is checked before anything is."""
        errand, task = self._drafted(wish)
        self._errands.add(errand)  # first: without its task it is nothing, and nothing of it is shown
        self._tasks.add(task)
        return ErrandDetail(errand, task, None)

    def _drafted(self, wish: ErrandWish) -> tuple[Errand, Task]:
        check_text(wish.name, wish.prompt, wish.base, wish.effort, wish.profile, *wish.labels, *wish.flags)
        if not wish.prompt.strip() or not wish.name.strip():
            raise InvalidInput("an errand needs a name and a prompt")
        facts = self._coder(wish.coder or self._settings().coder_default).facts
        require_binary(facts)
        _check_flags(wish.flags, facts)
        repository = self._repositories.inspect(wish.folder, wish.base, ())
        now = time.time()
        effort = tuple(word.format(wish.effort) for word in facts.effort_flags if wish.effort)
        task = Task(
            id=new_task_id(now),
            title=wish.name.strip(),
            description=wish.prompt + PLEASE,
            created_at=now,
            updated_at=now,
            cwd=repository.top,
            project=repository.top,
            coder=facts.name,
            model=wish.model,
            labels=wish.labels,
            flags=(*wish.flags, *effort),
            turn_seconds=wish.seconds,
            base=repository.base_sha,
            base_host=self._host,
            ends_with_turn=True,
            keeps_workspace=True,
            origin=wish.origin,
        )
        metadata = dict(wish.metadata)
        errand = Errand(id=task.id, name=task.title, created_at=now, profile=wish.profile, metadata=metadata)
        refuse_option(wish.model, "model")
        refuse_option(wish.effort, "reasoning effort")
        return errand, check_task(task)

    def check_flags(self, coder: str, flags: Sequence[str]) -> None:
        """Raise `InvalidInput` for flags that a caller may not give to a coder's CLI."""
        if flags:
            _check_flags(flags, self._coder(coder or self._settings().coder_default).facts)

    # looking

    def list(self) -> list[ErrandDetail]:
        """Return all errands, oldest first."""
        # Ids of the same second tell no order.
        errands = sorted(self._errands.each(), key=lambda errand: errand.created_at)
        found = ((errand, self._tasks.peek(errand.id)) for errand in errands)
        return [self._with_run(errand, task) for errand, task in found if task]

    def get(self, name: str) -> ErrandDetail:
        """Return the errand of an id, or the newest of a name."""
        check_text(name)
        if name and (errand := self._errands.peek(name)) and (task := self._tasks.peek(errand.id)):
            return self._with_run(errand, task)
        named = [detail for detail in self.list() if detail.errand.name == name]
        if not named:
            raise NotFound(f"there is no worker {name!r}", hint="`list_workers` shows them")
        return named[-1]

    def _with_run(self, errand: Errand, task: Task) -> ErrandDetail:
        return ErrandDetail(errand, task, self._tasks.run_of(task))

    def last_sign(self, detail: ErrandDetail) -> float | None:
        """Return when its agent was last heard of."""
        return self._tasks.activity(detail.run).last_at if detail.run else None

    def prompt(self, run: Run, text: str) -> Run:
        """Give a run a further prompt; one whose errand is over goes on, as long as it has its workspace."""
        errand = self._errands.peek(run.task) if run.task else None
        detail = self.get(errand.id) if errand else None
        if detail is not None and detail.state is ErrandState.PENDING:
            raise Conflict(
                f"worker {detail.errand.id} has not begun with what it was last asked for",
                hint="wait for it with `get_worker_status`",
            )
        if detail is None or detail.run is None or not detail.is_over:
            return self._runs.prompt(RunId(run.id), text)
        if not detail.run.has_workspace or detail.run.is_to_end:
            raise Conflict(
                f"the workspace of worker {detail.errand.id} was removed",
                hint=f"start another one with base_ref={run.branch!r}",
            )
        if not text.strip():
            raise InvalidInput("there is nothing in the prompt")
        self._tasks.ask_more(detail.task, detail.run, text, owner=self._host)
        return self._runs.get(run.id)

    # ending

    def cancel(self, name: str, *, by: str) -> ErrandDetail:
        """End an errand and its agent; what it did is saved. Raises `Conflict` if it is over."""
        detail = self.get(name)
        if detail.is_over:
            raise Conflict(
                f"worker {detail.errand.id} is {detail.state} already", hint="`cleanup_worker` clears it away"
            )
        self._tasks.close(detail.task.id, f"cancelled by {by}", by=by)
        now = time.time()
        self._errands.update(detail.errand.id, lambda errand: replace(errand, cancelled_at=now))
        return self.get(detail.errand.id)

    def clean_up(self, name: str, *, branch: bool = True, workspace: bool = True) -> Removal:
        """Remove what an errand left, saved first; a branch only if its work is in the current branch."""
        detail = self.get(name)
        if not detail.is_over:
            raise Conflict(
                f"worker {detail.errand.id} is {detail.state}", hint="end it with `cancel_worker` first"
            )
        run = self._removed(detail) if workspace else detail.run
        is_gone = run is None or not run.has_workspace
        kept: list[str] = []
        if workspace and run and not is_gone:
            kept.append(f"the workspace {run.workspace} is still being removed; call again")
        is_dropped = False
        if branch and run is not None:
            reason = self._drop_branch(run) if is_gone else "its workspace is there still"
            kept += [f"branch {run.branch} is kept: {reason}"] if reason else []
            is_dropped = not reason
        return Removal(workspace=workspace and is_gone, branch=is_dropped, kept=tuple(kept))

    def _removed(self, detail: ErrandDetail) -> Run | None:
        """Have the workspace removed, and wait for it; return the run as it is then."""
        if detail.task.state is not TaskState.CLOSED:
            self._tasks.close(detail.task.id, "cleared away")
        run = detail.run
        if run is None or not run.has_workspace:
            return run
        self._runs.clean([run], also_kept=True)
        waited = self._runs.wait(
            [RunId(run.id)], until=lambda run: run.is_removed, timeout_seconds=CLEAN_UP_SECONDS
        )
        return waited[0]

    def _drop_branch(self, run: Run) -> str:
        """Delete a branch that has no work of its own left; else return why not."""
        if not self._runs.has_branch(run):
            return ""
        contains = self._repositories.contains
        try:
            tip = self._repositories.inspect(run.project, f"refs/heads/{run.branch}", ()).base_sha
            if not any(contains(run.project, tip, there) for there in ("HEAD", run.base_sha)):
                return (
                    "it has work that is in no other branch; merge it with `merge_branches`, then call again"
                )
            self._repositories.drop_branch(run.project, run.branch, tip)
        except FleetError as problem:
            return problem.message
        return ""


def _check_flags(flags: Sequence[str], facts: Facts) -> None:
    """Raise `InvalidInput` for flags that may change what an agent may do, or that are too many."""
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
            known = ", ".join(facts.free_flags) or "none"
            raise InvalidInput(
                f"{word!r} may change what an agent may do without asking: {facts.name} can be given {known}",
                hint="that is for the settings: `fleet config set coder.skip_permissions true`",
            )
    if waiting:  # it would take the next flag for one, which may be ours
        raise InvalidInput(f"{waiting!r} has no value", hint=f"give both: {waiting}=VALUE")
