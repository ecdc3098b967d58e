"""Runs: agents at work, each on a branch and in a workspace of its own."""

from __future__ import annotations

from fleet.operations import run_shapes
from fleet.operations.common import InRepository
from fleet.operations.fields import choice, flag, integer, string, strings
from fleet.operations.run_shapes import DiffPage, EventRow, LogPage, LogRow, RemovedRun, RunLine, RunView
from fleet.operations.spec import Next, Operation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from fleet.domain.run import Run
    from fleet.operations.call import Call
    from fleet.services.runs import How

LONGEST_ENTRY = 2_000  # characters of a log entry over MCP


class OfRun(Operation):
    run: str = string(
        "Branch or id.", brief="branch, id or task_name", position=1, metavar="BRANCH", complete="branch"
    )


def find_run(call: Call, name: str) -> Run:
    """Return the run of a branch, of its own id or its task's, or of a worker's name."""
    from fleet.errors import NotFound

    try:
        return call.fleet.runs.get(name)
    except NotFound:
        if run := call.fleet.prompt_tasks.run_named(name):
            return run
        raise


def find_own_run(call: Call, name: str) -> Run:
    """Return a run that the caller may change."""
    run = find_run(call, name)
    call.require_own(run.id)
    call.require_repository(run.project)
    return run


# starting


class StartRuns(InRepository, access="start"):
    """What every way to start agents takes."""

    coder: str = string(
        "Agent CLI to start.",
        default="",
        option="agent",
        short="a",
        metavar="CODER",
        complete="coder",
        default_text="coder.default",
    )
    model: str = string("Model, or a tier: cheap, standard, premium.", default="", short="m")
    base_ref: str = string("Commit to start from.", default="HEAD")
    mode: str | None = choice(
        ("headless", "tmux"),
        "Run without a screen, or in a tmux session.",
        default=None,
        default_text="tmux on a terminal without --wait, else headless",
    )
    role: str = choice(
        ("doer", "reviewer"),
        "A reviewer can read files, and run only commands that write nothing.",
        default="doer",
    )
    quick: bool = flag("Skip the project's setup commands.", default=False)
    skip_permissions: bool = flag("Never ask for permission.", default=False)
    on_terminal: bool = flag("Prefer tmux: a person watches.", default=False, cli=False, tool=False)

    def how(self, call: Call) -> How:
        from fleet.services.runs import How

        call.refuse_agent("skip_permissions", given=self.skip_permissions)
        given = {name: getattr(self, name) for name in How._fields if name in self.fields}
        budget = call.fleet.spawns.budget_of(call.origin) if call.origin else 0.0
        return How(**given, origin=call.origin, budget_usd=budget)


class CreateRun(
    StartRuns,
    op="run.create",
    follow="run.show",
    examples=(
        'fleet create fix-auth -p "Fix the login bug"',
        "fleet create fix-auth --prompt-file task.md -a codex --wait",
    ),
):
    """Start an agent on a new branch.

    It works in a workspace of its own, outside your checkout.
    """

    branch: str = string("Branch to create.", position=1)
    prompt: str = string("What the agent is to do.", default="", short="p", file=True)

    def __call__(self, call: Call) -> tuple[RunView, list[Next]]:
        from fleet.domain.batch import Wish

        runs = call.fleet.runs.start([Wish(self.branch, self.prompt)], self.how(call))
        return RunView.of(runs[0]), started(runs)


class FanOutRuns(
    StartRuns, op="run.fanout", tool="fan_out_runs", examples=('fleet fanout 3 login -p "Fix the login bug"',)
):
    """Start several agents on the same prompt.

    COUNT is 1 to 100. The branches are PREFIX-A, PREFIX-B and so on.
    """

    count: int = integer("Number of agents.", minimum=1, maximum=100, position=1)
    prefix: str = string("Beginning of the branches' names.", default="", position=2)
    prompt: str = string("What the agents are to do.", short="p", file=True)

    def __call__(self, call: Call) -> tuple[list[RunView], list[Next]]:
        from fleet.domain.batch import Wish, fanout_branches
        from fleet.domain.ids import new_batch_id

        batch = new_batch_id()
        wishes = [Wish(branch, self.prompt) for branch in fanout_branches(self.count, self.prefix, batch)]
        runs = call.fleet.runs.start(wishes, self.how(call), batch=batch)
        return [RunView.of(run) for run in runs], started(runs)


