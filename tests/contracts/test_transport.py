"""What every transport promises, on this machine and over ssh."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import psutil
import pytest

from fleet.adapters.transports import local
from fleet.adapters.transports.local import LocalTransport
from fleet.adapters.transports.ssh import MOST_CHANNELS, SshTransport, _Command
from fleet.domain.process import ProcessId
from fleet.errors import Failed, InvalidInput, MemberUnreachable, Unavailable
from tests.contracts import transport_fixtures as fixtures
from tests.contracts.transport_fixtures import Member, Sshd, wait_until

sshd, runner, member, here, far = fixtures.sshd, fixtures.runner, fixtures.member, fixtures.here, fixtures.far

HOSTILE = [
    "",
    "-n",
    "--",
    "a b",
    "$(touch pwned)",
    "`id`",
    "'",
    '"',
    "\\",
    "\n",
    "*",
    "~",
    "é😀",
    "!x",
    "a'b\"c\n$d",
]


def identity(pid: int) -> ProcessId:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ProcessId(pid=pid, start=fields[19], boot=boot)


def test_a_command_answers_with_its_code_and_both_outputs(member: Member) -> None:
    done = member.wait(member.transport.run(["sh", "-c", "echo out; echo err >&2; exit 3"]))
    assert (done.code, done.out, done.err) == (3, b"out\n", b"err\n")


def test_no_word_of_a_command_is_read_by_a_shell(member: Member) -> None:
    done = member.wait(member.transport.run(["printf", "%s\\0", *HOSTILE]))
    assert done.out.split(b"\0")[:-1] == [word.encode() for word in HOSTILE]


def test_a_command_reads_its_whole_input(member: Member) -> None:
    data = os.urandom(3_000_000)
    assert member.wait(member.transport.run(["cat"], stdin=data)).out == data


def test_a_command_that_ignores_its_input_does_no_harm(member: Member) -> None:
    assert member.wait(member.transport.run(["true"], stdin=b"x" * 3_000_000)).code == 0


def test_a_command_without_input_finds_it_at_its_end(member: Member) -> None:
    assert member.wait(member.transport.run(["cat"])).out == b""


def test_a_missing_command_is_code_127(member: Member) -> None:
    assert member.wait(member.transport.run(["no-such-command-here"])).code == 127


def test_a_killed_command_is_128_and_its_signal(member: Member) -> None:
    assert member.wait(member.transport.run(["sh", "-c", "kill -9 $$"])).code == 137


@pytest.mark.parametrize("argv", [[], ["echo", "a\0b"]])
def test_a_command_that_cannot_be_handed_over_is_refused(member: Member, argv: list[str]) -> None:
    with pytest.raises(InvalidInput):
        member.wait(member.transport.run(argv))


def test_a_grandchild_that_keeps_the_output_open_holds_nobody_up(member: Member, tmp_path: Path) -> None:
    started = time.monotonic()
    script = f"sleep 30 & echo $! > {tmp_path}/pid; echo done"
    assert member.wait(member.transport.run(["sh", "-c", script])).out == b"done\n"
    assert time.monotonic() - started < 10
    grandchild = int((tmp_path / "pid").read_text())
    assert psutil.pid_exists(grandchild)  # it is nobody's business to end it
    os.kill(grandchild, signal.SIGKILL)


def test_a_command_that_takes_too_long_is_an_error(member: Member) -> None:
    started = time.monotonic()
    with pytest.raises(Unavailable, match=r"within 0\.3 seconds"):
        member.wait(member.transport.run(["sleep", "60"], timeout_seconds=0.3))
    assert time.monotonic() - started < 30


def test_a_local_command_that_takes_too_long_is_ended_with_its_children(here: Member, tmp_path: Path) -> None:
    script = f"sleep 100 & echo $$ $! > {tmp_path}/pids; wait"
    with pytest.raises(Unavailable):
        here.wait(here.transport.run(["sh", "-c", script], timeout_seconds=0.3))
    pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 2
    wait_until(lambda: not any(map(psutil.pid_exists, pids)))


def test_a_cancelled_call_leaves_no_local_command_behind(here: Member, tmp_path: Path) -> None:
    async def give_up() -> None:
        call = asyncio.create_task(
            here.transport.run(["sh", "-c", f"echo $$ > {tmp_path}/pid; sleep 100; :"])
        )
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            await asyncio.sleep(0.01)
        call.cancel()
        await asyncio.wait([call])

    here.wait(give_up())
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not psutil.pid_exists(pid))


def test_many_commands_run_at_the_same_time(member: Member) -> None:
    calls = [member.transport.run(["sh", "-c", f"sleep 0.2; echo {number}"]) for number in range(30)]
    assert [int(done.out) for done in member.wait_for_all(*calls)] == list(range(30))


def test_a_file_is_read_as_it_was_written(member: Member, tmp_path: Path) -> None:
    path, data = str(tmp_path / "a" / "b c" / "'$(x)\n"), os.urandom(300_000)
    member.wait(member.transport.write(path, data))
    assert member.wait(member.transport.read(path)) == data


def test_a_file_has_its_mode_and_new_folders_are_private(member: Member, tmp_path: Path) -> None:
    member.wait(member.transport.write(str(tmp_path / "new" / "deep" / "tool"), b"x", mode=0o755))
    member.wait(member.transport.write(str(tmp_path / "new" / "secret"), b"x"))
    modes = {
        name: stat.S_IMODE((tmp_path / name).stat().st_mode)
        for name in ("new", "new/deep", "new/deep/tool", "new/secret")
    }
    assert modes == {"new": 0o700, "new/deep": 0o700, "new/deep/tool": 0o755, "new/secret": 0o600}


def test_a_file_is_replaced_whole_and_nothing_else_is_left(member: Member, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old and long")
    before = path.open("rb")
    member.wait(member.transport.write(str(path), b"new"))
    assert (before.read(), path.read_bytes()) == (b"old and long", b"new")
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
    before.close()


def test_an_empty_file_can_be_written(member: Member, tmp_path: Path) -> None:
    member.wait(member.transport.write(str(tmp_path / "file"), b""))
    assert (tmp_path / "file").read_bytes() == b""


@pytest.mark.parametrize("place", ["folder", "file/below"])
def test_a_file_that_cannot_be_written_is_an_error_and_leaves_nothing(
    member: Member, tmp_path: Path, place: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"kept")
    with pytest.raises(Failed, match="cannot write"):
        member.wait(member.transport.write(str(tmp_path / place), b"x"))
    assert sorted(one.name for one in tmp_path.rglob("*")) == ["file", "folder"]


def test_a_part_of_a_file_is_read_from_its_offset(member: Member, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    read = member.transport.read
    path = str(tmp_path / "file")
    assert member.wait(read(path, offset=3, limit=4)) == b"3456"
    assert member.wait(read(path, offset=8)) == b"89"
    assert member.wait(read(path, offset=10)) == b""
    assert member.wait(read(path, offset=99)) == b""


def test_a_missing_file_reads_as_empty(member: Member, tmp_path: Path) -> None:
    assert member.wait(member.transport.read(str(tmp_path / "none" / "file"))) == b""


def test_a_folder_cannot_be_read(member: Member, tmp_path: Path) -> None:
    with pytest.raises(Failed, match="cannot read"):
        member.wait(member.transport.read(str(tmp_path)))


def took(member: Member, *args: object, timeout_seconds: float = 20, then: object = None) -> float:
    """Return how long `changed` waited, calling `then` once it waits."""

    async def watch() -> float:
        started = time.monotonic()
        if callable(then):
            asyncio.get_running_loop().call_later(0.3, then)
        await member.transport.changed(*args, timeout_seconds=timeout_seconds)  # type: ignore[arg-type]
        return time.monotonic() - started

    return member.wait(watch())


def test_a_change_is_told_when_a_file_grows(member: Member, tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"abc")
    grow = lambda: (tmp_path / "out").write_bytes(b"abcd")  # noqa: E731
    assert 0.2 < took(member, str(tmp_path), {"out": 3, "exit": 0}, [], then=grow) < 10


def test_a_change_is_told_when_a_file_appears(member: Member, tmp_path: Path) -> None:
    appear = lambda: (tmp_path / "exit").write_bytes(b"0")  # noqa: E731
    assert 0.2 < took(member, str(tmp_path), {"exit": 0}, [], then=appear) < 10


def test_a_change_that_has_already_happened_is_told_at_once(member: Member, tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"abc")
    assert took(member, str(tmp_path), {"out": 2}, []) < 5


def test_a_change_is_told_when_a_process_ends(member: Member, tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "100"]) as process:
        agents = [identity(process.pid)]
        assert 0.2 < took(member, str(tmp_path), {}, agents, then=process.kill) < 10


@pytest.mark.parametrize(
    "turned_into",
    [
        lambda real: replace(real, start="1"),
        lambda real: replace(real, boot="another"),
        lambda real: replace(real, pid=2**22 + 1),
    ],
    ids=["start", "boot", "pid"],
)
def test_a_process_that_is_another_one_counts_as_ended(
    member: Member, tmp_path: Path, turned_into: Callable[[ProcessId], ProcessId]
) -> None:
    another = turned_into(identity(os.getpid()))
    assert took(member, str(tmp_path), {}, [another]) < 5


@pytest.mark.parametrize("name", ["a) \nb", "a) ", "1 (a) S 1"])
def test_an_agent_with_a_hostile_name_is_followed_like_any_other(
    member: Member, tmp_path: Path, name: str
) -> None:
    program = tmp_path / name
    shutil.copy(shutil.which("sleep") or "sleep", program)
    with subprocess.Popen([str(program), "100"]) as process:
        wait_until(lambda: Path(f"/proc/{process.pid}/comm").read_text() == f"{name}\n")
        agents = [identity(process.pid)]
        assert 0.4 < took(member, str(tmp_path), {}, agents, timeout_seconds=0.5) < 5
        assert 0.2 < took(member, str(tmp_path), {}, agents, then=process.kill) < 10


def test_files_in_a_folder_with_a_line_feed_in_its_name_are_watched(member: Member, tmp_path: Path) -> None:
    folder = tmp_path / "a\nb 'c' \udcff"
    folder.mkdir()
    (folder / "out").write_bytes(b"abc")
    assert 0.4 < took(member, str(folder), {"out": 3, "exit": 0}, [], timeout_seconds=0.5) < 5
    grow = lambda: (folder / "out").write_bytes(b"abcd")  # noqa: E731
    assert 0.2 < took(member, str(folder), {"out": 3}, [], then=grow) < 10


def test_more_files_are_watched_than_fit_one_command(member: Member, tmp_path: Path) -> None:
    known = {f"{'long-' * 30}{number}": 0 for number in range(2500)}
    last = tmp_path / list(known)[-1]
    agents = [identity(os.getpid())]
    assert 0.4 < took(member, str(tmp_path), known, agents, timeout_seconds=0.5) < 5
    assert 0.2 < took(member, str(tmp_path), known, agents, then=lambda: last.write_bytes(b"x")) < 10


def test_waiting_for_a_change_ends_with_its_time(member: Member, tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"abc")
    agents = [identity(os.getpid())]
    assert 0.4 < took(member, str(tmp_path), {"out": 3, "exit": 0}, agents, timeout_seconds=0.5) < 5


def test_of_many_who_wait_only_those_are_told_whose_folder_changed(member: Member, tmp_path: Path) -> None:
    async def watch() -> list[int]:
        told: list[int] = []

        async def one(number: int) -> None:
            await member.transport.changed(str(tmp_path / str(number)), {"out": 0}, [], timeout_seconds=30)
            told.append(number)

        tasks = [asyncio.create_task(one(number)) for number in range(20)]
        await asyncio.sleep(0)
        (tmp_path / "7").mkdir()
        (tmp_path / "7" / "out").write_bytes(b"x")
        await asyncio.wait([tasks[7]])
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        return told

    assert member.wait(watch()) == [7]


def test_closing_lets_go_of_those_who_wait(member: Member, tmp_path: Path) -> None:
    async def watch() -> None:
        waiting = asyncio.create_task(
            member.transport.changed(str(tmp_path), {"x": 0}, [], timeout_seconds=50)
        )
        await asyncio.sleep(0)  # a short command may be over before the loop has turned once …
        await member.transport.run(["true"])  # … and over ssh it takes this long to begin
        assert not waiting.done()
        await member.transport.close()
        await waiting

    started = time.monotonic()
    member.wait(watch())
    assert time.monotonic() - started < 10


def test_processes_are_followed_without_process_handles_too(
    here: Member, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(pid: int, flags: int = 0) -> int:
        raise OSError("this kernel has none")

    monkeypatch.setattr(os, "pidfd_open", missing)
    assert here.wait(here.transport.run(["sh", "-c", "sleep 0.05; exit 4"])).code == 4
    with subprocess.Popen(["sleep", "100"]) as process:
        assert 0.2 < took(here, str(tmp_path), {}, [identity(process.pid)], then=process.kill) < 10


def test_a_hundred_silent_agents_cost_next_to_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured 0.3 % of a core; the bound leaves room for a busy machine."""
    monkeypatch.setattr(local, "SILENT_PART", 2)  # so that they count as long silent within a second
    agents = [identity(os.getpid()), identity(os.getppid())]
    known = {"out": 0, "err": 0, "hooks": 0, "exit": 0}
    for number in range(100):
        (tmp_path / str(number)).mkdir()
        for name in ("out", "err"):
            (tmp_path / str(number) / name).touch()

    async def wait_idly() -> float:
        transport = LocalTransport()
        waiting = [
            asyncio.create_task(transport.changed(str(tmp_path / str(n)), known, agents, timeout_seconds=60))
            for n in range(100)
        ]
        await asyncio.sleep(1)  # until they are looked at on the slow beat
        before, started = time.process_time(), time.monotonic()
        await asyncio.sleep(2)
        share = (time.process_time() - before) / (time.monotonic() - started)
        assert not any(task.done() for task in waiting)
        await transport.close()
        await asyncio.gather(*waiting)
        return share

    assert asyncio.run(wait_idly()) < 0.02


