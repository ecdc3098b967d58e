"""The state of the repository before a turn is recorded, and compared with that after it.

The record is written before the agent is started, and its hash is part of the run: an agent can delete it,
and cannot change it unnoticed. What was found is part of the run before anything is done about it, so a
supervisor that is killed in between does the same again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path

from fleet.domain.boundary import Content, Guarded, Known, Outside, OutsideKind, Weight, compare
from fleet.domain.ids import RunId
from fleet.domain.run import Run
from fleet.engine.context import EngineContext
from fleet.errors import FleetError
from fleet.records.boundary import AcceptedChanges, decode_guarded, encode_guarded
from fleet.records.runs import branch_key
from fleet.work.registry import kinds

log = logging.getLogger(__name__)

# Settings of git that follow from what an agent does in its own workspace.
_HARMLESS = ("extensions.worktreeconfig=", "core.repositoryformatversion=")
MOST_WORDS = 300
_UNRECORDED = "unrecorded: "  # in place of the hash of a record


def _record_file(context: EngineContext, run: Run, turn: int) -> Path:
    return context.home / "boundary" / f"{run.id}-{turn}.json"


async def record(context: EngineContext, run: Run, turn: int) -> str:
    """Write down how everything is before a turn, unless that was done; return the hash of the record."""
    # Not behind the workspaces that are being made for others: most of it is known already.
    return await asyncio.to_thread(_record, context, run, turn)


def _record(context: EngineContext, run: Run, turn: int) -> str:
    file = _record_file(context, run, turn)
    try:
        return sha256(file.read_bytes()).hexdigest()
    except FileNotFoundError:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        taken = context.member.boundary.take(run.project, str(context.home))
        if not run.is_shared:
            context.member.boundary.pin(context.place(run), taken)
        # As it is set now: the agent may change that setting, too.
        taken = replace(taken, is_report_only=not context.settings_for("").boundary_hold)
    except (FleetError, OSError) as problem:
        log.warning("boundary.not_recorded", extra={"run_id": run.id, "reason": str(problem)})
        return f"{_UNRECORDED}{problem}"[:MOST_WORDS] if context.settings_for("").boundary_hold else ""
    content = json.dumps(encode_guarded(taken)).encode()
    _write(file, content)
    return sha256(content).hexdigest()


def _write(file: Path, content: bytes) -> None:
    draft = file.with_suffix(".draft")
    draft.write_bytes(content)
    draft.chmod(0o600)
    draft.replace(file)


async def check(context: EngineContext, run: Run, turn: int) -> Run:
    """Return a run with all that changed outside of its workspace in a turn; recovery refs are put back."""
    if turn and run.guard:
        found = await context.in_git_thread(_look, context, run, turn)
        if found:
            added = {one.key: replace(one, turn=turn) for one in found}
            run = await context.update(run.id, partial(_with_found, added))
    moved = [one for one in run.outside if one.weight is Weight.RESTORED and one.turn == turn]
    if moved:
        run = await _put_back(context, run, moved)
    return run


def _with_found(found: Mapping[str, Outside], run: Run) -> Run:
    outside = {**{one.key: one for one in run.outside}, **found}
    return replace(run, outside=tuple(outside.values()), guard="")


def _look(context: EngineContext, run: Run, turn: int) -> Sequence[Outside]:
    """Return what changed in a turn; the old values of what holds the run are kept."""
    name = f"turn {turn}"
    if not context.member.boundary.is_there(run.project):  # then there is no result that could be held
        return []
    if run.guard.startswith(_UNRECORDED):
        reason = run.guard.removeprefix(_UNRECORDED)
        return [Outside(kind=OutsideKind.RECORD, name=name, new=f"could not be recorded before: {reason}")]
    before = _load(context, run, turn)
    if before is None:
        reason = "the record of how it was before is gone, or was changed"
        return [Outside(kind=OutsideKind.RECORD, name=name, new=reason)]
    try:
        found = _compare(context, run, before)
        if not context.member.boundary.is_there(run.project):
            return []
        if held := [one for one in found if one.weight is Weight.HOLD]:
            kept = context.member.boundary.keep(run.project, str(context.home), run.id, before, held)
            found = [*kept, *(one for one in found if one.weight is not Weight.HOLD)]
    except (FleetError, OSError) as problem:
        log.warning("boundary.not_compared", extra={"run_id": run.id, "reason": str(problem)})
        if not context.member.boundary.is_there(run.project):  # it went away just now
            return []
        return [
            Outside(kind=OutsideKind.RECORD, name=name, new=f"could not be compared: {problem}"[:MOST_WORDS])
        ]
    return found


def _load(context: EngineContext, run: Run, turn: int) -> Guarded | None:
    try:
        content = _record_file(context, run, turn).read_bytes()
    except OSError:
        return None
    if sha256(content).hexdigest() != run.guard:
        return None
    try:
        return decode_guarded(json.loads(content))
    except (LookupError, TypeError):  # of another version
        return None


async def _put_back(context: EngineContext, run: Run, moved: Sequence[Outside]) -> Run:
    """Point recovery refs to where they pointed; one for which that fails holds the run."""
    failed: dict[str, Outside] = {}
    for one in moved:
        try:
            await context.in_git_thread(context.member.boundary.put_back, run.project, one)
        except FleetError as problem:
            told = f"{one.new}; cannot be put back: {problem.message}"
            failed[one.key] = replace(one, weight=Weight.HOLD, new=told)
    if not failed:
        return run

    def with_failed(run: Run) -> Run:
        return replace(run, outside=tuple(failed.get(one.key, one) for one in run.outside))

    return await context.update(run.id, with_failed)


def _compare(context: EngineContext, run: Run, before: Guarded) -> list[Outside]:
    after = context.member.boundary.take(run.project, str(context.home), before)
    landings = _Landings(context, run.project)
    worktrees = {owner: name for name, (owner, _) in {**before.worktrees, **after.worktrees}.items()}

    # Branches that it made in an earlier turn.
    made = {one.name for one in run.outside if one.kind is OutsideKind.REF and not one.old and one.turn}

    def is_own_ref(ref: str) -> bool:
        is_branch = ref == f"refs/heads/{run.branch}"
        return is_branch or ref in made or (run.is_shared and before.head == f"ref: {ref}")

    def is_agents_stash(commit: str) -> bool:
        branch = context.member.boundary.stashed_on(run.project, commit)
        return branch == run.branch or any(not _was_at_rest(one, before.at) for one in runs_on(branch))

    def has_author(ref: str, old: str, new: str) -> bool:
        if landings.made(ref, new):
            return True
        branch = ref.removeprefix("refs/heads/")
        if any(_moved_by(context, one, worktrees.get(one.id, ""), new, before.at) for one in runs_on(branch)):
            return True
        # A side branch of another agent: a commit that it made has come or gone.
        return any(context.member.boundary.was_made_in(run.project, name, new or old) for name in at_work())

    def is_agents(branch: str) -> bool:
        """Whether a branch is some run's, or was made during the turn."""
        return f"refs/heads/{branch}" not in before.refs or bool(runs_on(branch))

    def runs_on(branch: str) -> Sequence[Run]:
        return context.runs.find("branch", branch_key(run.project, branch)) if branch else ()

    def at_work() -> Iterator[str]:
        """Worktrees of the other runs that were not at rest during the turn."""
        for owner, name in worktrees.items():
            other = context.runs.peek(RunId(owner)) if owner and owner != run.id else None
            if other and not _was_at_rest(other, before.at):
                yield name

    def is_fleets_own(ref: str, old: str, new: str) -> bool:
        _, _, kind, *rest = ref.split("/")
        other = context.runs.peek(RunId(rest[0])) if rest else None
        if other is None:
            return kind != "saved"
        if kind == "before":  # a person restores something, and what that replaces is kept as well
            return bool(new) and context.member.boundary.is_ancestor(run.project, old, new)
        if other.id == run.id:
            return False
        # Fleet moves and deletes these when a workspace is removed or brought back.
        return not _was_at_rest(other, before.at)

    def is_at_rest(name: str) -> bool:
        other = context.runs.peek(RunId(name)) if name != run.id else None
        return other is not None and _was_at_rest(other, before.at)

    known = Known(
        is_own_ref=is_own_ref,
        has_author=has_author,
        is_agents_stash=is_agents_stash,
        is_fleets_own=is_fleets_own,
        explain_file=partial(_explain, context, is_agents),
        is_at_rest=is_at_rest,
        is_shared=run.is_shared,
        stamp_of=partial(context.member.boundary.stamp_of, run.project),
    )
    accepted = AcceptedChanges(context.store)

    def weighed(one: Outside) -> Outside:
        is_let = before.is_report_only or accepted.has(run.project, one, before.at)
        return replace(one, weight=Weight.NOTE) if one.weight is Weight.HOLD and is_let else one

    return [weighed(one) for one in compare(before, after, known)]


