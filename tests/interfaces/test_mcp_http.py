"""`fleet mcp --http`: who gets in, and that the same tools are there."""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import anyio
import pytest

from fleet.adapters.ancestry import ancestries_behind
from fleet.domain.spawn import Mark
from fleet.errors import Conflict, InvalidInput, Refused
from fleet.interfaces.mcp.connections import ConnectionLimits
from fleet.interfaces.mcp.http import TokenGuard, kept_token, listen_on, parse_address
from tests.interfaces.conftest import agent_elsewhere
from tests.interfaces.test_mcp_server import ENVELOPE
from tests.support import System
from tests.talking import talk_over_http


class Served(NamedTuple):
    url: str
    token: str

    def headers(self, method: str) -> dict[str, str]:
        return {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": method,
            **self.key,
        }

    @property
    def key(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def post(
        self, method: str = "tools/list", params: dict[str, Any] | None = None, **headers: str
    ) -> tuple[int, str]:
        """Send one message in bare HTTP; return the status and the body."""
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {"_meta": ENVELOPE}}
        return self.send("POST", json.dumps(message), {**self.headers(method), **headers})

    def send(self, verb: str, body: str, headers: dict[str, str]) -> tuple[int, str]:
        place = urlsplit(self.url)
        sent = {name: value for name, value in headers.items() if value}
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=20)
        try:
            connection.request(verb, place.path, body, sent)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def served(shared: System) -> Iterator[Served]:
    process = shared.start("mcp", "--http", "0", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout
        url = process.stdout.readline().decode().strip()
        yield Served(url, (shared.home / "mcp-token").read_text().strip())
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=20)
        assert process.stdout
        process.stdout.close()


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_client_that_has_the_token_is_served_as_over_stdin(served: Served, mode: str) -> None:
    with talk_over_http(served.url, served.token, mode=mode) as talk:
        assert talk.call("list_workers") == {"workers": [], "count": 0, "summary": "none"}
        assert "create_worker" in talk.tools()
        assert talk.refuse("get_worker_status", worker_id="nobody")["error"] == "NotFound"


def posted_by(served: Served, message: dict[str, Any], marks: dict[str, str]) -> str:
    """Return what another process is answered, which carries marks."""
    call = (
        "import json, sys, http.client as web; from urllib.parse import urlsplit;"
        "place = urlsplit(sys.argv[1]);"
        "line = web.HTTPConnection(place.hostname, place.port, timeout=20);"
        "line.request('POST', place.path, sys.argv[2], json.loads(sys.argv[3]));"
        "print(line.getresponse().read().decode())"
    )
    headers = served.headers(message["method"]) | {"Mcp-Name": message["params"].get("name", "")}
    words = [sys.executable, "-c", call, served.url, json.dumps(message), json.dumps(headers)]
    done = subprocess.run(words, env=os.environ | marks, capture_output=True, text=True, check=True)
    return done.stdout.replace("\\", "")


def test_an_agent_is_known_by_its_process_and_cannot_be_a_person(served: Served, shared: System) -> None:
    params = {"name": "healthcheck", "arguments": {}, "_meta": ENVELOPE}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    with agent_elsewhere(shared, "agent", "key") as run:
        for key, told in (("key", f'"caller":"run {run.id}"'), ("forged", "cannot prove it")):
            assert told in posted_by(served, message, {"FLEET_RUN": run.id, "FLEET_RUN_TOKEN": key})


def test_a_forged_mark_is_told_of_no_change(served: Served, shared: System) -> None:
    params = {"notifications": {"resourcesListChanged": True}, "_meta": ENVELOPE}
    message = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
    with agent_elsewhere(shared, "listens", "key") as run:
        forged = {"FLEET_RUN": run.id, "FLEET_RUN_TOKEN": "forged"}
        assert "cannot prove it" in posted_by(served, message, forged)


def test_an_older_client_is_promised_no_changes_and_gets_no_stream(served: Served) -> None:
    client = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    older = {"MCP-Protocol-Version": "2025-11-25", "Mcp-Method": ""}
    status, told = served.post("initialize", client, **older)
    assert status == 200
    assert '"subscribe":false' in told
    assert '"subscribe":true' not in told
    assert "Method not found" in served.post("resources/subscribe", {"uri": "fleet://runs"}, **older)[1]
    assert served.send("GET", "", {"Accept": "text/event-stream", **served.key, **older})[0] == 405
    assert served.send("GET", "", {"Accept": "text/event-stream", **older})[0] == 401


RELAY = """
import socket, sys, threading
def pump(one, other):
    while data := one.recv(65536): other.sendall(data)
    other.shutdown(socket.SHUT_WR)
listener = socket.create_server(("127.0.0.1", 0)); print(listener.getsockname()[1], flush=True)
near = listener.accept()[0]; far = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
threading.Thread(target=pump, args=(far, near)).start(); pump(near, far)
"""


