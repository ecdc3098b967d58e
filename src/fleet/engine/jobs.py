"""The jobs that are under way: one for each run that has work, and never two.

What is to be done for a run, and how far it came, is in its record and log alone (ADR 15). Whatever a job
does may be repeated, so one that was cut off is begun again by the next supervisor, and goes on from there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TypeAlias, TypeVar

from fleet.domain.ids import RunId
from fleet.domain.job import Job, next_job
from fleet.domain.run import Run
from fleet.engine import settlement, steps
from fleet.engine.workshop import RETRY_SECONDS, Workshop
from fleet.errors import FleetError, Stale, StoreAway, StoreUnusable

Answer = TypeVar("Answer")
Part: TypeAlias = Callable[[], Awaitable[Answer]]

log = logging.getLogger(__name__)

AGAIN_SECONDS = 5.0  # until a job is begun again that could not even write down why it failed
LONGEST_RUSH_SECONDS = 1.0  # some take their time: their projects have much to set up


class Jobs:
    """The jobs of one supervisor. It holds its home's lock, so nobody else does any of them."""

    def __init__(self, shop: Workshop) -> None:
        self._shop = shop
        self._rush = _Rush()
        self._going: dict[RunId, asyncio.Task[None]] = {}

    @property
    def is_any(self) -> bool:
        return bool(self._going)

    def ensure(self, run: Run) -> None:
        """See to it that the run's next job is under way, and under way once.

        Of a run that was read a while ago the job may be done: then its number is too low, and does nothing.
        """
        kind = next_job(run)
        if kind is None or run.id in self._going:
            return
        going = asyncio.create_task(self._serve(run.id, run.job, kind), name=f"{kind} {run.id}")
        self._going[run.id] = going
        going.add_done_callback(lambda _: self._over(run.id))

    def _over(self, run_id: RunId) -> None:
        del self._going[run_id]
        self._shop.nudge_supervisor()  # to see what follows from it

    async def _serve(self, run: RunId, job: int, kind: Job) -> None:
        try:
            await self._do(run, job, kind)
        except Exception as problem:  # the store is away, say: the run is as it was, and is tried again
            is_ours = isinstance(problem, FleetError)
            log.error("job.failed", extra={"run_id": run, "reason": str(problem)}, exc_info=not is_ours)
            self._shop.forget(run)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _do(self, run: RunId, job: int, kind: Job) -> None:
        match kind:
            case Job.TURN:
                await self._take_turn(run, job)
            case Job.REMOVE:
                await self._change_workspace(steps.remove, run, job)
            case Job.RESTORE:
                await self._change_workspace(steps.restore, run, job)

    async def _take_turn(self, run: RunId, job: int) -> None:
        failure = ""
        try:
            if await self._patiently(run, partial(self._start, run, job)):
                await self._patiently(run, partial(steps.follow, self._shop, run))
        except StoreUnusable:
            raise  # that passes, and is not the run's failure
        except Exception as error:  # whatever else went wrong, the run ends with a result
            failure = _told(run, error)
        try:
            await self._settle(run, job, failure)
        except StoreUnusable:
            raise
        except Exception as error:  # a gate that cannot be asked, say: without it, then
            await self._settle(run, job, _told(run, error))

    async def _start(self, run: RunId, job: int) -> bool:
        """Prepare and launch; tell whether there is an agent to follow."""
        with self._rush.one_more():
            is_up = await steps.prepare(self._shop, run, job) and await steps.launch(self._shop, run)
        await self._rush.until_over()
        return is_up

    async def _settle(self, run: RunId, job: int, failure: str) -> None:
        await self._patiently(run, partial(settlement.settle, self._shop, run, job, failure))

    async def _change_workspace(
        self, change: Callable[[Workshop, RunId, int], Awaitable[None]], run: RunId, job: int
    ) -> None:
        await asyncio.sleep(0)  # agents come first, also those whose jobs are begun in the same look
        await self._rush.until_over()
        try:
            await self._patiently(run, partial(change, self._shop, run, job))
        except StoreUnusable:
            raise
        except Exception as error:  # the run stays as it was, and says why
            await self._patiently(run, partial(steps.give_up, self._shop, run, job, _told(run, error)))

    async def _patiently(self, run: RunId, part: Part[Answer]) -> Answer:
        """Do a part of a job; wait for a shared database that is away. The agents work on meanwhile.

        A write whose answer was lost may have been kept all the same; the next one then finds the log
        longer than it thought. Parts ask what is already so, so looking again is the cure for both.
        """
        while True:
            try:
                return await part()
            except (StoreAway, Stale) as problem:
                if not self._shop.is_sharing:
                    raise
                log.warning("store.away", extra={"run_id": run, "reason": problem.message})
                self._shop.forget(run)
                await asyncio.sleep(RETRY_SECONDS)


def _told(run: RunId, error: Exception) -> str:
    if not isinstance(error, FleetError):
        log.exception("job.crashed", extra={"run_id": run}, exc_info=error)
    return steps.reason_of(error)


class _Rush:
    """Many agents that are started at once: whatever else is to be done can wait until all are up."""

    def __init__(self) -> None:
        self._number = 0
        self._is_over = asyncio.Event()
        self._is_over.set()

    @contextmanager
    def one_more(self) -> Generator[None]:
        self._number += 1
        self._is_over.clear()
        try:
            yield
        finally:
            self._number -= 1
            if not self._number:
                self._is_over.set()

    async def until_over(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_RUSH_SECONDS):
                await self._is_over.wait()
