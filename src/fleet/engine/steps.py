"""The idempotent parts that jobs are made of: each asks what is already so, and does the rest."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from fleet.config.settings import Settings
from fleet.domain.event import Event, EventKind
from fleet.domain.ids import RunId
from fleet.domain.naming import tmux_name, workspace_name
from fleet.domain.process import AgentProcess, Phase
from fleet.domain.run import Mode, Run, RunState, Wanted, WorkspaceState
from fleet.domain.spawn import MOST_KEYS, TOKEN, hash_of, new_token
from fleet.engine import boundary, cgroups
from fleet.engine.context import EngineContext
from fleet.engine.follow import await_end, turn_start
from fleet.errors import BranchTaken, DiskFull, FleetError, LaunchFailed, NotFound, SetupFailed, WorkspaceGone
from fleet.files.private import make_private
from fleet.ports.coder import Launch
from fleet.ports.workspace import Place
from fleet.shim.client import Start

log = logging.getLogger(__name__)


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
    free = context.member.free_mb()
    if free < settings.limits_min_free_mb:
        raise DiskFull(str(context.home), free, settings.limits_min_free_mb)
    await context.note(run)
    await _lay_out_inputs(context, run)
    if run.workspace_state is WorkspaceState.READY:
        return True
    await _obtain_base(context, run, settings.tasks_push_to)
    root = Path(run.workspace).parent
    if root.is_relative_to(context.home):
        make_private(root)
    try:
        make = context.member.workspaces_of(run).make
        made = context.git_threads.run(make, Place.of(run), copy=settings.setup_credential_files)
        await asyncio.gather(made, asyncio.to_thread(cgroups.hurry))
    except BranchTaken:  # then nothing of it is ours, and nothing of it may be removed with the run
        await context.update(run.id, lambda run: replace(run, workspace_state=WorkspaceState.NONE))
        raise
    if settings.setup_commands and not run.quick and not run.is_shared:
        await _set_up(context, run, settings)
    return True


async def _obtain_base(context: EngineContext, run: Run, remote: str) -> None:
    """Fetch a base that another host pushed. One that is here already needs no network."""
    if not run.base_ref.startswith("refs/fleet/tasks/"):
        return
    repositories = context.member.repositories
    is_here = partial(repositories.contains, run.project, run.base_sha, run.base_sha)
    if remote and not await context.git_threads.run(is_here):
        await context.git_threads.run(repositories.obtain, run.project, remote, run.base_ref)
    if not await context.git_threads.run(is_here):
        raise NotFound(
            f"commit {run.base_sha[:12]}, which it begins from, is neither here nor in {run.base_ref}"
            + (f" of {remote!r}" if remote else ""),
            hint="set tasks.push_to to the remote that it was pushed to" if not remote else "",
        )


async def _lay_out_inputs(context: EngineContext, run: Run) -> None:
    """Put copies of what a task's agent is to read where it finds them, and where it cannot change them."""
    task = await context.task_of(run)
    if task is None or not task.inputs:
        return
    parent, checkouts = context.inputs_folder(task.id), context.member.checkouts
    make_private(parent)
    for one in task.inputs:
        folder = str(parent / one.name)
        await context.git_threads.run(checkouts.make, run.project, one.commit, folder)
        await context.git_threads.run(checkouts.lock, folder)


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


