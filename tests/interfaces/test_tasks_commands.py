"""The queue through the real command: what people type, what agents type, and what neither should."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.bootstrap import open_store
from fleet.domain.ids import RunId, TaskId
from fleet.domain.task import Task
from fleet.records.tasks import Hold, QueueState, Tasks
from tests.interfaces.conftest import at_work_elsewhere, ended_run, on_a_terminal, record
from tests.support import System, make_repository, wait_for


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A home whose queue is paused: nothing that is written down is ever started."""
    folder = tmp_path_factory.mktemp("queue")
    system = System(folder / "home", make_repository(folder / "repository"))
    system.fleet("pause", "only tests")
    yield system
    system.link.stop()


def create(system: System, title: str, *options: str) -> str:
    return json.loads(system.fleet("task", "create", "--json", *options, "--", title).stdout)["id"]


def hold_task(system: System, name: str, run: str) -> Task:
    """Hold a task as a queue on another host does."""

    def taken(task: Task) -> Task:
        return task.take("elsewhere", RunId(run), prompt="", coder="codex", model="gpt", now=time.time())

    store = open_store(system.home)
    try:
        return Tasks(store).update(name, taken)
    finally:
        store.close()


def as_agent(system: System, task: str, run: str) -> System:
    return System(system.home, system.repository, {"FLEET_TASK_ID": task, "FLEET_RUN": run})


# writing down


def test_a_task_is_created_with_all_that_it_may_say_of_itself(queue: System, tmp_path: Path) -> None:
    other = make_repository(tmp_path / "other")
    first = create(queue, "first")
    body = json.loads(
        queue.fleet(
            *(
                "task",
                "create",
                "second",
                "-d",
                "-",
                "--cwd",
                str(other),
                "--coder",
                "codex",
                "--model",
                "gpt",
            ),
            *(
                "--tier",
                "cheap",
                "--priority",
                "1",
                "--dep",
                first[-6:],
                "--gate",
                "make test",
                "--gate",
                "true",
            ),
            *("--label", "a", "--label", "b", "--needs", "gpu", "--budget", "1.5", "--json"),
            stdin="all that\nit must know 🌱".encode(),
        ).stdout
    )
    assert body["description"] == "all that\nit must know 🌱"
    assert (body["cwd"], body["project"]) == (str(other), str(other))
    assert (body["coder"], body["model"], body["tier"], body["priority"]) == ("codex", "gpt", "cheap", 1)
    assert (body["deps"], body["unmet"], body["gates"]) == ([first], [first], ["make test", "true"])
    assert (body["labels"], body["needs"], body["budget_usd"]) == (["a", "b"], ["gpu"], 1.5)
    assert not body["is_ready"]


def test_the_summary_is_the_line_that_people_know(queue: System) -> None:
    done = queue.fleet("task", "create", "Heavy\x1b[31m refactor", "--coder", "codex", "--model", "opus")
    name = done.stdout.split()[1].rstrip(":")
    where = queue.repository
    assert done.stdout == (
        f"Created {name}: Heavy\ufffd[31m refactor  [cwd: {where}, coder: codex, model: opus]\n"
    )
    assert "the queue is paused" in done.stderr


@pytest.mark.parametrize("words", [["task", "create"], ["bd", "create"], ["task", "edit"]])
def test_a_coder_that_is_not_installed_is_taken_with_a_warning(paused: System, words: list[str]) -> None:
    (paused.home / "config.toml").write_text('[coders.missing]\ncommand = ["no-such-program"]\n')
    about = create(paused, "plain") if words[-1] == "edit" else "far away"
    done = paused.fleet(*words, about, "--coder", "missing")
    warning = "warning: coder 'missing' needs 'no-such-program', which is not on PATH; run `fleet doctor`\n"
    assert warning in done.stderr
    assert "warning" not in paused.fleet(*words, about, "--coder", "scripted").stderr


