"""`fleet workflow …` through the real command: what people type, what they see, and how it ends."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from fleet.bootstrap import open_fleet
from fleet.domain.task import Task
from fleet.work.workflow.service import WorkflowService
from tests.interfaces.conftest import on_a_terminal
from tests.support import System, git, make_repository, scenario, wait_for

SVG = "{http://www.w3.org/2000/svg}"
WICKED = "\x1b]0;owned\x07\x1b[2J"

PLEASE_WRITE = {"edit": {"path": "a.txt", "content": "x\n"}}


def report(summary: str, *next_steps: str) -> dict[str, str]:
    return {"say": json.dumps({"summary": summary, "status": "completed", "next_steps": list(next_steps)})}


def stage(name: str, *steps: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "coder": "scripted", "prompt": scenario(*steps), **more}


def write(folder: Path, named: str, *stages: Mapping[str, Any], **top: Any) -> str:
    """Write a workflow down; return where."""
    file = folder / named
    file.write_text(json.dumps({"stages": list(stages), **top}))
    return str(file)


@pytest.fixture(scope="module")
def pipeline(shared: System) -> dict[str, Any]:
    """A workflow that has ended well, to be looked at."""
    file = write(
        shared.home,
        "pipeline.json",
        stage("write", PLEASE_WRITE, report("wrote it", "test it", "ship it")),
        stage(
            "refine", {"edit": {"path": "b.txt", "content": "y\n"}}, depends_on=["write"], strategy="inherit"
        ),
        stage("side", {"edit": {"path": "c.txt", "content": "z\n"}}, {"say": f"danger {WICKED} here"}),
        stage("end", report("all is well"), depends_on=["refine"], strategy="inherit"),
    )
    return shared.json("workflow", "run", file, "--wait")


def merged_behind_a_gate(shared: System, named: str, *also: Mapping[str, Any]) -> str:
    """Write down a workflow that ends with a gate over the work of two agents."""
    steps = {"run": "echo {item} > {item}.txt"}
    work = {**stage("work", steps), "foreach": ["one", "two"]}
    check = {"name": "check", "kind": "gate", "strategy": "merge", "gates": ["cat one.txt two.txt"]}
    needs = ["work", *(str(one["name"]) for one in also)]
    return write(shared.home, named, work, *also, {**check, "depends_on": needs})


@pytest.fixture(scope="module")
def asking(shared: System) -> dict[str, Any]:
    """A workflow that waits for a person, and goes on doing so."""
    file = write(shared.home, "asking.json", {"name": "say so", "kind": "approval", "prompt": "may I?"})
    return shared.json("workflow", "run", file, "--wait", code=5)


def test_whoever_looks_at_what_is_under_way_starts_a_supervisor(system: System, tmp_path: Path) -> None:
    assert "supervisor" not in system.fleet("workflow", "list").stderr  # there is nothing to work on
    system.fleet("pause")
    file = write(tmp_path, "asking.json", {"name": "say so", "kind": "approval", "prompt": "may I?"})
    begun = {
        "workflow": ("status", system.json("workflow", "run", file)["id"]),
        "race": ("show", system.json("race", "2", "-p", "x", "--gate", "true", "--coders", "scripted")["id"]),
        "pair": ("show", system.json("pair", "scripted", "scripted", "-p", "x")["id"]),
    }
    for kind, show in begun.items():
        for words in ((kind, "list"), (kind, *show)):
            system.fleet("run", "--stop")
            system.fleet(*words, "--json")
            assert system.link.holder() is None
            assert "no supervisor was up; started one\n" in system.fleet(*words).stderr
            wait_for(system.link.is_open)
            assert "supervisor" not in system.fleet(*words).stderr


# running


def test_a_workflow_that_ends_well_is_told_with_all_of_its_results(pipeline: dict[str, Any]) -> None:
    assert (pipeline["state"], pipeline["needs_person"], pipeline["reason"]) == ("succeeded", False, "")
    first, second, *_ = pipeline["stages"]
    assert [one["state"] for one in pipeline["stages"]] == ["done"] * 4
    assert (second["depends_on"], second["strategy"]) == (["write"], "inherit")
    (result,) = first["results"]
    assert (result["status"], result["summary"]) == ("completed", "wrote it")
    assert (result["files_changed"], result["next_steps"]) == (["a.txt"], ["test it", "ship it"])
    assert pipeline["result"]["summary"] == "all is well"


def test_a_started_workflow_is_announced_with_what_to_type_next(shared: System) -> None:
    file = write(shared.home, "quick.json", {"name": "ask", "kind": "approval", "prompt": "?"})
    told = shared.fleet("workflow", "run", file)
    (name,) = re.findall(r"workflow (w-\w+), 1 stage", told.stdout)
    assert f"fleet workflow status {name}" in told.stderr
    assert "needs you" in wait_for(lambda: listed_as(shared, name, "needs you"))
    assert shared.fleet("workflow", "cancel", name).stdout == f"workflow {name} is being cancelled\n"


def listed_as(system: System, name: str, state: str) -> str:
    lines = system.fleet("workflow", "list").stdout.splitlines()
    return next((line for line in lines if name in line and state in line), "")


def test_a_workflow_that_fails_ends_with_1_and_names_the_stage(shared: System) -> None:
    file = write(shared.home, "bad.json", {"name": "no", "kind": "gate", "gates": ["exit 3"]})
    told = shared.fleet("workflow", "run", file, "--wait", code=1)
    assert "failed: stage 'no': `exit 3` failed" in told.stdout
    assert shared.json("workflow", "list", "--all")[0]["state"] == "failed"


def test_a_workflow_that_needs_a_person_ends_with_5_and_says_what_to_type(
    shared: System, asking: dict[str, Any]
) -> None:
    assert asking["needs_person"]
    told = shared.fleet("workflow", "status", asking["id"], "--wait", code=5)
    assert "may I?" in told.stdout
    assert f"fleet workflow approve {asking['id']} 'say so'" in told.stderr


def test_variables_coders_and_the_base_are_given_on_the_command_line(shared: System) -> None:
    git(shared.repository, "branch", "old", "HEAD")
    file = write(
        shared.home,
        "vars.json",
        {"name": "ask", "kind": "approval", "prompt": "{vars.what} in {vars.where}: {task_prompt}"},
        {"name": "later", "coder": "codex", "model": "gpt", "depends_on": ["ask"]},
        variables={"what": "tidy up", "where": "here"},
    )
    words = ("--var", "where=a=b", "-a", "later=scripted", "--base", "old", "-p", "the task", "--wait")
    told = shared.json("workflow", "run", file, *words, code=5)
    assert told["stages"][0]["reason"] == "tidy up in a=b: the task"
    assert (told["stages"][1]["coder"], told["stages"][1]["model"]) == ("scripted", "")
    assert told["base"] == git(shared.repository, "rev-parse", "old")
    shared.fleet("workflow", "cancel", told["id"])


def test_one_coder_for_all_is_one_for_the_stages_within_too(shared: System) -> None:
    file = write(
        shared.home,
        "within.json",
        {"name": "outer", "stages": [{"name": "in", "coder": "nobody"}]},
        {"name": "tail", "coder": "nobody"},
    )
    told = shared.json("workflow", "run", file, "--check", "-a", "scripted")
    assert [one["coder"] for one in told["stages"]] == ["scripted", "scripted"]
    wrong = shared.fleet("workflow", "run", file, "--check", "-a", "tail=scripted", code=3)
    assert "stage 'in': there is no coder 'nobody'" in wrong.stderr


def test_a_check_starts_nothing_and_draws_it(shared: System) -> None:
    before = len(shared.json("workflow", "list", "--all"))
    told = shared.fleet("workflow", "run", "write-review-refine", "--check", "-a", "scripted")
    assert told.stdout.splitlines() == [
        "○ implement  scripted",
        "  ╰─○ review  scripted  ◀ implement",
        "    ╰─○ refine  scripted  ◀ implement, review",
    ]
    assert "write-review-refine can run: 3 stages" in told.stderr
    assert len(shared.json("workflow", "list", "--all")) == before


@pytest.mark.parametrize(
    "name",
    ["write-review-refine", "parallel-implement-review", "competitive-implement", "plan-build-verify"],
)
def test_every_workflow_that_comes_with_fleet_can_run(shared: System, name: str) -> None:
    told = shared.json("workflow", "run", name, "--check", "-a", "scripted")
    assert {one["state"] for one in told["stages"]} == {"waiting"}


def test_work_that_would_be_in_no_result_is_warned_of_before_it_is_done(shared: System) -> None:
    stages = [{"name": "write"}, {"name": "refine", "depends_on": ["write"]}]
    told = shared.fleet(
        "workflow", "run", write(shared.home, "lossy.json", *stages), "--check", "-a", "scripted"
    )
    assert "warning: no result has the work of 'write'" in told.stderr


YAML = """
name: same
stages:
  - name: plan
    coder: scripted
    prompt: |
      Plan it: {task_prompt}
  - name: build
    depends_on: [plan]
    strategy: inherit
    coder: scripted
    retries: 2
    gates: [make test]
    when: plan.status == "completed"
  - {name: all, kind: approval, depends_on: [0, build], prompt: "fine?"}
