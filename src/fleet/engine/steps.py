"""The idempotent steps that jobs are made of. Each may be cut off anywhere and done again.

A step asks what is already so, and does the rest: a workspace that stands is not made again, an
agent that was started is attached to, a result that is recorded stays.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import time
import uuid
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fleet.config import Settings
from fleet.domain.cause import Cause
from fleet.domain.event import Event, Kind
from fleet.domain.ids import RunId
from fleet.domain.naming import tmux_name, workspace_name
from fleet.domain.process import AgentProcess, Phase
from fleet.domain.run import Mode, Result, Run, RunState, Wanted, WorkspaceState
from fleet.domain.turn import Story, Verdict, judge_turn
from fleet.domain.usage import Usage
from fleet.engine import cgroups
from fleet.engine.follow import Follower, await_end, turn_start
from fleet.engine.workshop import Workshop
from fleet.errors import BranchTaken, DiskFull, FleetError, LaunchFailed, SetupFailed
from fleet.ports.coder import Launch, Turn
from fleet.ports.shelf import encode_value
from fleet.ports.workspace import Changes

log = logging.getLogger(__name__)

GATE_SHOWN = 4000  # bytes of a gate's last words that its agent gets to read
TASK_COMMANDS = ("fleet task close", "fleet task comment", "fleet ask", "fleet show")
STDERR_SHOWN = 300  # bytes of an agent's last words on stderr that go into the reason of a failure
SWITCHED = {Mode.TMUX: "taken over by a person", Mode.HEADLESS: "handed back"}


async def prepare(shop: Workshop, run_id: RunId) -> bool:
    """Make the workspace and set it up. Return whether an agent may be started in it."""
    run = await shop.get(run_id)
    if run.is_underway:
        return True  # its journal was lost; its agent was not
    if run.state is RunState.SETTLING:
        return False  # this was tried, and failed before there was an agent
    run = await shop.become(run_id, RunState.PREPARING, also=partial(_with_places, shop))
    if run.wanted is not Wanted.RUN:
        return False
    settings = shop.settings_for(run.project)
    _check_disk(shop.home, settings)
    if run.workspace_state is WorkspaceState.READY:
        return True
    await _make(shop, run, settings)
    if settings.setup_commands and not run.quick:
        await _set_up(shop, run, settings)
    return True


async def _make(shop: Workshop, run: Run, settings: Settings) -> None:
    if run.base_ref.startswith("refs/fleet/tasks/") and settings.push_to:
        fetch = partial(shop.repositories.obtain, run.project, settings.push_to, run.base_ref)
        await shop.in_git_thread(fetch)
    try:
        await shop.in_git_thread(
            partial(shop.workspaces.make, shop.place(run), copy=settings.credential_files)
        )
    except BranchTaken:  # then nothing of it is ours, and nothing of it may be removed with the run
        await shop.update(run.id, lambda run: replace(run, workspace_state=WorkspaceState.NONE))
        raise


def _with_places(shop: Workshop, run: Run) -> Run:
    """Say where the workspace will be. It counts as made before it is: a kill in between finds it."""
    if run.wanted is not Wanted.RUN:
        return run
    run = _with_screen(shop, run)
    if run.has_workspace:
        return run
    root = shop.settings_for(run.project).workspaces_root(Path(run.project))
    return replace(
        run,
        workspace_state=WorkspaceState.MADE,
        workspace=str(root / workspace_name(run.branch, run.id)),
    )


def _with_screen(shop: Workshop, run: Run) -> Run:
    """Name the screen of a run that is to have one."""
    if run.mode is not Mode.TMUX or run.tmux:
        return run
    prefix = shop.settings_for(run.project).tmux_prefix
    return replace(run, tmux=tmux_name(prefix, run.branch, run.id))


def _check_disk(home: Path, settings: Settings) -> None:
    free = shutil.disk_usage(home).free // (1 << 20)
    if free < settings.min_free_mb:
        raise DiskFull(str(home), free, settings.min_free_mb)


async def _set_up(shop: Workshop, run: Run, settings: Settings) -> None:
    """Run the project's setup commands once, their output kept; a failing one fails the run."""
    folder = _setup_folder(shop, run)
    await shop.shim.start(
        folder,
        argv=("sh", "-c", _setup_script(settings.setup_commands)),
        env=_agent_environment(shop, run),
        cwd=run.workspace,
        stdin=None,
        marker=run.id,
    )
    process = await await_end(shop, run.id, folder, timeout_seconds=settings.setup_timeout_seconds)
    if process.code != 0 and (await shop.get(run.id)).wanted is Wanted.RUN:
        said = (await shop.transport.read(f"{folder}/err")).decode(errors="replace")
        failed = said.rpartition("fleet-setup: ")[2].strip()
        raise SetupFailed(failed or "setup", process.code or -1, f"{folder}/out")


