"""A coder that a user describes in TOML, without code."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from fleet.adapters.coders import events, launching
from fleet.adapters.coders.jsonlines import LONGEST_LAST_WORD, Fields, JsonCoder, clip, unread
from fleet.domain.event import Event, Json
from fleet.domain.naming import refuse_option
from fleet.domain.run import Mode, Role
from fleet.errors import BadConfig, InvalidInput
from fleet.ports.coder import Facts, Launch, Tiers, Turn

PROMPT_FILE = "prompt.txt"

_PLACEHOLDER = re.compile(r"\{(prompt|prompt_file|model|session|workspace)\}")
_USAGE = {
    "input_tokens": "input",
    "output_tokens": "output",
    "cached_tokens": "cached",
    "cost_usd": "cost_usd",
    "context_tokens": "context",
}
_PATHS = ("text", "session", "session_model", "error", *_USAGE)
KNOWN_FIELDS = frozenset(
    {
        *("command", "resume_command", "interactive_command", "interactive_resume_command"),
        *("reviewer_flags", "skip_permissions_flags"),
        *("prompt", "output", "env", "tiers", "context_window", "usage_scope"),
        *(*_PATHS, "final", "failed"),
        *("install", "update", "version_argv", "login_variables", "login_files", "login_hint"),
    }
)

T = TypeVar("T")


class Match(NamedTuple):
    """A line counts when this field of it has this value."""

    field: str
    equals: str | bool | int | float

    def fits(self, line: Json) -> bool:
        found = reach(line, self.field)
        return type(found) is type(self.equals) and found == self.equals


class CustomCoder(JsonCoder):
    """Built from one `[coders.NAME]` table; raises `BadConfig` that names the field which is wrong."""

    def __init__(self, name: str, definition: Mapping[str, object]) -> None:
        table = _Table(f"coders.{name}", definition)
        self._command = table.words("command")
        if not self._command:
            raise table.problem("command", 'it must be a list of words, e.g. ["mytool", "--json"]')
        self._resume = table.words("resume_command")
        self._interactive = table.words("interactive_command")
        self._interactive_resume = table.words("interactive_resume_command")
        self._reviewer_flags = table.words("reviewer_flags") if "reviewer_flags" in definition else None
        self._skip_flags = table.words("skip_permissions_flags")
        self._prompt = table.choice("prompt", "stdin", "argument", "file")
        self._output = table.choice("output", "text", "jsonl")
        self._scope = table.choice("usage_scope", "call", "run", "session")
        self._env = table.texts("env")
        self._paths = {key: table.text(key) for key in _PATHS}
        self._final = table.match("final")
        self._failed = table.match("failed")
        self._check(table)
        self.facts = Facts(
            name=name,
            binary=self._command[0],
            install=table.text("install"),
            update=table.text("update"),
            version_argv=table.words("version_argv") or ("--version",),
            login_variables=table.words("login_variables"),
            login_files=table.words("login_files"),
            login_hint=table.text("login_hint"),
            modes=frozenset({Mode.HEADLESS, Mode.TMUX} if self._interactive else {Mode.HEADLESS}),
            resumes=bool(self._resume),
            closes_stream=self._final is not None,
            tiers=table.tiers(),
            context_window=table.count("context_window", otherwise=200_000),
        )

    def _check(self, table: _Table) -> None:
        wanted = {"stdin": "", "argument": "{prompt}", "file": "{prompt_file}"}[self._prompt]
        for key, words in (("command", self._command), ("resume_command", self._resume)):
            for placeholder in ("{prompt}", "{prompt_file}"):
                if words and _has(words, placeholder) != (placeholder == wanted):
                    must = "must contain" if placeholder == wanted else "cannot contain"
                    raise table.problem(key, f'it {must} {placeholder} when prompt = "{self._prompt}"')
        if self._interactive and not _has(self._interactive, "{prompt}"):
            raise table.problem("interactive_command", "it must contain {prompt}")
        if self._interactive_resume and not self._interactive:
            raise table.problem("interactive_resume_command", "it needs an interactive_command beside it")
        for placeholder in ("{prompt}", "{session}"):
            if self._interactive_resume and not _has(self._interactive_resume, placeholder):
                raise table.problem("interactive_resume_command", f"it must contain {placeholder}")
        used = [key for key in (*self._paths, "final", "failed") if key in table.fields]
        if self._output == "text" and used:
            raise table.problem(used[0], 'fields can be read only with output = "jsonl"')

    def launch(self, turn: Turn) -> Launch:
        is_interactive = turn.mode is Mode.TMUX
        flags = (*self._role_flags(turn), *turn.flags)
        if is_interactive or self._prompt == "argument":
            launching.demand_argument(turn.prompt, self.facts.name)
        if is_interactive:
            template = chooses_session = self._interactive_template(turn)
        else:
            template, chooses_session = self._resume if turn.session else self._command, self._command
        values = {
            "prompt": turn.prompt,
            "prompt_file": f"{turn.folder}/{PROMPT_FILE}",
            "model": launching.resolve_model(turn.model, self.facts.tiers),
            "session": refuse_option(turn.session or turn.new_session, "session"),
            "workspace": turn.workspace,
        }
        prompt = b"" if is_interactive else turn.prompt.encode()
        return Launch(
            argv=(*_fill(template, values), *flags),
            env={name: _fill_word(text, values) for name, text in self._env.items()},
            files={PROMPT_FILE: prompt} if self._prompt == "file" and not is_interactive else {},
            stdin=prompt if self._prompt == "stdin" else b"",
            session=turn.session or (turn.new_session if _has(chooses_session, "{session}") else ""),
        )

    def _interactive_template(self, turn: Turn) -> tuple[str, ...]:
        if turn.session and self._interactive_resume:
            return self._interactive_resume
        if turn.session and not turn.prompt and not _has(self._interactive, "{session}"):
            name = self.facts.name
            hint = f"give coders.{name}.interactive_resume_command, with {{session}} in it"
            raise InvalidInput(f"coder {name!r} cannot resume a session in tmux", hint=hint)
        return self._interactive

    def _role_flags(self, turn: Turn) -> tuple[str, ...]:
        if turn.skip_permissions:
            return self._skip_flags
        if turn.role is Role.DOER:
            return ()
        if self._reviewer_flags is None:
            name = self.facts.name
            hint = f"give coders.{name}.reviewer_flags, or choose another coder"
            raise InvalidInput(f"coder {name!r} has no way to only read", hint=hint)
        return self._reviewer_flags

    def read(self, line: bytes) -> Sequence[Event]:
        return events.read_text(line) if self._output == "text" else super().read(line)

    def read_hook(self, payload: bytes) -> Sequence[Event]:
        return unread(payload)

    def read_fields(self, line: Fields) -> list[Event]:
        found = {key: reach(line.value, path) if path else None for key, path in self._paths.items()}

        def text(key: str) -> str:
            value = found[key]
            return clip(value, LONGEST_LAST_WORD) if isinstance(value, str) else ""

        said, problem = text("text"), text("error")
        numbers = {name: Fields(found[key]).number() for key, name in _USAGE.items()}
        told = events.session(text("session"), text("session_model"))
        told += events.usage(self._scope, **numbers)
        if self._failed is not None and self._failed.fits(line.value):
            return [*told, *events.failed(problem or said, last_word=said)]
        if self._final is not None and self._final.fits(line.value):
            return [*told, *events.well_ended(said)]
        return [*told, *events.said(said), *(events.error(problem) if problem else [])]


def _has(template: tuple[str, ...], placeholder: str) -> bool:
    return any(placeholder in word for word in template)


def _fill(template: tuple[str, ...], values: Mapping[str, str]) -> list[str]:
    """Fill the placeholders in. A word with nothing to hold goes, and so does a flag just before it."""
    filled: list[str] = []
    for word in template:
        if all(values[name] for name in _PLACEHOLDER.findall(word)):
            filled.append(_fill_word(word, values))
        elif _PLACEHOLDER.fullmatch(word) and filled and filled[-1].startswith("-") and "=" not in filled[-1]:
            filled.pop()
    return filled


def _fill_word(word: str, values: Mapping[str, str]) -> str:
    """One pass: a prompt that contains "{model}" keeps it."""
    return _PLACEHOLDER.sub(lambda found: values[found[1]], word)


def reach(value: Json, path: str) -> Json:
    """Follow "message.content.0.text" into objects and lists; None where the way ends."""
    for name in path.split("."):
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and name.isdecimal() and len(name) < 9 and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


class _Table:
    def __init__(self, path: str, fields: Mapping[str, object]) -> None:
        self._path = path
        self.fields = fields
        for key in fields:
            if key not in KNOWN_FIELDS:
                known = ", ".join(sorted(KNOWN_FIELDS))
                raise self.problem(key, f"there is no such field; known are {known}")

    def problem(self, key: str, reason: str) -> BadConfig:
        return BadConfig(f"{self._path}.{key}", reason)

    def _get(self, key: str, otherwise: T, wanted: str, fits: Callable[[Any], bool]) -> T:
        if key not in self.fields:
            return otherwise
        value = self.fields[key]
        if not fits(value):
            raise self.problem(key, f"it must be {wanted}, not {value!r}")
        return cast("T", value)

    def text(self, key: str) -> str:
        return self._get(key, "", "a text", _is_text)

    def count(self, key: str, *, otherwise: int) -> int:
        return self._get(key, otherwise, "a number above 0", lambda value: type(value) is int and value > 0)

    def choice(self, key: str, *options: str) -> str:
        """Return which of the options it is; the first one if it is not there."""
        wanted = "one of " + ", ".join(f'"{option}"' for option in options)
        return self._get(key, options[0], wanted, options.__contains__)

    def words(self, key: str) -> tuple[str, ...]:
        return tuple(self._get(key, (), "a list of texts", _is_list))

    def texts(self, key: str) -> dict[str, str]:
        return dict(self._get(key, {}, "a table of texts", _is_table))

    def tiers(self) -> Tiers:
        given = self.texts("tiers")
        if not given.keys() <= set(Tiers._fields):
            raise self.problem("tiers", "it may contain cheap, standard and premium")
        return Tiers(**given)

    def match(self, key: str) -> Match | None:
        found = self._get(key, dict[str, Any](), 'like {field = "type", equals = "result"}', _is_match)
        return Match(**found) if found else None


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_text, cast("Sequence[object]", value)))


def _is_table(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    return all(_is_text(text) for pair in cast("Mapping[object, object]", value).items() for text in pair)


def _is_match(value: Any) -> bool:
    has_both = isinstance(value, Mapping) and {*value} == {"field", "equals"}
    return has_both and _is_text(value["field"]) and isinstance(value["equals"], str | int | float)
