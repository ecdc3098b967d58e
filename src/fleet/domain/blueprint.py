"""A workflow as people write it, in JSON, YAML or TOML, into stages; what is wrong is told by stage."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from enum import StrEnum
from typing import TypeVar, cast

from fleet.domain.condition import names_in
from fleet.domain.ids import WorkflowId
from fleet.domain.run import Role
from fleet.domain.template import references_in
from fleet.domain.workflow import Kind, OnFailure, Stage, Strategy, Workflow, ancestors, begin, cyclic
from fleet.errors import InvalidInput

MOST_STAGES, MOST_ROUNDS, MOST_ITEMS, DEEPEST = 500, 100, 200, 4
FACTS = ("state", "status", "summary", "files", "next_steps", "reason", "round")

_NAME = re.compile(r"[^\s{}.\"'()=!][^{}.\"'()=!\n]{0,79}")
_OLD_WORDS = {
    "executor": "coder",
    "prompt_template": "prompt",
    "worktree_strategy": "strategy",
    "reasoning_effort": "effort",
    "extra_args": "flags",
    "gate": "gates",
    "timeout_seconds": "seconds",
    "rounds": "most_rounds",
}
_TOP = ("name", "description", "task_prompt", "stages", "variables", "base_ref", "timeout_seconds")
Choice = TypeVar("Choice", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    name: str
    stages: tuple[Stage, ...]
    description: str = ""
    task_prompt: str = ""
    base_ref: str = "HEAD"
    variables: Mapping[str, str] = field(default_factory=dict[str, str])


def preview(blueprint: Blueprint) -> Workflow:
    """Return a workflow as it would begin, to be looked at."""
    return begin(
        Workflow(
            id=WorkflowId(""),
            name=blueprint.name,
            project="",
            base="",
            host="",
            created_at=0.0,
            stages=blueprint.stages,
        )
    )


def read_blueprint(
    document: object, *, name: str = "workflow", within: Callable[[str], object] | None = None, depth: int = 0
) -> Blueprint:
    """Return a workflow that can run; raise `InvalidInput` that says which stage is wrong, and how.

    `within` returns the document of a workflow that a stage names.
    """
    if depth > DEEPEST:
        raise InvalidInput(f"workflows are nested more than {DEEPEST} deep", hint="does one contain itself?")
    top = _mapping(document, "a workflow")
    _refuse_unknown(top, _TOP, "the workflow")
    listed = _list(top.get("stages"), "`stages`")
    if not 1 <= len(listed) <= MOST_STAGES:
        raise InvalidInput(f"a workflow has 1 to {MOST_STAGES} stages, not {len(listed)}")
    usual = {"timeout_seconds": top["timeout_seconds"]} if "timeout_seconds" in top else {}
    bodies = [{**usual, **_mapping(one, f"stage number {number}")} for number, one in enumerate(listed)]
    names = [_name_of(body, number) for number, body in enumerate(bodies)]
    _refuse_twins(names)
    stages = tuple(
        _StageReader(body, names[number], number, names, within, depth).read()
        for number, body in enumerate(bodies)
    )
    _check_graph(stages)
    for number in range(len(stages)):
        _check_references(stages, number, names)
    return Blueprint(
        name=_text(top, "name", "the workflow") or name,
        description=_text(top, "description", "the workflow"),
        task_prompt=_text(top, "task_prompt", "the workflow"),
        base_ref=_text(top, "base_ref", "the workflow") or "HEAD",
        variables=_texts(top.get("variables", {})),
        stages=stages,
    )


class _StageReader:
    """Reads one stage. Old words are translated first, so that there is one of each below."""

    def __init__(
        self,
        body: Mapping[str, object],
        name: str,
        number: int,
        names: Sequence[str],
        within: Callable[[str], object] | None,
        depth: int,
    ) -> None:
        self._where = f"stage {name!r}"
        self._body = _translated(body, self._where)
        self._name, self._number, self._names = name, number, names
        self._within, self._depth = within, depth
        known = ("name", "depends_on", "workflow", *Stage.__dataclass_fields__)
        _refuse_unknown(
            self._body, [one for one in known if one not in ("needs", "foreach_from")], self._where
        )

    def read(self) -> Stage:
        kind = self._choice("kind", Kind, self._kind_by_content())
        each = self._body.get("foreach", ())
        stage = Stage(
            name=self._name,
            kind=kind,
            coder=self._text("coder"),
            model=self._text("model"),
            effort=self._text("effort"),
            role=self._choice("role", Role, Role.DOER),
            flags=self._words("flags"),
            prompt=self._text("prompt") or ("" if kind in (Kind.GATE,) else "{task_prompt}"),
            strategy=self._choice("strategy", Strategy, Strategy.NEW),
            needs=self._needs(),
            when=self._condition("when"),
            foreach=() if isinstance(each, str) else self._words("foreach"),
            foreach_from=each if isinstance(each, str) else "",
            until=self._condition("until"),
            most_rounds=self._number_of("most_rounds", 3 if "until" in self._body else 1, most=MOST_ROUNDS),
            gates=self._commands("gates"),
            retries=self._number_of("retries", 0, least=0, most=20),
            on_failure=self._choice("on_failure", OnFailure, OnFailure.FAIL),
            seconds=self._amount("seconds"),
            budget_usd=self._amount("budget_usd") or None,
            reviewer=self._text("reviewer"),
            racers=self._number_of("racers", 0, least=0, most=50),
            coders=self._words("coders"),
            stages=self._inner(kind),
        )
        return self._checked(stage)

    def _kind_by_content(self) -> Kind:
        for key, kind in (("workflow", Kind.WORKFLOW), ("stages", Kind.WORKFLOW), ("reviewer", Kind.PAIR)):
            if key in self._body:
                return kind
        return Kind.RACE if "racers" in self._body else Kind.AGENT

    def _inner(self, kind: Kind) -> tuple[Stage, ...]:
        if kind is not Kind.WORKFLOW:
            return ()
        if "stages" in self._body:
            inner: object = {"stages": self._body["stages"]}
        elif (named := self._text("workflow")) and self._within is not None:
            inner = self._within(named)
        else:
            raise self._wrong("a stage of the kind `workflow` names one, or has `stages` of its own")
        try:
            blueprint = read_blueprint(inner, within=self._within, depth=self._depth + 1)
        except InvalidInput as problem:
            raise InvalidInput(f"in {self._where}: {problem.message}", hint=problem.hint) from problem
        return blueprint.stages

    def _needs(self) -> tuple[int, ...]:
        listed = _list(self._body.get("depends_on", []), f"`depends_on` of {self._where}")
        return tuple(dict.fromkeys(self._need(one) for one in listed))

    def _need(self, one: object) -> int:
        if isinstance(one, str) and one in self._names:
            number = list(self._names).index(one)
        elif isinstance(one, int) and not isinstance(one, bool) and 0 <= one < len(self._names):
            number = one
        else:
            close = get_close_matches(str(one), self._names, n=1)
            hint = (
                f"did you mean {close[0]!r}?"
                if close
                else f"stages are numbered from 0 to {len(self._names) - 1}"
            )
            raise self._wrong(f"it depends on {one!r}, and there is no such stage", hint)
        if number == self._number:
            raise self._wrong("it depends on itself")
        return number

    def _checked(self, stage: Stage) -> Stage:
        if stage.strategy in (Strategy.INHERIT, Strategy.MERGE) and not stage.needs:
            raise self._wrong(f"strategy `{stage.strategy}` needs a stage in `depends_on`")
        if stage.kind is Kind.GATE and not stage.gates:
            raise self._wrong("a stage of the kind `gate` has at least one command in `gates`")
        if stage.kind is Kind.PAIR and not stage.reviewer:
            raise self._wrong("a stage of the kind `pair` names its `reviewer`")
        if stage.kind is Kind.RACE and not (stage.racers >= 2 and stage.gates):
            raise self._wrong("a stage of the kind `race` has at least 2 `racers`, and `gates`")
        if stage.foreach and stage.foreach_from:
            raise self._wrong("`foreach` is a list or the name of a result")
        if len(stage.foreach) > MOST_ITEMS:
            raise self._wrong(f"`foreach` has more than {MOST_ITEMS} items")
        if stage.most_rounds > 1 and not stage.until:
            raise self._wrong("`rounds` says how often at most; `until` says until when")
        if stage.until and (stage.foreach or stage.foreach_from):
            raise self._wrong("`until` and `foreach` do not go together: put one into a workflow within")
        if "\0" in stage.prompt:
            raise self._wrong("its prompt has a NUL in it")
        return stage

    # values

    def _text(self, key: str) -> str:
        return _text(self._body, key, self._where)

    def _words(self, key: str) -> tuple[str, ...]:
        listed = _list(self._body.get(key, []), f"`{key}` of {self._where}")
        return tuple(self._plain(one, key) for one in listed)

    def _commands(self, key: str) -> tuple[str, ...]:
        value = self._body.get(key, [])
        return (value,) if isinstance(value, str) else self._words(key)

    def _plain(self, value: object, key: str) -> str:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise self._wrong(f"`{key}` is a list of texts")
        return str(value)

    def _condition(self, key: str) -> str:
        condition = self._text(key)
        if condition:
            try:
                names_in(condition)
            except InvalidInput as problem:
                raise self._wrong(f"`{key}`: {problem.message}", problem.hint) from problem
        return condition

    def _choice(self, key: str, kind: type[Choice], default: Choice) -> Choice:
        value = self._text(key)
        if not value:
            return default
        if value not in list(kind):
            raise self._wrong(f"there is no {key} {value!r}", f"use one of {', '.join(kind)}")
        return kind(value)

    def _number_of(self, key: str, default: int, *, least: int = 1, most: int) -> int:
        value = self._body.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self._wrong(f"`{key}` is a whole number from {least} to {most}, not {value!r}")
        return value

    def _amount(self, key: str) -> float:
        value = self._body.get(key) or 0.0
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= cast("float", value) < float("inf"):
            raise self._wrong(f"`{key}` is a number above 0, not {value!r}")
        return float(cast("float", value))

    def _wrong(self, reason: str, hint: str = "") -> InvalidInput:
        return InvalidInput(f"{self._where}: {reason}", hint=hint)


def _translated(body: Mapping[str, object], where: str) -> dict[str, object]:
    new: dict[str, object] = {}
    for key, value in body.items():
        word = _OLD_WORDS.get(key, key)
        if word in new:
            raise InvalidInput(f"{where} says `{word}` twice, once as `{key}`")
        if value is not None:
            new[word] = value
    return new


def _check_graph(stages: Sequence[Stage]) -> None:
    if stuck := cyclic(stages):
        told = ", ".join(repr(stages[number].name) for number in stuck)
        raise InvalidInput(
            f"these stages wait for each other: {told}", hint="take one of the `depends_on` out"
        )


def _check_references(stages: Sequence[Stage], number: int, names: Sequence[str]) -> None:
    """Refuse a stage that uses the result of one that need not be done before it."""
    stage, before = stages[number], ancestors(stages, number)
    where = f"stage {stage.name!r}"
    for written, reference in references_in(stage.prompt, names).items():
        is_own = reference.stage == number and bool(stage.until)
        if reference.stage not in before and not is_own:
            raise _too_early(where, f"{{{written}}}", names[reference.stage])
    conditions = [*names_in(stage.when)] if stage.when else []
    own = [*names_in(stage.until)] if stage.until else []
    wanted = [*conditions, *own, *([stage.foreach_from] if stage.foreach_from else [])]
    for name in wanted:
        _check_fact(where, name, number, before, names, is_own=name in own)


def _check_fact(
    where: str, name: str, number: int, before: set[int], names: Sequence[str], *, is_own: bool
) -> None:
    stage, _, fact = name.rpartition(".")
    if stage == "vars":
        return
    numbered = re.fullmatch(r"stage_(\d{1,4})", stage)
    index = list(names).index(stage) if stage in names else int(numbered[1]) if numbered else -1
    if not 0 <= index < len(names) or fact not in FACTS:
        raise InvalidInput(
            f"{where} asks for {name!r}, which nothing has",
            hint=f"write `stage.field` with one of {', '.join(FACTS)}, or `vars.name`",
        )
    if index not in before and not (is_own and index == number):
        raise _too_early(where, name, names[index])


def _too_early(where: str, written: str, name: str) -> InvalidInput:
    return InvalidInput(
        f"{where} uses {written}, and {name!r} need not be done before it",
        hint=f"add {name!r} to its `depends_on`",
    )


def _name_of(body: Mapping[str, object], number: int) -> str:
    name = body.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInput(
            f"stage number {number} has no name that can be used: {name!r}",
            hint="""a name has at most 80 characters, and none of { } . " ' ( ) = !""",
        )
    return name


