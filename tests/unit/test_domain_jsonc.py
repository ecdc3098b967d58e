"""One member of a JSON text comes and goes; not one other byte of it changes."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.domain import jsonc
from fleet.errors import InvalidInput

PATH = ("mcpServers", "fleet")
VALUE: Any = {"command": "fleet", "args": ["mcp"]}

LAYOUTS = {
    "empty": "{}",
    "empty over two lines": "{\n}\n",
    "one line": '{"theme": "dark"}',
    "one line with room": '{ "theme": "dark", "mcpServers": { "other": {} } }\n',
    "four spaces": '{\n    "mcpServers": {\n        "other": {}\n    }\n}\n',
    "tabs and carriage returns": '{\r\n\t"mcpServers": {},\r\n\t"theme": "dark"\r\n}\r\n',
    "comments": '{ // me\n  /* all\n  of */\n  "mcpServers": { // these\n    "a": {} // one\n  } // end\n}\n',
    "only a comment": "{\n  // nothing yet\n}\n",
    "only a comment in a line": '{ "mcpServers": { /* none */ } }',
    "trailing commas": '{\n  "list": [1, 2,],\n  "mcpServers": {\n    "a": {},\n  },\n}\n',
    "a byte order mark": '\ufeff{"mcpServers":{}}',
    "a slash and braces in texts": '{\n  "url": "http://x//{}/*",\n  "say": "\\"}{"\n}',
    "no line end": '{\n  "a": 1\n}',
}


def with_member(text: str) -> tuple[str, str]:
    place, piece = jsonc.added(text, PATH, VALUE)
    return text[:place] + piece + text[place:], piece


@pytest.mark.parametrize("text", LAYOUTS.values(), ids=LAYOUTS)
def test_a_member_is_added_in_one_piece_and_everything_else_means_what_it_meant(text: str) -> None:
    new, piece = with_member(text)
    assert jsonc.value_at(new, PATH) == VALUE
    assert new.replace(piece, "") == text
    before, after = jsonc.parse(text).value, jsonc.parse(new).value
    assert isinstance(before, dict)
    assert isinstance(after, dict)
    servers = before.get("mcpServers", {})
    assert isinstance(servers, dict)
    assert after == before | {"mcpServers": servers | {"fleet": VALUE}}


@pytest.mark.parametrize("text", LAYOUTS.values(), ids=LAYOUTS)
def test_a_member_is_taken_out_of_a_text_that_was_changed_since(text: str) -> None:
    new, _ = with_member(text)
    changed = new.replace('"mcp"', '"mcp", "--tools", "all"')
    made = 0 if "mcpServers" in text else 1
    left = jsonc.without(changed, PATH, made=made)
    assert jsonc.parse(left).value == jsonc.parse(text).value
    assert [line for line in left.splitlines() if "//" in line] == [
        line for line in text.splitlines() if "//" in line
    ]


def test_what_was_made_for_it_stays_if_somebody_else_uses_it_now() -> None:
    new, _ = with_member("{}")
    shared = new.replace('"mcpServers": {', '"mcpServers": {"other": {},')
    assert jsonc.parse(jsonc.without(shared, PATH, made=1)).value == {"mcpServers": {"other": {}}}


def test_a_file_that_a_client_wrote_anew_loses_only_ours() -> None:
    new, _ = with_member('{"a": 1}')
    rewritten = json.dumps({**json.loads(new), "later": [1]}, indent=2)
    assert jsonc.without(rewritten, PATH, made=1) == json.dumps({"a": 1, "later": [1]}, indent=2)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "line 1: a value is missing"),
        ('{"a": 1,\n "b" 2}', "line 2: there is no colon after 'b'"),
        ('{"a": 1\n "b": 2}', "line 2: a comma or '}' is missing"),
        ('{"a": [1 2]}', "line 1: a comma or ']' is missing"),
        ('{"a": tru}', "a value is missing"),
        ('{"a": "x', "a value is missing"),
        ("{1: 2}", "a name is missing"),
        ("{} {}", "there is something after its end"),
        ("[]", "it is no object"),
        ('{"a":' + "[" * 2000, "levels deep"),
        ('{"mcpServers": []}', "is no object"),
        ('{"mcpServers": {}, "mcpServers": {}}', "is in it twice"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(text: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=r".") as caught:
        jsonc.added(text, PATH, VALUE)
    assert told in caught.value.message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(document=st.dictionaries(st.text(), JSON, max_size=4), indent=st.sampled_from([None, 0, 1, 4, "\t"]))
@settings(max_examples=150)
def test_any_document_has_it_added_and_taken_out_to_the_byte(document: Any, indent: Any) -> None:
    document.pop("mcpServers", None)
    text = json.dumps(document, indent=indent)
    new, piece = with_member(text)
    assert json.loads(new) == document | {"mcpServers": {"fleet": VALUE}}
    assert new.replace(piece, "", 1) == text
    assert json.loads(jsonc.without(new, PATH, made=1)) == document


@given(text=st.text(alphabet='{}[]",:/*\\ \n1a-'))
@settings(max_examples=200)
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(InvalidInput):
        assert isinstance(jsonc.parse(text).value, dict)
