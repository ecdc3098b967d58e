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
from fleet.domain.event import Event, Kind
from fleet.domain.ids import RunId, TaskId
from fleet.domain.naming import tmux_name, workspace_name
from fleet.domain.process import AgentProcess, Phase
from fleet.domain.run import Mode, Run, RunState, Wanted, WorkspaceState
from fleet.domain.spawn import MOST_KEYS, TOKEN, hash_of, new_token
from fleet.engine import boundary, cgroups
from fleet.engine.follow import Follower, await_end, turn_start
from fleet.engine.workshop import Workshop
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


async def prepare(shop: Workshop, run_id: RunId, job: int) -> bool:
    """Make the workspace and set it up. Return whether an agent may be started in it."""
    run = await shop.get(run_id)
    if run.job > job or run.state is RunState.SETTLING:
        return False  # it came that far before it was cut off
    if run.is_underway:
        return True
    run = await shop.become(run_id, RunState.PREPARING, also=partial(_with_places, shop))
    if run.wanted is not Wanted.RUN:
        return False
    settings = shop.settings_for(run.project)
    _check_disk(shop.home, settings)
    await shop.note(run)
    await _lay_out_inputs(shop, run)
    if run.workspace_state is WorkspaceState.READY:
        return True
    await _make(shop, run, settings)
    if settings.setup_commands and not run.quick and not run.is_shared:
        await _set_up(shop, run, settings)
    return True


async def _make(shop: Workshop, run: Run, settings: Settings) -> None:
    await _obtain_base(shop, run, settings.push_to)
    root = Path(run.workspace).parent
    if root.is_relative_to(shop.home):
        make_private(root)
    try:
        make = partial(shop.workspaces_of(run).make, shop.place(run), copy=settings.credential_files)
        await asyncio.gather(shop.in_git_thread(make), asyncio.to_thread(cgroups.hurry))
    except BranchTaken:  # then nothing of it is ours, and nothing of it may be removed with the run
        await shop.update(run.id, lambda run: replace(run, workspace_state=WorkspaceState.NONE))
        raise


async def _obtain_base(shop: Workshop, run: Run, remote: str) -> None:
    """Fetch a base that another host pushed. One that is here already needs no network."""
    if not run.base_ref.startswith("refs/fleet/tasks/"):
        return
    is_here = partial(shop.repositories.contains, run.project, run.base_sha, run.base_sha)
    if remote and not await shop.in_git_thread(is_here):
        await shop.in_git_thread(partial(shop.repositories.obtain, run.project, remote, run.base_ref))
    if not await shop.in_git_thread(is_here):
        raise NotFound(
            f"commit {run.base_sha[:12]}, which it begins from, is neither here nor in {run.base_ref}"
            + (f" of {remote!r}" if remote else ""),
            hint="set tasks.push_to to the remote that it was pushed to" if not remote else "",
        )


async def _lay_out_inputs(shop: Workshop, run: Run) -> None:
    """Put copies of what a task's agent is to read where it finds them, and where it cannot change them."""
    for one in await shop.inputs_of(run):
        make_private(shop.inputs_folder(run.task or TaskId("")))
        folder = str(shop.inputs_folder(run.task or TaskId("")) / one.name)
        make = partial(shop.checkouts.make, run.project, one.commit, folder)
        await shop.in_git_thread(make)
        await shop.in_git_thread(partial(shop.checkouts.lock, folder))


def _with_places(shop: Workshop, run: Run) -> Run:
    """Say where the workspace will be. It counts as made before it is: a kill in between finds it."""
    if run.wanted is not Wanted.RUN:
        return run
    run = _with_screen(shop, run)
    if run.has_workspace:
        return run
    root = shop.settings_for(run.project).workspaces_root(Path(run.project))
    own = str(root / workspace_name(run.branch, run.id))
    return replace(run, workspace_state=WorkspaceState.MADE, workspace=run.project if run.is_shared else own)


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
    folder = setup_folder(shop, run)
    await shop.shim.start(
        folder,
        argv=("sh", "-c", _setup_script(settings.setup_commands)),
        env=agent_environment(shop, run),
        cwd=run.workspace,
        stdin=None,
        marker=run.id,
    )
    process = await await_end(shop, run.id, folder, timeout_seconds=settings.setup_timeout_seconds)
    if process.code != 0 and (await shop.get(run.id)).wanted is Wanted.RUN:
        said = (await shop.transport.read(f"{folder}/err")).decode(errors="replace")
        failed = said.rpartition("fleet-setup: ")[2].strip()
        raise SetupFailed(failed or "setup", process.code or -1, f"{folder}/out")


def setup_folder(shop: Workshop, run: Run) -> str:
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


async def launch(shop: Workshop, run_id: RunId) -> bool:
    """Start the agent on its next prompt, unless it was started; return whether there is one."""
    run = await shop.get(run_id)
    if run.is_underway:
        return True
    if run.wanted is not Wanted.RUN:
        return False
    history, turn = await shop.log(run_id), run.turn + 1
    prompt = await shop.prompt(run_id, turn)
    if prompt is None:
        raise LaunchFailed(f"there is no prompt number {turn}")
    folder = shop.turn_folder(run_id, turn)
    if _is_gone(run) and (await shop.shim.state(folder)).phase is Phase.ABSENT:
        raise WorkspaceGone(run.branch, run.workspace)
    run = await _in_wanted_mode(shop, run, folder)
    guard = asyncio.ensure_future(boundary.record(shop, run, turn))  # while the agent's files are written
    plan = shop.coder(run).launch(_turn_for(shop, run, prompt, folder))
    process = await _start(shop, run, turn, plan, prompt, guard)
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

    await shop.note(await shop.become(run_id, RunState.RUNNING, also=started, events=events))
    return True


