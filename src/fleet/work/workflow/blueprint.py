"""A workflow as people write it, in JSON, YAML or TOML, into stages; what is wrong is told by stage."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from enum import StrEnum
from typing import NamedTuple, TypeVar, cast

from fleet.domain.ids import WorkflowId
from fleet.domain.run import Role
from fleet.domain.template import FIELDS, misspelt_in, references_in, variables_in
from fleet.errors import HintPart, InvalidInput, Next, Text
from fleet.work.workflow import model as workflows
from fleet.work.workflow.condition import names_in
from fleet.work.workflow.model import OnFailure, Stage, StageKind, Strategy, Workflow

MOST_STAGES, MOST_ROUNDS, MOST_ITEMS, DEEPEST = 500, 100, 200, 4
FACTS = ("state", "status", "summary", "files", "next_steps", "reason", "round")

LARGEST = 10**15  # of any number
AGENTS_ONLY = ("role", "flags", "effort", "seconds", "retries")
RETRY, USUAL_RETRIES = "retry", 2  # a policy that is written like the others: again, and only then failed

_NAME = re.compile(r"(?!(?:vars|stage_\d+)$)[^\s{}.\"'()=!][^{}.\"'()=!\n]{0,79}")
_CODEFLEETS_WORDS = {
    "executor": "coder",
    "prompt_template": "prompt",
    "worktree_strategy": "strategy",
    "reasoning_effort": "effort",
    "extra_args": "flags",
    "timeout_seconds": "seconds",
}
_OLD_WORDS = {**_CODEFLEETS_WORDS, "gate": "gates", "rounds": "most_rounds"}
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
    return workflows.begin(
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
        raise _too_many(len(listed))
    bodies = [_mapping(one, f"stage number {number}") for number, one in enumerate(listed)]
    names = [_name_of(body, number) for number, body in enumerate(bodies)]
    if twins := [name for name in names if names.count(name) > 1]:
        raise InvalidInput(f"two stages are called {twins[0]!r}", hint="give each a name of its own")
    stages = _read_stages(bodies, _Place(names, within, depth, top.get("timeout_seconds")))
    if stuck := workflows.cyclic(stages):
        told = ", ".join(repr(stages[number].name) for number in stuck)
        hint = "take one of the `depends_on` out"
        raise InvalidInput(f"these stages wait for each other: {told}", hint=hint)
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


class _Place(NamedTuple):
    names: Sequence[str]
    within: Callable[[str], object] | None
    depth: int
    usual_seconds: object


def _read_stages(bodies: Sequence[Mapping[str, object]], place: _Place) -> tuple[Stage, ...]:
    stages: list[Stage] = []
    size = 0
    for number, body in enumerate(bodies):
        try:
            stages.append(_StageReader(body, number, place).read())
        except InvalidInput as problem:
            raise _in_words_of(body, problem) from problem
        size += len([*workflows.each_stage(stages[-1:])])
        if size > MOST_STAGES:  # with those of the workflows within, before more of them are read
            raise _too_many(size)
    return tuple(stages)


def _in_words_of(body: Mapping[str, object], problem: InvalidInput) -> InvalidInput:
    """Return a refusal that names keys as they are written in the stage that it is about."""
    words = _words_in(body)

    def reworded(part: HintPart) -> HintPart:
        if not isinstance(part, str):
            return part
        return re.sub(r"`(\w+)", lambda found: f"`{words.get(found[1], found[1])}", part)

    message, *hint = map(reworded, (problem.message, *problem.hint_parts))
    return InvalidInput((message,), hint=tuple(hint))


def _words_in(body: Mapping[str, object]) -> dict[str, str]:
    """Return the old words for new ones that fit how a stage is written; codefleet's come together."""
    is_codefleets = any(word in body for word in _CODEFLEETS_WORDS)
    return {
        new: old
        for old, new in _OLD_WORDS.items()
        if new not in body and (old in body or (is_codefleets and old in _CODEFLEETS_WORDS))
    }


def _too_many(count: int) -> InvalidInput:
    hint = "split it up, or use `foreach`" if count else "list at least one in `stages`"
    return InvalidInput(f"a workflow has 1 to {MOST_STAGES} stages, not {count}", hint=hint)


