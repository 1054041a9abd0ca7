"""Recovery splits a segment whose offsets are too far apart."""

import os
import shutil
from dataclasses import replace

import pytest
from changes.faults import Crash, CrashingFileSystem
from models.log_directory import Log, Segment
from models.record_format import Batch, Row, marker
from models.recovered_directory import files_after, files_of
from models.segment_indexes import offset_entries_of, time_entries_of
from models.written_log import UnsyncedFileSystem

import kafkastore
from kafkastore import CorruptBatchError, OffsetOverflowError
from kafkastore.recovery.applied_recovery import apply_recovery
from kafkastore.recovery.segment_split import CopiedRange, parts_of
from kafkastore.writing import CUT_MARK
from kafkastore.writing.log_dir_writer import LogDirWriter

from .recovered_logs import SIZE, THIRTY, VERSIONS, name, offsets_left, recover

FAR = 2**31 + 1


def far_apart(first=THIRTY[:1], rest=THIRTY[1:4]):
    """A segment whose later offsets no index of it can name, and the parts that it is split into.

    As in Kafka's LogLoaderTest.testOverCompactedLogRecovery.
    """
    second = tuple(batch.with_offset(FAR + slot) for slot, batch in enumerate(rest))
    parts = Segment(first[0].base_offset, tuple(first)), Segment(FAR, second)
    return Segment(0, (*first, *second)), [part.recovered(200) for part in parts]


@pytest.mark.parametrize("without", [[], [name(0, ".index")]])
@pytest.mark.parametrize("version", ["2.0", *VERSIONS])
def test_a_segment_of_offsets_too_far_apart_is_split(written, version, without):
    """As in Kafka's LogLoaderTest.testOverCompactedLogRecovery, ...OfSegmentWithOffsetOverflow."""
    unsplit, parts = far_apart()
    recovered = recover(written(Log((unsplit,)), without=without), version)
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
    """As in Kafka's LogTest.testDegenerateSegmentSplit; it deletes the old producer snapshot."""
    batches = tuple(batch.with_offset(FAR + slot) for slot, batch in enumerate(THIRTY[:3]))
    recovered = recover(written(Log((Segment(0, batches),))), version)
    assert [segment.base_offset for segment in recovered.segments] == [FAR]
    assert not any(file.startswith("0" * 20) for file in files_after(recovered))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_batch_that_reaches_just_too_far_gets_its_own_segment(written, version):
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


def test_a_part_with_a_wrong_checksum_is_cut_and_those_after_go(written):
    batches = (THIRTY[0], THIRTY[1].with_offset(FAR), THIRTY[2].with_offset(FAR + 1))
    last = THIRTY[3].with_offset(2 * FAR + 1)
    data = bytearray(b"".join(batch.data for batch in (*batches, last)))
    data[3 * SIZE - 1] ^= 1
    recovered = recover(written(Log((Segment(0, (), tail=bytes(data)),))))
    assert recovered.copied == {
        name(0, ".log"): CopiedRange(name(0, ".log"), 0, SIZE),
        name(FAR, ".log"): CopiedRange(name(0, ".log"), SIZE, 2 * SIZE, is_cut=True),
    }
    assert [segment.cut_bytes for segment in recovered.segments] == [0, SIZE]
    assert recovered.log_end_offset == FAR + 1
    assert {int(file[:20]) for file in files_after(recovered) if file.endswith("index")} == {0, FAR}


@pytest.mark.parametrize(
    ("each_batch", "offset_entries", "time_entries"),
    [
        (False, [(3, 2), (5, 4), (6, 6)], [(10, 0)]),
        (True, [(number, number) for number in range(1, 7)], [(10, 0)]),
    ],
)
def test_a_split_adds_an_index_entry_per_copied_chunk_or_since_3_9_1_per_batch(
    tmp_path, each_batch, offset_entries, time_entries
):
    """A MiB; indexes of a split stay where the log below the recovery point isn't recovered."""
    rows = [Batch((Row(slot, 10 - slot, b"k", b"v" * 400_000),)) for slot in range(7)]
    log = tmp_path / "log"
    log.write_bytes(b"".join(batch.data for batch in rows))
    size = len(rows[0].data)
    (part,) = parts_of(log, 7 * size, 4096, each_batch_is_indexed=each_batch)
    offset_index, time_index = part.indexes()
    expected = [(offset, number * size) for offset, number in offset_entries]
    assert offset_entries_of(offset_index, 0) == expected
    assert time_entries_of(time_index, 0) == time_entries


