"""Gates, which the engine asks in a run's workspace, and trials, which run commands in a clean checkout."""

from __future__ import annotations

import asyncio
import logging
import os
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fleet.domain.cause import Cause
from fleet.domain.ids import TrialId, derived_run_id
from fleet.domain.run import Run, Wanted
from fleet.domain.trial import MOST_ATTEMPTS, Answer, Trial, TrialState
from fleet.domain.turn import Verdict
from fleet.engine.context import RETRY_SECONDS, EngineContext
from fleet.engine.follow import await_end, wait_for_change
from fleet.engine.steps import agent_environment, reason_of
from fleet.errors import FleetError, OverLimit, Unavailable
from fleet.files.private import make_private

log = logging.getLogger(__name__)

LAST_WORDS = 4000  # bytes of what a gate said that are shown and kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """What the gates of a run said."""

    summary: str = ""
    refusal: str = ""


async def is_to_be_gated(context: EngineContext, run: Run, verdict: Verdict) -> bool:
    """Tell whether it is time for the gates: the turn ended well, and the agent says that it is done."""
    if verdict.cause is not Cause.NONE or run.wanted is not Wanted.RUN:
        return False
    if run.task is None:
        return True
    task = await context.task_of(run)
    is_told = task is not None and (task.close_reason is not None or task.ends_with_turn)
    return is_told or context.plan_of(run.task) == "completed"


async def ask_gates(context: EngineContext, run: Run, job: int) -> Gates:
    """Run the gates one after the other, in the workspace, until one says no."""
    task = await context.task_of(run)
    commands = task.gates if task else ()
    patience = context.settings_for(run.project).tasks_gate_seconds
    for number, command in enumerate(commands, 1):
        # Its name tells the command: one that was changed meanwhile is asked anew.
        name = f"gate-{job}-{number}-{zlib.crc32(command.encode()):08x}"
        folder = str(context.member.run_folder(run.id) / name)
        environment = agent_environment(context, run)
        await _start_gate(context, folder, command, env=environment, cwd=run.workspace, marker=run.id)
        process = await await_end(context, run.id, folder, timeout_seconds=patience)
        said = await _end_gate(context, folder)
        if process.code != 0:
            refusal = f"`{command}` ended with exit code {process.code}\n{said}"
            return Gates(summary=f"gate {number} of {len(commands)} failed", refusal=refusal)
    return Gates(summary=f"{len(commands)} of {len(commands)} gates passed" if commands else "")


async def _start_gate(
    context: EngineContext, folder: str, command: str, *, env: Mapping[str, str], cwd: str, marker: str
) -> None:
    """Start a command, unless it was begun before."""
    argv = ("sh", "-c", f"{{ {command}\n}} 2>&1")
    await context.member.shim.start(folder, argv=argv, env=env, cwd=cwd, marker=marker)


async def _end_gate(context: EngineContext, folder: str) -> str:
    """Stop whatever a command left running, and return its last words."""
    await context.member.shim.stop(folder, grace_seconds=0)
    return (await context.member.read_tail(f"{folder}/out", LAST_WORDS)).strip()


