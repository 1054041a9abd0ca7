"""Rebuilt transaction indexes, producer snapshots and leader epochs; what can't be repaired."""

import os
from dataclasses import replace
from itertools import combinations, pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.log_directory import Log, Segment
from models.record_format import Batch, Row, marker
from models.record_strategies import in_a_row

import kafkastore
from kafkastore import Severity
from kafkastore.checks.repair import plan_repair
from kafkastore.checks.state_repair import consistent_epochs
from kafkastore.errors import ChangeRefusedError, InvalidConfigError, NotAFileError
from kafkastore.formats.state import producer_snapshot
from kafkastore.formats.state.checkpoints import EpochStart, parse_leader_epoch_checkpoint

THIRTY = in_a_row([Batch((Row(0, 100 + slot, b"k", b"v" * 40),)) for slot in range(30)])
SIZE = len(THIRTY[0].data)
STATE_FIELDS = ["producer_id", "last_sequence", "last_offset"]
FROM_0_11 = ["0.11.*", "2.*", "3.*", "4.*"]


@pytest.fixture
def root(tmp_path):
    """Return a root with three segments of ten records after a clean shutdown."""
    segments = [Segment(base, tuple(THIRTY[base : base + 10])).indexed() for base in (0, 10, 20)]
    return Log(tuple(segments), is_clean=True).write(tmp_path / "logs")


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 0x55
    path.write_bytes(data)


def findings(root):
    return [each for each in kafkastore.verify(root) if each.severity is not Severity.STYLE]


def repaired(root, on_corrupt="skip", **options):
    plan = plan_repair(root, on_corrupt=on_corrupt, **options)
    kafkastore.apply(plan)
    return list(plan.not_repaired)


@pytest.mark.parametrize("on_corrupt", ["skip", "truncate"])
@pytest.mark.golden_cases(names="transactions", versions=FROM_0_11, answers="answers")
def test_a_transaction_index_that_does_not_match_is_rebuilt(golden_case, writable_copy, on_corrupt):
    root = writable_copy(golden_case.logs)
    damaged = [path for path in root.rglob("*.txnindex") if path.stat().st_size]
    before = {path: path.read_bytes() for path in damaged}
    for path in damaged:
        flip(path, 20)
    assert not repaired(root, on_corrupt)
    assert before == {path: path.read_bytes() for path in damaged}
    assert not findings(root)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), max_size=7).map(
        lambda runs: [
            (EpochStart(epoch, 10 * slot), count) for slot, (epoch, count) in enumerate(runs)
        ]
    )
)
def test_epochs_of_a_log_are_those_of_the_longest_sequence_that_never_falls(changes):
    most = max(
        sum(count for _, count in chosen)
        for size in range(len(changes) + 1)
        for chosen in combinations(changes, size)
        if [*chosen] == sorted(chosen)
    )
    found = consistent_epochs(changes)
    assert found == sorted(found)
    assert len({start.epoch for start in found}) == len(found)
    agreeing = sum(
        count
        for start, following in pairwise([*found, EpochStart(9, 1000)])
        for (epoch, offset), count in changes
        if epoch == start.epoch and start.start_offset <= offset < following.start_offset
    )
    assert agreeing == most


