"""Answer OffsetRequest v0 as brokers of each version do.

The differences between versions, from `kafkastore.versions`:

=============  ==============================  =========================  ======================
rules          offset of a segment             other negative times       partition without log
=============  ==============================  =========================  ======================
0.8 to 0.10.2  base offset                     like any time: nothing is  [0] for -1 and -2, []
                                               older                      for any other time
0.11 to 2.0    not below the log start offset  the same                   the same
2.1 to 3.8     the same                        the same                   error 3
3.9            the same                        error 35                   error 3
from 4.0 on    no OffsetRequest v0             --                         --
=============  ==============================  =========================  ======================

Source: Kafka 0.8.2.2, 0.10.0.1, 2.0.1 ``KafkaApis.fetchOffsets``; 2.4.0
``KafkaApis.handleListOffsetRequestV0``, ``Partition.legacyFetchOffsetsForTimestamp``; 3.9.0
``KafkaApis.handleListOffsetRequestV0``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from kafkastore.arguments import check_kind, timestamp_ms, whole_number
from kafkastore.clock import clock
from kafkastore.errors import ArgumentTypeError, UnsupportedTimestampError
from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.requests.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.lookup.legacy import offset_times
from kafkastore.lookup.offsets_before import offsets_before
from kafkastore.lookup.rules import legacy_rules
from kafkastore.store.log_store import AnyPartition, LogStore, as_topic_partition
from kafkastore.store.partition_log import PartitionLog
from kafkastore.versions import NEWEST_LEGACY_VERSION, BrokerRules


class PartitionOffsets(NamedTuple):
    """The answer to OffsetRequest v0 for one partition.

    Parameters
    ----------
    error_code : int
        Kafka's number: 0 none, 3 UNKNOWN_TOPIC_OR_PARTITION, 35 UNSUPPORTED_VERSION.
    offsets : tuple of int
        Descending; empty with an error.
    """

    error_code: int
    offsets: tuple[int, ...]


def fetch_offsets_before(
    log: PartitionLog,
    target_timestamp: int | datetime,
    max_num_offsets: int,
    now: int | None = None,
    rules: str = NEWEST_LEGACY_VERSION,
    mtimes: Mapping[str, int] | None = None,
    *,
    high_watermark: int | None = None,
    whole_seconds: bool = False,
) -> list[int]:
    """Return a broker's offsets for OffsetRequest v0 (``getOffsetsBefore``).

    Parameters
    ----------
    log : PartitionLog
        The partition.
    target_timestamp : int or datetime
        ms since 1970, inclusive; -1 for the latest, -2 for the earliest offset.
    max_num_offsets : int
        Maximum number of offsets, at least 0.
    now : int, optional
        The broker's clock, ms since 1970; by default this machine's clock.
    rules : str
        Kafka version, 0.8 to 3.9.
    mtimes : mapping of str to int, optional
        Modification times in ms, if the files have lost theirs; see `segment_times`.
    high_watermark : int, optional
        End of what a consumer may read, exclusive; by default the log end, as for a sole replica.
    whole_seconds : bool
        Whether the broker's Java returned whole seconds only; see `segment_times`.

    Returns
    -------
    list of int
        Offsets, descending; an offset repeats if several segments are below the log start offset.
        Empty if `target_timestamp` is before all modification times.

    Raises
    ------
    UnknownRulesError
        If the version does not support OffsetRequest v0.
    UnsupportedTimestampError
        If that version rejects the timestamp.
    ValueError
        If `max_num_offsets` is negative.
    """
    now = clock() if now is None else now
    times = offset_times(
        log, now, rules, mtimes, high_watermark=high_watermark, whole_seconds=whole_seconds
    )
    return offsets_before(times, target_timestamp, max_num_offsets, now)


def get_offsets_before(
    store: LogStore,
    asked: Mapping[AnyPartition, tuple[int, int]],
    now: int | None = None,
    rules: str = NEWEST_LEGACY_VERSION,
    mtimes: Mapping[str, int] | None = None,
    *,
    whole_seconds: bool = False,
) -> dict[TopicPartition, PartitionOffsets]:
    """Answer one OffsetRequest v0 for several partitions, as SimpleConsumer sent it.

    Parameters
    ----------
    store : LogStore
        The broker's partitions.
    asked : mapping of partition to (timestamp, max_num_offsets)
        Partitions are ``("orders", 3)``, ``"orders-3"`` or a `TopicPartition`; the values are as
        for `fetch_offsets_before`.
    now : int, optional
        The broker's clock, ms since 1970; by default this machine's clock.
    rules : str
        Kafka version, 0.8 to 3.9.
    mtimes : mapping of str to int, optional
        Modification times in ms; see `segment_times`. By path, because each partition may have a
        file of the same name.
    whole_seconds : bool
        Whether the broker's Java returned whole seconds only; see `segment_times`.

    Returns
    -------
    dict of TopicPartition to PartitionOffsets
        Every requested partition, in the order of `asked`.

    Raises
    ------
    UnknownRulesError
        If the version does not support OffsetRequest v0.
    TypeError
        If `asked` is not a mapping, or a value is not a pair of ints.
    ValueError
        If a `max_num_offsets` is negative.

    Notes
    -----
    A partition that is not in the store is treated as one that the broker leads without
    having a log.

    Source: Kafka 0.8.2.2 ``SimpleConsumer.getOffsetsBefore``, ``KafkaApis.fetchOffsets``.
    """
    check_kind("store", store, LogStore)
    row = legacy_rules(rules)
    now = clock() if now is None else now
    answers = {}
    for topic_partition, target_timestamp, max_num_offsets in _questions(asked):
        if topic_partition not in store.partitions:
            found = _without_log(row, target_timestamp)
        else:
            log = store.partitions[topic_partition]
            times = offset_times(log, now, rules, mtimes, whole_seconds=whole_seconds)
            try:
                offsets = offsets_before(times, target_timestamp, max_num_offsets, now)
                found = PartitionOffsets(0, tuple(offsets))
            except UnsupportedTimestampError:
                found = PartitionOffsets(ErrorCode.UNSUPPORTED_VERSION.value, ())
        answers[topic_partition] = found
    return answers


def _questions(
    asked: Mapping[AnyPartition, tuple[int, int]]
) -> list[tuple[TopicPartition, int, int]]:
    """Parse the mapping into partition, timestamp and number of offsets."""
    if not isinstance(asked, Mapping):
        raise ArgumentTypeError(
            "asked",
            "a mapping of partitions to (timestamp, max_num_offsets), such as "
            "{('orders', 3): (-1, 10)}",
            asked,
        )
    questions = []
    for partition, pair in asked.items():
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ArgumentTypeError(
                f"asked[{partition!r}]", "(timestamp, max_num_offsets), such as (-1, 10)", pair
            )
        target_timestamp = timestamp_ms(f"asked[{partition!r}][0]", pair[0])
        max_num_offsets = whole_number(f"asked[{partition!r}][1]", pair[1], 0)
        questions.append((as_topic_partition(partition), target_timestamp, max_num_offsets))
    return questions


def _without_log(row: BrokerRules, target_timestamp: int) -> PartitionOffsets:
    """Answer for a partition that has no log."""
    is_special = target_timestamp in (LATEST_TIMESTAMP, EARLIEST_TIMESTAMP)
    if not row.missing_logs_begin_at_0:
        refused = row.other_negatives_are_refused and target_timestamp < 0 and not is_special
        error = ErrorCode.UNSUPPORTED_VERSION if refused else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return PartitionOffsets(error.value, ())
    return PartitionOffsets(0, (0,) if is_special else ())