class Bench:
    """The trials that are being made in this process. One that is cut off is taken up by the next."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._making: dict[TrialId, asyncio.Task[None]] = {}
        self._room = asyncio.Semaphore(os.cpu_count() or 1)

    @property
    def is_busy(self) -> bool:
        return bool(self._making)

    def see_to(self, trials: Sequence[Trial]) -> None:
        """See to it that the trials are being made, each of them once."""
        for trial in trials:
            if trial.id in self._making and not trial.is_wanted:
                self._context.nudge_of(trial.id).set()
            elif trial.id not in self._making:
                job = asyncio.create_task(self._make(trial.id), name=f"trial {trial.id}")
                self._making[trial.id] = job

    async def _make(self, trial_id: TrialId) -> None:
        try:
            async with self._room:
                await _try_out(self._context, trial_id)
        except Exception as problem:  # the store is away, say: a later look tries again
            log.error("trial.failed", extra={"trial_id": trial_id, "reason": str(problem)})
            if isinstance(problem, Unavailable):
                asyncio.get_running_loop().call_later(RETRY_SECONDS, self._context.nudge_supervisor)
        else:
            self._context.nudge_supervisor()
        finally:
            self._making.pop(trial_id, None)
            self._context.nudges.pop(trial_id, None)


async def _try_out(context: EngineContext, trial_id: TrialId) -> None:
    """Make a trial, or go on with one that was begun; to do it again is to change nothing."""
    trial, place = await context.read(context.trials.get, trial_id), context.home / "trials" / trial_id
    try:
        while not trial.has_ended:
            folder, attempt = place / f"attempt-{trial.attempt}", trial.attempt
            make_private(folder)
            make, tree = context.member.checkouts.make, str(folder / "tree")
            await context.git_threads.run(make, trial.project, trial.commit, tree, patches=trial.patches)
            trial = await _run_commands(context, trial, folder)
            if trial.attempt == attempt:  # else it begins anew
                state = TrialState.ENDED if trial.is_wanted else TrialState.STOPPED
                trial = await _end(context, trial, state)
    except (Unavailable, OverLimit):
        raise  # nothing is wrong with the trial itself
    except FleetError as problem:
        for folder in place.glob("attempt-*/command-*/"):
            await context.member.shim.stop(str(folder), grace_seconds=0)
        await _end(context, trial, TrialState.IMPOSSIBLE, reason=reason_of(problem))
    try:
        await context.git_threads.run(context.member.checkouts.discard, str(place))
    except FleetError as problem:  # the next supervisor sweeps it up
        log.warning("trial.left_over", extra={"trial_id": trial_id, "reason": problem.message})


async def _run_commands(context: EngineContext, trial: Trial, folder: Path) -> Trial:
    """Run what was not run yet, and record each answer as it comes; return the trial then."""
    for place, command in enumerate(command for command in trial.commands for _ in range(trial.times)):
        if place < len(trial.answers):
            continue
        earlier = [answer for answer in trial.answers if answer.command != command]
        if trial.stops_at_no and not all(answer.is_yes for answer in earlier):
            return trial
        answer = await _ask(context, trial, folder, command, place)
        if answer is None:
            return await context.store_threads.run(context.trials.update, trial.id, Trial.begin_anew)

        def answered(newest: Trial, place: int = place, answer: Answer = answer) -> Trial:
            is_next = len(newest.answers) == place
            return replace(newest, answers=(*newest.answers, answer)) if is_next else newest

        trial = await context.store_threads.run(context.trials.update, trial.id, answered)
        if not trial.is_wanted:
            return trial
    return trial


async def _ask(
    context: EngineContext, trial: Trial, attempt: Path, command: str, place: int
) -> Answer | None:
    """Return what a command says; None if it was lost before it could, and another attempt may do better."""
    folder = str(attempt / f"command-{place}")
    marker = derived_run_id(f"{trial.id} {place}")
    environment = {"FLEET_RUN": marker, "FLEET_TRIAL": trial.id}
    began = time.monotonic()
    cwd = str(attempt / "tree")
    await _start_gate(context, folder, command, env=environment, cwd=cwd, marker=marker)
    deadline = time.monotonic() + context.settings_for(trial.project).tasks_gate_seconds
    while True:
        process = await context.member.shim.state(folder)
        left = deadline - time.monotonic()
        if process.has_ended or left <= 0 or not (await context.read(context.trials.get, trial.id)).is_wanted:
            break
        await wait_for_change(context, trial.id, folder, {"exit": 0}, process, left)
    said = await _end_gate(context, folder)
    if process.has_ended and process.code is None and trial.attempt < MOST_ATTEMPTS:
        log.warning("trial.lost", extra={"trial_id": trial.id, "command": command, "reason": process.reason})
        return None
    seconds = round(time.monotonic() - began, 3)
    return Answer(command=command, code=process.code, seconds=seconds, said=said)


async def _end(context: EngineContext, trial: Trial, state: TrialState, *, reason: str = "") -> Trial:
    def ended(newest: Trial) -> Trial:
        return newest if newest.has_ended else replace(newest, state=state, reason=reason)

    return await context.store_threads.run(context.trials.update, trial.id, ended)
