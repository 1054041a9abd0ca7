from typing import Any

from _typeshed import ReadableBuffer
from numpy.typing import NDArray

class AppendSets:
    count: int
    batch_count: int
    has_producers: bool
    has_old_messages: bool
    codecs: int
    def __init__(self, batch_count: int) -> None: ...
    @property
    def headers(self) -> NDArray[Any]: ...
    def reported_first_offset(self) -> int: ...
    def epoch_starts(self, latest_epoch: int) -> list[tuple[int, int]]: ...
    def __len__(self) -> int: ...
    def first_offset(self, index: int) -> int: ...
    def last_offset(self, index: int) -> int: ...
    def fields(self) -> list[tuple[int, int, int, int, int]]: ...

def assign_offsets(
    data: ReadableBuffer,
    next_offset: int,
    *,
    leader_epoch: int,
    now: int,
    log_append_time: bool = False,
    before_max_ms: int = ...,
    after_max_ms: int = ...,
    max_batch_bytes: int = ...,
    needs_keys: bool = False,
    has_record_offset: bool = False,
    max_set_bytes: int = ...,
    max_decompressed_bytes: int = ...,
) -> tuple[bytearray, AppendSets]: ...
def keep_offsets(
    data: ReadableBuffer, next_offset: int, *, max_set_bytes: int = ...
) -> tuple[AppendSets, int]: ...
