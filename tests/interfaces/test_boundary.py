"""What an agent changes outside of its workspace is noticed, named, and can be brought back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support import System, git, make_repository, scenario, wait_for

# Each is a route out of a workspace: what a hostile agent runs, and what its report must name.
# $MAIN is the main checkout, $GIT its git folder, $OTHER another run that is at rest, $THERE its workspace.
ROUTES: list[tuple[str, str]] = [
    ("git -C $MAIN branch -f old-work HEAD~1", "ref refs/heads/old-work"),
    ("git -C $MAIN branch -D doomed", "ref refs/heads/doomed"),
    ("git -C $MAIN tag -f v1 HEAD~1", "ref refs/tags/v1"),
    ("git -C $MAIN update-ref -d refs/fleet/saved/$GONE", "ref refs/fleet/saved/"),
    ("git -C $MAIN update-ref refs/fleet/base/$OTHER HEAD~1", "ref refs/fleet/base/"),
    ("git update-ref refs/heads/other $(git rev-parse refs/fleet/base/$OTHER^0)", "ref refs/heads/other"),
    ("git replace -f $(git rev-parse HEAD) $(git rev-parse HEAD~1)", "ref refs/replace/"),
    (
        "sed -i 's/^[0-9a-f]* \\(refs.heads.packed\\)$/'$(git rev-parse HEAD~1)' \\1/' $GIT/packed-refs",
        "refs/heads/packed",
    ),
    (
        "cd $GIT/hooks; printf '#!/bin/sh\\ntouch $HOME/pwned\\n' > post-checkout; chmod +x post-checkout",
        "hooks/post-checkout",
    ),
    (
        "git config core.hooksPath /tmp/x; git config core.pager 'touch pwned'; git config alias.st '!true'",
        "core.hookspath (",
    ),
    (
        "git config filter.evil.clean \"touch $PWNED; cat\"; echo '* filter=evil' > .gitattributes",
        "filter.evil.clean",
    ),
    ("git config --global user.name Mallory", "user.name ("),
    ("echo '* -diff' > $GIT/info/attributes", "info/attributes"),
    ("echo '*.py' >> $GIT/info/exclude", "info/exclude"),
    ("echo /tmp/x > $GIT/objects/info/alternates", "objects/info/alternates"),
    ("echo '[boundary]\nhold = false' >> $FLEET_HOME/config.toml", "home/config.toml"),
    (
        "mkdir -p $MAIN/.fleet; echo '[merge]\ngates = [\"true\"]' > $MAIN/.fleet/config.toml",
        ".fleet/config.toml",
    ),
    ("echo changed >> $MAIN/README.md", "checkout README.md"),
    (
        "cd $MAIN; git update-index --assume-unchanged hidden.txt; echo changed > hidden.txt",
        "checkout hidden.txt",
    ),
    ("git -C $MAIN stash drop -q 'stash@{1}'", "stash stash "),
    ("mkdir -p $FLEET_HOME/workflows; echo x > $FLEET_HOME/workflows/mine.yaml", "workflows/mine.yaml"),
    ("rm $MAIN/doc.txt", "checkout doc.txt"),
    ("echo x > $MAIN/staged.txt; git -C $MAIN add staged.txt", "index staged.txt"),
    ("rm $MAIN/notes", "checkout notes"),
    ("git -C $MAIN symbolic-ref HEAD refs/heads/side", "head HEAD"),
    ("echo '{}' > $FLEET_HOME/runs/$OTHER/result.json", "run "),
    ("git -C $THERE checkout -q --detach", "workspace "),
]


def _world(system: System) -> dict[str, str]:
    """Two runs at rest, one of them removed, and a repository with something to lose."""
    repository = system.repository
    (repository / "doc.txt").write_text("doc\n")
    (repository / "hidden.txt").write_text("hidden\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "second")
    for branch in ("old-work", "doomed", "packed", "side"):
        git(repository, "branch", branch)
    git(repository, "tag", "v1")
    edit = {"edit": {"path": "x", "content": "x"}}
    system.fleet("multi", f"other:{scenario(edit)}", f"gone:{scenario(edit)}", "--wait")
    system.fleet("kill", "gone", "--force")
    git(repository, "pack-refs", "--all")
    for number in (1, 2):
        (repository / "doc.txt").write_text(f"stashed {number}\n")
        git(repository, "stash", "-q")
    (repository / "notes").write_text("mine\n")
    other, gone = system.run("other"), system.run("gone")
    return {
        "MAIN": str(repository),
        "GIT": str(repository / ".git"),
        "OTHER": other.id,
        "THERE": other.workspace,
        "GONE": gone.id,
        "PWNED": str(system.home.parent / "pwned"),
    }


def _told(found: dict[str, Any]) -> list[str]:
    return [
        f"{one['what']} {one['name']} {one['old']} {one['new']} {one['weight']}"
        for one in found["changed_outside"]
    ]


def test_every_route_out_of_a_workspace_is_noticed_named_and_brought_back(system: System) -> None:
    system.env["HOME"] = str(system.home.parent)
    world = _world(system)
    repository = system.repository
    refs = git(repository, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/tags")
    stashes = git(repository, "stash", "list", "--format=%H").split()
    config, home = (repository / ".git/config").read_bytes(), (system.home / "config.toml").read_bytes()
    saved = git(repository, "rev-parse", f"refs/fleet/saved/{world['GONE']}")
    lines = [f"export {name}='{value}'" for name, value in world.items()]
    script = "\n".join([*lines, *(f"( {command} )" for command, _ in ROUTES)])
    steps = ({"run": script}, {"edit": {"path": "work.txt", "content": "work"}})
    system.fleet("create", "hostile", "-p", scenario(*steps), "--wait", code=5)

    found = system.json("result", "hostile")
    told = _told(found)
    missed = [name for _, name in ROUTES if not any(name in line for line in told)]
    assert not missed, "\n".join(told)
    assert found["state"] == "completed"
    assert not Path(world["PWNED"]).exists(), "a filter that was configured during the run was run"

    # Recovery refs are back already; everything else waits for a person, and so does the result.
    assert git(repository, "rev-parse", f"refs/fleet/saved/{world['GONE']}") == saved
    assert "completed (held)" in system.fleet("list").stdout
    assert "held" in system.fleet("result", "hostile").stdout
    refused = system.fleet("merge", "hostile", "--no-gate", "--into", "side", code=4)
    assert "fleet boundary show hostile" in refused.stderr
    agent = System(system.home, repository, {"FLEET_RUN": "0123456789abcd"})
    assert "belongs to another home" in agent.fleet("boundary", "accept", "hostile", code=8).stderr

    restored = system.fleet("boundary", "restore", "hostile", "--yes", code=None)
    assert "restores ref refs/heads/old-work" in restored.stderr
    kept = git(
        repository, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/tags"
    ).splitlines()
    assert {line for line in kept if " " in line and "/hostile " not in line} == set(refs.splitlines())
    assert (repository / ".git/config").read_bytes() == config
    assert (system.home / "config.toml").read_bytes() == home
    assert not (repository / ".git/hooks/post-checkout").exists()
    assert (repository / "README.md").read_text() == "hello\n"
    assert (repository / "doc.txt").read_text() == "doc\n"
    assert (repository / "hidden.txt").read_text() == "hidden\n"
    assert set(git(repository, "stash", "list", "--format=%H").split()) == set(stashes)
    # What cannot be brought back is accepted, and the run is free.
    assert "is no longer held" in system.fleet("boundary", "accept", "hostile").stdout
    assert system.json("boundary") == []


def test_what_a_person_did_is_accepted_once_for_all(system: System) -> None:
    script = f"git -C {system.repository} branch -f shared HEAD~1"
    (system.repository / "more").write_text("")
    git(system.repository, "add", "-A")
    git(system.repository, "commit", "-q", "-m", "second")
    git(system.repository, "branch", "shared")
    waits = {"run": "while ! [ -e go ]; do sleep 0.05; done"}
    system.fleet("multi", *(f"{name}:{scenario(waits)}" for name in ("one", "two")))
    for name in ("one", "two"):
        system.wait_until(name, lambda run: str(run.state) == "running")
    subprocess.run(script, shell=True, check=True)
    for name in ("one", "two"):
        Path(system.run(name).workspace, "go").touch()
    system.fleet("wait", "one", "two", code=5)
    assert {run["branch"] for run in system.json("boundary")} == {"one", "two"}
    system.fleet("boundary", "accept", "one")
    assert system.json("boundary") == []
    assert git(system.repository, "rev-parse", "shared") == git(system.repository, "rev-parse", "main~1")


def test_what_has_a_known_author_holds_nobody(system: System, tmp_path: Path) -> None:
    """Other agents at work, fetches, new branches, a landing train, the agent's own upstream."""
    upstream = make_repository(tmp_path / "upstream")
    git(system.repository, "remote", "add", "origin", str(upstream))
    git(system.repository, "branch", "target")
    git(system.repository, "branch", "feature", "main")
    waits = {"run": "while ! [ -e go ]; do sleep 0.05; done; rm go"}
    busy = {"run": "git fetch -q origin; git branch mine; git config branch.calm.remote origin"}
    edit = {"edit": {"path": "x", "content": "x"}}
    # What another agent has made before the turn begins, and changes during it.
    stash = "echo y > y; git add y; git stash -q"
    side = "echo s > s; git add s; git commit -q -m side; git branch -f aside; git branch doomed"
    first = {"run": f"{side}; {stash}; touch ready"}
    then = {"run": "echo t > t; git add t; git commit -q -m more; git branch -f aside; git branch -D doomed"}
    more = {
        "run": "git stash pop -q; git config branch.busy.remote origin; git config submodule.lib.active true"
    }
    system.fleet("multi", f"busy:{scenario(first, waits, then, more)}")
    wait_for(lambda: Path(system.run("busy").workspace, "ready").exists())
    system.fleet("multi", f"calm:{scenario(busy, waits, edit)}")
    system.wait_until("calm", lambda run: str(run.state) == "running")
    Path(system.run("busy").workspace, "go").touch()
    system.fleet("wait", "busy", code=None)
    system.fleet("multi", f"fast:{scenario(edit)}", f"dropped:{scenario(edit)}", "--wait")
    system.fleet("merge", "fast", "--no-gate", "--into", "target", "--wait")
    system.fleet("kill", "dropped", "--force")
    wait_for(lambda: system.run("dropped").is_removed)
    Path(system.run("calm").workspace, "go").touch()
    system.fleet("wait", "calm")
    found = system.json("result", "calm")
    assert found["held"] is None
    assert all(one["weight"] == "note" for one in found["changed_outside"])
    assert any(one["name"] == "refs/heads/mine" for one in found["changed_outside"])


