"""Makes trials: a checkout, the commands in it one after the other, and what they said into the record."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from fleet.domain.ids import RunId, TrialId, derived_run_id
from fleet.domain.process import AgentProcess
from fleet.domain.trial import Answer, Trial, TrialState
from fleet.engine.context import RETRY_SECONDS, EngineContext
from fleet.engine.follow import wait_for_change
from fleet.engine.steps import reason_of
from fleet.errors import FleetError, OverLimit, Unavailable
from fleet.files.private import make_private

log = logging.getLogger(__name__)

SAID_KEPT = 4000  # bytes of a command's last words


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
                self._context.nudge_of(_nudged(trial.id)).set()
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
            self._context.forget(_nudged(trial_id))


async def _try_out(context: EngineContext, trial_id: TrialId) -> None:
    """Make a trial, or go on with one that was begun; to do it again is to change nothing."""
    trial = await context.trial(trial_id)
    try:
        while not trial.has_ended:
            trial = await _attempt(context, trial)
    except (Unavailable, OverLimit):
        raise  # nothing is wrong with the trial itself
    except FleetError as problem:
        await _stop_all(context, trial_id)
        await _end(context, trial, TrialState.IMPOSSIBLE, reason=reason_of(problem))
    try:
        await context.in_git_thread(
            partial(context.member.checkouts.discard, str(context.member.trial_folder(trial_id)))
        )
    except FleetError as problem:  # the next supervisor sweeps it up
        log.warning("trial.left_over", extra={"trial_id": trial_id, "reason": problem.message})


async def _attempt(context: EngineContext, trial: Trial) -> Trial:
    """Return the trial when it has ended, or is to begin anew."""
    make_private(_folder(context, trial))
    tree = str(_folder(context, trial) / "tree")
    make = partial(context.member.checkouts.make, trial.project, trial.commit, tree, patches=trial.patches)
    await context.in_git_thread(make)
    tried = await _run_commands(context, trial)
    if tried.attempt != trial.attempt:
        return tried
    return await _end(context, tried, TrialState.ENDED if tried.is_wanted else TrialState.STOPPED)


def _folder(context: EngineContext, trial: Trial) -> Path:
    return context.member.trial_folder(trial.id) / f"attempt-{trial.attempt}"


async def _stop_all(context: EngineContext, trial_id: TrialId) -> None:
    for folder in context.member.trial_folder(trial_id).glob("attempt-*/command-*/"):
        await context.member.shim.stop(str(folder), grace_seconds=0)


async def _run_commands(context: EngineContext, trial: Trial) -> Trial:
    """Run what was not run yet, and record each answer as it comes; return the trial then."""
    for place, command in enumerate(command for command in trial.commands for _ in range(trial.times)):
        if place < len(trial.answers):
            continue
        if trial.stops_at_no and not all(answer.is_yes for answer in _before(trial, command)):
            return trial
        answer = await _ask(context, trial, command, place)
        if answer is None:
            return await context.update_trial(trial.id, Trial.begin_anew)
        trial = await context.update_trial(trial.id, partial(_with_answer, place=place, answer=answer))
        if not trial.is_wanted:
            return trial
    return trial


def _before(trial: Trial, command: str) -> tuple[Answer, ...]:
    """Return what the commands before one said, every time."""
    return tuple(answer for answer in trial.answers if answer.command != command)


async def _ask(context: EngineContext, trial: Trial, command: str, place: int) -> Answer | None:
    """Return what a command says; None if it was lost before it could, and another attempt may do better."""
    folder = str(_folder(context, trial) / f"command-{place}")
    patience = context.settings_for(trial.project).gate_seconds
    marker = derived_run_id(f"{trial.id} {place}")
    began = time.monotonic()
    await context.member.shim.start(
        folder,
        argv=("sh", "-c", f"{{ {command}\n}} 2>&1"),
        env={"FLEET_RUN": marker, "FLEET_TRIAL": trial.id},
        cwd=str(_folder(context, trial) / "tree"),
        stdin=None,
        marker=marker,
    )
    process = await _until_ended(context, trial, folder, patience)
    await context.member.shim.stop(folder, grace_seconds=0)  # also whatever it left running
    if process.has_ended and process.code is None and trial.may_begin_anew:
        log.warning("trial.lost", extra={"trial_id": trial.id, "command": command, "reason": process.reason})
        return None
    size = await context.member.transport.size(f"{folder}/out")
    said = await context.member.transport.read(f"{folder}/out", offset=max(0, size - SAID_KEPT))
    return Answer(
        command=command,
        code=process.code,
        seconds=round(time.monotonic() - began, 3),
        said=said.decode(errors="replace").strip(),
    )


async def _until_ended(context: EngineContext, trial: Trial, folder: str, patience: float) -> AgentProcess:
    """Return the process when it has ended, when its time is over, or when nobody wants to know any more."""
    deadline = time.monotonic() + patience
    while True:
        process = await context.member.shim.state(folder)
        left = deadline - time.monotonic()
        if process.has_ended or left <= 0 or not (await context.trial(trial.id)).is_wanted:
            return process
        await wait_for_change(context, _nudged(trial.id), folder, {"exit": 0}, process, left)


def _nudged(trial_id: TrialId) -> RunId:
    """Return the name under which whoever waits for a trial is woken."""
    return RunId(trial_id)


def _with_answer(trial: Trial, place: int, answer: Answer) -> Trial:
    return replace(trial, answers=(*trial.answers, answer)) if len(trial.answers) == place else trial


async def _end(context: EngineContext, trial: Trial, state: TrialState, *, reason: str = "") -> Trial:
    def ended(newest: Trial) -> Trial:
        return newest if newest.has_ended else replace(newest, state=state, reason=reason)

    return await context.update_trial(trial.id, ended)
