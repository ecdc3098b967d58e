"""Check that everything agents need is in place. Each check is data; an interface shows it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from fleet.config.settings import Settings, without_password
from fleet.domain.run import Run
from fleet.errors import DiskFull, FleetError
from fleet.ports.coder import Facts
from fleet.records.runs import Runs
from fleet.services.fleet import Fleet
from fleet.services.machine import free_megabytes, login_steps, require_room

OLDEST_GIT = (2, 31)
PROBE_SECONDS = 10.0


class Verdict(StrEnum):
    OK = "ok"
    WARN = "warn"  # something will be missed, though not by everybody
    FAIL = "fail"


class Check(NamedTuple):
    name: str
    verdict: Verdict
    found: str
    fix: str = ""
    is_needed: bool = False  # nothing works without it


class Found(NamedTuple):
    """What there is of a program on this machine."""

    path: str  # "": it is not installed
    version: str
    login: str | None = ""  # how a coder is logged in; "": it needs no login; None: it is not


class Doctor:
    """Health checks. They read the settings strictly: a broken file is a finding."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def examine(self) -> list[Check]:
        try:
            settings = self._fleet.strict_settings
            config = Check("config", Verdict.OK, "can be read", is_needed=True)
        except FleetError as error:
            settings, config = None, _failed("config", error)
        try:
            coders = self.coders()
        except FleetError:
            coders = []  # their table is in the configuration that cannot be read
        return [
            Check("python", Verdict.OK, f"{sys.version.split()[0]} ({sys.executable})"),
            _check_git(),
            _check_tmux(),
            config,
            self._check_disk(settings),
            _check_home(self._fleet.home),
            *self._check_store(settings),
            self._check_supervisor(),
            *(_check_coder(facts, found, settings) for facts, found in coders),
        ]

    def git(self) -> Found:
        return _probe("git", ("--version",))

    def coders(self) -> list[tuple[Facts, Found]]:
        """Return every coder, and what there is of it; all are asked at the same time."""
        known = [self._fleet.coder(name).facts for name in self._fleet.coder_names()]
        with ThreadPoolExecutor(8) as pool:
            return list(zip(known, pool.map(_look_for, known), strict=True))

    def _check_disk(self, settings: Settings | None) -> Check:
        wanted = settings.limits_min_free_mb if settings else 0
        try:
            require_room(self._fleet.home, wanted)
        except DiskFull as full:
            return _failed("disk", full)
        found = f"{free_megabytes(self._fleet.home)} MB free"
        if settings:
            found += f", {wanted} MB must stay free"
        return Check("disk", Verdict.OK, found, is_needed=True)

    def _check_store(self, settings: Settings | None) -> list[Check]:
        home = self._fleet.home
        database = without_password(settings.database_url) if settings else ""
        if not database and not (home / "fleet.db").exists():
            return [Check("store", Verdict.OK, "not made yet", is_needed=True)]
        try:
            runs = Runs(self._fleet.store).find()
        except FleetError as error:
            return [_failed("store", error)]
        found = f"{database or 'fleet.db'} opens, {len(runs)} runs"
        checks = [Check("store", Verdict.OK, found, is_needed=True)]
        if unowned := unowned_workspaces(home, runs):
            found = f"{len(unowned)} on disk belong to no run"
            checks.append(Check("workspaces", Verdict.WARN, found, "run `fleet list --repair`"))
        return checks

    def _check_supervisor(self) -> Check:
        holder = self._fleet.link.holder()
        if holder is None:
            return Check("supervisor", Verdict.OK, "not up; the first agent starts it")
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder.since))
        return Check(
            "supervisor",
            Verdict.OK,
            f"up since {since} (pid {holder.pid}), with the environment variables of then",
            "after changing keys or PATH run `fleet run --stop`; agents run on",
        )


def _failed(name: str, error: FleetError) -> Check:
    return Check(name, Verdict.FAIL, error.message, error.hint, is_needed=True)


