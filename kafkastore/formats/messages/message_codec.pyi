from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from _typeshed import ReadableBuffer
from numpy.typing import NDArray

from kafkastore.formats.messages.description import Field

UNKNOWN_TAGGED_FIELDS: str

class Elsewhere:
    size: int

class StructCodec:
    def __init__(self, fields: Iterable[Field], version: int, is_flexible: bool) -> None: ...
    def parse(
        self, data: ReadableBuffer, position: int = 0, most_elements: int = ...
    ) -> tuple[dict[str, Any], int]: ...
    def pack(self, values: dict[str, Any]) -> bytes: ...
    def pack_around(
        self, values: dict[str, Any]
    ) -> tuple[bytes, list[tuple[int, Elsewhere]]]: ...

class Frames(Iterator[tuple[int, int, dict[str, Any] | bytes]]):
    index: int
    def __init__(
        self,
        find_codec: Callable[[int, int], StructCodec | None],
        content: ReadableBuffer,
        places: NDArray[np.int32],
    ) -> None: ...
    def __next__(self) -> tuple[int, int, dict[str, Any] | bytes]: ...
    def apply(self, number: int, function: Callable[[dict[str, Any]], object]) -> int: ...
