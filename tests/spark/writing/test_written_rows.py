"""Rows become records: offsets, times, partitions."""
import random
import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.record_strategies import bounded
from spark.writing.writes import NOW, SCHEMA, faults, names, records, row, schema_of, values, write

import kafkastore
from kafkastore.errors import OutOfOrderAppendError
from kafkastore.spark.source.writing import merged_logs, task_logs
from kafkastore.spark.source.writing.key_partitions import murmur2, partitions_of_keys
from kafkastore.spark.source.writing.write_options import CODECS
from kafkastore.spark.source.writing.writer import writer_of

KEYS = st.one_of(st.none(), st.just(b""), st.binary(max_size=9))
VALUES = st.one_of(KEYS, st.just(b"v" * 700), st.just(b"w" * 5000))
PAIRS = st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=3), "value": KEYS}), max_size=3
)
ROWS = st.builds(
    row,
    VALUES,
    st.integers(0, 3),
    topic=st.sampled_from(["t", "t-1.x"]),
    key=KEYS,
    timestamp=st.one_of(st.integers(NOW - 10**9, NOW), st.sampled_from([-1, 0])),
    headers=st.one_of(st.none(), PAIRS),
)
TASKS = st.lists(st.lists(st.lists(ROWS, max_size=15), max_size=3), max_size=3)
CHOICES = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(CODECS),
        "segment.bytes": st.sampled_from(["6000", "20000", "1073741824"]),
        "batch.size": st.sampled_from(["1", "300", "16384"]),
        "index.interval.bytes": st.sampled_from(["0", "4096"]),
    }
)


def expected(tasks):
    """The expected logs of rows whose offsets are given or follow from their order."""
    logs = {}
    for each in (each for batches in tasks for rows in batches for each in rows):
        log = logs.setdefault(f"{each['topic']}-{each['partition']}", [])
        pairs = tuple((pair["key"], pair["value"]) for pair in each["headers"] or ())
        offset = len(log) if each["offset"] is None else each["offset"]
        log.append((offset, each["timestamp"] // 1000, each["key"], each["value"], pairs))
    return logs


@bounded(25)
@given(TASKS, CHOICES, st.integers(1, 3))
def test_written_records_equal_the_given_ones(tmp_path_factory, tasks, options, open_logs):
    target = tmp_path_factory.mktemp("written") / "logs"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merged_logs, "open_logs_limit", lambda: open_logs)
        patch.setattr(task_logs, "open_logs_limit", lambda: open_logs)
        write(target, tasks, **options)
    assert records(target) == expected(tasks)
    assert not faults(target)
    assert names(target.parent) == ["logs"]


@bounded(15)
@given(TASKS, CHOICES, st.randoms(use_true_random=False))
def test_offsets_that_are_given_are_kept(tmp_path_factory, tasks, options, chance):
    next_offsets = {}
    for each in (each for batches in tasks for rows in batches for each in rows):
        place = each["topic"], each["partition"]
        each["offset"] = next_offsets.get(place, 0) + chance.choice([0, 0, 1, 9, 2**31, 2**40])
        next_offsets[place] = each["offset"] + 1
    target = tmp_path_factory.mktemp("written") / "logs"
    write(target, tasks, SCHEMA.names, **options)
    assert records(target) == expected(tasks)
    for log in kafkastore.open(target):
        assert log.log_start_offset == expected(tasks)[str(log.topic_partition)][0][0]
    assert not faults(target)


def test_tasks_that_overlap_in_offsets_or_rows_that_fall_back_are_refused(target):
    one = [[row(b"x", offset=offset) for offset in (0, 4)]]
    with pytest.raises(OutOfOrderAppendError):
        write(target, [one, [[row(b"y", offset=3)]]], SCHEMA.names)
    for second in (3, 4):
        rows = [[row(b"x", offset=4)], [row(b"x", offset=second)]]
        for batches in (rows, [rows[0] + rows[1]]):
            with pytest.raises(OutOfOrderAppendError):
                write(target, [batches], SCHEMA.names)
    write(target, [[[row(b"second", offset=9)]], one], SCHEMA.names)
    assert [each[0] for each in records(target)["t-0"]] == [0, 4, 9]


def test_a_row_without_timestamp_gets_the_time_and_one_that_says_none_has_none(target):
    before = time.time_ns() // 10**6
    write(target, [[[row(b"x", timestamp=None), row(b"y", timestamp=-1), row(b"z")]]])
    write(target, [[[row(b"x", 1)]]], ("topic", "partition", "value"))
    now, none, then = (each[1] for each in records(target)["t-0"])
    assert (none, then) == (-1, NOW)
    (other,) = records(target)["t-1"]
    assert before <= now <= other[1] <= time.time_ns() // 10**6


def murmur2_by_bytes(data):
    """Kafka's ``Utils.murmur2``, line by line."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(data)
    for at in range(0, len(data) & ~3, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if rest := data[len(data) & ~3 :]:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def test_keys_choose_the_partition_as_kafkas_producers_do(target):
    keys = [bytes(random.Random(number).randbytes(number % 23)) for number in range(500)]
    rows = [row(b"%d" % number, key=key) for number, key in enumerate(keys)]
    write(target, [[rows[:200], rows[200:]]], ("topic", "key", "value"), partitions="7")
    for name, log in records(target).items():
        for _, _, key, _, _ in log:
            assert (murmur2_by_bytes(key) & 0x7FFFFFFF) % 7 == int(name[2:])
    assert sum(map(len, records(target).values())) == 500


def test_the_hash_is_kafkas():
    """The cases of Kafka's UtilsTest."""
    known = {
        b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829, b"abc": 479470107,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    }
    keys = pa.array([b"in front", *known])[1:]
    assert murmur2(keys).astype(np.int32).tolist() == list(known.values())
    assert partitions_of_keys(keys, 1).tolist() == [0] * len(known)


def test_rows_without_key_and_partition_are_spread(target):
    rows = [row(b"%d" % number, None) for number in range(40)]
    rows[7] = row(b"here", 5)
    write(target, [[rows[:10], rows[10:]]], partitions="8")
    found = values(target)
    assert len(found) == 8
    assert b"here" in found["t-5"]
    assert sorted(map(len, found.values())) == [4, *[5] * 6, 6]


def test_the_topic_option_wins_over_the_column_and_strings_are_bytes(target):
    schema = schema_of("topic string, partition bigint, key string, value string")
    made = writer_of({"path": str(target), "topic": "u"}, schema, overwrite=False)
    rows = pa.RecordBatch.from_pylist(
        [{"topic": None, "partition": 3, "key": "ä", "value": None}],
        pa.schema([("topic", pa.string()), ("partition", pa.int64()), ("key", pa.string()),
                   ("value", pa.string())]),
    )
    made.commit([made.write_task([rows], 0, 0)])
    ((name, [(_, _, key, value, _)]),) = records(target).items()
    assert (name, key, value) == ("u-3", "ä".encode(), None)
