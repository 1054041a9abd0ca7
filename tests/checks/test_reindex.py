"""Plans that rebuild indexes: what they change, what they leave alone, and the resulting files."""

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.log_directory import Log, Segment
from models.record_format import Batch, Row, with_right_crc
from models.record_strategies import bounded, in_a_row, logs
from models.recovered_directory import ENTRY_SIZES, files_of

import kafkastore
from kafkastore.changes.plan import Plan, Rebuilt
from kafkastore.checks.reindex import plan_reindex
from kafkastore.errors import InvalidConfigError, KafkaStoreError, NotALogDirectoryError
from kafkastore.versions import UnknownVersionError

INDEXES = (".index", ".timeindex", ".txnindex")
FROM_0_11 = ["0.11.*", "2.*", "3.*", "4.*"]
THIRTY = in_a_row([Batch((Row(0, 100 + slot, b"k", b"v" * 40),)) for slot in range(30)])
SIZE = len(THIRTY[0].data)


def indexes_of(root):
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*")) if path.suffix in INDEXES
    }


def reindexed(root, **options):
    """Plan, and apply if there is anything to change; return the plan and what was not indexed."""
    plan = plan_reindex(root, **options)
    if plan.changes:
        kafkastore.apply(plan)
    return plan, list(plan.unindexed)


def written(tmp_path, *segments):
    return Log(tuple(segments), is_clean=True).write(tmp_path / "logs")


def torn(offset):
    return THIRTY[0].with_offset(offset).data[:40]


def thirty(interval=200):
    return [
        Segment(base, tuple(THIRTY[base : base + 10])).recovered(interval) for base in (0, 10, 20)
    ]


@bounded(300)
@given(logs(), st.randoms(use_true_random=False))
def test_offsets_are_refused_if_and_only_if_another_read_of_the_log_refuses_them(log, source):
    with tempfile.TemporaryDirectory() as directory:
        root = log.write(Path(directory) / "logs")
        for segment in log.segments:
            (path,) = root.glob(f"t-0/{segment.base_offset:020}.log")
            parts = [bytearray(batch.data) for batch in segment.batches]
            if parts and source.random() < 0.7:
                part = source.choice(parts)
                # The lowest byte of the offset; of magic 2, also that of the last offset's delta.
                part[source.choice((7, 7, 26)) if part[16] == 2 else 7] ^= source.randrange(8)
                path.write_bytes(b"".join(with_right_crc(bytes(each)) for each in parts))
        (log,) = kafkastore.open(root)
        plan = plan_reindex(root)
        for segment in log.segments:
            try:
                rebuilt = segment.rebuilt_indexes()
            except KafkaStoreError:
                continue
            if rebuilt.reason is None and rebuilt.valid_bytes == segment.log_path.stat().st_size:
                name = f"t-0/{segment.log_path.name}"
                refused = [each for each in plan.unindexed if each.path == name]
                assert bool(refused) == (segment.summary.error is not None)


@pytest.mark.golden_cases(
    names=["crash*", "preallocate-killed"], versions=FROM_0_11, answers="answers-recovered"
)
def test_the_files_are_those_of_the_recovering_broker(golden_case, writable_copy):
    root = writable_copy(golden_case.root / "logs")
    (log,) = kafkastore.open(root)
    interval = int(golden_case.answers["topic_config"][log.topic]["index.interval.bytes"])
    logs = {path.name: path.read_bytes() for path in log.path.glob("*.log")}
    is_broken = golden_case.name == "crash-bad-crc"
    options = {"version": golden_case.version, "index_interval_bytes": interval}
    _, unindexed = reindexed(root, up_to_damage=is_broken, **options)
    assert indexes_of(root) == indexes_of(golden_case.logs)
    assert {path.name: path.read_bytes() for path in log.path.glob("*.log")} == logs
    if golden_case.name == "crash":
        assert not unindexed
    else:
        (found,) = unindexed
        assert found.valid_bytes == (golden_case.logs / found.path).stat().st_size
        assert found.size == (root / found.path).stat().st_size
    assert not plan_reindex(root, **options).changes


