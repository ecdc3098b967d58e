"""Every kind of work is declared in full, and what is declared is known wherever all kinds must be."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fleet.adapters.stores.memory import MemoryStore
from fleet.domain import ids
from fleet.engine.context import EngineContext
from fleet.engine.notices import Notices
from fleet.engine.reconcilers import Reconcilers
from fleet.engine.supervisor import wish_prefixes
from fleet.errors import Next
from fleet.ports.store import Store
from fleet.records.collection import Collection
from fleet.records.lineage import Lineage
from fleet.services.decisions import decisions_due
from fleet.services.results import Results
from fleet.work import registry
from fleet.work.spec import Due, KindOfWork, Notice, Work
from tests.contexts import make_context

# A kind that fleet does not have: runners, one after the other


@dataclass(frozen=True, slots=True, kw_only=True)
class Relay:
    id: str
    project: str = "/project"
    host: str = "here"
    created_at: float = 1.0
    state: str = "running"
    base: str = ""
    origin: str = ""
    parent: str = ""
    has_ended: bool = False
    needs_person: bool = True
    is_told: bool = False


class Relays(Collection[Relay]):
    kind, make = "relay", Relay

    @staticmethod
    def index(relay: Relay) -> dict[str, str]:
        untold = {} if relay.is_told else {"untold": relay.host}
        return {"state": relay.state, "project": relay.project, **untold}


class RelayReconciler:
    def __init__(self, context: EngineContext) -> None:
        self._relays = Relays(context.store)

    def live(self) -> Sequence[Relay]:
        return self._relays.find("state", "running")

    def advance(self, work: Relay) -> bool:
        self._relays.update(work.id, lambda relay: replace(relay, state="tired"))
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
        yield Due("relay", work.id, f"{work.id} is tired", Next("relay.rest", relay_id=work.id))

    def notice(self, work: Relay) -> Notice | None:
        return Notice(kind="relay.tired", about=work.id, title="tired", text="", command="fleet relay rest")

    def mark_told(self, work: Relay) -> Relay:
        return replace(work, is_told=True)


KIND = RelayKind()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with a relay that is part of another one."""
    monkeypatch.setitem(registry.KINDS, "relay", __name__)
    store = MemoryStore()
    Relays(store).add(Relay(id="y-1"))
    Relays(store).add(Relay(id="y-2", parent="y-1"))
    return store


def test_the_supervisor_hears_wishes_of_a_new_kind(store: Store) -> None:
    assert "relay/" in wish_prefixes()


def test_work_of_a_new_kind_is_reconciled(store: Store, tmp_path: Path) -> None:
    found = Reconcilers(make_context(tmp_path, store)).look()
    assert found.is_busy
    assert found.has_moved
    assert Relays(store).get("y-1").state == "tired"


def test_lineage_goes_through_a_new_kind(store: Store) -> None:
    assert list(Lineage(store).wholes_of("y-2")) == ["y-1"]


def test_results_of_a_new_kind_can_be_merged(store: Store) -> None:
    results = Results(store)
    assert results.knows("y-1")
    assert results.require("y-1", "/project") == ("fleet/y-1",)
    assert results.is_result("fleet/y-1", "y-1")
    assert results.without_agent("/project") == ["fleet/y-1", "fleet/y-2"]


def test_decisions_on_a_new_kind_are_due(store: Store) -> None:
    Relays(store).update("y-1", lambda relay: replace(relay, state="tired"))
    fleet = cast("Any", SimpleNamespace(store=store, boundary=SimpleNamespace(held=list)))
    assert [due.id for due in decisions_due(fleet)] == ["y-1"]


def test_notices_of_a_new_kind_are_sent_once(store: Store, tmp_path: Path) -> None:
    sent = tmp_path / "sent"
    (tmp_path / "config.toml").write_text(f'[notify]\ncommand = "cat >> {sent}; echo >> {sent}"\n')
    notices = Notices(make_context(tmp_path, store))
    notices.send_due()
    notices.send_due()
    assert sent.read_text().count("relay.tired") == 2, "one for each relay"


# The kinds that fleet has

PLAIN = [name for name in dir(Work) if not name.startswith("_")]


@pytest.mark.parametrize("name", registry.KINDS)
def test_a_kind_is_declared_in_full(name: str) -> None:
    kind = next(one for one in registry.kinds() if one.name == name)
    assert registry.KINDS[name] == f"fleet.work.{name}.kind"
    assert getattr(ids, f"new_{name}_id")(0.0).startswith(kind.id_prefix)
    collection = kind.collection(MemoryStore())
    assert collection.kind == name
    missing = [one for one in PLAIN if not hasattr(collection.make, one)]
    assert not missing, f"a {name} is no Work without {missing}"
    own = vars(type(kind))
    assert (kind.asking is not None) == ("decisions" in own), "decisions are found by `asking`"
    assert ("notice" in own) == ("mark_told" in own), "a notice that cannot be marked is sent for ever"


def test_kinds_are_those_that_have_a_folder() -> None:
    folders = {file.parent.name for file in Path(registry.__file__).parent.glob("*/kind.py")}
    assert folders == set(registry.KINDS)
    prefixes = [kind.id_prefix for kind in registry.kinds()]
    assert len(set(prefixes)) == len(prefixes)


def test_declarations_load_nothing_of_their_kinds() -> None:
    code = (
        "import sys; from fleet.work.registry import KINDS, kinds; list(kinds())\n"
        "print(*(one for one in sys.modules if one.startswith('fleet.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    allowed = {"fleet.work", "fleet.work.registry", "fleet.work.spec", "fleet.version", "fleet.errors"}
    loaded = set(done.stdout.split()) - allowed
    assert loaded == {
        name for kind in registry.KINDS for name in (f"fleet.work.{kind}", f"fleet.work.{kind}.kind")
    }
