"""One agent from wish to result, with the scripted coder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleet.domain.run import RunState, WorkspaceState
from tests.support import System, git, scenario, wait_for


def create(system: System, *steps: dict[str, object], code: int = 0, branch: str = "work") -> None:
    system.fleet("create", branch, "-p", scenario(*steps), "--wait", code=code)


def test_commits_and_leftovers_are_both_on_the_branch(system: System) -> None:
    create(
        system,
        {"edit": {"path": "one.txt", "content": "1\n"}},
        {"commit": "Add one"},
        {"edit": {"path": "two.txt", "content": "2\n"}},
    )
    run = system.run("work")
    assert run.state is RunState.COMPLETED
    assert run.result is not None
    assert run.result.commits[0].subject == "Add one"
    assert set(run.result.files_changed) == {"one.txt", "two.txt"}
    assert git(system.repository, "show", "work:one.txt") == "1"
    assert git(system.repository, "show", "work:two.txt") == "2"
    assert run.diff.added == 2


def test_the_users_checkout_is_never_touched(system: System) -> None:
    (system.repository / "mine.txt").write_text("not committed\n")
    before = git(system.repository, "status", "--porcelain"), git(system.repository, "rev-parse", "HEAD")
    create(system, {"edit": {"path": "README.md", "content": "changed\n"}})
    after = git(system.repository, "status", "--porcelain"), git(system.repository, "rev-parse", "HEAD")
    assert after == before
    assert (system.repository / "README.md").read_text() == "hello\n"


def test_saying_that_it_is_done_is_not_being_done(system: System) -> None:
    create(system, {"say": "I have fixed everything and all tests pass."})
    assert system.run("work").state is RunState.COMPLETED_NO_CHANGES


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ({"crash": 3}, "exit code 3"),
        ({"crash": "KILL"}, "signal 9"),
        ({"error": "the model is on fire"}, "on fire"),
    ],
)
def test_a_failing_agent_leaves_its_work_and_a_reason(
    system: System, step: dict[str, object], words: str
) -> None:
    create(system, {"edit": {"path": "half.txt", "content": "half\n"}}, step, code=1)
    run = system.run("work")
    assert run.state is RunState.FAILED
    assert words in run.state_reason
    assert git(system.repository, "show", "work:half.txt") == "half"


def test_a_question_blocks_the_run_and_an_answer_goes_on(system: System) -> None:
    create(system, {"ask": "which database?"}, code=5)
    blocked = system.run("work")
    assert blocked.state is RunState.BLOCKED
    assert "which database?" in blocked.state_reason
    system.fleet("prompt", "work", scenario({"edit": {"path": "db.txt", "content": "sqlite\n"}}))
    system.fleet("wait", "work")
    assert system.run("work").state is RunState.COMPLETED


def test_prompts_are_taken_one_after_the_other_in_one_session(system: System) -> None:
    gate = system.repository.parent / "gate"
    system.fleet("create", "work", "-p", scenario({"wait_for": str(gate)}, {"say": "{prompts}"}))
    system.wait_until("work", lambda run: run.state is RunState.RUNNING)
    for _ in range(2):
        system.fleet("prompt", "work", scenario({"say": "prompt number {prompts}"}))
    gate.touch()
    system.fleet("wait", "work")
    run = system.run("work")
    assert (run.turn, run.prompts) == (3, 3)
    assert run.said == "prompt number 3"
    for turn in (1, 2, 3):
        assert (system.turn_folder(run, turn) / "out").exists()


def test_the_run_folder_keeps_prompt_output_events_and_result(system: System) -> None:
    create(system, {"say": "hello"}, {"usage": {"input": 10, "output": 5, "cost_usd": 0.25}})
    run = system.run("work")
    folder = system.home / "runs" / run.id
    assert (folder / "turn-1" / "prompt").read_text().startswith("[[scenario:")
    assert b"hello" in (folder / "turn-1" / "out").read_bytes()
    result = json.loads((folder / "result.json").read_text())
    assert result["status"] == "completed_no_changes"
    assert result["usage"]["cost_usd"] == 0.25
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert any(event["kind"] == "said" and event["text"] == "hello" for event in events)
    assert run.usage.cost_usd == 0.25


def test_setup_runs_once_in_the_workspace_and_its_output_is_kept(system: System) -> None:
    (system.repository / ".fleet").mkdir()
    (system.repository / ".fleet" / "config.toml").write_text(
        "[setup]\ncommands = ['echo setting up', 'pwd > made-by-setup', \"echo \\\"it's\\\" > 'a b'\"]\n"
    )
    create(system, {"say": "x"})
    run = system.run("work")
    assert run.workspace_state is WorkspaceState.READY
    assert git(system.repository, "show", "work:made-by-setup") == run.workspace
    assert git(system.repository, "show", "work:a b") == "it's"
    assert "setting up" in (system.home / "runs" / run.id / "setup-1" / "out").read_text()


def test_a_failing_setup_fails_the_run_clearly_and_quick_skips_it(system: System) -> None:
    (system.repository / ".fleet").mkdir()
    (system.repository / ".fleet" / "config.toml").write_text(
        '[setup]\ncommands = ["true", "echo oops >&2; exit 9", "touch never"]\n'
    )
    create(system, {"say": "x"}, code=1)
    run = system.run("work")
    assert run.state is RunState.FAILED
    assert "exit code 9" in run.state_reason
    assert "echo oops" in run.state_reason
    assert "`quick`" in run.state_reason
    assert not Path(run.workspace, "never").exists()
    assert not (system.turn_folder(run) / "out").exists(), "no agent was started"
    system.fleet("create", "quick", "-p", scenario({"say": "x"}), "--quick", "--wait")
    assert system.run("quick").state is RunState.COMPLETED_NO_CHANGES


def test_a_failed_setup_is_tried_again_with_the_next_prompt(system: System) -> None:
    (system.repository / ".fleet").mkdir()
    config = system.repository / ".fleet" / "config.toml"
    config.write_text('[setup]\ncommands = ["exit 9"]\n')
    create(system, {"say": "x"}, code=1)
    config.write_text('[setup]\ncommands = ["touch set-up"]\n')
    system.fleet("prompt", "work", scenario({"say": "again"}))
    system.fleet("wait", "work")
    assert "set-up" in git(system.repository, "ls-tree", "--name-only", "work")


def test_credential_files_are_copied_and_never_committed(system: System) -> None:
    (system.repository / ".env").write_text("TOKEN=secret\n")
    (system.repository / ".fleet").mkdir()
    (system.repository / ".fleet" / "config.toml").write_text('[setup]\ncredential_files = [".env"]\n')
    create(system, {"append": {"path": "work.txt", "content": "x\n"}})
    run = system.run("work")
    assert Path(run.workspace, ".env").read_text() == "TOKEN=secret\n"
    assert ".env" not in git(system.repository, "ls-tree", "-r", "--name-only", "work").splitlines()


def test_what_an_agent_leaves_running_is_ended_with_its_turn(system: System, tmp_path: Path) -> None:
    create(system, {"spawn": {"kind": "escaped", "pid_file": str(tmp_path / "pid"), "seconds": 300}})
    pid = int((tmp_path / "pid").read_text().split()[0])
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), what="the helper is gone")


def test_an_agent_that_never_stops_writing_is_stopped(system: System) -> None:
    with (system.home / "config.toml").open("a") as config:
        config.write("[limits]\nmax_output_mb = 1\n")
    create(system, {"flood": {"bytes": 3_000_000}}, {"sleep": 300}, code=1)
    run = system.run("work")
    assert "max_output_mb" in run.state_reason
    assert (system.turn_folder(run) / "out").stat().st_size >= 3_000_000, "what it wrote stays"


def test_a_coder_that_never_names_its_session_goes_on_in_the_one_it_was_told(
    system: System, tmp_path: Path
) -> None:
    script = tmp_path / "tool.sh"
    script.write_text('echo "$1 $2" >> ' + str(tmp_path / "calls") + "\n")
    with (system.home / "config.toml").open("a") as config:
        config.write(
            f'[coders.tool]\ncommand = ["sh", "{script}", "new", "{{session}}"]\n'
            f'resume_command = ["sh", "{script}", "resume", "{{session}}"]\n'
            'prompt = "stdin"\noutput = "text"\n'
        )
    system.fleet("create", "work", "-a", "tool", "-p", "one", "--wait")
    system.fleet("prompt", "work", "two")
    system.fleet("wait", "work")
    first, second = (tmp_path / "calls").read_text().splitlines()
    assert first.split()[0] == "new"
    assert second.split() == ["resume", first.split()[1]]


def test_the_reason_of_a_failure_has_the_last_words_on_stderr(system: System, tmp_path: Path) -> None:
    script = tmp_path / "tool.sh"
    script.write_text("echo 'first' >&2; echo 'no such planet' >&2; exit 3\n")
    with (system.home / "config.toml").open("a") as config:
        config.write(f'[coders.tool]\ncommand = ["sh", "{script}"]\nprompt = "stdin"\noutput = "text"\n')
    system.fleet("create", "work", "-a", "tool", "-p", "go", "--wait", code=1)
    assert "exit code 3" in system.run("work").state_reason
    assert "no such planet" in system.run("work").state_reason
