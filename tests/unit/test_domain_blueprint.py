"""Workflows as people write them: what is understood, and that every refusal says where and what to do."""

from __future__ import annotations

import json
import re
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.domain.template import FIELDS
from fleet.errors import InvalidInput
from fleet.work.workflow.blueprint import (
    DEEPEST,
    FACTS,
    MOST_ITEMS,
    MOST_STAGES,
    Blueprint,
    preview,
    read_blueprint,
    warnings_about,
    with_usual_coder,
)
from fleet.work.workflow.model import OnFailure, Stage, StageKind, Strategy
from fleet.work.workflow.service import BUILT_IN
from tests.tables import for_each

CODEFLEET = Path(__file__).parent.parent / "data" / "codefleet"


def read(*stages: Mapping[str, Any], **top: Any) -> Blueprint:
    return read_blueprint({"stages": list(stages), **top})


def one(**body: Any) -> Stage:
    """Return the last of two stages, the first of which is `first`."""
    return read({"name": "first"}, {"name": "it", **body}).stages[1]


def refused(document: object, **options: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as told:
        read_blueprint(document, **options)
    assert told.value.hint, f"no hint: {told.value.message}"
    assert len(told.value.message) < 600
    return told.value


# what is understood


def test_codefleets_workflow_is_understood_unchanged() -> None:
    found = read_blueprint(json.loads((CODEFLEET / "write-review-refine.json").read_text()))
    assert (found.name, found.task_prompt) == (
        "write-review-refine",
        "Add input validation to the registration endpoint",
    )
    assert [(stage.name, stage.coder, stage.strategy, stage.needs) for stage in found.stages] == [
        ("implement", "codex", Strategy.NEW, ()),
        ("review", "claude", Strategy.INHERIT, (0,)),
        ("refine", "codex", Strategy.INHERIT, (1,)),
    ]
    assert found.stages[1].prompt == "Review these changes:\n{stage_0_summary}\nFiles: {stage_0_files}"


@pytest.mark.parametrize("name", ["parallel-implement-review", "competitive-implement"])
def test_codefleets_other_workflows_are_understood_unchanged(name: str) -> None:
    found = read_blueprint(json.loads((CODEFLEET / f"{name}.json").read_text()), name=name)
    assert found.name == name
    assert [stage.needs for stage in found.stages] == [(), (), (0, 1)]


def test_everything_that_a_stage_of_codefleets_may_say_is_understood() -> None:
    stage = one(
        executor="codex",
        prompt_template="{task_prompt}",
        model="gpt-5.5",
        worktree_strategy="inherit",
        depends_on=[0],
        timeout_seconds=60,
        reasoning_effort="high",
        extra_args=["--search"],
    )
    assert (stage.coder, stage.model, stage.effort) == ("codex", "gpt-5.5", "high")
    assert (stage.seconds, stage.flags, stage.strategy) == (60.0, ("--search",), Strategy.INHERIT)


def test_everything_that_a_stage_of_ours_may_say_is_understood() -> None:
    stage = one(
        coder="codex",
        model="gpt",
        effort="high",
        flags=["-x"],
        prompt="{first.summary} {vars.x} {item}",
        strategy="merge",
        depends_on=["first"],
        when='first.status == "completed"',
        foreach=["a", 2],
        gates="make test",
        retries=2,
        on_failure="continue",
        seconds=5,
        budget_usd=1.5,
    )
    assert stage == Stage(
        name="it",
        coder="codex",
        model="gpt",
        effort="high",
        flags=("-x",),
        prompt="{first.summary} {vars.x} {item}",
        strategy=Strategy.MERGE,
        needs=(0,),
        when='first.status == "completed"',
        foreach=("a", "2"),
        gates=("make test",),
        retries=2,
        on_failure=OnFailure.CONTINUE,
        seconds=5.0,
        budget_usd=1.5,
    )


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({}, StageKind.AGENT),
        ({"kind": "approval"}, StageKind.APPROVAL),
        ({"kind": "gate", "gates": ["true"]}, StageKind.GATE),
        ({"reviewer": "codex"}, StageKind.PAIR),
        ({"racers": 2, "gates": ["true"], "coders": ["claude", "codex"]}, StageKind.RACE),
        ({"stages": [{"name": "in"}]}, StageKind.WORKFLOW),
    ],
)
def test_what_a_stage_has_says_what_it_is(body: dict[str, Any], kind: StageKind) -> None:
    assert one(**body).kind is kind


