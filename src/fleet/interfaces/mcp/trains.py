"""Listing, resuming and cancelling merges: rarely needed, so no part of the usual tools."""

from __future__ import annotations

from fleet.interfaces.mcp.operations import tools_for

TOOLS = tools_for(("train",), only="trains")
