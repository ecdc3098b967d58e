"""Set a project up, and change its configuration: what `fleet init` and `fleet config` call."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, cast

from fleet.config import files
from fleet.config.loading import check_text
from fleet.config.settings import CODER_SETTINGS, SETTINGS, Value, find_setting
from fleet.domain.event import Json
from fleet.errors import Argument, BadConfig, Conflict, InvalidInput, NotFound, Shell
from fleet.services.fleet import Fleet
from fleet.services.presets import PROJECT_TYPES, USUAL_FILES, ProjectType, detect_type, preset_for


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedSettings:
    """Settings from a configuration file of another program, by our keys, and its keys without equivalent."""

    file: Path
    values: Mapping[str, Value]
    ignored: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InitPlan:
    """What `fleet init` would do."""

    type: ProjectType
    file: Path
    text: str
    imports: tuple[str, ...]  # "<setting> from <older file>"
    notes: tuple[str, ...]  # what older files say that is not needed any more, a sentence each
    gitignore: Path
    gitignore_lines: tuple[str, ...]  # to be added
    overwrites: bool


class ConfigService:
    """The configuration as seen from one folder: its values, its files, and changes to them."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def files(self) -> tuple[Path, Path | None]:
        """Return the files for all projects and for this one; None outside of a project."""
        home, project = self._fleet.home, self._fleet.project
        return files.user_file(home), files.project_file(project) if project else None

    def file(self, *, for_user: bool) -> Path:
        """Return the file to change. Raises `InvalidInput` outside of a project."""
        if for_user:
            return files.user_file(self._fleet.home)
        if self._fleet.project is None:
            hint = ("add ", Argument("config.set", "user"), " to change the file for all projects")
            raise InvalidInput(f"{Path.cwd()} is not inside a project", hint=hint)
        return files.require_plain(self._fleet.project, "config.toml")

    def set(self, key: str, value: str, *, for_user: bool, by: Callable[[], str]) -> Path:
        """Set one value in a file, and return the file. A supervisor that is up looks at it at once."""
        setting = find_setting(key)
        if setting and setting.is_of_home and not for_user:
            hint = ("add ", Argument("config.set", "user"), " to set it for all projects")
            raise InvalidInput(f"{key} holds for all projects", hint=hint)
        self._check_coders(key, value, is_common=setting is not None)
        file = self.file(for_user=for_user)
        set_value(file, key, value)
        if self._fleet.link.is_open():
            for name in {str(file), str(file.resolve())}:
                self._fleet.boundary.accept_file(name, by())  # so that no agent at work is held for it
            self._fleet.link.wake()
        return file

    def _check_coders(self, key: str, value: str, *, is_common: bool) -> None:
        """Raise `InvalidInput` if a setting that every coder has names a coder that there is not."""
        section, *rest = key.split(".", 2)
        named = [rest[0]] if section == "coders" and is_common else []
        if key == "coder.default" or (named and rest[-1] == "fallback"):
            named.append(value)
        known = self._fleet.coder_names() if any(named) else ()
        for name in filter(None, named):
            if name not in known:
                hint = f"choose one of {', '.join(known)}, or define [coders.{name}] first"
                raise InvalidInput(f"there is no coder {name!r}", hint=hint)

    def validate(self) -> list[str]:
        """Check the files; return warnings. Raises `BadConfig`."""
        settings = self._fleet.strict_settings
        for name in {settings.coder_default, *settings.coder_names()}:
            try:
                self._fleet.coder(name, settings)
            except NotFound as error:
                said = [f"coders.{name}.{key}" for key in settings.coder_table(name)]
                where = "coder.default" if name == settings.coder_default or not said else said[0]
                raise BadConfig(settings.origin(where), error.message) from error
        known = self._fleet.coder_names(settings)
        for name in settings.coder_names():
            fallback, key = settings.coder_fallback(name), f"coders.{name}.fallback"
            if fallback and fallback not in known:
                raise BadConfig(settings.origin(key), f"{key} names {fallback!r}, and there is no such coder")
        return [
            f"setup.credential_files names {file!r}, which is not in {self._fleet.project}"
            for file in settings.setup_credential_files
            if self._fleet.project and file not in USUAL_FILES and not (self._fleet.project / file).exists()
        ]


def plan_init(
    repository: Path, type_: str | None = None, *, older: Sequence[ImportedSettings] = (), force: bool = False
) -> InitPlan:
    """Plan a configuration: a preset, overridden by older files. `Conflict` if one exists, unless `force`."""
    file = files.require_plain(repository, "config.toml")
    if file.exists() and not force:
        raise _already_there(file)
    type_ = type_ or detect_type(repository)
    if type_ not in PROJECT_TYPES:
        hint = f"choose one of {', '.join(PROJECT_TYPES)}"
        raise InvalidInput(f"unknown project type {type_!r}", hint=hint)
    credentials, commands = preset_for(type_, repository)
    values: dict[str, Value] = {"setup.credential_files": credentials, "setup.commands": commands}
    for imported in older:
        values.update(imported.values)
    text = _render(values)
    check_text(str(file), text)
    return InitPlan(
        type=type_,
        file=file,
        text=text,
        imports=tuple(f"{key} from {one.file}" for one in older for key in one.values),
        notes=tuple(f"{key} in {one.file} is not needed" for one in older for key in one.ignored),
        gitignore=repository / ".gitignore",
        gitignore_lines=_lines_to_ignore(repository, values),
        overwrites=file.exists(),
    )