@pytest.mark.parametrize(
    "words",
    [
        ["task", "create"],
        ["task", "create", ""],
        ["task", "create", "two\nlines"],
        ["task", "create", "x" * 10_000],
        ["task", "create", "-x"],
        ["task", "create", "x", "--priority", "5"],
        ["task", "create", "x", "--priority", "high"],
        ["task", "create", "x", "--tier", "luxury"],
        ["task", "create", "x", "--budget", "0"],
        ["task", "create", "x", "--budget", "0.001"],
        ["task", "create", "x", "--budget", "nan"],
        ["task", "create", "x", "--cwd", "/"],
        ["task", "edit", "t-nothing"],
        ["task", "close"],
        ["task", "nonsense"],
        ["task", "t-1a2b3c4d5e", "nonsense"],
        ["task", "--json", "tree"],
        ["task", "list", "--state", "dreaming"],
        ["task", "import", "/nowhere/at/all"],
        ["ready", "-n", "0"],
        ["tasks", "--watch"],
        ["tasks", "--watch", "--json"],
        ["log", "0"],
        ["log", "-3"],
        ["log", "many"],
        ["ask", "which?"],
        ["ask", "which?", "--task", "t", "--wait", "nan"],
        ["ask", "which?", "--task", "t", "--wait", "-1"],
        ["answer", "q-1"],
        ["answer", "q-1", "both", "--option", "1"],
        ["bd", "create"],
        ["bd", "create", "x", "--title", "y"],
        ["bd", "create", "x", "-p", "urgent"],
        ["bd", "nonsense"],
    ],
    ids=lambda words: " ".join(words)[:50],
)
def test_what_is_not_understood_ends_with_exit_code_2_and_says_so(queue: System, words: list[str]) -> None:
    done = queue.fleet(*words, code=2)
    said = json.loads(done.stderr)["error"] if "--json" in words else done.stderr
    assert said
    assert "Traceback" not in said
    assert "unexpected" not in said
    assert done.stdout == ""


def test_text_that_is_no_utf8_is_refused(queue: System) -> None:
    done = subprocess.run(
        [*queue.fleet("--version").args[:3], "task", "create", b"half \xff"],
        cwd=queue.repository,
        env=queue.environment,
        capture_output=True,
    )
    assert done.returncode == 2
    assert b"UTF-8" in done.stderr


@pytest.mark.parametrize("option", ["--gate", "--label", "--needs", "--batch"])
def test_an_edit_that_is_no_utf8_is_refused_and_changes_nothing(queue: System, option: str) -> None:
    name = create(queue, "stays as it is", "--gate", "true")
    before = queue.json("show", name)
    done = subprocess.run(
        [*queue.fleet("--version").args[:3], "task", "edit", name, option, b"\xff"],
        cwd=queue.repository,
        env=queue.environment,
        capture_output=True,
    )
    assert done.returncode == 2
    assert b"UTF-8" in done.stderr
    assert queue.json("show", name) == before


@pytest.mark.parametrize(
    "words",
    [
        ["show", "t-nothing"],
        ["task", "edit", "t-nothing", "--priority", "1"],
        ["task", "close", "t-nothing"],
        ["task", "reopen", "t-nothing"],
        ["task", "comment", "t-nothing", "x"],
        ["task", "dep", "add", "t-nothing", "t-nowhere"],
        ["task", "tree", "t-nothing"],
        ["task", "t-nothing", "log"],
        ["task", "create", "x", "--coder", "nobody"],
        ["answer", "q-nothing", "x"],
        ["ask", "x", "--task", "t-nothing"],
        ["bd", "show", "t-nothing"],
        ["resume", "nobody"],
    ],
    ids=" ".join,
)
def test_what_is_not_there_ends_with_exit_code_3_and_a_hint(queue: System, words: list[str]) -> None:
    assert "\nhint: " in queue.fleet(*words, code=3).stderr


def test_a_title_with_a_leading_dash_goes_after_two_dashes(queue: System) -> None:
    assert "after `--`" in queue.fleet("task", "create", "-x", code=2).stderr
    assert queue.json("show", create(queue, "--title"))["title"] == "--title"


# a task's life


def test_a_task_is_changed_closed_and_reopened(queue: System) -> None:
    name = create(queue, "old", "--label", "a")
    edited = queue.json("task", "edit", name, "--title", "new", "--priority", "0", "--label", "")
    assert (edited["title"], edited["priority"], edited["labels"]) == ("new", 0, [])
    queue.fleet("task", "comment", name, "said\x1b[2J aloud")
    assert queue.fleet("task", "close", name, "--reason", "enough").stdout == f"closed {name}: new\n"
    assert queue.fleet("task", "close", name, code=4).stderr.startswith(
        f"error: task {name} is closed already"
    )
    assert queue.json("show", name)["close_reason"] == "enough"
    assert queue.fleet("task", "reopen", name).stdout == f"reopened {name}: new\n"
    log = queue.fleet("task", name, "log").stdout
    assert [line.split()[2] for line in log.splitlines()] == ["edited", "comment", "closed", "reopened"]
    assert "\x1b" not in log
    assert queue.json("task", name, "log")[1]["text"] == "said\x1b[2J aloud"


