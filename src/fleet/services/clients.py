"""The programs that fleet's MCP server can be registered with, and where each of them keeps what."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from fleet.domain.event import Json

SERVER = "fleet"  # its name in each client's file


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

    file: Path
    format: Format
    path: tuple[str, ...] = ()
    value: Json = None
    what: str  # in a word or two
    gives_way: bool = False  # to what the user has there: it is theirs to choose


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    name: str
    binaries: tuple[str, ...]
    folder: Callable[[Places], Path]  # of the user's settings; where there is one, the client is in use
    user_file: Callable[[Places], Path]
    project_file: str
    path: tuple[str, ...]  # of the server in these files
    entry: Callable[[Launch], dict[str, Json]]
    format: Format = Format.JSON
    skills: str = ".agents/skills"
    user_skills: Callable[[Places], Path] = lambda places: places.home / ".agents" / "skills"

    def server_piece(self, scope: Scope, places: Places, launch: Launch) -> Piece:
        return Piece(
            file=self._file(scope, places),
            format=self.format,
            path=self.path,
            value=self.entry(launch),
            what="the server",
        )

    def _file(self, scope: Scope, places: Places) -> Path:
        if scope is Scope.USER:
            return self.user_file(places)
        assert places.project is not None
        return places.project / self.project_file

    def skills_folder(self, scope: Scope, places: Places) -> Path:
        if scope is Scope.USER:
            return self.user_skills(places)
        assert places.project is not None
        return places.project / self.skills


def _command(launch: Launch, **more: Json) -> dict[str, Json]:
    env: dict[str, Json] = {"env": {**launch.env}} if launch.env else {}
    return {**more, "command": launch.command, "args": [*launch.args], **env}


def _opencode_entry(launch: Launch) -> dict[str, Json]:
    env: dict[str, Json] = {"environment": {**launch.env}} if launch.env else {}
    return {"type": "local", "command": [launch.command, *launch.args], "enabled": True, **env}


def _claude_folder(places: Places) -> Path:
    return places.base("CLAUDE_CONFIG_DIR", ".claude")


def _claude_file(places: Places) -> Path:
    """Return the file with the user's servers: beside the folder of the settings, unless that was moved."""
    return places.base("CLAUDE_CONFIG_DIR", "") / ".claude.json"


def _opencode_folder(places: Places) -> Path:
    return places.base("XDG_CONFIG_HOME", ".config") / "opencode"


def _opencode_file(places: Places) -> Path:
    commented = _opencode_folder(places) / "opencode.jsonc"
    return commented if commented.exists() else commented.with_suffix(".json")


def _vscode_folder(places: Places) -> Path:
    if sys.platform == "darwin":
        return places.home / "Library" / "Application Support" / "Code" / "User"
    return places.base("XDG_CONFIG_HOME", ".config") / "Code" / "User"


def _gemini_folder(places: Places) -> Path:
    return places.base("GEMINI_CLI_HOME", "") / ".gemini"


CLIENTS: Mapping[str, Client] = {
    client.name: client
    for client in (
        Client(
            name="claude",
            binaries=("claude",),
            folder=_claude_folder,
            user_file=_claude_file,
            project_file=".mcp.json",
            path=("mcpServers", SERVER),
            entry=lambda launch: _command(launch, type="stdio"),
            skills=".claude/skills",
            user_skills=lambda places: _claude_folder(places) / "skills",
        ),
        Client(
            name="codex",
            binaries=("codex",),
            folder=lambda places: places.base("CODEX_HOME", ".codex"),
            user_file=lambda places: places.base("CODEX_HOME", ".codex") / "config.toml",
            project_file=".codex/config.toml",
            path=("mcp_servers", SERVER),
            entry=_command,
            format=Format.TOML,
        ),
        Client(
            name="gemini",
            binaries=("gemini",),
            folder=_gemini_folder,
            user_file=lambda places: _gemini_folder(places) / "settings.json",
            project_file=".gemini/settings.json",
            path=("mcpServers", SERVER),
            entry=_command,
        ),
        Client(
            name="copilot",
            binaries=("copilot",),
            folder=lambda places: places.base("COPILOT_HOME", ".copilot"),
            user_file=lambda places: places.base("COPILOT_HOME", ".copilot") / "mcp-config.json",
            project_file=".github/mcp.json",
            path=("mcpServers", SERVER),
            entry=lambda launch: _command(launch, type="local", tools=["*"]),
        ),
        Client(
            name="opencode",
            binaries=("opencode",),
            folder=_opencode_folder,
            user_file=_opencode_file,
            project_file="opencode.json",
            path=("mcp", SERVER),
            entry=_opencode_entry,
        ),
        Client(
            name="cursor",
            binaries=("cursor", "cursor-agent"),
            folder=lambda places: places.home / ".cursor",
            user_file=lambda places: places.home / ".cursor" / "mcp.json",
            project_file=".cursor/mcp.json",
            path=("mcpServers", SERVER),
            entry=_command,
        ),
        Client(
            name="vscode",
            binaries=("code",),
            folder=_vscode_folder,
            user_file=lambda places: _vscode_folder(places) / "mcp.json",
            project_file=".vscode/mcp.json",
            path=("servers", SERVER),
            entry=lambda launch: _command(launch, type="stdio"),
        ),
    )
}


def status_line(places: Places, launch: Launch) -> Piece:
    """Return the line below claude's prompt that tells how the fleet is."""
    environ = ("env", *(f"{name}={value}" for name, value in launch.env.items())) if launch.env else ()
    command = shlex.join((*environ, launch.command, *launch.args[:-1], "statusline"))
    return Piece(
        file=_claude_folder(places) / "settings.json",
        format=Format.JSON,
        path=("statusLine",),
        value={"type": "command", "command": command},
        what="the status line",
        gives_way=True,
    )


def clients_in_use(places: Places, is_installed: Callable[[str], bool]) -> Sequence[Client]:
    """Return the clients that are there: by their program, or by a folder of settings."""
    return [
        client
        for client in CLIENTS.values()
        if any(map(is_installed, client.binaries)) or client.folder(places).is_dir()
    ]
