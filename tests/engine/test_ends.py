"""Every run ends, whatever is taken away from under it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from fleet.domain.run import Run, RunState
from tests.support import System, git, processes_with, scenario, wait_for


def define_coder(system: System, name: str, script: str) -> None:
    path = system.home.parent / f"{name}.sh"
    path.write_text(script)
    with (system.home / "config.toml").open("a") as config:
        config.write(f'[coders.{name}]\ncommand = ["sh", "{path}"]\nprompt = "stdin"\noutput = "text"\n')


def test_an_agent_that_leaves_a_writer_on_its_output_is_settled(system: System) -> None:
    define_coder(system, "leaky", "(while :; do echo still here; sleep 0.01; done) & exit 0\n")
    system.fleet("create", "work", "-a", "leaky", "-p", "go", "--wait", seconds=40)
    run = system.run("work")
    assert run.state is RunState.COMPLETED_NO_CHANGES
    assert not processes_with(f"FLEET_RUN={run.id}")


def test_a_flood_that_outruns_its_reader_is_stopped_at_the_limit(system: System) -> None:
    with (system.home / "config.toml").open("a") as config:
        config.write("[limits]\nmax_output_mb = 100\n")
    flood = """yes $(printf '%4000s' '' | tr ' ' y) &
        until [ "$(wc -c < "$FLEET_RUN_DIR/turn-1/out")" -gt 110000000 ]; do :; done
        exit 0
    """
    define_coder(system, "flood", flood)
    system.fleet("create", "work", "-a", "flood", "-p", "go", "--wait", code=1, seconds=60)
    assert "max_output_mb" in system.run("work").state_reason
    assert not processes_with(f"FLEET_RUN={system.run('work').id}")


def test_a_repository_that_is_moved_away_ends_the_run_with_a_reason(system: System, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    system.fleet("create", "work", "-p", scenario({"say": "ready"}, {"wait_for": str(gate)}))
    system.wait_until("work", lambda run: run.said == "ready")
    system.repository.rename(tmp_path / "elsewhere")
    gate.touch()
    ended = system.wait_until("work", lambda run: run.has_ended)
    (tmp_path / "elsewhere").rename(system.repository)
    assert ended.state is RunState.FAILED
    assert "git" in ended.state_reason


def test_a_coder_that_is_taken_out_of_the_configuration_can_still_be_killed(system: System) -> None:
    before = (system.home / "config.toml").read_text()
    define_coder(system, "mine", "sleep 300\n")
    system.fleet("create", "work", "-a", "mine", "-p", "go")
    system.wait_until("work", lambda run: run.state is RunState.RUNNING)
    (system.home / "config.toml").write_text(before)
    os.kill(system.supervisor_pid(), signal.SIGKILL)
    system.fleet("kill", "work", "--force")
    run = system.run("work")
    assert run.is_removed
    # Failed, if the next supervisor looked for the coder before the kill was recorded.
    assert run.state in (RunState.KILLED, RunState.FAILED)
    assert not processes_with(f"FLEET_RUN={run.id}")


def test_an_agent_that_cannot_be_attached_to_anew_is_ended_with_its_run(system: System) -> None:
    before = (system.home / "config.toml").read_text()
    define_coder(system, "mine", "sleep 300\n")
    system.fleet("create", "work", "-a", "mine", "-p", "go")
    run = system.wait_until("work", lambda run: run.state is RunState.RUNNING)
    (system.home / "config.toml").write_text(before)
    system.kill_supervisor()
    system.fleet("wait", "work", code=1)
    ended = system.run("work")
    assert ended.state is RunState.FAILED
    assert "no coder 'mine'" in ended.state_reason
    assert not processes_with(f"FLEET_RUN={run.id}")


def test_a_kill_after_a_crash_while_the_workspace_is_made_leaves_nothing(system: System) -> None:
    system.fleet("run", "--background")
    pid = system.supervisor_pid()
    for number in range(4):
        branch = f"work-{number}"
        system.fleet("create", branch, "-p", scenario({"sleep": 300}))
        wait_for(lambda branch=branch: system.run(branch).state is not RunState.QUEUED, what="it is taken up")
        os.kill(pid, signal.SIGKILL)
        system.fleet("kill", branch, "--force", "--delete-branch")
        pid = system.supervisor_pid()
        assert not _traces(system, system.run(branch))
        assert branch not in git(system.repository, "branch", "--format=%(refname:short)").splitlines()


def _traces(system: System, run: Run) -> list[Path]:
    folders = system.home.glob(f"workspaces/*/*{run.id}*")
    entries = (system.repository / ".git" / "worktrees").glob(f"*{run.id}*")
    return [*folders, *entries]


def test_a_failed_setup_starts_no_agent_even_when_its_settling_is_cut_off(
    system: System, tmp_path: Path
) -> None:
    (system.repository / ".fleet").mkdir()
    (system.repository / ".fleet" / "config.toml").write_text('[setup]\ncommands = ["exit 9"]\n')
    starts = tmp_path / "starts"
    for number in range(3):
        system.fleet("create", f"work-{number}", "-p", scenario({"touch": str(starts)}))
        wait_for(
            lambda number=number: system.run(f"work-{number}").state in (RunState.SETTLING, RunState.FAILED),
            what="the setup has failed",
        )
        system.kill_supervisor()
        system.fleet("wait", f"work-{number}", code=1)
    assert not starts.exists()


def test_a_branch_that_somebody_makes_meanwhile_is_never_removed_with_the_run(system: System) -> None:
    system.fleet("run", "--background")
    system.suspend_supervisor()  # the wish is recorded while the branch is free …
    system.fleet("create", "theirs", "-p", scenario({"say": "x"}))
    git(system.repository, "branch", "theirs")
    os.kill(system.supervisor_pid(), signal.SIGCONT)  # … and carried out when it no longer is
    system.fleet("wait", "theirs", code=1)
    assert "exists" in system.run("theirs").state_reason
    system.fleet("kill", "theirs", "--force", "--delete-branch")
    assert git(system.repository, "rev-parse", "--verify", "theirs")
