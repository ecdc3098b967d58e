"""`fleet mcp` as clients meet it: the protocol on the wire, what it costs, what it does, many at once."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from fleet.bootstrap import open_fleet, open_store
from fleet.interfaces.cli.mcp import TOOL_SETS
from fleet.interfaces.mcp.calls import CallHandler, Refusal, ToolCall
from fleet.interfaces.mcp.sets import SETS, USUAL, chosen, tools_of
from fleet.records.spawns import Spawns
from tests.interfaces.conftest import ended_run, record
from tests.support import System, git, is_alive, scenario, wait_for
from tests.talking import EVERYTHING, Talk, talk_over_stdio, talk_within
from tests.terminal import at_a_terminal, has_ended, read_until

REVISIONS = ("2025-06-18", "2025-11-25", "2026-07-28")
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Wire:
    """A server of our own command, spoken to in bare lines."""

    def __init__(self, process: subprocess.Popen[bytes], revision: str) -> None:
        self.process = process
        self.revision = revision
        self.lines: list[bytes] = []
        self._number = 0
        if revision != REVISIONS[-1]:
            client = {"name": "test", "version": "1"}
            answer = self.ask("initialize", protocolVersion=revision, capabilities={}, clientInfo=client)
            assert answer["protocolVersion"] == revision
            self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout
        self.lines.append(self.process.stdout.readline())
        return json.loads(self.lines[-1])

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        answer = self.tell(method, **params)
        assert "result" in answer, answer
        return answer["result"]

    def tell(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask something, and return the whole answer, which may be an error."""
        self._number += 1
        if self.revision == REVISIONS[-1]:
            params["_meta"] = ENVELOPE
        self.send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        while (answer := self.read()).get("id") != self._number:
            assert "method" in answer, answer
        return answer

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return self.ask("tools/call", name=tool, arguments=arguments)


@contextmanager
def wired(
    system: System, *words: str, revision: str = REVISIONS[-1], cwd: Path | None = None
) -> Iterator[Wire]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    process = system.start("mcp", *words, cwd=cwd or system.repository, **pipes)
    try:
        yield Wire(process, revision)
    finally:
        assert process.stdin
        process.stdin.close()
        process.wait(timeout=20)
        assert process.stdout
        process.stdout.close()


def create(talk: Talk, system: System, name: str, prompt: str) -> str:
    made = talk.call("create_worker", repo_path=str(system.repository), task_name=name, prompt=prompt)
    return made["worker_id"]


# the wire


@pytest.mark.parametrize("revision", REVISIONS)
def test_clients_of_each_revision_are_served(shared: System, revision: str) -> None:
    with wired(shared, revision=revision) as wire:
        tools = wire.ask("tools/list")["tools"]
        assert len(tools) == len(tools_of(USUAL))
        answer = wire.call("list_workers")
        assert answer["isError"] is False
        assert json.loads(answer["content"][0]["text"]) == answer["structuredContent"]
        assert wire.ask("prompts/list")["prompts"]
        assert wire.ask("resources/list")["resources"]


def test_the_usual_tools_are_at_most_25_and_cost_at_most_16_kilobytes_on_the_wire(shared: System) -> None:
    assert len(tools_of(USUAL)) <= 25
    with wired(shared) as wire:
        wire.ask("tools/list")
        assert len(wire.lines[-1]) <= 16_000


def test_only_the_protocol_is_on_stdout_whatever_is_printed(shared: System, tmp_path_factory: Any) -> None:
    noise = scenario({"say": "noise\n" * 50}, {"run": "echo loud; echo louder >&2"}, {"say": "quiet"})
    with wired(shared) as wire:
        folder = str(shared.repository)
        made = wire.call("create_worker", repo_path=folder, task_name="noisy", prompt=noise)
        name = made["structuredContent"]["worker_id"]
        wire.call("get_worker_status", worker_id=name, wait_seconds=60)
        wire.call("healthcheck")
        wire.send({"nonsense": True})
        assert wire.read()["error"]["code"] == -32600
        wire.call("list_runs")
        assert all(json.loads(line)["jsonrpc"] == "2.0" for line in wire.lines)


