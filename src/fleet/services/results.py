"""Which branches are the result of what was made of several agents' work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.domain.sprint import SprintState
from fleet.errors import NotFound
from fleet.records.pairs import Pairs
from fleet.records.races import Races
from fleet.records.sprints import Sprints
from fleet.records.tasks import Tasks
from fleet.records.workflows import Workflows

if TYPE_CHECKING:
    from fleet.domain.pair import Pair
    from fleet.domain.race import Race
    from fleet.domain.sprint import Sprint
    from fleet.domain.workflow import Workflow
    from fleet.ports.store import Store


class Results:
    """Answers for workflows, pairs, sprints and races alike, by their ids."""

    def __init__(self, store: Store) -> None:
        self._workflows = Workflows(store)
        self._pairs = Pairs(store)
        self._sprints = Sprints(store)
        self._races = Races(store)
        self._tasks = Tasks(store)

    def knows(self, name: str) -> bool:
        """Whether an id is that of a workflow, pair, sprint or race."""
        return self.peek(name) is not None

    def peek(self, name: str) -> Workflow | Pair | Sprint | Race | None:
        collections = (self._workflows, self._pairs, self._sprints, self._races)
        return next((found for collection in collections if (found := collection.peek(name))), None)

    def branches_of(self, name: str) -> tuple[str, ...]:
        """Return the branches that came of something; none if nothing good has, or nothing has that id.

        There are several only where the last stage of a workflow is done for each of several.
        """
        if workflow := self._workflows.peek(name):
            return workflow.mergeable
        branch = self._branch_of(name)
        return (branch,) if branch else ()

    def _branch_of(self, name: str) -> str:
        if pair := self._pairs.peek(name):
            doer = self._tasks.peek(pair.doer_task)
            return doer.branch if doer and pair.is_good else ""
        if sprint := self._sprints.peek(name):
            return sprint.branch if sprint.state is SprintState.DONE else ""
        if race := self._races.peek(name):
            return next((entry.branch for entry in race.entries if entry.number == race.winner), "")
        return ""

    def of_workflows(self, project: str) -> list[str]:
        """Return the branches that came of the workflows of a project, oldest first."""
        found = [one for one in self._workflows.find("project", project) if not one.parent]
        return [branch for one in found for branch in one.mergeable]

    def is_result(self, branch: str, name: str) -> bool:
        """Whether a branch is what came of something. Of a sprint all phases are: its own is no agent's."""
        return self._sprints.peek(name) is not None or branch in self.branches_of(name)

    def require(self, name: str, project: str) -> tuple[str, ...]:
        """Return the branches that came of something; raise `NotFound` if none has, or it is elsewhere."""
        whole = self.peek(name)
        if whole is not None and whole.project != project:
            raise NotFound(f"{name} is not of {project}", hint=f"its result is in {whole.project}")
        branches = self.branches_of(name)
        if not branches:
            raise NotFound(f"{name} has no result that could be merged", hint="name a branch of it instead")
        return branches
