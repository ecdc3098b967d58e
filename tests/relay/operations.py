"""What can be asked of relays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.operations.common import CancelWork, ListWork, OfWork, ShowWork, WorkStart, WorkView
from fleet.operations.fields import flag, integer, moment, string, work_id
from fleet.operations.spec import Next

if TYPE_CHECKING:
    from fleet.operations.call import Call


class RelayView(WorkView):
    id: str = string(key=True)
    state: str = string(key=True)
    prompt: str = string(key=True)
    runners: int = integer()
    needs_person: bool = flag()
    created_at: float | None = moment()

    @property
    def is_settled(self) -> bool:
        return self.state != "running"


class OfRelay(OfWork, output=RelayView):
    """An operation on relays."""


class StartRelay(OfRelay, WorkStart, op="relay.start", examples=('fleet relay 3 -p "Run"',)):
    """Start a relay: runners, one after the other."""

    runners: int = integer("Number of runners.", minimum=2, maximum=9, position=1, metavar="N")

    def __call__(self, call: Call) -> tuple[RelayView, list[Next]]:
        relay = self.service(call).start(
            self.prompt, self.runners, folder=self.repo_path, base=self.base_ref, origin=call.origin
        )
        return self.shown(relay, call), [Next("relay.show", relay_id=relay.id)]


class ShowRelay(OfRelay, ShowWork, op="relay.show", examples=("fleet relay show y-1a2b3c4d5e",)):
    """Show a relay."""

    relay_id: str = work_id("relay")


class ListRelays(OfRelay, ListWork, op="relay.list", examples=("fleet relay list --all",)):
    """List relays that are under way, newest first."""


class CancelRelay(OfRelay, CancelWork, op="relay.cancel", examples=("fleet relay cancel y-1a2b3c4d5e",)):
    """Cancel a relay."""

    relay_id: str = work_id("relay")
