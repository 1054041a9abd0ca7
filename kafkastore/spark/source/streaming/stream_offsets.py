"""How far a stream has read, as Spark keeps it in a checkpoint.

It is JSON as that of Spark's Kafka source, ``{"orders": {"0": 23}}``, each number the offset behind
the last record. Beside the topics are up to three names that no topic can have:

``@batches``
    the `BatchMark` of the batch before each offset, by which a log is told from one that was cut
    and written anew.
``@from``
    where the records begin that this offset ends, for partitions where that is not where the last
    offset was: at first, where a partition is new, behind a loss.
``@lost``
    what was lost, in words, with `failOnDataLoss` off.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kafkastore.formats.file_names import TopicPartition
from kafkastore.spark.source.options import OptionError
from kafkastore.spark.source.streaming.growing_logs import BatchMark

BATCHES, FROM, LOST = "@batches", "@from", "@lost"

ValueT = TypeVar("ValueT")


@dataclass
class StreamOffset:
    """How far each partition was read, and what belongs to that; see the module's text.

    Attributes
    ----------
    offsets : dict of TopicPartition to int
        Behind the last record.
    marks : dict of TopicPartition to BatchMark
        Of the batches with those records, where they are known.
    begins : dict of TopicPartition to int
        Where this batch of records begins, if not where the one before ended.
    losses : dict of TopicPartition to str
        What was lost on the way here.
    """

    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    marks: dict[TopicPartition, BatchMark] = field(default_factory=dict)
    begins: dict[TopicPartition, int] = field(default_factory=dict)
    losses: dict[TopicPartition, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return what Spark keeps of it; never nothing, which is the offset before all."""
        beside = {
            BATCHES: _nested({which: str(mark) for which, mark in self.marks.items()}),
            FROM: _nested(self.begins),
            LOST: _nested(self.losses),
        }
        value: dict[str, Any] = dict(_nested(self.offsets))
        return value | {name: each for name, each in beside.items() if each} or {FROM: {}}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StreamOffset:
        """Read what `to_json` made, or what Spark's Kafka source did.

        Raises
        ------
        OptionError
            If it is neither.
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
                f"the checkpoint's offset {value} is none of this source ({error}); "
                f"choose another checkpointLocation"
            ) from error


def _nested(values: Mapping[TopicPartition, ValueT]) -> dict[str, dict[str, ValueT]]:
    """Return values by topic and then by partition, in order: equal ones make equal JSON."""
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
