"""Stream readers as Spark makes and uses them, without Spark."""
import json
import pickle

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable
from spark.streaming.processes import record

from kafkastore.spark.source.data_source import KafkaStoreDataSource

ALL = ReadAllAvailable()


def reader_of(path, **options):
    """A stream reader as Spark makes it; from the earliest offset, unless options say otherwise."""
    source = KafkaStoreDataSource({"path": str(path), "startingOffsets": "earliest", **options})
    return source.streamReader(schema=source.schema())


def read(reader, start, end):
    """Partition, offset and value of a batch's rows, through the JSON and pickles of Spark."""
    start, end = json.loads(json.dumps(start)), json.loads(json.dumps(end))
    tasks = pickle.loads(pickle.dumps(reader.partitions(start, end)))
    in_task = pickle.loads(pickle.dumps(reader))
    return [
        (row["topic"], row["partition"], row["offset"], row["value"].decode())
        for task in tasks or [InputPartition(None)]
        for batch in in_task.read(task)
        for row in batch.to_pylist()
    ]


def append(writer, *values, **how):
    """Append each value as a batch."""
    for value in values:
        writer.append_records([record(value.encode())], **how)


def numbers(first, last):
    return [str(number) for number in range(first, last)]
