"""Merge trains as a pure state machine: they end, keep order, blame the right branch, starve none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.domain.ids import TrainId
from fleet.errors import Conflict
from fleet.work.train import model as trains
from fleet.work.train.model import LAST_RETURN, MOST_MOVES, Car, CarState, Joint, Look, Train, TrainState
from tests.tables import for_each

GATES = ("make test",)


def make_train(*branches: str, gates: tuple[str, ...] = GATES) -> Train:
    cars = tuple(Car(branch=branch, since=float(place)) for place, branch in enumerate(branches))
    return Train(
        id=TrainId("m-1"), project="/p", target="main", host="h", created_at=0.0, cars=cars, gates=gates
    )


def clean(onto: str, tip: str, car: Car) -> Joint:
    return Joint(commit=f"{onto}+{tip}")


def ready(car: Car) -> Look:
    return Look(tip=car.branch, has_agent=True)


def stacked(*branches: str, gates: tuple[str, ...] = GATES) -> Train:
    return trains.assemble(make_train(*branches, gates=gates), "base", ready, clean)


def in_the_way_of(*commits: str) -> Callable[[str, str, Car], Joint]:
    """Make what joins everything but `late` onto one of these commits."""

    def join(onto: str, tip: str, car: Car) -> Joint:
        if car.branch == "late" and onto in commits:
            return Joint(files=("a.py", "{target}"))
        return clean(onto, tip, car)

    return join


# a round


def test_what_merges_is_stacked_oldest_first() -> None:
    cars = (Car(branch="young", since=2.0), Car(branch="old", since=1.0))
    train = trains.assemble(replace(make_train(), cars=cars), "base", ready, clean)
    assert [link.commit for link in train.stack] == ["base+old", "base+old+young"]
    assert trains.to_try(train) == "base+old+young"


def test_an_agent_at_work_is_waited_for_while_others_go_on() -> None:
    def look(car: Car) -> Look:
        return Look(is_at_work=True) if car.branch == "a" else ready(car)

    train = trains.assemble(make_train("a", "b"), "base", look, clean)
    assert [link.branch for link in train.stack] == ["b"]
    assert train.car("a").state is CarState.WAITING


def test_a_branch_in_the_way_of_the_target_is_sent_back_with_the_files_named() -> None:
    train = trains.assemble(make_train("a", "late"), "base", ready, in_the_way_of("base", "base+a"))
    late = train.car("late")
    assert (late.state, late.files) == (CarState.SENT_BACK, ("a.py", "{target}"))
    assert "'a.py', '{target}'" in late.prompt
    assert "git merge main" in late.prompt
    assert [link.branch for link in train.stack] == ["a"]


def test_a_branch_only_in_the_way_of_an_older_one_waits_for_the_next_round() -> None:
    train = trains.assemble(make_train("a", "late"), "base", ready, in_the_way_of("base+a"))
    assert train.car("late").state is CarState.WAITING


def test_without_an_agent_a_person_must_look() -> None:
    def look(car: Car) -> Look:
        return Look(tip=car.branch)

    train = trains.assemble(make_train("late"), "base", look, in_the_way_of("base"))
    assert train.car("late").state is CarState.REFUSED
    assert trains.ended(train).state is TrainState.DONE


def test_histories_with_nothing_in_common_are_no_agents_business() -> None:
    train = trains.assemble(make_train("a"), "base", ready, lambda *_: Joint(reason="nothing in common"))
    assert (train.car("a").state, train.car("a").reason) == (CarState.REFUSED, "nothing in common")


def test_what_the_target_has_already_is_empty() -> None:
    train = trains.assemble(make_train("a"), "base", ready, lambda onto, *_: Joint(commit=onto))
    assert (train.car("a").state, train.stack) == (CarState.EMPTY, ())


def test_what_an_older_one_has_lands_with_it_and_what_the_target_has_is_empty_all_the_same() -> None:
    def join(onto: str, tip: str, car: Car) -> Joint:
        has_it = car.branch == "old" or (car.branch == "part" and onto != "base")
        return Joint(commit=onto) if has_it else clean(onto, tip, car)

    train = trains.assemble(make_train("a", "old", "part"), "base", ready, join)
    assert train.car("old").state is CarState.EMPTY
    assert [(link.branch, link.commit) for link in train.stack] == [("a", "base+a"), ("part", "base+a")]


def test_green_lands_everything_at_once() -> None:
    train = trains.heard(stacked("a", "b", "c"), "base+a+b+c", is_yes=True)
    assert trains.to_land(train) == 3
    train = trains.landed(train, 3)
    assert [car.landed_as for car in train.cars] == ["base+a", "base+a+b", "base+a+b+c"]
    assert trains.ended(train).state is TrainState.DONE


def test_without_gates_a_clean_merge_is_enough() -> None:
    train = stacked("a", "b", gates=())
    assert (trains.to_try(train), trains.to_land(train)) == ("", 2)


@for_each("count", range(1, 9))
@for_each("bad", range(8))
def test_halves_are_asked_about_until_the_bad_one_is_found(count: int, bad: int) -> None:
    names = [f"b{place}" for place in range(count)]
    if bad >= count:
        return
    train, asked, back = stacked(*names), 0, ""
    while not back:
        if commit := trains.to_try(train):
            asked += 1
            train = trains.heard(train, commit, is_yes=names[bad] not in commit.split("+"))
        elif landing := trains.to_land(train):
            train = trains.landed(train, landing)
        else:
            car = trains.culprit(train)
            assert car
            back = car.branch
    assert back == names[bad]
    assert [car.branch for car in train.cars if car.state is CarState.LANDED] == names[:bad]
    assert asked <= 2 + count.bit_length(), "the whole, halves, and the target itself"
    train = trains.spoiled(train, "1 test failed {said}", has_agent=True)
    assert "1 test failed {said}" in train.car(back).prompt
    assert train.is_base_good


def test_a_target_that_is_red_itself_halts_the_train_and_blames_nobody() -> None:
    train = stacked("a")
    for _ in range(2):
        train = trains.heard(train, trains.to_try(train), is_yes=False, said="broken")
    assert train.state is TrainState.HALTED
    assert "main itself" in train.reason
    assert train.car("a").state is CarState.WAITING
    again = trains.resumed(train)
    assert (again.state, again.resumes) == (TrainState.OPEN, 1)


def test_a_target_that_never_stands_still_halts_the_train() -> None:
    train = stacked("a")
    for _ in range(MOST_MOVES):
        train = trains.assemble(trains.moved(train), "elsewhere", ready, clean)
        assert train.state is TrainState.OPEN
    assert trains.moved(train).state is TrainState.HALTED


def test_who_comes_again_has_his_old_place() -> None:
    train = make_train("a", "b")
    train = train.with_car(replace(train.car("a"), state=CarState.REFUSED, reason="no"))
    train = trains.joined_by(train, [Car(branch="a", since=99.0), Car(branch="c", since=50.0)])
    assert [car.branch for car in trains.candidates(train)] == ["a", "b", "c"]
    assert train.car("a").reason == ""


def test_a_car_that_is_under_way_is_not_begun_anew() -> None:
    train = trains.assemble(make_train("late"), "base", ready, in_the_way_of("base"))
    assert trains.joined_by(train, [Car(branch="late", since=9.0)]).car("late") == train.car("late")


def test_a_train_that_has_ended_takes_nobody_along() -> None:
    train = trains.ended(make_train())
    for change in (lambda: trains.joined_by(train, []), lambda: trains.cancelled(train)):
        with pytest.raises(Conflict):
            change()
    with pytest.raises(Conflict):
        trains.resumed(make_train())


def test_the_track_is_kept_for_a_branch_that_is_sent_back_for_the_last_time() -> None:
    train = make_train("a", "late", "c")
    train = train.with_car(replace(train.car("late"), returns=LAST_RETURN - 1))
    join = in_the_way_of("base", "base+a")
    train = trains.assemble(train, "base", ready, join)
    assert train.car("late").state is CarState.WAITING, "what is stacked lands first"
    landing = trains.landed(trains.heard(train, trains.to_try(train), is_yes=True), 1)
    alone = trains.assemble(replace(landing, stack=()), "base+a", ready, join)
    assert alone.car("late").is_waited_for
    assert (alone.stack, trains.candidates(alone)) == ((), [])
    back = alone.with_car(trains.returned(alone.car("late")))
    assert [car.branch for car in trains.candidates(back)] == ["late", "c"], "and then it goes first"


# all of it together, in a world of branches that are in each other's way


@dataclass
class World:
    """What is in the target, who is in whose way, and what agents do about it."""

    dice: Random
    names: list[str]
    rivals: set[frozenset[str]]  # their texts are in each other's way …
    unfriends: set[frozenset[str]]  # … or only their meaning is: the gates say no to both
    bad: set[str]  # fail the gates by themselves until they are mended
    idle: set[str]  # their agents change nothing
    orphans: set[str]  # nobody can be asked to mend them
    pushes: int = 0  # that people make in between
    target: frozenset[str] = frozenset({"start"})
    knows: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    version: dict[str, int] = field(default_factory=dict[str, int])
    landings: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])

    def look(self, car: Car) -> Look:
        if self.dice.random() < 0.1:
            return Look(is_at_work=True)
        tip = f"{car.branch}@{self.version.get(car.branch, 0)}"
        return Look(tip=tip, has_agent=car.branch not in self.orphans)

    def join(self, onto: str, tip: str, car: Car) -> Joint:
        name, below = car.branch, set(filter(None, onto.split("+")))
        known = self.knows.get(name, frozenset())
        ways = {other for other in _names(below) - known if frozenset((name, other)) in self.rivals}
        if ways:
            return Joint(files=tuple(sorted(ways)))
        return Joint(commit="+".join(sorted(below | {tip})))

    def is_green(self, commit: str) -> bool:
        found = {
            part.partition("@")[0]: int(part.partition("@")[2] or 1) for part in commit.split("+") if part
        }
        if any(name in self.bad and not version for name, version in found.items()):
            return False
        return not any(
            frozenset((one, two)) in self.unfriends
            and two not in self.knows.get(one, frozenset())
            and one not in self.knows.get(two, frozenset())
            for one, two in combinations(found, 2)
        )

    def mend(self, car: Car) -> Car:
        """What an agent does: it merges what is in the target by now."""
        if car.branch in self.idle:
            return trains.given_up(car, "its agent changed nothing")
        self.knows[car.branch] = self.knows.get(car.branch, frozenset()) | _names(self.target)
        self.version[car.branch] = self.version.get(car.branch, 0) + 1
        return trains.returned(car)

    def push(self) -> None:
        self.pushes -= 1
        name = f"push{self.pushes}"
        self.rivals |= {frozenset((name, other)) for other in self.names if self.dice.random() < 0.3}
        self.target |= {name}

    @property
    def tip(self) -> str:
        return "+".join(sorted(self.target))


def _names(parts: set[str] | frozenset[str]) -> frozenset[str]:
    return frozenset(part.partition("@")[0] for part in parts)


def step(train: Train, world: World) -> Train:
    """Take one step of a train, as the reconciler does; things happen in between."""
    away = [car for car in train.cars if car.state is CarState.SENT_BACK]
    if away and world.dice.random() < 0.5:
        return train.with_car(world.mend(world.dice.choice(away)))
    if world.pushes and world.dice.random() < 0.1:
        world.push()
    if train.stack and world.tip != train.base:
        return trains.moved(train)
    if not train.stack and trains.candidates(train):
        return trains.assemble(train, world.tip, world.look, world.join)
    if count := trains.to_land(train):
        world.landings.append(tuple(link.branch for link in train.stack[:count]))
        world.target = frozenset(train.stack[count - 1].commit.split("+"))
        return trains.landed(train, count)
    if commit := trains.to_try(train):
        return trains.heard(train, commit, is_yes=world.is_green(commit))
    if commit == "" and train.stack and not train.bad and not train.gates:
        raise AssertionError("what is stacked without gates lands")
    if car := trains.culprit(train):
        return trains.spoiled(train, "no", has_agent=car.branch not in world.orphans)
    return trains.ended(train)


def run_to_the_end(train: Train, world: World, most: int = 3000) -> Train:
    for _ in range(most):
        if train.state is not TrainState.OPEN:
            return train
        train = step(train, world)
        assert_sound(train)
    raise AssertionError(f"it never ends: {train}")


def assert_sound(train: Train) -> None:
    assert 0 <= train.good <= len(train.stack)
    assert 0 <= train.bad <= len(train.stack)
    assert all(car.returns <= LAST_RETURN for car in train.cars)
    assert sum(car.is_waited_for for car in train.cars) <= 1, "the track is kept for one at a time"
    turns = [(not train.car(link.branch).goes_first, train.car(link.branch).since) for link in train.stack]
    assert turns == sorted(turns)


def worlds(*, has_trouble: bool) -> st.SearchStrategy[World]:
    @st.composite
    def build(draw: st.DrawFn) -> World:
        names = [f"b{place}" for place in range(draw(st.integers(1, 7)))]
        couples = [frozenset(pair) for pair in combinations(names, 2)]
        some = st.sets(st.sampled_from(couples)) if couples else st.just(set[frozenset[str]]())
        few = st.sets(st.sampled_from(names)) if has_trouble else st.just(set[str]())
        return World(
            dice=Random(draw(st.integers(0, 2**32))),
            names=names,
            rivals=draw(some),
            unfriends=draw(some),
            bad=draw(few),
            idle=draw(few),
            orphans=draw(few),
            pushes=draw(st.integers(0, 4)) if has_trouble else 0,
        )

    return build()


@settings(max_examples=300, deadline=None)
@given(worlds(has_trouble=False), st.booleans())
def test_no_branch_starves_whose_agent_mends_it(world: World, has_gates: bool) -> None:
    """However many are in each other's way: each of them lands, after two returns at most."""
    if not has_gates:
        world.unfriends.clear()
    train = make_train(*world.names, gates=GATES if has_gates else ())
    train = run_to_the_end(train, world)
    assert train.state is TrainState.DONE
    assert {car.state for car in train.cars} == {CarState.LANDED}
    assert sorted(name for landing in world.landings for name in landing) == sorted(world.names)


