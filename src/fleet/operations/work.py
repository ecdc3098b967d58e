"""What the operations of all kinds of work share: starting, listing, showing and cancelling it."""

from __future__ import annotations

from fleet.operations.common import InRepository, ListAll
from fleet.operations.fields import number, string, strings
from fleet.operations.spec import Next, Operation, Shape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self

    from fleet.operations.call import Call


class WorkStart(InRepository, access="start"):
    """What every kind of work made of several agents takes when it is started."""

    prompt: str = string("What is to be done.", short="p", file=True)
    gates: tuple[str, ...] = strings("Command that must succeed.", default=(), metavar="CMD")
    base_ref: str = string("Commit to start from.", default="HEAD")
    budget_usd: float | None = number("Total budget.", minimum=0, default=None)
    budget_each_usd: float | None = number("Budget of each agent.", minimum=0, default=None)


class WorkView(Shape):
    """Work of a kind, as a caller sees it."""

    @classmethod
    def of_work(cls, work: Any, call: Call) -> Self:
        return cls.of(work)

    def follow_ups(self) -> list[Next]:
        """What a person does next, as it stands."""
        return []


class OfWork(Operation):
    """An operation on work of the kind that `service` is for. Its output is a `WorkView`."""

    @staticmethod
    def service(call: Call) -> Any:
        raise NotImplementedError

    @property
    def name(self) -> str:
        """The id, or its end, of the work that is meant."""
        (field,) = (field for field in self.fields.values() if field.position == 1)
        return getattr(self, field.name)

    def shown(self, work: Any, call: Call) -> Any:
        view: Any = self.meta.output
        return view.of_work(work, call)


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
