"""The data source as a session sees it, and its readers in tasks."""
import json
import pickle
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.record_strategies import bounded, logs
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StructType, TimestampType
from spark.frames import expected_rows, rows_of
from spark.raised import raised_in_python
from spark.refused_options import option_refused

import kafkastore
from kafkastore import samples
from kafkastore.log import records_as_arrow
from kafkastore.spark.source.data_source import KafkaStoreDataSource
from kafkastore.spark.source.registration import register
from kafkastore.spark.source.schema import COLUMNS, check_schema, spark_schema

KAFKA_SCHEMA = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
    "timestamp:timestamp,timestampType:int>"
)
PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
HEADERS = "headers:array<struct<key:string,value:binary>>"


def reader_of(path, schema=None, **options):
    """A reader as Spark makes it in its planner."""
    source = KafkaStoreDataSource({"path": str(path), **options})
    return source.reader(schema=source.schema() if schema is None else schema)


def read(reader):
    """All rows of a reader, through the pickles that go to the tasks."""
    carried = pickle.loads(pickle.dumps(reader))
    partitions = pickle.loads(pickle.dumps(reader.partitions())) or [InputPartition(None)]
    return [row for part in partitions for batch in carried.read(part) for row in batch.to_pylist()]


def offsets(rows):
    return sorted((row["topic"], row["partition"], row["offset"]) for row in rows)


# ---------------------------------------------------------------- schema


def test_spark_finds_the_format_and_registering_it_again_is_allowed(spark, tmp_path):
    *_, newest = samples.unpack(tmp_path)
    session = spark.newSession()
    found = session.read.format("kafkastore").load(str(newest))
    assert found.count() > 0
    register(session)
    assert session.read.format("kafkastore").load(str(newest)).schema == found.schema


def test_columns_are_those_of_sparks_kafka_source_in_its_order():
    assert spark_schema().simpleString() == KAFKA_SCHEMA
    assert spark_schema(include_headers=True).simpleString() == f"{KAFKA_SCHEMA[:-1]},{HEADERS}>"
    for field in COLUMNS:
        assert field.nullable


@pytest.mark.parametrize("columns", [None, ["offset", "headers"], list(COLUMNS.fieldNames())])
def test_the_schema_is_that_of_the_batches(columns):
    promised = to_arrow_schema(spark_schema(columns), timezone="UTC")
    assert promised.equals(records_as_arrow.schema(columns))


def test_a_callers_schema_chooses_and_orders_columns(golden):
    logs_dir = golden("2.4.0", "headers-and-nulls", "answers").logs
    chosen = StructType([COLUMNS["offset"], COLUMNS["headers"], COLUMNS["key"]])
    rows = read(reader_of(logs_dir, chosen))
    assert list(rows[0]) == ["offset", "headers", "key"]


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (StructType().add("when", TimestampType()), "not-found"),
        (StructType().add("offset", IntegerType()), "value"),
        (StructType().add("offset", LongType(), nullable=False), "value"),
    ],
)
def test_a_callers_schema_with_other_columns_is_refused(schema, problem):
    with option_refused(problem, *schema.fieldNames()):
        check_schema(schema, None)


@pytest.mark.parametrize(("table", "column"), [("records", "key"), ("segments", "size")])
def test_a_callers_schema_and_other_columns_contradict_each_other(golden, table, column):
    logs_dir = golden("2.4.0", "headers-and-nulls", "answers").logs
    given = {"path": str(logs_dir), "table": table}
    source = KafkaStoreDataSource(given | {"columns": f"partition,{column}"})
    assert {*source.reader(source.schema()).columns} == {"partition", column}
    with option_refused("contradiction", "columns"):
        KafkaStoreDataSource(given | {"columns": "topic"}).reader(source.schema())


# ---------------------------------------------------------------- through Spark


@pytest.mark.golden_cases(
    versions=["0.8.2.2", "0.11.0.3", "2.4.0", "4.1.1"],
    names=[
        "codecs", "headers-and-nulls", "transactions", "old-formats", "compacted",
        "delete-records", "wide",
    ],
    answers="answers",
)
def test_rows_are_what_a_brokers_consumer_got(spark, golden_case):
    frame = spark.read.format("kafkastore").option("includeHeaders", "true")
    expected = expected_rows(golden_case.answers, headers=True)
    found = rows_of(frame.load(str(golden_case.logs)).toArrow())
    assert [row for row in found if row[2:4] in {row[2:4] for row in expected}] == expected


