"""The effect of a broker's start on a directory: predicted, and as found afterwards."""

import pytest
from models.recovered_directory import (
    epochs_of,
    files_after,
    files_of,
    indexes_and_logs,
    kept_when_stopped,
    snapshots_of,
)

import kafkastore
from kafkastore.recovery.loaded_segment import CutKind
from kafkastore.recovery.log_recovery import recover_log

FROM_0_11 = ["0.11.*", "2.*", "3.*", "4.*"]
KILLED = ["crash*", "preallocate-killed"]


def version_of(case):
    return tuple(int(part) for part in case.version.split("."))


def recoveries(case):
    """(partition as it was, what is worked out, its files then, its files as the broker left them).

    A broker that kept running for a while has resized and cut the active segment's indexes since.
    """
    for log in kafkastore.open(case.root / "logs"):
        left = case.logs / log.path.name
        if not left.exists():
            continue
        config = case.answers["topic_config"].get(log.topic, {})
        interval = int(config.get("index.interval.bytes", 4096))
        recovered = recover_log(log, case.version, index_interval_bytes=interval)
        yield log, recovered, files_after(recovered), files_of(left)


def assert_same(case, recovered, worked_out, left, *, is_same_epoch):
    """Logs and indexes byte for byte; snapshots and epochs by content."""
    options = {"whole_entries": True}
    assert indexes_and_logs(worked_out, **options) == indexes_and_logs(left, **options)
    bases = [segment.base_offset for segment in recovered.segments]
    snapshots = kept_when_stopped(snapshots_of(worked_out), bases, version_of(case))
    assert snapshots == kept_when_stopped(snapshots_of(left), bases, version_of(case))
    epochs, epochs_left = epochs_of(worked_out), epochs_of(left)
    if not is_same_epoch:
        # The new leader's own line: it begins where the log ended.
        epochs_left = [entry for entry in epochs_left if entry[1] < recovered.log_end_offset]
    assert epochs == epochs_left


@pytest.mark.golden_cases(names=KILLED, versions=FROM_0_11, answers="answers-recovered")
def test_recovery_of_a_killed_broker_s_directory_equals_the_broker_s(golden_case):
    (found,) = recoveries(golden_case)
    log, recovered, worked_out, left = found
    assert indexes_and_logs(worked_out) == indexes_and_logs(left)
    is_same_epoch = version_of(golden_case) < (4,)
    assert_same(golden_case, recovered, worked_out, left, is_same_epoch=is_same_epoch)
    said = golden_case.answers["partitions"][log.path.name]
    assert recovered.log_start_offset == said["log_start_offset"]
    assert recovered.log_end_offset == said["log_end_offset"]
    assert all(segment.is_recovered for segment in recovered.segments)


@pytest.mark.golden_cases(names=KILLED, versions=FROM_0_11, answers="answers-recovered")
def test_a_cut_is_reported_with_its_size_and_reason(golden_case):
    log, recovered, _, left = next(recoveries(golden_case))
    *others, last = recovered.segments
    assert not any(segment.cut_bytes for segment in others)
    name = f"{last.base_offset:020}.log"
    assert last.cut_bytes == log.segments[-1].size - len(left[name])
    assert recovered.cut == ({name: last.valid_bytes} if last.cut_bytes else {})
    assert last.cut_kind is {
        "crash": None,
        "crash-torn": CutKind.INCOMPLETE_BATCH,
        "crash-bad-crc": CutKind.CORRUPT_BATCH,
        "preallocate-killed": CutKind.INCOMPLETE_BATCH,
    }[golden_case.name]
    assert (last.reason is None) == (last.cut_kind is None)


@pytest.mark.golden_cases(
    names="broken-index-*", versions=FROM_0_11, answers="answers-recovered"
)
def test_after_a_clean_shutdown_only_missing_indexes_are_made(golden_case):
    (found,) = recoveries(golden_case)
    log, recovered, worked_out, left = found
    assert log.is_clean
    assert_same(golden_case, recovered, worked_out, left, is_same_epoch=False)
    assert not recovered.cut
    before = files_of(log.path)
    for segment in recovered.segments:
        name = f"{segment.base_offset:020}"
        assert segment.is_recovered == (f"{name}.index" not in before)
        if f"{name}.timeindex" not in before and not segment.is_recovered:
            assert recovered.written[f"{name}.timeindex"] == b""


@pytest.mark.golden_cases(names="wide", versions=FROM_0_11, answers="answers-recovered")
def test_remains_of_deletions_and_swaps_are_deleted_or_renamed(golden_case):
    leftovers = 0
    for log, recovered, worked_out, left in recoveries(golden_case):
        # 0.11.0.3 was stopped before it had deleted what it had replaced.
        kept = {name: data for name, data in left.items() if not name.endswith(".deleted")}
        assert_same(golden_case, recovered, worked_out, kept, is_same_epoch=False)
        leftovers += sum(
            name.endswith((".deleted", ".cleaned", ".swap"))
            for name in {*recovered.deleted, *recovered.renamed}
        )
        assert not any(name.endswith((".deleted", ".cleaned", ".swap")) for name in worked_out)
        assert files_of(log.path) == files_of(recovered.path)
    assert leftovers > 2


@pytest.mark.golden_cases(names="transactions", versions=FROM_0_11, answers="answers")
def test_recovery_finds_the_transactions_and_producers_that_the_running_broker_knew(
    golden_case, writable_copy
):
    root = writable_copy(golden_case.logs)
    aborted = producers = 0
    for log in kafkastore.open(root):
        before = files_of(log.path)
        for path in (*log.path.glob("*.txnindex"), *log.path.glob("*.snapshot")):
            path.unlink()
        recovered = recover_log(log, golden_case.version, is_clean=False, recovery_point=0)
        after = files_after(recovered)
        transactions = {name: data for name, data in before.items() if name.endswith(".txnindex")}
        assert {name for name, data in transactions.items() if data} <= after.keys()
        for name, data in transactions.items():
            assert after.get(name, b"") == data
            aborted += len(data) // 34
        end = recovered.log_end_offset
        assert snapshots_of(after)[end] == snapshots_of(before)[end]
        producers += len(snapshots_of(after)[end])
    assert aborted > 5
    assert producers > 5