class _StageReader:
    """Reads one stage. Old words are translated first, so that there is one of each below."""

    def __init__(self, body: Mapping[str, object], number: int, place: _Place) -> None:
        self._name, self._number, self._place = place.names[number], number, place
        self._where = f"stage {self._name!r}"
        words = _words_in(body)
        fields = [one for one in Stage.__dataclass_fields__ if one not in ("needs", "foreach_from")]
        shown = [words.get(one, one) for one in ("depends_on", "workflow", *fields)]
        _refuse_unknown(body, (*shown, *fields, *_OLD_WORDS), self._where, shown=shown)
        self._body: dict[str, object] = {}
        for key, value in body.items():
            word = _OLD_WORDS.get(key, key)
            if word in self._body:
                old = next(one for one in body if _OLD_WORDS.get(one) == word)
                hint = f"keep `{word}`, and take `{old}` out"
                raise InvalidInput(f"{self._where} says `{word}` twice, once as `{old}`", hint=hint)
            if value is not None:
                self._body[word] = value

    def read(self) -> Stage:
        kind = self._choice("kind", StageKind, self._kind_by_content())
        is_retried = self._body.get("on_failure") == RETRY
        for key in AGENTS_ONLY if kind is not StageKind.AGENT else ():  # they would be written in vain
            if key in self._body or (key == "retries" and is_retried):
                told = 'on_failure = "retry"' if key not in self._body else key
                raise self._wrong(
                    f"`{told}` is for stages of the kind `agent`, and this is a `{kind}`",
                    "take it out, or put an agent's stage beside it",
                )
        if kind is StageKind.AGENT and self._place.usual_seconds is not None:
            self._body.setdefault("seconds", self._place.usual_seconds)
        each, is_one_gate = self._body.get("foreach", ()), isinstance(self._body.get("gates"), str)
        usual_rounds = 3 if kind is StageKind.PAIR or "until" in self._body else 1
        stage = Stage(
            name=self._name,
            kind=kind,
            coder=self._text("coder"),
            model=self._word_of("model"),
            effort=self._word_of("effort"),
            role=self._choice("role", Role, Role.DOER),
            flags=self._words("flags"),
            prompt=self._text("prompt") or ("" if kind is StageKind.GATE else "{task_prompt}"),
            strategy=self._choice("strategy", Strategy, Strategy.NEW),
            needs=self._needs(),
            when=self._condition("when"),
            foreach=() if isinstance(each, str) else self._words("foreach"),
            foreach_from=each if isinstance(each, str) else "",
            until=self._condition("until"),
            most_rounds=self._number_of("most_rounds", usual_rounds, most=MOST_ROUNDS),
            gates=(self._text("gates"),) if is_one_gate else self._words("gates"),
            retries=self._number_of("retries", USUAL_RETRIES if is_retried else -1, least=0, most=20),
            on_failure=OnFailure.FAIL if is_retried else self._policy(),
            seconds=self._amount("seconds"),
            budget_usd=self._amount("budget_usd") or None,
            reviewer=self._text("reviewer"),
            racers=self._number_of("racers", 0, least=0, most=50),
            coders=self._words("coders"),
            stages=self._inner() if kind is StageKind.WORKFLOW else (),
        )
        for reason, hint in self._problems(stage):
            raise self._wrong(reason, hint)
        return stage

    def _kind_by_content(self) -> StageKind:
        kinds = {
            "workflow": StageKind.WORKFLOW,
            "stages": StageKind.WORKFLOW,
            "reviewer": StageKind.PAIR,
            "racers": StageKind.RACE,
        }
        return next((kind for key, kind in kinds.items() if key in self._body), StageKind.AGENT)

    def _inner(self) -> tuple[Stage, ...]:
        if "stages" in self._body:
            inner: object = {"stages": self._body["stages"]}
        elif (named := self._text("workflow")) and self._place.within is not None:
            inner = self._place.within(named)
        else:
            raise self._wrong(
                "a stage of the kind `workflow` names one, or has `stages` of its own",
                'for example `workflow = "write-review-refine"`',
            )
        try:
            blueprint = read_blueprint(inner, within=self._place.within, depth=self._place.depth + 1)
        except InvalidInput as problem:
            raise InvalidInput(f"in {self._where}: {problem.message}", hint=problem.hint_parts) from problem
        return blueprint.stages

    def _needs(self) -> tuple[int, ...]:
        names, needs = self._place.names, dict[int, None]()
        for one in _list(self._body.get("depends_on", []), f"`depends_on` of {self._where}"):
            if isinstance(one, str) and one in names:
                number = names.index(one)
            elif isinstance(one, int) and not isinstance(one, bool) and 0 <= one < len(names):
                number = one
            else:
                close = get_close_matches(one, names, n=1) if isinstance(one, str) else []
                numbered = f"stages are numbered from 0 to {len(names) - 1}"
                hint = f"did you mean {close[0]!r}?" if close else numbered
                raise self._wrong(f"it depends on {_told(one)}, and there is no such stage", hint)
            if number == self._number:
                raise self._wrong("it depends on itself", "take it out of its own `depends_on`")
            needs[number] = None
        return tuple(needs)

    def _policy(self) -> OnFailure:
        value = self._text("on_failure") or OnFailure.FAIL
        if value not in list(OnFailure):
            words = ", ".join((*OnFailure, RETRY))
            raise self._wrong(f"there is no on_failure {_told(value)}", f"use one of {words}")
        return OnFailure(value)

    def _problems(self, stage: Stage) -> Iterator[tuple[str, str]]:
        """Yield what does not go together in a stage, each with a hint."""
        kind, gates = stage.kind, 'for example `gates = ["make test"]`'
        is_shared, is_repeated = stage.strategy is Strategy.SHARED, bool(stage.foreach or stage.foreach_from)
        if stage.strategy in (Strategy.INHERIT, Strategy.MERGE) and not stage.needs:
            hint = "name the stage that it builds on in `depends_on`, or leave `strategy` out"
            yield f"`strategy` {stage.strategy.value!r} needs a stage in `depends_on`", hint
        if is_shared and kind is not StageKind.AGENT:
            yield "only an agent can work in your own checkout", f'take `strategy` or `kind = "{kind}"` out'
        if kind is StageKind.GATE and not stage.gates:
            yield "a stage of the kind `gate` has at least one command in `gates`", gates
        if not all(map(str.strip, stage.gates)):
            yield "one of its `gates` is empty", gates
        if stage.role is Role.REVIEWER and stage.flags:
            hint = 'take `flags` out, or `role = "reviewer"`'
            yield "`flags` could undo what keeps a reviewer from writing", hint
        if kind is StageKind.PAIR and not stage.reviewer:
            yield "a stage of the kind `pair` names its `reviewer`", 'for example `reviewer = "codex"`'
        if kind is StageKind.PAIR and stage.until:
            yield "a pair goes round by itself", "take `until` out; `rounds` says how often at most"
        if kind is StageKind.RACE and not (stage.racers >= 2 and stage.gates):
            hint = 'for example `racers = 3` and `gates = ["make test"]`'
            yield "a stage of the kind `race` has at least 2 `racers`, and `gates`", hint
        if self._body.get("foreach") in ([], ()):
            yield "`foreach` has nothing in it", "list what to do it for, or leave it out"
        if is_shared and is_repeated:
            hint = "take `foreach` out, or choose another `strategy`"
            yield "in your own checkout there is one agent at a time", hint
        if kind in (StageKind.APPROVAL, StageKind.GATE) and is_repeated:
            yield f"a stage of the kind `{kind}` is not told for whom it is done", "take `foreach` out"
        if len(stage.foreach) > MOST_ITEMS:
            yield f"`foreach` has more than {MOST_ITEMS} items", "split them over several stages"
        if stage.most_rounds > 1 and not stage.until and kind is not StageKind.PAIR:
            hint = f"for example `until = '{self._name}.summary contains \"done\"'`"
            yield "`rounds` says how often at most; `until` says until when", hint
        if stage.until and is_repeated:
            hint = "put one of them into a workflow within: `stages` of the stage's own"
            yield "`until` and `foreach` do not go together", hint

    # values

    def _text(self, key: str) -> str:
        return _text(self._body, key, self._where)

    def _word_of(self, key: str) -> str:
        """Return what will be one word of a coder's command line, and must not be taken for an option."""
        word = self._text(key)
        if word.startswith("-"):
            raise self._wrong(f"`{key}` is {word!r}, which begins with a dash", "name one that there is")
        return word

    def _words(self, key: str) -> tuple[str, ...]:
        words: list[str] = []
        for one in _list(self._body.get(key, []), f"`{key}` of {self._where}"):
            is_number = isinstance(one, int | float) and not isinstance(one, bool) and abs(one) < LARGEST
            if not is_number and not isinstance(one, str):
                raise self._wrong(f"`{key}` is a list of texts", f'for example `{key} = ["one", "two"]`')
            words.append(_clean(str(one), key, self._where))
        return tuple(words)

    def _condition(self, key: str) -> str:
        condition = self._text(key)
        if condition:
            try:
                names_in(condition)
            except InvalidInput as problem:
                raise self._wrong(f"`{key}`: {problem.message}", problem.hint_parts) from problem
        return condition

    def _choice(self, key: str, kind: type[Choice], default: Choice) -> Choice:
        value = self._text(key)
        if not value:
            return default
        if value not in list(kind):
            raise self._wrong(f"there is no `{key}` {_told(value)}", f"use one of {', '.join(kind)}")
        return kind(value)

    def _number_of(self, key: str, default: int, *, least: int = 1, most: int) -> int:
        if key not in self._body:
            return default
        value = self._body[key]
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self._wrong(
                f"`{key}` is a whole number from {least} to {most}, not {_told(value)}",
                f"for example `{key} = {max(least, 1)}`",
            )
        return value

    def _amount(self, key: str) -> float:
        value = self._body.get(key) or 0.0
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= cast("float", value) < LARGEST:
            raise self._wrong(
                f"`{key}` is a number above 0, not {_told(value)}", f"for example `{key} = 600`"
            )
        return float(cast("float", value))

    def _wrong(self, reason: str, hint: Text) -> InvalidInput:
        return InvalidInput(f"{self._where}: {reason}", hint=hint)


