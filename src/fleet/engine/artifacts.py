"""A task's own files, carried from host to host through the store they share."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from fleet.domain.briefing import KNOWLEDGE, PLAN, QUESTIONS
from fleet.domain.ids import TaskId
from fleet.engine.workshop import read_text
from fleet.errors import Stale
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

    def keep(self, task_id: TaskId) -> None:
        """Write down what the files say now. The last one to do so is the task's holder."""
        for name in NAMES:
            text = read_text(self._folder_of(task_id) / name)[-LONGEST:]
            record = self._store.get(ARTIFACT, _key(task_id, name))
            if not text or (record and record.body["text"] == text):
                continue
            version = record.version if record else ""
            try:
                self._store.put(
                    Record(
                        kind=ARTIFACT,
                        key=_key(task_id, name),
                        body={"text": text, "host": self._host},
                        version=version,
                    )
                )
            except Stale:
                log.warning("artifact.raced", extra={"task_id": task_id, "file": name})

    def bring(self, task_id: TaskId) -> None:
        """Make the folder, and put files into it that another host has written and this one has not."""
        folder = self._folder_of(task_id)
        folder.mkdir(parents=True, exist_ok=True)
        for name in NAMES:
            record = self._store.get(ARTIFACT, _key(task_id, name))
            is_ours = record is None or record.body["host"] == self._host
            if record and not (is_ours and (folder / name).exists()):
                draft = folder / f".{name}.draft"
                draft.write_text(str(record.body["text"]))
                draft.replace(folder / name)


def _key(task_id: TaskId, name: str) -> str:
    return f"{task_id}/{name}"
