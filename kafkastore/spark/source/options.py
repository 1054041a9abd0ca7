"""The data source's options: those of Spark's Kafka source, by its names and its precedence.

Which partitions
    One of `subscribe` (topics, by commas), `subscribePattern` (a regular expression, found anywhere
    in a topic's name; never an internal topic) and `assign` (JSON, ``{"orders": [0, 1]}``). Without
    any: all partitions there are.
Which offsets
    The first that is given of ``startingTimestamp`` (ms, for all partitions),
    ``startingOffsetsByTimestamp`` (JSON, ``{"orders": {"0": 1500000000000}}``) and
    ``startingOffsets`` (``earliest``, or JSON with offsets,
    -2 earliest); the same with ``ending``, exclusive, where ``latest`` and -1 are the log's end. A
    timestamp stands for the offset that a broker of the Kafka version `rules` answers to it, or
    ``correct``: that of the first record in the log that has it or a later one.
Which of their records
    `isolation`, or ``kafka.isolation.level``: ``read_committed`` leaves out what was aborted, and
    what is not decided.

Options that only say how to reach a broker, or only concern streams, are accepted and have no
effect; those that the Kafka source refuses are refused.

Source: Spark 4.2 ``KafkaSourceProvider``, ``KafkaOffsetReaderAdmin``, ``ConsumerStrategy``.
"""
from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, get_args

from kafkastore.errors import KafkaStoreError
from kafkastore.formats.file_names import TopicPartition
from kafkastore.log.isolation import Isolation
from kafkastore.log.lookup.prepared import LookupChoice, check_isolation_is_known
from kafkastore.log.lookup.rules import broker_rules
from kafkastore.remote.stores import is_url

EARLIEST = -2
LATEST = -1

KNOWN = (
    "path",
    "paths",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "startingOffsetsByTimestampStrategy",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "failOnDataLoss",
    "includeHeaders",
    "columns",
    "minPartitions",
    "maxRecordsPerPartition",
    "isolation",
    "rules",
    "pushFilters",
    "table",
)
RECORDS = "records"
#: See `tables`; the first is the default.
TABLES = (
    RECORDS,
    "batches",
    "segments",
    "time_index",
    "offset_index",
    "transactions",
    "committed_offsets",
)
#: What can be said of any table; all other options are about records.
OF_ANY_TABLE = (
    "path",
    "paths",
    "subscribe",
    "subscribePattern",
    "assign",
    "failOnDataLoss",
    "columns",
    "minPartitions",
    "table",
)
OF_A_BROKER = ("kafka.", "kafkaconsumer.", "fetchoffset.", "groupidprefix")
#: Options of streams, and of writing, that the Kafka source's batches do not look at.
IGNORED = ("maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay", "topic")
ISOLATION_LEVEL = "kafka.isolation.level"
#: What to do instead, by the option of the consumer that the Kafka source refuses.
REFUSED = {
    "kafka.auto.offset.reset": "set startingOffsets",
    "kafka.key.deserializer": "keys are bytes: convert them after reading",
    "kafka.value.deserializer": "values are bytes: convert them after reading",
    "kafka.enable.auto.commit": "nothing is ever committed",
    "kafka.interceptor.classes": "rows are what the log holds",
}
#: What brokers list as internal, or not at all.
INTERNAL_TOPICS = (
    "__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"
)
#: The newest broker's answers to times: the Kafka source gets a broker's, whatever they are.
NEWEST_RULES = "4.1"


class OptionError(KafkaStoreError, ValueError):
    """An option that is not known, cannot be read, or contradicts another."""


class Selection(NamedTuple):
    """Which partitions are read; all where nothing is given.

    Attributes
    ----------
    topics : frozenset of str or None
        From `subscribe`.
    pattern : str or None
        From `subscribePattern`.
    assigned : frozenset of TopicPartition or None
        From `assign`.
    """

    topics: frozenset[str] | None = None
    pattern: str | None = None
    assigned: frozenset[TopicPartition] | None = None

    def includes(self, topic_partition: TopicPartition) -> bool:
        """Whether a partition is read."""
        if self.assigned is not None:
            return topic_partition in self.assigned
        if self.topics is not None:
            return topic_partition.topic in self.topics
        if self.pattern is None:
            return True
        topic = topic_partition.topic
        return topic not in INTERNAL_TOPICS and re.search(self.pattern, topic) is not None


