"""What a role may do, in words that every coder translates into its CLI's own rules."""

from __future__ import annotations

# Named one by one: `git -c … push` or `git --exec-path` must not slip in behind a rule for plain "git".
# Left out on purpose: push, remote, fetch, pull, clone, submodule, config, send-email.
GIT_TO_WORK = (
    "add", "apply", "am", "blame", "branch", "checkout", "cherry-pick", "commit", "diff", "format-patch",
    "grep", "log", "ls-files", "ls-tree", "merge", "merge-base", "mv", "rebase", "reflog", "reset",
    "restore", "rev-list", "rev-parse", "revert", "rm", "shortlog", "show", "show-ref", "stash", "status",
    "switch", "tag",
)  # fmt: skip
# No grep: it runs any program as its pager, and the option has many spellings (--open-f=CMD, -lOCMD).
GIT_TO_LOOK = (
    "blame", "diff", "log", "ls-files", "ls-tree", "merge-base", "rev-list", "rev-parse", "shortlog", "show",
    "show-ref", "status",
)  # fmt: skip
REVIEWER_COMMANDS = tuple(f"git {name}" for name in GIT_TO_LOOK)
# For CLIs that do not know by themselves which commands only look. None of these runs another one, or writes.
LOOK_COMMANDS = ("cat", "cmp", "diff", "grep", "head", "ls", "pwd", "stat", "tail", "wc", "which")
# What a reviewer's command must not contain: the options by which git writes a file, in every abbreviation
# (--oneline is none), and a shell's ways to put an option together from pieces or to run commands within.
REVIEWER_TABOOS = (
    *("--ou", "--op", "--o=", "--o ", "--o'", '--o"', "--o\\", "--o$", "--o{"),
    *("-'", '-"', "-\\", "-$", "-{", "{-", ",-"),
    *("$(", "${", "$'", '$"', "$_", "`"),
)


def doer_commands(own: tuple[str, ...]) -> tuple[str, ...]:
    """Command prefixes that a doer may run: git without the network, and what the project allows."""
    return (*(f"git {name}" for name in GIT_TO_WORK), *(words for words in map(_tidy, own) if words))


def _tidy(prefix: str) -> str:
    """`npm test:*`, `npm test *` and `npm  test` are one wish."""
    words = prefix.split()
    if words and words[-1] == "*":
        words = words[:-1]
    return " ".join(words).removesuffix(":*")