def test_a_far_member_is_watched_without_a_channel_for_each_agent(
    far: Member, sshd: Sshd, tmp_path: Path
) -> None:
    async def watch() -> int:
        folders = [str(tmp_path / str(number)) for number in range(50)]
        waiting = [
            asyncio.create_task(far.transport.changed(one, {"out": 0}, [], timeout_seconds=1.5))
            for one in folders
        ]
        server, most = psutil.Process(sshd.process.pid), 0
        while not all(task.done() for task in waiting):
            most = max(most, len(server.children()))
            await asyncio.sleep(0.05)
        await asyncio.gather(*waiting)
        return most

    assert far.wait(watch()) == 1


def test_more_commands_than_a_connection_bears_get_further_connections(far: Member, sshd: Sshd) -> None:
    calls = [far.transport.run(["sleep", "0.3"]) for _ in range(3 * MOST_CHANNELS)]
    assert {done.code for done in far.wait_for_all(*calls)} == {0}
    assert len(psutil.Process(sshd.process.pid).children()) == 3


def test_commands_that_are_given_up_while_they_begin_leave_the_channels_counted_right(far: Member) -> None:
    async def give_up() -> list[int]:
        for rounds in range(12):
            call = asyncio.create_task(far.transport.run(["true"]))
            for _ in range(rounds):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])
        assert (await far.transport.run(["true"])).code == 0
        lines = cast(SshTransport, far.transport)._lines
        async with asyncio.timeout(10):
            while any(line.channels for line in lines):
                await asyncio.sleep(0.01)
        return [line.channels for line in lines]

    assert set(far.wait(give_up())) == {0}


