"""Whether a change alters what a program does, as far as that can be proved without running it.

Proved is little: a file with the same bytes and mode, and a Python file with the same syntax tree, behave as
before. Comments, blank lines, line breaks and quotes are no part of a syntax tree; docstrings are, because a
program can read them. Everything else counts as other behaviour.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Mapping, Sequence

from fleet.domain.protection import Change, ChangeKind

MOST_PARSED = 1 << 19  # characters of one candidate's Python files; beyond that nothing is claimed
_REGULAR_FILES = ("100644 ", "100755 ")
_UNREADABLE = "\N{REPLACEMENT CHARACTER}"  # stands for bytes that are not UTF-8
SAME = hashlib.sha256().hexdigest()  # of a change after which nothing behaves differently


def parsed_paths(changes: Iterable[Change]) -> list[str]:
    """Return the paths whose texts `digest_behaviour` needs."""
    return [change.path for change in changes if _is_python(change)]


def digest_behaviour(changes: Sequence[Change], before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Name what changes in behaviour: equal digests of changes to one base mean equal behaviour.

    The digest is `SAME` where every change is proved to alter nothing.
    """
    paths = parsed_paths(changes)
    if sum(len(texts.get(path, "")) for path in paths for texts in (before, after)) > MOST_PARSED:
        before = after = {}
    digest = hashlib.sha256()
    for change in sorted(changes, key=lambda change: change.path):
        old, new = _meaning(change, change.old, before), _meaning(change, change.new, after)
        if old != new:
            digest.update(f"{change.path}\0{new}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _is_python(change: Change) -> bool:
    is_file = change.old.startswith(_REGULAR_FILES) and change.new.startswith(_REGULAR_FILES)
    return change.kind is ChangeKind.CHANGED and is_file and change.path.endswith(".py")


def _meaning(change: Change, blob: str, texts: Mapping[str, str]) -> str:
    """Return the mode of a file, and its syntax tree where that can be told, else its content's name."""
    text = texts.get(change.path, _UNREADABLE) if _is_python(change) else _UNREADABLE
    tree = "" if _UNREADABLE in text else _syntax_tree(text)
    return f"{blob.partition(' ')[0]} {tree}" if tree else blob


def _syntax_tree(text: str) -> str:
    """Return a digest of the syntax tree of a Python file; "" if this Python cannot parse it."""
    import ast  # few commands need it

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd escapes in a string are not ours to report
            tree = ast.dump(ast.parse(text.encode()))  # bytes: a declared encoding counts
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    return hashlib.sha256(tree.encode(errors="surrogatepass")).hexdigest()