def test_stages_are_named_or_numbered_in_depends_on_and_each_counts_once() -> None:
    found = read({"name": "a"}, {"name": "b"}, {"name": "c", "depends_on": ["b", 0, 1, "a", "b"]})
    assert found.stages[2].needs == (1, 0)


def test_stages_may_come_before_those_that_they_need() -> None:
    found = read({"name": "end", "depends_on": ["start"]}, {"name": "start"})
    assert [stage.needs for stage in found.stages] == [(1,), ()]


def test_a_time_limit_of_the_whole_counts_for_every_stage_without_its_own() -> None:
    found = read(
        {"name": "a"}, {"name": "b", "seconds": 5}, {"name": "c", "timeout_seconds": 7}, timeout_seconds=60
    )
    assert [stage.seconds for stage in found.stages] == [60, 5, 7]


def test_what_is_null_is_as_if_it_were_not_there() -> None:
    assert one(coder=None, model=None, seconds=None, when=None, executor="codex") == one(coder="codex")


def test_variables_are_texts_in_the_end() -> None:
    found = read({"name": "a"}, variables={"a": "x", "b": 3, "c": 1.5, "d": True})
    assert found.variables == {"a": "x", "b": "3", "c": "1.5", "d": "true"}


@pytest.mark.parametrize("name", ["a b", "Prüfung", "审查", "a/b", "a:b", "a-1_2", "🚀", "x" * 80, "<b>&"])
def test_odd_names_can_be_used_and_referred_to(name: str) -> None:
    found = read({"name": name}, {"name": "next", "depends_on": [name], "prompt": f"{{{name}.summary}}"})
    assert found.stages[1].needs == (0,)
    with pytest.raises(InvalidInput, match="need not be done before"):
        read({"name": name}, {"name": "next", "prompt": f"{{{name}.summary}}"})


def test_a_workflow_within_is_read_with_its_stages() -> None:
    known = {"inner": {"description": "x", "stages": [{"name": "in", "coder": "codex"}]}}
    found = read_blueprint({"stages": [{"name": "outer", "workflow": "inner"}]}, within=known.__getitem__)
    assert [stage.name for stage in found.stages[0].stages] == ["in"]


def test_the_usual_coder_stands_in_at_every_depth() -> None:
    stages = read({"name": "a", "coder": "codex"}, {"name": "b", "stages": [{"name": "in"}]}).stages
    usual = with_usual_coder(stages, "claude")
    assert (usual[0].coder, usual[1].stages[0].coder) == ("codex", "claude")


@pytest.mark.parametrize(
    ("body", "retries", "policy"),
    [
        ({}, -1, OnFailure.FAIL),
        ({"on_failure": "retry"}, 2, OnFailure.FAIL),
        ({"on_failure": "retry", "retries": 5}, 5, OnFailure.FAIL),
        ({"on_failure": "skip", "retries": 1}, 1, OnFailure.SKIP),
        ({"on_failure": "continue"}, -1, OnFailure.CONTINUE),
    ],
)
def test_a_policy_says_what_comes_of_a_failure(body: dict[str, Any], retries: int, policy: OnFailure) -> None:
    stage = one(**body)
    assert (stage.retries, stage.on_failure) == (retries, policy)


def test_a_loop_may_use_its_own_last_result() -> None:
    stage = one(prompt="go on: {it.next_steps}", until='it.summary contains "done"', rounds=5)
    assert (stage.most_rounds, stage.until) == (5, 'it.summary contains "done"')


# what is refused