@pytest.mark.golden_cases(names="transactions", versions=FROM_0_11, answers="answers")
def test_transaction_indexes_are_rebuilt_over_all_segments(golden_case, writable_copy):
    root = writable_copy(golden_case.logs)
    before = {name: data for name, data in indexes_of(root).items() if name.endswith(".txnindex")}
    assert any(before.values())
    for name in before:
        (root / name).unlink()
    plan, _ = reindexed(root, version=golden_case.version)
    after = indexes_of(root)
    for name, data in before.items():
        assert after.get(name, b"") == data
    made = [change for change in plan.changes if change.path.endswith(".txnindex")]
    assert all(change.before is None for change in made)


def test_only_files_that_differ_are_in_the_plan(tmp_path):
    root = written(tmp_path, *thirty())
    assert not plan_reindex(root, index_interval_bytes=200).changes
    (root / "t-0" / f"{10:020}.timeindex").unlink()
    os.truncate(root / "t-0" / f"{20:020}.index", 9)
    plan = plan_reindex(root, index_interval_bytes=200)
    assert [(change.path, change.before is None) for change in plan.changes] == [
        (f"t-0/{10:020}.timeindex", True), (f"t-0/{20:020}.index", False),
    ]
    assert Plan.from_json(plan.to_json()) == plan


def test_every_file_can_be_restored(tmp_path):
    root = written(tmp_path, *thirty())
    (root / "t-0" / f"{0:020}.index").write_bytes(b"nonsense")
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in root.rglob("*.*index")}
    plan = plan_reindex(root, index_interval_bytes=100)
    journal = kafkastore.apply(plan)
    after = indexes_of(root)
    wanted = thirty(100)
    assert [after[f"t-0/{segment.base_offset:020}.index"] for segment in wanted] == [
        segment.offset_index for segment in wanted
    ]
    kafkastore.undo(journal)
    assert before == {
        path: (path.read_bytes(), path.stat().st_mtime_ns) for path in root.rglob("*.*index")
    }


def test_replaced_files_keep_their_times_and_new_files_get_those_of_their_logs(tmp_path):
    root = written(tmp_path, *thirty())
    replaced, made = (root / "t-0" / f"{0:020}{suffix}" for suffix in (".index", ".timeindex"))
    replaced.write_bytes(b"")
    os.utime(replaced, ns=(1, 1_500_000_000_123_456_789))
    made.unlink()
    reindexed(root, index_interval_bytes=200)
    assert replaced.stat().st_mtime_ns == 1_500_000_000_123_456_789
    assert made.stat().st_mtime_ns == made.with_suffix(".log").stat().st_mtime_ns


def damaged(segment, byte):
    """Return the same log with one bit of its sixth batch flipped."""
    data = bytearray(segment.log)
    data[5 * SIZE + byte] ^= 1
    return replace(segment, batches=(), tail=bytes(data), offset_index=b"", time_index=b"")


def test_a_log_that_is_corrupt_in_the_middle_is_left_alone_without_the_option(tmp_path):
    valid = thirty()
    root = written(tmp_path, valid[0], damaged(valid[1], 60), valid[2])
    plan, (found,) = reindexed(root, index_interval_bytes=200)
    assert not plan.changes
    assert found.path == f"t-0/{10:020}.log"
    assert (found.valid_bytes, found.size, found.is_indexed) == (5 * SIZE, 10 * SIZE, False)
    assert found.reason
    plan, (found,) = reindexed(root, index_interval_bytes=200, up_to_damage=True)
    assert found.is_indexed
    assert len(plan.changes) == 2
    half = Segment(10, tuple(THIRTY[10:15])).recovered(200)
    assert (root / "t-0" / f"{10:020}.index").read_bytes() == half.offset_index
    assert (root / "t-0" / f"{10:020}.timeindex").read_bytes() == half.time_index


