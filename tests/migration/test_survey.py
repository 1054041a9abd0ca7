import dataclasses
import errno
import json
import os
import pickle
import struct

import pytest
from changes.faults import Crash, CrashingFileSystem, count_calls
from kafkastore.migration import plan, survey
from models.log_directory import Log, Segment
from models.record_format import Batch, Row
from models.record_strategies import in_a_row
from models.refused import change_refused

import kafkastore
from kafkastore.changes.apply import apply
from kafkastore.changes.areas import find_journals
from kafkastore.changes.areas import remove as forget
from kafkastore.changes.undo import undo
from kafkastore.errors import NotALogDirectoryError
from kafkastore.fs import LockFile
from kafkastore.segment.log_segment import LogSegment

from .directories import contents, data, entries, migrate, remove

SECOND_NS = 1_000_000_000


@pytest.fixture
def old(golden, writable_copy):
    """Return a directory of 0.8.2.2: no timestamps."""
    return writable_copy(golden("0.8.2.2", "upgrade", "answers").logs)


@pytest.fixture
def stamped(golden, writable_copy):
    """Return a directory of 0.10.0.1: timestamps, no time indexes."""
    return writable_copy(golden("0.10.0.1", "upgrade", "answers").logs)


def kinds(found):
    return [warning.kind for warning in found.warnings]


def by_path(found, suffix=".log"):
    return {
        partition.path(segment, suffix): segment
        for partition in found.partitions
        for segment in partition.segments
    }


def set_mtimes(root, ns, step_ns=0):
    for number, path in enumerate(sorted(root.rglob("*.log"))):
        os.utime(path, ns=(1, ns + number * step_ns))


def test_a_survey_alters_nothing(stamped):
    before = contents(stamped)
    survey(stamped)
    assert contents(stamped) == before
    assert {path.name for path in stamped.parent.iterdir()} == {stamped.name}


def test_a_survey_reports_formats_timestamps_times_and_missing_files(old, stamped):
    for root, magics, some in ((old, (0,), False), (stamped, (1,), True)):
        found = survey(root)
        assert found.root == str(root)
        assert (found.is_clean, found.broker, found.skipped) == (True, None, ())
        assert found.index_interval_bytes == 4096
        for path, segment in by_path(found).items():
            status = (root / path).stat()
            assert segment.log.mtime_ns == status.st_mtime_ns
            assert segment.log.size == status.st_size == segment.scan.valid_bytes
            assert segment.mtime_ms == status.st_mtime_ns // 1_000_000
            assert (segment.time_index, segment.has_offset_index) == ("missing", True)
            if status.st_size:
                assert segment.scan.magics == magics
                assert (segment.scan.largest_record_timestamp is not None) == some
                assert (segment.scan.time_index is not None) == some
        assert found.warnings == ()
        assert found.mtimes == {
            path.relative_to(root).as_posix(): path.stat().st_mtime_ns // 1_000_000
            for path in root.rglob("*.log")
        }


def test_a_survey_names_partitions_and_counts_them(stamped):
    seen = []
    found = survey(stamped, progress=lambda *counts: seen.append(counts), threads=3)
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert found.partitions == survey(stamped, threads=1).partitions
    assert [(each.directory, each.topic, each.partition) for each in found.partitions] == [
        ("up-0", "up", 0),
        ("up-1", "up", 1),
        ("up-compressed-0", "up-compressed", 0),
        ("up-empty-0", "up-empty", 0),
    ]


def test_a_path_that_is_not_a_log_directory_is_refused(tmp_path):
    with pytest.raises(NotALogDirectoryError):
        survey(tmp_path)


def test_a_relative_path_becomes_absolute(stamped, monkeypatch):
    monkeypatch.chdir(stamped.parent)
    assert survey(stamped.name).root == str(stamped)


def test_without_reading_the_logs_only_names_and_times_are_used(stamped):
    for path in stamped.rglob("*.log"):
        size, mtime_ns = path.stat().st_size, path.stat().st_mtime_ns
        path.write_bytes(b"\xff" * size)
        os.utime(path, ns=(1, mtime_ns))
    found = survey(stamped, read_logs=False)
    assert all(segment.scan is None for segment in by_path(found).values())
    assert len(plan(found, "kip-33").changes) == len(plan(found, "empty").changes) == 11


