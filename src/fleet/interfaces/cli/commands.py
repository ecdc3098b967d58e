"""Commands made from operations: options from fields, one way to run and wait, and views of the outputs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click

from fleet.errors import BadConfig, InvalidInput, Next, StoreUnusable, TimedOut
from fleet.interfaces.cli import common, render
from fleet.interfaces.shell_syntax import long_option, shell_command
from fleet.operations.call import Call, perform
from fleet.operations.reading import of_text, read
from fleet.operations.registry import operation_named, operations_of
from fleet.operations.spec import Field, Operation, Shape

if TYPE_CHECKING:
    from fleet.domain.event import Json
    from fleet.domain.spawn import Caller
    from fleet.services.fleet import Fleet

NEEDS_PERSON = 5
_METAVARS = {"integer": "N", "number": "NUMBER", "table": "NAME=VALUE"}


def cleandoc(text: str) -> str:
    """Take the indentation off a text; `inspect.cleandoc` takes 10 ms to load."""
    return "\n".join(line.strip() for line in text.strip().splitlines())


class View(NamedTuple):
    """How the output of an operation looks on a terminal."""

    show: Callable[[Any], None]
    progress: Callable[[Any], str] | None = None  # its new lines are told while it is waited for
    exit_code: Callable[[Any], int] = lambda output: 0  # once it was waited for
    goes_on: str = ""  # what Ctrl-C does not end; "": the noun, with the commands that list and cancel it
    body: Callable[[Any], Json] | None = None  # what --json prints, where it is not the whole output
    then: str = ", then "  # between its follow-ups; ", or " where a person chooses one


def command(
    operation: type[Operation],
    view: View,
    *,
    name: str = "",
    waits: View | None = None,
    exit_code: Callable[[Any], int] = lambda output: 0,
    is_repair: bool = False,
) -> click.Command:
    """Make an operation's command, which takes --wait with `waits`; a repair works on a broken store, too."""
    meta = operation.meta
    params = _parameters(operation)
    if waits:
        params.append(common.flag("--wait", help="Wait for the end; the exit code tells how it went."))
    params.append(common.JSON)

    def run(*, as_json: bool, wait: bool = False, **given: Any) -> int:
        request = _request(operation, given)
        with common.opened() as fleet:
            output, follow_ups = _perform(request, fleet, is_repair=is_repair)
            if wait and waits:
                return _follow(fleet, operation_named(meta.follow), output.id, waits, as_json=as_json)
            shown = cast("list[Any]", output) if meta.is_list else [output]
            if meta.access == "read" and not as_json and any(one.needs_supervisor for one in shown):
                common.wake(fleet.home)
        _print(view, output, follow_ups, as_json=as_json)
        return exit_code(output)

    return common.Command(name or meta.verb, params=params, callback=run, help=_help(operation))


def diverted(
    made: click.Command, option: click.Option, other: Callable[[], click.Command], *, at: int = -1
) -> click.Command:
    """Give a command a flag with which it is another one, which takes some of its options."""
    usual = made.callback
    assert usual is not None
    made.params.insert(at, option)

    def run(**given: Any) -> Any:
        if not given.pop(str(option.name), False):
            return usual(**given)
        meant = other()
        assert meant.callback is not None
        taken = {param.name for param in meant.params}
        return meant.callback(**{name: value for name, value in given.items() if name in taken})

    made.callback = run
    return made


