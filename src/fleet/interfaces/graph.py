"""A workflow as a graph: for a terminal, and as SVG."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from fleet.domain.workflow import Stage, StageKind, StageState, Workflow, levels

MARKS = {
    StageState.WAITING: "○",
    StageState.RUNNING: "▶",
    StageState.ASKING: "?",
    StageState.DONE: "✔",
    StageState.FAILED: "✘",
    StageState.SKIPPED: "–",
    StageState.CANCELLED: "⊘",
}
COLOURS = {
    StageState.WAITING: "#d7dbe0",
    StageState.RUNNING: "#9fc9ff",
    StageState.ASKING: "#ffd97a",
    StageState.DONE: "#a5dfb0",
    StageState.FAILED: "#f5a8a3",
    StageState.SKIPPED: "#eeeeee",
    StageState.CANCELLED: "#eeeeee",
}
WIDE, HIGH, GAP_WIDE, GAP_HIGH, MARGIN = 200, 46, 70, 22, 20


def lines_of(workflow: Workflow) -> Iterator[str]:
    """Yield the graph line by line: a column of stages that may run side by side, then the next one."""
    columns = levels(workflow.stages)
    for depth, column in enumerate(columns):
        for place, index in enumerate(column):
            stage = workflow.stages[index]
            needs = ", ".join(workflow.stages[need].name for need in stage.needs)
            before = "  " * depth + ("╰─" if depth and place == len(column) - 1 else "├─" if depth else "")
            state = workflow.progress[index].state
            yield f"{before}{MARKS[state]} {stage.name}  {who(stage)}" + (f"  ◀ {needs}" if needs else "")


def who(stage: Stage) -> str:
    """Say who does a stage, and how, in a word or two."""
    match stage.kind:
        case StageKind.AGENT:
            return f"{stage.coder}{':' if stage.model else ''}{stage.model}"
        case StageKind.PAIR:
            return f"{stage.coder} with {stage.reviewer}"
        case StageKind.RACE:
            return f"race of {stage.racers}"
        case StageKind.WORKFLOW:
            return f"workflow of {len(stage.stages)} stages"
        case StageKind.APPROVAL | StageKind.GATE:
            return str(stage.kind)


def svg_of(workflow: Workflow) -> str:
    """Return the graph as an SVG picture. Names are text in it, whatever they look like."""
    columns = levels(workflow.stages)
    spots = {
        index: (MARGIN + column * (WIDE + GAP_WIDE), MARGIN + place * (HIGH + GAP_HIGH))
        for column, indexes in enumerate(columns)
        for place, index in enumerate(indexes)
    }
    width = 2 * MARGIN + len(columns) * (WIDE + GAP_WIDE) - GAP_WIDE
    height = 2 * MARGIN + max(map(len, columns)) * (HIGH + GAP_HIGH) - GAP_HIGH
    edges = [
        _edge(spots[need], spots[index])
        for index, stage in enumerate(workflow.stages)
        for need in stage.needs
    ]
    boxes = [_box(workflow, index, spot) for index, spot in spots.items()]
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">'
    )
    return "\n".join(
        [opening, f"<title>{escape(_plain(workflow.name))}</title>", *edges, *boxes, "</svg>", ""]
    )


def _edge(start: tuple[int, int], end: tuple[int, int]) -> str:
    x1, y1 = start[0] + WIDE, start[1] + HIGH // 2
    x2, y2 = end[0], end[1] + HIGH // 2
    middle = (x1 + x2) // 2
    return f'<path d="M{x1} {y1} C{middle} {y1} {middle} {y2} {x2} {y2}" fill="none" stroke="#888"/>'


def _box(workflow: Workflow, index: int, spot: tuple[int, int]) -> str:
    (x, y), stage, progress = spot, workflow.stages[index], workflow.progress[index]
    colour = COLOURS[progress.state]
    name, by = _short(stage.name), _short(f"{who(stage)} · {progress.state}")
    return (
        f'<g><rect x="{x}" y="{y}" width="{WIDE}" height="{HIGH}" rx="6" fill="{colour}" stroke="#555"/>'
        f'<text x="{x + 10}" y="{y + 19}" font-weight="bold">{escape(name)}</text>'
        f'<text x="{x + 10}" y="{y + 37}" fill="#444">{escape(by)}</text></g>'
    )


def _plain(text: str) -> str:
    """Return a text that may stand in XML: not every character may."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _short(text: str) -> str:
    plain = _plain(text)
    return plain if len(plain) <= 26 else f"{plain[:25]}…"
