"""Refs as git keeps them in files, read without starting git. Repositories that have none are refused.

Each is a file of its own that says a commit, or a line of `packed-refs`; a file outranks the line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from fleet.adapters.workspaces.folders import NEW_FILE, read_text, remove_file

HEADS = "refs/heads/"
SHA = re.compile(r"\b[0-9a-f]{40}(?:[0-9a-f]{24})?\b")


def read_ref(common: Path, ref: str) -> str:
    """Return the commit that a ref names; "" if there is no such ref, or it names another one."""
    try:
        told = read_text(common / ref).strip()
    except OSError:  # an agent has made something else of it
        return ""
    found = told or _packed(common).get(ref, "")
    return found if SHA.fullmatch(found) else ""


def has_ref(common: Path, ref: str) -> bool:
    """Tell whether there is such a ref, whatever it names."""
    return os.path.lexists(common / ref) or ref in _packed(common)


def branches_of(common: Path) -> set[str]:
    refs = (*_loose(common, "refs/heads"), *_packed(common))
    return {ref.removeprefix(HEADS) for ref in refs if ref.startswith(HEADS)}


def all_refs(common: Path) -> dict[str, str]:
    """Return every ref, with what its file or its line says: a commit, or another ref."""
    # Files first: packing writes the line, then deletes the file.
    loose = {ref: told for ref in _loose(common, "refs") if (told := read_text(common / ref).strip())}
    return {**_packed(common), **loose}


def replace_packed(common: Path, ref: str, sha: str) -> None:
    """Write another commit into a ref's line of `packed-refs`, which git cannot do if it cannot read it."""
    file, lock = common / "packed-refs", common / "packed-refs.lock"
    with os.fdopen(os.open(lock, NEW_FILE, 0o666), "w", encoding="utf-8", errors="surrogateescape") as draft:
        for line in read_text(file).split("\n")[:-1]:
            draft.write(f"{sha} {ref}\n" if line.partition(" ")[2] == ref else f"{line}\n")
    lock.replace(file)


def delete_own_ref(common: Path, ref: str) -> bool:
    """Delete a ref of ours as git would; return False, and leave it to git, if it is packed or locked."""
    lock = common / f"{ref}.lock"
    try:
        os.close(os.open(lock, NEW_FILE, 0o666))
    except FileNotFoundError:  # not even its folder is there
        return ref not in _packed(common)
    except OSError:
        return False
    try:
        if _is_being_packed(common, ref):
            return False
        remove_file(common / ref)
        remove_file(common / "logs" / ref)
    except OSError:
        return False
    finally:
        remove_file(lock)
    return not _is_being_packed(common, ref)  # by somebody who had read it before it was gone


def _is_being_packed(common: Path, ref: str) -> bool:
    return (common / "packed-refs.lock").exists() or ref in _packed(common)


def _loose(common: Path, under: str) -> Iterator[str]:
    top = f"{common}/"
    for folder, _, names in os.walk(f"{top}{under}"):
        yield from (f"{folder}/{name}"[len(top) :] for name in names if not name.endswith(".lock"))


def _packed(common: Path) -> dict[str, str]:
    """Return the refs that are lines, and what these say."""
    lines = (line for line in read_text(common / "packed-refs").split("\n") if line and line[0] not in "#^")
    return {ref: sha for sha, _, ref in (line.partition(" ") for line in lines)}