@pytest.mark.parametrize(
    ("position", "bit"), [*product((3, 8, 15), (3, 7, 30, 31)), (29, 2), (29, 31)]
)
def test_an_epoch_in_only_one_batch_is_ignored(tmp_path, position, bit):
    epochs = [2] * 7 + [5] * 3 + [6] * 20
    batches = [
        replace(each, leader_epoch=epoch) for each, epoch in zip(THIRTY, epochs, strict=True)
    ]
    parts = [Segment(base, tuple(batches[base : base + 10])).indexed() for base in (0, 10, 20)]
    root = Log(tuple(parts), is_clean=True).write(tmp_path / "logs")
    path = root / "t-0" / f"{position // 10 * 10:020}.log"
    data = bytearray(path.read_bytes())
    data[position % 10 * SIZE + 15 - bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    checkpoint = root / "t-0" / "leader-epoch-checkpoint"
    checkpoint.write_bytes(b"garbage")
    assert not repaired(root)
    assert parse_leader_epoch_checkpoint(checkpoint.read_bytes())[-2:] == ((5, 7), (6, 10))


@pytest.mark.parametrize("damage", ["flipped", "emptied"])
@pytest.mark.golden_cases(names="transactions", versions=FROM_0_11, answers="answers")
def test_a_corrupt_producer_snapshot_is_rebuilt(golden_case, writable_copy, damage):
    root = writable_copy(golden_case.logs)
    snapshots = {}
    for path in root.glob("t*/*.snapshot"):
        entries = producer_snapshot.parse(path.read_bytes())
        if len(entries):
            snapshots[path] = entries[STATE_FIELDS].tolist()
    assert snapshots
    for path in snapshots:
        if damage == "flipped":
            flip(path, 30)
        else:
            path.write_bytes(b"")
    assert not repaired(root, "truncate", version=golden_case.version)
    for path, expected in snapshots.items():
        known = {entry[0]: entry for entry in expected}
        for entry in producer_snapshot.parse(path.read_bytes())[STATE_FIELDS].tolist():
            assert known.get(entry[0], entry) == entry
    assert not findings(root)


@pytest.mark.golden_cases(names="leader-epochs", versions=FROM_0_11, answers="answers")
def test_leader_epochs_are_rebuilt_from_the_batches(golden_case, writable_copy):
    root = writable_copy(golden_case.logs)
    paths = [path for path in root.rglob("leader-epoch-checkpoint")
             if not path.parent.name.startswith("__")]
    before = {path: parse_leader_epoch_checkpoint(path.read_bytes()) for path in paths}
    assert any(len(entries) > 1 for entries in before.values())
    for path in paths:
        path.write_bytes(b"0\n9\nx y\n")
    assert not repaired(root)
    for path, entries in before.items():
        (log,) = (each for each in kafkastore.open(root) if each.path == path.parent)
        found = parse_leader_epoch_checkpoint(path.read_bytes())
        # An epoch without a batch can't be rebuilt from the log.
        assert set(found) <= {*entries}
        assert [each.epoch for each in found] == sorted(
            {batch.leader_epoch for batch in log.batches()}
        )
    assert not findings(root)


def test_snapshots_and_epochs_beyond_a_truncated_log_are_removed(root):
    directory = root / "t-0"
    (directory / f"{30:020}.snapshot").write_bytes(producer_snapshot.pack([]))
    (directory / f"{20:020}.snapshot").write_bytes(producer_snapshot.pack([]))
    (directory / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n7 30\n")
    os.truncate(directory / f"{20:020}.log", 10 * SIZE - 3)
    assert not repaired(root)
    assert not (directory / f"{30:020}.snapshot").exists()
    assert (directory / f"{20:020}.snapshot").exists()
    assert (directory / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    assert not list(kafkastore.verify(root))


def test_a_torn_tail_is_truncated_and_preallocated_space_is_not(root):
    path = root / "t-0" / f"{20:020}.log"
    data = path.read_bytes()
    path.write_bytes(data + bytes(5000))
    assert plan_repair(root, on_corrupt="skip").changes  # a broker would append after the zeros
    (root / ".kafka_cleanshutdown").unlink()
    assert not plan_repair(root, on_corrupt="skip").changes
    path.write_bytes(data + THIRTY[0].data[:60])
    plan = plan_repair(root, on_corrupt="skip")
    kafkastore.apply(plan)
    assert path.read_bytes() == data
    assert [(each.position, each.size) for each in plan.removed] == [(10 * SIZE, 60)]


def test_a_segment_without_readable_batches_still_has_its_offset_range(root):
    path = root / "t-0" / f"{20:020}.log"
    path.write_bytes(b"\xff" * 500)
    repaired(root)
    assert path.read_bytes() == b""
    (log,) = kafkastore.open(root)
    assert log.log_end_offset == 20
    assert [record.offset for record in log.records()] == list(range(20))


def test_only_a_missing_index_is_rebuilt(root):
    (root / "t-0" / f"{20:020}.index").unlink()
    (change,) = plan_repair(root, on_corrupt="skip").changes
    assert (change.path, change.before) == (f"t-0/{20:020}.index", None)


@pytest.mark.parametrize(
    ("suffix", "kind"),
    [
        *product([".log", ".index", ".timeindex"], ["fifo", "link", "directory"]),
        *product([".txnindex", ".snapshot"], ["fifo", "directory"]),
    ],
)
def test_a_file_that_is_not_regular_is_left_alone_and_others_are_repaired(root, suffix, kind):
    odd, zeros = root / "t-0" / f"{10:020}{suffix}", root / "t-0" / f"{0:020}.timeindex"
    odd.unlink(missing_ok=True)
    match kind:
        case "fifo":
            os.mkfifo(odd)
        case "link":
            odd.symlink_to("/nowhere/at-all")
        case "directory":
            odd.mkdir()
    true = zeros.read_bytes()
    zeros.write_bytes(bytes(120))
    flip(root / "t-0" / f"{20:020}.log", 3 * SIZE + 70)
    left = repaired(root, index_interval_bytes=0)
    assert {each.path for each in left} == {odd}
    assert zeros.read_bytes()[-12:] == true[-12:]
    (log,) = kafkastore.open(root)
    assert {23} == set(range(20, 30)) - {
        record.offset for record in log.records(start_offset=20)
    }
    assert {each.path for each in findings(root)} == {odd}
    for each in plan_repair(root, on_corrupt="skip").not_repaired:
        assert isinstance(each.error, NotAFileError | ChangeRefusedError | FileNotFoundError)


def test_an_invalid_interval_is_refused(root):
    with pytest.raises(InvalidConfigError):
        plan_repair(root, on_corrupt="skip", index_interval_bytes=-1)


def test_transactions_may_span_unchanged_segments(tmp_path):
    begun = Batch((Row(0, 5),), producer_id=7, producer_epoch=0, base_sequence=0,
                  is_transactional=True)
    abort = marker(0, 9, is_commit=False, producer_id=7)
    log = in_a_row([begun, *(Batch((Row(0, 6),)) for _ in range(4)), abort,
                    *(Batch((Row(0, 7),)) for _ in range(4))])
    segments = [Segment(0, tuple(log[:3])).indexed(), Segment(3, tuple(log[3:])).indexed()]
    root = Log(tuple(segments), is_clean=True).write(tmp_path / "logs")
    flip(root / "t-0" / f"{3:020}.log", 40)
    repaired(root)
    (opened,) = kafkastore.open(root)
    aborted = [each for s in opened.segments for each in s.transaction_index.entries().tolist()]
    assert [each[:3] for each in aborted] == [(7, 0, 5)]


def test_readable_records_are_kept_that_only_a_swap_file_has(root):
    directory = root / "t-0"
    for suffix in (".log", ".index", ".timeindex"):
        (directory / f"{10:020}{suffix}").rename(directory / f"{10:020}{suffix}.swap")
    flip(directory / f"{10:020}.log.swap", 3 * SIZE + 70)
    (log,) = kafkastore.open(root)
    assert log.segments[1].temporary
    assert not repaired(root)
    assert not [*directory.glob("*.swap")]
    (log,) = kafkastore.open(root)
    assert [each.base_offset for each in log.segments] == [0, 10, 14, 20]
    assert [record.offset for record in log.records()] == [*range(13), *range(14, 30)]
    assert not findings(root)


def test_a_transaction_that_lost_its_first_batches_begins_later_in_the_rebuilt_index(tmp_path):
    begun, more = (
        Batch((Row(0, 100, b"k", b"v"),), producer_id=7, producer_epoch=0, base_sequence=sequence,
              is_transactional=True)
        for sequence in range(2)
    )
    batches = in_a_row([begun, more, marker(0, 100, is_commit=False, producer_id=7)])
    log = Log((Segment(0, tuple(batches[:1])).indexed(), Segment(1, tuple(batches[1:])).indexed()))
    root = log.write(tmp_path / "logs")
    kafkastore.apply(kafkastore.plan_reindex(root))
    index = root / "t-0" / f"{1:020}.txnindex"
    before = index.read_bytes()
    flip(root / "t-0" / f"{0:020}.log", 64)
    assert not repaired(root)
    assert len(index.read_bytes()) == len(before)
    assert index.read_bytes() != before
    assert not [each for each in findings(root) if each.path == index]
    assert not plan_repair(root, on_corrupt="skip").changes
