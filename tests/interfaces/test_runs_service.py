"""Wishes about runs, each made while somebody else wishes something else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.adapters.stores.memory import MemoryStore
from fleet.bootstrap import open_fleet
from fleet.domain.batch import Wish
from fleet.domain.event import Json
from fleet.domain.ids import TaskId
from fleet.domain.run import Mode, Run, RunState, Wanted, WorkspaceState
from fleet.errors import Conflict, FleetError, InvalidInput, NotFound, SupervisorSilent
from fleet.interfaces.cli.outcome import exit_code_of
from fleet.interfaces.shell_syntax import shell_hint
from fleet.operations.run_shapes import RunView
from fleet.ports.store import Record
from fleet.ports.supervisor_link import Holder
from fleet.records.runs import PROMPT, Runs
from fleet.services.runs import How
from fleet.services.waiting import SupervisorKeeper
from tests.interfaces.conftest import ended_run
from tests.support import git, make_repository


def hint_of(error: FleetError) -> str:
    return "".join(map(shell_hint, error.hint_parts))


class LinkToNobody:
    """A link whose supervisor comes up only when a test says so: wishes stay as they were recorded."""

    def __init__(self, log_path: Path = Path("supervisor.log")) -> None:
        self.log_path = log_path
        self.is_up = False
        self.wakes = 0
        self.signed: Holder | None = None

    def is_open(self) -> bool:
        return self.is_up

    def holder(self) -> Holder | None:
        return self.signed

    def ensure_up(self) -> None:
        self.is_up = True

    def wake(self) -> None:
        self.wakes += 1

    def stop(self) -> bool:
        return False


def signed(pid: int) -> Holder:
    return Holder(pid=pid, since=0.0, is_background=True, version="", is_up=True)


class BusyStore(MemoryStore):
    """A store in which somebody else writes right after a prompt was recorded."""

    overtake: Callable[[], object] = staticmethod(lambda: None)

    def put(
        self,
        record: Record,
        *,
        stream: str = "",
        events: Sequence[Mapping[str, Json]] = (),
        expect: int | None = None,
    ) -> Record:
        written = super().put(record, stream=stream, events=events, expect=expect)
        if record.kind == PROMPT:
            self.overtake()
        return written


class Office:
    """A service on a store of its own, and the store as everybody else sees it."""

    def __init__(self, home: Path) -> None:
        self.store = BusyStore()
        self.runs = Runs(self.store)
        self.link = LinkToNobody()
        fleet = open_fleet(home, None, make_store=lambda: self.store)
        vars(fleet)["link"] = self.link
        self.service = fleet.runs

    def add(self, *runs: Run) -> None:
        for run in runs:
            self.runs.add(run)

    def change(self, run: Run, **changes: object) -> Run:
        return self.runs.update(run.id, lambda run: replace(run, **changes))  # type: ignore[arg-type]


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    office = Office(tmp_path / "home")
    yield office
    office.store.close()


def test_the_newest_agent_of_a_task_is_found_by_the_tasks_id(office: Office) -> None:
    first, second = (ended_run(name, task=TaskId("t-1nfp3zr06m")) for name in ("first", "second"))
    office.add(first, second, ended_run("other"))
    assert office.service.get("t-1nfp3zr06m").branch == "second"
    with pytest.raises(NotFound):
        office.service.get("t-nobody")


def test_a_run_that_was_prompted_after_it_was_listed_is_not_cleaned(office: Office, tmp_path: Path) -> None:
    idle, prompted = ended_run("idle"), ended_run("prompted", workspace=str(tmp_path))
    office.add(idle, prompted)
    listed = office.service.cleanable(folder=None)
    office.service.prompt(prompted.id, "go on")
    assert [run.id for run in office.service.clean(listed)] == [idle.id]
    assert office.runs.get(prompted.id).wanted is Wanted.RUN
    assert office.runs.get(idle.id).wanted is Wanted.CLEAN


def test_clean_leaves_a_kill_and_its_branch_as_they_were_wished(office: Office) -> None:
    run = ended_run("killed")
    office.add(run)
    listed = office.service.cleanable(folder=None)
    office.service.stop([run], delete_branch=True)
    assert office.service.clean(listed) == []
    assert office.runs.get(run.id).wanted is Wanted.STOP
    assert office.runs.get(run.id).delete_branch


def test_a_second_kill_takes_nothing_back_from_the_first(office: Office) -> None:
    run = ended_run("killed")
    office.add(run)
    office.service.stop([run], delete_branch=True)
    office.service.stop([run])
    assert office.runs.get(run.id).delete_branch


def test_a_kill_after_an_undo_deletes_a_branch_only_if_asked_again(office: Office) -> None:
    run = ended_run("back", delete_branch=True, wanted=Wanted.RUN)
    office.add(run)
    office.service.stop([run])
    assert not office.runs.get(run.id).delete_branch


def test_a_glob_means_the_runs_of_the_repository_even_if_it_has_none(office: Office, tmp_path: Path) -> None:
    mine, other = make_repository(tmp_path / "mine"), make_repository(tmp_path / "other")
    run = ended_run("busy", project=str(other))
    office.add(run)
    (mine / "below").mkdir()
    for folder in (mine, mine / "below"):
        assert office.service.matching(["*"], folder=str(folder)) == []
        assert office.service.matching(["busy"], folder=str(folder)) == []
        assert office.service.matching([run.id], folder=str(folder)) == [run]
        assert office.service.matching([], batch=str(run.batch), folder=str(folder)) == [run]
    assert office.service.matching(["*"], folder=str(other)) == [run]
    assert office.service.matching(["*"], folder=str(tmp_path)) == [run]


def test_a_repository_inside_another_is_a_project_of_its_own(office: Office, tmp_path: Path) -> None:
    outer = make_repository(tmp_path / "outer")
    inner = make_repository(outer / "inner")
    office.add(ended_run("of-outer", project=str(outer)))
    assert office.service.matching(["*"], folder=str(inner)) == []


def test_a_linked_worktree_and_a_bare_repository_stand_for_their_project(
    office: Office, tmp_path: Path
) -> None:
    main = make_repository(tmp_path / "main")
    git(main, "worktree", "add", "-q", str(tmp_path / "linked"))
    git(tmp_path, "clone", "-q", "--bare", str(main), str(tmp_path / "bare.git"))
    git(tmp_path / "bare.git", "worktree", "add", "-q", "-b", "x", str(tmp_path / "of-bare"))
    of_main = ended_run("one", project=str(main))
    of_bare = ended_run("two", project=str(tmp_path / "bare.git"))
    office.add(of_main, of_bare)
    assert office.service.matching(["*"], folder=str(tmp_path / "linked")) == [of_main]
    assert office.service.matching(["*"], folder=str(tmp_path / "bare.git")) == [of_bare]
    assert office.service.matching(["*"], folder=str(tmp_path / "of-bare")) == [of_bare]


def test_a_workspace_that_lost_its_git_file_still_means_its_project(office: Office, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    run = ended_run("hurt", project="/somewhere/mine", workspace=str(workspace))
    office.add(run, ended_run("other", project="/somewhere/other"))
    assert office.service.matching(["*"], folder=str(workspace)) == [run]


def test_a_branch_of_this_repository_goes_before_those_of_others(office: Office, tmp_path: Path) -> None:
    mine, other = make_repository(tmp_path / "mine"), make_repository(tmp_path / "other")
    own = ended_run("fix", project=str(mine))
    office.add(own, ended_run("fix", project=str(other)), ended_run("lone", project=str(other)))
    assert office.service.get("fix", folder=str(mine)) == own
    assert office.service.get("lone", folder=str(mine)).branch == "lone"
    assert office.service.get(own.id, folder=str(other)) == own
    with pytest.raises(Conflict, match="2 projects"):
        office.service.get("fix", folder=str(tmp_path))


@pytest.mark.parametrize("wanted", [Wanted.STOP, Wanted.CLEAN])
def test_a_run_that_is_being_removed_takes_no_prompt_and_none_is_left_for_later(
    office: Office, wanted: Wanted
) -> None:
    run = ended_run("going", wanted=wanted)
    office.add(run)
    with pytest.raises(Conflict, match="being removed") as refusal:
        office.service.prompt(run.id, "go on")
    assert f"fleet undo {run.id}" in hint_of(refusal.value)
    assert office.runs.get(run.id) == run
    assert office.runs.prompt(run.id, 2) is None


def test_a_prompt_that_a_kill_overtakes_is_refused_and_forgotten(office: Office, tmp_path: Path) -> None:
    run = ended_run("overtaken", workspace=str(tmp_path))
    office.add(run)
    office.store.overtake = lambda: office.change(run, wanted=Wanted.STOP)
    with pytest.raises(Conflict, match="being removed"):
        office.service.prompt(run.id, "go on")
    assert office.runs.get(run.id).prompts == 1
    assert office.runs.prompt(run.id, 2) is None


def test_a_run_that_is_being_brought_back_takes_no_prompt_yet(office: Office) -> None:
    run = ended_run("coming", workspace_state=WorkspaceState.REMOVED, wanted=Wanted.RESTORE)
    office.add(run)
    with pytest.raises(Conflict, match="being restored") as refusal:
        office.service.prompt(run.id, "go on")
    assert "again" in hint_of(refusal.value)


def test_a_prompt_that_waited_when_its_run_was_killed_does_not_run_after_an_undo(
    office: Office, tmp_path: Path
) -> None:
    run = ended_run("killed", workspace=str(tmp_path))
    office.add(run)
    office.service.prompt(run.id, "never started")
    office.service.stop([run])
    back = office.change(run, wanted=Wanted.RUN, workspace_state=WorkspaceState.READY)
    assert back.next_job is None


def test_a_live_run_keeps_the_number_of_its_turn_when_it_is_killed(office: Office) -> None:
    run = ended_run("live", state=RunState.RUNNING, prompts=3)
    office.add(run)
    office.service.stop([run])
    assert office.runs.get(run.id).turn == 1


def test_the_folder_of_a_symbolic_link_is_that_of_its_target(office: Office, tmp_path: Path) -> None:
    mine = make_repository(tmp_path / "mine")
    (tmp_path / "link").symlink_to(mine)
    run = ended_run("fix", project=str(mine))
    office.add(run)
    assert office.service.matching(["*"], folder=str(tmp_path / "link")) == [run]


# the exit code, the way back, the branch


def test_an_agent_that_waits_for_approval_needs_a_person_and_one_that_waits_for_a_prompt_does_not() -> None:
    ready = ended_run("ready", state=RunState.WAITING)
    dialog = ended_run("dialog", state=RunState.WAITING, state_reason="needs approval: Bash: rm -rf build")
    failed = ended_run("failed", state=RunState.FAILED)

    def exit_code(*runs: Run) -> int:
        return exit_code_of([RunView.of(run) for run in runs])

    assert exit_code(ready, ended_run("done")) == 0
    assert exit_code(ready, dialog) == 5
    assert exit_code(dialog, failed) == 1


def test_what_has_no_snapshot_is_not_brought_back_and_the_hint_tells_what_to_do(office: Office) -> None:
    standing = ended_run("standing", workspace="/somewhere/standing")
    bare = ended_run("bare", workspace_state=WorkspaceState.REMOVED, wanted=Wanted.STOP)
    fresh = ended_run("fresh", workspace_state=WorkspaceState.NONE, state=RunState.QUEUED)
    office.add(standing, bare, fresh)
    for run, message, hint in (
        (standing, "still has its workspace", "/somewhere/standing"),
        (bare, "never had a workspace", "fleet create bare"),
        (fresh, "was not removed", "fleet result"),
    ):
        with pytest.raises(Conflict, match=message) as refusal:
            office.service.restore(run)
        assert hint in hint_of(refusal.value)
        assert office.runs.get(run.id) == run


def test_it_can_be_told_whether_the_branch_of_a_run_is_there(office: Office, tmp_path: Path) -> None:
    mine = make_repository(tmp_path / "mine")
    git(mine, "branch", "there/too")
    assert office.service.has_branch(ended_run("there/too", project=str(mine)))
    assert not office.service.has_branch(ended_run("gone", project=str(mine)))
    assert not office.service.has_branch(ended_run("gone", project=str(tmp_path / "nowhere")))


def test_a_mode_that_a_coder_lacks_is_refused_with_those_it_has(tmp_path: Path) -> None:
    mine = make_repository(tmp_path / "mine")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text('[coders.mine]\ncommand = ["sh", "-c", "true"]\n')
    office = Office(tmp_path / "home")
    how = How(repo_path=str(mine), coder="mine", mode=Mode.TMUX)
    with pytest.raises(InvalidInput, match="cannot run in tmux mode") as refusal:
        office.service.start([Wish(branch="x", prompt="hello")], how)
    assert "use mode headless" in hint_of(refusal.value)


# taking over and handing back


def a_live_run(branch: str, **changes: object) -> Run:
    live: dict[str, object] = {"coder": "scripted", "state": RunState.RUNNING, "result": None}
    return ended_run(branch, **(live | changes))


def shown_run(branch: str, **changes: object) -> Run:
    return a_live_run(branch, **({"mode": Mode.TMUX, "tmux": "t"} | changes))


def test_a_live_headless_run_is_taken_over_after_its_turn_with_a_blank_prompt_to_wake_it(
    office: Office,
) -> None:
    run = a_live_run("live")
    office.add(run)
    taken = office.service.take_over(run.id)
    assert (taken.mode, taken.mode_wanted, taken.prompts) == (Mode.HEADLESS, Mode.TMUX, 2)
    assert office.runs.prompt(run.id, 2) == ""
    assert office.link.wakes
    assert office.service.take_over(run.id) == taken, "wanting it twice is wanting it once"
    assert office.runs.prompt(run.id, 3) is None


def test_an_ended_run_is_in_tmux_at_once_and_has_work(office: Office) -> None:
    for mode in Mode:
        run = ended_run(f"ended-{mode}", coder="scripted", mode=mode)
        office.add(run)
        taken = office.service.take_over(run.id)
        assert (taken.mode, taken.mode_wanted, taken.prompts, taken.has_work) == (Mode.TMUX, None, 2, True)


@pytest.mark.parametrize(
    ("state", "turn", "prompts"),
    [(RunState.RUNNING, 1, 2), (RunState.COMPLETED, 1, 2), (RunState.QUEUED, 0, 1)],
)
def test_a_prompt_that_waits_wakes_the_screen_and_needs_no_blank_one(
    office: Office, state: RunState, turn: int, prompts: int
) -> None:
    run = a_live_run("busy", state=state, turn=turn, prompts=prompts)
    office.add(run)
    assert office.service.take_over(run.id).prompts == prompts
    assert office.runs.prompt(run.id, prompts + 1) is None


@pytest.mark.parametrize("state", [RunState.QUEUED, RunState.PREPARING, RunState.RUNNING, RunState.WAITING])
def test_a_screen_that_is_up_or_coming_up_stays_as_it_is(office: Office, state: RunState) -> None:
    run = shown_run("shown", state=state)
    office.add(run)
    assert office.service.take_over(run.id) == run
    assert office.runs.prompt(run.id, 2) is None


def test_a_screen_that_is_just_closing_is_brought_up_again(office: Office) -> None:
    run = shown_run("closing", state=RunState.SETTLING)
    office.add(run)
    assert office.service.take_over(run.id).prompts == 2


def test_a_take_over_that_a_kill_overtakes_is_refused_and_leaves_no_prompt(office: Office) -> None:
    run = a_live_run("overtaken")
    office.add(run)
    office.store.overtake = lambda: office.change(run, wanted=Wanted.STOP)
    with pytest.raises(Conflict, match="being removed"):
        office.service.take_over(run.id)
    assert office.runs.get(run.id).mode_wanted is None
    assert office.runs.prompt(run.id, 2) is None


def test_a_take_over_and_a_prompt_at_once_leave_the_prompt_in_its_place(office: Office) -> None:
    run = a_live_run("prompted")
    office.add(run)

    def overtake() -> None:
        office.store.overtake = lambda: None
        office.service.prompt(run.id, "go on")

    office.store.overtake = overtake
    taken = office.service.take_over(run.id)
    assert (taken.mode_wanted, taken.prompts) == (Mode.TMUX, 3)
    assert [office.runs.prompt(run.id, number) for number in (2, 3, 4)] == ["", "go on", None]


CUSTOM = """
[coders.forgetful]
command = ["sh"]
interactive_command = ["sh", "{prompt}"]

