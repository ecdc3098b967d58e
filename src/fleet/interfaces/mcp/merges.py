"""Merges as tools."""

from __future__ import annotations

from fleet.interfaces.mcp.operations import tools_for

TOOLS = tools_for(("merge", "train"), only="merges")
