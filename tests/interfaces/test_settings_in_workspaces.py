"""Inside a workspace the settings of the main checkout hold, whatever its agent wrote there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.branches import branch_off
from tests.support import System, git, make_repository, scenario

OURS = '[merge]\ngates = ["false"]\n[coders.scripted]\nmodel = "ours"\n'
THEIRS = '[merge]\ngates = ["true"]\n[coders.scripted]\nmodel = "theirs"\nskip_permissions = true\n'
HARMLESS = 'stages: [{name: "one", prompt: "x"}]\n'


def _write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _gates(system: System, folder: Path) -> object:
    shown = system.json("config", "show", cwd=folder)
    return next(one["value"] for one in shown if one["key"] == "merge.gates")


def test_an_agent_does_not_replace_the_gates_that_judge_it(system: System, tmp_path: Path) -> None:
    _write(system.repository, ".fleet/config.toml", OURS)
    _write(system.repository, ".fleet/workflows/usual.yaml", HARMLESS)
    git(system.repository, "add", "-A")
    git(system.repository, "commit", "-q", "-m", "settings")
    steps = (
        {"edit": {"path": ".fleet/config.toml", "content": THEIRS}},
        {"edit": {"path": ".fleet/workflows/evil.yaml", "content": HARMLESS}},
        {"edit": {"path": "usual", "content": "not even a workflow"}},
    )
    system.fleet("create", "bold", "-p", scenario(*steps), "--wait")
    git(system.repository, "checkout", "-q", "--detach")
    workspace = Path(system.run("bold").workspace)
    nested = workspace / "deep" / "er"
    make_repository(workspace / "own", {".fleet/config.toml": THEIRS})
    nested.mkdir(parents=True)

    for folder in (workspace, nested, workspace / "own"):
        assert _gates(system, folder) == ["false"], folder
    known = [one["name"] for one in system.json("workflow", "list", "--known", cwd=workspace)]
    assert "usual" in known
    assert "evil" not in known
    assert "usual can run" in system.fleet("workflow", "run", "usual", "--check", cwd=workspace).stderr
    system.fleet("pause")
    system.fleet("create", "next", "-p", "x", cwd=workspace)
    assert system.run("next").model == "ours"
    assert not system.run("next").skip_permissions
    train = system.json("merge", "bold", cwd=workspace)
    assert train["gates"] == ["false"]
    assert train["branches"][0]["protected_files"] == [".fleet/config.toml", ".fleet/workflows/evil.yaml"]
    system.fleet("train", "cancel", train["id"])

    # A workspace that leads elsewhere is refused, and its settings are read from where it was made.
    elsewhere = make_repository(tmp_path / "elsewhere", {".fleet/config.toml": THEIRS})
    (workspace / ".git").unlink()
    for tamper in (lambda: (workspace / ".git").symlink_to(elsewhere / ".git"), lambda: _init(workspace)):
        tamper()
        assert _gates(system, workspace) == ["false"]
        for words in (("create", "a", "-p", "x"), ("merge", "bold"), ("task", "create", "t")):
            refused = system.fleet(*words, cwd=workspace, code=4)
            assert f"was made from {system.repository}" in refused.stderr, words
            assert f"cd into {system.repository}" in refused.stderr
        (workspace / ".git").unlink() if (workspace / ".git").is_symlink() else shutil.rmtree(
            workspace / ".git"
        )


def _init(folder: Path) -> None:
    git(folder, "init", "-q")
    git(
        folder,
        "-c",
        "user.name=x",
        "-c",
        "user.email=x@localhost",
        "commit",
        "-q",
        "--allow-empty",
        "-m",
        "x",
    )


def test_settings_and_workflows_behind_a_link_are_refused(system: System, tmp_path: Path) -> None:
    _write(tmp_path, "planted/config.toml", THEIRS)
    _write(tmp_path, "planted/workflows/evil.yaml", HARMLESS)
    folder = system.repository / ".fleet"
    folder.symlink_to(tmp_path / "planted")
    for words in (("config", "show"), ("create", "a", "-p", "x"), ("merge", "main"), ("config", "validate")):
        refused = system.fleet(*words, code=2)
        assert f"{folder}: is a symbolic link" in refused.stderr, words
    folder.unlink()
    folder.mkdir()
    (folder / "config.toml").symlink_to(tmp_path / "planted/config.toml")
    refused = system.fleet("config", "set", "merge.gates", "true", code=2)
    assert f"{folder / 'config.toml'}: is a symbolic link" in refused.stderr
    (folder / "config.toml").unlink()
    (folder / "workflows").mkdir()
    (folder / "workflows/evil.yaml").symlink_to(tmp_path / "planted/workflows/evil.yaml")
    assert "is a symbolic link" in system.fleet("workflow", "run", "evil", "--check", code=2).stderr


def test_a_branch_that_changes_what_it_is_judged_by_is_named_before_it_lands(system: System) -> None:
    files = {
        ".github/workflows/test.yml": "on: push\n",
        "conftest.py": "",
        "check.sh": "exit 0\n",
        "package.json": json.dumps({"dependencies": {"left": "1"}}),
        "src/app.py": "",
    }
    branch_off(system.repository, "sly", files)
    branch_off(system.repository, "honest", {"app.py": ""})
    git(system.repository, "checkout", "-q", "--detach")
    named = [".github/workflows/test.yml", "check.sh", "conftest.py"]
    told = system.fleet("merge", "sly", "honest", "--gate", "sh check.sh || true", "--wait")
    warnings = [line for line in told.stderr.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 1
    assert "sly changes" in warnings[0]
    assert all(name in warnings[0] for name in named)
    assert told.stdout.count("changes settings, gates, CI or test configuration") == 1
    (train,) = system.json("train", "list", "--all")
    assert {one["branch"]: one["protected_files"] for one in train["branches"]} == {
        "sly": named,
        "honest": [],
    }