def test_active_and_recovered_segments_are_reported(stamped):
    assert not any(each.is_recovered_by_broker for each in by_path(survey(stamped)).values())
    (stamped / ".kafka_cleanshutdown").unlink()
    found = survey(stamped)
    assert found.is_clean is False
    recovered = {path for path, each in by_path(found).items() if each.is_recovered_by_broker}
    # Recovery points are the log ends: of each partition, the last segment is rebuilt.
    assert recovered == {path for path, each in by_path(found).items() if each.is_active}
    (warning,) = found.warnings
    assert (warning.kind, len(recovered)) == ("unclean", 4)
    for damage in (lambda path: path.write_bytes(b"0\n9\n"), lambda path: path.unlink()):
        damage(stamped / "recovery-point-offset-checkpoint")
        assert all(each.is_recovered_by_broker for each in by_path(survey(stamped)).values())


def test_a_single_partition_directory_is_neither_clean_nor_recovered(stamped):
    found = survey(stamped / "up-0")
    assert found.is_clean is None
    assert not any(each.is_recovered_by_broker for each in by_path(found).values())
    assert "unclean" not in kinds(found)


def test_zeros_are_found_reported_and_replaced(stamped, old):
    for root, expected in ((stamped, "rebuilt"), (old, "entry")):
        path = next(iter(sorted(root.glob("up-0/*.log")))).with_suffix(".timeindex")
        path.write_bytes(bytes(10_485_756))
        found = survey(root)
        (warning,) = found.warnings
        assert (warning.kind, warning.paths) == (
            "zeros",
            (path.with_suffix(".log").relative_to(root).as_posix(),),
        )
        log = kafkastore.open(root)["up-0"]
        assert log.offset_for_timestamp(1, "2.4") is None or expected == "rebuilt"
        journal = migrate(root)
        assert entries(root, path)[0][0] > 1_400_000_000_000
        assert len(entries(root, path)) == 1
        undo(journal)
        assert path.read_bytes() == bytes(10_485_756)


def test_zeros_of_a_killed_broker_s_active_segment_are_normal(golden, writable_copy):
    root = writable_copy(golden("2.4.0", "crash", "answers").logs)
    active = max(root.glob("crash-0/*.log")).with_suffix(".timeindex")
    active.write_bytes(bytes(active.stat().st_size))
    found = survey(root)
    assert "zeros" not in kinds(found)
    assert plan(found).changes == ()


def test_a_missing_offset_index_is_reported_and_created(old):
    remove(old / "up-0", "*.index")
    before = contents(old)
    found = survey(old)
    assert kinds(found) == ["no-offset-index"]
    assert len(found.warnings[0].paths) == 4
    assert not [c for c in plan(found, "kip-33").changes if c.path.endswith(".index")]
    journal = migrate(old, index_interval_bytes=200)
    made = data(old / "up-0", "*.index")
    assert len(made) == 4
    for name, index in made.items():
        assert list(struct.iter_unpack(">ii", index))
        assert (
            contents(old)["up-0/" + name][1]
            == (before["up-0/" + name.replace(".index", ".log")][1])
        )
    undo(journal)
    assert contents(old) == before


def damage(path, position, value=None):
    """Change one byte, or truncate the file, and keep the modification time."""
    mtime_ns = path.stat().st_mtime_ns
    if value is None:
        os.truncate(path, position)
    else:
        content = bytearray(path.read_bytes())
        content[position] ^= value
        path.write_bytes(content)
    os.utime(path, ns=(1, mtime_ns))