[coders.halfway]
command = ["sh"]
resume_command = ["sh", "{session}"]
interactive_command = ["sh", "{prompt}"]
"""


def test_what_cannot_be_taken_over_is_refused_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text(CUSTOM)
    office = Office(tmp_path / "home")
    for run, message, hint in (
        (a_live_run("removed", workspace_state=WorkspaceState.REMOVED), "was removed", "fleet undo"),
        (a_live_run("going", wanted=Wanted.STOP), "being removed", "fleet undo"),
        (shown_run("back", mode_wanted=Mode.HEADLESS), "being handed back", "again"),
        (a_live_run("blind", coder="agy"), "cannot run in tmux", "fleet logs blind"),
        (a_live_run("amnesia", coder="forgetful"), "cannot go on in tmux", "fleet prompt amnesia"),
        (a_live_run("half", coder="halfway"), "cannot resume a session", "interactive_resume_command"),
    ):
        office.add(run)
        with pytest.raises(Conflict, match=message) as refusal:
            office.service.take_over(run.id)
        assert hint in hint_of(refusal.value)
        assert office.runs.get(run.id) == run
        assert office.runs.prompt(run.id, 2) is None


def test_a_coder_that_cannot_resume_can_still_begin_in_tmux(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text(CUSTOM)
    office = Office(tmp_path / "home")
    run = a_live_run("fresh", coder="forgetful", state=RunState.QUEUED, turn=0)
    office.add(run)
    assert office.service.take_over(run.id).mode is Mode.TMUX


def test_a_screen_is_handed_back_after_its_turn_and_a_message_goes_with_it(office: Office) -> None:
    silent, told = shown_run("silent", state=RunState.WAITING), shown_run("told")
    office.add(silent, told)
    released = office.service.release(silent.id)
    assert (released.mode, released.mode_wanted, released.prompts) == (Mode.TMUX, Mode.HEADLESS, 1)
    assert not released.is_at_rest
    released = office.service.release(told.id, "go on")
    assert (released.mode_wanted, released.prompts) == (Mode.HEADLESS, 2)
    assert office.runs.prompt(told.id, 2) == "go on"
    assert office.link.wakes == 2


def test_an_ended_run_whose_screen_is_gone_is_handed_back_at_once(office: Office) -> None:
    run = ended_run("left", coder="scripted", mode=Mode.TMUX, tmux="t")
    office.add(run)
    released = office.service.release(run.id)
    assert (released.mode, released.tmux, released.is_at_rest) == (Mode.HEADLESS, "", True)


def test_what_cannot_be_handed_back_is_refused_with_a_reason(office: Office) -> None:
    for run, message, hint in (
        (a_live_run("plain"), "runs headless already", "fleet prompt plain"),
        (a_live_run("coming", mode_wanted=Mode.TMUX), "being taken over", "again"),
        (shown_run("early", state=RunState.PREPARING), "no screen yet", "again"),
        (shown_run("waking", state=RunState.COMPLETED, prompts=2), "no screen yet", "again"),
        (shown_run("removed", workspace_state=WorkspaceState.REMOVED), "was removed", "fleet undo"),
    ):
        office.add(run)
        with pytest.raises(Conflict, match=message) as refusal:
            office.service.release(run.id, "go on")
        assert hint in hint_of(refusal.value)
        assert office.runs.get(run.id) == run
        assert office.runs.prompt(run.id, run.prompts + 1) is None
    shown = shown_run("shown")
    office.add(shown)
    with pytest.raises(InvalidInput, match="the prompt is empty"):
        office.service.release(shown.id, "  \n")


# waiting for a supervisor


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def look_for(seconds: int, keeper: SupervisorKeeper, clock: Clock) -> None:
    for _ in range(seconds):
        clock.now += 1
        keeper.look()


def test_a_supervisor_that_comes_up_slowly_is_waited_for_and_not_started_over_and_over() -> None:
    link, clock = LinkToNobody(), Clock()
    keeper = SupervisorKeeper(link, clock)
    look_for(25, keeper, clock)
    assert 1 <= link.wakes <= 4
    link.is_up = True
    look_for(60, keeper, clock)
    link.is_up = False
    look_for(25, keeper, clock)  # its patience begins anew


def test_while_one_holds_the_lock_no_other_is_started() -> None:
    link, clock = LinkToNobody(), Clock()
    link.signed = signed(0)
    look_for(20, SupervisorKeeper(link, clock), clock)
    assert link.wakes == 0


def test_when_no_supervisor_stays_the_last_one_and_its_log_are_named() -> None:
    link, clock = LinkToNobody(Path("/somewhere/supervisor.log")), Clock()
    keeper = SupervisorKeeper(link, clock)
    link.signed = signed(4321)
    look_for(5, keeper, clock)
    link.signed = None
    with pytest.raises(SupervisorSilent, match="4321") as silence:
        look_for(60, keeper, clock)
    assert "/somewhere/supervisor.log" in silence.value.hint
    assert 129 <= clock.now <= 132
