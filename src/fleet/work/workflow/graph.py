"""A workflow as a graph: for a terminal, and as SVG."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from fleet.work.workflow.operations import StageRow, WorkflowView

LOOKS = {  # of a stage by its state: the mark on a terminal, and the colour of its box
    "waiting": ("○", "#d7dbe0"),
    "running": ("▶", "#9fc9ff"),
    "asking": ("?", "#ffd97a"),
    "done": ("✔", "#a5dfb0"),
    "failed": ("✘", "#f5a8a3"),
    "skipped": ("–", "#eeeeee"),
    "cancelled": ("⊘", "#eeeeee"),
}
WIDE, HIGH, GAP_WIDE, GAP_HIGH, MARGIN = 200, 46, 70, 22, 20


def lines_of(workflow: WorkflowView) -> Iterator[str]:
    """Yield the graph line by line: a column of stages that may run side by side, then the next one."""
    columns = _columns(workflow)
    for depth, column in enumerate(columns):
        for place, stage in enumerate(column):
            needs = ", ".join(stage.depends_on)
            before = "  " * depth + ("╰─" if depth and place == len(column) - 1 else "├─" if depth else "")
            after = f"  ◀ {needs}" if needs else ""
            yield f"{before}{LOOKS[stage.state][0]} {stage.name}  {stage.who}{after}"


def _columns(workflow: WorkflowView) -> list[list[StageRow]]:
    columns: list[list[StageRow]] = [[] for _ in range(max(stage.column for stage in workflow.stages) + 1)]
    for stage in workflow.stages:
        columns[stage.column].append(stage)
    return columns


def svg_of(workflow: WorkflowView) -> str:
    """Return the graph as an SVG picture. Names are text in it, whatever they look like."""
    columns = _columns(workflow)
    spots = {
        stage.name: (MARGIN + number * (WIDE + GAP_WIDE), MARGIN + place * (HIGH + GAP_HIGH))
        for number, column in enumerate(columns)
        for place, stage in enumerate(column)
    }
    width = 2 * MARGIN + len(columns) * (WIDE + GAP_WIDE) - GAP_WIDE
    height = 2 * MARGIN + max(map(len, columns)) * (HIGH + GAP_HIGH) - GAP_HIGH
    edges = [_edge(spots[need], spots[stage.name]) for stage in workflow.stages for need in stage.depends_on]
    boxes = [_box(stage, spots[stage.name]) for column in columns for stage in column]
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


def _box(stage: StageRow, spot: tuple[int, int]) -> str:
    x, y = spot
    _, colour = LOOKS[stage.state]
    name, by = _short(stage.name), _short(f"{stage.who} · {stage.state}")
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
