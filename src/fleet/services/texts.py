"""Texts from people and files: what cannot be written down is refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from fleet.errors import InvalidInput


def check_text(*texts: str) -> None:
    """Raise `InvalidInput` for a text that cannot be written down: not UTF-8, or with a NUL."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            hint = "see how your terminal encodes it"
            raise InvalidInput("a text is not valid UTF-8", hint=hint) from error
        if "\0" in text:
            raise InvalidInput("a text holds a NUL")


def texts_in(values: Iterable[object]) -> Iterator[str]:
    """Yield the texts among values, also those in tuples."""
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, tuple):
            yield from texts_in(cast("tuple[object, ...]", value))
