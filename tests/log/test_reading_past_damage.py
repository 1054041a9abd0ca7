"""Results of `on_corrupt` "skip" and "stop" other than records."""

import os
import struct
from dataclasses import replace

import pytest
from kafkastore.legacy.comparison import Comparison
from models.log_directory import Log, Segment
from models.record_format import GZIP, Batch, Row, crc32c

import kafkastore
from kafkastore import CorruptionError, legacy
from kafkastore.formats.topics.consumer_offsets import OffsetCommitKey

GROUP = OffsetCommitKey("g", "t", 0)


def dated(offset, **fields):
    """A batch of two records, at ten times their offsets."""
    rows = (Row(offset, 10 * offset, b"k", b"v"), Row(offset + 1, 10 * offset + 10, b"k", b"w"))
    return Batch(rows, **fields)


def undated(offset):
    return Batch((Row(offset, -1, b"k", b"v"),), magic=0)


def write(tmp_path, *segments, **fields):
    return kafkastore.open(Log(segments, **fields).write(tmp_path / "logs"))["t-0"]


def flip(log, base_offset, position):
    """Flip a bit of a log, and keep its modification time."""
    path = log.path / f"{base_offset:020}.log"
    status = path.stat()
    data = bytearray(path.read_bytes())
    data[position] ^= 16
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    return path


class NotGzip(Batch):
    """A compressed batch with a right checksum whose records are not gzip."""

    @property
    def data(self):
        data = bytearray(super().data)
        data[61:71] = bytes(10)
        data[17:21] = struct.pack(">I", crc32c(bytes(data[21:])))
        return bytes(data)


@pytest.fixture
def broken(tmp_path):
    """Eight records of LogAppendTime in two segments; 2 and 3 fail their checksum."""
    batches = [dated(offset, append_time=10 * offset + 15) for offset in range(0, 8, 2)]
    log = write(tmp_path, Segment(0, tuple(batches[:2])), Segment(4, tuple(batches[2:])))
    flip(log, 0, len(batches[0].data) + 65)
    return log


@pytest.fixture
def store(broken):
    return kafkastore.open(broken.path.parent)


READABLE = {"skip": [0, 1, 4, 5, 6, 7], "stop": [0, 1]}


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("choice", READABLE)
def test_lag_counts_the_records_that_can_be_read(store, choice, isolation):
    options = {"offsets": {GROUP: 1}, "isolation": isolation}
    (found,) = kafkastore.lag(store, on_corrupt=choice, **options)
    if choice == "stop":  # how many there are after that is unknown
        assert (found.unread, found.records, found.lag_ms) == (None, None, None)
    else:
        unread = [offset for offset in READABLE[choice] if offset >= 1]
        assert found.records == len(unread)
        assert found.unread.first_offset == unread[0]
    assert [each.start_offset for each in found.skipped] == [2]
    with pytest.raises(CorruptionError):
        list(kafkastore.lag(store, **options))


@pytest.mark.parametrize("choice", READABLE)
def test_a_damaged_partition_does_not_keep_a_store_from_answering(store, choice):
    ((key, log),) = store.partitions.items()
    skipped, by_log = [], []
    found = store.offsets_for_times({key: 20}, on_corrupt=choice, skipped=skipped)
    expected = log.offset_for_timestamp(20, on_corrupt=choice, skipped=by_log)
    assert found == {key: expected}
    assert skipped == by_log != []
    with pytest.raises(CorruptionError):
        store.offsets_for_times({key: 20})


@pytest.mark.parametrize("choice", READABLE)
def test_latency_is_of_the_records_that_can_be_read(store, choice):
    (found,) = kafkastore.latency(store, on_corrupt=choice)
    expected = sorted(10 * (offset - offset % 2) + 15 - 10 * offset for offset in READABLE[choice])
    assert sorted(
        value for value, count in zip(found.values, found.counts, strict=True)
        for _ in range(count)
    ) == expected
    assert [each.start_offset for each in found.skipped] == [2]
    with pytest.raises(CorruptionError):
        list(kafkastore.latency(store))


