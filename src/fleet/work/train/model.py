"""A merge train: branches on their way into one target, oldest first. What comes next is decided here.

A round stacks the branches that merge cleanly on top of each other, and asks the gates about the topmost
commit. Green: all of them land. Red, twice: halves are asked about until the one branch is found that turns
green to red; what is below it lands, and it is sent back to its agent. So is a branch that is in the target's
way. One that is sent back keeps its age, and with it its place. The last time it is sent back the track is
kept for it: nothing lands before it is back, and then it goes first (docs/adr/0008 says why none starves).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from fleet.domain.ids import RunId, TaskId, TrainId
from fleet.domain.work import Work
from fleet.errors import Conflict, Next

LAST_RETURN = 2  # how often a branch is sent back to its agent; then a person must look
MOST_MOVES = 10  # how often in a row the target may be moved by others while it is being tested
TRIES = 2  # of a red gate: what is green the second time is flaky, not broken
MOST_NAMED = 3  # uncommitted files
MOST_FILES = 40  # that are named to an agent

IN_THE_WAY = """Your branch {branch} cannot be merged into {target}: both changed {files}.

Merge {target} into your branch (run `git merge {target}`), settle the conflicts so that both changes keep
their meaning, run the tests, and commit. Then end your turn; do not push, and do not touch {target}."""

SPOILS = """Your branch {branch} was merged into {target} to be tested, and the tests failed:

{said}

Merge {target} into your branch (run `git merge {target}`), make that pass, and commit. Then end your turn;
do not push, and do not touch {target}."""


def uncommitted(names: Sequence[str]) -> str:
    """Say which files are not committed, a few of them by name."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"uncommitted files: {', '.join(map(repr, names[:MOST_NAMED]))}{more}"


class CarState(StrEnum):
    WAITING = "waiting"  # for its turn
    SENT_BACK = "sent_back"  # its agent is to mend it
    LANDED = "landed"
    EMPTY = "empty"  # the target has all of it anyway
    REFUSED = "refused"  # a person must look


