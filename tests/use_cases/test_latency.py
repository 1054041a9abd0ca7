"""LogAppendTime minus CreateTime, of golden data with known times and of small logs."""
from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.chance_logs import TOPIC, write_chance_logs
from models.log_directory import Log, Segment
from models.record_format import Batch, Row
from models.refused import refused
from models.seed import SEED, examples
from use_cases.stores import T0, record, written

import kafkastore
from kafkastore.errors import ArgumentTypeError, CorruptBatchError
from kafkastore.formats.primitives.crc import crc32c
from kafkastore.formats.records.compression import Codec
from kafkastore.jobs.latency import latency
from kafkastore.log.parallel.log_pieces import cut_log
from kafkastore.use_cases import kept_create_times
from kafkastore.use_cases.latency import Latency, latency_of

START = 1_500_000_000_000
LAT = {"message_timestamp_type": "LogAppendTime"}


def only(found):
    (each,) = found
    return each


def histogram(latencies):
    values, counts = np.unique(latencies, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def counts_of(found):
    return dict(zip(found.values.tolist(), found.counts.tolist(), strict=True))


@pytest.mark.golden_cases(names="log-append-time", versions=["0.11*", "2.*", "3.*", "4.*"])
def test_batches_since_v2_keep_the_create_times_they_were_sent_with(golden_case):
    """Batch n of lat-0 was sent with START + n, batch n of lat-1 with START - 2n - 1."""
    expected = []
    store = kafkastore.open(golden_case.logs)
    for partition, sent in ((0, lambda n: START + n), (1, lambda n: START - 2 * n - 1)):
        answers = golden_case.answers["partitions"][f"lat-{partition}"]["records"]
        appended = {offset: timestamp for offset, timestamp, *_ in answers}
        # The producer may send only records together that were flushed together.
        for number, batch in enumerate(store["lat", partition].batches()):
            for offset in range(batch.base_offset, batch.last_offset + 1):
                expected.append(appended[offset] - sent(number))
    found = only(latency(store))
    assert counts_of(found) == histogram(expected)
    assert (found.unknown_records, found.create_time_batches) == (0, 0)


@pytest.mark.golden_cases(names="log-append-time", versions="0.10.*")
def test_compressed_sets_of_v1_keep_create_times_and_single_messages_do_not(golden_case):
    store = kafkastore.open(golden_case.logs)
    found = only(latency(store))
    assert found.records == sum(1 for _ in store["lat", 1].records())
    assert found.unknown_records == sum(1 for _ in store["lat", 0].records())
    answers = golden_case.answers["partitions"]["lat-1"]["records"]
    appended = [timestamp for _, timestamp, *_ in answers]
    sent = [START - 2 * (number // 3) - 1 for number in range(len(appended))]
    assert counts_of(found) == histogram(np.subtract(appended, sent))


@pytest.mark.golden_cases(names=["create-time-monotonic", "old-formats"], versions="2.4.0")
def test_with_create_times_alone_the_latency_is_unknown(golden_case):
    for found in latency(kafkastore.open(golden_case.logs)):
        assert (found.records, found.largest, found.percentile(50)) == (0, None, None)
        assert found.create_time_batches > 0


class Clock:
    def __init__(self):
        self.now = T0

    def __call__(self):
        return self.now


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_each_record_of_a_batch_has_a_latency_of_its_own(tmp_path, codec):
    clock = Clock()
    with written(tmp_path / "logs", clock=clock) as partition:
        log = partition("t", **LAT)
        clock.now = T0 + 1000
        log.add(record(T0), record(T0 + 400), record(T0 + 1500), record(-1), codec=codec)
    found = only(kafkastore.latency(kafkastore.open(tmp_path / "logs")))
    assert counts_of(found) == {-500: 1, 600: 1, 1000: 1}
    assert (found.unknown_records, found.negative_records, found.largest) == (1, 1, 1000)


def test_partitions_can_be_chosen_and_are_merged_by_topic(tmp_path):
    clock = Clock()
    with written(tmp_path / "logs", clock=clock) as partition:
        for topic, number in (("a", 0), ("a", 1), ("b", 0)):
            partition(topic, number, **LAT).add(record(T0 - 10 * (number + 1)))
    store = kafkastore.open(tmp_path / "logs")
    assert {each.topic: counts_of(each) for each in latency(store)} == {
        "a": {10: 1, 20: 1}, "b": {10: 1}
    }
    assert {each.topic: counts_of(each) for each in latency(store, partitions=["a-1", "b-0"])} == {
        "a": {20: 1}, "b": {10: 1}
    }
    with refused("partitions", ArgumentTypeError):
        list(latency(store, partitions="b-0"))


def test_a_delete_horizon_replaces_the_create_time(tmp_path):
    """The base timestamp is the delete horizon then (KIP-534)."""
    with written(tmp_path / "logs", clock=Clock()) as partition:
        partition("t", **LAT).add(record(T0 - 5), record(T0 - 7))
    (log,) = kafkastore.open(tmp_path / "logs")
    path = log.segments[0].log_path
    data = bytearray(path.read_bytes())
    data[22] |= 0x40
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    path.write_bytes(data)
    found = only(latency(kafkastore.open(tmp_path / "logs")))
    assert (found.records, found.unknown_records) == (0, 2)


def test_the_create_time_may_be_in_a_header(tmp_path):
    clock = Clock()
    clock.now = T0 + 1000
    with written(tmp_path / "logs", clock=clock) as partition:
        partition("t", **LAT).add(
            record(T0, headers=(("at", str(T0 + 10).encode()),)),
            record(T0, headers=(("x", b""), ("at", (T0 + 300).to_bytes(8, "big")))),
            record(T0, headers=(("at", b"%d" % T0), ("at", b"%d" % (T0 + 999)))),
            record(T0, headers=(("at", b"noon"),)),
            record(T0, headers=(("at", None),)),
            record(T0),
        )
        partition("u").add(record(T0, headers=(("at", b"%d" % T0),)))
    store = kafkastore.open(tmp_path / "logs")
    found, other = latency(store, create_time_header="at")
    assert counts_of(found) == {990: 1, 700: 1, 1000: 1}
    assert found.unknown_records == 3
    assert other.records == 0


@pytest.mark.parametrize("others", [{}, LAT], ids=["create time", "append time"])
def test_create_times_may_come_from_another_cluster(tmp_path, others):
    """This cluster mirrors it without the times. Equal records are matched in order."""
    one, two = Clock(), Clock()
    with written(tmp_path / "1", clock=one) as partition:
        one.now = T0 + 50
        for timestamp, value in ((3, b"a"), (1, b"b"), (2, b"a"), (9, b"deleted"), (4, b"c")):
            partition("t", **others).add(record(T0 + timestamp, value))
    with written(tmp_path / "2", clock=two) as partition:
        for appended, value in ((100, b"b"), (200, b"a"), (300, b"a"), (400, b"new"), (500, b"a")):
            two.now = T0 + appended
            partition("t", **LAT).add(record(two.now, value))
        partition("u", **LAT).add(record(T0, b"a"))
    created = kafkastore.open(tmp_path / "1")
    found, other = latency(kafkastore.open(tmp_path / "2"), created_in=created)
    assert counts_of(found) == {99: 1, 197: 1, 298: 1}
    assert (found.unknown_records, other.unknown_records, other.records) == (2, 1, 0)
    with refused("create_time_header"):
        list(latency(created, created_in=created, create_time_header="at"))


def test_a_corrupt_batch_is_an_error_with_its_position(tmp_path):
    with written(tmp_path / "logs", clock=Clock()) as partition:
        partition("t", **LAT).add(record(T0, b"value" * 20))
    (log,) = kafkastore.open(tmp_path / "logs")
    path = log.segments[0].log_path
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptBatchError) as error:
        list(latency(kafkastore.open(tmp_path / "logs")))
    assert (error.value.path, error.value.position) == (path, 0)


@given(st.lists(st.integers(-5, 20), min_size=1, max_size=60), st.integers(1, 100_000))
def test_a_percentile_is_the_smallest_latency_that_enough_records_do_not_exceed(
    latencies, thousandths
):
    values, counts = np.unique(latencies, return_counts=True)
    found = Latency("t", 1, values, counts, 0, 0)
    at = found.percentile(thousandths / 1000)
    assert sum(each <= at for each in latencies) * 100_000 >= len(latencies) * thousandths
    assert sum(each < at for each in latencies) * 100_000 < len(latencies) * thousandths


@pytest.mark.parametrize("percent", [0, -1, 100.1])
def test_percentiles_outside_the_range_are_refused(percent):
    found = Latency("t", 1, np.array([1]), np.array([1]), 0, 0)
    with refused("percent"):
        found.percentile(percent)


def flip(path, chance):
    data = bytearray(path.read_bytes())
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def with_append_times(chance, path):
    """Give most batches of a log LogAppendTime; their checksums become right again."""
    data = bytearray(path.read_bytes())
    at = 0
    while at + 27 < len(data):
        end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        if data[at + 16] == 2 and not data[at + 22] & 0x20 and chance.random() < 0.8:
            data[at + 22] |= 0x08
            data[at + 17 : at + 21] = crc32c(bytes(data[at + 21 : end])).to_bytes(4, "big")
        at = end
    path.write_bytes(data)


def measured(log, threads, **options):
    """All that a caller sees: the latencies or the error."""
    log.refresh()
    try:
        found = latency_of(log, threads=threads, **options)
    except kafkastore.KafkaStoreError as error:
        return type(error), str(error)
    return counts_of(found), found._replace(values=(), counts=())


def damage_some(chance, log):
    """Flip bits of logs and of indexes, cut a log, repeat some of its bytes."""
    for suffix in ("log", "log", "index"):
        paths = sorted(log.path.glob(f"*.{suffix}"))
        if paths and chance.random() < 0.3:
            flip(chance.choice(paths), chance)
    if chance.random() < 0.2:
        path = chance.choice(sorted(log.path.glob("*.log")))
        data = path.read_bytes()
        at = chance.randrange(len(data) + 1)
        path.write_bytes(data[:at] + chance.choice((b"", data[at // 2 :], bytes(100))))


@pytest.mark.parametrize("header", [None, "at"])
def test_threads_measure_random_and_damaged_logs_as_one_does(
    tmp_path, monkeypatch, threads_left, header
):
    count = examples(90)
    write_chance_logs(tmp_path / "logs", SEED, count, is_clean=False)
    chance = random.Random(SEED)
    outcomes = set()
    store = kafkastore.open(tmp_path / "logs")
    for number in range(count):
        log = store[TOPIC, number]
        for segment in log.segments:
            with_append_times(chance, segment.log_path)
        damage_some(chance, log)
        for on_corrupt in ("raise", "skip", "stop"):
            options = {"on_corrupt": on_corrupt, "create_time_header": header}
            expected = measured(log, 1, **options)
            for threads in (2, 3):
                size = chance.choice((60, 200, 900))
                monkeypatch.setattr(kept_create_times, "_PIECE_BYTES", size)
                assert measured(log, threads, **options) == expected, (number, options)
            outcomes.add(type(expected[0]))
    assert outcomes == {type, dict}
    assert threads_left("kafkastore-latency") == []


def test_several_threads_measure_one_segment_to_its_end(tmp_path, monkeypatch):
    clock = Clock()
    with written(tmp_path / "logs", clock=clock) as partition:
        log = partition("t", **LAT)
        for number in range(200):
            clock.now = T0 + number
            log.add(record(T0), record(T0 - 7))
    (log,) = kafkastore.open(tmp_path / "logs")
    pieces = []
    measure = kept_create_times._measure_piece

    def counting(*arguments):
        piece, found = measure(*arguments)
        pieces.append(found)
        return piece, found

    monkeypatch.setattr(kept_create_times, "_measure_piece", counting)
    expected = measured(log, 1)
    assert pieces == []
    assert expected[0] == histogram([*range(200), *range(7, 207)])
    monkeypatch.setattr(kept_create_times, "_PIECE_BYTES", 1000)
    assert measured(log, 2) == expected
    assert len(pieces) > 5
    assert all(each is not None for each in pieces)
    del pieces[:]
    (all_threads,) = latency(tmp_path / "logs", threads=2)
    assert counts_of(all_threads) == expected[0]
    assert len(pieces) > 5
    del pieces[:]
    (one_thread,) = latency(tmp_path / "logs", threads=1)
    assert counts_of(one_thread) == expected[0]
    assert pieces == []


def repeat_batches(log, at):
    """Batches from the middle of the log follow at a position, out of order."""
    data = log.read_bytes()
    log.write_bytes(data[:at] + data[at // 2 // BATCH_SIZE * BATCH_SIZE :])


def flip_record(log, at):
    data = bytearray(log.read_bytes())
    data[at + BATCH_SIZE - 2] ^= 1
    log.write_bytes(data)


def flip_record_before(log, at):
    flip_record(log, at - BATCH_SIZE)


def move_index_entry(log, at):
    """An entry of the offset index has a position within a batch."""
    path = log.with_suffix(".index")
    path.write_bytes(path.read_bytes().replace(at.to_bytes(4, "big"), (at + 5).to_bytes(4, "big")))


UNIFORM = tuple(
    Batch((Row(offset, T0 + offset, b"k", b"v"),), append_time=T0 + 900) for offset in range(400)
)
BATCH_SIZE = len(UNIFORM[0].data)


@pytest.mark.parametrize("on_corrupt", ["raise", "skip", "stop"])
@pytest.mark.parametrize(
    "damage", [repeat_batches, flip_record, flip_record_before, move_index_entry]
)
@pytest.mark.parametrize("is_last", [True, False])
def test_damage_where_a_piece_begins_is_read_as_by_one_thread(
    tmp_path, monkeypatch, damage, on_corrupt, is_last
):
    segment = Segment(0, UNIFORM).indexed(interval=200)
    others = () if is_last else (Segment(400, (UNIFORM[0].with_offset(400),)),)
    (log,) = kafkastore.open(Log((segment, *others)).write(tmp_path / "logs"))
    monkeypatch.setattr(kept_create_times, "_PIECE_BYTES", 12 * BATCH_SIZE)
    starts = [
        piece.start.position
        for piece in cut_log(tuple(log.segments), 0, 400, lambda: 12 * BATCH_SIZE)
    ]
    damage(log.segments[0].log_path, starts[5])
    expected = measured(log, 1, on_corrupt=on_corrupt)
    assert measured(log, 2, on_corrupt=on_corrupt) == expected