def unowned_workspaces(home: Path, runs: Iterable[Run]) -> list[Path]:
    """Return the workspace folders of a home that no run knows of."""
    owned = {os.path.realpath(run.workspace) for run in runs if run.workspace}
    return sorted(
        folder
        for folder in (home / "workspaces").glob("*/*")
        if folder.is_dir() and os.path.realpath(folder) not in owned and (folder / ".git").exists()
    )


def _check_git() -> Check:
    path, version, _ = _probe("git", ("--version",))
    if not path:
        fix = "install it, for example with `apt-get install git`"
        return Check("git", Verdict.FAIL, "not on PATH", fix, is_needed=True)
    found = f"{version} ({path})"
    numbers = re.search(r"(\d+)\.(\d+)", version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < OLDEST_GIT:
        fix = f"fleet needs git {'.'.join(map(str, OLDEST_GIT))} or newer"
        return Check("git", Verdict.FAIL, found, fix, is_needed=True)
    return Check("git", Verdict.OK, found, is_needed=True)


def _check_tmux() -> Check:
    path, version, _ = _probe("tmux", ("-V",))
    if not path:
        fix = "to attach to agents, install it, for example with `apt-get install tmux`"
        return Check("tmux", Verdict.WARN, "not on PATH; agents run headless", fix)
    return Check("tmux", Verdict.OK, f"{version} ({path})")


def _check_coder(facts: Facts, there: Found, settings: Settings | None) -> Check:
    name = f"coder {facts.name}"
    default = " (the default coder)" if settings and settings.coder_default == facts.name else ""
    path, version, login = there
    if not path:
        fix = f"install it with `{facts.install}`" if facts.install else ""
        return Check(name, Verdict.WARN, f"{facts.binary!r} is not on PATH{default}", fix)
    if login is None:
        found = f"{version} ({path}), no login found{default}"
        return Check(name, Verdict.WARN, found, login_steps(facts))
    return Check(name, Verdict.OK, f"{version} ({path}){login}{default}")


def _check_home(home: Path) -> Check:
    if not home.exists():
        return Check("home", Verdict.OK, f"{home}, not made yet")
    if not os.access(home, os.W_OK | os.X_OK):
        fix = f"run `chown -R $USER {home}`, or set FLEET_HOME"
        return Check("home", Verdict.FAIL, f"{home} cannot be written to", fix, is_needed=True)
    if home.stat().st_mode & 0o077:
        return Check("home", Verdict.WARN, f"{home} is open to others", f"run `chmod 700 {home}`")
    return Check("home", Verdict.OK, str(home))


def _look_for(facts: Facts) -> Found:
    """Return what there is of a coder, and how it is logged in."""
    found = _probe(facts.binary, facts.version_argv)
    if not facts.login_variables and not facts.login_files:
        return found
    files = (Path(os.path.expandvars(file)).expanduser() for file in facts.login_files)
    signs = (
        *(variable for variable in facts.login_variables if os.environ.get(variable)),
        *(str(file) for file in files if file.exists()),
    )
    return found._replace(login=f", logged in by {signs[0]}" if signs else None)


def _probe(binary: str, argv: Sequence[str]) -> Found:
    """Return a program's path, and the first line it says of its version."""
    path = shutil.which(binary)
    if path is None:
        return Found("", "")
    try:
        return Found(path, _version_of(path, Path(path).stat().st_mtime, tuple(argv)))
    except subprocess.TimeoutExpired:
        return Found(path, f"gave no version within {PROBE_SECONDS:.0f} s")
    except OSError as error:
        return Found(path, f"cannot be started: {error.strerror}")


@lru_cache(maxsize=64)  # a server is asked again and again, and some programs take seconds to start
def _version_of(path: str, changed_at: float, argv: tuple[str, ...]) -> str:
    """Return the first line that a program says of its version; what is on stderr are warnings, mostly."""
    done = subprocess.run(
        [path, *argv],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PROBE_SECONDS,
        check=False,
        cwd="/",  # a program that ignores its arguments must not work in the user's checkout
    )
    said = (done.stdout.strip() or done.stderr.strip()).decode(errors="replace").splitlines()
    return said[0].strip() if said else "says no version"
