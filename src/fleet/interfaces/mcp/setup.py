"""The setup of this machine as tools. Nothing is changed by them."""

from __future__ import annotations

from fleet.interfaces.mcp.operations import tools_for

TOOLS = tools_for(("config", "doctor", "supervisor"))
