"""Acts as another agent whose token it has read from /proc: a program for scripted agents to run.

    python stealing.py PID URL KEY OUTPUT

Calls `fleet mcp` over stdio and over HTTP at URL (whose token is KEY), and the command line, with the
environment of process PID, and writes what it was told to OUTPUT.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from tests.agentcalls import ENVELOPE, call

STOLEN = ("FLEET_RUN", "FLEET_RUN_TOKEN", "FLEET_TASK_ID")


def environment_of(pid: str) -> dict[str, str]:
    entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    pairs = [os.fsdecode(entry).partition("=") for entry in entries]
    return {name: value for name, _, value in pairs if name in STOLEN}


def post(url: str, key: str) -> str:
    params = {"name": "healthcheck", "arguments": {}, "_meta": ENVELOPE}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {
        "Authorization": f"Bearer {key}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "healthcheck",
    }
    request = urllib.request.Request(url, json.dumps(message).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as problem:
        return problem.read().decode()


def command(*words: str) -> dict[str, object]:
    done = subprocess.run([sys.executable, "-m", "fleet", *words], capture_output=True, text=True)
    return {"code": done.returncode, "told": done.stdout + done.stderr}


def main(pid: str, url: str, key: str, output: str) -> None:
    told = {
        "mcp": json.dumps(call({}, "healthcheck", {})),
        "http": post(url, key),
        "ask": command("ask", "Which colour?"),
        "close": command("task", "close", "--reason", "done"),
    }
    Path(f"{output}.new").write_text(json.dumps(told))
    os.replace(f"{output}.new", output)  # noqa: PTH105


if __name__ == "__main__":
    stolen = environment_of(sys.argv[1])
    if any(os.environ.get(name) != value for name, value in stolen.items()):
        # Begun anew, so that the environment that the kernel shows is the stolen one.
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **stolen})
    main(*sys.argv[1:])
