"""Merge trains: branches that are tested together and land in order."""
