"""Options with the names and the precedence of those of Spark's Kafka source.

Which partitions
    One of `subscribe` (topics, separated by commas), `subscribePattern` (a regular expression that
    may match anywhere in a topic's name; internal topics never match) and `assign` (JSON,
    ``{"orders": [0, 1]}``). Without any of them: all partitions.
Which offsets
    The first given one of ``startingTimestamp`` (ms, for all partitions),
    ``startingOffsetsByTimestamp`` (JSON, ``{"orders": {"0": 1500000000000}}``) and
    ``startingOffsets`` (``earliest``, or JSON with offsets, where -2 is earliest); likewise
    ``ending``, exclusive, where ``latest`` and -1 are the log end offset. A timestamp means the
    offset that a broker of the Kafka version `rules` returns for it, or with ``correct`` that of
    the first record in the log with this or a later timestamp; `indexes` says how far time indexes
    are trusted to find it.
Which of their records
    `isolation`, or ``kafka.isolation.level``: ``read_committed`` omits records of aborted and of
    undecided transactions. `latest` keeps the last record of each key of a topic or partition.

Options that only say how to reach a broker, or only concern streams, are accepted and have no
effect. Options that the Kafka source refuses are refused.

Source: Spark 4.2 ``KafkaSourceProvider``, ``KafkaOffsetReaderAdmin``, ``ConsumerStrategy``.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args

from kafkastore.log.damage import OnCorrupt
from kafkastore.log.isolation import Isolation
from kafkastore.lookup.rules import LookupChoice, broker_rules, check_isolation_is_known
from kafkastore.paths import is_url, to_path
from kafkastore.segment.index_trust import INDEXES, Indexes, check_indexes
from kafkastore.spark.source.option_values import (
    OptionError,
    OptionProblem,
    absolute,
    at_least_one,
    boolean,
    choice,
    contradiction,
    json_value,
    must_be,
    unknown,
    words,
)
from kafkastore.spark.source.selection import (
    EARLIEST,
    LATEST,
    Bound,
    TopicSelection,
    bound_of,
    check_order,
    selection_of,
)
from kafkastore.versions import NEWEST_VERSION

__all__ = ["OptionError", "OptionProblem", "ReadOptions", "at_least_one", "parse_options"]

#: Options of every table.
OF_ANY_TABLE = (
    "path", "paths", "subscribe", "subscribePattern", "assign", "failOnDataLoss", "onCorrupt",
    "columns", "minPartitions", "table",
)
#: Options that are only for records.
OF_RECORDS = (
    "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets",
    "startingOffsetsByTimestampStrategy", "endingTimestamp", "endingOffsetsByTimestamp",
    "endingOffsets", "includeHeaders", "maxRecordsPerPartition", "isolation", "rules", "indexes",
    "pushFilters", "latest", "includeTombstones",
)
KNOWN = OF_ANY_TABLE + OF_RECORDS
#: Options that only batch reads have.
OF_BATCHES = ("pushFilters", "table", "latest", "includeTombstones")
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
OF_A_BROKER = ("kafka.", "kafkaconsumer.", "fetchoffset.", "groupidprefix")
#: Options of streams and of writing, which batch reads of the Kafka source ignore.
IGNORED = ("maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay", "topic")
ISOLATION_LEVEL = "kafka.isolation.level"
#: What has one row for each key: a topic, or each of its partitions.
LatestOf = Literal["topic", "partition"]
LATEST_OF: dict[str, LatestOf | None] = {"false": None, "true": "topic", "partition": "partition"}
#: Consumer options that the Kafka source refuses, and what to do instead.
REFUSED = {
    "kafka.auto.offset.reset": "set startingOffsets",
    "kafka.key.deserializer": "keys are bytes: convert them after reading",
    "kafka.value.deserializer": "values are bytes: convert them after reading",
    "kafka.enable.auto.commit": "offsets are never committed",
    "kafka.interceptor.classes": "rows are the records as stored",
}


class ReadOptions(NamedTuple):
    """The parsed options of a read; see the module's docstring."""

    paths: tuple[str, ...]
    selection: TopicSelection
    start: Bound
    end: Bound
    latest_without_match: bool
    fail_on_data_loss: bool
    on_corrupt: OnCorrupt
    stops_partitions: bool
    columns: tuple[str, ...] | None
    include_headers: bool
    min_partitions: int
    max_records: int | None
    isolation: Isolation
    rules: str
    indexes: Indexes
    push_filters: bool
    table: str
    latest_of: LatestOf | None
    include_tombstones: bool


