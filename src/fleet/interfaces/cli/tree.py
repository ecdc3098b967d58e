"""What waits for what, drawn with lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fleet.operations.tasks import TaskView

DEEPEST = 30  # levels that fit on a screen


@dataclass(frozen=True, slots=True, kw_only=True)
class Twig:
    """One line of a tree."""

    lines: str  # drawn before it
    task: TaskView
    is_cut: bool = False  # what it waits for stands further up, or is too deep to be shown


def roots_of(tasks: Mapping[str, TaskView]) -> list[str]:
    """Return the tasks that are not closed and that no such task waits for."""
    left = [task for task in tasks.values() if task.state != "closed"]
    awaited = {dep for task in left for dep in task.deps}
    return [task.id for task in left if task.id not in awaited]


def grow(tasks: Mapping[str, TaskView], roots: Sequence[str]) -> Iterator[Twig]:
    """Yield the lines of a tree: below each task what it waits for, each of them in full only once."""
    seen: set[str] = set()
    waiting = [(root, "", "", 0) for root in reversed(roots)]
    while waiting:
        name, lines, below, depth = waiting.pop()
        task = tasks[name]
        deps = [dep for dep in task.deps if dep in tasks]
        is_cut = bool(deps) and (name in seen or depth >= DEEPEST)
        yield Twig(lines=lines, task=task, is_cut=is_cut)
        if is_cut:
            continue
        seen.add(name)
        for place, dep in reversed(list(enumerate(deps, 1))):
            is_last = place == len(deps)
            corner, stem = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
            waiting.append((dep, below + corner, below + stem, depth + 1))
