"""Parsers of option values, which come as texts by lower-case names, and their errors."""
from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from kafkastore.arguments import INT64_MAX
from kafkastore.errors import KafkaStoreError

#: The working directory of a Spark Connect session's Python, deleted with the session.
_FOLDER_OF_A_SESSION = re.compile(r"/(userFiles|artifacts)-[0-9a-f-]{36}(/|$)")


class OptionError(KafkaStoreError, ValueError):
    """An option is unknown, cannot be parsed, or contradicts another one."""


def must_be(name: str, like: str, given: str) -> OptionError:
    """Return the error that says what an option's value must look like."""
    return OptionError(f"option {name} must be {like}, not {given or 'empty'}")


def absolute(path: str) -> str:
    """Return an absolute path, because tasks may run in another working directory than the planner.

    Raises `OptionError` if the path is relative to a temporary folder of a Spark Connect session.
    """
    if not os.path.isabs(path) and _FOLDER_OF_A_SESSION.search(os.getcwd()):
        raise OptionError(
            f"path {path} is relative, and the folder is one that Spark Connect removes at the "
            "session's end: give an absolute path"
        )
    return os.path.abspath(path)


def json_value(options: Mapping[str, str], name: str, like: str, default: str | None = None) -> Any:
    """Parse an option that is JSON, such as `like`."""
    text = options.get(name.lower(), default)
    assert text is not None  # the caller has checked
    try:
        return json.loads(text)
    except ValueError:
        raise must_be(name, like, text) from None


def words(text: str) -> list[str]:
    """Split a text at commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def choice(options: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """Return an option that is one of `choices`; the first of them if it is not given."""
    value = options.get(name.lower(), choices[0]).strip().lower()
    if value not in choices:
        raise OptionError(f"option {name} must be {' or '.join(choices)}, not {value}")
    return value


def boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Parse an option that is true or false."""
    choices = ("true", "false") if default else ("false", "true")
    return choice(options, name, choices) == "true"


def integer(options: Mapping[str, str], name: str, *, smallest: int) -> int:
    """Parse an option that is an integer."""
    text = options[name.lower()].strip()
    try:
        value = int(text)
    except ValueError:
        value = smallest - 1
    if not smallest <= value <= INT64_MAX:
        raise OptionError(f"option {name} must be an integer of at least {smallest}, not {text}")
    return value


def at_least_one(options: Mapping[str, str], name: str) -> int | None:
    """Parse an option that is an integer of at least 1; None if it is not given."""
    return integer(options, name, smallest=1) if name.lower() in options else None
