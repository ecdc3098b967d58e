"""Coders that a user describes in TOML."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet.adapters.coders.custom import KNOWN_FIELDS, CustomCoder
from fleet.config.loading import load
from fleet.config.settings import CODER_SETTINGS
from fleet.domain.event import Event, EventKind
from fleet.domain.run import Mode, Role
from fleet.errors import BadConfig, InvalidInput
from fleet.plugins import coder_named
from fleet.ports.coder import Turn
from tests.tables import for_each

TURN = Turn(
    prompt="fix {model} and {other}\n",
    folder="/turn",
    workspace="/w",
    git_folders=(),
    hook=(),
    new_session="new-1",
    flags=("--extra",),
)


def coder(text: str) -> CustomCoder:
    return CustomCoder("mytool", tomllib.loads(text))


FULL = """
command = ["mytool", "--prompt-file", "{prompt_file}", "--model", "{model}", "--id={session}", "{odd}"]
resume_command = ["mytool", "--prompt-file", "{prompt_file}", "--resume", "{session}"]
interactive_command = ["mytool", "-i", "{prompt}"]
reviewer_flags = ["--read-only"]
skip_permissions_flags = ["--yes"]
prompt = "file"
output = "jsonl"
env = {MYTOOL_ROOT = "{workspace}/x", PLAIN = "{}"}
text = "message.content.0.text"
session = "session_id"
session_model = "model"
input_tokens = "usage.input"
output_tokens = "usage.output"
cost_usd = "usage.cost"
usage_scope = "run"
final = {field = "type", equals = "result"}
failed = {field = "is_error", equals = true}
error = "error.message"
tiers = {cheap = "small", premium = "large"}
context_window = 64000
install = "pip install mytool"
"""


IN_TMUX = replace(TURN, mode=Mode.TMUX, prompt="", session="old", flags=())
RESUMES = 'interactive_resume_command = ["mytool", "-i", "--resume", "{session}", "{prompt}"]'


def test_in_tmux_a_session_is_resumed_by_a_command_of_its_own() -> None:
    resuming = coder(f"{FULL}\n{RESUMES}")
    assert resuming.launch(IN_TMUX).argv == ("mytool", "-i", "--resume", "old")
    assert resuming.launch(IN_TMUX).session == "old"
    prompted = resuming.launch(replace(IN_TMUX, prompt="go on"))
    assert prompted.argv == ("mytool", "-i", "--resume", "old", "go on")
    assert "--resume" not in resuming.launch(replace(IN_TMUX, session="")).argv


def test_in_tmux_a_session_is_resumed_by_the_one_command_that_names_it() -> None:
    both = coder('command = ["mytool"]\ninteractive_command = ["mytool", "--id={session}", "{prompt}"]')
    assert both.launch(IN_TMUX).argv == ("mytool", "--id=old")
    fresh = both.launch(replace(IN_TMUX, session=""))
    assert (fresh.argv, fresh.session) == (("mytool", "--id=new-1"), "new-1")


def test_a_session_that_cannot_be_resumed_in_tmux_is_not_quietly_left_behind() -> None:
    with pytest.raises(InvalidInput, match="cannot resume a session in tmux") as refusal:
        coder(FULL).launch(IN_TMUX)
    assert "coders.mytool.interactive_resume_command" in refusal.value.hint


def test_a_prompt_in_a_file() -> None:
    launch = coder(FULL).launch(replace(TURN, model="cheap"))
    assert launch.argv == (
        *(
            "mytool",
            "--prompt-file",
            "/turn/prompt.txt",
            "--model",
            "small",
            "--id=new-1",
            "{odd}",
            "--extra",
        ),
    )
    assert launch.files == {"prompt.txt": TURN.prompt.encode()}
    assert launch.env == {"MYTOOL_ROOT": "/w/x", "PLAIN": "{}"}
    assert launch.stdin == b""
    assert launch.session == "new-1"


def test_a_flag_without_a_value_is_left_out_with_it() -> None:
    argv = coder(FULL).launch(replace(TURN, new_session="")).argv
    assert argv == ("mytool", "--prompt-file", "/turn/prompt.txt", "{odd}", "--extra")


def test_a_further_prompt_uses_the_command_for_it() -> None:
    launch = coder(FULL).launch(replace(TURN, session="old-1"))
    assert launch.argv == ("mytool", "--prompt-file", "/turn/prompt.txt", "--resume", "old-1", "--extra")
    assert launch.session == "old-1"


def test_a_prompt_as_an_argument_keeps_its_braces() -> None:
    mine = coder('command = ["mytool", "say: {prompt}"]\nprompt = "argument"')
    assert mine.launch(replace(TURN, model="m")).argv[1] == "say: fix {model} and {other}\n"
    with pytest.raises(InvalidInput, match="too long for an argument of mytool"):
        mine.launch(replace(TURN, prompt="x" * 200_000))


def test_a_prompt_on_stdin_is_the_default() -> None:
    launch = coder('command = ["mytool"]').launch(TURN)
    assert (launch.stdin, launch.files) == (TURN.prompt.encode(), {})


def test_in_a_terminal() -> None:
    mine = coder(FULL)
    assert mine.facts.modes == {Mode.HEADLESS, Mode.TMUX}
    assert mine.launch(replace(TURN, mode=Mode.TMUX)).argv == ("mytool", "-i", TURN.prompt, "--extra")
    assert mine.launch(replace(TURN, mode=Mode.TMUX, prompt="")).argv == ("mytool", "--extra")


def test_roles() -> None:
    mine = coder(FULL)
    assert "--read-only" in mine.launch(replace(TURN, role=Role.REVIEWER)).argv
    assert "--yes" in mine.launch(replace(TURN, skip_permissions=True)).argv
    assert "--yes" not in mine.launch(TURN).argv
    with pytest.raises(InvalidInput, match="no way to only read"):
        coder('command = ["mytool"]').launch(replace(TURN, role=Role.REVIEWER))
    harmless = coder('command = ["mytool"]\nreviewer_flags = []')
    assert harmless.launch(replace(TURN, role=Role.REVIEWER)).argv == ("mytool", "--extra")


def test_facts() -> None:
    facts = coder(FULL).facts
    assert (facts.name, facts.binary, facts.install) == ("mytool", "mytool", "pip install mytool")
    assert (facts.resumes, facts.closes_stream, facts.signals_turns) == (True, True, False)
    assert (facts.tiers.premium, facts.context_window) == ("large", 64000)
    plain = coder('command = ["mytool"]').facts
    assert (plain.resumes, plain.closes_stream, plain.modes) == (False, False, {Mode.HEADLESS})
    assert plain.context_window == 200_000


PAGE = (Path(__file__).parents[2] / "docs/howto/coders.md").read_text()


def test_the_documented_example_is_a_coder() -> None:
    tables = [tomllib.loads(block) for block in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)]
    (definition,) = [table["coders"]["mytool"] for table in tables if "mytool" in table.get("coders", {})]
    assert CustomCoder("mytool", definition).facts.closes_stream


@for_each("field", sorted(KNOWN_FIELDS))
def test_every_field_is_documented(field: str) -> None:
    assert f"`{field}`" in PAGE


def read(fields: dict[str, Any]) -> list[Event]:
    return list(coder(FULL).read(json.dumps(fields).encode()))


def test_fields_are_read_by_their_paths() -> None:
    events = read(
        {
            "type": "message",
            "session_id": "s1",
            "model": "small",
            "message": {"content": [{"text": "Hello."}]},
            "usage": {"input": 3, "output": 4, "cost": 0.5},
        }
    )
    assert events == [
        Event(kind=EventKind.SESSION, data={"session_id": "s1", "model": "small"}),
        Event(kind=EventKind.USAGE, data={"scope": "run", "input": 3, "output": 4, "cost_usd": 0.5}),
        Event(kind=EventKind.SAID, text="Hello."),
    ]


def test_the_closing_line() -> None:
    assert read({"type": "result", "message": {"content": [{"text": "Bye."}]}}) == [
        Event(kind=EventKind.TURN_END, text="Bye.", data={"ok": True})
    ]
    (failure,) = read({"type": "result", "is_error": True, "error": {"message": "out of paper"}})
    assert failure.data == {"ok": False, "reason": "out of paper"}


def test_a_value_of_another_type_is_not_equal() -> None:
    assert [event.kind for event in read({"type": "result", "is_error": 1})] == [EventKind.TURN_END]
    assert read({"type": "result", "is_error": 1})[0].data["ok"] is True


def test_text_output_is_what_the_agent_says_line_by_line() -> None:
    mine = coder('command = ["mytool"]')
    assert mine.read(b"\x1b[1;32mHello\x1b[0m \x1b]0;title\x07there\r") == [
        Event(kind=EventKind.SAID, text="Hello there")
    ]
    assert mine.read(b"") == []
    assert mine.read(b'{"type":"result"}')[0].kind is EventKind.SAID


def test_settings_that_every_coder_has_may_stand_in_the_same_table(tmp_path: Path) -> None:
    common = (
        'flags = ["-x"]\nmodel = "cheap"\nskip_permissions = true\nmax_concurrent = 2\nfallback = "codex"'
    )
    (tmp_path / "config.toml").write_text(f'[coders.mytool]\ncommand = ["mytool"]\n{common}\n')
    assert set(tomllib.loads(common)) == set(CODER_SETTINGS)
    assert coder_named("mytool", load(tmp_path, environ={})).facts.binary == "mytool"


@for_each(
    ("text", "field", "reason"),
    [
        ("", "command", "must be a list of words"),
        ("command = []", "command", "must be a list of words"),
        ('command = "mytool -p"', "command", "must be a list of texts, not 'mytool -p'"),
        ('command = ["mytool", 1]', "command", "must be a list of texts"),
        ('command = ["mytool"]\nprompts = "stdin"', "prompts", "there is no such field"),
        (
            'command = ["mytool"]\nprompt = "pipe"',
            "prompt",
            'one of "stdin", "argument", "file", not \'pipe\'',
        ),
        ('command = ["mytool"]\noutput = "xml"', "output", 'one of "text", "jsonl"'),
        ('command = ["mytool"]\nprompt = "argument"', "command", "must contain {prompt}"),
        ('command = ["mytool"]\nprompt = "file"', "command", "must contain {prompt_file}"),
        ('command = ["mytool", "{prompt}"]', "command", "cannot contain {prompt}"),
        (
            'command = ["mytool", "{prompt}"]\nresume_command = ["mytool", "-c"]\nprompt = "argument"',
            "resume_command",
            "must contain {prompt}",
        ),
        (
            'command = ["mytool"]\ninteractive_resume_command = ["mytool", "{session}", "{prompt}"]',
            "interactive_resume_command",
            "it needs an interactive_command",
        ),
        (
            'command = ["mytool"]\ninteractive_command = ["mytool", "{prompt}"]\n'
            'interactive_resume_command = ["mytool", "{prompt}"]',
            "interactive_resume_command",
            "it must contain {session}",
        ),
        (
            'command = ["mytool"]\ninteractive_command = ["mytool"]',
            "interactive_command",
            "must contain {prompt}",
        ),
        ('command = ["mytool"]\ntext = "a.b"', "text", 'only with output = "jsonl"'),
        ('command = ["mytool"]\noutput = "jsonl"\ntext = 3', "text", "must be a text, not 3"),
        ('command = ["mytool"]\noutput = "jsonl"\nfinal = "result"', "final", "must be like {field"),
        ('command = ["mytool"]\noutput = "jsonl"\nfinal = {field = "a"}', "final", "must be like {field"),
        ('command = ["mytool"]\nenv = {A = 1}', "env", "must be a table of texts"),
        ('command = ["mytool"]\ntiers = {best = "x"}', "tiers", "may contain cheap, standard and premium"),
        ('command = ["mytool"]\ncontext_window = 0', "context_window", "must be a number above 0"),
        ('command = ["mytool"]\nusage_scope = "all"', "usage_scope", 'one of "call", "run", "session"'),
    ],
)
def test_a_mistake_is_told_with_the_name_of_its_field(text: str, field: str, reason: str) -> None:
    with pytest.raises(BadConfig) as caught:
        coder(text)
    assert caught.value.path == f"coders.mytool.{field}"
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    ("changes", "what"),
    [({"model": "--yolo"}, "model"), ({"session": "-x"}, "session"), ({"new_session": "-x"}, "session")],
)
def test_what_fills_a_placeholder_cannot_be_an_option(changes: dict[str, str], what: str) -> None:
    made = coder(
        'command = ["mytool", "{model}", "--session", "{session}"]\nresume_command = ["mytool", "{session}"]'
    )
    with pytest.raises(InvalidInput, match=f"is no name of a {what}"):
        made.launch(replace(TURN, **changes))


def test_a_session_that_would_be_an_option_is_not_taken_up() -> None:
    made = coder('command = ["mytool"]\noutput = "jsonl"\nsession = "id"')
    assert made.read(b'{"id": "--yolo"}') == []
    assert made.read(b'{"id": "s-1"}')[0].data == {"session_id": "s-1"}


def test_a_coder_of_another_package_finds_the_kinds_of_events_by_their_old_name() -> None:
    from fleet.domain.event import EventKind, Kind

    assert Kind is EventKind
