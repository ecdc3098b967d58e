"""Every setting, declared once: its key, type, default and help, and where its value came from."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NoReturn, TypeAlias, TypeVar, cast, overload

from fleet.config.files import KeyPath, line_of
from fleet.domain.event import Json
from fleet.domain.naming import slug
from fleet.errors import BadConfig, InvalidInput, Next

if TYPE_CHECKING:
    from fleet.domain.queue import Limits

_TIERS = ("cheap", "standard", "premium")
Value: TypeAlias = "str | bool | int | float | tuple[str, ...]"
T = TypeVar("T", bound=Value)


class SettingType(NamedTuple, Generic[T]):
    """`check` takes a value as TOML has it, `parse` a text as people type it. Both raise `ValueError`."""

    name: str
    check: Callable[[object], T]
    parse: Callable[[str], object]
    show: Callable[[T], T] = lambda value: value  # as people may see it


def check_text(value: object) -> str:
    if not isinstance(value, str):
        _refuse("text in quotes", value)
    return value


def check_name(value: object) -> str:
    if not check_text(value).strip():
        raise ValueError("must not be empty")
    return check_text(value)


def check_database(value: object) -> str:
    """Take a URL that can be read in one way only, so that no part of a password passes for a host."""
    import re

    # The text may hold a password, so no message repeats it.
    if not isinstance(value, str):
        raise ValueError("must be text in quotes")
    host = r"(\[[0-9a-fA-F:.%]+\]|[\w.%-]*)(:\d+)?"
    login = r"([^:@/?#\s]+(:[^@/?#\s]*)?@)?"
    if value and not re.fullmatch(rf"postgres(ql)?://{login}{host}(,{host})*/[^/?#@\s]+(\?[^#\s]*)?", value):
        raise ValueError(
            "must be a URL such as postgresql://user:password@host:5432/database,"
            " with @ : / ? # and % in the password written as %40 %3A %2F %3F %23 and %25"
        )
    return value


def without_password(url: str) -> str:
    """Return the URL of a database as anybody may see it."""
    import re

    url = re.sub(r"^(\w+://[^:@/]*):[^@/]*@", r"\1:***@", url)
    return re.sub(r"(?i)([?&][^=&]*password=)[^&]*", r"\1***", url)


def check_truth(value: object) -> bool:
    if not isinstance(value, bool):
        _refuse("true or false", value)
    return value


def check_whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        _refuse("a whole number", value)
    if value < 0:
        raise ValueError(f"must not be negative, but is {value}")
    return value


def check_percent(value: object) -> int:
    part = check_whole(value)
    if part > 100:
        raise ValueError(f"must be from 0 to 100, not {part}")
    return part


def check_list(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        _refuse("a list of texts", value)
    entries = cast("Sequence[object]", value)
    for entry in entries:
        if not isinstance(entry, str):
            raise ValueError(f"must be a list of texts, but one entry is {entry!r}")
    return tuple(map(str, entries))


def _refuse(wanted: str, value: object) -> NoReturn:
    raise ValueError(f"must be {wanted}, not {value!r}")


def _parse_truth(text: str) -> object:
    word = text.strip().lower()
    if word in ("1", "true", "yes", "on"):
        return True
    return False if word in ("0", "false", "no", "off") else text


def _parse_number(text: str) -> object:
    for read in (int, float):
        with contextlib.suppress(ValueError):
            return read(text)
    return text


def _parse_list(text: str) -> object:
    """A text that begins with a bracket is a TOML array; else every line is an entry."""
    if not text.lstrip().startswith("["):
        return [line for line in text.split("\n") if line]
    import tomllib

    try:
        table = tomllib.loads(f"list = {text}")
    except (tomllib.TOMLDecodeError, RecursionError) as exc:
        raise ValueError(f"is no TOML array: {exc}") from exc
    return table["list"] if len(table) == 1 else text


def _parse_folders(text: str) -> object:
    """As a list; and, as people write paths into a variable, with colons or commas between them."""
    if text.lstrip().startswith("["):
        return _parse_list(text)
    words = text.replace(",", "\n").replace(":", "\n").splitlines()
    folders = [word.strip() for word in words if word.strip()]
    if text and not folders:  # such as "$UNSET:", which must not come to mean all there are
        raise ValueError(f"names no folder: {text!r}")
    return folders


def check_folders(value: object) -> tuple[str, ...]:
    """Take folders that are the same wherever they are read."""
    for folder in check_list(value):
        if not folder.startswith(("/", "~")):
            raise ValueError(f"must be whole paths, but one entry is {folder!r}")
    return check_list(value)


def choice(*words: str) -> SettingType[str]:
    *most, last = (f'"{word}"' for word in words)

    def check(value: object) -> str:
        if value not in words:
            raise ValueError(f"must be {', '.join(most)} or {last}, not {value!r}")
        return str(value)

    return SettingType("text", check, str)


def _amount(name: str, what: str) -> SettingType[float]:
    def check(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            _refuse(what, value)
        if not 0 <= value < math.inf:
            raise ValueError(f"must be a number from 0 up, not {value}")
        return value

    return SettingType(name, check, _parse_number)


TEXT = SettingType("text", check_text, str)
NAME = SettingType("text", check_name, str)
DATABASE = SettingType("text", check_database, str, without_password)
TRUTH = SettingType("true or false", check_truth, _parse_truth)
WHOLE = SettingType("whole number", check_whole, _parse_number)
PERCENT = SettingType("whole number", check_percent, _parse_number)
SECONDS = _amount("seconds", "a number of seconds")
MONEY = _amount("USD", "an amount in USD")
LIST = SettingType("list of texts", check_list, _parse_list)
FOLDERS = SettingType("list of texts", check_folders, _parse_folders)


# settings


@dataclass(slots=True, eq=False)
class Setting(Generic[T]):
    """One setting, and a typed attribute of `Settings` that reads it: `tasks_queue` is `tasks.queue`."""

    kind: SettingType[T]
    default: T
    help: str
    is_of_home: bool = False  # holds for all projects, so no project's file may say it
    old_variable: str = ""  # by which codefleet's users know it
    key: str = field(default="", init=False)

    def __set_name__(self, owner: object, name: str) -> None:
        self.key = name.replace("_", ".", 1)

    @property
    def variable(self) -> str:
        return "FLEET_" + self.key.upper().replace(".", "_")

    def parse(self, text: str) -> T:
        return self.kind.check(self.kind.parse(text))

    @overload
    def __get__(self, settings: None, owner: object) -> Setting[T]: ...
    @overload
    def __get__(self, settings: Settings, owner: object) -> T: ...
    def __get__(self, settings: Settings | None, owner: object) -> Setting[T] | T:
        return self if settings is None else cast("T", settings.values[self.key])


class Source(NamedTuple):
    """Where values came from: a name, and for a file its text, in which lines can be looked up."""

    name: str
    text: str | None = None
    note: str = ""

    def describe(self, path: KeyPath) -> str:
        if self.text is None:
            return self.name
        return f"{self.name}:{line_of(self.text, path)}{self.note}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings in force; every `Setting` declared here is a typed attribute."""

    home: Path
    project: Path | None
    values: Mapping[str, Value]
    coders: Mapping[str, Mapping[str, Json]]
    sources: Mapping[str, Source]
    environ: Mapping[str, str]
    warnings: tuple[str, ...] = ()  # broken files whose last good version is in force

    project_name = Setting(TEXT, "", "the project's name; empty: the name of its folder")
    project_workspaces = Setting(
        TEXT,
        "",
        "folder of the agents' workspaces, with ~ and $VARIABLES;"
        " empty: workspaces/<project> in fleet's home",
    )
    coder_default = Setting(NAME, "claude", "the coder that agents are started with")
    coder_model = Setting(TEXT, "", "model of the default coder, or a tier: cheap, standard, premium")
    coder_mode = Setting(
        choice("tmux", "headless", ""),
        "",
        "tmux or headless; empty: tmux on a terminal where tmux and the coder can, else headless",
    )
    coder_skip_permissions = Setting(
        TRUTH, False, "let agents do everything without asking; for machines that can be thrown away"
    )
    setup_credential_files = Setting(LIST, (), "files copied from the checkout into every workspace")
    setup_commands = Setting(LIST, (), "shell commands run in every new workspace, in order")
    setup_quick = Setting(TRUTH, False, "skip the setup commands")
    setup_timeout_seconds = Setting(SECONDS, 1800, "the setup fails when it takes longer")
    permissions_allow_commands = Setting(LIST, (), "command prefixes that doers may run without asking")
    tmux_prefix = Setting(NAME, "fleet", "tmux sessions are named <prefix>_<branch>_<id>")
    limits_min_free_mb = Setting(WHOLE, 500, "no agent is started with less free disk space")
    limits_max_output_mb = Setting(WHOLE, 2048, "most output kept of one turn, in megabytes; 0: no limit")
    limits_max_concurrent = Setting(WHOLE, 3, "most tasks under way at a time, on all hosts; 0: no limit")
    limits_per_coder = Setting(WHOLE, 0, "most tasks under way with one coder; 0: no limit")
    limits_per_project = Setting(WHOLE, 0, "most tasks under way in one project; 0: no limit")
    limits_per_host = Setting(WHOLE, 0, "most tasks under way on one host; 0: no limit")
    limits_allowed_repos = Setting(
        FOLDERS,
        (),
        "repositories, or folders above them, in which work may be started over MCP; empty: all",
        is_of_home=True,
        old_variable="FLEET_ALLOWED_REPOS",
    )
    limits_max_spawn_depth = Setting(
        WHOLE,
        2,
        "how many levels of agents may start further agents; 0: none",
        is_of_home=True,
        old_variable="FLEET_MAX_SPAWN_DEPTH",
    )
    budget_task_usd = Setting(MONEY, 0, "what a task may cost; 0: no limit")
    budget_batch_usd = Setting(MONEY, 0, "what the tasks of one batch may cost; 0: no limit")
    budget_project_usd_a_day = Setting(
        MONEY, 0, "what the tasks of one project may cost in a day; 0: no limit"
    )
    budget_usd_a_day = Setting(MONEY, 0, "what all tasks may cost in a day; 0: no limit")
    tasks_queue = Setting(
        choice("fleet", "beads"), "fleet", "who keeps the tasks of `fleet bd`: fleet, or beads' own bd"
    )
    tasks_max_failures = Setting(WHOLE, 3, "a task that failed so often is left to a person")
    tasks_max_crashes = Setting(WHOLE, 10, "a coder that crashed so often in a row is paused; 0: never")
    tasks_backoff_seconds = Setting(SECONDS, 10, "pause after a task's first failure; it doubles with each")
    tasks_limit_pause_seconds = Setting(SECONDS, 300, "pause after a rate limit whose end was not stated")
    tasks_ageing_seconds = Setting(SECONDS, 3600, "a waiting task gains one priority in this time; 0: never")
    tasks_silence_seconds = Setting(SECONDS, 1800, "a task's agent that says nothing for so long is stopped")
    tasks_tool_seconds = Setting(SECONDS, 7200, "as tasks.silence_seconds, while a tool of the agent's runs")
    tasks_turn_seconds = Setting(
        SECONDS, 0, "a task's agent that works longer than this is stopped; 0: no limit"
    )
    tasks_context_pct = Setting(
        PERCENT, 90, "a task is handed over to a fresh agent at this part of its context; 0: never"
    )
    tasks_gate_seconds = Setting(SECONDS, 1800, "a gate that takes longer fails")
    tasks_push_to = Setting(TEXT, "", "remote that a task's work is pushed to, for other hosts to go on from")
    race_lint = Setting(TEXT, "", "a command that orders candidates of a race that behave the same")
    race_protect = Setting(
        LIST, (), "extra paths that are restored before the gates of a race run; prefix ! to exempt"
    )
    merge_into = Setting(TEXT, "", "branch that is merged into; empty: main, or else master")
    merge_gates = Setting(LIST, (), "shell commands that must succeed on merged work before it lands")
    merge_remote = Setting(TEXT, "origin", "remote that branches are pushed to for --pr")
    merge_forge = Setting(
        choice("gh", "github", ""),
        "",
        "what opens pull requests: gh, or github's API; empty: gh where it is installed",
    )
    merge_api_url = Setting(TEXT, "https://api.github.com", "where github's API is", is_of_home=True)
    merge_token_variable = Setting(
        NAME, "GITHUB_TOKEN", "environment variable that has the token for github's API", is_of_home=True
    )
    notify_command = Setting(TEXT, "", "shell command run when a person is needed, with JSON on its stdin")
    notify_webhook = Setting(TEXT, "", "URL that gets a POST when a person is needed (an ntfy topic, say)")
    stop_grace_seconds = Setting(SECONDS, 10, "how long an agent may take to stop before it is killed")
    boundary_hold = Setting(
        TRUTH,
        True,
        "hold a run's result if something outside its workspace changed meanwhile; false: only say so",
        is_of_home=True,
    )
    supervisor_idle_seconds = Setting(
        SECONDS, 300, "a supervisor started on demand ends after so long without work"
    )
    host_lease_seconds = Setting(SECONDS, 30, "a host that shares the work and is silent for so long is dead")
    host_labels = Setting(LIST, (), "what tasks may need of this host: gpu, macos …")
    database_url = Setting(
        DATABASE,
        "",
        "PostgreSQL database that several machines share; empty: files in fleet's home",
        is_of_home=True,
    )
    ui_log_lines = Setting(WHOLE, 50, "how many lines `fleet logs` shows")

    def shown(self) -> dict[str, Any]:
        """Return all values as people may see them, without passwords; those of single coders last."""
        shown = {key: setting.kind.show(self.values[key]) for key, setting in SETTINGS.items()}
        for name in self.coder_names():
            shown |= {f"coders.{name}.{key}": value for key, value in self.coders[name].items()}
        return shown

    def origin(self, key: str) -> str:
        """Return where a value came from: a file and line, a variable, a flag or "default"."""
        source = self.sources.get(key)
        return source.describe(tuple(key.split(".", 2))) if source else "default"

    def coder_names(self) -> list[str]:
        return sorted(self.coders)

    def coder_table(self, name: str) -> Mapping[str, Json]:
        """Return all that the files say about one coder, with keys that only its adapter knows."""
        return self.coders.get(name, {})

    def coder_flags(self, name: str) -> tuple[str, ...]:
        return check_list(self.coder_table(name).get("flags", []))

    def coder_model_for(self, name: str) -> str:
        """Return the coder's own model; else `coder.model`, where it can be meant for this coder."""
        own = check_text(self.coder_table(name).get("model", ""))
        fits = name == self.coder_default or self.coder_model in _TIERS
        return own or (self.coder_model if fits else "")

    def skips_permissions(self, name: str) -> bool:
        return check_truth(self.coder_table(name).get("skip_permissions", self.coder_skip_permissions))

    def coder_fallback(self, name: str) -> str:
        return check_text(self.coder_table(name).get("fallback", ""))

    def limits(self) -> Limits:
        """Return how many tasks may be under way, and what they may cost."""
        from fleet.domain.queue import Limits  # most commands need none of it

        rooms = {
            name: check_whole(self.coder_table(name).get("max_concurrent", self.limits_per_coder))
            for name in (*self.coder_names(), self.coder_default)
        }
        return Limits(
            everywhere=self.limits_max_concurrent,
            per_coder=self.limits_per_coder,
            coders=rooms,
            per_project=self.limits_per_project,
            per_host=self.limits_per_host,
            task_usd=self.budget_task_usd,
            batch_usd=self.budget_batch_usd,
            project_usd_a_day=self.budget_project_usd_a_day,
            usd_a_day=self.budget_usd_a_day,
        )

    def workspaces_root(self, project: Path) -> Path:
        if not self.project_workspaces:
            return self.home / "workspaces" / slug(self.project_name or project.name)
        try:
            return project / expand(self.project_workspaces, self.environ)
        except KeyError as exc:
            reason = f"project.workspaces names ${exc.args[0]}, which is not set"
            raise BadConfig(self.origin("project.workspaces"), reason) from exc


