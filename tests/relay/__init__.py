"""A kind of work that fleet does not have: runners, one after the other."""
