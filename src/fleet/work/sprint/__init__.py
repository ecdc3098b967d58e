"""Sprints: a plan, then a reviewed phase at a time."""
