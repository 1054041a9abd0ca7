"""Verification: no findings in healthy directories, and each damage is found."""
import errno
import os
import shutil

import pytest
from models.log_directory import Log, Segment
from models.no_regular_file import KINDS
from models.record_format import Batch, Row
from models.refused import refused

import kafkastore
from kafkastore.checks.findings import FindingKind, Severity
from kafkastore.jobs.verify import VerifyJob, verify, with_topic_ids
from kafkastore.runner import in_threads, run_here

HEALTHY = [
    "codecs", "create-time-*", "log-append-time", "headers-and-nulls", "leader-epochs",
    "roll-and-retention-by-time", "broken-index", "transactions", "compacted*", "old-formats",
    "delete-records", "crash", "preallocate-killed", "kraft-metadata", "wide",
]
WITH_TIME_INDEX = ["0.10.2.2", "0.11.0.3", "2.4.0", "3.9.1", "4.1.1", "4.3.1"]

#: Damage to a directory -> the damaged file, and the expected finding.
DAMAGES = {
    "missing-timeindex": (".timeindex", FindingKind.MISSING_TIME_INDEX),
    "missing-index": (".index", FindingKind.MISSING_OFFSET_INDEX),
    "truncated-timeindex": (".timeindex", FindingKind.INCOMPLETE_INDEX_ENTRY),
    "truncated-index": (".index", FindingKind.INCOMPLETE_INDEX_ENTRY),
    "wrong-last-timeindex-entry": (".timeindex", FindingKind.TIME_INDEX_MISMATCH),
    "too-high-last-timeindex-entry": (".timeindex", FindingKind.TIME_INDEX_MISMATCH),
    "wrong-last-index-entry": (
        ".index", FindingKind.OFFSET_INDEX_MISMATCH, FindingKind.OFFSET_INDEX_BEYOND_LOG_END),
    "empty-timeindex": (".timeindex", FindingKind.EMPTY_TIME_INDEX),
    "active-missing-timeindex": (".timeindex", FindingKind.MISSING_TIME_INDEX),
    "active-zero-padded": (
        ".timeindex", FindingKind.ZERO_TIME_INDEX_ENTRIES_IN_ACTIVE_SEGMENT),
}


def refuse_to_open(monkeypatch, refused, number):
    """Let the system refuse to open one file."""
    really_open = os.open

    def refuse(path, *arguments, **options):
        if str(path) == str(refused):
            raise OSError(number, os.strerror(number), str(path))
        return really_open(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)


def findings_above_style(path):
    return [finding for finding in verify(path) if finding.severity != Severity.STYLE]


def findings_and_failures(path):
    """Return all findings, and the partitions and errors of what can't be opened."""
    job = VerifyJob()
    checked = list(with_topic_ids(job.results(job.items(kafkastore.open(path)), run_here)))
    return [finding for each in checked for finding in each.findings], [
        (each.topic_partition, error) for each in checked for error in each.failures
    ]


@pytest.mark.golden_cases(names=HEALTHY, versions=WITH_TIME_INDEX)
def test_directories_of_healthy_brokers_give_no_finding_above_style(golden_case):
    assert findings_above_style(golden_case.logs) == []


@pytest.mark.golden_cases(names="broken-index-*")
def test_each_damage_to_an_index_is_found_in_its_file(golden_case):
    damage = golden_case.name.removeprefix("broken-index-")
    found = findings_above_style(golden_case.root / "logs")
    if damage == "missing-all-indexes":
        assert {f.path.suffix for f in found} == {".index", ".timeindex"}
        return
    suffix, *kinds = DAMAGES[damage]
    assert any(f.path.suffix == suffix and f.kind in kinds for f in found), found


@pytest.mark.golden_cases(names="crash-bad-crc", answers="answers")
def test_a_wrong_checksum_is_a_data_loss_risk_at_its_byte(golden_case):
    risks = [f for f in verify(golden_case.logs) if f.severity == Severity.DATA_LOSS_RISK]
    assert len(risks) == 1
    assert risks[0].kind is FindingKind.CHECKSUM_MISMATCH
    changed = int(golden_case.answers["made"].split("(at ")[1].split(")")[0])
    assert risks[0].position <= changed < risks[0].path.stat().st_size


