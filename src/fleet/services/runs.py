"""Start agents, talk to them, end them, bring them back: wishes that the engine makes true."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from fleet import errors
from fleet.domain.batch import Wish
from fleet.domain.event import Json
from fleet.domain.ids import BatchId, RunId, new_batch_id, new_run_id
from fleet.domain.run import Mode, Role, Run, RunState, Wanted, WorkspaceState
from fleet.errors import BranchTaken, Conflict, FleetError, InvalidInput, Next, NotFound, Stale
from fleet.ports.store import Record
from fleet.ports.workspace import Place, Remains
from fleet.records.runs import BRANCH, Runs, branch_key
from fleet.services.fleet import Fleet
from fleet.services.folders import place, project_at
from fleet.services.machine import is_installed, require_binary, require_room
from fleet.services.waiting import each_change

if TYPE_CHECKING:  # most commands need few of these, and loading them takes time
    from fleet.ports.coder import Coder, Facts
    from fleet.ports.repository import Repository

CLAIM_SECONDS = 60.0  # how long a claimed branch waits for its run to be recorded


class How(NamedTuple):
    """How agents are to be started, in the words of operations; what is empty comes from the settings."""

    repo_path: str = "."
    coder: str = ""
    model: str = ""
    base_ref: str = "HEAD"
    mode: str | None = None
    role: str = Role.DOER
    quick: bool = False
    skip_permissions: bool = False
    on_terminal: bool = False  # a person watches: prefer tmux
    origin: str = ""  # the spawn that they come from
    budget_usd: float = 0.0  # of all of them together; 0: no limit


class RunService:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._runs = Runs(fleet.store)

    # starting

    def start(self, wishes: Sequence[Wish], how: How, *, batch: BatchId | None = None) -> list[Run]:
        """Record the wishes and wake the supervisor. All are checked before any is recorded."""
        place(how.repo_path)
        facts = self._fleet.coder(how.coder or self._fleet.settings.coder_default).facts
        require_binary(facts)
        mode = self._mode_for(facts, how)
        _check_wishes(wishes, mode)
        branches = [wish.branch for wish in wishes]
        try:
            repository = self._fleet.repositories.inspect(how.repo_path, how.base_ref, branches)
        except BranchTaken as taken:
            raise self._told_by_run(taken, how.repo_path, branches) from taken
        require_room(self._fleet.home, self._fleet.settings.limits_min_free_mb)
        batch = batch or new_batch_id()
        how = how._replace(budget_usd=how.budget_usd / max(1, len(wishes)))
        runs = [self._run_for(wish, how, facts.name, mode, repository, batch) for wish in wishes]
        claims: list[Record] = []
        try:
            for run in runs:
                claims.append(self._claim_branch(run))
        except BranchTaken:
            for claim in claims:
                self._fleet.store.remove(claim)
            raise
        for run, wish in zip(runs, wishes, strict=True):
            self._runs.add_prompt(run.id, 1, wish.prompt)
            self._runs.add(run)
            if run is runs[0]:
                self._fleet.link.wake()  # the supervisor begins while the others are recorded
        self._fleet.link.wake()
        return runs

    def _told_by_run(self, taken: BranchTaken, folder: str, branches: Sequence[str]) -> BranchTaken:
        """Return the error with a hint about the agent whose branch it is, if there is one."""
        project = project_at(folder)
        for run in reversed(self._runs.find("project", project) if project else []):
            if run.branch in branches and (run.saved_ref or not run.is_removed):
                undo = Next("run.undo", run=run.branch)
                restoring = (undo, " restores its agent's workspace; or choose another name")
                return BranchTaken(taken.message, hint=restoring if run.is_removed else _ways_on(run))
        return taken

    def _run_for(
        self, wish: Wish, how: How, coder: str, mode: Mode, repository: Repository, batch: BatchId
    ) -> Run:
        now = time.time()
        settings = self._fleet.settings
        return Run(
            id=new_run_id(now),
            project=repository.top,
            branch=wish.branch,
            coder=coder,
            created_at=now,
            batch=batch,
            model=how.model or settings.coder_model_for(coder),
            mode=mode,
            role=Role(how.role),
            flags=tuple(settings.coder_flags(coder)),
            skip_permissions=how.skip_permissions or settings.skips_permissions(coder),
            quick=how.quick or settings.setup_quick,
            base_ref=how.base_ref,
            base_sha=repository.base_sha,
            state_since=now,
            host=self._fleet.host,
            origin=how.origin,
            budget_usd=how.budget_usd,
        )

    def _claim_branch(self, run: Run) -> Record:
        """Write down whose branch it is; raise `BranchTaken` if that is another run, which still needs it."""
        key = branch_key(run.project, run.branch)
        held = self._fleet.store.get(BRANCH, key)
        holder = self._holder(held) if held else None
        if holder and holder.id != run.id:
            told, hint = f"({holder.state})", _ways_on(holder)
            if run.is_removed:  # it is to be restored
                told, hint = "now", ("end that one first: ", Next("run.kill", patterns=[holder.id]))
            raise BranchTaken(f"branch {run.branch!r} belongs to run {holder.id} {told}", hint=hint)
        body: dict[str, Json] = {"run": run.id, "at": time.time()}
        version = held.version if held else ""
        try:
            return self._fleet.store.put(Record(kind=BRANCH, key=key, body=body, version=version))
        except Stale as stale:
            raise _just_taken(run.branch) from stale

    def _holder(self, claim: Record) -> Run | None:
        """Return the run that still needs the branch, if any."""
        try:
            run = self._runs.get(RunId(str(claim.body["run"])))
        except NotFound:
            at = claim.body.get("at")
            # A claim from far ahead was made before the clock was set back: it is no fresh one either.
            if isinstance(at, float) and abs(time.time() - at) < CLAIM_SECONDS:
                raise _just_taken(claim.key.partition("\n")[2]) from None
            return None  # whoever claimed it died before the run was recorded
        return None if run.is_removed and not run.has_work else run

    def _mode_for(self, facts: Facts, how: How) -> Mode:
        wanted = how.mode or self._fleet.settings.coder_mode
        if not wanted:
            can_show = how.on_terminal and Mode.TMUX in facts.modes and is_installed("tmux")
            return Mode.TMUX if can_show else Mode.HEADLESS
        if wanted not in facts.modes:
            hint = f"use mode {' or '.join(sorted(facts.modes))}"
            raise InvalidInput(f"coder {facts.name!r} cannot run in {wanted} mode", hint=hint)
        if wanted == Mode.TMUX and not is_installed("tmux"):
            raise errors.CoderMissing("tmux mode", "tmux", "apt-get install tmux")
        return Mode(wanted)

    # finding

    def list(self, *, everything: bool = False) -> list[Run]:
        """Return runs, oldest first: those that still have a workspace or work, or all of them."""
        return self._runs.find() if everything else self._runs.find("shown", "yes")

    def get(self, name: str, *, folder: str = ".") -> Run:
        """Return the newest run of a branch, this repository's first, or of an id, its own or its task's."""
        project = project_at(folder)
        same = self._runs.find("branch", branch_key(project, name)) if project else []
        found = [run for run in same if run.branch == name]
        if not found and (run := self._runs.peek(name)):
            return run
        found = found or [run for run in self._runs.find() if name in (run.branch, run.task)]
        projects = {run.project for run in found}
        if len(projects) > 1:
            raise Conflict(
                f"branch {name!r} exists in {len(projects)} projects: {', '.join(sorted(projects))}",
                hint=("cd into one of them, or use the id of the run: see ", Next("run.list")),
            )
        if not found:
            from difflib import get_close_matches  # slow to load, and seldom needed

            branches = {run.branch for run in self._runs.find() if project in (None, run.project)}
            close = get_close_matches(name[:200], branches, n=1)
            meant = f"did you mean {close[0]!r}? " if close else ""
            hint = (f"{meant}see ", Next("run.list", all=True))
            raise NotFound(f"no agent has the branch or id {name!r}", hint=hint)
        shown = [run for run in found if not run.is_removed]
        return (shown or found)[-1]

    def matching(self, patterns: Sequence[str], *, batch: str = "", folder: str = ".") -> list[Run]:
        """Return the runs of an id or batch, or whose branch matches a glob; in a repository only its own."""
        shown = self.list()
        project = _project_of(folder, shown)
        return [
            run
            for run in shown
            if (batch and run.batch == batch)
            or run.id in patterns
            or (
                project in (None, run.project)
                and any(fnmatchcase(run.branch, pattern) for pattern in patterns)
            )
        ]

    # wishes about a run that exists

    def prompt(self, run_id: RunId, text: str) -> Run:
        """Give a run a further prompt; it is delivered exactly once, after those before it."""
        run = self._runs.get(run_id)
        _check_prompt(text)
        _require_promptable(run)
        is_here = run.host in ("", self._fleet.host) and not run.is_shared
        is_made = run.has_ended and run.workspace_state is WorkspaceState.READY
        if is_here and is_made and not os.path.isdir(run.workspace):  # noqa: PTH112  of any name
            raise errors.WorkspaceGone(run.branch, run.workspace)  # it was deleted by hand
        return self._change_with_prompt(run, text, _with_prompt)

    def _change_with_prompt(self, run: Run, text: str, change: Callable[[Run, int], Run]) -> Run:
        """Change a run together with a further prompt; one that the run did not take up is forgotten."""
        number = run.prompts + 1
        while True:
            try:
                self._runs.add_prompt(run.id, number, text)
                break
            except Stale:
                number += 1  # another `fleet prompt` came first; queue up behind it
        try:
            return self._change(run.id, lambda run: change(run, number))
        finally:
            if self._runs.get(run.id).prompts < number:
                self._runs.drop_prompt(run.id, number)

    def _change(self, run_id: RunId, change: Callable[[Run], Run]) -> Run:
        run = self._runs.update(run_id, change)
        self._fleet.link.wake()
        return run

    def take_over(self, run_id: RunId) -> Run:
        """Have a run go on in a screen, in its session; a turn is ended, a screen that is up stays."""
        run = self._runs.get(run_id)
        if run.host not in ("", self._fleet.host):
            raise Conflict(f"{run.branch!r} runs on host {run.host}", hint="attach to it there")
        if run.has_screen:
            return run
        coder = self._fleet.coder(run.coder)
        _taken_over(run, run.prompts + 1, coder)  # refuses what it must before anything is written
        return self._change_with_prompt(run, "", lambda run, number: _taken_over(run, number, coder))

    def release(self, run_id: RunId, text: str = "") -> Run:
        """Have a run in tmux go on headless: with a prompt in the same session, else when it gets one."""
        run = self._runs.get(run_id)
        facts = self._fleet.coder(run.coder).facts
        _released(run, facts)
        if not text:
            return self._change(run_id, lambda run: _released(run, facts))
        _check_prompt(text)
        return self._change_with_prompt(
            run, text, lambda run, number: _with_prompt(_released(run, facts), number)
        )

    def stop(self, runs: Sequence[Run], *, delete_branch: bool = False) -> list[Run]:
        """Have the agents ended, their workspaces saved and removed; pending prompts are dropped."""

        def stopped(run: Run) -> Run:
            was_wanted = run.wanted is Wanted.STOP and run.delete_branch
            # Of a run that has ended nobody settles the turn any more; a prompt left waiting would run
            # after `undo`.
            turn = run.prompts if run.has_ended else run.turn
            return replace(run, turn=turn).want(Wanted.STOP, delete_branch=delete_branch or was_wanted)

        seen = [self._runs.update(run.id, stopped) for run in runs]
        self._fleet.link.wake()
        return seen

    def clean(self, runs: Sequence[Run], *, also_kept: bool = False) -> list[Run]:
        """Have the workspaces of ended runs saved and removed; their branches stay.

        Runs that are at work or wanted otherwise by now are left alone, and so are those whose workspace
        is kept for more, unless it is what keeps them that asks. Return the others.
        """

        def cleaned(run: Run) -> Run:
            return run.want(Wanted.CLEAN) if _is_cleanable(run, also_kept=also_kept) else run

        seen = [self._runs.update(run.id, cleaned) for run in runs]
        self._fleet.link.wake()
        return [run for run in seen if run.wanted is Wanted.CLEAN]

    def peek(self, run_id: RunId) -> Run | None:
        return self._runs.peek(run_id)

    def has_branch(self, run: Run) -> bool:
        """Whether the branch that the run worked on is there."""
        return self.is_branch(run.project, run.branch)

    def is_branch(self, folder: str, name: str) -> bool:
        """Whether there is a branch of a name in the repository of a folder."""
        try:
            self._fleet.repositories.inspect(folder, f"refs/heads/{name}", ())
        except (NotFound, errors.UnusableRepository):
            return False
        return True

    def cleanable(self, *, folder: str | None = ".") -> list[Run]:
        """Return the ended runs that can be cleaned: of the repository that a folder is in, else of all."""
        shown = self.list()
        project = _project_of(folder, shown) if folder else None
        return [run for run in shown if project in (None, run.project) and _is_cleanable(run)]

    def restorable(self) -> list[Run]:
        """Return the runs whose workspace was removed and can be restored, newest last."""
        return [run for run in self._runs.find() if run.is_removed and run.saved_ref]

    def set_aside(self, run: Run) -> tuple[str, ...]:
        """Return the files of a removed run that its snapshot cannot hold and that are kept beside it."""
        try:
            return self._fleet.repositories.kept_names(Place.of(run))
        except FleetError:  # the repository is gone
            return ()

    def remains_of(self, run: Run) -> Remains:
        """Look what is there of a removed run's work."""
        try:
            return self._fleet.repositories.find_remains(Place.of(run))
        except FleetError as problem:
            return Remains(damage=problem.message)

    def restore(self, run: Run) -> Run:
        """Have a removed workspace restored from its snapshot; raise `Conflict` if there is none."""
        name = f"run {run.id} ({run.branch})"
        if run.has_workspace:
            raise Conflict(f"{name} still has its workspace", hint=f"it is {run.workspace}")
        if not run.is_removed:
            hint = ("see ", Next("run.show", run=run.id))
            raise Conflict(f"{name} was not removed ({run.state})", hint=hint)
        if not run.saved_ref:
            hint = ("start it again with ", Next("run.create", branch=run.branch, prompt="…"))
            raise Conflict(f"{name} never had a workspace: nothing to restore", hint=hint)
        self._claim_branch(run)
        return self._change(run.id, lambda run: run.want(Wanted.RESTORE))

    # watching

    def wait(
        self,
        run_ids: Sequence[RunId],
        *,
        until: Callable[[Run], bool] = lambda run: run.is_at_rest,
        timeout_seconds: float | None = None,
        progress: Callable[[Sequence[Run]], None] = lambda runs: None,
    ) -> list[Run]:
        """Block until each run is at rest (or `until` holds for it); return them as they are then."""
        runs: list[Run] = []
        for _ in each_change(self._fleet, timeout_seconds=timeout_seconds):
            runs = [self._runs.get(run_id) for run_id in run_ids]
            progress(runs)
            if all(until(run) for run in runs):
                break
        return runs

    def diff_text(self, run: Run, *, stat: bool = False) -> str:
        return self._fleet.repositories.diff_text(Place.of(run), stat=stat)

    def diff_of_work(self, name: str, *, stat: bool = False) -> str | None:
        """Return the diff of the result of a workflow, pair, sprint or race; None if none has that id."""
        from fleet.services.work import Results

        results = Results(self._fleet.store)
        whole = results.peek(name)
        if whole is None:
            return None
        branches = results.require(name, whole.project)
        if gone := [one for one in branches if not self.is_branch(whole.project, one)]:
            hint = "name another branch of it"
            raise NotFound(f"the result of {name} has no branch {', '.join(gone)} any more", hint=hint)
        refs = (f"refs/heads/{branch}" for branch in branches)
        return "".join(
            self._fleet.repositories.diff_commits(whole.project, whole.base, ref, stat=stat) for ref in refs
        )


