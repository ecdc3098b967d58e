"""The tests' own safety net: a test that leaves processes behind fails."""

from __future__ import annotations

import subprocess

import pytest

from tests.support import System, processes_with, wait_for


def test_a_process_that_outlives_its_home_is_ended_and_fails_the_test(system: System) -> None:
    with subprocess.Popen(["sleep", "600"], env=system.environment) as process:
        # The system shows what a process was given a moment after it has begun.
        wait_for(lambda: process.pid in processes_with(f"FLEET_HOME={system.home}\0"))
        with pytest.raises(AssertionError, match="sleep 600"):
            system.require_silence(seconds=0.1)
        assert process.wait(timeout=10) == -9


def test_processes_of_other_homes_are_nobody_s_business(system: System) -> None:
    environment = system.environment | {"FLEET_HOME": f"{system.home}-too"}
    with subprocess.Popen(["sleep", "600"], env=environment) as process:
        system.require_silence(seconds=0.1)
        process.kill()