def _is_gone(run: Run) -> bool:
    return not (run.is_shared or os.path.isdir(run.workspace))  # noqa: PTH112  of any name


async def _in_wanted_mode(shop: Workshop, run: Run, folder: str) -> Run:
    """Switch a run whose agent is still to be started; one that was started is ended first."""
    if not run.is_to_switch or (await shop.shim.state(folder)).phase is not Phase.ABSENT:
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
        git_folders=(*shop.workspaces_of(run).git_folders(shop.place(run)), *_task_folders(shop, run)),
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


def told_session(shop: Workshop, run: Run) -> str:
    return shop.coder(run).launch(_turn_for(shop, run, "", "")).session


def _task_folders(shop: Workshop, run: Run) -> tuple[str, ...]:
    if run.task is None:
        return ()
    inputs = shop.inputs_folder(run.task)
    return (str(shop.task_folder(run.task)), *([str(inputs)] if inputs.is_dir() else []))


async def _start(
    shop: Workshop, run: Run, turn: int, plan: Launch, prompt: str, guard: Awaitable[str]
) -> AgentProcess:
    folder = shop.turn_folder(run.id, turn)
    await shop.transport.write(f"{folder}/prompt", prompt.encode())
    for name, content in plan.files.items():
        await shop.transport.write(f"{folder}/{name}", content)
    environment = agent_environment(shop, run) | dict(plan.env)
    secrets = await _token_for(shop, run, await guard)
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
            secrets=secrets,
        )
    await shop.shim.prepare(
        folder,
        argv=plan.argv,
        env=environment,
        cwd=run.workspace,
        stdin=None,
        marker=run.id,
        cgroup=group,
        secrets=secrets,
    )
    process = await shop.shim.state(folder)
    if process.phase is Phase.ABSENT:
        await shop.tmux(run).start(shop.shim.pane_argv(folder), run.workspace)
        process = await shop.shim.await_start(folder)
    if process.phase in (Phase.ABSENT, Phase.STARTING):
        raise LaunchFailed("the agent did not come up in its tmux session")
    return process


def agent_environment(shop: Workshop, run: Run) -> dict[str, str]:
    return _task_environment(shop, run) | {
        "FLEET_RUN": run.id,
        "FLEET_HOME": str(shop.home),
        "FLEET_BRANCH": run.branch,
        "FLEET_RUN_DIR": str(shop.run_folder(run.id)),
    }


async def _token_for(shop: Workshop, run: Run, guard: str) -> dict[str, str]:
    """Return the variable by which the agent's own calls are known as this run's; its hash is recorded first.

    A start that is repeated gives out another one: whichever reaches the agent, its hash is there.
    """
    token = new_token()

    def known(run: Run) -> Run:
        return replace(run, keys=(*run.keys, hash_of(token))[-MOST_KEYS:], guard=guard)

    await shop.update(run.id, known)
    return {TOKEN: token}


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


async def follow(shop: Workshop, run_id: RunId) -> None:
    """Read the agent's output into events until it has ended."""
    run = await shop.get(run_id)
    history = await shop.log(run_id)
    opened = history.opened
    folder = shop.turn_folder(run_id, opened)
    prompt = await shop.prompt(run_id, run.turn) or ""
    if history.turn < run.turn:  # the record was written and the log was not
        await history.add(turn_start(run.turn, prompt, fresh=False))
    is_blank = run.mode is Mode.TMUX and run.turn == opened and not prompt
    first_pasted = opened if history.is_opening_pasted else opened + 1
    follower = Follower(
        shop,
        run,
        history,
        folder,
        first_pasted=first_pasted,
        is_blank=is_blank,
        told_session=partial(told_session, shop, run),
    )
    await follower.until_ended()


async def remove(shop: Workshop, run_id: RunId, job: int) -> None:
    """Save the workspace, remove it, and close the job."""
    run = await shop.get(run_id)
    if run.job > job:
        return
    take_away = partial(shop.workspaces_of(run).remove, shop.place(run), delete_branch=run.delete_branch)
    ref = await shop.in_git_thread(take_away)

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

    await shop.note(await shop.update(run_id, removed))
    shop.forget(run_id)


async def restore(shop: Workshop, run_id: RunId, job: int) -> None:
    """Bring a removed workspace back, and close the job."""
    run = await shop.get(run_id)
    if run.job > job:
        return
    await shop.in_git_thread(partial(shop.workspaces_of(run).restore, shop.place(run), run.saved_ref))

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

    await shop.note(await shop.update(run_id, restored))
    shop.forget(run_id)


def _own_reason(run: Run) -> str:
    """Return why a run is in its state, without what stood there of a removal or restoration that failed."""
    return run.result.reason if run.result else run.state_reason


async def give_up(shop: Workshop, run_id: RunId, job: int, reason: str) -> None:
    """Close a job that cannot be done: the run is as it was, and says why."""
    await (await shop.log(run_id)).add(Event(kind=Kind.ERROR, text=reason))

    def as_before(run: Run) -> Run:
        wanted = Wanted.RUN if run.has_workspace else Wanted.STOP
        return replace(run, wanted=wanted, job=max(run.job, job + 1), state_reason=reason)

    await shop.update(run_id, as_before)
    shop.forget(run_id)


def reason_of(error: Exception) -> str:
    """Put an error into one line for a record; its hint goes with it."""
    if isinstance(error, FleetError):
        return f"{error.message} ({error.hint})" if error.hint else error.message
    if isinstance(error, OSError):
        place = f": {os.fsdecode(error.filename)}" if error.filename else ""
        return f"the system refused it: {error.strerror or error}{place}"
    return f"{type(error).__name__}: {error}"
