"""codefleet's MCP tools: its users change one line of configuration."""
