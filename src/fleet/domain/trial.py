"""Commands that the engine runs on a commit, in a clean checkout of its own, to learn what they say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from fleet.domain.ids import TrialId

MOST_ATTEMPTS = 3  # a command that is lost in each of them is taken to end itself: it says no


class TrialState(StrEnum):
    WAITING = "waiting"  # wanted, or under way
    ENDED = "ended"  # every command has said what it had to say
    IMPOSSIBLE = "impossible"  # there is no such checkout, or a command cannot even be started
    STOPPED = "stopped"  # nobody wants to know any more


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """Paths that are taken as they are in another commit; what is not there is not in the checkout either."""

    commit: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a command said. Without a code it was ended, for it took too long, or it was lost every time."""

    command: str
    code: int | None
    seconds: float = 0.0
    said: str = ""  # its last words

    @property
    def is_yes(self) -> bool:
        return self.code == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One commit, one checkout, and commands that are run in it one after the other."""

    id: TrialId
    project: str
    commit: str
    commands: tuple[str, ...]
    host: str
    created_at: float
    patches: tuple[Patch, ...] = ()
    times: int = 1  # how often each command is run
    stops_at_no: bool = True  # whether a command that says no spares the ones after it
    is_wanted: bool = True
    state: TrialState = TrialState.WAITING
    attempt: int = 1  # each has a checkout of its own
    answers: tuple[Answer, ...] = ()  # command by command, time by time
    reason: str = ""  # why it was impossible

    @property
    def has_ended(self) -> bool:
        return self.state is not TrialState.WAITING

    @property
    def is_yes(self) -> bool:
        """Whether all commands were run as often as they were to be, and each of them said yes."""
        is_whole = len(self.answers) == len(self.commands) * self.times
        return self.state is TrialState.ENDED and is_whole and all(one.is_yes for one in self.answers)

    def begin_anew(self) -> Trial:
        """Return the trial after a lost command. All run again: what others left for it may be lost, too."""
        return replace(self, attempt=self.attempt + 1, answers=())

    def verdict_of(self, answer: Answer) -> str:
        """Put what a command said into words; one that was cut off with the trial has said nothing."""
        if answer.code is None and not self.is_wanted:
            return "was cut off"
        return "passed" if answer.is_yes else "failed"

    def rounds(self, command: str) -> tuple[Answer, ...]:
        return tuple(answer for answer in self.answers if answer.command == command)

    @property
    def flaky(self) -> tuple[str, ...]:
        """The commands that said yes as well as no to the very same commit."""
        said = {command: {one.is_yes for one in self.rounds(command)} for command in self.commands}
        return tuple(command for command in self.commands if len(said[command]) > 1)
