"""A command within the test process, which takes a few milliseconds.

What a process has for itself is made anew for each call and put back after it: the environment, the folder,
the three streams (as descriptors, so that programs which a command starts write there, too), signal handlers,
log handlers, and what fleet's modules remember.
"""

from __future__ import annotations

import contextlib
import locale
import logging
import os
import signal
import sys
import threading
from asyncio import _get_running_loop
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import _lru_cache_wrapper
from pathlib import Path
from typing import Any, NoReturn

# What an interpreter reads only as it starts, or others read from /proc.
_AT_START = ("LANG", "LC_", "TZ", "PYTHON", "FLEET_RUN")
_WITHOUT_EFFECT = ("PYTHONUNBUFFERED",)  # on what a test can see
_REPLACING = ("attach", "mcp", "demo")  # become another program, serve, or end a supervisor of their own
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD, signal.SIGWINCH)


def can_run_here(words: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether a command does the same within this process as in one of its own."""
    if threading.current_thread() is not threading.main_thread() or _get_running_loop() is not None:
        return False
    if words and (words[0] in _REPLACING or tuple(words) == ("run",)):
        return False
    names = environment.keys() | os.environ.keys()
    return not any(
        name.startswith(_AT_START) and environment.get(name) != os.environ.get(name)
        for name in names
        if name not in _WITHOUT_EFFECT
    )


def run_here(
    words: Sequence[str], *, environment: Mapping[str, str], folder: Path, stdin: bytes
) -> tuple[int, bytes, bytes]:
    """Run a command within this process; return its exit code, and what it wrote to stdout and stderr."""
    from fleet.interfaces.cli.main import main

    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(_memory(name)) for name in ("stdin", "stdout", "stderr")]
        os.pwrite(files[0], stdin, 0)
        for enter in (_handlers(), _signals(), _no_exec(), _folder(folder), _environment(environment)):
            stack.enter_context(enter)
        with _streams(files, ["fleet", *words]):
            _forget()
            try:
                code = main(list(words))
            except SystemExit as exit_:
                code = exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
            finally:
                _forget()
        return code, _read(files[1]), _read(files[2])


@contextlib.contextmanager
def _memory(name: str) -> Generator[int]:
    file = os.memfd_create(name)
    try:
        yield file
    finally:
        os.close(file)


def _read(file: int) -> bytes:
    return os.pread(file, os.fstat(file).st_size, 0)


@contextlib.contextmanager
def _streams(files: Sequence[int], argv: list[str]) -> Generator[None]:
    """Put files where the standard streams are, for Python and for programs that are started."""
    python = sys.stdin, sys.stdout, sys.stderr, sys.argv
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(number) for number in range(3)]
    for number, file in enumerate(files):
        os.dup2(file, number)
    encoding = locale.getpreferredencoding(False)
    made = [os.fdopen(number, mode, encoding=encoding, closefd=False) for number, mode in enumerate("rww")]
    sys.stdin, sys.stdout, sys.stderr = made
    sys.stderr.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    sys.argv = argv
    try:
        yield
    finally:
        for stream in made:
            with contextlib.suppress(BrokenPipeError, ValueError):
                stream.close()
        sys.stdin, sys.stdout, sys.stderr, sys.argv = python
        for number, file in enumerate(kept):
            os.dup2(file, number)
            os.close(file)


@contextlib.contextmanager
def _environment(wanted: Mapping[str, str]) -> Generator[None]:
    before = dict(os.environ)
    _change_environment(wanted)
    try:
        yield
    finally:
        _change_environment(before)


def _change_environment(wanted: Mapping[str, str]) -> None:
    for name in os.environ.keys() - wanted.keys():
        del os.environ[name]
    for name, value in wanted.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


@contextlib.contextmanager
def _folder(folder: Path) -> Generator[None]:
    before = os.open(".", os.O_PATH | os.O_DIRECTORY)  # it may be gone, and have no name
    try:
        os.chdir(folder)
        yield
    finally:
        os.fchdir(before)
        os.close(before)


@contextlib.contextmanager
def _signals() -> Generator[None]:
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)


@contextlib.contextmanager
def _handlers() -> Generator[None]:
    """Keep the handlers of logs: one that a command adds writes to streams that are gone after it."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


@contextlib.contextmanager
def _no_exec() -> Generator[None]:
    """Let no command put another program in the place of the tests."""

    def refuse(*given: Any) -> NoReturn:
        raise AssertionError(f"this command needs a process of its own: {given}")

    names = ("execv", "execve")
    before = {name: getattr(os, name) for name in names}
    for name in names:
        setattr(os, name, refuse)
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(os, name, function)


def _forget() -> None:
    """Clear what functions of fleet's remember: of this process, or of what another test had."""
    global _caches, _loaded
    if len(sys.modules) != _loaded:
        _loaded = len(sys.modules)
        modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == "fleet"]
        found = (value for module in modules for value in vars(module).values())
        _caches = [value.cache_clear for value in found if isinstance(value, _lru_cache_wrapper)]
    for clear in _caches:
        clear()


_caches: list[Callable[[], None]] = []
_loaded = 0
