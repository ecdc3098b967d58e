"""Every store that must keep the contract. A new adapter is one more line in STORES."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fleet.adapters.stores.memory import MemoryStore
from fleet.adapters.stores.postgres import PostgresStore
from fleet.adapters.stores.sqlite import SqliteStore
from fleet.ports.store import Store
from tests.postgres import shared_server


def memory_store(folder: Path) -> Store:
    return MemoryStore()


def sqlite_store(folder: Path) -> Store:
    return SqliteStore(folder / "fleet.db")


def postgres_store(folder: Path) -> Store:
    return PostgresStore(shared_server().emptied_database())


STORES: dict[str, Callable[[Path], Store]] = {
    "memory": memory_store,
    "sqlite": sqlite_store,
    "postgres": postgres_store,
}
