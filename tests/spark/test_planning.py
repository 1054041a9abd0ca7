"""Reads follow brokers' answers for options by time, and read little more than filters need."""
import json
import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.bytes_read import bytes_read
from models.damaged_store import write_store
from models.garbage import GARBAGE
from models.log_directory import Log, Segment
from models.record_format import Batch, Row
from models.record_strategies import bounded, in_a_row, logs
from models.segment_indexes import pack_time_entries
from pyspark.sql import functions as F
from pyspark.sql.datasource import GreaterThanOrEqual, LessThan
from spark.refused_options import option_refused

import kafkastore
from kafkastore.errors import CorruptBatchError
from kafkastore.spark.source.data_source import KafkaStoreDataSource
from kafkastore.spark.source.option_values import OptionProblem
from kafkastore.spark.source.options import OptionError, parse_options
from kafkastore.spark.source.planning import starting_offset
from kafkastore.spark.source.slices import END
from kafkastore.writing.log_dir_writer import LogDirWriter

NOW = 1_700_000_000_000
SEGMENTS, ROWS, VALUE = 50, 600, 1000
#: Bytes that lookups may read: some headers and the indexes of each segment, and the log's end.
LOOKUPS = SEGMENTS * (16 << 10) + (256 << 10)
MINUTE = 60_000
WORKER_LOGGING = "spark.sql.pyspark.worker.logging.enabled"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instant(ms):
    return EPOCH + timedelta(milliseconds=ms)


def reader_of(path, *filters, **options):
    """A reader as Spark makes it in its planner, its filters pushed; indexes are trusted."""
    chosen = {"pushFilters": "true", "indexes": "trust"} if filters else {}
    source = KafkaStoreDataSource({"path": str(path), **chosen, **options})
    reader = source.reader(schema=source.schema())
    if filters:
        reader.pushFilters(list(filters))
    return reader


def rows_of(reader):
    return [row for part in reader.partitions() for row in rows_in(reader, part)]


def rows_in(reader, part):
    return [row for batch in reader.read(part) for row in batch.to_pylist()]


def since(ms):
    return GreaterThanOrEqual(("timestamp",), instant(ms))


def until(ms):
    return LessThan(("timestamp",), instant(ms))


# ---------------------------------------------------------------- what a broker answers


@pytest.mark.golden_cases(
    versions=["2.4.0", "3.9.1", "4.1.1"],
    names=[
        "transactions", "create-time-out-of-order", "compacted", "delete-records", "codecs",
        "log-append-time", "old-formats",
    ],
    answers="answers",
)
def test_a_starting_time_is_where_a_broker_says(golden_case):
    store = kafkastore.open(golden_case.logs)
    checked = 0
    for name, partition in golden_case.answers["partitions"].items():
        topic, _, number = name.rpartition("-")
        log = store[topic, int(number)]
        for answer in partition.get("list_offsets", ()):
            if answer["timestamp"] < 0 or answer["error"]:
                continue
            options = parse_options({
                "path": str(golden_case.logs),
                "startingTimestamp": str(answer["timestamp"]),
                "startingOffsetsByTimestampStrategy": "latest",
                "isolation": ("read_uncommitted", "read_committed")[answer["isolation"]],
            })
            expected = END if answer["offset"] < 0 else answer["offset"]
            assert starting_offset(log, options) == expected
            checked += 1
    assert checked > 50


