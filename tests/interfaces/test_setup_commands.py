"""`init`, `config`, `doctor`, `update`, `demo`: what a newcomer types first."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
from pathlib import Path

import pytest

from tests.interfaces.conftest import ended_run, on_a_terminal, record
from tests.support import System, git, processes_with


def test_init_without_a_terminal_and_without_yes_writes_nothing(system: System) -> None:
    done = system.fleet("init", code=2)
    assert "--yes" in done.stderr
    assert not (system.repository / ".fleet").exists()


def test_init_writes_a_valid_configuration_for_the_type_of_the_project(system: System) -> None:
    (system.repository / "package.json").write_text("{}")
    done = system.fleet("init", "--yes")
    file = system.repository / ".fleet" / "config.toml"
    assert done.stdout == f"wrote {file}\n"
    assert "npm install" in file.read_text()
    assert "a node project" in done.stderr
    assert system.fleet("config", "validate").stdout == "the configuration is valid\n"
    assert "already there" in system.fleet("init", "--yes", code=4).stderr
    system.fleet("init", "--yes", "--force", "--type", "minimal")
    assert "npm install" not in file.read_text()


def test_init_asks_on_a_terminal(system: System) -> None:
    code, shown = on_a_terminal(system, "init", typed=b"n\n")
    assert code == 1
    assert "Write " in shown
    assert not (system.repository / ".fleet" / "config.toml").exists()
    assert on_a_terminal(system, "init", typed=b"y\n")[0] == 0
    assert (system.repository / ".fleet" / "config.toml").exists()


def test_init_inside_a_workspace_means_the_checkout_it_belongs_to(system: System, tmp_path: Path) -> None:
    git(system.repository, "worktree", "add", "-q", str(tmp_path / "linked"))
    system.fleet("init", "--yes", cwd=tmp_path / "linked")
    assert (system.repository / ".fleet" / "config.toml").exists()
    assert not (tmp_path / "linked" / ".fleet").exists()


def test_init_takes_the_older_configuration_over(system: System, tmp_path: Path) -> None:
    (tmp_path / ".ai_fleet").mkdir()
    (tmp_path / ".ai_fleet" / "config.toml").write_text(
        'repo_root = "~/code"\ndefault_agent = "codex"\nquick_setup = true\n'
    )
    system.env["HOME"] = str(tmp_path)
    done = system.fleet("init", "--migrate-legacy", "--yes")
    assert "takes over coder.default from" in done.stderr
    assert f"repo_root in {tmp_path / '.ai_fleet' / 'config.toml'} is not needed" in done.stderr
    system.env["FLEET_CODER_DEFAULT"] = ""
    values = {row["key"]: row["value"] for row in system.json("config", "show")}
    assert values["coder.default"] == "codex"
    assert values["setup.quick"] is True


def test_every_value_tells_where_it_comes_from(system: System) -> None:
    (system.home / "config.toml").write_text("[ui]\nlog_lines = 9\n")
    system.fleet("config", "set", "setup.quick", "true")
    rows = {row["key"]: row for row in system.json("config", "show")}
    assert rows["ui.log_lines"] == {
        "key": "ui.log_lines",
        "value": 9,
        "origin": f"{system.home}/config.toml:2",
    }
    assert rows["setup.quick"]["origin"].startswith(f"{system.repository}/.fleet/config.toml:")
    assert rows["coder.default"]["origin"] == "environment FLEET_CODER_DEFAULT"
    assert rows["tmux.prefix"]["origin"] == "default"
    for words in (["config", "show", "--origin"], ["config", "--show-origin"]):
        assert re.search(r"ui.log_lines +9 +/.*config.toml:2\n", system.fleet(*words).stdout)
    assert system.fleet("config").stdout == system.fleet("config", "show").stdout
    assert system.fleet("config", "--validate").stdout == "the configuration is valid\n"


def test_set_keeps_the_rest_of_the_file_and_user_means_all_projects(system: System, tmp_path: Path) -> None:
    file = system.home / "config.toml"
    file.write_text("# mine\n[ui]\nlog_lines = 9  # nine\n")
    system.fleet("config", "set", "tmux.prefix", "crew", "--user")
    assert "# mine\n[ui]\nlog_lines = 9  # nine\n" in file.read_text()
    system.fleet("config", "set", "tmux.prefix", "x", cwd=tmp_path, code=2)
    paths = system.json("config", "path")
    assert paths["user"] == {"path": str(file), "exists": True}
    assert paths["project"]["exists"] is False
    assert str(file) in system.fleet("config", "path").stdout


def test_edit_opens_the_editor_and_checks_what_it_left(system: System, tmp_path: Path) -> None:
    editor = tmp_path / "my editor"
    editor.write_text('#!/bin/sh\necho "[nonsense" > "$1"\n')
    editor.chmod(0o755)
    system.env["EDITOR"] = f"'{editor}'"
    code, shown = on_a_terminal(system, "config", "edit", "--user")
    assert code == 2
    assert "config.toml:1" in shown
    system.env["EDITOR"] = "false"
    assert on_a_terminal(system, "config", "--edit")[0] == 1


def test_validate_warns_of_credential_files_that_are_missing(system: System) -> None:
    system.fleet("config", "set", "setup.credential_files", '[".env.nowhere"]')
    done = system.fleet("config", "validate")
    assert ".env.nowhere" in done.stderr


def test_what_init_writes_is_valid_without_a_warning(system: System) -> None:
    system.fleet("init", "--yes")
    assert ".env" in (system.repository / ".fleet" / "config.toml").read_text()
    assert "warning" not in system.fleet("config", "validate").stderr


@pytest.mark.parametrize("key", ["fallback", "max_concurrent"])
def test_no_setting_of_a_coder_that_there_is_not_is_set_or_valid(system: System, key: str) -> None:
    value = {"fallback": "codex", "max_concurrent": "2"}[key]
    refused = system.fleet("config", "set", f"coders.nope.{key}", value, "--user", code=2)
    assert "there is no coder 'nope'" in refused.stderr
    file = system.home / "config.toml"
    file.write_text(
        f"[ui]\nlog_lines = 9\n\n[coders.nope]\n{key} = {value if value.isdigit() else repr(value)}\n"
    )
    assert f"error: {file}:5: there is no coder 'nope'" in system.fleet("config", "validate", code=2).stderr


@pytest.mark.parametrize("key", ["coder.default", "coders.claude.fallback"])
def test_a_coder_that_there_is_not_is_neither_set_nor_valid(system: System, key: str) -> None:
    system.env["FLEET_CODER_DEFAULT"] = ""
    file = system.home / "config.toml"
    refused = system.fleet("config", "set", key, "nope", "--user", code=2)
    assert "there is no coder 'nope'" in refused.stderr
    assert "codex" in refused.stderr
    section, _, name = key.rpartition(".")
    file.write_text(f"[{section}]\n{name} = 'nope'\n")
    refused = system.fleet("config", "validate", code=2)
    assert f"error: {file}:2: " in refused.stderr
    assert "'nope'" in refused.stderr
    file.write_text("[coders.mine]\ncommand = ['mine']\n")
    system.fleet("config", "set", key, "mine")  # that the other file defines
    assert system.fleet("config", "validate").stdout == "the configuration is valid\n"


def test_a_fallback_can_be_taken_back(system: System) -> None:
    system.fleet("config", "set", "coders.claude.fallback", "codex")
    system.fleet("config", "set", "coders.claude.fallback", "")
    assert system.fleet("config", "validate").stdout == "the configuration is valid\n"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("config set limits.per_c", "limits.per_coder"),
        ("config set coders.claude.fa", "coders.claude.fallback"),
        ("create x -a cla", "claude"),
        ("bd create x --coder cla", "claude"),
    ],
)
def test_the_shell_completes_keys_and_coders(system: System, words: str, found: str) -> None:
    system.env |= {
        "_FLEET_COMPLETE": "bash_complete",
        "COMP_WORDS": f"fleet {words}",
        "COMP_CWORD": str(len(words.split())),
    }
    assert system.fleet().stdout.split() == [f"plain,{found}"]


def checks_of(system: System, code: int = 0) -> dict[str, dict[str, str]]:
    return {check["name"]: check for check in system.json("doctor", code=code)}


def test_the_doctor_is_content_though_optional_programs_are_missing(system: System, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("git", "sh"):
        (tools / name).symlink_to(Path("/usr/bin") / name)
    system.env["PATH"] = str(tools)
    checks = checks_of(system)
    assert checks["git"]["verdict"] == "ok"
    assert checks["tmux"]["verdict"] == "warn"
    assert checks["coder claude"]["verdict"] == "warn"
    assert "install it with" in checks["coder claude"]["fix"]
    assert checks["store"]["found"] == "not made yet"
    assert not (system.home / "fleet.db").exists()


def test_the_doctor_tells_versions_and_logins(system: System, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, script in {
        "claude": "echo 9.8.7",
        "codex": "sleep 0; echo codex-cli 1.2",
        "gemini": "exit 3",
    }.items():
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    system.env |= {
        "PATH": f"{tools}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "ANTHROPIC_API_KEY": "secret-value",
    }
    done = system.fleet("doctor", "--json")
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert "9.8.7" in checks["coder claude"]["found"]
    assert "ANTHROPIC_API_KEY" in checks["coder claude"]["found"]
    assert "secret-value" not in done.stdout + done.stderr
    assert checks["coder gemini"]["verdict"] == "warn"


@pytest.mark.parametrize("what", ["store", "config", "disk", "git"])
def test_the_doctor_fails_for_what_nothing_works_without(system: System, tmp_path: Path, what: str) -> None:
    if what == "store":
        (system.home / "fleet.db").write_bytes(b"broken" * 1000)
    elif what == "config":
        (system.home / "config.toml").write_text("[oops\n")
    elif what == "disk":
        (system.home / "config.toml").write_text("[limits]\nmin_free_mb = 1000000000\n")
    else:
        (tmp_path / "git").write_text("#!/bin/sh\necho git version 2.30.9\n")
        (tmp_path / "git").chmod(0o755)
        system.env["PATH"] = f"{tmp_path}:/usr/bin:/bin"
    checks = checks_of(system, code=1)
    assert {name for name, check in checks.items() if check["verdict"] == "fail"} == {what}
    assert checks[what]["fix"]
    assert "fail  " in system.fleet("doctor", code=1).stdout


def test_the_doctor_minds_who_can_read_the_home(system: System) -> None:
    record(system.home, ended_run("x"))
    system.home.chmod(0o755)
    assert "chmod 700" in checks_of(system)["home"]["fix"]
    system.home.chmod(0o700)
    assert checks_of(system)["home"]["verdict"] == "ok"
    assert "1 runs" in checks_of(system)["store"]["found"]


def test_update_from_a_checkout_says_what_to_type(system: System) -> None:
    done = system.fleet("update", "--check")
    assert "git pull" in done.stdout


def test_the_demo_shows_what_it_promises_and_leaves_nothing_behind(system: System, tmp_path: Path) -> None:
    system.env["TMPDIR"] = str(tmp_path / "scratch")
    (tmp_path / "scratch").mkdir()
    done = system.fleet("demo", seconds=110)
    assert "FAIL" not in done.stdout
    assert "kept its pid through the crash" in done.stdout
    assert "with SIGKILL" in done.stderr
    assert list((tmp_path / "scratch").iterdir()) == []
    assert processes_with(str(tmp_path / "scratch")) == set()


def test_a_kept_demo_can_be_looked_at(system: System, tmp_path: Path) -> None:
    system.env["TMPDIR"] = str(tmp_path)
    done = system.fleet("demo", "--keep", "--agents", "1", seconds=110)
    export = re.search(r"export FLEET_HOME=(\S+); cd (\S+)", done.stdout)
    assert export
    system.env["FLEET_HOME"] = export[1]
    assert stat.S_IMODE(Path(export[1]).stat().st_mode) == 0o700
    assert system.json("list", cwd=Path(export[2]))[0]["branch"] == "plant-roses"
    (listing,) = re.findall(r"^  (.*) list$", done.stdout, re.MULTILINE)
    shown = subprocess.run(
        f"{listing} list --json",
        shell=True,
        cwd=export[2],
        env=os.environ | system.env,
        capture_output=True,
        check=False,
    )
    assert shown.returncode == 0, "the commands can be called as they are printed"
    assert system.fleet("run", "--status", code=7)
