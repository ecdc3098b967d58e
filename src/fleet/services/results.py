"""Which branch is the result of what was made of several agents' work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.domain.phases import SprintState
from fleet.domain.workflow import WorkflowState
from fleet.errors import NotFound
from fleet.ports.pairs import Pairs
from fleet.ports.races import Races
from fleet.ports.sprints import Sprints
from fleet.ports.tasks import Tasks
from fleet.ports.workflows import Workflows

if TYPE_CHECKING:
    from fleet.domain.pair import Pair
    from fleet.domain.phases import Sprint
    from fleet.domain.race import Race
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
        return self._peek(name) is not None

    def _peek(self, name: str) -> Workflow | Pair | Sprint | Race | None:
        shelves = (self._workflows, self._pairs, self._sprints, self._races)
        return next((found for shelf in shelves if (found := shelf.peek(name))), None)

    def branch_of(self, name: str) -> str:
        """Return the branch that came of something; "" if nothing good has, or nothing has that id."""
        if workflow := self._workflows.peek(name):
            final = workflow.final
            return final.branch if final and workflow.state is WorkflowState.SUCCEEDED else ""
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
        return [branch for one in found if (branch := self.branch_of(one.id))]

    def is_result(self, branch: str, name: str) -> bool:
        """Whether a branch is what came of something. Of a sprint all phases are: its own is no agent's."""
        return self._sprints.peek(name) is not None or self.branch_of(name) == branch

    def require(self, name: str, project: str) -> str:
        """Return the branch that came of something; raise `NotFound` if none has, or it is elsewhere."""
        whole = self._peek(name)
        if whole is not None and whole.project != project:
            raise NotFound(f"{name} is not of {project}", hint=f"its result is in {whole.project}")
        branch = self.branch_of(name)
        if not branch:
            raise NotFound(f"{name} has no result that could be merged", hint="name a branch of it instead")
        return branch
