"""The options of a save, and the columns that a frame needs to be written as logs.

Source: Spark 4.2 ``KafkaWriter``.
"""
from __future__ import annotations

import difflib
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
from kafkastore.log.log_config import TOPIC_OPTIONS, LogConfig
from kafkastore.log.log_writer import BATCH_BYTES
from kafkastore.spark.source.option_values import absolute
from kafkastore.spark.source.options import OF_A_BROKER, OptionError
from kafkastore.spark.source.schema import COLUMNS

#: Options that are not topic configurations.
OPTIONS = ("path", "topic", "partitions", "compression", "batch.size")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class WriteOptions(NamedTuple):
    """The parsed options of a write.

    `topic` is that of all rows, None if they have a topic column; `partitions` is the number of
    partitions of each topic, for rows without one; `batch_bytes` is the size of a batch before
    compression.
    """

    path: str
    topic: str | None
    partitions: int | None
    batch_bytes: int
    config: LogConfig


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
            raise OptionError(
                "options compression and compression.type contradict each other: give one of them"
            )
        codec = options["compression"].strip().lower()
        if codec not in CODECS:
            raise OptionError(f"option compression must be one of {', '.join(CODECS)}, not {codec}")
        topic_options["compression.type"] = "uncompressed" if codec == "none" else codec
    try:
        config = LogConfig.of(topic_options)
    except InvalidConfigError as error:
        raise OptionError(f"option {error}") from None
    partitions = _number(options, "partitions", INT32_MAX) if "partitions" in options else None
    batch_bytes = _number(options, "batch.size", INT32_MAX) if "batch.size" in options else None
    return WriteOptions(
        _path(options), options.get("topic"), partitions, batch_bytes or BATCH_BYTES, config
    )


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Check that a frame's columns, with the options, make records.

    Raises `OptionError` if a column is missing, unknown, or has the wrong type.
    """
    names = schema.fieldNames()
    for field in schema.fields:
        if names.count(field.name) > 1:
            raise OptionError(f"there is more than one column {field.name!r}")
        if field.name not in _TYPES and field.name not in COLUMNS.fieldNames():
            near = difflib.get_close_matches(field.name.lower(), _TYPES, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(_TYPES)}"
            raise OptionError(f"column {field.name!r} is none of a record; {hint}")
        if field.name in _TYPES and not _TYPES[field.name].holds(field.dataType):
            raise OptionError(
                f"column {field.name!r} must be {_TYPES[field.name].text}, not "
                f"{field.dataType.simpleString()}; cast it before writing"
            )
    if "value" not in names:
        raise OptionError("there is no column 'value' to make records of")
    if "topic" not in names and options.topic is None:
        raise OptionError("there is neither a column 'topic' nor an option topic")
    if "partition" not in names and options.partitions is None:
        raise OptionError(
            "there is neither a column 'partition' nor an option partitions, which says among how "
            "many partitions of a topic keys are divided"
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
_INTEGER = _Type("a whole number", lambda kind: isinstance(kind, IntegralType))
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
        near = difflib.get_close_matches(name, [*OPTIONS, *sorted(TOPIC_OPTIONS)], 1)
        hint = f"did you mean {near[0]}?" if near else (
            f"there are {', '.join(OPTIONS[1:])}, and those of a Kafka topic"
        )
        raise OptionError(f"option {name} is not known; {hint}")


def _path(options: Mapping[str, str]) -> str:
    path = options.get("path", "").removeprefix("file:")
    if not path:
        raise OptionError("no path: save(path) needs a directory for the logs")
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", path):
        raise OptionError(f"{path} is no path of a file system on which a broker has its logs")
    return absolute(path)


def _number(options: Mapping[str, str], name: str, largest: int) -> int:
    text = options[name].strip()
    number = int(text) if re.fullmatch("[0-9]{1,10}", text) else 0
    if not 0 < number <= largest:
        raise OptionError(f"option {name} must be a whole number from 1 to {largest}, not {text}")
    return number
