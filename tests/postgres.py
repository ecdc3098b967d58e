"""A PostgreSQL server for tests, on a free port; it goes with them, however they end."""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from tests.support import is_alive, wait_for

USER = "fleet"
PASSWORD = "s3cr3t/p@ss:w%rd"  # what must be nowhere, with every sign that means something in a URL
_numbers = itertools.count(1)

# The server ends when its standard input does, which is when the tests have ended or were killed; its
# folder goes with it, unless it was stopped to be started again.
_WITH_US = (
    'folder=$1; shift; "$@" & cat > /dev/null; kill -INT $!; wait; [ -e "$folder/kept" ] || rm -rf "$folder"'
)


def programs() -> Path | None:
    """Return the folder of the server's programs, the newest if there are several."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[4]))
    on_path = shutil.which("postgres")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


class Server:
    def __init__(self, programs: Path, listen: Sequence[str] = ("127.0.0.1",)) -> None:
        self._programs = programs
        self._listen = ",".join(listen)
        # It refuses to run as root.
        self._user = _unprivileged_user() if os.geteuid() == 0 else None
        self._group = pwd.getpwnam(self._user).pw_gid if self._user else None
        self._groups: list[str | int] | None = [] if self._user else None
        self._folder = Path(tempfile.mkdtemp(prefix="fleet-postgres-"))
        self._data = self._folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self._emptied = ""
        if self._user:
            shutil.chown(self._folder, self._user)
        password = self._folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        self._run(
            "initdb", "-N", "-D", str(self._data), "-U", USER, "-A", "scram-sha-256", f"--pwfile={password}",
            "-E", "UTF8", "--locale=C",
        )  # fmt: skip
        with (self._data / "pg_hba.conf").open("a") as file:
            file.write("host all all samenet scram-sha-256\n")

    def url(self, database: str = "postgres", port: int = 0) -> str:
        return f"postgresql://{USER}:{quote(PASSWORD, safe='')}@127.0.0.1:{port or self.port}/{database}"

    def start(self) -> None:
        # Durability is the server's business: without fsync these tests take a fraction of the time.
        options = {
            "port": self.port,
            "listen_addresses": self._listen,
            "unix_socket_directories": "",
            "fsync": "off",
            "full_page_writes": "off",
            "max_connections": 200,
        }
        words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        program = (str(self._programs / "postgres"), "-D", str(self._data))
        (self._folder / "kept").unlink(missing_ok=True)
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", _WITH_US, "sh", str(self._folder), *program, *words],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
                user=self._user,
                group=self._group,
                extra_groups=self._groups,
            )
        wait_for(self._answers, 30, "the server is up")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT in order, SIGQUIT as if the power had gone."""
        assert self._process is not None
        (self._folder / "kept").touch()
        pid = self.pid
        os.kill(pid, how)
        wait_for(lambda: not is_alive(pid), 30, "the server is down")
        self._process.communicate()

    @property
    def pid(self) -> int:
        return int((self._data / "postmaster.pid").read_text().split("\n")[0])

    def fresh_database(self) -> str:
        """Make a database and return its URL."""
        name = f"test_{os.getpid()}_{next(_numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE template0 STRATEGY FILE_COPY")
        return self.url(name)

    def emptied_database(self) -> str:
        """Return the URL of a database that has nothing of ours in it: a fresh one takes longer to make."""
        if not self._emptied:
            self._emptied = self.fresh_database()
        self.execute("DROP SCHEMA IF EXISTS fleet CASCADE", self._emptied)
        return self._emptied

    def execute(self, sql: str, url: str = "") -> list[tuple[object, ...]]:
        with psycopg.connect(url or self.url(), autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "log").read_text()
        with contextlib.suppress(psycopg.OperationalError):
            self.execute("SELECT 1")
            return True
        return False

    def _run(self, program: str, *words: str) -> None:
        done = subprocess.run(
            [str(self._programs / program), *words],
            cwd="/",
            capture_output=True,
            text=True,
            user=self._user,
            group=self._group,
            extra_groups=self._groups,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def _unprivileged_user() -> str:
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@cache
def _session_server() -> Server | None:
    folder = programs()
    if folder is None:
        return None
    server = Server(folder)
    server.start()
    return server


def shared_server() -> Server:
    """Return the server of this test run, started at the first call; skip the test where there is none."""
    server = _session_server()
    if server is None:
        pytest.skip("PostgreSQL is not installed here")
    return server


class Proxy:
    """Stands between a client and a server, and can stop forwarding without closing anything."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._forwards = threading.Event()
        self._forwards.set()
        self._clients: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def cut(self) -> None:
        """From now on swallow everything, as a network does that has lost the way."""
        self._forwards.clear()

    def mend(self) -> None:
        """Forward new connections again. Those that were cut are closed."""
        for client in tuple(self._clients):
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        self._forwards.set()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.mend()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(client,))
                self._clients.append(client)
                self._threads.append(thread)
                thread.start()

    def _serve(self, client: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            client,
            socket.create_connection(("127.0.0.1", self._target)) as server,
        ):
            other = {client: server, server: client}
            while True:
                for source in select.select([client, server], [], [])[0]:
                    data = source.recv(65536)
                    if not data:
                        return
                    if self._forwards.is_set():
                        other[source].sendall(data)


@contextlib.contextmanager
def proxy_to(server: Server) -> Iterator[Proxy]:
    proxy = Proxy(server.port)
    try:
        yield proxy
    finally:
        proxy.close()
