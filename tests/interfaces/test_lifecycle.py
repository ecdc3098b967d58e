"""Agents through the command line: start, follow, talk, look, end, bring back."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fleet.bootstrap import open_fleet
from fleet.domain.run import Mode, RunState
from fleet.errors import Failed
from fleet.interfaces.cli.removal import require_gone
from tests.interfaces.conftest import on_a_terminal
from tests.support import System, git, is_alive, scenario, wait_for

EDIT = scenario({"edit": {"path": "rose.txt", "content": "red\n"}}, {"say": "A rose is planted."})
FOREVER = scenario({"say": "here I am"}, {"edit": {"path": "half.txt", "content": "half\n"}}, {"sleep": 600})


def test_create_tells_what_was_made_and_what_to_type_next(shared: System) -> None:
    done = shared.fleet("create", "tells", "-p", EDIT)
    assert done.stdout.startswith("created tells  (run ")
    assert "scripted, headless" in done.stdout
    assert "fleet logs -f tells" in done.stderr
    shared.fleet("wait", "tells")


def test_create_and_wait_ends_with_the_result_and_its_exit_code(shared: System) -> None:
    done = shared.fleet("create", "good", "-p", EDIT, "--wait")
    assert "rose.txt" in done.stdout
    assert "A rose is planted." in done.stdout
    assert "running" in done.stderr
    bad = scenario({"error": "out of soil"})
    assert "out of soil" in shared.fleet("create", "bad", "-p", bad, "--wait", code=1).stdout
    ask = scenario({"ask": "red or white?"})
    done = shared.fleet("create", "asks", "-p", ask, "--wait", code=5)
    assert "red or white?" in done.stdout
    assert shared.json("create", "nothing", "-p", scenario({"say": "nothing"}), "--wait")["state"] == (
        "completed_no_changes"
    )


def test_a_prompt_from_a_file_or_stdin_arrives_letter_for_letter(shared: System, tmp_path: Path) -> None:
    text = 'it\'s $HOME `date` "quoted" \\ 木\n\nsecond line\t--flag'
    (tmp_path / "task.md").write_text(text)
    for branch, file, data in (("file", str(tmp_path / "task.md"), b""), ("stdin", "-", text.encode())):
        shared.fleet("create", branch, "--prompt-file", file, "--wait", stdin=data)
        run = shared.run(branch)
        assert (shared.turn_folder(run) / "prompt").read_text() == text


def test_a_fanout_has_lettered_branches_and_one_batch(shared: System) -> None:
    runs = shared.json("fanout", "3", "fan", "-p", EDIT)
    assert [run["branch"] for run in runs] == ["fan-A", "fan-B", "fan-C"]
    (batch,) = {run["batch"] for run in runs}
    done = shared.json("wait", "--batch", batch)
    assert [run["state"] for run in done] == ["completed"] * 3


def test_multi_gives_each_branch_its_own_prompt(shared: System) -> None:
    first, second = scenario({"say": "one: first"}), scenario({"say": "two"})
    runs = shared.json("multi", f"m-one:{first}", f"m/two.x:{second}", "--wait")
    assert [(run["branch"], run["said"]) for run in runs] == [("m-one", "one: first"), ("m/two.x", "two")]


def test_a_further_prompt_continues_the_session(shared: System) -> None:
    shared.fleet("create", "talk", "-p", EDIT, "--wait")
    again = scenario({"say": "prompt {prompts} of {session}"})
    run = shared.json("prompt", "talk", again, "--wait")
    assert run["turn"] == 2
    assert run["said"] == f"prompt 2 of {run['session']}"
    assert shared.json("prompt", "talk", "--file", "-", "--wait", stdin=again.encode())["turn"] == 3


def test_a_prompt_for_a_workspace_that_was_deleted_says_so_and_how_to_get_it_back(shared: System) -> None:
    shared.fleet("create", "deleted", "-p", EDIT, "--wait")
    workspace = Path(shared.run("deleted").workspace)
    shutil.rmtree(workspace)
    refused = shared.fleet("prompt", "deleted", EDIT, code=4).stderr
    assert f"the workspace of 'deleted' is gone: there is no folder {workspace}" in refused
    assert "`fleet kill deleted`, then `fleet undo deleted`" in refused
    assert shared.run("deleted").state is RunState.COMPLETED
    shared.fleet("kill", "deleted", "--yes")
    shared.fleet("undo", "deleted")
    assert (workspace / "rose.txt").read_text() == "red\n"
    assert shared.json("prompt", "deleted", EDIT, "--wait")["state"] == "completed"


def test_an_agent_whose_workspace_went_away_under_it_fails_with_that_as_the_reason(
    shared: System, tmp_path: Path
) -> None:
    wait, leave = {"wait_for": str(tmp_path / "go")}, {"run": 'rm -rf "$PWD"'}
    shared.fleet("create", "vanished", "-p", scenario({"say": "here"}, wait, leave), "--mode", "headless")
    run = shared.wait_until("vanished", lambda run: run.agent is not None)
    shared.fleet("prompt", "vanished", EDIT)
    (tmp_path / "go").touch()
    ended = shared.json("wait", "vanished", code=1)[0]
    assert ended["state"] == "failed"
    assert f"there is no folder {run.workspace} (`fleet kill vanished`, then" in ended["state_reason"]
    assert shared.run("vanished").prompts == shared.run("vanished").turn, "it is not tried for ever"


def test_logs_tell_what_was_said_and_done_and_raw_is_byte_for_byte(shared: System) -> None:
    steps = [{"edit": {"path": "a.txt", "content": "x"}}, {"say": "line one\nline two\x1b[31m"}]
    shared.fleet("create", "log", "-p", scenario(*steps), "--wait")
    shared.fleet("prompt", "log", scenario({"say": "second turn"}), "--wait")
    text = shared.fleet("logs", "log", "-n", "0").stdout
    assert "edit: a.txt" in text
    assert "line two" in text
    assert "\x1b" not in text
    assert "second turn" in text
    assert len(shared.fleet("logs", "log", "-n", "1").stdout.splitlines()) == 1
    entries = [
        json.loads(line) for line in shared.fleet("logs", "log", "-n", "0", "--json").stdout.splitlines()
    ]
    assert {"number", "at", "turn", "kind", "text", "data"} == set(entries[0])
    assert [entry["number"] for entry in entries] == sorted(entry["number"] for entry in entries)
    run = shared.run("log")
    raw = [(shared.turn_folder(run, turn) / "out").read_bytes() for turn in (1, 2)]
    shown = [
        subprocess.run(
            [sys.executable, "-m", "fleet", "logs", "log", "--raw", *more],
            cwd=shared.repository,
            env=shared.environment,
            capture_output=True,
            check=True,
        ).stdout
        for more in ([], ["-n", "0"])
    ]
    assert shown == [raw[1], raw[0] + raw[1]]


def test_logs_follow_until_the_agent_is_at_rest(shared: System, tmp_path: Path) -> None:
    go = tmp_path / "go"
    steps = scenario({"say": "waiting"}, {"wait_for": str(go)}, {"say": "gone on"})
    shared.fleet("create", "followed", "-p", steps)
    shared.wait_until("followed", lambda run: run.said == "waiting")  # said before anybody follows
    follower = shared.start("logs", "-f", "followed", stdout=subprocess.PIPE)
    raw = shared.start("logs", "-f", "--raw", "followed", stdout=subprocess.PIPE)
    assert follower.stdout is not None
    seen = b""
    while b"waiting" not in seen:
        line = follower.stdout.readline()
        assert line
        seen += line
    go.touch()
    rest, _ = follower.communicate(timeout=60)
    assert b"gone on" in rest
    assert follower.returncode == 0
    out, _ = raw.communicate(timeout=60)
    assert out == (shared.turn_folder(shared.run("followed")) / "out").read_bytes()


def test_diff_shows_all_changes_also_of_a_removed_workspace(shared: System) -> None:
    steps = scenario(
        {"edit": {"path": "kept.txt", "content": "committed\n"}},
        {"commit": "Keep it"},
        {"edit": {"path": "left.txt", "content": "left over\n"}},
    )
    shared.fleet("create", "differs", "-p", steps, "--wait")
    before = shared.fleet("diff", "differs").stdout
    assert "+committed" in before
    assert "+left over" in before
    assert "2 files changed" in shared.fleet("diff", "differs", "--stat").stdout
    shared.fleet("kill", "differs", "--force")
    assert shared.fleet("diff", "differs").stdout == before


def test_result_tells_what_git_says(shared: System) -> None:
    steps = scenario(
        {"edit": {"path": "a.txt", "content": "x"}}, {"commit": "Add a"}, {"usage": {"input": 7}}
    )
    shared.fleet("create", "tells-git", "-p", steps, "--wait")
    result = shared.json("result", "tells-git")["result"]
    assert result["files_changed"] == ["a.txt"]
    assert [commit["subject"] for commit in result["commits"]] == ["Add a"]
    assert result["usage"]["input_tokens"] == 7
    assert "Add a" in shared.fleet("result", "tells-git").stdout


def test_kill_names_its_victims_saves_their_work_and_tells_how_to_undo(shared: System) -> None:
    shared.fleet("create", "victim/one", "-p", FOREVER)
    shared.fleet("create", "bystander", "-p", FOREVER)
    run = shared.wait_until("victim/one", lambda run: run.agent is not None and bool(run.said))
    half = Path(run.workspace) / "half.txt"
    wait_for(half.exists)
    refused = shared.fleet("kill", "victim/*", code=2)
    assert "victim/one" in refused.stderr
    assert "nothing changed" not in refused.stderr
    assert "confirmation needed: add --yes" in refused.stderr
    assert run.agent is not None
    assert is_alive(run.agent.pid)
    done = shared.fleet("kill", "victim/*", "--force")
    assert "bystander" not in done.stdout + done.stderr
    assert f"saved as refs/fleet/saved/{run.id}" in done.stdout
    assert "undo: fleet undo victim/one" in done.stderr
    assert not is_alive(run.agent.pid)
    assert not half.exists()
    shared.fleet("undo", "victim/one")
    assert half.read_text() == "half\n"
    bystander = shared.run("bystander")
    assert bystander.agent is not None
    assert is_alive(bystander.agent.pid)
    shared.fleet("kill", bystander.id, "-f", "-d")
    assert "bystander" not in git(shared.repository, "branch", "--list", "bystander")
    assert [run["branch"] for run in shared.json("undo", "--list")].count("bystander") == 1


def test_on_a_terminal_kill_asks_and_no_is_no(shared: System) -> None:
    shared.fleet("create", "spared", "-p", EDIT, "--wait")
    code, shown = on_a_terminal(shared, "kill", "spared", typed=b"n\n")
    assert code == 1
    assert "spared" in shown
    assert "End 1 agent" in shown
    assert shared.run("spared").has_workspace
    code, _ = on_a_terminal(shared, "kill", "spared", typed=b"y\n")
    assert code == 0
    assert shared.run("spared").is_removed


def test_several_patterns_end_several_agents(shared: System) -> None:
    for branch in ("p-a", "p-b", "q-c"):
        shared.fleet("create", branch, "-p", EDIT)
    shared.fleet("wait", "p-a", "p-b", "q-c")
    assert len(shared.json("kill", "--force", "p-*", "q-c")) == 3


def test_one_word_keeps_both_kill_and_clean_from_asking(shared: System) -> None:
    for word in ("--force", "--yes", "-f"):
        for command in (("kill", f"sure{word}"), ("clean",)):
            shared.fleet("create", f"sure{word}", "-p", EDIT, "--wait")
            shared.fleet(*command, word)
            assert shared.run(f"sure{word}").is_removed
            shared.fleet("undo", f"sure{word}")
            shared.fleet("kill", f"sure{word}", "--force", "--delete-branch")


def test_clean_removes_what_has_ended_and_leaves_branches_and_questions(shared: System) -> None:
    shared.fleet("create", "ended", "-p", EDIT, "--wait")
    shared.fleet("create", "open-question", "-p", scenario({"ask": "which?"}), "--wait", code=5)
    planned = [run["branch"] for run in shared.json("clean", "--dry-run")]
    assert "ended" in planned
    assert "open-question" not in planned
    assert shared.run("ended").has_workspace
    assert "--yes" in shared.fleet("clean", code=2).stderr
    shared.fleet("clean", "--yes")
    assert shared.run("ended").is_removed
    assert shared.run("open-question").has_workspace
    assert "ended" in git(shared.repository, "branch", "--list", "ended")
    assert shared.json("clean", "--yes") == []


def test_undo_without_a_name_brings_back_the_one_removed_last(shared: System) -> None:
    shared.fleet("create", "first-out", "-p", EDIT, "--wait")
    shared.fleet("create", "last-out", "-p", EDIT, "--wait")
    shared.fleet("kill", "first-out", "-f")
    shared.fleet("kill", "last-out", "-f")
    done = shared.fleet("undo")
    assert "last-out  is back in" in done.stdout
    assert "removed" not in done.stderr
    assert "still has its workspace" in shared.fleet("undo", "last-out", code=4).stderr


def test_why_it_could_not_be_brought_back_is_not_told_any_more_once_it_is(shared: System) -> None:
    shared.fleet("create", "in-the-way", "-p", EDIT, "--wait")
    shared.fleet("kill", "in-the-way", "-f", "-d")
    git(shared.repository, "branch", "in-the-way")
    assert "has moved" in shared.fleet("undo", "in-the-way", code=1).stderr
    git(shared.repository, "branch", "-D", "in-the-way")
    shared.fleet("undo", "in-the-way")
    assert shared.run("in-the-way").state_reason == ""


def test_attach_says_why_it_cannot(shared: System) -> None:
    shared.fleet("create", "headless", "-p", EDIT, "--wait")
    done = shared.fleet("attach", "headless", code=2)
    assert "needs a terminal" in done.stderr
    assert "fleet logs -f headless" in done.stderr
    assert shared.run("headless").mode is Mode.HEADLESS, "and nothing was begun"
    shared.fleet("kill", "headless", "-f")
    code, shown = on_a_terminal(shared, "attach", "headless")
    assert code == 4
    assert "fleet undo" in shown


def test_release_says_why_it_cannot(shared: System) -> None:
    shared.fleet("create", "never-taken", "-p", EDIT, "--wait")
    assert "runs headless already" in shared.fleet("release", "never-taken", code=4).stderr
    refusal = json.loads(shared.fleet("release", "nobody", "--json", code=3).stderr)
    assert refusal["code"] == 3


def attach_and_detach(system: System, branch: str) -> tuple[int, str]:
    tmux = ["tmux", "-L", f"fleet-{system.run(branch).id}"]

    def is_attached() -> bool:
        return bool(subprocess.run([*tmux, "list-clients"], capture_output=True).stdout)

    with ThreadPoolExecutor(1) as pool:
        attached = pool.submit(on_a_terminal, system, "attach", branch)
        wait_for(is_attached)
        subprocess.run([*tmux, "detach-client", "-s", system.run(branch).tmux], check=True)
        return attached.result()


def test_an_agent_in_tmux_can_be_attached_to_and_its_screen_is_its_output(shared: System) -> None:
    shared.fleet("create", "screen", "-p", scenario({"say": "on the screen"}), "--mode", "tmux")
    shared.wait_until("screen", lambda run: run.state is RunState.WAITING)
    assert shared.fleet("wait", "screen").returncode == 0
    assert "needs a terminal" in shared.fleet("attach", "screen", code=2).stderr
    assert "its screen is its output" in shared.fleet("logs", "screen", "--raw", code=2).stderr
    code, shown = attach_and_detach(shared, "screen")
    assert code == 0
    assert "detached" in shown
    assert shared.run("screen").state is RunState.WAITING
    shared.fleet("kill", "screen", "-f")
    assert "fleet undo" in shared.fleet("release", "screen", code=4).stderr


def test_a_reviewer_changes_nothing(shared: System) -> None:
    assert shared.json("create", "review", "-p", EDIT, "--role", "reviewer", "--wait")["state"] == (
        "completed_no_changes"
    )


def test_branches_with_dots_slashes_and_foreign_letters_work_to_the_end(shared: System) -> None:
    for branch in ("feature/v1.2", "größe-木", "it's-$HOME"):
        assert shared.json("create", branch, "-p", EDIT, "--wait")["state"] == "completed"
        assert branch in shared.fleet("list").stdout
        assert shared.fleet("diff", branch).stdout
        shared.fleet("kill", branch, "-f")


def test_a_branch_that_differs_in_case_only_from_a_live_one_is_refused(shared: System) -> None:
    shared.fleet("create", "Case", "-p", EDIT, "--wait")
    shared.fleet("create", "case", "-p", EDIT, code=4)


def test_create_from_inside_a_workspace_makes_no_second_project(shared: System) -> None:
    shared.fleet("create", "outer", "-p", EDIT, "--wait")
    workspace = Path(shared.run("outer").workspace)
    inner = shared.json("create", "inner", "-p", EDIT, "--wait", cwd=workspace)
    assert inner["project"] == str(shared.repository)


def test_many_creates_at_once_lose_no_agent(shared: System) -> None:
    started = [shared.start("create", f"crowd-{number}", "-p", EDIT) for number in range(8)]
    assert [process.wait(timeout=60) for process in started] == [0] * 8
    runs = shared.json("wait", *(f"crowd-{number}" for number in range(8)))
    assert {run["state"] for run in runs} == {"completed"}


def test_a_failing_setup_command_fails_the_run_and_quick_skips_it(system: System) -> None:
    system.fleet("config", "set", "setup.commands", '["echo preparing", "exit 7"]')
    failed = system.json("create", "setup", "-p", EDIT, "--wait", code=1)
    assert failed["state"] == "failed"
    assert "exit 7" in failed["state_reason"]
    assert system.json("create", "quick", "-p", EDIT, "--quick", "--wait")["state"] == "completed"


def test_the_log_tells_of_a_tool_that_failed(shared: System) -> None:
    shared.fleet("create", "tools", "-p", scenario({"run": "true"}, {"run": "false"}), "--wait")
    told = [line.split()[1:] for line in shared.fleet("logs", "tools", "-n", "0").stdout.splitlines()]
    steps = [words for words in told if words[0].startswith("tool")]
    assert steps == [["tool", "run:", "true"], ["tool", "run:", "false"], ["tool_done", "it", "failed"]]


@pytest.mark.parametrize("words", [["run", "--status"], ["run", "--status", "--json"]])
def test_the_supervisor_tells_since_when_it_works(shared: System, words: list[str]) -> None:
    shared.fleet("run", "--background")
    out = shared.fleet(*words).stdout
    pid = shared.supervisor_pid()
    assert str(pid) in out


def test_the_supervisor_can_be_stopped_and_started_while_agents_run_on(system: System) -> None:
    assert system.fleet("run", "--status", code=7).stdout == "no supervisor is up\n"
    assert system.json("run", "--status", code=7)["is_up"] is False
    system.fleet("create", "steady", "-p", FOREVER)
    run = system.wait_until("steady", lambda run: run.agent is not None)
    assert run.agent is not None
    assert "agents run on" in system.fleet("run", "--stop").stdout
    assert is_alive(run.agent.pid)
    assert system.fleet("run", "--stop").stdout == "no supervisor was up\n"
    assert "up for" in system.fleet("run", "--background").stdout
    foreground = system.fleet("run", code=4)
    assert "already works" in foreground.stderr
    system.fleet("kill", "steady", "-f")
    assert not is_alive(run.agent.pid)


def test_the_foreground_supervisor_ends_with_ctrl_c(system: System) -> None:
    with system.start("run", stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert b"is up" in process.stderr.readline()
        wait_for(lambda: f'"supervisor.up", "pid": {process.pid}' in system.supervisor_log())
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
    assert system.link.holder() is None


def test_a_kill_that_came_too_late_to_delete_the_branch_says_so_and_how_to(shared: System) -> None:
    shared.fleet("create", "late/one", "-p", EDIT, "--wait")
    run = shared.run("late/one")
    with open_fleet(shared.home, str(shared.repository)) as fleet:
        shared.fleet("kill", "late/one", "-f")
        with pytest.raises(Failed, match="late/one") as failure:
            require_gone(fleet, [run.id])
        command = failure.value.hint.split("`")[1]
        subprocess.run(["sh", "-c", command], check=True, capture_output=True)
        require_gone(fleet, [run.id])
    assert not git(shared.repository, "branch", "--list", "late/one")
