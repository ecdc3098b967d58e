"""The state of the repository before a turn is recorded, and compared with that after it.

The record is written before the agent is started, and its hash is part of the run: an agent can delete it,
and cannot change it unnoticed. What was found is part of the run before anything is done about it, so a
supervisor that is killed in between does the same again.
"""

from __future__ import annotations

import base64
import json
import logging
import re
from collections.abc import Collection, Sequence
from dataclasses import fields, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from fleet.domain.boundary import RECOVERY, Content, Guarded, Outside, OutsideKind, Weight, compare
from fleet.domain.ids import RunId
from fleet.domain.run import Run
from fleet.engine.context import EngineContext
from fleet.errors import FleetError
from fleet.ports.workspace import Place
from fleet.records.boundary import AcceptedChanges
from fleet.records.runs import branch_key
from fleet.work.registry import kinds

log = logging.getLogger(__name__)

# Settings of git that follow from what an agent does in its own workspace.
_HARMLESS = ("extensions.worktreeconfig=", "core.repositoryformatversion=")
MOST_WORDS = 300
_UNRECORDED = "unrecorded: "  # in place of the hash of a record


def _record_file(context: EngineContext, run: Run, turn: int) -> Path:
    return context.home / "boundary" / f"{run.id}-{turn}.json"


def record(context: EngineContext, run: Run, turn: int) -> str:
    """Write down how everything is before a turn, unless that was done; return the hash of the record."""
    file = _record_file(context, run, turn)
    try:
        return sha256(file.read_bytes()).hexdigest()
    except FileNotFoundError:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        taken = context.member.boundary.take(run.project)
        if not run.is_shared:
            context.member.boundary.pin(Place.of(run), taken)
        # As it is set now: the agent may change that setting, too.
        taken = replace(taken, is_report_only=not context.settings_for("").boundary_hold)
    except (FleetError, OSError) as problem:
        log.warning("boundary.not_recorded", extra={"run_id": run.id, "reason": str(problem)})
        return f"{_UNRECORDED}{problem}"[:MOST_WORDS] if context.settings_for("").boundary_hold else ""
    body = {spec.name: getattr(taken, spec.name) for spec in fields(Guarded)}
    content = json.dumps(body, default=lambda data: base64.b64encode(data).decode()).encode()
    draft = file.with_suffix(".draft")
    draft.write_bytes(content)
    draft.chmod(0o600)
    draft.replace(file)
    return sha256(content).hexdigest()


async def check(context: EngineContext, run: Run, turn: int) -> Run:
    """Return a run with all that changed outside of its workspace in a turn; recovery refs are put back."""
    if turn and run.guard:
        found = await context.git_threads.run(_look, context, run, turn)
        added = {one.key: replace(one, turn=turn) for one in found}

        def with_found(run: Run) -> Run:
            outside = {one.key: one for one in run.outside} | added
            return replace(run, outside=tuple(outside.values()), guard="")

        if added:
            run = await context.update(run.id, with_found)
    moved = [one for one in run.outside if one.weight is Weight.RESTORED and one.turn == turn]
    return await _put_back(context, run, moved) if moved else run


def _look(context: EngineContext, run: Run, turn: int) -> Sequence[Outside]:
    """Return what changed in a turn; the old values of what holds the run are kept."""
    boundary = context.member.boundary
    if not boundary.is_there(run.project):  # then there is no result that could be held
        return []
    if run.guard.startswith(_UNRECORDED):
        why = f"could not be recorded before: {run.guard.removeprefix(_UNRECORDED)}"
    elif (before := _load(context, run, turn)) is None:
        why = "the record of how it was before is gone, or was changed"
    else:
        try:
            found = _compare(context, run, before)
            if not boundary.is_there(run.project):  # it went away just now
                return []
            held = [one for one in found if one.weight is Weight.HOLD]
            kept = boundary.keep(run.project, run.id, before, held) if held else []
            return [*kept, *(one for one in found if one.weight is not Weight.HOLD)]
        except (FleetError, OSError) as problem:
            log.warning("boundary.not_compared", extra={"run_id": run.id, "reason": str(problem)})
            if not boundary.is_there(run.project):
                return []
            why = f"could not be compared: {problem}"[:MOST_WORDS]
    return [Outside(kind=OutsideKind.RECORD, name=f"turn {turn}", new=why)]


