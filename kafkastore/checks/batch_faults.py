"""The finding, text and remedy of each fault of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kafkastore.checks.findings import Finding, FindingKind, command
from kafkastore.formats.records.batch_sequence import BatchFault
from kafkastore.segment.log_segment import LogSegment

_REPAIR = "repair --on-corrupt skip"
_NO_RETENTION = (
    "set the topic's retention.ms to -1 before a broker starts here; produce the records again "
    "with timestamps in milliseconds"
)
_WRITTEN_SO = "no command repairs it: the batch was written with this value"
_PRODUCE_AGAIN = "no command repairs it; produce the records again"
TRUE_EPOCH_REMEDY = (
    "no command repairs it: the checksum does not cover the epoch; the leader epoch checkpoint has "
    "the right one"
)


class _Meaning(NamedTuple):
    """The kind, text and remedy of a fault; the text has fields of `BatchFault`."""

    kind: FindingKind
    what: str
    remedy: str = _REPAIR


_MEANINGS = {
    "out-of-order": _Meaning(
        FindingKind.OUT_OF_ORDER_OFFSETS,
        "does not follow offset {value} in a segment of {offsets}",
    ),
    "outside-segment": _Meaning(
        FindingKind.BATCH_OUTSIDE_SEGMENT,
        "and begins with {value} is outside its segment of {offsets}",
    ),
    "bad-count": _Meaning(
        FindingKind.WRONG_RECORD_COUNT,
        "has the record count {value}, which does not match its offsets or its size",
        _WRITTEN_SO,
    ),
    "unknown-codec": _Meaning(
        FindingKind.UNKNOWN_COMPRESSION_TYPE,
        "has the unknown compression type {value}",
        _WRITTEN_SO,
    ),
    "unknown-attributes": _Meaning(
        FindingKind.UNKNOWN_ATTRIBUTES,
        "has attributes {value:#x} with bits that no known version uses",
        "none needed",
    ),
    "epoch-went-back": _Meaning(
        FindingKind.DECREASING_LEADER_EPOCH,
        "has leader epoch {value}, smaller than that of an earlier batch",
        TRUE_EPOCH_REMEDY,
    ),
    "negative-epoch": _Meaning(
        FindingKind.NEGATIVE_LEADER_EPOCH,
        "has the negative leader epoch {value}",
        TRUE_EPOCH_REMEDY,
    ),
    "seconds": _Meaning(
        FindingKind.TIMESTAMP_IN_SECONDS,
        "has timestamp {value}, which looks like seconds: as milliseconds it is in the 1970s",
        _NO_RETENTION,
    ),
    "microseconds": _Meaning(
        FindingKind.TIMESTAMP_IN_MICROSECONDS,
        "has timestamp {value}, which looks like microseconds: as milliseconds it is in the far "
        "future",
        _PRODUCE_AGAIN,
    ),
    "nanoseconds": _Meaning(
        FindingKind.TIMESTAMP_IN_NANOSECONDS,
        "has timestamp {value}, which looks like nanoseconds: as milliseconds it is in the far "
        "future",
        _PRODUCE_AGAIN,
    ),
    "negative-time": _Meaning(
        FindingKind.NEGATIVE_TIMESTAMP,
        "has the negative timestamp {value}",
        "none needed if this is intended",
    ),
}


def findings_of_faults(faults: list[BatchFault], segment: LogSegment) -> Iterator[Finding]:
    """Yield a finding for each kind of fault, at the first batch that has it."""
    offsets = f"{segment.base_offset} to {segment.next_base_offset}"
    if segment.next_base_offset is None:
        offsets = f"{segment.base_offset} and later"
    for fault in sorted(faults, key=lambda fault: fault.position):
        meaning = _MEANINGS[fault.kind]
        what = meaning.what.format(value=fault.value, offsets=offsets)
        count = fault.batch_count - 1
        others = f"; {count:,} more {'batches have' if count > 1 else 'batch has'} this fault"
        others = others if count else ""
        remedy = meaning.remedy
        if remedy == _REPAIR:
            remedy = command(remedy, segment.directory)
        yield Finding(
            meaning.kind, segment.log_path, fault.position,
            f"the batch that ends with offset {fault.last_offset} {what}{others}",
            remedy,
        )
