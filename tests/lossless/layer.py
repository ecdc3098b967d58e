"""Sequences on the workspace layer: `GitWorkspaces` in processes that die, on full disks, amid pruning."""

from __future__ import annotations

import contextlib
import math
import os
import random
import resource
import shutil
import stat
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fleet.adapters.workspaces.git import GitWorkspaces
from fleet.ports.workspace import Place
from tests.lossless import faults, ground, work
from tests.lossless.agent import Agent
from tests.lossless.faults import Fault, Outcome, Watch
from tests.lossless.model import Obligation, Violation
from tests.lossless.work import Where, Work


class Workspace:
    """One agent, its workspace, and what it has left there."""

    def __init__(self, name: str, repository: Path, room: Path, base: str, chance: random.Random) -> None:
        self.place = Place(
            repository=str(repository), path=str(room / name), branch=name, base_sha=base, run=f"run-{name}"
        )
        self.top = Path(self.place.path)
        self.where = Where(repository / ".git", self.top, self.place.run)
        self.agent = Agent(self.top, chance)
        self.owed = Obligation(name, self.where, Work())
        self.unfinished = ""  # the call that was killed

    @property
    def ref(self) -> str:
        return f"refs/fleet/saved/{self.place.run}"

    def is_open(self) -> bool:
        """Whether an agent may be at work here."""
        return self.top.is_dir() and not self.unfinished and not self.where.is_orphaned()


