"""The idempotent parts that jobs are made of. Each may be cut off anywhere and done again.

A part asks what is already so, and does the rest: a workspace that stands is not made again, an
agent that was started is attached to, a result that is recorded stays.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
import time
import uuid
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from fleet.config import Settings
from fleet.domain.event import Event, EventKind
from fleet.domain.ids import RunId, TaskId
from fleet.domain.naming import tmux_name, workspace_name
from fleet.domain.process import AgentProcess, Phase
from fleet.domain.run import Mode, Run, RunState, Wanted, WorkspaceState
from fleet.domain.spawn import MOST_KEYS, TOKEN, hash_of, new_token
from fleet.engine import boundary, cgroups
from fleet.engine.context import EngineContext
from fleet.engine.follow import Follower, await_end, turn_start
from fleet.errors import (
    BranchTaken,
    DiskFull,
    FleetError,
    LaunchFailed,
    NotFound,
    SetupFailed,
    WorkspaceGone,
)
from fleet.files.private import make_private
from fleet.ports.coder import Launch, Turn

log = logging.getLogger(__name__)

TASK_COMMANDS = ("fleet task close", "fleet task comment", "fleet ask", "fleet show")


async def prepare(context: EngineContext, run_id: RunId, job: int) -> bool:
    """Make the workspace and set it up. Return whether an agent may be started in it."""
    run = await context.get(run_id)
    if run.job > job or run.state is RunState.SETTLING:
        return False  # it came that far before it was cut off
    if run.is_underway:
        return True
    run = await context.become(run_id, RunState.PREPARING, also=partial(_with_places, context))
    if run.wanted is not Wanted.RUN:
        return False
    settings = context.settings_for(run.project)
    _check_disk(context.home, settings)
    await context.note(run)
    await _lay_out_inputs(context, run)
    if run.workspace_state is WorkspaceState.READY:
        return True
    await _make(context, run, settings)
    if settings.setup_commands and not run.quick and not run.is_shared:
        await _set_up(context, run, settings)
    return True


async def _make(context: EngineContext, run: Run, settings: Settings) -> None:
    await _obtain_base(context, run, settings.push_to)
    root = Path(run.workspace).parent
    if root.is_relative_to(context.home):
        make_private(root)
    try:
        make = partial(
            context.member.workspaces_of(run).make, context.place(run), copy=settings.credential_files
        )
        await asyncio.gather(context.in_git_thread(make), asyncio.to_thread(cgroups.hurry))
    except BranchTaken:  # then nothing of it is ours, and nothing of it may be removed with the run
        await context.update(run.id, lambda run: replace(run, workspace_state=WorkspaceState.NONE))
        raise


async def _obtain_base(context: EngineContext, run: Run, remote: str) -> None:
    """Fetch a base that another host pushed. One that is here already needs no network."""
    if not run.base_ref.startswith("refs/fleet/tasks/"):
        return
    is_here = partial(context.member.repositories.contains, run.project, run.base_sha, run.base_sha)
    if remote and not await context.in_git_thread(is_here):
        await context.in_git_thread(
            partial(context.member.repositories.obtain, run.project, remote, run.base_ref)
        )
    if not await context.in_git_thread(is_here):
        raise NotFound(
            f"commit {run.base_sha[:12]}, which it begins from, is neither here nor in {run.base_ref}"
            + (f" of {remote!r}" if remote else ""),
            hint="set tasks.push_to to the remote that it was pushed to" if not remote else "",
        )


async def _lay_out_inputs(context: EngineContext, run: Run) -> None:
    """Put copies of what a task's agent is to read where it finds them, and where it cannot change them."""
    for one in await context.inputs_of(run):
        make_private(context.inputs_folder(run.task or TaskId("")))
        folder = str(context.inputs_folder(run.task or TaskId("")) / one.name)
        make = partial(context.member.checkouts.make, run.project, one.commit, folder)
        await context.in_git_thread(make)
        await context.in_git_thread(partial(context.member.checkouts.lock, folder))


