from collections.abc import Callable, Iterable
from typing import TypeVar

from kafkastore.formats.records.record_columns import RecordColumns
from kafkastore.formats.state.aborted_batches import AbortedBatches

TakenT = TypeVar("TakenT")

class PieceDecoder:
    first_offset: int
    def __init__(
        self, columns: Iterable[RecordColumns], *, threads: int, most_pieces: int
    ) -> None: ...
    def add(
        self,
        descriptor: int,
        position: int,
        end: int,
        size: int,
        *,
        smallest: int,
        largest: int,
        start_offset: int,
        end_offset: int,
        last_offset: int,
        aborted: AbortedBatches | None,
        verify_crc: bool,
        check_all: bool,
        read_size: int,
    ) -> bool: ...
    def work(self) -> None: ...
    def next(self, take: Callable[[RecordColumns], TakenT]) -> TakenT | None: ...
    def end_first(self) -> tuple[int, int]: ...
    def stop(self) -> None: ...
    def wake(self) -> None: ...