def _setup_folder(shop: Workshop, run: Run) -> str:
    """Each job has a setup of its own: one that failed can be tried again with the next prompt."""
    return str(shop.run_folder(run.id) / f"setup-{run.job}")


def _setup_script(commands: Sequence[str]) -> str:
    """Chain the commands; the one that fails is named on stderr, the last thing there."""
    lines: list[str] = []
    for command in commands:
        quoted = "'" + command.replace("'", "'\\''") + "'"
        told = f"printf 'fleet-setup: %s\\n' {quoted} >&2"
        lines.append(f"printf '$ %s\\n' {quoted}")
        lines.append(f"sh -c {quoted} || {{ code=$?; {told}; exit $code; }}")
    return "\n".join(lines)


async def launch(shop: Workshop, run_id: RunId) -> tuple[int, bool]:
    """Start the agent on its next prompt, or attach to it if it was started.

    Return the turn (0: nothing was started), and whether its prompt is still to be pasted into the
    agent's screen.
    """
    run = await shop.get(run_id)
    if run.wanted is not Wanted.RUN and not run.is_underway:
        return 0, False
    history = await shop.log(run_id)
    turn = run.turn if run.is_underway else run.turn + 1
    prompt = await shop.prompt(run_id, turn)
    if prompt is None:
        raise LaunchFailed(f"there is no prompt number {turn}")
    folder = shop.turn_folder(run_id, turn)
    run = await _in_wanted_mode(shop, run, folder)
    plan = shop.coder(run).launch(_turn_for(shop, run, prompt, folder))
    process = await _start(shop, run, turn, plan, prompt)
    events = (turn_start(turn, prompt, fresh=True),) if history.turn < turn else ()

    def started(run: Run) -> Run:
        return replace(
            run,
            workspace_state=WorkspaceState.READY,
            turn=turn,
            agent=process.agent,
            started_at=run.started_at or time.time(),
            ended_at=None,
            result=None,
        )

    await shop.become(run_id, RunState.RUNNING, also=started, events=events)
    return turn, plan.paste


async def _in_wanted_mode(shop: Workshop, run: Run, folder: str) -> Run:
    """Switch a run whose agent is still to be started; one that was started is ended first."""
    if not run.is_to_switch or run.is_underway:
        return run
    if (await shop.shim.state(folder)).phase is not Phase.ABSENT:
        return run

    def switched(run: Run) -> Run:
        return _with_screen(shop, run.in_mode(run.mode_wanted or run.mode))

    return await shop.update(run.id, switched)


def _turn_for(shop: Workshop, run: Run, prompt: str, folder: str) -> Turn:
    settings = shop.settings_for(run.project)
    return Turn(
        prompt=prompt,
        folder=folder,
        workspace=run.workspace,
        git_folders=(*_git_folders(run), *_task_folders(shop, run)),
        hook=("sh", str(shop.hook_script), f"{folder}/hooks"),
        mode=run.mode,
        role=run.role,
        model=run.model,
        session=run.session,
        # The same for all of the run: a CLI that had no time to confirm its session is offered it again.
        new_session=str(uuid.uuid5(uuid.NAMESPACE_OID, run.id)),
        flags=run.flags,
        allow_commands=(*settings.allow_commands, *(TASK_COMMANDS if run.task else ())),
        skip_permissions=run.skip_permissions,
    )


def _task_folders(shop: Workshop, run: Run) -> tuple[str, ...]:
    return (str(shop.task_folder(run.task)),) if run.task else ()


def _git_folders(run: Run) -> tuple[str, ...]:
    """Return the git folders outside the workspace that a commit in it writes to."""
    try:
        private = Path(Path(run.workspace, ".git").read_text().removeprefix("gitdir:").strip())
    except OSError:
        return ()
    return (str(private.parent.parent), str(private))