def _check_references(stages: Sequence[Stage], number: int, names: Sequence[str]) -> None:
    """Refuse a stage that uses the result of one that need not be done before it."""
    stage, before = stages[number], workflows.ancestors(stages, number)
    where = f"stage {stage.name!r}"
    for written in misspelt_in(stage.prompt, names):
        hint = f"use one of {', '.join(FIELDS)}"
        raise InvalidInput(f"{where} uses {{{written}}}, and results have no such field", hint=hint)
    for written, reference in references_in(stage.prompt, names).items():
        is_own = reference.stage == number and bool(stage.until)
        if reference.stage not in before and not is_own:
            raise _too_early(where, f"{{{written}}}", names[reference.stage])
    own = names_in(stage.until) if stage.until else ()
    named = (*(names_in(stage.when) if stage.when else ()), *own, *filter(None, [stage.foreach_from]))
    for name in named:
        other, _, fact = name.rpartition(".")
        if other == "vars":
            continue
        numbered = re.fullmatch(r"stage_(\d{1,4})", other)
        index = names.index(other) if other in names else int(numbered[1]) if numbered else -1
        if not 0 <= index < len(names) or fact not in FACTS:
            hint = f"write `stage.field` with one of {', '.join(FACTS)}, or `vars.name`"
            raise InvalidInput(f"{where} asks for {name!r}, which nothing has", hint=hint)
        if index not in before and not (name in own and index == number):
            raise _too_early(where, name, names[index])


