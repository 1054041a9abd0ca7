"""`onCorrupt`: a directory of five partitions, two of them damaged, by all that is read."""
import json
import logging
import pickle
import re
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from models.damaged_store import (
    DAMAGED,
    PER_BATCH,
    RECORDS,
    closed_log,
    flip_length,
    flip_payload,
    write_store,
)
from pyspark.errors import PythonException
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, InputPartition, LessThan
from use_cases.stores import T0

import kafkastore
from kafkastore.errors import CorruptBatchError, CorruptIndexError, CorruptionError
from kafkastore.spark.source.data_source import KafkaStoreDataSource, PushingReader
from kafkastore.spark.source.options import TABLES

#: The damaged batch: its segment, position, first offset.
SEGMENT, POSITION, FIRST = 9, 100, 12
CHOICES = ("skip", "stop")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return write_store(tmp_path_factory.mktemp("damaged") / "logs")


@pytest.fixture
def reported(caplog):
    """A function that returns the skips logged since its last call, and their places."""

    def reported():
        found = [
            (match[1], int(match[2]), int(match[3]), match[4])
            for match in re.finditer(
                r"(orders-\d)[^ ]*: skipped bytes (\d+) to (\d+) of [^ ]*\.log, "
                r"offsets ([^:]+):",
                caplog.text,
            )
        ]
        caplog.clear()
        return found

    with caplog.at_level(logging.WARNING, "kafkastore.spark"):
        yield reported


def reader_of(path, filters=(), **options):
    """A reader as Spark makes it, through the pickle that goes to the tasks."""
    source = KafkaStoreDataSource({"path": str(path), **options})
    reader = source.reader(schema=source.schema())
    if isinstance(reader, PushingReader):
        list(reader.pushFilters(list(filters)))
    return pickle.loads(pickle.dumps(reader))


def read(path, filters=(), **options):
    """All rows, as dictionaries."""
    reader = reader_of(path, filters, **options)
    parts = pickle.loads(pickle.dumps(reader.partitions())) or [InputPartition(None)]
    return [
        row
        for part in parts
        for batch in reader.read(part)
        for row in batch.cast(
            pa.schema(
                [
                    field.with_type(pa.int64()) if pa.types.is_timestamp(field.type) else field
                    for field in batch.schema
                ]
            )
        ).to_pylist()
    ]


def places(rows):
    return sorted((row["partition"], row["offset"]) for row in rows if row["topic"] == "orders")


def python_places(root, on_corrupt):
    store = kafkastore.open(root)
    return sorted(
        (index, each.offset)
        for index in range(5)
        for each in store["orders", index].records(on_corrupt=on_corrupt, skipped=[])
    )


def skipped_by_python(root, on_corrupt):
    found = []
    for name in DAMAGED:
        skipped = []
        list(kafkastore.open(root)[name].records(on_corrupt=on_corrupt, skipped=skipped))
        found += [
            (name, each.position, each.end_position - 1, offsets_of(each)) for each in skipped
        ]
    return found


def offsets_of(skipped):
    start, end = skipped.start_offset, skipped.end_offset
    return f"from {start} on" if end is None else f"{start} to {end - 1}"


@pytest.mark.parametrize("on_corrupt", CHOICES)
@pytest.mark.parametrize(
    "more", [{}, {"minPartitions": "40"}, {"columns": "topic,partition,offset"}]
)
def test_rows_and_reports_are_those_of_python(root, reported, on_corrupt, more):
    rows = read(root, onCorrupt=on_corrupt, **more)
    assert places(rows) == python_places(root, on_corrupt)
    # Two tasks may have a part each of the offsets.
    assert sorted(set(reported())) == skipped_by_python(root, on_corrupt)


def test_without_a_choice_failing_is_what_fail_on_data_loss_says(root, reported):
    with pytest.raises(CorruptBatchError):
        read(root)
    rows = read(root, failOnDataLoss="false")
    assert places(rows) == python_places(root, "stop")
    assert reported() == skipped_by_python(root, "stop")
    with pytest.raises(CorruptBatchError):
        read(root, table="segments", failOnDataLoss="false", onCorrupt="raise")


@pytest.mark.parametrize("name", DAMAGED)
@pytest.mark.parametrize("table", ["records", "batches", "segments"])
def test_an_error_names_the_file_and_the_byte_and_has_no_frames(root, name, table):
    log = kafkastore.open(root)[name]
    alone = {"assign": json.dumps({"orders": [log.partition]})}
    if table != "records" and name == DAMAGED[1]:
        rows = read(root, table=table, **alone)
        if table == "batches":  # a wrong checksum is a row like others
            assert [row["crc_valid"] for row in rows].count(False) == 1
        return
    with pytest.raises(CorruptBatchError) as raised:
        read(root, table=table, **alone)
    assert raised.value.path == log.segments[1].log_path
    assert raised.value.position == POSITION
    assert raised.value.__cause__ is None
    product = [each for each in raised.traceback if "kafkastore" in str(each.path.parent)]
    assert len([each for each in product if "/tests/" not in str(each.path)]) <= 2


