"""Whether secrets are printed."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def show_secrets_option(function: FunctionT) -> FunctionT:
    """Add ``--show-secrets``, passed as `show_secrets`."""
    return click.option(
        "--show-secrets", is_flag=True,
        help="Print salts and keys of users and passwords in configurations, instead of masking "
        "them.",
    )(function)
