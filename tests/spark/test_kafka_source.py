"""A job written for Spark's Kafka source gives the same from the broker's directory."""
from __future__ import annotations

import pyarrow as pa
import pytest
from spark import kafka_jobs
from spark.kafka_jobs import WHERE
from spark.kafka_topics import T0, ask_both, offsets

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Options of every job, with its table, schema or error from both sources."""
    folder = tmp_path_factory.mktemp("jobs")
    ask_both(
        folder, kafka_jobs, lambda server: {"jobs": [each | server for each in JOBS.values()]}
    )
    return {
        name: tuple(read_answer(folder, number, source) for source in ("kafka", "kafkastore"))
        for number, name in enumerate(JOBS)
    }


def read_answer(folder, number, source):
    """A table and its schema as Spark writes it, or an error."""
    error = folder / f"{number}.{source}.error"
    if error.exists():
        return error.read_text(), None
    with pa.ipc.open_file(folder / f"{number}.{source}.arrow") as file:
        table = file.read_all()
    order = [(name, "ascending") for name in ("topic", "partition", "offset")]
    return table.sort_by(order), (folder / f"{number}.{source}.schema").read_text()


ALL = "plain,packed-gzip,packed-snappy,packed-lz4,packed-zstd,stamped,sales"
JOBS = {
    "everything, with headers": {"subscribe": ALL, "includeHeaders": "true"},
    "everything, without headers": {"subscribe": ALL},
    "assigned": {"assign": '{"plain": [1], "sales": [0]}'},
    "a pattern found anywhere": {"subscribePattern": "ack|^s"},
    "a pattern that fits nothing": {"subscribePattern": "nothing"},
    "offsets": {
        "subscribe": "plain",
        "startingOffsets": offsets(plain=[1, 20, -2]),
        "endingOffsets": offsets(plain=[4, -1, -1]),
    },
    "offsets, some partitions unnamed": {
        "subscribe": "plain", "startingOffsets": '{"plain": {"0": 1}}',
    },
    "words": {
        "subscribe": "sales", "startingOffsets": "earliest", "endingOffsets": "latest",
    },
    "offsets of a transaction's markers": {
        "subscribe": "sales",
        "startingOffsets": offsets(sales=[5, 5]),
        "endingOffsets": offsets(sales=[13, 12]),
    },
    "an offset that is not there": {
        "subscribe": "plain", "startingOffsets": offsets(plain=[1000, 0, 0]),
    },
    "an offset that is not there, and failOnDataLoss off": {
        "subscribe": "plain",
        "startingOffsets": offsets(plain=[1000, 0, 0]),
        "failOnDataLoss": "false",
    },
    "an end that is not there": {
        "subscribe": "plain", "endingOffsets": offsets(plain=[1000, 60, 0]),
    },
    "an end that is not there, and failOnDataLoss off": {
        "subscribe": "plain",
        "endingOffsets": offsets(plain=[1000, 60, 0]),
        "failOnDataLoss": "false",
    },
    "a start past the end": {
        "subscribe": "plain",
        "startingOffsets": offsets(plain=[4, 30, 0]),
        "endingOffsets": offsets(plain=[1, 60, 0]),
    },
    "times": {
        "subscribe": "packed-gzip,packed-zstd",
        "startingTimestamp": str(T0 + 30), "endingTimestamp": str(T0 + 100),
    },
    "times out of order": {
        "assign": '{"plain": [0]}',
        "startingTimestamp": str(T0 + 2), "endingTimestamp": str(T0 + 6),
    },
    "times by partition, over offsets": {
        "subscribe": "packed-lz4",
        "startingOffsets": "earliest",
        "startingOffsetsByTimestamp": offsets(**{"packed-lz4": [T0 + 36]}),
        "endingOffsetsByTimestamp": offsets(**{"packed-lz4": [T0 + 90]}),
    },
    "a time over times by partition": {
        "subscribe": "packed-lz4",
        "startingTimestamp": str(T0 + 50),
        "startingOffsetsByTimestamp": offsets(**{"packed-lz4": [T0 + 36]}),
    },
    "a time after all records": {
        "subscribe": "packed-gzip", "startingTimestamp": str(T0 + 10**9),
    },
    "a time after all records, from the latest": {
        "subscribe": "packed-gzip",
        "startingTimestamp": str(T0 + 10**9),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "an end after all records": {
        "subscribe": "packed-gzip", "endingTimestamp": str(T0 + 10**9),
    },
    "a start past the end, by times": {
        "subscribe": "packed-gzip",
        "startingTimestamp": str(T0 + 100), "endingTimestamp": str(T0 + 30),
    },
    "a time within an aborted transaction": {
        "assign": '{"sales": [1]}', "startingTimestamp": str(T0 + 102),
    },
    "committed": {
        "subscribe": "sales", "kafka.isolation.level": "read_committed", "includeHeaders": "true",
    },
    "committed, by offsets": {
        "subscribe": "sales",
        "kafka.isolation.level": "read_committed",
        "startingOffsets": offsets(sales=[3, 2]),
        "endingOffsets": offsets(sales=[20, 15]),
    },
    "committed, by times": {
        "subscribe": "sales",
        "kafka.isolation.level": "read_committed",
        "startingTimestamp": str(T0 + 102),
    },
    "small tasks": {"subscribe": ALL, "minPartitions": "11", "includeHeaders": "true"},
    "few records a task": {"subscribe": ALL, "maxRecordsPerPartition": "7"},
    "filtered": {
        "subscribe": ALL,
        WHERE: "timestamp >= timestamp_millis(1600000000030) and partition = 1 and offset < 55",
    },
    "internal topics by name": {"subscribe": "__transaction_state"},
    "a topic that is not there": {"subscribe": "plain,nowhere"},
    "a partition that is not there": {"assign": '{"plain": [0, 9]}'},
    "two ways to choose": {"subscribe": "plain", "assign": '{"plain": [0]}'},
    "the latest as a start": {"subscribe": "plain", "startingOffsets": "latest"},
    "the earliest as an end": {"subscribe": "plain", "endingOffsets": "earliest"},
    "what the consumer may not be configured with": {
        "subscribe": "plain", "kafka.auto.offset.reset": "earliest",
    },
}


# The Kafka source always refuses a start past the end; here it gives no rows.
NOTHING_INSTEAD = {
    "an offset that is not there, and failOnDataLoss off", "a start past the end, by times",
}
DIFFERENT = NOTHING_INSTEAD | {"internal topics by name", "a partition that is not there"}


@pytest.mark.parametrize("name", [name for name in JOBS if name not in DIFFERENT])
def test_the_same_from_a_broker_and_from_its_directory(answers, name):
    (theirs, their_schema), (ours, our_schema) = answers[name]
    if isinstance(theirs, str):
        assert isinstance(ours, str), theirs
        return
    assert not isinstance(ours, str), ours
    assert our_schema == their_schema
    assert ours.schema == theirs.schema
    assert ours.to_pylist() == theirs.to_pylist()


@pytest.mark.parametrize("name", sorted(NOTHING_INSTEAD))
def test_a_start_after_an_end_gives_no_rows_where_the_kafka_source_refuses(answers, name):
    (theirs, _), (ours, _) = answers[name]
    assert "greater than the resolved end offset" in theirs
    partitions = zip(ours["topic"].to_pylist(), ours["partition"].to_pylist(), strict=True)
    assert not {("plain", 0), ("packed-gzip", 0)} & set(partitions)


def test_internal_topics_are_only_read_from_directories(answers):
    """The Kafka source silently leaves them out, even if they are named."""
    (theirs, their_schema), (ours, our_schema) = answers["internal topics by name"]
    assert our_schema == their_schema
    assert len(theirs) == 0 < len(ours)


def test_an_assigned_partition_that_is_missing_is_refused_and_not_skipped(answers):
    (theirs, _), (ours, _) = answers["a partition that is not there"]
    assert len(theirs) == 5
    assert "option assign: no partition plain-9" in ours


def test_the_jobs_see_what_they_are_about(answers):
    all_rows = answers["everything, with headers"][0][0]
    assert all_rows["key"].null_count
    assert all_rows["value"].null_count
    assert all_rows["headers"].null_count < len(all_rows)
    assert set(all_rows["timestampType"].to_pylist()) == {0, 1}
    committed = answers["committed"][0][0]
    everything = [each for each in all_rows["topic"].to_pylist() if each == "sales"]
    assert 0 < len(committed) < len(everything)
