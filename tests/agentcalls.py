"""Calls tools of `fleet mcp` as an agent would: a program for scripted agents to run.

    python agentcalls.py OUTPUT CALLS

CALLS is a JSON list of [variables, tool, arguments]: each is one server, started with these variables changed
(null takes one away), and one call. OUTPUT gets a JSON list of the answers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "agent", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def call(variables: dict[str, str | None], tool: str, arguments: dict[str, object]) -> object:
    changed = {**os.environ, **{name: value or "" for name, value in variables.items()}}
    environment = {name: value for name, value in changed.items() if variables.get(name, "") is not None}
    params = {"name": tool, "arguments": arguments, "_meta": ENVELOPE}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    with subprocess.Popen(
        [sys.executable, "-m", "fleet", "mcp", "--tools", "all"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        assert server.stdin
        assert server.stdout
        server.stdin.write(json.dumps(message) + "\n")
        server.stdin.flush()
        while "id" not in (answer := json.loads(server.stdout.readline())):
            pass
        server.stdin.close()
    return answer.get("result", answer)["structuredContent"]


def main(output: str, calls: str) -> None:
    answers = [call(*one) for one in json.loads(calls)]
    with open(f"{output}.new", "w") as file:  # noqa: PTH123
        json.dump({"answers": answers, "token": os.environ.get("FLEET_RUN_TOKEN")}, file)
    os.replace(f"{output}.new", output)  # noqa: PTH105


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
