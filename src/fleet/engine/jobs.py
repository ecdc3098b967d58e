"""The jobs that are under way: one for each run that has work, and never two.

What is to be done for a run, and how far it came, is in its record and log alone (ADR 15). Whatever a job
does may be repeated, so one that was cut off is begun again by the next supervisor, and goes on from there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeAlias, TypeVar

from fleet.domain.ids import RunId
from fleet.domain.run import Job, Run
from fleet.engine import settlement, steps
from fleet.engine.context import RETRY_SECONDS, EngineContext
from fleet.engine.follow import follow
from fleet.engine.room import FullDisk, free_bytes, full_disk_behind
from fleet.errors import FleetError, Stale, StoreAway, StoreUnusable

Answer = TypeVar("Answer")
Part: TypeAlias = Callable[[], Awaitable[Answer]]

log = logging.getLogger(__name__)

AGAIN_SECONDS = 5.0  # until a job is begun again that could not even write down why it failed
LONGEST_PAUSE_SECONDS = 60.0  # until something is tried again for which there was no room
MORE_ROOM = 1 << 20  # bytes that must have been freed to try it again at once
LONGEST_RUSH_SECONDS = 1.0  # some take their time: their projects have much to set up


class Jobs:
    """The jobs of one supervisor. It holds its home's lock, so nobody else does any of them."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._starting = 0  # how many agents are being started just now
        self._all_up = asyncio.Event()
        self._all_up.set()
        self._going: dict[RunId, asyncio.Task[None]] = {}
        self._waiting: set[RunId] = set()  # for room on a disk, as their records say
        self._reported: dict[RunId, str] = {}  # what was last logged of a job that cannot be done for now

    @property
    def is_any(self) -> bool:
        return bool(self._going)

    def ensure(self, run: Run) -> None:
        """Have the run's next job under way, once; one that is done by now has too low a number to start."""
        kind = run.next_job
        if kind is None or run.id in self._going:
            return
        if run.waits_for:
            self._waiting.add(run.id)
        going = asyncio.create_task(self._serve(run.id, run.job, kind), name=f"{kind} {run.id}")
        self._going[run.id] = going

        def over(_: object) -> None:
            del self._going[run.id]
            self._context.nudge_supervisor()  # to see what follows from it

        going.add_done_callback(over)

    async def _serve(self, run: RunId, job: int, kind: Job) -> None:
        try:
            match kind:
                case Job.TURN:
                    await self._take_turn(run, job)
                case Job.REMOVE:
                    await self._change_workspace(steps.remove, run, job)
                case Job.RESTORE:
                    await self._change_workspace(steps.restore, run, job)
            self._reported.pop(run, None)
        except Exception as problem:  # the store is away, say: the run is as it was, and is tried again
            reason, is_known = steps.reason_of(problem), isinstance(problem, FleetError | OSError)
            if self._reported.get(run) != reason:  # once, however often it is tried
                log.error("job.failed", extra={"run_id": run, "reason": reason}, exc_info=not is_known)
            self._reported[run] = reason
            self._context.forget(run)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _take_turn(self, run: RunId, job: int) -> None:
        failure = ""
        try:
            if await self._patiently(run, partial(self._start, run, job)):
                await self._patiently(run, partial(follow, self._context, run))
        except Exception as error:  # whatever went wrong, the run ends with a result
            failure = _reason_of(error, run)
        try:
            await self._settle(run, job, failure)
        except Exception as error:  # a gate that cannot be asked, say: without it, then
            await self._settle(run, job, _reason_of(error, run))

    async def _start(self, run: RunId, job: int) -> bool:
        """Prepare and launch; tell whether there is an agent to follow."""
        self._starting += 1
        self._all_up.clear()
        try:
            is_up = await steps.prepare(self._context, run, job) and await steps.launch(self._context, run)
        finally:
            self._starting -= 1
            if not self._starting:
                self._all_up.set()
        await self._until_all_up()
        return is_up

    async def _until_all_up(self) -> None:
        """Many agents may be started at once: whatever else is to be done can wait until all are up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_RUSH_SECONDS):
                await self._all_up.wait()

    async def _settle(self, run: RunId, job: int, failure: str) -> None:
        await self._patiently(run, partial(settlement.settle, self._context, run, job, failure))

    async def _change_workspace(
        self, change: Callable[[EngineContext, RunId, int], Awaitable[None]], run: RunId, job: int
    ) -> None:
        await asyncio.sleep(0)  # agents come first, also those whose jobs are begun in the same look
        await self._until_all_up()
        try:
            await self._patiently(run, partial(change, self._context, run, job))
        except Exception as error:  # the run stays as it was, and says why
            reason = _reason_of(error, run)
            await self._patiently(run, partial(steps.give_up, self._context, run, job, reason))

    async def _patiently(self, run: RunId, part: Part[Answer]) -> Answer:
        """Do a part of a job; wait for a shared database that is away, and for room on a full disk.

        A write whose answer was lost may have been kept: the log is longer than the next one thinks. Parts
        ask what is already so, so looking again is the cure for all of these.
        """
        pause = RETRY_SECONDS
        while True:
            try:
                answer = await part()
                if run in self._waiting:
                    await self._context.update(run, lambda run: replace(run, waits_for=""))
                    self._waiting.discard(run)
                    log.info("disk.has_room", extra={"run_id": run})
                return answer
            except (StoreAway, Stale) as problem:
                if not self._context.is_sharing:
                    raise
                log.warning("store.away", extra={"run_id": run, "reason": problem.message})
                self._context.forget(run)
                await asyncio.sleep(RETRY_SECONDS)
            except StoreUnusable:
                raise
            except Exception as problem:
                known = await self._context.get(run)
                folders = (known.workspace, known.project, str(self._context.home))
                if (disk := full_disk_behind(problem, folders)) is None:
                    raise
                await self._wait_for_room(run, disk, pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _wait_for_room(self, run_id: RunId, disk: FullDisk, seconds: float) -> None:
        """Wait until there is more room, a wish about the run has changed, or some time has passed."""
        if run_id not in self._waiting:
            log.warning("disk.full", extra={"run_id": run_id, "reason": f"it waits for {disk}"})
            self._waiting.add(run_id)
        with suppress(StoreUnusable):  # it may be on the same disk; that it waits is in the log
            await self._context.update(run_id, lambda run: replace(run, waits_for=str(disk)))
        nudge, deadline = self._context.nudge_of(run_id), time.monotonic() + seconds
        while time.monotonic() < deadline and free_bytes(disk.folder) < disk.free + MORE_ROOM:
            nudge.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_SECONDS):
                    await nudge.wait()
                return


def _reason_of(error: Exception, run: RunId) -> str:
    """Put a run's failure into words; raise what is none, and passes: that the store cannot be used."""
    if isinstance(error, StoreUnusable):
        raise error
    if not isinstance(error, FleetError):
        log.exception("job.crashed", extra={"run_id": run}, exc_info=error)
    return steps.reason_of(error)
