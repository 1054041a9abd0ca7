"""The choice of partitions and offsets, as in Spark's Kafka source.

See `options` for the options; source: Spark 4.2 ``KafkaSourceProvider``, ``ConsumerStrategy``.
"""
from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from kafkastore.arguments import INT64_MAX
from kafkastore.formats.state.file_names import INTERNAL_TOPICS, TopicPartition
from kafkastore.spark.source.option_values import (
    OptionError,
    OptionProblem,
    contradiction,
    integer,
    json_value,
    must_be,
    words,
)

EARLIEST = -2
LATEST = -1


class TopicSelection(NamedTuple):
    """The partitions to read; all if none of the three options is given.

    The fields come from `subscribe`, `subscribePattern` and `assign`.
    """

    topics: frozenset[str] | None = None
    pattern: str | None = None
    assigned: frozenset[TopicPartition] | None = None

    def includes(self, topic_partition: TopicPartition) -> bool:
        """Return whether a partition is read."""
        if self.assigned is not None:
            return topic_partition in self.assigned
        if self.topics is not None:
            return topic_partition.topic in self.topics
        if self.pattern is None:
            return True
        topic = topic_partition.topic
        return topic not in INTERNAL_TOPICS and re.search(self.pattern, topic) is not None


class Bound(NamedTuple):
    """One end of the read range of each partition, from the option `option`.

    `everywhere` is for all partitions; if it is None, `each` has one number for each partition. The
    numbers are timestamps (ms) if `by_timestamp`, else offsets, `EARLIEST` and `LATEST` among them.
    """

    option: str
    everywhere: int | None = None
    each: Mapping[TopicPartition, int] = {}
    by_timestamp: bool = False

    def of(self, topic_partition: TopicPartition) -> int:
        """Return a partition's number.

        Raises `OptionError` if the option names partitions, but not this one.
        """
        if self.everywhere is not None:
            return self.everywhere
        if topic_partition not in self.each:
            raise OptionError(
                f"option {self.option} has no entry for {topic_partition}, which is read: "
                f"name every partition, or choose some with the option assign",
                OptionProblem.MISSING, self.option,
            )
        return self.each[topic_partition]


def selection_of(options: Mapping[str, str]) -> TopicSelection:
    """Parse the options that choose partitions; at most one may be given."""
    chosen = [n for n in ("subscribe", "subscribePattern", "assign") if n.lower() in options]
    if len(chosen) > 1:
        raise contradiction(*chosen)
    if chosen == ["subscribe"]:
        topics = frozenset(words(options["subscribe"]))
        if not topics:
            raise OptionError("option subscribe names no topic", OptionProblem.VALUE, "subscribe")
        return TopicSelection(topics=topics)
    if chosen == ["subscribePattern"]:
        pattern = options["subscribepattern"].strip()
        if not pattern:
            raise OptionError(
                "option subscribePattern is empty",
                OptionProblem.VALUE, "subscribePattern",
            )
        try:
            re.compile(pattern)
        except re.error as error:
            raise OptionError(
                f"option subscribePattern is not a valid regular expression: {error}",
                OptionProblem.VALUE, "subscribePattern",
            ) from None
        return TopicSelection(pattern=pattern)
    if chosen == ["assign"]:
        return TopicSelection(assigned=frozenset(_assigned(options)))
    return TopicSelection()


def _assigned(options: Mapping[str, str]) -> list[TopicPartition]:
    like = 'JSON like {"orders": [0, 1]}'
    value = json_value(options, "assign", like)
    if not isinstance(value, dict) or not all(
        isinstance(partitions, list) and all(type(each) is int for each in partitions)
        for partitions in value.values()
    ):
        raise must_be("assign", like, options["assign"])
    return [
        TopicPartition(topic, partition)
        for topic, partitions in value.items()
        for partition in partitions
    ]


def bound_of(options: Mapping[str, str], prefix: str, default: int, refused: int | None) -> Bound:
    """Parse the options for one end, ``starting`` or ``ending``.

    `refused` is the other end's word, which is an error here.
    """
    name = f"{prefix}Timestamp"
    if name.lower() in options:
        number = integer(options, name, smallest=0, what="ms since 1970, an int")
        return Bound(name, number, by_timestamp=True)
    name = f"{prefix}OffsetsByTimestamp"
    if name.lower() in options:
        return Bound(name, each=_by_partition(options, name, smallest=0), by_timestamp=True)
    name = f"{prefix}Offsets"
    named = {"earliest": EARLIEST, "latest": LATEST}
    value = options.get(name.lower(), "").strip()
    if name.lower() not in options or value.lower() in named:
        offset = named.get(value.lower(), default)
        if offset == refused:
            raise OptionError(
                f"option {name} can't be {value.lower()}: nothing would be read",
                OptionProblem.VALUE, name,
            )
        return Bound(name, offset)
    allowed = " or ".join(word for word, offset in named.items() if offset != refused)
    each = _by_partition(options, name, smallest=EARLIEST, also=f"{allowed}, or ")
    for topic_partition, offset in each.items():
        if offset == refused:
            raise OptionError(
                f"option {name} can't be {refused} for {topic_partition}: nothing would be read",
                OptionProblem.VALUE, name,
            )
    return Bound(name, each=each)


def check_order(start: Bound, end: Bound) -> None:
    """Check the order of two ends that both name each partition, before reading.

    Source: Spark 4.2 ``KafkaSourceProvider.checkOffsetLimitValidity``.
    """
    if start.everywhere is not None or end.everywhere is not None:
        return
    if start.by_timestamp != end.by_timestamp:
        return
    both = f"options {start.option} and {end.option}"
    if unmatched := sorted(start.each.keys() ^ end.each.keys()):
        raise OptionError(
            f"{both} name different partitions: {unmatched[0]} is in only one of them",
            OptionProblem.CONTRADICTION, start.option, end.option,
        )
    for topic_partition, first in start.each.items():
        last = end.each[topic_partition]
        if 0 <= last < first:
            raise OptionError(
                f"{both}: the start of {topic_partition}, {first}, is beyond its end, {last}",
                OptionProblem.CONTRADICTION, start.option, end.option,
            )


def _by_partition(
    options: Mapping[str, str], name: str, *, smallest: int, also: str = ""
) -> dict[TopicPartition, int]:
    like = also + 'JSON like {"orders": {"0": 23, "1": 42}}'
    value = json_value(options, name, like)
    numbers: dict[TopicPartition, int] = {}
    try:
        for topic, partitions in value.items():
            for partition, number in partitions.items():
                if type(number) is not int or not smallest <= number <= INT64_MAX:
                    raise ValueError
                numbers[TopicPartition(topic, int(partition))] = number
    except (AttributeError, ValueError):
        raise must_be(name, like, options[name.lower()]) from None
    return numbers
