"""Telling clients what changed: while somebody wants to know, one number of the store is looked at."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
import mcp_types as types
from anyio.to_thread import run_sync
from mcp.server.lowlevel.server import Server
from mcp.server.subscriptions import (
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
)

from fleet.errors import FleetError
from fleet.interfaces.mcp import prompts_and_resources as readable
from fleet.interfaces.mcp.asking import Context, ask, is_modern
from fleet.interfaces.mcp.calls import CallHandler
from fleet.interfaces.mcp.prompts_and_resources import RUNS, SHOWN, TEMPLATES

if TYPE_CHECKING:
    from mcp.server.session import ServerSession

    from fleet.domain.run import Run

log = logging.getLogger(__name__)

LOOK_EVERY_SECONDS = 1.0
LOOKS_FOR_WORKFLOWS = 10
Listener = Callable[[ServerEvent], None]


class Sight(NamedTuple):
    """What was there when we last looked."""

    stamp: str
    runs: Mapping[str, Run]
    workflows: tuple[str, ...]


class Watch:
    """Looks for changes while somebody wants to know. Newer protocols listen; older ones subscribe."""

    def __init__(self, handler: CallHandler) -> None:
        self._handler = handler
        self._listeners: set[Listener] = set()
        self._subscribed: dict[str, ServerSession] = {}  # by resource
        self._reader: ServerSession | None = None  # has listed resources, and hears when the list changes
        self._listen_handler = ListenHandler(self)  # calls `subscribe`, and is told by `publish`
        self._wanted = anyio.Event()
        self._looking = anyio.Lock()
        self._sight: Sight | None = None
        self._looks = 0

    @asynccontextmanager
    async def on(self, _: Server[Any]) -> AsyncGenerator[dict[str, Any]]:
        """Keep watch for as long as a server is up."""
        async with anyio.create_task_group() as watching:
            watching.start_soon(self._keep_looking)
            yield {}
            watching.cancel_scope.cancel()

    # who wants to know

    async def listen(
        self, context: Context, wanted: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Serve a stream of changes; whatever changes after its beginning is in it."""
        await ask(self._handler, context, "subscriptions/listen", lambda _: None)
        await self.look()
        return await self._listen_handler(context, wanted)

    async def publish(self, event: ServerEvent) -> None:
        for listener in list(self._listeners):
            listener(event)
        await anyio.lowlevel.checkpoint()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        self._listeners.add(listener)
        self._wanted.set()
        return lambda: self._listeners.discard(listener)

    async def subscribe_resource(
        self, context: Context, wanted: types.SubscribeRequestParams
    ) -> types.EmptyResult:
        uri = str(wanted.uri)
        await ask(self._handler, context, "resources/subscribe", lambda _: readable.place_of(uri), on=uri)
        await self.look()
        self._subscribed[uri] = context.session
        self._wanted.set()
        return types.EmptyResult()

    async def unsubscribe_resource(
        self, _: Context, wanted: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        self._subscribed.pop(str(wanted.uri), None)
        return types.EmptyResult()

    async def list_resources(
        self, context: Context, wanted: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """List resources; a client of an older protocol is told from then on when the list changes."""
        if not is_modern(context) and context.request is None:
            await self.look()
            self._reader = context.session
            self._wanted.set()
        return await readable.list_resources(self._handler, context, wanted)

    # looking

    async def _keep_looking(self) -> None:
        while True:
            await self._wanted.wait()
            await self.look()
            if not (self._listeners or self._subscribed or self._reader):
                self._wanted = anyio.Event()
            await anyio.sleep(LOOK_EVERY_SECONDS)

    async def look(self) -> None:
        """Tell those who want to know now what has changed since the last look."""
        async with self._looking:
            try:
                events = await run_sync(self._news)
            except FleetError as problem:  # it passes, or calls tell of it
                log.info("watch.failed", extra={"reason": problem.message})
                return
            except Exception:  # a look that failed must not end the server
                log.exception("watch.crashed")
                return
            for event in events:
                await self.publish(event)
                await self._notify(event)

    def _news(self) -> list[ServerEvent]:
        from fleet.work.workflow.service import WorkflowService

        fleet = self._handler.fleet()
        before, stamp = self._sight, fleet.store.stamp()
        workflows = before.workflows if before else ()
        if self._looks % LOOKS_FOR_WORKFLOWS == 0:  # they are files, and change rarely
            workflows = tuple(known.name for known in WorkflowService(fleet).known())
        self._looks += 1
        if before and before.stamp == stamp:
            runs = before.runs
        else:
            runs = {str(run.id): run for run in fleet.runs.list()}
        self._sight = Sight(stamp, runs, workflows)
        return [*changes(before, self._sight)] if before else []

    async def _notify(self, event: ServerEvent) -> None:
        """Tell the client of an older protocol, which asked for single resources, or for the list."""
        try:
            if isinstance(event, ResourceUpdated):
                if session := self._subscribed.get(event.uri):
                    await session.send_resource_updated(event.uri)
            elif self._reader and isinstance(event, ResourcesListChanged):
                await self._reader.send_resource_list_changed()
            elif self._reader and isinstance(event, PromptsListChanged):
                await self._reader.send_prompt_list_changed()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):  # it has gone
            self._subscribed.clear()
            self._reader = None


def changes(before: Sight, now: Sight) -> Iterator[ServerEvent]:
    """Yield what a client would see otherwise now."""
    if before.workflows != now.workflows:
        yield PromptsListChanged()
    changed = [name for name in {**before.runs, **now.runs} if before.runs.get(name) != now.runs.get(name)]
    if changed:
        yield ResourceUpdated(uri=RUNS)
    for name in changed:
        yield from (ResourceUpdated(uri=f"{RUNS}/{name}{end}") for end in TEMPLATES)
    if _listed(before) != _listed(now):
        yield ResourcesListChanged()


def _listed(sight: Sight) -> list[tuple[str, str]]:
    return [(run.id, run.state) for run in list(sight.runs.values())[-SHOWN:]]