async def _start(shop: Workshop, run: Run, turn: int, plan: Launch, prompt: str) -> AgentProcess:
    folder = shop.turn_folder(run.id, turn)
    await shop.transport.write(f"{folder}/prompt", prompt.encode())
    for name, content in plan.files.items():
        await shop.transport.write(f"{folder}/{name}", content)
    environment = _agent_environment(shop, run) | dict(plan.env)
    group = cgroups.make(run.id)
    if run.mode is Mode.HEADLESS:
        return await shop.shim.start(
            folder,
            argv=plan.argv,
            env=environment,
            cwd=run.workspace,
            stdin=plan.stdin,
            marker=run.id,
            cgroup=group,
        )
    await shop.shim.prepare(
        folder, argv=plan.argv, env=environment, cwd=run.workspace, stdin=None, marker=run.id, cgroup=group
    )
    process = await shop.shim.state(folder)
    if process.phase is Phase.ABSENT:
        await shop.tmux(run).start(shop.shim.pane_argv(folder), run.workspace)
        process = await shop.shim.await_start(folder)
    if process.phase in (Phase.ABSENT, Phase.STARTING):
        raise LaunchFailed("the agent did not come up in its tmux session")
    return process


def _agent_environment(shop: Workshop, run: Run) -> dict[str, str]:
    return _task_environment(shop, run) | {
        "FLEET_RUN": run.id,
        "FLEET_HOME": str(shop.home),
        "FLEET_BRANCH": run.branch,
        "FLEET_RUN_DIR": str(shop.run_folder(run.id)),
    }


def _task_environment(shop: Workshop, run: Run) -> dict[str, str]:
    """Return what an agent needs to work on a task: its files, and the command to close it or to ask."""
    if run.task is None:
        return {}
    folder = shop.task_folder(run.task)
    # Last on the path: the command must be found, and nothing of the project's be hidden by it.
    path = os.environ.get("PATH", "") + os.pathsep + str(Path(sys.executable).parent)
    return {
        "FLEET_TASK_ID": run.task,
        "FLEET_TASK_DIR": str(folder.parent),
        "FLEET_ARTIFACT_DIR": str(folder),
        "PATH": path,
    }


async def follow(shop: Workshop, run_id: RunId, turn: int, pastes_first: bool) -> None:
    """Read the agent's output into events until it has ended."""
    run = await shop.get(run_id)
    history = await shop.log(run_id)
    folder = shop.turn_folder(run_id, turn)
    prompt = await shop.prompt(run_id, run.turn) or ""
    if history.turn < run.turn:  # the record was written and the log was not
        await history.add(turn_start(run.turn, prompt, fresh=False))
    is_blank = run.mode is Mode.TMUX and run.turn == turn and not prompt
    first_pasted = turn if pastes_first else turn + 1
    follower = Follower(
        shop,
        run,
        history,
        folder,
        first_pasted=first_pasted,
        is_blank=is_blank,
        told_session=partial(_told_session, shop, run),
    )
    await follower.until_ended()


