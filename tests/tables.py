"""One test for a table of cases: what a test id, its set-up and its report cost is paid once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import pytest


def for_each(
    names: str | tuple[str, ...], cases: Iterable[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test for each case of a table, to the end of it; every case that fails is told.

    Written like `pytest.mark.parametrize`, for tests whose cases share nothing that they change.
    """
    words = [names] if isinstance(names, str) else names
    table = list(cases)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def every(**fixtures: Any) -> None:
            assert table, "the table is empty"
            failures: list[Exception] = []
            for case in table:
                values = [case] if len(words) == 1 else case
                try:
                    test(**fixtures, **dict(zip(words, values, strict=True)))
                except (Exception, pytest.fail.Exception) as failure:
                    told = failure if isinstance(failure, Exception) else AssertionError(str(failure))
                    told.add_note(f"case: {case!r}")
                    failures.append(told)
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(table)} cases", failures)

        kept = [one for name, one in inspect.signature(test).parameters.items() if name not in words]
        every.__signature__ = inspect.Signature(kept)  # type: ignore[attr-defined]
        return every

    return decorate