@settings(max_examples=300, deadline=None)
@given(worlds(has_trouble=True))
def test_whatever_happens_every_branch_comes_to_an_end_and_nothing_red_lands(world: World) -> None:
    train = run_to_the_end(make_train(*world.names), world)
    assert train.state in (TrainState.DONE, TrainState.HALTED)
    if train.state is TrainState.DONE:
        assert all(car.has_ended for car in train.cars)
    landed_names = {car.branch for car in train.cars if car.state is CarState.LANDED}
    assert landed_names == {name for landing in world.landings for name in landing}
    assert not landed_names & {name for name in world.bad if not world.version.get(name)}


@settings(max_examples=100, deadline=None)
@given(worlds(has_trouble=True))
def test_the_same_world_gives_the_same_decisions(world: World) -> None:
    seed = world.dice.getrandbits(32)

    def play() -> tuple[Train, list[tuple[str, ...]]]:
        same = replace(
            world,
            dice=Random(seed),
            rivals=set(world.rivals),
            knows={},
            version={},
            landings=[],
            target=frozenset({"start"}),
        )
        return run_to_the_end(make_train(*world.names), same), same.landings

    assert play() == play()


def test_a_branch_in_everybodys_way_lands_though_younger_ones_keep_coming() -> None:
    """The worst that can happen to the oldest: whatever lands meanwhile is in its way again."""
    names = [f"b{place}" for place in range(8)]
    rivals = {frozenset(("b0", other)) for other in names[1:]}
    for seed in range(200):
        world = World(Random(seed), names, set(rivals), set(), set(), set(), set())
        train = make_train("b0", "b1")
        for name in names[2:]:
            for _ in range(4):
                train = step(train, world)
            if train.has_ended:
                break
            train = trains.joined_by(train, [Car(branch=name, since=100.0)])
        assert run_to_the_end(train, world).car("b0").state is CarState.LANDED