class Bound(NamedTuple):
    """One end of what is read of each partition.

    Attributes
    ----------
    option : str
        The option that it came from.
    everywhere : int or None
        For all partitions; None where each has its own.
    each : mapping of TopicPartition to int
        Offsets, or timestamps.
    by_timestamp : bool
        Whether the numbers are timestamps (ms) or offsets (`EARLIEST` and `LATEST` among them).
    """

    option: str
    everywhere: int | None = None
    each: Mapping[TopicPartition, int] = {}
    by_timestamp: bool = False

    def of(self, topic_partition: TopicPartition) -> int:
        """Return a partition's number.

        Raises
        ------
        OptionError
            If the option names partitions, but not this one.
        """
        if self.everywhere is not None:
            return self.everywhere
        if topic_partition not in self.each:
            raise OptionError(
                f"option {self.option} says nothing of {topic_partition}, which is read: "
                f"name every partition, or choose some with the option assign"
            )
        return self.each[topic_partition]


class ReadOptions(NamedTuple):
    """What a read was asked for; see the module's text."""

    paths: tuple[str, ...]
    selection: Selection
    start: Bound
    end: Bound
    latest_without_match: bool
    fail_on_data_loss: bool
    columns: tuple[str, ...] | None
    include_headers: bool
    min_partitions: int
    max_records: int | None
    isolation: Isolation
    rules: str
    push_filters: bool
    table: str


def parse_options(given: Mapping[str, str], *, is_stream: bool | None = False) -> ReadOptions:
    """Read the options of a load.

    Parameters
    ----------
    given : mapping of str to str
        As Spark hands them over; names in any case.
    is_stream : bool or None
        Whether a stream is loaded, which begins at the latest offset by default and has no end;
        None where that is not known yet.

    Returns
    -------
    ReadOptions

    Raises
    ------
    OptionError
        If an option is not known, cannot be read, or contradicts another.

    Examples
    --------
    >>> options = parse_options({"PATH": "/kafka-logs", "subscribe": "orders, payments"})
    >>> options.paths, options.selection.includes(TopicPartition("orders", 3))
    (('/kafka-logs',), True)
    """
    options = {name.lower(): value for name, value in given.items()}
    _check_names(given)
    columns = tuple(_words(options["columns"])) if "columns" in options else None
    include_headers = _boolean(options, "includeHeaders", default=False)
    headers_differ = columns is not None and include_headers != ("headers" in columns)
    if headers_differ and "includeheaders" in options:
        raise OptionError(
            "options columns and includeHeaders contradict each other: name headers in columns"
        )
    if is_stream:
        _check_names_for_streams(given)
    start = _bound(
        options,
        "starting",
        LATEST if is_stream else EARLIEST,
        LATEST if is_stream is False else None,
    )
    end = _bound(options, "ending", LATEST, EARLIEST)
    _check_order(start, end)
    return ReadOptions(
        paths=_paths(options),
        selection=_selection(options),
        start=start,
        end=end,
        latest_without_match=_choice(
            options, "startingOffsetsByTimestampStrategy", ("error", "latest")
        )
        == "latest",
        fail_on_data_loss=_boolean(options, "failOnDataLoss", default=True),
        columns=columns,
        include_headers=include_headers,
        min_partitions=at_least_one(options, "minPartitions") or 1,
        max_records=at_least_one(options, "maxRecordsPerPartition"),
        isolation=(isolation := _isolation(options)),
        rules=_rules(options, isolation),
        push_filters=_boolean(options, "pushFilters", default=False),
        table=_table(options),
    )