def _load(context: EngineContext, run: Run, turn: int) -> Guarded | None:
    """Return the state before a turn; None if its record is gone, was changed, or is of another version."""
    try:
        content = _record_file(context, run, turn).read_bytes()
        if sha256(content).hexdigest() != run.guard:
            return None
        body = json.loads(content)
        values = {spec.name: body[spec.name] for spec in fields(Guarded)}
        values["files"] = {
            name: Content(stamp, mode, None if data is None else base64.b64decode(data))
            for name, (stamp, mode, data) in body["files"].items()
        }
        return Guarded(**values)
    except (OSError, LookupError, TypeError):
        return None


async def _put_back(context: EngineContext, run: Run, moved: Sequence[Outside]) -> Run:
    """Point recovery refs to where they pointed; one for which that fails holds the run."""
    failed: dict[str, Outside] = {}
    for one in moved:
        try:
            await context.git_threads.run(context.member.boundary.put_back, run.project, one)
        except FleetError as problem:
            told = f"{one.new}; cannot be put back: {problem.message}"
            failed[one.key] = replace(one, weight=Weight.HOLD, new=told)
    if not failed:
        return run

    def with_failed(run: Run) -> Run:
        return replace(run, outside=tuple(failed.get(one.key, one) for one in run.outside))

    return await context.update(run.id, with_failed)


def _compare(context: EngineContext, run: Run, before: Guarded) -> list[Outside]:
    after = context.member.boundary.take(run.project, before)
    accepted = AcceptedChanges(context.store)

    def weighed(one: Outside) -> Outside:
        if one.kind is OutsideKind.CHECKOUT:
            one = replace(one, stamp=context.member.boundary.content(f"{run.project}/{one.name}").stamp)
        is_let = before.is_report_only or accepted.has(run.project, one, before.at)
        return replace(one, weight=Weight.NOTE) if one.weight is Weight.HOLD and is_let else one

    return [weighed(one) for one in compare(before, after, _Authors(context, run, before, after))]