SETTINGS: Mapping[str, Setting[Any]] = {
    declared.key: cast("Setting[Any]", declared)
    for declared in vars(Settings).values()
    if isinstance(declared, Setting)
}

# Of every coder; a coder's table may hold further keys, which its adapter checks.
CODER_SETTINGS: Mapping[str, Setting[Any]] = {
    "flags": Setting(LIST, (), "flags handed to this coder's CLI as they are"),
    "model": Setting(TEXT, "", "model of this coder, or a tier; else coder.model"),
    "skip_permissions": Setting(TRUTH, False, "as coder.skip_permissions, for this coder alone"),
    "max_concurrent": Setting(WHOLE, 0, "as limits.per_coder, for this coder alone"),
    "fallback": Setting(TEXT, "", "the coder that goes on with a task while this one's limit lasts"),
}


def find_setting(key: str) -> Setting[Any] | None:
    """Return a key's setting, None if only a coder's adapter knows it. Raises `InvalidInput` for others."""
    if setting := SETTINGS.get(key):
        return setting
    section, *rest = key.split(".", 2)
    if section == "coders" and len(rest) == 2 and all(rest):
        return CODER_SETTINGS.get(rest[1])
    raise InvalidInput(unknown(key), hint=("see all settings with ", Next("config.show")))


def unknown(key: str) -> str:
    """Say that there is no such setting, and which one may have been meant."""
    import difflib

    near = difflib.get_close_matches(key, SETTINGS, n=1)
    return f"unknown setting {key!r}" + (f"; did you mean {near[0]!r}?" if near else "")


def expand(text: str, environ: Mapping[str, str]) -> str:
    """Replace a leading ~ and $VARIABLES; raise `KeyError` for a variable that is not set."""
    if (text == "~" or text.startswith("~/")) and environ.get("HOME"):
        text = environ["HOME"] + text[1:]
    else:
        text = os.path.expanduser(text)  # noqa: PTH111  Path.expanduser raises where this leaves the text
    if "$" not in text:
        return text
    import string

    try:
        return string.Template(text).substitute(environ)
    except ValueError:  # a bare dollar is itself
        return string.Template(text).safe_substitute(environ)
