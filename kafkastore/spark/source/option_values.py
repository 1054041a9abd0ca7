"""Parsers of option values, which are texts by lower-case names, and errors."""
from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from kafkastore.arguments import INT64_MAX
from kafkastore.errors import KafkaStoreError
from kafkastore.formats.primitives.json_text import parse_json
from kafkastore.shown_text import similar_names

#: The working directory of a Spark Connect session's Python, deleted with the session.
_FOLDER_OF_A_SESSION = re.compile(r"/(userFiles|artifacts)-[0-9a-f-]{36}(/|$)")


class OptionProblem(StrEnum):
    """A problem with an option, a column or a schema."""

    UNKNOWN = "unknown"
    """There is no such option or column."""
    REFUSED = "refused"
    """Spark's Kafka source refuses the option too."""
    VALUE = "value"
    """The value cannot be parsed, or is not among those allowed."""
    CONTRADICTION = "contradiction"
    """Two options, or an option and a schema, cannot be combined."""
    MISSING = "missing"
    """A needed option, column or value is not given."""
    NOT_FOUND = "not-found"
    """The logs do not have what the option names."""
    UNSUITABLE = "unsuitable"
    """The option is for another kind of table, read or write."""


class OptionError(KafkaStoreError, ValueError):
    """An option of the data source that cannot be used.

    Parameters
    ----------
    text : str
        What is wrong, and what to do about it.
    problem : OptionProblem
        The kind of problem.
    *options : str
        The names of the options, or of the column.
    """

    def __init__(
        self, text: str, problem: OptionProblem = OptionProblem.VALUE, *options: str
    ) -> None:
        super().__init__(text, problem, *options)
        self.text, self.problem, self.options = text, problem, options

    def __str__(self) -> str:
        return self.text


def must_be(name: str, like: str, given: str) -> OptionError:
    """Return the error that says what an option's value must look like."""
    return OptionError(
        f"option {name} must be {like}, got {given or 'empty'}",
        OptionProblem.VALUE, name,
    )


def unknown(name: str, what: str, known: Iterable[str], there: str) -> OptionError:
    """Return the error for an unknown name, with the nearest known one or `there`."""
    near = similar_names(name, known)
    hint = f"did you mean {near[0]}?" if near else f"there are {there}"
    return OptionError(f"{what}; {hint}", OptionProblem.UNKNOWN, name)


def contradiction(*names: str, advice: str = "give one of them") -> OptionError:
    """Return the error for options that cannot be combined."""
    return OptionError(
        f"options {' and '.join(names)} cannot be combined: {advice}",
        OptionProblem.CONTRADICTION, *names,
    )


def absolute(path: str) -> str:
    """Return an absolute path: tasks may run in another working directory.

    Raises `OptionError` for a path relative to a temporary directory of Spark Connect.
    """
    if not os.path.isabs(path) and _FOLDER_OF_A_SESSION.search(os.getcwd()):
        raise OptionError(
            f"path {path} is relative to a directory that Spark Connect removes when the "
            "session ends: give an absolute path",
            OptionProblem.UNSUITABLE, "path",
        )
    return os.path.abspath(path)


def json_value(options: Mapping[str, str], name: str, like: str, default: str | None = None) -> Any:
    """Parse an option that is JSON, such as `like`."""
    text = options.get(name.lower(), default)
    assert text is not None  # the caller has checked
    try:
        return parse_json(text)
    except ValueError:
        raise must_be(name, like, text) from None


def words(text: str) -> list[str]:
    """Split a text at commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def choice(options: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """Return an option that is one of `choices`; by default their first."""
    value = options.get(name.lower(), choices[0]).strip().lower()
    if value not in choices:
        raise must_be(name, " or ".join(choices), value)
    return value


def boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Parse an option that is true or false."""
    choices = ("true", "false") if default else ("false", "true")
    return choice(options, name, choices) == "true"


def integer(
    options: Mapping[str, str],
    name: str,
    *,
    smallest: int,
    largest: int = INT64_MAX,
    what: str = "an int",
) -> int:
    """Parse an option that is an integer; `what` says what it means."""
    text = options[name.lower()].strip()
    try:
        value = int(text)
    except ValueError:
        value = smallest - 1
    if not smallest <= value <= largest:
        is_bounded = largest != INT64_MAX
        limits = f"from {smallest} to {largest}" if is_bounded else f"of at least {smallest}"
        raise must_be(name, f"{what} {limits}", text)
    return value


def at_least_one(
    options: Mapping[str, str], name: str, largest: int = INT64_MAX
) -> int | None:
    """Parse an option that is an integer of at least 1; None if it is not given."""
    if name.lower() not in options:
        return None
    return integer(options, name, smallest=1, largest=largest)