class _Authors:
    """`Known`, from the records of all runs and from the repository."""

    def __init__(self, context: EngineContext, run: Run, before: Guarded, after: Guarded) -> None:
        self._store = context.store
        self._runs = context.runs
        self._boundary = context.member.boundary
        self._repositories = context.member.repositories
        self._run = run
        self._before = before
        worktrees = {**before.worktrees, **after.worktrees}
        self._worktrees = {owner: name for name, (owner, _) in worktrees.items()}
        # Branches that it made in an earlier turn.
        self._made = {
            one.name for one in run.outside if one.kind is OutsideKind.REF and not one.old and one.turn
        }
        self.is_shared = run.is_shared

    def has_author(self, ref: str, old: str, new: str) -> bool:
        if ref.startswith(RECOVERY):
            return self._is_fleets_own(ref, old, new)
        if ref == f"refs/heads/{self._run.branch}" or ref in self._made:
            return True
        if (self.is_shared and self._before.head == f"ref: {ref}") or (new and (ref, new) in self._landings):
            return True
        if any(self._was_moved_by(one, new) for one in self._runs_on(ref.removeprefix("refs/heads/"))):
            return True
        # A side branch of another agent that was not at rest: a commit that it made has come or gone.
        for owner, worktree in self._worktrees.items():
            other = self._runs.peek(RunId(owner)) if owner and owner != self._run.id else None
            is_at_work = other is not None and not _was_at_rest(other, self._before.at)
            if is_at_work and self._boundary.was_made_in(self._run.project, worktree, new or old):
                return True
        return False

    @cached_property
    def _landings(self) -> set[tuple[str, str]]:
        """Refs and the commits that work (merge trains, say) moved them to."""
        return {move for kind in kinds() for move in kind.moved_refs(self._store, self._run.project)}

    def _runs_on(self, branch: str) -> Sequence[Run]:
        return self._runs.find("branch", branch_key(self._run.project, branch)) if branch else ()

    def _was_moved_by(self, other: Run, new: str) -> bool:
        """Whether another run, or fleet for it, made its branch what it is now."""
        if new and new == (other.result.head if other.result else ""):
            return True
        if _was_at_rest(other, self._before.at):
            return False
        if not new:  # fleet deletes a branch when its run is removed, or after that
            return other.is_removed or other.has_work
        if new == other.base_sha:
            return True
        worktree = self._worktrees.get(other.id, "")
        if worktree and self._boundary.was_made_in(other.project, worktree, new):
            return True
        # Its worktree is gone with its log; it was still at work when the turn began.
        return other.is_removed and (other.removed_at or 0.0) > self._before.at

    def is_agents_stash(self, commit: str) -> bool:
        branch = self._boundary.stashed_on(self._run.project, commit)
        runs = self._runs_on(branch)
        return branch == self._run.branch or any(not _was_at_rest(one, self._before.at) for one in runs)

    def _is_fleets_own(self, ref: str, old: str, new: str) -> bool:
        _, _, kind, *rest = ref.split("/")
        other = self._runs.peek(RunId(rest[0])) if rest else None
        if other is None:
            return kind != "saved"
        if kind == "before":  # a person restores something, and what that replaces is kept as well
            return bool(new) and self._repositories.contains(self._run.project, old, new)
        # Fleet moves and deletes the others' when a workspace is removed or brought back.
        return other.id != self._run.id and not _was_at_rest(other, self._before.at)

    def is_at_rest(self, run: str) -> bool:
        other = self._runs.peek(RunId(run)) if run != self._run.id else None
        return other is not None and _was_at_rest(other, self._before.at)

    def explain_file(self, name: str, old: Content, new: Content) -> tuple[str, str, bool]:
        is_config = name.endswith(("/config", "/config.worktree", "gitconfig"))
        if not is_config or (old.stamp and old.data is None) or (new.stamp and new.data is None):
            return old.stamp[:12], new.stamp[:12], False
        lost, won = self._boundary.explain_config(old.data or b"", new.data or b"")
        replaced = {entry.partition("=")[0] for entry in lost}
        is_harmless = old.mode == new.mode and all(
            self._is_harmless(entry, replaced) for entry in (*lost, *won)
        )
        before = ", ".join(map(_without_value, lost))[:MOST_WORDS] or ("as it was" if old.stamp else "")
        after = ", ".join(map(_without_value, won))[:MOST_WORDS]
        return before, after or ("without it" if new.stamp else ""), is_harmless

    def _is_harmless(self, entry: str, replaced: Collection[str]) -> bool:
        """Whether git itself writes a setting for an agent's branch, or for a submodule that it populates."""
        if entry.startswith(_HARMLESS):
            return True
        key = entry.partition("=")[0]
        section, _, rest = key.partition(".")
        name, _, field = rest.rpartition(".")
        if section == "submodule":
            return field in ("active", "url") and key not in replaced
        if section != "branch":
            return False
        # Of an agent's branch: it is some run's, or was made during the turn.
        return f"refs/heads/{name}" not in self._before.refs or bool(self._runs_on(name))


def _was_at_rest(run: Run, since: float) -> bool:
    """Whether a run did nothing, and fleet nothing for it, since a moment."""
    last = max(run.created_at, run.state_since, run.ended_at or 0.0, run.removed_at or 0.0)
    return run.has_ended and not run.has_work and last < since


def _without_value(entry: str) -> str:
    """Name a setting and tell its value from others: values can be secrets, and this goes into records."""
    key, _, value = entry.partition("=")
    # A URL in a key (`url.<base>.insteadOf`) can have a password in it as well.
    return f"{re.sub('//[^/@]*@', '//…@', key)} ({sha256(value.encode(errors='replace')).hexdigest()[:8]})"


def forget(context: EngineContext, run: Run) -> None:
    """Delete the records of a run's turns, which nobody needs once their results are recorded."""
    for file in (context.home / "boundary").glob(f"{run.id}-*.json"):
        file.unlink(missing_ok=True)
