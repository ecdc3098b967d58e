"""Tasks as lines of JSON: what `fleet task export` writes, and what bd exports too."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import cast

from fleet.domain.task import TaskState
from fleet.errors import InvalidInput
from fleet.services.exchange import BadLines, Draft
from fleet.services.tasks import check_text

_BLOCKING = ("blocks", "")  # bd's other kinds of dependencies let a task start


def read_drafts(text: str) -> list[Draft]:
    """Return the tasks of a file; raise `InvalidInput` that names every line which is none."""
    bad = BadLines()
    drafts: list[Draft] = []
    # Only a line feed ends a line of JSON: other separators may stand inside a text.
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        if line.strip():
            try:
                drafts.append(_draft(number, line))
            except InvalidInput as error:
                bad.add(number, error.message)
    bad.refuse()
    return drafts


def _draft(number: int, line: str) -> Draft:
    body = _Body(_object(line))
    return Draft(
        line=number,
        id=body.text("id"),
        title=body.text("title"),
        description=body.text("description"),
        state=_state(body.text("state") or body.text("status")),
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
    )


def _object(line: str) -> Mapping[str, object]:
    try:
        found: object = json.loads(line)
    except json.JSONDecodeError as error:
        raise InvalidInput(f"it is not JSON ({error.msg} at column {error.colno})") from error
    except ValueError as error:
        raise InvalidInput(f"it is not JSON ({error})") from error
    except RecursionError as error:
        raise InvalidInput("it is not JSON of a task: it is nested too deeply") from error
    if not isinstance(found, dict):
        raise InvalidInput("it is no JSON object")
    return cast("Mapping[str, object]", found)


def _state(word: str) -> TaskState:
    try:
        return TaskState(word or "open")
    except ValueError:
        raise InvalidInput(f"there is no state {word[:80]!r}") from None


class _Body:
    """A JSON object whose values are taken out with a type."""

    def __init__(self, body: Mapping[str, object]) -> None:
        self._body = body

    def has(self, name: str) -> bool:
        return self._body.get(name) is not None

    def text(self, name: str) -> str:
        value = self._body.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise InvalidInput(f"its {name} is no text")
        check_text(value)
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        value = self._body.get(name)
        items = cast("list[object]", value) if isinstance(value, list) else []
        if (value is not None and not isinstance(value, list)) or not _are_texts(items):
            raise InvalidInput(f"its {name} is no list of texts")
        texts = tuple(str(item) for item in items)
        check_text(*texts)
        return texts

    def dependencies(self) -> tuple[str, ...]:
        """Return what bd says that a task waits for."""
        value = self._body.get("dependencies")
        if value is None:
            return ()
        if not isinstance(value, list):
            raise InvalidInput("its dependencies are no list")
        found: list[str] = []
        for item in cast("list[object]", value):
            if not isinstance(item, dict):
                raise InvalidInput("one of its dependencies is no JSON object")
            dep = _Body(cast("Mapping[str, object]", item))
            if (dep.text("type") or dep.text("dependency_type")) in _BLOCKING:
                found.append(dep.text("depends_on_id") or dep.text("id"))
        return tuple(found)

    def whole(self, name: str, default: int) -> int:
        value = self._body.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidInput(f"its {name} is no whole number")
        return value

    def number(self, name: str) -> float | None:
        value = self._body.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise InvalidInput(f"its {name} is no number")
        return float(value)

    def moment(self, name: str) -> float | None:
        text = self.text(name)
        if not text:
            return None
        try:
            found = datetime.fromisoformat(text)
            return found.replace(tzinfo=found.tzinfo or UTC).timestamp()
        except (ValueError, OverflowError):
            raise InvalidInput(f"its {name} is no time: {text[:80]!r}") from None


def _are_texts(items: list[object]) -> bool:
    return all(isinstance(item, str) for item in items)