async def settle(shop: Workshop, run_id: RunId, turn: int, job: int, failure: str = "") -> str:
    """Ask git what came of it, record the result, and close the job. Return the status."""
    run = await shop.get(run_id)
    if run.job > job:
        return run.state  # done before, and cut off just before it was journalled
    if run.is_underway:  # also if it was to be attached to anew, and that failed
        turn = turn or run.turn
    run = await shop.become(run_id, RunState.SETTLING)
    process = await _end_processes(shop, run, turn)
    try:
        changes = await _collect(shop, run)
    except FleetError as problem:  # what it wrote is in its workspace; say so instead of trying for ever
        changes = Changes(commits=(), files=(), diff=run.diff)
        failure = failure or f"git could not tell what was done: {reason_of(problem)}"
    is_superseded = await shop.is_superseded(run)
    verdict = (
        Verdict(status=RunState.KILLED, reason=f"somebody else holds task {run.task} by now")
        if is_superseded
        else await _judge(shop, run, process, bool(changes.commits), failure)
    )
    if verdict.status is RunState.FAILED and turn:
        verdict = await _with_last_error(shop, run_id, turn, verdict)
    gates = await _ask_gates(shop, run, job) if await _is_to_be_gated(shop, run, verdict) else Gates()
    if gates.refusal:
        verdict = Verdict(status=RunState.FAILED, reason=gates.refusal, cause=Cause.GATE)
    story = (await shop.log(run_id)).story
    result = Result(
        status=verdict.status,
        summary=story.said,
        reason=verdict.reason,
        cause=verdict.cause,
        resets_at=story.resets_at if verdict.cause is Cause.LIMIT else None,
        question=story.question,
        tests=gates.summary,
        pushed=await _push(shop, run, bool(changes.commits)),
        files_changed=changes.files,
        commits=changes.commits,
        next_steps=(f"answer it: fleet prompt {run.branch} …",) if verdict.status is RunState.BLOCKED else (),
        usage=_priced(shop, run, story),
    )

    session = await _session_after(shop, run, story, verdict)
    # A prompt that could not even be started counts as done: it failed.
    done = await _past_blanks(shop, run, run.turn if turn else run.turn + 1)

    def ended(run: Run) -> Run:
        run = run.in_mode(run.mode_wanted or run.mode)
        # A kill drops the prompts that wait.
        return replace(
            run,
            turn=run.prompts if verdict.status is RunState.KILLED else done,
            job=max(run.job, job + 1),
            session=session,
            ended_at=time.time(),
            usage=result.usage,
            context_tokens=story.context_tokens,
            said=story.last_line,
            diff=changes.diff,
            agent=None,
            result=result,
            wanted=Wanted.STOP if is_superseded else run.wanted,  # then its work is kept under a recovery ref
        ).without_nothing()

    await _keep_in_folder(shop, run_id, result)
    await shop.become(run_id, verdict.status, reason=verdict.reason, also=ended)
    cgroups.drop(run_id)
    shop.forget(run_id)
    return verdict.status


async def _with_last_error(shop: Workshop, run_id: RunId, turn: int, verdict: Verdict) -> Verdict:
    """Add the last thing that the agent said on stderr, or on its screen, to the reason of a failure."""
    path = f"{shop.turn_folder(run_id, turn)}/err"
    size = await shop.transport.size(path)
    tail = await shop.transport.read(path, offset=max(0, size - STDERR_SHOWN))
    lines = [line.strip() for line in tail.decode(errors="replace").splitlines() if line.strip()]
    if not lines or lines[-1] in verdict.reason:
        return verdict
    said = "".join(character for character in lines[-1][-STDERR_SHOWN:] if character.isprintable())
    return replace(verdict, reason=f"{verdict.reason} (last words: {said})")


async def _past_blanks(shop: Workshop, run: Run, turn: int) -> int:
    """Return the turn, or the last of blank ones after it: headless, there is nothing to do for those."""
    if (run.mode_wanted or run.mode) is Mode.HEADLESS:
        while turn < run.prompts and await shop.prompt(run.id, turn + 1) == "":
            turn += 1
    return turn


async def _session_after(shop: Workshop, run: Run, story: Story, verdict: Verdict) -> str:
    """Return the session to go on in: as the CLI named it or, after a good turn, as it was told to."""
    known = story.session or run.session
    if verdict.status not in (RunState.COMPLETED, RunState.COMPLETED_NO_CHANGES):
        return known
    if run.mode is Mode.TMUX and await _was_never_asked(shop, run):
        return ""  # the CLIs keep no session in which nothing was said
    return known or _told_session(shop, run)


async def _was_never_asked(shop: Workshop, run: Run) -> bool:
    """Whether neither we nor a person at the screen gave it anything to do."""
    for turn in range(1, run.turn + 1):
        if await shop.prompt(run.id, turn):
            return False
    if not shop.coder(run).facts.signals_turns:
        return False  # nobody can tell

    def was_prompted() -> bool:
        return any(body["kind"] == Kind.PROMPTED for _, body in shop.runs.events(run.id))

    return not await shop.in_git_thread(was_prompted)


def _told_session(shop: Workshop, run: Run) -> str:
    return shop.coder(run).launch(_turn_for(shop, run, "", "")).session


def _priced(shop: Workshop, run: Run, story: Story) -> Usage:
    """Return what the run used; tokens without a cost are priced by the model, if that is known."""
    usage = story.meter.total
    model = story.model or run.model
    if usage.cost_usd is not None or not usage.total_tokens or not model:
        return usage
    try:
        return replace(usage, cost_usd=shop.price(model, shop.coder(run).facts, usage))
    except FleetError:  # the coder was taken out of the configuration meanwhile
        return usage


