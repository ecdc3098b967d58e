"""Time limits and caps for HTTP connections. uvicorn has a limit for idle connections alone."""

from __future__ import annotations

import asyncio
import select
from dataclasses import dataclass
from itertools import count
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_numbers = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    header_seconds: float = 10.0  # from the first byte of a request, or from connecting, to its last header
    body_seconds: float = 60.0  # from the last header to the end of the body
    idle_seconds: float = 30.0  # between two requests
    unread_seconds: float = 60.0  # for which a client may leave an answer unread
    most: int = 256
    most_per_peer: int = 64


class LimitedConnection(H11Protocol):
    """A connection with a time limit for each phase, which bytes that trickle in do not extend."""

    limits = ConnectionLimits()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.number = next(_numbers)  # of all connections, in the order in which they were made
        self._limit: str | None = None  # the time limit that runs, by its name
        self._deadline: asyncio.TimerHandle | None = None
        self._is_unread = False

    @property
    def peer(self) -> str:
        return self.client[0] if self.client else ""

    @property
    def is_at_work(self) -> bool:
        """Whether a request is being answered. Without the token, that takes no longer than to say so."""
        return self.conn.our_state in (h11.SEND_RESPONSE, h11.SEND_BODY)

    def has_unread_input(self) -> bool:
        """Whether bytes have come that we have not read yet: they may be a request."""
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket"), select.POLLIN)
        return bool(poll.poll(0))

    # what the event loop calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]  # as uvicorn's
        super().connection_made(transport)
        if not self._make_room():
            self.logger.warning("too many calls are under way at once for another one from %s", self.peer)
            transport.abort()
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._is_unread = True
        self._watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._is_unread = False
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    # caps

    def _make_room(self) -> bool:
        """Close the oldest connection without a request, if there are too many; return False if none is.

        So clients that only hold connections cannot keep out those that have something to say.
        """
        known = cast("set[LimitedConnection]", self.connections)
        others = [one for one in known if one is not self]
        near = [one for one in others if one.peer == self.peer]
        crowd = near if len(near) >= self.limits.most_per_peer else others
        if len(near) < self.limits.most_per_peer and len(others) < self.limits.most:
            return True
        waiting = [one for one in crowd if not one.is_at_work]
        silent = [one for one in waiting if not one.has_unread_input()]
        if not silent:
            return False
        oldest = min(silent, key=lambda one: one.number)
        self.connections.discard(oldest)
        oldest.transport.abort()
        return True

    # time limits

    def _watch(self) -> None:
        """Start the time limit of the phase, where a new one has begun."""
        limit = self._limit_now()
        if limit == self._limit:
            return
        self._limit = limit
        if self._deadline is not None:
            self._deadline.cancel()
        seconds: float = getattr(self.limits, limit) if limit else 0.0
        self._deadline = self.loop.call_later(seconds, self.transport.abort) if limit else None

    def _limit_now(self) -> str:
        """Return the name of the limit for what it waits for; "" while it waits for our answer.

        A tool call may take minutes, and a stream has no end.
        """
        if self._is_unread or self.transport.is_closing():
            return "unread_seconds"
        if self.conn.their_state is h11.SEND_BODY:
            return "body_seconds"
        if self.conn.their_state is not h11.IDLE:
            return ""
        has_begun = bool(self.conn.trailing_data[0])
        is_first = self._limit in (None, "header_seconds")
        return "header_seconds" if has_begun or is_first else "idle_seconds"
