"""Every store that must keep the contract. A new adapter is one more line in STORES."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fleet.adapters.stores.memory import MemoryStore
from fleet.adapters.stores.sqlite import SqliteStore
from fleet.ports.store import Store


def memory_store(folder: Path) -> Store:
    return MemoryStore()


def sqlite_store(folder: Path) -> Store:
    return SqliteStore(folder / "fleet.db")


STORES: dict[str, Callable[[Path], Store]] = {"memory": memory_store, "sqlite": sqlite_store}
