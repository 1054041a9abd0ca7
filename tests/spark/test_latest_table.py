"""The option `latest`: the last record of each key, as `TopicLogs.latest` has it."""
import logging
import random
import shutil
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from models.latest_model import committed, latest, topic_logs, write_topic
from models.seed import SEED, examples
from pyspark.sql.datasource import EqualTo, GreaterThan, LessThan
from spark.raised import raised_in_python
from spark.test_slice_reading import cut_last, logs_dir, planned  # noqa: F401

import kafkastore
from kafkastore.spark.source.data_source import KafkaStoreDataSource
from kafkastore.store.data_loss import DataLossError

NAMES = ["topic", "partition", "offset", "timestamp", "key", "value"]


def reader_of(path, *filters, **options):
    """A reader as Spark makes it in its planner, its filters pushed."""
    source = KafkaStoreDataSource({"path": str(path), "latest": "true", **options})
    reader = source.reader(schema=source.schema())
    if filters:
        assert reader.pushFilters(list(filters)) == list(filters)
    return reader


def rows_of(reader):
    return [
        row
        for part in reader.partitions()
        for batch in reader.read(part)
        for row in values(batch)
    ]


def values(table):
    names = [name for name in NAMES if name in table.schema.names]
    columns = (table[name] for name in names)
    # Python has no times after the year 9999.
    numbers = (each.cast(pa.int64()) if pa.types.is_timestamp(each.type) else each
               for each in columns)
    return list(zip(*(each.to_pylist() for each in numbers), strict=True))


def tables_of(logs, **options):
    return [row for each in logs for row in values(each.latest(**options).read_all())]


@pytest.mark.parametrize("tombstones", [False, True])
def test_rows_are_those_of_python_for_topics_and_for_partitions(tmp_path, tombstones):
    for number in range(examples(40)):
        root = tmp_path / str(number)
        for topic in ("a", "b"):
            logs = topic_logs(f"{SEED}/latest/{topic}/{number}", 3)
            write_topic(root / topic, topic, logs)
        store = kafkastore.open([root / "a", root / "b"])
        given = {"includeTombstones": str(tombstones)}
        # The checkpoint of the log start counts when a log directory is opened.
        for topic in store.topics.values():
            path = root / topic.name
            wanted = tables_of([topic], include_tombstones=tombstones)
            assert rows_of(reader_of(path, **given)) == wanted
            wanted = tables_of(
                [topic[each] for each in topic.partitions], include_tombstones=tombstones
            )
            assert rows_of(reader_of(path, latest="partition", **given)) == wanted
        shutil.rmtree(root)


def test_the_newest_timestamp_is_that_of_all_records_of_the_key_in_the_partition(tmp_path):
    for number in range(examples(40)):
        logs = topic_logs(f"{SEED}/newest/{number}", 2)
        root = write_topic(tmp_path / str(number), "t", logs)
        wanted = {}
        for partition, log in logs.items():
            newest = {}
            for _, timestamp, _, key, *_ in committed(log):
                newest[key] = max(newest.get(key, timestamp), timestamp)
            for _, (offset, _, _, key, *_) in latest({partition: committed(log)}):
                wanted[partition, offset] = newest[key]
        columns = "offset,newest_timestamp,partition"
        reader = reader_of(root, latest="partition", columns=columns)
        found = {
            (row["partition"], row["offset"]): row["newest_timestamp"]
            for part in reader.partitions()
            for batch in reader.read(part)
            for row in batch.to_pylist()
        }
        assert found == wanted


@pytest.mark.golden_cases(names=["compacted", "transactions"], answers="answers")
def test_rows_of_golden_logs_are_those_of_python(golden_case):
    topics = kafkastore.open(golden_case.logs).topics.values()
    wanted = tables_of(topics)
    assert wanted
    assert rows_of(reader_of(golden_case.logs)) == wanted


def test_bounds_limit_the_records_that_count(tmp_path):
    logs = topic_logs("bounds", 1)
    root = write_topic(tmp_path / "logs", "t", logs)
    log = kafkastore.open(root)["t-0"]
    middle = (log.log_start_offset + log.last_stable_offset) // 2
    at = f'{{"t": {{"0": {middle}}}}}'
    assert rows_of(reader_of(root, endingOffsets=at)) == tables_of([log], end_offset=middle)
    assert rows_of(reader_of(root, startingOffsets=at)) == tables_of([log], start_offset=middle)


