"""The shim's promises, in every shell, on this machine and over ssh: one agent, none left.

Each is kept in dash, here and over ssh. Those that depend on what a shell makes of signals, traps, quoting,
redirections and job control are kept in the others, too; all of them in all shells are a slow group.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fleet.adapters.transports.local import LocalTransport
from fleet.domain.ids import new_run_id
from fleet.domain.process import AgentProcess, Phase
from fleet.errors import InvalidInput, MemberUnreachable
from fleet.shim import HOOK, SOURCE, script_path
from fleet.shim.client import Shim, launch_script, marker_text, parse_state
from fleet.shim.local import LocalShim
from tests.contracts import transport_fixtures as fixtures
from tests.contracts.transport_fixtures import Member, Sshd, make_transport, wait_until

sshd, runner = fixtures.sshd, fixtures.runner

SHELLS = ("dash", "bash", "busybox")
PLACES = {
    "turn": [(f"{kind}-{shell}", shell) for kind in ("local", "ssh") for shell in SHELLS],
    "local_turn": [(shell, shell) for shell in SHELLS],
}
in_every_shell = pytest.mark.in_every_shell
SLEEPER = ("sleep", "1000")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    is_sensitive = metafunc.definition.get_closest_marker("in_every_shell") is not None
    for fixture in PLACES.keys() & set(metafunc.fixturenames):
        places = [
            pytest.param(place, marks=() if is_sensitive or shell == SHELLS[0] else pytest.mark.slow)
            for place, shell in PLACES[fixture]
        ]
        metafunc.parametrize(fixture, places, indirect=True)


def find_shell(name: str, folder: Path) -> str:
    path = shutil.which(name)
    if not path:
        pytest.skip(f"{name} is not installed")
    if name != "busybox":
        return path
    # busybox is the shell when it is called so.
    (folder / "sh").symlink_to(path)
    return str(folder / "sh")


@dataclass
class Turn:
    """One folder with its shim, and the calls that tests make on it."""

    member: Member
    shim: Shim
    folder: Path
    workspace: Path
    run: str
    script: str
    shell: str

    def start(self, *argv: str, **changes: object) -> AgentProcess:
        return self.member.wait(self.starting(*argv, **changes))

    async def starting(self, *argv: str, **changes: object) -> AgentProcess:
        await self.prepare(*argv, **changes)
        return await self.shim.start(**self._options(argv, changes))  # type: ignore[arg-type]

    async def prepare(self, *argv: str, **changes: object) -> None:
        await self.shim.prepare(**self._options(argv, changes))  # type: ignore[arg-type]

    def _options(self, argv: tuple[str, ...], changes: dict[str, object]) -> dict[str, object]:
        defaults: dict[str, object] = {
            "folder": str(self.folder),
            "argv": argv,
            "env": {},
            "cwd": str(self.workspace),
            "stdin": None,
            "marker": self.run,
        }
        return defaults | changes

    def sh(self, script: str, **changes: object) -> AgentProcess:
        return self.start("sh", "-c", script, **changes)

    @property
    def state(self) -> AgentProcess:
        return self.member.wait(self.shim.state(str(self.folder)))

    @property
    def members(self) -> tuple[int, ...]:
        return tuple(int(word) for word in self.ask_script("members").split())

    def ask_script(self, verb: str) -> str:
        """What the script answers to a verb that the client has no call for."""
        argv = (self.shell, self.script, verb, str(self.folder))
        answer = self.member.wait(self.member.transport.run(argv))
        assert answer.code == 0, answer.err
        return answer.out.decode()

    def stop(self, grace: float = 5) -> AgentProcess:
        return self.member.wait(self.shim.stop(str(self.folder), grace))

    def ended(self) -> AgentProcess:
        wait_until(lambda: self.state.has_ended)
        return self.state

    def pids(self, name: str, count: int) -> list[int]:
        """Wait for pids that the agent writes into a file of its workspace."""
        file = self.workspace / name
        wait_until(lambda: file.exists() and len(file.read_text().split()) >= count)
        return [int(word) for word in file.read_text().split()]


@pytest.fixture
def turn_folder(tmp_path: Path) -> Path:
    return tmp_path / "it's a $(turn)\n"


@contextlib.contextmanager
def new_turn(member: Member, shell: str, tmp_path: Path, folder: Path) -> Iterator[Turn]:
    workspace = tmp_path / "work space"
    workspace.mkdir(exist_ok=True)
    script = script_path(str(tmp_path / "home"))
    kind = LocalShim if isinstance(member.transport, LocalTransport) else Shim
    shim = kind(member.transport, script, shell)
    member.wait(shim.install())
    turn = Turn(member, shim, folder, workspace, new_run_id(), script, shell)
    try:
        yield turn
    finally:
        if folder.exists():
            turn.stop(grace=0)
        member.wait(member.transport.close())


@pytest.fixture
def turn(
    request: pytest.FixtureRequest, runner: asyncio.Runner, tmp_path: Path, turn_folder: Path
) -> Generator[Turn]:
    kind, _, shell = request.param.partition("-")
    member = Member(make_transport(kind, request), runner)
    with new_turn(member, find_shell(shell, tmp_path), tmp_path, turn_folder) as turn:
        yield turn


@pytest.fixture
def local_turn(
    request: pytest.FixtureRequest, runner: asyncio.Runner, tmp_path: Path, turn_folder: Path
) -> Generator[Turn]:
    member = Member(LocalTransport(), runner)
    with new_turn(member, find_shell(request.param, tmp_path), tmp_path, turn_folder) as turn:
        yield turn


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def pid_of(process: AgentProcess) -> int:
    assert process.agent
    return process.agent.pid


def shim_of(process: AgentProcess) -> int:
    assert process.shim
    return process.shim.pid


def kill(*pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, pids)))


# the life of an agent


@in_every_shell
def test_an_agent_works_in_its_workspace_and_its_output_and_code_are_kept(turn: Turn) -> None:
    turn.sh('pwd; echo "$GREETING" >&2; cat; exit 7', env={"GREETING": "hello"}, stdin=b"given")
    assert turn.ended() == AgentProcess(phase=Phase.EXITED, code=7)
    assert (turn.folder / "out").read_bytes() == f"{turn.workspace}\n".encode() + b"given"
    assert (turn.folder / "err").read_bytes() == b"hello\n"


def test_a_running_agent_is_told_with_its_shim(turn: Turn) -> None:
    process = turn.start(*SLEEPER)
    assert process.phase is Phase.RUNNING
    assert process == turn.state
    wait_until(lambda: psutil.Process(pid_of(process)).cmdline() == list(SLEEPER))
    assert psutil.Process(pid_of(process)).ppid() == shim_of(process)


@in_every_shell
def test_an_agent_leads_a_session_of_its_own_apart_from_its_shim(turn: Turn) -> None:
    process = turn.start(*SLEEPER)
    agent, shim = pid_of(process), shim_of(process)
    assert (os.getsid(agent), os.getpgid(agent)) == (agent, agent)
    assert os.getsid(shim) not in (agent, os.getsid(0))


@in_every_shell
def test_an_agent_ignores_no_signal_and_has_the_callers_umask(turn: Turn) -> None:
    turn.sh("grep SigIgn /proc/self/status; umask")
    turn.ended()
    ignored, umask = (turn.folder / "out").read_text().split()[1:]
    assert int(ignored, 16) & 0xFFFF & ~(1 << (signal.SIGPIPE - 1)) == 0
    assert int(umask, 8) & 0o700 == 0
    assert int(umask, 8) != 0o077


def test_the_kernel_takes_the_agent_before_the_shim_when_memory_ends(turn: Turn) -> None:
    process = turn.start(*SLEEPER)
    scores = [Path(f"/proc/{pid}/oom_score_adj").read_text() for pid in (pid_of(process), shim_of(process))]
    assert int(scores[0]) == 500
    assert int(scores[1]) < 500


def test_a_folder_nobody_asked_for_is_absent(turn: Turn) -> None:
    assert turn.state.phase is Phase.ABSENT
    assert not turn.folder.exists()
    assert turn.members == ()


@in_every_shell
def test_a_missing_command_is_code_127(turn: Turn) -> None:
    turn.start("no-such-command-here")
    assert turn.ended().code == 127
    assert b"no-such-command-here" in (turn.folder / "err").read_bytes()


@in_every_shell
def test_a_missing_workspace_is_code_126(turn: Turn) -> None:
    turn.start(*SLEEPER, cwd="/no/such/folder")
    assert turn.ended().code == 126


@in_every_shell
def test_an_agent_that_is_killed_has_a_code(turn: Turn) -> None:
    os.kill(pid_of(turn.start(*SLEEPER)), signal.SIGKILL)
    assert turn.ended() == AgentProcess(phase=Phase.EXITED, code=137)


def test_nothing_but_the_record_is_left_in_the_folder(turn: Turn) -> None:
    turn.sh("exit 0")
    turn.ended()
    turn.stop()
    kept = {"child", "err", "exit", "launch", "marker", "out", "swept"}
    wait_until(lambda: {one.name for one in turn.folder.iterdir()} == kept)


@in_every_shell
def test_secrets_reach_the_agent_and_nothing_of_them_is_left_in_the_folder(turn: Turn) -> None:
    script = 'test ${#SECRET} = 9 && test ! -s "$FOLDER/secrets"'
    turn.sh(script, env={"FOLDER": str(turn.folder)}, secrets={"SECRET": "it's mine"})
    assert turn.ended().code == 0
    for one in turn.folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # a claim is let go of just now
            assert b"s mine" not in one.read_bytes(), one
    turn.stop()
    assert not (turn.folder / "secrets").exists()


def test_the_secrets_of_a_turn_that_never_starts_go_when_that_is_settled(turn: Turn) -> None:
    secrets = {"SECRET": "mine"}
    turn.member.wait(turn.prepare(*SLEEPER, secrets=secrets))
    file = turn.folder / "secrets"
    assert turn.state.phase is Phase.ABSENT
    assert b"mine" in file.read_bytes(), "it may be started yet"
    assert turn.stop().phase is Phase.NEVER
    assert file.read_bytes() == b""
    assert turn.start(*SLEEPER, secrets=secrets).phase is Phase.NEVER
    assert file.read_bytes() == b""


def test_the_secrets_of_a_start_that_came_too_late_go_with_it(turn: Turn) -> None:
    turn.sh("exit 3")
    turn.ended()
    turn.stop()
    assert turn.start("true", secrets={"SECRET": "mine"}).code == 3
    assert (turn.folder / "secrets").read_bytes() == b""


def test_the_secrets_of_an_agent_that_was_killed_before_it_took_them_go_with_it(turn: Turn) -> None:
    process = turn.sh("echo $$ > pids; exec sleep 1000")
    turn.pids("pids", 1)  # by then it has looked for secrets
    (turn.folder / "secrets").write_text("SECRET=mine")
    kill(shim_of(process))
    assert turn.state.phase is Phase.ORPHANED
    assert (turn.folder / "secrets").read_bytes(), "one that lives may take them yet"
    assert turn.stop().phase is Phase.LOST
    assert (turn.folder / "secrets").read_bytes() == b""


# starting


@in_every_shell
def test_of_many_who_start_at_once_one_starts_an_agent(turn: Turn) -> None:
    script = "echo $$ >> ran; exec sleep 1000"
    answers = turn.member.wait_for_all(*(turn.starting("sh", "-c", script) for _ in range(12)))
    (ran,) = turn.pids("ran", 1)
    told = [answer for answer in answers if answer.phase is not Phase.STARTING]  # a busy machine is slow
    assert {pid_of(answer) for answer in told} == {ran}
    assert {answer.phase for answer in told} == {Phase.RUNNING}


def test_starting_again_starts_nothing_not_even_after_the_end(turn: Turn) -> None:
    for _ in range(3):
        turn.sh("echo $$ >> ran; exit 3")
        assert turn.ended().code == 3
    assert len(turn.pids("ran", 1)) == 1


def test_a_voided_turn_never_starts(turn: Turn) -> None:
    assert parse_state(turn.ask_script("void")).phase is Phase.NEVER
    assert turn.sh("touch ran").phase is Phase.NEVER
    assert turn.state.phase is Phase.NEVER
    assert not (turn.workspace / "ran").exists()


def test_voiding_a_running_turn_changes_nothing(turn: Turn) -> None:
    process = turn.start(*SLEEPER)
    assert parse_state(turn.ask_script("void")) == process


def test_a_turn_that_is_stopped_before_it_starts_never_starts(turn: Turn) -> None:
    assert turn.stop().phase is Phase.NEVER
    assert turn.sh("touch ran").phase is Phase.NEVER
    assert not (turn.workspace / "ran").exists()


@pytest.mark.parametrize("delay", [0, 0.002, 0.005, 0.01, 0.02])
def test_stopping_while_it_starts_ends_in_a_settled_state(local_turn: Turn, delay: float) -> None:
    turn = local_turn

    async def at_once() -> None:
        await turn.prepare("sh", "-c", "echo $$ >> ran; exec sleep 1000")
        starting = asyncio.create_task(turn.starting("sh", "-c", "echo $$ >> ran; exec sleep 1000"))
        await asyncio.sleep(delay)
        await turn.shim.stop(str(turn.folder), 0)
        await starting

    turn.member.wait(at_once())
    assert turn.state.has_ended
    assert turn.members == ()
    if turn.state.phase is Phase.NEVER:
        assert not (turn.workspace / "ran").exists()


def test_an_unprepared_folder_cannot_be_started(turn: Turn) -> None:
    turn.folder.mkdir()
    done = turn.member.wait(turn.member.transport.run([turn.shell, turn.script, "start", str(turn.folder)]))
    assert (done.code, b"nothing to launch" in done.err) == (75, True)
    assert turn.state.phase is Phase.ABSENT


# what is killed or broken


def test_an_agent_whose_shim_was_killed_is_an_orphan_and_later_lost(turn: Turn) -> None:
    process = turn.sh("trap 'exit 0' TERM; while :; do sleep 0.02; done")
    kill(shim_of(process))
    orphan = turn.state
    assert (orphan.phase, orphan.agent) == (Phase.ORPHANED, process.agent)
    assert turn.sh("true").phase is Phase.ORPHANED
    os.kill(pid_of(process), signal.SIGTERM)
    assert turn.ended() == AgentProcess(phase=Phase.LOST, reason="shimdied")


def test_an_orphan_can_be_stopped(turn: Turn) -> None:
    process = turn.sh("trap '' TERM; sleep 1000 & echo $! > pids; wait; wait")
    helpers = turn.pids("pids", 1)
    kill(shim_of(process))
    assert turn.stop(grace=0.1) == AgentProcess(phase=Phase.LOST, reason="shimdied")
    assert not any(map(is_alive, [pid_of(process), *helpers]))


def test_a_shim_and_agent_that_are_both_killed_are_lost(turn: Turn) -> None:
    process = turn.start(*SLEEPER)
    os.kill(shim_of(process), signal.SIGSTOP)  # or it would record the agent's end
    os.kill(pid_of(process), signal.SIGKILL)
    os.kill(shim_of(process), signal.SIGKILL)
    assert turn.ended() == AgentProcess(phase=Phase.LOST, reason="shimdied")


@in_every_shell
def test_signals_to_the_shim_do_not_end_it(turn: Turn) -> None:
    process = turn.start(*SLEEPER)
    for one in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
        os.kill(shim_of(process), one)
    os.kill(pid_of(process), signal.SIGTERM)
    assert turn.ended() == AgentProcess(phase=Phase.EXITED, code=143)


def test_an_agent_of_an_earlier_boot_is_lost(turn: Turn) -> None:
    turn.folder.mkdir()
    (turn.folder / "child").write_text(f"{os.getpid()} 1 another-boot 1:1 {os.getpid()}\n")
    assert turn.state == AgentProcess(phase=Phase.LOST, reason="reboot")
    assert turn.stop(grace=0) == AgentProcess(phase=Phase.LOST, reason="reboot")


def test_a_start_that_a_power_cut_left_unclear_is_lost_and_not_never(turn: Turn) -> None:
    turn.folder.mkdir()
    (turn.folder / "claim.77.1234.another-boot").touch()
    assert turn.state == AgentProcess(phase=Phase.LOST, reason="reboot")
    (turn.folder / "child").touch()
    assert turn.state == AgentProcess(phase=Phase.LOST, reason="reboot")


def test_a_start_that_died_on_the_way_never_happens(turn: Turn) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    turn.folder.mkdir()
    (turn.folder / f"claim.{2**22 + 1}.1234.{boot}").touch()
    assert turn.state.phase is Phase.NEVER
    assert turn.sh("touch ran").phase is Phase.NEVER
    assert not (turn.workspace / "ran").exists()


@pytest.mark.parametrize("leads_a_session", [True, False])
def test_a_stranger_with_a_recycled_pid_is_never_touched(turn: Turn, leads_a_session: bool) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    turn.folder.mkdir()
    (turn.folder / "marker").write_text(f"{marker_text(turn.run)}\n")
    script = f"sleep 1000 & echo $$ $! > '{turn.workspace}/pids'; wait"
    with subprocess.Popen(["sh", "-c", script], start_new_session=leads_a_session) as stranger:
        strangers = turn.pids("pids", 2)
        (turn.folder / "child").write_text(
            f"{stranger.pid} 12345 {boot} {stranger.pid}:12345 {stranger.pid}\n"
        )
        assert turn.members == ()
        assert turn.stop(grace=0) == AgentProcess(phase=Phase.LOST, reason="shimdied")
        assert all(map(is_alive, strangers))
        kill(*reversed(strangers))


@pytest.mark.parametrize(
    "end", ["", "0", "0 {before}"], ids=["unknown", "without time", "before their birth"]
)
def test_strangers_whose_leader_had_a_recycled_pid_and_died_are_never_touched(turn: Turn, end: str) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    turn.folder.mkdir()
    (turn.folder / "marker").write_text(f"{marker_text(turn.run)}\n")
    script = f"sleep 1000 & echo $$ $! > '{turn.workspace}/pids'"
    subprocess.run(["sh", "-c", script], start_new_session=True, check=True)
    leader, stranger = turn.pids("pids", 2)
    try:
        (turn.folder / "child").write_text(f"{leader} 12345 {boot} {leader}:12345 {leader}:12345\n")
        if end:
            (turn.folder / "exit").write_text(end.format(before=birth_of(stranger) - 1) + "\n")
        assert turn.members == ()
        turn.stop(grace=0)
        assert is_alive(stranger)
        # Were it born before the agent's end, it would be the agent's: the number was not free in between.
        (turn.folder / "exit").write_text(f"0 {birth_of(stranger)}\n")
        assert turn.members == (stranger,)
    finally:
        kill(stranger)


def birth_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19])


def test_what_an_ended_agent_left_is_its_own_without_a_marker_too(turn: Turn) -> None:
    turn.sh("( env -i sh -c 'trap \"\" TERM; echo $$ > pids; while :; do sleep 0.02; done' & ); exit 4")
    left = turn.pids("pids", 1)
    assert turn.ended().code == 4
    assert set(left) <= set(turn.members)
    assert turn.stop(grace=0.1) == AgentProcess(phase=Phase.EXITED, code=4)
    assert not any(map(is_alive, left))


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    disk = tmp_path / "small disk"
    disk.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "none", disk]).returncode:
        pytest.skip("a small disk can be mounted by root only")
    yield disk
    wait_until(lambda: subprocess.run(["umount", disk], stderr=subprocess.DEVNULL).returncode == 0)


def fill(disk: Path) -> None:
    with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1024))


@in_every_shell
def test_the_code_is_recorded_on_a_full_disk(turn: Turn, small_disk: Path) -> None:
    turn.folder = small_disk / "turn"
    turn.sh(f"touch up; while [ ! -e '{small_disk}/filler' ]; do sleep 0.01; done; cat /dev/zero; exit 7")
    wait_until((turn.workspace / "up").exists)
    fill(small_disk)
    assert turn.ended() == AgentProcess(phase=Phase.EXITED, code=7)
    assert shutil.disk_usage(small_disk).free == 0


@in_every_shell
def test_a_full_disk_refuses_the_start_until_there_is_room(turn: Turn, small_disk: Path) -> None:
    turn.folder = small_disk / "turn"
    turn.member.wait(turn.prepare("sh", "-c", "exit 7"))
    fill(small_disk)
    start = [turn.shell, turn.script, "start", str(turn.folder), turn.shell]
    refused = turn.member.wait(turn.member.transport.run(start))
    assert (refused.code, b"is the disk full?" in refused.err) == (75, True)
    assert turn.state.phase is Phase.ABSENT
    (small_disk / "filler").unlink()
    turn.member.wait(turn.member.transport.run(start))
    assert turn.ended().code == 7


def test_a_cut_connection_does_not_touch_the_agent(
    request: pytest.FixtureRequest, runner: asyncio.Runner, tmp_path: Path, turn_folder: Path
) -> None:
    server: Sshd = request.getfixturevalue("sshd")
    member = Member(server.transport(), runner)
    with new_turn(member, "sh", tmp_path, turn_folder) as turn:
        script = "n=0; while [ ! -e end ]; do echo $n; n=$((n+1)); sleep 0.01; done; exit 5"
        process = turn.sh(script)

        async def cut() -> None:
            stopping = asyncio.create_task(turn.member.transport.run(["sleep", "2"]))
            await turn.member.transport.run(["true"])
            server.cut_connections()
            await stopping

        with pytest.raises(MemberUnreachable):
            member.wait(cut())
        assert turn.state == process
        (turn.workspace / "end").touch()
        assert turn.ended().code == 5
        lines = (turn.folder / "out").read_text().split()
        assert lines == [str(number) for number in range(len(lines))]


# stopping


@in_every_shell
def test_a_polite_agent_is_asked_to_end_and_its_code_is_kept(turn: Turn) -> None:
    turn.sh("trap 'echo bye; exit 9' TERM; touch up; while :; do sleep 0.02; done")
    wait_until((turn.workspace / "up").exists)
    assert turn.stop() == AgentProcess(phase=Phase.EXITED, code=9)
    assert (turn.folder / "out").read_bytes() == b"bye\n"


@in_every_shell
def test_an_agent_that_is_deaf_to_term_is_killed_after_the_grace(turn: Turn) -> None:
    turn.sh("trap '' TERM; touch up; while :; do sleep 0.02; done")
    wait_until((turn.workspace / "up").exists)
    started = time.monotonic()
    assert turn.stop(grace=0.4) == AgentProcess(phase=Phase.EXITED, code=137)
    assert 0.4 <= time.monotonic() - started < 10


ESCAPEES = """
trap '' TERM
sleep 1001 & echo $! >> pids
setsid sh -c 'trap "" TERM; echo $$ >> pids; sleep 1002 & echo $! >> pids; while :; do sleep 0.1; done' &
( setsid sh -c 'echo $$ >> pids; trap "" TERM HUP; while :; do sleep 0.1; done' & )
( env -i sh -c 'echo $$ >> pids; trap "" TERM; while :; do sleep 0.1; done' & )
env -i setsid sh -c 'echo $$ >> pids; while :; do sleep 0.1; done' &
while :; do sleep 0.1; done
"""


@in_every_shell
def test_no_process_of_a_run_is_left_wherever_it_moved(turn: Turn) -> None:
    process = turn.sh(ESCAPEES)
    escapees = turn.pids("pids", 6)
    assert {pid_of(process), *escapees} <= set(turn.members)
    assert shim_of(process) not in turn.members
    assert turn.stop(grace=0.2) == AgentProcess(phase=Phase.EXITED, code=137)
    assert not any(map(is_alive, [pid_of(process), *escapees]))
    assert turn.members == ()


def test_what_an_ended_agent_left_running_is_ended_too(turn: Turn) -> None:
    turn.sh("( setsid sleep 1000 & echo $! > pids ); sleep 1001 & echo $! >> pids; exit 4")
    left = turn.pids("pids", 2)
    assert turn.ended().code == 4
    assert sorted(turn.members) == sorted(left)
    assert turn.stop(grace=1) == AgentProcess(phase=Phase.EXITED, code=4)
    assert not any(map(is_alive, left))


def test_processes_that_are_born_while_it_is_stopped_are_ended_too(turn: Turn) -> None:
    script = """
    trap 'setsid sh -c "trap : TERM; echo \\$\\$ >> pids; while :; do sleep 0.1; done" & exit 3' TERM
    touch up; while :; do sleep 0.02; done"""
    turn.sh(script)
    wait_until((turn.workspace / "up").exists)
    assert turn.stop(grace=0.5).code == 3
    assert turn.members == ()
    if (turn.workspace / "pids").exists():
        assert not any(map(is_alive, turn.pids("pids", 1)))


def test_others_with_a_similar_marker_or_name_are_left_alone(turn: Turn) -> None:
    other = new_run_id()
    environment = dict(os.environ, FLEET_RUN=other)
    with subprocess.Popen(SLEEPER, env=environment) as stranger, subprocess.Popen(SLEEPER) as namesake:
        process = turn.start(*SLEEPER)
        assert turn.members == (pid_of(process),)
        turn.stop(grace=1)
        assert is_alive(stranger.pid)
        assert is_alive(namesake.pid)
        kill_and_reap(stranger, namesake)


def kill_and_reap(*processes: subprocess.Popen[bytes]) -> None:
    for process in processes:
        process.kill()
        process.wait()


def test_a_missing_marker_marks_nobody(turn: Turn) -> None:
    process = turn.start(*SLEEPER)
    (turn.folder / "marker").write_text("\n")
    assert turn.members == (pid_of(process),)
    (turn.folder / "marker").unlink()
    assert turn.members == (pid_of(process),)


def test_who_stops_a_run_from_within_it_lives_to_see_the_end(local_turn: Turn) -> None:
    turn = local_turn
    process = turn.start(*SLEEPER)
    stop = [turn.shell, turn.script, "stop", str(turn.folder), "1"]
    # A chain of callers that carry the marker themselves, beside one who is no caller.
    environment = dict(os.environ, FLEET_RUN=turn.run)
    with subprocess.Popen(SLEEPER, env=environment) as bystander:
        chain = ["sh", "-c", '"$@"; echo "seen: $?"', "sh", *stop]
        done = subprocess.run(chain, env=environment, capture_output=True, text=True, timeout=30)
        assert done.stdout == "exited code=143\nseen: 0\n"
        assert not is_alive(pid_of(process))
        assert bystander.wait() == -signal.SIGTERM


def test_a_shim_is_no_process_of_the_run_it_was_called_from(local_turn: Turn) -> None:
    turn = local_turn
    outer = new_run_id()
    turn.member.wait(turn.prepare(*SLEEPER))
    start = [turn.shell, turn.script, "start", str(turn.folder), turn.shell]
    subprocess.run(
        start, env=dict(os.environ, FLEET_RUN=outer), check=True, stdout=subprocess.DEVNULL, timeout=30
    )
    process = turn.state
    for pid in (pid_of(process), shim_of(process)):
        assert outer.encode() not in Path(f"/proc/{pid}/environ").read_bytes()


def find_cgroup() -> Path | None:
    for root in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
        if (root / "cgroup.controllers").exists() and os.access(root, os.W_OK):
            return root
    return None


@pytest.fixture
def cgroup() -> Generator[Path]:
    root = find_cgroup()
    if root is None:
        pytest.skip("no cgroup can be made here")
    group = root / f"fleet-test-{new_run_id()}"
    group.mkdir()
    yield group
    wait_until(lambda: not (group / "cgroup.procs").read_text())
    group.rmdir()


def test_a_cgroup_finds_who_hid_from_everything_else(turn: Turn, cgroup: Path) -> None:
    script = (
        "( env -i setsid sh -c 'echo $$ > pids; trap \"\" TERM; while :; do sleep 0.1; done' & ); sleep 1000"
    )
    process = turn.sh(script, cgroup=str(cgroup))
    hidden = turn.pids("pids", 1)
    assert set(hidden) < set(turn.members)
    assert shim_of(process) not in turn.members
    assert turn.stop(grace=0.2).phase is Phase.EXITED
    assert not any(map(is_alive, hidden))


def test_who_left_the_cgroup_is_found_by_the_marker(turn: Turn, cgroup: Path) -> None:
    leave = f"echo $$ > {cgroup.parent}/cgroup.procs; echo $$ > pids; while :; do sleep 0.1; done"
    turn.sh(f"setsid sh -c '{leave}' & while [ ! -s pids ]; do sleep 0.01; done", cgroup=str(cgroup))
    [hidden] = turn.pids("pids", 1)
    wait_until(lambda: turn.state.phase is Phase.EXITED)
    assert is_alive(hidden)
    assert turn.stop(grace=0.2) == turn.state
    assert not is_alive(hidden)
    assert (turn.folder / "swept").read_text().split() == ["0"]


def test_who_stays_in_the_cgroup_is_found_without_the_marker(turn: Turn, cgroup: Path) -> None:
    stay = "echo $$ > pids; while :; do sleep 0.1; done"
    turn.sh(f"env -i setsid sh -c '{stay}' & while [ ! -s pids ]; do sleep 0.01; done", cgroup=str(cgroup))
    [hidden] = turn.pids("pids", 1)
    wait_until(lambda: turn.state.phase is Phase.EXITED)
    assert is_alive(hidden)
    turn.stop(grace=0.2)
    assert not is_alive(hidden)


def test_who_left_the_cgroup_without_the_marker_is_found_by_the_session(turn: Turn, cgroup: Path) -> None:
    leave = f"echo $$ > {cgroup.parent}/cgroup.procs; echo $$ > pids; while :; do sleep 0.1; done"
    turn.sh(f"env -i sh -c '{leave}' & while [ ! -s pids ]; do sleep 0.01; done", cgroup=str(cgroup))
    [hidden] = turn.pids("pids", 1)
    wait_until(lambda: turn.state.phase is Phase.EXITED)
    assert is_alive(hidden)
    turn.stop(grace=0.2)
    assert not is_alive(hidden)


def test_that_nobody_was_left_behind_is_seen_without_the_shim(turn: Turn, cgroup: Path) -> None:
    turn.sh("exit 3", cgroup=str(cgroup))
    turn.ended()
    Path(turn.script).unlink()
    assert turn.stop().code == 3
    assert (turn.folder / "swept").read_text() == "3\n"


def test_an_agent_that_leaves_somebody_behind_is_not_swept_by_its_end(turn: Turn, cgroup: Path) -> None:
    turn.sh("sleep 1000 & echo $! > pids", cgroup=str(cgroup))
    [left] = turn.pids("pids", 1)
    wait_until((turn.folder / "exit").exists)
    assert not (turn.folder / "swept").exists()
    turn.stop(grace=0.2)
    assert not is_alive(left)
    assert (turn.folder / "swept").exists()


def test_where_nobody_is_left_no_process_is_looked_at_one_by_one(local_turn: Turn, cgroup: Path) -> None:
    turn = local_turn
    turn.sh("exit 3", cgroup=str(cgroup))
    wait_until((turn.folder / "exit").exists)
    stop = [turn.shell, "-x", turn.script, "stop", str(turn.folder), "1"]
    traced = subprocess.run(stop, capture_output=True, text=True, check=True, timeout=30)
    assert traced.stdout == "exited code=3\n"
    assert "is_session_empty" in traced.stderr
    assert "begin_search" not in traced.stderr
    assert (turn.folder / "swept").read_text() == "3\n"


@pytest.mark.parametrize("spoil", ["rm marker", "rm cgroup", "mkdir claim.folder", "rm marker; mkdir swept"])
def test_an_agent_that_spoils_its_folder_is_ended_all_the_same(turn: Turn, cgroup: Path, spoil: str) -> None:
    turn.sh(f'cd "$FOLDER"; {spoil}; exit 3', cgroup=str(cgroup), env={"FOLDER": str(turn.folder)})
    assert turn.ended() == turn.stop(grace=0) == AgentProcess(phase=Phase.EXITED, code=3)


def test_a_cgroup_that_cannot_be_entered_is_done_without(turn: Turn) -> None:
    assert turn.start(*SLEEPER, cgroup="/no/such/group").phase is Phase.RUNNING


def test_a_cgroup_that_holds_the_caller_is_not_the_runs_own(turn: Turn) -> None:
    root = find_cgroup()
    if root is None:
        pytest.skip("there is no cgroup here")
    process = turn.start(*SLEEPER)
    (turn.folder / "cgroup").write_text(f"{root}\n")
    assert turn.members == (pid_of(process),)


def test_an_impatient_stop_kills_at_once(turn: Turn) -> None:
    turn.sh("trap '' TERM; touch up; while :; do sleep 0.02; done")
    wait_until((turn.workspace / "up").exists)
    assert turn.stop(grace=0).code == 137


# what an agent is given arrives as it is

TEXT = st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs",)), max_size=40)
NASTY = st.sampled_from(
    [
        "",
        "-",
        "--",
        "-n",
        "'",
        "''",
        '"',
        "\\",
        "'\\''",
        "$(touch pwned)",
        "`id`",
        "$HOME",
        "*",
        "~",
        "!!",
        "# x",
    ]
) | st.sampled_from(["a;b&c|d", "a\nb", "\n", "\r\n", "\t ", "😁", "\x01\x7f\x80\x81\x88", "\udc81\udcff"])
WORD = NASTY | TEXT
NAME = st.from_regex(r"X_[A-Za-z0-9_]{0,12}", fullmatch=True)
SHOW = 'cat "/proc/$$/cmdline" > argv.got; cat "/proc/$$/environ" > env.got; cat > in.got'
LONG = "100 kB of '\"$ " * 7300


@in_every_shell
@given(
    words=st.lists(WORD, max_size=6),
    env=st.dictionaries(NAME, WORD, max_size=4),
    given_input=st.binary(max_size=99),
)
@example(words=[LONG, "", LONG], env={"X_LONG": LONG}, given_input=bytes(range(256)) * 2000)
@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_words_variables_and_input_reach_the_agent_byte_for_byte(
    turn: Turn, words: list[str], env: dict[str, str], given_input: bytes
) -> None:
    turn.folder = turn.folder.with_name(f"turn-{new_run_id()}")
    turn.start("sh", "-c", SHOW, *words, env=env, stdin=given_input)
    assert turn.ended().code == 0, (turn.folder / "err").read_text()
    argv = (turn.workspace / "argv.got").read_bytes().split(b"\0")[:-1]
    assert argv == [os.fsencode(word) for word in ("sh", "-c", SHOW, *words)]
    got = (turn.workspace / "env.got").read_bytes().split(b"\0")
    assert {*got} >= {os.fsencode(f"{name}={value}") for name, value in env.items()}
    assert marker_text(turn.run).encode() in got
    assert (turn.workspace / "in.got").read_bytes() == given_input


@pytest.mark.parametrize(
    ("argv", "env", "cwd"),
    [
        (("a\0b",), {}, "/"),
        (("a",), {"X": "\0"}, "/"),
        (("a",), {"X-Y": ""}, "/"),
        (("a",), {"X=Y": ""}, "/"),
        (("a",), {"X;id": ""}, "/"),
        (("a",), {"PPID": "1"}, "/"),
        (("a",), {}, "relative"),
        ((), {}, "/"),
        (("",), {}, "/"),
        (("-c",), {}, "/"),
    ],
)
def test_what_no_shell_can_hand_over_is_refused(argv: tuple[str, ...], env: dict[str, str], cwd: str) -> None:
    with pytest.raises(InvalidInput):
        launch_script(argv, env, cwd)


@pytest.mark.parametrize("marker", ["", "x", "FLEET_RUN=", "a b c d", ".*....", "abcd\nefgh"])
def test_a_marker_that_would_fit_others_is_refused(marker: str) -> None:
    with pytest.raises(InvalidInput):
        marker_text(marker)


@given(st.text())
def test_no_answer_but_a_state_is_taken_for_one(line: str) -> None:
    with contextlib.suppress(ValueError, KeyError):
        assert parse_state(line).phase in Phase


def test_the_script_is_named_by_its_content() -> None:
    assert script_path("/home/x/") == script_path("/home/x")
    assert SOURCE.read_text().startswith("#!/bin/sh")


def test_installing_twice_leaves_the_first_in_place(local_turn: Turn) -> None:
    before = Path(local_turn.script).stat().st_ino
    local_turn.member.wait(local_turn.shim.install())
    assert Path(local_turn.script).stat().st_ino == before


# a system whose only tools are busybox


def test_it_runs_where_busybox_is_all_there_is(
    runner: asyncio.Runner, tmp_path: Path, turn_folder: Path
) -> None:
    busybox = shutil.which("busybox")
    if not busybox:
        pytest.skip("busybox is not installed")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in subprocess.run(
        [busybox, "--list"], capture_output=True, text=True, check=True
    ).stdout.split():
        (tools / name).symlink_to(busybox)
    shell = tmp_path / "busybox-sh"
    shell.write_text(f'#!{busybox} sh\nexport PATH="{tools}"\nexec {tools}/sh "$@"\n')
    shell.chmod(0o755)
    with new_turn(Member(LocalTransport(), runner), str(shell), tmp_path, turn_folder) as turn:
        turn.sh(ESCAPEES)
        escapees = turn.pids("pids", 6)
        assert set(escapees) < set(turn.members)
        assert turn.stop(grace=0.2).code == 137
        assert not any(map(is_alive, escapees))


# hooks


@pytest.mark.parametrize("name", SHELLS)
def test_hooks_at_the_same_time_never_mix_however_long_their_payloads(name: str, tmp_path: Path) -> None:
    shell = find_shell(name, tmp_path)
    hooks = tmp_path / "hooks"
    payloads = [json.dumps({"number": number, "text": f"{number:x}" * 700_000}) for number in range(16)]
    files = [tmp_path / f"payload-{number}" for number in range(16)]
    for file, payload in zip(files, payloads, strict=True):
        file.write_text(payload.replace(", ", ",\r\n"))
    with contextlib.ExitStack() as stack:
        inputs = [stack.enter_context(file.open("rb")) for file in files]
        started = [subprocess.Popen([shell, str(HOOK), str(hooks)], stdin=each) for each in inputs]
    assert [process.wait(30) for process in started] == [0] * 16
    assert sorted(hooks.read_text().splitlines()) == sorted(
        payload.replace(", ", ",") for payload in payloads
    )
    assert list(tmp_path.glob("hooks.*")) == []


# in a terminal


@dataclass
class Pane:
    turn: Turn
    server: str

    def tmux(self, *words: str) -> str:
        argv = ["tmux", "-L", self.server, "-f", "/dev/null", *words]
        return subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False).stdout.strip()

    def open(self, script: str) -> AgentProcess:
        turn = self.turn
        turn.member.wait(turn.prepare("sh", "-c", script))
        self.tmux(
            "new-session", "-d", "-s", "pane", "-x", "80", "-y", "24", *turn.shim.pane_argv(str(turn.folder))
        )
        return turn.member.wait(turn.shim.await_start(str(turn.folder)))


@pytest.fixture
def pane(local_turn: Turn) -> Generator[Pane]:
    if not shutil.which("tmux"):
        pytest.skip("tmux is not installed")
    pane = Pane(local_turn, f"fleet-{new_run_id()}")
    yield pane
    pane.tmux("kill-server")


def foreground_group(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[5])


@in_every_shell
def test_in_a_terminal_the_agent_has_the_foreground_and_its_code_is_kept(pane: Pane) -> None:
    process = pane.open("touch up; while [ ! -e end ]; do sleep 0.02; done; exit 6")
    agent = pid_of(process)
    wait_until((pane.turn.workspace / "up").exists)
    assert os.getpgid(agent) == agent == foreground_group(agent)
    assert os.getpgid(shim_of(process)) != agent
    tty = pane.tmux("display-message", "-p", "-t", "pane", "#{pane_tty}")
    assert {str(Path(f"/proc/{agent}/fd/{number}").readlink()) for number in range(3)} == {tty}
    (pane.turn.workspace / "end").touch()
    assert pane.turn.ended() == AgentProcess(phase=Phase.EXITED, code=6)


SUSPENDABLE = """
import pathlib, signal
signal.signal(signal.SIGCONT, lambda *_: pathlib.Path("back").open("a").write("x"))
signal.signal(signal.SIGALRM, lambda *_: None)  # or a signal just before it reads would be seen after that
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
pathlib.Path("up").touch()
pathlib.Path("line").write_text(input())
signal.setitimer(signal.ITIMER_REAL, 0)  # Python forgets its handlers before it ends
raise SystemExit(8)
"""


@in_every_shell
def test_in_a_terminal_the_agent_is_typed_to_and_a_suspended_one_comes_back(pane: Pane) -> None:
    process = pane.open(f"exec {sys.executable} -c '{SUSPENDABLE}'")
    work = pane.turn.workspace
    wait_until((work / "up").exists)
    os.kill(pid_of(process), signal.SIGTSTP)
    wait_until((work / "back").exists)
    wait_until(lambda: foreground_group(pid_of(process)) == pid_of(process))
    pane.tmux("send-keys", "-t", "pane", "C-z")
    wait_until(lambda: (work / "back").read_text() == "xx")
    pane.tmux("send-keys", "-t", "pane", "hello", "Enter")
    assert pane.turn.ended().code == 8
    assert (work / "line").read_text() == "hello"


@in_every_shell
def test_ctrl_c_in_a_terminal_reaches_the_agent_alone(pane: Pane) -> None:
    pane.open("trap 'exit 5' INT; touch up; while :; do sleep 0.02; done")
    wait_until((pane.turn.workspace / "up").exists)
    pane.tmux("send-keys", "-t", "pane", "C-c")
    assert pane.turn.ended() == AgentProcess(phase=Phase.EXITED, code=5)


def test_an_agent_in_a_terminal_is_stopped_with_all_of_its_own(pane: Pane) -> None:
    process = pane.open(ESCAPEES)
    escapees = pane.turn.pids("pids", 6)
    assert {pid_of(process), *escapees} <= set(pane.turn.members)
    assert shim_of(process) not in pane.turn.members
    assert pane.turn.stop(grace=0.2) == AgentProcess(phase=Phase.EXITED, code=137)
    assert not any(map(is_alive, [pid_of(process), *escapees]))


@in_every_shell
@pytest.mark.parametrize(("script", "code"), [("", 129), ("trap 'sleep 0.2; exit 3' HUP;", 3)])
def test_a_terminal_that_is_closed_ends_the_agent_and_its_code_is_kept(
    pane: Pane, script: str, code: int
) -> None:
    pane.open(f"{script} touch up; while :; do sleep 0.02; done")
    wait_until((pane.turn.workspace / "up").exists)
    pane.tmux("kill-server")
    assert pane.turn.ended() == AgentProcess(phase=Phase.EXITED, code=code)


def test_a_second_terminal_starts_no_second_agent(pane: Pane) -> None:
    process = pane.open("echo $$ >> ran; exec sleep 1000")
    argv = pane.turn.shim.pane_argv(str(pane.turn.folder))
    assert subprocess.run(argv, stdin=subprocess.DEVNULL, timeout=20, check=False).returncode == 0
    assert pane.turn.state == process
    assert len(pane.turn.pids("ran", 1)) == 1


# killed at any instant


def mentions(folder: Path, pid: int) -> bool:
    try:
        return os.fsencode(folder) in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def busy_with(folder: Path) -> list[int]:
    """The launchers and shims of a folder (the agent's own command line does not name it)."""
    numbers = (int(one) for one in os.listdir("/proc") if one.isdigit())  # noqa: PTH208
    return [pid for pid in numbers if mentions(folder, pid) and is_alive(pid)]


def strike(turn: Turn, chance: random.Random) -> None:
    """Start, kill the launcher and perhaps the shim within the first 50 ms, look, and start again."""
    turn.member.wait(turn.prepare("sh", "-c", f"echo $$ >> 'ran-{turn.folder.name}'; sleep 0.03; exit 0"))
    start = [turn.shell, turn.script, "start", str(turn.folder), turn.shell]
    with subprocess.Popen(start, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as launcher:
        time.sleep(chance.choice([0.004, 0.012, 0.05]) * chance.random())
        launcher.kill()
    if chance.random() < 0.8:
        for pid in busy_with(turn.folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    seen = turn.state.phase
    again = turn.member.wait(turn.member.transport.run(start))
    if Phase.NEVER in (seen, parse_state(again.out.decode()).phase):
        wait_until(lambda: not busy_with(turn.folder))
    last = turn.ended().phase
    ran = turn.workspace / f"ran-{turn.folder.name}"
    starts = len(ran.read_text().split()) if ran.exists() else 0
    assert starts <= 1
    assert seen is not Phase.NEVER or last is Phase.NEVER
    assert starts == 0 or last is not Phase.NEVER, (seen, last)


def strike_often(turn: Turn, count: int) -> None:
    chance = random.Random(f"{turn.shell}{count}")
    first = turn.folder
    for number in range(count):
        turn.folder = first.with_name(f"turn-{number}")
        turn.run = new_run_id()
        strike(turn, chance)
        turn.stop(grace=0)


@in_every_shell
def test_killed_at_any_instant_it_starts_at_most_once_and_never_means_never(local_turn: Turn) -> None:
    strike_often(local_turn, 14)


BEGIN = """
import asyncio, sys
from fleet.adapters.transports.local import LocalTransport
from fleet.shim.local import LocalShim
folder, script, shell = sys.argv[1:]
async def begin():
    shim = LocalShim(LocalTransport(), script, shell)
    print("ready", flush=True)
    await shim._begin(folder)
    await asyncio.sleep(60)
asyncio.run(begin())
"""


def test_a_caller_that_is_killed_while_it_starts_an_agent_costs_no_agent(local_turn: Turn) -> None:
    turn, first = local_turn, local_turn.folder
    for number in range(8):
        turn.folder = first.with_name(f"turn-{number}")
        agent = ("sh", "-c", f"echo $$ >> 'ran-{number}'")
        turn.member.wait(turn.prepare(*agent))
        command = [sys.executable, "-c", BEGIN, str(turn.folder), turn.script, turn.shell]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as caller:
            assert caller.stdout
            assert caller.stdout.readline() == b"ready\n"
            time.sleep(0.0008 * number)  # this picks the moment
            caller.kill()
        turn.start(*agent)
        assert turn.ended() == AgentProcess(phase=Phase.EXITED, code=0)
        assert len(turn.pids(f"ran-{number}", 1)) == 1


def modes_in(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())}


@contextlib.contextmanager
def own_umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@in_every_shell
def test_only_the_owner_can_read_a_turns_files_and_the_agent_has_its_users_umask(turn: Turn) -> None:
    with own_umask(0o027):
        turn.sh("umask > mask; echo out; echo err >&2; exit 1", secrets={"A": "b"})
    assert turn.ended().code == 1
    wait_until((turn.folder / "exit").exists)
    assert {mode & 0o077 for mode in modes_in(turn.folder).values()} == {0}
    is_ours = isinstance(turn.member.transport, LocalTransport)
    assert not is_ours or (turn.workspace / "mask").read_text().strip()[-3:] == "027"
    assert (turn.workspace / "mask").read_text().strip()[-3:] != "077"


def test_in_a_terminal_only_the_owner_can_read_a_turns_files_either(local_turn: Turn) -> None:
    if not shutil.which("tmux"):
        pytest.skip("tmux is not installed")
    with own_umask(0o027):
        pane = Pane(local_turn, f"fleet-{new_run_id()}")
        try:
            pane.open("umask > mask; exit 1")
            assert local_turn.ended().code == 1
        finally:
            pane.tmux("kill-server")
    assert {mode & 0o077 for mode in modes_in(local_turn.folder).values()} == {0}
    assert (local_turn.workspace / "mask").read_text().strip()[-3:] == "027"


OLDER = Path(__file__).parents[1] / "data" / "shim-older.sh"


def start_as_before(turn: Turn, *argv: str, **changes: object) -> AgentProcess:
    """Start an agent with the shim of an older fleet."""
    turn.member.wait(turn.prepare(*argv, **changes))
    older = [turn.shell, str(OLDER), "start", str(turn.folder), turn.shell]
    return parse_state(turn.member.wait(turn.member.transport.run(older)).out.decode())


def test_what_an_older_shim_has_started_is_followed_to_its_end(local_turn: Turn, cgroup: Path) -> None:
    turn, script = local_turn, "while [ ! -e end ]; do sleep 0.01; done; exit 3"
    started = start_as_before(turn, "sh", "-c", script, cgroup=str(cgroup))
    assert turn.state == started
    assert turn.start("true") == started  # and not once more
    (turn.workspace / "end").touch()
    assert turn.ended() == turn.stop() == AgentProcess(phase=Phase.EXITED, code=3)


def test_what_an_older_shim_has_started_can_be_stopped(local_turn: Turn) -> None:
    started = start_as_before(local_turn, *SLEEPER)
    assert local_turn.stop(grace=1).phase is Phase.EXITED
    assert not is_alive(pid_of(started))


@pytest.mark.torture
def test_killed_hundreds_of_times_it_starts_at_most_once_and_never_means_never(
    request: pytest.FixtureRequest, local_turn: Turn
) -> None:
    if "torture" not in request.config.option.markexpr:
        pytest.skip("run with -m torture")
    strike_often(local_turn, 200)
