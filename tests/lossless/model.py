"""What is owed to one agent: its work, and what of it may be missing after somebody else's deeds."""

from __future__ import annotations

import os
from collections.abc import Collection

from tests.lossless import work
from tests.lossless.work import Where, Work


class Violation(Exception):
    """Something is lost, or not as it was."""


class Obligation:
    """The work of one agent, and the question whether all of it is still there."""

    def __init__(self, name: str, where: Where, left: Work) -> None:
        self.name = name
        self.where = where
        self.left = left
        self.given: set[str] = set(left.given)  # contents that git has checked out
        self.is_whole = bool(left.entries)  # whether the workspace is, or comes back, as the agent left it
        self.is_settled = False

    def record(self, copied: Collection[str]) -> None:
        """Take the workspace as it is now for what the agent has left."""
        before = self.left.commits
        self.left = work.record(self.where, copied=copied, given=self.given)
        self.left.commits |= before & work.reachable(self.where.common)
        self.is_whole, self.is_settled = True, False

    def record_anew(self, copied: Collection[str]) -> None:
        """Take what is there for what the agent has left; nothing is known of a workspace that is gone."""
        if self.where.workspace.is_dir():
            self.record(copied)
        else:
            self.left, self.is_whole = Work(), False

    def record_given(self, copied: Collection[str]) -> None:
        """Take the workspace as it is now for something that git has checked out."""
        self.given |= work.contents_in(self.where)
        self.record(copied)

    def carry_over(self, before: Obligation | None) -> None:
        """Go on owing the commits of the turn before."""
        if before:
            self.left.commits |= before.left.commits & work.reachable(self.where.common)

    def reduce(self) -> None:
        """Somebody else has deleted the workspace: only what is elsewhere as well is still owed."""
        lost = work.find_lost(self.left, self.where)
        held = {content for content in self.left.contents() if content not in lost}
        self.left = Work(
            commits=self.left.commits - lost.keys(), firm=self.left.firm - lost.keys(), modules=held
        )
        self.is_whole = False

    def soften(self, command: str) -> None:
        """Leave out what a command of git's may delete, because git does not know that it is needed."""
        if not (self.left.commits or self.left.index or self.left.modules):
            return
        by_refs = work.reachable(self.where.common)
        if command.startswith("worktree") and not os.path.lexists(self.where.workspace / ".git"):
            self.left.commits &= by_refs
            self.left.modules &= by_refs | work.kept_contents(self.where)
            self.left.index = {
                name: value for name, value in self.left.index.items() if value.split()[1] in by_refs
            }
        elif command.startswith(("gc", "prune", "repack")):
            self.left.commits &= self.left.firm | by_refs

    def soften_staged(self) -> None:
        """An agent collected garbage while this one staged: git-gc(1) warns of what that may delete."""
        staged = [value.split()[1] for value in self.left.index.values()]
        readable = work.readable_blobs(self.where.common, staged, kept=self.where)
        self.left.index = {
            name: value
            for name, value in self.left.index.items()
            if value.startswith("160000") or value.split()[1] in readable
        }

    def require_all(self) -> None:
        if lost := work.find_lost(self.left, self.where):
            told = [f"{name!r} ({content[:10]})" for content, name in lost.items()]
            raise Violation(f"lost of {self.name}: {', '.join(told[:6])}")

    def require_same(self, when: str) -> None:
        if self.is_whole and (differences := work.find_changed(self.left, self.where)):
            raise Violation(f"not as it was {when}: {'; '.join(differences[:5])}")

    def require_staged(self) -> None:
        is_owed = self.is_whole and not self.is_settled
        if is_owed and (differences := work.find_unstaged(self.left, self.where)):
            raise Violation(f"staged otherwise after undo: {'; '.join(differences[:5])}")
