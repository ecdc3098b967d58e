"""Variables in prompts: filled in once, all at once; everything else stays as it was written."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.template import FIELDS, Reference, fill_in, references_in

NAMES = ("implement", "review", "final check", "prüfung", "a-b_c")


def filled(template: str, values: dict[Reference, str] | None = None, **others: str) -> str:
    known = values or {}
    return fill_in(
        template, NAMES, lambda wanted: known.get(wanted, f"<{wanted.stage} {wanted.field}>"), others
    )


@pytest.mark.parametrize("field", FIELDS)
def test_a_result_is_named_by_number_and_by_name(field: str) -> None:
    assert filled(f"{{stage_1_{field}}}|{{review.{field}}}") == f"<1 {field}>|<1 {field}>"


@pytest.mark.parametrize("name", NAMES)
def test_every_name_that_a_stage_may_have_can_be_used(name: str) -> None:
    assert filled(f"{{{name}.summary}}") == f"<{NAMES.index(name)} summary>"


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "{ }",
        "{{}}",
        "{stage_9_summary}",
        "{stage_0_secrets}",
        "{stage_x}",
        "{task_prompt_x}",
        "{ task_prompt }",
        "{review}",
        "{review.}",
        "{review.secrets}",
        "{nobody.summary}",
        "{stage_0_summary",
        "stage_0_summary}",
        "{stage_0\n_summary}",
        '{"summary": {"a": []}}',
        "if (x) { return y; }",
        "${HOME} %(x)s {0} {!r} {a:>10}",
        "\\{x\\}",
    ],
)
def test_all_other_braces_stay_as_they_are(text: str) -> None:
    assert filled(text, task_prompt="the task") == text
    assert references_in(text, NAMES) == {}


def test_a_variable_within_other_braces_is_filled_in() -> None:
    assert filled('{"task": "{task_prompt}"} {{task_prompt}}', task_prompt="T") == '{"task": "T"} {T}'


def test_what_is_put_in_is_not_looked_at_again() -> None:
    wicked = "{task_prompt} {stage_1_summary} {vars.secret}"
    told = filled(
        "{stage_0_summary}|{task_prompt}", {Reference(0, "summary"): wicked}, task_prompt="{item}", item="i"
    )
    assert told == f"{wicked}|{{item}}"


def test_two_values_cannot_make_a_variable_together() -> None:
    assert filled("{left}task_prompt{right}", left="{", right="}", task_prompt="T") == "{task_prompt}"


@given(st.text(), st.text(), st.text())
def test_any_value_stays_as_it_is(before: str, value: str, after: str) -> None:
    clean = [text.replace("\0", "").replace("{", "(") for text in (before, value, after)]
    told = filled(clean[0] + "{review.summary}" + clean[2], {Reference(1, "summary"): clean[1]})
    assert told == "".join(clean)


@given(st.text(alphabet="{}stage_0summary.\\$ \n", max_size=60))
def test_values_with_braces_keep_them(value: str) -> None:
    assert filled("[{review.summary}]", {Reference(1, "summary"): value}) == f"[{value}]"


@given(st.text(alphabet='{}ab._ \n"', max_size=60))
def test_a_template_without_variables_stays_as_it_is(text: str) -> None:
    assert filled(text) == text


def test_what_no_program_can_be_handed_is_taken_out() -> None:
    broken = json.loads(r'"a\ud800b\u0000c"')
    assert filled("{review.summary}", {Reference(1, "summary"): broken}) == "a?bc"


def test_the_references_of_a_template_are_told_as_they_are_written() -> None:
    told = references_in("{stage_0_diff} {review.files} {review.files} {x} {stage_4_summary}", NAMES)
    assert told == {
        "stage_0_diff": Reference(0, "diff"),
        "review.files": Reference(1, "files"),
        "stage_4_summary": Reference(4, "summary"),
    }
