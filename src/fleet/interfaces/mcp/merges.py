"""Bringing branches together: what is in whose way, and merge trains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from fleet.domain.event import Json
from fleet.domain.spawn import Access
from fleet.errors import NotFound
from fleet.interfaces import wire
from fleet.interfaces.mcp import schema
from fleet.interfaces.mcp.tool import REPO, Answer, Call, Tool

MOST_OTHERS = 50
CHECKOUT = schema.flag("bring a clean checkout of it forward")
NAMES = schema.texts("branches, ids or task_names")
TRAIN = {"id": schema.text(), "state": schema.text(), "branches": schema.objects()}


def _conflicts(call: Call) -> Answer:
    into, folder = call.text("into"), call.text("repo_path")
    return with_names(call, wire.forecast(call.fleet.trains.forecast(_names(call), into=into, folder=folder)))


def _names(call: Call) -> tuple[str, ...]:
    folder = call.text("repo_path")
    return tuple(call.fleet.prompt_tasks.id_meant(name, folder=folder) for name in call.words("names"))


def with_names(call: Call, told: Answer) -> Answer:
    """Return what is told of branches, each with the name of the worker that it is of."""
    rows = cast("list[dict[str, Json]]", told["branches"])
    named: list[Json] = [{"task_name": _name_of(call, row["run"]), **row} for row in rows]
    return {**told, "branches": named}


def _name_of(call: Call, run: Json) -> Json:
    return call.fleet.prompt_tasks.name_behind(str(run)) if run else None


def _merge(call: Call) -> Answer:
    from fleet.services.trains import MergeWish

    train = wire.train(
        call.fleet.trains.start(
            MergeWish(
                names=_names(call),
                into=call.text("into"),
                gates=call.words("gates"),
                is_ungated=call.flag("no_gate"),
                with_checkout=call.flag("update_checkout"),
                folder=call.text("repo_path"),
            )
        )
    )
    return with_names(call, train)


def _show(call: Call) -> Answer:
    if name := call.text("merge_id"):
        return with_names(call, wire.train(call.fleet.trains.get(name)))
    found = call.fleet.trains.list(everything=True)
    if not found:
        raise NotFound("there is no merge yet", hint="start one with `merge_branches`")
    *older, newest = found
    others: list[Json] = [one.id for one in reversed(older[-MOST_OTHERS:])]
    return {**with_names(call, wire.train(newest)), "others": others}


def _has_ended(answer: Mapping[str, Json]) -> bool:
    return answer["state"] != "open"


TOOLS = (
    Tool(
        name="check_conflicts",
        title="Check for conflicts",
        description="Which agents' branches would merge now, and which are in each other's way.",
        handle=_conflicts,
        is_idempotent=True,
        reaches_out=True,
        takes={"repo_path": REPO, "names": NAMES, "into": schema.text()},
        needs=("repo_path",),
        gives={"into": schema.text(), "branches": schema.objects(), "pairs": schema.objects()},
    ),
    Tool(
        name="merge_branches",
        title="Merge branches",
        description="Merge branches, oldest first, tested together by the gates before they land.",
        handle=_merge,
        access=Access.PERSON,
        is_destructive=True,
        reaches_out=True,
        takes={
            "repo_path": REPO,
            "names": NAMES,
            "into": schema.text("default: main or master"),
            "gates": schema.texts("commands that must succeed"),
            "no_gate": schema.flag("a clean merge is enough"),
            "update_checkout": CHECKOUT,
        },
        needs=("repo_path", "names"),
        gives=TRAIN,
    ),
    Tool(
        name="get_merge",
        title="Merge status",
        description="How a merge stands, branch by branch.",
        handle=_show,
        takes={"merge_id": schema.text("default: the newest, with the ids of others")},
        gives=TRAIN,
        has_ended=_has_ended,
    ),
)
