from collections.abc import Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from kafkastore.errors import ProducerStateError
from kafkastore.formats.records.control_records import ControlRecord
from kafkastore.versions import BrokerRules

class BatchMetadata(NamedTuple):
    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int

class TransactionStep(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int | None
    is_aborted: bool

class ProducerEntry:
    def __init__(
        self,
        producer_epoch: int = -1,
        last_sequence: int = -1,
        last_offset: int = -1,
        offset_delta: int = 0,
        timestamp: int = -1,
        coordinator_epoch: int = -1,
        current_txn_first_offset: int = -1,
        *,
        always_has_batch: bool = False,
    ) -> None: ...
    @property
    def current_txn_first_offset(self) -> int | None: ...
    def last_batches(self) -> tuple[BatchMetadata, ...]: ...
    def last_timestamp(self, *, markers_count: bool) -> int: ...
    def snapshot_fields(self, *, markers_count: bool) -> tuple[int, ...]: ...
    def apply_append(self, appended: ProducerEntry) -> None: ...

def replay(
    entries: dict[int, ProducerEntry],
    headers: NDArray[Any],
    controls: Sequence[ControlRecord | None],
    rules: BrokerRules,
) -> tuple[list[TransactionStep], ProducerStateError | None]: ...
def prepare(
    entries: dict[int, ProducerEntry],
    headers: NDArray[Any],
    controls: Sequence[ControlRecord | None],
    rules: BrokerRules,
    origin: str,
    transaction_version: int = 0,
) -> tuple[dict[int, ProducerEntry], list[TransactionStep], BatchMetadata | None]: ...