class CreateRuns(
    StartRuns,
    op="run.multi",
    tool="create_runs",
    examples=('fleet multi fix-auth:"Fix the login bug" docs:"Describe the new flags"',),
):
    """Start several agents, each on a prompt of its own."""

    pairs: tuple[str, ...] = strings(
        "Branch and prompt of each agent.",
        brief="BRANCH:PROMPT",
        position=1,
        many=True,
        metavar="BRANCH:PROMPT",
    )

    def __call__(self, call: Call) -> tuple[list[RunView], list[Next]]:
        from fleet.domain.batch import parse_pair

        runs = call.fleet.runs.start([parse_pair(pair) for pair in self.pairs], self.how(call))
        return [RunView.of(run) for run in runs], started(runs)


def started(runs: Sequence[Run]) -> list[Next]:
    """What to do about agents that were just started."""
    run = runs[0]
    if len(runs) > 1:
        return [Next("run.list"), Next("run.kill", patterns=[], batch=run.batch)]
    return [Next("run.logs", run=run.branch), Next("run.wait", run=run.branch)]


# looking


class ListRuns(
    Operation,
    op="run.list",
    tool_set="runs",
    output=RunView,
    brief="Every agent, newest first: also those of workflows, pairs, and of the command line.",
    examples=("fleet list --here", "fleet list --json | jq '.[] | select(.state == \"failed\") | .branch'"),
):
    """List agents and what they are doing, newest first.

    CPU is a share of one core since the last call, of all processes of the agent.
    """

    all: bool = flag(
        "Include those whose workspace was removed.", brief="also removed ones", default=False, short="a"
    )
    here: bool = flag("Only agents of this repository.", default=False, tool=False)
    removed: bool = flag(
        "Only those that can be restored.", brief="only restorable ones", default=False, cli=False
    )
    summary: bool = flag("Only what a table shows.", default=False, cli=False, tool=False)
    load: bool = flag("Measure CPU and memory of live agents.", default=False, cli=False, tool=False)

    def __call__(self, call: Call) -> tuple[list[Any], list[Next]]:
        if self.removed:
            runs = call.fleet.runs
            return [
                RemovedRun.of_call(call, run, set_aside=runs.set_aside(run))
                for run in reversed(runs.restorable())
            ], []
        from fleet.services.run_summaries import measure, records_of_runs

        folder = "." if self.here else None
        records = records_of_runs(call.fleet.store, everything=self.all, folder=folder)[::-1]
        loads = measure(call.fleet, records if self.load else [])
        if self.summary:
            return [RunLine.of_record(one, loads.get(one.key)) for one in records], []
        found = {str(run.id): run for run in call.fleet.runs.list(everything=self.all)}
        return [
            RunView.of_call(call, found[one.key], load=run_shapes.LoadRow.of_usage(loads.get(one.key)))
            for one in records
            if one.key in found
        ], []


class ShowRun(
    OfRun,
    op="run.show",
    can_wait=True,
    examples=("fleet result fix-auth", "fleet result fix-auth --json | jq .result.commits"),
):
    """Show what came of an agent's work.

    As git tells it: commits, files changed, and the agent's last words.
    """

    def __call__(self, call: Call) -> tuple[RunView, list[Next]]:
        return RunView.of_call(call, find_run(call, self.run)), []