def _check_names(given: Mapping[str, str]) -> None:
    if {"provider", "owner"} <= {name.lower() for name in given}:
        raise OptionError(
            "Spark gives a catalog's tables no options when they are read: CREATE TEMPORARY VIEW v "
            "USING kafkastore OPTIONS (path '...') instead"
        )
    known = {name.lower(): name for name in KNOWN}
    for name in given:
        if name.lower() in REFUSED:
            raise OptionError(
                f"option {name} is refused, as Spark's Kafka source does: {REFUSED[name.lower()]}"
            )
        if name.lower() in known or name.lower() in IGNORED:
            continue
        if name.lower().startswith(OF_A_BROKER):
            continue
        near = difflib.get_close_matches(name.lower(), known, 1)
        hint = f"did you mean {known[near[0]]}?" if near else f"there are {', '.join(KNOWN[2:])}"
        raise OptionError(f"option {name} is not known; {hint}")


def _check_names_for_streams(given: Mapping[str, str]) -> None:
    lower = {name.lower() for name in given}
    for name in KNOWN:
        if name.startswith("ending") and name.lower() in lower:
            raise OptionError(f"option {name} is not for streams, which have no end")
        if name in ("pushFilters", "table") and name.lower() in lower:
            raise OptionError(f"option {name} is not for streams, but for reads")


def _table(options: Mapping[str, str]) -> str:
    table = _choice(options, "table", TABLES)
    if table != RECORDS:
        for name in KNOWN:
            if name.lower() in options and name not in OF_ANY_TABLE:
                raise OptionError(f"option {name} is about records, not about the table {table}")
    return table


def _paths(options: Mapping[str, str]) -> tuple[str, ...]:
    if "path" in options and "paths" in options:
        raise OptionError("options path and paths contradict each other: give one of them")
    paths = [options["path"]] if "path" in options else _json(options, "paths", "[]")
    if not isinstance(paths, list) or not all(isinstance(path, str) and path for path in paths):
        raise OptionError(f"option paths must be a JSON list of paths, not {options['paths']}")
    if not paths:
        raise OptionError("no path: load(path) needs a Kafka log directory, or several")
    # Tasks may run in another folder than the planner, whose folder a relative path means.
    return tuple(
        path if is_url(path) else os.path.abspath(path.removeprefix("file:")) for path in paths
    )


def _selection(options: Mapping[str, str]) -> Selection:
    chosen = [n for n in ("subscribe", "subscribePattern", "assign") if n.lower() in options]
    if len(chosen) > 1:
        raise OptionError(f"options {' and '.join(chosen)} contradict each other: give one of them")
    if chosen == ["subscribe"]:
        topics = frozenset(_words(options["subscribe"]))
        if not topics:
            raise OptionError("option subscribe names no topic")
        return Selection(topics=topics)
    if chosen == ["subscribePattern"]:
        pattern = options["subscribepattern"].strip()
        if not pattern:
            raise OptionError("option subscribePattern is empty")
        try:
            re.compile(pattern)
        except re.error as error:
            raise OptionError(f"option subscribePattern is not regular: {error}") from None
        return Selection(pattern=pattern)
    if chosen == ["assign"]:
        return Selection(assigned=frozenset(_assigned(options)))
    return Selection()


def _assigned(options: Mapping[str, str]) -> list[TopicPartition]:
    value = _json(options, "assign")
    if not isinstance(value, dict) or not all(
        isinstance(partitions, list) and all(type(each) is int for each in partitions)
        for partitions in value.values()
    ):
        raise OptionError(
            f'option assign must be JSON like {{"orders": [0, 1]}}, not {options["assign"]}'
        )
    return [
        TopicPartition(topic, partition)
        for topic, partitions in value.items()
        for partition in partitions
    ]


