"""Races: what counts as a yes, what is protected, who wins, and who is no judge."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fleet.domain.collected import Count, count_tests, failing_tests
from fleet.domain.ids import RaceId, TaskId
from fleet.domain.judging import duel_task, read_vote
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
from fleet.domain.race import (
    End,
    Entry,
    Fate,
    Race,
    base_trial,
    cross_trial,
    enter,
    fate_of,
    own_trial,
    racer,
    without_doubles,
)
from fleet.domain.run import Diff
from fleet.domain.scorecard import Say, Scorecard, judge_gate, score
from fleet.domain.task import Task, TaskState
from fleet.domain.trial import Answer, Trial, TrialState

# counting tests


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


def make_race(*entries: Entry, **changes: object) -> Race:
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


def entry(number: int, name: str, **changes: object) -> Entry:
    made = Entry(
        number=number,
        coder="claude",
        branch=f"fleet/r-1-{number}",
        commit=name * 40,
        tree=f"tree {name}",
        patch=f"patch {name}",
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
    nothing = enter(entry(1, "a"), base_tree="t", tree="t", patch="", examined=seen)
    assert nothing.out == "it changes nothing"
    one_file = entry(1, "a", diff=Diff(files=1, added=1))
    only = enter(one_file, base_tree="t", tree="u", patch="p", examined=seen)
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
BROKEN = failing("x", "y", ran=2)


def play(
    race: Race, says: dict[int, Answer], crossed: dict[tuple[int, int], Answer] | None = None
) -> Scorecard:
    """Score a race whose base is red; `crossed` is what the tests of the second say of the first."""
    trials = [ended(base_trial(race), failing("x", "y", ran=2))]
    trials += [ended(own_trial(race, one), says.get(one.number, PASSED)) for one in race.entries if one.is_in]
    authors = [one for one in race.entries if one.tests]
    for author, one in product(authors, race.entries):
        said = (crossed or {}).get((one.number, author.number), answer(0, "3 passed in 0.1s"))
        trials.append(ended(cross_trial(race, one, author), said))
    return score(race, {trial.id: trial for trial in trials})


def winner_of(card: Scorecard) -> int | None:
    assert card.outcome is not None
    return card.outcome.winner


FAILS = answer(1, "1 failed, 2 passed in 0.1s")
BREAKS = answer(2, "1 error in 0.1s")


def test_of_equals_the_smaller_change_wins_and_exact_equals_are_left_to_a_person() -> None:
    small = entry(2, "c", lines=3)
    assert winner_of(play(make_race(entry(1, "a"), small), {})) == 2
    tie = play(make_race(entry(1, "a"), entry(2, "c")), {})
    assert tie.outcome
    assert (tie.outcome.end, tie.outcome.winner) == (End.TIE, None)


def test_tests_that_cannot_be_run_on_another_say_nothing_of_it() -> None:
    race = make_race(entry(1, "a"), entry(2, "c", tests=("tests/t.py",), lines=20))
    assert winner_of(play(race, {}, {(1, 2): BREAKS})) == 1


def test_tests_that_their_own_author_fails_say_nothing_of_anybody() -> None:
    race = make_race(entry(1, "a"), entry(2, "c", tests=("tests/t.py",), lines=20))
    assert winner_of(play(race, {}, {(1, 2): FAILS, (2, 2): FAILS})) == 1


def test_tests_that_most_pass_refute_and_tests_that_most_fail_only_leave_it_to_a_person() -> None:
    author = entry(3, "d", tests=("tests/t.py",), lines=20)
    race = make_race(entry(1, "a"), entry(2, "c", lines=11), author)
    refuted = play(race, {}, {(1, 3): FAILS})
    assert [str(row.standing) for row in refuted.rows] == ["refuted", "winner", "good"]
    contested = play(race, {}, {(1, 3): FAILS, (2, 3): FAILS})
    assert contested.outcome
    assert contested.outcome.end is End.TIE


def test_a_double_but_for_white_space_shares_the_fate_of_the_other() -> None:
    author = entry(3, "d", tests=("tests/t.py",), lines=20)
    correct = entry(4, "e", lines=15)
    doubles = entry(1, "a", patch="same"), entry(2, "c", patch="same", lines=12)
    card = play(make_race(*doubles, author, correct), {}, {(1, 3): FAILS, (2, 3): FAILS})
    assert [str(row.standing) for row in card.rows] == ["refuted", "refuted", "good", "winner"]


def test_one_that_changed_what_it_is_measured_by_never_wins() -> None:
    flags = changed("tests/test_a.py", OLD, "").flags
    card = play(make_race(entry(1, "a", flags=flags), entry(2, "c")), {2: BROKEN})
    assert card.outcome
    assert (card.outcome.end, str(card.rows[0].standing)) == (End.NOBODY, "tampered")
    assert card.outcome.reason == "only candidates that changed what they are measured by are good"


def test_lint_orders_equals_and_nothing_else() -> None:
    race = make_race(entry(1, "a", lines=1), entry(2, "c"), lint="lint")
    trials = [ended(base_trial(race), failing("x", ran=2), YES)]
    trials += [
        ended(own_trial(race, race.entries[0]), PASSED, NO),
        ended(own_trial(race, race.entries[1]), PASSED, YES),
    ]
    assert winner_of(score(race, {trial.id: trial for trial in trials})) == 2
    trials[2] = ended(own_trial(race, race.entries[1]), BROKEN, YES)
    assert winner_of(score(race, {trial.id: trial for trial in trials})) == 1


def test_an_impossible_trial_is_no_yes() -> None:
    race = make_race(entry(1, "a"), entry(2, "c"))
    trials = [ended(base_trial(race), PASSED), ended(own_trial(race, race.entries[1]), PASSED)]
    lost = replace(own_trial(race, race.entries[0]), state=TrialState.IMPOSSIBLE, reason="gone")
    found = {trial.id: trial for trial in (*trials, lost)}
    assert winner_of(score(race, found)) == 2
    no_base = replace(base_trial(race), state=TrialState.IMPOSSIBLE, reason="gone")
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
    assert len(known) == 3 + 2


ANSWERS = st.sampled_from([PASSED, BROKEN, answer(1), answer(0, "no tests ran in 0.1s"), answer(None)])
CROSSED = st.sampled_from([answer(0, "3 passed in 0.1s"), FAILS, BREAKS])
FLAGS = changed("tests/test_a.py", OLD, "").flags


@st.composite
def fields(draw: st.DrawFn) -> tuple[tuple[Entry, ...], dict[str, Answer], dict[tuple[str, str], Answer]]:
    """Candidates of any kind, and what commands say of each, by name."""
    names = "acdef"[: draw(st.integers(2, 5))]
    entries = tuple(
        entry(
            number,
            name,
            lines=draw(st.integers(1, 3)),
            patch=draw(st.sampled_from([f"patch {name}", "patch shared"])),
            tests=("tests/t.py",) if draw(st.booleans()) else (),
            flags=FLAGS if draw(st.integers(0, 4)) == 0 else (),
        )
        for number, name in enumerate(names, 1)
    )
    says = {one.commit: draw(ANSWERS) for one in entries}
    return entries, says, {(one, other): draw(CROSSED) for one in says for other in says}


def winner_among(
    entries: tuple[Entry, ...], says: dict[str, Answer], crossed: dict[tuple[str, str], Answer]
) -> Entry | None:
    numbers = {one.commit: one.number for one in entries}
    by_number = {(numbers[one], numbers[other]): said for (one, other), said in crossed.items()}
    card = play(make_race(*entries), {numbers[commit]: said for commit, said in says.items()}, by_number)
    return next((one for one in entries if one.number == winner_of(card)), None)


@given(fields(), st.randoms(use_true_random=False))
def test_the_order_of_candidates_has_no_say_and_no_bad_one_ever_wins(
    field: tuple[tuple[Entry, ...], dict[str, Answer], dict[tuple[str, str], Answer]], chance: Random
) -> None:
    entries, says, crossed = field
    winner = winner_among(entries, says, crossed)
    shuffled = chance.sample(entries, len(entries))
    again = winner_among(
        tuple(replace(one, number=number) for number, one in enumerate(shuffled, 1)), says, crossed
    )
    assert (winner and winner.commit) == (again and again.commit)
    if winner:
        assert says[winner.commit] is PASSED
        assert not winner.flags


# a judge


def votes(*said: tuple[int, int, int | None]) -> dict[tuple[int, int], int | None]:
    return {(first, second): better for first, second, better in said}


def judged(votes: dict[tuple[int, int], int | None]) -> Scorecard:
    race = make_race(entry(1, "a"), entry(2, "c"), judge="gemini")
    trials = [ended(base_trial(race), PASSED), *(ended(own_trial(race, one), PASSED) for one in race.entries)]
    return score(race, {trial.id: trial for trial in trials}, votes)


def test_a_judge_is_asked_in_both_orders_and_believed_if_it_says_the_same() -> None:
    assert set(judged({}).duels) == {(1, 2), (2, 1)}
    assert winner_of(judged(votes((1, 2, 2), (2, 1, 2)))) == 2
    for said in (
        votes((1, 2, 1), (2, 1, 2)),
        votes((1, 2, 1), (2, 1, None)),
        votes((1, 2, None), (2, 1, None)),
    ):
        assert winner_of(judged(said)) is None


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