def test_configuration_comes_back_with_its_mode_and_its_passwords_are_in_no_record(system: System) -> None:
    config = system.repository / ".git" / "config"
    git(system.repository, "config", "http.extraHeader", "Authorization: Basic czNjcjN0")
    config.chmod(0o640)
    before = config.read_bytes()
    first = scenario({"run": "git config core.pager first"}, {"edit": {"path": "x", "content": "x"}})
    system.fleet("create", "sly", "-p", first, "--wait", code=5)
    system.fleet("prompt", "sly", scenario({"run": "git config core.pager second"}), "--wait", code=5)
    everything = subprocess.run(
        ("git", "cat-file", "--batch", "--batch-all-objects"), cwd=system.repository, capture_output=True
    ).stdout
    assert b"czNjcjN0" not in everything
    holding = [path for path in system.home.rglob("*") if path.is_file() and b"czNjcjN0" in path.read_bytes()]
    assert {path.parent.parent.name for path in holding} <= {"boundary"}, holding
    assert all(path.stat().st_mode & 0o077 == 0 for path in holding)
    again = scenario({"run": "git config core.pager third"})
    system.fleet("create", "friend", "-p", again, "--wait", code=5)
    kept = system.home / "boundary" / f"{system.run('friend').id}-kept"
    assert kept.is_dir()
    system.fleet("boundary", "restore", "friend", "--yes")
    # Both changes are undone, the later one first.
    system.fleet("boundary", "restore", "sly", "--yes")
    assert config.read_bytes() == before
    assert config.stat().st_mode & 0o777 == 0o640
    assert system.json("boundary") == []
    system.fleet("prompt", "friend", again, "--wait", code=5)
    system.fleet("boundary", "accept", "friend")
    assert not kept.exists()


