"""Edits of other programs' config files, and how to undo them: to the byte, if nobody else wrote."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from fleet.config.files import replace_file
from fleet.domain import jsonc
from fleet.domain.event import Json
from fleet.domain.jsonc import MISSING, Missing
from fleet.errors import InvalidInput, Unavailable
from fleet.records.collection import decode_item
from fleet.services import toml_edits
from fleet.services.clients import STATUS_LINE, Format, Piece

_ANOTHER = "there is another of that name; rename or remove it, and install again"
_CHANGED = "it was changed since; for fleet's own remove it, and install again"
_LEFT_OUT = "fix that, or name other clients with --client"
# Modules with the same functions.
_EDITS: Mapping[Format, Any] = {Format.JSON: jsonc, Format.TOML: toml_edits}
ABSENT = ""  # instead of the hash of a file that is not there


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEdit(Piece):
    """One piece of ours in one file, and all that is needed to take it out."""

    real: str  # where its links led when it was put in
    before: str  # the hash of the file without it, and the name of the copy that is kept
    after: str  # the hash of the file with it
    inserted: str = ""  # the text that was added, in one piece
    made: int = 0  # how many levels that lead to it are ours, too
    folders: tuple[str, ...] = ()  # that had to be made, the outermost first
    was: ConfigEdit | None = None  # what is in the file until this one is


@dataclass(frozen=True, slots=True)
class Change:
    """What is to become of a file, or why nothing is."""

    piece: Piece
    verb: str  # add, update, remove; same or keep: nothing is written
    note: str = ""
    planned_from: str = ""  # the hash of the file as it was read
    content: bytes | None = field(default=None, repr=False)  # of the file from now on; None: no file
    before: bytes | None = field(default=None, repr=False)  # the file without anything of ours, to be kept
    edit: ConfigEdit | None = field(default=None, repr=False)  # from now on; None: nothing of ours

    @property
    def is_made(self) -> bool:
        return self.verb in ("add", "update", "remove")


def place_of(file: str | Path) -> str:
    """Return where a file really is: two paths of which one is linked to the other are one file."""
    return os.path.realpath(file)


def hash_of(content: bytes | None) -> str:
    return ABSENT if content is None else hashlib.sha256(content).hexdigest()


# putting in


def plan_edit(piece: Piece, known: ConfigEdit | None, kept: KeptCopies) -> Change:
    """Return how a piece gets into its file, unless others have one there; `InvalidInput` if it is broken."""
    content = read_content(piece.file)
    found = _found(piece, content)
    named = (*(known.clients if known else ()), *piece.clients)
    piece = replace(piece, clients=tuple(dict.fromkeys(named)))
    if found is MISSING:
        return _add(piece, content, content, known)
    if known is None:
        if found == piece.value:
            return Change(piece, "keep", "it was there before fleet came")
        return Change(piece, "keep", "you have one of your own" if piece.path == STATUS_LINE else _ANOTHER)
    held = _held(known, content)
    if found == piece.value:
        return Change(piece, "same", edit=replace(held or known, clients=piece.clients, was=None))
    if held is None:
        return Change(piece, "keep", _CHANGED, edit=replace(known, clients=piece.clients))
    freed = _freed(held, content, kept)
    if freed is MISSING:
        return Change(piece, "keep", "it cannot be changed alone", edit=held)
    return replace(_add(piece, content, freed, held), verb="update")


def _found(piece: Piece, content: bytes | None) -> Json | Missing:
    if content is None:
        return MISSING
    text = _decoded(piece.file, content)
    if piece.format is Format.TEXT:
        return text
    with _named(piece.file, piece.format):
        return _value_at(piece.format, text, piece.path)


def _value_at(format_: Format, text: str, path: Sequence[str]) -> Json | Missing:
    return _EDITS[format_].value_at(text, path) if text.strip() else MISSING


def _add(piece: Piece, content: bytes | None, freed: bytes | None, known: ConfigEdit | None) -> Change:
    """Plan to put a piece into a file, which has nothing of ours in `freed`."""
    _require_writable(piece.file)
    text = "" if freed is None else _decoded(piece.file, freed)
    new, inserted = _with_piece(piece, text)
    levels = range(1, len(piece.path)) if piece.format is Format.JSON else ()
    real = Path(piece.file).resolve()
    missing = [str(folder) for folder in real.parents if not folder.exists()]
    edit = ConfigEdit(
        **asdict(piece),
        real=known.real if known else str(real),
        before=hash_of(freed),
        after=hash_of(new.encode()),
        inserted=inserted,
        made=sum(_value_at(piece.format, text, piece.path[:level]) is MISSING for level in levels),
        folders=known.folders if known else tuple(reversed(missing)),
        was=known and replace(known, was=None),
    )
    planned_from = hash_of(content)
    return Change(piece, "add", planned_from=planned_from, content=new.encode(), before=freed, edit=edit)


def _with_piece(piece: Piece, text: str) -> tuple[str, str]:
    """Return a text with the piece in it, and what was added."""
    if piece.format is Format.TEXT:
        return cast("str", piece.value), ""
    if piece.format is Format.JSON and not text.strip():
        value = piece.value
        for name in reversed(piece.path):
            value = {name: value}
        return json.dumps(value, ensure_ascii=False, indent=2) + "\n", ""
    with _named(piece.file, piece.format):
        place, inserted = _EDITS[piece.format].added(text, piece.path, piece.value)
    return text[:place] + inserted + text[place:], inserted


# taking out


def plan_removal(edit: ConfigEdit, kept: KeptCopies) -> Change:
    """Return how a piece gets out of its file; what is not as we have put it there is theirs, and stays."""
    found = read_content(edit.file)
    change = partial(Change, edit, planned_from=hash_of(found))
    if hash_of(found) == edit.before or _found(edit, found) is MISSING:
        return change("same", "it is not there any more")
    held = _held(edit, found)
    if held is None:
        return change("keep", "it was changed since, and is yours now")
    freed = _freed(held, found, kept)
    is_theirs = place_of(held.file) != held.real  # moved and linked: by now it is not ours to delete
    if freed is None and is_theirs:
        freed = _cut(held, found)
    if freed is MISSING:
        return change("keep", "it cannot be taken out alone")
    _require_writable(edit.file)
    if hash_of(found) == held.after:
        return change("remove", content=freed)
    if held.before == ABSENT and not is_theirs and (freed or b"").split() in ([], [b"{}"], [b"{", b"}"]):
        return change("remove")  # somebody wrote it anew, and nothing of theirs is in it
    note = "the file was changed since: only what is fleet's is taken out"
    return change("remove", note, content=freed)


def _held(edit: ConfigEdit, content: bytes | None) -> ConfigEdit | None:
    """Return the placement whose piece is there: this one, or the one before if this never came so far."""
    found = _found(edit, content)
    either = (one for one in (edit, edit.was) if one)
    return next((one for one in either if one.value == found), None)


def _freed(held: ConfigEdit, content: bytes | None, kept: KeptCopies) -> bytes | Missing | None:
    """Return a file without ours, to the byte if nobody else wrote; `MISSING` if that cannot be done."""
    return kept.content_of(held.before) if hash_of(content) == held.after else _cut(held, content)


def _cut(held: ConfigEdit, content: bytes | None) -> bytes | Missing:
    """Return a file without ours, in which all else is as it is; `MISSING` if that cannot be."""
    if content is None or held.format is Format.TEXT:
        return MISSING
    text = _decoded(held.file, content)
    with _named(held.file, held.format):
        rests = (rest for rest in _cuts(held, text) if _is_all_else_there(held, text, rest))
        return next((rest.encode() for rest in rests), MISSING)


def _cuts(held: ConfigEdit, text: str) -> Iterable[str]:
    """Yield texts that may do: without the very letters that were added, then without what they became."""
    if held.inserted and text.count(held.inserted) == 1:
        yield text.replace(held.inserted, "")
    if (rest := _EDITS[held.format].without(text, held.path, made=held.made)) is not None:
        yield rest


def _is_all_else_there(held: ConfigEdit, text: str, rest: str) -> bool:
    def comments_in(text: str) -> list[str]:
        return [found[1] for found in _EDITS[held.format].COMMENT.finditer(text) if found[1]]

    try:
        is_gone = _value_at(held.format, rest, held.path) is MISSING
        # As texts: to Python, 1 is true, and what is no number is not even equal to itself.
        before, after = (repr(_less(_value_at(held.format, one, ()), held.path)) for one in (text, rest))
        return is_gone and before == after and comments_in(rest) == comments_in(text)
    except InvalidInput:  # something else was added after it, and has no comma now
        return False


def _less(tree: Json | Missing, path: Sequence[str]) -> Json:
    """Return a tree without a path; levels that led to nothing else say nothing."""
    if tree is MISSING:
        return {}
    if not isinstance(tree, dict) or path[0] not in tree:
        return tree
    inner = _less(tree[path[0]], path[1:]) if path[1:] else {}
    if inner:
        return {**tree, path[0]: inner}
    return {name: value for name, value in tree.items() if name != path[0]}


# files


def read_content(file: str) -> bytes | None:
    """Return what is in a file, through links; None if there is none. Raises `Unavailable`."""
    try:
        return Path(file).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise Unavailable(f"{file} cannot be read: {problem.strerror}", hint=_LEFT_OUT) from problem


def write_change(change: Change) -> bool:
    """Make a change, where the links of its file lead; return False if the file is not as it was read.

    Its mode stays. Who writes it in the very moment of renaming is not seen: no lock holds clients off.
    """
    file = change.piece.file
    path = Path(file).resolve()

    def is_as_planned() -> bool:
        return hash_of(read_content(file)) == change.planned_from

    try:
        if change.content is None:
            if is_planned := is_as_planned():
                path.unlink(missing_ok=True)
            return is_planned
        path.parent.mkdir(parents=True, exist_ok=True)
        usual = 0o644 if change.edit and change.edit.project else 0o600
        mode = path.stat().st_mode & 0o777 if path.exists() else usual
        return replace_file(path, change.content, mode=mode, only_if=is_as_planned)
    except OSError as problem:
        raise Unavailable(f"{file} cannot be written: {problem.strerror}", hint=_LEFT_OUT) from problem


def _decoded(file: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as problem:
        raise InvalidInput(f"{file} is not UTF-8", hint="it was left as it is") from problem


@contextmanager
def _named(file: str, format_: Format) -> Generator[None]:
    try:
        yield
    except InvalidInput as problem:
        raise InvalidInput(
            f"{file} cannot be read as {format_.upper()}: {problem.message}",
            hint=f"{problem.hint or 'fix it'}, or name other clients with --client; nothing was changed",
        ) from problem


def _require_writable(file: str) -> None:
    """Raise `Unavailable` for one that is read-only, or whose folder is: the next version is made there."""
    real = Path(file).resolve()
    folder = next(parent for parent in real.parents if parent.exists())
    for path in (real, folder):
        # Its owner must be allowed to, even if root could anyway.
        if path.exists() and not (path.stat().st_mode & 0o200 and os.access(path, os.W_OK)):
            raise Unavailable(f"{path} is read-only", hint=f"`chmod u+w {path}`, or leave that client out")


def remove_folders(folders: Iterable[str]) -> None:
    """Remove folders that are empty now; the innermost is the last."""
    for folder in reversed([*folders]):
        try:
            Path(folder).rmdir()
        except OSError:  # somebody has something in it, or it is gone
            return


class KeptCopies:
    """Files as they were before anything of ours was in them, by their hash."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, content: bytes | None) -> None:
        if content is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._folder / hash_of(content)
        if not path.exists():
            replace_file(path, content, mode=0o600)

    def forget_others(self, needed: Collection[str]) -> None:
        """Delete the copies that nobody needs any more: users keep secrets in such files."""
        for path in self._folder.glob("*"):
            if path.name not in needed:
                path.unlink()

    def content_of(self, hash_: str) -> bytes | None:
        """Return a kept file; raise `Unavailable` if the copy is lost."""
        if hash_ == ABSENT:
            return None
        content = read_content(str(self._folder / hash_))
        if hash_of(content) != hash_:
            raise Unavailable(f"the copy {self._folder / hash_} is lost", hint="edit the file by hand")
        return content


class EditRegister:
    """All edits, in a file of fleet's home."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def load(self) -> dict[str, ConfigEdit]:
        """Return edits by the place of their file."""
        content = read_content(str(self._file))
        if content is None:
            return {}
        try:
            told = cast("Sequence[dict[str, Any]]", json.loads(content))
            read = [decode_item(ConfigEdit, entry) for entry in told]
        except (ValueError, TypeError, AttributeError) as problem:
            raise Unavailable(f"{self._file} cannot be read: {problem}", hint="restore it") from problem
        known: dict[str, ConfigEdit] = {}
        for one in read:
            place = place_of(one.file)
            if other := known.get(place):  # the user has linked one's file to the other's
                held = other if other.real == place else one
                one = replace(held, clients=tuple(dict.fromkeys((*other.clients, *one.clients))))
            known[place] = one
        return known

    def save(self, edits: dict[str, ConfigEdit]) -> None:
        if not edits:
            self._file.unlink(missing_ok=True)
            return
        told = [asdict(edit) for edit in edits.values()]
        replace_file(self._file, json.dumps(told, indent=1).encode())