def test_of_several_tasks_none_is_closed_if_one_name_is_wrong(queue: System) -> None:
    name = create(queue, "stays")
    queue.fleet("task", "close", name, "t-nothing", code=3)
    assert queue.json("show", name)["state"] == "open"


def test_dependencies_are_added_removed_and_drawn_and_never_form_a_circle(queue: System) -> None:
    build, test, ship = create(queue, "build"), create(queue, "test"), create(queue, "ship")
    queue.fleet("task", "dep", "add", test, build)
    assert queue.fleet("task", "dep", "add", ship, test).stdout == f"{ship} waits for {test}\n"
    queue.fleet("task", "dep", "add", ship, build)
    refused = queue.fleet("task", "dep", "add", build, ship, code=4)
    assert f"{build} → {ship} → " in refused.stderr
    queue.fleet("task", "dep", "add", build, build, code=4)
    tree = queue.fleet("task", "tree", ship).stdout.splitlines()
    assert tree == [
        f"{ship}  open  ship",
        f"├─ {test}  open  test",
        f"│  └─ {build}  open  build",
        f"└─ {build}  open  build",
    ]
    assert queue.fleet("task", "dep", "rm", ship, test).stdout == f"{ship} waits for {build}\n"
    queue.fleet("task", "dep", "rm", ship, test, code=3)
    assert f"waits for {build}  build (open)" in queue.fleet("show", ship).stdout


def test_what_is_under_way_or_closed_is_not_said_to_wait(queue: System) -> None:
    first, busy, done = create(queue, "first"), create(queue, "busy"), create(queue, "done")
    hold_task(queue, busy, "elsewhere")
    told = queue.fleet("task", "dep", "add", busy, first).stdout
    assert told == f"{busy} is in progress; from its next attempt it waits for {first}\n"
    queue.fleet("task", "close", done)
    told = queue.fleet("task", "dep", "add", done, first).stdout
    assert told == f"{done} is closed; if it is reopened it waits for {first}\n"
    queue.fleet("task", "close", first)
    assert queue.json("show", done)["state"] == "closed"


def test_show_tags_what_is_inherited_and_names_the_next_command(queue: System) -> None:
    name = create(queue, "plain", "-d", "many\nlines")
    shown = queue.fleet("show", name[-5:])
    assert "coder     scripted (default)\n" in shown.stdout
    assert "model     the coder's own (default)\n" in shown.stdout
    assert "waits for the queue, which is paused\n" in shown.stdout
    assert shown.stdout.endswith("\n\n  many\n  lines\n")
    assert shown.stderr.endswith("next: `fleet resume`\n")
    own = create(queue, "own", "--coder", "codex", "--tier", "premium")
    shown = queue.fleet("show", own)
    assert "coder     codex\n" in shown.stdout
    assert "model     premium\n" in shown.stdout
    body = queue.json("show", own)
    assert body["effective"]["is_default_coder"] is False
    assert body["paused"] == "only tests"


def test_from_anywhere_all_tasks_are_seen_and_closed_ones_are_counted(queue: System, tmp_path: Path) -> None:
    here, closed = create(queue, "here", "--label", "far"), create(queue, "gone", "--label", "far")
    queue.fleet("task", "close", closed)
    there = make_repository(tmp_path / "there")
    other = json.loads(queue.fleet("task", "create", "there", "--label", "far", "--json", cwd=there).stdout)[
        "id"
    ]
    for place in (queue.repository, there, Path("/")):
        listed = queue.fleet("task", "list", "--label", "far", cwd=place)
        assert [line.split()[0] for line in listed.stdout.splitlines()[1:]] == [other, here]
        assert "1 closed (see them with --all)" in listed.stderr
    everything = queue.json("task", "list", "--label", "far", "--all")
    assert [task["id"] for task in everything] == [other, closed, here]
    assert [task["id"] for task in queue.json("task", "list", "--state", "closed", "--label", "far")] == [
        closed
    ]
    ready = {task["id"] for task in queue.json("ready", "-n", "1000", cwd=Path("/"))}
    assert {here, other} <= ready
    assert closed not in ready
    assert "and more" in queue.fleet("ready", "-n", "1").stderr


