"""`fleet conflicts`, `fleet merge`, `fleet train`: what they say, refuse and touch."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shlex import quote
from typing import Any

import pytest

from tests.branches import branch_off, edited_meanwhile
from tests.support import System, git, scenario


@pytest.fixture
def three(system: System) -> System:
    """Two branches in each other's way, and one in nobody's."""
    branch_off(system.repository, "one", {"README.md": "one\n"})
    branch_off(system.repository, "two", {"README.md": "two\n"})
    branch_off(system.repository, "three", {"new\nline": "3\n"})
    return system


def test_what_somebody_edits_in_a_workspace_is_committed_before_it_is_merged(system: System) -> None:
    edit = {"edit": {"path": "x", "content": "x"}}
    system.fleet("create", "work", "-p", scenario(edit), "--wait")
    workspace = Path(system.run("work").workspace)
    (workspace / "by-hand").write_text("mine\n")
    refused = system.fleet("merge", "work", "--no-gate", "--update-checkout", code=4).stderr
    assert "has uncommitted files: 'by-hand'" in refused
    assert f"commit or delete them in {workspace}" in refused
    git(workspace, "add", "--all")
    git(workspace, "commit", "-qm", "by hand")
    system.fleet("merge", "work", "--no-gate", "--update-checkout", "--wait")
    assert (system.repository / "by-hand").exists()


# conflicts


def test_the_forecast_names_who_is_in_whose_way_and_the_files(three: System) -> None:
    told = three.fleet("conflicts", "one", "two", "three", code=4)
    assert "README.md" in told.stdout
    assert "fleet merge one two three" in told.stderr
    found = three.json("conflicts", "one", "two", "three", code=4)
    assert [branch["merges"] for branch in found["branches"]] == [True, True, True]
    assert found["pairs"] == [
        {"branches": ["one", "two"], "conflict": {"files": ["README.md"], "reason": ""}}
    ]


def test_the_forecast_knows_the_target_too(three: System) -> None:
    found = three.json("conflicts", "two", "three", "--into", "one", code=4)
    assert {branch["branch"]: branch["merges"] for branch in found["branches"]} == {
        "two": False,
        "three": True,
    }


def test_without_names_the_agents_branches_with_work_in_them_are_meant(system: System) -> None:
    edit = {"edit": {"path": "x", "content": "x"}}
    wishes = {"done": [edit], "empty": [{"say": "nothing"}], "dropped": [edit]}
    system.fleet("multi", *(f"{branch}:{scenario(*steps)}" for branch, steps in wishes.items()), "--wait")
    system.fleet("kill", "dropped", "--force")
    found = system.json("conflicts")
    assert [(one["branch"], one["state"]) for one in found["branches"]] == [("done", "completed")]
    assert git(system.repository, "status", "--porcelain") == ""


def test_where_nothing_is_to_be_merged_the_forecast_says_so(system: System) -> None:
    assert "no agent's branch has commits that 'main' lacks" in system.fleet("conflicts").stderr


# what is refused before anything is begun


def test_landing_on_a_branch_that_is_checked_out_is_refused_with_the_way_out(three: System) -> None:
    refused = three.fleet("merge", "one", "--no-gate", code=4)
    assert f"'main' is checked out in {three.repository}" in refused.stderr
    assert "--update-checkout" in refused.stderr
    assert three.json("train", "list", "--all") == []


REFUSED: list[tuple[tuple[str, ...], int, str]] = [
    (("merge",), 2, "no branches given"),
    (("merge", "one"), 2, "no gate is set"),
    (("merge", "one", "--gate", " "), 2, "a gate is empty"),
    (("merge", "one", "--gate", "…"), 2, "the gate `…` is a placeholder"),
    (("merge", "one", "--gate", "true", "--no-gate"), 2, "--gate and --no-gate exclude each other"),
    (("merge", "nobody", "--no-gate"), 3, "there is no branch, run, task, workflow, pair or race 'nobody'"),
    (("merge", "main", "--no-gate"), 2, "cannot be merged into itself"),
    (("merge", "one", "--into", "nowhere", "--no-gate"), 3, "there is no branch 'nowhere'"),
    (("merge", "--batch", "nobatch", "--no-gate"), 3, "batch 'nobatch' has no agents"),
    (("merge", "one", "--pr", "--wait"), 2, "--pr takes no --wait"),
    (("merge", "one", "--pr", "--gate", "true"), 2, "--pr takes no --gate and no --update-checkout"),
    (("merge", "one", "--pr"), 3, "there is no remote 'origin'"),
    (("merge", "--no-gate", "--", "--upload-pack=x"), 3, "there is no branch"),
    (("conflicts", "nobody"), 3, "there is no branch"),
    (("train", "show", "m-nothing"), 3, "there is no train"),
    (("train", "cancel", "m-nothing"), 3, "there is no train"),
    (("train", "resume", "x"), 3, "there is no train"),
]


def test_what_cannot_be_is_refused_with_a_reason(three: System) -> None:
    for words, code, said in REFUSED:
        refused = three.fleet(*words, code=code)
        assert said in refused.stderr, words
        assert "--batch" not in refused.stderr or "--batch" in words
        assert "hint:" in refused.stderr or "itself" in said or "is empty" in said
    assert three.json("train", "list", "--all") == []


def test_an_agent_decides_about_no_landing(three: System) -> None:
    git(three.repository, "checkout", "-q", "--detach")
    agent = System(three.home, three.repository, {"FLEET_RUN": "0123456789abcd"})
    for words in (
        ("merge", "one", "--no-gate"),
        ("merge", "one", "--pr"),
        ("train", "cancel", "x"),
        ("train", "resume", "x"),
    ):
        refused = agent.fleet(*words, code=8)
        assert "belongs to another home" in refused.stderr, words
    assert three.json("train", "list", "--all") == []


def test_outside_of_a_repository_there_is_nothing_to_merge(system: System, tmp_path: Path) -> None:
    refused = system.fleet("merge", "x", "--no-gate", code=2, cwd=tmp_path)
    assert f"not a git repository: '{tmp_path}'" in refused.stderr
    for words in (("merge", "x", "--no-gate"), ("conflicts",), ("create", "x", "-p", "y")):
        refused = system.fleet(*words, code=2, cwd=tmp_path)
        assert refused.stderr.endswith("hint: cd into one\n"), words


def test_hostile_names_are_taken_as_names(system: System) -> None:
    branch = "a'b$(id);&|\"c"
    for name, text in ((branch, "1"), ("other", "2")):
        branch_off(system.repository, name, {"not \udcff text": text, "new\nline": "same"})
    found = system.json("conflicts", branch, "other", code=4)
    assert found["pairs"][0]["conflict"]["files"] == ["not \\xff text"]
    git(system.repository, "checkout", "-q", "--detach")
    train = system.json("merge", "other", branch, "--no-gate", "--wait", code=5)
    assert [one["state"] for one in train["branches"]] == ["landed", "refused"]
    shown = system.fleet("train", "show", train["id"]).stdout
    assert f"git switch {quote(branch)}" in shown


# landing


def test_a_clean_checkout_is_brought_forward_where_that_was_asked_for(three: System) -> None:
    done = three.fleet("merge", "one", "two", "three", "--no-gate", "--update-checkout", "--wait", code=5)
    assert "2 of 3 landed" in done.stdout
    again = "fleet merge two --no-gate --update-checkout"
    assert f"next: `git switch two && git merge main`, then `{again}`" in done.stdout
    assert (three.repository / "README.md").read_text() == "one\n"
    assert git(three.repository, "status", "--porcelain") == ""


def test_a_dirty_checkout_is_refused_before_there_is_a_train(three: System) -> None:
    (three.repository / "README.md").write_text("being edited\n")
    refused = three.fleet("merge", "one", "--no-gate", "--update-checkout", code=4)
    assert "has changes that are not committed" in refused.stderr
    assert "git stash" in refused.stderr
    assert three.json("train", "list", "--all") == []


def test_all_that_is_in_the_way_of_a_landing_is_told_at_once(three: System) -> None:
    refused = three.fleet("merge", "one", code=2)
    assert "no gate is set" in refused.stderr
    assert f"'main' is checked out in {three.repository}" in refused.stderr
    assert "--update-checkout" in refused.stderr


def test_a_checkout_that_is_edited_meanwhile_halts_the_train_and_stays_as_it_is(
    three: System, tmp_path: Path
) -> None:
    gate = edited_meanwhile(three.repository, tmp_path)
    done = three.fleet("merge", "one", "--gate", gate, "--update-checkout", "--wait", code=5)
    assert "has changes that are not committed" in done.stdout
    assert "next: `fleet train resume m-" in done.stderr
    assert "or `fleet train cancel m-" in done.stderr
    assert (three.repository / "README.md").read_text() == "being edited\n"
    git(three.repository, "checkout", "-q", "README.md")
    train = three.json("train", "list")[0]
    assert (train["state"], train["branches"][0]["state"]) == ("halted", "waiting")
    three.fleet("train", "resume", train["id"][-4:])
    done = three.fleet("train", "wait", train["id"])
    assert "1 of 1 landed" in done.stdout
    assert "is done" in three.fleet("train", "cancel", train["id"], code=4).stderr


def test_gates_come_from_the_settings_and_what_merges_already_is_told(three: System) -> None:
    three.fleet("config", "set", "merge.gates", '["test -e README.md"]', "--user")
    git(three.repository, "checkout", "-q", "one")
    git(three.repository, "branch", "merged", "main")
    train = three.json("merge", "three", "merged", "--wait")
    assert train["gates"] == ["test -e README.md"]
    assert {one["branch"]: one["state"] for one in train["branches"]} == {
        "three": "landed",
        "merged": "empty",
    }


def test_a_wait_can_be_cut_short(three: System) -> None:
    git(three.repository, "checkout", "-q", "one")
    train = three.json("merge", "three", "--gate", "sleep 60")
    late = three.fleet("train", "wait", train["id"], "--timeout", "0.2", code=7)
    assert "is still at work" in late.stderr
    three.fleet("train", "cancel", train["id"])
    assert "cancelled" in three.fleet("train", "wait", train["id"], code=1).stdout


# pull requests

GH = """#!{python}
import json, os, sys
with open({log!r}, "a") as file:
    file.write(json.dumps([sys.argv[1:], sys.stdin.read()]) + "\\n")
