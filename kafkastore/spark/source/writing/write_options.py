"""The options of a save, and the columns that a frame needs.

Source: Spark 4.2 ``KafkaWriter``.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegralType,
    StringType,
    StructType,
    TimestampType,
)

from kafkastore.arguments import INT32_MAX
from kafkastore.errors import InvalidConfigError
from kafkastore.paths import is_url
from kafkastore.spark.source.option_values import (
    OptionError,
    OptionProblem,
    absolute,
    at_least_one,
    choice,
    contradiction,
    unknown,
)
from kafkastore.spark.source.options import OF_A_BROKER
from kafkastore.spark.source.schema import COLUMNS
from kafkastore.writing.cluster_topics import NO_TOPICS, ClusterTopics
from kafkastore.writing.log_config import TOPIC_OPTIONS, LogConfig
from kafkastore.writing.log_writer import BATCH_BYTES

#: Options that are not topic configurations.
OPTIONS = ("path", "topic", "partitions", "compression", "batch.size", "metadata")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class WriteOptions(NamedTuple):
    """The parsed options of a write.

    `topic` is None if rows have a topic column; `partitions` is per topic, for rows without one;
    `batch_bytes` is before compression; `metadata` is where that of the cluster is, `cluster` what
    it says.
    """

    path: str
    topic: str | None
    partitions: int | None
    batch_bytes: int
    given: Mapping[str, str]
    metadata: str | None = None
    cluster: ClusterTopics = NO_TOPICS

    @property
    def config(self) -> LogConfig:
        """The given topic configurations, with Kafka's defaults."""
        return LogConfig.of(self.given)

    def partition_count(self, topic: str) -> int | None:
        """Return the number of partitions of a topic: the given one, or the cluster's."""
        if self.partitions is not None or topic not in self.cluster.topics:
            return self.partitions
        return self.cluster.topics[topic].partition_count


def parse_write_options(given: Mapping[str, str]) -> WriteOptions:
    """Parse the options of a save; names may be in any case.

    Raises `OptionError` if an option is unknown, invalid, or contradicts another.

    >>> parse_write_options({"path": "/logs", "compression": "zstd"}).config.compression_type
    'zstd'
    """
    options = {
        name.lower(): value
        for name, value in given.items()
        if not name.lower().startswith(OF_A_BROKER)
    }
    topic_options = {name: text for name, text in options.items() if name not in OPTIONS}
    _check_names(topic_options)
    if "compression" in options:
        if "compression.type" in topic_options:
            raise contradiction("compression", "compression.type")
        codec = choice(options, "compression", CODECS)
        topic_options["compression.type"] = "uncompressed" if codec == "none" else codec
    try:
        LogConfig.of(topic_options)
    except InvalidConfigError as error:
        raise OptionError(f"option {error}", OptionProblem.VALUE, error.option) from None
    partitions = at_least_one(options, "partitions", INT32_MAX)
    batch_bytes = at_least_one(options, "batch.size", INT32_MAX)
    return WriteOptions(
        _path(options),
        options.get("topic"),
        partitions,
        batch_bytes or BATCH_BYTES,
        topic_options,
        _metadata(options),
    )


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Check that a frame's columns, with the options, make records.

    Raises `OptionError` if a column is missing, unknown, or has the wrong type.
    """
    names = schema.fieldNames()
    for field in schema.fields:
        if names.count(field.name) > 1:
            raise OptionError(
                f"there is more than one column {field.name!r}",
                OptionProblem.CONTRADICTION,
                field.name,
            )
        if field.name not in _TYPES and field.name not in COLUMNS.fieldNames():
            what = f"column {field.name!r} is not a column of records"
            raise unknown(field.name, what, _TYPES, ", ".join(_TYPES))
        if field.name in _TYPES and not _TYPES[field.name].holds(field.dataType):
            raise OptionError(
                f"column {field.name!r} must be {_TYPES[field.name].text}, not "
                f"{field.dataType.simpleString()}; cast it before writing",
                OptionProblem.VALUE,
                field.name,
            )
    if "value" not in names:
        raise OptionError(
            "column 'value' is missing; records need it", OptionProblem.MISSING, "value"
        )
    if "topic" not in names and options.topic is None:
        raise OptionError(
            "topic is missing: give a column 'topic' or the option topic",
            OptionProblem.MISSING, "topic",
        )
    topics = [options.topic] if options.topic is not None else list(options.cluster.topics)
    counts = map(options.partition_count, topics)
    if "partition" not in names and options.partitions is None and not any(counts):
        raise OptionError(
            "partition is missing: give a column 'partition', or set the option partitions to the "
            "topic's number of partitions, or metadata to the cluster's metadata",
            OptionProblem.MISSING, "partitions",
        )


class _Type(NamedTuple):
    text: str
    holds: Callable[[DataType], bool]


def _is_headers(kind: DataType) -> bool:
    """Return whether a type is that of headers, whichever fields are nullable."""
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = [(field.name, type(field.dataType)) for field in kind.elementType.fields]
    return fields == [("key", StringType), ("value", BinaryType)]


_BYTES = _Type("string or binary", lambda kind: isinstance(kind, StringType | BinaryType))
_INTEGER = _Type("an int", lambda kind: isinstance(kind, IntegralType))
_TYPES = {
    "topic": _Type("string", lambda kind: isinstance(kind, StringType)),
    "partition": _INTEGER,
    "key": _BYTES,
    "value": _BYTES,
    "headers": _Type("array<struct<key:string,value:binary>>", _is_headers),
    "timestamp": _Type("timestamp", lambda kind: isinstance(kind, TimestampType)),
    "offset": _INTEGER,
}


def _check_names(options: Mapping[str, str]) -> None:
    for name in options.keys() - set(OPTIONS) - TOPIC_OPTIONS:
        known = [*OPTIONS, *sorted(TOPIC_OPTIONS)]
        there = f"{', '.join(OPTIONS[1:])}, and those of a Kafka topic"
        raise unknown(name, f"option {name} is not known", known, there)


def _metadata(options: Mapping[str, str]) -> str | None:
    """Return where the cluster's metadata is, a path or a URL."""
    metadata = options.get("metadata")
    return metadata if metadata is None or is_url(metadata) else absolute(metadata)


def _path(options: Mapping[str, str]) -> str:
    path = options.get("path", "").removeprefix("file:")
    if not path:
        raise OptionError(
            "no path: save(path) needs a directory for the logs",
            OptionProblem.MISSING, "path",
        )
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", path):
        raise OptionError(
            f"{path} must be a path of a local file system",
            OptionProblem.VALUE, "path",
        )
    return absolute(path)
