from _typeshed import ReadableBuffer

def hash_of_key(key: ReadableBuffer, secret: ReadableBuffer) -> bytes: ...

class LatestOffsets:
    count: int
    end_place: int
    def __init__(self, secret: ReadableBuffer, *, across_partitions: bool = False) -> None: ...
    @property
    def nbytes(self) -> int: ...
    def add(
        self,
        rows: int,
        keys: tuple[int, ReadableBuffer | None, ReadableBuffer, ReadableBuffer | None],
        offsets: ReadableBuffer,
        timestamps: ReadableBuffer | None = None,
        shift: int = 0,
    ) -> None: ...
    def find_latest(
        self,
        rows: int,
        keys: tuple[int, ReadableBuffer | None, ReadableBuffer, ReadableBuffer | None],
        offsets: ReadableBuffer,
        shift: int = 0,
    ) -> bytearray: ...
    def newest_timestamps(
        self,
        rows: int,
        keys: tuple[int, ReadableBuffer | None, ReadableBuffer, ReadableBuffer | None],
    ) -> bytearray: ...
