"""The engine's journal: a file in the home, or tables in the database that several machines share.

dbos migrates a file table by table; killed in between, it leaves one that it cannot open again. So a
copy is migrated, and takes the journal's place when it is whole. In a database each migration is
a transaction, and many may begin at once.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from contextlib import closing
from functools import partial
from importlib.metadata import version
from pathlib import Path

from dbos import DBOS, DBOSConfig

from fleet.engine.door import make_private

log = logging.getLogger(__name__)


# A link that was cut must be noticed, or jobs would wait on it for ever. Keys of libpq.
_LINK = {
    "connect_timeout": 10,
    "tcp_user_timeout": 10_000,
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
}
_MOST_CONNECTIONS = 8  # of one supervisor; dbos would take 20, and a server has 100 for all


def journal_in_file(journal: Path) -> DBOSConfig:
    """Make a file ready, and return how dbos opens it."""
    prepare_journal(journal)
    return DBOSConfig(name="fleet", system_database_url=f"sqlite:///{journal}")


def journal_in_database(url: str) -> DBOSConfig:
    """Return how dbos opens the journal in a database, next to the store's tables."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.rows import TupleRow

    # The connections are made by us: dbos reads URLs in its own way, and what does not know the
    # password cannot tell it. From its URL it takes only the name, to see that the database exists.
    dial = partial(psycopg.connect, url, fallback_application_name="fleet engine", **_LINK)

    def connect() -> psycopg.Connection[TupleRow]:  # a partial would show the URL to whoever prints it
        return dial()

    return DBOSConfig(
        name="fleet",
        system_database_url=f"postgresql:///{conninfo_to_dict(url)['dbname']}",
        db_engine_kwargs={"creator": connect, "pool_size": _MOST_CONNECTIONS},
    )


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
