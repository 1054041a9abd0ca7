from typing import Any

from numpy.typing import NDArray

OFFSET_ENTRY_SIZE: int
TIME_ENTRY_SIZE: int

class IndexBuilder:
    largest_timestamp: int
    offset_of_max_timestamp: int
    def __init__(self, base_offset: int, index_interval_bytes: int) -> None: ...
    def append(self, headers: NDArray[Any]) -> None: ...
    def finish(self) -> tuple[bytes, bytes]: ...
