"""What a broker makes of a directory when it starts, rule by rule, and against a model."""

import random
import shutil
from dataclasses import replace

import pytest
from changes.faults import Crash, CrashingFileSystem
from hypothesis import given
from hypothesis import strategies as st
from models import log_recovery, record_reader
from models.log_directory import Log, Segment
from models.record_format import Batch, Row, marker
from models.record_strategies import bounded, in_a_row
from models.recovered_directory import epochs_of, files_after, files_of, snapshots_of
from models.segment_indexes import offset_entries_of, time_entries_of
from models.written_log import UnsyncedFileSystem

import kafkastore
from kafkastore import CorruptBatchError, CorruptIndexError, OffsetOverflowError
from kafkastore.formats import producer_snapshot, transaction_index
from kafkastore.log.applied_recovery import apply_recovery
from kafkastore.log.log_dir_writer import CUT_MARK, LogDirWriter
from kafkastore.log.recovery import recover_log
from kafkastore.log.segment_split import CopiedRange, parts_of

THIRTY = in_a_row([Batch((Row(0, 100 + slot, b"k", b"v" * 40),)) for slot in range(30)])
SIZE = len(THIRTY[0].data)
VERSIONS = ["2.4", "3.9", "4.1"]


def name(base, suffix):
    return f"{base:020}{suffix}"


def three_segments(**fields):
    """Ten batches of one record in each of three segments, with the indexes of a recovery."""
    parts = [(base, tuple(THIRTY[base : base + 10])) for base in (0, 10, 20)]
    segments = [Segment(base, batches).recovered(200) for base, batches in parts]
    return Log(tuple(segments), **fields)


@pytest.fixture
def written(tmp_path):
    """A function that writes a log directory, with further files, and opens its partition."""

    def write(log, files=None, without=()):
        root = log.write(tmp_path / "logs")
        for name, data in (files or {}).items():
            (root / "t-0" / name).write_bytes(data)
        for name in without:
            (root / "t-0" / name).unlink()
        return kafkastore.open(root)["t", 0]

    return write


def recover(log, version="2.4", **options):
    """Recover, and check that nothing was altered."""
    before = files_of(log.path)
    recovered = recover_log(log, version, index_interval_bytes=200, **options)
    assert files_of(log.path) == before
    return recovered