def _is_cleanable(run: Run, *, also_kept: bool = False) -> bool:
    if run.is_shared or (run.is_kept and not also_kept):
        return False
    is_done = run.has_ended and not run.has_work and not run.is_removed
    return is_done and run.wanted is Wanted.RUN and run.state is not RunState.BLOCKED and not run.held


def _with_prompt(run: Run, number: int) -> Run:
    _require_promptable(run)
    return replace(run, prompts=max(run.prompts, number))


def _taken_over(run: Run, number: int, coder: Coder) -> Run:
    """Return the run on its way into tmux, where the blank prompt of that number wakes it if none waits."""
    _require_promptable(run)
    if run.mode is Mode.TMUX and run.is_to_switch:
        raise Conflict(f"{run.branch!r} is being handed back", hint="try again in a moment")
    is_ending = run.has_ended or run.state is RunState.SETTLING
    if run.mode is Mode.TMUX and not is_ending:
        return run
    # While it is being prepared, an agent may or may not have been started on its next prompt.
    begun = run.turn + (run.state is RunState.PREPARING)
    _require_screen(run, coder, has_begun=begun > 0)
    return replace(run.switch(Mode.TMUX), prompts=max(run.prompts, number if run.prompts <= begun else 0))


def _require_screen(run: Run, coder: Coder, *, has_begun: bool) -> None:
    """Raise `Conflict` unless the coder can go on with what was begun in a screen of its own."""
    from fleet.ports.coder import Turn

    facts = coder.facts
    hint = (
        "follow it with ",
        Next("run.logs", run=run.branch),
        ", talk to it with ",
        Next("run.prompt", run=run.branch, prompt="…"),
    )
    if Mode.TMUX not in facts.modes:
        raise Conflict(f"coder {facts.name!r} cannot run in tmux: {run.branch!r} has no screen", hint=hint)
    if not has_begun:
        return
    if not facts.resumes:
        raise Conflict(f"coder {facts.name!r} cannot go on in tmux with what it has begun", hint=hint)
    resumed = Turn(
        prompt="",
        folder="",
        workspace=run.workspace,
        git_folders=(),
        hook=(),
        mode=Mode.TMUX,
        role=run.role,
        session=run.session or run.id,
        skip_permissions=run.skip_permissions,
    )
    try:
        coder.launch(resumed)
    except InvalidInput as refusal:
        raise Conflict(refusal.message, hint=refusal.hint_parts) from refusal