def parse_options(given: Mapping[str, str], *, is_stream: bool | None = False) -> ReadOptions:
    """Parse the options of a load; names may be in any case.

    A stream (`is_stream`) starts at the latest offset by default and has no end; None means that it
    is not known yet. Raises `OptionError` if an option is unknown, invalid, or contradicts another.

    >>> options = parse_options({"PATH": "/kafka-logs", "subscribe": "orders, payments"})
    >>> options.paths, sorted(options.selection.topics)
    (('/kafka-logs',), ['orders', 'payments'])
    """
    options = {name.lower(): value for name, value in given.items()}
    _check_names(given)
    columns = tuple(words(options["columns"])) if "columns" in options else None
    include_headers = boolean(options, "includeHeaders", default=False)
    headers_differ = columns is not None and include_headers != ("headers" in columns)
    if headers_differ and "includeheaders" in options:
        raise contradiction("columns", "includeHeaders", advice="name headers in columns")
    if is_stream:
        _check_names_for_streams(given)
    latest_of = _latest_of(options)
    start = bound_of(
        options,
        "starting",
        LATEST if is_stream else EARLIEST,
        LATEST if is_stream is False else None,
    )
    end = bound_of(options, "ending", LATEST, EARLIEST)
    check_order(start, end)
    return ReadOptions(
        paths=_paths(options),
        selection=selection_of(options),
        start=start,
        end=end,
        latest_without_match=choice(
            options, "startingOffsetsByTimestampStrategy", ("error", "latest")
        )
        == "latest",
        fail_on_data_loss=(fails := boolean(options, "failOnDataLoss", default=True)),
        on_corrupt=(on_corrupt := _on_corrupt(options, fails=fails)),
        # failOnDataLoss=false alone only stops a task; otherwise each partition would be one task.
        stops_partitions=(stops := "oncorrupt" in options and on_corrupt == "stop"),
        columns=columns,
        include_headers=include_headers,
        min_partitions=at_least_one(options, "minPartitions") or 1,
        max_records=at_least_one(options, "maxRecordsPerPartition"),
        isolation=(isolation := _isolation(options, latest_of)),
        rules=_rules(options, isolation),
        indexes=check_indexes(choice(options, "indexes", INDEXES)),
        # Filters could exclude the corrupt bytes at which a partition must stop.
        push_filters=boolean(options, "pushFilters", default=False) and not stops,
        table=_table(options),
        latest_of=latest_of,
        include_tombstones=boolean(options, "includeTombstones", default=False),
    )


def _check_names(given: Mapping[str, str]) -> None:
    if {"provider", "owner"} <= {name.lower() for name in given}:
        raise OptionError(
            "Spark gives a catalog's tables no options when they are read: CREATE TEMPORARY VIEW v "
            "USING kafkastore OPTIONS (path '...') instead",
            OptionProblem.UNSUITABLE,
        )
    known = {name.lower() for name in KNOWN}
    for name in given:
        if name.lower() in REFUSED:
            raise OptionError(
                f"option {name} is refused, as Spark's Kafka source does: {REFUSED[name.lower()]}",
                OptionProblem.REFUSED, name,
            )
        if name.lower() in known or name.lower() in IGNORED:
            continue
        if name.lower().startswith(OF_A_BROKER):
            continue
        raise unknown(name, f"option {name} is not known", KNOWN, ", ".join(KNOWN[2:]))


