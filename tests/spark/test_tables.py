"""Tables other than the records equal the results of kafkastore's own functions."""
import json
import pickle
import re
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from models.bytes_read import bytes_read
from models.log_directory import Log, Segment
from models.record_format import Batch, Row, emptied
from models.record_strategies import bounded, logs
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructType
from spark.raised import raised_in_python
from spark.refused_options import option_refused
from use_cases.stores import commit, record, written

import kafkastore
from kafkastore.cli.command_list import cli
from kafkastore.errors import CorruptBatchError, CorruptIndexError, CorruptionError
from kafkastore.formats.records.control_records import ControlRecordType, first_control_record
from kafkastore.jobs.listing import list_logs
from kafkastore.log.batch_reading import first_timestamp
from kafkastore.spark.source.data_source import KafkaStoreDataSource
from kafkastore.spark.source.options import TABLES
from kafkastore.spark.source.tables import SCHEMAS, table_schema
from kafkastore.use_cases.committed_offsets import (
    CONSUMER_OFFSETS,
    NoCommittedOffsetsError,
    committed_offsets,
)

TYPE_NAMES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}


def reader_of(path, table, **options):
    """A reader as Spark makes it in its planner, through the pickle that goes to the tasks."""
    source = KafkaStoreDataSource({"path": str(path), "table": table, **options})
    return pickle.loads(pickle.dumps(source.reader(schema=source.schema())))


def read(path, table, **options):
    """All rows, as tuples."""
    columns = options["columns"].split(",") if "columns" in options else None
    promised = to_arrow_schema(table_schema(table, columns), timezone="UTC")
    reader = reader_of(path, table, **options)
    rows = []
    for part in pickle.loads(pickle.dumps(reader.partitions())) or [InputPartition(None)]:
        for batch in reader.read(part):
            assert batch.schema.equals(promised)
            rows += rows_of(batch)
    return rows


def rows_of(batch):
    """The rows of a batch or a table; timestamps as microseconds, which may be far beyond 9999."""
    columns = [
        column.cast("int64") if pa.types.is_timestamp(column.type) else column
        for column in batch.columns
    ]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def instant(ms):
    """A timestamp as `rows_of` has it; None if it is missing or does not fit."""
    return ms * 1000 if ms is not None and 0 <= ms <= (2**63 - 1) // 1000 else None


# ---------------------------------------------------------------- what kafkastore says


def batch_rows(log):
    """Through `PartitionLog.batches`, and the segment by its offset."""
    bases = [segment.base_offset for segment in log.segments]
    for batch in log.batches():
        is_wrapper = batch.magic < 2 and batch.codec > 0
        has_producer = batch.producer_id >= 0
        control = None
        if batch.is_control and (first := first_control_record(batch)) is not None:
            named = isinstance(first.type, ControlRecordType)
            control = first.type.name if named else str(first.type)
        yield (
            log.topic, log.partition, max(base for base in bases if base <= batch.last_offset),
            batch.position, batch.size,
            None if is_wrapper else batch.base_offset, batch.last_offset, batch.magic,
            batch.codec.name.lower(), None if is_wrapper else batch.count,
            instant(batch.max_timestamp), TYPE_NAMES[batch.timestamp_type], batch.leader_epoch,
            *((batch.producer_id, batch.producer_epoch, batch.base_sequence)
              if has_producer else (None, None, None)),
            batch.is_transactional, batch.is_control, control,
            instant(batch.delete_horizon_ms), batch.crc, batch.is_valid(),
        )


def unless_corrupt(ask):
    """An answer; None where corrupt bytes hide it."""
    try:
        return ask()
    except CorruptionError:
        return None


def segment_rows(log):
    for segment in log.segments:
        sizes = [
            path.stat().st_size if path.exists() else None
            for path in (segment.offset_index_path, segment.time_index_path)
        ]
        first, largest = map(
            unless_corrupt,
            (
                partial(first_timestamp, log, segment.base_offset, segment.next_base_offset),
                partial(segment.largest_record_timestamp, "trust"),
            ),
        )
        yield (
            log.topic, log.partition, str(segment.log_path), segment.base_offset,
            None if segment.end_error else segment.next_offset, segment.is_active, instant(first),
            instant(largest), instant(segment.last_modified_ms),
            segment.size, *sizes,
        )


