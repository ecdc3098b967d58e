"""What a reviewer says of a piece of work, and the ledger of findings that decides instead of its word."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias, cast

from fleet.domain.event import Json
from fleet.domain.untrusted_text import UNTRUSTED_JSON
from fleet.errors import InvalidInput
from fleet.work.pair.hunks import Changed, plain_path, touches

MOST_FINDINGS = 100
MOST_OBJECTS = 200  # places in an answer at which an object may begin
LONGEST_FIELD = 4000


class Severity(StrEnum):
    BLOCKER = "blocker"  # it must not be merged so
    MAJOR = "major"
    MINOR = "minor"
    NIT = "nit"

    @property
    def is_grave(self) -> bool:
        return self in (Severity.BLOCKER, Severity.MAJOR)


_RANKS = {severity: rank for rank, severity in enumerate(Severity)}


class FindingState(StrEnum):
    OPEN = "open"  # the doer is asked to see to it
    RESOLVED = "resolved"  # a later review says so, of work that was changed since
    LATE = "late"  # raised too late to be asked for: a note


class Word(StrEnum):
    APPROVED = "APPROVED"
    CHANGES_NEEDED = "CHANGES_NEEDED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a reviewer has found. Its id is the ledger's own, whatever the reviewer called it."""

    id: str
    severity: Severity
    claim: str
    file: str = ""
    line: int | None = None
    evidence: str = ""
    round: int = 0
    raised_at: str = ""  # the commit that it was found in
    standing: FindingState = FindingState.OPEN
    seen_to_by: str = ""  # the commit that a later review found it resolved in

    @property
    def is_open(self) -> bool:
        return self.standing is FindingState.OPEN

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.file and self.line is not None else self.file


Ledger: TypeAlias = tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """An answer as it was read; none of its ids is checked yet."""

    word: Word
    findings: tuple[Finding, ...] = ()
    resolved: tuple[str, ...] = ()


# reading an answer


def read_review(text: str, ticket: str) -> Review:
    """Return the review in a reviewer's last words; raise `InvalidInput` if there is not exactly one.

    It is a JSON object that has the ticket in it: what the reviewer only quotes cannot know that.
    """
    found = [body for body in _objects(text) if body.get("review") == ticket]
    if not found:
        raise InvalidInput(f'it has no readable JSON object with "review": "{ticket}"')
    if any(other != found[0] for other in found):
        raise InvalidInput("it has several reviews that differ")
    return _review(found[0])


def _objects(text: str) -> Iterator[Mapping[str, Json]]:
    """Yield the JSON objects that begin at the beginning of a line, and are in no other object."""
    end = 0
    for tried, found in enumerate(re.finditer(r"^[ \t]*(\{)", text, re.MULTILINE)):
        if tried >= MOST_OBJECTS:
            raise InvalidInput("it is full of braces")
        if found.start(1) < end:
            continue
        try:
            value, end = UNTRUSTED_JSON.raw_decode(text, found.start(1))
        except (ValueError, RecursionError):
            continue
        yield cast("Mapping[str, Json]", value)


def _review(body: Mapping[str, Json]) -> Review:
    word = body.get("verdict")
    if word not in tuple(Word):
        raise InvalidInput(f'"verdict" is {" or ".join(Word)}, not {_told(word)}')
    findings, resolved = body.get("findings", []), body.get("resolved", [])
    if not isinstance(findings, list) or len(findings) > MOST_FINDINGS:
        raise InvalidInput(f'"findings" is a list of at most {MOST_FINDINGS}')
    if not isinstance(resolved, list) or not all(isinstance(name, str) for name in resolved):
        raise InvalidInput('"resolved" is a list of ids')
    return Review(
        word=Word(str(word)),
        findings=tuple(_finding(number, one) for number, one in enumerate(findings, 1)),
        resolved=tuple(str(name) for name in resolved),
    )


