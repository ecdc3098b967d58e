"""Tools of workflows beside those with codefleet's names."""

from __future__ import annotations

from fleet.interfaces.mcp.operations import tools_for

TOOLS = tools_for(("workflow",))
