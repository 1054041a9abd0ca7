"""The columns: those of Spark's Kafka source, in its order, then our own.

============================================================  ====================================
column                                                        in a frame
============================================================  ====================================
key binary, value binary, topic string, partition int,
offset long, timestamp timestamp, timestampType int           always
headers array<struct<key string, value binary>>               with ``includeHeaders``; null, never
                                                              empty, if a record has none
leader_epoch int, producer_id long, producer_epoch int,
is_transactional boolean, is_control boolean                  only if named
newest_timestamp long                                         only if named, with the last records
                                                              of each partition's keys
============================================================  ====================================

Every column is nullable, as Spark's Kafka source declares it. `timestampType` is Kafka's id: -1 no
timestamp, 0 CreateTime, 1 LogAppendTime.

Source: Spark 4.2 ``KafkaRecordToRowConverter``, ``KafkaOffsetReader``.
"""
from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from kafkastore.log import records_as_arrow
from kafkastore.spark.source.options import LatestOf, OptionError, OptionProblem

#: All columns, in order.
COLUMNS: StructType = from_arrow_schema(pa.schema(list(records_as_arrow.COLUMN_TYPES.items())))
#: The newest timestamp, in ms, of all records of the row's key in its partition.
NEWEST_TIMESTAMP = "newest_timestamp"


def known_columns(latest_of: LatestOf | None) -> StructType:
    """Return all columns of a read, in order."""
    if latest_of != "partition":
        return COLUMNS
    return StructType([*COLUMNS.fields, StructField(NEWEST_TIMESTAMP, LongType())])


def spark_schema(
    columns: Sequence[str] | None = None,
    *,
    include_headers: bool = False,
    latest_of: LatestOf | None = None,
) -> StructType:
    """Return a frame's schema, in the source's order whatever the order of `columns`.

    The default is the columns of the Kafka source, with `headers` if `include_headers`. Raises
    `OptionError` if a name is unknown.

    >>> spark_schema(["offset", "key"]).simpleString()
    'struct<key:binary,offset:bigint>'
    """
    known = known_columns(latest_of)
    if columns is None:
        columns = records_as_arrow.schema(include_headers=include_headers).names
    elif unknown := [name for name in columns if name not in known.names]:
        raise OptionError(
            f"option columns: no column {unknown[0]!r}; there are {', '.join(known.names)}",
            OptionProblem.NOT_FOUND, "columns",
        )
    return StructType([field for field in known if field.name in columns])


def check_schema(
    schema: StructType, asked: Sequence[str] | None, columns: StructType = COLUMNS
) -> tuple[str, ...]:
    """Check a caller's schema, and return its column names in its order.

    The schema has some of `columns`, in any order. Raises `OptionError` if a name is unknown, if
    its type differs, or if the names in the option ``columns`` (`asked`) differ.
    """
    if asked is not None and {*asked} != {*schema.fieldNames()}:
        raise OptionError(
            f"a schema of {', '.join(schema.fieldNames())} is given, and option columns names "
            f"{', '.join(asked)}: leave one of them out",
            OptionProblem.CONTRADICTION, "columns",
        )
    known = columns.fieldNames()
    for field in schema.fields:
        if field.name not in known:
            raise OptionError(
                f"schema: no column {field.name!r}; there are {', '.join(known)}",
                OptionProblem.NOT_FOUND,
                field.name,
            )
        ours = columns[field.name].dataType
        if field.dataType != ours or not field.nullable:
            raise OptionError(
                f"schema: column {field.name} is a nullable {ours.simpleString()}, not a "
                f"{'' if field.nullable else 'not-null '}{field.dataType.simpleString()}; "
                f"cast it after reading",
                OptionProblem.VALUE,
                field.name,
            )
    return tuple(schema.fieldNames())
