"""Set a project up, configure it, and check what it needs: `init`, `config`, `doctor`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from fleet.errors import Failed, InvalidInput, UnusableRepository
from fleet.interfaces.cli import render
from fleet.interfaces.cli.commands import Session, View, by_hand, command, said
from fleet.interfaces.cli.common import confirm, flag, opened, require_person
from fleet.operations import setup as ops
from fleet.services.presets import PROJECT_TYPES

_VERDICT_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


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

    require_person()
    top = _project_top()
    older = read_older_files(top, with_global=migrate_legacy)
    plan = plan_init(top, type_, older=older, force=force)
    render.say(f"{'replaces' if plan.overwrites else 'writes'} {plan.file} (a {plan.type} project):")
    for line in plan.text.splitlines():
        render.say(f"  {line}")
    for sentence in plan.imports:
        render.say(f"takes over {sentence}")
    for sentence in plan.notes:
        render.say(sentence)
    if plan.gitignore_lines:
        render.say(f"adds to {plan.gitignore}: {', '.join(plan.gitignore_lines)}")
    confirm(f"Write {plan.file}?", is_sure=yes, flag="--yes")
    apply_init(plan)
    render.out(f"wrote {plan.file}")
    render.say('next: fleet doctor, then fleet create BRANCH -p "what the agent is to do"')


def _project_top() -> Path:
    """Return the top of the user's own checkout, also from inside a workspace of it."""
    from fleet.bootstrap import project_of, repository_at

    project = project_of(".")
    if project is None:
        hint = "run `git init`, or change into one"
        raise UnusableRepository(f"{Path.cwd()} is not inside a git repository", hint=hint)
    return Path(repository_at(".").top) if (project / ".git").is_file() else project


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
        context.invoke(validate, as_json=False)
    elif context.invoked_subcommand is None:
        context.invoke(show, origin=show_origin, as_json=False)


def _show_settings(session: Session, request: ops.ShowConfig, *, origin: bool, as_json: bool) -> None:
    import json

    settings: list[ops.Setting] = session.ask(request)
    if as_json:
        render.out_json(settings)
        return
    rows = [(one.key, json.dumps(one.value, ensure_ascii=False), one.origin) for one in settings]
    render.Table(render.cells("setting", "value", *(["origin"] if origin else []))).show(rows)


def _show_check(check: ops.ConfigCheck) -> None:
    render.warn(check.warnings)
    render.out("the configuration is valid")


def _show_files(files: ops.ConfigFiles) -> None:
    found = (("user", files.user), ("project", files.project))
    rows = [(whose, file.path, "" if file.exists else "not there yet") for whose, file in found if file]
    render.Table(render.cells("whose", "file", "state")).show(rows)


show = by_hand(
    ops.ShowConfig, _show_settings, extra=[flag("--origin", help="Also show where each value comes from.")]
)
validate = command(ops.ValidateConfig, View(_show_check))
config.add_command(show)
changed = said(lambda change: f"{change.key} is set in {change.file}")
config.add_command(command(ops.SetConfig, changed, is_repair=True))
config.add_command(validate)
config.add_command(command(ops.ShowConfigFiles, View(_show_files)))


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

    require_person()
    if not render.is_terminal(sys.stdin):
        raise InvalidInput("an editor needs a terminal", hint="use `fleet config set KEY VALUE`")
    with opened() as fleet:
        file = fleet.config.file(for_user=user)
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        code = subprocess.run([*shlex.split(editor), str(file)], check=False).returncode
    except OSError as error:
        hint = "set EDITOR"
        raise Failed(f"the editor {editor!r} cannot be started: {error.strerror}", hint=hint) from error
    if code != 0:
        raise Failed(f"the editor {editor!r} ended with exit code {code}")
    with opened() as fleet:
        check = Session(fleet).ask(ops.ValidateConfig())
    _show_check(check)


def _show_health(checks: list[ops.Check]) -> None:
    widest = max(len(check.name) for check in checks)
    for check in checks:
        verdict = render.paint(f"{check.verdict:4}", _VERDICT_COLOURS[check.verdict])
        render.out(f"{verdict}  {check.name:{widest}}  {render.printable(check.found)}")
        if check.fix:
            render.out(f"{'':{widest + 6}}  → {check.fix}")


doctor = command(
    ops.RunDoctor,
    View(_show_health),
    name="doctor",
    exit_code=lambda checks: 1 if any(check.is_broken for check in checks) else 0,
)
