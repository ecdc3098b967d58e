"""What in a repository decides whether work is good: its tests, their configuration, the gates' own files.

Whoever is measured must not change what it is measured by. Such paths are tried as they are in the base,
and changes of them are told.
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
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
_TEST_NAMES = tuple(pattern for pattern in TESTS if not pattern.endswith("/**"))
CI = (
    *(".github/workflows/**", ".github/actions/**", ".gitlab-ci.yml", ".gitlab/ci/**", ".circleci/**"),
    *(".ci/**", "**/Jenkinsfile", "azure-pipelines.yml", ".azure-pipelines/**", "bitbucket-pipelines.yml"),
    *(".travis.yml", ".buildkite/**", ".drone.yml", ".woodpecker.yml", ".woodpecker/**", ".appveyor.yml"),
    *("appveyor.yml", ".cirrus.yml", ".semaphore/**", ".teamcity/**", "cloudbuild.yaml", "buildspec.yml"),
    *(".forgejo/workflows/**", ".gitea/workflows/**", ".pre-commit-config.yaml", ".husky/**"),
    *("lefthook.yml", ".lefthook.yml"),
)
CONFIGURATION = (
    *("**/conftest.py", "**/pytest.ini", "**/.pytest.ini", "**/tox.ini", "**/setup.cfg", "**/noxfile.py"),
    *("**/.coveragerc", "**/pyproject.toml", "**/sitecustomize.py", "**/usercustomize.py", "**/*.pth"),
    *("**/package.json", "**/jest.config.*", "**/jest.setup.*", "**/vitest.config.*", "**/vitest.setup.*"),
    *("**/karma.conf.*", "**/.mocharc*", "**/playwright.config.*", "**/cypress.config.*", "**/.nycrc*"),
    *("**/phpunit.xml*", "**/.rspec", "**/Rakefile", "**/.cargo/**", "**/pom.xml", "**/build.gradle*"),
    *("**/Makefile", "**/GNUmakefile", "**/makefile", "**/justfile", "**/Taskfile.y*ml", "**/CTestConfig.*"),
    *(".fleet/**", "**/.gitattributes", *CI),
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
# Programs that look at files and run none of them: what they are given is mostly the work itself.
_READERS = frozenset(
    {
        *("ruff", "black", "isort", "flake8", "pylint", "mypy", "pyright", "py_compile", "compileall"),
        *("eslint", "prettier", "tsc", "shellcheck", "gofmt", "rustfmt", "rubocop"),
        *("cc", "gcc", "g++", "clang", "clang++", "rustc", "javac"),
    }
)
_WORDS = re.compile(r"[;&|()\n]+|[^\s;&|()<>'\"`]+")  # of a command, and of commands within its quotes
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
    old: str = ""  # mode and object id before and after; "" where git was not asked
    new: str = ""


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
        self._gate_files = frozenset(name.casefold() for gate in gates for name in files_of(gate))

    def covers(self, path: str) -> bool:
        for pattern in reversed(self._own):
            if matches(path, pattern.removeprefix("!")):
                return not pattern.startswith("!")
        return self.is_in_gate(path) or _matches_any(path, TESTS) or _matches_any(path, CONFIGURATION)

    def is_in_gate(self, path: str) -> bool:
        """Whether a gate names it. A test that it names by a test's own name is a test like any other."""
        return path.casefold() in self._gate_files and not _matches_any(path, _TEST_NAMES)

    def is_configuration(self, path: str) -> bool:
        return self.covers(path) and (self.is_in_gate(path) or _matches_any(path, CONFIGURATION))

    def is_test(self, path: str) -> bool:
        return self.covers(path) and not self.is_configuration(path)


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


def files_of(command: str) -> set[str]:
    """Return every path of the repository that a command may mean with one of its words.

    Whatever runs it, a script is a word of the command; a word that is no file protects nothing. Only what
    follows a program that runs no files is left out.
    """
    found = {*_paths_in(_shell_words(command)), *_paths_in(_WORDS.findall(command))}
    return {path for path in map(posixpath.normpath, found) if not path.startswith("..")}


