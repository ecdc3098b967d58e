"""What agents say may be made to harm whoever reads it: nothing of it may crash or steer a terminal."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.domain.event import Event, EventKind, Json
from fleet.domain.ids import QuestionId, TaskId, WorkflowId
from fleet.domain.question import Question
from fleet.domain.run import Result, Run, RunState
from fleet.domain.task import Task, TaskState
from fleet.interfaces.cli import render
from fleet.operations.spec import iso_time
from fleet.records.runs import encode_event
from fleet.records.tasks import Questions, Tasks
from fleet.work.workflow.model import Outcome, Stage, StageState, Workflow, WorkflowState, begin
from fleet.work.workflow.records import Workflows
from tests.interfaces.conftest import ended_run, on_a_terminal, record
from tests.support import System, git, make_repository

# Sets the clipboard, the title and what a key types; moves the cursor; hides text; the same with C1 controls.
HOSTILE = (
    "\x1b]52;c;cm0gLXJmIH4K\x07 \x1b]0;owned\x07 \x1bP+q\x1b\\ \x1b[2J\x1b[1A \x1b[8mhidden"
    " \x9d52;c;eA==\x9c \x9b2J \x85 \x08\x08 \u202eesrever"
)
STEERING = "\x7f\x85\x9b31m\u2028\u202e\u2066\u200f"
PRINTED = "plain 木\n\x1b]0;owned\x07\x9b2J tab\there\r\n".encode()


def append(system: System, run: Run, *events: Event) -> None:
    with system.runs() as runs:
        runs.append(run.id, [encode_event(event, at=1.0, turn=1, offset=0) for event in events], expect=0)


@pytest.mark.parametrize("resets_at", [2**53, 2**62, -(2**62), 1e300, 0])
def test_a_time_that_no_calendar_has_does_not_keep_the_log_from_being_read(
    system: System, resets_at: Json
) -> None:
    run = ended_run("limited")
    record(system.home, run)
    append(
        system,
        run,
        Event(kind=EventKind.LIMIT, text="too much", data={"resets_at": resets_at}),
        Event(kind=EventKind.SAID, text="after it"),
    )
    shown = system.fleet("logs", "limited").stdout
    assert "too much, until " in shown
    assert "after it" in shown


@pytest.mark.parametrize("seconds", [2.0**62, float("nan"), float("inf"), -1e300])
def test_every_number_can_be_put_as_a_time(seconds: float) -> None:
    assert render.date(seconds)
    assert render.clock(seconds)
    assert iso_time(seconds) is None


def test_json_holds_every_letter_and_nothing_that_steers_a_terminal(system: System) -> None:
    run = ended_run("sly", said=f"木 {STEERING}")
    record(system.home, run)
    append(system, run, Event(kind=EventKind.SAID, text=f"木 {STEERING}"))
    for words, name in ((("result", "sly", "--json"), "said"), (("logs", "sly", "--json"), "text")):
        shown = system.fleet(*words).stdout
        assert not set(STEERING) - set("31m") & set(shown)
        assert "木" in shown
        assert json.loads(shown)[name] == f"木 {STEERING}"
    refused = system.fleet("result", f"no{STEERING}", "--json", code=3).stderr
    assert not set("\x85\x9b\u202e") & set(refused)
    assert json.loads(refused)["code"] == 3


@pytest.mark.parametrize(("option", "file"), [("--raw", "out"), ("--stderr", "err")])
def test_raw_output_is_filtered_on_a_terminal_and_byte_for_byte_elsewhere(
    system: System, option: str, file: str
) -> None:
    run = ended_run("prints")
    record(system.home, run)
    system.turn_folder(run).mkdir(parents=True)
    (system.turn_folder(run) / file).write_bytes(PRINTED)
    piped = subprocess.run(
        [sys.executable, "-m", "fleet", "logs", "prints", option],
        env=system.environment,
        cwd=system.repository,
        capture_output=True,
        check=True,
    )
    assert piped.stdout == PRINTED
    code, shown = on_a_terminal(system, "logs", "prints", option)
    assert code == 0
    assert "plain 木" in shown
    assert "tab\there" in shown
    assert not set("\x1b\x07\x9b") & set(shown)


def test_letters_that_come_in_two_pieces_are_put_together(capsys: pytest.CaptureFixture[str]) -> None:
    show = render.Harmless()
    for byte in "木\x1b!".encode():
        show(bytes([byte]))
    assert capsys.readouterr().out == "木\N{REPLACEMENT CHARACTER}!"


def shows_no_code_but_colours(shown: str) -> bool:
    left = re.sub(r"\x1b\[([0-9;]*)m", lambda found: "" if found[1] != "8" else "\x1b", shown)
    return not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202e]", left)


@pytest.fixture(scope="module")
def sly(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A system with hostile text in all that agents write."""
    folder = tmp_path_factory.mktemp("sly")
    system = System(folder / "home", make_repository(folder / "repository"))
    top = str(system.repository)
    git(system.repository, "checkout", "-q", "-b", "sly")
    (system.repository / "notes.txt").write_bytes(
        f"plain 木\n{HOSTILE}\n".encode() + b"latin \xe9 \x9b31m\r\n"
    )
    git(system.repository, "add", "-A")
    git(system.repository, "commit", "-q", "-m", HOSTILE.replace("\x08", ""))
    git(system.repository, "checkout", "-q", "main")
    outcome = Result(
        status=RunState.FAILED, summary=HOSTILE, reason=HOSTILE, tests=HOSTILE, next_steps=(HOSTILE,)
    )
    base = git(system.repository, "rev-parse", "main")
    run = replace(
        ended_run("sly", said=HOSTILE, state_reason=HOSTILE, result=outcome),
        project=top,
        base_sha=base,
        task=TaskId("t-sly"),
    )
    record(system.home, run)
    kinds = (EventKind.SAID, EventKind.TOOL, EventKind.ERROR, EventKind.ASKED, EventKind.LIMIT)
    append(system, run, *(Event(kind=kind, text=HOSTILE, data={"reason": HOSTILE}) for kind in kinds))
    with system.runs() as runs:
        store = runs._store
        task = Task(
            id=TaskId("t-sly"),
            title=HOSTILE.replace("\n", ""),
            created_at=1.0,
            project=top,
            cwd=top,
            labels=(HOSTILE,),
            state=TaskState.BLOCKED,
            question="q-sly",
            reason=HOSTILE,
            run=run.id,
            token=1,
        )
        Tasks(store).add(task)
        Tasks(store).note(task.id, "comment", HOSTILE)
        asked = Question(id=QuestionId("q-sly"), task=task.id, text=HOSTILE, options=(HOSTILE,), asked_at=1.0)
        Questions(store).add(asked)
        stage = Stage(name=f"s {HOSTILE}", prompt=HOSTILE)
        done = Outcome(status="failed", summary=HOSTILE, reason=HOSTILE, next_steps=(HOSTILE,))
        work = begin(
            Workflow(
                id=WorkflowId("w-sly"),
                name=HOSTILE,
                project=top,
                base=base,
                host="x",
                created_at=1.0,
                stages=(stage,),
            )
        )
        at = replace(work.progress[0], state=StageState.FAILED, outcomes=(done,), reason=HOSTILE)
        failed = replace(work.with_progress(0, at), state=WorkflowState.FAILED, reason=HOSTILE)
        Workflows(store).add(failed)
    (system.home / "config.toml").write_text("[supervisor]\nidle_seconds = 1\n")
    yield system
    system.close()


