"""The supervisor as a program: `python -m fleet.interfaces.supervise [--background ASKED_AT]`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from pathlib import Path

from fleet.engine import cgroups
from fleet.engine.supervisor_link import HomeSupervisorLink, supervisor_environment
from fleet.errors import Conflict, FleetError
from fleet.version import __version__

# Its threads mostly wait for git and the disk. With Python's own 5 ms, one that reckons would keep each
# of the others waiting for so long after that.
SWITCH_SECONDS = 0.0005


def main(home: Path, *, is_background: bool, asked_at: float = 0.0) -> int:
    """Serve until stopped; return the exit code. Agents run on."""
    from fleet import bootstrap

    sys.setswitchinterval(SWITCH_SECONDS)
    for number in (signal.SIGINT, signal.SIGTERM):  # until it serves: to stop it is to end it
        signal.signal(number, lambda _, __: os._exit(0))
    os.environ.clear()
    os.environ.update(supervisor_environment(_environment, home))
    link = bootstrap.supervisor_link_of(home)
    _set_up_logging(link, is_background)
    try:
        link.take(is_background=is_background, version=__version__, asked_at=asked_at)
    except Conflict as conflict:
        if is_background:
            return 0  # another one was faster, and it will see the wish; or nobody wants one any more
        print(f"error: {conflict.message}\nhint: {conflict.hint}", file=sys.stderr)
        return conflict.exit_code
    cgroups.leave()
    fifo = link.open()  # before anything slow is loaded: from now on wake-ups are received
    try:
        asyncio.new_event_loop().run_until_complete(_serve(home, fifo, is_background))
    except FleetError as error:
        logging.getLogger(__name__).error("supervisor.failed", extra={"reason": error.message})
        print(f"error: {error.message}\nhint: {error.hint}", file=sys.stderr)
        return error.exit_code
    return 0


_environment = dict(os.environ)


async def _serve(home: Path, fifo: int, is_background: bool) -> None:
    from fleet import bootstrap

    supervisor = bootstrap.make_supervisor(home, fifo, stops_when_idle=is_background)
    loop = asyncio.get_running_loop()
    has_heard = False

    def interrupt() -> None:
        """Ctrl-C once drains, twice leaves at once. Agents are ended by neither."""
        nonlocal has_heard
        if has_heard:
            print("leaving; agents run on, and `fleet run` goes on with them", file=sys.stderr)
            supervisor.stop()
            return
        has_heard = True
        print("draining: no task is started any more; Ctrl-C again leaves at once", file=sys.stderr)
        supervisor.drain()

    loop.add_signal_handler(signal.SIGTERM, supervisor.stop)
    loop.add_signal_handler(signal.SIGINT, supervisor.stop if is_background else interrupt)
    if is_background:
        loop.add_signal_handler(signal.SIGHUP, lambda: None)
    else:
        print(f"supervisor of {home} is up; Ctrl-C lets what is under way end and stops it", file=sys.stderr)
    await supervisor.serve()


class _JsonLines(logging.Formatter):
    """One JSON object a line: time, level, event, and what came with it."""

    _STANDARD = frozenset(vars(logging.makeLogRecord({})))

    def format(self, record: logging.LogRecord) -> str:
        extra = {name: value for name, value in vars(record).items() if name not in self._STANDARD}
        line = {"at": round(time.time(), 3), "level": record.levelname, "event": record.getMessage(), **extra}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _set_up_logging(link: HomeSupervisorLink, is_background: bool) -> None:
    """Log to the home's log, which stderr is in the background; else a person sees there what is wrong."""
    handlers = [logging.StreamHandler(sys.stderr)]
    if not is_background:
        handlers[0].setLevel(logging.WARNING)
        handlers.append(logging.StreamHandler(os.fdopen(link.open_log(), "a")))
    for handler in handlers:
        handler.setFormatter(_JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=handlers)


def run() -> None:
    home = Path(os.environ["FLEET_HOME"])
    is_background = "--background" in sys.argv
    code = main(home, is_background=is_background, asked_at=float(sys.argv[-1]) if is_background else 0.0)
    logging.shutdown()
    # Crash-only: no orderly end that would cancel jobs, which the next supervisor goes on with.
    os._exit(code)


if __name__ == "__main__":
    run()
