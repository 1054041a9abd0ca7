"""Asking before something is altered."""
from __future__ import annotations

import sys

import click

from kafkastore.cli.visible import visible
from kafkastore.errors import ChangeRefusedError


def check_can_confirm(option: str) -> None:
    """Refuse where nobody sits at a terminal.

    Parameters
    ----------
    option : str
        What would have to be confirmed.

    Raises
    ------
    ChangeRefusedError
        If stdin is no terminal.
    """
    if not sys.stdin.isatty():
        raise ChangeRefusedError(
            f"nothing was changed: nobody can be asked here; {option} needs --yes"
        )


def confirm(question: str, otherwise: str) -> None:
    """Ask a question that is answered by yes or no.

    Parameters
    ----------
    question : str
        The question.
    otherwise : str
        What to say if the answer is no.

    Raises
    ------
    ChangeRefusedError
        If it is.
    """
    if not click.confirm(visible(question), err=True):
        raise ChangeRefusedError(otherwise)
