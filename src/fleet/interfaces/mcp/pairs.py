"""Pairs: one coder's work, reviewed by another until it is good."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fleet.domain.event import Json
from fleet.domain.spawn import Access
from fleet.interfaces import wire
from fleet.interfaces.mcp import schema
from fleet.interfaces.mcp.shapes import SHORT
from fleet.interfaces.mcp.tool import REPO, Answer, Call, Tool

if TYPE_CHECKING:
    from fleet.domain.pair import Pair

PAIR = {"id": schema.text(), "state": schema.text(), "branch": schema.text()}


def _told(call: Call, pair: Pair) -> Answer:
    service = call.fleet.pairs
    return wire.pair(service.detail(pair)) | {"question": service.waits_for_answer(pair) or None}


def _start(call: Call) -> Answer:
    from fleet.services.pairs import PairWish

    call.refuse_agent("gates", given=call.words("gates"))
    wish = PairWish(
        doer=call.text("doer"),
        reviewer=call.text("reviewer"),
        prompt=call.text("prompt"),
        rounds=call.count("rounds", 3),
        gates=call.words("gates"),
        base=call.text("base_ref", "HEAD"),
        folder=call.text("repo_path"),
        origin=call.origin,
    )
    return _told(call, call.fleet.pairs.start(wish))


def _show(call: Call) -> Answer:
    return _told(call, call.fleet.pairs.get(call.text("pair_id")))


def _list(call: Call) -> Answer:
    lines: list[Json] = [
        {"id": one.id, "state": str(one.state), "prompt": one.prompt[:SHORT], "project": one.project}
        for one in reversed(call.fleet.pairs.list())
    ]
    return {"pairs": lines[: call.count("limit", 25)], "count": len(lines)}


def _decide(call: Call) -> Answer:
    from fleet.domain.pair import Decision

    name, by, action = call.text("pair_id"), call.caller.name, call.text("action")
    if action == "cancel":
        return _told(call, call.fleet.pairs.cancel(name, by=by, run=call.run))
    if action == "continue":
        call.require_repository(call.fleet.pairs.get(name).project)
    decided = call.fleet.pairs.decide(
        name, Decision(action), by=by, run=call.run, word=call.text("words"), rounds=call.count("rounds", 1)
    )
    return _told(call, decided)


def _has_ended(answer: Mapping[str, Json]) -> bool:
    return answer["has_ended"] is True or answer["state"] == "undecided"


TOOLS = (
    Tool(
        name="start_pair",
        title="Start a pair",
        description="Have one coder work and another review, in rounds, until there is nothing to find.",
        handle=_start,
        access=Access.START,
        takes={
            "repo_path": REPO,
            "prompt": schema.text(),
            "doer": schema.text("CODER or CODER:MODEL"),
            "reviewer": schema.text("default: another coder"),
            "rounds": schema.integer(minimum=1, maximum=20, default=3),
            "gates": schema.texts("commands that must succeed"),
            "base_ref": schema.text(default="HEAD"),
            "budget_usd": schema.number("of all together; 0: no limit", minimum=0),
        },
        needs=("repo_path", "prompt", "doer"),
        gives=PAIR,
    ),
    Tool(
        name="get_pair",
        title="Pair status",
        description="How a pair stands: rounds, verdicts, findings.",
        handle=_show,
        takes={"pair_id": schema.text()},
        needs=("pair_id",),
        gives=PAIR,
        has_ended=_has_ended,
    ),
    Tool(
        name="list_pairs",
        title="List pairs",
        description="Pairs, newest first.",
        handle=_list,
        takes={"limit": schema.integer(minimum=1, maximum=200, default=25)},
        gives={"pairs": schema.objects(), "count": schema.integer()},
    ),
    Tool(
        name="decide_pair",
        title="Decide about a pair",
        description="Say what a person has to say about a pair that could not agree, or cancel it.",
        handle=_decide,
        access=Access.PERSON,
        is_destructive=True,
        reaches_out=True,
        takes={
            "pair_id": schema.text(),
            "action": schema.choice("accept", "continue", "reject", "cancel"),
            "words": schema.text(),
            "rounds": schema.integer(minimum=1, maximum=20, default=1),
        },
        needs=("pair_id", "action"),
        gives=PAIR,
    ),
)
