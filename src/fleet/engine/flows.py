"""The durable workflows, on DBOS. Nothing else in fleet knows it.

A workflow's id is the name of a run's job, so starting it twice is starting it once. One that was cut
off is begun again in the next supervisor, and goes on from where the run's record says that it was:
all that it does may be repeated.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer, SetWorkflowID
from dbos import error as journal_errors

from fleet.domain.ids import RunId
from fleet.domain.job import Job, job_id, next_job
from fleet.domain.run import Run
from fleet.engine import settlement, steps
from fleet.engine.journal import journal_in_database, journal_in_file
from fleet.engine.workshop import Workshop
from fleet.errors import FleetError, Stale, StoreAway

Given = ParamSpec("Given")
Answer = TypeVar("Answer")

log = logging.getLogger(__name__)

# Journalled workflows belong to a version, which stays the same over upgrades: see docs/adr/0014.
APPLICATION_VERSION = "1"
STRANDED_SECONDS = 60.0  # recovery at start-up takes a second or two
STORE_RETRY_SECONDS = 2.0
LONGEST_RUSH_SECONDS = 1.0  # some take their time: their projects have much to set up
MOST_RECOVERIES = 1_000_000  # a supervisor may be killed as often as it likes

_shop: Workshop | None = None
_driving: set[str] = set()  # jobs that are being done in this process
_asked: dict[str, float] = {}  # jobs asked for in this process, and when


def shop() -> Workshop:
    assert _shop is not None, "the engine is not open"
    return _shop


def open_engine(workshop: Workshop, journal: Path) -> None:
    """Open the journal and take up the jobs that were cut off. Call it inside the loop that stays."""
    global _shop
    _shop = workshop
    url = workshop.database_url
    config = journal_in_database(url) if url else journal_in_file(journal)
    config |= DBOSConfig(
        name="fleet",
        application_version=APPLICATION_VERSION,
        executor_id=workshop.host,
        enable_patching=True,
        serializer=DBOSPortableJSONSerializer(),
        log_level="ERROR",
        # Nothing of ours waits on these; polling for them would only keep an idle host awake.
        notification_listener_polling_interval_sec=60.0,
        scheduler_polling_interval_sec=3600.0,
    )
    DBOS(config=config)
    DBOS.launch()


async def ensure_job(run: Run) -> None:
    """See to it that the run's next job is under way, and under way once."""
    job, name = next_job(run), job_id(run.id, run.job)
    if job is None or name in _driving:
        return
    if name not in _asked:
        _asked[name] = time.monotonic()
        with SetWorkflowID(name):
            await DBOS.start_workflow_async(serve_run, run.id, run.job, str(job))
    elif time.monotonic() - _asked[name] > STRANDED_SECONDS:
        _asked[name] = time.monotonic()
        await _take_up(run, name)


async def _take_up(run: Run, name: str) -> None:
    """Go on with a job that nobody does, though it was asked for: its journal failed it once."""
    status = await DBOS.get_workflow_status_async(name)
    log.error("job.stranded", extra={"run_id": run.id, "job": name, "status": status and status.status})
    if status and status.status in ("PENDING", "ENQUEUED"):
        await DBOS.resume_workflow_async(name)
    else:
        await steps.abandon(shop(), run.id, run.job)


def is_driving() -> bool:
    return bool(_driving)


@DBOS.workflow(max_recovery_attempts=MOST_RECOVERIES)
async def serve_run(run_id: str, job: int, kind: str) -> None:
    """Do one job for a run."""
    name = job_id(run_id, job)
    _driving.add(name)
    try:
        await do_job(RunId(run_id), job, Job(kind))
    except journal_errors.DBOSUnexpectedStepError:  # an older fleet had journalled more of it
        await steps.abandon(shop(), RunId(run_id), job)
    finally:
        _driving.discard(name)
        _asked.pop(name, None)
        if not _driving:
            shop().nudge_supervisor()  # one that is idle now, or drained, may leave


@DBOS.step()
async def do_job(run: RunId, job: int, kind: Job) -> None:
    """Do all of a job. It is one step: how far it came is in the run's own record."""
    match kind:
        case Job.TURN:
            await _take_turn(run, job)
        case Job.REMOVE:
            await _change_workspace(_remove, run, job)
        case Job.RESTORE:
            await _change_workspace(_restore, run, job)
    shop().nudge_supervisor()  # what follows from it need not wait until the journal has it


async def _take_turn(run: RunId, job: int) -> None:
    failure = ""
    try:
        if await _start(run, job):
            await _follow(run)
    except Exception as error:  # whatever went wrong, the run ends with a result
        failure = _told(run, error)
    try:
        await _settle(run, job, failure)
    except Exception as error:  # a gate that cannot be asked, say: without it, then
        await _settle(run, job, _told(run, error))


async def _change_workspace(change: Callable[[RunId, int], Awaitable[None]], run: RunId, job: int) -> None:
    try:
        await change(run, job)
    except Exception as error:  # the run stays as it was, and says why
        await _give_up(run, job, _told(run, error))


def _told(run: RunId, error: Exception) -> str:
    if not isinstance(error, FleetError):
        log.exception("job.crashed", extra={"run_id": run}, exc_info=error)
    return steps.reason_of(error)


def _patiently(
    step: Callable[Concatenate[RunId, Given], Awaitable[Answer]],
) -> Callable[Concatenate[RunId, Given], Awaitable[Answer]]:
    """Let a step wait for a shared database that is away. The agents work on meanwhile.

    A write whose answer was lost may have been kept all the same; the next one then finds the log
    longer than it thought. Steps ask what is already so, so looking again is the cure for both.
    """

    @wraps(step)
    async def patient(run_id: RunId, *arguments: Given.args, **options: Given.kwargs) -> Answer:
        while True:
            try:
                return await step(run_id, *arguments, **options)
            except (StoreAway, Stale) as problem:
                if not shop().database_url:
                    raise
                log.warning("store.away", extra={"run_id": run_id, "reason": problem.message})
                shop().forget(run_id)
                await asyncio.sleep(STORE_RETRY_SECONDS)

    return patient


@_patiently
async def _start(run_id: RunId, job: int) -> bool:
    """Prepare and launch; tell whether there is an agent to follow."""
    with _rush.one_more():
        is_up = await steps.prepare(shop(), run_id, job) and await steps.launch(shop(), run_id)
    await _rush.until_over()
    return is_up


class _Rush:
    """Many agents that are started at once: to be written down and followed can wait until all are up."""

    def __init__(self) -> None:
        self._number = 0
        self._is_over = asyncio.Event()

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


_rush = _Rush()


@_patiently
async def _follow(run_id: RunId) -> None:
    await steps.follow(shop(), run_id)


@_patiently
async def _settle(run_id: RunId, job: int, failure: str) -> None:
    await settlement.settle(shop(), run_id, job, failure)


@_patiently
async def _remove(run_id: RunId, job: int) -> None:
    await steps.remove(shop(), run_id, job)


@_patiently
async def _restore(run_id: RunId, job: int) -> None:
    await steps.restore(shop(), run_id, job)


@_patiently
async def _give_up(run_id: RunId, job: int, reason: str) -> None:
    await steps.give_up(shop(), run_id, job, reason)
