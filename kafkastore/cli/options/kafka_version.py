"""The option ``--kafka-version`` of commands that follow a broker."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from kafkastore.versions import NEWEST_VERSION, UnknownVersionError, parse_version

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def _check_version(context: click.Context, parameter: click.Parameter, version: str) -> str:
    try:
        parse_version(version)
    except UnknownVersionError as error:
        meant = version.strip().lower().removeprefix("kafka").strip("- v")
        hint = f"; did you mean {meant}?" if _is_known(meant) else ""
        raise click.BadParameter(f"{error}{hint}") from None
    return version


def _is_known(version: str) -> bool:
    try:
        parse_version(version)
    except UnknownVersionError:
        return False
    return True


def kafka_version_option(help_text: str) -> Callable[[FunctionT], FunctionT]:
    """Return a decorator that adds ``--kafka-version``, passed as `version`."""
    return click.option(
        "--kafka-version", "version", default=NEWEST_VERSION, show_default=True,
        callback=_check_version, metavar="VERSION", help=help_text,
    )
