"""What each kind of work declares: how its records are found, moved on, merged, and brought to a person."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from fleet.errors import Next

if TYPE_CHECKING:
    from fleet.domain.work import Work
    from fleet.engine.context import EngineContext
    from fleet.ports.store import Store
    from fleet.records.collection import Collection


WorkT = TypeVar("WorkT", bound="Work")


class Reconciler(ABC, Generic[WorkT]):
    """Moves one kind of work on. Its calls block for a while."""

    collection: ClassVar[type[Collection[Any]]]

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._tasks = context.tasks
        self._records: Collection[WorkT] = self.collection(context.store)

    def live(self) -> Sequence[WorkT]:
        """Return what is under way on this host."""
        return self._records.find("work", self._context.host)

    @abstractmethod
    def advance(self, work: WorkT) -> bool:
        """Do what can be done for it now; tell whether anything was."""


class Due(NamedTuple):
    """A decision that only a person can make."""

    kind: str
    id: str  # of the work, or of the run that is held
    text: str
    next: Next  # what makes the decision, or shows how
    stage: str = ""  # of a workflow


class Notice(NamedTuple):
    """What a person is told once, by their own command and webhook."""

    kind: str  # task.asks, pair.undecided, coder.held …
    about: str  # id of what it is about, or name of the coder
    title: str
    text: str
    command: str  # what to type
    project: str = ""


class KindOfWork(ABC, Generic[WorkT]):
    """One kind of work, declared in `work/<name>/kind.py` and listed in `work/registry.py`.

    A declaration loads nothing of its kind before it is asked: commands read all declarations, and most of
    them need no kind at all.
    """

    name: ClassVar[str]  # also of its records in the store
    id_prefix: ClassVar[str]  # of ids that a person sees; a part is named after its whole instead
    asking: ClassVar[tuple[str, str] | None] = None  # index entry of the work with decisions due

    def collection(self, store: Store) -> Collection[WorkT]:
        """Its records: `Races` in `records.py` of a race.

        By their host, those with work for the supervisor are indexed as `work`, and those with a notice to
        send as `untold`.
        """
        return self._part("records", f"{self.name.capitalize()}s")(store)

    def reconciler(self, context: EngineContext) -> Reconciler[WorkT]:
        """`RaceReconciler` in `reconciler.py` of a race."""
        return self._part("reconciler", f"{self.name.capitalize()}Reconciler")(context)

    def _part(self, module: str, name: str) -> Any:
        return getattr(import_module(f"{type(self).__module__.removesuffix('.kind')}.{module}"), name)

    @abstractmethod
    def branches(self, store: Store, work: WorkT) -> tuple[str, ...]:
        """Branches with accepted work; empty if there is none."""

    def is_result(self, store: Store, work: WorkT, branch: str) -> bool:
        """Whether the branch of one of its agents is a result of the whole, not a step on the way to it."""
        return branch in self.branches(store, work)

    def branches_without_agent(self, store: Store, project: str) -> Iterable[str]:
        """Results in a project that are on no agent's branch: merges that the engine made, say."""
        return ()

    def moved_refs(self, store: Store, project: str) -> Iterable[tuple[str, str]]:
        """Refs of a project outside fleet's own that it moves, each with a commit that it moved it to."""
        return ()

    def decisions(self, work: WorkT) -> Iterable[Due]:
        """The decisions that are due on work found by `asking`."""
        return ()

    def notice(self, work: WorkT) -> Notice | None:
        """What a person should hear about it now."""
        return None

    def mark_told(self, work: WorkT) -> WorkT:
        """The work after its notice was sent."""
        return replace(work, is_told=True)
