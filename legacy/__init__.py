"""Answer offset requests by time as brokers before the time index did.

Imported as ``kafkastore.legacy``.
"""

from kafkastore.legacy.comparison import (
    Comparison,
    ComparisonSummary,
    RemoteOutcomes,
    compare,
    compare_columns,
    summarize,
)
from kafkastore.legacy.comparison_as_arrow import compare_as_arrow
from kafkastore.legacy.mtimes import InvalidMtimesError, mtimes_of, pack_mtimes, read_mtimes
from kafkastore.legacy.offset_request import (
    PartitionOffsets,
    fetch_offsets_before,
    get_offsets_before,
)

from kafkastore.errors import UnsupportedTimestampError
from kafkastore.lookup.legacy import SegmentTime, offset_times, segment_times
from kafkastore.lookup.offsets_before import OffsetTimes, first_offsets_before, offsets_before

__all__ = [
    "Comparison",
    "ComparisonSummary",
    "InvalidMtimesError",
    "OffsetTimes",
    "PartitionOffsets",
    "RemoteOutcomes",
    "SegmentTime",
    "UnsupportedTimestampError",
    "compare",
    "compare_as_arrow",
    "compare_columns",
    "fetch_offsets_before",
    "first_offsets_before",
    "get_offsets_before",
    "mtimes_of",
    "offset_times",
    "offsets_before",
    "pack_mtimes",
    "read_mtimes",
    "segment_times",
    "summarize",
]