def test_the_list_tells_below_what_holds_the_queue_back(system: System) -> None:
    system.fleet("pause", "the build is broken")
    create(system, "held", "--coder", "codex")
    store = open_store(system.home)
    try:
        QueueState(store).hold(Hold(coder="codex", until=0.0, reason="not logged in"))
    finally:
        store.close()
    listed = system.fleet("task", "list")
    assert "the queue is paused: the build is broken (`fleet resume`)\n" in listed.stderr
    assert "codex is paused: not logged in (`fleet resume codex`)\n" in listed.stderr
    assert "is paused" not in listed.stdout
    assert "paused" not in system.fleet("task", "list", "--json").stderr


def test_what_no_host_can_do_is_not_ready_until_one_can(paused: System) -> None:
    name = create(paused, "heavy", "--needs", "gpu")
    assert paused.json("ready") == paused.json("bd", "ready") == []
    assert "waits for a host that is gpu" in paused.fleet("task", "list").stdout
    paused.fleet("config", "set", "host.labels", "gpu", "--user")
    assert [task["id"] for task in paused.json("ready")] == [name]
    assert [task["id"] for task in paused.json("bd", "ready")] == [name]
    assert "waits for a host" not in paused.fleet("task", "list").stdout


@pytest.mark.parametrize("words", [["task", "list"], ["questions"], ["tasks"], ["ready"]])
def test_whoever_looks_at_waiting_tasks_starts_a_supervisor(paused: System, words: list[str]) -> None:
    assert "supervisor" not in paused.fleet(*words).stderr  # there is nothing to work on
    create(paused, "waits")
    paused.supervisor_pid()
    paused.fleet("run", "--stop")
    paused.fleet(*words, "--json")
    assert paused.link.holder() is None
    assert "no supervisor was up; started one\n" in paused.fleet(*words).stderr
    wait_for(paused.link.is_open)
    assert "supervisor" not in paused.fleet(*words).stderr


def test_the_files_of_a_task_are_printed_and_missed_clearly(queue: System) -> None:
    name = create(queue, "with files")
    missing = queue.fleet("task", name, "plan", code=3)
    assert "has no PLAN_AND_STATUS.md yet (open" in missing.stderr
    folder = queue.home / "tasks" / name / "artifacts"
    folder.mkdir(parents=True)
    for what, file in (("plan", "PLAN_AND_STATUS.md"), ("knowledge", "KNOWLEDGE.md"), ("qa", "Q&A.md")):
        (folder / file).write_bytes(f"the {what}\n".encode() + b"\xff\n")
        assert queue.fleet("task", name, what).stdout == f"the {what}\n\ufffd\n"
    assert queue.json("task", name, "qa")["text"] == "the qa\n\ufffd\n"


# in progress


def test_tasks_shows_what_is_in_progress_below_what_holds_the_queue_back(queue: System) -> None:
    name = create(queue, "busy", "--coder", "codex")
    run = ended_run("a")
    hold_task(queue, name, run.id)
    record(queue.home, run)
    store = open_store(queue.home)
    try:
        QueueState(store).hold(Hold(coder="gemini", until=time.time() + 3600, reason="5 hour limit"))
        store.append(f"run/{run.id}", [{"kind": "said", "at": time.time() - 120}])
    finally:
        store.close()
    shown = queue.fleet("tasks").stdout.splitlines()
    assert shown[0] == "the queue is paused: only tests (`fleet resume`)"
    assert shown[1].startswith("gemini is paused: 5 hour limit, resumes ")
    assert shown[3].split() == [
        *("id", "started", "elapsed", "idle", "events", "coder", "model", "title", "cwd"),
    ]
    row = next(line.split() for line in shown if line.startswith(name))
    assert row[3:8] == ["2m", "1", "codex", "gpt", "busy"]
    body = queue.json("tasks")
    assert body["paused"] == "only tests"
    assert [hold["coder"] for hold in body["holds"]] == ["gemini"]
    assert [task["events"] for task in body["tasks"] if task["id"] == name] == [1]
    code, screen = on_a_terminal(queue, "tasks", columns=200)
    assert code == 0
    assert "\x1b[1mcodex" in screen
    assert "\x1b[2mgpt" in screen
    helped = queue.fleet("task", "--help").stdout
    assert f"{name}  [codex/gpt] busy" in helped
    code, screen = on_a_terminal(queue, "tasks", "--watch", columns=200, interrupt_at=name)
    assert code == 0
    assert "interrupted" not in screen
    assert queue.fleet("resume", "gemini").stdout == "resumed gemini\n"
    assert queue.fleet("resume", "gemini").stdout == "gemini was not paused\n"
    assert queue.fleet("show", name).stderr == f"next: `fleet logs {run.id} --follow`\n"


