"""Every error that fleet raises on purpose. The branch says what a caller can do about it.

    FleetError                      exit code
    ├── Failed                      1    the work itself went wrong
    │   ├── GitFailed
    │   │   └── GitKilled
    │   ├── SetupFailed
    │   └── LaunchFailed
    ├── InvalidInput                2    correct the input and call again
    │   ├── BadConfig
    │   └── UnusableRepository
    ├── NotFound                    3    name something that exists
    ├── Conflict                    4    somebody else was first; look again
    │   ├── Stale
    │   ├── Fenced
    │   ├── BranchTaken
    │   ├── WorkspaceGone
    │   └── IllegalTransition
    ├── OverLimit                   6    a budget, a quota or the disk is used up
    │   ├── DiskFull
    │   └── NoRoom
    ├── Unavailable                 7    try again later, or repair what is named
    │   ├── MemberUnreachable
    │   ├── CoderMissing
    │   ├── StoreUnusable
    │   │   ├── StoreAway
    │   │   ├── StoreBehind
    │   │   ├── StoreDamaged
    │   │   └── StoreGone
    │   ├── SupervisorSilent
    │   └── TimedOut
    └── Refused                     8    whoever calls may not; ask somebody who may

5 is no error's: `fleet wait` ends with it when a person must decide.

A message is one sentence with the values in it; a hint is the next command to type.
"""

from __future__ import annotations

from typing import NamedTuple


class Next:
    """A follow-up: an operation and its arguments, which each front end spells in its own syntax."""

    __slots__ = ("arguments", "op")

    def __init__(self, op: str, **arguments: object) -> None:
        self.op = op
        self.arguments = arguments

    def __repr__(self) -> str:
        given = "".join(f", {name}={value!r}" for name, value in self.arguments.items())
        return f"Next({self.op!r}{given})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Next) and (self.op, self.arguments) == (other.op, other.arguments)

    def __hash__(self) -> int:
        return hash(self.op)


class Argument(NamedTuple):
    """An input of an operation, which each front end spells in its own syntax: `--update-checkout`."""

    op: str
    name: str


class Shell(NamedTuple):
    """A command that no operation does; a front end that has no shell says that it takes one."""

    command: str


HintPart = str | Next | Argument | Shell
Text = str | tuple[HintPart, ...]


def parts_of(text: Text) -> tuple[HintPart, ...]:
    return (text,) if isinstance(text, str) else text


def plain(text: Text) -> str:
    """Return a text as a log has it, with the names of operations; front ends spell them out instead."""

    def word(part: HintPart) -> str:
        match part:
            case str():
                return part
            case Next(op=name) | Argument(name=name) | Shell(command=name):
                return f"`{name}`"

    return "".join(map(word, parts_of(text)))


class FleetError(Exception):
    """Anything that fleet refuses or fails to do.

    Its message and hint are text, or text with follow-ups, arguments and commands in it:
    `hint=("see ", Next("race.show", race_id=name))`.
    """

    exit_code = 1

    def __init__(self, message: Text, *, hint: Text = "") -> None:
        super().__init__(plain(message))
        self.message_parts = parts_of(message)
        self.hint_parts = parts_of(hint)

    @property
    def message(self) -> str:
        return plain(self.message_parts)

    @property
    def hint(self) -> str:
        return plain(self.hint_parts)


class Failed(FleetError):
    exit_code = 1


class InvalidInput(FleetError):
    exit_code = 2


class NotFound(FleetError):
    exit_code = 3


class Conflict(FleetError):
    exit_code = 4


class OverLimit(FleetError):
    exit_code = 6


class Unavailable(FleetError):
    exit_code = 7


class Refused(FleetError):
    exit_code = 8


_DOCTOR = Shell("fleet doctor")
_EDIT = ("run ", Shell("fleet config edit"))


class GitFailed(Failed):
    def __init__(self, command: str, reason: str) -> None:
        hint = ("run ", _DOCTOR, ", or the command by hand to see more")
        super().__init__(f"`git {command}` failed: {reason}", hint=hint)
        self.reason = reason


class GitKilled(GitFailed):
    """A signal ended it, so its lock files may be left."""


class SetupFailed(Failed):
    def __init__(self, command: str, code: int, log: str) -> None:
        hint = f"read {log}, or create the agent with the option `quick`, which skips the setup"
        super().__init__(f"setup command {command!r} ended with exit code {code}", hint=hint)