@pytest.mark.golden_cases(names="crash-torn", answers="answers", versions="2.4.0")
def test_a_torn_last_batch_of_a_killed_broker_is_style(golden_case):
    torn = [f for f in verify(golden_case.logs) if f.path.suffix == ".log"]
    assert [f.kind for f in torn] == [FindingKind.INCOMPLETE_LAST_BATCH]


@pytest.mark.golden_cases(names="upgrade", answers="answers", versions="0.10.0.1")
def test_segments_with_timestamps_but_without_time_index_give_wrong_answers(golden_case):
    found = findings_above_style(golden_case.logs)
    assert {f.severity for f in found} == {Severity.WRONG_ANSWERS}
    segments = {path.with_suffix(".timeindex") for path in golden_case.logs.glob("*/*.log")
                if path.stat().st_size}
    assert {f.path for f in found} == segments


@pytest.mark.golden_cases(names="upgrade", answers="answers", versions=["0.8.2.2", "0.9.0.1"])
def test_segments_without_timestamps_are_only_style(golden_case):
    assert findings_above_style(golden_case.logs) == []


def test_zeros_in_a_time_index_of_an_inactive_segment_are_a_data_loss_risk(golden, writable_copy):
    logs = writable_copy(golden("2.4.0", "broken-index", "answers").logs)
    index = sorted(logs.glob("broken-0/*.timeindex"))[1]
    index.write_bytes(index.read_bytes() + bytes(12 * 50))
    [finding] = findings_above_style(logs)
    assert (finding.path, finding.kind) == (index, FindingKind.ZERO_TIME_INDEX_ENTRIES)
    assert finding.position == index.stat().st_size - 12 * 50


def test_each_flipped_byte_of_a_record_batch_is_found(golden, writable_copy):
    logs = writable_copy(golden("2.4.0", "broken-index", "answers").logs)
    log = sorted(logs.glob("broken-0/*.log"))[0]
    clean = log.read_bytes()
    # Bytes 0-7 (base offset) and 12-15 (leader epoch) of a batch lie outside its checksum.
    for position in range(16, 200):
        log.write_bytes(clean[:position] + bytes([clean[position] ^ 1]) + clean[position + 1:])
        in_log = [f for f in findings_above_style(logs) if f.path == log]
        first_batch = 12 + int.from_bytes(clean[8:12], "big")
        if position < first_batch or (position - first_batch) not in {*range(8), *range(12, 16)}:
            assert in_log, position


def test_a_segment_without_its_log_is_reported(golden, writable_copy):
    logs = writable_copy(golden("2.4.0", "broken-index", "answers").logs)
    log = sorted(logs.glob("broken-0/*.log"))[1]
    shutil.move(log, logs.parent / "lost")
    orphans = [f for f in verify(logs) if f.kind is FindingKind.INDEX_WITHOUT_LOG]
    assert {f.path.suffix for f in orphans} == {".index", ".timeindex"}


CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_each_corrupt_checkpoint_is_found(golden, writable_copy, name):
    logs = writable_copy(golden("2.4.0", "codecs", "answers").logs)
    before = list(verify(logs))
    (logs / name).write_bytes(b"0\n1\nt 0 many\n")
    (found,) = [each for each in verify(logs) if each not in before]
    assert (found.path, found.kind) == (logs / name, FindingKind.CORRUPT_CHECKPOINT)
    assert found.position is not None


def test_each_copy_of_a_partition_in_two_directories_is_reported_and_checked(
    golden, writable_copy
):
    logs = golden("2.4.0", "broken-index", "answers").logs
    copies = [writable_copy(logs), writable_copy(logs)]
    damaged = sorted(copies[1].glob("broken-0/*.timeindex"))[1]
    damaged.unlink()
    found = [each for each in findings_above_style(copies) if "broken-0" in str(each.path)]
    twice = [each for each in found if each.kind is FindingKind.DUPLICATE_PARTITION]
    assert [each.path for each in twice] == [copy / "broken-0" for copy in copies]
    assert str(copies[1] / "broken-0") in twice[0].what
    assert [each.path for each in found if each not in twice] == [damaged]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_unreadable_index_is_reported_and_all_other_files_are_checked(
    golden, writable_copy, monkeypatch, suffix
):
    logs = writable_copy(golden("2.4.0", "broken-index", "answers").logs)
    bad, *_, damaged = sorted(logs.glob(f"broken-0/*{suffix}"))
    damaged.unlink()
    really_read, lost = os.pread, bad.stat().st_ino

    def read(descriptor, *arguments):
        if os.fstat(descriptor).st_ino == lost:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return really_read(descriptor, *arguments)

    monkeypatch.setattr(os, "pread", read)
    unreadable, missing = findings_above_style(logs)
    assert (unreadable.path, unreadable.position) == (bad, 0)
    assert unreadable.kind is FindingKind.UNREADABLE_INDEX
    assert missing.path == damaged


