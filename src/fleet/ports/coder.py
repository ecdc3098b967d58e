"""One agent CLI: how to start it, and how to read what it prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from fleet.domain.event import Event
from fleet.domain.run import Mode, Role


class Tiers(NamedTuple):
    """Model names for cheap, ordinary and hard work; "" leaves the choice to the CLI."""

    cheap: str = ""
    standard: str = ""
    premium: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known about a CLI without running it."""

    name: str
    binary: str
    install: str = ""  # a command for people to type
    update: str = ""
    version_argv: tuple[str, ...] = ("--version",)
    login_variables: tuple[str, ...] = ()  # any one of them set means "logged in"
    login_files: tuple[str, ...] = ()  # any one of them present means so too; ~ and $VARIABLES are expanded
    login_hint: str = ""  # the command that logs in
    modes: frozenset[Mode] = frozenset({Mode.HEADLESS})
    resumes: bool = True  # a further prompt continues the CLI's own session
    signals_turns: bool = False  # in tmux, its hooks tell when a turn begins and ends
    report: str = ""  # a file that the CLI leaves in the turn's folder; its content is read as a last line
    closes_stream: bool = True  # a turn that ended well always has a TURN_END event
    tiers: Tiers = Tiers()
    context_window: int = 200_000
    free_flags: tuple[str, ...] = ()  # with a value each, that change nothing about what an agent may do
    effort_flags: tuple[str, ...] = ()  # that say how hard the model is to think; {} stands for the word


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One prompt, and everything needed to start the CLI on it."""

    prompt: str
    folder: str  # this turn's own folder; Launch.files are put there before the start
    workspace: str
    git_folders: tuple[str, ...]  # outside the workspace, yet needed to commit in it
    hook: tuple[str, ...]  # argv of a program that keeps what it gets on stdin as a hook payload
    mode: Mode = Mode.HEADLESS
    role: Role = Role.DOER
    model: str = ""  # a tier, a model's name, or "" for the CLI's own choice
    session: str = ""  # continue this session of the CLI
    new_session: str = ""  # a fresh UUID, for CLIs that let the caller choose
    flags: tuple[str, ...] = ()  # the user's own, handed on as they are
    allow_commands: tuple[str, ...] = ()  # command prefixes that a doer may run without asking
    skip_permissions: bool = False  # the user said so


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start the CLI on a turn."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])  # by name in the turn's folder
    stdin: bytes = b""  # a headless agent reads it to its end; an agent in tmux has the terminal
    session: str = ""  # the id that the CLI is told to use, where it can be told
    paste: bool = False  # tmux: the prompt is not in argv; paste it once the CLI says READY


class Coder(Protocol):
    """A table of facts and three pure functions."""

    @property
    def facts(self) -> Facts: ...

    def launch(self, turn: Turn) -> Launch:
        """Say how to start the CLI on a turn. The prompt reaches it byte for byte."""
        ...

    def read(self, line: bytes) -> Sequence[Event]:
        """Turn one line of output (without its line end) into events. Never raises, whatever the line."""
        ...

    def read_hook(self, payload: bytes) -> Sequence[Event]:
        """Turn one hook payload into events (tmux mode). Never raises."""
        ...
