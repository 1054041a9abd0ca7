"""The severity, text and remedy of each fault of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kafkastore.checks.findings import Finding, Severity, command
from kafkastore.formats.batch_sequence import BatchFault
from kafkastore.segment.log_segment import LogSegment

_REPAIR = "repair --like keep"
_NO_RETENTION = (
    "set the topic's retention.ms to -1 before a broker starts here; produce the records anew with "
    "timestamps in milliseconds"
)
_PRODUCED_ANEW = "no command mends it: the records have to be produced anew"
_TRUE_EPOCH = (
    "no command mends it: the epoch lies outside the checksum, and the true one is in the leader "
    "epoch checkpoint"
)
_NO_LOOKUP = "lookups by time do not find the records where they belong"


class _Meaning(NamedTuple):
    """The severity, texts and remedy of a fault; texts have fields of `BatchFault`."""

    severity: Severity
    what: str
    consequence: str
    remedy: str = _REPAIR


_MEANINGS = {
    "out-of-order": _Meaning(
        Severity.DATA_LOSS_RISK,
        "does not follow offset {value} in a segment of {base_offset} to {end_offset}",
        "a broker that recovers this segment may empty it",
    ),
    "outside-segment": _Meaning(
        Severity.DATA_LOSS_RISK,
        "and begins with {value} does not belong in a segment of {base_offset} to {end_offset}",
        "a broker that recovers this segment may empty it",
    ),
    "bad-count": _Meaning(
        Severity.WRONG_ANSWERS,
        "has a count of {value} records, which its offsets or its size contradict",
        "consumers fail at this batch",
        "no command mends it: the batch was written so",
    ),
    "unknown-codec": _Meaning(
        Severity.WRONG_ANSWERS,
        "has the unknown compression type {value}",
        "consumers fail at this batch",
        "no command mends it: the batch was written so",
    ),
    "unknown-attributes": _Meaning(
        Severity.STYLE,
        "has attributes {value:#x} with bits that no known version uses",
        "readers pass over them",
        "none is needed",
    ),
    "epoch-went-back": _Meaning(
        Severity.WRONG_ANSWERS,
        "has leader epoch {value}, less than a batch before it",
        "followers that compare leader epochs may cut at the wrong offset",
        _TRUE_EPOCH,
    ),
    "negative-epoch": _Meaning(
        Severity.WRONG_ANSWERS,
        "has leader epoch {value}, which none can be",
        "followers that compare leader epochs may cut at the wrong offset",
        _TRUE_EPOCH,
    ),
    "seconds": _Meaning(
        Severity.DATA_LOSS_RISK,
        "has timestamp {value}, which looks like seconds: as milliseconds it is in the 1970s",
        f"{_NO_LOOKUP}, and retention by time deletes them at once",
        _NO_RETENTION,
    ),
    "microseconds": _Meaning(
        Severity.WRONG_ANSWERS,
        "has timestamp {value}, which looks like microseconds: as milliseconds it is in the far "
        "future",
        f"{_NO_LOOKUP}, and retention by time never deletes this segment and those behind it",
        _PRODUCED_ANEW,
    ),
    "nanoseconds": _Meaning(
        Severity.WRONG_ANSWERS,
        "has timestamp {value}, which looks like nanoseconds: as milliseconds it is in the far "
        "future",
        f"{_NO_LOOKUP}, and retention by time never deletes this segment and those behind it",
        _PRODUCED_ANEW,
    ),
    "negative-time": _Meaning(
        Severity.STYLE,
        "has the negative timestamp {value}",
        "no lookup by time finds its records, and a broker dates a segment of such by its "
        "modification time",
        "none is needed if that is meant",
    ),
}


def findings_of_faults(faults: list[BatchFault], segment: LogSegment) -> Iterator[Finding]:
    """Yield a finding for each kind of fault, at the first batch that has it."""
    for fault in sorted(faults, key=lambda fault: fault.position):
        meaning = _MEANINGS[fault.kind]
        what = meaning.what.format(
            value=fault.value,
            base_offset=segment.base_offset,
            end_offset=segment.next_base_offset,
        )
        others = f"; so it is with {fault.batch_count - 1:,} more" if fault.batch_count > 1 else ""
        remedy = meaning.remedy
        if remedy == _REPAIR:
            remedy = command(remedy, segment.directory)
        yield Finding(
            meaning.severity,
            segment.log_path,
            fault.position,
            f"the batch that ends with offset {fault.last_offset} {what}{others}",
            meaning.consequence,
            remedy,
        )