def _with_places(context: EngineContext, run: Run) -> Run:
    """Say where the workspace will be. It counts as made before it is: a kill in between finds it."""
    if run.wanted is not Wanted.RUN:
        return run
    run = _with_screen(context, run)
    if run.has_workspace:
        return run
    root = context.settings_for(run.project).workspaces_root(Path(run.project))
    own = str(root / workspace_name(run.branch, run.id))
    return replace(run, workspace_state=WorkspaceState.MADE, workspace=run.project if run.is_shared else own)


def _with_screen(context: EngineContext, run: Run) -> Run:
    """Name the screen of a run that is to have one."""
    if run.mode is not Mode.TMUX or run.tmux:
        return run
    prefix = context.settings_for(run.project).tmux_prefix
    return replace(run, tmux=tmux_name(prefix, run.branch, run.id))


def _check_disk(home: Path, settings: Settings) -> None:
    free = shutil.disk_usage(home).free // (1 << 20)
    if free < settings.min_free_mb:
        raise DiskFull(str(home), free, settings.min_free_mb)


async def _set_up(context: EngineContext, run: Run, settings: Settings) -> None:
    """Run the project's setup commands once, their output kept; a failing one fails the run."""
    folder = setup_folder(context, run)
    await context.member.shim.start(
        folder,
        argv=("sh", "-c", _setup_script(settings.setup_commands)),
        env=agent_environment(context, run),
        cwd=run.workspace,
        stdin=None,
        marker=run.id,
    )
    process = await await_end(context, run.id, folder, timeout_seconds=settings.setup_timeout_seconds)
    if process.code != 0 and (await context.get(run.id)).wanted is Wanted.RUN:
        said = (await context.member.transport.read(f"{folder}/err")).decode(errors="replace")
        failed = said.rpartition("fleet-setup: ")[2].strip()
        raise SetupFailed(failed or "setup", process.code or -1, f"{folder}/out")


def setup_folder(context: EngineContext, run: Run) -> str:
    """Each job has a setup of its own: one that failed can be tried again with the next prompt."""
    return str(context.member.run_folder(run.id) / f"setup-{run.job}")


def _setup_script(commands: Sequence[str]) -> str:
    """Chain the commands; the one that fails is named on stderr, the last thing there."""
    lines: list[str] = []
    for command in commands:
        quoted = "'" + command.replace("'", "'\\''") + "'"
        told = f"printf 'fleet-setup: %s\\n' {quoted} >&2"
        lines.append(f"printf '$ %s\\n' {quoted}")
        lines.append(f"sh -c {quoted} || {{ code=$?; {told}; exit $code; }}")
    return "\n".join(lines)


async def launch(context: EngineContext, run_id: RunId) -> bool:
    """Start the agent on its next prompt, unless it was started; return whether there is one."""
    run = await context.get(run_id)
    if run.is_underway:
        return True
    if run.wanted is not Wanted.RUN:
        return False
    history, turn = await context.log(run_id), run.turn + 1
    prompt = await context.prompt(run_id, turn)
    if prompt is None:
        raise LaunchFailed(f"there is no prompt number {turn}")
    folder = context.member.turn_folder(run_id, turn)
    if _is_gone(run) and (await context.member.shim.state(folder)).phase is Phase.ABSENT:
        raise WorkspaceGone(run.branch, run.workspace)
    run = await _in_wanted_mode(context, run, folder)
    guard = asyncio.ensure_future(boundary.record(context, run, turn))  # while the agent's files are written
    plan = context.coder(run).launch(_turn_for(context, run, prompt, folder))
    process = await _start(context, run, turn, plan, prompt, guard)
    opening = turn_start(turn, prompt, fresh=True, is_pasted=plan.paste)
    events = (opening,) if history.turn < turn else ()

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

    await context.note(await context.become(run_id, RunState.RUNNING, also=started, events=events))
    return True


