"""``kafkastore completion``: print a script for the shell's own configuration."""
from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")
#: The variable by which the script asks this program for completions.
VARIABLE = "_KAFKASTORE_COMPLETE"


@click.command()
@click.argument("shell", metavar="|".join(SHELLS), type=click.Choice(SHELLS))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print a script with which the Tab key completes commands, paths and topics.

    In bash 4.4 or newer, add this line to ~/.bashrc: eval "$(kafkastore completion bash)"
    """
    kind = get_completion_class(shell)
    assert kind is not None  # click has these three
    click.echo(kind(context.find_root().command, {}, "kafkastore", VARIABLE).source())
