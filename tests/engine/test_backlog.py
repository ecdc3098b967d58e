"""A backlog with faults of all kinds is worked through, each result accepted once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.backlog import Backlog


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_backlog_with_faults_ends_as_it_should(tmp_path: Path) -> None:
    backlog = Backlog(folder=tmp_path / "backlog", size=24, seed=3, repositories=3, kill_every_seconds=2)
    try:
        backlog.wish_all()
        backlog.work(patience_seconds=180)
        backlog.check()
    finally:
        backlog.close()