class ReadLog(
    OfRun,
    op="run.logs",
    tool_set="runs",
    tool="get_run_logs",
    brief="What an agent said and did: the newest entries, or those after a number.",
    examples=("fleet logs fix-auth -f", "fleet logs fix-auth --raw -n 0 > transcript.jsonl"),
):
    """Show what an agent said and did."""

    after: int | None = integer(
        "Number of the last entry seen.", brief="", minimum=0, default=None, cli=False
    )
    limit: int = integer("Entries.", brief="", minimum=1, maximum=200, default=30, cli=False)
    events: bool = flag("All entries, as recorded.", default=False, cli=False, tool=False)

    def __call__(self, call: Call) -> tuple[LogPage, list[Next]]:
        from fleet.services.logs import LogService

        run = find_run(call, self.run)
        log = LogService(call.fleet)
        entries = [EventRow.of(entry) for entry in log.entries(run.id, after=self.after or 0)]
        if self.events:
            return LogPage(run=run.id, entries=tuple(entries), next_after=None), []
        told = [entry for entry in entries if entry.is_told]
        shown = told[-self.limit :] if self.after is None else told[: self.limit]
        is_more = bool(shown) and shown[-1].number < told[-1].number
        rows = tuple(LogRow.of(one, at=one.at, text=one.in_words()[:LONGEST_ENTRY]) for one in shown)
        return LogPage(run=run.id, entries=rows, next_after=shown[-1].number if is_more else None), []


class ReadDiff(
    OfRun,
    op="run.diff",
    tool_set="runs",
    tool="get_run_diff",
    brief="What an agent changed, uncommitted files too.",
    examples=("fleet diff fix-auth --stat", "fleet diff w-1m7hjhjc0a"),
):
    """Show what an agent changed.

    All since its base: committed, uncommitted and untracked, also after its workspace was removed. The id
    of a workflow, pair, sprint or race stands for its result, since it began.
    """

    stat: bool = flag("Only file names and counts.", brief="only file names and counts", default=False)
    offset: int = integer("First character.", brief="", minimum=0, default=0, cli=False)
    limit: int | None = integer(
        "Characters.", brief="", minimum=1, default=None, cli=False, tool_default=20_000
    )

    def __call__(self, call: Call) -> tuple[DiffPage, list[Next]]:
        runs, name = call.fleet.runs, self.run
        text = runs.diff_of_work(name, stat=self.stat)
        if text is None:
            run = find_run(call, name)
            name, text = run.id, runs.diff_text(run, stat=self.stat)
        end = len(text) if self.limit is None else self.offset + self.limit
        return DiffPage(
            run=name, diff=text[self.offset : end], next_offset=end if end < len(text) else None
        ), []


# talking


class PromptRun(
    OfRun,
    op="run.prompt",
    tool_set="runs",
    access="own",
    brief="Give an agent a further prompt, in the same session.",
    follow="run.show",
    reaches_out=True,
    examples=('fleet prompt fix-auth "Add a test for the empty password"',),
):
    """Give an agent a further prompt.

    It is delivered once, after those before it; an agent that has ended carries on.
    """

    prompt: str = string("What it is to do.", brief="", position=2, metavar="MESSAGE", file_option="file")

    def __call__(self, call: Call) -> tuple[RunView, list[Next]]:
        run = find_own_run(call, self.run)
        if run.task:
            run = call.fleet.prompt_tasks.prompt(run, self.prompt)
        else:
            run = call.fleet.runs.prompt(run.id, self.prompt)
        # Its record may be from before: the queue gives the prompt to an agent that had ended.
        return RunView.of_call(call, run, is_at_rest=False), []


class TakeOverRun(
    OfRun,
    op="run.attach",
    access="own",
    why_no_tool="its screen needs a terminal",
    examples=("fleet attach fix-auth",),
):
    """Take over an agent: its own screen, on your terminal.

    A headless one is taken over: its turn ends, what it wrote stays, and its session goes on in tmux. One
    that has ended is resumed the same way. Detach with Ctrl-b d: the agent works on. `fleet release` hands
    it back.
    """

    def __call__(self, call: Call) -> tuple[RunView, list[Next]]:
        run = find_own_run(call, self.run)
        return RunView.of_call(call, call.fleet.runs.take_over(run.id)), []


class ReleaseRun(
    OfRun,
    op="run.release",
    access="own",
    follow="run.show",
    reaches_out=True,
    examples=('fleet release fix-auth "Good, now finish the tests"',),
):
    """Hand an agent back that was taken over.

    Its screen is closed. With a message it goes on headless, in the same session; without one it is idle
    until `fleet prompt`.
    """

    prompt: str = string("What it is to do next.", default="", position=2, metavar="MESSAGE")

    def __call__(self, call: Call) -> tuple[RunView, list[Next]]:
        run = find_own_run(call, self.run)
        return RunView.of_call(call, call.fleet.runs.release(run.id, self.prompt)), []


