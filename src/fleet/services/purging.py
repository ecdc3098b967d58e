"""Delete what fleet has made in its home, once nobody's work is in it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from fleet.config.files import read_file, user_file
from fleet.config.loading import check_text
from fleet.domain.ids import RunId
from fleet.errors import BadConfig, Conflict, Failed, FleetError, Next, Refused, Shell
from fleet.ports.workspace import Place
from fleet.services.fleet import Fleet

_RUN = "[0-9a-z]" * 14
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")

# All that fleet makes in a home, besides its settings; a test compares it with a home that was used. Of
# folders it says what is in them: somebody else may have the same home, and one of these names in it.
MADE = (
    *("fleet.db", "fleet.db-wal", "fleet.db-shm", "fleet.db-generation"),
    *("fleet.db.damaged-*", "fleet.db.repair*", "fleet.db.salvaging*"),
    *("engine.db", "engine.db-wal", "engine.db-shm", "engine.draft*", "engine.broken-*"),  # of an older fleet
    *("install.lock", "install/placements.json", "install/before/" + "[0-9a-f]" * 64),
    *("mcp-token", ".mcp-token.*.*", ".config.toml.*.*"),
    "cache/vitals.json*",
    "inputs/t-*",
    "last-good/" + "[0-9a-f]" * 8 + ".toml",
    "leftovers/" + "[0-9a-f]" * 32,
    *("logs/supervisor.log*", "logs/crash-*.txt"),
    f"runs/{_RUN}",
    *("shim/shim-*.sh", "shim/.writing-*"),
    *("supervisor/home-id", "supervisor/*.lock", "supervisor/*.fifo"),
    *("tasks/*/artifacts", "tasks/*/task.json"),
    "trials/[mrw]-*",
    *(
        f"workspaces/*/.trash/{_RUN}",
        f"workspaces/*/.trash/{_RUN}.done",
        f"workspaces/*/.trash/{_RUN}.moving",
    ),
    # The repositories have these, too: they were asked.
    *(f"workspaces/*/.kept/{_RUN}/saved", f"workspaces/*/.kept/{_RUN}/objects"),
    "workspaces/*/.filters/*",
    f"boundary/{_RUN}-*",
)


def require_purgeable(fleet: Fleet) -> None:
    """Raise `Conflict` while work is there, `Refused` for a folder that cannot be fleet's own."""
    home = fleet.home.resolve()
    if home in (Path.home().resolve(), Path(home.anchor)) or (home / ".git").exists():
        raise Refused(f"{home} is more than fleet's home", hint="delete by hand what is fleet's in it")
    places = (home / "workspaces").glob("*/*")
    left = [str(place) for place in places if place.name not in (".trash", ".kept", ".filters")]
    if (home / "fleet.db").exists():  # else its records are elsewhere, and stay
        left += [run.branch for run in fleet.runs.list() if run.has_workspace or run.has_work]
    if left:
        hint = (Shell("fleet kill '*'"), " in their repositories saves their work there, and removes them")
        raise Conflict(f"agents have workspaces there: {left[0]}, say", hint=hint)
    kept = sorted((home / "workspaces").glob("*/.kept/*"))  # see docs/howto/workspaces.md
    beside = (path for folder in kept for path in sorted(folder.glob("*")))
    beside = (path for path in beside if path.name not in ("saved", "objects"))
    if set_aside := [path for path in beside if not path.is_dir() or any(path.iterdir())]:
        hint = "move them to where you want them, or delete them"
        raise Conflict(f"files of agents that no repository holds are there: {set_aside[0]}, say", hint=hint)
    for folder in kept:
        if os.path.lexists(folder / "saved") or any((folder / "objects").glob("pack/*.pack")):
            _require_second_copy(fleet, folder)


def _require_second_copy(fleet: Fleet, folder: Path) -> None:
    """Raise `Conflict` unless the repository of a removed run has the snapshot that `.kept` has."""
    run = fleet.runs.peek(RunId(folder.name))
    if run is None:
        raise Conflict(
            f"the last copy of the work of run {folder.name} may be {folder}: there is no record of the run",
            hint=f"delete {folder} yourself, if nobody needs it",
        )
    saved = ""
    with contextlib.suppress(OSError):
        saved = (folder / "saved").read_text(errors="replace").strip()
    try:
        fleet.repositories.require_snapshot(Place.of(run), saved if _SHA.fullmatch(saved) else "")
    except FleetError as problem:
        raise Conflict(
            f"the last copy of the work of run {run.id} ({run.branch}) is {folder}: {problem.message}",
            hint=(Next("run.undo", run=run.branch), f" brings it back; or delete {folder} yourself"),
        ) from problem


def purge(home: Path) -> Sequence[Path]:
    """Delete what fleet has made in a home, and the home if nothing else is in it; return what is left."""
    try:
        for pattern in MADE:
            for path in [*home.glob(pattern)]:
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
        settings = user_file(home)
        with contextlib.suppress(BadConfig):  # a file of that common name that is not fleet's
            check_text(str(settings), read_file(settings) or "")
            settings.unlink(missing_ok=True)
    except OSError as problem:
        raise Failed(f"{problem.filename} cannot be deleted: {problem.strerror}") from problem
    # Then the folders that fleet's things were in, and the home, from the inside out.
    made = {str(folder) for pattern in (*MADE, "workspaces/*/*") for folder in Path(pattern).parents}
    folders = {folder for pattern in made - {"."} for folder in home.glob(pattern)}
    for folder in (*sorted(folders, reverse=True), home):
        with contextlib.suppress(OSError):  # there is something left, or it is a link
            folder.rmdir()
    return sorted(home.iterdir()) if home.is_dir() else []