def test_a_channel_is_given_back_once(far: Member) -> None:
    far.wait(far.transport.run(["true"]))
    line = cast(SshTransport, far.transport)._lines[0]
    line.channels = 2
    command = _Command(line)
    command.leave()  # while it was being opened
    command.connection_lost(None)
    assert line.channels == 1


def test_a_connection_that_is_cut_is_an_error_and_never_an_answer(
    far: Member, sshd: Sshd, tmp_path: Path
) -> None:
    async def cut() -> None:
        call = asyncio.create_task(far.transport.run(["sh", "-c", f"touch {tmp_path}/up; sleep 2"]))
        while not (tmp_path / "up").exists():
            await asyncio.sleep(0.01)
        sshd.cut_connections()
        await call

    with pytest.raises(MemberUnreachable, match="'far'"):
        far.wait(cut())
    assert far.wait(far.transport.run(["true"])).code == 0  # over a new connection


def test_who_waits_for_a_change_is_told_that_the_connection_is_gone(sshd: Sshd, tmp_path: Path) -> None:
    async def refuse() -> None:
        transport = SshTransport("127.0.0.1", 1, "nobody", [str(sshd.key)], str(sshd.known_hosts))
        try:
            await transport.changed(str(tmp_path), {"x": 0}, [], timeout_seconds=20)
        finally:
            await transport.close()

    with pytest.raises(MemberUnreachable):
        asyncio.run(refuse())


def test_a_cut_connection_leaves_no_half_file(far: Member, sshd: Sshd, tmp_path: Path) -> None:
    async def cut() -> None:
        call = asyncio.create_task(far.transport.write(str(tmp_path / "file"), b"x" * 200_000_000))
        while not any(tmp_path.iterdir()):
            await asyncio.sleep(0.001)
        sshd.cut_connections()
        await call

    with pytest.raises(MemberUnreachable):
        far.wait(cut())
    wait_until(lambda: not any(tmp_path.iterdir()))


def test_an_unknown_host_key_is_refused(sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "known_hosts").touch()

    async def connect() -> None:
        transport = SshTransport(
            "127.0.0.1", sshd.port, "nobody", [str(sshd.key)], str(tmp_path / "known_hosts")
        )
        try:
            await transport.run(["true"])
        finally:
            await transport.close()

    with pytest.raises(MemberUnreachable, match=r"(?i)host key"):
        asyncio.run(connect())
