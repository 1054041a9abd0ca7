"""The records that ``kafkastore cat`` was asked for."""
from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kafkastore.cli.cat.record_filter import RecordFilter
    from kafkastore.log.isolation import Isolation
    from kafkastore.segment.index_trust import Indexes
    from kafkastore.store.latest_records import LatestRecords


class Bounds(NamedTuple):
    """The requested records; starts inclusive, ends exclusive, None means unbounded.

    `tail` is the number of last records of each partition, `limit` that of all. `latest`: only the
    last record of each key. `is_decided`: the end is known to be at most the last stable offset.
    """

    start_offset: int | None
    end_offset: int | None
    start_timestamp: int | None
    end_timestamp: int | None
    tail: int | None
    limit: int | None
    isolation: Isolation
    indexes: Indexes
    records: RecordFilter
    latest: LatestRecords | None = None
    is_decided: bool = False
