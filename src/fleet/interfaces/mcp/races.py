"""Races: several attempts at the same work, the best chosen by evidence."""

from __future__ import annotations

from collections.abc import Mapping

from fleet.domain.event import Json
from fleet.domain.spawn import Access
from fleet.interfaces import wire
from fleet.interfaces.mcp import schema
from fleet.interfaces.mcp.shapes import SHORT
from fleet.interfaces.mcp.tool import REPO, Answer, Call, Tool

RACE = {"id": schema.text(), "state": schema.text()}


def _start(call: Call) -> Answer:
    from fleet.services.races import RaceWish

    commands = (*call.words("gates"), *call.words("hidden_gates"), call.text("lint"))
    call.refuse_agent("gates", given=any(commands))
    wish = RaceWish(
        size=call.count("size", 3),
        prompt=call.text("prompt"),
        gates=call.words("gates"),
        hidden_gates=call.words("hidden_gates"),
        lint=call.text("lint"),
        protect=call.words("protect"),
        coders=call.words("coders"),
        judge=call.text("judge"),
        base=call.text("base_ref", "HEAD"),
        folder=call.text("repo_path"),
        origin=call.origin,
    )
    return wire.race_line(call.fleet.races.start(wish))


def _show(call: Call) -> Answer:
    return wire.race(call.fleet.races.detail(call.fleet.races.get(call.text("race_id"))))


def _list(call: Call) -> Answer:
    lines: list[Json] = [
        {"id": one.id, "state": str(one.state), "prompt": one.prompt[:SHORT], "project": one.project}
        for one in reversed(call.fleet.races.list())
    ]
    return {"races": lines[: call.count("limit", 25)], "count": len(lines)}


def _cancel(call: Call) -> Answer:
    return wire.race_line(call.fleet.races.cancel(call.text("race_id"), run=call.run))


def _has_ended(answer: Mapping[str, Json]) -> bool:
    return answer["state"] in ("ended", "cancelled") or answer["is_asking"] is True


TOOLS = (
    Tool(
        name="start_race",
        title="Start a race",
        description="Have several agents do the same work; commands (gates) say whose is good.",
        handle=_start,
        access=Access.START,
        takes={
            "repo_path": REPO,
            "prompt": schema.text(),
            "size": schema.integer(minimum=2, maximum=50, default=3),
            "gates": schema.texts("commands that tell good work from bad"),
            "hidden_gates": schema.texts("those that candidates are not told of"),
            "lint": schema.text("command that orders equals"),
            "protect": schema.texts("files to try as they were, as tests are; !PATTERN sets free"),
            "coders": schema.texts("in turn"),
            "judge": schema.text("coder that chooses between equals"),
            "base_ref": schema.text(default="HEAD"),
            "budget_usd": schema.number("of all together; 0: no limit", minimum=0),
        },
        needs=("repo_path", "prompt", "gates"),
        gives=RACE,
    ),
    Tool(
        name="get_race",
        title="Race status",
        description="The scorecard of a race, and its winner.",
        handle=_show,
        takes={"race_id": schema.text()},
        needs=("race_id",),
        gives=RACE,
        has_ended=_has_ended,
    ),
    Tool(
        name="list_races",
        title="List races",
        description="Races, newest first.",
        handle=_list,
        takes={"limit": schema.integer(minimum=1, maximum=200, default=25)},
        gives={"races": schema.objects(), "count": schema.integer()},
    ),
    Tool(
        name="cancel_race",
        title="Cancel a race",
        description="End a race and its agents; what they did is kept.",
        handle=_cancel,
        access=Access.PERSON,
        is_destructive=True,
        takes={"race_id": schema.text()},
        needs=("race_id",),
        gives=RACE,
    ),
)