def test_a_broken_link_is_reported_but_a_segment_deleted_meanwhile_is_not(golden, writable_copy):
    logs = writable_copy(golden("2.4.0", "broken-index", "answers").logs)
    first, second, *_ = sorted(logs.glob("broken-0/*.log"))
    findings = verify(logs / "broken-0")
    for path in (first, second):
        path.unlink()
    second.symlink_to("/nowhere")
    store = kafkastore.open(logs)
    log = store["broken-0"]
    assert len(log.segments) > 2
    assert [each.kind for each in findings if each.path == second] == [FindingKind.NOT_A_FILE]


def test_a_file_without_permission_ends_the_check_or_is_reported_and_the_rest_checked(
    golden, writable_copy, monkeypatch
):
    logs = writable_copy(golden("2.4.0", "codecs", "answers").logs)
    partitions = list(kafkastore.open(logs).partitions)
    locked = next((logs / str(partitions[0])).glob("*.log"))
    refuse_to_open(monkeypatch, locked, errno.EACCES)
    with pytest.raises(PermissionError):
        list(verify(logs))
    found, failed = findings_and_failures(logs)
    ((topic_partition, error),) = failed
    assert (topic_partition, error.filename) == (partitions[0], str(locked))
    assert found == []  # not even of the other files of that partition


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
def test_all_other_files_of_a_partition_with_an_unopenable_file_are_checked(
    golden, writable_copy, monkeypatch, number
):
    logs = writable_copy(golden("2.4.0", "broken-index", "answers").logs)
    locked, damaged, *_ = sorted(logs.glob("broken-0/*.log"))
    damaged.with_suffix(".timeindex").unlink()
    (logs / "broken-0" / "leader-epoch-checkpoint").write_bytes(b"1")
    refuse_to_open(monkeypatch, locked, number)
    found, failed = findings_and_failures(logs)
    paths = [each.path for each in found if each.severity != Severity.STYLE]
    others = [logs / "broken-0" / "leader-epoch-checkpoint", damaged.with_suffix(".timeindex")]
    if number == errno.EIO:
        assert failed == []
        assert paths == [others[0], locked, others[1]]
        assert FindingKind.UNOPENED_FILE in {each.kind for each in found if each.path == locked}
    else:
        assert [str(error.filename) for _, error in failed] == [str(locked)]
        assert paths == others


@pytest.mark.parametrize("name", ["replication-offset-checkpoint", "meta.properties"])
def test_all_files_are_checked_next_to_an_unopenable_file_of_the_log_directory(
    golden, writable_copy, monkeypatch, name
):
    logs = writable_copy(golden("2.4.0", "broken-index", "answers").logs)
    damaged, *_ = sorted(logs.glob("broken-0/*.timeindex"))
    damaged.unlink()
    (logs / "cleaner-offset-checkpoint").write_bytes(b"many")
    refuse_to_open(monkeypatch, logs / name, errno.EACCES)
    with pytest.raises(PermissionError):
        list(verify(logs))
    found, failed = findings_and_failures(logs)
    paths = [each.path for each in found if each.severity != Severity.STYLE]
    assert paths == [logs / "cleaner-offset-checkpoint", damaged]
    assert failed[0][0] is None
    assert {str(error.filename) for _, error in failed} == {str(logs / name)}


def test_a_leader_epoch_that_other_batches_contradict_does_not_change_the_checkpoint(
    golden, writable_copy
):
    logs = writable_copy(golden("2.4.0", "leader-epochs", "answers").logs)
    log = sorted(logs.glob("epochs-0/*.log"))[0]
    data = bytearray(log.read_bytes())
    data[12:16] = (99).to_bytes(4, "big")  # in the first batch, outside its checksum
    log.write_bytes(data)
    found = findings_above_style(logs)
    assert {each.path for each in found} == {log, sorted(logs.glob("epochs-0/*.log"))[1]}
    assert not any(each.remedy.startswith("kafkastore") for each in found)