class TrainState(StrEnum):
    OPEN = "open"
    HALTED = "halted"  # it cannot go on without a person
    DONE = "done"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Car:
    """One branch that is to land."""

    branch: str
    since: float  # its age, which is its place in the line, however often it is sent back
    run: RunId | None = None  # whose agent made it
    is_named: bool = True  # a person asked for this very branch, however its agent's work ended
    state: CarState = CarState.WAITING
    source: str = ""  # branch that has its work now, if somebody else had to mend it
    tip: str = ""  # commit that was sent back
    landed_as: str = ""  # commit that brought it into the target
    files: tuple[str, ...] = ()  # that were in the way
    protected: tuple[str, ...] = ()  # paths that it changes and that decide how work is judged
    reason: str = ""
    returns: int = 0  # how often it was sent back …
    earlier_returns: int = 0  # … and had been when a person let it come again
    prompt: str = ""  # what its agent is told then …
    asked: int = 0  # … by this prompt of its run …
    task: TaskId | None = None  # … or, if that cannot hear any more, by this task

    @property
    def head(self) -> str:
        """The branch to take its work from."""
        return self.source or self.branch

    @property
    def has_ended(self) -> bool:
        return self.state in (CarState.LANDED, CarState.EMPTY, CarState.REFUSED)

    @property
    def goes_first(self) -> bool:
        """Whether it was sent back for the last time: it lands next, or a person must look."""
        return self.returns >= LAST_RETURN

    @property
    def is_waited_for(self) -> bool:
        """Whether the track is kept for it."""
        return self.state is CarState.SENT_BACK and self.goes_first


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A branch on top of those before it."""

    branch: str
    tip: str  # of the branch
    commit: str  # with it, the target and all before it


@dataclass(frozen=True, slots=True, kw_only=True)
class Train(Work):
    """Branches on their way into one target, and how far the present round is."""

    id: TrainId
    target: str  # a branch
    cars: tuple[Car, ...] = ()
    gates: tuple[str, ...] = ()
    with_checkout: bool = False  # a working tree that has the target checked out is brought forward, too
    is_wanted: bool = True
    state: TrainState = TrainState.OPEN
    base: str = ""  # commit of the target that the stack stands on
    is_base_good: bool = False  # the gates said yes to it
    stack: tuple[Link, ...] = ()
    good: int = 0  # so many links from below are green …
    bad: int = 0  # … and so many are red; 0: not known yet
    moves: int = 0  # how often others moved the target since something landed …
    all_moves: int = 0  # … and since it was begun
    resumes: int = 0  # how often a person let it go on: what was tried before that says nothing any more
    flaky: tuple[str, ...] = ()  # commits that were red first and green then

    @property
    def ref(self) -> str:
        return f"refs/heads/{self.target}"

    @property
    def has_ended(self) -> bool:
        return self.state in (TrainState.DONE, TrainState.CANCELLED)

    @property
    def has_work(self) -> bool:
        return self.state is TrainState.OPEN

    @property
    def needs_person(self) -> bool:
        return self.state is TrainState.HALTED

    def car(self, branch: str) -> Car:
        return next(car for car in self.cars if car.branch == branch)

    def with_car(self, car: Car) -> Train:
        """Return it with a car as it is now, in the place of the one that was."""
        return replace(self, cars=tuple(car if car.branch == one.branch else one for one in self.cars))

    def halt(self, reason: str) -> Train:
        return replace(self, state=TrainState.HALTED, reason=reason, is_told=False)

    def without_stack(self) -> Train:
        return replace(self, stack=(), good=0, bad=0, base="", is_base_good=False)


# joining


def in_line(cars: Iterable[Car]) -> list[Car]:
    """Return cars in the order of their turn: the one that the track was kept for, then the oldest."""
    return sorted(cars, key=lambda car: (not car.goes_first, car.since, car.branch))


def joined_by(train: Train, cars: Iterable[Car]) -> Train:
    """Return the train with more cars; one that a person had to look at comes again, in its old place."""
    if train.has_ended:
        hint = ("start another one with ", Next("merge.start"))
        raise Conflict(f"train {train.id} is {train.state}", hint=hint)
    known = {car.branch: car for car in train.cars}
    for car in cars:
        old = known.get(car.branch)
        if old is None:
            known[car.branch] = car
        elif old.has_ended:
            returns = old.earlier_returns + old.returns
            known[car.branch] = replace(car, since=min(car.since, old.since), earlier_returns=returns)
    return replace(train, cars=tuple(known.values()), state=TrainState.OPEN, reason="", moves=0)


def resumed(train: Train, *, with_checkout: bool = False) -> Train:
    if train.state is not TrainState.HALTED:
        hint = ("see ", Next("train.show", merge_id=train.id))
        raise Conflict(f"train {train.id} is {train.state}", hint=hint)
    return replace(
        train,
        state=TrainState.OPEN,
        reason="",
        moves=0,
        resumes=train.resumes + 1,
        with_checkout=with_checkout or train.with_checkout,
    )


def cancelled(train: Train) -> Train:
    if train.has_ended:
        hint = ("see ", Next("train.show", merge_id=train.id))
        raise Conflict(f"train {train.id} is {train.state} already", hint=hint)
    return replace(train, is_wanted=False, state=TrainState.OPEN, reason="", moves=0)


# a round


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    tip: str = ""
    is_at_work: bool = False  # its agent is not done yet
    trouble: str = ""  # why it cannot be taken at all
    has_agent: bool = False  # somebody can be asked to mend it


@dataclass(frozen=True, slots=True, kw_only=True)
class Joint:
    """One commit merged onto another; or what is in the way."""

    commit: str = ""
    files: tuple[str, ...] = ()
    reason: str = ""


def candidates(train: Train) -> list[Car]:
    """Return the cars that may be stacked now, in their order; none while the track is kept for one."""
    if any(car.is_waited_for for car in train.cars):
        return []
    return [car for car in in_line(train.cars) if car.state is CarState.WAITING]


def assemble(
    train: Train, base: str, look: Callable[[Car], Look], join: Callable[[str, str, Car], Joint]
) -> Train:
    """Return the train with a stack on a base, of all that fit; what is in the base's way is sent back.

    What is only in the way of an older one waits for the next round: that one need not land.
    """
    stack: list[Link] = []
    for car in candidates(train):
        seen, top = look(car), stack[-1].commit if stack else base
        if seen.is_at_work and car.goes_first:
            break
        if seen.is_at_work:
            continue
        if seen.trouble:
            train = train.with_car(replace(car, state=CarState.REFUSED, reason=seen.trouble))
            continue
        joint = join(top, seen.tip, car)
        if joint.commit == top and join(base, seen.tip, car).commit == base:
            train = train.with_car(replace(car, state=CarState.EMPTY))
        elif joint.commit:
            stack.append(Link(branch=car.branch, tip=seen.tip, commit=joint.commit))
        elif top == base or not (joint := join(base, seen.tip, car)).commit:
            car = _sent_back_for_conflict(train, car, joint, seen)
            if car.is_waited_for and stack:
                continue  # what is stacked lands first: nothing may once this one is on its way
            train = train.with_car(car)
            if car.is_waited_for:
                break
    is_base_good = train.base == base and train.is_base_good
    return replace(train, stack=tuple(stack), base=base, is_base_good=is_base_good, good=0, bad=0)


def to_try(train: Train) -> str:
    """Return the commit that the gates are to be asked about next; "" if there is none."""
    if not train.gates or not train.stack or train.good:
        return ""
    if count := _links_in_question(train):
        return train.stack[count - 1].commit
    return "" if train.is_base_good else train.base


def _links_in_question(train: Train) -> int:
    """How many links from below are tried together: all, or half of those that are red; 0: the base alone."""
    return train.bad // 2 if train.bad else len(train.stack)


def heard(train: Train, commit: str, *, is_yes: bool, said: str = "") -> Train:
    """Return the train after the gates have spoken about what they were asked."""
    if count := _links_in_question(train):
        return replace(train, good=count) if is_yes else replace(train, bad=count)
    if is_yes:
        return replace(train, is_base_good=True)
    return train.halt(f"the gates fail on {train.target} itself ({commit[:12]}): {said}")


def to_land(train: Train) -> int:
    """Return how many links of the stack may land now."""
    return train.good if train.gates else len(train.stack)


def landed(train: Train, count: int) -> Train:
    """Return the train after so many links have landed; the rest of the stack stands on them."""
    for link in train.stack[:count]:
        car = train.car(link.branch)
        car = replace(car, state=CarState.LANDED, landed_as=link.commit, reason="", files=())
        train = train.with_car(car)
    return replace(
        train,
        base=train.stack[count - 1].commit,
        is_base_good=bool(train.gates) and train.good >= count,
        stack=train.stack[count:],
        good=max(0, train.good - count),
        bad=max(0, train.bad - count),
        moves=0,
    )


def moved(train: Train) -> Train:
    """Return the train after others have moved the target: what was tested is not what would land."""
    anew = replace(train.without_stack(), all_moves=train.all_moves + 1)
    if train.moves >= MOST_MOVES:
        return anew.halt(f"{train.target} was moved {train.moves + 1} times while it was being tested")
    return replace(anew, moves=train.moves + 1)


def culprit(train: Train) -> Car | None:
    """Return the car that turns green to red, once it is found."""
    is_found = train.bad == 1 and train.is_base_good and not train.good
    return train.car(train.stack[0].branch) if is_found else None


# sending back


def spoiled(train: Train, said: str, *, has_agent: bool) -> Train:
    """Return the train without the car that turned it red, which is sent back with what the gates said."""
    car, link = train.car(train.stack[0].branch), train.stack[0]
    prompt = SPOILS.format(branch=car.branch, target=train.target, said=said)
    blamed = replace(car, tip=link.tip, files=(), reason=f"the gates fail: {said}", prompt=prompt)
    rest = train.with_car(_sent_back(blamed, has_agent=has_agent))
    return replace(rest, stack=(), good=0, bad=0)  # the base was good, and is remembered as such


def _sent_back_for_conflict(train: Train, car: Car, joint: Joint, seen: Look) -> Car:
    named = [repr(name) for name in joint.files[:MOST_FILES]]
    more = len(joint.files) - len(named)
    files = ", ".join(named) + (f" and {more} more" if more else "")
    prompt = IN_THE_WAY.format(branch=car.branch, target=train.target, files=files)
    reason = joint.reason or f"conflicts with {train.target} in {files}"
    # An agent is asked about files only; what has no history in common is a person's mistake.
    has_agent = seen.has_agent and bool(joint.files)
    blamed = replace(car, tip=seen.tip, files=joint.files, reason=reason, prompt=prompt)
    return _sent_back(blamed, has_agent=has_agent)


def _sent_back(car: Car, *, has_agent: bool) -> Car:
    if not has_agent:
        return replace(car, state=CarState.REFUSED, prompt="")
    if car.returns >= LAST_RETURN:
        reason = f"sent back {car.returns} times, and again: {car.reason}"
        return replace(car, state=CarState.REFUSED, reason=reason, prompt="")
    return replace(car, state=CarState.SENT_BACK, returns=car.returns + 1, asked=0, task=None)


def returned(car: Car, *, source: str = "") -> Car:
    """Return a car that comes again, in its old place; its work may be on another branch by now."""
    return replace(car, state=CarState.WAITING, source=source or car.source, prompt="", reason="", files=())


def given_up(car: Car, reason: str) -> Car:
    return replace(car, state=CarState.REFUSED, reason=f"{reason}; {car.reason}" if car.reason else reason)


def ended(train: Train) -> Train:
    """Return a train that has nothing left to do as done; any other as it is."""
    is_over = not train.stack and all(car.has_ended for car in train.cars)
    return replace(train, state=TrainState.DONE) if is_over else train
