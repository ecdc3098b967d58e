"""Whether everything is in place, and which coder is good for what."""

from __future__ import annotations

from fleet.compat.codefleet.tools import tool
from fleet.domain.event import Json
from fleet.interfaces.mcp.sets import tools_for
from fleet.interfaces.mcp.tool import Answer, Call
from fleet.interfaces.mcp.tool_syntax import tool_text
from fleet.operations.fields import flag, string, strings, table

NAMED = ("codex", "gemini", "claude")  # that codefleet knows

GUIDE: dict[str, Json] = {
    "executors": {
        "claude": {
            "strengths": ["work across many files", "reviews", "plans", "can be kept from writing"],
            "weaknesses": ["cost at the premium tier"],
        },
        "codex": {
            "strengths": ["implementation in one go", "tests", "a sandbox of its own"],
            "weaknesses": ["the network is closed to it unless its settings open it"],
        },
        "gemini": {
            "strengths": ["very large contexts", "reading and explaining much code"],
            "weaknesses": ["less steady in long edits"],
        },
        "copilot": {"strengths": ["several providers' models with one login"], "weaknesses": []},
        "opencode": {"strengths": ["any provider, local models too"], "weaknesses": []},
    },
    "routing": [
        "one clear change: create_worker",
        "write, review, refine: create_workflow with workflow=write-review-refine",
        "independent parts: one worker each, then check_conflicts and merge_branches",
        "the reviewer should be another coder than the author",
        "tiers instead of model names (cheap, standard, premium) stay right when models change",
        "waiting costs nothing: get_worker_status with wait_seconds instead of asking often",
    ],
}


@tool("Health check", {}, gives={"ok": flag(), "version": string(), "default_executor": string()})
def healthcheck(call: Call) -> Answer:
    """Whether git, the coders' CLIs and their logins are there, and the defaults."""
    from fleet.services.machine import login_steps
    from fleet.version import __version__

    settings, home = call.fleet.settings, call.fleet.home
    doctor = call.fleet.doctor
    coders = {facts.name: (facts, found) for facts, found in doctor.coders()}
    git = doctor.git()
    missing = [facts for facts, found in coders.values() if found.path and found.login is None]
    steps = [f"{facts.name} is not logged in: {login_steps(facts)}" for facts in missing]
    steps += [tool_text(hold, call.tools) for hold in call.fleet.prompt_tasks.holds()]
    told: Answer = {
        "ok": git.path != "" and any(found.path for _, found in coders.values()),
        "app": "fleet",
        "version": __version__,
        "db_path": str(home / "fleet.db"),
        "base_dir": str(home),
        "next_steps": list[Json](steps),
    }
    for name in NAMED:
        _, found = coders[name]
        told |= {
            f"{name}_found": bool(found.path),
            f"{name}_path": found.path or None,
            f"{name}_version": found.version or None,
            f"{name}_auth_status": "missing" if found.login is None else "ok",
        }
    models: dict[str, Json] = {
        name: [*facts.tiers] for name, (facts, _) in coders.items() if any(facts.tiers)
    }
    return {
        **told,
        "coders": [name for name, (_, found) in coders.items() if found.path],
        "auth_check_mode": "variables and files",
        "claude_auth_note": "a login is looked for, and not tried out: that would cost tokens",
        "git_found": bool(git.path),
        "git_path": git.path or None,
        "default_model": settings.coder_model or None,
        "default_gemini_model": settings.coder_model_for("gemini") or None,
        "default_claude_model": settings.coder_model_for("claude") or None,
        "default_executor": settings.coder_default,
        "max_spawn_depth": call.caller.most_depth,
        "heartbeat_interval": None,  # events tell of agents, and no timer
        "supported_models": models,
        "caller": call.caller.name,
        "depth": call.caller.depth,
        "budget_left_usd": call.caller.left_usd,
    }


@tool("Executor guide", {}, gives={"executors": table(), "routing": strings()})
def executor_guide(call: Call) -> Answer:
    """Which coder is good for what, and which tool to use when."""
    from fleet.work.workflow.service import WorkflowService

    return {**GUIDE, "known_workflows": [known.name for known in WorkflowService(call.fleet).known()]}


TOOLS = (healthcheck, *tools_for("health", ("queue",)), executor_guide)
