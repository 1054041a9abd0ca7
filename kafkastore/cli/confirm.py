"""Ask for confirmation before anything is changed."""
from __future__ import annotations

import sys

import click

from kafkastore.cli.visible import visible
from kafkastore.errors import ChangeRefusedError


def check_can_confirm(option: str) -> None:
    """Refuse an option that needs confirmation if stdin is not a terminal."""
    if not sys.stdin.isatty():
        raise ChangeRefusedError(
            f"nothing was changed: nobody can be asked here; {option} needs --yes"
        )


def confirm(question: str, otherwise: str) -> None:
    """Ask a question; raise with the message `otherwise` if the answer is no."""
    if not click.confirm(visible(question), err=True):
        raise ChangeRefusedError(otherwise)
