"""Workflows: stages that build on each other's results."""