def test_only_filters_that_hold_for_all_records_of_a_key_are_used_before(tmp_path):
    write_topic(tmp_path / "a", "a", topic_logs(f"{SEED}/filters/a", 2))
    write_topic(tmp_path / "b", "b", topic_logs(f"{SEED}/filters/b", 2))
    of_a = tables_of([kafkastore.open(tmp_path / "a").topic("a")])
    options = {"pushFilters": "true", "indexes": "trust"}
    assert rows_of(reader_of(tmp_path / "a", EqualTo(("topic",), "a"), **options)) == of_a
    assert rows_of(reader_of(tmp_path / "b", EqualTo(("topic",), "a"), **options)) == []
    for one in (
        EqualTo(("partition",), 0),
        LessThan(("offset",), 3),
        GreaterThan(("timestamp",), datetime(2500, 1, 1, tzinfo=UTC)),
        EqualTo(("value",), b"x"),
    ):
        assert rows_of(reader_of(tmp_path / "a", one, **options)) == of_a
    by_partition = reader_of(
        tmp_path / "a", EqualTo(("partition",), 0), LessThan(("offset",), 3),
        latest="partition", **options,
    )
    assert rows_of(by_partition) == tables_of([kafkastore.open(tmp_path / "a")["a-0"]])


def test_a_task_reads_whole_topics(tmp_path):
    for number in range(30):
        for partition in range(3):
            path = tmp_path / f"t{number:02}-{partition}" / f"{0:020}.log"
            path.parent.mkdir()
            with open(path, "wb") as file:
                file.truncate(3 << 20)  # zeros: a torn end
    tasks = reader_of(tmp_path).partitions()
    topics = [{each.topic for each in task.slices} for task in tasks]
    assert 1 < len(tasks) < 30
    assert sum(map(len, topics)) == len(set().union(*topics)) == 30
    assert all(len(task.slices) == 3 * len(here) for task, here in zip(tasks, topics, strict=True))


def test_records_that_are_deleted_after_planning_end_the_query(logs_dir):  # noqa: F811
    reader, (part,) = planned(logs_dir, latest="true")
    careless, (other,) = planned(logs_dir, latest="true", failOnDataLoss="false")
    cut_last(logs_dir, 0)
    with pytest.raises(DataLossError):
        list(reader.read(part))
    # Its records have no keys.
    assert list(careless.read(other)) == []


@pytest.mark.parametrize("on_corrupt", ["skip", "stop"])
def test_corrupt_bytes_are_skipped_as_in_python_and_reported_once(tmp_path, caplog, on_corrupt):
    logs = topic_logs("corrupt", 2)
    root = write_topic(tmp_path / "logs", "t", logs)
    path = max((root / "t-0").glob("*.log"), key=lambda each: each.stat().st_size)
    data = bytearray(path.read_bytes())
    data[random.Random("corrupt").randrange(70, len(data))] ^= 1
    path.write_bytes(data)
    topic = kafkastore.open(root).topic("t")
    skipped = []
    wanted = tables_of([topic], on_corrupt=on_corrupt, skipped=skipped)
    with caplog.at_level(logging.WARNING, "kafkastore.spark"):
        assert rows_of(reader_of(root, onCorrupt=on_corrupt)) == wanted
    assert len(caplog.records) == len(skipped) > 0


def test_sql_filters_the_last_records_and_no_earlier_ones(spark, tmp_path):
    logs = topic_logs("sql", 3)
    root = write_topic(tmp_path / "logs", "t", logs)
    rows = tables_of([kafkastore.open(root).topic("t")])
    for number, push in enumerate(("false", "true")):
        spark.sql(
            f"CREATE TEMPORARY VIEW latest_{number} USING kafkastore "
            f"OPTIONS (path '{root}', latest 'true', pushFilters '{push}')"
        )
    middle = sorted(row[2] for row in rows)[len(rows) // 2]
    wanted = [(row[1], row[2]) for row in rows if row[2] < middle]
    assert wanted
    for number in range(2):
        found = spark.sql(
            f"SELECT partition, offset FROM latest_{number} WHERE offset < {middle} "
            "ORDER BY partition, offset"
        )
        assert [tuple(row) for row in found.collect()] == wanted
        spark.catalog.dropTempView(f"latest_{number}")
    with raised_in_python("OptionError"):
        spark.read.format("kafkastore").options(latest="true", isolation="read_uncommitted").load(
            str(root)
        )
