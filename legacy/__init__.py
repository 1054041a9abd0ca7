"""How brokers before the time index answered "which offset is at this time".

Imported as ``kafkastore.legacy``.
"""

from kafkastore.legacy.comparison import Comparison, compare
from kafkastore.legacy.offsets_before import (
    UnsupportedTimestampError,
    fetch_offsets_before,
    offsets_before,
)
from kafkastore.legacy.segment_times import SegmentTime, segment_times

__all__ = [
    "Comparison",
    "SegmentTime",
    "UnsupportedTimestampError",
    "compare",
    "fetch_offsets_before",
    "offsets_before",
    "segment_times",
]