def offsets_left(recovered):
    """The first offsets of the batches that are left."""
    files = files_after(recovered)
    return [
        batch.base_offset
        for segment in recovered.segments
        for batch in log_recovery.sound_batches(files[name(segment.base_offset, ".log")])
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_clean_log_is_left_as_it_is_whatever_the_recovery_point_says(written, version):
    """As in Kafka's LogLoaderTest.testCleanShutdownFile."""
    log = written(three_segments(is_clean=True, recovery_point=0))
    recovered = recover(log, version)
    assert not any(segment.is_recovered for segment in recovered.segments)
    assert {file.rpartition(".")[2] for file in recovered.written} == {"snapshot"}
    assert not recovered.deleted
    assert not recovered.cut
    assert (recovered.log_start_offset, recovered.log_end_offset) == (0, 30)
    assert recovered.recovery_point == 30


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
def test_garbage_behind_the_last_batch_is_cut(written, version):
    """As in Kafka's LogLoaderTest.testCorruptLog."""
    chance = random.Random(3)
    for _ in range(10):
        whole = three_segments()
        harmed = replace(
            whole.segments[2],
            tail=chance.randbytes(chance.randrange(1, 300)),
            offset_index=whole.segments[2].offset_index + chance.randbytes(9),
        )
        log = written(Log((*whole.segments[:2], harmed)))
        recovered = recover(log, version)
        assert offsets_left(recovered) == list(range(30))
        assert recovered.cut == {name(20, ".log"): 10 * SIZE}
        assert recovered.written[name(20, ".index")] == whole.segments[2].offset_index
        assert recovered.segments[2].cut_bytes == len(harmed.tail)
        shutil.rmtree(log.path)


@pytest.mark.parametrize("version", VERSIONS)
def test_behind_a_segment_that_is_cut_all_go(written, version):
    whole = three_segments()
    torn = replace(whole.segments[1], batches=whole.segments[1].batches[:7], tail=b"\1" * 30)
    log = written(
        Log((whole.segments[0], torn, whole.segments[2])), {name(20, ".snapshot"): b"old"}
    )
    recovered = recover(log, version)
    assert offsets_left(recovered) == list(range(17))
    assert recovered.log_end_offset == 17
    gone = {name(20, suffix) for suffix in (".log", ".index", ".timeindex", ".snapshot")}
    assert recovered.deleted.keys() == gone
    assert all("which is cut" in recovered.deleted[name(20, s)] for s in (".log", ".index"))
    assert recovered.cut == {name(10, ".log"): 7 * SIZE}
    assert "17" in "".join(recovered.written)


def test_bytes_cut_for_want_of_an_index_do_not_make_the_segments_behind_go(written):
    """A broker recovers such a segment twice, and finds nothing to cut the second time."""
    whole = three_segments()
    torn = replace(whole.segments[1], batches=whole.segments[1].batches[:7], tail=b"\1" * 30)
    log = written(
        Log((whole.segments[0], torn, whole.segments[2])), without=[name(10, ".index")]
    )
    recovered = recover(log)
    assert offsets_left(recovered) == [*range(17), *range(20, 30)]
    assert recovered.segments[1].cut_bytes == 30


@pytest.mark.parametrize("version", VERSIONS)
def test_offsets_that_go_back_empty_the_segment(written, version):
    whole = three_segments()
    batches = (*THIRTY[10:15], *THIRTY[12:15])
    log = written(
        Log((whole.segments[0], Segment(10, batches), whole.segments[2])),
        {name(10, ".txnindex"): transaction_index.pack([(1, 10, 11, 12)])},
    )
    recovered = recover(log, version)
    assert offsets_left(recovered) == list(range(10))
    assert recovered.log_end_offset == 10
    assert recovered.cut == {name(10, ".log"): 0}
    assert "not greater than" in recovered.segments[1].reason
    for suffix in (".index", ".timeindex", ".txnindex"):
        assert recovered.written[name(10, suffix)] == b""
    assert name(20, ".log") in recovered.deleted


FAR = 2**31 + 1


def far_apart(first=THIRTY[:1], behind=THIRTY[1:4]):
    """A segment whose later offsets no index of it can name, and the parts that it is split into.

    As in Kafka's LogLoaderTest.testOverCompactedLogRecovery.
    """
    second = tuple(batch.with_offset(FAR + slot) for slot, batch in enumerate(behind))
    parts = Segment(first[0].base_offset, tuple(first)), Segment(FAR, second)
    return Segment(0, (*first, *second)), [part.recovered(200) for part in parts]


@pytest.mark.parametrize("without", [[], [name(0, ".index")]])
@pytest.mark.parametrize("version", ["2.0", *VERSIONS])
def test_a_segment_of_offsets_too_far_apart_is_split(written, version, without):
    """As in Kafka's LogLoaderTest.testOverCompactedLogRecovery, ...OfSegmentWithOffsetOverflow."""
    whole, parts = far_apart()
    recovered = recover(written(Log((whole,)), without=without), version)
    assert [segment.base_offset for segment in recovered.segments] == [0, FAR]
    assert recovered.log_end_offset == FAR + 3
    files = files_after(recovered)
    for part in parts:
        assert files[name(part.base_offset, ".log")] == part.log
        assert files[name(part.base_offset, ".index")] == part.offset_index
        assert files[name(part.base_offset, ".timeindex")] == part.time_index
    assert recovered.copied[name(FAR, ".log")] == CopiedRange(name(0, ".log"), SIZE, 4 * SIZE)
    assert not recovered.cut


@pytest.mark.parametrize("version", VERSIONS)
def test_a_segment_that_begins_far_above_its_base_offset_gets_another(written, version):
    """As in Kafka's LogTest.testDegenerateSegmentSplit; the old producer snapshot goes, too."""
    batches = tuple(batch.with_offset(FAR + slot) for slot, batch in enumerate(THIRTY[:3]))
    recovered = recover(written(Log((Segment(0, batches),))), version)
    assert [segment.base_offset for segment in recovered.segments] == [FAR]
    assert not any(file.startswith("0" * 20) for file in files_after(recovered))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_batch_that_reaches_just_too_far_gets_a_segment_of_its_own(written, version):
    """As in Kafka's LogTest.testDegenerateSegmentSplitWithOutOfRangeBatchLastOffset."""
    batch = Batch((Row(1, 1000, b"k", b"v"), Row(2**31, 1000, b"k", b"v")))
    recovered = recover(written(Log((Segment(0, (batch,)),))), version)
    assert [segment.base_offset for segment in recovered.segments] == [1]
    assert recovered.log_end_offset == 2**31 + 1


def test_messages_of_old_formats_are_split_too(written):
    """As in Kafka's LogLoaderTest.testOverCompactedLogRecoveryMultiRecordV1."""
    rows = Row(0, 1000, b"k", b"v"), Row(1, 1001, b"k", b"v")
    near = Batch(rows, magic=1, codec=1)
    far = near.with_offset(FAR).data
    near = near.data
    log = written(Log((Segment(0, (), tail=near + far),)))
    files = files_after(recover(log, "2.4"))
    assert (files[name(0, ".log")], files[name(FAR, ".log")]) == (near, far)


def test_a_part_with_a_wrong_checksum_is_cut_and_those_behind_go(written):
    batches = (THIRTY[0], THIRTY[1].with_offset(FAR), THIRTY[2].with_offset(FAR + 1))
    last = THIRTY[3].with_offset(2 * FAR + 1)
    data = bytearray(b"".join(batch.data for batch in (*batches, last)))
    data[3 * SIZE - 1] ^= 1
    recovered = recover(written(Log((Segment(0, (), tail=bytes(data)),))))
    assert recovered.copied == {
        name(0, ".log"): CopiedRange(name(0, ".log"), 0, SIZE),
        name(FAR, ".log"): CopiedRange(name(0, ".log"), SIZE, 2 * SIZE),
    }
    assert [segment.cut_bytes for segment in recovered.segments] == [0, SIZE]
    assert recovered.log_end_offset == FAR + 1
    assert {int(file[:20]) for file in files_after(recovered) if file.endswith("index")} == {0, FAR}


def test_an_index_entry_of_a_split_stands_for_what_is_copied_at_once(tmp_path):
    """A MiB; indexes of a split stay where the log below the recovery point isn't recovered."""
    rows = [Batch((Row(slot, 10 - slot, b"k", b"v" * 400_000),)) for slot in range(7)]
    log = tmp_path / "log"
    log.write_bytes(b"".join(batch.data for batch in rows))
    size = len(rows[0].data)
    (part,) = parts_of(log, 7 * size, 4096)
    offset_index, time_index = part.indexes()
    assert offset_entries_of(offset_index, 0) == [(3, 2 * size), (5, 4 * size), (6, 6 * size)]
    assert time_entries_of(time_index, 0) == [(10, 0)]


@pytest.mark.parametrize(
    "harm",
    ["the end is torn", "another segment has the offset", "a batch is too far apart", "it is 1.1"],
)
def test_a_segment_that_can_not_be_split_is_an_error_that_names_it(written, harm):
    whole, (_, second) = far_apart()
    segments, error, version = (whole,), OffsetOverflowError, "4.1"
    match harm:
        case "the end is torn":
            segments, error = (replace(whole, tail=b"torn"),), CorruptBatchError
        case "another segment has the offset":
            segments = (whole, second)
        case "a batch is too far apart":
            data = bytearray(b"".join(batch.data for batch in whole.batches))
            data[SIZE : SIZE + 8] = (2**40).to_bytes(8, "big")
            segments = (Segment(0, (), tail=bytes(data)),)
        case "it is 1.1":
            version = "1.1"
    with pytest.raises(error, match=name(0, ".log")):
        recover(written(Log(segments)), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_writer_goes_on_behind_a_split(written, version):
    whole, _ = far_apart()
    log = written(Log((whole,)))
    root = log.path.parent
    with LogDirWriter(root, version, fs=UnsyncedFileSystem()) as log_dir:
        writer = log_dir.writer("t", 0)
        assert writer.base_offsets == (0, FAR)
        writer.append(THIRTY[0].data)
    left = kafkastore.open(root)["t", 0]
    assert [record.offset for record in left.records()] == [0, *range(FAR, FAR + 4)]
    assert not list(kafkastore.verify(root))
    (kept,) = root.parent.rglob(f"*{CUT_MARK}*/**/*.log")
    assert (kept.name, kept.read_bytes()) == (name(0, ".log"), whole.log)


class Interrupted(CrashingFileSystem, UnsyncedFileSystem):
    """Crashes before a call."""


@pytest.mark.parametrize("version", VERSIONS)
def test_a_split_that_is_interrupted_anywhere_loses_nothing_and_is_done_again(
    tmp_path, written, version
):
    """As in Kafka's LogLoaderTest.testRecoveryAfterCrashDuringSplitPhase1 to 5, at every call."""
    whole, parts = far_apart(THIRTY[:3], THIRTY[3:9])
    (tmp_path / "cut").mkdir()
    for without in ([], [name(0, ".index")]):
        at = 0
        while True:
            log = written(Log((whole,)), without=without)
            crashed = False
            try:
                apply_recovery(recover(log, version), tmp_path / "cut", Interrupted(at))
            except Crash:
                crashed = True
            log = kafkastore.open(log.path)["t", 0]
            recovered = recover(log, version)
            assert offsets_left(recovered) == [0, 1, 2, *range(FAR, FAR + 6)]
            apply_recovery(recovered, tmp_path / "cut", UnsyncedFileSystem())
            files = files_of(log.path)
            logs = {file: data for file, data in files.items() if file.endswith(".log")}
            assert logs == {name(part.base_offset, ".log"): part.log for part in parts}
            assert not any(file.endswith((".swap", ".cleaned")) for file in files)
            modified = {path.stat().st_mtime for path in log.path.glob("*.log")}
            assert modified == {whole.modified_ms / 1000}
            copies = [path.read_bytes() for path in (tmp_path / "cut").rglob("*.log")]
            assert whole.log in copies
            shutil.rmtree(log.path.parent)
            if not crashed:
                break
            at += 1
        assert at > 15


@pytest.mark.parametrize(
    ("version", "is_dropped"), [("2.2", False), ("2.4", True), ("3.9", True), ("4.1", True)]
)
def test_a_log_that_ends_below_its_start_begins_anew_there(written, version, is_dropped):
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
    assert "below its start 40" in recovered.deleted[name(0, ".log")]
    # 2.4 cuts the epochs at both ends, as ever.
    assert list(recovered.leader_epochs) == ([(3, 40)] if version == "2.4" else [])


@pytest.mark.parametrize("is_clean", [True, False])
def test_indexes_without_a_log_go(written, is_clean):
    """As in Kafka's LogLoaderTest.testBogusIndexSegmentsAreRemoved."""
    bogus = {name(5, suffix): b"x" for suffix in (".index", ".timeindex", ".txnindex")}
    recovered = recover(written(three_segments(is_clean=is_clean), bogus))
    assert recovered.deleted == dict.fromkeys(bogus, "an index without its log")


@pytest.mark.parametrize("version", VERSIONS)
def test_what_was_being_deleted_goes(written, version):
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
    whole = three_segments().segments[1]
    made = [recovered.written[name(10, suffix)] for suffix in (".index", ".timeindex")]
    assert made == [whole.offset_index, whole.time_index]
    assert [segment.is_recovered for segment in recovered.segments] == [False, True, False]


def test_a_transaction_below_its_segment_has_the_segment_recovered(written):
    wrong = {name(10, ".txnindex"): transaction_index.pack([(1, 3, 9, 10)])}
    recovered = recover(written(three_segments(is_clean=True), wrong))
    assert recovered.segments[1].is_recovered
    assert recovered.written[name(10, ".txnindex")] == b""


def test_odd_bytes_behind_the_transactions_are_not_noticed(written):
    odd = {name(10, ".txnindex"): transaction_index.pack([(1, 3, 12, 13)]) + b"\0" * 5}
    assert not recover(written(three_segments(is_clean=True), odd)).segments[1].is_recovered


def test_transactions_of_an_unknown_version_stop_a_broker(written):
    unknown = {name(10, ".txnindex"): b"\1" + transaction_index.pack([(1, 3, 12, 13)])[1:]}
    with pytest.raises(CorruptIndexError, match=name(10, ".txnindex")):
        recover(written(three_segments(is_clean=True), unknown))


@pytest.mark.parametrize(("version", "is_recovered"), [("2.2", True), ("2.3", False)])
def test_indexes_were_looked_at_when_loaded_up_to_2_2(written, version, is_recovered):
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
def test_recovery_takes_snapshots_behind_each_segment(written, version):
    recovered = recover(written(idempotent()), version)
    (at_10,), (at_20,) = snapshots_of(files_after(recovered)).values()
    assert (at_10[2], at_10[3], at_20[2], at_20[3]) == (9, 9, 19, 19)
    assert recovered.producers.entries().tolist() == [at_20]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_snapshot_is_believed_and_only_what_is_behind_it_read(written, version):
    known = producer_snapshot.pack([(99, 0, 5, 6, 0, 1000, -1, -1)])
    log = written(replace(idempotent(), is_clean=True), {name(15, ".snapshot"): known})
    recovered = recover(log, version)
    assert recovered.producers.entries()["producer_id"].tolist() == [7, 99]
    assert name(20, ".snapshot") in recovered.written
    much_later = recover_log(log, version, now_ms=10**12)
    assert much_later.producers.entries()["producer_id"].tolist() == [7]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_damaged_snapshot_goes_and_an_older_one_is_taken(written, version):
    known = producer_snapshot.pack([(99, 0, 5, 6, 0, 1000, -1, -1)])
    snapshots = {name(10, ".snapshot"): known, name(20, ".snapshot"): known[:-1]}
    recovered = recover(written(replace(idempotent(), is_clean=True), snapshots), version)
    assert recovered.producers.entries()["producer_id"].tolist() == [7, 99]
    again = snapshots_of(files_after(recovered))
    assert [entry[0] for entry in again[20]] == [7, 99]


def test_snapshots_outside_the_log_or_of_no_segment_go(written):
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
    """A broker that had none yet: the log may be long."""
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


def split_log(first, second):
    """The logs of a segment that is split, and of its two parts."""
    whole = {name(0, ".log"): b"".join(batch.data for batch in (*first, *second))}
    parts = {0: b"".join(b.data for b in first), 5: b"".join(b.data for b in second)}
    return whole, parts


def part(parts, base, suffix):
    """A part's files with a suffix, indexes included."""
    indexes = Segment(base, tuple(THIRTY[base : base + 5])).recovered(200)
    return {
        name(base, ".log" + suffix): parts[base],
        name(base, ".index" + suffix): indexes.offset_index,
        name(base, ".timeindex" + suffix): indexes.time_index,
    }


PHASES = {
    "both parts are being written": ("whole", {0: ".cleaned", 5: ".cleaned"}),
    "one part is renamed": ("whole", {0: ".cleaned", 5: ".swap"}),
    "both parts are renamed": ("whole", {0: ".swap", 5: ".swap"}),
    "the old segment is deleted": ("deleted", {0: ".swap", 5: ".swap"}),
    "one part is in its place": ("deleted", {0: "", 5: ".swap"}),
    "both parts are": ("deleted", {0: "", 5: ""}),
}


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("phase", PHASES)
def test_a_crash_in_any_phase_of_a_split_loses_no_record(written, phase, version, is_clean):
    """As in Kafka's LogLoaderTest.testRecoveryAfterCrashDuringSplitPhase1 to 5."""
    state, suffixes = PHASES[phase]
    whole, parts = split_log(THIRTY[:5], THIRTY[5:10])
    files = {}
    for base, suffix in suffixes.items():
        files |= part(parts, base, suffix)
    if state == "deleted":
        files[name(0, ".log.deleted")] = whole[name(0, ".log")]
    log = written(Log((Segment(0, tuple(THIRTY[:10])).recovered(200),), is_clean=is_clean), {})
    if state == "deleted":
        for suffix in (".log", ".index", ".timeindex"):
            log.path.joinpath(name(0, suffix)).unlink()
    for file, data in files.items():
        log.path.joinpath(file).write_bytes(data)
    recovered = recover(log, version)
    assert offsets_left(recovered) == list(range(10))
    assert recovered.log_end_offset == 10
    left = files_after(recovered)
    assert not any(file.endswith((".swap", ".cleaned", ".deleted")) for file in left)
    is_split = phase not in list(PHASES)[:2]
    assert [segment.base_offset for segment in recovered.segments] == ([0, 5] if is_split else [0])
    if is_split:
        for base in (0, 5):
            for file, data in part(parts, base, "").items():
                assert left[file] == data


@pytest.mark.parametrize("version", VERSIONS)
def test_a_compacted_swap_takes_the_place_of_all_segments_it_covers(written, version):
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
    with pytest.raises(CorruptBatchError, match="Input/output error"):
        recover_log(log, "4.1")


HARMS = ("cut", "flip", "append", "zeros", "no index", "nothing")


@st.composite
def harmed_logs(draw):
    """Segments of record batches, some of them harmed: (logs, those without an index)."""
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
        match draw(st.sampled_from(HARMS)):
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


@bounded(200)
@given(
    harmed_logs(),
    st.sampled_from(["2.0", "2.4", "2.8", "3.9", "4.1"]),
    st.sampled_from([0, 100, 4096]),
    st.sampled_from([0, 0, 5, 100]),
    st.sampled_from([0, 0, 2, 12]),
    st.sampled_from([(), ((0, 0),), ((0, 0), (3, 4)), ((1, 2), (9, 40))]),
)
def test_any_harmed_log_ends_where_the_model_ends_it(
    tmp_path_factory, harmed, version, interval, recovery_point, log_start, epochs
):
    logs, without_index = harmed
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

    try:
        expected = log_recovery.loaded(
            logs, without_index, version=parsed, interval=interval, epochs=epochs,
            recovery_point=recovery_point, log_start=log_start,
        )
    except log_recovery.Overflow:
        with pytest.raises(OffsetOverflowError):
            work_out()
        return
    except log_recovery.Torn:
        with pytest.raises((CorruptBatchError, kafkastore.UnsupportedFormatError)):
            work_out()
        return
    except log_recovery.Disorder:
        with pytest.raises(kafkastore.OutOfOrderAppendError):
            work_out()
        return
    # Also before they are recovered themselves, for one behind them that lacks its index.
    read_for_producers = [
        data for base, data in logs.items()
        if base not in expected.indexes or any(base < without for without in without_index)
    ]
    try:
        recovered = work_out()
    except CorruptBatchError:
        # A broker does not start then.
        assert any(record_reader.split(data)[1] == "broken" for data in read_for_producers)
        return
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
        # Of a segment that is split, in its parts; those of them that are gone have none.
        copied.end - copied.start + segments[int(n[:20])].cut_bytes
        for n, copied in recovered.copied.items()
    )


def test_the_model_reads_the_batches_of_these_tests():
    found = log_recovery.sound_batches(b"".join(batch.data for batch in THIRTY))
    assert [batch.base_offset for batch in found] == list(range(30))
