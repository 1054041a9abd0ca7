"""Recovery of a directory by a starting broker, rule by rule, and against a model."""

import random
import shutil
import struct
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from models import log_recovery, record_reader
from models.log_directory import Log, Segment
from models.record_format import LZ4, Batch, Row, marker
from models.record_strategies import bounded
from models.recovered_directory import epochs_of, files_after, snapshots_of

import kafkastore
from kafkastore import CorruptBatchError, CorruptIndexError, OffsetOverflowError
from kafkastore.formats.indexes import transaction_index
from kafkastore.formats.state import producer_snapshot
from kafkastore.recovery.loaded_segment import CutKind
from kafkastore.recovery.log_recovery import recover_log

from .recovered_logs import SIZE, THIRTY, VERSIONS, name, offsets_left, recover


def three_segments(**fields):
    """Ten batches of one record in each of three segments, with the indexes of a recovery."""
    parts = [(base, tuple(THIRTY[base : base + 10])) for base in (0, 10, 20)]
    segments = [Segment(base, batches).recovered(200) for base, batches in parts]
    return Log(tuple(segments), **fields)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_clean_log_is_unchanged_for_any_recovery_point(written, version):
    """As in Kafka's LogLoaderTest.testCleanShutdownFile."""
    log = written(three_segments(is_clean=True, recovery_point=0))
    recovered = recover(log, version)
    assert not any(segment.is_recovered for segment in recovered.segments)
    assert {file.rpartition(".")[2] for file in recovered.written} == {"snapshot"}
    assert not recovered.deleted
    assert not recovered.cut
    assert (recovered.log_start_offset, recovered.log_end_offset) == (0, 30)
    assert recovered.recovery_point == 30


PAST_END = {
    "an entry past the last offset": (10, 0),
    "an entry past the last byte": (9, 10 * SIZE),
    "an entry past both ends": (15, 12 * SIZE),
}


@pytest.mark.parametrize("what", PAST_END)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_last_segment_with_an_index_past_its_end_is_treated_as_empty(
    written, version, what
):
    log = three_segments(is_clean=True)
    for slot, end in ((1, 30), (2, 20)):
        changed = [*log.segments]
        entry = struct.pack(">ii", *PAST_END[what])
        offset_index = changed[slot].offset_index + entry
        changed[slot] = replace(changed[slot], offset_index=offset_index)
        found = written(replace(log, segments=tuple(changed)))
        recovered = recover(found, version)
        assert recovered.log_end_offset == recovered.recovery_point == end
        assert [segment.next_offset for segment in recovered.segments] == [10, 20, 30]
        assert not recovered.cut
        assert recover(found, version, is_clean=False).log_end_offset == 30
        shutil.rmtree(found.path.parent)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_start_past_the_end_that_the_index_shows_deletes_the_log(written, version):
    log = three_segments(is_clean=True, checkpointed_start=25)
    entry = struct.pack(">ii", 15, 12 * SIZE)
    last = replace(log.segments[2], offset_index=log.segments[2].offset_index + entry)
    recovered = recover(written(replace(log, segments=(*log.segments[:2], last))), version)
    assert sum(name.endswith(".log") for name in recovered.deleted) == 3
    assert (recovered.log_start_offset, recovered.log_end_offset) == (25, 25)


@pytest.mark.parametrize(
    ("recovery_point", "expected"),
    [
        (0, [0, 10, 20]), (9, [0, 10, 20]), (10, [10, 20]), (19, [10, 20]), (99, [20]),
        (None, [0, 10, 20]),
    ],
)
def test_segments_are_recovered_from_the_one_with_the_recovery_point_on(
    written, recovery_point, expected
):
    """As in Kafka's LogLoaderTest.testRecoverOnlyLastSegment."""
    log = written(three_segments(recovery_point=recovery_point))
    recovered = recover(log)
    found = [segment.base_offset for segment in recovered.segments if segment.is_recovered]
    assert found == expected


def test_the_recovery_point_stays_where_it_was_from_2_8_on(written):
    log = written(three_segments(recovery_point=10))
    assert recover(log, "2.4").recovery_point == recover(log, "2.7").recovery_point == 30
    assert recover(log, "2.8").recovery_point == recover(log, "4.1").recovery_point == 10


