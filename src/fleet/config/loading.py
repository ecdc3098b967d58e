"""Load the settings: defaults < user's file < project's file < environment < flags."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from fleet.config.files import keep, last_good, project_file, read_file, require_plain, user_file
from fleet.config.setting_types import Value
from fleet.config.settings import (
    CODER_SETTINGS,
    SETTINGS,
    Setting,
    Settings,
    Source,
    for_all_projects,
    unknown,
)
from fleet.config.toml import KeyPath, parse_toml
from fleet.domain.event import Json
from fleet.errors import BadConfig


def load(
    home: Path,
    project: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    flags: Mapping[str, Value | None] | None = None,
    *,
    strict: bool = False,
) -> Settings:
    """Return the settings in force.

    A broken file is replaced by its last good version, and `warnings` says so; without one, or
    when `strict`, raises `BadConfig` with file, line and reason. A project's file that is a link, or in a
    linked folder, is always refused. A flag of None was not given.
    """
    warnings: list[str] = []
    values: dict[str, Value] = {key: setting.default for key, setting in SETTINGS.items()}
    coders: dict[str, dict[str, Json]] = {}
    sources: dict[str, Source] = {}
    for layer in _layers(home, project, environ, flags or {}, warnings, strict=strict):
        values.update(layer.values)
        sources.update(layer.sources)
        for name, table in layer.coders.items():
            coders[name] = {**coders.get(name, {}), **table}
    return Settings(
        home=home,
        project=project,
        values=values,
        coders=coders,
        sources=sources,
        environ=environ,
        warnings=tuple(warnings),
    )


class _Layer:
    """What one file, the environment or the flags say."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self.coders: dict[str, dict[str, Json]] = {}
        self.sources: dict[str, Source] = {}


def _layers(
    home: Path,
    project: Path | None,
    environ: Mapping[str, str],
    flags: Mapping[str, Value | None],
    warnings: list[str],
    *,
    strict: bool,
) -> Iterator[_Layer]:
    files = [user_file(home)]
    # A home folder that is a repository itself has one file for both.
    if project and project_file(project) != files[0]:
        files.append(require_plain(project, "config.toml"))
    for file in files:
        if layer := _file_layer(file, home, warnings, strict=strict, is_own=file == files[0]):
            yield layer
    yield _environment_layer(environ)
    yield _flag_layer(flags)


def _environment_layer(environ: Mapping[str, str]) -> _Layer:
    layer = _Layer()
    for key, setting in SETTINGS.items():
        for variable in setting.variables:
            if text := environ.get(variable):  # an empty variable counts as not set
                source = Source(f"environment {variable}")
                layer.values[key] = _told(source, setting.parse, text)
                layer.sources[key] = source
    return layer


def _flag_layer(flags: Mapping[str, Value | None]) -> _Layer:
    layer = _Layer()
    for key, value in flags.items():
        if value is None:
            continue
        setting = SETTINGS[key]
        source = Source(f"flag {setting.flag or '--' + key}")
        check: Callable[[Any], Value] = setting.parse if isinstance(value, str) else setting.kind.check
        layer.values[key] = _told(source, check, value)
        layer.sources[key] = source
    return layer


def _told(source: Source, check: Callable[[Any], Value], value: Value) -> Value:
    try:
        return check(value)
    except ValueError as exc:
        raise BadConfig(source.name, str(exc), hint="give it another value, or leave it out") from exc


def _file_layer(file: Path, home: Path, warnings: list[str], *, strict: bool, is_own: bool) -> _Layer | None:
    try:
        text = read_file(file)
        layer = None if text is None else _read_layer(str(file), text, is_own=is_own)
    except BadConfig as exc:
        layer = None if strict else _last_good_layer(home, file, is_own=is_own)
        if layer is None:
            raise
        warnings.append(f"{exc.message}; the last good version of the file stays in force")
        return layer
    if text is not None:
        keep(home, file, text)
    return layer


def _last_good_layer(home: Path, file: Path, *, is_own: bool) -> _Layer | None:
    text = last_good(home, file)
    # What was good for another version of fleet may not be so for this one.
    with contextlib.suppress(BadConfig):
        note = " (last good version)"
        return None if text is None else _read_layer(str(file), text, note=note, is_own=is_own)
    return None


def check_text(name: str, text: str) -> None:
    """Check the text of a configuration file; raise `BadConfig` with the line and the reason."""
    _read_layer(name, text)


def _read_layer(name: str, text: str, *, note: str = "", is_own: bool = True) -> _Layer:
    source = Source(name, text, note)
    try:
        return _table_layer(parse_toml(name, text), source, is_own=is_own)
    except _Misfit as exc:
        raise BadConfig(source.describe(exc.path), exc.reason) from exc


class _Misfit(Exception):
    """A value that is valid TOML and no valid setting."""

    def __init__(self, path: KeyPath, reason: str) -> None:
        super().__init__(reason)
        self.path = path
        self.reason = reason


def _table_layer(table: Mapping[str, object], source: Source, *, is_own: bool) -> _Layer:
    layer = _Layer()
    for path, value in _entries(table):
        dotted = ".".join(path)
        match path:
            case (_, coder, key):
                layer.coders.setdefault(coder, {})[key] = _coder_value(path, key, value)
            case _:
                setting = SETTINGS.get(dotted)
                if setting and setting.is_of_home and not is_own:
                    raise _Misfit(path, for_all_projects(dotted))
                layer.values[dotted] = _fitting(setting, path, value)
        layer.sources[dotted] = source
    return layer


def _entries(table: Mapping[str, object]) -> Iterator[tuple[KeyPath, object]]:
    """Yield what is in the sections, and for the coders what is in each coder's table."""
    for section, content in table.items():
        if not isinstance(content, dict):
            raise _Misfit((section,), unknown(section))
        for key, value in cast("dict[str, object]", content).items():
            if section != "coders":
                yield (section, key), value
            elif isinstance(value, dict):
                entries = cast("dict[str, object]", value)
                yield from (((section, key, name), entry) for name, entry in entries.items())
            else:
                raise _Misfit((section, key), f"must be a table: [coders.<name>], not {value!r}")


def _coder_value(path: KeyPath, key: str, value: object) -> Json:
    if key in CODER_SETTINGS:
        fitting = _fitting(CODER_SETTINGS[key], path, value)
        return list(fitting) if isinstance(fitting, tuple) else fitting
    if not _is_json(value):
        raise _Misfit(path, "must be text, a number, true or false, a list or a table, not a date or time")
    return cast("Json", value)


def _is_json(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_is_json, cast("dict[str, object]", value).values()))
    if isinstance(value, list):
        return all(map(_is_json, cast("list[object]", value)))
    return isinstance(value, str | bool | int | float)


def _fitting(setting: Setting[Any] | None, path: KeyPath, value: object) -> Value:
    key = ".".join(path)
    if setting is None:
        raise _Misfit(path, unknown(key))
    try:
        return setting.kind.check(value)
    except ValueError as exc:
        raise _Misfit(path, f"{key} {exc}") from exc
