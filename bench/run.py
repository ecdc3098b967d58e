"""Measure fleet beside bare git and bare Python, in one run: `python -m bench.run [PART …]`.

The parts are startup, launches, removals and supervisor; all of them if none is named.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from bench import launches, removals, startup, supervisor
from bench.common import Row, scratch

SMALL, BIG = 20, 20_000


def measure_startup() -> Iterator[Row]:
    with scratch() as place:
        yield from startup.measure(place)


def measure_launches() -> Iterator[Row]:
    with scratch() as place:
        small = place.repository(SMALL)
        yield from launches.measure(place, small, "small", {1: 3, 50: 1.2})
    with scratch() as place:
        big = place.repository(BIG)
        yield from launches.measure_on_disk(place, big, "20,000-file", {50: 1.1})


def measure_removals() -> Iterator[Row]:
    for files, name, turns in ((SMALL, "small", 10), (BIG, "20,000-file", 4)):
        with scratch() as place:
            yield from removals.measure(place, place.repository(files), name, turns)


def measure_supervisor() -> Iterator[Row]:
    with scratch() as place:
        small = place.repository(SMALL)
        yield from supervisor.measure(place, small)
        yield from startup.measure_live(place)


PARTS = {
    "startup": measure_startup,
    "launches": measure_launches,
    "removals": measure_removals,
    "supervisor": measure_supervisor,
}


def main() -> None:
    named = sys.argv[1:] or PARTS
    if unknown := set(named) - set(PARTS):
        sys.exit(f"no such part: {', '.join(sorted(unknown))} (there are: {', '.join(PARTS)})")
    for part in named:
        for row in PARTS[part]():
            print(row.text(), flush=True)


if __name__ == "__main__":
    main()
