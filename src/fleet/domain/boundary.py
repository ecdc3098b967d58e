"""What an agent must leave alone: the state of a repository before a turn, beside that after it.

A change that has a known author is not reported: the run's own branch, other runs' branches moved by
themselves, what fleet did. What is left was done by the agent, or by a person; nobody can tell which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import NamedTuple, Protocol

RECOVERY = "refs/fleet/"
UNCOMMITTED = "changed, not committed"  # a file of the main checkout
NOTHING = "nothing"  # kept of a file that was not there
MOST_NAMED = 3  # changes in the sentence that says why a run is held
MOST_LISTED = 50  # of one kind


class Weight(StrEnum):
    NOTE = "note"  # worth knowing
    RESTORED = "restored"  # fleet's own: it was put back
    HOLD = "hold"  # a person must look


class OutsideKind(StrEnum):
    REF = "ref"
    STASH = "stash"  # an entry of `git stash list`
    HEAD = "head"  # of the main checkout
    FILE = "file"  # of git's or fleet's configuration, or a hook
    CHECKOUT = "checkout"  # a file of the main checkout
    INDEX = "index"  # an entry of the main checkout's index
    WORKSPACE = "workspace"  # of another run
    RUN = "run"  # the folder of another run
    RECORD = "record"  # the state could not be compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """One change outside of a workspace during a turn."""

    kind: OutsideKind
    name: str
    old: str = ""  # in words, or a commit; "": it was not there
    new: str = ""
    weight: Weight = Weight.HOLD
    turn: int = 0
    stamp: str = ""  # identifies the new value: it is what is accepted
    kept: str = ""  # commit, or content and mode, of the old value; "": it cannot be restored

    @property
    def key(self) -> str:
        """What identifies the state that something came to, however it was before."""
        return _hash(self.kind, self.name, self.stamp or self.new)

    @property
    def change_key(self) -> str:
        """What identifies the change from one state to another."""
        return _hash(self.kind, self.name, self.stamp or self.new, self.old)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.old or 'nothing'} → {self.new or 'nothing'}"


def _hash(*words: str) -> str:
    return sha256("\n".join(words).encode(errors="replace")).hexdigest()


class Content(NamedTuple):
    """A file as it was."""

    stamp: str  # "": there was none
    mode: int = 0
    data: bytes | None = None  # None: too large to be kept

    @property
    def identity(self) -> str:
        """What identifies content and mode."""
        return f"{self.stamp} {self.mode:o}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """The state of everything that is compared, at one moment."""

    at: float
    refs: Mapping[str, str]
    is_report_only: bool = False  # nothing is to be held
    head: str = ""
    commit: str = ""  # that HEAD leads to
    stashes: Sequence[str] = ()
    files: Mapping[str, Content] = field(default_factory=dict[str, Content])
    config_files: Sequence[str] = ()  # of git: those that are read, and those that would be
    filters: Mapping[str, str] = field(default_factory=dict[str, str])
    entries: Mapping[str, str] = field(default_factory=dict[str, str])  # changed paths of the main checkout
    # Of each worktree its owner and HEAD.
    worktrees: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    runs: Mapping[str, str] = field(default_factory=dict[str, str])


class Known(Protocol):
    """Who may have made a change: asked only for what has changed."""

    is_shared: bool  # the run works in the main checkout itself

    def has_author(self, ref: str, old: str, new: str) -> bool: ...  # the run, another one, or fleet moved it
    def is_agents_stash(self, commit: str) -> bool: ...  # made on a branch of an agent that was at work
    def is_at_rest(self, run: str) -> bool: ...  # another run that did nothing meanwhile
    def explain_file(self, name: str, old: Content, new: Content) -> tuple[str, str, bool]:
        """Say how a file was and is, in a few words, and whether that follows from work in a workspace."""
        ...


def compare(before: Guarded, after: Guarded, known: Known) -> list[Outside]:
    """Return what changed and has no known author."""
    found = [*_refs(before, after, known), *_files(before, after, known), *_others(before, after, known)]
    found += [
        Outside(kind=OutsideKind.STASH, name=f"stash {commit[:10]}", old=commit)
        for commit in before.stashes
        if commit not in after.stashes and not known.is_agents_stash(commit)
    ]
    if known.is_shared:
        return found
    if before.head != after.head:
        found.append(Outside(kind=OutsideKind.HEAD, name="HEAD", old=before.head, new=after.head))
    return [*found, *_checkout(before, after)]


def _refs(before: Guarded, after: Guarded, known: Known) -> Iterator[Outside]:
    fetched, made = 0, list[str]()
    for ref in sorted({*before.refs, *after.refs}):
        old, new = before.refs.get(ref, ""), after.refs.get(ref, "")
        is_recovery = ref.startswith(RECOVERY)
        if old == new or ref == "refs/stash" or (is_recovery and not old):
            continue
        if ref.startswith(("refs/remotes/", "refs/prefetch/")):
            fetched += 1
        elif known.has_author(ref, old, new):
            continue
        elif old or ref.startswith("refs/replace/"):
            weight = Weight.RESTORED if is_recovery else Weight.HOLD
            yield Outside(kind=OutsideKind.REF, name=ref, old=old, new=new, weight=weight)
        else:
            made.append(ref)
    for ref in made[:MOST_LISTED]:
        yield Outside(kind=OutsideKind.REF, name=ref, new=after.refs[ref], weight=Weight.NOTE)
    if fetched:
        yield Outside(kind=OutsideKind.REF, name="refs/remotes", new=f"{fetched} changed", weight=Weight.NOTE)


def _files(before: Guarded, after: Guarded, known: Known) -> Iterator[Outside]:
    nothing = Content("")
    for name in sorted({*before.files, *after.files}):
        old, new = before.files.get(name, nothing), after.files.get(name, nothing)
        if old.identity == new.identity:
            continue
        was, is_now, is_harmless = known.explain_file(name, old, new)
        weight, kind = Weight.NOTE if is_harmless else Weight.HOLD, OutsideKind.FILE
        yield Outside(kind=kind, name=name, old=was, new=is_now, weight=weight, stamp=new.identity)


def _checkout(before: Guarded, after: Guarded) -> Iterator[Outside]:
    """Files that were clean and are changed now, and uncommitted changes that are gone."""
    listed = Counter[bool]()
    for path in sorted({*before.entries, *after.entries}):
        old, new = before.entries.get(path, ""), after.entries.get(path, "")
        for one in _entry_changes(path, old, new, is_moved=before.commit != after.commit):
            is_note = one.weight is Weight.NOTE
            listed[is_note] += 1
            if listed[is_note] <= MOST_LISTED:
                yield one


def _entry_changes(path: str, old: str, new: str, *, is_moved: bool) -> Iterator[Outside]:
    """An entry is "" for a clean file, "?" for one that git does not know, or what `git status` says."""
    if old == new:
        return
    staged_old, file_old = _parts(old)
    staged_new, file_new = _parts(new)
    if new == "?":
        yield Outside(kind=OutsideKind.CHECKOUT, name=path, new="a new file", weight=Weight.NOTE)
    elif old and not new:
        if not is_moved or old == "?":  # what was committed is told of as a commit
            gone = "gone" if old == "?" else "as it is committed"
            yield Outside(kind=OutsideKind.CHECKOUT, name=path, old=UNCOMMITTED, new=gone)
    else:
        if staged_new != staged_old:
            was, is_now = staged_old or "as committed", staged_new or "as committed"
            yield Outside(kind=OutsideKind.INDEX, name=path, old=was, new=is_now)
        if file_new and not file_old and old != "?":
            yield Outside(kind=OutsideKind.CHECKOUT, name=path, old="as committed", new=file_new)


_WORDS = {"M": "changed", "D": "deleted", "T": "another type", "A": "added", "U": "in conflict"}


def _parts(entry: str) -> tuple[str, str]:
    """Return what is staged of an entry, and how the file differs from that; "" where nothing does."""
    if len(entry) < 2:
        return "", ""
    staged = "" if entry[0] == "." else f"{_WORDS.get(entry[0], 'changed')} {entry[2:]}".strip()
    return staged, "" if entry[1] == "." else _WORDS.get(entry[1], "changed")


def _others(before: Guarded, after: Guarded, known: Known) -> Iterator[Outside]:
    for name, (owner, head) in before.worktrees.items():
        new = after.worktrees.get(name)
        if (new is None or new[1] != head) and owner and known.is_at_rest(owner):
            told = "" if new is None else new[1]
            yield Outside(kind=OutsideKind.WORKSPACE, name=f"{name} of run {owner}", old=head, new=told)
    for run, stamp in before.runs.items():
        if after.runs.get(run) != stamp and known.is_at_rest(run):
            yield Outside(kind=OutsideKind.RUN, name=run, old=stamp, new=after.runs.get(run, ""))


def why_held(found: tuple[Outside, ...]) -> str:
    """Say in a sentence why a run is held; "" if nothing holds it."""
    holding = [f"{one.kind} {one.name}" for one in found if one.weight is Weight.HOLD]
    if not holding:
        return ""
    more = f" and {len(holding) - MOST_NAMED} more" if len(holding) > MOST_NAMED else ""
    return f"changed outside of its workspace while it worked: {'; '.join(holding[:MOST_NAMED])}{more}"