@pytest.mark.parametrize(
    "options", [{"failOnDataLoss": "false"}, {"onCorrupt": "stop"}, {"onCorrupt": "skip"}]
)
def test_a_time_is_looked_up_past_damage_as_the_records_are_read(tmp_path, options):
    root = write_store(tmp_path / "logs")
    newest = max(
        record.timestamp
        for log in kafkastore.open(root)
        for record in log.records(on_corrupt="skip", skipped=[])
    )
    all_rows = rows_of(reader_of(root, **options))
    assert all_rows
    until_later = {"rules": "correct", "endingTimestamp": str(newest + 1)}
    assert rows_of(reader_of(root, **options, **until_later)) == all_rows
    with pytest.raises(CorruptBatchError):
        reader_of(root, **until_later).partitions()


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("on_corrupt", ["skip", "stop"])
@pytest.mark.parametrize("tail", GARBAGE)
def test_offsets_of_a_log_with_a_corrupt_end_can_be_named(tmp_path, tail, on_corrupt, isolation):
    batches = in_a_row([Batch((Row(0, 100 + slot),)) for slot in range(30)])
    segment = Segment(0, tuple(batches), tail=GARBAGE[tail]).indexed(interval=200)
    root = Log((segment,), is_clean=False).write(tmp_path / "logs")

    def offsets(start, end):
        reader = reader_of(
            root, isolation=isolation, onCorrupt=on_corrupt,
            startingOffsets=json.dumps({"t": {"0": start}}),
            endingOffsets=json.dumps({"t": {"0": end}}),
        )
        return [row["offset"] for row in rows_of(reader)]

    assert offsets(3, 30) == list(range(3, 30))
    assert offsets(3, 12) == list(range(3, 12))
    assert offsets(30, -1) == []
    with pytest.raises(OptionError):
        offsets(3, 31)


def test_the_right_records_are_found_by_rules_correct(golden):
    """A marker has a time, too: a broker begins, or ends, at one that reaches it."""
    log = kafkastore.open(golden("2.4.0", "transactions", "answers").logs)["txn", 0]
    stamps = [(record.timestamp, record.offset) for record in log.records()]
    differing = 0
    for target in sorted({stamp + more for stamp, _ in stamps for more in (0, 1)}):
        found = {}
        for rules in ("correct", "4.1"):
            options = parse_options({
                "path": str(log.path),
                "startingTimestamp": str(target),
                "startingOffsetsByTimestampStrategy": "latest",
                "rules": rules,
            })
            found[rules] = starting_offset(log, options)
        assert found["correct"] == next((at for ts, at in stamps if ts >= target), END)
        differing += found["correct"] != found["4.1"]
    assert differing


@pytest.mark.parametrize("option", ["isolation", "kafka.isolation.level"])
@pytest.mark.parametrize("more", [{}, {"maxRecordsPerPartition": "7"}, {"minPartitions": "9"}])
def test_committed_records_are_what_a_brokers_consumer_of_them_got(golden, option, more):
    case = golden("2.4.0", "transactions", "answers")
    reader = reader_of(case.logs, subscribe="txn", **{option: "read_committed"}, **more)
    found = {}
    for row in rows_of(reader):
        found.setdefault(f"{row['topic']}-{row['partition']}", []).append(row["offset"])
    expected = {
        name: answers["committed_offsets"]
        for name, answers in case.answers["partitions"].items()
        if name.startswith("txn-") and answers["committed_offsets"]
    }
    assert found == expected


def named(draw, name):
    """One end's three options, some of them given, and a model of what the first means."""
    options, meaning = {}, None
    for option, kind in ((f"{name}Timestamp", "time"), (f"{name}OffsetsByTimestamp", "time"),
                         (f"{name}Offsets", "offset")):
        if draw(st.booleans()):
            number = draw(st.integers(0, 30))
            is_each = option != f"{name}Timestamp"
            options[option] = json.dumps({"t": {"0": number}}) if is_each else str(number)
            meaning = meaning or (kind, number)
    return options, meaning


@st.composite
def ends(draw):
    """Options for both ends, and what they mean."""
    start, first = named(draw, "starting")
    end, last = named(draw, "ending")
    return start | end, first, last


