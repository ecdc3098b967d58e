"""A coding agent that does what a script tells it: a real program for tests, without a model.

    python -m fleet.testing.scripted [--session ID | --resume ID] [--scenario FILE] [--role ROLE]
    python -m fleet.testing.scripted --tui [--hook JSON] [--prompt TEXT] …

Headless it reads the prompt from stdin, plays a scenario in its working directory, tells what it does in JSON
lines, and ends. With --tui it is an interactive program that takes one prompt after the other.

The scenario of a prompt is, in this order: `[[scenario:JSON]]` in the prompt, or in the latest one before it
in the session if that has turns; the file named by --scenario or $FLEET_SCENARIO (JSON or TOML); or else:
write a file named after the prompt. A scenario is a list of steps, or {"steps": […]}, or
{"turns": [[…], […]]} with a list for each prompt of a session. A step is an object with one key:

    say TEXT                    commit MESSAGE              tool {name, summary, ok, seconds}
    think TEXT                  delete PATH                 usage {input, output, cached, cost_usd, scope,
                                                                   context, window}
    edit {path, content}        touch PATH                  deny TEXT
    append {path, content}      ask QUESTION                approve TEXT
    sleep SECONDS               wait_for PATH               retry TEXT
    crash CODE or "KILL"        error TEXT                  rate_limit {resets_in or resets_at}
    login TEXT                  context TEXT                budget TEXT
    flood {bytes, long_line, invalid}                       ignore_signals true
    spawn {kind: plain | escaped | deaf, pid_file, seconds}  run COMMAND
    once {mark, steps}: play these steps unless the file `mark` is there, and make it first

`error`, `rate_limit`, `login`, `context` and `budget` end the turn badly, each for the cause that it is named
after. A rate limit is over in `resets_in` seconds (60) or at the time `resets_at`; if that is null, nobody
knows when. A tool is under way for its `seconds`. `context` tokens are in use, of `window`.
`touch` appends "pid start-time" to a file, as does every start to $FLEET_SCRIPTED_STARTS. In texts, {prompt},
{prompts} (how many the session has had) and {session} are filled in. Sessions are kept in
$FLEET_SCRIPTED_HOME, or in the repository's git folder, never in the workspace.
"""

# Tests start this program hundreds of times, so only modules that are cheap to load are imported at the top.
# ruff: noqa: PTH103, PTH105, PTH108, PTH110, PTH120, PTH123

from __future__ import annotations

import json
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import NoReturn, TypeAlias

    Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
    Step: TypeAlias = dict[str, Json]

INLINE = "[[scenario:"
PASTE_BEGINS, PASTE_ENDS = b"\x1b[200~", b"\x1b[201~"
OPTIONS = ("session", "resume", "scenario", "role", "model", "hook", "prompt", "tui")
WRITING = ("edit", "append", "delete", "commit")
TO_HOOK = ("ready", "session", "prompted", "needs_approval", "asked", "limit", "turn_end")  # events
MODES = {"edit": "w", "append": "a"}  # in which steps open the file that they write to
TELLING = {"think": "thought", "ask": "asked", "deny": "denied", "retry": "retry"}  # steps that only tell
FAILING: dict[str, Step] = {  # steps that only end the turn, and what they say of the failure
    "login": {"code": 401, "cause": "login"},
    "context": {"cause": "context"},
    "budget": {"cause": "budget"},
}


class TurnFailed(Exception):
    def __init__(self, reason: str, **data: Json) -> None:
        super().__init__(reason)
        self.reason = reason
        self.data = data


class BadScenario(Exception):
    """The script cannot be played."""


def read_options(words: list[str]) -> dict[str, str]:
    """Read the command line. argparse alone would take as long to load as everything else here."""
    options: dict[str, str] = dict.fromkeys(OPTIONS, "")
    rest = iter(words)
    for word in rest:
        name, _, value = word.removeprefix("--").partition("=")
        if name not in OPTIONS or not word.startswith("--"):
            raise BadScenario(f"unknown option {word!r}")
        if "=" not in word:
            value = "yes" if name == "tui" else next(rest, "")
        options[name] = value
    return options


