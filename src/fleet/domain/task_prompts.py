"""Prompts of a task: what its agent is told, and what the files of the task tell about it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fleet.domain.task import Task

PLAN, KNOWLEDGE, QUESTIONS = "PLAN_AND_STATUS.md", "KNOWLEDGE.md", "Q&A.md"

SHEET = """# Task {id}: {title}

{description}
---
You work alone in a git worktree of its own, on branch {branch}. Commit your work there. Nobody watches you.

{before}Your memory is in {artifacts} (also in $FLEET_ARTIFACT_DIR). Another agent may have begun this
task: read {plan}, {knowledge} and {questions} there first, and go on from what they say.
- {plan}: the task in your own words, a numbered plan, and a line `Status: in_progress`, `Status: blocked` or
  `Status: completed`. Keep it true as you go.
- {knowledge}: append what the next one should know: where things are, what must hold, what surprised you.

When it is done: run `fleet task close {id} --reason "<one line: what was done>"`, or write
`Status: completed` into {plan}; then end your turn.{gates}
When you cannot go on without a person: run `fleet ask "<one question>"` (with `--option` for each choice),
or append a block `## Q: <one line>` with what you tried and what you need to {questions}; then end your
turn. You are started again with the answer.
"""
GATES = """
Then these commands must succeed in your worktree, or you are asked again:
{commands}"""
BEFORE = """The last attempt at it ended like this: {reason}

"""
BUILDS_ON = """It builds on the work of these; merge what is not on your branch yet:
{lines}

"""


def brief(task: Task, *, branch: str, artifacts: str, last_end: str = "", deps: Sequence[Task] = ()) -> str:
    """Return the first prompt of a run at a task."""
    pushed = {dep.id: f", pushed as {dep.base_ref}" if dep.base_ref else "" for dep in deps}
    lines = "\n".join(f"- {dep.title} (task {dep.id}, branch {dep.branch}{pushed[dep.id]})" for dep in deps)
    commands = "\n".join(f"    {command}" for command in task.gates)
    return SHEET.format(
        id=task.id,
        title=task.title,
        description=f"{task.description}\n" if task.description else "",
        branch=branch,
        before=(BUILDS_ON.format(lines=lines) if lines else "")
        + (BEFORE.format(reason=last_end) if last_end else ""),
        artifacts=artifacts,
        plan=PLAN,
        knowledge=KNOWLEDGE,
        questions=QUESTIONS,
        gates=GATES.format(commands=commands) if commands else "",
    )


AGAIN = """{description}

---
An earlier attempt at this ended like this: {reason}
What it did is on your branch; go on from there.
"""


def tell(task: Task, *, last_end: str = "") -> str:
    """Return the first prompt of a run at a task that is done when its turn has ended: its own words."""
    if not last_end:
        return task.description
    return AGAIN.format(description=task.description, reason=last_end)


_STATUS = re.compile(r"^[\s*#>-]*status[\s*]*:[\s*`]*(?P<word>in_progress|blocked|completed)\b", re.I | re.M)


def read_plan(text: str) -> str:
    """Return what the last status line of a plan says, "completed" say; "" if there is none."""
    words = [found["word"].lower() for found in _STATUS.finditer(text)]
    return words[-1] if words else ""
