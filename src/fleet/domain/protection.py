"""What in a repository decides whether work is good: its tests, their configuration, the gates' own files.

Whoever is measured must not change what it is measured by. Such paths are tried as they are in the base,
and changes of them are told.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import cast

TESTS = (
    *("**/test/**", "**/tests/**", "**/__tests__/**", "**/spec/**"),
    *("**/testdata/**", "**/__snapshots__/**", "**/*.snap"),
    *("**/test_*.py", "**/*_test.py", "**/tests.py", "**/*_test.go", "**/*_test.rs", "**/*_test.exs"),
    *("**/*.test.*", "**/*.spec.*", "**/*_spec.rb", "**/*_test.rb", "**/*_test.dart", "**/*_test.c*"),
    *("**/*Test.java", "**/*Tests.java", "**/*Test.kt", "**/*Test.php", "**/*Tests.cs", "**/*Test.cs"),
)
CONFIGURATION = (
    *("**/conftest.py", "**/pytest.ini", "**/.pytest.ini", "**/tox.ini", "**/setup.cfg", "**/noxfile.py"),
    *("**/.coveragerc", "**/pyproject.toml", "**/sitecustomize.py", "**/usercustomize.py", "**/*.pth"),
    *("**/package.json", "**/jest.config.*", "**/jest.setup.*", "**/vitest.config.*", "**/vitest.setup.*"),
    *("**/karma.conf.*", "**/.mocharc*", "**/playwright.config.*", "**/cypress.config.*", "**/.nycrc*"),
    *("**/phpunit.xml*", "**/.rspec", "**/Rakefile", "**/.cargo/**", "**/pom.xml", "**/build.gradle*"),
    *("**/Makefile", "**/GNUmakefile", "**/makefile", "**/justfile", "**/Taskfile.y*ml", "**/CTestConfig.*"),
    *(".github/workflows/**", ".gitlab-ci.yml", ".circleci/**", "azure-pipelines.yml", "Jenkinsfile"),
    *(".travis.yml", ".buildkite/**", ".pre-commit-config.yaml", ".fleet/**", "**/.gitattributes"),
)
# Parts of files that hold more than the configuration of tests, and that tests do not depend on.
_HARMLESS_IN_PACKAGE = frozenset(
    {
        *("name", "version", "description", "keywords", "author", "contributors", "license", "repository"),
        *("homepage", "bugs", "dependencies", "devDependencies", "peerDependencies", "optionalDependencies"),
        *("private", "files", "types", "typings", "funding"),
    }
)
_HARMLESS_TOOLS = frozenset(
    {"black", "hatch", "isort", "mypy", "pdm", "poetry", "pyright", "ruff", "setuptools", "uv"}
)
_HARMLESS_IN_PROJECT = frozenset({"project", "build-system", "dependency-groups"})
_SHELLS = frozenset({"sh", "bash", "dash", "zsh"})
_SEPARATORS = frozenset({";", "&&", "||", "|", "&", "(", ")"})
# Words that take a test out, in the languages that agents write most.
_SKIPS = re.compile(
    r"\b(?:pytest|unittest|mark|self|it|test|describe|suite|context|[tb])\.(?:[sS]kip\w*|xfail|only|todo)\b"
    r"|@(?:skip\w*|Ignore|Disabled)\b|\bx(?:it|describe|test)\(|#\[ignore|importorskip"
    r"|collect_ignore|pytestmark|addopts|deselect|--ignore|os\._exit"
    r"|pytest_(?:ignore_collect|collection|itemcollected|runtest|pyfunc_call|sessionfinish)"
)
_DEFINITION = re.compile(r"^\s*(?:async )?(?:def|func|fn|class|it|test|describe)\b[ (]*['\"]?[\w ]+")


class ChangeKind(StrEnum):
    ADDED = "added"
    CHANGED = "changed"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One path that differs between two commits. A renamed file is one deleted and one added."""

    path: str
    kind: ChangeKind
    added: int = 0  # lines
    removed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """Something about a protected path that a person should know."""

    path: str
    what: str
    is_tampering: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What a candidate's changes mean for measuring it."""

    restored: tuple[str, ...]  # tried as they are in the base
    tests: tuple[str, ...]  # of these, tests that it adds, which may be tried on others
    flags: tuple[Flag, ...]


class Protection:
    """Which paths are protected: the last pattern that matches decides, and one with `!` sets free."""

    def __init__(self, patterns: Sequence[str] = (), gates: Sequence[str] = ()) -> None:
        self._own = patterns
        self._gate_files = frozenset(name for gate in gates for name in programs_of(gate))

    def covers(self, path: str) -> bool:
        if path in self._gate_files:
            return True
        for pattern in reversed(self._own):
            if matches(path, pattern.removeprefix("!")):
                return not pattern.startswith("!")
        return _matches_any(path, TESTS) or _matches_any(path, CONFIGURATION)

    def is_test(self, path: str) -> bool:
        is_other = path in self._gate_files or _matches_any(path, CONFIGURATION)
        return self.covers(path) and not is_other

    def is_configuration(self, path: str) -> bool:
        return self.covers(path) and not self.is_test(path)


