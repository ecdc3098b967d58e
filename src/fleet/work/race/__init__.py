"""Races: several attempts at the same work, the best chosen by evidence."""