def test_a_filter_that_is_included_in_any_way_during_a_run_is_not_run(system: System, tmp_path: Path) -> None:
    pwned, extra = tmp_path / "pwned", tmp_path / "extra"
    script = (
        f'printf \'[filter "evil"] clean = "touch {pwned}; cat"\' > {extra};'
        f" echo '[include] path = {extra}' >> {system.repository}/.git/config;"
        " echo '* filter=evil' > .gitattributes; echo work > work.txt"
    )
    system.fleet("create", "sly", "-p", scenario({"run": script}), "--wait", code=5)
    assert not pwned.exists()
    assert git(system.repository, "show", "sly:work.txt") == "work"


def test_a_turn_before_which_nothing_could_be_recorded_is_held(system: System) -> None:
    git(system.repository, "branch", "prize")
    (system.repository / ".git" / "index").write_bytes(b"broken")
    steal = {"run": f"git -C {system.repository} branch -D prize"}
    system.fleet("create", "sly", "-p", scenario(steal), "--wait", code=5)
    (one,) = system.json("result", "sly")["changed_outside"]
    assert "could not be recorded before" in one["new"]


def test_a_change_that_was_accepted_does_not_excuse_another_from_other_values(system: System) -> None:
    git(system.repository, "branch", "prize")
    steal = {"run": f"git -C {system.repository} branch -D prize"}
    system.fleet("create", "one", "-p", scenario(steal), "--wait", code=5)
    system.fleet("boundary", "accept", "one")
    (system.repository / "more").write_text("")
    git(system.repository, "add", "-A")
    git(system.repository, "commit", "-q", "-m", "second")
    git(system.repository, "branch", "prize")
    system.fleet("create", "two", "-p", scenario(steal), "--wait", code=5)