def _paths_in(words: Sequence[str]) -> Iterator[str]:
    folders, before, is_read = [""], "", False
    for word in words:
        # `$PWD/x` means x, and `--option=x` and `NAME=x` do, too.
        names = [re.sub(r"^(\$[^/]*)?/+", "", text) for text in (word, word.partition("=")[2])]
        names += _module_files(before, word)
        if not word.strip(";&|()\n"):
            is_read = False
        elif before in ("cd", "pushd"):
            folders += [names[0], posixpath.join(folders[-1], names[0])]
        elif word.rpartition("/")[2] in _READERS:
            is_read = True
        elif not is_read:
            yield from (posixpath.join(folder, name) for folder in folders for name in names)
        before = word


def _shell_words(command: str) -> list[str]:
    try:
        lexer = shlex.shlex(command, posix=True, punctuation_chars=";&|()<>\n")
        lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
        return list(lexer)
    except ValueError:  # a quote that is not closed: the shell will say so
        return []


def _module_files(before: str, word: str) -> list[str]:
    """Return the files that Python may run for `-m name`."""
    name = word if re.fullmatch(r"-\w*m", before) else word[2:] if word.startswith("-m") else ""
    path = name.replace(".", "/").strip("/")
    return [f"{path}.py", f"{path}/__init__.py", f"{path}/__main__.py"] if path else []


def examine(
    changes: Sequence[Change], protection: Protection, before: Mapping[str, str], after: Mapping[str, str]
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
            what = "a file that a gate names" if protection.is_in_gate(change.path) else "configuration"
            is_new = change.kind is ChangeKind.ADDED
            hides = is_new and bool(_SKIPS.search(new))
            told = f"{change.kind} {what}{' that takes tests out' if hides else ''}"
            flags.append(Flag(path=change.path, what=told, is_tampering=hides or not is_new))
        elif protection.is_test(change.path):
            flag = _test_flag(change, old, new)
            flags += [flag] if flag else []
            tests += [] if flag and flag.is_tampering else [change.path]
        else:
            continue
        restored.append(change.path)
    return Examined(restored=tuple(restored), tests=tuple(tests), flags=tuple(flags))


def _test_flag(change: Change, old: str, new: str) -> Flag | None:
    if change.kind is ChangeKind.ADDED:
        return None
    if change.kind is ChangeKind.DELETED:
        what = "deleted test"
    elif change.removed or not change.added:
        what = "changed test"
    elif len(_SKIPS.findall(new)) > len(_SKIPS.findall(old)):
        what = "takes tests out"
    elif _repeats_definition(old, new):
        what = "replaces a test by one of its name"
    else:
        return Flag(path=change.path, what="added to a test that was there")
    return Flag(path=change.path, what=what, is_tampering=True)


def _repeats_definition(old: str, new: str) -> bool:
    """Tell whether a definition stands in the new text more often than in the old one."""
    before, after = (
        Counter(found[0].strip() for line in text.splitlines() if (found := _DEFINITION.match(line)))
        for text in (old, new)
    )
    return any(after[name] > number for name, number in before.items())


def is_beside_tests(path: str, old: str, new: str) -> bool:
    """Tell whether a change of a file that holds more than configuration of tests leaves that as it was."""
    name = path.rpartition("/")[2].casefold()
    try:
        return name in ("package.json", "pyproject.toml") and _of_tests(name, old) == _of_tests(name, new)
    except (ValueError, RecursionError):  # it cannot be read: then nothing can be told of it
        return False


def _of_tests(name: str, text: str) -> object:
    """Return the parts of a file that tests may depend on."""
    if name == "package.json":
        return _without(json.loads(text or "{}"), _HARMLESS_IN_PACKAGE)
    import tomllib  # few commands need it

    top = tomllib.loads(text)
    return _without(top.get("tool", {}), _HARMLESS_TOOLS), _without(top, _HARMLESS_IN_PROJECT | {"tool"})


def _without(value: object, harmless: Container[str]) -> object:
    if not isinstance(value, dict):
        return value
    items = cast("Mapping[str, object]", value).items()
    return {key: part for key, part in items if key not in harmless}
