"""Gates: commands that decide whether what an agent did is good. The engine runs them, not the agent."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from fleet.domain.cause import Cause
from fleet.domain.run import Run, Wanted
from fleet.domain.turn import Verdict
from fleet.engine.context import EngineContext
from fleet.engine.follow import await_end
from fleet.engine.steps import agent_environment

LAST_WORDS = 4000  # bytes of what a gate said that are shown and kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """What the gates of a run said."""

    summary: str = ""
    refusal: str = ""


async def is_to_be_gated(context: EngineContext, run: Run, verdict: Verdict) -> bool:
    """Tell whether it is time for the gates: the turn ended well, and the agent says that it is done."""
    if verdict.cause is not Cause.NONE or run.wanted is not Wanted.RUN:
        return False
    if run.task is None:
        return True
    task = await context.task_of(run)
    is_told = task is not None and (task.close_reason is not None or task.ends_with_turn)
    return is_told or context.plan_of(run.task) == "completed"


async def ask_gates(context: EngineContext, run: Run, job: int) -> Gates:
    """Run the gates one after the other, in the workspace, until one says no."""
    task = await context.task_of(run)
    commands = task.gates if task else ()
    patience = context.settings_for(run.project).gate_seconds
    for number, command in enumerate(commands, 1):
        # Its name tells the command: one that was changed meanwhile is asked anew.
        name = f"gate-{job}-{number}-{zlib.crc32(command.encode()):08x}"
        folder = str(context.member.run_folder(run.id) / name)
        environment = agent_environment(context, run)
        await start_gate(context, folder, command, env=environment, cwd=run.workspace, marker=run.id)
        process = await await_end(context, run.id, folder, timeout_seconds=patience)
        said = await end_gate(context, folder)
        if process.code != 0:
            refusal = f"`{command}` ended with exit code {process.code}\n{said}"
            return Gates(summary=f"gate {number} of {len(commands)} said no", refusal=refusal)
    return Gates(summary=f"all of {len(commands)} gates said yes" if commands else "")


async def start_gate(
    context: EngineContext, folder: str, command: str, *, env: Mapping[str, str], cwd: str, marker: str
) -> None:
    """Start a command, unless it was begun before."""
    argv = ("sh", "-c", f"{{ {command}\n}} 2>&1")
    await context.member.shim.start(folder, argv=argv, env=env, cwd=cwd, marker=marker)


async def end_gate(context: EngineContext, folder: str) -> str:
    """Stop whatever a command left running, and return its last words."""
    await context.member.shim.stop(folder, grace_seconds=0)
    return (await context.member.read_tail(f"{folder}/out", LAST_WORDS)).strip()
