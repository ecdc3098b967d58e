"""Whatever a model makes up for arguments: every tool answers in words, and goes on answering."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet.interfaces.mcp.sets import SETS, tools_of
from tests.interfaces.conftest import ended_run, record
from tests.support import System
from tests.talking import Talk, talk_within, text_of

TOOLS = tools_of(SETS)

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=8,
)
names = st.sampled_from(
    ["a", ".", "t-1nfnfgzpk7", "..", "/", "-x", "main", "{x}", "\n", "\x1b[31m", "é" * 50, "%s", "~"]
)


def fitting(kind: str) -> st.SearchStrategy[Any]:
    """Return values of the type that is wanted, with odd contents."""
    return {
        "string": names | st.text(max_size=60),
        "integer": st.integers(-3, 300) | st.integers(),
        "number": st.floats(0, 0.01) | st.integers(-5, -1),
        "boolean": st.booleans(),
        "array": st.lists(names | anything, max_size=4),
        "object": st.dictionaries(st.text(max_size=8), anything, max_size=3),
    }[kind]


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    tool = TOOLS[draw(st.sampled_from(sorted(TOOLS)))]
    known = {
        # Gates are commands, and would be run.
        name: draw(
            st.just(["true"]) if name == "gates" else fitting(str(schema.get("type", "array"))) | anything
        )
        for name, schema in cast("Any", tool.input_schema.get("properties", {})).items()
        if name != "wait_seconds" and (name in tool.needs or draw(st.booleans()))
    }
    odd = draw(st.dictionaries(st.text(max_size=12), anything, max_size=1) | st.just({}))
    return tool.name, {**known, **odd}


@pytest.fixture(scope="module")
def talk(shared: System) -> Iterator[Talk]:
    record(shared.home, ended_run("a", project=str(shared.repository)))
    shared.fleet("pause")
    with pytest.MonkeyPatch.context() as patch, talk_within(shared) as talk:
        patch.chdir(shared.repository)
        yield talk


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(wanted=calls())
def test_any_arguments_get_an_answer_in_words(talk: Talk, wanted: tuple[str, dict[str, Any]]) -> None:
    tool, arguments = wanted
    answer = talk.answer(tool, **arguments)
    text = text_of(answer)
    assert "Traceback" not in text
    assert 'File "' not in text
    if answer.is_error:
        assert not answer.structured_content["details"].startswith("unexpected "), (tool, arguments, text)


@pytest.mark.parametrize("tool", sorted(TOOLS))
def test_no_arguments_at_all_get_an_answer_in_words(talk: Talk, tool: str) -> None:
    answer = talk.answer(tool)
    # There is no newest merge here, and a log only once a supervisor was up.
    if tool == "get_merge" or (tool == "get_supervisor_log" and answer.is_error):
        assert answer.structured_content["error"] == "NotFound"
    else:
        assert answer.is_error is bool(TOOLS[tool].needs)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"prompt": "x" * 200_001}, "the limit is 200000"),
        ({"metadata": {"x": "y" * 1_100_000}}, "at most 1048576"),
        ({"tags": ["x"] * 501}, "the limit is 500"),
        ({"prompt": "a\0b"}, "no text can have"),
        ({"timeout_seconds": -1}, "timeout_seconds must be a number, at least 0"),
        ({"model": "--help"}, "begins with a dash"),
        ({"base_ref": "--output=/tmp/x"}, "names no commit"),
        ({"repo_path": "/nowhere/at/all"}, "no folder"),
        ({"repo_path": "/"}, "not a git repository"),
        ({"prompts": "x"}, "unknown argument 'prompts'"),
        ({"prompt": ["x"]}, "prompt must be a string, got a list"),
        ({"extra_args": ["x"] * 51}, "at most 50"),
    ],
)
def test_what_is_too_large_or_makes_no_sense_is_refused_with_the_reason(
    talk: Talk, shared: System, arguments: dict[str, Any], told: str
) -> None:
    usual = {"repo_path": str(shared.repository), "task_name": "x", "prompt": "x"}
    refused = talk.refuse("create_worker", **{**usual, **arguments})
    assert told in refused["details"], refused


def test_a_wait_that_is_too_long_is_refused(talk: Talk) -> None:
    told = talk.refuse("get_worker_status", worker_id="a", wait_seconds=601)
    assert "0 to 600" in told["details"]


def test_arguments_nested_beyond_reason_are_refused(talk: Talk, shared: System) -> None:
    deep: Any = "x"
    for _ in range(21):
        deep = {"deeper": deep}
    usual = {"repo_path": str(shared.repository), "task_name": "x", "prompt": "x"}
    assert "20 deep" in talk.refuse("create_worker", **usual, metadata=deep)["details"]
    assert talk.call("create_worker", **usual, metadata=deep["deeper"]["deeper"])["worker_id"]