def test_a_tunnel_of_the_same_user_on_the_same_machine_gets_in(served: Served) -> None:
    place = urlsplit(served.url)
    words = [sys.executable, "-c", RELAY, str(place.port)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as relay:
        assert relay.stdout
        near = served._replace(url=f"http://127.0.0.1:{relay.stdout.readline().strip()}{place.path}")
        assert near.post(Host=place.netloc)[0] == 200
        relay.kill()


def test_whoever_leaves_before_they_are_looked_at_is_nobody(served: Served, shared: System) -> None:
    """An agent that hangs up at once must not pass for a person."""
    place = urlsplit(served.url)
    given = {"repo_path": str(shared.repository), "task_name": "unseen", "prompt": "x"}
    params = {"name": "create_worker", "arguments": given, "_meta": ENVELOPE}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    headers = served.headers("tools/call") | {"Mcp-Name": "create_worker", "Host": place.netloc}
    lines = [f"POST {place.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    sent = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", body])
    hang_up = (
        "import socket, sys; s = socket.create_connection((sys.argv[1], int(sys.argv[2])));"
        "s.sendall(sys.argv[3].encode()); s.close()"
    )
    for _ in range(5):
        words = [sys.executable, "-c", hang_up, str(place.hostname), str(place.port), sent]
        subprocess.run(words, env=os.environ | {"FLEET_RUN": "1m7hqdeyfgt62w"}, check=True)
    with talk_over_http(served.url, served.token) as talk:
        assert talk.call("list_workers")["count"] == 0


def test_all_who_hold_a_connection_are_asked_for_their_marks() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        mine = socket.create_connection(address)
        theirs = listener.accept()[0]
        client = mine.getsockname()
        (behind,) = ancestries_behind(client, address)
        assert (behind.line[0].pid, behind.marks) == (os.getpid(), ())
        other = subprocess.Popen(
            ["sleep", "60"], env={"FLEET_RUN": "r", "FLEET_RUN_TOKEN": "t"}, pass_fds=[mine.fileno()]
        )
        try:
            found = {one.line[0].pid: one.marks for one in ancestries_behind(client, address)}
            assert found == {os.getpid(): (), other.pid: (Mark("r", "t"),)}
        finally:
            other.kill()
            other.wait()
        mine.close()
        with pytest.raises(Refused, match="cannot be seen"):
            ancestries_behind(client, address)
        theirs.close()


def test_of_many_who_make_the_token_at_once_all_have_the_same(tmp_path: Path) -> None:
    file = tmp_path / "home" / "mcp-token"
    with ThreadPoolExecutor(8) as pool:
        tokens = set(pool.map(kept_token, [file] * 8))
    assert tokens == {file.read_text().strip()}
    assert [one.name for one in file.parent.iterdir()] == [file.name]


def test_a_token_that_others_can_read_is_none(tmp_path: Path) -> None:
    file = tmp_path / "mcp-token"
    kept_token(file)
    file.chmod(0o644)
    with pytest.raises(Conflict, match="others can read it"):
        kept_token(file)


def test_nothing_but_http_gets_past_the_guard() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def app(*_: Any) -> None:
        raise AssertionError("nobody may come here")

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    anyio.run(TokenGuard(app, "token"), {"type": "websocket", "headers": []}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]


@pytest.mark.parametrize("given", ["", "Bearer wrong", "Basic x", "bearer", "Bearer "])
def test_nobody_gets_in_without_the_token(served: Served, given: str) -> None:
    status, body = served.post(Authorization=given)
    assert status == 401
    assert served.token not in body


def test_a_page_of_another_site_and_a_name_that_was_bent_are_turned_away(served: Served) -> None:
    assert served.post(Origin="https://evil.example")[0] == 403
    assert served.post(Host="evil.example")[0] == 421
    status, body = served.post()
    assert status == 200
    assert "create_worker" in body


def test_three_hundred_silent_connections_keep_nobody_out(served: Served) -> None:
    place = urlsplit(served.url)
    silent = [socket.create_connection((place.hostname or "", place.port or 0)) for _ in range(300)]
    try:
        assert served.post()[0] == 200
        ready = select.poll()
        for one in silent:
            ready.register(one, select.POLLIN)  # so is the end of what the server has closed
        assert 300 - len(ready.poll(0)) <= ConnectionLimits().most_per_peer
    finally:
        for one in silent:
            one.close()


def test_the_token_is_made_once_and_is_nobody_elses(served: Served, shared: System) -> None:
    file = shared.home / "mcp-token"
    assert file.stat().st_mode & 0o777 == 0o600
    assert len(served.token) >= 32


def test_a_port_that_is_taken_is_told(served: Served, shared: System) -> None:
    port = str(urlsplit(served.url).port)
    assert "cannot be listened on" in shared.fleet("mcp", "--http", port, code=7).stderr


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("7523", ("127.0.0.1", 7523)),
        (":7523", ("127.0.0.1", 7523)),
        ("localhost:1", ("localhost", 1)),
        ("[::1]:8", ("::1", 8)),
        ("10.0.0.7:80", ("10.0.0.7", 80)),
    ],
)
def test_an_address_without_a_host_is_this_machine_alone(text: str, meant: tuple[str, int]) -> None:
    assert parse_address(text) == meant


@pytest.mark.parametrize("text", ["", "here", "1.2.3.4:", "1:99999"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="is no HOST:PORT"):
        parse_address(text)


@pytest.mark.parametrize("host", ["0.0.0.0", "0", "0x0", "00.0", "::", "::0"])
def test_every_address_at_once_is_refused_however_it_is_spelled(host: str) -> None:
    with pytest.raises(InvalidInput, match="is every address"):
        listen_on(host, 0)