def _released(run: Run, facts: Facts) -> Run:
    """Return the run on its way out of tmux."""
    _require_promptable(run)
    if run.mode is Mode.HEADLESS:
        if run.is_to_switch:
            raise Conflict(f"{run.branch!r} is being taken over", hint="try again in a moment")
        hint = ("talk to it with ", Next("run.prompt", run=run.branch, prompt="…"))
        raise Conflict(f"{run.branch!r} runs headless already", hint=hint)
    if Mode.HEADLESS not in facts.modes:
        hint = ("detach with Ctrl-b d, or end it with ", Next("run.kill", patterns=[run.branch]))
        raise Conflict(f"coder {facts.name!r} cannot run headless", hint=hint)
    if not (run.is_live or run.is_at_rest):
        raise Conflict(f"{run.branch!r} has no screen yet ({run.state})", hint="try again in a moment")
    return run.switch(Mode.HEADLESS)


def _require_promptable(run: Run) -> None:
    """Raise `Conflict` unless a prompt given now would be carried out."""
    undo = Next("run.undo", run=run.id)
    if run.is_removed and run.wanted is not Wanted.RESTORE:
        raise Conflict(f"the workspace of {run.branch!r} was removed", hint=("restore it with ", undo))
    if run.wanted is Wanted.RESTORE:
        raise Conflict(f"{run.branch!r} is being restored", hint="try again in a moment")
    if run.wanted is not Wanted.RUN:
        raise Conflict(f"{run.branch!r} is being removed", hint=("then restore it with ", undo))