class LayerSequence:
    def __init__(self, folder: Path, templates: Path, seed: int) -> None:
        self.folder = folder
        self.chance = random.Random(f"layer {seed}")
        self.history: list[str] = []
        self.refused: Counter[str] = Counter()
        self.is_small = self.chance.random() < 0.2
        self.template = ground.make_template(templates, "sha256" if self.chance.random() < 0.05 else "sha1")
        self.workspaces = GitWorkspaces()
        self.stashed: set[str] = set()

    def play(self) -> None:
        """Play the sequence; raise `Violation` if anything is lost."""
        with contextlib.ExitStack() as stack:
            if self.is_small:
                self.is_small = stack.enter_context(faults.small_disk(self.folder, 24))
            self._set_up()
            for _ in range(self.chance.randint(3, 6)):
                self._step(self.chance.choice(self.spaces))
            for space in self.spaces:
                self._finish(space)

    def _set_up(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        repository = ground.copy_template(self.template, self.folder / "repository")
        base = ground.git(repository, "rev-parse", "HEAD")
        length = len(base)
        self.copied = {work.blob_id(ground.CREDENTIAL, length)}
        self.common = repository / ".git"
        room = self.folder / "room"
        names = ("a", "b")[: self.chance.choice((1, 1, 2))]
        self.spaces = [Workspace(name, repository, room, base, self.chance) for name in names]
        for space in self.spaces:
            if self._call(space, "make").how != "done":
                self._plainly(space, "make", copy=())
            space.owed.record_given(self.copied)
        for space in self.spaces:  # after all are made: an agent may configure a filter that always fails
            self._act(space)

    # steps

    def _step(self, space: Workspace) -> None:
        steps = [self._settle, self._remove, self._outside]
        if space.is_open():
            steps += [self._act] * 3 + [self._settle, self._save, self._remove, self._make]
            steps += [self._delete_by_hand] if self.chance.random() < 0.3 else []
        else:
            steps += [self._restore] * 3
        self.chance.choice(steps)(space)
        for one in self.spaces:
            self._require_all(one)

    def _act(self, space: Workspace) -> None:
        space.agent.history = []
        space.agent.act(self.chance.choice((1, 3, 6, 12)))
        self.history.append(f"{space.place.branch}: agent: {', '.join(space.agent.history)}")
        space.owed.record(self.copied)
        self.stashed = work.stashed(self.common)
        if "collect_garbage" in space.agent.history:
            self._soften("gc")

    def _settle(self, space: Workspace) -> None:
        was_open = space.is_open()
        outcome = self._call(space, "save_uncommitted", message="left over")
        space.owed.is_settled = True  # maybe half of it; what was staged is owed all the same
        if (
            was_open and outcome.how != "killed"
        ):  # then a file may be readable that was not, until the next call
            space.owed.require_same("after settling")

    def _save(self, space: Workspace) -> None:
        was_open = space.is_open()
        outcome = self._call(space, "save")
        if was_open and outcome.how != "killed":
            space.owed.require_same("after saving")

    def _remove(self, space: Workspace) -> None:
        outcome = self._call(space, "remove", delete_branch=self.chance.random() < 0.5)
        if outcome.how == "done" and space.top.exists():
            raise Violation(f"removed, and still there: {space.top.name}")

    def _restore(self, space: Workspace) -> None:
        outcome = self._call(space, "restore", ref=space.ref)
        if outcome.how == "done":
            self._check_restored(space)

    def _check_restored(self, space: Workspace) -> None:
        if not space.owed.is_whole:
            space.owed.record_given(self.copied)
        space.owed.require_same("after undo")
        space.owed.require_staged()

    def _make(self, space: Workspace) -> None:
        is_known = space.where.git_dir() is not None
        outcome = self._call(space, "make")
        if is_known:
            space.owed.require_same("after making it again")
            return
        # Of a folder that is no worktree any more everything is kept, and there is a new one.
        space.owed.reduce()
        if outcome.how == "done":
            space.owed.require_all()
            space.owed.record_given(self.copied)
        else:
            space.unfinished = "make"

    def _delete_by_hand(self, space: Workspace) -> None:
        self.history.append(f"{space.place.branch}: deleted by hand")
        _open_all(space.top)
        shutil.rmtree(space.top)
        space.owed.reduce()

    def _outside(self, space: Workspace) -> None:
        if self.chance.random() < 0.3 and ground.has_ref(self.common, space.ref):
            self.history.append(f"{space.place.branch}: recovery ref moved")
            ground.git(self.common, "update-ref", "--no-deref", space.ref, "HEAD")
            return
        prune = faults.some_pruning(self.chance, self.common)
        self.history.append(f"outside: {prune.__name__}")
        self._soften(prune.__name__)
        prune()

    def _soften(self, command: str) -> None:
        for space in self.spaces:
            space.owed.soften(command)

    def _require_all(self, space: Workspace) -> None:
        space.owed.require_all()
        if self.stashed and (missing := self.stashed - work.reachable(self.common)):
            raise Violation(f"lost: stashes {sorted(missing)}")

    # calls and faults

    def _call(self, space: Workspace, name: str, **options: object) -> Outcome:
        given = {"copy": ()} if name == "make" else options
        action = partial(getattr(self.workspaces, name), space.place, **given)
        fault, watch, told = self._some_fault(space)
        was_gone = not space.top.exists() or space.unfinished == "restore"
        self.history.append(f"{space.place.branch}: {name} {options or ''}{told}")
        outcome = faults.call_apart(action, fault, die_on=watch)
        self._end_faults()
        self.history[-1] += f" → {outcome.how} {outcome.text}".rstrip()
        if outcome.how == "broken":
            raise Violation(f"unexpected error in {name}: {outcome.text}")
        if outcome.how == "killed" or (outcome.how == "refused" and name == "restore" and was_gone):
            space.unfinished = name
        elif outcome.how == "done" and name in ("make", "remove", "restore"):
            space.unfinished = ""
        elif outcome.how == "refused" and not told:
            self.refused[f"{name}: {outcome.text}"] += 1
        return outcome

    def _some_fault(self, space: Workspace) -> tuple[Fault | None, Watch | None, str]:
        kind = self.chance.random()
        at = int(math.exp(self.chance.uniform(0, math.log(120))))
        if kind < 0.5:
            return None, None, ""
        if kind < 0.65:
            return Fault(faults.die, at), None, f" [killed at deed {at}]"
        if kind < 0.75:
            both = self.chance.random() < 0.5
            return None, Watch(self._watched(space), at, with_children=both), f" [killed at change {at}]"
        if kind < 0.9:
            prune = faults.some_pruning(self.chance, self.common)
            each = self.chance.random() < 0.5
            self._soften(prune.__name__)
            when = "at each process" if each else f"at deed {at}"
            return Fault(prune, at, each=each), None, f" [{prune.__name__} {when}]"
        return self._full_disk(at)

    def _full_disk(self, at: int) -> tuple[Fault | None, Watch | None, str]:
        if self.is_small:
            spare = self.chance.choice((0, 0, 8192, 65536, 300_000))
            return (
                Fault(partial(faults.fill, self.folder / "filler", spare), at),
                None,
                f" [disk full at deed {at}]",
            )
        size = self.chance.choice((0, 100, 1000, 5000, 100_000))
        limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (size, size))
        return Fault(limit, at), None, f" [no file above {size} bytes from deed {at}]"

    def _end_faults(self) -> None:
        (self.folder / "filler").unlink(missing_ok=True)

    def _watched(self, space: Workspace) -> list[Path]:
        room = space.top.parent
        inner = space.where.git_dir()
        folders = [self.common, self.common / "objects", self.common / "refs" / "heads", room, space.top]
        folders += [
            self.common / "fleet",
            self.common / "refs" / "fleet" / "saved",
            room / ".trash",
            room / ".kept",
        ]
        return [*folders, *([inner] if inner else [])]

    # the end

    def _finish(self, space: Workspace) -> None:
        """Remove the workspace and bring it back: whatever has happened, without faults it goes well."""
        if space.where.is_orphaned():
            return
        if space.unfinished == "restore" and space.top.exists():
            self._continue(space)
        if not space.top.exists():
            self._plainly(space, "remove", delete_branch=False)
            if not space.owed.is_whole and not ground.has_ref(self.common, space.ref):
                return  # deleted by hand, and its branch renamed: there is nothing to bring back
            self._plainly(space, "restore", ref=space.ref)
            self._check_restored(space)
        for _ in range(self.chance.choice((1, 1, 2))):
            self._plainly(space, "remove", delete_branch=self.chance.random() < 0.5)
            if self.chance.random() < 0.5:
                self._forget_logs()
            self._require_all(space)
            self._plainly(space, "restore", ref=space.ref)
            self._check_restored(space)
            self._require_all(space)

    def _continue(self, space: Workspace) -> None:
        """Restore once more: a whole workspace refuses that, and half of one becomes whole."""
        self.history.append(f"{space.place.branch}: restore once more")
        outcome = faults.call_apart(partial(self.workspaces.restore, space.place, space.ref))
        self.history[-1] += f" → {outcome.how} {outcome.text}".rstrip()
        if outcome.how == "broken":
            raise Violation(f"unexpected error in restore: {outcome.text}")
        if outcome.how == "refused" and work.find_changed(space.owed.left, space.where):
            raise Violation(f"cannot restore though nothing is in the way: {outcome.text}")
        space.unfinished = ""
        self._check_restored(space)

    def _plainly(self, space: Workspace, name: str, **options: object) -> None:
        action: Callable[[], object] = partial(getattr(self.workspaces, name), space.place, **options)
        self.history.append(f"{space.place.branch}: {name} {options}")
        outcome = faults.call_apart(action)
        self.history[-1] += f" → {outcome.how} {outcome.text}".rstrip()
        space.unfinished = ""
        if outcome.how != "done":
            raise Violation(f"cannot {name} though nothing is in the way: {outcome.text}")

    def _forget_logs(self) -> None:
        """Only refs are to keep what is kept."""
        self.history.append("outside: logs deleted, and pruned")
        self._soften("prune")
        shutil.rmtree(self.common / "logs" / "refs" / "heads", ignore_errors=True)
        faults.run_quietly(("git", "prune", "--expire=now"), self.common)


def _open_all(top: Path) -> None:
    for folder, _, _ in os.walk(top):
        mode = stat.S_IMODE(Path(folder).stat().st_mode)
        Path(folder).chmod(mode | stat.S_IRWXU)