class _Landings:
    """Commits that work (merge trains, say) moved refs to; read when first asked for."""

    def __init__(self, context: EngineContext, project: str) -> None:
        self._context = context
        self._project = project
        self._made: set[tuple[str, str]] | None = None

    def made(self, ref: str, commit: str) -> bool:
        if self._made is None:
            store, project = self._context.store, self._project
            self._made = {move for kind in kinds() for move in kind.moved_refs(store, project)}
        return bool(commit) and (ref, commit) in self._made


def _moved_by(context: EngineContext, other: Run, worktree: str, new: str, since: float) -> bool:
    """Whether another run, or fleet for it, made its branch what it is now."""
    if new and new == (other.result.head if other.result else ""):
        return True
    if _was_at_rest(other, since):
        return False
    if not new:  # fleet deletes a branch when its run is removed, or after that
        return other.is_removed or other.has_work
    if new == other.base_sha:
        return True
    if worktree and context.member.boundary.was_made_in(other.project, worktree, new):
        return True
    # Its worktree is gone with its log; it was still at work when the turn began.
    return other.is_removed and (other.removed_at or 0.0) > since


def _was_at_rest(run: Run, since: float) -> bool:
    """Whether a run did nothing, and fleet nothing for it, since a moment."""
    last = max(run.created_at, run.state_since, run.ended_at or 0.0, run.removed_at or 0.0)
    return run.has_ended and not run.has_work and last < since