@for_each(
    ("body", "told", "hint"),
    [
        ({"depends_on": ["frist"]}, "it depends on 'frist', and there is no such stage", "'first'"),
        ({"depends_on": [7]}, "it depends on 7", "from 0 to 1"),
        ({"depends_on": [-1]}, "it depends on -1", "from 0 to 1"),
        ({"depends_on": [True]}, "it depends on True", "from 0 to 1"),
        ({"depends_on": [0.0]}, "it depends on 0.0", "from 0 to 1"),
        ({"depends_on": [["first"]]}, "it depends on a list", "from 0 to 1"),
        ({"depends_on": ["it"]}, "it depends on itself", "depends_on"),
        ({"depends_on": [1]}, "it depends on itself", "depends_on"),
        ({"depends_on": "first"}, "`depends_on` of stage 'it' is a list, not str", "brackets"),
        ({"promt": "x"}, "has a key 'promt' that means nothing", "`prompt`"),
        ({"xyzzy": "x"}, "has a key 'xyzzy' that means nothing", "on_failure"),
        ({"needs": [0]}, "has a key 'needs' that means nothing", ""),
        ({"foreach_from": "first.files"}, "has a key 'foreach_from'", "`foreach`"),
        ({"coder": "a", "executor": "b"}, "says `coder` twice, once as `executor`", "`coder`"),
        ({"executor": "b", "coder": "a"}, "says `coder` twice, once as `executor`", "`coder`"),
        ({"gate": "a", "gates": ["b"]}, "says `gates` twice, once as `gate`", "`gates`"),
        ({"coder": 3}, "`coder` is a text, not int", "quotes"),
        ({"prompt": ["a"]}, "`prompt` is a text, not list", "quotes"),
        ({"prompt": "a\0b"}, "`prompt` has a NUL", "take it out"),
        ({"flags": ["a\0b"]}, "`flags` has a NUL", "take it out"),
        ({"coder": "\ud800"}, "`coder` has a NUL or half of a letter", "take it out"),
        ({"kind": "agnt"}, "there is no `kind` 'agnt'", "agent, approval"),
        ({"strategy": "merg"}, "there is no `strategy` 'merg'", "new, inherit, merge"),
        ({"strategy": "inherit"}, "`strategy` 'inherit' needs a stage in `depends_on`", "depends_on"),
        ({"strategy": "merge"}, "`strategy` 'merge' needs a stage in `depends_on`", "depends_on"),
        ({"role": "boss"}, "there is no `role` 'boss'", "reviewer"),
        ({"on_failure": "panic"}, "there is no on_failure 'panic'", "fail, skip, continue, retry"),
        ({"strategy": "shared", "kind": "approval"}, "only an agent can work in your own checkout", "kind"),
        ({"strategy": "shared", "foreach": ["a"]}, "there is one agent at a time", "`foreach`"),
        ({"retries": -1}, "`retries` is a whole number from 0 to 20, not -1", "retries = 1"),
        ({"retries": 1.5}, "`retries` is a whole number", "retries = 1"),
        ({"retries": True}, "`retries` is a whole number", "retries = 1"),
        ({"retries": 10**30}, "`retries` is a whole number from 0 to 20, not a large number", "retries = 1"),
        ({"rounds": 0, "until": 'it.round == "1"'}, "`rounds` is a whole number", "1"),
        ({"rounds": 2}, "`until` says until when", "until ="),
        ({"seconds": -1}, "`seconds` is a number above 0, not -1", "600"),
        ({"seconds": "long"}, "`seconds` is a number above 0, not 'long'", "600"),
        ({"seconds": float("nan")}, "`seconds` is a number above 0", "600"),
        ({"seconds": float("inf")}, "`seconds` is a number above 0", "600"),
        ({"seconds": 10**400}, "`seconds` is a number above 0", "600"),
        ({"budget_usd": [1]}, "`budget_usd` is a number above 0", ""),
        ({"gates": [True]}, "`gates` is a list of texts", "gates ="),
        ({"gates": {"a": "b"}}, "`gates` of stage 'it' is a list, not dict", "brackets"),
        ({"gates": ["  "]}, "one of its `gates` is empty", "make test"),
        ({"kind": "gate"}, "has at least one command in `gates`", "make test"),
        ({"kind": "pair"}, "names its `reviewer`", "reviewer ="),
        ({"reviewer": "codex", "until": 'it.round == "1"'}, "a pair goes round by itself", "`rounds`"),
        ({"kind": "race"}, "at least 2 `racers`, and `gates`", "racers = 3"),
        ({"racers": 1, "gates": ["true"]}, "at least 2 `racers`", "racers = 3"),
        ({"racers": 3}, "and `gates`", "make test"),
        ({"kind": "workflow"}, "names one, or has `stages` of its own", "write-review-refine"),
        ({"kind": "approval", "foreach": ["a"]}, "is not told for whom", "take `foreach` out"),
        ({"kind": "gate", "gates": "x", "foreach": "vars.x"}, "is not told for whom", "take `foreach` out"),
        ({"foreach": []}, "`foreach` has nothing in it", "leave it out"),
        ({"foreach": ["x"] * (MOST_ITEMS + 1)}, f"`foreach` has more than {MOST_ITEMS} items", "split"),
        ({"foreach": ["x"], "until": 'it.round == "1"'}, "do not go together", "workflow within"),
        ({"foreach": {"a": 1}}, "`foreach` of stage 'it' is a list, not dict", "brackets"),
        ({"foreach": [None]}, "`foreach` is a list of texts", "foreach ="),
        ({"foreach": "first.files"}, "uses first.files, and 'first' need not be done before it", "'first'"),
        ({"foreach": "files"}, "asks for 'files', which nothing has", "vars.name"),
        ({"when": "first"}, "`when`: the condition 'first' makes no sense", "review.status"),
        ({"when": 'first.status == "x"'}, "uses first.status, and 'first' need not be done", "depends_on"),
        ({"when": 'it.status == "x"'}, "uses it.status, and 'it' need not be done before it", ""),
        (
            {"when": 'first.sumary == "x"', "depends_on": [0]},
            "asks for 'first.sumary', which nothing has",
            "summary",
        ),
        ({"when": 'nobody.status == "x"'}, "asks for 'nobody.status', which nothing has", "stage.field"),
        ({"when": 'stage_9.status == "x"'}, "asks for 'stage_9.status', which nothing has", "stage.field"),
        ({"until": 'first.status == "x"'}, "uses first.status, and 'first' need not be done", "depends_on"),
        (
            {"prompt": "{stage_0_summary}"},
            "uses {stage_0_summary}, and 'first' need not be done",
            "depends_on",
        ),
        (
            {"prompt": "{first.diff}"},
            "uses {first.diff}, and 'first' need not be done before it",
            "depends_on",
        ),
        ({"prompt": "{it.summary}"}, "uses {it.summary}, and 'it' need not be done before it", ""),
    ],
)
def test_what_is_wrong_with_a_stage_is_told_with_its_name_and_what_to_do(
    body: dict[str, Any], told: str, hint: str
) -> None:
    problem = refused({"stages": [{"name": "first"}, {"name": "it", **body}]})
    assert "stage 'it'" in problem.message
    assert told in problem.message
    assert hint in problem.hint


