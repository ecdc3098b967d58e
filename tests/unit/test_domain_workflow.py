"""Which stages start, what comes of the whole: decided from one record, for every shape of graph."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.domain.ids import WorkflowId
from fleet.errors import Conflict, NotFound
from fleet.records.collection import decode_item, encode_item
from fleet.work.workflow.model import (
    OnFailure,
    Outcome,
    Stage,
    StageKind,
    StageState,
    Strategy,
    Workflow,
    WorkflowState,
    ancestors,
    approved,
    begin,
    combine,
    concluded,
    cyclic,
    descendants,
    levels,
    named_by,
    retried,
    settled,
    skippable,
    skipped,
    startable,
    started,
)
from fleet.work.workflow.records import Workflows

GOOD = Outcome(status="completed", summary="fine", head="h")
BAD = Outcome(status="failed", reason="broken")


def workflow(*stages: Stage) -> Workflow:
    wanted = Workflow(
        id=WorkflowId("w-1"), name="w", project="/p", base="b", host="h", created_at=1.0, stages=stages
    )
    return begin(wanted)


def chain(*names: str, **more: object) -> Workflow:
    stages = [Stage(name=name, needs=(number - 1,) if number else ()) for number, name in enumerate(names)]
    return workflow(*(replace(stage, **more) for stage in stages))


def run_stage(work: Workflow, index: int, outcome: Outcome = GOOD) -> Workflow:
    return settled(started(work, index, (), 2.0), index, (outcome,), 3.0)


def states(work: Workflow) -> list[str]:
    return [str(one.state) for one in work.progress]


def test_a_stage_starts_when_all_that_it_needs_is_done() -> None:
    work = workflow(Stage(name="a"), Stage(name="b"), Stage(name="c", needs=(0, 1)))
    assert startable(work) == (0, 1)
    work = run_stage(work, 0)
    assert startable(work) == (1,)
    assert startable(run_stage(work, 1)) == (2,)


def test_a_workflow_succeeds_when_nothing_is_left() -> None:
    work = run_stage(chain("a"), 0)
    ended = concluded(work, 9.0)
    assert (ended.state, ended.reason, ended.ended_at) == (WorkflowState.SUCCEEDED, "", 9.0)


def test_a_failed_stage_fails_the_workflow_and_cancels_what_is_under_way() -> None:
    work = workflow(Stage(name="a"), Stage(name="b"), Stage(name="c", needs=(0,)))
    work = started(work, 1, (), 1.0)
    ended = concluded(run_stage(work, 0, BAD), 9.0)
    assert ended.state is WorkflowState.FAILED
    assert ended.reason == "stage 'a': broken"
    assert states(ended) == ["failed", "cancelled", "cancelled"]


def test_a_stage_that_fails_by_policy_skip_takes_along_only_what_needs_it() -> None:
    work = workflow(
        Stage(name="a", on_failure=OnFailure.SKIP),
        Stage(name="b", needs=(0,)),
        Stage(name="c", needs=(1,)),
        Stage(name="d"),
    )
    work = run_stage(work, 0, BAD)
    work = skipped(work, skippable(work)[0], 4.0)
    work = skipped(work, skippable(work)[0], 4.0)
    assert startable(work) == (3,)
    ended = concluded(run_stage(work, 3), 9.0)
    assert states(ended) == ["failed", "skipped", "skipped", "done"]
    assert (ended.state, ended.reason) == (WorkflowState.SUCCEEDED, "without a, which failed")


def test_a_stage_that_fails_by_policy_continue_holds_up_nobody() -> None:
    work = workflow(Stage(name="a", on_failure=OnFailure.CONTINUE), Stage(name="b", needs=(0,)))
    assert startable(run_stage(work, 0, BAD)) == (1,)


def test_a_condition_on_an_earlier_result_decides_whether_a_stage_runs() -> None:
    stages = (Stage(name="a"), Stage(name="b", needs=(0,), when='a.summary contains "fix"'))
    work = run_stage(workflow(*stages), 0)
    assert startable(work) == ()
    assert "does not hold" in skippable(work)[0].reason
    assert startable(run_stage(workflow(*stages), 0, replace(GOOD, summary="please fix it"))) == (1,)


def test_what_a_skipped_stage_would_have_led_to_goes_on_if_something_else_leads_there_too() -> None:
    work = workflow(
        Stage(name="a"),
        Stage(name="maybe", needs=(0,), when='a.status == "never"'),
        Stage(name="end", needs=(0, 1)),
    )
    work = run_stage(work, 0)
    work = skipped(work, skippable(work)[0], 4.0)
    assert startable(work) == (2,)


def test_a_stage_whose_needs_were_all_skipped_is_skipped() -> None:
    work = workflow(Stage(name="a", when='vars.x == "1"'), Stage(name="b", needs=(0,)))
    work = skipped(work, skippable(work)[0], 4.0)
    assert [skip.index for skip in skippable(work)] == [1]


def test_a_loop_goes_round_until_its_condition_holds() -> None:
    work = workflow(Stage(name="a", until='a.summary == "done"', most_rounds=3))
    work = run_stage(work, 0)
    assert (work.progress[0].state, work.progress[0].round) == (StageState.WAITING, 2)
    assert work.unit(0) == "w-1-0-a-r2"
    work = run_stage(work, 0, replace(GOOD, summary="done"))
    assert work.progress[0].state is StageState.DONE


def test_a_loop_ends_at_its_bound_as_failed() -> None:
    work = workflow(Stage(name="a", until='a.summary == "done"', most_rounds=2))
    work = run_stage(run_stage(work, 0), 0)
    assert work.progress[0].state is StageState.FAILED
    assert "after 2 rounds" in work.progress[0].reason


def test_a_paused_workflow_starts_nothing() -> None:
    assert startable(replace(chain("a"), is_paused=True)) == ()


def test_a_cancelled_workflow_ends_with_all_of_its_stages() -> None:
    work = started(chain("a", "b"), 0, (), 1.0)
    ended = concluded(replace(work, is_cancelled=True), 9.0)
    assert (ended.state, states(ended)) == (WorkflowState.CANCELLED, ["cancelled", "cancelled"])
    assert ended.reason == "", "its state says it"


def test_an_approval_waits_for_a_person_and_needs_nobody_else() -> None:
    work = started(
        workflow(Stage(name="a", kind=StageKind.APPROVAL), Stage(name="b", needs=(0,))), 0, (), 1.0
    )
    assert work.needs_person
    assert "work" not in Workflows.index(work)
    yes = approved(work, 0, Outcome(status="approved"), 2.0)
    assert startable(yes) == (1,)
    with pytest.raises(Conflict):
        approved(yes, 0, Outcome(status="approved"), 2.0)


def test_a_workflow_that_a_person_wants_ended_waits_for_nobody() -> None:
    work = started(workflow(Stage(name="a", kind=StageKind.APPROVAL)), 0, (), 1.0)
    assert not replace(work, is_cancelled=True).needs_person
    assert "work" in Workflows.index(replace(work, is_cancelled=True))


def test_a_workflow_that_waits_for_a_person_and_has_work_besides_is_looked_after() -> None:
    work = started(workflow(Stage(name="a", kind=StageKind.APPROVAL), Stage(name="b")), 0, (), 1.0)
    assert not work.needs_person
    assert Workflows.index(work)["work"] == "h"


def test_a_stage_is_done_again_with_all_that_builds_on_it_under_a_new_name() -> None:
    work = run_stage(run_stage(chain("a", "b"), 0), 1, BAD)
    again = retried(concluded(work, 5.0), 0)
    assert states(again) == ["waiting", "waiting"]
    assert (again.unit(0), again.unit(1)) == ("w-1-0-a-t2", "w-1-1-b-t2")
    assert again.state is WorkflowState.RUNNING


def test_a_failed_stage_is_done_again_and_what_was_done_before_it_is_not() -> None:
    work = concluded(run_stage(run_stage(chain("a", "b", "c"), 0), 1, BAD), 5.0)
    again = retried(work, 1)
    assert states(again) == ["done", "waiting", "waiting"]
    assert again.unit(2) == "w-1-2-c", "it was never begun"


def test_what_is_under_way_is_not_done_again() -> None:
    work = started(chain("a"), 0, (), 1.0)
    with pytest.raises(Conflict):
        retried(work, 0)


def test_the_result_of_the_whole_is_that_of_the_last_stage_that_nothing_needs() -> None:
    work = workflow(Stage(name="end", needs=(1,)), Stage(name="first"))
    work = run_stage(work, 1, replace(GOOD, summary="first"))
    work = run_stage(work, 0, replace(GOOD, summary="last"))
    assert work.final is not None
    assert work.final.summary == "last"


def test_parts_of_a_stage_have_names_of_their_own_and_one_outcome() -> None:
    work = started(workflow(Stage(name="a", foreach=("x", "y"))), 0, ("x", "y"), 1.0)
    assert work.units(0) == ("w-1-0-a-i0", "w-1-0-a-i1")
    assert combine((GOOD, BAD)).status == "failed"
    assert combine((replace(GOOD, files=("x",)), replace(GOOD, files=("x", "y")))).files == ("x", "y")


@pytest.mark.parametrize(
    ("name", "items"),
    [
        ("a.next_steps", ("mend x, y and z", "two\nlines")),
        ("stage_0.next_steps", ("mend x, y and z", "two\nlines")),
        ("a.files", ("odd, name.txt", "b.txt")),
        ("a.summary", ("one, two", "three")),
        ("vars.areas", ("api", " web")),
        ("b.files", ()),
        ("vars.none", ()),
    ],
)
def test_what_a_foreach_names_comes_one_by_one_and_whole(name: str, items: tuple[str, ...]) -> None:
    outcome = replace(
        GOOD,
        summary="one, two\nthree",
        files=("odd, name.txt", "b.txt"),
        next_steps=("mend x, y and z", "two\nlines"),
    )
    work = run_stage(workflow(Stage(name="a"), Stage(name="b")), 0, outcome)
    assert named_by(replace(work, variables={"areas": "api, web"}), name) == items


def test_a_cancelled_stage_asks_for_nothing_any_more() -> None:
    work = started(chain("a"), 0, (), 1.0)
    work = work.with_progress(0, replace(work.progress[0], asks="say so"))
    assert concluded(replace(work, is_cancelled=True), 2.0).progress[0].asks == ""


def test_a_stage_is_found_by_name_and_by_number() -> None:
    work = chain("a", "b")
    assert (work.index_of("b"), work.index_of("0")) == (1, 0)
    with pytest.raises(NotFound, match="no stage"):
        work.index_of("c")


# any graph


@st.composite
def graphs(draw: st.DrawFn) -> Workflow:
    size = draw(st.integers(1, 9))
    stages: list[Stage] = []
    for number in range(size):
        needs = draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else set[int]()
        has_condition = bool(needs) and draw(st.integers(0, 4)) == 0
        has_loop = draw(st.integers(0, 4)) == 0
        stages.append(
            Stage(
                name=f"s{number}",
                needs=tuple(sorted(needs)),
                when=f's{min(needs)}.summary == "go"' if has_condition else "",
                until=f's{number}.summary == "go"' if has_loop else "",
                most_rounds=3 if has_loop else 1,
                on_failure=draw(st.sampled_from(list(OnFailure))),
                foreach=("x", "y") if not has_loop and draw(st.integers(0, 4)) == 0 else (),
            )
        )
    return workflow(*stages)


class Player:
    """Plays a workflow with random outcomes, in a random order, and remembers what was begun."""

    def __init__(self, work: Workflow, random: Random) -> None:
        self.work = work
        self.random = random
        self.begun: list[str] = []

    def step(self) -> bool:
        """Do one of the things that could happen next."""
        work = concluded(self.work, 1.0)
        if work.has_ended:
            self.work = work
            return False
        if skips := skippable(work):
            self.work = skipped(work, skips[0], 1.0)
            return True
        running = [index for index, one in enumerate(work.progress) if one.state is StageState.RUNNING]
        ready = startable(work)
        assert running or ready, "a live workflow can always go on"
        if ready and (not running or self.random.random() < 0.5):
            self.start(ready[0])
        else:
            self.settle(self.random.choice(running))
        return True

    def start(self, index: int) -> None:
        stage, progress = self.work.stages[index], self.work.progress
        assert all(progress[need].is_settled for need in stage.needs), "order is kept"
        self.work = started(self.work, index, stage.foreach, 1.0)
        self.begun += self.work.units(index)

    def settle(self, index: int) -> None:
        parts = len(self.work.units(index))
        outcomes = tuple(self.outcome() for _ in range(parts))
        self.work = settled(self.work, index, outcomes, 1.0)

    def outcome(self) -> Outcome:
        if self.random.random() < 0.2:
            return BAD
        return replace(GOOD, summary=self.random.choice(["go", "stay"]))


@settings(max_examples=150, deadline=None)
@given(graphs(), st.integers(0, 2**32))
def test_any_workflow_ends_and_keeps_order_and_begins_nothing_twice(work: Workflow, seed: int) -> None:
    player = Player(work, Random(seed))
    steps = 0
    while player.step():
        steps += 1
        assert steps < 500, "it does not go on for ever"
    assert len(player.begun) == len(set(player.begun))
    assert all(one.is_settled for one in player.work.progress)
    assert player.work.state in (WorkflowState.SUCCEEDED, WorkflowState.FAILED)
    lost = [
        stage.name
        for stage, one in zip(work.stages, player.work.progress, strict=True)
        if one.state is StageState.FAILED and stage.on_failure is OnFailure.FAIL
    ]
    assert bool(lost) is (player.work.state is WorkflowState.FAILED)


@settings(max_examples=60, deadline=None)
@given(graphs(), st.integers(0, 2**32))
def test_the_same_record_gives_the_same_decisions_also_after_it_was_written_down(
    work: Workflow, seed: int
) -> None:
    player = Player(work, Random(seed))
    while player.step():
        read = decode_item(Workflow, encode_item(player.work))
        assert read == player.work
        assert (startable(read), skippable(read)) == (startable(player.work), skippable(player.work))
        assert concluded(read, 5.0) == concluded(player.work, 5.0)


@settings(max_examples=60, deadline=None)
@given(graphs(), st.integers(0, 2**32), st.integers(0, 12))
def test_a_cancel_at_any_moment_leaves_nothing_under_way(work: Workflow, seed: int, moment: int) -> None:
    player = Player(work, Random(seed))
    for _ in range(moment):
        player.step()
    ended = concluded(replace(player.work, is_cancelled=True), 2.0)
    assert ended.has_ended
    assert all(one.is_settled for one in ended.progress)
    assert startable(ended) == skippable(ended) == ()


@settings(max_examples=60, deadline=None)
@given(graphs(), st.integers(0, 2**32), st.data())
def test_any_ended_workflow_can_be_taken_up_again_at_any_stage(
    work: Workflow, seed: int, data: st.DataObject
) -> None:
    player = Player(work, Random(seed))
    while player.step():
        pass
    index = data.draw(st.integers(0, len(work.stages) - 1))
    player.work = retried(player.work, index)
    assert player.work.progress[index].state is StageState.WAITING
    while player.step():
        pass
    assert len(player.begun) == len(set(player.begun)), "what is done again has a name of its own"


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_levels_put_every_stage_after_what_it_needs(work: Workflow) -> None:
    columns = levels(work.stages)
    depth = {index: number for number, column in enumerate(columns) for index in column}
    assert sorted(depth) == list(range(len(work.stages)))
    for index, stage in enumerate(work.stages):
        assert all(depth[need] < depth[index] for need in stage.needs)
        assert all(index in descendants(work.stages, need) for need in ancestors(work.stages, index))


def test_stages_that_wait_for_each_other_are_found() -> None:
    stages = [Stage(name="a", needs=(1,)), Stage(name="b", needs=(0,)), Stage(name="c")]
    assert cyclic(stages) == (0, 1)


def test_a_paused_workflow_in_which_nothing_runs_keeps_nobody_up() -> None:
    paused = replace(chain("a", "b"), is_paused=True)
    assert paused.is_idle
    assert not started(paused, 0, (), 1.0).is_idle
    assert not replace(paused, is_cancelled=True).is_idle


def test_the_result_behind_a_gate_is_the_branch_that_it_let_pass() -> None:
    work = workflow(
        Stage(name="do"),
        Stage(name="ask", kind=StageKind.APPROVAL, needs=(0,)),
        Stage(name="check", kind=StageKind.GATE, needs=(1,)),
    )
    work = run_stage(work, 0, replace(GOOD, branch="fleet/do", head="tip"))
    work = run_stage(work, 1, replace(GOOD, head="tip"))
    passed = run_stage(work, 2, Outcome(status="completed_no_changes", head="tip"))
    assert passed.final is not None
    assert (passed.final.status, passed.final.branch) == ("completed_no_changes", "fleet/do")
    merged = run_stage(work, 2, Outcome(status="completed_no_changes", head="of several"))
    assert merged.final is not None
    assert merged.final.branch == ""


def test_the_result_behind_an_approval_is_what_was_approved() -> None:
    work = workflow(
        Stage(name="one"),
        Stage(name="two"),
        Stage(name="ask", kind=StageKind.APPROVAL, needs=(0, 1)),
        Stage(name="ask again", kind=StageKind.APPROVAL, needs=(2,)),
    )
    for index, name in enumerate(("one", "two")):
        work = run_stage(work, index, replace(GOOD, branch=f"fleet/{name}", head=name))
    work = run_stage(work, 2, Outcome(status="approved"))
    said_yes = concluded(run_stage(work, 3, Outcome(status="approved")), 9.0)
    assert said_yes.mergeable == ("fleet/one", "fleet/two")
    said_no = concluded(run_stage(work, 3, Outcome(status="failed", reason="not so")), 9.0)
    assert said_no.mergeable == ()
    assert said_no.final is not None
    assert said_no.final.reason == "not so"


def test_a_graph_with_many_ways_through_it_is_looked_at_in_no_time() -> None:
    stages: list[Stage] = [Stage(name="first")]
    for level in range(60):  # each doubles the ways
        last = len(stages) - 1
        stages += [Stage(name=f"{side}{level}", kind=StageKind.APPROVAL, needs=(last,)) for side in "ab"]
        stages.append(Stage(name=f"c{level}", kind=StageKind.APPROVAL, needs=(last + 1, last + 2)))
    work = run_stage(workflow(*stages), 0, replace(GOOD, branch="fleet/first", head="tip"))
    for index in range(1, len(stages)):
        work = run_stage(work, index, Outcome(status="approved"))
    assert concluded(work, 9.0).mergeable == ("fleet/first",)
    gates = replace(work, stages=tuple(replace(one, kind=StageKind.GATE) for one in stages))
    assert gates.results_of(len(stages) - 1)[0].branch == ""
    assert not gates.is_unkept(0, GOOD)


@pytest.mark.parametrize(
    ("changes", "head", "is_unkept"),
    [
        ({}, "merged", True),
        ({}, "tip", False),  # a branch has it
        ({}, "base", False),  # there is nothing in it
        ({"strategy": Strategy.SHARED}, "merged", False),  # it is the user's own
        ({"kind": StageKind.AGENT}, "merged", False),
    ],
)
def test_a_merge_that_a_gate_let_pass_is_to_be_kept_where_no_branch_has_it(
    changes: dict[str, Any], head: str, is_unkept: bool
) -> None:
    gate = replace(Stage(name="check", kind=StageKind.GATE, strategy=Strategy.MERGE, needs=(0, 1)), **changes)
    work = replace(workflow(Stage(name="one"), Stage(name="two"), gate), base="base")
    work = run_stage(work, 0, replace(GOOD, branch="fleet/one", head="tip"))
    work = run_stage(work, 1, replace(GOOD, branch="fleet/two", head="other"))
    assert work.is_unkept(2, Outcome(status="completed_no_changes", head=head)) is is_unkept
    assert not work.is_unkept(2, Outcome(status="failed", head=head))
    more = replace(work, stages=(*work.stages, Stage(name="more", needs=(2,))))
    assert not more.is_unkept(2, Outcome(status="completed_no_changes", head=head)), "others go on from it"
    approved = replace(work, stages=(*work.stages, Stage(name="ask", kind=StageKind.APPROVAL, needs=(2,))))
    assert approved.is_unkept(2, Outcome(status="completed_no_changes", head=head)) is is_unkept
