"""Tasks and the queue as tools."""

from __future__ import annotations

from fleet.interfaces.mcp.operations import tools_for

TOOLS = tools_for(("task", "queue", "question"), only="tasks")
