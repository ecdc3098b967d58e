"""The end of a turn: what came of a turn is asked of git and of the gates, and recorded."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import replace

from fleet.domain.boundary import why_held
from fleet.domain.cause import Cause
from fleet.domain.event import EventKind
from fleet.domain.ids import RunId
from fleet.domain.process import AgentProcess, Phase
from fleet.domain.run import Mode, Result, Run, RunState, Wanted, WorkspaceState
from fleet.domain.turn import Story, Verdict, judge_turn
from fleet.domain.usage import Usage
from fleet.engine import boundary, cgroups
from fleet.engine.context import EngineContext
from fleet.engine.gates import Gates, ask_gates, is_to_be_gated
from fleet.engine.room import is_no_room
from fleet.engine.steps import reason_of, setup_folder
from fleet.errors import FleetError
from fleet.files.private import open_private
from fleet.ports.workspace import Changes, Place
from fleet.records.collection import encode_value

log = logging.getLogger(__name__)

LAST_WORDS = 300  # bytes of what an agent said last on stderr that go into the reason of a failure
STOPPED = "stopped on request"
SWITCHED = {Mode.TMUX: "taken over by a person", Mode.HEADLESS: "handed back"}


async def settle(context: EngineContext, run_id: RunId, job: int, failure: str = "") -> None:
    """Ask git what came of it, record the result, and close the job."""
    run = await context.get(run_id)
    if run.job > job:
        return  # done before
    turn = (await context.log(run_id)).opened if run.is_underway else 0
    run = await context.become(
        run_id, RunState.SETTLING, also=lambda run: replace(run, state_reason=failure) if failure else run
    )
    why_failed = run.state_reason  # also from before it was cut off
    process = await _end_processes(context, run, turn)
    run = await boundary.check(context, run, turn)
    held = why_held(run.outside)
    changes, trouble = await _collect(context, run)
    superseded = await context.why_superseded(run)
    if superseded:
        verdict = Verdict(status=RunState.KILLED, reason=superseded)
    else:
        has_changes = bool(changes.commits or changes.files)
        verdict = await _judge(context, run, process, has_changes, why_failed or trouble)
    if verdict.status is RunState.FAILED and turn:
        verdict = await _with_last_error(context, run_id, turn, verdict)
    gates = Gates()
    if await is_to_be_gated(context, run, verdict):
        gates = await ask_gates(context, run, job)
        run = await context.get(run_id)  # gates take their time: a person may have ended it meanwhile
        superseded = await context.why_superseded(run)
        if superseded or run.wanted is Wanted.STOP:
            verdict = Verdict(status=RunState.KILLED, reason=superseded or STOPPED)
        elif gates.refusal:
            verdict = Verdict(status=RunState.FAILED, reason=gates.refusal, cause=Cause.GATE)
    story = (await context.log(run_id)).story
    pushed = await _push(context, run, bool(changes.commits) and not held)
    result = _result(run, verdict, story, changes, gates, pushed, context.priced(run, story))
    session = await _session_after(context, run, story, verdict)
    # A prompt that could not even be started counts as done: it failed.
    done = await _past_blanks(context, run, run.turn if turn else run.turn + 1)

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
            guard="",
            result=result,
            held=held,
            wanted=Wanted.STOP if superseded else run.wanted,  # then its work is kept under a recovery ref
        ).without_nothing()

    await _keep_in_folder(context, run_id, result)
    await context.note(await context.become(run_id, verdict.status, reason=verdict.reason, also=ended))
    cgroups.drop(run_id)
    boundary.forget(context, run)
    if run.task is not None:
        inputs = str(context.inputs_folder(run.task))
        await context.git_threads.run(context.member.checkouts.discard, inputs)
    context.forget(run_id)


def _result(
    run: Run, verdict: Verdict, story: Story, changes: Changes, gates: Gates, pushed: str, usage: Usage
) -> Result:
    return Result(
        status=verdict.status,
        summary=story.said,
        reason=verdict.reason,
        cause=verdict.cause,
        resets_at=story.resets_at if verdict.cause is Cause.LIMIT else None,
        question=story.question,
        tests=gates.summary,
        pushed=pushed,
        files_changed=changes.files,
        commits=changes.commits,
        head="" if gates.summary else changes.head,  # a gate may have committed
        next_steps=(f"answer it: fleet prompt {run.branch} …",) if verdict.status is RunState.BLOCKED else (),
        usage=usage,
    )


async def _with_last_error(context: EngineContext, run_id: RunId, turn: int, verdict: Verdict) -> Verdict:
    """Add the last thing that the agent said on stderr, or on its screen, to the reason of a failure."""
    tail = await context.member.read_tail(f"{context.member.turn_folder(run_id, turn)}/err", LAST_WORDS)
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    if not lines or lines[-1] in verdict.reason:
        return verdict
    said = "".join(character for character in lines[-1][-LAST_WORDS:] if character.isprintable())
    return replace(verdict, reason=f"{verdict.reason} (last words: {said})")


async def _past_blanks(context: EngineContext, run: Run, turn: int) -> int:
    """Return the turn, or the last of blank ones after it: headless, there is nothing to do for those."""
    if (run.mode_wanted or run.mode) is Mode.HEADLESS:
        while turn < run.prompts and await context.prompt(run.id, turn + 1) == "":
            turn += 1
    return turn


async def _session_after(context: EngineContext, run: Run, story: Story, verdict: Verdict) -> str:
    """Return the session to go on in: as the CLI named it or, after a good turn or a gate, was told to."""
    known = story.session or run.session
    is_good = verdict.status in (RunState.COMPLETED, RunState.COMPLETED_NO_CHANGES)
    if not is_good and verdict.cause is not Cause.GATE:
        return known
    if run.mode is Mode.TMUX and await _was_never_asked(context, run):
        return ""  # the CLIs keep no session in which nothing was said
    return known or context.told_session(run)


async def _was_never_asked(context: EngineContext, run: Run) -> bool:
    """Whether neither we nor a person at the screen gave it anything to do."""
    for turn in range(1, run.turn + 1):
        if await context.prompt(run.id, turn):
            return False
    if not context.coder(run).facts.signals_turns:
        return False  # nobody can tell

    def was_prompted() -> bool:
        return any(body["kind"] == EventKind.PROMPTED for _, body in context.runs.events(run.id))

    return not await context.git_threads.run(was_prompted)


async def _end_processes(context: EngineContext, run: Run, turn: int) -> AgentProcess:
    """Leave no process of the run behind, whatever the agent left running, and let none start late."""
    if run.workspace_state is WorkspaceState.MADE:
        await context.member.shim.stop(setup_folder(context, run), grace_seconds=0)
    folder = context.member.turn_folder(run.id, turn or run.turn + 1)
    process = await context.member.shim.stop(folder, grace_seconds=context.grace_seconds(run))
    if run.mode is Mode.TMUX:
        await context.tmux(run).end()
    return process if turn else AgentProcess(phase=Phase.NEVER)


async def _collect(context: EngineContext, run: Run) -> tuple[Changes, str]:
    """Save what was left uncommitted; return what was done, or why git cannot tell: never try for ever."""
    nothing = Changes(diff=run.diff)
    if not run.has_workspace:
        return nothing, ""
    place = Place.of(run)

    def ask_git() -> Changes:
        workspaces = context.member.workspaces_of(run)
        workspaces.save_uncommitted(place, f"Save what the agent on {run.branch} left uncommitted")
        return workspaces.changes(place)

    try:
        return await context.git_threads.run(ask_git), ""
    except (FleetError, OSError) as problem:
        if is_no_room(problem):
            raise
        return nothing, f"git could not tell what was done: {reason_of(problem)}"


async def _judge(
    context: EngineContext, run: Run, process: AgentProcess, has_changes: bool, failure: str
) -> Verdict:
    if run.wanted is Wanted.STOP:
        return Verdict(status=RunState.KILLED, reason=STOPPED)
    if failure:
        return Verdict(status=RunState.FAILED, reason=failure, cause=Cause.SETUP)
    try:
        closes_stream = context.coder(run).facts.closes_stream and run.mode is Mode.HEADLESS
    except FleetError as problem:  # the coder was taken out of the configuration meanwhile
        return Verdict(status=RunState.FAILED, reason=reason_of(problem), cause=Cause.SETUP)
    story = (await context.log(run.id)).story
    if run.mode_wanted is not None and run.is_to_switch and story.ended_by_switch:
        status = RunState.COMPLETED if has_changes else RunState.COMPLETED_NO_CHANGES
        return Verdict(status=status, reason=SWITCHED[run.mode_wanted])
    return judge_turn(story, process, has_changes=has_changes, closes_stream=closes_stream)


async def _push(context: EngineContext, run: Run, has_commits: bool) -> str:
    """Push a task's work to where other hosts find it; return the ref, or "" if it is here alone."""
    remote = context.settings_for(run.project).tasks_push_to
    if run.task is None or not remote or not has_commits or run.is_shared:
        return ""
    ref = f"refs/fleet/tasks/{run.task}/{run.token}"  # a host that lost its task writes over nobody's work
    publish = context.member.repositories.publish
    try:
        await context.git_threads.run(publish, run.project, remote, f"refs/heads/{run.branch}", ref)
    except FleetError as problem:
        log.warning("push.failed", extra={"run_id": run.id, "reason": problem.message})
        return ""
    return ref


async def _keep_in_folder(context: EngineContext, run_id: RunId, result: Result) -> None:
    """Put the result and the events beside the raw output, for people and scripts."""
    folder = context.member.run_folder(run_id)
    text = json.dumps(encode_value(result), ensure_ascii=False, indent=2) + "\n"
    await context.member.transport.write(f"{folder}/result.json", text.encode(errors="backslashreplace"))

    def write_events() -> None:
        """Line by line: the log may be far bigger than what we want in memory."""
        path = folder / "events.jsonl"
        draft = path.with_suffix(".draft")
        with open_private(draft) as file:
            for number, body in context.runs.events(run_id):
                file.write(json.dumps({"seq": number, **body}) + "\n")
        draft.replace(path)

    await context.git_threads.run(write_events)