@pytest.mark.parametrize("version", ["0.8.2.2", "0.9.0.1", "0.10.0.1"])
def test_rows_of_the_three_old_brokers_are_equal_before_and_after_an_upgrade(
    spark, golden, version
):
    before = golden(version, "upgrade", "answers")
    after = golden(version, "upgrade", "answers-upgraded-2.4.0")
    expected = expected_rows(before.answers, headers=False)
    for case in (before, after):
        frame = spark.read.format("kafkastore").load(str(case.logs))
        assert frame.schema.simpleString() == KAFKA_SCHEMA
        assert rows_of(frame.toArrow()) == expected


def test_spark_finds_the_format_without_a_registration(spark, golden):
    logs_dir = golden("2.4.0", "codecs", "answers").logs
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW codecs USING kafkastore OPTIONS (path '{logs_dir}')"
    )
    count = sum(1 for log in kafkastore.open(logs_dir) for _ in log.records())
    assert spark.sql("SELECT count(*) FROM codecs").first()[0] == count


def test_a_session_can_register_the_format_itself(spark, golden):
    other = spark.newSession()
    register(other)
    logs_dir = golden("2.4.0", "compacted", "answers").logs
    count = sum(1 for log in kafkastore.open(logs_dir) for _ in log.records())
    assert other.read.format("KafkaStore").load(str(logs_dir)).count() == count


FILTERS = [
    "partition = 0 and offset >= 20 and offset < 30",
    "topic = 'txn' and timestamp >= timestamp'2017-07-14 02:40:03'",
    "timestamp = (select max(timestamp) from records)",
    "topic like 'tx%' and partition in (1, 7)",
    "partition = 1 or offset = 3",
    "not (offset > 5)",
    "cast(timestamp as date) = date'2017-07-14'",
    "length(value) % 2 = 0 and partition <> 0",
    # Python's calendar ends before: no `datetime` stands for these.
    "timestamp >= timestamp_micros(253402300800000000)",
    "timestamp < timestamp_micros(253402300800000000) and partition = 1",
    "not (timestamp = timestamp_micros(9223372036854775807))",
    "timestamp in (timestamp_micros(253402300800000000), timestamp'2017-07-14 02:40:00')",
]


@pytest.mark.parametrize(("option", "allowed"), [("true", "true"), ("true", "false")])
def test_a_filtered_frame_has_the_rows_of_a_filter_on_all_rows(spark, golden, option, allowed):
    logs_dir = str(golden("2.4.0", "transactions", "answers").logs)
    load = spark.read.format("kafkastore").option("pushFilters", option).load
    spark.createDataFrame(load(logs_dir).toArrow()).createOrReplaceTempView("records")
    spark.conf.set(PUSH_DOWN, allowed)
    try:
        for condition in FILTERS:
            expected = spark.table("records").where(condition)
            assert rows_of(load(logs_dir).where(condition).toArrow()) == rows_of(expected.toArrow())
    finally:
        spark.conf.set(PUSH_DOWN, "true")


def test_one_frame_answers_many_queries(spark, golden):
    """Spark 4.3 carries what one query pushed over to the next; so nothing is pushed by default."""
    frame = spark.read.format("kafkastore").load(str(golden("2.4.0", "codecs", "answers").logs))
    frame.createOrReplaceTempView("reused")
    everything = frame.count()
    some = frame.where("topic = 'codecs-big'").count()
    assert 0 < some < everything
    assert frame.count() == everything
    both = spark.sql(
        "SELECT (SELECT count(*) FROM reused WHERE topic = 'codecs-big'), "
        "(SELECT count(*) FROM reused WHERE topic <> 'codecs-big')"
    )
    assert tuple(both.first()) == (some, everything - some)


def test_several_paths_are_one_frame(spark, golden):
    paths = [str(golden("2.4.0", name, "answers").logs) for name in ("codecs", "compacted")]
    both = spark.read.format("kafkastore").load(paths).groupBy("topic").count().collect()
    assert {row["topic"] for row in both} > {"codecs", "compacted"}


def test_an_empty_store_is_an_empty_frame(spark, tmp_path):
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=0\n")
    frame = spark.read.format("kafkastore").load(str(tmp_path))
    assert frame.schema.simpleString() == KAFKA_SCHEMA
    assert frame.count() == 0