@pytest.mark.parametrize(
    "words",
    [
        "list",
        "result sly",
        "logs sly -n 0",
        "show t-sly",
        "task list --all",
        "task t-sly log",
        "questions",
        "workflow status w-sly",
        "workflow logs w-sly",
        "workflow result w-sly",
        "conflicts",
        "diff sly --stat",
    ],
)
def test_no_command_passes_on_what_steers_a_terminal(
    sly: System, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_PAGER", "cat")
    _, shown = on_a_terminal(sly, *words.split())
    assert shows_no_code_but_colours(shown), shown


@pytest.mark.parametrize("pager", ["cat", "", "cat -u", "no-such-pager", "less"])
def test_a_diff_is_harmless_in_every_pager(sly: System, pager: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GIT_PAGER", raising=False)
    monkeypatch.setenv("PAGER", pager)
    monkeypatch.setenv("LESS", "-FXr")  # -r has less pass on everything
    _, shown = on_a_terminal(sly, "diff", "sly")
    assert "\x1b]" not in shown
    assert "\x9b" not in shown
    if pager != "no-such-pager":
        assert "plain 木" in shown


def test_a_pager_that_the_repository_names_is_not_run(sly: System, tmp_path: Path) -> None:
    git(sly.repository, "config", "core.pager", f"touch {tmp_path / 'ran'}; cat")
    try:
        on_a_terminal(sly, "diff", "sly")
    finally:
        git(sly.repository, "config", "--unset", "core.pager")
    assert not (tmp_path / "ran").exists()


def test_a_diff_that_goes_to_a_file_is_an_exact_patch(sly: System, tmp_path: Path) -> None:
    patch = subprocess.run(
        [sys.executable, "-m", "fleet", "diff", "sly"],
        env=sly.environment | {"PAGER": "cat"},
        cwd=sly.repository,
        capture_output=True,
        check=True,
    ).stdout
    (tmp_path / "file.patch").write_bytes(patch)
    copy = tmp_path / "copy"
    git(tmp_path, "clone", "-q", "-b", "main", str(sly.repository), str(copy))
    git(copy, "apply", "--whitespace=nowarn", str(tmp_path / "file.patch"))
    asked = subprocess.run(
        ["git", "show", "sly:notes.txt"], cwd=sly.repository, capture_output=True, check=True
    )
    assert (copy / "notes.txt").read_bytes() == asked.stdout


def test_text_that_a_command_forgets_to_filter_is_filtered_on_its_way_to_a_terminal() -> None:
    assert render.tame(f"\x1b[1mours\x1b[0m {HOSTILE}").startswith("\x1b[1mours\x1b[0m ")
    assert shows_no_code_but_colours(render.tame(HOSTILE))
    assert render.tame("a\tb\n木") == "a\tb\n木"
