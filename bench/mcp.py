"""`fleet mcp` beside a bare server of the same SDK: `python -m bench.mcp`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.common import FLEET, Row, Scratch, best_of, scratch

STARTS, CALLS = 12, 300
BARE = [sys.executable, "-m", "bench.bareserver"]
OURS = [*FLEET, "mcp"]
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Conversation:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._number = 0

    def ask(self, method: str, **params: Any) -> bytes:
        """Ask, and return the line of the answer."""
        assert self._process.stdin
        assert self._process.stdout
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method}
        body = json.dumps({**message, "params": {**params, "_meta": ENVELOPE}})
        self._process.stdin.write(body.encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        answer = json.loads(line)
        assert answer["id"] == self._number, answer
        assert not answer["result"].get("isError"), answer
        return line

    def call(self, tool: str, **arguments: Any) -> bytes:
        return self.ask("tools/call", name=tool, arguments=arguments)


@contextmanager
def talking(place: Scratch, command: list[str]) -> Iterator[Conversation]:
    process = subprocess.Popen(
        command,
        env=place.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield Conversation(process)
    finally:
        assert process.stdin
        process.stdin.close()
        process.wait()


def measure(place: Scratch) -> Iterator[Row]:
    python = best_of(STARTS, lambda: subprocess.run([sys.executable, "-c", "pass"], env=place.environment))
    bare, ours = _starts(place)
    yield Row("python -c pass", python, "ms")
    yield Row("fleet mcp, start to the first answer", ours, "ms", bare, goal=1.3)
    with talking(place, BARE) as conversation:
        echo = _round_trip(conversation, "echo", text="x")
    for tools in ("default", "all"):
        with talking(place, [*OURS, "--tools", tools]) as conversation:
            yield Row(f"tools/list, --tools {tools}", len(conversation.ask("tools/list")) / 1000, "kB")
            if tools == "default":
                for tool in ("list_questions", "list_workers"):
                    yield Row(f"round trip of {tool}", _round_trip(conversation, tool), "ms", echo)
    for tools in ("workers", "workflows", "runs", "questions", "merges", "tasks", "pairs", "races"):
        with talking(place, [*OURS, "--tools", tools]) as conversation:
            listed = len(conversation.ask("tools/list")) / 1000
            yield Row(f"tools/list, --tools {tools} (health included)", listed, "kB")


def _starts(place: Scratch) -> tuple[float, float]:
    """Measure both by turns, so that what disturbs one disturbs the other."""
    took: dict[str, list[float]] = {"bare": [], "ours": []}
    for _ in range(STARTS):
        for name, command in (("bare", BARE), ("ours", OURS)):
            begin = time.perf_counter()
            with talking(place, command) as conversation:
                conversation.ask("tools/list")
                took[name].append((time.perf_counter() - begin) * 1000)
    return min(took["bare"]), min(took["ours"])


def _round_trip(conversation: Conversation, tool: str, **arguments: Any) -> float:
    """Return the median of many calls, in milliseconds."""
    conversation.call(tool, **arguments)
    took: list[float] = []
    for _ in range(CALLS):
        begin = time.perf_counter()
        conversation.call(tool, **arguments)
        took.append((time.perf_counter() - begin) * 1000)
    return sorted(took)[CALLS // 2]


def main() -> None:
    with scratch() as place:
        for row in measure(place):
            print(row.text(), flush=True)


if __name__ == "__main__":
    main()
