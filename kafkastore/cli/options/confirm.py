"""Ask for confirmation before anything is changed."""
from __future__ import annotations

import sys

import click

from kafkastore.errors import ChangeRefusedError
from kafkastore.shown_text import escape_control_characters


def check_can_confirm(option: str) -> None:
    """Refuse an option that needs confirmation if stdin is not a terminal."""
    if not sys.stdin.isatty():
        raise ChangeRefusedError(
            f"nothing was changed: stdin is not a terminal; add --yes to {option}"
        )


def confirm(question: str, otherwise: str) -> None:
    """Ask a question; raise with the message `otherwise` if the answer is no."""
    if not click.confirm(escape_control_characters(question), err=True):
        raise ChangeRefusedError(otherwise)