def entry_rows(log, table):
    for segment in log.segments:
        index = {
            "time_index": segment.time_index,
            "offset_index": segment.offset_index,
            "transactions": segment.transaction_index,
        }[table]
        for slot, entry in enumerate([] if index is None else index.entries().tolist()):
            first, *others = entry
            if table == "time_index":
                first = instant(first)
            yield (log.topic, log.partition, segment.base_offset, slot, first, *others)


def expected(path, table):
    store = kafkastore.open(path)
    if table == "committed_offsets":
        return [
            (
                key.topic, key.partition, key.group, each.offset,
                each.leader_epoch if each.leader_epoch >= 0 else None, each.metadata,
                instant(each.commit_timestamp), instant(each.expire_timestamp), each.topic_id,
            )
            for key, each in committed_offsets(store).items()
        ]
    rows = {"batches": batch_rows, "segments": segment_rows}.get(
        table, lambda log: entry_rows(log, table)
    )
    return [row for log in store for row in rows(log)]


def is_in_order(path, table):
    """Whether all indexes of a directory are in order and end with a complete entry."""
    size = {"time_index": 12, "offset_index": 8, "transactions": 34}[table]
    for log in kafkastore.open(path):
        for segment in log.segments:
            index = {
                "time_index": segment.time_index,
                "offset_index": segment.offset_index,
                "transactions": segment.transaction_index,
            }[table]
            if index is not None and (index.first_disorder() >= 0 or index.size % size):
                return False
    return True


# ---------------------------------------------------------------- real directories


@pytest.mark.golden_cases(at_most=100)
def test_tables_equal_kafkastore_s_results_for_real_directories(golden_case):
    path = golden_case.logs
    assert read(path, "batches") == expected(path, "batches")
    if any(segment.end_error for log in kafkastore.open(path) for segment in log.segments):
        assert golden_case.name == "crash-bad-crc"
        with pytest.raises(CorruptBatchError):
            read(path, "segments")
    else:
        assert read(path, "segments") == expected(path, "segments")
    assert read(path, "segments", failOnDataLoss="false") == expected(path, "segments")
    for table in ("time_index", "offset_index", "transactions"):
        if not is_in_order(path, table):
            assert "broken-index" in golden_case.name
            with pytest.raises(CorruptIndexError) as caught:
                read(path, table)
            assert str(caught.value.path).endswith("index")
            assert caught.value.position is not None
        assert read(path, table, failOnDataLoss="false") == expected(path, table)
    if any(each.topic == CONSUMER_OFFSETS for each in kafkastore.open(path).partitions):
        assert sorted(read(path, "committed_offsets")) == expected(path, "committed_offsets")
    else:
        with pytest.raises(NoCommittedOffsetsError):
            read(path, "committed_offsets")


def dumped_batches(path):
    """The output of ``dump`` for all logs, with the columns and timestamps of the table."""
    names = SCHEMAS["batches"].names
    for log in kafkastore.open(path):
        for segment in log.segments:
            ran = CliRunner().invoke(cli, ["dump", str(segment.log_path), "--json"])
            assert ran.exit_code == 0
            for line in ran.stdout.splitlines():
                row = json.loads(line)
                assert list(row) == ["kind", "file", *names[3:]]
                if row["last_offset"] >= log.log_start_offset:
                    for name in ("max_timestamp", "delete_horizon"):
                        row[name] = instant(row[name])
                    row |= log.topic_partition._asdict() | {"segment": segment.base_offset}
                    yield tuple(row[name] for name in names)


@pytest.mark.golden_cases(
    names=["codecs", "transactions", "compacted*", "upgrade", "kraft-metadata", "log-append-time"],
    versions=["0.8.2.2", "0.10.0.1", "2.4.0", "3.9.1"], answers="answers",
)
def test_a_batch_of_a_real_directory_is_the_row_that_dump_prints(golden_case):
    assert read(golden_case.logs, "batches") == list(dumped_batches(golden_case.logs))


