from kafkastore.formats.records.append_sets import AppendSets

class SegmentGrowth:
    base_offset: int
    size: int
    largest_timestamp: int
    offset_of_max_timestamp: int
    first_timestamp: int
    created_ms: int
    def __init__(
        self,
        base_offset: int,
        *,
        index_interval_bytes: int,
        segment_bytes: int,
        roll_ms: int,
        created_ms: int,
        max_offset_entries: int,
        max_time_entries: int,
        size: int = 0,
        first_timestamp: int | None = None,
        offset_entries: int = 0,
        time_entries: int = 0,
        last_indexed_offset: int = -1,
        last_time_entry: tuple[int, int] | None = None,
        largest: tuple[int, int] | None = None,
        each_batch: bool = False,
    ) -> None: ...
    def append(self, sets: AppendSets, first: int, now: int, is_new: bool = False) -> int: ...
    @property
    def new_bytes(self) -> int: ...
    def finish(self) -> None: ...
    def take_entries(self) -> tuple[bytes, bytes]: ...