"""
TOML = """
name = "same"
[[stages]]
name = "plan"
coder = "scripted"
prompt = "Plan it: {task_prompt}\\n"
[[stages]]
name = "build"
depends_on = ["plan"]
strategy = "inherit"
coder = "scripted"
retries = 2
gates = ["make test"]
when = 'plan.status == "completed"'
[[stages]]
name = "all"
kind = "approval"
depends_on = [0, "build"]
prompt = "fine?"
"""


def test_yaml_toml_and_json_of_one_workflow_give_the_same_stages(shared: System, tmp_path: Path) -> None:
    import yaml

    (tmp_path / "it.yaml").write_text(YAML)
    (tmp_path / "it.yml").write_text(YAML)
    (tmp_path / "it.toml").write_text(TOML)
    (tmp_path / "it.json").write_text(json.dumps(yaml.safe_load(YAML)))
    with open_fleet(shared.home, str(shared.repository)) as fleet:
        found = [WorkflowService(fleet).blueprint(str(path)) for path in sorted(tmp_path.glob("it.*"))]
    assert len(found) == 4
    assert all(one == found[0] for one in found)


def test_whatever_an_agent_writes_stops_nothing_and_reaches_the_next_one_harmlessly(shared: System) -> None:
    # A name that is no text and not one line; a file that looks like text at first.
    makes = r"""name="$(printf 'na\377me\n.txt')"; { printf '%9000s' ''; printf '\0\377\n'; } > "$name" """
    says = (
        r"""{"summary": "half \ud800, nothing \u0000.", "status": "completed", "next_steps": ["\u001b[2J"]}"""
    )
    asks = "{one.summary}|{one.next_steps}|{one.files}|{one.result}|{one.diff}"
    later = stage("two", {"say": "ok"}, depends_on=["one"])
    later["prompt"] += asks
    file = write(shared.home, "odd.json", stage("one", {"run": makes}, {"say": says}), later)
    told = shared.json("workflow", "run", file, "--wait")
    (run,) = [run for run in shared.all_runs() if run.branch == told["stages"][1]["results"][0]["branch"]]
    prompt = (shared.turn_folder(run) / "prompt").read_text()
    assert "half ?, nothing .|- \x1b[2J|" in prompt
    assert "\0" not in prompt
    shown = shared.fleet("workflow", "result", told["id"], "one").stdout
    assert "\x1b" not in shown
    assert len([line for line in shown.splitlines() if line.startswith("  file: ")]) == 1


def test_a_workflow_that_was_misspelled_is_guessed(shared: System) -> None:
    refused = shared.fleet("workflow", "run", "write-reveiw-refine", "-p", "x", code=3)
    assert "did you mean 'write-review-refine'?" in refused.stderr


def test_an_empty_list_of_all_workflows_names_no_longer_list(system: System) -> None:
    assert "--all" in system.fleet("workflow", "list").stderr
    assert "--all" not in system.fleet("workflow", "list", "--all").stderr


def test_who_stops_waiting_stops_nothing_else(shared: System, tmp_path: Path) -> None:
    file = write(shared.home, "slow.json", stage("slow", {"wait_for": str(tmp_path / "go")}))
    code, shown = on_a_terminal(shared, "workflow", "run", file, "--wait", interrupt_at="now: slow")
    assert code == 130
    assert "the workflow goes on" in shown
    name = re.findall(r"(w-\w+)  0 of 1 stages; now: slow", shown)[0]
    (tmp_path / "go").touch()
    assert shared.json("workflow", "status", name, "--wait")["state"] == "succeeded"


@pytest.fixture
def with_clis(tmp_path: Path, repository: Path) -> Iterator[System]:
    """A system that finds claude and codex, and never starts them."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("claude", "codex"):
        (programs / name).symlink_to("/bin/false")
    path = os.pathsep.join((str(programs), os.environ["PATH"]))
    system = System(tmp_path / "home", repository, {"PATH": path})
    system.fleet("pause", "nothing is to start")
    yield system
    system.close()


