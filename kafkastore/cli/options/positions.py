"""Consumer positions from the user: options, and a file of JSON lines."""
from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from kafkastore.arguments import INT32_MAX, INT64_MAX
from kafkastore.cli.options.selection import ANY_PATH
from kafkastore.errors import KafkaStoreError
from kafkastore.formats.topics.consumer_offsets import OffsetCommitKey
from kafkastore.use_cases.lag import OffsetPlace

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

_NUMBER = re.compile(r"[0-9]{1,100}")  # ASCII only; Python refuses to parse very long numbers


class InvalidPositionError(KafkaStoreError, ValueError):
    """An invalid position in a file."""


def position_options(function: FunctionT) -> FunctionT:
    """Add ``--group``, ``--offsets`` and ``--offsets-file``."""
    options = (
        click.option(
            "--group", "groups", multiple=True, metavar="NAME",
            help="Only this consumer group; may be repeated.",
        ),
        click.option(
            "--offsets", "offsets", multiple=True, metavar="GROUP:TOPIC:PARTITION:OFFSET",
            callback=_parse_positions,
            help="A committed offset, instead of those of __consumer_offsets; may be repeated.",
        ),
        click.option(
            "--offsets-file", type=ANY_PATH, metavar="FILE",
            help="JSON lines with group, topic, partition and offset, such as lag --json writes.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def read_positions(
    given: Sequence[tuple[OffsetCommitKey, int]], file: Path | None
) -> dict[OffsetCommitKey, int] | None:
    """Combine the given positions; return None if none are given.

    `file` has JSON lines. Raises InvalidPositionError for an invalid line, OSError if the file
    cannot be read.
    """
    if file is None:
        return dict(given) if given else None
    return dict([*_of_file(file), *given])


def _parse_positions(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> list[tuple[OffsetCommitKey, int]]:
    """Parse positions; a group's name may contain colons."""
    found = []
    for text in texts:
        parts = text.rsplit(":", 3)
        if len(parts) != 4 or not all(map(_NUMBER.fullmatch, parts[2:])):
            raise click.BadParameter(
                "must be GROUP:TOPIC:PARTITION:OFFSET such as billing:orders:3:1200, "
                f"got {text!r}"
            )
        group, topic, partition, offset = parts
        if int(partition) > INT32_MAX or int(offset) > INT64_MAX:
            raise click.BadParameter(
                f"partition must be at most {INT32_MAX} and offset at most {INT64_MAX}, "
                f"got {text!r}"
            )
        found.append((OffsetCommitKey(group, topic, int(partition)), int(offset)))
    return found


def _of_file(file: Path) -> Iterator[tuple[OffsetCommitKey, int]]:
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                position = _of_line(line, f"line {number} of {file}")
                if position is not None:
                    yield position


def _of_line(line: bytes, place: str) -> tuple[OffsetCommitKey, int] | None:
    """Parse one position; unknown fields are ignored.

    None for a share group, and for an offset of a deleted topic.
    """
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise InvalidPositionError(f"{place} is not JSON") from None
    if not isinstance(row, dict):
        raise InvalidPositionError(f"{place} must be a JSON object, got {type(row).__name__}")
    if "start_offset" in row and "offset" not in row:
        return None
    if row.get("place") == OffsetPlace.OTHER_TOPIC:
        return None
    group, topic = row.get("group", ""), row.get("topic")
    partition, offset = row.get("partition"), row.get("offset")
    if not isinstance(group, str) or not isinstance(topic, str):
        raise InvalidPositionError(f"{place}: group and topic must be strings")
    number = _whole(partition, INT32_MAX, f"{place}: partition")
    position = _whole(offset, INT64_MAX, f"{place}: offset")
    return OffsetCommitKey(group, topic, number), position


def _whole(value: object, largest: int, subject: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= largest:
        return value
    raise InvalidPositionError(f"{subject} must be from 0 to {largest}, got {value!r}")
