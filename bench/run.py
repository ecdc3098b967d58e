"""Measure fleet beside bare git and bare Python, in one run: `python -m bench.run`."""

from __future__ import annotations

from collections.abc import Iterator

from bench import launches, startup, supervisor
from bench.common import Row, scratch

SMALL, BIG = 20, 20_000


def rows() -> Iterator[Row]:
    with scratch() as place:
        yield from startup.measure(place)
    with scratch() as place:
        small = place.repository(SMALL)
        yield from launches.measure(place, small, "small", {1: 3, 50: 1.2})
    with scratch() as place:
        big = place.repository(BIG)
        yield from launches.measure_on_disk(place, big, "20,000-file", {50: 1.1})
    with scratch() as place:
        small = place.repository(SMALL)
        yield from supervisor.measure(place, small)
        yield from startup.measure_live(place)


def main() -> None:
    for row in rows():
        print(row.text(), flush=True)


if __name__ == "__main__":
    main()