@for_each(
    "name",
    [
        None,
        "",
        " ",
        " a",
        3,
        ["a"],
        "a.b",
        "a{b",
        "a}b",
        'a"b',
        "a'b",
        "a(b",
        "a=b",
        "a!b",
        "x" * 81,
        "a\nb",
        "a\x1b[31m",
        "a\rb",
        "a\u202eb",
        "\ud800",
        "\0",
        "12",
        "vars",
    ],
)
def test_a_name_that_could_not_be_referred_to_is_refused_by_number(name: object) -> None:
    problem = refused({"stages": [{"name": "fine"}, {"name": name}]})
    assert "stage number 1 has no name that can be used" in problem.message
    assert "\x1b" not in problem.message


@pytest.mark.parametrize(
    ("document", "told"),
    [
        (None, "a workflow is a set of keys and values, not NoneType"),
        ([], "a workflow is a set of keys and values, not list"),
        ("stages", "a workflow is a set of keys and values, not str"),
        ({1: 2}, "a workflow is a set of keys and values"),
        ({}, "`stages` is a list, not NoneType"),
        ({"stages": {}}, "`stages` is a list, not dict"),
        ({"stages": []}, f"a workflow has 1 to {MOST_STAGES} stages, not 0"),
        ({"stages": [3]}, "stage number 0 is a set of keys and values, not int"),
        ({"stages": [{}]}, "stage number 0 has no name"),
        ({"stages": [{"name": "a"}, {"name": "a"}]}, "two stages are called 'a'"),
        ({"stages": [{"name": "a"}], "stags": []}, "the workflow has a key 'stags' that means nothing"),
        ({"stages": [{"name": "a"}], "executor": "codex"}, "the workflow has a key 'executor'"),
        ({"stages": [{"name": "a"}], "gates": ["x"]}, "the workflow has a key 'gates'"),
        ({"stages": [{"name": "a"}], "name": 3}, "the workflow: `name` is a text, not int"),
        ({"stages": [{"name": "a"}], "variables": []}, "`variables` is a set of keys and values, not list"),
        (
            {"stages": [{"name": "a"}], "variables": {"a": []}},
            "`variables`: 'a' is a text or a number, not list",
        ),
        ({"stages": [{"name": "a"}], "variables": {"a": None}}, "'a' is a text or a number, not NoneType"),
        ({"stages": [{"name": "a"}], "timeout_seconds": "x"}, "stage 'a': `seconds` is a number above 0"),
        ({"stages": [{"name": str(n)} for n in range(MOST_STAGES + 1)]}, "stages, not 501"),
    ],
)
def test_what_is_wrong_with_the_whole_is_told(document: object, told: str) -> None:
    assert told in refused(document).message


