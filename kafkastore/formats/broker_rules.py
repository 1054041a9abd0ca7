"""What brokers of different versions do differently when they write and load a log: one table.

Each field is one difference; a version's row is what the versions below say, in turn.

Source: Kafka 0.10.1 to 4.1, as each field says.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kafkastore.errors import KafkaStoreError

_VERSION = re.compile(r"[0-9]+(\.[0-9]+){1,3}")

KafkaVersion = tuple[int, ...]


class UnknownVersionError(KafkaStoreError, ValueError):
    """A text that is no Kafka version."""


class BrokerRules(NamedTuple):
    """What a broker of one version does.

    Parameters
    ----------
    first_epoch_recovered : int
        Smallest leader epoch that a recovery puts into the epoch checkpoint. 0 since 2.7.0
        (KAFKA-10432), 1 before.
    time_index_has_record_offset : bool
        Whether a leader's time index entry for an uncompressed CreateTime batch has the offset of
        the first record with the largest timestamp; since 3.8.0 (KAFKA-16310) always the last of
        its batch.
    retention_order : tuple of str
        In which order segments are judged: by time, by size, by log start offset; since 3.0 the
        time comes last.
    """

    first_epoch_recovered: int
    time_index_has_record_offset: bool
    retention_order: tuple[str, str, str]


_CHANGES: tuple[tuple[KafkaVersion, str, object], ...] = (
    ((2, 7), "first_epoch_recovered", 0),
    ((3, 0), "retention_order", ("size", "start", "time")),
    ((3, 8), "time_index_has_record_offset", False),
)
_BEFORE = BrokerRules(
    first_epoch_recovered=1,
    time_index_has_record_offset=True,
    retention_order=("time", "size", "start"),
)


def parse_version(text: str) -> KafkaVersion:
    """Parse a Kafka version such as ``2.4`` or ``0.10.2.2``.

    Raises
    ------
    UnknownVersionError
        If the text is no version.

    Examples
    --------
    >>> parse_version("2.4") < parse_version("2.4.1") < parse_version("3.0")
    True
    """
    if not _VERSION.fullmatch(text):
        raise UnknownVersionError(f"{text!r} is no Kafka version such as 2.4 or 3.9.1")
    return tuple(int(part) for part in text.split("."))


def rules_of(version: str) -> BrokerRules:
    """Return what brokers of a version do.

    Parameters
    ----------
    version : str
        Such as ``2.4``; a version between two that are known here does what the older did.

    Raises
    ------
    UnknownVersionError
        If the text is no version.

    Examples
    --------
    >>> rules_of("2.4").first_epoch_recovered, rules_of("4.1").first_epoch_recovered
    (1, 0)
    """
    parsed = parse_version(version)
    changed = {field: value for since, field, value in _CHANGES if parsed >= since}
    return _BEFORE._replace(**changed)  # type: ignore[arg-type]
