"""Every kind of work is declared in full, and what is declared is known wherever all kinds must be."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fleet.adapters.stores.memory import MemoryStore
from fleet.domain.work import Work
from fleet.engine.notices import Notices
from fleet.engine.reconcilers import Reconcilers
from fleet.engine.supervisor import wish_prefixes
from fleet.ports.store import Store
from fleet.records.lineage import Lineage
from fleet.services.work import Results, decisions_due
from fleet.work import registry
from tests.contexts import make_context
from tests.relay.kind import Relay, Relays

RELAY = registry.KindEntry("Have runners carry it, one after the other.", package="tests.relay")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with a relay that is part of another one."""
    monkeypatch.setitem(registry.KINDS, "relay", RELAY)
    store = MemoryStore()
    Relays(store).add(Relay(id="y-1"))
    Relays(store).add(Relay(id="y-2", part_of="y-1"))
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
    assert results.peek("y-1")
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


@pytest.mark.parametrize("name", registry.KINDS)
def test_a_kind_is_declared_in_full(name: str) -> None:
    kind = next(one for one in registry.kinds() if one.name == name)
    service = Path(import_module(registry.module_of(name, "service")).__file__ or "").read_text()
    assert f'new_work_id("{kind.id_prefix}"' in service
    collection = kind.collection(MemoryStore())
    assert collection.kind == name
    assert issubclass(collection.make, Work)
    own = vars(type(kind))
    assert (kind.asking is not None) == ("decisions" in own), "decisions are found by `asking`"


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
