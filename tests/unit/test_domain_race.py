"""Races: what counts as a yes, what is protected, who wins, and who is no judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fleet.domain.ids import RaceId, TaskId
from fleet.domain.protection import (
    CONFIGURATION,
    TESTS,
    Change,
    ChangeKind,
    Examined,
    Protection,
    examine,
    files_of,
    is_beside_tests,
    matches,
)
from fleet.domain.run import Diff
from fleet.domain.task import Task, TaskState
from fleet.domain.trial import Answer, Trial, TrialState
from fleet.work.race.behaviour import SAME
from fleet.work.race.duels import duel_task, read_vote
from fleet.work.race.model import (
    Candidate,
    End,
    Fate,
    Race,
    all_trials,
    enter,
    fate_of,
    racer,
    trial_of,
    without_doubles,
)
from fleet.work.race.scorecard import Say, Scorecard, judge_gate, score
from fleet.work.race.test_output import Count, count_tests, failing_tests
from tests.tables import for_each

# counting tests


@for_each(
    ("said", "ran", "failed"),
    [
        ("=== 3 passed, 1 skipped in 0.12s ===", 3, 0),
        ("1 failed, 2 passed in 0.1s", 3, 1),
        ("2 errors in 0.05s", 0, 2),
        ("1 failed, 1 error in 0.05s", 1, 2),
        ("\x1b[32m====\x1b[0m 5 passed, 2 deselected, 1 warning in 1.00s (0:00:01)", 5, 0),
        ("Ran 4 tests in 0.001s\n\nOK (skipped=1)", 3, 0),
        ("Ran 4 tests in 0.001s\n\nFAILED (failures=1, errors=1)", 3, 2),
        ("running 2 tests\ntest result: ok. 2 passed; 0 failed; 1 ignored; 0 measured", 2, 0),
        ("running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored\nrunning 1 test\n"
         "test result: FAILED. 0 passed; 1 failed; 0 ignored", 1, 1),
        ("Test Suites: 1 passed, 1 total\nTests:       1 failed, 2 passed, 3 total", 3, 1),
        (" Test Files  1 passed (1)\n      Tests  4 passed (4)", 4, 0),
        ("  3 passing (5ms)\n  1 failing", 4, 1),
        ("# tests 3\n# pass 2\n# fail 1\n# skipped 0", 3, 1),
        ("12 examples, 2 failures", 12, 2),
        ("Tests run: 5, Failures: 1, Errors: 0, Skipped: 1", 4, 1),
        ("Passed!  - Failed:     0, Passed:     3, Skipped:     0, Total:     3", 3, 0),
        ("OK (3 tests, 4 assertions)", 3, 0),
        ("Tests: 3, Assertions: 4, Failures: 1.", 3, 1),
        ("100% tests passed, 0 tests failed out of 3", 3, 0),
        ("ok  \texample.com/a\t0.002s\n?   \texample.com/b\t[no test files]", 1, 0),
        ("--- PASS: TestA (0.00s)\n--- FAIL: TestB (0.00s)\nFAIL\texample.com/a\t0.002s", 2, 1),
        ("3 passed in 0.1s\n2 passed in 0.1s", 5, 0),
        ("3 passed, 2 subtests passed in 0.1s", 3, 0),
    ],
)  # fmt: skip
def test_tests_are_counted_in_what_runners_print(said: str, ran: int, failed: int) -> None:
    count = count_tests(said)
    assert count is not None
    assert (count.ran, count.failed, count.is_empty) == (ran, failed, False)


@pytest.mark.parametrize(
    "said",
    [
        "collected 0 items\n\n============ no tests ran in 0.01s ============",
        "no tests ran in 0.00s",
        "collected 3 items / 3 deselected\n\n3 deselected in 0.01s",
        "Ran 0 tests in 0.000s\n\nOK",
        "Ran 2 tests in 0.000s\n\nOK (skipped=2)",
        "NO TESTS RAN",
        "?   \texample.com/a\t[no test files]",
        "testing: warning: no tests to run\nPASS\nok  \texample.com/a\t0.001s [no tests to run]",
        "No tests found, exiting with code 0",
        "No test files found, exiting with code 0",
        "running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
        "0 passing (1ms)".rjust(20),
        "# tests 0\n# pass 0\n# fail 0",
        "0 examples, 0 failures",
        "No tests executed!",
        "No tests were found!!!",
        "1..0",
    ],
)
def test_no_tests_is_no_success_whatever_the_exit_code(said: str) -> None:
    count = count_tests(said)
    assert count is not None
    assert count.is_empty
    for code in (0, 1, 5):
        gate = judge_gate("t", [answer(1, "1 failed in 0.1s")], [answer(code, said)])
        assert gate.say is Say.EMPTY
        assert gate.say.is_against


@pytest.mark.parametrize("said", ["", "all good", "SCORE: 100", "passed", "0 errors", "collected 5 items"])
def test_what_tells_no_count_is_not_taken_for_one(said: str) -> None:
    assert count_tests(said) is None


def test_failing_tests_are_named_only_where_all_of_them_are() -> None:
    told = "FAILED tests/t.py::test_a[x y] - assert 1 == 2\nERROR tests/u.py\n1 failed, 1 error in 0.1s"
    assert failing_tests(told) == {"tests/t.py::test_a[x y]", "tests/u.py"}
    assert failing_tests("FAILED tests/t.py::test_a\n2 failed in 0.1s") is None
    unittest = "FAIL: test_a (t.T.test_a)\n---\nRan 1 test in 0.0s\n\nFAILED (failures=1)"
    assert failing_tests(unittest) == {"test_a (t.T.test_a)"}


@given(st.text(max_size=300))
def test_no_output_breaks_counting(said: str) -> None:
    count_tests(said)
    failing_tests(said)


# gates beside the base


def answer(code: int | None, said: str = "") -> Answer:
    return Answer(command="t", code=code, said=said)


def failing(*names: str, ran: int) -> Answer:
    lines = [
        *(f"FAILED {name} - boom" for name in names),
        f"{len(names)} failed, {ran - len(names)} passed in 0.1s",
    ]
    return answer(1, "\n".join(lines))


YES, NO = answer(0), answer(1)


@pytest.mark.parametrize(
    ("base", "tried", "say"),
    [
        ([YES], [YES], Say.YES),
        ([NO], [YES], Say.YES),
        ([YES], [NO], Say.NO),
        ([NO], [NO], Say.AS_BEFORE),
        ([YES, YES], [YES, NO], Say.FLAKY),
        ([NO, NO], [YES, NO], Say.FLAKY),
        ([YES, NO], [YES, NO], Say.AS_BEFORE),
        ([YES, NO], [NO, NO], Say.NO),
        ([YES], [answer(None)], Say.NO),
        ([NO], [answer(None)], Say.NO),
        ([YES], [], Say.NO),
        ([answer(0, "5 passed in 1s")], [answer(0, "5 passed in 1s")], Say.YES),
        ([answer(0, "5 passed in 1s")], [answer(0, "4 passed, 1 skipped in 1s")], Say.NO),
        ([answer(0, "5 passed in 1s")], [answer(0, "")], Say.NO),
        ([failing("a", ran=3)], [failing("a", ran=3)], Say.AS_BEFORE),
        ([failing("a", ran=3)], [failing("b", ran=3)], Say.NO),
        ([failing("a", "b", ran=3)], [failing("a", ran=3)], Say.AS_BEFORE),
        ([failing("a", "b", ran=3)], [failing("a", ran=2)], Say.NO),
        ([answer(0, "no tests ran in 0.1s")], [NO], Say.NO),
    ],
)
def test_a_gate_is_judged_beside_what_it_said_of_the_base(
    base: list[Answer], tried: list[Answer], say: Say
) -> None:
    assert judge_gate("t", base, tried).say is say


def test_a_hidden_gate_that_tells_no_tests_must_say_yes() -> None:
    assert judge_gate("t", [NO], [NO], is_hidden=True).say is Say.NO
    assert judge_gate("t", [failing("a", ran=2)], [failing("a", ran=2)], is_hidden=True).say is Say.AS_BEFORE


# protection


@pytest.mark.parametrize(
    "path",
    [
        *("tests/test_a.py", "pkg/tests/data/x.json", "test_a.py", "pkg/a_test.go", "src/a.spec.ts", "tests"),
        *("Tests/Test_A.py", "__tests__/a.js", "src/__snapshots__/a.snap", "spec/a_spec.rb"),
        *("src/test/java/ATest.java", "a/testdata/in.txt"),
    ],
)
def test_tests_are_known_by_their_names(path: str) -> None:
    assert Protection().is_test(path)


@pytest.mark.parametrize(
    "path",
    [
        *(
            "conftest.py",
            "tests/conftest.py",
            "pytest.ini",
            "tox.ini",
            "setup.cfg",
            "Makefile",
            "sub/Makefile",
        ),
        *("jest.config.js", ".github/workflows/ci.yml", ".fleet/config.toml", "sitecustomize.py", "x.pth"),
        *("package.json", "pyproject.toml", ".cargo/config.toml", "noxfile.py"),
    ],
)
def test_what_configures_tests_is_known_too(path: str) -> None:
    assert Protection().is_configuration(path)


@pytest.mark.parametrize(
    "path", ["prices.py", "src/contest.py", "latest/a.py", "docs/testing.md", "attest.go"]
)
def test_other_files_are_free(path: str) -> None:
    assert not Protection().covers(path)


def test_own_patterns_protect_more_or_set_free_and_the_last_one_counts() -> None:
    protection = Protection(("golden/", "!**/Makefile", "!tests/**", "tests/keep/**"))
    assert protection.covers("golden/a.txt")
    assert not protection.covers("Makefile")
    assert not protection.covers("tests/test_a.py")
    assert protection.covers("tests/keep/test_a.py")


@for_each(
    ("gate", "path"),
    [
        ("./check.sh && X=1 scripts/run", "scripts/run"),
        ("sh -e | bash ci/t.sh", "ci/t.sh"),
        ("python3 check.py", "check.py"),
        ("python3 check.py", "Check.py"),
        ("bash -e run.sh", "run.sh"),
        ("timeout 60 ./gate.sh", "gate.sh"),
        ("env X=1 ./gate.sh", "gate.sh"),
        ("if ./gate.sh; then :; fi", "gate.sh"),
        (". ./gate.sh", "gate.sh"),
        ("sh scripts//gate.sh", "scripts/gate.sh"),
        ("./scripts/../gate.sh", "gate.sh"),
        ("sh 'my gate.sh'", "my gate.sh"),
        ('sh "$(pwd)/gate.sh"', "gate.sh"),
        ("$PWD/gate.sh", "gate.sh"),
        ("run --with=ci/gate.sh", "ci/gate.sh"),
        ("cd sub && ./check.sh", "sub/check.sh"),
        ("(cd sub; sh t.sh); (cd more; ./t)", "more/t"),
        ("cd sub; cd deep; ./t", "sub/deep/t"),
        ("bash -c 'cd sub && ./t'", "sub/t"),
        ("python -m checks.run", "checks/run.py"),
        ("python -Bm checks.run", "checks/run/__main__.py"),
        ("python -munittest", "unittest.py"),
        ("ruff check .\nsh b.sh", "b.sh"),
        ("echo it's on; # don't\n./gate.sh", "gate.sh"),
        ("./gate.sh 'unclosed", "gate.sh"),
        ("sh tests/run.sh", "tests/run.sh"),
    ],
)
def test_what_a_gate_names_is_protected_however_it_is_run(gate: str, path: str) -> None:
    assert Protection(gates=(gate,)).is_configuration(path)
    assert not Protection((f"!{path}",), (gate,)).covers(path), "whoever wants it can set it free"


def test_what_a_gate_only_reads_is_free_and_tests_that_it_names_are_tests() -> None:
    protection = Protection(
        gates=("uv run ruff check app.py && cc -o t a.c; pytest tests/test_a.py", "cd /; ..")
    )
    assert not protection.covers("app.py")
    assert not protection.covers("a.c")
    assert protection.is_test("tests/test_a.py")


def test_a_changed_file_of_a_gate_is_tampering_and_told_as_that() -> None:
    change = Change(path="check.py", kind=ChangeKind.CHANGED, added=1)
    found = examine([change], Protection(gates=("python3 check.py",)), {}, {})
    assert found.restored == ("check.py",)
    assert [(flag.what, flag.is_tampering) for flag in found.flags] == [
        ("changed a file that a gate names", True)
    ]


@given(st.text(alphabet="a./ cd;'\"$=-m\n", max_size=30))
@example("-m/")
@example("python -m /etc/x")
def test_no_command_breaks_the_search_for_its_files(command: str) -> None:
    assert all(path and not path.startswith("/") for path in files_of(command))


def test_the_documentation_lists_every_pattern() -> None:
    text = (Path(__file__).parents[2] / "docs" / "howto" / "race.md").read_text()
    for pattern in (*TESTS, *CONFIGURATION):
        assert f"`{pattern}`" in text, pattern


@given(st.text(alphabet="a*?/[]!.", max_size=12), st.text(alphabet="a/.b[", max_size=12))
def test_no_pattern_breaks_matching(pattern: str, path: str) -> None:
    matches(path, pattern)


def changed(path: str, old: str, new: str, kind: ChangeKind = ChangeKind.CHANGED) -> Examined:
    before, after = old.splitlines(), new.splitlines()
    added = len([line for line in after if line not in before])
    removed = len([line for line in before if line not in after])
    change = Change(path=path, kind=kind, added=added, removed=removed)
    return examine([change], Protection(), {path: old}, {path: new})


OLD = "def test_a():\n    assert a() == 1\n"


@pytest.mark.parametrize(
    "new",
    [
        OLD.replace("1", "2"),
        "",
        f"import pytest\npytestmark = pytest.mark.skip\n{OLD}",
        f"@pytest.mark.xfail\n{OLD}",
        f"@unittest.skipIf(True, '')\n{OLD}",
        f"{OLD}\ndef test_a():\n    pass\n",
    ],
)
def test_a_test_that_is_weakened_is_tampered_with_and_never_tried(new: str) -> None:
    found = changed("tests/test_a.py", OLD, new)
    assert found.restored == ("tests/test_a.py",)
    assert found.tests == ()
    assert [flag.is_tampering for flag in found.flags] == [True]


def test_deleted_tests_and_changed_configuration_are_tampering() -> None:
    for path in ("tests/test_a.py", "conftest.py"):
        found = changed(path, OLD, "", ChangeKind.DELETED)
        assert [flag.is_tampering for flag in found.flags] == [True]
    assert changed("pytest.ini", "[pytest]\n", "[pytest]\naddopts = -k nothing\n").flags[0].is_tampering
    hides = changed("conftest.py", "", "collect_ignore = ['tests']\n", ChangeKind.ADDED)
    assert hides.flags[0].is_tampering
    helps = changed("conftest.py", "", "import pytest\n", ChangeKind.ADDED)
    assert (helps.restored, helps.flags[0].is_tampering) == (("conftest.py",), False)


def test_tests_that_are_added_are_no_tampering_and_may_be_tried_on_others() -> None:
    appended = changed("tests/test_a.py", OLD, f"{OLD}\n\ndef test_skips_blanks():\n    assert b()\n")
    assert (appended.tests, [flag.is_tampering for flag in appended.flags]) == (("tests/test_a.py",), [False])
    new = changed("tests/test_b.py", "", OLD, ChangeKind.ADDED)
    assert (new.restored, new.tests, new.flags) == (("tests/test_b.py",), ("tests/test_b.py",), ())


def test_of_files_that_hold_more_only_what_concerns_tests_is_protected() -> None:
    package = '{"dependencies": {"a": "1"}, "scripts": {"test": "jest"}}'
    assert is_beside_tests("package.json", package, package.replace('"1"', '"2"'))
    assert not is_beside_tests("web/package.json", package, package.replace("jest", "true"))
    project = "[project]\ndependencies = []\n[tool.pytest.ini_options]\naddopts = ''\n"
    assert is_beside_tests("pyproject.toml", project, project.replace("[]", "['x']"))
    assert not is_beside_tests("pyproject.toml", project, project.replace("''", "'-k no'"))
    for broken in ("{", "[[", "[1]", "{" * 10_000):
        assert not is_beside_tests("package.json", package, broken)
    assert changed("pyproject.toml", project, project.replace("[]", "['x']")).restored == ()
    assert changed("package.json", "", '{"name": "x"}', ChangeKind.ADDED).restored == ()
    assert changed("package.json", "", package, ChangeKind.ADDED).restored == ("package.json",)


# candidates


def make_race(*entries: Candidate, **changes: object) -> Race:
    race = Race(
        id=RaceId("r-1"),
        project="/p",
        cwd="/p",
        prompt="Do it",
        base="b" * 40,
        host="here",
        created_at=1.0,
        size=len(entries) or 2,
        gates=("t",),
        times=1,
        entries=entries,
    )
    return replace(race, **changes)  # pyright: ignore[reportArgumentType]


def entry(number: int, name: str, **changes: object) -> Candidate:
    made = Candidate(
        number=number,
        coder="claude",
        branch=f"fleet/r-1-{number}",
        commit=name * 40,
        tree=f"tree {name}",
        behaviour=f"behaviour {name}",
        lines=10,
    )
    return replace(made, **changes)  # pyright: ignore[reportArgumentType]


def test_candidates_are_made_by_coders_in_turn_from_one_commit() -> None:
    race = make_race(size=3, coders=("claude", "codex"), hidden_gates=("secret",))
    tasks = [racer(race, number, 1.0) for number in (1, 2, 3)]
    assert [task.coder for task in tasks] == ["claude", "codex", "claude"]
    assert {(task.base, task.base_host, task.batch, task.ends_with_turn) for task in tasks} == {
        (race.base, "here", "r-1", True)
    }
    assert all("    t\n" in task.description and "secret" not in task.description for task in tasks)


def test_of_the_same_content_one_takes_part_whatever_their_order() -> None:
    one, two = entry(1, "a", tree="same"), entry(2, "c", tree="same")
    for entries in ((one, two), (two, one)):
        kept = [found.commit for found in without_doubles(entries) if found.is_in]
        assert kept == [one.commit]


def test_a_candidate_that_changes_nothing_or_tests_only_is_out() -> None:
    seen = Examined(restored=("tests/a.py",), tests=(), flags=())
    nothing = enter(entry(1, "a"), base_tree="t", tree="t", behaviour="", examined=seen)
    assert nothing.out == "it changes nothing"
    one_file = entry(1, "a", diff=Diff(files=1, added=1))
    only = enter(one_file, base_tree="t", tree="u", behaviour="x", examined=seen)
    assert "tests and their configuration only" in only.out


@pytest.mark.parametrize(
    ("state", "question", "fate"),
    [
        (TaskState.OPEN, "", Fate(is_underway=True)),
        (TaskState.BLOCKED, "q-1", Fate(is_asking=True)),
        (TaskState.BLOCKED, "", Fate(out="it failed: why")),
        (TaskState.CLOSED, "", Fate(out="it was closed before it began: done")),
    ],
)
def test_how_far_a_candidate_is_follows_from_its_task(state: TaskState, question: str, fate: Fate) -> None:
    task = Task(id=TaskId("r-1-1"), title="x", created_at=1.0, reason="why", close_reason="done")
    assert fate_of(replace(task, state=state, question=question), None) == fate
    assert fate_of(None, None) == Fate(is_underway=True)


# who wins


def ended(trial: Trial, *answers: Answer) -> Trial:
    said = tuple(replace(one, command=command) for command, one in zip(trial.commands, answers, strict=True))
    return replace(trial, state=TrialState.ENDED, answers=said)


PASSED = answer(0, "2 passed in 0.1s")
MORE_PASSED = answer(0, "3 passed in 0.1s")
BROKEN = failing("x", "y", ran=2)
FAILS = answer(1, "1 failed, 2 passed in 0.1s")
BREAKS = answer(2, "1 error in 0.1s")


def play(
    race: Race,
    says: dict[int, Answer],
    crossed: dict[tuple[int, int], Answer] | None = None,
    *,
    base: Answer = BROKEN,
    votes: dict[tuple[int, int], int | None] | None = None,
) -> Scorecard:
    """Score a race. `crossed` is what the tests of the second say of the first; 0 is the base."""
    trials = [ended(trial_of(race), base)]
    trials += [ended(trial_of(race, one), says.get(one.number, PASSED)) for one in race.entries if one.is_in]
    said = crossed or {}
    for author in (one for one in race.entries if one.tests):
        trials.append(ended(trial_of(race, None, author), said.get((0, author.number), MORE_PASSED)))
        for one in race.entries:
            more = said.get((one.number, author.number), MORE_PASSED)
            trials.append(ended(trial_of(race, one, author), more))
    return score(race, {trial.id: trial for trial in trials}, votes)


def winner_of(card: Scorecard) -> int | None:
    assert card.outcome is not None
    return card.outcome.winner


def outcome_of(card: Scorecard) -> tuple[End, int | None, str]:
    assert card.outcome is not None
    return card.outcome.end, card.outcome.winner, card.outcome.reason


def standings(card: Scorecard) -> list[str]:
    return [str(row.standing) for row in card.rows]


UNDECIDED = "no check shows who does what was asked for"


def test_the_size_of_a_change_never_decides_between_candidates_that_may_behave_differently() -> None:
    race = make_race(entry(1, "a"), entry(2, "c", lines=1))
    equal = "candidates 1 and 2 are equal in all that was measured"
    assert outcome_of(play(race, {})) == (End.TIE, None, equal)
    green = play(race, {}, base=PASSED)
    passes = f"the gates pass with candidates 1 and 2, but also on the base: {UNDECIDED}"
    assert outcome_of(green) == (End.TIE, None, passes)
    assert [row.reason for row in green.rows] == ["nothing that failed on the base passes now"] * 2


def test_a_comment_that_is_the_smallest_of_five_that_pass_the_gate_does_not_win() -> None:
    others = [entry(number, name, lines=20 + number) for number, name in enumerate("acde", 1)]
    comment = entry(5, "f", lines=1, behaviour=SAME)
    card = play(make_race(*others, comment), {}, base=PASSED)
    assert outcome_of(card)[:2] == (End.TIE, None)
    assert "candidates 1, 2, 3 and 4, but also on the base" in outcome_of(card)[2]
    assert standings(card) == ["good"] * 4 + ["cosmetic"]
    assert card.rows[4].reason == "it changes comments and formatting only"
    asked = play(make_race(*others, comment, judge="gemini"), {}, base=PASSED)
    assert {number for duel in asked.duels for number in duel} <= {1, 2, 3, 4}


def test_a_comment_never_wins_alone_and_a_person_says_whether_it_was_asked_for() -> None:
    comment = entry(1, "a", behaviour=SAME)
    for base in (PASSED, BROKEN):  # a lint, say, that a comment silences
        card = play(make_race(comment, entry(2, "c")), {2: NO if base is PASSED else BROKEN}, base=base)
        assert outcome_of(card) == (
            End.TIE,
            None,
            "the gates pass with candidate 1, but only comments and formatting change: "
            "a person must say whether that was asked for",
        )
    assert winner_of(play(make_race(comment, entry(2, "c")), {}, base=BROKEN)) == 2


def test_one_that_is_good_alone_wins_only_if_something_that_failed_on_the_base_passes() -> None:
    race = make_race(entry(1, "a"), entry(2, "c"))
    assert outcome_of(play(race, {2: BROKEN})) == (End.WON, 1, "it alone is good")
    card = play(race, {2: BROKEN}, base=PASSED)
    assert standings(card) == ["good", "failed"]
    assert outcome_of(card) == (
        End.TIE,
        None,
        f"the gates pass with candidate 1, but also on the base: {UNDECIDED}",
    )


def test_a_gate_that_is_flaky_or_empty_on_the_base_proves_nothing() -> None:
    race = make_race(entry(1, "a"), entry(2, "c"), times=2)
    candidates = [replace(ended(trial_of(race, one), PASSED), answers=(PASSED,) * 2) for one in race.entries]
    for said in ((PASSED, BROKEN), (answer(0, "no tests ran in 0.1s"),) * 2):
        base = replace(trial_of(race), state=TrialState.ENDED, answers=said)
        failed = replace(candidates[1], answers=(NO, NO))
        card = score(race, {trial.id: trial for trial in (base, candidates[0], failed)})
        assert outcome_of(card)[:2] == (End.TIE, None)
        assert "nothing that failed on the base passes now" in outcome_of(card)[2]


def test_a_flaky_test_that_happens_to_pass_is_no_progress() -> None:
    base = [failing("x", "flaky", ran=3), failing("x", ran=3)]
    lucky, fixed = [failing("x", ran=3)] * 2, [failing("flaky", ran=3)] * 2
    assert not judge_gate("t", base, lucky).is_better
    assert judge_gate("t", base, fixed).is_better
    assert (judge_gate("t", base, lucky).left, judge_gate("t", base, fixed).left) == (1, 0)


def test_more_that_got_better_wins_over_less() -> None:
    race = make_race(entry(1, "a", lines=1), entry(2, "c"))
    card = play(race, {1: failing("x", ran=2)})
    assert outcome_of(card) == (End.WON, 2, "more speaks for it than for any other")
    assert [row.proofs for row in card.rows] == [("`t`",), ("`t`",)]


def test_candidates_that_are_proved_to_behave_the_same_are_ordered_by_lint_then_size() -> None:
    same = entry(1, "a", behaviour="one"), entry(2, "c", behaviour="one", lines=3)
    assert winner_of(play(make_race(*same), {})) == 2
    race = make_race(*same, lint="lint")
    trials = [
        ended(trial_of(race), BROKEN, YES),
        ended(trial_of(race, race.entries[0]), PASSED, YES),
        ended(trial_of(race, race.entries[1]), PASSED, NO),
    ]
    assert winner_of(score(race, {trial.id: trial for trial in trials})) == 1
    other = make_race(entry(1, "a"), entry(2, "c", lines=3), lint="lint")
    assert outcome_of(score(other, {trial.id: trial for trial in trials}))[0] is End.TIE


def test_a_race_of_an_older_version_that_knows_no_behaviour_is_decided_by_content() -> None:
    old = entry(1, "a", behaviour=""), entry(2, "c", behaviour="", lines=1)
    assert outcome_of(play(make_race(*old), {}))[0] is End.TIE
    assert winner_of(play(make_race(*old), {1: BROKEN})) == 2


def test_tests_that_cannot_be_run_on_another_say_nothing_of_it() -> None:
    race = make_race(entry(1, "a"), entry(2, "c", tests=("tests/t.py",), lines=20))
    card = play(race, {}, {(1, 2): BREAKS})
    assert (standings(card), outcome_of(card)[0]) == (["good", "good"], End.TIE)


def test_tests_that_their_own_author_fails_say_nothing_of_anybody() -> None:
    race = make_race(entry(1, "a"), entry(2, "c", tests=("tests/t.py",), lines=20))
    card = play(race, {}, {(1, 2): FAILS, (2, 2): FAILS})
    assert [row.suites for row in card.rows] == [(), ()]


def test_tests_of_candidates_prove_something_if_they_fail_on_the_base_and_most_pass_them() -> None:
    author = entry(2, "c", tests=("tests/t.py",))
    race = make_race(entry(1, "a"), author, entry(3, "d"))
    for on_base, proofs in ((FAILS, ("tests of candidate 2",)), (MORE_PASSED, ()), (BREAKS, ())):
        card = play(race, {}, {(0, 2): on_base, (3, 2): FAILS}, base=PASSED)
        assert standings(card) == ["good", "good", "refuted"]
        assert [row.proofs for row in card.rows] == [proofs, proofs, ()]
        assert outcome_of(card)[0] is End.TIE
    alone = play(race, {1: NO, 3: NO}, {(0, 2): FAILS}, base=PASSED)
    assert outcome_of(alone)[0] is End.TIE, "whoever wrote the test alone vouches for it"


def test_of_those_that_pass_a_green_gate_only_one_with_proof_can_win() -> None:
    first, second = entry(1, "a", tests=("tests/t.py",)), entry(2, "c", tests=("tests/u.py",))
    race = make_race(first, second, entry(3, "d"), entry(4, "e", lines=1), entry(5, "f"))
    of_first = {(0, 1): FAILS, (4, 1): BREAKS, (5, 1): BREAKS}
    of_second = {(1, 2): FAILS, (3, 2): FAILS}
    card = play(race, {}, of_first | of_second, base=PASSED)
    assert [bool(row.proofs) for row in card.rows] == [True, True, True, False, False]
    assert standings(card) == ["refuted", "winner", "refuted", "good", "good"]


def test_tests_that_most_pass_refute_and_tests_that_most_fail_only_leave_it_to_a_person() -> None:
    author = entry(3, "d", tests=("tests/t.py",), lines=20)
    race = make_race(entry(1, "a"), entry(2, "c", lines=11), author)
    refuted = play(race, {}, {(1, 3): FAILS})
    assert standings(refuted) == ["refuted", "good", "good"]
    contested = play(race, {}, {(1, 3): FAILS, (2, 3): FAILS})
    assert contested.outcome
    assert contested.outcome.end is End.TIE


def test_two_that_behave_the_same_have_one_vote_and_share_their_fate() -> None:
    author = entry(3, "d", tests=("tests/t.py",), lines=20)
    correct = entry(4, "e", behaviour="behaviour d", lines=15)
    doubles = entry(1, "a", behaviour="same"), entry(2, "c", behaviour="same", lines=12)
    other = entry(5, "f", behaviour="other")
    card = play(make_race(*doubles, author, correct, other), {}, {(1, 3): FAILS, (2, 3): FAILS})
    assert standings(card) == ["refuted", "refuted", "good", "good", "good"]
    alone = play(make_race(author, correct), {})
    assert winner_of(alone) == 4, "they are the same but for its tests and its lines"


def test_one_that_changed_what_it_is_measured_by_never_wins() -> None:
    flags = changed("tests/test_a.py", OLD, "").flags
    card = play(make_race(entry(1, "a", flags=flags), entry(2, "c")), {2: BROKEN})
    assert card.outcome
    assert (card.outcome.end, str(card.rows[0].standing)) == (End.NOBODY, "tampered")
    assert card.outcome.reason == "only candidates that changed what they are measured by are good"


def test_an_impossible_trial_is_no_yes() -> None:
    race = make_race(entry(1, "a"), entry(2, "c"))
    trials = [ended(trial_of(race), BROKEN), ended(trial_of(race, race.entries[1]), PASSED)]
    lost = replace(trial_of(race, race.entries[0]), state=TrialState.IMPOSSIBLE, reason="gone")
    found = {trial.id: trial for trial in (*trials, lost)}
    assert winner_of(score(race, found)) == 2
    no_base = replace(trial_of(race), state=TrialState.IMPOSSIBLE, reason="gone")
    card = score(race, found | {no_base.id: no_base})
    assert card.outcome
    assert card.outcome.end is End.NOBODY


def test_a_card_wants_every_trial_before_it_tells_an_outcome() -> None:
    race = make_race(entry(1, "a", tests=("tests/t.py",)), entry(2, "c"))
    known: dict[str, Trial] = {}
    rounds = 0
    while wanted := score(race, known).wanted:  # pyright: ignore[reportArgumentType]
        rounds += 1
        known |= {trial.id: ended(trial, answer(0, f"{1 + rounds} passed in 1s")) for trial in wanted}
    assert rounds == 2
    assert len(known) == 3 + 2 + 1, "all alone, and the first one's tests on both and on the base"
    assert {trial.id for trial in all_trials(race)} == set(known)


ANSWERS = st.sampled_from([PASSED, BROKEN, answer(1), answer(0, "no tests ran in 0.1s"), answer(None)])
CROSSED = st.sampled_from([MORE_PASSED, FAILS, BREAKS])
FLAGS = changed("tests/test_a.py", OLD, "").flags
BASE = "base"


@st.composite
def fields(draw: st.DrawFn) -> tuple[tuple[Candidate, ...], dict[str, Answer], dict[tuple[str, str], Answer]]:
    """Candidates of any kind, and what commands say of each, by name."""
    names = "acdef"[: draw(st.integers(2, 5))]
    entries = tuple(
        entry(
            number,
            name,
            lines=draw(st.integers(1, 3)),
            behaviour=draw(st.sampled_from([f"behaviour {name}", "shared", SAME])),
            tests=("tests/t.py",) if draw(st.booleans()) else (),
            flags=FLAGS if draw(st.integers(0, 4)) == 0 else (),
        )
        for number, name in enumerate(names, 1)
    )
    by_behaviour = {one.behaviour: draw(ANSWERS) for one in entries}  # the same, so that it says the same
    says = {one.commit: by_behaviour[one.behaviour] for one in entries}
    crossed = {(one, other): draw(CROSSED) for one in (BASE, *says) for other in says}
    return entries, says, crossed


def winner_among(
    entries: tuple[Candidate, ...],
    says: dict[str, Answer],
    crossed: dict[tuple[str, str], Answer],
    base: Answer,
) -> Candidate | None:
    numbers = {BASE: 0, **{one.commit: one.number for one in entries}}
    by_number = {(numbers[one], numbers[other]): said for (one, other), said in crossed.items()}
    own = {numbers[commit]: said for commit, said in says.items()}
    card = play(make_race(*entries), own, by_number, base=base)
    return next((one for one in entries if one.number == winner_of(card)), None)


@given(fields(), st.sampled_from([BROKEN, PASSED]), st.randoms(use_true_random=False))
def test_the_order_of_candidates_has_no_say_and_no_bad_one_ever_wins(
    field: tuple[tuple[Candidate, ...], dict[str, Answer], dict[tuple[str, str], Answer]],
    base: Answer,
    chance: Random,
) -> None:
    entries, says, crossed = field
    winner = winner_among(entries, says, crossed, base)
    shuffled = chance.sample(entries, len(entries))
    again = winner_among(
        tuple(replace(one, number=number) for number, one in enumerate(shuffled, 1)), says, crossed, base
    )
    assert (winner and winner.commit) == (again and again.commit)
    if winner:
        assert says[winner.commit] is PASSED
        assert not winner.flags
        assert winner.behaviour != SAME
        assert base is BROKEN or FAILS in [crossed[BASE, one.commit] for one in entries if one.tests]


@given(fields(), st.data())
def test_no_size_of_any_change_turns_one_winner_into_another_that_behaves_differently(
    field: tuple[tuple[Candidate, ...], dict[str, Answer], dict[tuple[str, str], Answer]], data: st.DataObject
) -> None:
    entries, says, crossed = field
    resized = tuple(replace(one, lines=data.draw(st.integers(1, 99))) for one in entries)
    before, after = (winner_among(each, says, crossed, BROKEN) for each in (entries, resized))
    assert (before and before.behaviour) == (after and after.behaviour)


# a judge


def votes(*said: tuple[int, int, int | None]) -> dict[tuple[int, int], int | None]:
    return {(first, second): better for first, second, better in said}


def judged(votes: dict[tuple[int, int], int | None]) -> Scorecard:
    return play(make_race(entry(1, "a"), entry(2, "c"), judge="gemini"), {}, base=PASSED, votes=votes)


def test_a_judge_is_asked_in_both_orders_and_believed_if_it_says_the_same() -> None:
    assert set(judged({}).duels) == {(1, 2), (2, 1)}
    assert winner_of(judged(votes((1, 2, 2), (2, 1, 2)))) == 2
    for said in (
        votes((1, 2, 1), (2, 1, 2)),
        votes((1, 2, 1), (2, 1, None)),
        votes((1, 2, None), (2, 1, None)),
    ):
        assert winner_of(judged(said)) is None


@pytest.mark.parametrize("size", [2, 3, 5, 9])
def test_a_judge_is_asked_about_all_equals_and_the_one_it_prefers_to_each_wins(size: int) -> None:
    names = "acdefghij"[:size]
    for best in names:
        for lines in (1, 99):
            race = make_race(*(entry(number, name, lines=lines) for number, name in enumerate(names, 1)))
            number = names.index(best) + 1
            card, asked = asked_until_decided(replace(race, judge="gemini"), lambda duel, n=number: n)
            assert (winner_of(card), set(asked) <= set(permutations(range(1, size + 1), 2))) == (number, True)
            assert len(asked) <= 4 * (size - 1)


def test_a_judge_that_prefers_in_circles_or_nobody_decides_nothing() -> None:
    race = make_race(*(entry(number, name) for number, name in enumerate("acd", 1)), judge="gemini")
    circle = {frozenset({1, 2}): 1, frozenset({2, 3}): 2, frozenset({1, 3}): 3}
    assert winner_of(asked_until_decided(race, lambda duel: circle[frozenset(duel)])[0]) is None
    assert winner_of(asked_until_decided(race, lambda duel: duel[0])[0]) is None


def asked_until_decided(
    race: Race, judge: Callable[[tuple[int, int]], int]
) -> tuple[Scorecard, dict[tuple[int, int], int | None]]:
    """Let a judge answer until the card says how the race came out; one that is not shown prefers nobody."""
    asked: dict[tuple[int, int], int | None] = {}
    while (card := play(race, {}, votes=asked)).duels:
        assert not set(card.duels) <= set(asked), "nothing is asked twice"
        asked |= {duel: better if (better := judge(duel)) in duel else None for duel in card.duels}
    return card, asked


@pytest.mark.parametrize(
    ("text", "vote"),
    [
        ('{"better": "A", "reason": "x"}', 7),
        ('```json\n{"better": "B", "reason": "x"}\n```', 9),
        ('{"better": "C", "reason": "x"}', None),
        ('{"better": "A"}', None),
        ('{"better": "A", "reason": "x", "score": 100}', None),
        ('{"better": "A", "better": "B", "reason": "x"}', None),
        ('{"better": ["A"], "reason": "x"}', None),
        ('{"better": "A", "reason": 1}', None),
        ('I think {"better": "A", "reason": "x"}', None),
        ('{"better": "A", "reason": "x"}\n{"better": "B", "reason": "x"}', None),
        ("winner: A", None),
        ("", None),
        ("[" * 5000, None),
    ],
)
def test_only_the_one_shape_that_was_asked_for_is_an_answer(text: str, vote: int | None) -> None:
    assert read_vote((7, 9), text) == vote


@given(st.text(max_size=200))
def test_no_line_of_a_candidate_stands_unquoted_before_the_judge(text: str) -> None:
    race = make_race(entry(1, "a"), entry(2, "c"), judge="gemini", prompt="P")
    plain = duel_task(race, (1, 2), first="", second="", now=1.0).description
    asked = duel_task(race, (1, 2), first=text, second=text, now=1.0).description
    unquoted = [line for line in asked.splitlines() if line[:3] not in ("T| ", "A| ", "B| ")]
    assert unquoted == [line for line in plain.splitlines() if line[:3] not in ("T| ", "A| ", "B| ")]


def test_a_very_long_change_is_cut_and_the_judge_is_told() -> None:
    race = make_race(entry(1, "a"), entry(2, "c"), judge="gemini")
    task = duel_task(race, (1, 2), first="x\n" * 100_000, second="y", now=1.0)
    assert "A| (the rest, 140000 characters, is left out)" in task.description
    assert len(task.description) < 200_000


def test_counts_add_up() -> None:
    assert Count(ran=1, failed=1) + Count(ran=2, skipped=1) == Count(ran=3, failed=1, skipped=1)