def test_a_batch_with_odd_fields_is_the_row_that_dump_prints(tmp_path):
    row = Row(0, 1_500_000_000_000, b"k", b"v")
    odd = [
        Batch((row,), delete_horizon=1_600_000_000_000),
        Batch((row._replace(offset=1, key=b"\0\0\0\x63", value=b""),), is_control=True),
        emptied(2, 3, -1),
    ]
    root = Log((Segment(0, tuple(odd)),)).write(tmp_path / "logs")
    rows = read(root, "batches")
    assert rows == list(dumped_batches(root))
    of = SCHEMAS["batches"].names.index
    assert [row[of("delete_horizon")] for row in rows] == [instant(1_600_000_000_000), None, None]
    assert [row[of("control_type")] for row in rows] == [None, "99", None]


@pytest.mark.parametrize(
    ("version", "name"), [("2.4.0", "transactions"), ("4.1.1", "wide")]
)
def test_spark_shows_the_same_tables(spark, golden, version, name):
    path = golden(version, name, "answers").logs
    frames = [
        spark.read.format("kafkastore").option("table", table).load(str(path))
        for table in SCHEMAS
    ]
    for table, frame in zip(SCHEMAS, frames, strict=True):
        if table == "committed_offsets" and name != "wide":
            with raised_in_python("NoCommittedOffsetsError"):
                frame.count()
            continue
        assert frame.schema == table_schema(table)
        assert sorted(rows_of(frame.toArrow()), key=repr) == sorted(
            expected(path, table), key=repr
        )


# ---------------------------------------------------------------- random logs


@bounded(60)
@given(log=logs(), min_partitions=st.sampled_from(["1", "7"]))
def test_each_batch_is_one_row_however_the_log_is_cut(tmp_path_factory, log, min_partitions):
    root = log.write(tmp_path_factory.mktemp("log") / "logs")
    for table in ("batches", "segments", "time_index", "offset_index", "transactions"):
        if table in ("batches", "segments") or is_in_order(root, table):
            rows = read(root, table, minPartitions=min_partitions)
            assert rows == expected(root, table)


def test_large_logs_are_cut_between_segments(tmp_path):
    segments = tuple(
        Segment(base, (Batch((Row(base, 5, None, bytes(100_000)),)),)) for base in range(8)
    )
    root = Log(segments).write(tmp_path / "logs")
    parts = reader_of(root, "batches", minPartitions="4").partitions()
    assert len(parts) >= 4
    assert [row[6] for row in read(root, "batches", minPartitions="4")] == list(range(8))


def test_segments_are_reported_without_reading_logs(tmp_path):
    """Sizes are the file system's; of a log its first batch is read, and its end by the index."""
    root = tmp_path / "logs"
    with written(root) as opened:
        log = opened("t")
        for offset in range(2000):
            log.add(record(1000 + offset, bytes(4000)))
    (segment,) = kafkastore.open(root)["t", 0].segments
    reader = reader_of(root, "segments")
    (part,) = reader.partitions()
    read, (batch,) = bytes_read(lambda: list(reader.read(part)))
    assert 0 < read < 300_000 < segment.size // 20
    assert rows_of(batch) == expected(root, "segments")
    sizes = reader_of(root, "segments", columns="topic,size,modified")
    read, (batch,) = bytes_read(lambda: list(sizes.read(part)))
    assert read < 4096
    assert batch["size"].to_pylist() == [segment.size]


# ---------------------------------------------------------------- damage


@pytest.fixture
def broken(golden, writable_copy):
    """A directory, its log of ``up-0``, and the position of a batch with an impossible size."""
    copy = writable_copy(golden("0.10.0.1", "upgrade", "answers").logs)
    log = kafkastore.open(copy)["up", 0]
    positions = [batch.position for batch in log.batches()]
    path = log.segments[0].log_path
    third = positions[2]
    data = bytearray(path.read_bytes())
    data[third + 8 : third + 12] = (7).to_bytes(4, "big")
    path.write_bytes(data)
    return copy, path, third


def test_broken_bytes_fail_the_query_or_end_their_task(broken):
    copy, path, position = broken
    with pytest.raises(CorruptBatchError) as caught:
        read(copy, "batches", assign='{"up": [0]}')
    assert (caught.value.path, caught.value.position) == (path, position)
    rows = read(copy, "batches", assign='{"up": [0]}', failOnDataLoss="false")
    assert [row[3] for row in rows if row[2] == 0][-1] < position
    everything = read(copy, "batches", failOnDataLoss="false")
    untouched = list(batch_rows(kafkastore.open(copy)["up", 1]))
    assert [row for row in everything if row[:2] == ("up", 1)] == untouched


