"""What an agent is told, and what its plan tells."""

from __future__ import annotations

import pytest

from fleet.domain.ids import TaskId
from fleet.domain.task import Task
from fleet.domain.task_prompts import brief, read_plan


def test_the_briefing_holds_what_the_agent_needs_and_leaves_braces_alone() -> None:
    task = Task(
        id=TaskId("t-1"), title="Fix {it}", created_at=1.0, description="use {braces}", gates=("make test",)
    )
    text = brief(task, branch="fleet/t-1", artifacts="/home/tasks/t-1/artifacts")
    for part in ("Fix {it}", "use {braces}", "make test", "fleet/t-1", "/home/tasks/t-1/artifacts"):
        assert part in text
    assert "fleet task close t-1" in text


@pytest.mark.parametrize(
    ("text", "is_completed", "is_blocked"),
    [
        ("Status: completed", True, False),
        ("**Status:** completed", True, False),
        ("## Status: in_progress\n…\n## Status: completed\n", True, False),
        ("Status: completed\nStatus: in_progress", False, False),
        ("- Status: `blocked`", False, True),
        ("the status: completed tasks", False, False),
        ("Status: completed_almost", False, False),
        ("", False, False),
    ],
)
def test_the_last_status_line_of_a_plan_counts(text: str, is_completed: bool, is_blocked: bool) -> None:
    status = read_plan(text)
    assert (status == "completed", status == "blocked") == (is_completed, is_blocked)
