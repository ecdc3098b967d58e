"""What an agent asks reaches the person in the conversation, where their client can ask them."""

from __future__ import annotations

import json

import mcp_types as types
import pytest

from fleet.domain.run import Run
from tests.interfaces.conftest import agent_elsewhere
from tests.interfaces.test_mcp_server import calls_in
from tests.support import System, wait_for
from tests.talking import Talk, talk_within

ASK = {"ask": "Red or white?"}
ERAS = ("legacy", "auto")


def asking() -> str:
    return f"[[scenario:{json.dumps({'turns': [[ASK], [{'say': 'planted: {prompt}'}]]})}]]"


def worker(talk: Talk, system: System, name: str) -> str:
    wish = {"repo_path": str(system.repository), "task_name": name, "prompt": asking()}
    made = talk.call("create_worker", **wish, executor="scripted")
    return made["worker_id"]


def marks_of(run: Run) -> dict[str, str]:
    return {"FLEET_RUN": run.id, "FLEET_RUN_TOKEN": "key"}


@pytest.mark.parametrize("mode", ERAS)
def test_a_question_is_put_to_the_person_and_the_agent_goes_on_with_the_answer(
    shared: System, mode: str
) -> None:
    heard: list[str] = []

    def person(message: str) -> str:
        heard.append(message)
        return "red, please"

    with talk_within(shared, mode=mode, person=person) as talk:
        name = worker(talk, shared, f"rose-{mode}")
        over = talk.call("collect_worker_result", worker_id=name, wait_seconds=60)
    assert over["status"] == "succeeded"
    assert "red, please" in over["result"]["summary"]
    (message,) = heard
    assert "Red or white?" in message
    assert name in message


@pytest.mark.parametrize("mode", ERAS)
def test_an_answer_that_cannot_be_taken_is_asked_for_again_with_the_reason(shared: System, mode: str) -> None:
    heard: list[str] = []

    def person(message: str) -> str:
        heard.append(message)
        return "red\0" if len(heard) == 1 else "white"

    with talk_within(shared, mode=mode, person=person) as talk:
        name = worker(talk, shared, f"iris-{mode}")
        over = talk.call("collect_worker_result", worker_id=name, wait_seconds=60)
    assert "white" in over["result"]["summary"]
    first, again = heard
    assert "not taken" not in first
    assert "not taken: a text holds a NUL" in again
    calls = [one for one in calls_in(shared.home) if one.get("answered")]
    assert calls[-1]["error"] is None, "the call has come to a good end"


@pytest.mark.parametrize("mode", ERAS)
def test_a_person_who_would_rather_not_is_asked_once_and_the_question_stays_open(
    shared: System, mode: str
) -> None:
    heard: list[str] = []
    with talk_within(shared, mode=mode, person=heard.append) as talk:
        name = worker(talk, shared, f"tulip-{mode}")
        told = talk.call("get_worker_status", worker_id=name, wait_seconds=60)
        assert told["question"]
        assert len(heard) == 1
        assert told["question"] in [one["id"] for one in talk.call("list_questions")["questions"]]
        talk.call("get_worker_status", worker_id=name)
        assert len(heard) == 1, "who does not wait is not asked"
        talk.call("cancel_worker", worker_id=name)


def test_an_agent_that_waits_is_not_taken_for_a_person(shared: System) -> None:
    heard: list[str] = []
    with (
        agent_elsewhere(shared, "a", "key") as run,
        talk_within(shared, env=marks_of(run), person=heard.append) as agent,
    ):
        name = worker(agent, shared, "lily")
        wait_for(lambda: agent.call("get_worker_status", worker_id=name)["question"])
        agent.progress.clear()
        told = agent.call("get_worker_status", worker_id=name, wait_seconds=0.5)
    assert told["question"]
    assert heard == []
    assert agent.progress, "it can do nothing about it but wait"


def test_an_agent_answers_no_question_by_the_way_of_a_form(shared: System) -> None:
    with talk_within(shared) as person:
        name = worker(person, shared, "aster")
        asked = person.call("get_worker_status", worker_id=name, wait_seconds=60)["question"]
    with agent_elsewhere(shared, "b", "key") as run, talk_within(shared, env=marks_of(run)) as agent:
        reply = types.ElicitResult(action="accept", content={"answer": "yes, do"})
        agent.answer_with({asked: reply}, "list_workers")
        assert asked in [one["id"] for one in agent.call("list_questions")["questions"]]


def test_a_client_that_cannot_ask_is_told_of_the_question_at_once(shared: System) -> None:
    with talk_within(shared) as talk:
        name = worker(talk, shared, "daisy")
        assert talk.call("get_worker_status", worker_id=name, wait_seconds=60)["question"]