def _just_taken(branch: str) -> BranchTaken:
    hint = "choose another name"
    return BranchTaken(f"branch {branch!r} was taken by another `fleet` command just now", hint=hint)


def _check_wishes(wishes: Sequence[Wish], mode: Mode) -> None:
    for wish in wishes:
        _check_prompt(wish.prompt, wish.branch)
        if mode is Mode.HEADLESS and not wish.prompt.strip():
            hint = "give a prompt, or use mode tmux"
            raise InvalidInput(f"branch {wish.branch!r} needs a prompt to run without a terminal", hint=hint)
    names = [wish.branch.casefold() for wish in wishes]
    for number, wish in enumerate(wishes):
        if names[number] in names[:number]:
            raise InvalidInput(f"branch {wish.branch!r} is named twice")


def _check_prompt(text: str, branch: str = "") -> None:
    if "\0" in text:
        raise InvalidInput("a prompt cannot contain a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"the prompt for {branch!r} is not valid UTF-8: {error.reason}") from error
    if not branch and not text.strip():
        raise InvalidInput("the prompt is empty")


def _project_of(folder: str, runs: Sequence[Run]) -> str | None:
    """Return the project that a folder is in, also in a run's workspace that lost its `.git`."""
    if project := project_at(folder):
        return project
    here = os.path.realpath(folder) + os.sep
    around = (
        run for run in runs for top in (run.project, run.workspace) if top and here.startswith(top + os.sep)
    )
    return next((run.project for run in around), None)


def _ways_on(run: Run) -> tuple[str | Next, ...]:
    """Return what to do about a run that has the branch that is wanted."""
    return (
        Next("run.prompt", run=run.branch, prompt="…"),
        " talks to it, ",
        Next("run.kill", patterns=[run.branch], delete_branch=True),
        " ends it and deletes its branch",
    )
