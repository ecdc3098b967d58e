"""Gates: commands that decide whether what an agent did is good. The engine runs them, not the agent."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from fleet.domain.cause import Cause
from fleet.domain.run import Run, Wanted
from fleet.domain.turn import Verdict
from fleet.engine.context import EngineContext
from fleet.engine.follow import await_end
from fleet.engine.steps import agent_environment

GATE_SHOWN = 4000  # bytes of a gate's last words that its agent gets to read


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """What the gates of a run said."""

    summary: str = ""
    refusal: str = ""


async def is_to_be_gated(context: EngineContext, run: Run, verdict: Verdict) -> bool:
    """Tell whether it is time for the gates: the turn ended well, and the agent says that it is done."""
    if verdict.cause is not Cause.NONE or run.wanted is not Wanted.RUN:
        return False
    return run.task is None or await context.is_to_be_closed(run.task)


async def ask_gates(context: EngineContext, run: Run, job: int) -> Gates:
    """Run the gates one after the other, in the workspace, until one says no."""
    commands = await context.gates_of(run)
    for number, command in enumerate(commands, 1):
        # Its name tells the command: one that was changed meanwhile is asked anew.
        name = f"gate-{job}-{number}-{zlib.crc32(command.encode()):08x}"
        if refusal := await _ask_gate(context, run, command, name):
            return Gates(summary=f"gate {number} of {len(commands)} said no", refusal=refusal)
    return Gates(summary=f"all of {len(commands)} gates said yes" if commands else "")


async def _ask_gate(context: EngineContext, run: Run, command: str, name: str) -> str:
    """Run a gate, or go on with one that was begun; return what it said against the work, or ""."""
    folder = str(context.member.run_folder(run.id) / name)
    await context.member.shim.start(
        folder,
        argv=("sh", "-c", f"{{ {command}\n}} 2>&1"),
        env=agent_environment(context, run),
        cwd=run.workspace,
        stdin=None,
        marker=run.id,
    )
    patience = context.settings_for(run.project).gate_seconds
    process = await await_end(context, run.id, folder, timeout_seconds=patience)
    await context.member.shim.stop(folder, grace_seconds=0)  # and whatever it left running
    if process.code == 0:
        return ""
    size = await context.member.transport.size(f"{folder}/out")
    tail = await context.member.transport.read(f"{folder}/out", offset=max(0, size - GATE_SHOWN))
    return f"`{command}` ended with exit code {process.code}\n{tail.decode(errors='replace').strip()}"
