"""How far a stream has read, as Spark stores it in a checkpoint.

The format is the JSON of Spark's Kafka source, ``{"orders": {"0": 23}}``, where each number is the
offset after the last record. Besides topics it has up to three keys that cannot be topic names:

``@batches``
    the `BatchMark` of the batch before each offset, which shows whether the log was truncated and
    written again.
``@from``
    the first offset of the records that this offset ends, for partitions where it is not the
    previous offset: at first, in a new partition, after a loss.
``@lost``
    a description of what was lost, if `failOnDataLoss` is off.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.spark.source.options import OptionError, OptionProblem
from kafkastore.store.growing_logs import BatchMark

BATCHES, FROM, LOST = "@batches", "@from", "@lost"

ValueT = TypeVar("ValueT")


@dataclass
class StreamOffset:
    """How far each partition was read: `offsets` are those after the last record.

    `marks` are the batches of those records, where known; `begins` the first offsets of this batch
    where they differ from the previous end; `losses` what was lost on the way.
    """

    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    marks: dict[TopicPartition, BatchMark] = field(default_factory=dict)
    begins: dict[TopicPartition, int] = field(default_factory=dict)
    losses: dict[TopicPartition, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that Spark stores; only the initial offset is empty."""
        extra = {
            BATCHES: _nested({which: str(mark) for which, mark in self.marks.items()}),
            FROM: _nested(self.begins),
            LOST: _nested(self.losses),
        }
        value: dict[str, Any] = dict(_nested(self.offsets))
        return value | {name: each for name, each in extra.items() if each} or {FROM: {}}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StreamOffset:
        """Parse the output of `to_json`, or of Spark's Kafka source.

        Raises `OptionError` for any other value.
        """
        topics = {name: each for name, each in value.items() if name not in (BATCHES, FROM, LOST)}
        try:
            return cls(
                _flat(topics, int),
                _flat(value.get(BATCHES, {}), BatchMark.parse),
                _flat(value.get(FROM, {}), int),
                _flat(value.get(LOST, {}), str),
            )
        except (AttributeError, TypeError, ValueError) as error:
            raise OptionError(
                f"the checkpoint's offset {value} is not of this source ({error}); "
                f"choose another checkpointLocation",
                OptionProblem.VALUE, "checkpointLocation",
            ) from error


def _nested(values: Mapping[TopicPartition, ValueT]) -> dict[str, dict[str, ValueT]]:
    """Return sorted values by topic and partition; equal values give equal JSON."""
    nested: dict[str, dict[str, ValueT]] = {}
    for topic_partition in sorted(values):
        of_topic = nested.setdefault(topic_partition.topic, {})
        of_topic[str(topic_partition.partition)] = values[topic_partition]
    return nested


def _flat(
    nested: Mapping[str, Mapping[str, Any]], read: Callable[[Any], ValueT]
) -> dict[TopicPartition, ValueT]:
    return {
        TopicPartition(topic, int(partition)): read(value)
        for topic, partitions in nested.items()
        for partition, value in partitions.items()
    }
