"""What a new workspace of a project needs, guessed from the files at the top of its repository."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias, get_args

ProjectType: TypeAlias = Literal["rails", "node", "python", "generic", "minimal"]
PROJECT_TYPES: tuple[ProjectType, ...] = get_args(ProjectType)

_SIGNS: Mapping[str, ProjectType] = {
    "Gemfile": "rails",
    "package.json": "node",
    "pyproject.toml": "python",
    "requirements.txt": "python",
    "setup.py": "python",
}
# Of credential files: those that are copied if there is one, and that a project need not have.
USUAL_FILES = (".env", ".env.local", "config/master.key")
_EXAMPLES = (".example", ".sample", ".template", ".dist")
# The first lock file that is there tells the tool.
_NODE_COMMANDS: Mapping[str, str] = {
    "pnpm-lock.yaml": "pnpm install --frozen-lockfile",
    ".yarnrc.yml": "yarn install --immutable",
    "yarn.lock": "yarn install --frozen-lockfile",
    "bun.lock": "bun install --frozen-lockfile",
    "bun.lockb": "bun install --frozen-lockfile",
    "package-lock.json": "npm ci",
    "npm-shrinkwrap.json": "npm ci",
    "package.json": "npm install",
}
# A virtual environment of its own for every workspace, which git must not take for somebody's work.
_PIP = "python3 -m venv .venv && echo '*' > .venv/.gitignore && .venv/bin/python -m pip install "
_PYTHON_COMMANDS: Mapping[str, str] = {
    "uv.lock": "uv sync",
    "poetry.lock": "poetry install",
    "pdm.lock": "pdm sync",
    "Pipfile.lock": "pipenv sync",
    "requirements.txt": _PIP + "-r requirements.txt",
    "pyproject.toml": _PIP + "-e .",
    "setup.py": _PIP + "-e .",
}


def detect_type(repository: Path) -> ProjectType:
    """Tell the type of a project by the files at its top, and nothing deeper."""
    for name, type_ in _SIGNS.items():
        if (repository / name).is_file():
            return type_
    return "generic"


def preset_for(type_: ProjectType, repository: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the credential files and the setup commands that a project of a type needs."""
    match type_:
        case "minimal":
            return (), ()
        case "generic":
            return _env_files(repository), ()
        case "node":
            commands = _first(_NODE_COMMANDS, repository) or ("npm install",)
            return _env_files(repository, ".env.local"), commands
        case "python":
            return _env_files(repository), _first(_PYTHON_COMMANDS, repository)
        case "rails":
            files = ("config/master.key", *_env_files(repository, ".env.local"))
            prepare = ("bin/rails db:prepare",) if (repository / "bin" / "rails").is_file() else ()
            return files, ("bundle install", *_first(_NODE_COMMANDS, repository), *prepare)


def _env_files(repository: Path, *usual: str) -> tuple[str, ...]:
    """Name the usual files, which may come later, and all others of that kind that are there."""
    there = {file.name for file in repository.glob(".env*") if file.is_file()}
    there = {name for name in there if not name.endswith(_EXAMPLES) and name != ".envrc"}
    return tuple(dict.fromkeys([".env", *usual, *sorted(there)]))


def _first(commands: Mapping[str, str], repository: Path) -> tuple[str, ...]:
    return tuple(command for name, command in commands.items() if (repository / name).is_file())[:1]
