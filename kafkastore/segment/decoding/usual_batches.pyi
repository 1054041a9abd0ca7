from kafkastore.formats.records.record_columns import RecordColumns
from kafkastore.formats.state.aborted_batches import AbortedBatches

def read_usual(
    columns: RecordColumns,
    descriptor: int,
    position: int,
    end: int,
    size: int,
    *,
    smallest: int,
    largest: int,
    end_offset: int,
    aborted: AbortedBatches | None,
    verify_crc: bool,
    check_all: bool,
    read_size: int,
) -> tuple[int, int, int, bool]: ...