def test_a_wrong_checksum_is_a_row(golden, writable_copy):
    copy = writable_copy(golden("2.4.0", "codecs", "answers").logs)
    path = copy / "codecs-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    rows = read(copy, "batches", columns="topic,partition,segment,position,crc_valid")
    last = max(row for row in rows if row[:3] == ("codecs", 0, 0))
    assert [row for row in rows if not row[-1]] == [last]


def test_a_first_batch_that_cannot_be_read_has_no_time(golden, writable_copy):
    copy = writable_copy(golden("2.4.0", "codecs", "answers").logs)
    path = copy / "codecs-0" / "00000000000000000000.log"
    path.write_bytes(bytes(8) + b"\0\0\0\1" + path.read_bytes()[12:])
    with pytest.raises(CorruptBatchError) as caught:
        read(copy, "segments")
    assert (caught.value.path, caught.value.position) == (path, 0)
    rows = read(
        copy, "segments", assign='{"codecs": [0]}', failOnDataLoss="false",
        columns="size,first_timestamp",
    )
    assert rows[0] == (None, path.stat().st_size)


def listed_segments(path):
    """The rows of `list_logs`, with the columns and timestamps of the table; the errors."""
    names = SCHEMAS["segments"].names
    times = {each.name for each in SCHEMAS["segments"] if pa.types.is_timestamp(each.type)}
    rows, errors = [], []
    for listing in list_logs(path, segments=True):
        errors += [] if listing.error is None else [listing.error]
        for row in listing.rows:
            if row["kind"] == "segment":
                shown = row | {name: instant(row[name]) for name in times}
                rows.append(tuple(shown[name] for name in names))
    return rows, errors


@pytest.mark.parametrize(
    ("damage", "hidden"),
    [
        ("a batch in the middle", {"largest_timestamp"}),  # the offset index leads past it
        ("the first batch", {"first_timestamp", "largest_timestamp"}),
        ("all", {"first_timestamp", "largest_timestamp", "next_offset"}),
    ],
)
def test_a_corrupt_segment_has_the_row_that_list_logs_gives_it(broken, caplog, damage, hidden):
    copy, path, position = broken
    if damage != "a batch in the middle":
        position, data = 0, path.read_bytes()
        damaged = b"\xff" * len(data) if damage == "all" else data[:8] + bytes(4) + data[12:]
        path.write_bytes(damaged)
    rows, (error,) = listed_segments(copy)
    assert (error.path, error.position) == (path, position)
    assert read(copy, "segments", onCorrupt="skip") == rows
    assert str(error) in caplog.text
    (row,) = (row for row in rows if row[2] == str(path))
    nulls = {name for name, value in zip(SCHEMAS["segments"].names, row, strict=True)
             if value is None}
    assert nulls - {"timeindex"} == hidden
    with pytest.raises(CorruptionError) as caught:
        read(copy, "segments")
    assert (caught.value.path, caught.value.position) == (path, position)


@pytest.mark.golden_cases(versions=["0.8.2.2", "0.10.0.1", "2.4.0"], answers="answers")
def test_segments_of_real_directories_are_those_of_list_logs(golden_case):
    rows, _ = listed_segments(golden_case.logs)
    assert read(golden_case.logs, "segments", onCorrupt="skip") == rows


def test_a_transaction_index_of_an_unknown_version(golden, writable_copy):
    copy = writable_copy(golden("2.4.0", "transactions", "answers").logs)
    path = max(copy.glob("txn-*/*.txnindex"), key=lambda each: each.stat().st_size)
    all_rows = read(copy, "transactions")
    data = path.read_bytes()
    count = len(data) // 34
    path.write_bytes(data[:-34] + b"\0\1" + data[-32:])
    with pytest.raises(CorruptIndexError) as caught:
        read(copy, "transactions")
    assert (caught.value.path, caught.value.position) == (path, len(data) - 34)
    assert count > 0
    assert len(read(copy, "transactions", failOnDataLoss="false")) == len(all_rows) - 1


# ---------------------------------------------------------------- committed offsets