class Session:
    """An open fleet that a command written by hand asks for operations, several if it needs them."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet

    def ask(self, request: Operation) -> Any:
        """Carry an operation out; return its output."""
        return _perform(request, self.fleet)[0]

    def wake(self, *, if_needed_for: Iterable[Shape]) -> None:
        """Start a supervisor if none is up and something is not settled, and say so."""
        if not all(one.is_settled for one in if_needed_for):
            common.wake(self.fleet.home)


def by_hand(
    operation: type[Operation],
    run: Callable[..., int | None],
    *,
    name: str = "",
    extra: Sequence[click.Parameter] = (),
    has_json: bool = True,
) -> click.Command:
    """Make a command that no view can show; `run(session, request, …)` gets the extra parameters by name."""
    others = [*extra, *([common.JSON] if has_json else ())]

    def call(**given: Any) -> int | None:
        own = {str(param.name): given.pop(str(param.name)) for param in others}
        request = _request(operation, given)
        with common.opened() as fleet:
            return run(Session(fleet), request, **own)

    params = [*_parameters(operation), *others]
    return common.Command(name or operation.meta.verb, params=params, callback=call, help=_help(operation))


def said(tell: Callable[[Any], str]) -> View:
    """Return the view that tells of an output in one line."""

    def show(output: Any) -> None:
        render.out(tell(output))

    return View(show)


def list_view(noun: str, table: render.Table[Any], *, start: str) -> View:
    """Return the view of a list as a table; `start` is the command that starts what it lists."""

    def show(items: list[Any]) -> None:
        is_all = click.get_current_context().params.get("all")
        old = "" if is_all else f", see old ones with `fleet {noun} list --all`"
        empty = f"no {noun}{'' if is_all else ' under way'}; start one with `{start}`{old}"
        table.show(items, empty=empty)

    return View(show)


def wait_command(
    operation: type[Operation],
    view: View,
    *,
    codes: str = "",
    example: str = "ID",
    is_busy: Callable[[Any], bool] = lambda work: not work.is_settled,
) -> click.Command:
    """Make the command that waits until what an operation shows is settled; `codes` tells its exit codes."""

    def run(*, as_json: bool, timeout: float | None, **given: Any) -> int:
        request = _request(operation, given)
        with common.opened() as fleet:
            output, _ = _perform(request, fleet)
            if is_busy(output):
                common.wake(fleet.home)
            return _follow(fleet, operation, output.id, view, as_json=as_json, timeout=timeout)

    noun = operation.meta.noun
    help_ = f"Wait until a {noun} has ended, or needs a person.\n\n{cleandoc(codes)}".strip()
    help_ += f"\n\n\b\nExample:\n  fleet {noun} wait {example}"
    made = common.Command("wait", params=_parameters(operation), callback=run, help=help_)
    return common.json_option(common.timeout_option(made))


class NounGroup(click.Group):
    """The commands of a noun. Alone it is its list; `start` need not be named: `race 3` is `race start 3`."""

    def __init__(self, name: str, *, help: str, example: str, commands: Sequence[click.Command]) -> None:
        super().__init__(
            name,
            help=f"{cleandoc(help)}\n\n\b\nExample:\n  {example}",
            commands={str(one.name): one for one in commands},
            params=[common.JSON],
            invoke_without_command=True,
            callback=self._alone,
        )

    def _alone(self, *, as_json: bool) -> int | None:
        context = click.get_current_context()
        if context.invoked_subcommand is None:
            return cast("int", context.invoke(self.commands["list"], all=False, as_json=as_json))
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in self.commands or args[0].startswith("-") or "start" not in self.commands:
            return super().resolve_command(ctx, args)
        return "start", self.commands["start"], args


def plain_group(noun: str, *, help: str) -> NounGroup:
    """Make the commands of a kind of work that has no views of its own: values by name, lists as tables."""
    operations = operations_of(noun)
    shown = View(
        _show_values, exit_code=_plain_exit_code, goes_on=f"it goes on; `fleet {noun} list` shows it"
    )
    made = [
        command(one, _key_table(one) if one.meta.is_list else shown, waits=shown if one.meta.follow else None)
        for one in operations.values()
    ]
    made.append(wait_command(operations["show"], shown))
    return NounGroup(noun, help=help, example=f"fleet {noun} list --all", commands=made)


def _show_values(output: Any) -> None:
    for name, value in output.to_json().items():
        text = value if isinstance(value, str) else render.json_text(value)
        if value not in (None, "", [], {}):
            render.out(f"{name:14} {render.printable(text)}")


def _plain_exit_code(output: Any) -> int:
    if getattr(output, "needs_person", False):
        return NEEDS_PERSON
    return 1 if output.state in ("failed", "cancelled") else 0


def _key_table(operation: type[Operation]) -> View:
    def column(name: str) -> Callable[[Any], str]:
        return lambda item: str(getattr(item, name))

    noun, fields = operation.meta.noun, operation.meta.output.fields
    columns = {name: column(name) for name, field in fields.items() if field.key}
    return list_view(noun, render.Table(columns), start=f"fleet {noun} start")


# from words to a request


def _parameters(operation: type[Operation]) -> list[click.Parameter]:
    fields = [field for field in operation.fields.values() if field.cli]
    arguments = sorted((field for field in fields if field.position), key=lambda field: field.position)
    options = [field for field in fields if not field.position]
    return [
        *(_argument(field) for field in arguments),
        *(_file_option(field) for field in arguments if field.file_option),
        *(one for field in options for one in _options(field)),
    ]


def _argument(field: Field) -> click.Argument:
    name = f"{field.metavar or field.name.upper()}{'...' if field.many else ''}"
    # To click, an argument with a default is never missing, not even if the default is None.
    default = {} if field.is_required or field.many else {"default": field.default}
    return click.Argument(
        [field.name],
        nargs=-1 if field.many else 1,
        required=field.is_required and not field.file_option,
        **default,
        metavar=name if field.is_required else f"[{name}]",
        shell_complete=common.completing(field.complete, field.choices),
    )


def _options(field: Field) -> list[click.Option]:
    long = long_option(field)
    if field.flags:
        return [
            click.Option([f"--{word}", f"{field.name}_{word}"], is_flag=True, help=text)
            for word, text in zip(field.choices, field.help.split("|"), strict=True)
        ]
    words = [long, field.name, *([f"-{field.short}"] if field.short else ())]
    if field.kind == "flag":
        return [click.Option(words, is_flag=True, help=field.help)]
    default = field.default_text or (field.default if isinstance(field.default, str | int | float) else "")
    several = field.kind in ("strings", "table") and not field.split
    metavar = field.metavar or "|".join(field.choices) or _METAVARS.get(field.kind)
    made = [
        click.Option(
            words,
            multiple=several,
            metavar=metavar,
            help=field.help + ("" if default == "" else f" [default: {default}]"),
            shell_complete=common.completing(field.complete, field.choices),
        )
    ]
    if field.file:
        made.append(_file_option(field))
    return made


def _file_option(field: Field) -> click.Option:
    text = f"Read the {field.name} from a file (- for stdin)."
    return click.Option([_file_word(field), f"{field.name}_file"], metavar="FILE", help=text)


def _file_word(field: Field) -> str:
    return f"--{field.file_option}" if field.file_option else f"{long_option(field)}-file"


def _help(operation: type[Operation]) -> str:
    meta = operation.meta
    parts = [meta.summary, meta.details, "\b\nExample:\n" + "\n".join(f"  {line}" for line in meta.examples)]
    return "\n\n".join(part for part in parts if part)


def _spelled(field: Field) -> str:
    return (field.metavar or field.name.upper()) if field.position else long_option(field)


def _request(operation: type[Operation], given: Mapping[str, Any]) -> Operation:
    values = {
        name: value
        for name, field in operation.fields.items()
        if field.cli and (value := _value(field, given)) is not None
    }
    return read(operation, values, spell=_spelled, longest_text=None)


def _value(field: Field, given: Mapping[str, Any]) -> Any:
    """Return what the words of a command line say of a field; None if they say nothing."""
    if field.flags:
        said = [word for word in field.choices if given.get(f"{field.name}_{word}")]
        if len(said) > 1 or (field.is_required and not said):
            *others, last = (f"--{word}" for word in field.choices)
            raise InvalidInput(f"give one of {', '.join(others)} and {last}")
        return said[0] if said else None
    value = given.get(field.name)
    if field.file and field.position:  # the argument is the file
        return _text_or_file(field, None, value)
    if field.stdin and value == "-":
        return common.read_text("-")
    if field.file or field.file_option:
        return _text_or_file(field, value, given.get(f"{field.name}_file"))
    if value is None or (field.kind in ("strings", "table") and not value):
        return None
    if field.kind == "table":
        return dict(_pair(field, word) for word in value)
    if field.split:
        return [word.strip() for word in value.split(",") if word.strip()]
    return of_text(field, value, _spelled(field)) if isinstance(value, str) else value


def _pair(field: Field, word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals and field.bare:
        return "", word
    if not equals or not name:
        long = long_option(field)
        raise InvalidInput(f"{long} {word!r} is not NAME=VALUE", hint=f"for example `{long} area=billing`")
    return name, value


def _text_or_file(field: Field, text: str | None, file: str | None) -> str | None:
    if text is not None and file is not None:
        raise InvalidInput(f"give {_spelled(field)} or {_file_word(field)}, not both")
    if text is None and file is None and field.is_required:
        short = f"-{field.short} " if field.short else "" if field.position else f"{long_option(field)} "
        raise InvalidInput(f"missing {field.name}", hint=f'add {short}"…", or {_file_word(field)} FILE')
    return text if file is None else common.read_text(file)


# carrying it out


def identify(fleet: Fleet) -> Caller:
    """Identify who runs this process, by its ancestors; `Refused` if it claims a run that is not its own."""
    from fleet.bootstrap import own_ancestry, own_mark

    return fleet.spawns.identify(own_mark(), own_ancestry(), user=_user())


def _user() -> str:
    return os.environ.get("USER") or os.environ.get("LOGNAME") or "a person"


def _identify_for_repair(fleet: Fleet) -> Caller:
    """Identify who repairs a fleet: where it cannot say, whoever has no mark of a run is a person."""
    from fleet.bootstrap import is_of_agent
    from fleet.domain.spawn import Caller

    try:
        return identify(fleet)
    except (BadConfig, StoreUnusable):
        if is_of_agent():
            raise
        return Caller(user=_user())


def _perform(request: Operation, fleet: Fleet, *, is_repair: bool = False) -> tuple[Any, list[Next]]:
    from fleet.bootstrap import open_fleet

    return perform(
        request,
        Call(fleet, _identify_for_repair if is_repair else identify),
        request.meta,
        vars(request),
        reopen=lambda folder: open_fleet(fleet.home, folder, {}, make_store=lambda: fleet.store),
        from_conversation=False,
    )


def _follow(
    fleet: Fleet,
    operation: type[Operation],
    name: str,
    view: View,
    *,
    as_json: bool,
    timeout: float | None = None,
) -> int:
    """Wait until something is settled, tell how it goes, and print it as it is then."""
    from fleet.services.waiting import each_change

    (id_field,) = (field for field in operation.fields.values() if field.position == 1)
    request, call = operation(**{id_field.name: name}), Call(fleet, identify)
    noun = operation.meta.noun
    usual = (
        f"the {noun} goes on in the background; `fleet {noun} list` shows it, `fleet {noun} cancel` ends it"
    )
    told = list[str]()
    with common.leaving(view.goes_on or usual):
        for _ in each_change(fleet, timeout_seconds=timeout):
            output, follow_ups = request(call)
            lines = view.progress(output).splitlines() if view.progress and not as_json else []
            for line in lines:
                if line not in told:
                    is_warning = line.startswith("warning: ")
                    render.say(line if is_warning else f"{render.clock(time.time())}  {line}")
            told = lines
            if output.is_settled:
                break
        else:
            raise TimedOut(f"{noun} {name} is still at work after {timeout:g} s", hint="wait again")
    _print(view, output, follow_ups, as_json=as_json)
    return view.exit_code(output)


def _print(view: View, output: Any, follow_ups: Sequence[Next], *, as_json: bool) -> None:
    if as_json:
        render.out_json(view.body(output) if view.body else output)
        return
    view.show(output)
    if follow_ups:
        render.say(f"next: {view.then.join(f'`{shell_command(one)}`' for one in follow_ups)}")
