"""`fleet list`: what it shows, to people and to programs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.bootstrap import host_name, open_store
from fleet.domain.process import ProcessId
from fleet.domain.run import Diff, Run, RunState, Wanted, WorkspaceState
from fleet.domain.usage import Usage
from fleet.interfaces.cli import render
from fleet.interfaces.cli.live import describe
from fleet.operations.run_shapes import RunLine, RunView
from fleet.records.runs import Runs
from fleet.services.run_summaries import records_of_runs
from tests.interfaces.conftest import ended_run, on_a_terminal, record
from tests.support import System, make_repository, wait_for

VARIED = (
    ended_run("plain"),
    Run(id=ended_run("x").id, project="/p", branch="bare", coder="codex", created_at=1.0),
    ended_run("gone", workspace_state=WorkspaceState.REMOVED, wanted=Wanted.STOP, state=RunState.KILLED),
    ended_run("going", workspace_state=WorkspaceState.READY, wanted=Wanted.STOP),
    ended_run("live", state=RunState.WAITING, agent=ProcessId(pid=1, start="2", boot="b"), prompts=2),
    ended_run("free", usage=Usage(), diff=Diff(), said="", started_at=None, batch=None, model="m"),
)


def test_a_summary_says_the_same_as_the_run(tmp_path: Path) -> None:
    record(tmp_path, *VARIED)
    store = open_store(tmp_path)
    lines = {one.key: RunLine.of_record(one, None) for one in records_of_runs(store, everything=True)}
    for run in Runs(store).find():
        line, whole = lines[run.id].to_json(), RunView.of(run).to_json()
        assert line == {name: whole[name] for name in line}
    store.close()


def test_a_table_for_people_has_a_line_for_each_agent(system: System) -> None:
    record(
        system.home,
        ended_run("fix-auth"),
        ended_run("docs", state=RunState.FAILED, state_reason="out of ink"),
    )
    done = system.fleet("list")
    heading, second, first = done.stdout.splitlines()
    assert heading.split() == [
        "branch",
        "batch",
        "coder",
        "state",
        "age",
        "diff",
        "tokens",
        "cost",
        "last",
        "line",
    ]
    assert re.fullmatch(r"fix-auth +\w{8} +claude +completed +\d+s +\+12 -3 +1\.2k +\$0\.25 +all done", first)
    assert second.endswith("out of ink")
    assert "2 agents: 1 failed, 1 completed · 2.4k tokens · $0.50" in done.stderr


def test_a_table_is_shown_without_loading_whole_runs_or_who_calls(system: System) -> None:
    """Loading these takes longer than everything else that the most frequent command does."""
    record(system.home, ended_run("fix-auth"))
    script = (
        "import sys; from fleet.interfaces.cli.main import main; main(['list']);"
        "sys.exit(bool({'fleet.domain.run', 'fleet.domain.spawn', 'fleet.services.runs'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", script], env=system.environment, check=True, capture_output=True)


def test_without_agents_it_says_how_to_start_one_and_prints_nothing(system: System) -> None:
    done = system.fleet("list")
    assert done.stdout == ""
    assert "fleet create" in done.stderr


def test_removed_agents_are_shown_only_on_demand(system: System) -> None:
    record(system.home, ended_run("here"), ended_run("gone", workspace_state=WorkspaceState.REMOVED))
    assert [run["branch"] for run in system.json("list")] == ["here"]
    assert [run["branch"] for run in system.json("list", "--all")] == ["gone", "here"]


def test_the_fields_of_an_agent_in_json_are_those_of_the_documentation(system: System) -> None:
    record(system.home, ended_run("x"))
    (run,) = system.json("list")
    assert system.json("result", "x") == run
    text = (Path(__file__).parents[2] / "docs" / "commands.md").read_text().partition("## JSON")[2]
    documented = set(re.findall(r"`(\w+)`", text.partition("States:")[0]))
    spelled = set(run) | set(run["usage"]) | set(run["diff"]) | set(run["result"])
    assert spelled | {"agent", "load"} <= documented
    assert run["created_at"].endswith("Z")
    assert run["result"]["commits"] == [{"sha": "b" * 40, "subject": "Plant a rose"}]
    assert run["saved_ref"] is None


def test_here_means_the_repository_also_from_below_it_and_from_a_workspace(
    system: System, tmp_path: Path
) -> None:
    workspace = tmp_path / "workspaces" / "mine"
    (workspace / "below").mkdir(parents=True)
    (system.repository / "below").mkdir()
    own = str(system.repository)
    record(
        system.home,
        ended_run("mine", project=own, workspace=str(workspace)),
        ended_run("mine-too", project=own),
        ended_run("other", project=own + "-not"),
    )
    for folder in (system.repository, system.repository / "below", workspace / "below"):
        found = system.json("list", "--here", cwd=folder)
        assert [run["branch"] for run in found] == ["mine-too", "mine"]
    assert system.json("list", "--here", cwd=tmp_path) == []


def test_grouped_shows_a_table_for_each_batch(system: System) -> None:
    one, two = ended_run("a"), ended_run("b")
    record(system.home, one, two, ended_run("a-too", batch=one.batch))
    blocks = system.fleet("list", "-g").stdout.split("\n\n")
    assert [block.splitlines()[0] for block in blocks] == [
        f"batch {one.batch}: 2 completed",
        f"batch {two.batch}: 1 completed",
    ]
    assert len(blocks[0].splitlines()) == 4


def test_projects_are_told_apart_where_there_are_several(system: System) -> None:
    record(system.home, ended_run("a", project="/x/one"), ended_run("a", project="/x/two"))
    assert [line.split()[0] for line in system.fleet("list").stdout.splitlines()] == ["project", "two", "one"]


def test_what_an_agent_said_cannot_move_the_cursor(system: System) -> None:
    record(system.home, ended_run("x", said="\x1b[2J\x1b]0;owned\x07hello\nworld\u202e"))
    out = system.fleet("list").stdout
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "\u202e" not in out
    assert "hello world" in out


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_on_a_terminal_no_line_is_wider_than_it(system: System, columns: int) -> None:
    wide = ended_run("ブランチ名", said="木" * 200, state_since=time.time() - 7200)
    record(system.home, wide, ended_run("b" * 120, said="long " * 50, model="some-long-model-name"))
    code, shown = on_a_terminal(system, "list", columns=columns)
    assert code == 0
    assert "\x1b[32m" in shown  # completed is green
    plain = re.sub(r"\x1b\[[\d;]*m", "", shown).splitlines()
    table = plain[:3]
    assert all(render.width_of(line) <= columns for line in table)
    assert "2h" in shown or columns < 40


def test_columns_stand_in_line_whatever_the_width_of_letters() -> None:
    rows = [("木", "x"), ("ab", "y"), ("é", "z")]
    lines = render.Table(render.cells("name", "value")).lines(rows)
    assert [
        render.width_of(line[: line.index(letter)]) for line, (_, letter) in zip(lines[1:], rows, strict=True)
    ] == [6] * 3


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59.9, "59s"), (60, "1m"), (7199, "1h"), (90_000, "1d"), (-5, "0s")]
)
def test_an_age_is_one_number(seconds: float, text: str) -> None:
    assert render.age(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"), [(999, "999"), (1000, "1.0k"), (999_949, "999.9k"), (999_950, "1.0M")]
)
def test_a_count_has_few_letters(number: int, text: str) -> None:
    assert render.count(number) == text


def test_no_colours_where_they_are_not_wanted(system: System) -> None:
    record(system.home, ended_run("x"))
    assert "\x1b" not in system.fleet("list").stdout
    code, shown = on_a_terminal(system, "list")
    assert code == 0
    assert "\x1b[" in shown


def live_run(branch: str, process: subprocess.Popen[bytes], **changes: object) -> Run:
    stat = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    agent = ProcessId(pid=process.pid, start=stat[19], boot=boot)
    return replace(
        ended_run(branch), state=RunState.RUNNING, agent=agent, ended_at=None, result=None, **changes
    )


def test_cpu_and_memory_are_those_of_all_processes_of_the_agent(system: System) -> None:
    # The child burns, in a session of its own as agents' tools do; its parent sleeps.
    child = "import os; os.setsid()\nblock = bytearray(40 << 20)\nwhile True: pass"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    process = subprocess.Popen([sys.executable, "-c", parent], start_new_session=True)
    # We are the supervisor here: a real one would know that the run is made up.
    descriptors = system.link.take(is_background=True, version=""), system.link.open()
    try:
        record(system.home, live_run("busy", process))
        wait_for(lambda: Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().strip())

        def is_busy() -> bool:
            load = system.json("list")[0]["load"]
            return bool(load) and load["cpu_percent"] > 5 and load["memory_bytes"] > 40 << 20

        wait_for(is_busy)
        assert system.json("list")[0]["load"]["processes"] == 2
        assert (system.home / "cache" / "vitals.json").stat().st_size < 1000
        (system.home / "cache" / "vitals.json").write_text("{broken")
        assert system.json("list")[0]["load"]["cpu_percent"] > 0
    finally:
        for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        process.kill()
        process.wait()
        for descriptor in descriptors:
            os.close(descriptor)


def test_work_without_a_supervisor_gets_one_and_it_is_told(system: System) -> None:
    record(
        system.home, ended_run("x", turn=0, prompts=1, state=RunState.QUEUED, result=None, host="elsewhere")
    )
    assert "started one" in system.fleet("list").stderr
    assert system.supervisor_pid()
    wait_for(system.link.is_open)
    assert "started one" not in system.fleet("list").stderr


def test_ended_agents_start_no_supervisor(system: System) -> None:
    record(system.home, ended_run("x"))
    assert "started one" not in system.fleet("list").stderr
    assert system.link.holder() is None


def test_repair_reports_workspaces_that_nobody_owns_and_touches_nothing(system: System) -> None:
    owned = make_repository(system.home / "workspaces" / "p" / "owned")
    lost = make_repository(system.home / "workspaces" / "p" / "lost one")
    record(system.home, ended_run("x", workspace=str(owned)))
    done = system.fleet("list", "--repair")
    assert "the supervisor is up" in done.stderr
    assert f"git -C '{lost}' status" in done.stderr
    assert str(owned) not in done.stderr.replace(str(lost), "")
    assert (lost / "README.md").exists()
    assert host_name() in {path.name.split(".")[0] for path in (system.home / "supervisor").iterdir()}


def test_watch_draws_again_until_ctrl_c(system: System) -> None:
    record(system.home, ended_run("watched"))
    code, shown = on_a_terminal(system, "list", "--watch", interrupt_at="1 agent: 1 completed")
    assert "watched" in shown
    assert "interrupted" not in shown
    assert code == 0


def test_branches_are_completed_from_the_store(system: System) -> None:
    record(system.home, ended_run("fix-auth"), ended_run("fix-docs"), ended_run("other"))
    system.env |= {"_FLEET_COMPLETE": "bash_complete", "COMP_WORDS": "fleet logs fix-", "COMP_CWORD": "2"}
    assert system.fleet().stdout.split() == ["plain,fix-auth", "plain,fix-docs"]
    system.env |= {"COMP_WORDS": "fleet cre", "COMP_CWORD": "1"}
    assert system.fleet().stdout.split() == ["plain,create"]
    (system.home / "fleet.db").write_bytes(b"broken" * 1000)
    system.env |= {"COMP_WORDS": "fleet logs fix-", "COMP_CWORD": "2"}
    assert system.fleet().stdout.strip() == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_serves_both_names(system: System, shell: str) -> None:
    script = system.fleet("completion", shell).stdout
    assert "_FLEET_COMPLETE" in script
    assert "_FLT_COMPLETE" in script
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script.encode(), check=True)


def test_an_agent_that_waits_for_approval_says_so_instead_of_its_last_words(system: System) -> None:
    waiting = ended_run("asks", state=RunState.WAITING, said="I will tidy up", host="elsewhere")
    record(
        system.home,
        replace(waiting, state_reason="needs approval: rm -rf build"),
        ended_run("idle", state=RunState.WAITING, said="what next?", host="elsewhere"),
    )
    _, second, first = system.fleet("list").stdout.splitlines()
    assert first.endswith("needs approval: rm -rf build")
    assert second.endswith("what next?")


def test_progress_speaks_of_a_saved_workspace_only_where_there_was_one() -> None:
    gone = ended_run("x", state=RunState.KILLED, workspace_state=WorkspaceState.REMOVED)
    assert (
        describe(RunView.of(replace(gone, saved_ref="refs/fleet/saved/x")))
        == "killed, workspace saved and removed"
    )
    assert describe(RunView.of(gone)) == "killed, it had no workspace"