def _check_names_for_streams(given: Mapping[str, str]) -> None:
    lower = {name.lower() for name in given}
    for name in KNOWN:
        if name.startswith("ending") and name.lower() in lower:
            raise OptionError(
                f"option {name} is not supported for streams, which have no end",
                OptionProblem.UNSUITABLE, name,
            )
        if name in OF_BATCHES and name.lower() in lower:
            raise OptionError(
                f"option {name} is supported for batch reads only, not for streams",
                OptionProblem.UNSUITABLE, name,
            )


def _table(options: Mapping[str, str]) -> str:
    table = choice(options, "table", TABLES)
    if table != RECORDS:
        for name in OF_RECORDS:
            if name.lower() in options:
                raise OptionError(
                    f"option {name} applies to records, not to the table {table}",
                    OptionProblem.UNSUITABLE, name,
                )
    return table


def _paths(options: Mapping[str, str]) -> tuple[str, ...]:
    if "path" in options and "paths" in options:
        raise contradiction("path", "paths")
    like = "a JSON list of paths"
    paths = [options["path"]] if "path" in options else json_value(options, "paths", like, "[]")
    if not isinstance(paths, list) or not all(isinstance(path, str) and path for path in paths):
        raise must_be("paths", like, options["paths"])
    if not paths:
        raise OptionError(
            "no path: load(path) needs a Kafka log directory, or several",
            OptionProblem.MISSING, "path",
        )
    return tuple(
        path if is_url(path) else absolute(str(to_path(path)).removeprefix("file:"))
        for path in paths
    )


def _on_corrupt(options: Mapping[str, str], *, fails: bool) -> OnCorrupt:
    """Return what to do at corrupt bytes.

    By default they end a task's range if failOnDataLoss is false.
    """
    if "oncorrupt" not in options:
        return "raise" if fails else "stop"
    chosen = choice(options, "onCorrupt", get_args(OnCorrupt))
    return next(each for each in get_args(OnCorrupt) if each == chosen)


def _latest_of(options: Mapping[str, str]) -> LatestOf | None:
    """Return what has one row for each key, if anything; check other options."""
    latest_of = LATEST_OF[choice(options, "latest", tuple(LATEST_OF))]
    if latest_of is None:
        if "includetombstones" in options:
            raise OptionError(
                "option includeTombstones applies to the last records of keys: set latest to true",
                OptionProblem.UNSUITABLE, "includeTombstones",
            )
        return None
    for name in ("minPartitions", "maxRecordsPerPartition"):
        if name.lower() in options:
            advice = f"the last records of a {latest_of} are found in one task; leave out {name}"
            raise contradiction("latest", name, advice=advice)
    return latest_of


def _isolation(options: Mapping[str, str], latest_of: LatestOf | None) -> Isolation:
    levels: tuple[Isolation, ...] = get_args(Isolation)
    named = {
        choice(options, name, levels)
        for name in ("isolation", ISOLATION_LEVEL)
        if name in options
    }
    if len(named) > 1:
        raise contradiction("isolation", ISOLATION_LEVEL)
    if latest_of is not None:
        if named == {"read_uncommitted"}:
            name = "isolation" if "isolation" in options else ISOLATION_LEVEL
            raise contradiction(
                "latest", name, advice=f"only committed records count; leave out {name}"
            )
        return "read_committed"
    return next((level for level in levels if level in named), levels[0])


def _rules(options: Mapping[str, str], isolation: Isolation) -> str:
    # The Kafka source gets its offsets from a broker, so the default is a broker's rules.
    rules = options.get("rules", NEWEST_VERSION).strip()
    try:
        check_isolation_is_known(LookupChoice(rules, isolation), broker_rules(rules))
    except ValueError as error:
        raise OptionError(f"option rules: {error}", OptionProblem.VALUE, "rules") from None
    return rules


