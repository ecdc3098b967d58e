"""The programs that fleet's MCP server can be registered with, and where each of them keeps what."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from fleet.domain.event import Json

SERVER = "fleet"  # its name in each client's file
STATUS_LINE = ("statusLine",)  # of claude; one that the user has is theirs to choose


class Scope(StrEnum):
    USER = "user"
    PROJECT = "project"


class Format(StrEnum):
    JSON = "json"  # with comments
    TOML = "toml"
    TEXT = "text"  # the whole file is ours


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a client starts the server."""

    command: str
    args: tuple[str, ...]
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Something of ours in a file of a client's: a value at a path, or the whole file."""

    file: str
    format: Format
    path: tuple[str, ...] = ()
    value: Json
    what: str  # in a word or two
    clients: tuple[str, ...] = ()  # that read it
    project: str = ""  # "" for the user's own files


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where to look: the user's home, the project, and what the environment says of both."""

    home: Path
    project: Path | None
    environ: Mapping[str, str]

    def base(self, variable: str, usual: str) -> Path:
        """Return the folder that a variable names, else the usual one in the user's home."""
        given = self.environ.get(variable)
        return Path(given).absolute() if given else self.home / usual


def _command(launch: Launch, **more: Json) -> dict[str, Json]:
    env: dict[str, Json] = {"env": {**launch.env}} if launch.env else {}
    return {**more, "command": launch.command, "args": [*launch.args], **env}


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    folder: Callable[[Places], Path]  # of the user's settings; where there is one, the client is in use
    file: str | Callable[[Places], Path]  # with the user's servers: a name in that folder, or elsewhere
    project_file: str
    path: tuple[str, ...] = ("mcpServers", SERVER)  # of the server in these files
    entry: Callable[[Launch], dict[str, Json]] = _command
    format: Format = Format.JSON
    skills: str = ".agents/skills"
    user_skills: Callable[[Places], Path] = lambda places: places.home / ".agents" / "skills"
    binaries: tuple[str, ...] = ()  # else one that has the client's name

    def server_piece(self, scope: Scope, places: Places, launch: Launch) -> Piece:
        if scope is Scope.PROJECT:
            file = _project(places) / self.project_file
        else:
            file = self.folder(places) / self.file if isinstance(self.file, str) else self.file(places)
        return Piece(
            file=str(file), format=self.format, path=self.path, value=self.entry(launch), what="the server"
        )

    def skills_folder(self, scope: Scope, places: Places) -> Path:
        return self.user_skills(places) if scope is Scope.USER else _project(places) / self.skills


def _project(places: Places) -> Path:
    assert places.project is not None
    return places.project


def _claude_folder(places: Places) -> Path:
    return places.base("CLAUDE_CONFIG_DIR", ".claude")


def _opencode_folder(places: Places) -> Path:
    return places.base("XDG_CONFIG_HOME", ".config") / "opencode"


def _opencode_file(places: Places) -> Path:
    commented = _opencode_folder(places) / "opencode.jsonc"
    return commented if commented.exists() else commented.with_suffix(".json")


def _opencode_entry(launch: Launch) -> dict[str, Json]:
    env: dict[str, Json] = {"environment": {**launch.env}} if launch.env else {}
    return {"type": "local", "command": [launch.command, *launch.args], "enabled": True, **env}


def _vscode_folder(places: Places) -> Path:
    if sys.platform == "darwin":
        return places.home / "Library" / "Application Support" / "Code" / "User"
    return places.base("XDG_CONFIG_HOME", ".config") / "Code" / "User"


CLIENTS: Mapping[str, Client] = {
    "claude": Client(
        folder=_claude_folder,
        # Beside the folder of the settings, unless that was moved.
        file=lambda places: places.base("CLAUDE_CONFIG_DIR", "") / ".claude.json",
        project_file=".mcp.json",
        entry=lambda launch: _command(launch, type="stdio"),
        skills=".claude/skills",
        user_skills=lambda places: _claude_folder(places) / "skills",
    ),
    "codex": Client(
        folder=lambda places: places.base("CODEX_HOME", ".codex"),
        file="config.toml",
        project_file=".codex/config.toml",
        path=("mcp_servers", SERVER),
        format=Format.TOML,
    ),
    "gemini": Client(
        folder=lambda places: places.base("GEMINI_CLI_HOME", "") / ".gemini",
        file="settings.json",
        project_file=".gemini/settings.json",
    ),
    "copilot": Client(
        folder=lambda places: places.base("COPILOT_HOME", ".copilot"),
        file="mcp-config.json",
        project_file=".github/mcp.json",
        entry=lambda launch: _command(launch, type="local", tools=["*"]),
    ),
    "opencode": Client(
        folder=_opencode_folder,
        file=_opencode_file,
        project_file="opencode.json",
        path=("mcp", SERVER),
        entry=_opencode_entry,
    ),
    "cursor": Client(
        folder=lambda places: places.home / ".cursor",
        file="mcp.json",
        project_file=".cursor/mcp.json",
        binaries=("cursor", "cursor-agent"),
    ),
    "vscode": Client(
        folder=_vscode_folder,
        file="mcp.json",
        project_file=".vscode/mcp.json",
        path=("servers", SERVER),
        entry=lambda launch: _command(launch, type="stdio"),
        binaries=("code",),
    ),
}


def status_line(places: Places, launch: Launch) -> Piece:
    """Return the line below claude's prompt that tells how the fleet is."""
    environ = ("env", *(f"{name}={value}" for name, value in launch.env.items())) if launch.env else ()
    command = shlex.join((*environ, launch.command, *launch.args[:-1], "statusline"))
    return Piece(
        file=str(_claude_folder(places) / "settings.json"),
        format=Format.JSON,
        path=STATUS_LINE,
        value={"type": "command", "command": command},
        what="the status line",
    )


def clients_in_use(places: Places, is_installed: Callable[[str], bool]) -> list[str]:
    """Return the clients that are there: by their program, or by a folder of settings."""
    return [
        name
        for name, client in CLIENTS.items()
        if any(map(is_installed, client.binaries or (name,))) or client.folder(places).is_dir()
    ]
