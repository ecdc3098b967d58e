"""Pairs: one agent does the work, another reviews it."""
