from collections.abc import Callable
from os import PathLike

from kafkastore.formats.indexes.entries import TimestampOffset
from kafkastore.segment.log_file import LogFile

def largest_used_size(log_size: int, entry_size: int) -> int: ...
def last_time_entry(
    path: str | PathLike[str], base_offset: int, *, with_padding: bool
) -> TimestampOffset | None: ...
def largest_timestamp_by_index(
    path: str, base_offset: int, open_log: Callable[[], LogFile], temporary: str = ""
) -> int | None: ...
