"""Types of settings: what each accepts, from a file and as typed by people."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, NoReturn, TypeAlias, TypeVar, cast

Value: TypeAlias = "str | bool | int | float | tuple[str, ...]"
T = TypeVar("T", bound=Value)


class SettingType(NamedTuple, Generic[T]):
    """`check` takes a value as TOML has it, `parse` a text as people type it. Both raise `ValueError`."""

    name: str
    check: Callable[[object], T]
    parse: Callable[[str], object]
    show: Callable[[T], T] = lambda value: value  # as people may see it


def check_text(value: object) -> str:
    if not isinstance(value, str):
        _refuse("text in quotes", value)
    return value


def check_name(value: object) -> str:
    if not check_text(value).strip():
        raise ValueError("must not be empty")
    return check_text(value)


def check_database(value: object) -> str:
    """Take a URL that can be read in one way only, so that no part of a password passes for a host."""
    import re

    # The text may hold a password, so no message repeats it.
    if not isinstance(value, str):
        raise ValueError("must be text in quotes")
    host = r"(\[[0-9a-fA-F:.%]+\]|[\w.%-]*)(:\d+)?"
    login = r"([^:@/?#\s]+(:[^@/?#\s]*)?@)?"
    if value and not re.fullmatch(rf"postgres(ql)?://{login}{host}(,{host})*/[^/?#@\s]+(\?[^#\s]*)?", value):
        raise ValueError(
            "must be a URL such as postgresql://user:password@host:5432/database,"
            " with @ : / ? # and % in the password written as %40 %3A %2F %3F %23 and %25"
        )
    return value


def without_password(url: str) -> str:
    """Return the URL of a database as anybody may see it."""
    import re

    url = re.sub(r"^(\w+://[^:@/]*):[^@/]*@", r"\1:***@", url)
    return re.sub(r"(?i)([?&][^=&]*password=)[^&]*", r"\1***", url)


def check_truth(value: object) -> bool:
    if not isinstance(value, bool):
        _refuse("true or false", value)
    return value


def check_whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        _refuse("a whole number", value)
    if value < 0:
        raise ValueError(f"must not be negative, but is {value}")
    return value


def check_percent(value: object) -> int:
    part = check_whole(value)
    if part > 100:
        raise ValueError(f"must be from 0 to 100, not {part}")
    return part


def check_list(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        _refuse("a list of texts", value)
    entries = cast("Sequence[object]", value)
    for entry in entries:
        if not isinstance(entry, str):
            raise ValueError(f"must be a list of texts, but one entry is {entry!r}")
    return tuple(map(str, entries))


def _refuse(wanted: str, value: object) -> NoReturn:
    raise ValueError(f"must be {wanted}, not {value!r}")


def _parse_truth(text: str) -> object:
    word = text.strip().lower()
    if word in ("1", "true", "yes", "on"):
        return True
    return False if word in ("0", "false", "no", "off") else text


def _parse_number(text: str) -> object:
    for read in (int, float):
        with contextlib.suppress(ValueError):
            return read(text)
    return text


def _parse_list(text: str) -> object:
    """A text that begins with a bracket is a TOML array; else every line is an entry."""
    if not text.lstrip().startswith("["):
        return [line for line in text.split("\n") if line]
    import tomllib

    try:
        table = tomllib.loads(f"list = {text}")
    except (tomllib.TOMLDecodeError, RecursionError) as exc:
        raise ValueError(f"is no TOML array: {exc}") from exc
    return table["list"] if len(table) == 1 else text


def _parse_folders(text: str) -> object:
    """As a list; and, as people write paths into a variable, with colons or commas between them."""
    if text.lstrip().startswith("["):
        return _parse_list(text)
    words = text.replace(",", "\n").replace(":", "\n").splitlines()
    folders = [word.strip() for word in words if word.strip()]
    if text and not folders:  # such as "$UNSET:", which must not come to mean all there are
        raise ValueError(f"names no folder: {text!r}")
    return folders


def check_folders(value: object) -> tuple[str, ...]:
    """Take folders that are the same wherever they are read."""
    for folder in check_list(value):
        if not folder.startswith(("/", "~")):
            raise ValueError(f"must be whole paths, but one entry is {folder!r}")
    return check_list(value)


def choice(*words: str) -> SettingType[str]:
    *most, last = (f'"{word}"' for word in words)

    def check(value: object) -> str:
        if value not in words:
            raise ValueError(f"must be {', '.join(most)} or {last}, not {value!r}")
        return str(value)

    return SettingType("text", check, str)


def _amount(name: str, what: str) -> SettingType[float]:
    def check(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            _refuse(what, value)
        if not 0 <= value < math.inf:
            raise ValueError(f"must be a number from 0 up, not {value}")
        return value

    return SettingType(name, check, _parse_number)


TEXT = SettingType("text", check_text, str)
NAME = SettingType("text", check_name, str)
DATABASE = SettingType("text", check_database, str, without_password)
TRUTH = SettingType("true or false", check_truth, _parse_truth)
WHOLE = SettingType("whole number", check_whole, _parse_number)
PERCENT = SettingType("whole number", check_percent, _parse_number)
SECONDS = _amount("seconds", "a number of seconds")
MONEY = _amount("USD", "an amount in USD")
LIST = SettingType("list of texts", check_list, _parse_list)
FOLDERS = SettingType("list of texts", check_folders, _parse_folders)