def _refuse_twins(names: Sequence[str]) -> None:
    twins = [name for name in names if names.count(name) > 1]
    if twins:
        raise InvalidInput(f"two stages are called {twins[0]!r}", hint="give each a name of its own")


def _refuse_unknown(body: Mapping[str, object], known: Sequence[str], where: str) -> None:
    words = [*known, *_OLD_WORDS]
    for key in body:
        if key not in words:
            close = get_close_matches(key, words, n=1)
            hint = f"did you mean `{close[0]}`?" if close else f"it may have {', '.join(sorted(known))}"
            raise InvalidInput(f"{where} has a key {key!r} that means nothing", hint=hint)


def _mapping(value: object, what: str) -> Mapping[str, object]:
    kind = type(value).__name__
    if isinstance(value, Mapping):
        body = cast("Mapping[object, object]", value)
        if all(isinstance(key, str) for key in body):
            return cast("Mapping[str, object]", body)
    raise InvalidInput(f"{what} is a set of keys and values, not {kind}")


def _list(value: object, what: str) -> Sequence[object]:
    if not isinstance(value, list | tuple):
        raise InvalidInput(f"{what} is a list, not {type(value).__name__}")
    return cast("Sequence[object]", value)


def _text(body: Mapping[str, object], key: str, where: str) -> str:
    value = body.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidInput(f"{where}: `{key}` is a text, not {type(value).__name__}")
    return value


def _texts(value: object) -> dict[str, str]:
    body = _mapping(value, "`variables`")
    return {name: str(one) for name, one in body.items()}


def with_usual_coder(stages: Sequence[Stage], coder: str) -> tuple[Stage, ...]:
    """Return stages in which nobody is missing: the usual coder stands in."""
    return tuple(
        replace(stage, coder=stage.coder or coder, stages=with_usual_coder(stage.stages, coder))
        for stage in stages
    )