@pytest.mark.parametrize("choice", READABLE)
def test_comparing_counts_the_records_that_can_be_read(broken, choice):
    skipped = []
    (found,) = legacy.compare(
        broken, [60], now=10**13, mtimes={"t-0/00000000000000000000.log": 1,
                                          "t-0/00000000000000000004.log": 2},
        on_corrupt=choice, skipped=skipped,
    )
    assert isinstance(found, Comparison)
    correct = {"skip": 6, "stop": None}[choice]
    assert (None if found.correct is None else found.correct.offset) == correct
    begins = {"skip": 6, "stop": 2}[choice]
    if found.legacy is not None:
        between = [
            offset for offset in READABLE[choice]
            if min(begins, found.legacy) <= offset < max(begins, found.legacy)
        ]
        assert found.redelivered + found.missed == len(between)
    assert [each.start_offset for each in skipped] == [2]
    with pytest.raises(CorruptionError):
        legacy.compare(broken, [60], now=10**13)


@pytest.mark.parametrize("choice", READABLE)
def test_damage_that_only_what_was_committed_depends_on_is_reported(broken, choice):
    for read in (broken.records, broken.to_arrow):
        skipped = []
        list(read(isolation="read_committed", on_corrupt=choice, skipped=skipped))
        assert [each.start_offset for each in skipped] == [2]


@pytest.mark.parametrize("choice", ["raise", *READABLE])
def test_a_decided_range_is_read_past_damage_as_any_other(broken, choice):
    options = {"isolation": "read_committed", "on_corrupt": choice, "batch_rows": 1}
    read = []
    for is_decided in (False, True):
        offsets, skipped, error = [], [], None
        try:
            for batch in broken.to_arrow(
                ["offset"], is_decided=is_decided, end_offset=8, skipped=skipped, **options
            ):
                offsets += batch["offset"].to_pylist()
        except CorruptionError as caught:
            error = str(caught)
        read.append((offsets, skipped, error))
    assert read[0] == read[1]
    assert read[1][0] == READABLE.get(choice, [0, 1])


@pytest.mark.parametrize("magic", [0, 1])
def test_records_of_wrappers_are_committed(tmp_path, magic):
    batches = tuple(
        Batch((Row(at, at, b"k"), Row(at + 1, at, b"k")), magic, GZIP) for at in range(0, 8, 2)
    )
    log = write(tmp_path, Segment(0, batches[:2]), Segment(4, batches[2:]))
    everything = [record.offset for record in log.records()]
    assert everything == list(range(8))
    committed = log.records(isolation="read_committed")
    assert [record.offset for record in committed] == everything
    table = log.to_arrow(["offset"], isolation="read_committed").read_all()
    assert table["offset"].to_pylist() == everything
    between = log.records(2, 7, isolation="read_committed")
    assert [record.offset for record in between] == [2, 3, 4, 5, 6]


# ---------------------------------------------------------------- the last batch


@pytest.fixture
def badly_ended(broken):
    """The log with a sound first segment, and a last batch whose checksum does not match."""
    flip(broken, 0, len(dated(0).data) + 65)
    path = flip(broken, 4, len(dated(4).data) + 26)  # its last offset delta
    broken.refresh()
    return broken, path, len(dated(4).data)


@pytest.mark.parametrize("rules", ["correct", "kip-33"])
def test_the_log_end_is_not_taken_from_a_batch_whose_checksum_is_wrong(badly_ended, rules):
    log, path, position = badly_ended
    with pytest.raises(CorruptionError) as caught:
        log.list_offset(-1, rules)
    assert (caught.value.path, caught.value.position) == (path, position)
    for choice in READABLE:
        skipped = []
        assert log.list_offset(-1, rules, on_corrupt=choice, skipped=skipped).offset == 6
        assert [each[:5] for each in skipped] == [(path, position, path.stat().st_size, 6, None)]


@pytest.mark.parametrize("choice", ["raise", *READABLE])
def test_a_broker_takes_the_log_end_from_the_last_header(badly_ended, choice):
    log, *_ = badly_ended
    skipped = []
    found = log.list_offset(-1, "4.1", on_corrupt=choice, skipped=skipped)
    assert (found.offset, skipped) == (log.log_end_offset, [])
    assert found.offset > 8


@pytest.mark.parametrize("choice", READABLE)
def test_lag_and_latency_name_a_last_batch_that_they_leave_out(badly_ended, choice):
    log, path, position = badly_ended
    store = kafkastore.open(log.path.parent)
    (lag,) = kafkastore.lag(store, offsets={GROUP: 1}, on_corrupt=choice)
    assert (lag.records, lag.log_end_offset) == (5, 6)
    (latency,) = kafkastore.latency(store, on_corrupt=choice)
    for found in (lag, latency):
        assert [each[:3] for each in found.skipped] == [(path, position, path.stat().st_size)]


