"""The data source's columns: those of Spark's Kafka source, in its order, then our own.

============================================================  ====================================
column                                                        in a frame
============================================================  ====================================
key binary, value binary, topic string, partition int,
offset long, timestamp timestamp, timestampType int           always
headers array<struct<key string, value binary>>               with ``includeHeaders``; null, never
                                                              empty, where a record has none
leader_epoch int, producer_id long, producer_epoch int,
is_transactional boolean, is_control boolean                  only where named
============================================================  ====================================

Every column may be null, as Spark's Kafka source declares them.  `timestampType` is Kafka's id: -1
no timestamp, 0 CreateTime, 1 LogAppendTime.

Source: Spark 4.2 ``KafkaRecordToRowConverter``, ``KafkaOffsetReader``.
"""
from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from kafkastore.log import records_as_arrow
from kafkastore.spark.source.options import OptionError

#: Every column there is, in order.
COLUMNS: StructType = from_arrow_schema(pa.schema(list(records_as_arrow.COLUMN_TYPES.items())))


def spark_schema(
    columns: Sequence[str] | None = None, *, include_headers: bool = False
) -> StructType:
    """Return a frame's schema.

    Parameters
    ----------
    columns : sequence of str, optional
        Names to choose, in any order; the schema keeps the source's. Default: the Kafka source's.
    include_headers : bool
        Whether `headers` follows where `columns` is not given.

    Returns
    -------
    StructType

    Raises
    ------
    OptionError
        If a name is not known.

    Examples
    --------
    >>> spark_schema(["offset", "key"]).simpleString()
    'struct<key:binary,offset:bigint>'
    """
    try:
        chosen = records_as_arrow.schema(columns, include_headers=include_headers)
    except ValueError as error:
        raise OptionError(f"option columns: {error}") from error
    return StructType([COLUMNS[name] for name in chosen.names])


def check_schema(
    schema: StructType, asked: Sequence[str] | None, columns: StructType = COLUMNS
) -> tuple[str, ...]:
    """Check a schema that the caller gave, and return its columns' names.

    Parameters
    ----------
    schema : StructType
        Some of the columns, in any order.
    asked : sequence of str or None
        What the option ``columns`` names.
    columns : StructType
        Those that there are.

    Returns
    -------
    tuple of str
        In the order of the schema.

    Raises
    ------
    OptionError
        If a name is not known, has another type than ours, or the option names others.
    """
    if asked is not None and {*asked} != {*schema.fieldNames()}:
        raise OptionError(
            f"a schema of {', '.join(schema.fieldNames())} is given, and option columns names "
            f"{', '.join(asked)}: leave one of them out"
        )
    known = columns.fieldNames()
    for field in schema.fields:
        if field.name not in known:
            raise OptionError(
                f"schema: no column {field.name!r}; there are {', '.join(known)}"
            )
        ours = columns[field.name].dataType
        if field.dataType != ours or not field.nullable:
            raise OptionError(
                f"schema: column {field.name} is a nullable {ours.simpleString()}, not a "
                f"{'' if field.nullable else 'not-null '}{field.dataType.simpleString()}; "
                f"cast it after reading"
            )
    return tuple(schema.fieldNames())
