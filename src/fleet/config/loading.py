"""Load the settings: defaults < user's file < project's file < environment."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, cast

from fleet.config import files
from fleet.config.settings import CODER_SETTINGS, SETTINGS, Settings, Source, Value, unknown
from fleet.domain.event import Json
from fleet.errors import BadConfig


class _Entry(NamedTuple):
    """One value that a file or the environment sets."""

    path: files.KeyPath
    value: Value | Json
    source: Source


def load(
    home: Path, project: Path | None = None, environ: Mapping[str, str] = os.environ, *, strict: bool = False
) -> Settings:
    """Return the settings in force.

    A broken file is replaced by its last good version, and `warnings` says so; without one, or
    when `strict`, raises `BadConfig` with file, line and reason. A project's file that is a link, or in a
    linked folder, is always refused.
    """
    paths = [files.user_file(home)]
    # A home folder that is a repository itself has one file for both.
    if project and files.project_file(project) != paths[0]:
        paths.append(files.require_plain(project, "config.toml"))
    warnings: list[str] = []
    entries = [
        entry
        for file in paths
        for entry in _entries_of_file(file, home, warnings, strict=strict, is_own=file == paths[0])
    ]
    values: dict[str, Value] = {key: setting.default for key, setting in SETTINGS.items()}
    coders: dict[str, dict[str, Json]] = {}
    sources: dict[str, Source] = {}
    for path, value, source in (*entries, *_entries_of_environment(environ)):
        key = ".".join(path)
        sources[key] = source
        match path:
            case (_, coder, name):
                coders.setdefault(coder, {})[name] = list(value) if isinstance(value, tuple) else value
            case _:
                values[key] = cast("Value", value)
    return Settings(
        home=home,
        project=project,
        values=values,
        coders=coders,
        sources=sources,
        environ=environ,
        warnings=tuple(warnings),
    )


def _entries_of_environment(environ: Mapping[str, str]) -> Iterator[_Entry]:
    for key, setting in SETTINGS.items():
        for variable in (setting.old_variable, setting.variable):
            text = environ.get(variable) if variable else None
            if not text:  # an empty variable counts as not set
                continue
            source = Source(f"environment {variable}")
            try:
                yield _Entry(tuple(key.split(".", 1)), setting.parse(text), source)
            except ValueError as exc:
                hint = "give it another value, or leave it out"
                raise BadConfig(source.name, str(exc), hint=hint) from exc


def _entries_of_file(
    file: Path, home: Path, warnings: list[str], *, strict: bool, is_own: bool
) -> list[_Entry]:
    try:
        text = files.read_file(file)
        if text is None:
            return []
        entries = _read(Source(str(file), text), is_own=is_own)
    except BadConfig as exc:
        text = None if strict else files.last_good(home, file)
        # What was good for another version of fleet may not be so for this one.
        with contextlib.suppress(BadConfig):
            if text is not None:
                entries = _read(Source(str(file), text, " (last good version)"), is_own=is_own)
                warnings.append(f"{exc.message}; the last good version of the file stays in force")
                return entries
        raise
    files.keep(home, file, text)
    return entries


def check_text(name: str, text: str) -> None:
    """Check the text of a configuration file; raise `BadConfig` with the line and the reason."""
    _read(Source(name, text))


def _read(source: Source, *, is_own: bool = True) -> list[_Entry]:
    """Return what the text of a file says, checked; `is_own` tells the user's file from a project's."""
    entries: list[_Entry] = []
    for path, value in _items(files.parse_toml(source.name, source.text or "")):
        try:
            entries.append(_Entry(path, _checked(path, value, is_own), source))
        except ValueError as exc:
            raise BadConfig(source.describe(path), str(exc)) from exc
    return entries


def _items(table: Mapping[str, object]) -> Iterator[tuple[files.KeyPath, object]]:
    """Yield what is in the sections, and for the coders what is in each coder's table."""
    for section, content in table.items():
        if not isinstance(content, dict):
            yield (section,), content
            continue
        for key, value in cast("dict[str, object]", content).items():
            if section == "coders" and isinstance(value, dict):
                entries = cast("dict[str, object]", value)
                yield from (((section, key, name), entry) for name, entry in entries.items())
            else:
                yield (section, key), value


def _checked(path: files.KeyPath, value: object, is_own: bool) -> Value | Json:
    """Return a value as its setting takes it; raise `ValueError` for valid TOML that is no valid setting."""
    key = ".".join(path)
    match path:
        case (_, _, name):
            setting = CODER_SETTINGS.get(name)
        case ("coders", _):
            raise ValueError(f"must be a table: [coders.<name>], not {value!r}")
        case _ if (setting := SETTINGS.get(key)) is None:
            raise ValueError(unknown(key))
        case _:
            pass
    if setting is None:
        if not _is_json(value):
            raise ValueError("must be text, a number, true or false, a list or a table, not a date or time")
        return cast("Json", value)
    if setting.is_of_home and not is_own:
        raise ValueError(f"{key} holds for all projects: set it with `fleet config set {key} VALUE --user`")
    try:
        return setting.kind.check(value)
    except ValueError as exc:
        raise ValueError(f"{key} {exc}") from exc


def _is_json(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_is_json, cast("dict[str, object]", value).values()))
    if isinstance(value, list):
        return all(map(_is_json, cast("list[object]", value)))
    return isinstance(value, str | bool | int | float)
