"""Declares relays as a kind of work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from fleet.domain.work import Work
from fleet.engine.context import EngineContext
from fleet.errors import Next
from fleet.ports.store import Store
from fleet.records.collection import Collection
from fleet.work.spec import Due, KindOfWork, Notice, Reconciler


@dataclass(frozen=True, slots=True, kw_only=True)
class Relay(Work):
    project: str = "/project"
    host: str = "here"
    created_at: float = 1.0
    state: str = "running"
    base: str = ""
    prompt: str = ""
    runners: int = 2

    @property
    def has_ended(self) -> bool:
        return self.state == "cancelled"

    @property
    def needs_person(self) -> bool:
        return True


class Relays(Collection[Relay]):
    kind, make = "relay", Relay

    @staticmethod
    def index(relay: Relay) -> dict[str, str]:
        untold = {} if relay.is_told else {"untold": relay.host}
        return {"state": relay.state, "project": relay.project, **untold}


class RelayReconciler(Reconciler[Relay]):
    collection = Relays

    def live(self) -> Sequence[Relay]:
        return self._records.find("state", "running")

    def advance(self, work: Relay) -> bool:
        self._records.update(work.id, lambda relay: replace(relay, state="tired"))
        return True


class RelayKind(KindOfWork[Relay]):
    name = "relay"
    id_prefix = "y-"
    asking = ("state", "tired")

    def collection(self, store: Store) -> Relays:
        return Relays(store)

    def reconciler(self, context: EngineContext) -> RelayReconciler:
        return RelayReconciler(context)

    def branches(self, store: Store, work: Relay) -> tuple[str, ...]:
        return (f"fleet/{work.id}",)

    def branches_without_agent(self, store: Store, project: str) -> Iterator[str]:
        for relay in self.collection(store).each("project", project):
            yield from self.branches(store, relay)

    def decisions(self, work: Relay) -> Iterable[Due]:
        yield Due("relay", work.id, f"{work.id} is tired", Next("relay.cancel", relay_id=work.id))

    def notice(self, work: Relay) -> Notice | None:
        return Notice(kind="relay.tired", about=work.id, title="tired", text="", command="fleet relay cancel")


KIND = RelayKind()
