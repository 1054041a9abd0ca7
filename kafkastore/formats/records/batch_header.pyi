from typing import Any

import numpy as np
from _typeshed import ReadableBuffer
from numpy.typing import NDArray

BATCH_HEADER: np.dtype[np.void]
CODEC_BITS: int
LOG_APPEND_TIME_BIT: int
TRANSACTIONAL_BIT: int
CONTROL_BIT: int
DELETE_HORIZON_BIT: int
RECORD_BATCH_FIELDS: dict[str, int]
MESSAGE_FIELDS_V0: dict[str, int]
MESSAGE_FIELDS_V1: dict[str, int]
SMALLEST_FRAME: int
SMALLEST_LENGTH: int
FRAME_OVERHEAD: int
LARGEST_HEADER: int
ALL_SCANNED: int
NEEDS_BYTES: int
BAD_LENGTH: int
BAD_MAGIC: int
BAD_OFFSETS: int
BAD_CRC: int

def bytes_of(headers: NDArray[Any]) -> NDArray[np.uint8]: ...
def is_control(headers: NDArray[np.void]) -> NDArray[np.bool_]: ...
def offsets_rise(headers: NDArray[Any], smallest: int) -> bool: ...
def scan(
    data: ReadableBuffer,
    position: int,
    headers: NDArray[Any],
    *,
    verify_crc: bool = False,
    within: tuple[int, int] | None = None,
) -> tuple[int, int, int, int]: ...
def parse(data: ReadableBuffer, position: int) -> NDArray[Any] | None: ...
def find(data: ReadableBuffer, min_offset: int, max_offset: int) -> int: ...