def _finding(number: int, body: Json) -> Finding:
    where = f"finding {number}"
    if not isinstance(body, dict):
        raise InvalidInput(f"{where} is no object")
    severity, line = body.get("severity"), body.get("line")
    if severity not in tuple(Severity):
        raise InvalidInput(f'{where}: "severity" is one of {", ".join(Severity)}, not {_told(severity)}')
    if line is not None and (isinstance(line, bool) or not isinstance(line, int) or line < 0):
        raise InvalidInput(f'{where}: "line" is a number or null, not {_told(line)}')
    claim = _text(body, "claim", where)
    if not claim.strip():
        raise InvalidInput(f'{where}: "claim" is empty')
    return Finding(
        id=_text(body, "id", where),
        severity=Severity(str(severity)),
        claim=claim,
        file=plain_path(_text(body, "file", where)),
        line=line or None,
        evidence=_text(body, "evidence", where),
    )


def _text(body: Mapping[str, Json], name: str, where: str) -> str:
    value = body.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidInput(f'{where}: "{name}" is a text, not {_told(value)}')
    # Half of a character, or a NUL, would be refused by what the text goes to later.
    return value[:LONGEST_FIELD].replace("\0", "").encode(errors="replace").decode()


def _told(value: Json) -> str:
    return json.dumps(value)[:40]


# the ledger


def take_review(ledger: Ledger, review: Review, *, round: int, changed: Changed | None, head: str) -> Ledger:
    """Return the ledger after a review of a commit.

    `changed` are the lines that were changed since the one before it; None for the first, which may raise
    anything. A later one may raise what is new on those lines, or is a blocker; the rest is noted as late.
    Nothing is resolved in the very commit that it was found in.
    """
    resolved = frozenset(review.resolved)
    before = tuple(
        replace(one, standing=FindingState.RESOLVED, seen_to_by=head)
        if one.id in resolved and one.standing is not FindingState.RESOLVED and one.raised_at != head
        else one
        for one in ledger
    )
    kept = before
    for remark in review.findings:
        known = _known(before, kept, remark)
        if known is not None and known.is_open:  # to repeat a finding makes it no lighter
            graver = min(known.severity, remark.severity, key=_RANKS.__getitem__)
            kept = tuple(replace(one, severity=graver) if one.id == known.id else one for one in kept)
            continue
        is_undone = known is not None and known.id in resolved
        is_in_time = changed is None or touches(changed, remark.file, remark.line)
        is_asked_for = is_undone or is_in_time or remark.severity is Severity.BLOCKER
        if is_asked_for or known is None:
            standing = FindingState.OPEN if is_asked_for else FindingState.LATE
            new_id = f"F{len(kept) + 1}"
            kept += (replace(remark, id=new_id, round=round, raised_at=head, standing=standing),)
    return kept


def _known(before: Ledger, kept: Ledger, remark: Finding) -> Finding | None:
    """Return the finding that a remark repeats: by its id, if it could know that, or word for word."""
    by_id = [one for one in before if one.id == remark.id]
    claim = _folded(remark.claim)
    by_claim = [one for one in kept if one.file == remark.file and _folded(one.claim) == claim]
    return next((one for one in (*by_id, *by_claim) if one.is_open), next(iter((*by_id, *by_claim)), None))


def _folded(claim: str) -> str:
    return " ".join(claim.casefold().split())


def open_in(ledger: Ledger) -> Ledger:
    return tuple(finding for finding in ledger if finding.is_open)


def grave_in(ledger: Ledger) -> Ledger:
    """Return what keeps work from being accepted: also what was raised too late to be asked for."""
    return tuple(one for one in ledger if one.standing is not FindingState.RESOLVED and one.severity.is_grave)


def notes_in(ledger: Ledger) -> Ledger:
    """Return what stays to be said about work that is accepted."""
    return tuple(finding for finding in ledger if finding.standing is not FindingState.RESOLVED)
