"""Set a project up, and configure it: `init`, `config`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fleet.errors import BadConfig, Failed, FleetError, InvalidInput, UnusableRepository
from fleet.interfaces.cli import render
from fleet.interfaces.cli.common import caller, confirm, json_option, opened, own_run
from fleet.services.presets import PROJECT_TYPES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from click.shell_completion import CompletionItem

    from fleet.config import Settings
    from fleet.services.setup import InitPlan, Row


@click.command()
@click.option(
    "--type", "type_", type=click.Choice(PROJECT_TYPES), help="[default: told by the files at the top]"
)
@click.option("--migrate-legacy", is_flag=True, help="Take over ~/.ai_fleet/config.toml too.")
@click.option("--force", is_flag=True, help="Replace a configuration that is there.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def init(type_: str | None, migrate_legacy: bool, force: bool, yes: bool) -> None:
    """Prepare this project for agents.

    Writes .fleet/config.toml: which files to copy into each workspace, and which commands set it up.
    Shows what it will write, and asks.

    \b
    Example:
      fleet init --type node --yes
    """
    from fleet.compat.aifleet import read_older_files
    from fleet.services.setup import apply_init, plan_init

    top = _project_top()
    older = read_older_files(top, with_global=migrate_legacy)
    plan = plan_init(top, type_, older=older, force=force)
    _show_plan(plan)
    confirm(f"Write {plan.file}?", is_sure=yes, flag="--yes")
    apply_init(plan)
    render.out(f"wrote {plan.file}")
    render.say('next: fleet doctor, then fleet create BRANCH -p "what the agent is to do"')


def _project_top() -> Path:
    """Return the top of the user's own checkout, also from inside a workspace of it."""
    from fleet.bootstrap import project_of, repository_at

    project = project_of(".")
    if project is None:
        raise UnusableRepository(
            f"{Path.cwd()} is not inside a git repository", hint="run `git init`, or change into one"
        )
    if (project / ".git").is_file():
        return Path(repository_at(".").top)
    return project


def _show_plan(plan: InitPlan) -> None:
    render.say(f"{'replaces' if plan.overwrites else 'writes'} {plan.file} (a {plan.type} project):")
    for line in plan.text.splitlines():
        render.say(f"  {line}")
    for sentence in plan.imports:
        render.say(f"takes over {sentence}")
    if plan.gitignore_lines:
        render.say(f"adds to {plan.gitignore}: {', '.join(plan.gitignore_lines)}")


@click.group(invoke_without_command=True)
@click.option("-e", "--edit", "is_edit", is_flag=True, help="The same as `config edit`.")
@click.option("-v", "--validate", "is_validate", is_flag=True, help="The same as `config validate`.")
@click.option("--show-origin", is_flag=True, help="The same as `config show --origin`.")
@click.pass_context
def config(context: click.Context, is_edit: bool, is_validate: bool, show_origin: bool) -> None:
    """Show, change and check the configuration.

    Alone it is `config show`. Values come from defaults, the file in fleet's home, the project's
    file, FLEET_… variables and flags; the later ones win.

    \b
    Example:
      fleet config set coder.default codex
    """
    asked = is_edit + is_validate + show_origin
    if asked > 1 or (asked and context.invoked_subcommand):
        raise InvalidInput("give one thing to do", hint="run `fleet config --help`")
    if is_edit:
        context.invoke(edit)
    elif is_validate:
        context.invoke(validate)
    elif context.invoked_subcommand is None:
        context.invoke(show, origin=show_origin)


@config.command()
@click.option("--origin", is_flag=True, help="Also where each value comes from.")
@json_option
def show(origin: bool, as_json: bool) -> None:
    """Show every setting in force.

    \b
    Example:
      fleet config show --origin
    """
    from fleet.interfaces import wire
    from fleet.services import setup

    settings = _settings()
    rows = setup.show(settings)
    if as_json:
        render.out_json([wire.setting(row) for row in rows])
    else:
        _show_rows(rows, origin=origin)
    for warning in settings.warnings:
        render.say(f"warning: {warning}")


def _show_rows(rows: Sequence[Row], *, origin: bool) -> None:
    import json

    from fleet.interfaces import wire

    def text(row: Row) -> str:
        return render.printable(json.dumps(wire.setting_value(row), ensure_ascii=False))

    if origin:
        render.show_table(("setting", "value", "origin"), [(row.key, text(row), row.origin) for row in rows])
    else:
        render.show_table(("setting", "value"), [(row.key, text(row)) for row in rows])