def test_how_hard_to_think_is_said_in_the_words_of_each_cli(with_clis: System) -> None:
    file = write(
        with_clis.home,
        "x.json",
        {"name": "one", "executor": "codex", "reasoning_effort": "high", "extra_args": ["--search"]},
        {"name": "two", "coder": "claude", "effort": "low"},
    )
    name = with_clis.json("workflow", "run", file, "-p", "x")["id"]
    one, two = wait_for(lambda: tasks_of(with_clis, name), what="both are in the queue")
    assert one.flags == ("--search", "-c", 'model_reasoning_effort="high"')
    assert two.flags == ("--effort", "low")


def tasks_of(system: System, name: str) -> list[Task]:
    """Return the tasks of all stages, once each stage has one."""
    with open_fleet(system.home, str(system.repository)) as fleet:
        work = WorkflowService(fleet).get(name)
        found = [WorkflowService(fleet).tasks_of(work, index) for index in range(len(work.stages))]
    return [task for tasks in found for task in tasks] if all(found) else []


# what is refused


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("x.json", '{"stages": [\n  {"name": }\n]}', r"not valid JSON: Expecting value: line 2 column 12"),
        ("x.yaml", "stages:\n  - name: a\n   bad: [", r"not valid YAML: .*\(at line 3, column 4\)"),
        ("x.yaml", "a: !!timestamp x", r"not valid YAML"),
        ("x.yaml", "a: !!python/object/apply:os.system [x]", r"could not determine a constructor.*line 1"),
        ("x.toml", "[[stages]]\nname = a", r"not valid TOML: .*\(at line 2, column 8\)"),
        ("x.json", "[" * 100_000, r"not valid JSON"),
        ("x.txt", "hello", r"not valid JSON: Expecting value: line 1"),
        ("x.json", "[]", r"a workflow is a set of keys and values, not list"),
        (
            "x.json",
            '{"stages": [{"name": "a", "coder": "nobody"}]}',
            r"stage 'a': there is no coder 'nobody'",
        ),
        ("x.json", '{"stages": [{"name": "a", "coder": "amp:x"}]}', r"stage 'a': there is no coder 'amp:x'"),
        ("x.json", '{"stages": [{"name": "a", "workflow": "gone"}]}', r"no file and no workflow 'gone'"),
        ("x.json", '{"stages": [{"name": "a"}, {"name": "a"}]}', r"two stages are called 'a'"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_where_and_a_hint(
    shared: System, tmp_path: Path, name: str, text: str, told: str
) -> None:
    (tmp_path / name).write_text(text)
    refused = shared.fleet("workflow", "run", str(tmp_path / name), "-p", "x", code=None)
    assert refused.returncode in (2, 3), refused.stderr
    assert re.search(told, refused.stderr)
    assert "hint:" in refused.stderr
    assert len(refused.stderr.splitlines()) <= 3


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("run", "gone.yaml"), 3, "there is no file and no workflow 'gone.yaml'"),
        (("run", "x" * 300), 3, "there is no file and no workflow 'xxx"),
        (("run", "."), 3, "there is no file and no workflow '.'"),
        (("run", "write-review-refine", "-a", "scripted"), 2, "needs a task"),
        (("run", "write-review-refine", "-a", "scripted", "-p", "  "), 2, "needs a task"),
        (("run", "write-review-refine", "-p", "x", "-a", "nobody=scripted"), 3, "there is no stage 'nobody'"),
        (
            ("run", "write-review-refine", "-p", "x", "--var", "novalue"),
            2,
            "--var 'novalue' is not NAME=VALUE",
        ),
        (("run", "write-review-refine", "-p", "x", "-a", "=x"), 2, "--coder '=x' is not NAME=VALUE"),
        (
            ("run", "write-review-refine", "-p", "x", "-a", "scripted", "--base", "gone"),
            3,
            "'gone' names no commit",
        ),
        (("run", "write-review-refine", "-p", "x", "-a", "scripted", "--repo", "/proc"), 2, "git repository"),
        (("run",), 2, "missing argument"),
        (("status", "w-gone"), 3, "there is no workflow 'w-gone'"),
        (("logs", "w-gone"), 3, "there is no workflow 'w-gone'"),
        (("result", "w-gone"), 3, "there is no workflow 'w-gone'"),
        (("graph", "w-gone"), 3, "there is no file and no workflow 'w-gone'"),
        (("cleanup", "w-gone", "--yes"), 3, "there is no workflow 'w-gone'"),
        (("approve", "w-gone", "ask"), 3, "there is no workflow 'w-gone'"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_code_and_a_hint(
    shared: System, words: tuple[str, ...], code: int, told: str
) -> None:
    refused = shared.fleet("workflow", *words, code=code)
    assert told in refused.stderr
    assert "hint:" in refused.stderr
    assert refused.stdout == ""


def test_a_coder_whose_program_is_missing_is_told_with_its_stage(tmp_path: Path, repository: Path) -> None:
    bare = tmp_path / "bin"
    bare.mkdir()
    (bare / "git").symlink_to("/usr/bin/git")
    system = System(tmp_path / "home", repository, {"PATH": str(bare)})
    file = write(tmp_path, "x.json", {"name": "fine", "coder": "scripted"}, {"name": "it", "coder": "codex"})
    for more in ((), ("--check",)):
        refused = system.fleet("workflow", "run", file, "-p", "x", *more, code=7)
        assert "stage 'it': coder 'codex' needs 'codex', which is not on PATH" in refused.stderr
    assert system.json("workflow", "list", "--all") == []


def test_an_error_is_told_in_json_where_json_is_wanted(shared: System) -> None:
    refused = shared.fleet("workflow", "status", "w-gone", "--json", code=3)
    told = json.loads(refused.stderr)
    assert "w-gone" in json.dumps(told)
    assert refused.stdout == ""


# looking


def test_a_status_shows_every_stage_and_what_it_says(shared: System, pipeline: dict[str, Any]) -> None:
    lines = shared.fleet("workflow", "status", pipeline["id"]).stdout.splitlines()
    assert pipeline["id"] in lines[0]
    assert "succeeded" in lines[0]
    assert [line.split()[:4] for line in lines[2:4]] == [
        ["0", "write", "scripted", "done"],
        ["1", "refine", "scripted", "done"],
    ]
    assert "wrote it" in lines[2]
    assert "\x1b" not in "".join(lines), "what an agent says steers no terminal"
    assert shared.json("workflow", "status", pipeline["id"]) == pipeline


def test_a_workflow_is_found_by_its_name(shared: System, pipeline: dict[str, Any]) -> None:
    assert shared.json("workflow", "status", pipeline["name"])["id"] == pipeline["id"]


def test_results_are_shown_of_the_whole_and_of_a_stage(shared: System, pipeline: dict[str, Any]) -> None:
    whole = shared.fleet("workflow", "result", pipeline["id"]).stdout
    assert "all is well" in whole
    branch = pipeline["stages"][0]["results"][0]["branch"]
    assert shared.fleet("workflow", "result", pipeline["id"], "write").stdout.splitlines() == [
        f"completed  {branch}",
        "wrote it",
        "  next: test it",
        "  next: ship it",
        "  file: a.txt",
    ]
    assert shared.json("workflow", "result", pipeline["id"], "0") == pipeline["stages"][0]["results"][0]
    assert "\x1b" not in shared.fleet("workflow", "result", pipeline["id"], "side").stdout


def test_the_diff_of_a_workflow_is_all_that_came_of_it(shared: System, pipeline: dict[str, Any]) -> None:
    whole = shared.fleet("diff", pipeline["id"]).stdout
    assert re.findall(r"^\+\+\+ b/(.*)$", whole, re.MULTILINE) == ["a.txt", "b.txt"]
    last = shared.fleet("diff", pipeline["result"]["branch"], "--stat").stdout
    assert last == "", "of a branch it is what its own agent did"
    assert "2 files changed" in shared.fleet("diff", pipeline["id"], "--stat").stdout
    assert f"`fleet diff {pipeline['id']}`" in shared.fleet("workflow", "status", pipeline["id"]).stderr


def test_what_has_no_result_has_no_diff(shared: System, asking: dict[str, Any]) -> None:
    assert f"{asking['id']} has no result" in shared.fleet("diff", asking["id"], code=3).stderr


def test_a_result_that_is_not_there_yet_is_not_found(shared: System, asking: dict[str, Any]) -> None:
    assert "has no result yet" in shared.fleet("workflow", "result", asking["id"], code=3).stderr
    assert "has no stage 'x'" in shared.fleet("workflow", "result", asking["id"], "x", code=3).stderr


def test_logs_tell_what_happened_to_a_stage_or_to_all(shared: System, pipeline: dict[str, Any]) -> None:
    everything = shared.json("workflow", "logs", pipeline["id"])
    assert {entry["stage"] for entry in everything} == {"write", "refine", "side", "end"}
    own = shared.json("workflow", "logs", pipeline["id"], "write")
    assert own == [entry for entry in everything if entry["stage"] == "write"]
    text = shared.fleet("workflow", "logs", pipeline["id"], "write").stdout.splitlines()
    assert len(text) == len(own)
    assert all("write" in line for line in text)
    assert "has no stage" in shared.fleet("workflow", "logs", pipeline["id"], "gone", code=3).stderr


def test_logs_tell_what_a_gate_said(shared: System) -> None:
    gates = ["echo first", f"printf 'one\ntwo {WICKED}'; exit 7"]
    file = write(shared.home, "gates.json", {"name": "check", "kind": "gate", "gates": gates})
    ended = shared.json("workflow", "run", file, "--wait", code=1)
    first, second = shared.json("workflow", "logs", ended["id"], "check")
    assert (first["kind"], first["branch"], first["by"]) == ("gate", "", "fleet")
    assert first["text"].startswith("`echo first` passed (exit code 0, ")
    assert first["text"].endswith("first")
    assert "failed (exit code 7, " in second["text"]
    shown = shared.fleet("workflow", "logs", ended["id"]).stdout
    assert "    one\n    two " in shown
    assert WICKED not in shown


def test_logs_tell_of_every_try_and_round_of_a_stage(shared: System, tmp_path: Path) -> None:
    file = write(
        shared.home,
        "tries.json",
        stage("work", PLEASE_WRITE, foreach=["one", "two"]),
        {"name": "check", "kind": "gate", "gates": [f"test -e {tmp_path}/late"], "depends_on": ["work"]},
        stage("again", PLEASE_WRITE, until='again.round == "2"', rounds=2, depends_on=["check"]),
    )
    name = shared.json("workflow", "run", file, "--wait", code=1)["id"]
    assert "try 1" not in shared.fleet("workflow", "logs", name, "check").stdout
    (tmp_path / "late").touch()
    shared.fleet("workflow", "retry", name, "work")
    shared.json("workflow", "status", name, "--wait")
    tries = shared.json("workflow", "logs", name, "work")
    assert {(one["try"], one["round"]) for one in tries} == {(1, 1), (2, 1)}
    assert len({one["branch"] for one in tries}) == 4, "each part in each try"
    shown = shared.fleet("workflow", "logs", name, "check").stdout
    assert re.fullmatch(r"check, try 1 of 2\n.* failed .*\ncheck, try 2 of 2\n.* passed .*\n", shown)
    whole = shared.fleet("workflow", "logs", name).stdout.splitlines()
    assert [line for line in whole if line.startswith("again")] == ["again, round 1", "again, round 2"]


def test_logs_tell_what_a_person_was_asked_and_who_answered_what(shared: System) -> None:
    ask = {"name": "ask", "kind": "approval", "prompt": "may I?\nreally?"}
    jane = System(shared.home, shared.repository, {"USER": "jane"})
    name = shared.json("workflow", "run", write(shared.home, "asks.json", ask), "--wait", code=5)["id"]

    def entries() -> list[tuple[int, str, str, str]]:
        log = shared.json("workflow", "logs", name, "ask")
        assert all(one["at"] for one in log)
        return [(one["try"], one["kind"], one["text"], one["by"]) for one in log]

    asked = ("approval", "asks a person: may I?\nreally?", "fleet")
    assert entries() == [(1, *asked)]
    jane.fleet("workflow", "reject", name, "ask", "-m", "not now")
    jane.json("workflow", "status", name, "--wait", code=1)
    jane.fleet("workflow", "retry", name, "ask")
    shared.json("workflow", "status", name, "--wait", code=5)
    rejected = ("approval", "jane said no: not now", "jane")
    assert entries() == [(1, *asked), (1, *rejected), (2, *asked)]
    jane.fleet("workflow", "approve", name, "ask")
    assert entries()[2:] == [(2, *asked), (2, "approval", "jane said yes", "jane")]
    shown = shared.fleet("workflow", "logs", name).stdout
    assert re.search(r"^ask, try 1 of 2\n.*  ask  approval  asks a person: may I\?\n    really\?\n", shown)


def test_logs_of_a_stage_that_could_not_begin_tell_why(shared: System) -> None:
    one, two = (stage(name, {"run": f"echo {name} > same.txt"}, {"say": "ok"}) for name in ("one", "two"))
    both = {**stage("both", {"say": "never"}), "strategy": "merge", "depends_on": ["one", "two"]}
    file = write(shared.home, "clash.json", one, two, both)
    name = shared.json("workflow", "run", file, "--wait", code=1)["id"]
    told = shared.fleet("workflow", "logs", name, "both").stdout
    assert "what it builds on cannot be merged: in each other's way in same.txt" in told


def test_logs_name_where_the_parts_of_a_stage_are_told_of(shared: System) -> None:
    ask = {"name": "ask", "kind": "approval", "prompt": "?"}
    within = {"name": "within", "prompt": "do it", "stages": [ask]}
    later = {"name": "later", "kind": "gate", "gates": ["true"], "depends_on": ["within"]}
    file = write(shared.home, "outer.json", within, later)
    name = shared.json("workflow", "run", file, "--wait", code=5)["id"]
    (entry,) = shared.json("workflow", "logs", name)
    assert entry["text"] == f"begun as {name}-0-within"
    (asked,) = shared.json("workflow", "logs", f"{name}-0-within")
    assert asked["text"] == "asks a person: ?"
    assert shared.fleet("workflow", "logs", name, "later").stderr == "nothing has happened yet\n"
    shared.fleet("workflow", "cancel", name)


def test_a_gate_that_is_cut_off_with_its_workflow_is_not_said_to_say_no(
    shared: System, tmp_path: Path
) -> None:
    gates = [f"touch {tmp_path}/begun; sleep 300"]
    file = write(shared.home, "cut-off.json", {"name": "check", "kind": "gate", "gates": gates})
    name = shared.json("workflow", "run", file)["id"]
    wait_for((tmp_path / "begun").exists)
    shared.fleet("workflow", "cancel", name)
    told = shared.fleet("workflow", "status", name, "--wait", code=1).stdout
    assert told.startswith(f"cut-off  {name}  cancelled\n")
    (entry,) = wait_for(lambda: shared.json("workflow", "logs", name))
    assert entry["text"].startswith(f"`{gates[0]}` was cut off (ended by us, ")


def test_the_list_shows_what_is_under_way_and_all_only_when_asked(
    shared: System, pipeline: dict[str, Any], asking: dict[str, Any]
) -> None:
    told = shared.fleet("workflow", "list")
    assert asking["id"] in told.stdout
    assert pipeline["id"] not in told.stdout
    everything = shared.json("workflow", "list", "--all")
    assert {pipeline["id"], asking["id"]} <= {one["id"] for one in everything}


def test_the_known_workflows_are_the_projects_the_users_and_those_that_come_along(
    shared: System, tmp_path: Path
) -> None:
    project = make_repository(tmp_path / "project")
    own, users = project / ".fleet" / "workflows", shared.home / "workflows"
    own.mkdir(parents=True)
    users.mkdir(exist_ok=True)
    (own / "x.yaml").write_text("description: the project's own\nstages: [{name: in, workflow: ./in.yaml}]")
    (own / "in.yaml").write_text("stages: [{name: a, kind: approval, prompt: ok}]")
    (own / "broken.toml").write_text("stages = [")
    (own / "wicked.json").write_text(json.dumps({"description": WICKED, "stages": [{"name": "a"}]}))
    (own / "notes.md").write_text("no workflow")
    (users / "plan-build-verify.json").write_text('{"description": "mine", "stages": [{"name": "a"}]}')
    known = {one["name"]: one for one in shared.json("workflow", "list", "--known", cwd=project)}
    assert {"x", "in", "broken", "wicked", "write-review-refine", "plan-build-verify"} <= set(known)
    assert "notes" not in known
    assert known["x"]["description"] == "the project's own"
    assert known["broken"]["description"].startswith("broken: ")
    assert known["plan-build-verify"]["description"] == "mine", "one's own goes first"
    shown = shared.fleet("workflow", "list", "--known", cwd=project).stdout
    assert "the project's own" in shown
    assert "\x1b" not in shown
    told = shared.fleet("workflow", "run", "x", "--check", cwd=project)
    assert "workflow of 1 stages" in told.stdout
    assert "not valid TOML" in shared.fleet("workflow", "run", "broken", cwd=project, code=2).stderr
    (users / "plan-build-verify.json").unlink()


def test_a_workflow_within_is_looked_for_beside_the_file_that_names_it(
    shared: System, tmp_path: Path
) -> None:
    (tmp_path / "flows").mkdir()
    ask = {"name": "right", "kind": "approval", "prompt": "?"}
    write(tmp_path / "flows", "inner.json", ask, ask | {"name": "two"})
    outer = write(tmp_path / "flows", "outer.json", {"name": "in", "workflow": "inner.json"})
    write(tmp_path, "inner.json", ask)
    told = shared.fleet(
        "workflow", "run", outer, "--check", "--repo", str(shared.repository), cwd=tmp_path
    ).stdout
    assert "workflow of 2 stages" in told


# drawing


def test_a_graph_is_drawn_of_a_file_of_a_name_and_of_what_has_run(
    shared: System, pipeline: dict[str, Any]
) -> None:
    assert "○ implement" in shared.fleet("workflow", "graph", "write-review-refine").stdout
    lines = shared.fleet("workflow", "graph", pipeline["id"]).stdout.splitlines()
    assert lines[0] == "✔ write  scripted"
    assert "✔ end  scripted  ◀ refine" in lines[-1]


def texts_in(svg: str) -> list[str]:
    return [str(text.text) for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_a_picture_is_well_formed_and_has_every_stage(
    shared: System, pipeline: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "graph.svg"
    shared.fleet("workflow", "graph", pipeline["id"], "--svg", str(file))
    texts = texts_in(file.read_text())
    assert {"write", "refine", "side", "end"} <= set(texts)
    assert "scripted · done" in texts
    assert shared.fleet("workflow", "graph", pipeline["id"], "--svg", "-").stdout == file.read_text()
    refused = shared.fleet("workflow", "graph", pipeline["id"], "--svg", "/proc/no/where.svg", code=2)
    assert "cannot write '/proc/no/where.svg'" in refused.stderr


def test_hostile_names_stay_text_in_a_picture_and_steer_no_terminal(shared: System, tmp_path: Path) -> None:
    hostile = "<script>&amp;</script>]]>"
    file = write(
        tmp_path,
        "x.json",
        {"name": hostile, "coder": "scripted", "model": f"m{WICKED}", "prompt": "x"},
        {"name": "<g> </g>", "coder": "scripted", "depends_on": [hostile], "prompt": "x"},
        {"name": "ÄÖ漢字🚀", "coder": "scripted", "prompt": "x"},
        name=f"</title>{WICKED}",
    )
    svg = shared.fleet("workflow", "graph", file, "--svg", "-").stdout
    assert {hostile, "<g> </g>", "ÄÖ漢字🚀"} <= set(texts_in(svg))
    for words in (("graph", file), ("run", file, "--check")):
        told = shared.fleet("workflow", *words)
        assert hostile in told.stdout
        assert not re.search(r"[\x00-\x09\x0b-\x1f]", told.stdout + told.stderr)
    code, shown = on_a_terminal(shared, "workflow", "run", file, "--check")
    assert code == 0
    assert "\x1b]0" not in shown
    assert "\x1b[2J" not in shown


# a result in parts


def test_the_result_of_a_workflow_that_ends_in_parts_is_all_of_them(shared: System) -> None:
    work = {
        **stage("work", {"run": "echo {item} > {item}.txt"}, {"say": "{item} it is"}),
        "foreach": ["x", "y"],
    }
    done = shared.json("workflow", "run", write(shared.home, "parts.json", work), "--wait")
    name = done["id"]
    branches = [f"fleet/{name}-0-work-i{number}" for number in (0, 1)]
    assert [one["branch"] for one in done["results"]] == branches
    assert shared.json("workflow", "result", name) == done["results"] == done["stages"][0]["results"]
    shown = shared.fleet("workflow", "result", name).stdout
    for item, branch in zip("xy", branches, strict=True):
        assert f"completed  {branch}  ({item})\n{item} it is\n  file: {item}.txt\n" in shown
    status = shared.fleet("workflow", "status", name)
    for item, branch in zip("xy", branches, strict=True):
        assert re.search(rf"^ +{item} +completed +{branch} +{item} it is$", status.stdout, re.MULTILINE)
    assert f"fleet merge {name} --gate" in status.stderr
    git(shared.repository, "branch", "all-parts")
    train = shared.json("merge", name, "--into", "all-parts", "--no-gate", "--wait")
    assert {car["branch"] for car in train["branches"]} == set(branches)
    assert shared.json("workflow", "cleanup", name, "--yes") == {"deleted": [], "kept": branches}


def test_the_parts_of_a_workflow_within_are_parts_of_the_whole(shared: System) -> None:
    work = {**stage("work", {"run": "echo {item} > {item}.txt"}, {"say": "{item}"}), "foreach": ["x", "y"]}
    outer = {"name": "outer", "kind": "workflow", "prompt": "go", "stages": [work]}
    gate = {
        "name": "both",
        "kind": "gate",
        "gates": ["cat x.txt y.txt"],
        "strategy": "merge",
        "depends_on": [0],
    }
    name = shared.json("workflow", "run", write(shared.home, "within.json", outer), "--wait")["id"]
    assert [one["branch"][-7:] for one in shared.json("workflow", "result", name)] == ["work-i0", "work-i1"]
    assert set(re.findall(r"work-i\d", shared.fleet("workflow", "status", name).stdout)) == {
        "work-i0",
        "work-i1",
    }
    assert {"x.txt", "y.txt"} <= set(re.findall(r"[xy]\.txt", shared.fleet("diff", name).stdout))
    done = shared.json("workflow", "run", write(shared.home, "both.json", outer, gate), "--wait")
    assert done["state"] == "succeeded", "a stage that merges them has them all"


def test_a_part_whose_branch_is_gone_is_missed_and_not_left_out(shared: System) -> None:
    work = {**stage("work", {"run": "echo {item} > {item}.txt"}, {"say": "{item}"}), "foreach": ["x", "y"]}
    name = shared.json("workflow", "run", write(shared.home, "gone.json", work), "--wait")["id"]
    shared.fleet("clean", "--yes")
    delete = ["git", "branch", "-D", f"fleet/{name}-0-work-i0"]  # once its workspace is really gone
    wait_for(lambda: subprocess.run(delete, cwd=shared.repository, capture_output=True).returncode == 0)
    git(shared.repository, "branch", "not-all")
    assert f"has no branch fleet/{name}-0-work-i0 any more" in shared.fleet("diff", name, code=3).stderr
    refused = shared.json("merge", name, "--into", "not-all", "--no-gate", "--wait", code=5)
    assert [car["state"] for car in refused["branches"]] == ["refused", "landed"]


def test_where_the_last_stage_only_judged_the_work_of_others_is_offered(shared: System) -> None:
    work = stage("work", {"run": "echo a > a.txt"}, {"say": "done"})
    judge = {**stage("judge", {"say": "fine"}), "depends_on": ["work"], "strategy": "new"}
    told = shared.fleet("workflow", "run", write(shared.home, "judged.json", work, judge), "--wait")
    name = shared.json("workflow", "list", "--all")[0]["id"]
    assert f"`fleet diff fleet/{name}-0-work`" in told.stderr
    assert 'fleet merge "…" --gate' in told.stderr


def test_a_variable_that_is_only_gone_through_is_asked_for(shared: System) -> None:
    each = {**stage("each", {"say": "{item}"}), "foreach": "vars.areas"}
    file = write(shared.home, "areas.json", each)
    assert "vars.areas" in shared.fleet("workflow", "run", file, code=2).stderr
    done = shared.json("workflow", "run", file, "--var", "areas=api,web", "--wait")
    assert [one["summary"] for one in done["results"]] == ["api", "web"]


# a result that no agent made


def test_the_merge_that_the_last_gate_let_pass_is_a_branch_that_can_be_landed(shared: System) -> None:
    done = shared.json("workflow", "run", merged_behind_a_gate(shared, "merged.json"), "--wait")
    name, branch = done["id"], done["result"]["branch"]
    assert branch == f"fleet/{name}-1-check"
    assert git(shared.repository, "rev-parse", branch) == done["result"]["head_sha"]
    assert (
        f"fleet merge {branch} --gate 'cat one.txt two.txt'"
        in shared.fleet("workflow", "status", name).stderr
    )
    assert branch in [one["branch"] for one in shared.json("conflicts", code=None)["branches"]]
    git(shared.repository, "branch", "landing")
    train = shared.json("merge", name, "--into", "landing", "--gate", "cat one.txt two.txt", "--wait")
    assert (train["state"], [car["branch"] for car in train["branches"]]) == ("done", [branch])
    assert git(shared.repository, "show", "landing:one.txt") == "one"
    cleaned = shared.json("workflow", "cleanup", name, "--yes")
    parts = {f"fleet/{name}-0-work-i{number}" for number in (0, 1)}
    assert (set(cleaned["deleted"]), cleaned["kept"]) == (parts, [branch])


def test_a_branch_that_is_in_the_way_of_the_merge_is_left_alone(shared: System) -> None:
    ask = {"name": "ask", "kind": "approval", "prompt": "?"}
    file = merged_behind_a_gate(shared, "in-the-way.json", ask)
    name = shared.json("workflow", "run", file, "--wait", code=5)["id"]
    branch = f"fleet/{name}-2-check"
    git(shared.repository, "branch", branch, "HEAD")
    shared.fleet("workflow", "approve", name, "ask")
    done = shared.json("workflow", "status", name, "--wait")
    assert (done["state"], done["result"]["branch"]) == ("succeeded", None)
    [told] = done["result"]["next_steps"]
    kept = told.rpartition(" ")[2]
    assert git(shared.repository, "show", f"{kept}:one.txt") == "one"
    assert branch not in shared.json("workflow", "cleanup", name, "--yes")["deleted"]
    assert git(shared.repository, "rev-parse", branch) == git(shared.repository, "rev-parse", "HEAD")


# what people do


def test_what_was_approved_last_can_be_landed(shared: System) -> None:
    work = stage("work", {"run": "echo yes > approved.txt"}, {"say": "done"})
    ask = {"name": "ask", "kind": "approval", "prompt": "?", "depends_on": ["work"]}
    file = write(shared.home, "approved.json", work, ask)
    name = shared.json("workflow", "run", file, "--wait", code=5)["id"]
    shared.fleet("workflow", "approve", name, "ask")
    done = shared.json("workflow", "status", name, "--wait")
    assert (done["state"], done["result"]["branch"]) == ("succeeded", f"fleet/{name}-0-work")
    assert shared.json("workflow", "result", name) == done["result"]
    assert shared.json("workflow", "result", name, "ask")["status"] == "approved"
    git(shared.repository, "branch", "approved")
    train = shared.json("merge", name, "--into", "approved", "--no-gate", "--wait")
    assert train["state"] == "done"
    assert git(shared.repository, "show", "approved:approved.txt") == "yes"


def test_yes_goes_on_and_is_heard_once(shared: System) -> None:
    file = write(shared.home, "yes.json", {"name": "ask", "kind": "approval", "prompt": "?"})
    name = shared.json("workflow", "run", file, "--wait", code=5)["id"]
    told = shared.fleet("workflow", "approve", name, "ask", "-m", "gladly").stdout
    assert told == f"workflow {name}: approved\n"
    done = shared.json("workflow", "status", name, "--wait")
    assert (done["state"], done["result"]["summary"]) == ("succeeded", "gladly")
    for word in ("approve", "reject"):
        assert "asks for nothing" in shared.fleet("workflow", word, name, "ask", code=4).stderr


def test_no_fails_it_with_the_reason(shared: System) -> None:
    file = write(shared.home, "no.json", {"name": "ask", "kind": "approval", "prompt": "?"})
    name = shared.json("workflow", "run", file, "--wait", code=5)["id"]
    assert shared.json("workflow", "reject", name, "ask", "-m", "not now")["id"] == name
    assert "not now" in shared.json("workflow", "status", name, "--wait", code=1)["reason"]
    again = shared.fleet("workflow", "retry", name, "ask").stdout
    assert again == f"workflow {name}: the stage is repeated\n"
    assert shared.json("workflow", "status", name, "--wait", code=5)["needs_person"]
    assert shared.json("workflow", "pause", name)["is_paused"]
    assert not shared.json("workflow", "resume", name)["is_paused"]
    assert shared.json("workflow", "cancel", name)["id"] == name
    assert shared.json("workflow", "status", name, "--wait", code=1)["state"] == "cancelled"
    assert shared.json("workflow", "cleanup", name, "--yes") == {"deleted": [], "kept": []}


def test_what_has_ended_is_neither_paused_nor_cancelled(shared: System, pipeline: dict[str, Any]) -> None:
    for word in ("pause", "resume", "cancel"):
        refused = shared.fleet("workflow", word, pipeline["id"], code=4)
        assert "has ended: succeeded" in refused.stderr
        assert "hint:" in refused.stderr


def test_what_is_under_way_is_not_done_again_and_not_cleaned_up(
    shared: System, asking: dict[str, Any]
) -> None:
    assert "is under way" in shared.fleet("workflow", "retry", asking["id"], "0", code=4).stderr
    refused = shared.fleet("workflow", "cleanup", asking["id"], "--yes", code=4)
    assert f"fleet workflow cancel {asking['id']}" in refused.stderr


def test_a_pause_is_shown_and_ends(shared: System) -> None:
    file = write(shared.home, "pause.json", {"name": "ask", "kind": "approval", "prompt": "?"})
    name = shared.json("workflow", "run", file, "--wait", code=5)["id"]
    assert f"fleet workflow resume {name}" in shared.fleet("workflow", "pause", name).stderr
    assert "(paused)" in shared.fleet("workflow", "status", name).stdout
    assert shared.fleet("workflow", "resume", name).stdout == f"workflow {name} is resumed\n"
    assert "(paused)" not in shared.fleet("workflow", "status", name).stdout
    shared.fleet("workflow", "cancel", name)


def test_a_clean_up_deletes_what_is_in_the_result_and_keeps_what_is_nowhere_else(shared: System) -> None:
    file = write(
        shared.home,
        "tidy.json",
        stage("one", {"edit": {"path": "one.txt", "content": "1"}}),
        stage("two", {"edit": {"path": "two.txt", "content": "2"}}, depends_on=["one"], strategy="inherit"),
        stage("lone", {"edit": {"path": "lone.txt", "content": "3"}}, on_failure="skip"),
        stage("last", {"say": "ok"}, depends_on=["two"], strategy="inherit"),
    )
    done = shared.json("workflow", "run", file, "--wait")
    one, two, lone, last = (each["results"][0]["branch"] for each in done["stages"])
    shared.fleet("workflow", "retry", done["id"], "lone")
    shared.json("workflow", "status", done["id"], "--wait")
    refused = shared.fleet("workflow", "cleanup", done["id"], code=2)
    assert "confirmation needed: add --yes" in refused.stderr
    told = shared.fleet("workflow", "cleanup", done["id"], "--yes").stdout.splitlines()
    unsafe = {lone, f"{lone}-t2", last}
    assert set(told) == {
        *(f"deleted {branch}" for branch in (one, two)),
        *(f"kept    {branch}  (not merged, or checked out)" for branch in unsafe),
    }
    left = git(shared.repository, "branch", "--format=%(refname:short)", "--list", f"*{done['id']}*").split()
    assert set(left) == unsafe
    assert git(shared.repository, "show", f"{last}:two.txt") == "2"
    again = shared.fleet("workflow", "cleanup", done["id"], "--yes").stdout.splitlines()
    assert {line.split()[1] for line in again} == unsafe, "what is gone is not told"
    assert shared.json("workflow", "result", done["id"], "one")["summary"] is not None


# completing


def completions(system: System, *words: str) -> list[str]:
    env = {
        "_FLEET_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("fleet", *words)),
        "COMP_CWORD": str(len(words)),
    }
    told = System(system.home, system.repository, env).fleet().stdout
    return [line.partition(",")[2] for line in told.split()]


def test_ids_are_completed_newest_first(
    shared: System, pipeline: dict[str, Any], asking: dict[str, Any]
) -> None:
    found = completions(shared, "workflow", "status", "w-")
    assert {pipeline["id"], asking["id"]} <= set(found)
    assert found == [one["id"] for one in shared.json("workflow", "list", "--all")]
    assert completions(shared, "workflow", "logs", pipeline["id"][:-1]) == [pipeline["id"]]
    assert completions(shared, "workflow", "ca") == ["cancel"]


def test_completing_says_nothing_where_nothing_can_be_read(tmp_path: Path, repository: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "fleet.db").write_text("this is no database" * 100)
    assert completions(System(tmp_path / "home", repository), "workflow", "status", "w-") == []
