"""Declares workflows as a kind of work."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from typing import TYPE_CHECKING

from fleet.errors import Next
from fleet.work.spec import Due, KindOfWork, Notice

if TYPE_CHECKING:
    from fleet.ports.store import Store
    from fleet.work.workflow.model import Workflow


class WorkflowKind(KindOfWork["Workflow"]):
    name = "workflow"
    id_prefix = "w-"
    asking = ("asking", "yes")

    def branches(self, store: Store, work: Workflow) -> tuple[str, ...]:
        """Several only where the last stage ran once for each of several items."""
        return work.mergeable

    def branches_without_agent(self, store: Store, project: str) -> Iterator[str]:
        for workflow in self.collection(store).each("project", project):
            if not workflow.parent:
                yield from workflow.mergeable

    def decisions(self, work: Workflow) -> Iterator[Due]:
        for stage, at in work.asking:
            told = f"{work.name} asks for approval: {at.reason}"
            approve = Next("workflow.approve", workflow_id=work.id, stage=stage.name)
            yield Due("approval", work.id, told, approve, stage.name)

    def notice(self, work: Workflow) -> Notice | None:
        for stage, at in work.asking:
            title = f"{work.id} asks: {work.name}, stage {stage.name}"
            command = f"fleet workflow approve {work.id} {quote(stage.name)}"
            return Notice("workflow.asks", work.id, title, at.reason, command, work.project)
        return None

    def mark_told(self, work: Workflow) -> Workflow:
        from fleet.work.workflow.model import told_of_questions

        return told_of_questions(work)


KIND = WorkflowKind()
