from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support import System, make_repository

# The same examples each time, however busy the machine: what fails here fails for everybody.
settings.register_profile("seeded", derandomize=True, deadline=None)
settings.load_profile("seeded")

# A shell that starts the tests in the background has them ignore Ctrl-C, and so would all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repository")


@pytest.fixture
def system(tmp_path: Path, repository: Path) -> Iterator[System]:
    """A home and a repository of their own; nothing of them outlives the test."""
    system = System(tmp_path / "home", repository)
    (tmp_path / "home" / "config.toml").write_text("[stop]\ngrace_seconds = 2\n")
    yield system
    system.close()