def test_an_agent_accepts_nothing_though_it_does_not_say_that_it_is_one(system: System) -> None:
    git(system.repository, "branch", "prize")
    steal = {"run": f"git -C {system.repository} branch -D prize"}
    system.fleet("create", "sly", "-p", scenario(steal), "--wait", code=5)
    accept = f"env -u FLEET_RUN -u FLEET_RUN_TOKEN {sys.executable} -m fleet boundary accept sly > said 2>&1"
    system.fleet("create", "friend", "-p", scenario({"run": accept}), "--wait", code=None)
    assert "that is a person's to decide" in Path(system.run("friend").workspace, "said").read_text()
    assert [run["branch"] for run in system.json("boundary")] == ["sly"]


def test_commands_of_fleets_own_and_an_agents_own_branches_hold_nobody(system: System) -> None:
    git(system.repository, "branch", "prize")
    steal = {"run": f"git -C {system.repository} branch -D prize"}
    system.fleet("create", "sly", "-p", scenario(steal), "--wait", code=5)
    waits = {"run": "while ! [ -e go ]; do sleep 0.05; done; rm go"}
    side = {"run": "echo $RANDOM$$ > s; git add s; git commit -q -m side; git branch -f aside"}
    system.fleet("multi", f"calm:{scenario(side, waits)}")
    system.wait_until("calm", lambda run: str(run.state) == "running")
    system.fleet("config", "set", "limits.max_concurrent", "4", "--user")
    system.fleet("config", "set", "limits.max_concurrent", "5", "--user")
    system.fleet("boundary", "restore", "sly", "--yes")
    Path(system.run("calm").workspace, "go").touch()
    system.fleet("wait", "calm")
    system.fleet(
        "prompt", "calm", scenario({"run": "echo y > y; git add y; git commit -q -m y"}, side), "--wait"
    )
    assert system.json("boundary") == []


def test_what_was_restored_once_is_no_excuse_later(system: System) -> None:
    git(system.repository, "branch", "prize")
    (system.repository / "more").write_text("")
    git(system.repository, "add", "-A")
    git(system.repository, "commit", "-q", "-m", "second")
    steal = {"run": f"git -C {system.repository} branch -f prize main"}
    system.fleet("create", "one", "-p", scenario(steal), "--wait", code=5)
    system.fleet("boundary", "restore", "one", "--yes")
    git(system.repository, "branch", "-f", "prize", "main")  # the person's own
    back = {"run": f"git -C {system.repository} branch -f prize main~1"}
    system.fleet("create", "two", "-p", scenario(back), "--wait", code=5)


def test_show_offers_to_accept_or_restore_and_a_restore_tells_where_the_replaced_commit_is(
    system: System,
) -> None:
    (system.repository / "more").write_text("")
    git(system.repository, "add", "-A")
    git(system.repository, "commit", "-q", "-m", "second")
    git(system.repository, "branch", "prize", "main~1")
    steal = {"run": f"git -C {system.repository} branch -f prize main"}
    system.fleet("create", "sly", "-p", scenario(steal), "--wait", code=5)
    offered = system.fleet("boundary", "show", "sly").stderr
    assert "next: `fleet boundary accept sly`, or `fleet boundary restore sly`" in offered
    told = system.fleet("boundary", "restore", "sly", "--yes").stderr
    command = told.partition("what was replaced is kept: `git -C ")[2].partition("`")[0].split()
    assert command[0] == str(system.repository)
    assert "second" in git(system.repository, *command[1:], "--format=%s").splitlines()


