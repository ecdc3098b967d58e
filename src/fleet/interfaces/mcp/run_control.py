"""Runs as tools: to start, end, restore and review them."""

from __future__ import annotations

from fleet.interfaces.mcp.operations import tools_for

TOOLS = tools_for(("run", "boundary"), only="run_control")