def _bound(
    options: Mapping[str, str], prefix: str, default: int, refused: int | None
) -> Bound:
    """Read the options for one end; the other end's word is refused."""
    name = f"{prefix}Timestamp"
    if name.lower() in options:
        return Bound(name, _integer(options, name, smallest=0), by_timestamp=True)
    name = f"{prefix}OffsetsByTimestamp"
    if name.lower() in options:
        return Bound(name, each=_by_partition(options, name, smallest=0), by_timestamp=True)
    name = f"{prefix}Offsets"
    words = {"earliest": EARLIEST, "latest": LATEST}
    value = options.get(name.lower(), "").strip()
    if name.lower() not in options or value.lower() in words:
        offset = words.get(value.lower(), default)
        if offset == refused:
            raise OptionError(f"option {name} can't be {value.lower()}: nothing would be read")
        return Bound(name, offset)
    each = _by_partition(options, name, smallest=EARLIEST)
    for topic_partition, offset in each.items():
        if offset == refused:
            raise OptionError(
                f"option {name} can't be {refused} for {topic_partition}: nothing would be read"
            )
    return Bound(name, each=each)


def _check_order(start: Bound, end: Bound) -> None:
    """Check the two ends where both name each partition, as the Kafka source does before reading.

    Notes
    -----
    Source: Spark 4.2 ``KafkaSourceProvider.checkOffsetLimitValidity``.
    """
    if start.everywhere is not None or end.everywhere is not None:
        return
    if start.by_timestamp != end.by_timestamp:
        return
    both = f"options {start.option} and {end.option}"
    if unmatched := sorted(start.each.keys() ^ end.each.keys()):
        raise OptionError(f"{both} name different partitions: {unmatched[0]} is in one alone")
    for topic_partition, first in start.each.items():
        last = end.each[topic_partition]
        if 0 <= last < first:
            raise OptionError(
                f"{both}: the start of {topic_partition}, {first}, is behind its end, {last}"
            )


def _isolation(options: Mapping[str, str]) -> Isolation:
    levels: tuple[Isolation, ...] = get_args(Isolation)
    named = {
        _choice(options, name, levels)
        for name in ("isolation", ISOLATION_LEVEL)
        if name in options
    }
    if len(named) > 1:
        raise OptionError(
            f"options isolation and {ISOLATION_LEVEL} contradict each other: give one of them"
        )
    return next((level for level in levels if level in named), levels[0])


def _rules(options: Mapping[str, str], isolation: Isolation) -> str:
    rules = options.get("rules", NEWEST_RULES).strip()
    try:
        check_isolation_is_known(LookupChoice(rules, isolation), broker_rules(rules))
    except ValueError as error:
        raise OptionError(f"option rules: {error}") from None
    return rules


def _by_partition(
    options: Mapping[str, str], name: str, *, smallest: int
) -> dict[TopicPartition, int]:
    value = _json(options, name)
    numbers: dict[TopicPartition, int] = {}
    try:
        for topic, partitions in value.items():
            for partition, number in partitions.items():
                if type(number) is not int or not smallest <= number < 1 << 63:
                    raise ValueError
                numbers[TopicPartition(topic, int(partition))] = number
    except (AttributeError, ValueError):
        raise OptionError(
            f'option {name} must be JSON like {{"orders": {{"0": 23, "1": 42}}}}, '
            f"not {options[name.lower()]}"
        ) from None
    return numbers


def _json(options: Mapping[str, str], name: str, default: str | None = None) -> Any:
    text = options.get(name.lower(), default)
    assert text is not None  # the caller looked
    try:
        return json.loads(text)
    except ValueError:
        raise OptionError(f"option {name} is no JSON: {text}") from None


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _choice(options: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    value = options.get(name.lower(), choices[0]).strip().lower()
    if value not in choices:
        raise OptionError(f"option {name} must be {' or '.join(choices)}, not {value}")
    return value


def _boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    choices = ("true", "false") if default else ("false", "true")
    return _choice(options, name, choices) == "true"


def _integer(options: Mapping[str, str], name: str, *, smallest: int) -> int:
    text = options[name.lower()].strip()
    try:
        value = int(text)
    except ValueError:
        value = smallest - 1
    if not smallest <= value < 1 << 63:
        raise OptionError(f"option {name} must be an integer of at least {smallest}, not {text}")
    return value


def at_least_one(options: Mapping[str, str], name: str) -> int | None:
    """Read an option that is a whole number from 1 on; None where it is not given."""
    return _integer(options, name, smallest=1) if name.lower() in options else None