def transactional(offset, producer_id=7):
    """A batch of a transaction, and the marker that aborts it."""
    row = Row(offset, 1000, b"k", b"v")
    fields = {"producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    batch = Batch((row,), producer_id=producer_id, **fields)
    return batch, marker(offset + 1, 1000, is_commit=False, producer_id=producer_id)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_clean_start_that_splits_keeps_the_aborted_transactions_before_the_overflow(
    written, version
):
    """As brokers do: the batches after it are then in no index, and are visible."""
    batches = (*transactional(0), *transactional(FAR, producer_id=8))
    log = written(Log((Segment(0, batches),)), without=[name(0, ".index")])
    clean = files_after(recover(log, version, is_clean=True))
    assert len(clean[name(0, ".txnindex")]) == 34
    assert name(FAR, ".txnindex") not in clean
    unclean = files_after(recover(log, version, is_clean=False))
    assert len(unclean[name(0, ".txnindex")]) == len(unclean[name(FAR, ".txnindex")]) == 34


@pytest.mark.parametrize(("version", "epochs"), [("2.4", ()), ("4.1", ((3, 0),))])
def test_a_recovery_that_gave_up_at_an_overflow_has_found_epochs(written, version, epochs):
    batches = (Batch(THIRTY[0].rows, leader_epoch=3), THIRTY[1].with_offset(FAR))
    log = written(Log((Segment(0, batches),)), without=[name(0, ".index")])
    assert recover(log, version, is_clean=True).leader_epochs == epochs


@pytest.mark.parametrize("damage", [False, True])
def test_a_part_has_the_time_of_what_is_split_unless_it_is_cut(tmp_path, written, damage):
    batches = (THIRTY[0], THIRTY[1].with_offset(FAR), THIRTY[2].with_offset(FAR + 1))
    data = bytearray(b"".join(batch.data for batch in batches))
    data[-1] ^= damage
    log = written(Log((Segment(0, (), tail=bytes(data)),)))
    os.utime(log.path / name(0, ".log"), (1000, 1000))
    apply_recovery(recover(log), tmp_path / "cut", UnsyncedFileSystem())
    near, far = ((log.path / name(base, ".log")).stat().st_mtime == 1000 for base in (0, FAR))
    assert (near, far) == (True, not damage)


@pytest.mark.parametrize(
    "damage",
    ["the end is torn", "another segment has the offset", "a batch is too far apart", "it is 1.1"],
)
def test_a_segment_that_can_not_be_split_is_an_error_that_names_it(written, damage):
    unsplit, (_, second) = far_apart()
    segments, error, version = (unsplit,), OffsetOverflowError, "4.1"
    match damage:
        case "the end is torn":
            segments, error = (replace(unsplit, tail=b"torn"),), CorruptBatchError
        case "another segment has the offset":
            segments = (unsplit, second)
        case "a batch is too far apart":
            data = bytearray(b"".join(batch.data for batch in unsplit.batches))
            data[SIZE : SIZE + 8] = (2**40).to_bytes(8, "big")
            segments = (Segment(0, (), tail=bytes(data)),)
        case "it is 1.1":
            version = "1.1"
    with pytest.raises(error):
        recover(written(Log(segments)), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_writer_continues_after_a_split(written, version):
    unsplit, _ = far_apart()
    log = written(Log((unsplit,)))
    root = log.path.parent
    with LogDirWriter(root, version, fs=UnsyncedFileSystem()) as log_dir:
        writer = log_dir.writer("t", 0, recover=True)
        assert writer.base_offsets == (0, FAR)
        writer.append(THIRTY[0].data)
    left = kafkastore.open(root)["t", 0]
    assert [record.offset for record in left.records()] == [0, *range(FAR, FAR + 4)]
    found = list(kafkastore.verify(root))
    assert {each.severity for each in found} == {kafkastore.Severity.STYLE}
    assert [each.kind for each in found].count(kafkastore.FindingKind.MISSING_OFFSETS) == 1
    (kept,) = root.parent.rglob(f"*{CUT_MARK}*/**/*.log")
    assert (kept.name, kept.read_bytes()) == (name(0, ".log"), unsplit.log)


class Interrupted(CrashingFileSystem, UnsyncedFileSystem):
    """Crashes before a call."""


@pytest.mark.parametrize("version", VERSIONS)
def test_a_split_that_is_interrupted_anywhere_loses_nothing_and_is_done_again(
    tmp_path, written, version
):
    """As in Kafka's LogLoaderTest.testRecoveryAfterCrashDuringSplitPhase1 to 5, at every call."""
    unsplit, parts = far_apart(THIRTY[:3], THIRTY[3:9])
    (tmp_path / "cut").mkdir()
    for without in ([], [name(0, ".index")]):
        at = 0
        while True:
            log = written(Log((unsplit,)), without=without)
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
            assert modified == {unsplit.modified_ms / 1000}
            copies = [path.read_bytes() for path in (tmp_path / "cut").rglob("*.log")]
            assert unsplit.log in copies
            shutil.rmtree(log.path.parent)
            if not crashed:
                break
            at += 1
        assert at > 15


def split_log(first, second):
    """The logs of a segment that is split, and of its two parts."""
    unsplit = {name(0, ".log"): b"".join(batch.data for batch in (*first, *second))}
    parts = {0: b"".join(b.data for b in first), 5: b"".join(b.data for b in second)}
    return unsplit, parts


def part(parts, base, suffix):
    """A part's files with a suffix, indexes included."""
    indexes = Segment(base, tuple(THIRTY[base : base + 5])).recovered(200)
    return {
        name(base, ".log" + suffix): parts[base],
        name(base, ".index" + suffix): indexes.offset_index,
        name(base, ".timeindex" + suffix): indexes.time_index,
    }


PHASES = {
    "both parts are being written": ("unsplit", {0: ".cleaned", 5: ".cleaned"}),
    "one part is renamed": ("unsplit", {0: ".cleaned", 5: ".swap"}),
    "both parts are renamed": ("unsplit", {0: ".swap", 5: ".swap"}),
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
    unsplit, parts = split_log(THIRTY[:5], THIRTY[5:10])
    files = {}
    for base, suffix in suffixes.items():
        files |= part(parts, base, suffix)
    if state == "deleted":
        files[name(0, ".log.deleted")] = unsplit[name(0, ".log")]
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