def test_stages_that_wait_for_each_other_are_named() -> None:
    stages = [
        {"name": "a", "depends_on": ["c"]},
        {"name": "b", "depends_on": ["a"]},
        {"name": "c", "depends_on": ["b"]},
        {"name": "d"},
    ]
    problem = refused({"stages": stages})
    assert problem.message == "these stages wait for each other: 'a', 'b', 'c'"


def test_the_result_of_a_stage_that_is_no_ancestor_is_refused_and_of_a_remote_one_is_not() -> None:
    chain = [{"name": "a"}, {"name": "b", "depends_on": ["a"]}, {"name": "side"}]
    read(*chain, {"name": "d", "depends_on": ["b"], "prompt": "{a.summary} {stage_0_files}"})
    problem = refused({"stages": [*chain, {"name": "d", "depends_on": ["b"], "prompt": "{side.summary}"}]})
    assert "stage 'd' uses {side.summary}, and 'side' need not be done before it" in problem.message


def test_what_is_wrong_within_is_told_with_the_way_to_it() -> None:
    inner = {"stages": [{"name": "deep", "coder": 3}]}
    problem = refused({"stages": [{"name": "outer", **inner}]})
    assert problem.message == "in stage 'outer': stage 'deep': `coder` is a text, not int"


def test_a_workflow_that_contains_itself_is_refused() -> None:
    loop = {"stages": [{"name": "again", "workflow": "loop"}]}
    problem = refused(loop, within=lambda name: loop)
    assert f"more than {DEEPEST} deep" in problem.message
    assert "contain itself" in problem.hint


def test_workflows_that_multiply_within_each_other_are_refused_before_they_are_read() -> None:
    asked: list[str] = []

    def within(name: str) -> object:
        asked.append(name)
        deeper = {"workflow": "x"} if len(asked) < DEEPEST else {}
        return {"stages": [{"name": f"s{number}", **deeper} for number in range(MOST_STAGES)]}

    problem = refused({"stages": [{"name": "a", "workflow": "x"}]}, within=within)
    assert "1 to 500 stages" in problem.message
    assert len(asked) <= DEEPEST


# any document

