from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkastore.formats.indexes.entries import OffsetPosition, TimestampAndOffset, TimestampOffset
from kafkastore.segment.readable_log import ReadableLog

class SearchTrace(NamedTuple):
    answer: TimestampAndOffset | None
    time_entry: TimestampOffset
    offset_entry: OffsetPosition
    starting_position: int
    time_slots: tuple[int, ...]
    offset_slots: tuple[int, ...]

class SegmentSearch:
    was_used: bool
    def __init__(
        self,
        open_log: Callable[[], ReadableLog],
        base_offset: int,
        time_entries: bytes,
        offset_entries: bytes,
        *,
        warm_section: bool = True,
        checks_entries: bool = False,
        skip_control: bool = False,
        checks_order: bool = True,
        max_decompressed_bytes: int = ...,
    ) -> None: ...
    def close_log(self) -> None: ...
    def clear_used(self) -> bool: ...
    def find(
        self, target_timestamp: int, starting_offset: int, /
    ) -> TimestampAndOffset | None: ...
    def find_from(
        self, position: int, target_timestamp: int, starting_offset: int
    ) -> TimestampAndOffset | None: ...
    def find_many(
        self,
        target_timestamps: NDArray[np.int64],
        starting_offset: int,
        answers: NDArray[np.void],
        /,
    ) -> None: ...
    def trace(self, target_timestamp: int, starting_offset: int) -> SearchTrace: ...
