"""Tasks as lines of JSON: what `fleet task export` writes, and what bd exports too."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import cast

from fleet.domain.task import TaskState
from fleet.errors import InvalidInput
from fleet.services.task_import import Draft, is_id
from fleet.services.texts import check_text

_BLOCKING = ("blocks", "")  # bd's other kinds of dependencies let a task start
_TIMES = ("created_at", "closed_at")
_TOLD = (  # what a line may say of a task
    *("id", "title", "description", "state", "cwd", "coder", "model", "tier", "priority", "deps", "gates"),
    *("labels", "batch", "needs", "budget_usd", "reason", "close_reason", "dependencies", "status"),
)
_PASSED_OVER = frozenset(  # of bd's, or what `--json` says of a task here: they mean nothing for a new task
    (
        *(
            "issue_type",
            "assignee",
            "owner",
            "notes",
            "design",
            "comments",
            "acceptance_criteria",
            "metadata",
        ),
        *("created_by", "updated_at", "started_at", "deleted_at", "due_at", "defer_until", "delete_reason"),
        *("external_ref", "estimated_minutes", "schema_version", "content_hash", "source_repo", "parent"),
        *("dependency_count", "dependent_count", "comment_count", "dependents", "deleted_by", "closed_by"),
        *("project", "unmet", "is_ready", "not_before", "host", "run", "branch", "tries", "coder_used"),
        *("model_used", "failures", "restarts", "handovers", "question", "spent_usd", "peak_context"),
    )
)
_MEANT = {  # what people write, and what it is called
    "gate": "gates",
    "dep": "deps",
    "depends": "deps",
    "depends_on": "deps",
    "dependency": "deps",
    "blocked_by": "deps",
    "budget": "budget_usd",
    "label": "labels",
    "tag": "labels",
    "tags": "labels",
    "need": "needs",
    "agent": "coder",
    "prio": "priority",
    "desc": "description",
}
_ALIKE = 0.8  # so much alike are a word and the same word mistyped
_ID_IN = re.compile(r'"id"\s*:\s*"([^"\\]*)"')


def read_drafts(text: str) -> list[Draft]:
    """Return the tasks of a file, each with the problems that its line has."""
    # Only a line feed ends a line of JSON: other separators may stand inside a text.
    lines = enumerate(text.removeprefix("\ufeff").split("\n"), 1)
    return [_draft(number, line) for number, line in lines if line.strip()]


def _draft(number: int, line: str) -> Draft:
    try:
        body = _Body(_object(line))
    except InvalidInput as error:
        return _garbled(number, line, error.message)
    body.check_keys()
    return Draft(
        line=number,
        id=body.text("id"),
        title=body.text("title", "?"),
        description=body.text("description"),
        state=body.state(),
        cwd=body.text("cwd"),
        coder=body.text("coder"),
        model=body.text("model"),
        tier=body.text("tier"),
        priority=body.whole("priority", 2),
        deps=body.texts("deps") + body.dependencies(),
        gates=body.texts("gates"),
        labels=body.texts("labels"),
        batch=body.text("batch"),
        needs=body.texts("needs"),
        budget_usd=body.number("budget_usd"),
        reason=body.text("reason"),
        close_reason=body.text("close_reason") if body.has("close_reason") else None,
        created_at=body.moment("created_at"),
        closed_at=body.moment("closed_at"),
        problems=tuple(body.problems),  # the last: all above may have added to them
    )


def _garbled(number: int, line: str, problem: str) -> Draft:
    """Return what is left of a line that is no task: its id, so that what waits for it is not blamed."""
    found = _ID_IN.search(line)
    name = found[1] if found and is_id(found[1]) else ""
    return Draft(line=number, id=name, title="", problems=(problem,), is_garbled=True)


def _object(line: str) -> Mapping[str, object]:
    try:
        found: object = json.loads(line)
    except json.JSONDecodeError as error:
        raise InvalidInput(f"it is not JSON (column {error.colno}: {error.msg})") from error
    except ValueError as error:
        raise InvalidInput(f"it is not JSON ({error})") from error
    except RecursionError as error:
        raise InvalidInput("it is not JSON of a task: it is nested too deeply") from error
    if not isinstance(found, dict):
        raise InvalidInput("it is no JSON object")
    return cast("Mapping[str, object]", found)


def _meant(key: str) -> str:
    """Return the key that was meant by one that we do not know; "" if it is just somebody else's."""
    word = key.strip().lower().replace("-", "_")
    if word in _MEANT or word in _TOLD or word in _TIMES:
        return _MEANT.get(word, word)
    return next(iter(get_close_matches(word[:80], _TOLD, n=1, cutoff=_ALIKE)), "")


class _Body:
    """A JSON object whose values are taken out with a type; what does not fit is noted, and left out."""

    def __init__(self, body: Mapping[str, object]) -> None:
        self._body = body
        self.problems: list[str] = []

    def check_keys(self) -> None:
        for key in self._body.keys() - _PASSED_OVER - {*_TOLD, *_TIMES}:
            if meant := _meant(key):
                self.problems.append(f'there is no key {json.dumps(key[:80])}; did you mean "{meant}"?')

    def has(self, name: str) -> bool:
        return self._body.get(name) is not None

    def text(self, name: str, instead: str = "") -> str:
        value = self._body.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            self.problems.append(f"its {name} is no text")
            return instead
        return value if self._can_be_written(value) else instead

    def _can_be_written(self, *texts: str) -> bool:
        try:
            check_text(*texts)
        except InvalidInput as error:
            self.problems.append(error.message)
            return False
        return True

    def state(self) -> TaskState:
        word = self.text("state") or self.text("status")
        try:
            return TaskState(word or "open")
        except ValueError:
            self.problems.append(f"there is no state {word[:80]!r}")
            return TaskState.OPEN

    def texts(self, name: str) -> tuple[str, ...]:
        value = self._body.get(name)
        items = cast("list[object]", value) if isinstance(value, list) else []
        if (value is not None and not isinstance(value, list)) or not _are_texts(items):
            self.problems.append(f"its {name} is no list of texts")
            return ()
        texts = tuple(str(item) for item in items)
        return texts if self._can_be_written(*texts) else ()

    def dependencies(self) -> tuple[str, ...]:
        """Return what bd says that a task waits for."""
        value = self._body.get("dependencies")
        if value is not None and not isinstance(value, list):
            self.problems.append("its dependencies are no list")
        found: list[str] = []
        for item in cast("list[object]", value) if isinstance(value, list) else []:
            if not isinstance(item, dict):
                self.problems.append("one of its dependencies is no JSON object")
                continue
            dep = _Body(cast("Mapping[str, object]", item))
            if (dep.text("type") or dep.text("dependency_type")) in _BLOCKING:
                found.append(dep.text("depends_on_id") or dep.text("id"))
            self.problems += dep.problems
        return tuple(found)

    def whole(self, name: str, default: int) -> int:
        value = self._body.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            self.problems.append(f"its {name} is no whole number")
            return default
        return value

    def number(self, name: str) -> float | None:
        value = self._body.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            self.problems.append(f"its {name} is no number")
            return None
        return float(value)

    def moment(self, name: str) -> float | None:
        text = self.text(name)
        if not text:
            return None
        try:
            found = datetime.fromisoformat(text)
            return found.replace(tzinfo=found.tzinfo or UTC).timestamp()
        except (ValueError, OverflowError):
            self.problems.append(f"its {name} is no time: {text[:80]!r}")
            return None


def _are_texts(items: list[object]) -> bool:
    return all(isinstance(item, str) for item in items)