@pytest.mark.parametrize(("slot", "is_indexed"), [(1, False), (2, True)])
def test_a_torn_batch_is_damage_where_another_segment_follows(tmp_path, slot, is_indexed):
    segments = thirty()
    segments[slot] = replace(segments[slot], tail=torn(10 * (slot + 1)))
    root = written(tmp_path, *segments)
    plan, (found,) = reindexed(root, index_interval_bytes=200)
    assert not plan.changes
    assert (found.valid_bytes, found.is_indexed) == (10 * SIZE, is_indexed)
    assert found.reason


@pytest.mark.parametrize(
    "batches", [(THIRTY[0], THIRTY[1].with_offset(2**31)), (*THIRTY[5:8], *THIRTY[5:8])]
)
def test_a_log_that_cannot_be_indexed_is_left_alone(tmp_path, batches):
    root = written(tmp_path, Segment(0, tuple(batches)))
    plan, (found,) = reindexed(root, index_interval_bytes=100, up_to_damage=True)
    assert not plan.changes
    assert not found.is_indexed


@pytest.mark.parametrize(
    ("number", "slot", "offset"), [(0, 9, 12), (1, 5, 3), (1, 5, 14), (2, 9, 4)]
)
def test_a_log_whose_offsets_do_not_rise_within_its_segment_is_left_alone(
    tmp_path, number, slot, offset
):
    segments = thirty()
    batches = list(segments[number].batches)
    batches[slot] = replace(batches[slot], first_offset=offset, last_offset_kept=offset)
    segments[number] = replace(segments[number], batches=tuple(batches))
    plan, (left,) = reindexed(written(tmp_path, *segments), index_interval_bytes=200)
    assert plan.changes == ()
    assert left.path == f"t-0/{segments[number].base_offset:020}.log"
    assert not left.is_indexed


def test_a_length_that_leads_beyond_the_end_is_not_a_torn_batch(tmp_path):
    root = written(tmp_path, *thirty())
    path = root / "t-0" / f"{20:020}.log"
    data = bytearray(path.read_bytes())
    data[5 * SIZE + 9] ^= 1
    path.write_bytes(data)
    plan, (left,) = reindexed(root, index_interval_bytes=200)
    assert plan.changes == ()
    assert (left.valid_bytes, left.is_indexed) == (5 * SIZE, False)


def test_after_a_log_left_alone_transactions_are_unknown(golden, writable_copy):
    root = writable_copy(golden("2.4.0", "transactions", "answers").logs)
    log = kafkastore.open(root)["txn", 0]
    first = log.segments[0].log_path
    data = bytearray(first.read_bytes())
    data[-1] ^= 1
    first.write_bytes(data)
    for path in log.path.glob("*.txnindex"):
        path.write_bytes(b"")
    changed = {change.path for change in plan_reindex(root).changes if "txn-0" in change.path}
    assert not any(path.endswith(".txnindex") for path in changed)
    assert any(path.endswith(".index") for path in changed)


def test_old_versions_have_first_offsets_in_the_offset_index(tmp_path):
    two_a_batch = in_a_row([Batch((Row(0, 5), Row(1, 6))) for _ in range(20)])
    root = written(tmp_path, Segment(0, tuple(two_a_batch), offset_index=None))
    plan, _ = reindexed(root, version="1.1", index_interval_bytes=100)
    of_old = (root / "t-0" / f"{0:020}.index").read_bytes()
    reindexed(root, version="2.0", index_interval_bytes=100)
    of_new = (root / "t-0" / f"{0:020}.index").read_bytes()
    assert int.from_bytes(of_old[:4], "big") + 1 == int.from_bytes(of_new[:4], "big")
    assert {change.content for change in plan.changes} == {Rebuilt(100, has_first_offsets=True)}


