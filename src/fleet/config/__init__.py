"""Settings: defaults < user's file < project's file < environment, each value with its origin.

Every setting is declared once, in `settings.py`. Reading, checking, the names of environment
variables, `fleet config show` and the test of the documentation all follow from that.
"""