def _explain(
    context: EngineContext, is_agents: Callable[[str], bool], name: str, old: Content, new: Content
) -> tuple[str, str, bool]:
    """Say how a file differs, in a few words, and whether that follows from work in a workspace."""
    is_config = name.endswith(("/config", "/config.worktree", "gitconfig"))
    if not is_config or (old.stamp and old.data is None) or (new.stamp and new.data is None):
        return old.stamp[:12], new.stamp[:12], False
    lost, won = context.member.boundary.explain_config(old.data or b"", new.data or b"")
    replaced = {entry.partition("=")[0] for entry in lost}
    is_harmless = old.mode == new.mode and all(
        _is_harmless(entry, is_agents, replaced) for entry in (*lost, *won)
    )
    before = ", ".join(map(_without_value, lost))[:MOST_WORDS] or ("as it was" if old.stamp else "")
    after = ", ".join(map(_without_value, won))[:MOST_WORDS]
    return before, after or ("without it" if new.stamp else ""), is_harmless


def _without_value(entry: str) -> str:
    """Name a setting and tell its value from others: values can be secrets, and this goes into records."""
    key, _, value = entry.partition("=")
    # A URL in a key (`url.<base>.insteadOf`) can have a password in it as well.
    return f"{re.sub('//[^/@]*@', '//…@', key)} ({sha256(value.encode(errors='replace')).hexdigest()[:8]})"


def _is_harmless(entry: str, is_agents: Callable[[str], bool], replaced: Collection[str]) -> bool:
    """Whether git itself writes a setting for an agent's branch, or for a submodule that it populates."""
    if entry.startswith(_HARMLESS):
        return True
    key = entry.partition("=")[0]
    section, _, rest = key.partition(".")
    name, _, field = rest.rpartition(".")
    if section == "submodule":
        return field in ("active", "url") and key not in replaced
    return section == "branch" and is_agents(name)


def forget(context: EngineContext, run: Run) -> None:
    """Delete the records of a run's turns, which nobody needs once their results are recorded."""
    for file in (context.home / "boundary").glob(f"{run.id}-*.json"):
        file.unlink(missing_ok=True)