def test_a_partition_directory_and_single_partitions_can_be_chosen(tmp_path):
    root = written(tmp_path, *(replace(segment, time_index=None) for segment in thirty()))
    plan = plan_reindex(root / "t-0", index_interval_bytes=200)
    assert [change.path for change in plan.changes] == [
        f"{base:020}.timeindex" for base in (0, 10, 20)
    ]
    assert not plan_reindex(root, partitions=[]).changes


def test_any_number_of_threads_makes_the_same_plan(golden):
    root = golden("2.4.0", "transactions", "answers").logs
    seen = []
    plans = [
        plan_reindex(root, threads=count, progress=lambda *counts: seen.append(counts))
        for count in (1, 2, 7)
    ]
    assert plans[0] == plans[1] == plans[2]
    assert plans[0].changes
    total = sum(len(log.segments) for log in kafkastore.open(root))
    assert seen == [(done, total) for done in range(1, total + 1)] * 3


def test_a_log_that_grows_while_it_is_read_is_left_alone(tmp_path, monkeypatch):
    root = written(tmp_path, *thirty())
    real = kafkastore.checks.reindex.rebuild_indexes

    def append_meanwhile(path, *arguments, **options):
        rebuilt = real(path, *arguments, **options)
        with open(path, "ab") as file:
            file.write(b"more")
        return rebuilt

    monkeypatch.setattr("kafkastore.checks.reindex.rebuild_indexes", append_meanwhile)
    plan, unindexed = reindexed(root, index_interval_bytes=100)
    assert not plan.changes
    logs = {f"t-0/{path.name}": path.stat().st_size for path in (root / "t-0").glob("*.log")}
    assert {each.path: each.size for each in unindexed} == logs
    assert {(each.valid_bytes, each.is_indexed) for each in unindexed} == {(0, False)}


@pytest.mark.parametrize("interval", [-1, 1 << 31, 1 << 70, 1.5, "200", None])
def test_an_interval_out_of_kafka_s_range_is_refused(tmp_path, interval):
    root = written(tmp_path, *thirty())
    with pytest.raises(InvalidConfigError):
        plan_reindex(root, index_interval_bytes=interval)


@pytest.mark.parametrize("version", [2.4, None, 2])
def test_the_version_must_be_text(tmp_path, version):
    root = written(tmp_path, *thirty())
    with pytest.raises(UnknownVersionError):
        plan_reindex(root, version)


def test_wrong_arguments_are_refused(tmp_path):
    with pytest.raises(NotALogDirectoryError):
        plan_reindex(tmp_path / "none")
    with pytest.raises(UnknownVersionError):
        plan_reindex(written(tmp_path, *thirty()), version="new")


def test_only_complete_entries_are_written(tmp_path):
    root = written(tmp_path, *(replace(each, offset_index=b"123") for each in thirty()))
    reindexed(root)
    for name, data in files_of(root / "t-0").items():
        assert len(data) % ENTRY_SIZES.get(name[20:], 1) == 0


@pytest.mark.parametrize("version", ["0.8.2.2", "0.9", "0.10.0"])
def test_versions_without_time_indexes_write_none_and_leave_existing_ones(tmp_path, version):
    root = written(tmp_path, *thirty())
    for base in (0, 10, 20):
        (root / "t-0" / f"{base:020}.index").unlink()
    (root / "t-0" / f"{10:020}.timeindex").unlink()
    (root / "t-0" / f"{20:020}.timeindex").write_bytes(bytes(24))
    plan = plan_reindex(root, version)
    assert [change.path for change in plan.changes] == [
        f"t-0/{base:020}.index" for base in (0, 10, 20)
    ]


def test_zeros_after_the_entries_of_an_index_are_trimmed(tmp_path):
    root = written(tmp_path, *thirty())
    paths = [*(root / "t-0").glob("*index")]
    before = {path: path.read_bytes() for path in paths}
    for path in paths:
        path.write_bytes(before[path] + bytes(240))
    reindexed(root, index_interval_bytes=200)
    assert before == {path: path.read_bytes() for path in paths}
