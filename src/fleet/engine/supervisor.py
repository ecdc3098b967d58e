"""One per home and host: it is woken, sees wishes, and keeps a job going for each run with work.

It is crash-only: to stop it is to end it. Agents live on under their shims, jobs go on in the next
supervisor, so there is no second way out that would need tests of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable
from functools import partial

from fleet.domain.ids import RunId
from fleet.domain.run import Mode, Run, Wanted
from fleet.engine import stale_folders
from fleet.engine.claims import Heartbeats, home_id_of, take_from, take_name
from fleet.engine.context import RETRY_SECONDS, RUN_FILE, EngineContext
from fleet.engine.gates import Bench
from fleet.engine.jobs import Jobs
from fleet.engine.log import Threads
from fleet.engine.notices import Notices
from fleet.engine.queue import Queue
from fleet.engine.reconcilers import Pass, Reconcilers
from fleet.engine.supervisor_link import DRAIN, STOP, HomeSupervisorLink
from fleet.errors import FleetError
from fleet.work.registry import kinds

log = logging.getLogger(__name__)

WISHES = ("task/", "question/", "queue/pause", "hold/")  # records that may be wishes of other hosts
MOST_ROUNDS = 3  # of queue and reconcilers in one look; those who wait for jobs to begin come next
LOOK_EVERY_SECONDS = 15.0  # the safety net under the wake-ups


class Supervisor:
    def __init__(
        self, context: EngineContext, link: HomeSupervisorLink, fifo: int, *, idle_seconds: float | None
    ) -> None:
        self._context = context
        self._queue = Queue(context)
        self._reconcilers = Reconcilers(context)
        self._last_pass = Pass(is_busy=False)
        self._bench = Bench(context)
        self._jobs = Jobs(context)
        self._notices = Notices(context)
        self._beats = Heartbeats(context.store, context.host, lease_seconds=context.lease_seconds)
        self._sharing: list[asyncio.Task[None]] = []  # what goes on because other hosts share the work
        self._telling: asyncio.Future[None] | None = None
        self._sweeping: asyncio.Future[None] | None = None
        self._last_queue_pass = Pass(is_busy=False)
        self._link = link
        self._fifo = fifo  # of the link, open since before this program was loaded
        self._idle_seconds = idle_seconds
        self._woken = asyncio.Event()
        self._is_stopping = False
        self._is_busy = True
        self._idle_since = time.monotonic()
        self._seen: dict[RunId, tuple[Wanted, Mode | None, int]] = {}
        self._blind_for = ""  # why the last look failed; logged once
        self._stamp = ""  # of the store, at the last look …
        self._checkpointed = ""  # … and when all of it was last brought to rest

    async def serve(self) -> None:
        """Work until told to stop or, if there is an idle limit, until nothing was to do for that long."""
        self._context.nudge_supervisor = self._woken.set
        if self._context.is_sharing:
            take_name(self._context.store, self._context.host, home_id_of(self._context.home))
        await self._context.member.shim.install()
        stale_folders.tighten(self._context)
        stale_folders.set_aside(self._context)
        for run in await self._working():  # an earlier version of fleet has not written their files
            folder = self._context.member.run_folder(run.id)
            if folder.is_dir() and not (folder / RUN_FILE).exists():
                await self._context.note(run)
        asyncio.get_running_loop().add_reader(self._fifo, self._hear)
        if self._context.wishes is not None:
            self._sharing = [
                asyncio.create_task(self._keep_beating(), name="heartbeat"),
                asyncio.create_task(self._keep_listening(self._context.wishes), name="wishes"),
            ]
        sweep = partial(stale_folders.delete, self._context)
        self._sweeping = self._do_beside(self._context.git_threads, sweep, "leftovers.kept")
        self._link.mark("up")
        log.info("supervisor.up", extra={"pid": os.getpid()})
        while not self._is_stopping:
            self._woken.clear()
            await self._look()
            await self._checkpoint_if_quiet()
            if self._is_busy:
                self._idle_since = time.monotonic()
            elif self._idle_seconds is not None and time.monotonic() - self._idle_since >= self._idle_seconds:
                await self._leave()
            await self._wait()
        await self._say_goodbye()
        await self._checkpoint()
        if self._queue.is_draining:
            with contextlib.suppress(OSError):  # where it cannot be told, it is done all the same
                self._link.mark("drained")
        log.info("supervisor.down", extra={"pid": os.getpid()})

    async def _working(self) -> list[Run]:
        return await self._context.read(self._context.runs.find, "work", self._context.host)

    def stop(self) -> None:
        self._is_stopping = True
        self._woken.set()

    def drain(self) -> None:
        """Start no more tasks; stop once those that are under way have come to rest."""
        self._queue.is_draining = True
        self._woken.set()
        log.info("supervisor.draining")
        self._link.mark("draining")  # last: where it cannot be told, it is done all the same

    def _hear(self) -> None:
        heard = os.read(self._fifo, 65536)
        if STOP in heard:
            self._is_stopping = True
            with contextlib.suppress(OSError):  # where it cannot be told, it is done all the same
                self._link.mark("stopped")
        if DRAIN in heard:
            self.drain()
        self._woken.set()

    async def _wait(self) -> None:
        if self._is_stopping:
            return
        patience = RETRY_SECONDS if self._last_pass.was_changed else LOOK_EVERY_SECONDS
        if self._last_queue_pass.next_at is not None:
            patience = min(patience, max(0.0, self._last_queue_pass.next_at - time.monotonic()) + 0.01)
        if self._idle_seconds is not None:
            patience = min(patience, max(0.1, self._idle_seconds))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._woken.wait()

    async def _look(self) -> None:
        """Keep a job going for every run that has work, and pass on what is newly wanted."""
        if not self._context.home.is_dir():
            log.error("home.gone", extra={"home": str(self._context.home)})
            self.stop()
            return
        try:
            await self._context.queue_thread.run(self._look_at_work)
            if self._last_pass.has_moved:
                self._woken.set()
            working = await self._working()
            trials, host = self._context.trials, self._context.host
            self._bench.see_to(await self._context.read(trials.find, "work", host))
        except Exception as problem:  # the store is away for a while: the next look tries again
            if str(problem) != self._blind_for:
                self._blind_for = str(problem)
                log.error("supervisor.blind", extra={"reason": str(problem)})
            self._is_busy = True
            return
        self._blind_for = ""
        if self._telling is None or self._telling.done():
            notices = self._notices.send_due
            self._telling = self._do_beside(self._context.notice_thread, notices, "notice.failed")
        seen = {run.id: (run.wanted, run.mode_wanted, run.prompts) for run in working}
        for run in working:
            if self._seen.get(run.id, seen[run.id]) != seen[run.id]:
                self._context.nudge_of(run.id).set()
            self._jobs.ensure(run)
        self._seen = seen
        # Once it drains, what is made of tasks is left to the next one.
        is_directing = self._last_pass.is_busy and not self._queue.is_draining
        is_working = bool(working or self._jobs.is_any or self._bench.is_busy)
        self._is_busy = is_working or is_directing or self._last_queue_pass.is_busy
        if self._queue.is_draining and not self._is_busy:
            self._is_stopping = True

    def _look_at_work(self) -> None:
        """Hear what came of the tasks, bring further what is made of them, and start what that wants."""
        for _ in range(MOST_ROUNDS):
            self._last_queue_pass = self._queue.look()
            self._last_pass = self._reconcilers.look()
            if not self._last_pass.has_moved:
                return

    async def _checkpoint_if_quiet(self) -> None:
        """Leave nothing in the store's log of changes while nobody writes: there it is easily damaged."""
        try:
            stamp = self._context.store.stamp() if not self._context.is_sharing else self._checkpointed
        except FleetError:  # the look has said so
            return
        is_quiet, self._stamp = stamp == self._stamp or not self._is_busy, stamp
        if is_quiet and stamp != self._checkpointed:
            await self._checkpoint()

    async def _checkpoint(self) -> None:
        try:
            await self._context.queue_thread.run(self._context.store.checkpoint)
            self._checkpointed = self._stamp = self._context.store.stamp()
        except FleetError as problem:
            log.error("store.not_at_rest", extra={"reason": problem.message})

    async def _say_goodbye(self) -> None:
        """Let other hosts know that this one is not dead, if it leaves nothing behind that must go on."""
        for task in self._sharing:
            task.cancel()
        await asyncio.gather(*self._sharing, return_exceptions=True)
        if not self._context.is_sharing:
            return

        def leave() -> None:
            if not self._queue.holds_any():
                self._beats.leave()

        try:
            await self._context.beat_thread.run(leave)
        except FleetError as problem:  # the database is away: then others take us for dead, at worst
            log.warning("goodbye.failed", extra={"reason": problem.message})

    async def _keep_beating(self) -> None:
        """Say that this host lives, and take over from those that do not."""
        store, host = self._context.store, self._context.host

        def beat() -> bool:
            self._beats.beat()
            taken = [take_from(store, dead, host) for dead in self._beats.dead()]
            return any(taken)

        while True:
            try:
                if await self._context.beat_thread.run(beat):
                    self._woken.set()
            except Exception as problem:  # the database is away: others may take us for dead, and we go on
                log.error("heartbeat.failed", extra={"reason": str(problem)})
            await asyncio.sleep(self._context.lease_seconds / 4)

    async def _keep_listening(self, wishes: Callable[[], AsyncIterator[str]]) -> None:
        """Look at once when another host records a wish; the slow poll is only the safety net."""
        prefixes = wish_prefixes()
        async for written in wishes():
            if not written or written.startswith(prefixes):
                self._woken.set()

    def _do_beside(self, thread: Threads, function: Callable[[], None], event: str) -> asyncio.Future[None]:
        """Do something beside everything else: what takes its time holds nothing up."""

        def log_problem(job: asyncio.Future[None]) -> None:
            if not job.cancelled() and (problem := job.exception()):
                log.error(event, extra={"reason": str(problem)})

        job = asyncio.ensure_future(thread.run(function))
        job.add_done_callback(log_problem)
        return job

    async def _leave(self) -> None:
        """Close the FIFO and stop, unless a wish came in meanwhile: no wish falls between two supervisors."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._fifo)
        os.close(self._fifo)
        # From here on a wake-up finds nobody and starts a new supervisor, which waits for our lock.
        await self._look()
        if self._is_busy:
            self._fifo = self._link.open()
            loop.add_reader(self._fifo, self._hear)
        else:
            self._is_stopping = True


def wish_prefixes() -> tuple[str, ...]:
    """Prefixes of the records that may be wishes of other hosts, those of every kind of work included."""
    return (*WISHES, *(f"{kind.name}/" for kind in kinds()))