@pytest.mark.parametrize("what", ["recovery-point", "log-start"])
def test_a_damaged_checkpoint_counts_as_0(written, what):
    log = written(three_segments(recovery_point=20, checkpointed_start=5))
    (log.path.parent / f"{what}-offset-checkpoint").write_bytes(b"0\nwhat?\n")
    recovered = recover(kafkastore.open(log.path.parent)["t", 0])
    is_recovered = [segment.is_recovered for segment in recovered.segments]
    assert is_recovered == [what == "recovery-point"] * 2 + [True]
    assert recovered.log_start_offset == (5 if what == "recovery-point" else 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_garbage_after_the_last_batch_is_cut(written, version):
    """As in Kafka's LogLoaderTest.testCorruptLog."""
    chance = random.Random(3)
    for _ in range(10):
        sound = three_segments()
        damaged = replace(
            sound.segments[2],
            tail=chance.randbytes(chance.randrange(1, 300)),
            offset_index=sound.segments[2].offset_index + chance.randbytes(9),
        )
        log = written(Log((*sound.segments[:2], damaged)))
        recovered = recover(log, version)
        assert offsets_left(recovered) == list(range(30))
        assert recovered.cut == {name(20, ".log"): 10 * SIZE}
        assert recovered.written[name(20, ".index")] == sound.segments[2].offset_index
        assert recovered.segments[2].cut_bytes == len(damaged.tail)
        shutil.rmtree(log.path)


@pytest.mark.parametrize("version", VERSIONS)
def test_after_a_segment_that_is_cut_all_go(written, version):
    sound = three_segments()
    torn = replace(sound.segments[1], batches=sound.segments[1].batches[:7], tail=b"\1" * 30)
    log = written(
        Log((sound.segments[0], torn, sound.segments[2])), {name(20, ".snapshot"): b"old"}
    )
    recovered = recover(log, version)
    assert offsets_left(recovered) == list(range(17))
    assert recovered.log_end_offset == 17
    removed = {name(20, suffix) for suffix in (".log", ".index", ".timeindex", ".snapshot")}
    assert recovered.deleted.keys() == removed
    assert recovered.cut == {name(10, ".log"): 7 * SIZE}
    assert [each.cut_kind for each in recovered.segments] == [None, CutKind.INCOMPLETE_BATCH]
    assert "17" in "".join(recovered.written)


def test_bytes_cut_for_want_of_an_index_do_not_make_the_segments_after_go(written):
    """A broker recovers such a segment twice, and finds nothing to cut the second time."""
    sound = three_segments()
    torn = replace(sound.segments[1], batches=sound.segments[1].batches[:7], tail=b"\1" * 30)
    log = written(
        Log((sound.segments[0], torn, sound.segments[2])), without=[name(10, ".index")]
    )
    recovered = recover(log)
    assert offsets_left(recovered) == [*range(17), *range(20, 30)]
    assert recovered.segments[1].cut_bytes == 30


@pytest.mark.parametrize("version", VERSIONS)
def test_decreasing_offsets_empty_the_segment(written, version):
    sound = three_segments()
    batches = (*THIRTY[10:15], *THIRTY[12:15])
    log = written(
        Log((sound.segments[0], Segment(10, batches), sound.segments[2])),
        {name(10, ".txnindex"): transaction_index.pack([(1, 10, 11, 12)])},
    )
    recovered = recover(log, version)
    assert offsets_left(recovered) == list(range(10))
    assert recovered.log_end_offset == 10
    assert recovered.cut == {name(10, ".log"): 0}
    assert recovered.segments[1].cut_kind is CutKind.OUT_OF_ORDER_OFFSETS
    for suffix in (".index", ".timeindex", ".txnindex"):
        assert recovered.written[name(10, suffix)] == b""
    assert name(20, ".log") in recovered.deleted


@pytest.mark.parametrize(
    ("version", "is_dropped"), [("2.2", False), ("2.4", True), ("3.9", True), ("4.1", True)]
)
def test_a_log_that_ends_below_its_start_begins_again_there(written, version, is_dropped):
    """As in Kafka's LogLoaderTest.testLogEndLessThanStartAfterReopen."""
    log = written(
        three_segments(checkpointed_start=40), {"leader-epoch-checkpoint": b"0\n1\n3 12\n"}
    )
    recovered = recover(log, version)
    if not is_dropped:
        assert [segment.base_offset for segment in recovered.segments] == [0, 10, 20]
        return
    assert [segment.base_offset for segment in recovered.segments] == [40]
    assert (recovered.log_start_offset, recovered.log_end_offset) == (40, 40)
    files = {n: data for n, data in files_after(recovered).items() if n[:1] == "0"}
    assert files == {name(40, suffix): b"" for suffix in (".log", ".index", ".timeindex")}
    assert {name(base, ".log") for base in (0, 10, 20)} <= recovered.deleted.keys()
    # 2.4 cuts the epochs at both ends, as ever.
    assert list(recovered.leader_epochs) == ([(3, 40)] if version == "2.4" else [])


@pytest.mark.parametrize("is_clean", [True, False])
def test_indexes_without_a_log_go(written, is_clean):
    """As in Kafka's LogLoaderTest.testBogusIndexSegmentsAreRemoved."""
    bogus = {name(5, suffix): b"x" for suffix in (".index", ".timeindex", ".txnindex")}
    recovered = recover(written(three_segments(is_clean=is_clean), bogus))
    assert recovered.deleted.keys() == bogus.keys()


@pytest.mark.parametrize("version", VERSIONS)
def test_files_that_were_being_deleted_are_deleted(written, version):
    """As in Kafka's LogLoaderTest.testOpenDeletesObsoleteFiles; KRaft's own code drops its own."""
    left = {name(0, ".log.deleted"): b"", name(5, ".snapshot.deleted"): b""}
    kraft = {f"{5:020}-{1:010}.checkpoint.deleted": b""}
    recovered = recover(written(three_segments(is_clean=True), left | kraft), version)
    assert recovered.deleted.keys() == left.keys()


@pytest.mark.parametrize("version", VERSIONS)
def test_an_active_segment_without_indexes_gets_them(written, version):
    """As in Kafka's LogLoaderTest.testRecoverWithEmptyActiveSegment."""
    empty = Segment(30, (), offset_index=None, time_index=None)
    recovered = recover(written(Log((*three_segments().segments, empty), is_clean=True)), version)
    assert recovered.written[name(30, ".index")] == recovered.written[name(30, ".timeindex")] == b""
    assert recovered.log_end_offset == 30


@pytest.mark.parametrize("version", VERSIONS)
def test_a_missing_time_index_becomes_empty_and_a_missing_offset_index_both(written, version):
    log = written(
        three_segments(is_clean=True), without=[name(0, ".timeindex"), name(10, ".index")]
    )
    recovered = recover(log, version)
    assert recovered.written[name(0, ".timeindex")] == b""
    sound = three_segments().segments[1]
    made = [recovered.written[name(10, suffix)] for suffix in (".index", ".timeindex")]
    assert made == [sound.offset_index, sound.time_index]
    assert [segment.is_recovered for segment in recovered.segments] == [False, True, False]


def test_a_transaction_below_its_segment_has_the_segment_recovered(written):
    wrong = {name(10, ".txnindex"): transaction_index.pack([(1, 3, 9, 10)])}
    recovered = recover(written(three_segments(is_clean=True), wrong))
    assert recovered.segments[1].is_recovered
    assert recovered.written[name(10, ".txnindex")] == b""


def test_odd_bytes_after_the_transactions_are_not_noticed(written):
    odd = {name(10, ".txnindex"): transaction_index.pack([(1, 3, 12, 13)]) + b"\0" * 5}
    assert not recover(written(three_segments(is_clean=True), odd)).segments[1].is_recovered


def test_transactions_of_an_unknown_version_stop_a_broker(written):
    unknown = {name(10, ".txnindex"): b"\1" + transaction_index.pack([(1, 3, 12, 13)])[1:]}
    with pytest.raises(CorruptIndexError) as caught:
        recover(written(three_segments(is_clean=True), unknown))
    assert caught.value.path.name == name(10, ".txnindex")


@pytest.mark.parametrize(("version", "is_recovered"), [("2.2", True), ("2.3", False)])
def test_indexes_were_checked_when_loaded_up_to_2_2(written, version, is_recovered):
    """2.3.0 left that out (KAFKA-7283)."""
    odd = {name(10, ".timeindex"): b"\0" * 13}
    log = written(three_segments(is_clean=True), odd)
    assert recover(log, version).segments[1].is_recovered == is_recovered


def test_the_leader_epochs_are_cut_at_both_ends(written):
    epochs = b"0\n5\n1 0\n2 3\n3 8\n4 12\n9 30\n"
    log = written(three_segments(checkpointed_start=5), {"leader-epoch-checkpoint": epochs})
    recovered = recover(log)
    assert list(recovered.leader_epochs) == [(2, 5), (3, 8), (4, 12)]
    assert epochs_of(files_after(recovered)) == [(2, 5), (3, 8), (4, 12)]


@pytest.mark.parametrize(("version", "expected"), [("2.1", [0, 2]), ("2.4", [2]), ("2.7", [0, 2])])
def test_recovery_finds_the_leader_epochs_in_the_batches(written, version, expected):
    """As in Kafka's LogLoaderTest.testLogRecoversForLeaderEpoch; 2.2 to 2.6 left out epoch 0."""
    batches = tuple(
        replace(batch, leader_epoch=2 * (slot > 3)) for slot, batch in enumerate(THIRTY[:10])
    )
    recovered = recover(written(Log((Segment(0, batches),))), version)
    assert [epoch for epoch, _ in recovered.leader_epochs] == expected
    assert recovered.leader_epochs[-1] == (2, 4)


def of_producer(offset, producer_id, sequence, **fields):
    return Batch(
        (Row(offset, 1000 + offset, b"k", b"v" * 40),), producer_id=producer_id, producer_epoch=0,
        base_sequence=sequence, **fields,
    )


def idempotent():
    """Two segments of one producer, sequences from 0 on."""
    batches = [of_producer(offset, 7, offset) for offset in range(20)]
    return Log((Segment(0, tuple(batches[:10])), Segment(10, tuple(batches[10:]))))


@pytest.mark.parametrize("version", VERSIONS)
def test_recovery_takes_snapshots_after_each_segment(written, version):
    recovered = recover(written(idempotent()), version)
    (at_10,), (at_20,) = snapshots_of(files_after(recovered)).values()
    assert (at_10[2], at_10[3], at_20[2], at_20[3]) == (9, 9, 19, 19)
    assert recovered.producers.entries().tolist() == [at_20]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_snapshot_is_believed_and_only_what_is_after_it_read(written, version):
    known = producer_snapshot.pack([(99, 0, 5, 6, 0, 1000, -1, -1)])
    log = written(replace(idempotent(), is_clean=True), {name(15, ".snapshot"): known})
    recovered = recover(log, version)
    assert recovered.producers.entries()["producer_id"].tolist() == [7, 99]
    assert name(20, ".snapshot") in recovered.written
    much_later = recover_log(log, version, now=10**12)
    assert much_later.producers.entries()["producer_id"].tolist() == [7]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_corrupt_snapshot_is_deleted_and_an_older_one_is_used(written, version):
    known = producer_snapshot.pack([(99, 0, 5, 6, 0, 1000, -1, -1)])
    snapshots = {name(10, ".snapshot"): known, name(20, ".snapshot"): known[:-1]}
    recovered = recover(written(replace(idempotent(), is_clean=True), snapshots), version)
    assert recovered.producers.entries()["producer_id"].tolist() == [7, 99]
    again = snapshots_of(files_after(recovered))
    assert [entry[0] for entry in again[20]] == [7, 99]


def test_snapshots_outside_the_log_or_without_a_segment_are_deleted(written):
    """As in Kafka's LogLoaderTest.testLoadingLogKeepsLargestStrayProducerStateSnapshot."""
    snapshot = producer_snapshot.pack([])
    at = (1, 2, 10, 12, 15, 40)
    log = written(
        replace(idempotent(), is_clean=True), {name(o, ".snapshot"): snapshot for o in at}
    )
    assert sorted(snapshots_of(files_after(recover(log, "2.4")))) == [1, 2, 10, 12, 15, 20]
    assert sorted(snapshots_of(files_after(recover(log, "3.9")))) == [10, 20]
    log.path.joinpath(name(40, ".snapshot")).unlink()
    assert sorted(snapshots_of(files_after(recover(log, "3.9")))) == [10, 15, 20]


def test_without_any_snapshot_after_a_clean_shutdown_nothing_is_read(written):
    """A broker without any snapshots yet: the log may be long."""
    recovered = recover(written(replace(idempotent(), is_clean=True)))
    assert not len(recovered.producers.entries())
    assert snapshots_of(files_after(recovered)) == {10: [], 20: []}


@pytest.mark.parametrize("version", VERSIONS)
def test_aborted_transactions_are_found_again(written, version):
    """As in Kafka's LogSegmentTest.testRecoverTransactionIndex, over two segments."""
    first = [of_producer(slot, 1 + slot, 0, is_transactional=True) for slot in range(2)]
    second = [
        marker(10, 5, is_commit=False, producer_id=1),
        of_producer(11, 3, 0, is_transactional=True),
        marker(12, 5, is_commit=True, producer_id=2),
        marker(13, 5, is_commit=False, producer_id=3),
    ]
    log = written(Log((Segment(0, tuple(first)), Segment(10, tuple(second)))))
    recovered = recover(log, version)
    found = transaction_index.parse(recovered.written[name(10, ".txnindex")]).tolist()
    assert found == [(1, 0, 10, 1), (3, 11, 13, 14)]
    assert name(0, ".txnindex") not in recovered.written
    assert recovered.producers.first_undecided_offset is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_compacted_swap_replaces_all_segments_it_covers(written, version):
    """As in Kafka's LogCleanerTest.testRecoveryAfterCrash."""
    kept = (THIRTY[2], THIRTY[9], THIRTY[14])
    made = Segment(0, kept).recovered(200)
    swap = {
        name(0, ".log.swap"): made.log,
        name(0, ".index.swap"): made.offset_index,
        name(0, ".timeindex.swap"): made.time_index,
    }
    log = written(three_segments(is_clean=True), swap)
    recovered = recover(log, version)
    assert offsets_left(recovered) == [2, 9, 14, *range(20, 30)]
    assert {name(0, ".log"), name(10, ".log"), name(10, ".index")} <= recovered.deleted.keys()
    assert recovered.renamed[name(0, ".log.swap")] == name(0, ".log")


def test_a_log_that_can_not_be_read_is_not_cut(written, monkeypatch):
    log = written(three_segments())
    real = kafkastore.segment.log_file.os.preadv

    def fail_late(descriptor, buffers, position):
        if position or len(buffers[0]) < SIZE:
            raise OSError(5, "Input/output error")
        return real(descriptor, [buffers[0][: 3 * SIZE]], position)

    monkeypatch.setattr("kafkastore.segment.log_file.os.preadv", fail_late)
    with pytest.raises(CorruptBatchError) as caught:
        recover_log(log, "4.1")
    assert isinstance(caught.value.__cause__, OSError)


DAMAGES = ("cut", "flip", "append", "zeros", "no index", "nothing")


@st.composite
def damaged_logs(draw):
    """Segments of record batches, some of them damaged: (logs, those without an index)."""
    chance = draw(st.randoms(use_true_random=False))
    offset, logs, without_index = draw(st.sampled_from([0, 3])), {}, set()
    for _ in range(draw(st.integers(1, 4))):
        base, batches = offset, []
        for _ in range(draw(st.integers(0, 5))):
            rows = tuple(
                Row(offset + slot, chance.randrange(30), b"k", b"v" * chance.randrange(40))
                for slot in range(chance.randrange(1, 4))
            )
            batches.append(Batch(rows, leader_epoch=chance.choice([-1, 0, 1, offset // 4 % 2**30])))
            offset = batches[-1].last_offset + 1 + chance.choice([0, 0, 0, 0, 2, 2**31])
        log = bytearray(b"".join(batch.data for batch in batches))
        match draw(st.sampled_from(DAMAGES)):
            case "cut":
                del log[len(log) - min(len(log), chance.randrange(1, 120)) :]
            case "flip" if log:
                log[chance.randrange(len(log))] ^= 1 << chance.randrange(8)
            case "append":
                log += chance.randbytes(chance.randrange(1, 90))
            case "zeros":
                log += bytes(chance.randrange(1, 90))
            case "no index":
                without_index.add(base)
        logs[base] = bytes(log)
        offset = max(offset, base + 1)
    return logs, without_index


#: A first batch below the segment's base offset, before one that is too far above it.
BELOW_AND_ABOVE = b"".join(
    Batch((Row(offset, 0, b"k", b""),)).data for offset in (5, 2**32 + 2**31 + 6)
)

#: A base offset far too high, an epoch, then a later timestamp: its time index entry is refused.
EPOCH_BEFORE_DISORDER = b"".join(
    Batch((Row(offset, timestamp, b"k", b""),), leader_epoch=epoch).data
    for offset, timestamp, epoch in ((2**24, 0, -1), (1, 0, 1), (2, 1, -1))
)

#: An offset beyond the segment: it is split, and then the segment before it is recovered as well.
BEYOND_THE_SEGMENT = Batch((Row(2**56 + 1, 0, b"k", b""),)).data

#: Batches at both ends of more offsets than indexes have.
BEYOND_INDEXES = b"".join(Batch((Row(offset, 0, b"k", b""),)).data for offset in (1, 2**31 + 1))


def with_magic(magic, *offsets):
    """Batches of one record, the last of them with another magic, which no checksum covers."""
    data = bytearray(b"".join(Batch((Row(offset, 0, b"k", b""),)).data for offset in offsets))
    data[-(len(data) // len(offsets)) + 16] = magic
    return bytes(data)


#: What a broker does not start on, by the model's error.
ERRORS_OF_BROKEN_LOGS = {
    log_recovery.Overflow: OffsetOverflowError,
    log_recovery.Torn: (CorruptBatchError, kafkastore.UnsupportedFormatError),
    log_recovery.Disorder: kafkastore.OutOfOrderAppendError,
}


@pytest.mark.parametrize("size", [17, 18])
def test_a_broker_does_not_start_on_zeros_that_it_reads_for_producers(tmp_path, size):
    """Kafka 2.4.0: "Found record size 0 smaller than minimum record overhead (14)"."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    for base, data in ((0, bytes(size)), (1, Batch((Row(1, 0, b"k", b""),)).data)):
        (directory / name(base, ".log")).write_bytes(data)
        (directory / name(base, ".index")).write_bytes(b"")
    log = kafkastore.open(directory)["t", 0]
    if size == 17:
        assert recover_log(log, "2.4", recovery_point=1).log_end_offset == 2
        return
    with pytest.raises(CorruptBatchError) as caught:
        recover_log(log, "2.4", recovery_point=1)
    assert (caught.value.path, caught.value.position) == (directory / name(0, ".log"), 0)


@bounded(200)
@example(({0: bytes(18), 1: BEYOND_THE_SEGMENT}, set()), "2.0", 0, 5, 0, ())
@example(({2**32 + 5: BELOW_AND_ABOVE}, set()), "2.0", 0, 0, 0, ())
@example(({0: EPOCH_BEFORE_DISORDER, 5: b""}, set()), "2.4", 0, 0, 2, ())
@example(({0: with_magic(3, 0) + BEYOND_INDEXES}, set()), "2.0", 0, 0, 0, ())
@example(({0: with_magic(3, 0) + BEYOND_INDEXES}, set()), "4.1", 0, 0, 0, ())
@example(({0: BEYOND_INDEXES + with_magic(3, 2**31 + 2)}, set()), "3.9", 0, 0, 0, ())
@example(({0: BEYOND_INDEXES + with_magic(0, 2**31 + 2)}, set()), "4.1", 0, 0, 0, ())
@example(({0: BEYOND_INDEXES + with_magic(130, 2**31 + 2)}, set()), "2.0", 0, 0, 0, ())
@example(({0: with_magic(130, 0, 1), 5: with_magic(2, 5)}, set()), "2.4", 0, 5, 0, ())
@given(
    damaged_logs(),
    st.sampled_from(["2.0", "2.4", "2.8", "3.9", "4.1"]),
    st.sampled_from([0, 100, 4096]),
    st.sampled_from([0, 0, 5, 100]),
    st.sampled_from([0, 0, 2, 12]),
    st.sampled_from([(), ((0, 0),), ((0, 0), (3, 4)), ((1, 2), (9, 40))]),
)
def test_any_corrupt_log_ends_where_the_model_ends_it(
    tmp_path_factory, damaged, version, interval, recovery_point, log_start, epochs
):
    logs, without_index = damaged
    directory = tmp_path_factory.mktemp("logs") / "t-0"
    directory.mkdir()
    for base, data in logs.items():
        (directory / name(base, ".log")).write_bytes(data)
        (directory / name(base, ".timeindex")).write_bytes(b"")
        if base not in without_index:
            (directory / name(base, ".index")).write_bytes(b"")
    if epochs:
        lines = "".join(f"{epoch} {start}\n" for epoch, start in epochs)
        (directory / "leader-epoch-checkpoint").write_text(f"0\n{len(epochs)}\n{lines}")
    options = {"recovery_point": recovery_point, "log_start_offset": log_start}
    parsed = tuple(map(int, version.split(".")))

    def work_out():
        log = kafkastore.open(directory)["t", 0]
        return recover_log(log, version, index_interval_bytes=interval, **options)

    read_for_producers = []
    try:
        expected = log_recovery.loaded(
            logs, without_index, version=parsed, interval=interval, epochs=epochs,
            recovery_point=recovery_point, log_start=log_start, read=read_for_producers,
        )
    except tuple(ERRORS_OF_BROKEN_LOGS) as error:
        expected = error
    try:
        recovered = work_out()
    except ERRORS_OF_BROKEN_LOGS.get(type(expected), ()):
        return
    except CorruptBatchError:
        # A broker does not start in this case.
        assert any(record_reader.split(data)[1] == "broken" for data in read_for_producers)
        return
    assert isinstance(expected, log_recovery.Loaded)
    files = files_after(recovered)
    assert {int(n[:20]): data for n, data in files.items() if n.endswith(".log")} == expected.logs
    for base, indexes in expected.indexes.items():
        assert (files[name(base, ".index")], files[name(base, ".timeindex")]) == indexes
    assert recovered.log_end_offset == expected.log_end_offset
    assert [tuple(entry) for entry in recovered.leader_epochs] == expected.epochs
    segments = {segment.base_offset: segment for segment in recovered.segments}
    assert sum(segment.cut_bytes for segment in recovered.segments) + sum(
        len(logs[int(n[:20])]) for n in recovered.deleted if n.endswith(".log")
    ) == sum(map(len, logs.values())) - sum(map(len, expected.logs.values())) + sum(
        # For a segment that is split, in its parts; deleted parts have none.
        copied.end - copied.start + segments[int(n[:20])].cut_bytes
        for n, copied in recovered.copied.items()
    )


def test_the_model_reads_the_batches_of_these_tests():
    found = log_recovery.sound_batches(b"".join(batch.data for batch in THIRTY))
    assert [batch.base_offset for batch in found] == list(range(30))


#: By the place of a wrapper that can't be decompressed among three, from offset 0: the versions
#: that start if the log starts at offset 0, and at the last wrapper.
READ_WRAPPERS = {0: (["3.9"], ["3.9", "4.0"]), 1: (["3.9", "4.0", "4.1"], ["3.9", "4.0"]),
                 2: (["3.9", "4.0", "4.1"], ["3.9"])}


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("broken", READ_WRAPPERS)
@pytest.mark.parametrize("version", ["3.9", "4.0", "4.1"])
def test_the_search_for_the_first_batch_to_replay_decompresses_wrappers(
    written, version, magic, broken
):
    batches = [
        Batch(tuple(Row(2 * slot + n, 5, b"k", b"v") for n in range(2)), magic=magic, codec=1)
        for slot in range(3)
    ]
    log = written(
        Log((Segment(0, tuple(batches)), Segment(6, (Batch((Row(6, 5),)),))), recovery_point=6)
    )
    for options in ({}, {"log_start_offset": 5}):
        assert recover(log, version, **options).log_end_offset == 7
    path = log.path / name(0, ".log")
    data = bytearray(path.read_bytes())
    position = sum(len(each.data) for each in batches[:broken])
    data[position + len(batches[broken].data) - 12] ^= 0xFF  # among the compressed bytes
    path.write_bytes(data)
    for options, starts in zip(({}, {"log_start_offset": 5}), READ_WRAPPERS[broken], strict=True):
        if version in starts:
            assert recover(log, version, **options).log_end_offset == 7
            continue
        with pytest.raises(CorruptBatchError) as caught:
            recover(log, version, **options)
        assert (caught.value.path, caught.value.position) == (path, position)


def test_a_wrapper_larger_than_the_limit_stops_no_broker(written):
    large = Batch((Row(0, 5, b"k", bytes(256 << 20)),), magic=1, codec=LZ4)
    log = written(
        Log((Segment(0, (large,)), Segment(6, (Batch((Row(6, 5),)),))), recovery_point=6)
    )
    assert recover(log, "4.1").log_end_offset == 7
