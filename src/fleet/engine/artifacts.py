"""A task's own files, carried from host to host through the store they share."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from pathlib import Path

from fleet.domain.ids import TaskId
from fleet.domain.task_prompts import KNOWLEDGE, PLAN, QUESTIONS, read_plan
from fleet.errors import Stale
from fleet.files.private import make_private
from fleet.files.untrusted import make_files_private, read_plain, write_plain
from fleet.ports.store import Record, Store

log = logging.getLogger(__name__)

ARTIFACT = "artifact"
NAMES = (PLAN, KNOWLEDGE, QUESTIONS)
LONGEST = 1 << 20  # characters of one file that are carried


class Artifacts:
    def __init__(self, store: Store, host: str, folder_of: Callable[[TaskId], Path]) -> None:
        self._store = store
        self._host = host
        self._folder_of = folder_of

    def keep(self, task_id: TaskId, token: int) -> None:
        """Write down what the files say now, as the holder with a token; one with a lower token cannot."""
        make_files_private(self._folder_of(task_id))  # an agent makes them as its user's umask says
        for name in NAMES:
            text = read_plain(self._folder_of(task_id) / name)[-LONGEST:]
            record = self._store.get(ARTIFACT, _key(task_id, name))
            if not text or (record and (record.body["text"] == text or _token_of(record) > token)):
                continue
            version = record.version if record else ""
            try:
                self._store.put(
                    Record(
                        kind=ARTIFACT,
                        key=_key(task_id, name),
                        body={"text": text, "host": self._host, "token": token},
                        version=version,
                    )
                )
            except Stale:
                log.warning("artifact.raced", extra={"task_id": task_id, "file": name})

    def bring(self, task_id: TaskId) -> None:
        """Make the folder, and put files into it that another host has written and this one has not."""
        folder = self._folder_of(task_id)
        if folder.is_symlink():  # where it leads to is not for us to write in
            raise OSError(errno.ELOOP, "it is a link", str(folder))
        make_private(folder)
        for name in NAMES:
            record = self._store.get(ARTIFACT, _key(task_id, name))
            is_ours = record is None or record.body["host"] == self._host
            if record and not (is_ours and (folder / name).exists()):
                write_plain(folder / name, str(record.body["text"]))

    def reopen_plan(self, task_id: TaskId) -> None:
        """Take back a plan's word that all is completed: who is started now is to do something."""
        path = self._folder_of(task_id) / PLAN
        text = read_plain(path)
        if read_plan(text) == "completed":
            write_plain(path, f"{text.rstrip()}\n\nIt was opened again.\nStatus: in_progress\n")


def _token_of(record: Record) -> int:
    token = record.body.get("token", 0)
    return token if isinstance(token, int) else 0


def _key(task_id: TaskId, name: str) -> str:
    return f"{task_id}/{name}"
