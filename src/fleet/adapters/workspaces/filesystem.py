"""What the disk under the workspaces can hold, found by trying; not what a repository's settings claim."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# Settings by which git would overlook a change, whoever has made them.
_ALWAYS = (
    *("-c", "core.untrackedCache=false"),
    *("-c", "core.checkStat=default"),
    *("-c", "core.trustctime=true"),
    *(() if sys.platform == "darwin" else ("-c", "core.precomposeUnicode=false")),
)
_known: dict[int, tuple[str, ...]] = {}  # by device


def faithful(folder: Path) -> tuple[str, ...]:
    """Return options that make git see every file, mode and link which the disk under a folder can hold."""
    try:
        device = folder.stat().st_dev
    except OSError:
        return _options(has_case=True, has_modes=True, has_links=True)
    if device not in _known:
        _known[device] = _try_out(folder)
    return _known[device]


def _options(*, has_case: bool, has_modes: bool, has_links: bool) -> tuple[str, ...]:
    settings = {"ignoreCase": not has_case, "fileMode": has_modes, "symlinks": has_links}
    return (
        *_ALWAYS,
        *(word for name, value in settings.items() for word in ("-c", f"core.{name}={str(value).lower()}")),
    )


def _try_out(folder: Path) -> tuple[str, ...]:
    name = f".fleet-probe-{os.urandom(4).hex()}"
    probe, link = folder / name, folder / f"{name}-link"
    try:
        probe.touch(mode=0o600)
        was_executable = probe.stat().st_mode & 0o100
        probe.chmod(0o700)
        has_modes = not was_executable and bool(probe.stat().st_mode & 0o100)
        has_case = not os.path.lexists(folder / name.upper())
        try:
            link.symlink_to(name)
            has_links = link.is_symlink()
        except OSError:
            has_links = False
    except OSError:  # full, or read-only: nothing is known, so leave out nothing
        return _options(has_case=True, has_modes=True, has_links=True)
    finally:
        for path in (probe, link):
            path.unlink(missing_ok=True)
    return _options(has_case=has_case, has_modes=has_modes, has_links=has_links)