def _matches_any(path: str, patterns: Sequence[str]) -> bool:
    return any(matches(path, pattern) for pattern in patterns)


def matches(path: str, pattern: str) -> bool:
    """Tell whether a path is meant by a pattern: `*` stays within a folder, `**` does not; case is equal.

    A folder's pattern means the folder's own name, too: a link may have been put in its place.
    """
    return _compiled(pattern).fullmatch(path.casefold()) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    if pattern.endswith("/"):
        pattern += "**"
    pieces = re.split(r"(\*\*/|/\*\*$|\*\*|\*|\?)", pattern.casefold())
    meaning = {"**/": "(?:.*/)?", "/**": "(?:/.*)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(meaning.get(piece, re.escape(piece)) for piece in pieces), re.DOTALL)


def programs_of(command: str) -> list[str]:
    """Return the files of the repository that a command runs as programs."""
    try:
        lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError:  # a quote that is not closed: the shell will say so
        return []
    found: list[str] = []
    before = ";"
    for word in words:
        is_script = before in _SHELLS and not word.startswith("-")
        is_program = before in _SEPARATORS and "/" in word and not word.startswith("/")
        if is_script or is_program:
            found.append(word.removeprefix("./"))
        is_variable = before in _SEPARATORS and "=" in word
        before = before if is_variable else word
    return found


def examine(
    changes: Sequence[Change],
    protection: Protection,
    before: Mapping[str, str],
    after: Mapping[str, str],
) -> Examined:
    """Look at what a candidate changed of what it is measured by. `before` and `after` are files' texts."""
    restored: list[str] = []
    tests: list[str] = []
    flags: list[Flag] = []
    for change in changes:
        old, new = before.get(change.path, ""), after.get(change.path, "")
        if protection.is_configuration(change.path):
            if change.kind is not ChangeKind.DELETED and is_beside_tests(change.path, old, new):
                continue
            flags.append(_configuration_flag(change, new))
        elif protection.is_test(change.path):
            flag = _test_flag(change, old, new)
            flags += [flag] if flag else []
            tests += [] if flag and flag.is_tampering else [change.path]
        else:
            continue
        restored.append(change.path)
    return Examined(restored=tuple(restored), tests=tuple(tests), flags=tuple(flags))


def _configuration_flag(change: Change, new: str) -> Flag:
    if change.kind is not ChangeKind.ADDED:
        return Flag(path=change.path, what=f"{change.kind} configuration", is_tampering=True)
    hides = bool(_SKIPS.search(new))
    what = "added configuration that takes tests out" if hides else "added configuration"
    return Flag(path=change.path, what=what, is_tampering=hides)


def _test_flag(change: Change, old: str, new: str) -> Flag | None:
    match change.kind:
        case ChangeKind.ADDED:
            return None
        case ChangeKind.DELETED:
            return Flag(path=change.path, what="deleted test", is_tampering=True)
        case ChangeKind.CHANGED if change.removed or not change.added:
            return Flag(path=change.path, what="changed test", is_tampering=True)
        case ChangeKind.CHANGED:
            return _addition_flag(change.path, old, new)


def _addition_flag(path: str, old: str, new: str) -> Flag:
    """Judge lines that were only added to a test that was there."""
    if len(_SKIPS.findall(new)) > len(_SKIPS.findall(old)):
        return Flag(path=path, what="takes tests out", is_tampering=True)
    if _repeats_definition(old, new):
        return Flag(path=path, what="replaces a test by one of its name", is_tampering=True)
    return Flag(path=path, what="added to a test that was there")


def _repeats_definition(old: str, new: str) -> bool:
    """Tell whether a definition stands in the new text more often than in the old one."""

    def definitions(text: str) -> list[str]:
        return [found[0].strip() for line in text.splitlines() if (found := _DEFINITION.match(line))]

    before, after = definitions(old), definitions(new)
    return any(after.count(name) > before.count(name) for name in set(before))


def is_beside_tests(path: str, old: str, new: str) -> bool:
    """Tell whether a change of a file that holds more than configuration of tests leaves that as it was."""
    name = path.rpartition("/")[2].casefold()
    read = {"package.json": _of_package, "pyproject.toml": _of_project}.get(name)
    if read is None:
        return False
    try:
        return read(old) == read(new)
    except (ValueError, RecursionError):  # it cannot be read: then nothing can be told of it
        return False


def _of_package(text: str) -> object:
    return _without(json.loads(text or "{}"), lambda key: key in _HARMLESS_IN_PACKAGE)


def _of_project(text: str) -> object:
    import tomllib  # few commands need it

    top: Mapping[str, object] = tomllib.loads(text)
    tools = _without(top.get("tool", {}), lambda key: key in _HARMLESS_TOOLS)
    return tools, _without(top, lambda key: key in _HARMLESS_IN_PROJECT or key == "tool")


def _without(value: object, is_harmless: Callable[[str], bool]) -> object:
    if not isinstance(value, dict):
        return value
    items = cast("Mapping[str, object]", value).items()
    return {key: part for key, part in items if not is_harmless(key)}
