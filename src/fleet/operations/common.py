"""What operations of several nouns share, those of all kinds of work above all."""

from __future__ import annotations

from importlib import import_module

from fleet.operations.fields import flag, integer, number, string, strings
from fleet.operations.spec import Next, Operation, Shape

LEAST_BUDGET_USD = 0.01  # of one agent: `domain.queue.LEAST_SHARE_USD`, which takes long to load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Self

    from fleet.operations.call import Call


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


class InRepository(Operation):
    """An operation on the repository of a folder: that of this process, or the one that is named."""

    repo_path: str = string("Folder in a git repository.", default=".", cli=False, tool_required=True)


class ListAll(Operation):
    """A list that hides what has ended."""

    all: bool = flag("Include those that have ended.", default=False, short="a")


def merge_of(project: str, branch: str, gates: Sequence[str]) -> Next:
    """The follow-up that lands a branch, whatever it was tested with."""
    return Next(
        "merge.start", repo_path=project, names=[branch], gates=[*gates] or ["…"], update_checkout=True
    )


class WorkView(Shape):
    """Work of a kind, as a caller sees it."""

    @classmethod
    def of_work(cls, work: Any, call: Call) -> Self:
        return cls.of(work)

    def follow_ups(self) -> list[Next]:
        """What a person does next, as it stands."""
        return []


class OfWork(Operation):
    """An operation on the kind of work in whose folder it is declared. Its output is a `WorkView`."""

    @classmethod
    def service(cls, call: Call) -> Any:
        """Its service: `RaceService` in `service.py` of a race."""
        package = cls.__module__.removesuffix(".operations")
        module, name = import_module(f"{package}.service"), package.rpartition(".")[2]
        return getattr(module, f"{name.capitalize()}Service")(call.fleet)

    @property
    def name(self) -> str:
        """The id, or its end, of the work that is meant."""
        (field,) = (field for field in self.fields.values() if field.position == 1)
        return getattr(self, field.name)

    def shown(self, work: Any, call: Call) -> Any:
        view: Any = self.meta.output
        return view.of_work(work, call)


class WorkStart(OfWork, InRepository, access="start"):
    """What every kind of work made of several agents takes when it is started."""

    prompt: str = string("What is to be done.", short="p", file=True)
    gates: tuple[str, ...] = strings("Command that must succeed.", default=(), metavar="CMD")
    base_ref: str = string("Commit to start from.", default="HEAD")
    budget_usd: float | None = number("Total budget.", minimum=0, default=None)
    budget_each_usd: float | None = number("Budget of each agent.", minimum=LEAST_BUDGET_USD, default=None)

    def __call__(self, call: Call) -> tuple[Any, list[Next]]:
        call.refuse_agent("gates", given=any(self.gates))
        work, noun = self.service(call).start(self, origin=call.origin), self.meta.noun
        return self.shown(work, call), [Next(f"{noun}.show", **{f"{noun}_id": work.id})]


class ListWork(OfWork, ListAll):
    def __call__(self, call: Call) -> tuple[list[Any], list[Next]]:
        return [self.shown(work, call) for work in self.service(call).list(everything=self.all)], []


class ShowWork(OfWork, can_wait=True):
    def __call__(self, call: Call) -> tuple[Any, list[Next]]:
        shown = self.shown(self.service(call).get(self.name), call)
        return shown, shown.follow_ups()


class CancelWork(OfWork, access="person", is_destructive=True):
    def __call__(self, call: Call) -> tuple[Any, list[Next]]:
        return self.shown(self.service(call).cancel(self.name), call), []