def test_a_future_copy_is_checked_like_a_partition(golden, writable_copy):
    logs = writable_copy(golden("2.4.0", "broken-index", "answers").logs)
    future = logs / f"broken-0.{'a' * 32}-future"
    shutil.copytree(logs / "broken-0", future)
    sorted(future.glob("*.timeindex"))[1].unlink()
    (found,) = findings_above_style(logs)
    assert found.path.parent == future


@pytest.mark.golden_cases(names=["transactions", "compacted", "leader-epochs"], versions="2.4.0")
def test_healthy_directories_have_no_finding_above_style_in_any_sample(golden_case):
    for share in (0.01, 0.2, 0.5, 0.9):
        findings = verify(golden_case.logs, sample=share)
        assert [each for each in findings if each.severity != Severity.STYLE] == []


def test_a_sample_reads_the_same_segments_of_every_copy(golden, writable_copy):
    read = []
    for copy in (writable_copy(golden("2.4.0", "wide", "answers").logs) for _ in range(2)):
        job = VerifyJob(0.4)
        checked = list(job.results(job.items(kafkastore.open(copy)), in_threads(2)))
        checked = [each for each in checked if each.topic_partition is not None]
        read.append([(each.path.name, each.segments_read) for each in checked])
        assert all(0 < each.segments_read <= each.segments for each in checked if each.segments)
        assert sum(e.segments_read for e in checked) < sum(e.segments for e in checked)
    assert read[0] == read[1]


@pytest.mark.parametrize("sample", [0, -0.5, 1.01, float("nan")])
def test_a_sample_must_be_above_0_and_at_most_1(golden, sample):
    with refused("sample"):
        list(verify(golden("2.4.0", "codecs", "answers").logs, sample=sample))


def test_few_partitions_are_checked_ahead_and_none_after_the_caller_stops(
    tmp_path, golden, threads_left
):
    source = golden("2.4.0", "broken-index", "answers").logs / "broken-0"
    for number in range(40):
        shutil.copytree(source, tmp_path / f"broken-{number}")
        (tmp_path / f"broken-{number}" / "00000000000000000022.timeindex").unlink()
    checked = []
    findings = verify(tmp_path, threads=2, progress=lambda *done: checked.append(done))
    first = next(findings)
    assert first.path.parent.name == "broken-0"
    findings.close()
    assert len(checked) == 0
    assert threads_left("kafkastore-verify") == []
    findings = verify(tmp_path, threads=3, progress=lambda *done: checked.append(done))
    assert len(list(findings)) == 40
    assert checked == [(done, 40) for done in range(1, 41)]


def test_a_follower_that_appends_many_batches_at_once_gives_no_finding(tmp_path, golden):
    leader = kafkastore.open(golden("2.4.0", "broken-index", "answers").logs)["broken-0"]
    config = {"segment.bytes": 1 << 20, "index.interval.bytes": 100}
    with kafkastore.LogDirWriter(tmp_path) as log_dir:
        writer = log_dir.writer("a", 0, config)
        for segment in leader.segments:
            writer.append(segment.log_path.read_bytes(), as_follower=True)
        assert len(writer.base_offsets) == 1
    assert findings_above_style(tmp_path) == []


