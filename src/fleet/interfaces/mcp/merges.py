"""Bringing branches together: what is in whose way, and merge trains."""

from __future__ import annotations

from collections.abc import Mapping

from fleet.domain.event import Json
from fleet.domain.spawn import Access
from fleet.errors import NotFound
from fleet.interfaces import wire
from fleet.interfaces.mcp import schema
from fleet.interfaces.mcp.tool import REPO, Answer, Call, Tool

MOST_OTHERS = 50
CHECKOUT = schema.flag("bring a clean checkout of it forward")
NAMES = schema.texts("branches, run or worker ids")
TRAIN = {"id": schema.text(), "state": schema.text(), "branches": schema.objects()}


def _conflicts(call: Call) -> Answer:
    names, into, folder = call.words("names"), call.text("into"), call.text("repo_path")
    return wire.forecast(call.fleet.merges.forecast(names, into=into, folder=folder))


def _merge(call: Call) -> Answer:
    from fleet.services.merges import MergeWish

    return wire.train(
        call.fleet.merges.start(
            MergeWish(
                names=call.words("names"),
                into=call.text("into"),
                gates=call.words("gates"),
                is_ungated=call.flag("no_gate"),
                with_checkout=call.flag("update_checkout"),
                folder=call.text("repo_path"),
            )
        )
    )


def _show(call: Call) -> Answer:
    if name := call.text("merge_id"):
        return wire.train(call.fleet.merges.get(name))
    found = call.fleet.merges.list(everything=True)
    if not found:
        raise NotFound("there is no merge yet", hint="start one with `merge_branches`")
    *older, newest = found
    others: list[Json] = [one.id for one in reversed(older[-MOST_OTHERS:])]
    return {**wire.train(newest), "others": others}


def _control(call: Call) -> Answer:
    name = call.text("merge_id")
    call.require_repository(call.fleet.merges.get(name).project)
    if call.text("action") == "cancel":
        return wire.train(call.fleet.merges.cancel(name, run=call.run))
    with_checkout = call.flag("update_checkout")
    return wire.train(call.fleet.merges.resume(name, with_checkout=with_checkout, run=call.run))


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
    Tool(
        name="control_merge",
        title="Control a merge",
        description="Let a halted merge go on, or end one; what has landed stays.",
        handle=_control,
        access=Access.PERSON,
        is_destructive=True,
        reaches_out=True,
        takes={
            "merge_id": schema.text(),
            "action": schema.choice("resume", "cancel"),
            "update_checkout": CHECKOUT,
        },
        needs=("merge_id", "action"),
        gives=TRAIN,
    ),
)
