"""JSON lines: one object per line, UTF-8, on stdout or in a file."""
from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


_ENCODER = json.JSONEncoder(ensure_ascii=False)


def json_option(function: FunctionT) -> FunctionT:
    """Add ``--json``, passed as `as_json`."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Write JSON for machines, one object a line."
    )(function)


def json_line(value: Mapping[str, Any]) -> bytes:
    """Return an object as a line of JSON: UTF-8 with a newline.

    Text that is not valid Unicode, such as a path that is not UTF-8, is escaped.
    """
    try:
        return _ENCODER.encode(value).encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(value).encode() + b"\n"


def write_json(value: Mapping[str, Any]) -> None:
    """Write an object as a line of JSON to stdout."""
    sys.stdout.buffer.write(json_line(value))
