"""Antigravity CLI. From its documented flags only: it was not at hand to be measured."""

from __future__ import annotations

from collections.abc import Sequence

from fleet.adapters.coders.events import read_text
from fleet.adapters.coders.launching import demand_argument, model_options
from fleet.domain.event import Event
from fleet.domain.run import Role
from fleet.errors import InvalidInput
from fleet.ports.coder import Facts, Launch, Turn


class AgyCoder:
    """It prints text, so a turn has no usage and no session id, and its exit code alone says how it ended."""

    facts = Facts(
        name="agy",
        binary="agy",
        login_hint="start `agy` once and log in",
        resumes=False,
        closes_stream=False,
        context_window=1_048_576,
    )

    def launch(self, turn: Turn) -> Launch:
        if turn.role is Role.REVIEWER and not turn.skip_permissions:
            raise InvalidInput("agy has no mode that only reads", hint="choose another coder for the review")
        argv = (
            "agy",
            *model_options(turn, self.facts.tiers),
            *(("--dangerously-skip-permissions",) if turn.skip_permissions else ("--mode", "accept-edits")),
            *(("--conversation", turn.session) if turn.session else ()),
            *turn.flags,
            *("-p", demand_argument(turn.prompt, "agy")),
        )
        return Launch(argv=argv, session=turn.session)

    def read(self, line: bytes) -> Sequence[Event]:
        return read_text(line)

    def read_hook(self, payload: bytes) -> Sequence[Event]:
        return read_text(payload)