def test_errors_reach_the_session_as_one_sentence(spark, golden, writable_copy):
    def load(path, **options):
        return spark.read.format("kafkastore").options(**options).load(str(path))

    with raised_in_python("NotALogDirectoryError", "PYTHON_DATA_SOURCE_ERROR"):
        load("/nowhere")
    logs_dir = writable_copy(golden("2.4.0", "codecs", "answers").logs)
    with raised_in_python("OptionError", "PYTHON_DATA_SOURCE_ERROR"):
        load(logs_dir, subscribed="codecs")
    with raised_in_python("OptionError", "PYTHON_DATA_SOURCE_ERROR"):
        load(logs_dir, subscribe="x").count()
    damaged = logs_dir / "codecs-0" / "00000000000000000000.log"
    damaged.write_bytes(damaged.read_bytes()[:-10] + bytes(10))
    with raised_in_python("ChecksumError", "PYTHON_EXCEPTION"):
        load(logs_dir, subscribe="codecs").count()


# ---------------------------------------------------------------- in a task


@bounded(60)
@given(
    log=logs(has_headers=True),
    start=st.integers(-1, 20),
    end=st.integers(-1, 30),
    since=st.one_of(st.none(), st.integers(0, 40)),
    min_partitions=st.sampled_from(["1", "5"]),
)
def test_a_pushed_filter_drops_no_matching_row(
    tmp_path_factory, log, start, end, since, min_partitions
):
    root = log.write(tmp_path_factory.mktemp("log") / "logs")
    everything = read(reader_of(root, includeHeaders="true", minPartitions=min_partitions))
    assert len(everything) == len(log.records())
    filters = [GreaterThanOrEqual(("offset",), start), LessThan(("offset",), end)]
    if since is not None:
        instant = datetime.fromtimestamp(since / 1000, UTC)
        filters.append(GreaterThanOrEqual(("timestamp",), instant))
    reader = reader_of(
        root, includeHeaders="true", minPartitions=min_partitions, pushFilters="true"
    )
    assert list(reader.pushFilters(filters)) == filters
    assert read(reader) == [
        row
        for row in everything
        if start <= row["offset"] < end
        and (since is None or (row["timestamp"] is None or row["timestamp"] >= instant))
    ]


def test_spark_treats_a_pushing_reader_as_one_that_does_not_push(golden):
    """With push-down off, Spark refuses a reader whose `pushFilters` is not the base class's."""
    logs_dir = golden("2.4.0", "compacted", "answers").logs
    reader = reader_of(logs_dir, pushFilters="true")
    assert reader.pushFilters.__func__ is DataSourceReader.pushFilters
    assert type(reader_of(logs_dir)).pushFilters is DataSourceReader.pushFilters


def test_a_filter_on_a_partition_keeps_the_others_from_being_planned(golden):
    reader = reader_of(golden("2.4.0", "compacted", "answers").logs, pushFilters="true")
    reader.pushFilters([EqualTo(("partition",), 1)])
    slices = [each for part in reader.partitions() for each in part.slices]
    assert {each.partition for each in slices} == {1}


def test_small_partitions_share_tasks_and_batches(golden):
    reader = reader_of(golden("2.4.0", "wide", "answers").logs)
    parts = reader.partitions()
    assert sum(len(part.slices) for part in parts) > 8 * len(parts)
    batches = [list(reader.read(part)) for part in parts]
    assert all(len(each) == 1 for each in batches)
    assert sum(batch.num_rows for each in batches for batch in each) == len(read(reader))


def test_batches_have_the_declared_schema_with_any_records(golden):
    for columns in ("offset", "headers,value", ",".join(COLUMNS.fieldNames())):
        reader = reader_of(golden("2.4.0", "headers-and-nulls", "answers").logs, columns=columns)
        promised = to_arrow_schema(spark_schema(columns.split(",")), timezone="UTC")
        for part in reader.partitions():
            assert all(batch.schema.equals(promised) for batch in reader.read(part))