@pytest.mark.parametrize("indexes", ["check", "ignore"])
def test_only_lookups_that_trust_indexes_read_past_a_wrong_checksum(broken, indexes):
    with pytest.raises(CorruptionError):
        broken.offset_for_timestamp(40, indexes=indexes)
    assert broken.offset_for_timestamp(40, indexes="trust") is not None


# ---------------------------------------------------------------- rules of brokers, KIP-33


@pytest.mark.parametrize("rules", ["0.11.0", "2.4", "4.1", "kip-33"])
@pytest.mark.parametrize("choice", READABLE)
def test_by_a_broker_s_rules_a_segment_ends_at_corrupt_bytes(tmp_path, rules, choice):
    batches = tuple(dated(offset) for offset in range(0, 8, 2))
    log = write(
        tmp_path,
        Segment(0, batches[:2]).recovered(interval=10**9),
        Segment(4, batches[2:]).recovered(interval=10**9),
        is_clean=True,
    )
    position = len(batches[0].data)
    path = flip(log, 0, position + 10)  # its length
    with pytest.raises(CorruptionError):
        log.offset_for_timestamp(20, rules)
    skipped = []
    options = {"on_corrupt": choice, "skipped": skipped}
    answer = log.offset_for_timestamp(20, rules, **options)
    # KIP-33's text continues in the next segment, and a broker does not.
    assert (None if answer is None else answer.offset) == (4 if rules == "kip-33" else None)
    assert log.offsets_for_timestamps([20], rules, **options)["offset"].tolist() == [
        4 if rules == "kip-33" else -1
    ]
    assert [(each.path, each.position, each.end_position) for each in skipped] == [
        (path, position, path.stat().st_size)
    ]
    assert (skipped[0].start_offset, skipped[0].end_offset) == (2, 4)


# ---------------------------------------------------------------- segments without timestamps


@pytest.fixture
def untimed(tmp_path):
    """Segments of format 0 at 0 and 2, written at 100 and 200; of format 2 at 4, with times."""
    return write(
        tmp_path,
        Segment(0, (undated(0), undated(1)), 100),
        Segment(2, (undated(2), undated(3)), 200),
        Segment(4, (dated(4), dated(6)), 300),
    )


def test_past_damage_segments_without_timestamps_count_as_wholes(untimed):
    times = [0, 50, 100, 150, 200, 250]
    by_segment = untimed.offsets_for_timestamps(times, untimed="segment")["offset"].tolist()
    assert by_segment == [0, 0, 0, 2, 2, -1]
    flip(untimed, 4, len(dated(4).data) + 65)
    untimed.refresh()
    for choice in ("skip", "stop"):
        options = {"untimed": "segment", "on_corrupt": choice, "skipped": []}
        found = untimed.offsets_for_timestamps(times, **options)
        assert found["offset"].tolist() == by_segment
        each = [untimed.offset_for_timestamp(time, **options) for time in times]
        assert [-1 if one is None else one.offset for one in each] == by_segment


@pytest.mark.parametrize(
    ("choice", "expected"), [("skip", [0, 0, 2, 0]), ("stop", [0, 0, -1, 0])]
)
def test_a_damaged_segment_without_timestamps_counts_as_far_as_it_is_read(
    untimed, choice, expected
):
    flip(untimed, 0, len(undated(0).data) + 10)
    untimed.refresh()
    found = untimed.offsets_for_timestamps(
        [0, 100, 150, 40], untimed="segment", on_corrupt=choice, skipped=[]
    )
    assert found["offset"].tolist() == expected


@pytest.mark.parametrize("rules", ["correct", "2.4", "kip-33"])
@pytest.mark.parametrize("indexes", ["check", "trust", "ignore"])
def test_a_segment_of_which_nothing_can_be_read_is_not_taken_for_empty(untimed, rules, indexes):
    flip(untimed, 2, 8)  # the length of the first batch
    untimed.refresh()
    options = {"untimed": "segment", "indexes": indexes}
    early = untimed.offset_for_timestamp(100, rules, **options) if rules != "correct" else None
    assert early is None or early.offset == 0
    with pytest.raises(CorruptionError) as caught:
        untimed.offset_for_timestamp(150, rules, **options)
    assert caught.value.path == untimed.segments[1].log_path
    with pytest.raises(CorruptionError):
        untimed.offsets_for_timestamps([150], rules, **options)


# ---------------------------------------------------------------- batches that can't be decoded


@pytest.fixture
def not_gzip(tmp_path):
    """Six records in three batches; the second has a right checksum, but no gzip records."""
    batches = [
        dated(0, codec=GZIP, append_time=5),
        NotGzip(dated(2).rows, codec=GZIP, append_time=25),
        dated(4, codec=GZIP, append_time=45),
    ]
    return write(tmp_path, Segment(0, tuple(batches)))