keys = st.sampled_from(
    [
        *Stage.__dataclass_fields__,
        "depends_on",
        "workflow",
        "executor",
        "gate",
        "rounds",
        "timeout_seconds",
        "stages",
    ]
)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(
        ["a", "b", "inherit", "merge", "race", "pair", "gate", 'a.status == "x"', "{a.summary}", 10**400]
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | keys, inner, max_size=3)
    ),
    max_leaves=8,
)
stages = st.dictionaries(keys, values, max_size=6).map(lambda body: {"name": "a", **body})
documents = values | st.fixed_dictionaries(
    {"stages": st.lists(stages, max_size=3) | values},
    optional=dict.fromkeys(("name", "variables", "task_prompt", "timeout_seconds", "base_ref", "x"), values),
)


@settings(max_examples=400, deadline=None)
@given(documents)
def test_any_document_is_a_workflow_or_is_refused(document: object) -> None:
    try:
        found = read_blueprint(document, within=lambda name: {"stages": [{"name": "in"}]})
    except InvalidInput:
        refused(document, within=lambda name: {"stages": [{"name": "in"}]})
        return
    assert found.stages
    assert len(preview(found).progress) == len(found.stages)
    json.dumps([stage.prompt for stage in found.stages]).encode()


@pytest.mark.parametrize(
    ("needed", "seconds"), [(1, 2), (MOST_STAGES, 10)], ids=["a chain", "each needs all before it"]
)
def test_many_stages_are_read_fast(needed: int, seconds: float) -> None:
    many = [
        {
            "name": f"s{number}",
            "prompt": "{stage_0_summary}" if number else "x",
            "depends_on": [*range(number)][-needed:],
        }
        for number in range(MOST_STAGES)
    ]
    begun = time.process_time()
    assert len(read(*many).stages) == MOST_STAGES
    assert time.process_time() - begun < seconds


def test_every_fact_that_a_condition_may_ask_for_is_known() -> None:
    for fact in FACTS:
        one(depends_on=[0], when=f'first.{fact} == "x"')
        one(depends_on=[0], when=f'stage_0.{fact} == "x"')
    one(when='vars.anything == "x"')


# the how-to

HOWTO = (Path(__file__).parents[2] / "docs" / "howto" / "workflows.md").read_text()


@pytest.mark.parametrize("example", re.findall(r"```toml\n(.*?)```", HOWTO, re.DOTALL))
def test_every_example_in_the_howto_is_understood(example: str) -> None:
    if not re.search(r"^\[\[stages\]\]", example, re.MULTILINE):
        example = f'[[stages]]\nname = "it"\ndepends_on = ["review"]\n{example}'
    document = tomllib.loads(example)
    named = {body["name"] for body in document["stages"]}
    needed = {name for body in document["stages"] for name in body.get("depends_on", [])}
    document["stages"] += [{"name": name} for name in sorted(needed - named)]
    assert read_blueprint(document, within=lambda name: {"stages": [{"name": "in"}]}).stages


def keys_in_table(heading: str) -> set[str]:
    section = HOWTO.partition(f"### {heading}\n")[2].partition("\n## ")[0].partition("\n### ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")]
    return {word for row in rows for word in re.findall(r"`(\w+)`", row)}


def test_every_key_is_in_the_howto_and_every_key_in_the_howto_is_one() -> None:
    known = set(Stage.__dataclass_fields__) - {"needs", "foreach_from", "most_rounds"}
    assert keys_in_table("Keys of a stage") == known | {"depends_on", "workflow", "rounds"}
    top = ("name", "description", "task_prompt", "variables", "base_ref", "timeout_seconds", "stages")
    assert keys_in_table("Keys of the file") == set(top)
    read({"name": "a"}, **dict.fromkeys(top[:3], "x"), base_ref="main", variables={}, timeout_seconds=1)


@for_each("word", [*StageKind, *Strategy, *OnFailure, "retry", *FIELDS, *FACTS])
def test_every_word_that_a_stage_may_use_is_in_the_howto(word: str) -> None:
    assert re.search(rf"[`.]{word}[`}}]", HOWTO)


