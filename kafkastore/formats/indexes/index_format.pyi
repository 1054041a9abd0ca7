from typing import Any, Generic

import numpy as np
import numpy.typing as npt
from _typeshed import ReadableBuffer

from kafkastore.formats.indexes.entries import EntryT, OffsetPosition, TimestampOffset

def relative_offset(offset: int, base_offset: int) -> int: ...

class IndexFormat(Generic[EntryT]):
    ENTRY_SIZE: int
    dtype: np.dtype[np.void]
    dtype_on_disk: np.dtype[np.void]
    def entry_count(self, entries: ReadableBuffer) -> int: ...
    def used_entry_count(self, entries: ReadableBuffer, base_offset: int = 0) -> int: ...
    def parse(self, entries: ReadableBuffer, base_offset: int) -> npt.NDArray[np.void]: ...
    def pack(self, entries: Any, base_offset: int) -> bytes: ...
    def entry(self, entries: ReadableBuffer, base_offset: int, slot: int) -> EntryT: ...
    def last_entry(self, entries: ReadableBuffer, base_offset: int) -> EntryT: ...
    def lookup(
        self,
        entries: ReadableBuffer,
        base_offset: int,
        target: int,
        *,
        warm_section: bool = True,
    ) -> EntryT: ...
    def lookup_many(
        self,
        entries: ReadableBuffer,
        base_offset: int,
        targets: npt.ArrayLike,
        *,
        warm_section: bool = True,
    ) -> npt.NDArray[np.void]: ...
    def truncate_to(
        self,
        entries: ReadableBuffer,
        base_offset: int,
        offset: int,
        *,
        warm_section: bool = True,
    ) -> int: ...
    def check(self, entries: ReadableBuffer, base_offset: int) -> None: ...
    def first_disorder(self, entries: ReadableBuffer, base_offset: int) -> int: ...

class OffsetIndexFormat(IndexFormat[OffsetPosition]):
    def fetch_upper_bound(
        self,
        entries: ReadableBuffer,
        base_offset: int,
        position: int,
        fetch_size: int,
        *,
        warm_section: bool = True,
    ) -> OffsetPosition | None: ...

class TimeIndexFormat(IndexFormat[TimestampOffset]):
    def used_entry_count(
        self,
        entries: ReadableBuffer,
        base_offset: int = 0,
        *,
        first_timestamp_may_be_zero: bool | None = None,
    ) -> int: ...
    def check(self, entries: ReadableBuffer, base_offset: int) -> None: ...

offset_index: OffsetIndexFormat
time_index: TimeIndexFormat