async def _end_processes(shop: Workshop, run: Run, turn: int) -> AgentProcess:
    """Leave no process of the run behind, whatever the agent left running, and let none start late."""
    if run.workspace_state is WorkspaceState.MADE:
        await shop.shim.stop(_setup_folder(shop, run), grace_seconds=0)
    folder = shop.turn_folder(run.id, turn or run.turn + 1)
    process = await shop.shim.stop(folder, grace_seconds=shop.grace_seconds(run))
    if run.mode is Mode.TMUX:
        await shop.tmux(run).end()
    return process if turn else AgentProcess(phase=Phase.NEVER)


async def _collect(shop: Workshop, run: Run) -> Changes:
    if not run.has_workspace:
        return Changes(commits=(), files=(), diff=run.diff)
    place = shop.place(run)

    def ask_git() -> Changes:
        shop.workspaces.save_leftovers(place, f"Save what the agent on {run.branch} left uncommitted")
        return shop.workspaces.changes(place)

    return await shop.in_git_thread(ask_git)


async def _judge(shop: Workshop, run: Run, process: AgentProcess, has_changes: bool, failure: str) -> Verdict:
    if run.wanted is Wanted.STOP:
        return Verdict(status=RunState.KILLED, reason="stopped on request")
    if failure:
        return Verdict(status=RunState.FAILED, reason=failure, cause=Cause.SETUP)
    try:
        closes_stream = shop.coder(run).facts.closes_stream and run.mode is Mode.HEADLESS
    except FleetError as problem:  # the coder was taken out of the configuration meanwhile
        return Verdict(status=RunState.FAILED, reason=reason_of(problem), cause=Cause.SETUP)
    story = (await shop.log(run.id)).story
    if run.mode_wanted is not None and run.is_to_switch and _was_broken_off(story, process):
        status = RunState.COMPLETED if has_changes else RunState.COMPLETED_NO_CHANGES
        return Verdict(status=status, reason=SWITCHED[run.mode_wanted])
    return judge_turn(story, process, has_changes=has_changes, closes_stream=closes_stream)


def _was_broken_off(story: Story, process: AgentProcess) -> bool:
    """Tell whether it was us who ended a turn: it came to no end of its own, good or bad."""
    has_own_end = story.ended_well is not None or bool(story.question)
    return not has_own_end and (process.code is None or process.code == 0 or process.code > 128)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """What the gates of a run said."""

    summary: str = ""
    refusal: str = ""


async def _is_to_be_gated(shop: Workshop, run: Run, verdict: Verdict) -> bool:
    """Tell whether it is time for the gates: the turn ended well, and the agent says that it is done."""
    if verdict.cause is not Cause.NONE or run.wanted is not Wanted.RUN:
        return False
    return run.task is None or await shop.is_to_be_closed(run.task)


async def _ask_gates(shop: Workshop, run: Run, job: int) -> Gates:
    """Run the gates one after the other, in the workspace, until one says no."""
    commands = await shop.gates_of(run)
    for number, command in enumerate(commands, 1):
        # Its name tells the command: one that was changed meanwhile is asked anew.
        name = f"gate-{job}-{number}-{zlib.crc32(command.encode()):08x}"
        if refusal := await _ask_gate(shop, run, command, name):
            return Gates(summary=f"gate {number} of {len(commands)} said no", refusal=refusal)
    return Gates(summary=f"all of {len(commands)} gates said yes" if commands else "")


async def _ask_gate(shop: Workshop, run: Run, command: str, name: str) -> str:
    """Run a gate, or go on with one that was begun; return what it said against the work, or ""."""
    folder = str(shop.run_folder(run.id) / name)
    await shop.shim.start(
        folder,
        argv=("sh", "-c", f"{{ {command}\n}} 2>&1"),
        env=_agent_environment(shop, run),
        cwd=run.workspace,
        stdin=None,
        marker=run.id,
    )
    patience = shop.settings_for(run.project).gate_seconds
    process = await await_end(shop, run.id, folder, timeout_seconds=patience)
    await shop.shim.stop(folder, grace_seconds=0)  # and whatever it left running
    if process.code == 0:
        return ""
    size = await shop.transport.size(f"{folder}/out")
    tail = await shop.transport.read(f"{folder}/out", offset=max(0, size - GATE_SHOWN))
    return f"`{command}` ended with exit code {process.code}\n{tail.decode(errors='replace').strip()}"