def test_commits_are_reported_of_the_chosen_partitions(tmp_path):
    with written(tmp_path / "logs") as opened:
        log = opened(CONSUMER_OFFSETS, 3)
        log.add(commit("g", "orders", 0, 5), commit("g", "orders", 1, 6), commit("h", "pay", 0, 7))
        log.add(commit("g", "orders", 0, 9), commit("h", "orders", 0, 1))
        log.add(commit("h", "orders", 0, None))
    names = {"columns": "topic,partition,group,offset"}
    root = tmp_path / "logs"
    assert sorted(read(root, "committed_offsets", **names)) == [
        ("orders", 0, "g", 9), ("orders", 1, "g", 6), ("pay", 0, "h", 7),
    ]
    # The topic's own partitions are on another broker's disk.
    assert read(root, "committed_offsets", subscribe="pay", **names) == [("pay", 0, "h", 7)]
    chosen = read(root, "committed_offsets", assign='{"orders": [1]}', **names)
    assert chosen == [("orders", 1, "g", 6)]
    assert read(root, "committed_offsets", subscribe="x", **names) == []


def test_commits_after_broken_bytes_are_not_known(tmp_path):
    with written(tmp_path / "logs") as opened:
        log = opened(CONSUMER_OFFSETS, 0)
        log.add(commit("g", "orders", 0, 5))
        log.add(record(5, key=b"\0\1\0"))
        log.add(commit("g", "orders", 0, 9))
    root = tmp_path / "logs"
    with pytest.raises(CorruptionError):
        read(root, "committed_offsets")
    names = {"columns": "offset", "failOnDataLoss": "false"}
    assert read(root, "committed_offsets", **names) == [(9,)]
    (path,) = (root / f"{CONSUMER_OFFSETS}-0").glob("*.log")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptBatchError) as caught:
        read(root, "committed_offsets")
    assert caught.value.path == path
    assert read(root, "committed_offsets", **names) == [(5,)]


# ---------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "problem", "named"),
    [
        ({"table": "logs"}, "value", "table"),
        ({"table": "segments", "startingOffsets": "earliest"}, "unsuitable", "startingOffsets"),
        ({"table": "batches", "includeHeaders": "true"}, "unsuitable", "includeHeaders"),
        ({"table": "batches", "pushFilters": "true"}, "unsuitable", "pushFilters"),
        ({"table": "segments", "columns": "size,bytes"}, "not-found", "columns"),
    ],
)
def test_options_that_are_not_for_a_table_are_refused(golden, options, problem, named):
    path = golden("2.4.0", "codecs", "answers").logs
    with option_refused(problem, named):
        reader_of(path, **options)


def test_columns_are_chosen_by_the_option_or_by_a_schema(golden):
    path = golden("2.4.0", "codecs", "answers").logs
    all_rows = expected(path, "batches")
    rows = read(path, "batches", columns="codec,topic", **{"kafka.bootstrap.servers": "x:9092"})
    assert rows == [(row[0], row[8]) for row in all_rows]
    source = KafkaStoreDataSource({"path": str(path), "table": "batches"})
    schema = StructType([table_schema("batches")[name] for name in ("codec", "topic")])
    reader = source.reader(schema=schema)
    found = [row for part in reader.partitions() for each in reader.read(part)
             for row in rows_of(each)]
    assert found == [(row[8], row[0]) for row in all_rows]
    with option_refused("value", "codec"):
        source.reader(schema=StructType().add("codec", StringType(), nullable=False))


def test_partitions_are_chosen_as_for_records(golden):
    path = golden("0.10.0.1", "upgrade", "answers").logs
    all_rows = expected(path, "segments")
    assert read(path, "segments", subscribe="up") == [row for row in all_rows if row[0] == "up"]
    assert read(path, "segments", assign='{"up": [1]}') == [
        row for row in all_rows if row[:2] == ("up", 1)
    ]
    with option_refused("not-found", "subscribe"):
        read(path, "segments", subscribe="x")


def test_every_table_and_column_is_in_the_documentation():
    assert tuple(SCHEMAS) == TABLES[1:]
    text = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    for table, schema in SCHEMAS.items():
        (line,) = re.findall(rf"^\| `{table}` \|.*$", text, re.M)
        shown = re.findall(r"`(\w+)`", line.rpartition("|")[0].rpartition("|")[2])
        assert ["topic", "partition", *shown] == schema.names