class Session:
    """What the agent remembers from one prompt to the next."""

    def __init__(self, name: str, folder: str) -> None:
        self.name = name
        self.path = f"{folder}/{name}.json"
        self.prompts: list[str] = []

    def load(self) -> bool:
        try:
            with open(self.path, encoding="utf-8") as file:
                self.prompts = json.load(file)
        except FileNotFoundError:
            return False
        return True

    def add(self, prompt: str) -> None:
        self.prompts.append(prompt)
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        with open(f"{self.path}.{os.getpid()}", "w", encoding="utf-8") as file:
            json.dump(self.prompts, file)
        os.replace(file.name, self.path)


def session_folder() -> str:
    chosen = os.environ.get("FLEET_SCRIPTED_HOME")
    if chosen:
        return chosen
    try:
        with open(".git", encoding="utf-8") as file:  # a worktree's .git is a file that names its folder,
            own = file.read().partition("gitdir:")[2].strip()  # which goes away with the workspace
            return os.path.dirname(os.path.dirname(own)) + "/fleet-scripted"
    except IsADirectoryError:
        return ".git/fleet-scripted"
    except FileNotFoundError:
        return f"/tmp/fleet-scripted-{os.getuid()}"


def scenario_of(prompts: list[str], path: str) -> Json:
    if INLINE in prompts[-1]:
        return inline_scenario(prompts[-1])
    earlier = next((prompt for prompt in reversed(prompts) if INLINE in prompt), "")
    remembered = inline_scenario(earlier) if earlier else None
    if isinstance(remembered, dict) and "turns" in remembered:
        return remembered
    path = path or os.environ.get("FLEET_SCENARIO", "")
    return read_scenario(path) if path else default_scenario(prompts[-1])


def inline_scenario(prompt: str) -> Json:
    text = prompt.partition(INLINE)[2]
    try:
        return json.JSONDecoder().raw_decode(text.strip())[0]
    except ValueError as problem:
        raise BadScenario(f"the prompt's scenario is no JSON: {problem}") from problem


def read_scenario(path: str) -> Json:
    try:
        with open(path, "rb") as file:
            data = file.read()
        if not path.endswith(".toml"):
            return json.loads(data)
        import tomllib

        return tomllib.loads(data.decode())
    except (OSError, ValueError) as problem:
        raise BadScenario(f"cannot read the scenario {path}: {problem}") from problem


def default_scenario(prompt: str) -> Json:
    kept = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in prompt.lower()[:40])
    name = f"{kept.strip('-') or 'prompt'}.txt"
    return [
        {"edit": {"path": name, "content": prompt + "\n"}},
        {"usage": {"input": 100, "output": 20, "cost_usd": 0.001}},
        {"say": f"I wrote {name}."},
    ]


def steps_of(scenario: Json, turn: int) -> list[Json]:
    """The steps for the n-th prompt of a session, counted from 1; the last list serves all further ones."""
    if isinstance(scenario, dict):
        turns = scenario.get("turns")
        if isinstance(turns, list) and turns:
            return steps_of(turns[min(turn, len(turns)) - 1], turn)
        scenario = scenario.get("steps")
    if not isinstance(scenario, list):
        raise BadScenario("a scenario is a list of steps")
    return scenario


