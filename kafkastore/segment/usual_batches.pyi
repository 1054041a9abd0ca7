from kafkastore.formats.records.record_columns import RecordColumns

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
    verify_crc: bool,
    read_size: int,
) -> tuple[int, int, int, bool]: ...
