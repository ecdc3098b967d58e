"""The engine's journal file, brought to the schema of the installed dbos in one step.

dbos migrates table by table; killed in between, it leaves a file that it cannot open again. So a
copy is migrated, and takes the journal's place when it is whole.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

from dbos import DBOS

from fleet.engine.door import make_private

log = logging.getLogger(__name__)


def prepare_journal(journal: Path) -> None:
    """Make the journal ready to be opened. Only the holder of the supervisor's lock may call this."""
    make_private(journal.parent)
    wanted = _schema_number()
    try:
        if _number_of(journal) != wanted:
            _migrate(journal, wanted)
    except sqlite3.DatabaseError as problem:
        _set_aside(journal, str(problem))
        _migrate(journal, wanted)


def _schema_number() -> int:
    """Return a number that differs from one release of dbos to the next."""
    major, minor, patch, *_ = [*(int(part) for part in version("dbos").split(".") if part.isdigit()), 0, 0, 0]
    return (major * 1000 + minor) * 1000 + patch


def _number_of(journal: Path) -> int | None:
    if not journal.exists():
        return None
    with closing(sqlite3.connect(journal)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _migrate(journal: Path, number: int) -> None:
    draft = journal.with_suffix(".draft")
    for leftover in journal.parent.glob(f"{draft.name}*"):
        leftover.unlink()
    with closing(sqlite3.connect(draft)) as connection:
        draft.chmod(0o600)
        if journal.exists():
            with closing(sqlite3.connect(journal)) as old:
                old.backup(connection)
        connection.execute("PRAGMA journal_mode=DELETE")  # one file, so that one rename moves it
    DBOS.migrate(f"sqlite:///{draft}")
    with closing(sqlite3.connect(draft)) as connection:
        connection.execute(f"PRAGMA user_version={number}")
        connection.execute("PRAGMA journal_mode=WAL")  # persistent; dbos itself would not set it
    for stale in (f"{journal}-wal", f"{journal}-shm"):
        Path(stale).unlink(missing_ok=True)
    draft.replace(journal)


def _set_aside(journal: Path, reason: str) -> None:
    """Keep a journal that cannot be read, and go on without: it holds no work, only how far jobs were."""
    kept = journal.with_suffix(f".broken-{time.time():.0f}")
    log.error("journal.broken", extra={"reason": reason, "kept": str(kept)})
    journal.replace(kept)
    for stale in (f"{journal}-wal", f"{journal}-shm"):
        Path(stale).unlink(missing_ok=True)