def test_what_cannot_be_read_is_answered_and_the_conversation_goes_on(shared: System) -> None:
    deep: Any = "x"
    for _ in range(300):
        deep = {"deeper": deep}
    with wired(shared) as wire:
        params = {"name": "create_worker", "arguments": {"metadata": deep}, "_meta": ENVELOPE}
        wire.send({"jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": params})
        told = wire.read()
        assert (told["id"], told["error"]["code"]) == (77, -32700)
        assert wire.process.stdin
        wire.process.stdin.write(b"{nonsense\n")
        wire.process.stdin.flush()
        told = wire.read()
        assert (told["id"], told["error"]["code"]) == (None, -32700)
        assert not wire.call("list_workers")["isError"]


def test_it_ends_when_its_client_leaves_and_the_agent_works_on(shared: System) -> None:
    with wired(shared) as wire:
        made = wire.call(
            "create_worker",
            repo_path=str(shared.repository),
            task_name="left",
            prompt=scenario({"wait_for": str(shared.home / "go")}, {"say": "still here"}),
        )
    name = made["structuredContent"]["worker_id"]
    (shared.home / "go").touch()
    with talk_within(shared) as talk:
        assert talk.call("get_worker_status", worker_id=name, wait_seconds=60)["status"] == "succeeded"


def test_without_stdin_it_says_what_it_is_for(shared: System) -> None:
    words = ["sh", "-c", 'exec "$0" -m fleet mcp <&-', sys.executable]
    done = subprocess.run(words, env=shared.environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is closed" in done.stderr
    assert "fleet install" in done.stderr


def test_at_a_terminal_it_says_what_it_is_for_and_ends_with_the_first_interrupt(shared: System) -> None:
    with at_a_terminal(shared, "mcp") as (person, terminal):
        read_until(terminal, b"`fleet install` sets clients up")
        ask = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        os.write(terminal, json.dumps(ask).encode() + b"\n")
        read_until(terminal, b'"result"')
        person.send_signal(signal.SIGINT)
        wait_for(lambda: has_ended(person, terminal), what="it has ended")
        assert person.returncode == 130


def test_an_unknown_set_of_tools_is_refused(shared: System) -> None:
    done = shared.fleet("mcp", "--tools", "workers,gardens", code=2)
    assert "gardens" in done.stderr
    assert done.stdout == ""
    assert chosen(["all"]) == SETS
    assert set(chosen(["tasks"])) == {"health", "tasks"}
    assert set(chosen(["default", "pairs"])) == {*USUAL, "pairs"}


def test_the_help_names_every_set() -> None:
    assert TOOL_SETS == SETS


def test_every_tool_and_every_set_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "howto" / "mcp.md").read_text()
    for name in SETS:
        row = next(line for line in text.splitlines() if line.startswith(f"| `{name}` |"))
        assert re.findall(r"`(\w+)`", row)[1:] == list(tools_of([name]))
        assert ("| yes |" in row) is (name in USUAL)
    assert f"`default`: {len(tools_of(USUAL))} tools" in text


# the official client


def test_the_official_client_goes_from_health_to_cleaning_up(shared: System) -> None:
    with talk_over_stdio(shared) as talk:
        assert talk.call("healthcheck")["ok"] is True
        name = create(talk, shared, "whole-way", scenario({"edit": {"path": "a.txt", "content": "a\n"}}))
        ended = talk.call("get_worker_status", worker_id=name, wait_seconds=60)
        assert ended["status"] == "succeeded"
        assert talk.progress, "a call that waits tells how it goes"
        result = talk.call("collect_worker_result", worker_id=name)["result"]
        assert result["files_changed"] == ["a.txt"]
        assert talk.call("cleanup_worker", worker_id=name)["worktree_removed"] is True