@bounded(100)
@given(log=logs(), chosen=ends())
def test_the_first_of_three_options_sets_an_end(tmp_path_factory, log, chosen):
    options, first, last = chosen
    root = log.write(tmp_path_factory.mktemp("log") / "logs")
    (opened,) = kafkastore.open(root)
    everything = [(record.offset, record.timestamp) for record in opened.records()]

    def offset(meaning, default, without):
        if meaning is None or meaning[0] == "offset":
            return default if meaning is None else meaning[1]
        return next((at for at, stamp in everything if stamp >= meaning[1]), without)

    both = {
        "rules": "correct", "failOnDataLoss": "false",
        "startingOffsetsByTimestampStrategy": "latest",
    }
    start, end = offset(first, 0, END), offset(last, END, END)
    try:
        found = [row["offset"] for row in rows_of(reader_of(root, **both, **options))]
    except OptionError as error:
        assert first[0] == last[0]
        assert first[1] > last[1]
        assert error.problem is OptionProblem.CONTRADICTION
        return
    assert found == [at for at, _ in everything if start <= at < end]


# ---------------------------------------------------------------- tasks


def test_no_task_has_more_records_than_requested(golden):
    logs_dir = golden("2.4.0", "codecs", "answers").logs
    everything = sorted(map(repr, rows_of(reader_of(logs_dir))))
    reader = reader_of(logs_dir, maxRecordsPerPartition="9")
    counts = [len(rows_in(reader, part)) for part in reader.partitions()]
    assert max(counts) == 9
    assert sorted(map(repr, rows_of(reader))) == everything


def test_one_batch_is_read_by_as_many_tasks_as_requested(fifty):
    one = {"startingOffsets": '{"t": {"0": 605}}', "endingOffsets": '{"t": {"0": 645}}'}
    reader = reader_of(fifty, **one, minPartitions="8")
    parts = reader.partitions()
    assert len(parts) == 8
    assert [row["offset"] for part in parts for row in rows_in(reader, part)] == [*range(605, 645)]


# ---------------------------------------------------------------- what options must name


@pytest.mark.parametrize(
    "options",
    [
        {"endingOffsets": '{"t": {"0": 30001}}'},
        {"startingOffsets": '{"t": {"0": 30001}}'},
        {"startingOffsets": '{"t": {"0": 0, "1": 0}}'},
        {"endingOffsetsByTimestamp": '{"u": {"0": 0}, "t": {"0": 1}}'},
    ],
)
def test_offsets_must_be_there_and_of_what_is_read(fifty, options):
    with option_refused("not-found", *options):
        reader_of(fifty, **options).partitions()


def test_without_fail_on_data_loss_offsets_need_not_be_there(fifty):
    reader = reader_of(fifty, failOnDataLoss="false", endingOffsets='{"t": {"0": 99999}}')
    assert len(rows_of(reader)) == SEGMENTS * ROWS


def test_missing_partitions_of_assign_are_left_out_without_fail_on_data_loss(fifty):
    chosen = {
        "assign": '{"t": [0, 7], "u": [1]}',
        "startingOffsets": '{"t": {"0": 29990, "7": 5}, "u": {"1": 0}}',
    }
    with option_refused("not-found", "assign"):
        reader_of(fifty, **chosen).partitions()
    rows = rows_of(reader_of(fifty, **chosen, failOnDataLoss="false"))
    assert [row["offset"] for row in rows] == [*range(29990, 30000)]
    only = {"assign": '{"u": [1]}', "failOnDataLoss": "false"}
    assert rows_of(reader_of(fifty, **only)) == []
    assert rows_of(reader_of(fifty, **only, table="segments")) == []


def test_an_end_that_is_not_decided_is_not_there_for_a_reader_of_committed_records(golden):
    logs_dir = golden("2.4.0", "transactions", "answers").logs
    log = kafkastore.open(logs_dir)["txn", 0]
    assert log.last_stable_offset < log.log_end_offset
    ends = json.dumps({"txn": {"0": log.log_end_offset}})
    chosen = {"assign": '{"txn": [0]}', "endingOffsets": ends}
    assert reader_of(logs_dir, **chosen).partitions()
    with option_refused("not-found", "endingOffsets"):
        reader_of(logs_dir, **chosen, isolation="read_committed").partitions()


# ---------------------------------------------------------------- pruning


