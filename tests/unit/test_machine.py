"""Which programs are installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.services.machine import is_installed


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path / 'missing'}:{tmp_path}")
    return tmp_path


def make(path: Path, mode: int = 0o755) -> Path:
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def test_a_program_is_found_by_name_and_by_path(folder: Path) -> None:
    path = make(folder / "agent")
    assert is_installed("agent")
    assert is_installed(str(path))


def test_what_cannot_be_run_is_not_installed(folder: Path) -> None:
    make(folder / "notes", mode=0o644)
    (folder / "directory").mkdir()
    for name in ("notes", "directory", "nothing", str(folder / "nothing"), str(folder)):
        assert not is_installed(name), name


def test_a_path_is_not_looked_for_elsewhere(folder: Path) -> None:
    make(folder / "agent")
    assert not is_installed("bin/agent")