def _too_early(where: str, written: str, name: str) -> InvalidInput:
    hint = f"add {name!r} to its `depends_on`"
    return InvalidInput(f"{where} uses {written}, and {name!r} need not be done before it", hint=hint)


def _name_of(body: Mapping[str, object], number: int) -> str:
    name = body.get("name")
    if isinstance(name, str) and _NAME.fullmatch(name) and name.isprintable() and not name.isdigit():
        return name
    hint = """a name has 1 to 80 letters, not digits alone or stage_N, and none of { } . " ' ( ) = !"""
    raise InvalidInput(f"stage number {number} has no name that can be used: {_told(name)}", hint=hint)


def _refuse_unknown(
    body: Mapping[str, object], known: Sequence[str], where: str, *, shown: Sequence[str] = ()
) -> None:
    for key, value in body.items():
        if key not in known and value is not None:
            close = get_close_matches(key, known, n=1)
            names = ", ".join(sorted(shown or known))
            hint = f"did you mean `{close[0]}`?" if close else f"it may have {names}"
            raise InvalidInput(f"{where} has a key {_told(key)} that means nothing", hint=hint)


def _mapping(value: object, what: str) -> Mapping[str, object]:
    kind = type(value).__name__
    if isinstance(value, Mapping):
        body = cast("Mapping[object, object]", value)
        if all(isinstance(key, str) for key in body):
            return cast("Mapping[str, object]", body)
    hint = (Next("workflow.known"), " names files to begin with")
    raise InvalidInput(f"{what} is a set of keys and values, not {kind}", hint=hint)


