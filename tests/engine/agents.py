"""Agents for tests of pairs and sprints: programs that do and say what a script tells them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support import System, make_repository

# A reviewer that answers by a script: one entry for each round (the last serves all further ones), and for a
# second asking in it the entry's "again". It is a program of its own, so that no role keeps it from writing.
CRITIC = r"""
import json, os, re, subprocess, sys, time
prompt = sys.stdin.buffer.read().decode()
noted = sys.argv[1] + "/" + os.environ["FLEET_TASK_ID"]
if named := re.search(r"\[\[critic:(.+?)\]\]", prompt):
    open(noted, "w").write(named[1])
folder = open(noted).read()
script = json.load(open(folder + "/script.json"))
part = re.search(r"-(plan|phase-\d+)-review-", os.environ["FLEET_TASK_ID"])
script = script[part[1]] if isinstance(script, dict) else script
is_again = prompt.startswith("Your answer could not be read")
if is_again:
    number = open(folder + "/last").read()
else:
    number = re.search(r"This is review (\d+) of", prompt)[1]
    open(folder + "/last", "w").write(number)
open(folder + "/prompt-" + number + ("-again" if is_again else ""), "w").write(prompt)
with open(folder + "/calls", "a") as calls:
    calls.write((part[1] + ":" if part else "") + number + ("+" if is_again else "") + "\n")
entry = script[min(int(number), len(script)) - 1]
entry = entry.get("again", entry) if is_again else entry
ticket = re.findall(r'"review": "([0-9a-f]{12})"', prompt)[-1]
for path in entry.get("wait_for", []):
    while not os.path.exists(path):
        time.sleep(0.01)
for command in entry.get("run", []):
    subprocess.run(command, shell=True, check=True, stdout=subprocess.DEVNULL)
answer = {"review": ticket, "verdict": entry.get("verdict", "APPROVED")}
answer |= {name: entry[name] for name in ("findings", "resolved") if name in entry}
said = entry.get("say", "I have looked.\n```json\n{answer}\n```").replace("{answer}", json.dumps(answer))
print(json.dumps({"type": "result", "text": said}))
sys.exit(entry.get("exit", 0))
"""


class Critic:
    """The reviewer of a pair: what it is to say, and what it was asked."""

    def __init__(self, folder: Path, *entries: Mapping[str, Any]) -> None:
        self.folder = folder
        folder.mkdir()
        self.is_to(*entries)

    def is_to(self, *entries: Mapping[str, Any]) -> None:
        (self.folder / "script.json").write_text(json.dumps(entries))

    def is_to_say(self, **parts: list[dict[str, Any]]) -> None:
        """Say what it is to answer in each phase of a sprint (`phase_1`), and about its plan."""
        script = {name.replace("_", "-"): entries for name, entries in parts.items()}
        (self.folder / "script.json").write_text(json.dumps(script))

    @property
    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().split() if path.exists() else []

    def prompt(self, number: int) -> str:
        return (self.folder / f"prompt-{number}").read_text()


# A doer that does what a script says for what it is asked for: the plan, a task of it, or a fix in a phase.
BUILDER = r"""
import json, os, re, subprocess, sys, time
prompt = sys.stdin.buffer.read().decode()
part = re.search(r"-(plan|phase-\d+)-doer", os.environ["FLEET_TASK_ID"])[1]
noted = sys.argv[1] + "/builder-" + re.match(r"s-[^-]+", os.environ["FLEET_TASK_ID"])[0]
if named := re.search(r"\[\[builder:(.+?)\]\]", prompt):
    open(noted, "w").write(named[1])
folder = open(noted).read()
script = json.load(open(folder + "/builder.json"))
task = re.search(r"Do task (\S+) of the plan", prompt)
if "Another agent has reviewed your work" in prompt:
    key = part + " fix"
elif prompt.startswith("Your work was checked"):
    key = part + " gate"
else:
    key = task[1] if task else part
with open(folder + "/builds", "a") as builds:
    builds.write(" ".join([key.replace(" ", "-"), sys.argv[2], sys.argv[3]]) + "\n")
for command in script.get(key, ["echo %s >> built.txt" % key]):
    subprocess.run(command, shell=True, check=True, stdout=subprocess.DEVNULL)
subprocess.run("git add -A && git commit -q -m 'Did %s' || true" % key, shell=True, check=True)
print(json.dumps({"type": "result", "text": "I did " + key + "."}))
"""


def with_agents(folder: Path) -> System:
    """Return a home and a repository with these agents: critic and builder."""
    system = System(folder / "home", make_repository(folder / "repository"))
    (folder / "critic.py").write_text(CRITIC)
    (folder / "builder.py").write_text(BUILDER)
    jsonl = 'output = "jsonl"\ntext = "text"\nfinal = {field = "type", equals = "result"}\n'
    critic = json.dumps([sys.executable, "-I", "-S", str(folder / "critic.py"), str(folder), "{session}"])
    builder = [sys.executable, "-I", "-S", str(folder / "builder.py"), str(folder)]
    first, more = (json.dumps([*builder, "{model}", f"{word}{{session}}"]) for word in ("", "more-"))
    (folder / "home" / "config.toml").write_text(
        "[stop]\ngrace_seconds = 2\n[tasks]\nbackoff_seconds = 0.1\nmax_failures = 2\nmax_crashes = 0\n"
        "[limits]\nmax_concurrent = 20\n"
        f'[notify]\ncommand = "cat >> {folder}/notices; echo >> {folder}/notices"\n'
        f"[coders.critic]\ncommand = {critic}\nresume_command = {critic}\nreviewer_flags = []\n{jsonl}"
        'tiers = {premium = "best"}\n'
        f"[coders.builder]\ncommand = {first}\nresume_command = {more}\n{jsonl}"
        'tiers = {cheap = "small", standard = "medium", premium = "large"}\n'
        f'[coders.once]\ncommand = ["sh", "{folder}/once.sh"]\n'
    )
    return system
