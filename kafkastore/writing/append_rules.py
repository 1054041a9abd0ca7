"""The checks of a leader and of a follower before they append batches.

`formats.records.append_sets` implements the rules; a topic's options choose among them here.

Source: Kafka 2.4.0 and 3.9.0 ``LogValidator``, ``Log.append``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkastore.arguments import INT64_MAX
from kafkastore.errors import OffsetOverflowError
from kafkastore.formats.records import append_sets
from kafkastore.formats.records.append_sets import AppendSets
from kafkastore.formats.records.compression import Codec
from kafkastore.formats.records.decompression import MAX_DECOMPRESSED_BYTES
from kafkastore.formats.records.recompression import recompress
from kafkastore.versions import BrokerRules
from kafkastore.writing.log_config import LogConfig

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# Exclusive: the log end offset, one more than a record's, must fit 63 bits too.
_LAST_OFFSET = INT64_MAX
_CODECS = {"uncompressed": Codec.NONE} | {codec.name.lower(): codec for codec in Codec if codec}


class AppendRules:
    """The checks of batches, by a topic's options."""

    def __init__(self, config: LogConfig, rules: BrokerRules) -> None:
        self._segment_bytes = config.segment_bytes
        self.codec = _CODECS.get(config.compression_type)
        self._right_codecs = -1 if self.codec is None else 1 << self.codec
        self.has_append_time = config.message_timestamp_type == "LogAppendTime"
        self._options: dict[str, Any] = {
            "log_append_time": self.has_append_time,
            "before_max_ms": config.message_timestamp_before_max_ms,
            "after_max_ms": config.message_timestamp_after_max_ms,
            "max_batch_bytes": config.max_message_bytes,
            "needs_keys": "compact" in config.cleanup_policy,
            "has_record_offset": rules.time_index_has_record_offset,
            "max_set_bytes": config.segment_bytes,
            "max_decompressed_bytes": MAX_DECOMPRESSED_BYTES,
        }

    def as_leader(
        self, batches: ReadableBuffer, next_offset: int, *, leader_epoch: int, now: int
    ) -> tuple[memoryview, AppendSets]:
        """Check batches and assign offsets; return the bytes to write and their sets.

        A batch gets the topic's ``compression.type``; pass several that need it one by one. Raises
        `OffsetOverflowError` if offsets reach 2^63. See `append_sets.assign_offsets`.
        """
        data, sets = append_sets.assign_offsets(
            batches, next_offset, leader_epoch=leader_epoch, now=now, **self._options
        )
        if sets.count == 1 and self.needs_recompression(sets):
            recompressed = recompress(batches, self.codec or Codec.NONE)
            # The builder of the new batch does not know which record has the largest timestamp.
            options = self._options | {"has_record_offset": False}
            data, sets = append_sets.assign_offsets(
                recompressed, next_offset, leader_epoch=leader_epoch, now=now, **options
            )
        if sets.count and not next_offset <= sets.last_offset(sets.count - 1) < _LAST_OFFSET:
            raise OffsetOverflowError(
                f"the batches need more offsets than are left from {next_offset} on"
            )
        return memoryview(data), sets

    def needs_recompression(self, sets: AppendSets) -> bool:
        """Return whether a batch has another codec than the topic's ``compression.type``."""
        return bool(sets.codecs & ~self._right_codecs)

    def as_follower(
        self, batches: ReadableBuffer, next_offset: int
    ) -> tuple[memoryview, AppendSets]:
        """Check batches that keep their offsets; return complete ones and their sets.

        An incomplete batch at the end is dropped. See `append_sets.keep_offsets`.
        """
        sets, size = append_sets.keep_offsets(
            batches, next_offset, max_set_bytes=self._segment_bytes
        )
        return memoryview(batches).cast("B")[:size], sets