class Player:
    """Plays one scenario: does what it says, and tells of it."""

    def __init__(
        self, session: Session, role: str, tell: Callable[[Step], None], approve: Callable[[], bool]
    ) -> None:
        self.session = session
        self.role = role
        self.tell = tell
        self.approve_now = approve
        self.calls = 0
        self.last_word = ""

    def play(self, steps: Iterable[Json]) -> None:
        for step in steps:
            if not isinstance(step, dict) or len(step) != 1:
                raise BadScenario(f"a step is an object with one key, not {step!r}")
            ((name, value),) = step.items()
            if name in WRITING and self.role == "reviewer":
                self.say_event("denied", f"{name}: a reviewer changes nothing")
            elif name in MODES:
                self.write(value, MODES[name])
            elif name in TELLING:
                self.say_event(TELLING[name], value)
            elif name in FAILING:
                raise TurnFailed(self.text(value), **FAILING[name])
            elif action := getattr(self, f"do_{name}", None):
                action(value)
            else:
                raise BadScenario(f"unknown step {name!r}")

    def say_event(self, event: str, value: Json) -> str:
        text = self.text(value)
        self.tell({"event": event, "text": text})
        return text

    def text(self, value: Json) -> str:
        text = value if isinstance(value, str) else json.dumps(value)
        prompts = self.session.prompts
        text = text.replace("{prompts}", str(len(prompts))).replace("{session}", self.session.name)
        return text.replace("{prompt}", prompts[-1]) if prompts else text

    def field(self, value: Json, name: str, otherwise: Json = "") -> Json:
        return value.get(name, otherwise) if isinstance(value, dict) else otherwise

    def number(self, value: Json, otherwise: float) -> float:
        return float(value) if isinstance(value, int | float) else otherwise

    def called(self, name: str, summary: str, work: Callable[[], int] = lambda: 0) -> int:
        """Tell of a tool call, with its work between beginning and end; return the work's exit code."""
        self.calls += 1
        call = f"call-{self.calls}"
        self.tell({"event": "tool", "id": call, "name": name, "summary": summary})
        code = work()
        self.tell({"event": "tool_done", "id": call, "ok": code == 0})
        return code

    def inside(self, value: Json) -> str:
        path = self.text(value)
        if not path or path.startswith("/") or ".." in path.split("/"):
            raise BadScenario(f"{path!r} is no path inside the workspace")
        return path

    def do_say(self, value: Json) -> None:
        self.last_word = self.say_event("said", value)

    def write(self, value: Json, mode: str) -> None:
        path = self.inside(self.field(value, "path"))
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, mode, encoding="utf-8", newline="") as file:
            file.write(self.text(self.field(value, "content")))
        self.called("edit", path)

    def do_delete(self, value: Json) -> None:
        path = self.inside(value)
        os.unlink(path)
        self.called("delete", path)

    def do_commit(self, value: Json) -> None:
        message = self.text(value)
        code = run(["git", "add", "-A"]) or run(["git", "commit", "-q", "-m", message])
        self.called("commit", message, lambda: code)

    def do_tool(self, value: Json) -> None:
        def work() -> int:
            time.sleep(self.number(self.field(value, "seconds"), 0))
            return 0 if self.field(value, "ok", True) is True else 1

        self.called(self.text(self.field(value, "name")), self.text(self.field(value, "summary")), work)

    def do_run(self, value: Json) -> None:
        command = self.text(value)
        if code := self.called("run", command, lambda: run(["sh", "-c", command])):
            self.do_say(f"`{command}` ended with exit code {code}")

    def do_once(self, value: Json) -> None:
        try:
            with open(self.text(self.field(value, "mark")), "x", encoding="utf-8"):
                pass
        except FileExistsError:
            return
        self.play(steps_of(self.field(value, "steps"), 1))

    def do_touch(self, value: Json) -> None:
        count_start(self.text(value))

    def do_approve(self, value: Json) -> None:
        self.say_event("needs_approval", value)
        if not self.approve_now():
            self.say_event("denied", value)

    def do_usage(self, value: Json) -> None:
        numbers = value if isinstance(value, dict) else {}
        self.tell({"event": "usage", "scope": "run", **numbers})

    def do_sleep(self, value: Json) -> None:
        time.sleep(self.number(value, 0))

    def do_wait_for(self, value: Json) -> None:
        path = self.text(value)
        while not os.path.exists(path):
            time.sleep(0.01)

    def do_error(self, value: Json) -> None:
        raise TurnFailed(self.say_event("error", value))

    def do_rate_limit(self, value: Json) -> None:
        resets_in = self.number(self.field(value, "resets_in"), 60)
        resets_at = self.field(value, "resets_at", time.time() + resets_in)
        self.tell({"event": "limit", "rejected": True, "resets_at": resets_at})
        raise TurnFailed("a rate limit or quota is used up (429)", code=429, cause="limit")

    def do_crash(self, value: Json) -> None:
        if isinstance(value, str):
            import signal

            os.kill(os.getpid(), signal.Signals[f"SIG{value}"])
            time.sleep(60)  # the signal is on its way
        os._exit(int(self.number(value, 1)))

    def do_ignore_signals(self, value: Json) -> None:
        ignore_signals()

    def do_flood(self, value: Json) -> None:
        left = int(self.number(self.field(value, "bytes"), 1 << 20))
        letter = b"\xff" if self.field(value, "invalid", False) is True else b"x"
        size = left if self.field(value, "long_line", False) is True else 1000
        while left > 0:
            write_all(1, b'{"event":"said","text":"' + letter * min(size, left) + b'"}\n')
            left -= size

    def do_spawn(self, value: Json) -> None:
        kind = self.text(self.field(value, "kind", "plain"))
        spawn(kind, self.text(self.field(value, "pid_file")), self.number(self.field(value, "seconds"), 300))
        self.called("spawn", kind)


