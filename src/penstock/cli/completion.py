"""``penstock completion``: a script for shell completion."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from penstock.cli.main import main


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print a script that makes SHELL complete penstock commands and options.

    \b
    Examples:
      penstock completion bash >> ~/.bashrc
      penstock completion zsh  >> ~/.zshrc
      penstock completion fish > ~/.config/fish/completions/penstock.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(main, {}, "penstock", "_PENSTOCK_COMPLETE").source())