def test_every_tool_has_a_title_schemas_and_honest_annotations(shared: System) -> None:
    with talk_within(shared) as talk:
        tools = talk.tools()
    assert tools.keys() == tools_of(SETS).keys()
    for tool in tools.values():
        assert tool.title
        assert tool.description
        assert tool.input_schema["type"] == "object"
        assert tool.output_schema
        assert tool.annotations
        if tool.name.startswith(("get_", "list_", "show_", "collect_", "healthcheck")):
            assert tool.annotations.read_only_hint is True
        if tool.name.startswith(("cancel_", "cleanup_", "merge_")):
            assert tool.annotations.destructive_hint is True
        if tool.name.startswith(("create_", "start_")):
            assert tool.annotations.open_world_hint is True


def test_what_sets_agents_to_work_or_runs_commands_says_so() -> None:
    tools = tools_of(SETS)
    told = {name for name, tool in tools.items() if tool.annotations["openWorldHint"]}
    starting = {"create_worker", "create_workflow", "create_task", "start_pair", "start_race", "start_sprint"}
    deciding = {"answer_question", "resume_queue", "control_workflow", "decide_pair"}
    starting |= {"close_tasks", "reopen_task", "import_tasks"}
    merging = {"check_conflicts", "merge_branches", "control_merge"}
    runs = {"prompt_run", "create_run", "create_runs", "fan_out_runs", "release_run"}
    assert told == {*starting, *deciding, *merging, *runs}
    assert not any(tools[name].annotations["readOnlyHint"] for name in told)
    for name in ("decide_pair", "cancel_pair", "control_workflow", "cancel_race", "cancel_sprint"):
        assert tools[name].annotations["destructiveHint"]


def test_a_tool_that_is_not_there_is_an_error_of_the_protocol(shared: System) -> None:
    from mcp.shared.exceptions import MCPError

    with talk_within(shared) as talk, pytest.raises(MCPError, match="there is no tool"):
        talk.answer("fly_away")


# ours


def test_a_run_is_prompted_and_its_log_and_diff_are_read_page_by_page(shared: System) -> None:
    with talk_within(shared) as talk:
        prompt = scenario({"edit": {"path": "long.txt", "content": "line\n" * 6000}}, {"say": "long"})
        name = create(talk, shared, "paged", prompt)
        talk.call("get_worker_status", worker_id=name, wait_seconds=60)
        first = talk.call("get_run_diff", run=name)
        rest = talk.call("get_run_diff", run=name, offset=first["next_offset"])
        assert len(first["diff"]) == 20_000
        assert rest["next_offset"] is None
        assert "long.txt" in talk.call("get_run_diff", run=name, stat=True)["diff"]
        texts = [entry["text"] for entry in talk.call("get_run_logs", run=name)["entries"]]
        assert "edit: long.txt" in texts
        told = shared.fleet("logs", talk.call("get_worker_status", worker_id=name)["branch_name"]).stdout
        assert all(text.splitlines()[0] in told for text in texts)
        log = talk.call("get_run_logs", run=name, after=0, limit=2)
        assert len(log["entries"]) == 2
        more = talk.call("get_run_logs", run=name, after=log["next_after"], limit=200)
        assert more["next_after"] is None
        prompted = talk.call("prompt_run", run=name, prompt="and now this")
        assert (prompted["task"], prompted["is_at_rest"]) == (name, False)
        over = talk.call("collect_worker_result", worker_id=name, wait_seconds=60)
        assert over["status"] == "succeeded"
        assert len(over["result"]["files_changed"]) == 2


def test_a_question_is_listed_answered_and_its_worker_goes_on(shared: System) -> None:
    with talk_within(shared) as talk:
        asks = {"turns": [[{"ask": "Red or white?"}], [{"say": "I take {prompt}"}]]}
        name = create(talk, shared, "asks", f"[[scenario:{json.dumps(asks)}]]")
        asking = talk.call("get_worker_status", worker_id=name, wait_seconds=60)
        assert asking["status"] == "running"
        assert asking["question"]
        listed = talk.call("list_questions")["questions"]
        assert "Red or white?" in next(one["text"] for one in listed if one["id"] == asking["question"])
        talk.call("answer_question", question_id=asking["question"], answer="white")
        assert talk.call("get_worker_status", worker_id=name, wait_seconds=60)["status"] == "succeeded"