DECODED = {"skip": [0, 1, 4, 5], "stop": [0, 1]}


@pytest.mark.parametrize("choice", DECODED)
def test_a_batch_that_cannot_be_decoded_is_skipped_alike_by_all(not_gzip, choice):
    skipped = []
    records = [each.offset for each in not_gzip.records(on_corrupt=choice, skipped=skipped)]
    assert records == DECODED[choice]
    assert [each.start_offset for each in skipped] == [2]
    store = kafkastore.open(not_gzip.path.parent)

    found = not_gzip.offset_for_timestamp(25, on_corrupt=choice, skipped=[])
    assert (None if found is None else found.offset) == (4 if choice == "skip" else None)

    (lag,) = kafkastore.lag(store, offsets={GROUP: 2}, on_corrupt=choice)
    expected = sum(offset >= 2 for offset in records) if choice == "skip" else None
    assert lag.records == expected
    assert list(lag.skipped) == skipped

    (latency,) = kafkastore.latency(store, on_corrupt=choice)
    assert latency.records == len(records)
    assert list(latency.skipped) == skipped

    (latency,) = kafkastore.latency(store, created_in=store, on_corrupt=choice)
    assert latency.records == len(records)

    raising = [
        lambda: list(not_gzip.records()),
        lambda: not_gzip.offset_for_timestamp(25),
        lambda: list(kafkastore.lag(store, offsets={GROUP: 2})),
        lambda: list(kafkastore.latency(store)),
    ]
    for query in raising:
        with pytest.raises(CorruptionError) as caught:
            query()
        assert (caught.value.path, caught.value.position) == (skipped[0].path, skipped[0].position)


@pytest.mark.parametrize("choice", DECODED)
def test_a_batch_that_grows_too_large_is_skipped_like_one_that_is_corrupt(tmp_path, choice):
    large = replace(dated(2, codec=GZIP), rows=(Row(2, 20, b"k", bytes(5000)), Row(3, 30)))
    log = write(tmp_path, Segment(0, (dated(0, codec=GZIP), large, dated(4, codec=GZIP))))
    options = {"max_decompressed_bytes": 1000, "on_corrupt": choice}
    skipped, by_arrow = [], []
    records = [each.offset for each in log.records(skipped=skipped, **options)]
    table = log.to_arrow(["offset"], skipped=by_arrow, **options).read_all()
    assert records == table["offset"].to_pylist() == DECODED[choice]
    assert skipped == by_arrow
    assert [each.start_offset for each in skipped] == [2]


def test_batches_that_are_twice_in_a_segment_are_read_once(tmp_path):
    batches = tuple(dated(offset) for offset in range(0, 8, 2))
    log = write(tmp_path, Segment(0, batches))
    path = log.path / f"{0:020}.log"
    sound = path.read_bytes()
    path.write_bytes(sound + sound + dated(8).data)
    skipped = []
    read = log.records(on_corrupt="skip", skipped=skipped)
    assert [record.offset for record in read] == list(range(10))
    rows = log.to_arrow(["offset"], on_corrupt="skip", skipped=skipped).read_all()
    assert rows["offset"].to_pylist() == list(range(10))
    (bytes_of_both,) = {(each.position, each.end_position) for each in skipped}
    assert bytes_of_both == (len(sound), 2 * len(sound))


def test_records_that_belong_to_the_next_segment_are_an_error_of_a_segment(tmp_path):
    log = write(
        tmp_path,
        Segment(0, tuple(dated(offset) for offset in range(0, 8, 2))),
        Segment(8, (dated(8),)),
    )
    (log.path / f"{8:020}.log").rename(log.path / f"{6:020}.log")
    log.refresh()
    path, position = log.path / f"{0:020}.log", 3 * len(dated(0).data)
    for read in (
        lambda: list(log.records(0, 6)),
        lambda: list(log.batches(0, 6)),
        lambda: log.to_arrow(start_offset=0, end_offset=6).read_all(),
        lambda: list(log.records()),
    ):
        with pytest.raises(CorruptionError) as caught:
            read()
        assert (caught.value.path, caught.value.position) == (path, position)
    assert [record.offset for record in log.records(0, 5)] == list(range(5))
    skipped = []
    read = log.records(on_corrupt="skip", skipped=skipped)
    assert [record.offset for record in read] == [*range(6), 8, 9]
    assert [(each.path, each.position) for each in skipped] == [(path, position)]
