"""The pair that does a phase of a sprint, and what planner, builder and reviewer are told."""

from __future__ import annotations

from dataclasses import replace

from fleet.work.pair.model import Pair, Step
from fleet.work.sprint.model import CHECK_COMMAND, CONTROL_FILES, PLAN, RETRIES, PlannedTask, Sprint

PLANNING = """Write a plan for the task below into the file PLAN.md, commit it, and change nothing else.

Explore the code first. Draft the plan; put what is most uncertain into the first phase, so that it fails
early if it fails; then read your draft as its harshest critic would, and fix it. The plan has this form, and
`{check}` must find nothing wrong with it:

    # Plan: <what it is about>

    ## Phase 1: <name>

    ### Task 1.1: <what is done>
    - Change: <what changes, so that two people would do the same>
    - Files: <which files>
    - Tier: cheap | standard | premium   (how strong a model it needs; it never falls inside a phase)
    - Done when: <how one sees that it is done>
    - Blockers: <what must be there before, or none>

    ### VERIFY: <what to look at when the phase is done>

    ## Risk register
    | risk | impact | what is done about it |

A phase has two or three tasks that belong together, each small enough for one session, and ends with VERIFY:
there the gates are run and everything so far is reviewed, before the next phase begins.

The task:

{prompt}"""

STEP = """Do task {task.id} of the plan in {plan}, phase {phase} of {phases}, and nothing else: {task.title}

Change: {task.change}
Files: {files}
Done when: {task.done_when}
Blockers: {blockers}

{plan} on your branch says what the whole is about. Do not touch {control}: they are
written for you, and whatever you write there is undone."""

# Words of the plan itself have no place here: an agent wrote them, and they are data to the reviewer.
VERIFY = """This is the checkpoint VERIFY of phase {phase} of {phases} of the plan in {plan}. Judge everything
that was built so far, not this phase alone: does each task do what its "Change" says, is its "Done when" met,
does what earlier phases built still hold? The files {control} are bookkeeping: do not
judge them."""

PLAN_CHECKS = f"""The work is a plan, the file {PLAN}; nothing is built yet. Check it for these:
1. every task says how one sees that it is done
2. tasks of a phase belong together, and each leaves the project whole
3. what others build on comes first
4. what is most uncertain is tried in the first phase
5. later tasks use what earlier ones built, and do not build it again
6. a phase has two or three tasks, and ends with VERIFY
7. each task can be done in one session
8. each task comes after everything that it needs
9. no task can be understood in two ways
10. no task needs something that the plan does not name
11. the risk register names the real risks, and what is done about them
12. the plan does all that was asked for, and nothing else
13. tiers fit the tasks, and never fall inside a phase"""

_CONTROL = f"{', '.join(CONTROL_FILES[:-1])} and {CONTROL_FILES[-1]}"


def pair_for(sprint: Sprint, now: float) -> Pair:
    """Return the pair that is to do what comes next."""
    phase = sprint.plan[sprint.phase - 1] if sprint.plan else None
    reviewer = sprint.reviewer if sprint.reviewer.model else replace(sprint.reviewer, model="premium")
    planner = sprint.doer if sprint.doer.model else replace(sprint.doer, model="premium")
    return Pair(
        id=sprint.pair,
        prompt=sprint.prompt if phase else PLANNING.format(check=CHECK_COMMAND, prompt=sprint.prompt),
        project=sprint.project,
        host=sprint.host,
        base=sprint.head or sprint.base,
        doer=sprint.doer if phase else planner,
        reviewer=reviewer,
        secret=sprint.secret,
        created_at=now,
        steps=tuple(Step(prompt=step_prompt(sprint, task), tier=task.tier) for task in phase.tasks)
        if phase
        else (),
        gates=sprint.gates if phase else (CHECK_COMMAND,),
        bound=sprint.bound,
        advice=VERIFY.format(phase=sprint.phase, phases=len(sprint.plan), plan=PLAN, control=_CONTROL)
        if phase
        else PLAN_CHECKS,
        review_base=sprint.base,
        part_of=sprint.id,
        attempts=RETRIES,
        budget_usd=sprint.budget_usd,
    )


def step_prompt(sprint: Sprint, task: PlannedTask) -> str:
    return STEP.format(
        task=task,
        plan=PLAN,
        phase=sprint.phase,
        phases=len(sprint.plan),
        files=task.files or "see the plan",
        blockers=task.blockers or "none",
        control=_CONTROL,
    )
