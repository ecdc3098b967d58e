"""Fields and outputs that operations of several nouns share."""

from __future__ import annotations

from fleet.operations.spec import Operation, Shape, flag, integer, number, string, strings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fleet.domain.run import Diff
    from fleet.domain.usage import Usage


class InRepository(Operation):
    """An operation on the repository of a folder: that of this process, or the one that is named."""

    repo_path: str = string("Folder in a git repository.", default=".", cli=False, tool_required=True)


class WorkStart(InRepository):
    """What every kind of work made of several agents takes when it is started."""

    prompt: str = string("What is to be done.", brief="", short="p", file=True)
    gates: tuple[str, ...] = strings(
        "Command that must succeed.",
        brief="commands that must succeed",
        default=(),
        option="gate",
        metavar="CMD",
    )
    base_ref: str = string("Commit to start from.", brief="", default="HEAD", option="base", metavar="REF")
    budget_usd: float | None = number(
        "Total budget.", brief="in total", minimum=0, default=None, option="budget", metavar="USD"
    )
    budget_each_usd: float | None = number(
        "Budget of each agent.",
        brief="of each agent",
        minimum=0,
        default=None,
        option="budget-each",
        metavar="USD",
    )


class ListAll(Operation):
    """A list that hides what has ended."""

    all: bool = flag("Include those that have ended.", default=False, brief="also ended ones", short="a")


class DiffCount(Shape):
    files: int = integer()
    added: int = integer()
    removed: int = integer()

    @classmethod
    def of(cls, diff: Diff) -> DiffCount:
        return cls.copy_of(diff)


class UsageCount(Shape):
    input_tokens: int = integer()
    output_tokens: int = integer()
    cached_tokens: int = integer()
    total_tokens: int = integer()
    cost_usd: float | None = number(optional=True)

    @classmethod
    def of(cls, usage: Usage) -> UsageCount:
        return cls.copy_of(usage)