@pytest.mark.parametrize("on_corrupt", CHOICES)
def test_filters_that_are_pushed_change_neither_rows_nor_reports(root, reported, on_corrupt):
    every, damage = python_places(root, on_corrupt), skipped_by_python(root, on_corrupt)
    instant = datetime.fromtimestamp(T0 / 1000 + 4, UTC)  # of the batch at FIRST
    for chosen, is_wanted, seen in (
        (EqualTo(("partition",), 1), lambda index, _: index == 1, damage[:1]),
        (GreaterThanOrEqual(("offset",), 10), lambda _, offset: offset >= 10, damage),
        (GreaterThanOrEqual(("offset",), 13), lambda _, offset: offset >= 13, damage),
        (GreaterThanOrEqual(("offset",), 20), lambda _, offset: offset >= 20, []),
        (LessThan(("offset",), 12), lambda _, offset: offset < 12, []),
        (GreaterThanOrEqual(("timestamp",), instant), lambda _, offset: offset >= FIRST, damage),
        (LessThan(("timestamp",), instant), lambda _, offset: offset < FIRST, damage),
    ):
        rows = read(root, [chosen], onCorrupt=on_corrupt, pushFilters="true", subscribe="orders")
        found = [place for place in places(rows) if is_wanted(*place)]  # as Spark does again
        assert found == [place for place in every if is_wanted(*place)], chosen
        # Under "stop" nothing is pushed: only a read from the start knows where a log ends.
        assert reported() == (seen if on_corrupt == "skip" else damage), chosen


@pytest.mark.parametrize("on_corrupt", CHOICES)
def test_tables_are_read_past_damage_and_report_it(root, caplog, on_corrupt):
    sound = write_store(root.parent / f"sound-{on_corrupt}", damaged=False)
    for table in TABLES[1:]:
        caplog.clear()
        rows, intact = (read(path, table=table, onCorrupt=on_corrupt) for path in (root, sound))
        names = {f"{row['topic']}-{row['partition']}" for row in rows}
        assert names == {f"{row['topic']}-{row['partition']}" for row in intact}
        if table == "batches":
            lost = 1 if on_corrupt == "skip" else 8
            assert len(rows) == len(intact) - lost
        elif table == "segments":
            assert len(rows) == len(intact)
            hidden = [row for row in rows if row["next_offset"] is None]
            assert [(each["partition"], each["base_offset"]) for each in hidden] == [(1, SEGMENT)]
        else:
            assert rows == intact
        assert ("orders-1" in caplog.text) == (table in ("batches", "segments"))
        assert caplog.text.count("WARNING") == (table in ("batches", "segments"))


def test_commits_and_index_entries_are_read_past_damage(tmp_path, caplog):
    root = write_store(tmp_path / "logs")
    flip_payload(closed_log(root, "__consumer_offsets-0", 0), 0)
    index = closed_log(root, "orders-0", 0).with_suffix(".index")
    index.write_bytes(bytes(7) + b"\x09" + bytes(7) + b"\x05")
    kinds = {"committed_offsets": CorruptionError, "offset_index": CorruptIndexError}
    for table, kind in kinds.items():
        caplog.clear()
        with pytest.raises(kind):
            read(root, table=table)
        assert len(read(root, table=table, onCorrupt="skip")) == 2
        assert caplog.text.count("WARNING") == 1


@pytest.mark.parametrize("flip", [flip_length, flip_payload])
def test_damage_in_the_active_segment_is_read_past_as_well(tmp_path, flip, caplog):
    root = write_store(tmp_path / "logs", damaged=False)
    flip(closed_log(root, "orders-2", 3))
    for on_corrupt in CHOICES:
        rows = read(root, subscribe="orders", onCorrupt=on_corrupt)
        assert places(rows) == python_places(root, on_corrupt)
        assert caplog.text.count("skipped bytes") == 1
        assert "orders-2" in caplog.text
        caplog.clear()


def test_damage_is_reported_before_the_rows_after_it(root, reported):
    reader = reader_of(root, onCorrupt="skip", assign='{"orders": [1]}')
    (part,) = reader.partitions()
    batches = reader.read(part)
    next(batches)
    batches.close()  # as `limit` does
    assert reported() == skipped_by_python(root, "skip")[:1]


# ---------------------------------------------------------------- through Spark


def test_spark_gives_what_python_gives(spark, root):
    def load(**options):
        source = spark.read.format("kafkastore").options(subscribe="orders", **options)
        return source.load(str(root))

    with pytest.raises(PythonException) as raised:
        load().count()
    shown = str(raised.value)
    log = closed_log(root, DAMAGED[0])
    assert shown.count("CorruptBatchError") == 1
    assert f"{log} at byte {POSITION}" in shown
    assert len(shown.splitlines()) < 10
    for on_corrupt in CHOICES:
        every = python_places(root, on_corrupt)
        rows = load(onCorrupt=on_corrupt).select("partition", "offset").collect()
        assert sorted(map(tuple, rows)) == every
    frame = load(onCorrupt="skip")
    assert frame.where("partition = 1 and offset >= 10").count() == RECORDS - 10 - PER_BATCH