async def _set_up(context: EngineContext, run: Run, settings: Settings) -> None:
    """Run the project's setup commands once, their output kept; a failing one fails the run."""
    folder = setup_folder(context, run)
    script = "\n".join(
        f"printf '$ %s\\n' {quoted}\n"
        f"sh -c {quoted} || {{ code=$?; printf 'fleet-setup: %s\\n' {quoted} >&2; exit $code; }}"
        for quoted in map(shlex.quote, settings.setup_commands)
    )
    await context.member.shim.start(
        folder,
        argv=("sh", "-c", script),
        env=agent_environment(context, run),
        cwd=run.workspace,
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
    is_gone = not (run.is_shared or os.path.isdir(run.workspace))  # noqa: ASYNC240, PTH112  of any name
    if (is_gone or run.is_to_switch) and (await context.member.shim.state(folder)).phase is Phase.ABSENT:
        if is_gone:
            raise WorkspaceGone(run.branch, run.workspace)
        # One whose agent was started is switched after that was ended.
        run = await context.update(
            run_id, lambda run: _with_screen(context, run.in_mode(run.mode_wanted or run.mode))
        )
    # While the agent's files are written; not behind the workspaces that are being made for others.
    guard = asyncio.ensure_future(asyncio.to_thread(boundary.record, context, run, turn))
    plan = context.coder(run).launch(context.turn_for(run, prompt, folder))
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


async def _start(
    context: EngineContext, run: Run, turn: int, plan: Launch, prompt: str, guard: Awaitable[str]
) -> AgentProcess:
    folder = context.member.turn_folder(run.id, turn)
    await context.member.transport.write(f"{folder}/prompt", prompt.encode())
    for name, content in plan.files.items():
        await context.member.transport.write(f"{folder}/{name}", content)
    token, guarded = new_token(), await guard

    def known(run: Run) -> Run:
        """A repeated start gives out another token: whichever reaches the agent, its hash is there."""
        return replace(run, keys=(*run.keys, hash_of(token))[-MOST_KEYS:], guard=guarded)

    await context.update(run.id, known)
    start = Start(
        argv=plan.argv,
        env=agent_environment(context, run) | dict(plan.env),
        cwd=run.workspace,
        stdin=plan.stdin if run.mode is Mode.HEADLESS else None,
        marker=run.id,
        cgroup=cgroups.make(run.id),
        secrets={TOKEN: token},  # by which the agent's own calls are known as this run's
    )
    if run.mode is Mode.HEADLESS:
        return await context.member.shim.start(folder, **start)
    await context.member.shim.prepare(folder, **start)
    process = await context.member.shim.state(folder)
    if process.phase is Phase.ABSENT:
        await context.tmux(run).start(context.member.shim.pane_argv(folder), run.workspace)
        process = await context.member.shim.await_start(folder)
    if process.phase in (Phase.ABSENT, Phase.STARTING):
        raise LaunchFailed("the agent did not come up in its tmux session")
    return process


def agent_environment(context: EngineContext, run: Run) -> dict[str, str]:
    """Return what an agent needs to know; of a task its files, and the command to close it or to ask."""
    environment = {
        "FLEET_RUN": run.id,
        "FLEET_HOME": str(context.home),
        "FLEET_BRANCH": run.branch,
        "FLEET_RUN_DIR": str(context.member.run_folder(run.id)),
    }
    if run.task is None:
        return environment
    folder = context.task_folder(run.task)
    return environment | {
        "FLEET_TASK_ID": run.task,
        "FLEET_TASK_DIR": str(folder.parent),
        "FLEET_ARTIFACT_DIR": str(folder),
        # Last on the path: the command must be found, and nothing of the project's be hidden by it.
        "PATH": os.environ.get("PATH", "") + os.pathsep + str(Path(sys.executable).parent),
    }


async def remove(context: EngineContext, run_id: RunId, job: int) -> None:
    """Save the workspace, remove it, and close the job."""
    run = await context.get(run_id)
    if run.job > job:
        return
    take_away = context.member.workspaces_of(run).remove
    ref = await context.git_threads.run(take_away, Place.of(run), delete_branch=run.delete_branch)

    def removed(run: Run) -> Run:
        saved_ref = ref or run.saved_ref
        return replace(
            run, workspace_state=WorkspaceState.REMOVED, saved_ref=saved_ref, removed_at=time.time()
        )

    await _close(context, run_id, job, removed)


async def restore(context: EngineContext, run_id: RunId, job: int) -> None:
    """Bring a removed workspace back, and close the job."""
    run = await context.get(run_id)
    if run.job > job:
        return
    bring_back = context.member.workspaces_of(run).restore
    await context.git_threads.run(bring_back, Place.of(run), run.saved_ref)

    def restored(run: Run) -> Run:
        wanted = Wanted.RUN if run.wanted is Wanted.RESTORE else run.wanted
        return replace(run, workspace_state=WorkspaceState.READY, wanted=wanted)

    await _close(context, run_id, job, restored)


async def _close(context: EngineContext, run_id: RunId, job: int, change: Callable[[Run], Run]) -> None:
    def closed(run: Run) -> Run:
        # What may stand there is why an earlier removal or restoration failed.
        reason = run.result.reason if run.result else run.state_reason
        return replace(change(run), job=max(run.job, job + 1), state_reason=reason, waits_for="")

    await context.note(await context.update(run_id, closed))
    context.forget(run_id)


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