def _is_gone(run: Run) -> bool:
    return not (run.is_shared or os.path.isdir(run.workspace))  # noqa: PTH112  of any name


async def _in_wanted_mode(context: EngineContext, run: Run, folder: str) -> Run:
    """Switch a run whose agent is still to be started; one that was started is ended first."""
    if not run.is_to_switch or (await context.member.shim.state(folder)).phase is not Phase.ABSENT:
        return run

    def switched(run: Run) -> Run:
        return _with_screen(context, run.in_mode(run.mode_wanted or run.mode))

    return await context.update(run.id, switched)


def _turn_for(context: EngineContext, run: Run, prompt: str, folder: str) -> Turn:
    settings = context.settings_for(run.project)
    return Turn(
        prompt=prompt,
        folder=folder,
        workspace=run.workspace,
        git_folders=(
            *context.member.workspaces_of(run).git_folders(context.place(run)),
            *_task_folders(context, run),
        ),
        hook=("sh", str(context.member.hook_script), f"{folder}/hooks"),
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


def told_session(context: EngineContext, run: Run) -> str:
    return context.coder(run).launch(_turn_for(context, run, "", "")).session


def _task_folders(context: EngineContext, run: Run) -> tuple[str, ...]:
    if run.task is None:
        return ()
    inputs = context.inputs_folder(run.task)
    return (str(context.task_folder(run.task)), *([str(inputs)] if inputs.is_dir() else []))


async def _start(
    context: EngineContext, run: Run, turn: int, plan: Launch, prompt: str, guard: Awaitable[str]
) -> AgentProcess:
    folder = context.member.turn_folder(run.id, turn)
    await context.member.transport.write(f"{folder}/prompt", prompt.encode())
    for name, content in plan.files.items():
        await context.member.transport.write(f"{folder}/{name}", content)
    environment = agent_environment(context, run) | dict(plan.env)
    secrets = await _token_for(context, run, await guard)
    group = cgroups.make(run.id)
    if run.mode is Mode.HEADLESS:
        return await context.member.shim.start(
            folder,
            argv=plan.argv,
            env=environment,
            cwd=run.workspace,
            stdin=plan.stdin,
            marker=run.id,
            cgroup=group,
            secrets=secrets,
        )
    await context.member.shim.prepare(
        folder,
        argv=plan.argv,
        env=environment,
        cwd=run.workspace,
        stdin=None,
        marker=run.id,
        cgroup=group,
        secrets=secrets,
    )
    process = await context.member.shim.state(folder)
    if process.phase is Phase.ABSENT:
        await context.tmux(run).start(context.member.shim.pane_argv(folder), run.workspace)
        process = await context.member.shim.await_start(folder)
    if process.phase in (Phase.ABSENT, Phase.STARTING):
        raise LaunchFailed("the agent did not come up in its tmux session")
    return process


def agent_environment(context: EngineContext, run: Run) -> dict[str, str]:
    return _task_environment(context, run) | {
        "FLEET_RUN": run.id,
        "FLEET_HOME": str(context.home),
        "FLEET_BRANCH": run.branch,
        "FLEET_RUN_DIR": str(context.member.run_folder(run.id)),
    }


async def _token_for(context: EngineContext, run: Run, guard: str) -> dict[str, str]:
    """Return the variable by which the agent's own calls are known as this run's; its hash is recorded first.

    A start that is repeated gives out another one: whichever reaches the agent, its hash is there.
    """
    token = new_token()

    def known(run: Run) -> Run:
        return replace(run, keys=(*run.keys, hash_of(token))[-MOST_KEYS:], guard=guard)

    await context.update(run.id, known)
    return {TOKEN: token}


def _task_environment(context: EngineContext, run: Run) -> dict[str, str]:
    """Return what an agent needs to work on a task: its files, and the command to close it or to ask."""
    if run.task is None:
        return {}
    folder = context.task_folder(run.task)
    # Last on the path: the command must be found, and nothing of the project's be hidden by it.
    path = os.environ.get("PATH", "") + os.pathsep + str(Path(sys.executable).parent)
    return {
        "FLEET_TASK_ID": run.task,
        "FLEET_TASK_DIR": str(folder.parent),
        "FLEET_ARTIFACT_DIR": str(folder),
        "PATH": path,
    }


async def follow(context: EngineContext, run_id: RunId) -> None:
    """Read the agent's output into events until it has ended."""
    run = await context.get(run_id)
    history = await context.log(run_id)
    opened = history.opened
    folder = context.member.turn_folder(run_id, opened)
    prompt = await context.prompt(run_id, run.turn) or ""
    if history.turn < run.turn:  # the record was written and the log was not
        await history.add(turn_start(run.turn, prompt, fresh=False))
    is_blank = run.mode is Mode.TMUX and run.turn == opened and not prompt
    first_pasted = opened if history.is_opening_pasted else opened + 1
    follower = Follower(
        context,
        run,
        history,
        folder,
        first_pasted=first_pasted,
        is_blank=is_blank,
        told_session=partial(told_session, context, run),
    )
    await follower.until_ended()


async def remove(context: EngineContext, run_id: RunId, job: int) -> None:
    """Save the workspace, remove it, and close the job."""
    run = await context.get(run_id)
    if run.job > job:
        return
    take_away = partial(
        context.member.workspaces_of(run).remove, context.place(run), delete_branch=run.delete_branch
    )
    ref = await context.in_git_thread(take_away)

    def removed(run: Run) -> Run:
        return replace(
            run,
            workspace_state=WorkspaceState.REMOVED,
            saved_ref=ref or run.saved_ref,
            removed_at=time.time(),
            job=max(run.job, job + 1),
            state_reason=_own_reason(run),
            waits_for="",
        )

    await context.note(await context.update(run_id, removed))
    context.forget(run_id)


async def restore(context: EngineContext, run_id: RunId, job: int) -> None:
    """Bring a removed workspace back, and close the job."""
    run = await context.get(run_id)
    if run.job > job:
        return
    await context.in_git_thread(
        partial(context.member.workspaces_of(run).restore, context.place(run), run.saved_ref)
    )

    def restored(run: Run) -> Run:
        wanted = Wanted.RUN if run.wanted is Wanted.RESTORE else run.wanted
        return replace(
            run,
            workspace_state=WorkspaceState.READY,
            wanted=wanted,
            job=max(run.job, job + 1),
            state_reason=_own_reason(run),
            waits_for="",
        )

    await context.note(await context.update(run_id, restored))
    context.forget(run_id)


def _own_reason(run: Run) -> str:
    """Return why a run is in its state, without what stood there of a removal or restoration that failed."""
    return run.result.reason if run.result else run.state_reason


async def give_up(context: EngineContext, run_id: RunId, job: int, reason: str) -> None:
    """Close a job that cannot be done: the run is as it was, and says why."""
    await (await context.log(run_id)).add(Event(kind=EventKind.ERROR, text=reason))

    def as_before(run: Run) -> Run:
        wanted = Wanted.RUN if run.has_workspace else Wanted.STOP
        return replace(run, wanted=wanted, job=max(run.job, job + 1), state_reason=reason)

    await context.update(run_id, as_before)
    context.forget(run_id)


def reason_of(error: Exception) -> str:
    """Put an error into one line for a record; its hint goes with it."""
    if isinstance(error, FleetError):
        return f"{error.message} ({error.hint})" if error.hint else error.message
    if isinstance(error, OSError):
        place = f": {os.fsdecode(error.filename)}" if error.filename else ""
        return f"the system refused it: {error.strerror or error}{place}"
    return f"{type(error).__name__}: {error}"
