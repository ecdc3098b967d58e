"""Kinds of work made of several tasks: a folder for each, and the registry of them all."""