async def _push(shop: Workshop, run: Run, has_commits: bool) -> str:
    """Push a task's work to where other hosts find it; return the ref, or "" if it is here alone.

    The ref names the token: a host that lost its task meanwhile writes over nobody's work.
    """
    remote = shop.settings_for(run.project).push_to
    if run.task is None or not remote or not has_commits:
        return ""
    ref = f"refs/fleet/tasks/{run.task}/{run.token}"
    push = partial(shop.repositories.publish, run.project, remote, f"refs/heads/{run.branch}", ref)
    try:
        await shop.in_git_thread(push)
    except FleetError as problem:
        log.warning("push.failed", extra={"run_id": run.id, "reason": problem.message})
        return ""
    return ref


async def _keep_in_folder(shop: Workshop, run_id: RunId, result: Result) -> None:
    """Put the result and the events beside the raw output, for people and scripts."""
    folder = shop.run_folder(run_id)
    text = json.dumps(encode_value(result), ensure_ascii=False, indent=2)
    await shop.transport.write(f"{folder}/result.json", f"{text}\n".encode())

    await shop.in_git_thread(partial(_write_events, shop, run_id, folder / "events.jsonl"))


def _write_events(shop: Workshop, run_id: RunId, path: Path) -> None:
    """Write the log out line by line: it may be far bigger than what we want in memory."""
    draft = path.with_suffix(".draft")
    with draft.open("w") as file:
        for number, body in shop.runs.events(run_id):
            file.write(json.dumps({"seq": number, **body}) + "\n")
    draft.replace(path)


async def remove(shop: Workshop, run_id: RunId, job: int) -> None:
    """Save the workspace, remove it, and close the job."""
    run = await shop.get(run_id)
    if run.job > job:
        return
    take_away = partial(shop.workspaces.remove, shop.place(run), delete_branch=run.delete_branch)
    ref = await shop.in_git_thread(take_away)

    def removed(run: Run) -> Run:
        return replace(
            run,
            workspace_state=WorkspaceState.REMOVED,
            saved_ref=ref or run.saved_ref,
            removed_at=time.time(),
            job=max(run.job, job + 1),
        )

    await shop.update(run_id, removed)
    shop.forget(run_id)


async def restore(shop: Workshop, run_id: RunId, job: int) -> None:
    """Bring a removed workspace back, and close the job."""
    run = await shop.get(run_id)
    if run.job > job:
        return
    await shop.in_git_thread(partial(shop.workspaces.restore, shop.place(run), run.saved_ref))

    def restored(run: Run) -> Run:
        wanted = Wanted.RUN if run.wanted is Wanted.RESTORE else run.wanted
        return replace(run, workspace_state=WorkspaceState.READY, wanted=wanted, job=max(run.job, job + 1))

    await shop.update(run_id, restored)
    shop.forget(run_id)


async def give_up(shop: Workshop, run_id: RunId, job: int, reason: str) -> None:
    """Close a job that cannot be done: the run is as it was, and says why."""
    await (await shop.log(run_id)).add(Event(kind=Kind.ERROR, text=reason))

    def as_before(run: Run) -> Run:
        wanted = Wanted.RUN if run.has_workspace else Wanted.STOP
        return replace(run, wanted=wanted, job=max(run.job, job + 1), state_reason=reason)

    await shop.update(run_id, as_before)
    shop.forget(run_id)


async def abandon(shop: Workshop, run_id: RunId, job: int) -> None:
    """Close a job whose journal says that it ended although its run did not: the next one takes over."""
    await shop.update(run_id, lambda run: replace(run, job=max(run.job, job + 1)))


def reason_of(error: Exception) -> str:
    """Put an error into one line for a record; its hint goes with it."""
    if isinstance(error, FleetError):
        return f"{error.message} ({error.hint})" if error.hint else error.message
    told = getattr(error, "message", "")  # an error of ours that was read from the journal has one
    return str(told) or f"{type(error).__name__}: {error}"
