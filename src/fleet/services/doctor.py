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
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from fleet.config import Settings, without_password
from fleet.domain.run import Run
from fleet.errors import DiskFull, FleetError
from fleet.ports.coder import Facts
from fleet.records.runs import Runs
from fleet.services.deps import Deps
from fleet.services.disk import free_megabytes, require_room
from fleet.services.programs import login_steps

OLDEST_GIT = (2, 31)
PROBE_SECONDS = 10.0


class Verdict(StrEnum):
    OK = "ok"
    WARN = "warn"  # something will be missed, though not by everybody
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    name: str
    verdict: Verdict
    found: str
    fix: str = ""
    is_needed: bool = False  # nothing works without it

    @property
    def is_broken(self) -> bool:
        return self.is_needed and self.verdict is Verdict.FAIL


class Doctor:
    """Health checks. They read the settings strictly: a broken file is a finding."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    def _coders(self) -> list[Facts]:
        return [self._deps.coder(name).facts for name in self._deps.coder_names()]

    def examine(self) -> list[Check]:
        """Look at everything; programs are asked for their versions at the same time."""
        config, settings = self._check_config()
        try:
            coders = self._coders()
        except FleetError:
            coders = []  # their table is in the configuration that cannot be read
        with ThreadPoolExecutor(8) as pool:
            git, tmux = pool.submit(check_git), pool.submit(check_tmux)
            asked = [pool.submit(check_coder, facts, settings) for facts in coders]
            return [
                Check(
                    name="python", verdict=Verdict.OK, found=f"{sys.version.split()[0]} ({sys.executable})"
                ),
                git.result(),
                tmux.result(),
                config,
                self._check_disk(settings),
                check_home(self._deps.home),
                *self._check_store(settings),
                self._check_supervisor(),
                *(check.result() for check in asked),
            ]

    def git(self) -> Found:
        return Found(*_probe("git", ("--version",)), login="")

    def coders(self) -> list[tuple[Facts, Found]]:
        """Return every coder, and what there is of it; all are asked at the same time."""
        known = self._coders()
        with ThreadPoolExecutor(8) as pool:
            return list(zip(known, pool.map(look_for, known), strict=True))

    def login_steps(self, coders: Iterable[tuple[Facts, Found]]) -> list[str]:
        """Return how to log in with those that are installed and are not logged in."""
        missing = (facts for facts, found in coders if found.path and found.login is None)
        return [f"{facts.name} is not logged in: {login_steps(facts)}" for facts in missing]

    def _check_config(self) -> tuple[Check, Settings | None]:
        try:
            settings = self._deps.strict_settings
        except FleetError as error:
            return _failed("config", error), None
        return Check(name="config", verdict=Verdict.OK, found="can be read", is_needed=True), settings

    def _check_disk(self, settings: Settings | None) -> Check:
        wanted = settings.min_free_mb if settings else 0
        try:
            require_room(self._deps.home, wanted)
        except DiskFull as full:
            return _failed("disk", full)
        found = f"{free_megabytes(self._deps.home)} MB free"
        if settings:
            found += f", {wanted} MB must stay free"
        return Check(name="disk", verdict=Verdict.OK, found=found, is_needed=True)

    def _check_store(self, settings: Settings | None) -> list[Check]:
        database = without_password(settings.database_url) if settings else ""
        if not database and not (self._deps.home / "fleet.db").exists():
            return [Check(name="store", verdict=Verdict.OK, found="not made yet", is_needed=True)]
        try:
            runs = Runs(self._deps.store).find()
        except FleetError as error:
            return [_failed("store", error)]
        found = f"{database or 'fleet.db'} opens, {len(runs)} runs"
        opens = Check(name="store", verdict=Verdict.OK, found=found, is_needed=True)
        return [opens, *_check_workspaces(self._deps.home, runs)]

    def _check_supervisor(self) -> Check:
        holder = self._deps.link.holder()
        if holder is None:
            return Check(name="supervisor", verdict=Verdict.OK, found="not up; the first agent starts it")
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder.since))
        return Check(
            name="supervisor",
            verdict=Verdict.OK,
            found=f"up since {since} (pid {holder.pid}), with the environment variables of then",
            fix="after changing keys or PATH run `fleet run --stop`; agents run on",
        )


def _failed(name: str, error: FleetError) -> Check:
    return Check(name=name, verdict=Verdict.FAIL, found=error.message, fix=error.hint, is_needed=True)


def _check_workspaces(home: Path, runs: Sequence[Run]) -> list[Check]:
    unowned = unowned_workspaces(home, runs)
    if not unowned:
        return []
    return [
        Check(
            name="workspaces",
            verdict=Verdict.WARN,
            found=f"{len(unowned)} on disk belong to no run",
            fix="run `fleet list --repair`",
        )
    ]


def unowned_workspaces(home: Path, runs: Iterable[Run]) -> list[Path]:
    """Return the workspace folders of a home that no run knows of."""
    owned = {os.path.realpath(run.workspace) for run in runs if run.workspace}
    return sorted(
        folder
        for folder in (home / "workspaces").glob("*/*")
        if folder.is_dir() and os.path.realpath(folder) not in owned and (folder / ".git").exists()
    )


def check_git() -> Check:
    path, version = _probe("git", ("--version",))
    if not path:
        return Check(
            name="git",
            verdict=Verdict.FAIL,
            found="not on PATH",
            fix="install it, for example with `apt-get install git`",
            is_needed=True,
        )
    numbers = re.search(r"(\d+)\.(\d+)", version)
    is_new = numbers is not None and (int(numbers[1]), int(numbers[2])) >= OLDEST_GIT
    oldest = ".".join(map(str, OLDEST_GIT))
    return Check(
        name="git",
        verdict=Verdict.OK if is_new else Verdict.FAIL,
        found=f"{version} ({path})",
        fix="" if is_new else f"fleet needs git {oldest} or newer",
        is_needed=True,
    )


def check_tmux() -> Check:
    path, version = _probe("tmux", ("-V",))
    if not path:
        return Check(
            name="tmux",
            verdict=Verdict.WARN,
            found="not on PATH; agents run headless",
            fix="to attach to agents, install it, for example with `apt-get install tmux`",
        )
    return Check(name="tmux", verdict=Verdict.OK, found=f"{version} ({path})")


class Found(NamedTuple):
    """What there is of a coder on this machine."""

    path: str  # "": it is not installed
    version: str
    login: str | None  # how it is logged in; "": it needs no login; None: it is not


def look_for(facts: Facts) -> Found:
    path, version = _probe(facts.binary, facts.version_argv)
    return Found(path, version, _login(facts))


def check_coder(facts: Facts, settings: Settings | None) -> Check:
    name = f"coder {facts.name}"
    default = " (the default coder)" if settings and settings.coder_default == facts.name else ""
    path, version, login = look_for(facts)
    if not path:
        fix = f"install it with `{facts.install}`" if facts.install else ""
        return Check(
            name=name, verdict=Verdict.WARN, found=f"{facts.binary!r} is not on PATH{default}", fix=fix
        )
    if login is None:
        found = f"{version} ({path}), no login found{default}"
        return Check(name=name, verdict=Verdict.WARN, found=found, fix=login_steps(facts))
    return Check(name=name, verdict=Verdict.OK, found=f"{version} ({path}){login}{default}")


def _login(facts: Facts) -> str | None:
    """Tell how the CLI is logged in; "" where it needs no login, None where there is none."""
    if not facts.login_variables and not facts.login_files:
        return ""
    for variable in facts.login_variables:
        if os.environ.get(variable):
            return f", logged in by {variable}"
    for file in facts.login_files:
        path = Path(os.path.expandvars(file)).expanduser()
        if path.exists():
            return f", logged in by {path}"
    return None


def _probe(binary: str, argv: Sequence[str]) -> tuple[str, str]:
    """Return a program's path and the first line it says of its version; "" for a path: not found."""
    path = shutil.which(binary)
    if path is None:
        return "", ""
    try:
        return path, _version_of(path, Path(path).stat().st_mtime, tuple(argv))
    except subprocess.TimeoutExpired:
        return path, f"gave no version within {PROBE_SECONDS:.0f} s"
    except OSError as error:
        return path, f"cannot be started: {error.strerror}"


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


def check_home(home: Path) -> Check:
    if not home.exists():
        return Check(name="home", verdict=Verdict.OK, found=f"{home}, not made yet")
    if not os.access(home, os.W_OK | os.X_OK):
        return Check(
            name="home",
            verdict=Verdict.FAIL,
            found=f"{home} cannot be written to",
            fix=f"run `chown -R $USER {home}`, or set FLEET_HOME",
            is_needed=True,
        )
    if home.stat().st_mode & 0o077:
        return Check(
            name="home",
            verdict=Verdict.WARN,
            found=f"{home} is open to others",
            fix=f"run `chmod 700 {home}`",
        )
    return Check(name="home", verdict=Verdict.OK, found=str(home))