def test_tasks_are_created_listed_shown_and_changed(shared: System) -> None:
    shared.fleet("pause")
    with talk_within(shared) as talk:
        folder = str(shared.repository)
        first = talk.call("create_task", repo_path=folder, title="first", description="wait", priority=4)
        talk.call("block_task", task_id=first["id"], reason="not yet")
        more = {"tier": "cheap", "batch": "b", "needs": ["gpu"]}
        second = talk.call("create_task", repo_path=folder, title="second", depends_on=[first["id"]], **more)
        assert second["unmet"] == [first["id"]]
        assert {name: second[name] for name in more} == more
        listed = talk.call("list_tasks", limit=2)["tasks"]
        assert [task["title"] for task in listed] == ["second", "first"]
        talk.call("comment_task", task_id=first["id"], text="soon")
        assert "soon" in [entry["text"] for entry in talk.call("show_task", task_id=first["id"])["log"]]
        assert [one["id"] for one in talk.call("get_task_tree")["tasks"]] == [second["id"], first["id"]]
        both = [second["id"], first["id"]]
        closed = talk.call("close_tasks", task_ids=both, reason="enough")["tasks"]
        assert [(task["id"], task["state"]) for task in closed] == [(name, "closed") for name in both]
        assert talk.call("list_tasks")["tasks"] == []
        assert [task["id"] for task in talk.call("list_tasks", all=True, limit=2)["tasks"]] == both
        assert set(both) <= {task["id"] for task in talk.call("export_tasks", limit=200)["tasks"]}
        done = talk.call("import_tasks", lines='{"title": "brought in"}', repo_path=folder)
        talk.call("close_tasks", task_ids=done["added"])
    shared.fleet("resume")


def test_of_no_runs_none_is_cleaned(system: System) -> None:
    run = ended_run("rose")
    record(system.home, run)
    with talk_within(system) as talk:
        for only, cleaned in (({"only": []}, []), ({"only": [run.id]}, [run.id]), ({}, [run.id])):
            told = talk.call("clean_runs", all=True, dry_run=True, **only)["runs"]
            assert [one["id"] for one in told] == cleaned


def test_all_tasks_that_are_ready_are_listed_page_by_page(system: System) -> None:
    system.fleet("pause")
    lines = "\n".join(json.dumps({"title": f"task {number}"}) for number in range(60))
    with talk_within(system) as talk:
        talk.call("import_tasks", lines=lines, repo_path=str(system.repository))
        listed = talk.call("list_ready_tasks", offset=50)
    assert listed["count"] == 60
    assert len(listed["tasks"]) == 10


def test_the_budget_of_a_persons_task_is_its_own_and_can_be_raised(system: System) -> None:
    system.fleet("pause")
    with talk_within(system) as talk:
        made = talk.call("create_task", repo_path=str(system.repository), title="t", budget_usd=1)
        assert talk.call("edit_task", task_id=made["id"], budget_usd=5)["budget_usd"] == 5
    with open_fleet(system.home) as fleet:
        spawn = Spawns(fleet.store).get(fleet.tasks.get(made["id"]).origin)
    assert spawn.budget_usd == 0, "nothing else bounds it"


def test_an_action_takes_no_argument_of_another_one(shared: System) -> None:
    with talk_within(shared) as talk:
        given = {"merge_id": "m-1", "action": "cancel", "update_checkout": True}
        told = talk.refuse("control_merge", **given)
        assert told["details"] == "unknown argument 'update_checkout'"
        assert talk.refuse("control_merge", **{**given, "action": "resume"})["error"] == "NotFound"


def test_branches_are_forecast_and_merged(shared: System) -> None:
    with talk_within(shared) as talk:
        folder = str(shared.repository)
        git(shared.repository, "branch", "-f", "landing", "main")
        prompt = scenario({"edit": {"path": "merged.txt", "content": "m\n"}}, {"commit": "Merge me"})
        name = create(talk, shared, "merge-me", prompt)
        branch = talk.call("get_worker_status", worker_id=name, wait_seconds=60)["branch_name"]
        forecast = talk.call("check_conflicts", repo_path=folder, names=[branch], into="landing")
        assert [one["merges"] for one in forecast["branches"]] == [True]
        begun = talk.call("merge_branches", repo_path=folder, names=[branch], into="landing", gates=["true"])
        over = talk.call("get_merge", merge_id=begun["id"], wait_seconds=60)
        assert over["state"] == "done"
        assert git(shared.repository, "show", "landing:merged.txt") == "m"
        assert talk.refuse("merge_branches", repo_path=folder, names=[branch])["hint"]


