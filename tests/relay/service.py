"""Start and cancel relays."""

from __future__ import annotations

import time
from dataclasses import replace

from fleet.domain.ids import new_work_id
from fleet.services.fleet import Fleet
from fleet.services.work import WorkService
from tests.relay.kind import Relay, Relays


class RelayService(WorkService[Relay]):
    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet, Relays(fleet.store))

    def start(self, prompt: str, runners: int, *, folder: str, base: str, origin: str) -> Relay:
        repository = self._fleet.repositories.inspect(folder, base, ())
        now = time.time()
        return self._add(
            Relay(
                id=new_work_id("y-", now),
                project=repository.top,
                host=self._fleet.host,
                created_at=now,
                base=repository.base_sha,
                origin=origin,
                prompt=prompt,
                runners=runners,
            )
        )

    def cancel(self, name: str) -> Relay:
        return self._change(name, lambda relay: replace(relay, state="cancelled"))
