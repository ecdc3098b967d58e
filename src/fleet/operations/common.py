"""Fields and outputs that operations of several nouns share."""

from __future__ import annotations

from fleet.operations.fields import flag, integer, number, string
from fleet.operations.spec import Operation, Shape

TYPE_CHECKING = False
if TYPE_CHECKING:
    pass


class InRepository(Operation):
    """An operation on the repository of a folder: that of this process, or the one that is named."""

    repo_path: str = string("Folder in a git repository.", default=".", cli=False, tool_required=True)


class ListAll(Operation):
    """A list that hides what has ended."""

    all: bool = flag("Include those that have ended.", default=False, short="a")


class DiffCount(Shape):
    files: int = integer()
    added: int = integer()
    removed: int = integer()


class UsageCount(Shape):
    input_tokens: int = integer()
    output_tokens: int = integer()
    cached_tokens: int = integer()
    total_tokens: int = integer()
    cost_usd: float | None = number(optional=True)
