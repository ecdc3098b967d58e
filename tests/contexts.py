"""An engine context without a supervisor, for tests that drive one part of the engine by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from fleet import plugins
from fleet.adapters.transports.local import LocalTransport
from fleet.adapters.workspaces.boundary import GitBoundary
from fleet.adapters.workspaces.checkouts import GitCheckouts
from fleet.adapters.workspaces.git import GitWorkspaces, UserCheckout
from fleet.adapters.workspaces.history import GitHistory
from fleet.adapters.workspaces.merging import GitMerging
from fleet.adapters.workspaces.repository import GitRepositories
from fleet.bootstrap import SettingsCache
from fleet.engine.context import EngineContext, Member
from fleet.ports.store import Store
from fleet.shim import HOOK, script_path
from fleet.shim.local import LocalShim


async def _no_wishes() -> AsyncIterator[str]:
    await asyncio.Event().wait()
    yield ""


def make_context(home: Path, store: Store, host: str = "here", *, is_sharing: bool = False) -> EngineContext:
    home.mkdir(parents=True, exist_ok=True)
    settings = SettingsCache(home)
    transport = LocalTransport()
    return EngineContext(
        home=home,
        host=host,
        store=store,
        member=Member(
            root=home,
            transport=transport,
            shim=LocalShim(transport, script_path(str(home))),
            hook_script=HOOK,
            workspaces=GitWorkspaces(),
            checkout=UserCheckout(),
            checkouts=GitCheckouts(),
            repositories=GitRepositories(),
            boundary=GitBoundary(home),
        ),
        merging=GitMerging(),
        history=GitHistory(),
        settings_for=settings.of_project,
        coder_for=lambda name, project: plugins.coder_named(name, settings.of_project(project)),
        wishes=_no_wishes if is_sharing else None,
        lease_seconds=30.0 if is_sharing else 0.0,
        host_labels=frozenset({host}),
        price=lambda model, facts, usage: None,
    )