class LaunchFailed(Failed):
    pass


class BadConfig(InvalidInput):
    def __init__(self, path: str, reason: str, *, hint: Text = _EDIT) -> None:
        super().__init__(f"{path}: {reason}", hint=hint)
        self.path = path
        self.reason = reason


class UnusableRepository(InvalidInput):
    pass


class Stale(Conflict):
    """Another writer changed the record, or the stream, since it was read."""

    def __init__(self, kind: str, key: str) -> None:
        self.kind = kind
        super().__init__(f"{kind} {key!r} was changed by somebody else meanwhile", hint="look again")


class Fenced(Conflict):
    """The word of a former holder, which counts no more."""

    def __init__(self, task: str, token: int, newest: int) -> None:
        message = f"task {task} is not held with token {token} any more (the newest is {newest})"
        super().__init__(message, hint=("see who holds it with ", Next("task.show", task_id=task)))


class BranchTaken(Conflict):
    pass


class WorkspaceGone(Conflict):
    """Somebody deleted the folder of a workspace that an agent is to go on in."""

    def __init__(self, branch: str, folder: str) -> None:
        from shlex import quote

        word = quote(branch)
        kill, undo = Shell(f"fleet kill {word}"), Shell(f"fleet undo {word}")
        hint = (kill, ", then ", undo, " brings it back, as its branch has it")
        super().__init__(f"the workspace of {branch!r} is gone: there is no folder {folder}", hint=hint)


class IllegalTransition(Conflict):
    def __init__(self, run: str, old: str, new: str) -> None:
        hint = ("look again with ", Next("run.list", all=True))
        super().__init__(f"run {run} is {old} and cannot become {new}", hint=hint)


class DiskFull(OverLimit):
    def __init__(self, path: str, free_mb: int, wanted_mb: int) -> None:
        message = f"only {free_mb} MB are free on the disk of {path}, and {wanted_mb} MB must stay free"
        clean, lower = Shell("fleet clean"), Shell("fleet config set")
        super().__init__(message, hint=("run ", clean, ", or lower limits.min_free_mb with ", lower))


class NoRoom(OverLimit):
    """A disk, or a quota on it, was full while something was written."""


class MemberUnreachable(Unavailable):
    def __init__(self, member: str, reason: str) -> None:
        hint = "see whether it is up and `ssh` gets in, then try again"
        super().__init__(f"cannot reach member {member!r}: {reason}", hint=hint)
        self.member = member


class CoderMissing(Unavailable):
    def __init__(self, coder: str, binary: str, install: str) -> None:
        first = f"install it with `{install}`, then run " if install else "run "
        super().__init__(f"coder {coder!r} needs {binary!r}, which is not on PATH", hint=(first, _DOCTOR))


class StoreUnusable(Unavailable):
    pass


class StoreAway(StoreUnusable):
    """It cannot be reached just now; nothing says that it is broken."""


_REPAIR = (
    Shell("fleet list --repair"),
    " rebuilds the records from the agents' folders, and keeps the damaged files",
)


class StoreBehind(StoreUnusable):
    """The store went back in time: it lacks writes that it had acknowledged."""

    def __init__(self, path: str, found: int, known: int) -> None:
        super().__init__(
            f"{path} went back in time: the last {known - found} of its {known} writes are missing, for its"
            " -wal file was damaged, cut or deleted, or an older copy was put back;"
            " nothing was changed, and agents run on",
            hint=_REPAIR,
        )


class StoreGone(StoreUnusable):
    """The file of a store that was in use is not there any more."""

    def __init__(self, path: str, known: int) -> None:
        hint = (*_REPAIR, f"; to begin with an empty store, delete {path}-generation")
        super().__init__(f"{path} is missing, and it had {known} writes; agents run on", hint=hint)


class StoreDamaged(StoreUnusable):
    """What is in the store's file cannot be read."""

    def __init__(self, path: str, reason: str) -> None:
        message = f"{path} is damaged or no database ({reason}); nothing was changed in it"
        super().__init__(message, hint=_REPAIR)


class SupervisorSilent(Unavailable):
    pass


class TimedOut(Unavailable):
    """What was waited for has not happened in the time that was given for it."""