def test_a_log_with_a_wrong_checksum_is_reported_for_repair(stamped):
    path = sorted(stamped.glob("up-0/*.log"))[1]
    damage(path, path.stat().st_size // 2, 0x40)
    found = survey(stamped)
    (warning,) = found.warnings
    assert warning.kind == "unreadable"
    assert str(path) in warning.text
    assert warning.paths == (path.relative_to(stamped).as_posix(),)
    touched = {change.path for change in plan(found).changes}
    assert path.with_suffix(".timeindex").relative_to(stamped).as_posix() not in touched
    assert len(touched) == 10
    assert len(plan(found, "kip-33").changes) == 11


def test_a_torn_last_batch_is_not_a_problem(stamped):
    path = max(stamped.glob("up-0/*.log"))
    damage(path, path.stat().st_size - 5)
    found = survey(stamped)
    assert found.warnings == ()
    migrate(stamped)
    assert len(entries(stamped, path.with_suffix(".timeindex"))) == 1


def test_a_log_with_a_bad_sector_is_reported_and_the_others_are_planned(stamped, monkeypatch):
    path = sorted(stamped.glob("up-0/*.log"))[0]
    inode = path.stat().st_ino
    real = os.preadv

    def broken_sector(descriptor, buffers, position):
        if os.fstat(descriptor).st_ino == inode:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(descriptor, buffers, position)

    monkeypatch.setattr(os, "preadv", broken_sector)
    found = survey(stamped, threads=1)
    assert kinds(found) == ["unreadable"]
    assert os.strerror(errno.EIO) in found.warnings[0].text
    assert len(plan(found).changes) == 10


def test_a_log_that_changes_while_it_is_read_is_reported(stamped, monkeypatch):
    path = max(stamped.glob("up-0/*.log"))
    real = LogSegment.rebuilt_indexes

    def append_meanwhile(self, interval):
        if self.log_path == path:
            with open(path, "ab") as file:
                file.write(b"more")
        return real(self, interval)

    monkeypatch.setattr(LogSegment, "rebuilt_indexes", append_meanwhile)
    found = survey(stamped, threads=1)
    assert [(each.kind, each.paths) for each in found.warnings] == [
        ("unreadable", (path.relative_to(stamped).as_posix(),))
    ]


def test_a_running_broker_is_reported_and_nothing_is_applied(stamped):
    before = contents(stamped)
    lock = LockFile(stamped / ".lock")
    try:
        found = survey(stamped)
        assert found.broker == os.getpid()
        assert kinds(found) == ["broker-running"]
        with change_refused("in-use", stamped / ".lock"):
            apply(plan(found))
        assert survey(stamped / "up-0").broker == os.getpid()
    finally:
        lock.close()
    assert contents(stamped) == before
    assert survey(stamped).broker is None


def test_modification_times_before_the_records_seem_lost(stamped):
    set_mtimes(stamped, 1_000_000_000 * SECOND_NS, 3600 * SECOND_NS)
    found = survey(stamped)
    (warning,) = found.warnings
    assert warning.kind == "modification-times-lost"
    written = {path for path, each in by_path(found).items() if each.log.size}
    assert set(warning.paths) == written


def test_modification_times_of_a_copy_seem_lost(stamped, old):
    now = 1_700_000_000 * SECOND_NS
    for root in (stamped, old):
        set_mtimes(root, now, SECOND_NS // 10)
        (warning,) = survey(root).warnings
        assert (warning.kind, warning.paths) == ("modification-times-lost", ())


def test_modification_times_closer_together_than_the_records_seem_lost(stamped):
    found = survey(stamped / "up-0")
    (partition,) = found.partitions
    spread = tuple(
        dataclasses.replace(
            each,
            mtime_ms=1_700_000_000_000 + 1000 * number,
            scan=dataclasses.replace(
                each.scan, largest_record_timestamp=1_600_000_000_000 + 10**9 * number
            ),
        )
        for number, each in enumerate(partition.segments)
    )
    found = dataclasses.replace(
        found, partitions=(dataclasses.replace(partition, segments=spread),)
    )
    (warning,) = found.warnings
    assert (warning.kind, warning.paths) == ("modification-times-lost", ())


def test_modification_times_in_the_future_are_reported(old):
    path = sorted(old.glob("up-1/*.log"))[0]
    os.utime(path, ns=(1, 4_000_000_000 * SECOND_NS))
    (warning,) = survey(old).warnings
    assert warning.kind == "modification-time-in-the-future"
    assert warning.paths == (path.relative_to(old).as_posix(),)


def test_given_modification_times_replace_lost_ones(old, writable_copy):
    original, lost = writable_copy(old), writable_copy(old)
    written_down = survey(original).mtimes
    set_mtimes(lost, 1_700_000_000 * SECOND_NS)
    migrate(original)
    assert survey(lost, written_down).warnings == ()
    migrate(lost, mtimes=written_down)
    assert data(lost, "*.timeindex") == data(original, "*.timeindex")
    # The modification times of the files do not change.
    assert {path.stat().st_mtime_ns for path in lost.rglob("*.log")} == {1_700_000_000 * SECOND_NS}


def test_given_times_are_named_by_partition_or_for_a_single_partition_by_file(old):
    name = f"{0:020}.log"
    for path, mtimes, expected in (
        (old, {f"up-0/{name}": 7}, [("up-0", 7)]),
        (old / "up-0", {f"up-0/{name}": 7}, [("", 7)]),
        (old / "up-0", {name: 7}, [("", 7)]),
        (old / "up-1", {f"up-0/{name}": 7}, []),
        (old, {name: 7}, []),  # the partition is unknown
    ):
        given = [
            (partition.directory, segment.mtime_ms)
            for partition in survey(path, mtimes).partitions
            for segment in partition.segments
            if segment.mtime_is_given
        ]
        assert given == expected


def test_only_chosen_partitions_are_surveyed(stamped):
    complete = survey(stamped)
    found = survey(stamped, partitions=["up-1", ("up", 0)])
    assert found.partitions == complete.partitions[:2]
    assert survey(stamped, partitions=[]).partitions == ()
    with pytest.raises(KeyError, match="up-7"):
        survey(stamped, partitions=["up-7"])


def test_directories_that_are_not_partitions_are_named(stamped):
    (stamped / "up-2.0123456789abcdef0123456789abcdef-delete").mkdir()
    (stamped / "lost+found").mkdir()
    found = survey(stamped)
    assert kinds(found) == ["skipped", "skipped"]
    assert len(found.partitions) == 4


def test_a_change_between_survey_and_apply_is_refused(stamped):
    made = plan(survey(stamped))
    path = sorted(stamped.glob("up-0/*.log"))[0]
    os.utime(path)
    with change_refused("changed", path):
        apply(made)
    assert not list(stamped.rglob("*.timeindex"))


def test_a_changed_log_of_the_same_size_and_time_is_detected_by_its_digest(stamped):
    made = plan(survey(stamped, index_interval_bytes=200))
    path = sorted(stamped.glob("up-0/*.log"))[0]
    damage(path, path.stat().st_size // 2, 0xFF)
    with change_refused("changed", path.with_suffix(".timeindex")):
        apply(made)


def test_a_crash_at_any_call_of_a_migration_is_finished_by_migrating_again(stamped):
    before = contents(stamped)
    made = plan(survey(stamped / "up-0", index_interval_bytes=200))
    calls = count_calls(lambda fs: apply(made, threads=1, fs=fs))
    planned = contents(stamped)
    forget(undo(apply(made)))
    for at in range(0, calls, 3):
        with pytest.raises(Crash):
            apply(made, threads=1, fs=CrashingFileSystem(at))
        if not find_journals(stamped / "up-0"):
            apply(made)
        for journal in find_journals(stamped / "up-0"):
            apply(journal.plan)
        assert contents(stamped) == planned
        for journal in find_journals(stamped / "up-0"):
            forget(undo(journal))
        assert contents(stamped) == before


def test_surveys_can_be_pickled_and_become_json(stamped):
    found = survey(stamped)
    assert pickle.loads(pickle.dumps(found)) == found
    assert json.loads(json.dumps(dataclasses.asdict(found)))["root"] == str(stamped)


def test_there_are_no_statements_about_timestamps_in_logs_that_were_not_read(golden, writable_copy):
    logs = writable_copy(golden("2.4.0", "transactions", "answers").logs)
    for log in logs.glob("*/*.log"):
        os.utime(log, (1_500_000_000, 1_500_000_000))
    found = survey(logs)
    assert [str(each) for each in found.warnings if each.kind == "modification-times-lost"] == []


def test_twelve_zero_bytes_are_an_entry_only_if_the_log_begins_at_timestamp_0(tmp_path):
    segments = tuple(
        Segment(at, (Batch((Row(at, timestamp),)),), time_index=bytes(12))
        for at, timestamp in enumerate((0, 1_500_000_000_000, 7))
    )
    found = by_path(survey(Log(segments, is_clean=True).write(tmp_path / "logs")))
    assert [segment.time_index for segment in found.values()] == ["present", "zeros", "zeros"]


def test_a_zero_time_index_of_a_corrupt_log_does_not_hide_the_partition(tmp_path):
    batches = in_a_row([Batch((Row(0, 7),))] * 2)
    corrupt = bytearray(batches[1].data)
    corrupt[-1] ^= 1
    segments = (Segment(0, tuple(batches[:1]), tail=bytes(corrupt)), Segment(2, tuple(batches)))
    root = Log(segments).write(tmp_path / "logs")
    (root / "t-0" / f"{0:020}.timeindex").write_bytes(bytes(12))
    found = survey(root)
    (partition,) = found.partitions
    first, _ = partition.segments
    assert first.scan.problem is not None
    assert first.time_index == "zeros"
