"""Clients are told what has changed: by the stream of the newest protocol, and as in older ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from anyio.from_thread import start_blocking_portal
from mcp import Client
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated

from fleet.domain.run import Run, RunState
from fleet.interfaces.mcp.calls import CallHandler
from fleet.interfaces.mcp.server import make_server
from fleet.interfaces.mcp.sets import USUAL
from fleet.interfaces.mcp.watching import Sight, Watch, changes
from fleet.ports.store import Record
from tests.interfaces.conftest import ended_run, record
from tests.interfaces.test_mcp_server import wired
from tests.support import System

PATIENCE = 15.0


def sight(*runs: Run, workflows: tuple[str, ...] = ()) -> Sight:
    return Sight("1", {run.id: run for run in runs}, workflows)


def test_what_a_client_would_see_otherwise_is_told_and_nothing_else() -> None:
    rose, tulip = ended_run("rose"), ended_run("tulip")
    assert [*changes(sight(rose), sight(rose))] == []
    assert [*changes(sight(), sight(workflows=("w",)))] == [PromptsListChanged()]
    came = [*changes(sight(rose), sight(rose, tulip))]
    assert ResourcesListChanged() in came
    assert ResourceUpdated(uri=f"fleet://runs/{tulip.id}/result") in came
    assert not any(rose.id in str(event) for event in came)


@pytest.fixture
def handler(system: System, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("FLEET_HOME", str(system.home))
    handler = CallHandler()
    yield handler
    handler.close()


def test_a_client_that_listens_hears_of_a_run_that_comes(system: System, handler: CallHandler) -> None:
    run = ended_run("rose", project=str(system.repository), state=RunState.RUNNING)

    async def listen() -> list[Any]:
        heard: list[Any] = []
        async with Client(make_server(USUAL, handler)) as client:
            wanted = [f"fleet://runs/{run.id}"]
            with anyio.fail_after(PATIENCE):
                async with client.listen(
                    resources_list_changed=True, resource_subscriptions=wanted
                ) as subscription:
                    record(system.home, run)
                    async for event in subscription:
                        heard.append(event)
                        if len(heard) == 2:
                            return heard
        return heard

    with start_blocking_portal() as portal:
        heard = portal.call(listen)
    assert heard == [ResourceUpdated(uri=f"fleet://runs/{run.id}"), ResourcesListChanged()]


def test_a_client_of_an_older_protocol_is_told_of_what_it_subscribed_to(system: System) -> None:
    run = ended_run("rose", project=str(system.repository))
    record(system.home, run)
    with wired(system, revision="2025-06-18") as wire:
        wire.ask("resources/list")
        wire.ask("resources/subscribe", uri="fleet://runs")
        record(system.home, ended_run("tulip", project=str(system.repository)))
        told = {wire.read()["method"], wire.read()["method"]}
    assert told == {"notifications/resources/updated", "notifications/resources/list_changed"}


def test_what_can_never_change_is_not_subscribed_to(system: System) -> None:
    with wired(system, revision="2025-06-18") as wire:
        for uri in ("https://example.org", "fleet://runs/x/y/z", "fleet://"):
            told = wire.tell("resources/subscribe", uri=uri)
            assert "there is no resource" in told["error"]["message"]


def test_a_server_goes_on_when_its_folder_is_gone(system: System, tmp_path: Path) -> None:
    place = tmp_path / "workspace"
    place.mkdir()
    with wired(system, revision="2025-06-18", cwd=place) as wire:
        wire.ask("resources/list")
        place.rmdir()
        record(system.home, ended_run("rose", project=str(system.repository)))
        assert wire.read()["method"] == "notifications/resources/list_changed"
        answer = wire.call("list_runs")
        assert [run["branch"] for run in answer["structuredContent"]["runs"]] == ["rose"]
        wish = {"repo_path": ".", "task_name": "t", "prompt": "x"}
        assert wire.call("create_worker", **wish)["structuredContent"]["error"] == "InvalidInput"


def test_a_look_that_fails_for_whatever_reason_does_not_end_the_watch(
    system: System, handler: CallHandler
) -> None:
    heard: list[Any] = []
    broken = Record(kind="run", key="odd", body={"id": "odd"}, fields={"shown": "yes"})

    async def look() -> None:
        watch = Watch(handler)
        async with watch.on(make_server(USUAL, handler)):
            watch.subscribe(heard.append)
            await watch.look()
            kept = handler.fleet().store.put(broken)
            with pytest.raises(TypeError):
                handler.fleet().runs.list()
            await watch.look()
            handler.fleet().store.remove(kept)
            record(system.home, ended_run("rose", project=str(system.repository)))
            await watch.look()

    with start_blocking_portal() as portal:
        portal.call(look)
    assert ResourcesListChanged() in heard


def test_nobody_who_does_not_listen_costs_a_look(handler: CallHandler, system: System) -> None:
    watch = Watch(handler)
    server = make_server(USUAL, handler)
    told = server.get_capabilities(NotificationOptions(), protocol_version="2026-07-28")
    assert told.resources == types.ResourcesCapability(subscribe=True, list_changed=True)

    async def idle() -> bool:
        async with watch.on(server):
            await anyio.wait_all_tasks_blocked()
            return (system.home / "fleet.db").exists()

    with start_blocking_portal() as portal:
        assert portal.call(idle) is False
