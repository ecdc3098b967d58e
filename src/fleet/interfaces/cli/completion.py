"""`fleet completion`: let the shell complete commands, options and branches."""

from __future__ import annotations

import click

from fleet.interfaces.cli import render

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print a script that completes commands in your shell.

    \b
    Example:
      eval "$(fleet completion bash)"                                    # in ~/.bashrc
      eval "$(fleet completion zsh)"                                     # in ~/.zshrc
      fleet completion fish > ~/.config/fish/completions/fleet.fish
    """
    from click.shell_completion import ShellComplete, get_completion_class

    from fleet.interfaces.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None
    for name in ("fleet", "flt"):
        completer = kind(cli, {}, name, f"_{name.upper()}_COMPLETE")
        # The plain template: click's own bash class first starts bash to ask how old it is.
        render.out(ShellComplete.source(completer))