def _complete_key(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from fleet import plugins
    from fleet.config import CODER_SETTINGS, SETTINGS

    helps = {key: setting.help for key, setting in SETTINGS.items()}
    try:
        for name in plugins.coder_names(_settings()):
            helps |= {f"coders.{name}.{key}": setting.help for key, setting in CODER_SETTINGS.items()}
    except (FleetError, OSError):
        pass  # the keys that need no coder are known all the same
    return [CompletionItem(key, help=text) for key, text in helps.items() if key.startswith(incomplete)]


@config.command("set")
@click.argument("key", shell_complete=_complete_key)
@click.argument("value")
@click.option("--user", is_flag=True, help="In the file of fleet's home, for all projects.")
def set_(key: str, value: str, user: bool) -> None:
    """Set one value in the project's file.

    Everything else in the file stays as it is. A list is one entry, or a TOML array.

    \b
    Example:
      fleet config set setup.commands '["npm ci", "npm run build"]'
      fleet config set limits.min_free_mb 2000 --user
    """
    from fleet.config import find_setting
    from fleet.services.setup import set_value

    setting = find_setting(key)
    if setting and setting.is_of_home and not user:
        raise InvalidInput(f"{key} holds for all projects", hint="add --user to set it for all of them")
    _check_coder(key, value)
    file = _file(user=user)
    set_value(file, key, value)
    render.out(f"{key} is set in {file}")
    _tell_supervisor(file)


def _tell_supervisor(file: Path) -> None:
    """Have a supervisor that is up look at once: there may be room for more by now."""
    from fleet.bootstrap import home_folder, supervisor_link_of

    link = supervisor_link_of(home_folder())
    if not link.is_open():
        return
    with opened() as fleet:
        if not own_run(fleet):  # a person's: it holds no agent that is at work meanwhile
            for name in {str(file), str(file.resolve())}:
                fleet.boundary.accept_file(name, caller(fleet))
    link.wake()


def _check_coder(key: str, value: str) -> None:
    """Refuse to name a coder that there is not."""
    is_fallback = key.startswith("coders.") and key.endswith(".fallback")
    if not value or not (is_fallback or key == "coder.default"):
        return
    from fleet import plugins

    known = plugins.coder_names(_settings())
    if value not in known:
        raise InvalidInput(
            f"there is no coder {value!r}",
            hint=f"choose one of {', '.join(known)}, or define [coders.{value}] first",
        )


@config.command()
@click.option("--user", is_flag=True, help="The file of fleet's home, for all projects.")
def edit(user: bool = False) -> None:
    """Open the project's file in your editor ($VISUAL, $EDITOR), and check it.

    \b
    Example:
      fleet config edit --user
    """
    import shlex
    import subprocess

    if not render.is_terminal(sys.stdin):
        raise InvalidInput("an editor needs a terminal", hint="use `fleet config set KEY VALUE`")
    file = _file(user=user)
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        code = subprocess.run([*shlex.split(editor), str(file)], check=False).returncode
    except OSError as error:
        raise Failed(
            f"the editor {editor!r} cannot be started: {error.strerror}", hint="set EDITOR"
        ) from error
    if code != 0:
        raise Failed(f"the editor {editor!r} ended with exit code {code}")
    _validate()


@config.command()
def validate() -> None:
    """Check the configuration files.

    \b
    Example:
      fleet config validate
    """
    _validate()


def _validate() -> None:
    from fleet.bootstrap import home_folder, load_settings, project_of

    project = project_of(".")
    settings = load_settings(home_folder(), project, strict=True)
    for file in settings.credential_files:
        if project and not (project / file).exists():
            render.say(f"warning: setup.credential_files names {file!r}, which is not in {project}")
    _check_coders(settings)
    render.out("the configuration is valid")


def _check_coders(settings: Settings) -> None:
    """Let each coder that the files describe check its own table."""
    from fleet import plugins
    from fleet.errors import NotFound

    for name in {settings.coder_default, *settings.coder_names()}:
        try:
            plugins.coder_named(name, settings)
        except NotFound as error:
            raise BadConfig(settings.origin("coder.default"), error.message) from error
    known = plugins.coder_names(settings)
    for name in settings.coder_names():
        fallback, key = settings.coder_fallback(name), f"coders.{name}.fallback"
        if fallback and fallback not in known:
            raise BadConfig(settings.origin(key), f"{key} names {fallback!r}, and there is no such coder")


@config.command()
@json_option
def path(as_json: bool) -> None:
    """Show which files hold the configuration.

    \b
    Example:
      fleet config path
    """
    from fleet.bootstrap import home_folder, project_of
    from fleet.config import project_file, user_file
    from fleet.interfaces import wire

    project = project_of(".")
    files = {"user": user_file(home_folder()), "project": project_file(project) if project else None}
    if as_json:
        render.out_json(wire.paths(files))
        return
    rows = [
        (name, str(file), "" if file.exists() else "not there yet") for name, file in files.items() if file
    ]
    render.show_table(("whose", "file", "state"), rows)


def _settings() -> Settings:
    from fleet.bootstrap import home_folder, load_settings, project_of

    return load_settings(home_folder(), project_of("."))


def _file(*, user: bool) -> Path:
    from fleet.bootstrap import home_folder, project_of
    from fleet.config import require_plain, user_file

    if user:
        return user_file(home_folder())
    project = project_of(".")
    if project is None:
        raise InvalidInput(f"{Path.cwd()} is not inside a project", hint="add --user to mean all projects")
    return require_plain(project, "config.toml")
