"""The values that options have, out of texts by names in lower case, and what is wrong there."""
from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from kafkastore.arguments import INT64_MAX
from kafkastore.errors import KafkaStoreError

#: Where Spark Connect has a session's Python work; it goes with the session.
_FOLDER_OF_A_SESSION = re.compile(r"/(userFiles|artifacts)-[0-9a-f-]{36}(/|$)")


class OptionError(KafkaStoreError, ValueError):
    """An option that is not known, cannot be read, or contradicts another."""


def must_be(name: str, like: str, given: str) -> OptionError:
    """Say what an option's value looks like."""
    return OptionError(f"option {name} must be {like}, not {given or 'empty'}")


def absolute(path: str) -> str:
    """Return a path as tasks find it, which may run in another folder than the planner.

    Raises
    ------
    OptionError
        If it is relative to a folder that nobody chose, and that is removed.
    """
    if not os.path.isabs(path) and _FOLDER_OF_A_SESSION.search(os.getcwd()):
        raise OptionError(
            f"path {path} is relative, and the folder is one that Spark Connect removes at the "
            "session's end: give an absolute path"
        )
    return os.path.abspath(path)


def json_value(options: Mapping[str, str], name: str, like: str, default: str | None = None) -> Any:
    """Read an option that is JSON, such as `like`."""
    text = options.get(name.lower(), default)
    assert text is not None  # the caller looked
    try:
        return json.loads(text)
    except ValueError:
        raise must_be(name, like, text) from None


def words(text: str) -> list[str]:
    """Read words by commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def choice(options: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """Read an option that is one of some words; the first where it is not given."""
    value = options.get(name.lower(), choices[0]).strip().lower()
    if value not in choices:
        raise OptionError(f"option {name} must be {' or '.join(choices)}, not {value}")
    return value


def boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Read an option that is true or false."""
    choices = ("true", "false") if default else ("false", "true")
    return choice(options, name, choices) == "true"


def integer(options: Mapping[str, str], name: str, *, smallest: int) -> int:
    """Read an option that is a whole number."""
    text = options[name.lower()].strip()
    try:
        value = int(text)
    except ValueError:
        value = smallest - 1
    if not smallest <= value <= INT64_MAX:
        raise OptionError(f"option {name} must be an integer of at least {smallest}, not {text}")
    return value


def at_least_one(options: Mapping[str, str], name: str) -> int | None:
    """Read an option that is a whole number from 1 on; None where it is not given."""
    return integer(options, name, smallest=1) if name.lower() in options else None
