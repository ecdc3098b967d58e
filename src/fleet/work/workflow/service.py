"""Start, list, change and clean up workflows."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from fleet.config.files import require_plain
from fleet.domain.ids import WorkflowId, new_work_id
from fleet.domain.question import QuestionState
from fleet.domain.task import TaskState
from fleet.errors import Conflict, FleetError, GitFailed, InvalidInput, Next, NotFound
from fleet.records.runs import Runs
from fleet.records.tasks import Questions, Tasks
from fleet.services.folders import is_linked, place, project_at, require_own_repository, run_at
from fleet.services.machine import require_binary
from fleet.services.texts import check_text
from fleet.services.work import WorkService
from fleet.work.workflow import model as workflows
from fleet.work.workflow.blueprint import Blueprint, read_blueprint, variables_used, with_usual_coder
from fleet.work.workflow.model import Outcome, Stage, StageKind, StageState, Strategy, Workflow
from fleet.work.workflow.records import Workflows
from fleet.work.workflow.stage_logs import StageEntry, StageLogs, told_of_approval

if TYPE_CHECKING:
    from fleet.domain.event import Json
    from fleet.domain.ids import TaskId
    from fleet.domain.task import Task
    from fleet.services.fleet import Fleet

FORM_NAMES = {".toml": "TOML", ".yaml": "YAML", ".yml": "YAML", ".json": "JSON"}
FORMS = tuple(FORM_NAMES)
LONGEST_FILE = 4 << 20
BUILT_IN = Path(__file__).resolve().parents[2] / "workflows"


class WorkflowWish(Protocol):
    """How a workflow is to be run; what is empty comes from its file or from the settings."""

    repo_path: str
    prompt: str
    base_ref: str
    variables: Mapping[str, str]
    coders: Mapping[str, str]  # by stage; "" is for all that have none of their own here


class Known(NamedTuple):
    """A workflow that can be run by its name."""

    name: str
    path: str
    description: str


class WorkflowService(WorkService[Workflow]):
    def __init__(self, fleet: Fleet) -> None:
        self._workflows = Workflows(fleet.store)
        super().__init__(fleet, self._workflows)
        self._tasks = Tasks(fleet.store)
        self._logs = StageLogs(fleet.store)
        self._questions = Questions(fleet.store)
        self._runs = Runs(fleet.store)

    # starting

    def blueprint_named(self, name: str, *, folder: str = ".") -> Blueprint:
        """Return the workflow of a name, which may not be a file's."""
        return self.blueprint(str(self._find(name, (), folder)), folder=folder)

    def blueprint(self, source: str, *, folder: str = ".") -> Blueprint:
        """Return the workflow of a file, or the one of that name; all that stands in it is checked."""
        path = self._find(source, (".", folder), folder)
        nearby = (str(path.parent), ".", folder)
        found = read_blueprint(
            _read(path), name=path.stem, within=lambda name: _read(self._find(name, nearby, folder))
        )
        return replace(found, stages=with_usual_coder(found.stages, self._fleet.settings.coder_default))

    def check(self, blueprint: Blueprint, wish: WorkflowWish) -> Blueprint:
        """Return the workflow as it would run, given a task; raise whatever prevents that."""
        stages = self._checked(blueprint, wish)
        self._fleet.repositories.inspect(wish.repo_path, wish.base_ref or blueprint.base_ref, ())
        return replace(blueprint, stages=stages)

    def read(self, document: object, *, folder: str = ".") -> Blueprint:
        """Return the workflow of a document that came from elsewhere: it may name others, but no files."""
        found = read_blueprint(document, within=lambda name: _read(self._find(name, (), folder)))
        return replace(found, stages=with_usual_coder(found.stages, self._fleet.settings.coder_default))

    def _checked(self, blueprint: Blueprint, wish: WorkflowWish) -> tuple[Stage, ...]:
        check_text(wish.prompt, *wish.variables, *wish.variables.values())
        place(wish.repo_path)
        stages = _with_coders(blueprint.stages, wish.coders)
        _check_variables(stages, blueprint.variables, wish.variables)
        for stage in workflows.each_stage(stages):
            for name in _coders_of(stage):
                try:
                    require_binary(self._fleet.coder(name).facts)
                except FleetError as problem:
                    problem.message_parts = (f"stage {stage.name!r}: ", *problem.message_parts)
                    raise
        return stages

    def start(self, blueprint: Blueprint, wish: WorkflowWish, *, origin: str) -> Workflow:
        """Record a workflow and wake the supervisor. All is checked before anything is recorded."""
        stages = self._checked(blueprint, wish)
        prompt = wish.prompt or blueprint.task_prompt
        if not prompt.strip() and any("{task_prompt}" in stage.prompt for stage in stages):
            hint = "give it a prompt: what is to be done"
            raise InvalidInput(f"workflow {blueprint.name!r} needs a task", hint=hint)
        shared = [stage.name for stage in workflows.each_stage(stages) if stage.strategy is Strategy.SHARED]
        if shared and is_linked(wish.repo_path):  # it would work in the repository's main checkout
            raise InvalidInput(
                f"stage {shared[0]!r} is to work in your own checkout, and this is a linked worktree",
                hint="call from inside the repository's main checkout, or choose another `strategy`",
            )
        repository = self._fleet.repositories.inspect(wish.repo_path, wish.base_ref or blueprint.base_ref, ())
        now = time.time()
        workflow = Workflow(
            id=WorkflowId(new_work_id("w-", now)),
            name=blueprint.name,
            project=repository.top,
            base=repository.base_sha,
            host=self._fleet.host,
            created_at=now,
            task_prompt=prompt,
            variables={**blueprint.variables, **wish.variables},
            stages=stages,
            origin=origin,
        )
        return self._add(workflows.begin(workflow))

    def known(self, *, folder: str = ".") -> list[Known]:
        """Return the workflows that have a name: the project's, the user's, those that come with fleet."""
        found: dict[str, Known] = {}
        for one in self._places(folder):
            for path in sorted(one.glob("*")):
                if path.suffix in FORMS and path.stem not in found:
                    found[path.stem] = Known(path.stem, str(path), _description(path))
        return sorted(found.values())

    def _places(self, folder: str) -> tuple[Path, ...]:
        project, usual = project_at(folder), (self._fleet.home / "workflows", BUILT_IN)
        if project is None:
            return usual
        require_own_repository(self._runs, folder, project)
        run = run_at(self._runs, folder)
        return (require_plain(Path(run.project if run else project), "workflows"), *usual)

    def _find(self, source: str, folders: Sequence[str], project: str) -> Path:
        """Return a file in one of the folders, or else the one of a workflow that has a name."""
        files = [Path(folder) / source for folder in folders]
        named = [one / f"{source}{form}" for one in self._places(project) for form in FORMS]
        if "/" in source:
            named = []
        elif run_at(self._runs, project):  # no file of an agent's takes the place of one that has a name
            files, named = named, files
        for path in (*files, *named):
            if os.path.isfile(path):  # noqa: PTH113  unlike Path's, it takes any name
                if path.parent.parts[-2:] == (".fleet", "workflows"):
                    require_plain(path.parents[2], "workflows", path.name)
                return path
        names = [path.stem for one in self._places(project) for path in one.glob("*") if path.suffix in FORMS]
        close = get_close_matches(source, names, n=1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        hint = (f"{meant}see known workflows with ", Next("workflow.known"))
        raise NotFound(f"there is no file and no workflow {source!r}", hint=hint)

    # looking

    def list(self, *, everything: bool) -> list[Workflow]:
        """Return workflows, newest first; those within others are not listed."""
        return [self._heard(one) for one in super().list(everything=everything) if not one.parent]

    def get(self, name: str) -> Workflow:
        """Return the newest workflow of a name, or the one of an id, or of an id's end."""
        named = [one for one in self.list(everything=True) if one.name == name]
        return named[0] if named else self._heard(super().get(name))

    def _heard(self, one: Workflow) -> Workflow:
        """Return a workflow without what it asks and was told meanwhile: that is about to be heard."""
        for index, at in enumerate(one.progress):
            is_asking = at.asks and at.state is StageState.RUNNING
            if is_asking and not any(map(self._still_asks, one.units(index))):
                one = one.with_stage(index, asks="")
        return one

    def _still_asks(self, name: TaskId) -> bool:
        """Whether a part of a stage needs a person, as far as its own record tells."""
        if task := self._tasks.peek(name):
            if task.is_held:
                run = self._runs.of_task(task)
                return run is not None and bool(run.held)
            question = self._questions.peek(task.question) if task.question else None
            is_answered = question is not None and question.state is QuestionState.ANSWERED
            return task.state is TaskState.BLOCKED and not is_answered
        child = self._workflows.peek(name)
        return child is None or self._heard(child).needs_person

    def tasks_of(self, workflow: Workflow, index: int) -> list[Task]:
        """Return the tasks that a stage became, as far as it has."""
        return [task for name in workflow.units(index) if (task := self._tasks.peek(name))]

    def log(self, workflow: Workflow, stage: str = "") -> list[StageEntry]:
        """Return the log of a stage, or of all: every try and round, or why a stage has not begun."""
        wanted = [workflow.index_of(stage)] if stage else range(len(workflow.stages))
        return [entry for index in wanted for entry in self._logs.entries(workflow, index)]

    def within(self, workflow: Workflow) -> list[Workflow]:
        return self._workflows.find("parent", workflow.id)

    # changing

    def pause(self, name: str) -> Workflow:
        """Start no more stages; those that are running continue."""
        return self._change(name, lambda one: _live(replace(one, is_paused=True)))

    def resume(self, name: str) -> Workflow:
        return self._change(name, lambda one: _live(replace(one, is_paused=False)))

    def cancel(self, name: str) -> Workflow:
        """End everything of a workflow; its work stays on its branches."""
        return self._change(name, lambda one: _live(replace(one, is_cancelled=True)))

    def retry(self, name: str, stage: str) -> Workflow:
        """Repeat a stage, and all that build on it."""

        def again(one: Workflow) -> Workflow:
            if one.parent:
                hint = f"retry its stage in {one.parent}"
                raise Conflict(f"workflow {one.id} is part of another", hint=hint)
            return workflows.retried(one, one.index_of(stage))

        return self._change(name, again)

    def decide(self, name: str, stage: str, *, yes: bool, words: str, by: str) -> Workflow:
        """Answer a stage that asks for a person's approval."""

        def decided(one: Workflow) -> Workflow:
            said = words or ("yes" if yes else "no")
            reason = "" if yes else f"{by} said no: {said}"
            answer = Outcome(status="approved" if yes else "failed", summary=said, reason=reason)
            return workflows.approved(one, one.index_of(stage), answer, time.time())

        def told(before: Workflow) -> list[Mapping[str, Json]]:
            return told_of_approval(before, before.index_of(stage), yes=yes, words=words, by=by)

        changed = self._workflows.update_noted(self.get(name).id, decided, told)
        self._fleet.link.wake()
        return changed

    def branches(self, workflow: Workflow) -> list[str]:
        """Return what branches a workflow has had, with those of workflows within and of earlier tries."""
        runs = self._runs.find("project", workflow.project)
        own = f"fleet/{workflow.id}-"
        of_agents = (run.branch for run in runs if run.branch.startswith(own))
        return list(dict.fromkeys([*of_agents, *self._kept_merges(workflow)]))

    def _kept_merges(self, workflow: Workflow) -> Iterator[str]:
        """Yield the branches that merges were kept on. One that has another commit is somebody else's."""
        for index, (stage, at) in enumerate(zip(workflow.stages, workflow.progress, strict=True)):
            for tried in range(1, at.tries + 1) if stage.kind is StageKind.GATE else ():
                branch = workflow.kept_branch(index, tried)
                if self._tip_of(workflow, branch) in self._logs.commits(workflow, index, tried):
                    yield branch
        for child in self.within(workflow):
            yield from self._kept_merges(child)

    def clean_up(self, name: str) -> tuple[list[str], list[str]]:
        """Delete the branches of an ended workflow whose work is in its result, or in the current branch.

        One that is checked out somewhere is kept. Returns those deleted, and those kept.
        """
        workflow = self.get(name)
        if not workflow.has_ended:
            hint = ("cancel it first with ", Next("workflow.cancel", workflow_id=workflow.id))
            raise Conflict(f"workflow {workflow.id} is under way", hint=hint)
        results = [outcome.branch for outcome in workflow.finals if outcome.branch]
        deleted: list[str] = []
        kept: list[str] = []
        for branch in self.branches(workflow):
            if tip := self._tip_of(workflow, branch):  # it is still there
                safe = ["HEAD"] + [f"refs/heads/{one}" for one in results if branch not in results]
                is_merged = any(self._fleet.repositories.contains(workflow.project, tip, ref) for ref in safe)
                try:
                    if is_merged:
                        self._fleet.repositories.drop_branch(workflow.project, branch, tip)
                    (deleted if is_merged else kept).append(branch)
                except (Conflict, GitFailed):
                    kept.append(branch)
        return deleted, kept

    def _tip_of(self, workflow: Workflow, branch: str) -> str:
        try:
            return self._fleet.repositories.inspect(workflow.project, f"refs/heads/{branch}", ()).base_sha
        except FleetError:
            return ""


def _check_variables(stages: Sequence[Stage], usual: Mapping[str, str], given: Mapping[str, str]) -> None:
    """Refuse variables that nothing asks for, and such as are asked for and not there: both are typos."""
    used = variables_used(stages)
    for name in given:
        if name not in used and name not in usual:
            close = get_close_matches(name, used, n=1)
            hint = f"did you mean {close[0]!r}?" if close else "leave it out"
            raise InvalidInput(f"no stage uses {{vars.{name}}}", hint=hint)
    for name in sorted(used - set(usual) - set(given)):
        hint = f"give the variable {name!r} a value, or set it in `variables` of the file"
        raise InvalidInput(f"{{vars.{name}}} has no value", hint=hint)


def _live(workflow: Workflow) -> Workflow:
    if workflow.has_ended:
        hint = ("repeat a stage with ", Next("workflow.retry", workflow_id=workflow.id, stage="…"))
        raise Conflict(f"workflow {workflow.id} has ended: {workflow.state}", hint=hint)
    return workflow


def _with_coders(stages: Sequence[Stage], coders: Mapping[str, str]) -> tuple[Stage, ...]:
    names = {stage.name for stage in stages}
    for name in coders:
        if name and name not in names:
            raise NotFound(f"there is no stage {name!r}", hint=f"there are {', '.join(sorted(names))}")
    return tuple(_done_by(stage, coders.get(stage.name) or coders.get("", "")) for stage in stages)


def _done_by(stage: Stage, who: str) -> Stage:
    """Return a stage that another coder does, with all within it; model and flags were the first's."""
    coder, _, model = who.partition(":")
    if model.startswith("-"):  # its CLI would take it for an option
        raise InvalidInput(f"{who!r} names a model that begins with a dash", hint="name one that there is")
    inner = tuple(_done_by(one, who) for one in stage.stages)
    if not coder or coder == stage.coder:
        return replace(stage, stages=inner, model=model or stage.model)
    return replace(stage, stages=inner, coder=coder, model=model, flags=(), effort="", coders=())


def _coders_of(stage: Stage) -> tuple[str, ...]:
    if stage.kind in (StageKind.GATE, StageKind.APPROVAL, StageKind.WORKFLOW):
        return ()
    own = stage.coders if stage.kind is StageKind.RACE and stage.coders else (stage.coder,)
    reviewer = stage.reviewer.partition(":")[0]
    return (*own, reviewer) if reviewer else own


def _read(path: Path) -> object:
    try:
        if path.stat().st_size > LONGEST_FILE:
            hint = "is it a workflow?"
            raise InvalidInput(f"{str(path)!r} is larger than {LONGEST_FILE >> 20} MB", hint=hint)
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidInput(f"cannot read {str(path)!r}: {problem}", hint="is it a workflow?") from problem
    try:
        return _parse(text, path.suffix)
    except (ValueError, RecursionError) as problem:
        form = FORM_NAMES.get(path.suffix, "JSON")
        hint = "correct it there, then run it again"
        raise InvalidInput(f"{str(path)!r} is not valid {form}: {problem}", hint=hint) from problem


def _parse(text: str, form: str) -> object:
    if form == ".toml":
        import tomllib

        return tomllib.loads(text)
    if form in (".yaml", ".yml"):
        import yaml

        try:
            return yaml.safe_load(text)
        except yaml.MarkedYAMLError as problem:
            mark = problem.problem_mark
            where = f" (at line {mark.line + 1}, column {mark.column + 1})" if mark else ""
            raise ValueError(f"{problem.problem or problem.context}{where}") from problem
        except (yaml.YAMLError, AttributeError, TypeError, LookupError) as problem:
            # Not all that is wrong with a tagged value is told by an error of the library's own.
            raise ValueError(str(problem)) from problem
    return json.loads(text)


def _description(path: Path) -> str:
    try:
        return read_blueprint(_read(path), within=lambda name: {"stages": [{"name": "within"}]}).description
    except FleetError as problem:
        return f"broken: {problem.message}"