def test_what_a_restore_replaces_in_the_checkout_is_kept_by_name(system: System) -> None:
    edit = {"run": f"echo mine > {system.repository}/README.md"}
    system.fleet("create", "sly", "-p", scenario(edit), "--wait", code=5)
    told = system.fleet("boundary", "restore", "sly", "--yes")
    ref = f"refs/fleet/before/{system.run('sly').id}"
    assert ref in told.stderr
    assert git(system.repository, "show", f"{ref}:checkout/README.md") == "mine"
    assert (system.repository / "README.md").read_text() == "hello\n"


def test_a_broken_configuration_is_brought_back(system: System) -> None:
    system.env["HOME"] = str(system.home.parent)
    script = {"run": "echo '[broken' >> $HOME/.gitconfig; echo work > work.txt"}
    system.fleet("create", "sly", "-p", scenario(script), "--wait", code=None)
    assert system.run("sly").held
    system.fleet("boundary", "restore", "sly", "--yes")
    assert not (system.home.parent / ".gitconfig").exists()
    assert "sly" in system.fleet("clean", "--yes").stdout


def test_what_is_restored_for_one_run_is_not_undone_when_another_ends(system: System) -> None:
    """What restoring replaces is kept under the run's recovery ref, which moves for it."""
    (system.repository / "more").write_text("")
    git(system.repository, "add", "-A")
    git(system.repository, "commit", "-q", "-m", "second")
    git(system.repository, "branch", "prize")
    steal = {"run": f"git -C {system.repository} branch -f prize HEAD~1"}
    system.fleet("create", "sly", "-p", scenario(steal), "--wait", code=5)
    waits = {"run": "while ! [ -e go ]; do sleep 0.05; done"}
    system.fleet("multi", f"other:{scenario(waits)}")
    system.wait_until("other", lambda run: str(run.state) == "running")
    ref = f"refs/fleet/before/{system.run('sly').id}"
    before = git(system.repository, "rev-parse", ref)
    system.fleet("boundary", "restore", "sly", "--yes")
    kept = git(system.repository, "rev-parse", ref)
    assert kept != before
    Path(system.run("other").workspace, "go").touch()
    system.fleet("wait", "other", code=None)
    assert git(system.repository, "rev-parse", ref) == kept
    assert git(system.repository, "rev-parse", "prize") == git(system.repository, "rev-parse", "main")


def test_a_task_whose_agent_is_held_waits_for_a_person_though_the_supervisor_was_killed(
    system: System,
) -> None:
    (system.repository / "more").write_text("")
    git(system.repository, "add", "-A")
    git(system.repository, "commit", "-q", "-m", "second")
    git(system.repository, "branch", "prize")
    go = system.home / "go"
    steps = (
        {"run": f"git -C {system.repository} branch -f prize HEAD~1"},
        {"run": f"while ! [ -e {go} ]; do sleep 0.05; done"},
        {"edit": {"path": "x", "content": "x"}},
        {"run": 'echo "Status: COMPLETED" >> "$FLEET_ARTIFACT_DIR/PLAN_AND_STATUS.md"'},
    )
    task = system.json("task", "create", "sly", "-d", scenario(*steps))["id"]
    wait_for(
        lambda: git(system.repository, "rev-parse", "prize") == git(system.repository, "rev-parse", "main~1")
    )
    os.kill(system.supervisor_pid(), signal.SIGKILL)
    go.touch()
    system.fleet("run", "--background")
    wait_for(lambda: system.json("boundary"), 60, "its run is held")
    (held,) = system.json("boundary")
    assert system.json("show", task)["state"] == "in_progress"
    asked = system.fleet("questions")
    assert f"{held['branch']} is held" in asked.stdout + asked.stderr
    assert "no longer held" in system.fleet("boundary", "restore", held["id"], "--yes").stdout
    wait_for(lambda: system.json("show", task)["state"] == "closed", 60, "the task goes on")
    assert git(system.repository, "rev-parse", "prize") == git(system.repository, "rev-parse", "main")
