from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from _typeshed import ReadableBuffer
from numpy.typing import NDArray

from kafkastore.formats.messages.description import Field

UNKNOWN_TAGGED_FIELDS: str

class StructCodec:
    def __init__(self, fields: Iterable[Field], version: int, is_flexible: bool) -> None: ...
    def parse(self, data: ReadableBuffer, position: int = 0) -> tuple[dict[str, Any], int]: ...
    def pack(self, values: dict[str, Any]) -> bytes: ...

def parse_frames(
    find_codec: Callable[[int, int], StructCodec | None],
    content: ReadableBuffer,
    places: NDArray[np.int32],
) -> list[tuple[int, int, dict[str, Any] | bytes]]: ...
