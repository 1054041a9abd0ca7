from typing import Any

from kafkastore.formats.records.compression import Codec
from kafkastore.formats.records.record_rows import RecordRows

class BatchBuilder:
    def __init__(
        self,
        *,
        magic: int = 2,
        codec: Codec = ...,
        compression_level: int | None = None,
        log_append_time: int | None = None,
        leader_epoch: int = -1,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        is_transactional: bool = False,
        is_control: bool = False,
        delete_horizon_ms: int | None = None,
        max_batch_bytes: int | None = None,
    ) -> None: ...
    def start(self, base_offset: int | None = None) -> None: ...
    def append(self, record: Any) -> bool: ...
    def append_rows(self, rows: RecordRows, first: int = 0) -> int: ...
    def finish(
        self, last_offset: int | None = None, max_timestamp: int | None = None
    ) -> bytes: ...