def _list(value: object, what: str) -> Sequence[object]:
    if not isinstance(value, list | tuple):
        raise InvalidInput(f"{what} is a list, not {type(value).__name__}", hint="put it into brackets: [ ]")
    return cast("Sequence[object]", value)


def _text(body: Mapping[str, object], key: str, where: str) -> str:
    value = body.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        hint = "put it into quotes"
        raise InvalidInput(f"{where}: `{key}` is a text, not {type(value).__name__}", hint=hint)
    return _clean(value, key, where)


def _clean(text: str, key: str, where: str) -> str:
    """Return a text that can be written down and handed to a program; refuse any other."""
    if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise InvalidInput(f"{where}: `{key}` has a NUL or half of a letter in it", hint="take it out")
    return text


def _told(value: object) -> str:
    """Put a value into few words, however large it is."""
    if isinstance(value, str):
        return repr(value if len(value) <= 80 else f"{value[:79]}…")
    if isinstance(value, int) and abs(value) >= LARGEST:
        return "a large number"
    is_plain = value is None or isinstance(value, bool | int | float)
    return repr(value) if is_plain else f"a {type(value).__name__}"


def _texts(value: object) -> dict[str, str]:
    texts: dict[str, str] = {}
    for name, one in _mapping(value, "`variables`").items():
        is_number = isinstance(one, int | float) and abs(one) < LARGEST
        if not is_number and not isinstance(one, str):
            raise InvalidInput(
                f"`variables`: {_told(name)} is a text or a number, not {type(one).__name__}",
                hint="put it into quotes",
            )
        texts[name] = _clean(str(one).lower() if isinstance(one, bool) else str(one), name, "`variables`")
    return texts


def variables_used(stages: Sequence[Stage]) -> set[str]:
    """Return the names of all `vars.NAME` that stages ask for: in prompts, conditions and `foreach`."""
    used: set[str] = set()
    for stage in workflows.each_stage(stages):
        asked = [name for condition in (stage.when, stage.until) if condition for name in names_in(condition)]
        asked.append(stage.foreach_from)
        used.update(name.removeprefix("vars.") for name in asked if name.startswith("vars."))
        used.update(variables_in(stage.prompt))
    return used


def warnings_about(stages: Sequence[Stage]) -> tuple[str, ...]:
    """Return what a workflow does that its author has hardly meant, in words."""
    own = [
        f"no result has the work of {stages[lost].name!r}: {stages[last].name!r} comes later, and begins"
        " without it; let it inherit (the first of `depends_on`) or merge it"
        for lost, last in workflows.left_behind(stages)
    ]
    inner = [f"in stage {stage.name!r}: {one}" for stage in stages for one in warnings_about(stage.stages)]
    return (*own, *inner)


def with_usual_coder(stages: Sequence[Stage], coder: str) -> tuple[Stage, ...]:
    """Return stages in which nobody is missing: the usual coder stands in."""
    return workflows.map_stages(stages, lambda stage: replace(stage, coder=stage.coder or coder))


def with_usual_seconds(stages: Sequence[Stage], seconds: float) -> tuple[Stage, ...]:
    """Return stages in which every agent has a time limit of its own, or the usual one."""

    def limited(stage: Stage) -> Stage:
        is_agent = stage.kind is StageKind.AGENT
        return replace(stage, seconds=stage.seconds or seconds) if is_agent else stage

    return workflows.map_stages(stages, limited)