@pytest.fixture(scope="module")
def fifty(tmp_path_factory):
    """50 segments, each of one minute, of ten batches of 60 records."""
    root = tmp_path_factory.mktemp("fifty") / "logs"
    value = b"v" * VALUE
    with LogDirWriter(root) as log_dir:
        writer = log_dir.writer("t", 0, {"index.interval.bytes": 4096})
        for segment in range(SEGMENTS):
            first = NOW + segment * MINUTE
            for batch in range(10):
                stamps = np.arange(60) * 100 + first + batch * 6000
                table = pa.table({"value": [value] * 60, "timestamp": stamps})
                writer.append_columns(table, batch_bytes=1 << 20)
            if segment < SEGMENTS - 1:
                writer.roll()
    return root


def spoil_batches(log, is_spoiled):
    """Flip a byte of each batch chosen by its header, so that reading it fails; headers stay."""
    for segment in log.segments:
        data = bytearray(segment.log_path.read_bytes())
        for run in segment.open_log().runs():
            for header in run.headers:
                if is_spoiled(header):
                    data[int(header["position"]) + 100] ^= 0xFF
        segment.log_path.write_bytes(data)


def test_a_minutes_filter_reads_only_what_can_reach_it(fifty):
    """By bytes: one segment of 50, and no more of the others than lookups read."""
    (log,) = kafkastore.open(fifty)
    sizes = [segment.size for segment in log.segments]
    rows_of(reader_of(fifty))  # what has to be imported
    total, everything = bytes_read(lambda: rows_of(reader_of(fifty)))
    assert total > sum(sizes)
    minute = NOW + 49 * MINUTE
    reader = reader_of(fifty, since(minute), until(minute + MINUTE))
    read, found = bytes_read(lambda: rows_of(reader))
    assert found == everything[-ROWS:]
    assert sizes[49] < read < sizes[49] + LOOKUPS < total // 16
    # Inside of a segment, too: its last batch.
    reader = reader_of(fifty, since(minute + 54_000))
    read, found = bytes_read(lambda: rows_of(reader))
    assert found == everything[-60:]
    assert read < sizes[49] // 5 + LOOKUPS  # what was read is read again after a pause


def test_batches_before_a_filters_time_are_not_even_read(spark, fifty, writable_copy):
    """Batches that can't match get wrong checksums, headers intact. What is read is logged."""
    copy = writable_copy(fifty)
    (log,) = kafkastore.open(copy)
    since_ms, until_ms = NOW + 30 * MINUTE + 12_000, NOW + 30 * MINUTE + 24_000
    # The offsets and the checksum of the batch before are checked.
    spoil_batches(log, lambda header: header["max_timestamp"] < since_ms - 6_000)
    frame = spark.read.format("kafkastore").load(str(copy), pushFilters="true", indexes="trust")
    filtered = frame.where(
        (F.col("timestamp") >= F.timestamp_millis(F.lit(since_ms)))
        & (F.col("timestamp") < F.timestamp_millis(F.lit(until_ms)))
    )
    spark.conf.set(WORKER_LOGGING, "true")
    try:
        offsets = [row["offset"] for row in filtered.select("offset").collect()]
        logged = spark.tvf.python_worker_logs().where("logger = 'kafkastore.spark'").collect()
    finally:
        spark.conf.unset(WORKER_LOGGING)
    assert sorted(offsets) == [*range(30 * ROWS + 120, 30 * ROWS + 240)]
    # Not only this query's: a session keeps the logs of all its queries, in no order.
    assert any("reads 1 of 1 partitions, 20 of 50 segments, " in each["msg"] for each in logged)
    with pytest.raises(kafkastore.CorruptBatchError):
        rows_of(reader_of(copy))


