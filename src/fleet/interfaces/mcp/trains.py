"""What a person does about a merge that was halted. Rarely needed, so no part of the usual tools."""

from __future__ import annotations

from fleet.domain.spawn import Access
from fleet.interfaces import wire
from fleet.interfaces.mcp import schema
from fleet.interfaces.mcp.merges import CHECKOUT, TRAIN, with_names
from fleet.interfaces.mcp.tool import Answer, Call, Tool


def _control(call: Call) -> Answer:
    name = call.text("merge_id")
    call.require_repository(call.fleet.trains.get(name).project)
    if call.text("action") == "cancel":
        return with_names(call, wire.train(call.fleet.trains.cancel(name, run=call.run)))
    with_checkout = call.flag("update_checkout")
    resumed = call.fleet.trains.resume(name, with_checkout=with_checkout, run=call.run)
    return with_names(call, wire.train(resumed))


TOOLS = (
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