def run(argv: list[str], data: bytes = b"") -> int:
    """Run a program with `data` on its stdin and its output out of the way; return its exit code."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.dup2(reader, 0)
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            os.closerange(3, 64)
            os.execvp(argv[0], argv)
        finally:
            os._exit(127)
    os.close(reader)
    try:
        write_all(writer, data)
    except BrokenPipeError:
        pass  # it did not want to hear it all
    finally:
        os.close(writer)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def spawn(kind: str, pid_file: str, seconds: float) -> None:
    """Start a helper in our group, in a session of its own or deaf to SIGTERM; it is up when this returns."""
    ready, done = os.pipe()
    if os.fork() != 0:
        os.close(done)
        if kind == "escaped":
            os.wait()  # its first parent, which ends at once
        os.read(ready, 1)
        os.close(ready)
        return
    if kind == "escaped":
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
    if kind == "deaf":
        ignore_signals()
    if pid_file:
        with open(f"{pid_file}.{os.getpid()}", "w", encoding="utf-8") as file:
            file.write(f"{os.getpid()}\n")
        os.replace(file.name, pid_file)
    os.write(done, b".")
    os.close(done)
    time.sleep(seconds)
    os._exit(0)


def ignore_signals() -> None:
    import signal

    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)


def count_start(path: str) -> None:
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as stat:
        started = stat.read().rpartition(")")[2].split()[19]
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    write_all(handle, f"{os.getpid()} {started}\n".encode())
    os.close(handle)


def write_all(handle: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(handle, left) :]


def tell_line(event: Step) -> None:
    write_all(1, json.dumps(event).encode() + b"\n")


def play_turn(player: Player, prompt: str, scenario: str) -> bool:
    """Play the scenario of one prompt and tell how the turn ended."""
    player.session.add(prompt)
    player.last_word = ""
    try:
        player.play(steps_of(scenario_of(player.session.prompts, scenario), len(player.session.prompts)))
    except TurnFailed as failure:
        ending: Step = {"ok": False, "reason": failure.reason, **failure.data}
    else:
        ending = {"ok": True}
    player.tell({"event": "turn_end", "text": player.last_word, **ending})
    return ending["ok"] is True


def open_session(options: dict[str, str]) -> Session:
    session = Session(options["resume"] or options["session"] or os.urandom(8).hex(), session_folder())
    if options["resume"] and not session.load():
        leave(f"no session {session.name!r} to resume", 1)
    return session


def leave(message: str, code: int) -> NoReturn:
    sys.stderr.write(f"scripted: {message}\n")
    sys.exit(code)


def run_headless(options: dict[str, str]) -> int:
    session = open_session(options)
    tell_line({"event": "session", "session": session.name, "model": options["model"]})
    player = Player(session, options["role"], tell_line, approve=lambda: False)
    prompt = sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
    return 0 if play_turn(player, prompt, options["scenario"]) else 1


class Terminal:
    """Keyboard and screen: raw, with bracketed paste, so that a pasted prompt arrives byte for byte."""

    def __init__(self, hook: list[str]) -> None:
        import termios

        self.hook = hook
        self.termios = termios
        self.saved = termios.tcgetattr(0)
        raw = termios.tcgetattr(0)
        raw[0] &= ~(termios.ICRNL | termios.IXON | termios.INLCR | termios.IGNCR | termios.ISTRIP)
        raw[3] &= ~(termios.ECHO | termios.ICANON | termios.ISIG | termios.IEXTEN)
        termios.tcsetattr(0, termios.TCSANOW, raw)
        self.waiting = b""
        write_all(1, b"\x1b[?2004h")

    def close(self) -> None:
        write_all(1, b"\x1b[?2004l")
        self.termios.tcsetattr(0, self.termios.TCSANOW, self.saved)

    def echo(self, typed: bytes) -> bytes:
        """Show what was typed or pasted, without letting it control the terminal."""
        write_all(1, bytes(letter if letter >= 32 or letter in b"\n\t" else 63 for letter in typed))
        return typed

    def show(self, text: str) -> None:
        write_all(1, text.encode("utf-8", "replace") + b"\n")

    def more(self) -> bool:
        data = os.read(0, 65536)
        self.waiting += data
        return bool(data)

    def key(self) -> bytes:
        while not self.waiting and self.more():
            pass
        key, self.waiting = self.waiting[:1], self.waiting[1:]
        return key

    def prompt(self) -> bytes | None:
        """The next text that was typed or pasted and sent off with Enter; None when nobody is there."""
        typed = b""
        write_all(1, b"scripted> ")
        while True:
            key = self.key()
            if key == b"" or (key == b"\x04" and not typed):
                return None
            if key in b"\r\n":
                self.show("")
                return typed
            if key == b"\x1b":
                typed += self.echo(self.pasted())
            elif key == b"\x7f":
                typed = typed[:-1]
            elif key != b"\x03":
                typed += self.echo(key)

    def pasted(self) -> bytes:
        """What stands between the two marks of a paste; nothing for any other escape sequence."""
        mark = PASTE_BEGINS[1:]
        while len(self.waiting) < len(mark) and mark.startswith(self.waiting) and self.more():
            pass
        if not self.waiting.startswith(mark):
            return b""
        text = self.waiting[len(mark) :]
        self.waiting = b""
        while PASTE_ENDS not in text and self.more():
            text, self.waiting = text + self.waiting, b""
        text, _, self.waiting = text.partition(PASTE_ENDS)
        return text

    def tell(self, event: Step) -> None:
        """Tell a person on the screen, and fleet through its hook."""
        if event["event"] not in ("ready", "prompted"):
            self.show(f"{event['event']}: {event.get('text') or event.get('summary') or ''}")
        if self.hook and event["event"] in TO_HOOK:
            run(self.hook, json.dumps(event).encode())

    def approve(self) -> bool:
        self.show("Do you allow it? (y/n)")
        return self.key() == b"y"


def run_tui(options: dict[str, str]) -> int:
    session, terminal = open_session(options), Terminal(json.loads(options["hook"] or "[]"))
    player = Player(session, options["role"], terminal.tell, terminal.approve)
    try:
        terminal.tell({"event": "session", "session": session.name, "model": options["model"]})
        prompt = options["prompt"].encode("utf-8", "surrogateescape")
        if not prompt:
            terminal.tell({"event": "ready"})
            prompt = terminal.prompt()
        while prompt is not None and prompt != b"/exit":
            text = prompt.decode("utf-8", "surrogateescape")
            if text:
                terminal.tell({"event": "prompted", "text": text})
                play_turn(player, text, options["scenario"])
            prompt = terminal.prompt()
    finally:
        terminal.close()
    return 0


def main() -> int:
    try:
        starts = os.environ.get("FLEET_SCRIPTED_STARTS")
        if starts:
            count_start(starts)
        if "--help" in sys.argv[1:]:
            print(__doc__)
            return 0
        options = read_options(sys.argv[1:])
        return run_tui(options) if options["tui"] else run_headless(options)
    except BadScenario as problem:
        leave(str(problem), 64)


if __name__ == "__main__":
    sys.exit(main())