# ending and restoring


class KillRuns(
    Operation,
    op="run.kill",
    access="own",
    tool="kill_runs",
    is_destructive=True,
    examples=("fleet kill fix-auth", "fleet kill 'login-*' --force"),
):
    """End agents; their work is saved first.

    PATTERN is a branch, a run id, or a glob such as 'login-*'; inside a repository only its own
    branches are meant. Everything in the workspace is kept under a recovery ref before it is removed.
    """

    patterns: tuple[str, ...] = strings(
        "Branches, ids or globs.",
        brief="branches, ids or globs; [] with batch",
        default=(),
        tool_required=True,
        position=1,
        many=True,
        metavar="PATTERN",
        complete="branch",
    )
    batch: str = string("All agents of a batch.", default="", short="b", metavar="ID")
    delete_branch: bool = flag("Delete the branches too (undo restores them).", default=False, short="d")
    dry_run: bool = flag("Only list them.", default=False, cli=False)

    def __call__(self, call: Call) -> tuple[list[RunView], list[Next]]:
        from fleet.errors import InvalidInput, NotFound

        if not self.patterns and not self.batch:
            raise InvalidInput("no branch, pattern or batch given", hint=("see ", Next("run.list")))
        runs = call.fleet.runs.matching(self.patterns, batch=self.batch)
        if not runs:
            wanted = ", ".join(
                [*map(repr, self.patterns), *([f"batch {self.batch!r}"] if self.batch else [])]
            )
            raise NotFound(f"no agent matches {wanted}", hint=("see ", Next("run.list")))
        for run in runs:
            call.require_own(run.id)
        if not self.dry_run:
            runs = call.fleet.runs.stop(runs, delete_branch=self.delete_branch)
        return [RunView.of_call(call, run) for run in runs], []


class UndoRun(Operation, op="run.undo", access="own", examples=("fleet undo fix-auth", "fleet undo --list")):
    """Restore a removed workspace.

    As it was: files, modes, untracked files, and its branch. Without a name, the one removed last.
    """

    run: str = string(
        "Branch or id; the one removed last by default.",
        default="",
        tool_required=True,
        position=1,
        metavar="RUN|BRANCH",
        complete="branch",
    )

    def __call__(self, call: Call) -> tuple[RunView, list[Next]]:
        from fleet.errors import NotFound

        runs = call.fleet.runs
        if self.run:
            run = find_run(call, self.run)
            call.require_own(run.id)
        else:
            own = [one for one in runs.restorable() if call.owns(one.id)]
            run = max(own, key=lambda run: (run.removed_at or 0, run.id), default=None)
            if run is None:
                raise NotFound("no removed run to restore", hint=("see ", Next("run.list")))
        return RunView.of_call(call, runs.restore(run)), []


class CleanRuns(
    Operation,
    op="run.clean",
    access="own",
    tool="clean_runs",
    is_destructive=True,
    is_idempotent=True,
    examples=("fleet clean --dry-run",),
):
    """Remove the workspaces of agents that have ended.

    Inside a repository those of that repository; an agent's call removes only those of agents it started.
    Each is saved first and can be restored; branches stay. Agents that wait for a person stay.
    """

    dry_run: bool = flag("Only list what would be removed.", default=False)
    all: bool = flag("Of all projects, not only of this repository.", default=False, short="a")
    only: tuple[str, ...] | None = strings(
        "Ids of runs, of those that have ended; [] for none.", default=None, cli=False
    )

    def __call__(self, call: Call) -> tuple[list[RunView], list[Next]]:
        runs = call.fleet.runs.cleanable(folder=None if self.all else ".")
        if self.only is not None:
            runs = [run for run in runs if run.id in self.only]
        if call.caller.run:
            runs = [run for run in runs if call.owns(run.id)]
        if not self.dry_run:
            runs = call.fleet.runs.clean(runs)
        return [RunView.of_call(call, run) for run in runs], []
