"""A valid producer snapshot of another partition, or of another offset."""

import shutil
from itertools import pairwise

import pytest

import kafkastore
from kafkastore.checks.findings import FindingKind
from kafkastore.checks.repair import plan_repair
from kafkastore.formats.state import producer_snapshot

FROM_0_11 = ["0.11.*", "2.*", "3.*", "4.*"]
TRANSACTIONS = pytest.mark.golden_cases(
    names="transactions", versions=FROM_0_11, answers="answers"
)


def committed(root, partition):
    log = kafkastore.open(root)[partition]
    return [each.offset for each in log.records(isolation="read_committed")]


def kinds(root, path):
    return {each.kind for each in kafkastore.verify(root) if each.path == path}


def check_repaired(root, partition, expected):
    kafkastore.apply(plan_repair(root, on_corrupt="skip"))
    assert committed(root, partition) == expected


@TRANSACTIONS
def test_a_snapshot_without_the_producer_of_an_open_transaction_is_found(
    golden_case, writable_copy
):
    root = writable_copy(golden_case.logs)
    expected = committed(root, "txn-0")
    newest = max((root / "txn-0").glob("*.snapshot"))
    assert (producer_snapshot.parse(newest.read_bytes())["current_txn_first_offset"] >= 0).any()
    newest.write_bytes(producer_snapshot.pack([]))
    assert committed(root, "txn-0") != expected
    assert kinds(root, newest) == {FindingKind.PRODUCER_SNAPSHOT_MISMATCH}
    check_repaired(root, "txn-0", expected)


@TRANSACTIONS
def test_a_snapshot_of_an_earlier_offset_that_changes_answers_is_found(golden_case, writable_copy):
    changed_count = 0
    for log in kafkastore.open(golden_case.logs):
        expected = [each.offset for each in log.records(isolation="read_committed")]
        offsets = sorted(log.files.producer_snapshots)
        for earlier, later in pairwise(offsets):
            root = writable_copy(golden_case.logs)
            directory = root / log.path.name
            path = directory / f"{later:020}.snapshot"
            shutil.copyfile(directory / f"{earlier:020}.snapshot", path)
            if committed(root, log.path.name) != expected:
                changed_count += 1
                assert kinds(root, path) == {FindingKind.PRODUCER_SNAPSHOT_MISMATCH}
                check_repaired(root, log.path.name, expected)
    assert changed_count or golden_case.version != "0.11.0.3"