opened = os.path.exists({mark!r})
if sys.argv[1:3] == ["pr", "list"]:
    print(json.dumps([{{"url": "https://forge/pull/7"}}] if opened else []))
elif {fails!r}:
    sys.exit("could not resolve to a Repository")
else:
    open({mark!r}, "w").close()
    print("Creating pull request for one into main\\n\\nhttps://forge/pull/7")
"""


@pytest.fixture
def remote(three: System, tmp_path: Path) -> Path:
    git(tmp_path, "clone", "-q", "--bare", str(three.repository), "remote.git")
    git(three.repository, "remote", "add", "origin", str(tmp_path / "remote.git"))
    git(tmp_path / "remote.git", "branch", "-D", "one")
    return tmp_path / "remote.git"


def put_gh(system: System, tmp_path: Path, *, fails: bool = False) -> Path:
    """Put a `gh` on PATH that writes down how it is called."""
    folder, log = tmp_path / "bin", tmp_path / "gh.log"
    folder.mkdir(exist_ok=True)
    mark = str(tmp_path / "opened")
    text = GH.format(python=sys.executable, log=str(log), mark=mark, fails=fails)
    (folder / "gh").write_text(text)
    (folder / "gh").chmod(0o755)
    system.env["PATH"] = f"{folder}:{system.environment['PATH']}"
    return log


def calls(log: Path) -> list[tuple[list[str], str]]:
    return [tuple(json.loads(line)) for line in log.read_text().splitlines()]


def test_gh_opens_a_pull_request_once(three: System, remote: Path, tmp_path: Path) -> None:
    log = put_gh(three, tmp_path)
    first = three.fleet("merge", "one", "--pr").stdout
    assert first == "one  https://forge/pull/7  (opened)\n"
    assert git(remote, "rev-parse", "one") == git(three.repository, "rev-parse", "one")
    (again,) = three.json("merge", "one", "--pr")
    assert again == {"branch": "one", "url": "https://forge/pull/7", "is_new": False, "protected_files": []}
    made = [words for words, _ in calls(log) if words[:2] == ["pr", "create"]]
    assert made == [["pr", "create", "--head=one", "--base=main", "--title=one", "--body-file=-"]]
    assert git(three.repository, "rev-parse", "main") == git(remote, "rev-parse", "main")


def test_what_the_agent_said_is_the_text_of_the_pull_request(
    three: System, remote: Path, tmp_path: Path
) -> None:
    log = put_gh(three, tmp_path)
    hostile = "I fixed it; `rm -rf $HOME` --head=main"
    steps = ({"edit": {"path": "x", "content": "x"}}, {"commit": "Fix $(it)"}, {"say": hostile})
    three.fleet("create", "fix", "-p", scenario(*steps), "--wait")
    three.fleet("merge", "fix", "--pr")
    words, text = next(call for call in calls(log) if call[0][:2] == ["pr", "create"])
    assert "--title=Fix $(it)" in words
    assert text == hostile


def test_a_gh_that_fails_is_told_in_its_own_words(three: System, remote: Path, tmp_path: Path) -> None:
    put_gh(three, tmp_path, fails=True)
    failed = three.fleet("merge", "one", "--pr", code=1)
    assert "could not resolve to a Repository" in failed.stderr


def test_a_branch_that_others_have_pushed_to_is_not_overwritten(
    three: System, remote: Path, tmp_path: Path
) -> None:
    log = put_gh(three, tmp_path)
    git(remote, "branch", "one", "three")
    refused = three.fleet("merge", "one", "--pr", code=4)
    assert "others have pushed to 'one'" in refused.stderr
    assert not log.exists()


class Api(BaseHTTPRequestHandler):
    """As much of GitHub as is needed: pull requests that can be listed and opened."""

    seen: list[tuple[str, str, str, Any]]
    opened: list[dict[str, str]]
    answer: tuple[int, Any] | None = None

    def do_GET(self) -> None:
        self._note(None)
        self._say(200, type(self).opened)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._note(body)
        if refusal := type(self).answer:
            self._say(*refusal)
        else:
            type(self).opened.append({"html_url": "https://forge/pull/9"})
            self._say(201, type(self).opened[-1])

    def _note(self, body: Any) -> None:
        type(self).seen.append((self.command, self.path, self.headers.get("Authorization", ""), body))

    def _say(self, code: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        if code == 302:
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def api(answer: tuple[int, Any] | None = None) -> Iterator[tuple[str, type[Api]]]:
    handler = type("OneApi", (Api,), {"seen": [], "opened": [], "answer": answer})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", handler
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def use_api(system: System, url: str, remote: Path) -> None:
    """Let git push to a folder that calls itself a repository of a forge."""
    system.env |= {
        "FLEET_MERGE_FORGE": "github",
        "FLEET_MERGE_API_URL": url,
        "GITHUB_TOKEN": "s3cret-token",
        "NO_PROXY": "*",
        "no_proxy": "*",
    }
    git(system.repository, "remote", "set-url", "origin", "git@forge.example:some-owner/its.name.git")
    git(system.repository, "config", f"url.{remote}.insteadOf", "git@forge.example:some-owner/its.name.git")


def test_the_api_opens_a_pull_request_once(three: System, remote: Path) -> None:
    with api() as (url, forge):
        use_api(three, url, remote)
        first, again = (three.json("merge", "one", "--pr")[0] for _ in range(2))
    assert (first["url"], first["is_new"], again["is_new"]) == ("https://forge/pull/9", True, False)
    asked, opened, asked_again = forge.seen
    assert asked[1] == "/repos/some-owner/its.name/pulls?head=some-owner%3Aone&base=main&state=open"
    assert opened[0] == "POST"
    assert opened[3] == {"title": "one", "body": "", "head": "one", "base": "main"}
    assert {call[2] for call in forge.seen} == {"Bearer s3cret-token"}
    assert asked_again[0] == "GET"


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        ((422, {"message": "Validation Failed", "errors": [{"message": "No commits"}]}), 1, "No commits"),
        ((403, {"message": "Resource not accessible"}), 7, "Resource not accessible"),
        ((500, ["garbage"]), 7, "answered 500"),
        ((302, {}), 1, "answered 302"),
        ((201, {"no": "url"}), 1, "without its html_url"),
    ],
)
def test_what_the_api_refuses_is_told_without_the_token(
    three: System, remote: Path, answer: tuple[int, Any], code: int, said: str
) -> None:
    with api(answer) as (url, forge):
        use_api(three, url, remote)
        failed = three.fleet("merge", "one", "--pr", code=code)
    assert said in failed.stderr
    assert "s3cret-token" not in failed.stderr + failed.stdout
    assert all("elsewhere" not in call[1] for call in forge.seen)


def test_a_token_is_not_sent_in_the_clear_to_another_machine(three: System, remote: Path) -> None:
    use_api(three, "http://forge.example", remote)
    assert "over https only" in three.fleet("merge", "one", "--pr", code=2).stderr


def test_where_the_api_is_cannot_be_said_by_a_project(three: System) -> None:
    folder = three.repository / ".fleet"
    folder.mkdir()
    (folder / "config.toml").write_text('[merge]\napi_url = "https://evil.example"\n')
    assert "holds for all projects" in three.fleet("conflicts", "one", code=2).stderr


def test_without_gh_and_token_the_way_out_is_told(three: System, remote: Path) -> None:
    three.env |= {"FLEET_MERGE_FORGE": "github", "GITHUB_TOKEN": ""}
    refused = three.fleet("merge", "one", "--pr", code=7)
    assert "GITHUB_TOKEN is not set" in refused.stderr