def apply_init(plan: InitPlan) -> None:
    """Write what was planned. Raises `Conflict` when a configuration appeared since."""
    if plan.file.exists() and not plan.overwrites:
        raise _already_there(plan.file)
    plan.file.parent.mkdir(exist_ok=True)
    files.replace_file(plan.file, plan.text.encode(), mode=0o644)
    if plan.gitignore_lines:
        file = plan.gitignore.resolve()
        text = files.read_file(file) or ""
        text += "" if not text or text.endswith("\n") else "\n"
        mode = file.stat().st_mode & 0o777 if file.exists() else 0o644
        files.replace_file(file, (text + "\n".join(plan.gitignore_lines) + "\n").encode(), mode=mode)


def set_value(file: Path, key: str, text: str) -> Json:
    """Set one key in a configuration file; return the value as it was understood.

    All else in the file stays as it is, comments and layout included. The file is replaced whole,
    and only by one that is valid.
    """
    setting = find_setting(key)
    try:
        text.encode()
        parsed: Value | Json = setting.parse(text) if setting else _parse_freely(text)
    except ValueError as exc:
        raise InvalidInput(f"{key} {exc}") from exc
    value: Json = list(parsed) if isinstance(parsed, tuple) else parsed
    file = file.resolve()
    path = key.split(".", 2)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with files.locked(os.open(file.parent, os.O_RDONLY)):  # from others who change it through us
        new = _edited(file, files.read_file(file) or "", path, value)
        check_text(str(file), new)
        found: Any = files.parse_toml(str(file), new)
        for name in path:
            found = found[name]
        if found != value:
            raise BadConfig(str(file), f"{key} cannot be set in this layout; edit the file by hand")
        files.replace_file(file, new.encode(), mode=file.stat().st_mode & 0o777 if file.exists() else 0o600)
    return value


# Init


def _already_there(file: Path) -> Conflict:
    return Conflict(
        f"{file} is already there",
        hint=("change it with ", Shell("fleet config edit"), ", or use ", Shell("fleet init --force")),
    )


def _render(values: Mapping[str, Value]) -> str:
    """Write a file that sets the values, and names all other settings of a project in comments."""
    settings = {key: setting for key, setting in SETTINGS.items() if not setting.is_of_home}
    own = sorted(key for key in values if key.startswith("coders."))
    settings |= {key: CODER_SETTINGS[key.rpartition(".")[2]] for key in own}
    lines = ["# Configuration of fleet for this project; share it with the code."]
    section = ""
    for key, setting in settings.items():
        table, _, name = key.rpartition(".")
        if table != section:
            section = table
            lines += ["", f"[{section}]"]
        value = values.get(key, setting.default)
        mark = "" if value != setting.default or key in own else "# "
        lines += [f"# {setting.help}", f"{mark}{name} = {_literal(value)}"]
    return "\n".join(lines) + "\n"


def _literal(value: Value) -> str:
    import tomlkit

    if isinstance(value, tuple) and len(value) > 1:
        return "[\n" + "".join(f"    {_literal(entry)},\n" for entry in value) + "]"
    return tomlkit.item(list(value) if isinstance(value, tuple) else value).as_string()


def _lines_to_ignore(repository: Path, values: Mapping[str, Value]) -> tuple[str, ...]:
    """Name the credential files that git would otherwise take for an agent's work."""
    ignored = (files.read_file(repository / ".gitignore") or "").splitlines()
    wanted = [
        name
        for name in cast("Sequence[str]", values["setup.credential_files"])
        if (repository / name).exists()
    ]
    if (repository / ".aifleet").is_dir():
        wanted.append(".aifleet/state.json")  # it holds prompts

    def is_ignored(name: str) -> bool:
        parts = (name, Path(name).name, *map(str, Path(name).parents))
        return any(fnmatch(part, line.strip().strip("/")) for line in ignored for part in parts)

    return tuple(f"/{name}" for name in wanted if not is_ignored(name))


# Editing


def _parse_freely(text: str) -> Json:
    """Read a value that only a coder's adapter knows: TOML where it is some, else the text itself."""
    try:
        table = files.parse_toml("value", f"value = {text}")
    except BadConfig:
        return text
    return cast("Json", table["value"]) if len(table) == 1 else text


def _edited(file: Path, old: str, path: Sequence[str], value: Json) -> str:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    check_text(str(file), old)
    try:
        document = tomlkit.parse(old)
        table = cast("dict[str, object]", document)
        for depth, name in enumerate(path[:-1], start=1):
            if name not in table:
                table[name] = tomlkit.table(is_super_table=depth < len(path) - 1)
            table = cast("dict[str, object]", table[name])
        table[path[-1]] = value
        return tomlkit.dumps(document)
    except TOMLKitError as exc:
        raise BadConfig(str(file), f"{'.'.join(path)} cannot be set in this layout: {exc}") from exc
