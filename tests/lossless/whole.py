"""Sequences on the whole system: the real command, supervisor, shims and agents, all of which are killed."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from fleet.domain.run import Run
from tests.lossless import faults, ground, work
from tests.lossless.model import Obligation, Violation
from tests.lossless.work import Where
from tests.support import System, is_alive, wait_for

_ROOT = Path(__file__).parents[2]
_START = f"import sys; sys.path.insert(0, {str(_ROOT)!r}); from tests.lossless.agent import main; main()"
_CONFIG = f"""
[coder]
default = "hostile"
mode = "headless"
[coders.hostile]
command = {json.dumps([sys.executable, "-S", "-c", _START])}
prompt = "stdin"
output = "text"
[limits]
min_free_mb = 1
[stop]
grace_seconds = 0.3
"""
# How an agent ends: by itself, or when somebody ends it.
_ENDS = ("exit", "exit", "crash", "die")
_STAYS = ("wait", "wait", "write", "go_on")
_PATIENCE_SECONDS = 90


class Worker:
    """An agent, and what it has left in its workspace."""

    def __init__(self, branch: str, folder: Path) -> None:
        self.branch = branch
        self.folder = folder
        self.owed: Obligation | None = None
        self.turn = 0
        self.then = ""
        self.is_at_work = False

    @property
    def mark(self) -> Path:
        return self.folder / f"{self.branch}-{self.turn}"

    @property
    def diary(self) -> Path:
        return self.mark.with_name(f"{self.mark.name}.diary")

    def lines(self) -> int:
        return len(self.diary.read_bytes().splitlines()) if self.diary.exists() else 0


class WholeSequence:
    def __init__(self, folder: Path, templates: Path, seed: int) -> None:
        self.folder = folder
        self.seed = seed
        self.chance = random.Random(f"whole {seed}")
        self.history: list[str] = []
        self.refused: Counter[str] = Counter()
        self.is_small = self.chance.random() < 0.25
        self.template = ground.make_template(templates, "sha1")
        self.workers: list[Worker] = []

    def play(self) -> None:
        """Play the sequence; raise `Violation` if anything is lost."""
        with contextlib.ExitStack() as stack:
            if self.is_small:
                self.is_small = stack.enter_context(faults.small_disk(self.folder / "disk", 48))
            self._set_up()
            stack.callback(self.system.close)
            self._launch()
            for _ in range(self.chance.randint(3, 6)):
                self._step()
            self._finish()

    def _set_up(self) -> None:
        repository = ground.copy_template(self.template, self.folder / "disk" / "repository")
        self.common = repository / ".git"
        self.copied = [work.blob_id(ground.CREDENTIAL, 40)]
        self.marks = self.folder / "marks"
        self.marks.mkdir()
        env = {"FLEET_CODER_DEFAULT": "hostile"}
        self.system = System(self.folder / "home", repository, env=env)
        (self.system.home / "config.toml").write_text(_CONFIG)

    # agents

    def _launch(self) -> None:
        self.workers = [Worker(branch, self.marks) for branch in ("one", "two", "three")]
        wishes = [f"{worker.branch}:{self._plan(worker)}" for worker in self.workers]
        self._tell(f"launch {[worker.then for worker in self.workers]}")
        self._run("multi", *wishes, may_kill=True)
        for worker in self.workers:
            self._await(worker)
        if any("collect_garbage" in line for line in self.history):
            self._soften_beside_agents()  # also for those that were not awaited yet when one of them did

    def _plan(self, worker: Worker) -> str:
        worker.turn += 1
        worker.then = self.chance.choice(_ENDS + _STAYS)
        worker.is_at_work = True
        return json.dumps(
            {
                "seed": f"{self.seed} {worker.branch} {worker.turn}",
                "actions": self.chance.choice((1, 4, 8, 15)),
                "mark": str(worker.mark),
                "common": str(self.common),
                "copied": self.copied,
                "given": sorted(worker.owed.given) if worker.owed else None,
                "then": worker.then,
            }
        )

    def _await(self, worker: Worker) -> None:
        """Wait until an agent has done what it was to do, and take over what it has written down."""

        def has_acted() -> bool:
            return worker.mark.exists() and (worker.then not in ("write", "go_on") or worker.lines() > 3)

        def was_killed() -> bool:
            return self.system.run(worker.branch).is_at_rest and not worker.mark.exists()

        self._wait(lambda: has_acted() or was_killed(), f"{worker.branch} acts")
        if not worker.mark.exists():  # with the supervisor that had just started it
            self._tell(f"{worker.branch}: agent killed before it had done anything")
            worker.is_at_work = False
            if worker.owed:
                worker.owed.record_anew(self.copied)
            return
        left, did = work.read_down(worker.mark)
        run = self.system.run(worker.branch)
        where = Where(self.common, Path(run.workspace), run.id)
        before = worker.owed
        worker.owed = Obligation(f"{worker.branch} ({worker.then})", where, left)
        worker.owed.carry_over(before)
        self._tell(f"{worker.branch} did {', '.join(did)}; {worker.then}")
        if worker.then == "write":
            worker.owed.left.exempt.add("journal.txt")
        if worker.then in _ENDS:
            worker.is_at_work = False
        if "collect_garbage" in did:
            self._soften_beside_agents()

    # steps

    def _step(self) -> None:
        worker = self.chance.choice(self.workers)
        run = self.system.run(worker.branch)
        steps = [self._kill, self._outside, self._kill_supervisor]
        if worker.is_at_work:
            steps += [self._kill_agent, self._kill_agent, self._kill_shim, self._cut_power]
        elif run.is_removed:
            steps += [self._undo, self._undo, self._undo]
        elif run.has_workspace:
            steps += [self._prompt, self._prompt, self._clean, self._delete_by_hand, self._clean]
        self.chance.choice(steps)(worker)
        self._check()

    def _kill(self, worker: Worker) -> None:
        more = ("--delete-branch",) if self.chance.random() < 0.5 else ()
        which = "*" if self.chance.random() < 0.2 else worker.branch
        for one in self.workers if which == "*" else (worker,):
            self._break_off(one)
        self._run("kill", which, "--force", *more, may_kill=True, may_prune=True, may_fill=True)

    def _break_off(self, worker: Worker) -> None:
        """Take note of what an agent that never stops has left when it is ended, before it is."""
        if worker.is_at_work and worker.then == "go_on":
            self._kill_unseen(worker)
        worker.is_at_work = False

    def _clean(self, _: Worker) -> None:
        self._run("clean", "--force", may_kill=True, may_prune=True, may_fill=True)

    def _undo(self, worker: Worker) -> None:
        self._run("undo", worker.branch, may_kill=True)
        self._settle()
        run = self.system.run(worker.branch)
        if not run.has_workspace and worker.owed and worker.owed.is_whole:
            raise Violation(f"cannot bring back {worker.branch}: {run.state_reason}")

    def _prompt(self, worker: Worker) -> None:
        run = self.system.run(worker.branch)
        if not Path(run.workspace).is_dir():
            return
        self._run("prompt", worker.branch, self._plan(worker), may_kill=True)
        self._await(worker)

    def _kill_supervisor(self, _: Worker) -> None:
        self._tell("supervisor killed")
        self._end_supervisor()

    def _kill_agent(self, worker: Worker) -> None:
        if worker.then == "go_on":
            self._kill_unseen(worker)
        elif agent := self.system.run(worker.branch).agent:
            self._tell(f"{worker.branch}: agent killed")
            faults.kill_tree(agent.pid)
        worker.is_at_work = False

    def _kill_unseen(self, worker: Worker) -> None:
        """Kill an agent in the midst of something, and look at what it left before the supervisor does."""
        # A supervisor that was killed while it started the agent has told nobody; the next one will.
        assert worker.owed is not None

        def is_seen() -> bool:
            run = self.system.run(worker.branch)
            return run.agent is not None or run.has_ended

        self._wait(is_seen, f"{worker.branch} is followed")
        agent = self.system.run(worker.branch).agent
        if agent is None:  # it was killed with the supervisor that had just started it
            self._tell(f"{worker.branch}: agent killed before it was followed")
            worker.owed.record_anew(self.copied)
            return
        supervisor = self.system.suspend_supervisor()
        faults.kill_tree(agent.pid)
        wait_for(lambda: not is_alive(agent.pid), what="the agent is dead")
        self._tell(f"{worker.branch}: agent killed in the midst of it")
        worker.owed.record(self.copied)
        if self.chance.random() < 0.5:
            self._tell("supervisor killed")
            os.kill(supervisor, signal.SIGKILL)
            wait_for(lambda: not is_alive(supervisor), what="the supervisor is dead")
        else:
            os.kill(supervisor, signal.SIGCONT)
        self.system.link.wake()

    def _kill_shim(self, worker: Worker) -> None:
        agent = self.system.run(worker.branch).agent
        parent = _parent_of(agent.pid) if agent else 0
        if parent > 1:
            self._tell(f"{worker.branch}: shim killed")
            os.kill(parent, signal.SIGKILL)

    def _cut_power(self, _: Worker) -> None:
        for worker in self.workers:
            self._break_off(worker)
        self._tell("power cut")
        self.system.cut_power()
        self.system.link.wake()

    def _delete_by_hand(self, worker: Worker) -> None:
        path = Path(self.system.run(worker.branch).workspace)
        if path.is_dir() and worker.owed:
            self._tell(f"{worker.branch}: deleted by hand")
            shutil.rmtree(path)
            worker.owed.reduce()

    def _is_busy(self) -> bool:
        """Whether an agent does things: what git prunes meanwhile may be just what it writes."""
        return any(worker.is_at_work and worker.then == "go_on" for worker in self.workers)

    def _outside(self, _: Worker) -> None:
        if self._is_busy():
            return
        prune = faults.some_pruning(self.chance, self.common)
        self._tell(f"outside: {prune.__name__}")
        self._soften(prune.__name__)
        prune()

    def _soften(self, command: str) -> None:
        for worker in self.workers:
            if worker.owed:
                worker.owed.soften(command)

    def _soften_beside_agents(self) -> None:
        """One agent has collected garbage while the others were at work."""
        self._soften("gc")
        for worker in self.workers:
            if worker.owed:
                worker.owed.soften_staged()

    # commands and what happens beside them

    def _run(
        self, *words: str, may_kill: bool = False, may_prune: bool = False, may_fill: bool = False
    ) -> None:
        """Run a command, maybe with a fault beside it."""
        told = " ".join(word if len(word) < 20 else word[:5] + "…" for word in words)
        kind = self.chance.random()
        with contextlib.ExitStack() as stack:
            if may_prune and kind < 0.35 and not self._is_busy():
                told += f" [{stack.enter_context(self._pruning())} beside]"
            elif may_fill and kind < 0.6 and self.is_small:
                told += " [disk full]"
                faults.fill(self.folder / "disk" / "filler", self.chance.choice((0, 0, 16384, 200_000)))
            elif may_kill and kind < 0.6:
                told += " [supervisor killed]"
            self._tell(told)
            output = (self.folder / "output").open("wb")
            stack.callback(output.close)
            command = self.system.start(*words, stdout=output, stderr=output)
            if told.endswith("[supervisor killed]"):
                self._kill_at_change()
            if told.endswith("[disk full]"):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    command.wait(2)
                (self.folder / "disk" / "filler").unlink()
                self.system.link.wake()
            code = command.wait(_PATIENCE_SECONDS)
        if code:
            text = (self.folder / "output").read_text(errors="replace")
            self.history[-1] += f" → {code}: {text}"
            self.refused[f"{words[0]}: {text}"] += 1

    @contextlib.contextmanager
    def _pruning(self) -> Iterator[str]:
        """Prune again and again, beside whatever is done meanwhile."""
        prune = faults.some_pruning(self.chance, self.common)
        self._soften(prune.__name__)
        pid = os.fork()
        if pid == 0:
            while True:
                prune()
        try:
            yield prune.__name__
        finally:
            faults.kill_tree(pid)
            os.waitpid(pid, 0)

    def _kill_at_change(self) -> None:
        at = int(math.exp(self.chance.uniform(0, math.log(60))))
        room = self.system.home / "workspaces"
        inner = [path for path in room.glob("*") if path.is_dir()]
        folders = [self.common, self.common / "objects", self.common / "fleet", self.common / "worktrees"]
        folders += [self.common / "refs" / "heads", self.common / "refs" / "fleet" / "saved", room, *inner]
        folders += [one / name for one in inner for name in (".trash", ".kept")]
        watch = faults.Watch(folders, at, with_children=self.chance.random() < 0.3)
        holder = self.system.link.holder()
        if holder and watch.kill_at_event(holder.pid, 1):
            wait_for(lambda: self.system.link.holder() != holder, what="the killed one is gone")
        self.system.link.wake()

    def _end_supervisor(self) -> None:
        if holder := self.system.link.holder():
            os.kill(holder.pid, signal.SIGKILL)
            wait_for(lambda: self.system.link.holder() != holder, what="the killed one is gone")
        self.system.link.wake()

    def _tell(self, text: str) -> None:
        self.history.append(text)

    # checking

    def _wait(self, fact: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        woken = time.monotonic()
        while not fact():
            if time.monotonic() > deadline:
                states = [(run.branch, str(run.state), run.state_reason) for run in self.system.all_runs()]
                raise Violation(
                    f"it never came so far that {what}: {states} {self.system.supervisor_log()[-1500:]}"
                )
            if time.monotonic() - woken > 1:
                self.system.link.wake()  # whoever was killed with the last wish has not read it
                woken = time.monotonic()
            time.sleep(0.01)

    def _settle(self) -> None:
        """Wait until everything is done that is to be done."""

        def is_quiet() -> bool:
            runs = {worker.branch: self.system.run(worker.branch) for worker in self.workers}
            return all(worker.is_at_work or runs[worker.branch].is_at_rest for worker in self.workers)

        self._wait(is_quiet, "all is quiet")

    def _check(self) -> None:
        self._settle()
        for worker in self.workers:
            if worker.owed is None or worker.is_at_work:
                continue
            run = self.system.run(worker.branch)
            worker.owed.require_all()
            self._require_journal(worker, run)
            if Path(run.workspace).is_dir():
                worker.owed.require_same(f"when {run.state} ({worker.branch})")

    def _require_journal(self, worker: Worker, run: Run) -> None:
        if worker.then != "write" or not worker.owed or not worker.owed.is_whole:
            return
        told = worker.lines()
        file = Path(run.workspace, "journal.txt")
        texts = [file.read_text()] if file.exists() else []
        for ref in (run.saved_ref, f"refs/fleet/saved/{run.id}", run.branch):
            with contextlib.suppress(subprocess.CalledProcessError):
                texts.append(ground.git(self.system.repository, "show", f"{ref}:journal.txt"))
        kept = max((len(text.splitlines()) for text in texts), default=0)
        if kept < told:
            raise Violation(f"lost of {worker.branch}: {told - kept} of {told} lines of its journal")

    def _finish(self) -> None:
        """End and remove everything, and bring all of it back."""
        for worker in self.workers:
            self._break_off(worker)
        orphans = [one for one in self.workers if one.owed and one.owed.where.is_orphaned()]
        self._tell("kill all")
        killed = self.system.fleet("kill", "*", "--force", code=None, seconds=_PATIENCE_SECONDS)
        self._check()
        for worker in self.workers:
            run = self.system.run(worker.branch)
            if run.has_workspace and worker not in orphans:
                raise Violation(f"cannot be removed: {worker.branch}: {killed.stderr}")
        self._soften("prune")
        faults.run_quietly(("git", "prune", "--expire=now"), self.common)
        for worker in self.workers:
            if worker in orphans:
                continue
            self._tell(f"undo {worker.branch}")
            done = self.system.fleet("undo", worker.branch, code=None, seconds=_PATIENCE_SECONDS)
            # Of one that was deleted by hand there may be nothing to bring back.
            if done.returncode and worker.owed and worker.owed.is_whole:
                raise Violation(f"cannot bring back {worker.branch}: {done.stderr}")
        self._check()


def _parent_of(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0
