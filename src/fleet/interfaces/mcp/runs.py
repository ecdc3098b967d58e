"""Runs as tools: to look at them and to talk to them."""

from __future__ import annotations

from fleet.interfaces.mcp.operations import tools_for

TOOLS = tools_for(("run",), only="runs")
