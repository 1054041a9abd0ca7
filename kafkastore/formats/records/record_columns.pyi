from collections.abc import Iterable
from typing import Any

from _typeshed import ReadableBuffer
from numpy.typing import NDArray

KAFKA_COLUMNS: tuple[str, ...]
HEADERS_COLUMN: str
OTHER_COLUMNS: tuple[str, ...]
BATCH_ROWS: int
BATCH_BYTES: int

class RecordColumns:
    rows: int
    bytes_bound: int
    @property
    def max_decompressed_bytes(self) -> int: ...
    def __init__(
        self,
        columns: Iterable[str],
        *,
        start_offset: int = 0,
        end_offset: int = ...,
        start_timestamp: int = ...,
        end_timestamp: int | None = None,
        include_control: bool = False,
        binary_view: bool = False,
        in_millis: bool = False,
        max_rows: int = ...,
        max_bytes: int = ...,
        max_decompressed_bytes: int = ...,
    ) -> None: ...
    def append(
        self,
        data: ReadableBuffer,
        headers: NDArray[Any],
        first: int = 0,
        *,
        position: int | None = None,
        smallest_offset: int = ...,
    ) -> int: ...
    def take(self) -> tuple[int, dict[str, Any]]: ...