def test_a_pair_and_a_race_are_started_and_followed(shared: System) -> None:
    with talk_within(shared) as talk:
        folder = str(shared.repository)
        pair = talk.call("start_pair", repo_path=folder, prompt="x", doer="scripted", reviewer="scripted")
        assert talk.call("get_pair", pair_id=pair["id"])["rounds"] == []
        over = talk.call("cancel_pair", pair_id=pair["id"])
        assert over["state"] == "cancelled"
        assert talk.call("get_pair", pair_id=pair["id"], wait_seconds=60)["has_work"] is False
        assert pair["id"] not in {one["id"] for one in talk.call("list_pairs")["pairs"]}, "it has ended"
        assert pair["id"] in {one["id"] for one in talk.call("list_pairs", all=True)["pairs"]}
        race = talk.call("start_race", repo_path=folder, prompt="x", size=2, gates=["true"])
        assert talk.call("get_race", race_id=race["id"])["size"] == 2
        talk.call("cancel_race", race_id=race["id"])
        assert talk.call("get_race", race_id=race["id"], wait_seconds=60)["state"] == "cancelled"


def test_a_sprint_is_started_listed_and_cancelled(shared: System) -> None:
    with talk_within(shared) as talk:
        wish = {"repo_path": str(shared.repository), "prompt": "x", "doer": "scripted"}
        assert "gates" in talk.refuse("start_sprint", **wish)["details"]
        sprint = talk.call("start_sprint", **wish, gates=["true"])
        assert (sprint["state"], sprint["phase"], sprint["plan"]) == ("planning", 0, [])
        assert sprint["next"] == [{"tool": "get_sprint", "arguments": {"sprint_id": sprint["id"]}}]
        assert [one["id"] for one in talk.call("list_sprints")["sprints"]] == [sprint["id"]]
        assert talk.call("cancel_sprint", sprint_id=sprint["id"])["state"] == "cancelled"
        assert talk.call("get_sprint", sprint_id=sprint["id"], wait_seconds=60)["has_work"] is False
        told = talk.refuse("cancel_sprint", sprint_id=sprint["id"])
        assert (told["error"], told["hint"]) == ("Conflict", "see `get_sprint`")
        assert talk.call("list_sprints")["count"] == 0
        assert "it has 0 phases" in talk.refuse("check_plan", plan="# nothing")["details"]


# prompts and resources


def test_workflows_are_prompts_and_runs_are_resources(shared: System) -> None:
    with talk_within(shared) as talk:
        names = [prompt.name for prompt in talk.ask("list_prompts").prompts]
        assert "write-review-refine" in names
        got = talk.ask("get_prompt", "write-review-refine", {"task": "Plant it.", "repo_path": "/garden"})
        text = got.messages[0].content.text
        assert "Plant it." in text
        assert "create_workflow" in text
        assert "'/garden' as repo_path" in text
        text = talk.ask("get_prompt", "write-review-refine", {"task": "Plant it."}).messages[0].content.text
        assert "the whole path of the repository that you work in as repo_path" in text
        prompt = scenario({"edit": {"path": "r.txt", "content": "r\n"}}, {"say": "resourceful"})
        name = create(talk, shared, "resource", prompt)
        run = talk.call("get_worker_status", worker_id=name, wait_seconds=60)["run"]
        listed = [resource.uri for resource in talk.ask("list_resources").resources]
        assert f"fleet://runs/{run}/result" in listed
        ends = {template.uri_template for template in talk.ask("list_resource_templates").resource_templates}
        assert "fleet://runs/{run}/log" in ends

        def read(uri: str) -> str:
            return talk.ask("read_resource", uri).contents[0].text

        assert json.loads(read(f"fleet://runs/{run}"))["id"] == run
        assert "resourceful" in read(f"fleet://runs/{run}/log")
        assert "+r" in read(f"fleet://runs/{run}/diff")
        assert json.loads(read(f"fleet://runs/{run}/result"))["files_changed"] == ["r.txt"]
        assert run in read("fleet://runs")


