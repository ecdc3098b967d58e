"""Whatever goes wrong, a command says what, what to do, and ends with the exit code for it."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.interfaces.conftest import ended_run, record
from tests.support import System, git, scenario


def no_run_was_recorded(system: System) -> bool:
    return not (system.home / "fleet.db").exists() or not system.all_runs()


@pytest.mark.parametrize(
    "branch",
    [
        "a..b",
        "-x",
        "a@{1}",
        "a b",
        "a.lock",
        "/a",
        "a/",
        "a//b",
        ".",
        "..",
        "@",
        "a:b",
        "a\x07b",
        "a" * 300,
        "a~1",
        "",
    ],
    ids=lambda branch: repr(branch)[:20],
)
def test_a_branch_name_that_git_forbids_is_refused_before_anything_is_recorded(
    system: System, branch: str
) -> None:
    done = system.fleet("create", "-p", "hello", "--", branch, code=2)
    assert done.stderr.startswith("error: ")
    assert no_run_was_recorded(system)


def test_a_branch_that_exists_is_refused(system: System) -> None:
    git(system.repository, "branch", "taken")
    done = system.fleet("create", "taken", "-p", "hello", code=4)
    assert "'taken'" in done.stderr
    assert "hint: " in done.stderr
    assert no_run_was_recorded(system)


def test_of_a_multi_with_one_bad_name_nothing_is_started(system: System) -> None:
    system.fleet("multi", "good:hello", "ba..d:hello", code=2)
    assert no_run_was_recorded(system)


def test_two_branches_that_differ_in_case_only_are_not_started_together(system: System) -> None:
    done = system.fleet("multi", "fix:one", "FIX:two", code=2)
    assert "named twice" in done.stderr


def test_outside_a_repository_a_command_says_so(system: System, tmp_path: Path) -> None:
    (tmp_path / "empty" / ".git").mkdir(parents=True)  # a folder of that name makes no repository
    done = system.fleet("create", "x", "-p", "hello", cwd=tmp_path / "empty", code=2)
    assert "repository" in done.stderr
    assert "hint: " in done.stderr
    done = system.fleet("init", "--yes", cwd=tmp_path / "empty", code=2)
    assert "git init" in done.stderr


def test_a_repository_without_commits_is_refused_with_what_to_do(system: System, tmp_path: Path) -> None:
    (tmp_path / "fresh").mkdir()
    git(tmp_path / "fresh", "init", "-q")
    done = system.fleet("create", "x", "-p", "hello", cwd=tmp_path / "fresh", code=2)
    assert "commit" in done.stderr


def test_an_unknown_base_is_not_found(system: System) -> None:
    done = system.fleet("create", "x", "-p", "hello", "--base", "no-such-ref", code=3)
    assert "no-such-ref" in done.stderr


def test_an_unknown_coder_is_not_found_and_the_known_ones_are_named(system: System) -> None:
    done = system.fleet("create", "x", "-p", "hello", "-a", "nobody", code=3)
    assert "claude" in done.stderr


def test_a_coder_whose_program_is_missing_is_unavailable_with_the_command_that_installs_it(
    system: System, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("git", "sh"):
        path = subprocess.run(["which", name], capture_output=True, text=True, check=True).stdout.strip()
        (tmp_path / "bin" / name).symlink_to(path)
    system.env["PATH"] = str(tmp_path / "bin")
    done = system.fleet("create", "x", "-p", "hello", "-a", "claude", code=7)
    assert "'claude'" in done.stderr
    assert "install it with `" in done.stderr
    assert no_run_was_recorded(system)


def test_a_headless_agent_needs_a_prompt(system: System) -> None:
    assert "needs a prompt" in system.fleet("create", "x", code=2).stderr
    assert "needs a prompt" in system.fleet("create", "x", "--prompt-file", "-", stdin=b" \n", code=2).stderr


def test_a_prompt_that_is_no_text_is_refused(system: System) -> None:
    done = system.fleet("create", "x", "--prompt-file", "-", stdin=b"caf\xe9", code=2)
    assert "UTF-8" in done.stderr
    assert "byte 3" in done.stderr
    assert system.fleet("create", "x", "--prompt-file", "-", stdin=b"a\0b", code=2).stderr


def test_a_full_disk_is_over_the_limit(system: System) -> None:
    system.fleet("config", "set", "limits.min_free_mb", str(10**9), "--user")
    done = system.fleet("create", "x", "-p", "hello", code=6)
    assert "MB" in done.stderr
    assert "fleet clean" in done.stderr
    assert no_run_was_recorded(system)


def test_a_broken_configuration_is_refused_with_line_and_reason(system: System) -> None:
    file = system.home / "config.toml"
    file.write_text("[coder]\ndefault = 'scripted'\nmode = = 1\n")
    done = system.fleet("create", "x", "-p", "hello", code=2)
    assert f"error: {file}:3: " in done.stderr
    file.write_text("[coder]\nmode = 'carrier pigeon'\n")
    done = system.fleet("config", "validate", code=2)
    assert f"error: {file}:2: " in done.stderr
    assert "carrier pigeon" in done.stderr


def test_while_a_configuration_is_broken_the_last_good_one_stays_in_force_with_a_warning(
    system: System,
) -> None:
    file = system.home / "config.toml"
    file.write_text("[ui]\nlog_lines = 7\n")
    system.fleet("config", "show")
    file.write_text("[ui\n")
    done = system.fleet("config", "show")
    assert re.search(r"^ui\.log_lines +7$", done.stdout, re.MULTILINE)
    assert "warning: " in done.stderr
    assert str(file) in done.stderr


def test_a_damaged_store_is_unavailable_and_nothing_of_it_is_overwritten(system: System) -> None:
    path = system.home / "fleet.db"
    path.write_bytes(b"this is no database" * 1000)
    for words in (["list"], ["result", "x"], ["create", "x", "-p", "hello"], ["kill", "*", "-f"]):
        done = system.fleet(*words, code=7)
        assert str(path) in done.stderr
        assert "Traceback" not in done.stderr
    assert path.read_bytes() == b"this is no database" * 1000


def test_a_store_of_a_newer_fleet_is_left_alone(system: System) -> None:
    record(system.home, ended_run("x"))
    with sqlite3.connect(system.home / "fleet.db") as database:
        database.execute("PRAGMA user_version = 9999")
    database.close()
    done = system.fleet("list", code=7)
    assert "newer fleet" in done.stderr


def test_list_answers_while_somebody_writes(system: System) -> None:
    record(system.home, ended_run("x"))
    writer = sqlite3.connect(system.home / "fleet.db", isolation_level=None)
    try:
        writer.execute("BEGIN IMMEDIATE")
        assert system.json("list")[0]["branch"] == "x"
    finally:
        writer.close()


def test_list_waits_for_a_store_that_is_locked_and_then_answers(system: System) -> None:
    record(system.home, ended_run("x"))
    holder = sqlite3.connect(system.home / "fleet.db", isolation_level=None, check_same_thread=False)
    holder.execute("PRAGMA journal_mode = DELETE")  # so that an exclusive lock keeps readers out too
    holder.execute("BEGIN EXCLUSIVE")
    waiting = system.start("list", "--json", stdout=subprocess.PIPE)
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(timeout=1)
        holder.execute("COMMIT")
        out, _ = waiting.communicate(timeout=30)
    finally:
        holder.close()
        waiting.kill()
        waiting.wait()
    assert json.loads(out)[0]["branch"] == "x"


@pytest.mark.parametrize(
    "words",
    [
        ["result", "nobody"],
        ["logs", "nobody"],
        ["diff", "nobody"],
        ["attach", "nobody"],
        ["prompt", "nobody", "hello"],
        ["wait", "nobody"],
        ["wait", "--batch", "nothing0"],
        ["kill", "nobody*", "--force"],
        ["kill", "--batch", "nothing0", "--force"],
        ["undo"],
        ["undo", "nobody"],
    ],
    ids=" ".join,
)
def test_what_is_not_there_ends_with_exit_code_3(system: System, words: list[str]) -> None:
    record(system.home, ended_run("somebody"))
    done = system.fleet(*words, code=3)
    assert done.stderr.startswith("error: ")
    assert "hint: " in done.stderr


def test_a_branch_that_was_misspelled_is_guessed(system: System) -> None:
    system.fleet("create", "fix-auth", "-p", scenario({"say": "ok"}), "--wait", code=None)
    done = system.fleet("logs", "fix-auht", code=3)
    assert "hint: did you mean 'fix-auth'? see `fleet list --all`" in done.stderr


def test_with_json_an_error_is_json(system: System) -> None:
    done = system.fleet("result", "nobody", "--json", code=3)
    error = json.loads(done.stderr)
    assert error["code"] == 3
    assert "nobody" in error["error"]
    assert error["hint"] == "see `fleet list --all`"


def test_a_branch_of_two_projects_is_a_conflict_until_one_is_meant(system: System, tmp_path: Path) -> None:
    here = ended_run("x", project=str(system.repository))
    record(system.home, ended_run("x", project="/elsewhere"), here)
    assert system.json("result", "x")["id"] == here.id
    done = system.fleet("result", "x", cwd=tmp_path, code=4)
    assert "/elsewhere" in done.stderr


def test_an_unforeseen_error_is_one_line_and_its_traceback_is_kept(system: System) -> None:
    record(system.home, ended_run("x"))
    with sqlite3.connect(system.home / "fleet.db") as database:
        database.execute("UPDATE record SET body = '{}' WHERE kind = 'run'")
    database.close()
    done = system.fleet("list", code=1)
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: unexpected KeyError")
    kept = Path(hint.rpartition(" ")[2])
    assert "Traceback" in kept.read_text()
    assert kept.parent == system.home / "logs"
    assert kept.stat().st_mode & 0o077 == 0
    system.env["FLEET_DEBUG"] = "1"
    assert "Traceback" in system.fleet("list", code=1).stderr


def test_a_reader_that_leaves_early_is_no_error(system: System) -> None:
    record(system.home, *(ended_run(f"branch-{number}", said="word " * 90) for number in range(300)))
    system.env["PYTHONUNBUFFERED"] = ""  # unbuffered, Python takes no notice of a write cut short
    process = system.start("list", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline().startswith(b"branch")
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=30) == 141
    assert b"Error" not in said
    assert b"Traceback" not in said


def test_ctrl_c_ends_a_wait_with_130_and_tells_what_goes_on(system: System) -> None:
    # A run of another host: no supervisor of this one will ever touch it.
    record(system.home, ended_run("far", host="elsewhere", turn=0, prompts=1, state="queued", result=None))
    process = system.start("wait", "far", stderr=subprocess.PIPE)
    assert process.stderr is not None
    lines = [process.stderr.readline() for _ in range(2)]
    assert any(b"far" in line for line in lines)
    process.send_signal(signal.SIGINT)
    said = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait(timeout=20) == 130
    assert "error: interrupted" in said
    assert "work on in the background" in said


def test_letters_that_the_terminal_does_not_know_end_no_command(system: System) -> None:
    record(system.home, ended_run("größe-木", said="naïve 木\udc80"))
    system.env |= {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    assert "\\u6728" in system.fleet("list").stdout


# RunService takes a claim whose run is not recorded yet for an abandoned one.
def test_two_commands_that_want_the_same_branch_at_once_get_one_agent(system: System) -> None:
    codes: list[int] = []

    def create() -> None:
        codes.append(system.fleet("create", "one", "-p", "hello", code=None).returncode)

    threads = [threading.Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [0, 4, 4, 4]
    assert len(system.all_runs()) == 1


def test_a_home_that_cannot_be_written_is_told_without_a_traceback(system: System, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    system.env["FLEET_HOME"] = str(tmp_path / "file" / "home")
    done = system.fleet("list", code=None)
    assert done.returncode in (1, 7)
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: ")


def test_python_without_our_package_path_is_not_needed_to_run_the_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fleet", "--version"],
        cwd="/",
        capture_output=True,
        env=dict(os.environ),
        check=True,
    )
    assert done.stdout.startswith(b"fleet ")


def test_wait_gives_up_after_its_timeout(system: System) -> None:
    record(system.home, ended_run("far", host="elsewhere", turn=0, prompts=1, state="queued", result=None))
    begun = time.monotonic()
    done = system.fleet("wait", "far", "--timeout", "0.3", code=7)
    assert time.monotonic() - begun < 20
    assert "still at work after 0.3 s: far" in done.stderr
