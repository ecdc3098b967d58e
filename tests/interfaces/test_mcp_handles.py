"""A call that waits is a task of the protocol, for clients that say that they know such tasks."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from fleet.bootstrap import open_fleet
from fleet.interfaces.mcp.handles import EXTENSION, Handle, read_handle
from tests.interfaces.test_mcp_server import ENVELOPE, Wire, wired
from tests.support import System, scenario, wait_for

CAPABLE = {"extensions": {EXTENSION: {}}, "elicitation": {"form": {}}}


class Knowing(Wire):
    """A client that knows tasks, and can ask a person."""

    def tell(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        meta = {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": CAPABLE}
        message = {"id": self._number, "method": method, "params": {**params, "_meta": meta}}
        self.send({"jsonrpc": "2.0", **message})
        while (answer := self.read()).get("id") != self._number:
            assert "method" in answer, answer
        return answer

    def called(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return self.tell("tools/call", name=tool, arguments=arguments)["result"]

    def until(self, task: str, status: str) -> dict[str, Any]:
        def looked() -> dict[str, Any]:
            found = self.tell("tasks/get", taskId=task)["result"]
            return found if found["status"] == status else {}

        return wait_for(looked, 60, f"the task is {status}")


def knowing(wire: Wire) -> Knowing:
    return Knowing(wire.process, wire.revision)


def test_what_would_wait_returns_a_handle_that_any_server_can_follow_to_the_result(shared: System) -> None:
    go = shared.home / "go-on"
    prompt = scenario({"wait_for": str(go)}, {"say": "planted"})
    with wired(shared) as wire:
        client = knowing(wire)
        assert EXTENSION in client.tell("server/discover")["result"]["capabilities"]["extensions"]
        client.called("create_worker", repo_path=str(shared.repository), task_name="late", prompt=prompt)
        handle = client.called("collect_worker_result", worker_id="late", wait_seconds=60)
        assert (handle["resultType"], handle["status"]) == ("task", "working")
        assert client.tell("tasks/get", taskId=handle["taskId"])["result"]["status"] == "working"
        assert client.called("list_workers")["structuredContent"]["count"] == 1, "it was started once"
        plain = client.called("collect_worker_result", worker_id="late")
        assert plain["resultType"] == "complete", "who does not wait gets the answer of now"
    with wired(shared) as wire:
        go.touch()
        over = knowing(wire).until(handle["taskId"], "completed")
    assert over["result"]["structuredContent"]["result"]["summary"] == "planted"
    assert over["result"]["isError"] is False


def test_a_question_is_asked_and_answered_by_the_handle(shared: System) -> None:
    asks = {"turns": [[{"ask": "Red or white?"}], [{"say": "planted: {prompt}"}]]}
    prompt = f"[[scenario:{json.dumps(asks)}]]"
    with wired(shared) as wire:
        client = knowing(wire)
        client.called("create_worker", repo_path=str(shared.repository), task_name="asks", prompt=prompt)
        handle = client.called("collect_worker_result", worker_id="asks", wait_seconds=60)
        asked = client.until(handle["taskId"], "input_required")
        ((name, request),) = asked["inputRequests"].items()
        assert "Red or white?" in request["params"]["message"]
        empty = {"action": "accept", "content": {"answer": "\0"}}
        told = client.tell("tasks/update", taskId=handle["taskId"], inputResponses={name: empty})
        assert "not taken: a text holds a NUL" in told["error"]["message"]
        reply = {"action": "accept", "content": {"answer": "white"}}
        assert "result" in client.tell("tasks/update", taskId=handle["taskId"], inputResponses={name: reply})
        over = client.until(handle["taskId"], "completed")
    assert "white" in over["result"]["structuredContent"]["result"]["summary"]


def test_options_are_a_choice_and_another_answer_can_be_given(shared: System) -> None:
    asks = [{"run": 'fleet ask "Which number?" --option 2 --option 7'}]
    prompt = f"[[scenario:{json.dumps({'turns': [asks, [{'say': 'planted: {prompt}'}]]})}]]"
    with wired(shared) as wire:
        client = knowing(wire)
        client.called("create_worker", repo_path=str(shared.repository), task_name="chooses", prompt=prompt)
        handle = client.called("collect_worker_result", worker_id="chooses", wait_seconds=60)
        asked = client.until(handle["taskId"], "input_required")
        ((name, request),) = asked["inputRequests"].items()
        form = request["params"]["requestedSchema"]
        assert form["properties"]["choice"]["enum"] == ["2", "7"]
        assert "answer" in form["properties"]
        assert not form.get("required")
        reply = {"action": "accept", "content": {"choice": "2"}}
        client.tell("tasks/update", taskId=handle["taskId"], inputResponses={name: reply})
        client.until(handle["taskId"], "completed")
        with open_fleet(shared.home) as fleet:
            assert fleet.questions.get(name).answer == "2"


def test_a_client_that_does_not_know_tasks_gets_none(shared: System) -> None:
    with wired(shared) as wire:
        wire.call("create_worker", repo_path=str(shared.repository), task_name="plain", prompt=scenario())
        told = wire.call("get_worker_status", worker_id="plain", wait_seconds=60)
    assert told["resultType"] == "complete"


MADE_UP = [
    "",
    "nonsense",
    "=" * 9000,
    Handle("create_worker", {}, 0.0).id,
    Handle("nothing", {}, 0.0).id,
    base64.urlsafe_b64encode(b'["get_worker_status", {}, "now"]').decode(),
]


def test_a_handle_that_was_made_up_is_an_error_and_nothing_happens(shared: System) -> None:
    with wired(shared) as wire:
        client = knowing(wire)
        for text in MADE_UP:
            assert "no task" in client.tell("tasks/get", taskId=text)["error"]["message"]
        of_nobody = Handle("get_worker_status", {"worker_id": "nobody"}, 1e300).id
        told = client.tell("tasks/get", taskId=of_nobody)["result"]
        assert told["result"]["isError"] is True


@pytest.mark.parametrize("since", [0.0, 1794825852.5])
def test_a_handle_says_what_it_is_for(since: float) -> None:
    handle = Handle("get_merge", {"train_id": "m-1", "ü": [1]}, since)
    assert read_handle(handle.id) == handle
