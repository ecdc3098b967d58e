"""`fleet bd`: beads' command for fleet's tasks."""