def test_a_late_record_after_a_filters_last_time_is_found(tmp_path):
    """No index and no header gives a lower bound of the records' times."""
    with LogDirWriter(tmp_path / "logs") as log_dir:
        writer = log_dir.writer("t", 0)
        for stamps in ([1000, 2000], [9000, 9001], [9002, 1500]):
            writer.append_columns(pa.table({"value": [b"v"] * 2, "timestamp": stamps}))
            writer.roll()
    rows = rows_of(reader_of(tmp_path / "logs", since(1200), until(3000)))
    assert [row["offset"] for row in rows] == [1, 5]


@st.composite
def damaged_logs(draw):
    """Logs whose indexes are damaged, or random bytes."""
    log = draw(logs())
    segments = []
    for segment in log.segments:
        changed = {}
        for name in ("time_index", "offset_index"):
            data = getattr(segment, name)
            if data is not None and draw(st.integers(0, 3)) == 0:
                keep = draw(st.integers(0, len(data)))
                changed[name] = data[:keep] + draw(st.binary(max_size=40))
        segments.append(replace(segment, **changed))
    return replace(log, segments=tuple(segments))


@bounded(100)
@given(
    log=damaged_logs(),
    start=st.one_of(st.none(), st.integers(-2, 41)),
    length=st.one_of(st.none(), st.integers(0, 40)),
    from_offset=st.integers(0, 15),
    indexes=st.sampled_from(["check", "trust", "ignore"]),
)
def test_no_row_in_a_filters_times_is_left_out(
    tmp_path_factory, log, start, length, from_offset, indexes
):
    root = log.write(tmp_path_factory.mktemp("log") / "logs")
    filters = [GreaterThanOrEqual(("offset",), from_offset)]
    first, last = -100, 10**7  # beyond all timestamps of such logs
    if start is not None:
        first = start
        filters.append(since(first))
    if length is not None:
        last = (start or 0) + length
        filters.append(until(last))
    expected = [
        row
        for row in rows_of(reader_of(root))
        if row["offset"] >= from_offset
        and first <= (row["timestamp"] - EPOCH) // timedelta(milliseconds=1) < last
    ]
    assert rows_of(reader_of(root, *filters, indexes=indexes)) == expected


@pytest.mark.parametrize(
    ("indexes", "offsets"), [("check", [1]), ("ignore", [1]), ("trust", [])]
)
def test_a_filter_finds_what_an_index_lacks_unless_it_is_trusted(tmp_path, indexes, offsets):
    batches = tuple(Batch((Row(each, time),)) for each, time in enumerate((10, 500, 20, 30)))
    lacking = pack_time_entries([(10, 0), (30, 3)], 0)
    segment = replace(Segment(0, batches).indexed(interval=0), time_index=lacking)
    root = Log((segment,)).write(tmp_path / "logs")
    rows = rows_of(reader_of(root, since(400), indexes=indexes))
    assert [row["offset"] for row in rows] == offsets
    if offsets:
        options = {"rules": "correct", "startingTimestamp": "400", "indexes": indexes}
        assert [row["offset"] for row in rows_of(reader_of(root, **options))] == [1, 2, 3]


def test_skipped_segments_are_reported(fifty, caplog):
    with caplog.at_level(logging.INFO, "kafkastore.spark"):
        reader_of(fifty, since(NOW + 48 * MINUTE)).partitions()
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("reads 1 of 1 partitions, 2 of 50 segments, ")
    assert line.endswith(" bytes, in 1 tasks")


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        ({"startingTimestamp": "1500000000"}, ["startingTimestamp"]),
        ({"endingTimestamp": "1500000000000000"}, ["endingTimestamp"]),
        (
            {"startingOffsetsByTimestamp": '{"t": {"0": 1500000000}}'},
            ["startingOffsetsByTimestamp"],
        ),
        ({"startingTimestamp": "500", "endingTimestamp": "1500000000000"}, []),
        ({"startingOffsets": '{"t": {"0": 1500000000}}', "failOnDataLoss": "false"}, []),
    ],
)
def test_a_time_in_another_unit_than_ms_is_reported(fifty, caplog, options, warned):
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    reader_of(fifty, **options, **strategy).partitions()
    logged = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [record.args[0] for record in logged] == warned