def test_an_agent_closes_its_own_task_without_naming_it_and_no_former_agent_can(queue: System) -> None:
    name = create(queue, "mine", "--gate", "true")
    at_work = at_work_elsewhere()
    old, new = (ended_run(f"by-{token}", task=name, token=token, **at_work) for token in (1, 2))
    record(queue.home, old, new)
    hold_task(queue, name, new.id)
    fenced = as_agent(queue, name, old.id).fleet("task", "close", "--reason", "stale", code=4)
    assert "not held" in fenced.stderr
    told = as_agent(queue, name, new.id).fleet("task", "close", "--reason", "done").stdout
    assert told == f"{name} will be closed once you end your turn and its gates have passed\n"
    shown = queue.json("show", name)
    assert (shown["state"], shown["close_reason"]) == ("in_progress", "done")


def test_an_agent_changes_its_own_task_and_not_what_that_is_measured_by(queue: System) -> None:
    dep, other = create(queue, "dep"), create(queue, "somebody else's")
    name = create(queue, "measured", "--gate", "make test")
    run = ended_run("m", task=name, token=1, **at_work_elsewhere())
    record(queue.home, run)
    hold_task(queue, name, run.id)
    queue.fleet("task", "dep", "add", name, dep)
    agent = as_agent(queue, name, run.id)
    for option, value in (("--gate", ""), ("--budget", "1000"), ("--batch", "x"), ("--needs", "")):
        refused = agent.fleet("task", "edit", name, option, value, code=8)
        assert "cannot set gates, budget, batch or needs" in refused.stderr
        assert "ask a person" in refused.stderr
    agent.fleet("task", "dep", "rm", name, dep, code=8)
    foreign = agent.fleet("task", "edit", other, "--title", "mine", code=8).stderr
    assert "only what it has started itself" in foreign
    assert 'fleet ask "…"' in foreign
    agent.fleet("task", "edit", name, "--label", "found")
    shown = queue.json("show", name)
    assert (shown["gates"], shown["deps"], shown["labels"]) == (["make test"], [dep], ["found"])
    queue.fleet("task", "edit", name, "--gate", "")
    assert queue.json("show", name)["gates"] == []
    queue.fleet("task", "close", name)
    assert "cannot reopen it" in agent.fleet("task", "reopen", name, code=8).stderr


# questions


def test_an_agent_asks_and_a_person_answers(queue: System) -> None:
    name, run = create(queue, "asking"), ended_run("c", **at_work_elsewhere())
    run = replace(run, task=TaskId(name))
    record(queue.home, run)
    hold_task(queue, name, run.id)
    agent = as_agent(queue, name, run.id)
    told = agent.fleet("ask", "Which \x1b[31mrose?", "--option", "red", "--option", "white")
    question = told.stdout.split()[1].rstrip(":")
    assert "end your turn now" in told.stdout
    assert "\x1b" not in queue.fleet("questions").stdout
    assert question in [asked["id"] for asked in queue.json("questions")]
    assert f'next: `fleet answer {question} "…"`\n' == queue.fleet("show", name).stderr
    assert "has options 1 to 2" in queue.fleet("answer", question, "--option", "3", code=2).stderr
    assert "has options 1 to 2" in queue.fleet("answer", question, "7", code=2).stderr
    answered = queue.fleet("answer", question[-5:], "--option", "2")
    assert answered.stdout == f"answered {question}: white\n"
    assert "goes on once the queue is resumed" in answered.stderr
    queue.fleet("answer", question, "red", code=4)
    qa = queue.fleet("task", name, "qa").stdout
    assert "## Q: Which" in qa
    assert "white" in qa.partition("## A:")[2]
    former = ended_run("d", task=name, **at_work_elsewhere())
    record(queue.home, former)
    assert "is not held" in as_agent(queue, name, former.id).fleet("ask", "And me?", code=4).stderr
    stranger = as_agent(queue, name, "another").fleet("ask", "And me?", code=8)
    assert "belongs to another home" in stranger.stderr