def test_an_unlistable_directory_is_reported_once_and_the_others_are_checked(
    golden, writable_copy, monkeypatch
):
    logs = writable_copy(golden("2.4.0", "transactions", "answers").logs)
    (logs / "txn-1" / "leader-epoch-checkpoint").write_bytes(b"1")
    really_list = os.listdir

    def refuse(path):
        if str(path) == str(logs / "txn-0"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return really_list(path)

    monkeypatch.setattr(os, "listdir", refuse)
    (found,), failed = findings_and_failures(logs)
    assert found.path.parent.name == "txn-1"
    assert [str(partition) for partition, _ in failed] == ["txn-0"]


def test_an_interrupt_ends_all_threads(golden, threads_left):
    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(verify(golden("2.4.0", "wide", "answers").logs, threads=2, progress=interrupt))
    assert threads_left("kafkastore-verify") == []


def test_inactive_segments_of_timestamp_0_are_dated_by_their_twelve_zero_bytes(tmp_path):
    segments = tuple(
        Segment(at, (Batch((Row(at, 0, b"k", b"v"),)),)).indexed() for at in range(3)
    )
    assert [segment.time_index for segment in segments] == [bytes(12)] * 3
    logs = Log(segments, is_clean=True).write(tmp_path / "logs")
    found = list(verify(logs))
    assert [each for each in found if each.severity != Severity.STYLE] == []
    assert [each for each in found if each.path.name == "t-0"] == []


@pytest.mark.golden_cases(names="codecs", versions=WITH_TIME_INDEX, answers="answers")
def test_a_clean_shutdown_adds_the_last_entry_of_the_active_segment(
    golden_case, writable_copy
):
    logs = writable_copy(golden_case.logs)
    active = [max(partition.glob("*.timeindex")) for partition in logs.glob("*-0")]
    cut = {path for path in active if path.stat().st_size > 12}
    assert cut
    for path in cut:
        os.truncate(path, path.stat().st_size - 12)

    def ending_early():
        return {
            each.path for each in verify(logs) if each.kind is FindingKind.TIME_INDEX_ENDS_EARLY
        }

    assert ending_early() == cut
    (logs / ".kafka_cleanshutdown").unlink()
    assert not ending_early()


@pytest.mark.parametrize(
    "name",
    ["log-start-offset-checkpoint", "recovery-point-offset-checkpoint",
     "replication-offset-checkpoint"],
)
def test_a_broken_link_is_not_a_missing_checkpoint(golden, writable_copy, name):
    logs = writable_copy(golden("4.1.1", "delete-records", "answers").logs)
    (logs / name).unlink(missing_ok=True)
    (logs / name).symlink_to("nowhere")
    (finding,) = (each for each in verify(logs) if each.path == logs / name)
    assert finding.kind is FindingKind.CORRUPT_CHECKPOINT
    assert kafkastore.open(logs).log_dirs[0].checkpoint(name).error is not None


@pytest.mark.parametrize("kind", KINDS)
def test_a_marker_that_is_not_a_file_is_reported_with_its_effect_on_a_broker(
    golden, writable_copy, kind
):
    logs = writable_copy(golden("4.1.1", "delete-records", "answers").logs)
    marker = logs / ".kafka_cleanshutdown"
    marker.unlink(missing_ok=True)
    assert not [each for each in verify(logs) if each.path == marker]
    KINDS[kind](marker)
    kinds = [each.kind for each in verify(logs) if each.path == marker]
    assert kinds.count(FindingKind.NOT_A_FILE) == 1
    assert kafkastore.open(logs).log_dirs[0].is_clean == ("link" not in kind)


def test_a_corrupt_checkpoint_affects_each_chosen_partition(golden, tmp_path):
    directory = tmp_path / "logs"
    shutil.copytree(golden("2.4.0", "delete-records", "answers").logs, directory)
    checkpoint = directory / "log-start-offset-checkpoint"
    assert not list(verify(directory, partitions=[("deleted", 0)]))
    checkpoint.write_bytes(b"0\n1\n")
    (found,) = verify(directory, partitions=[("deleted", 0)])
    assert (found.kind, found.path) == (FindingKind.CORRUPT_CHECKPOINT, checkpoint)


@pytest.mark.parametrize("base", [25, 100])
def test_a_log_that_is_missing_where_its_index_exists_is_a_data_loss_risk(golden, tmp_path, base):
    """Remove a log in the middle of the partition, and at its end."""
    directory = tmp_path / "logs"
    shutil.copytree(golden("2.4.0", "create-time-monotonic", "answers").logs, directory)
    lost = directory / "mono-0" / f"{base:020}.log"
    healthy = {found.kind for found in verify(directory)}
    assert FindingKind.LOST_LOG not in healthy
    lost.unlink()
    (found,) = [each for each in verify(directory) if each.kind is FindingKind.LOST_LOG]
    assert (found.path, found.severity) == (lost, Severity.DATA_LOSS_RISK)
    # Retention renames the log first, and may be interrupted then.
    lost.with_suffix(".log.deleted").touch()
    assert FindingKind.LOST_LOG not in {each.kind for each in verify(directory)}