@pytest.mark.parametrize(
    "uri", ["fleet://runs/nobody", "fleet://gardens", "file:///etc/passwd", "fleet://runs/../../log"]
)
def test_a_resource_that_is_not_there_is_refused(shared: System, uri: str) -> None:
    from mcp.shared.exceptions import MCPError

    with talk_within(shared) as talk, pytest.raises(MCPError) as told:
        talk.ask("read_resource", uri)
    assert "`fleet list --all`" not in str(told.value) or "in a shell" in str(told.value)


# many at once


def test_ten_servers_on_one_store_are_killed_at_random_and_no_run_is_disturbed(system: System) -> None:
    """Each of ten clients starts a worker; most of their servers are killed while the agents work."""
    servers = [
        system.start("mcp", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for _ in range(10)
    ]
    go = system.home / "go"
    names: list[str] = []

    def start_one(number: int) -> None:
        prompt = scenario(
            {"edit": {"path": f"{number}.txt", "content": "x\n"}}, {"wait_for": str(go)}, {"say": "done"}
        )
        wire = Wire(servers[number], REVISIONS[-1])
        made = wire.call(
            "create_worker", repo_path=str(system.repository), task_name=f"w{number}", prompt=prompt
        )
        names.append(made["structuredContent"]["worker_id"])

    try:
        threads = [threading.Thread(target=start_one, args=(number,)) for number in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=90)
        assert len(set(names)) == 10
        doomed = random.Random(7).sample(servers, 8)
        for server in doomed:
            server.send_signal(signal.SIGKILL)
        go.touch()
        survivor = next(server for server in servers if server not in doomed)
        wire = Wire(survivor, REVISIONS[-1])
        for name in names:
            answer = wire.call("get_worker_status", worker_id=name, wait_seconds=90)["structuredContent"]
            assert answer["status"] == "succeeded", answer
            assert answer["retry_count"] == 0
        starts = [run for run in system.all_runs() if run.task in names]
        assert len(starts) == 10, "each worker was started once, by whichever server"
        assert all(run.turn == 1 for run in starts)
    finally:
        for server in servers:
            server.kill()
            server.wait()
            for stream in (server.stdin, server.stdout):
                assert stream
                stream.close()


def test_a_call_that_waits_ends_with_its_server(shared: System) -> None:
    with talk_within(shared) as talk:
        name = create(talk, shared, "waited-for", scenario({"sleep": 600}))
        process = shared.start(
            "mcp", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        wire = Wire(process, REVISIONS[-1])
        waiting = {"name": "get_worker_status", "arguments": {"worker_id": name, "wait_seconds": 600}}
        wire.send(
            {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {**waiting, "_meta": ENVELOPE}}
        )
        assert wire.call("list_questions")["isError"] is False, "it answers others meanwhile"
        assert process.stdin
        assert process.stdout
        process.stdin.close()
        process.wait(timeout=20)
        process.stdout.close()
        assert not is_alive(process.pid)
        talk.call("cancel_worker", worker_id=name)


def calls_in(home: Path) -> list[Any]:
    """Return what was recorded of today's calls."""
    store = open_store(home)
    try:
        day = time.strftime("%Y-%m-%d", time.gmtime())
        return [event for _, event in store.read(f"mcp/{day}", limit=10_000)]
    finally:
        store.close()


def test_every_call_is_recorded_with_its_caller(shared: System) -> None:
    with talk_within(shared) as talk:
        talk.call("list_workers", limit=3)
        talk.refuse("get_worker_status", worker_id="nobody")
        with pytest.raises(MCPError):
            talk.answer("no_such_tool")
    *events, unknown = calls_in(shared.home)
    assert (unknown["tool"], unknown["error"], unknown["run"]) == ("no_such_tool", "NotFound", None)
    last = events[-1]
    assert (last["tool"], last["run"], last["error"]) == ("get_worker_status", "", "NotFound")
    assert last["on"] == {"worker_id": "nobody"}
    assert events[-2]["error"] is None


def test_whoever_reads_resources_or_prompts_is_recorded_too(shared: System) -> None:
    with talk_within(shared) as talk:
        talk.ask("read_resource", "fleet://runs")
        with pytest.raises(MCPError):
            talk.ask("read_resource", "fleet://runs/nobody")
        talk.ask("get_prompt", "write-review-refine", {"task": "x"})
    read, refused, prompt = calls_in(shared.home)[-3:]
    assert (read["method"], read["on"], read["run"]) == ("resources/read", "fleet://runs", "")
    assert (refused["on"], refused["error"]) == ("fleet://runs/nobody", "NotFound")
    assert (prompt["method"], prompt["on"]) == ("prompts/get", "write-review-refine")


def test_a_store_that_cannot_be_used_is_left_once_and_nobody_elses_with_it(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEET_HOME", str(system.home))
    handler = CallHandler()
    tool = tools_of(SETS)["list_questions"]
    slow, quick = (ToolCall(handler, tool, {}, "", None) for _ in range(2))
    assert slow.answer() == quick.answer() == {"questions": [], "decisions": [], "count": 0}
    handler.close()  # under both of them, as a store that has gone away
    opened = handler.fleet().store
    for call in (slow, quick):
        assert isinstance(call.answer(), Refusal)
        call.close()
    assert handler.fleet().store is opened
    assert ToolCall(handler, tool, {}, "", None).answer() == {"questions": [], "decisions": [], "count": 0}
    assert [call["error"] for call in calls_in(system.home)] == ["StoreUnusable", "StoreUnusable"]
    handler.close(handler.fleet())
    assert handler.fleet().store is opened, "a fleet that has not used it says nothing about it"
    handler.close()


def test_a_store_that_goes_while_questions_are_looked_for_is_told_of_in_words(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEET_HOME", str(system.home))
    handler = CallHandler()
    call = ToolCall(handler, tools_of(SETS)["list_questions"], {}, "", None)
    answer = call.answer()
    handler.close()
    assert call.open_question(answer) is None
    assert call.is_unheard(answer) is False
    told = call.answer()
    assert isinstance(told, Refusal)
    assert "is closed" in told.text


def test_loading_the_command_line_loads_no_sdk(shared: System) -> None:
    script = "import sys; import fleet.interfaces.cli.mcp, fleet.interfaces.mcp.sets as s"
    script += (
        "; s.tools_of(s.SETS); sys.exit(bool({'mcp', 'pydantic', 'fleet.services.runs'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], env=os.environ, check=False)
    assert done.returncode == 0


def test_starting_the_server_loads_nothing_that_only_calls_need(shared: System) -> None:
    loaded = (
        "import sys, fleet.interfaces.mcp.server; print(*(name for name in sys.modules if name.startswith("
        "('fleet.services', 'fleet.ports', 'fleet.config'))))"
    )
    words = [sys.executable, "-c", loaded]
    done = subprocess.run(words, env=shared.environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_all_sets_are_served_on_demand(shared: System) -> None:
    with wired(shared, *EVERYTHING) as wire:
        tools = wire.ask("tools/list")["tools"]
        assert {tool["name"] for tool in tools} == set(tools_of(SETS))


def test_the_supervisor_that_a_server_starts_outlives_it(system: System) -> None:
    with wired(system) as wire:
        wire.call(
            "create_worker", repo_path=str(system.repository), task_name="x", prompt=scenario({"say": "x"})
        )
    assert wait_for(lambda: system.link.holder(), what="a supervisor is up")


def test_a_damaged_store_is_repaired_in_a_shell_and_not_with_a_tool_that_lists(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEET_HOME", str(system.home))
    (system.home / "fleet.db").write_bytes(b"this is no database" * 1000)
    handler = CallHandler()
    for name in ("list_runs", "list_questions"):
        told = ToolCall(handler, tools_of(SETS)[name], {}, "", None).answer()
        assert isinstance(told, Refusal)
        assert told.hint.startswith("`fleet list --repair` in a shell rebuilds the records")
    handler.close()