def test_a_question_is_answered_by_the_id_of_its_task_however_short(queue: System) -> None:
    lines = [json.dumps({"id": name, "title": "short"}) for name in ("d1", "d1-d1")]
    queue.fleet("task", "import", "-", stdin="\n".join(lines).encode())
    queue.fleet("answer", "d1", "yes", code=3)
    queue.fleet("ask", "And there?", "--task", "d1-d1")
    queue.fleet("answer", "d1", "yes", code=3)
    asked = queue.json("ask", "Really?", "--task", "d1")
    assert queue.fleet("answer", "d1", "yes").stdout == f"answered {asked['id']}: yes\n"


def test_an_agent_that_waits_gets_the_answer_or_exit_code_5(queue: System) -> None:
    name = create(queue, "waiting")
    none = queue.fleet("ask", "Soon?", "--wait", "0.1", "--task", name, code=5)
    assert none.stdout == ""
    assert "nobody answered in time" in none.stderr
    assert queue.json("ask", "Sooner?", "--wait", "0", "--task", name, code=5)["answer"] is None
    waiting = queue.start(
        *("ask", "--task", name, "--wait", "Which?"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert waiting.stderr is not None
    said = waiting.stderr.readline().decode()
    queue.fleet("answer", said.split()[1].rstrip(";"), "the\nred one")
    out, _ = waiting.communicate(timeout=20)
    assert (waiting.returncode, out) == (0, b"the\nred one\n")


# all of them


def test_to_pause_and_to_resume_twice_is_clear(system: System) -> None:
    assert system.fleet("pause").stdout == "paused\n"
    assert system.fleet("pause", "a reason").stdout == "already paused: a reason\n"
    assert system.fleet("pause").stdout == "already paused: a reason\n"
    assert system.fleet("resume").stdout == "resumed the queue\n"
    assert system.fleet("resume").stdout == "the queue was not paused\n"


def test_what_resumes_a_paused_queue_is_told_once(system: System) -> None:
    system.fleet("pause", "fix the build, then `fleet resume`")
    assert system.fleet("tasks").stdout.count("`fleet resume`") == 1


def test_nothing_waits_for_a_person_if_there_is_neither_question_nor_decision(system: System) -> None:
    assert "nothing is waiting for you" in system.fleet("questions").stderr


def test_the_log_is_the_supervisors_and_its_last_lines_are_exactly_that(system: System) -> None:
    assert "there is no log yet" in system.fleet("log", code=3).stderr
    lines = [f"line {number} {'x' * 200}" for number in range(1000)]
    system.link.log_path.parent.mkdir()
    system.link.log_path.write_text("\n".join(lines) + "\n")
    assert system.fleet("log").stdout.splitlines() == lines
    for count in (1, 2, 999, 1000, 5000):
        assert system.fleet("log", str(count)).stdout.splitlines() == lines[-count:]
    system.link.log_path.write_text("one\ntwo")
    assert system.fleet("log", "1").stdout == "two"


# files


def test_what_is_exported_is_imported_elsewhere_as_it_was(queue: System, tmp_path: Path) -> None:
    first = create(queue, "first 🌱", "--gate", "true", "--label", "out")
    second = create(queue, "second", "--dep", first, "--budget", "2")
    file = tmp_path / "tasks.jsonl"
    queue.fleet("task", "export", str(file))
    assert queue.fleet("task", "export").stdout == file.read_text()
    there = System(tmp_path / "elsewhere", queue.repository)
    there.fleet("pause")
    try:
        done = there.json("task", "import", "-", stdin=file.read_bytes())
        assert {first, second} <= set(done["added"])
        again = there.json("task", "import", str(file))
        assert (again["added"], sorted(again["present"])) == ([], sorted(done["added"]))
        exported = [json.loads(line) for line in there.fleet("task", "export").stdout.splitlines()]
        wanted = [json.loads(line) for line in file.read_text().splitlines()]
        for task in wanted:
            task["state"] = "open" if task["state"] == "in_progress" else task["state"]
            task["close_reason"] = task["close_reason"] if task["state"] == "closed" else None
        assert sorted(exported, key=_by_id) == sorted(wanted, key=_by_id)
    finally:
        there.link.stop()


def _by_id(task: dict[str, str]) -> str:
    return task["id"]


def test_an_import_with_a_bad_line_names_it_and_adds_nothing(queue: System, tmp_path: Path) -> None:
    before = queue.fleet("task", "export").stdout
    text = b'{"title": "fine"}\n\x00\x01garbage\n{"title": "x", "deps": ["t-nowhere"]}\n'
    refused = queue.fleet("task", "import", "-", stdin=text, code=2)
    told = refused.stderr.splitlines()
    assert told[0] == "error: nothing was imported:"
    assert [line.partition(": ")[0] for line in told[1:]] == ["line 2", "line 3", "hint"]
    assert "not valid UTF-8" in queue.fleet("task", "import", "-", stdin=b"\xff\xfe{", code=2).stderr
    assert queue.fleet("task", "import", "-", stdin=b"").stdout == "imported 0 tasks\n"
    assert queue.fleet("task", "export").stdout == before
    assert "cannot write" in queue.fleet("task", "export", str(tmp_path / "no" / "where"), code=2).stderr


# completion


def completions(system: System, words: str) -> list[str]:
    done = System(
        system.home,
        system.repository,
        {
            "_FLEET_COMPLETE": "bash_complete",
            "COMP_WORDS": f"fleet {words}",
            "COMP_CWORD": str(len(words.split(" "))),
        },
    ).fleet()
    assert done.stderr == ""  # it would stand in somebody's command line
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def test_the_shell_completes_tasks_and_questions(queue: System) -> None:
    name, closed = create(queue, "complete me"), create(queue, "closed")
    queue.fleet("task", "close", closed)
    question = queue.json("ask", "Which?", "--task", name)["id"]
    assert name in completions(queue, f"show {name[:4]}")
    assert closed in completions(queue, f"show {closed[:4]}")
    assert name in completions(queue, f"task close {name[:4]}")
    assert closed not in completions(queue, f"task close {closed[:4]}")
    assert name in completions(queue, f"task {name}")
    assert name in completions(queue, f"bd update {name}")
    assert completions(queue, f"answer {question}") == [question]
    assert completions(queue, "task cre") == ["create"]


def test_the_shell_completes_what_there_is_of_a_task_and_coders(queue: System) -> None:
    name = create(queue, "complete what there is of me")
    assert completions(queue, f"task {name} ") == ["log", "plan", "knowledge", "qa"]
    assert completions(queue, f"task {name} kn") == ["knowledge"]
    assert completions(queue, "task create x --coder cla") == ["claude"]
    assert {"codex", "gemini"} <= set(completions(queue, f"task edit {name} -a "))


@pytest.mark.parametrize(
    "words", ["nothing-such x", "task nothing such x", "bd nothing such x", "show --no x"]
)
def test_there_is_nothing_to_complete_after_what_there_is_not(queue: System, words: str) -> None:
    assert completions(queue, words) == []


def test_a_broken_configuration_does_not_show_while_completing(queue: System, tmp_path: Path) -> None:
    system = System(tmp_path / "home", queue.repository)
    file = system.home / "config.toml"
    file.write_text("[coders.mine]\ncommand = ['mine']\n")
    assert completions(system, "task create x -a m") == ["mine"]
    file.write_text("broken")
    assert completions(system, "task create x -a m") == ["mine"]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["show", "t-1"], "fleet show t-1"),
        (["show"], "fleet show ID"),
        (["log", "t-1"], "fleet task t-1 log"),
        (["qa", "t-1"], "fleet task t-1 qa"),
        (["delete", "t-1"], "fleet task close"),
        (["creat", "x"], "fleet task create"),
        (["lst"], "fleet task list"),
    ],
    ids=" ".join,
)
def test_a_command_that_there_is_not_names_the_one_that_was_meant(
    queue: System, words: list[str], meant: str
) -> None:
    refused = queue.fleet("task", *words, code=2).stderr
    assert refused == f"error: there is no command `fleet task {words[0]}`\nhint: did you mean `{meant}`?\n"


def test_every_hint_names_a_command_that_exists(queue: System) -> None:
    name = create(queue, "look at me")
    assert "`fleet task ID log`, or plan" in queue.fleet("task", name, "lgo", code=2).stderr
    assert "hint: run `fleet task --help`" in queue.fleet("task", name, "log", "more", code=2).stderr
    assert "hint: run `fleet task close --help`" in queue.fleet("task", "close", "--no", code=2).stderr
