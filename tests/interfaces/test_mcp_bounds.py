"""Ways out of the bounds that agents have over MCP, each of them shut."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.engine.door import supervisor_environment
from tests.interfaces.test_mcp_server import Wire, wired
from tests.interfaces.test_mcp_spawning import TOKEN, live_run, talk_as, worker
from tests.support import System

# Shells within each other, none of which says what the first one is.
NEST = """\
n=$1; shift
[ "$n" = 0 ] && exec "$@"
env -u FLEET_RUN -u FLEET_RUN_TOKEN sh "$0" $((n - 1)) "$@"
exit $?
"""
OWN_PIDS = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc")


@contextmanager
def wired_below(system: System, run: str, levels: int, *enter: str, **env: str) -> Iterator[Wire]:
    """Talk with the real command, so many unmarked processes below an agent."""
    script = system.home / "nest.sh"
    script.write_text(NEST)
    marks = {"FLEET_RUN": run, "FLEET_RUN_TOKEN": TOKEN}
    nested = replace(
        system, env={**system.env, **env, **marks}, enter=(*enter, "sh", str(script), str(levels))
    )
    with wired(nested) as wire:
        yield wire


# who it is


@pytest.mark.parametrize("levels", [1, 70])
def test_an_agent_is_known_below_any_number_of_processes(paused: System, levels: int) -> None:
    run = live_run(paused, "a")
    with wired_below(paused, run, levels) as wire:
        assert wire.call("healthcheck")["structuredContent"]["caller"] == f"run {run}"


def test_an_agent_is_known_where_its_own_process_is_the_first(paused: System) -> None:
    if subprocess.run([*OWN_PIDS, "true"], capture_output=True).returncode:
        pytest.skip("this user may not make namespaces")
    run = live_run(paused, "a")
    with wired_below(paused, run, 1, *OWN_PIDS) as wire:
        assert wire.call("healthcheck")["structuredContent"]["caller"] == f"run {run}"


# whose settings count


def test_an_agent_in_the_users_checkout_starts_nothing_with_settings_of_its_own(
    paused: System, tmp_path: Path
) -> None:
    run = live_run(paused, "a", is_shared=True, workspace=str(paused.repository))
    (paused.repository / ".fleet").mkdir()
    settings = f'[setup]\ncommands = ["touch {tmp_path}/made"]\n[coder]\nskip_permissions = true\n'
    (paused.repository / ".fleet/config.toml").write_text(settings)
    folder = str(paused.repository)
    with talk_as(paused, run) as talk:
        told = talk.refuse("create_worker", **worker(paused.repository))
        assert (told["error"], "user's checkout" in told["details"]) == ("Refused", True)
        assert talk.refuse("create_task", repo_path=folder, title="t")["error"] == "Refused"
        assert talk.call("list_workers")["count"] == 0, "it may look"


def test_a_supervisor_that_an_agent_starts_has_no_settings_of_its_environment(system: System) -> None:
    run = live_run(system, "a", host="elsewhere")
    system.door.stop()
    greed = {"FLEET_CODER_SKIP_PERMISSIONS": "true", "FLEET_BUDGET_TASK_USD": "777"}
    with wired_below(system, run, 1, **greed) as wire:
        made = wire.call("create_worker", **worker(system.repository))["structuredContent"]
        waited = wire.call("get_worker_status", worker_id=made["worker_id"], wait_seconds=60)
        assert waited["structuredContent"]["status"] == "succeeded"
    holder = system.door.holder()
    assert holder
    environment = Path(f"/proc/{holder.pid}/environ").read_bytes().split(b"\0")
    assert [entry for entry in environment if entry.startswith(b"FLEET_")] == [
        f"FLEET_HOME={system.home}".encode()
    ]
    (child,) = (one for one in system.all_runs() if one.branch != "a")
    assert (child.skip_permissions, child.budget_usd) == (False, 0.0)


def test_which_home_it_is_stays_in_the_environment_of_a_supervisor() -> None:
    kept = {"FLEET_HOST": "h", "FLEET_DATABASE_URL": "postgresql://d", "PATH": "/bin"}
    given = {**kept, "FLEET_CODER_DEFAULT": "x"}
    home = {"FLEET_HOME": "/home"}
    assert supervisor_environment(given, Path("/home")) == given | home
    assert supervisor_environment(given, Path("/home"), is_of_agent=True) == kept | home
    assert supervisor_environment({**given, "FLEET_RUN": "r"}, Path("/home")) == kept | home