def test_timestamps_before_1970_and_beyond_microseconds(tmp_path):
    from models.log_directory import Log, Segment
    from models.record_format import Batch, Row

    stamps = [-1, 1_500_000_000_000, 2**63 - 1]
    rows = tuple(Row(at, stamp, None, b"v", ()) for at, stamp in enumerate(stamps))
    log = Log((Segment(0, (Batch(rows=rows),)),))
    reader = reader_of(log.write(tmp_path / "logs"), columns="timestamp")
    (part,) = reader.partitions()
    (batch,) = reader.read(part)
    assert batch.column(0).cast(pa.int64()).to_pylist() == [-1000, 1_500_000_000_000_000, None]


# ---------------------------------------------------------------- options on data


@pytest.fixture
def upgrade(golden):
    """A directory of 0.10.0.1, whose records have timestamps."""
    return golden("0.10.0.1", "upgrade", "answers").logs


def test_partitions_and_offsets_can_be_chosen(upgrade):
    load = partial(reader_of, upgrade)
    everything = offsets(read(load()))
    assert offsets(read(load(subscribe="up"))) == [row for row in everything if row[0] == "up"]
    assert offsets(read(load(subscribePattern="up-.*"))) == [
        row for row in everything if row[0] != "up"
    ]
    chosen = load(
        assign='{"up": [1]}',
        startingOffsets='{"up": {"1": 7}}',
        endingOffsets='{"up": {"1": 12}}',
    )
    assert offsets(read(chosen)) == [("up", 1, offset) for offset in range(7, 12)]


def test_times_mean_the_first_record_at_or_after_them(upgrade):
    log = kafkastore.open(upgrade)["up", 0]
    stamps = [record.timestamp for record in log.records()]
    since, until = (sorted(stamps)[len(stamps) * part // 4] for part in (1, 3))
    start = next(at for at, stamp in enumerate(stamps) if stamp >= since)
    end = next(at for at, stamp in enumerate(stamps) if stamp >= until)
    chosen = reader_of(
        upgrade,
        assign='{"up": [0]}',
        startingTimestamp=str(since),
        endingOffsetsByTimestamp=json.dumps({"up": {"0": until}}),
        rules="correct",
    )
    assert offsets(read(chosen)) == [("up", 0, offset) for offset in range(start, end)]


def test_a_time_after_all_records(upgrade):
    late = {"subscribe": "up", "startingTimestamp": str(1 << 62)}
    with option_refused("not-found", "startingTimestamp"):
        reader_of(upgrade, **late).partitions()
    nothing = reader_of(upgrade, **late, startingOffsetsByTimestampStrategy="latest")
    assert read(nothing) == []
    everything = reader_of(upgrade, subscribe="up", endingTimestamp=str(1 << 62))
    assert len(read(everything)) == len(read(reader_of(upgrade, subscribe="up")))


def test_offsets_that_are_not_there(golden):
    logs_dir = golden("2.4.0", "delete-records", "answers").logs
    start = kafkastore.open(logs_dir)["deleted", 0].log_start_offset
    assert start > 0
    deleted = {"assign": '{"deleted": [0]}', "startingOffsets": json.dumps({"deleted": {"0": 0}})}
    with option_refused("not-found", "startingOffsets"):
        reader_of(logs_dir, **deleted).partitions()
    rows = read(reader_of(logs_dir, **deleted, failOnDataLoss="false"))
    assert min(row["offset"] for row in rows) == start


def test_a_partition_that_is_not_there_is_refused(upgrade):
    with option_refused("not-found", "assign"):
        reader_of(upgrade, assign='{"up": [0, 9]}').partitions()


def test_without_fail_on_data_loss_a_broken_batch_ends_a_slice(upgrade, writable_copy):
    copy = writable_copy(upgrade)
    last = max((copy / "up-0").glob("*.log"))
    last.write_bytes(last.read_bytes()[:-10] + bytes(10))
    with pytest.raises(kafkastore.CorruptBatchError):
        read(reader_of(copy, subscribe="up"))
    rows = read(reader_of(copy, subscribe="up", failOnDataLoss="false"))
    log = kafkastore.open(upgrade)["up", 0]
    assert len([row for row in rows if row["partition"] == 0]) == log.log_end_offset - 1


def test_min_partitions_gives_more_tasks_and_the_same_rows(upgrade):
    one, many = reader_of(upgrade), reader_of(upgrade, minPartitions="6")
    assert len(one.partitions()) == 1
    assert len(many.partitions()) > 6
    assert offsets(read(one)) == offsets(read(many))
