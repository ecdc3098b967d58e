"""An agent can read the environments of its user's processes; the tokens in them are worth nothing to it."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fleet.bootstrap import open_store
from fleet.domain.run import Run
from fleet.domain.task import TaskState
from fleet.records.tasks import Tasks
from tests import escaping, stealing
from tests.support import System, is_alive, scenario, wait_for
from tests.talking import talk_within

REFUSED = 8
HERE = str(Path(__file__).parents[2])


class Server(NamedTuple):
    url: str
    key: str


@contextmanager
def served(system: System) -> Iterator[Server]:
    process = system.start("mcp", "--http", "0", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout
        url = process.stdout.readline().decode().strip()
        yield Server(url, (system.home / "mcp-token").read_text().strip())
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=20)
        assert process.stdout
        process.stdout.close()


def agent_at_work(system: System, title: str, *steps: dict[str, object]) -> Run:
    """Start an agent for a task of its own; return its run once it is up."""
    made = system.fleet("task", "create", title, "-d", scenario(*steps), "--json").stdout
    task = json.loads(made)["id"]

    def up() -> Run | None:
        return next((run for run in system.all_runs() if run.task == task and run.agent), None)

    run = wait_for(up, 60, f"{title} is up\n{system.supervisor_log()}")
    assert run is not None
    return run


def words_of_thief(victim: Run, server: Server, output: Path) -> list[str]:
    assert victim.agent
    arguments = [str(victim.agent.pid), server.url, server.key, str(output)]
    return ["env", f"PYTHONPATH={HERE}:{HERE}/src", sys.executable, stealing.__file__, *arguments]


def heard(output: Path) -> Any:
    wait_for(output.exists, 120, f"{output} is there")
    return json.loads(output.read_text())


def require_refused(told: dict[str, Any], victim: Run) -> None:
    clear = f"claims run {victim.id} was not started by that run's agent"
    for way in ("mcp", "http"):
        assert "Refused" in told[way], (way, told)
        assert clear in told[way], (way, told)
    for way in ("ask", "close"):
        assert told[way]["code"] == REFUSED, (way, told)
        assert clear in told[way]["told"], (way, told)
        assert "leave $FLEET_RUN and $FLEET_RUN_TOKEN" in told[way]["told"]


def require_untouched(system: System, victim: Run) -> None:
    store = open_store(system.home)
    try:
        task = Tasks(store).get(str(victim.task))
        assert (task.state, task.question, task.close_reason) == (TaskState.IN_PROGRESS, "", None)
    finally:
        store.close()
    assert victim.agent
    assert is_alive(victim.agent.pid)


def test_a_token_read_from_an_agents_environment_is_worth_nothing_to_others(
    system: System, tmp_path: Path
) -> None:
    """Another agent that hides where it comes from tries it, and so does a process that is no agent's."""
    gate, told = tmp_path / "gate", tmp_path / "told"
    victim = agent_at_work(system, "victim", {"wait_for": str(gate)})
    assert victim.agent
    with served(system) as server:
        hide = [sys.executable, escaping.__file__, *words_of_thief(victim, server, told)]
        agent_at_work(system, "thief", {"run": shlex.join(hide)}, {"wait_for": str(told)})
        require_refused(heard(told), victim)
    with talk_within(system, env=stealing.environment_of(str(victim.agent.pid))) as outsider:
        assert "was not started by that run's agent" in outsider.refuse("list_workers")["details"]
    require_untouched(system, victim)
    gate.touch()


def comments(task: Path, output: Path, *enter: str) -> dict[str, object]:
    """A step that comments on the task named in a file, entered through `enter`, and keeps the answer."""
    command = (
        f"{sys.executable} -m fleet task comment $(cat {task}) hello > {output}.new 2>&1;"
        f" mv {output}.new {output}"
    )
    return {"run": shlex.join([*enter, "sh", "-c", command])}


def what_came_of(output: Path) -> str:
    wait_for(output.exists, 120, f"{output} is there")
    return output.read_text()


LEAVE = """
for place in /sys/fs/cgroup /sys/fs/cgroup/unified; do
    if [ -e $place/cgroup.controllers ]; then echo 0 > $place/cgroup.procs; fi
done"""
HAS_TMUX = shutil.which("tmux") is not None


@pytest.mark.parametrize(
    ("mode", "leave"),
    [
        pytest.param("headless", LEAVE, id="headless, without control groups"),
        pytest.param("headless", ":", id="headless"),
        pytest.param("tmux", LEAVE, id="tmux", marks=pytest.mark.skipif(not HAS_TMUX, reason="no tmux")),
    ],
)
def test_an_agent_and_all_that_it_starts_act_for_its_run(
    system: System, tmp_path: Path, mode: str, leave: str
) -> None:
    system.fleet("pause")  # nobody works on the task that it creates, and comments on
    system.env |= {"FLEET_CODER_MODE": mode, "FLEET_SCRIPTED_HOME": str(tmp_path / "sessions")}
    gate = tmp_path / "gate"
    ways = {
        "child": (),
        "in a session of its own": ("setsid", "-w"),
        "in the background": ("sh", "-c", '"$@" &', "sh"),
        "detached": ("setsid", "-f"),
    }
    first = ("sh", "-c", f'{leave}\nexec "$@"', "sh")
    task = tmp_path / "task"
    create = f"{sys.executable} -m fleet task create notes | sed 's/^Created //; s/:.*//' > {task}"
    steps = [comments(task, tmp_path / way.replace(" ", "-"), *first, *enter) for way, enter in ways.items()]
    system.fleet("create", "work", "-p", scenario({"run": create}, *steps, {"wait_for": str(gate)}))
    run = system.wait_until("work", lambda run: run.agent is not None)
    came = {way: what_came_of(tmp_path / way.replace(" ", "-")) for way in ways}
    is_confined = "confined" in system.turn_folder(run).joinpath("child").read_text() and leave != LEAVE
    detached = came.pop("detached")  # a session of its own, and a parent that has ended
    assert all("commented on" in told for told in came.values()), came
    stranger = f"claims run {run.id} was not started by that run's agent"
    assert ("commented on" if is_confined else stranger) in detached
    gate.touch()


def test_an_agent_asks_and_closes_its_task_on_the_command_line(system: System, tmp_path: Path) -> None:
    gate, told = tmp_path / "gate", tmp_path / "told"
    command = f"{sys.executable} -m fleet"
    close = f"{command} task close --reason done > {told}.new 2>&1; mv {told}.new {told}"
    agent_at_work(system, "honest", {"run": close}, {"wait_for": str(gate)})
    wait_for(told.exists)
    assert "will be closed once you end your turn" in told.read_text()
    gate.touch()


def test_an_agents_own_server_serves_nobody_but_that_agent(system: System, tmp_path: Path) -> None:
    """Otherwise it would lend its token to whoever can connect."""
    gate, address = tmp_path / "gate", tmp_path / "address"
    serve = shlex.join([sys.executable, "-m", "fleet", "mcp", "--http", "0"])
    run = agent_at_work(
        system,
        "server",
        {"run": f"{serve} > {address} 2> /dev/null & until [ -s {address} ]; do sleep 0.1; done"},
        {"wait_for": str(gate)},
    )
    url = wait_for(lambda: address.exists() and address.read_text().strip())
    key = (system.home / "mcp-token").read_text().strip()
    assert f"claims run {run.id} was not started by that run's agent" in stealing.post(str(url), key)
    gate.touch()