@pytest.mark.parametrize("key", ["role", "flags", "effort", "seconds", "retries"])
def test_what_only_an_agent_could_heed_is_refused_for_other_kinds(key: str) -> None:
    value = {"role": "reviewer", "flags": ["-x"], "effort": "high", "seconds": 5, "retries": 1}[key]
    with pytest.raises(InvalidInput, match=f"stage 'it'.*`{key}`"):
        read({"name": "it", "kind": "gate", "gates": ["true"], key: value})


def test_a_gate_that_is_to_be_retried_is_refused() -> None:
    with pytest.raises(InvalidInput, match="retry"):
        read({"name": "it", "kind": "gate", "gates": ["true"], "on_failure": "retry"})


def test_a_time_limit_for_all_is_for_agents_and_bothers_no_gate() -> None:
    read({"name": "a"}, {"name": "it", "kind": "gate", "gates": ["true"]}, timeout_seconds=5)


def test_a_reviewer_gets_no_flags_of_its_own() -> None:
    with pytest.raises(InvalidInput, match="reviewer"):
        read({"name": "it", "role": "reviewer", "flags": ["--yolo"]})


def test_a_name_that_reads_like_a_number_of_a_stage_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no name that can be used"):
        read({"name": "stage_1"})


def test_a_field_that_no_result_has_is_refused() -> None:
    with pytest.raises(InvalidInput, match="sumary"):
        read({"name": "a"}, {"name": "it", "depends_on": ["a"], "prompt": "{a.sumary}"})


# in whose words


def test_a_refusal_names_keys_as_the_stage_is_written() -> None:
    theirs = {"name": "it", "executor": "codex", "prompt_template": "x"}
    ours = {"name": "it", "coder": "codex", "prompt": "x"}
    wrong = [{"worktree_strategy": "inherit"}, {"strategy": "inherit"}]
    hints = [refused({"stages": [{**ours, **more}]}).hint for more in wrong]
    assert ["leave `worktree_strategy` out" in hint for hint in hints] == [True, False]
    listed = [refused({"stages": [{**form, "zzz": 1}]}).hint for form in (theirs, ours)]
    assert ["worktree_strategy" in hint for hint in listed] == [True, False]
    assert [" strategy" in hint for hint in listed] == [False, True]
    assert "`executor`" in refused({"stages": [{"name": "it", "executr": "codex"}]}).hint
    assert "`timeout_seconds`" in refused({"stages": [{**theirs, "timeout_seconds": "long"}]}).message


# what is allowed, and hardly meant


def work(name: str, *after: str, strategy: str = "new", role: str = "doer") -> dict[str, Any]:
    return {"name": name, "depends_on": list(after), "strategy": strategy, "role": role}


def test_work_that_no_result_has_is_warned_of() -> None:
    review = work("review", "write", role="reviewer")
    stages = read(work("write"), review, work("refine", "review", strategy="inherit")).stages
    (told,) = warnings_about(stages)
    assert "'write'" in told
    assert "'refine'" in told
    nested = read({"name": "outer", "stages": [work("write"), work("refine", "write")]})
    assert warnings_about(nested.stages)[0].startswith("in stage 'outer': no result has the work of 'write'")


@pytest.mark.parametrize(
    "stages",
    [
        [work("write"), work("refine", "write", strategy="inherit")],
        [
            work("write"),
            work("review", "write", role="reviewer", strategy="inherit"),
            work("refine", "review", strategy="inherit"),
        ],
        [work("one"), work("two"), work("both", "one", "two", strategy="merge")],
        [work("one"), work("two"), work("judge", "one", "two", role="reviewer")],
        [work("one"), work("two")],
        [work("write"), {"name": "gate", "kind": "gate", "gates": ["true"], "depends_on": ["write"]}],
    ],
)
def test_work_that_is_built_on_or_stands_for_itself_is_not_warned_of(stages: list[dict[str, Any]]) -> None:
    assert warnings_about(read(*stages).stages) == ()


@pytest.mark.parametrize("file", sorted(BUILT_IN.glob("*.toml")), ids=lambda file: file.stem)
def test_the_workflows_that_come_along_leave_no_work_behind(file: Path) -> None:
    assert warnings_about(read_blueprint(tomllib.loads(file.read_text())).stages) == ()
