"""The ledger keeps its stored names, whatever its fields are called: old databases must stay readable."""

from __future__ import annotations

from fleet.adapters.stores.memory import MemoryStore
from fleet.domain.ids import TaskId
from fleet.domain.queue import Reservation
from fleet.domain.task import Task
from fleet.records.tasks import LEDGER, STATE, QueueState

RESERVATION = Reservation(coder="c", project="/p", host="h", shared_budget="s", shared_budget_usd=4.0)


def test_a_ledger_is_stored_under_the_names_of_old_databases() -> None:
    store = MemoryStore()
    state = QueueState(store)
    task = Task(id=TaskId("t"), title="t", created_at=1.0)
    written = state.change_ledger(lambda ledger: ledger.admit(task, RESERVATION).book("s", 1.5))
    assert state.ledger() == written
    record = store.get(STATE, LEDGER)
    assert record is not None
    assert record.body["purse_usd"] == {"s": 1.5}
    assert record.body["running"] == {
        "t": {
            "coder": "c",
            "project": "/p",
            "host": "h",
            "batch": "",
            "reserved_usd": 0.0,
            "purse": "s",
            "purse_usd": 4.0,
        }
    }
    assert not any("shared" in name for name in record.body)
