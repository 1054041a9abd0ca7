"""Logs repaired as a broker's recovery would: the files are those of the prediction."""

import os

import pytest
from models.log_directory import Log, Segment
from models.record_format import Batch, Row
from models.record_strategies import in_a_row
from models.recovered_directory import files_after, files_of, indexes_and_logs

import kafkastore
from kafkastore.checks.broker_repair import LogDeletedError, NoRecoveryError
from kafkastore.checks.repair import plan_repair
from kafkastore.errors import CorruptCheckpointError
from kafkastore.recovery.log_recovery import recover_log

INTERVAL = 200
VERSIONS = ["1.1", "2.4", "3.9", "4.1"]
FORTY = in_a_row([Batch((Row(0, 100 + slot, b"k", b"v" * 40),)) for slot in range(40)])
SIZE = len(FORTY[0].data)


def segments(*bases):
    ends = [*bases[1:], 40]
    return [
        Segment(base, tuple(FORTY[base:end])).recovered(INTERVAL)
        for base, end in zip(bases, ends, strict=True)
    ]


@pytest.fixture
def directory(tmp_path):
    """Return a partition of four segments of ten records, whose broker was killed."""
    return Log(tuple(segments(0, 10, 20, 30))).write(tmp_path / "logs") / "t-0"


def repaired(directory, version):
    """Repair, compare with the prediction, and return the files and the damages."""
    (log,) = kafkastore.open(directory.parent)
    recovered = recover_log(
        log, version, index_interval_bytes=INTERVAL, is_clean=False, recovery_point=0
    )
    expected = indexes_and_logs(files_after(recovered))
    before = {path.name: (data, (directory / path.name).stat().st_mtime_ns)
              for path in directory.iterdir() for data in [path.read_bytes()]}
    options = {"index_interval_bytes": INTERVAL, "on_corrupt": "truncate"}
    plan = plan_repair(directory.parent, version, **options)
    assert not plan.not_repaired
    journal = kafkastore.apply(plan)
    after = files_of(directory)
    assert {name: data for name, data in indexes_and_logs(after).items() if data} == {
        name: data for name, data in expected.items() if data
    }
    assert not plan_repair(directory.parent, version, **options).changes
    kafkastore.undo(journal)
    assert before == {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.iterdir()
    }
    return after, list(plan.removed)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("torn", [1, SIZE // 2, SIZE - 12])
def test_a_torn_batch_at_the_end_is_truncated(directory, version, torn):
    os.truncate(directory / f"{30:020}.log", 10 * SIZE - torn)
    after, (damage,) = repaired(directory, version)
    assert len(after[f"{30:020}.log"]) == 9 * SIZE
    assert (damage.position, damage.size) == (9 * SIZE, SIZE - torn)


@pytest.mark.parametrize("version", ["2.4", "4.1"])
def test_a_swap_file_replaces_its_segments(directory, version):
    (swap,) = (Segment(10, tuple(FORTY[10:30:2])).recovered(INTERVAL),)
    swap.write(directory)
    for suffix in (".log", ".index", ".timeindex"):
        (directory / f"{10:020}{suffix}").rename(directory / f"{10:020}{suffix}.swap")
    segments(0, 10, 20, 30)[1].write(directory)
    after, damages = repaired(directory, version)
    assert after[f"{10:020}.log"] == swap.log
    assert not [name for name in after if name.endswith(".swap")]
    assert f"{20:020}.log" not in after
    assert not damages


@pytest.mark.parametrize("version", ["2.4", "4.1"])
def test_a_swap_file_is_truncated_at_its_corrupt_last_batch(directory, version):
    for suffix in (".log", ".index", ".timeindex"):
        (directory / f"{10:020}{suffix}").rename(directory / f"{10:020}{suffix}.swap")
    path = directory / f"{10:020}.log.swap"
    data = bytearray(path.read_bytes())
    data[4 * SIZE + 70] ^= 1
    path.write_bytes(data)
    after, damages = repaired(directory, version)
    assert len(after[f"{10:020}.log"]) == 4 * SIZE
    assert damages


@pytest.mark.parametrize("version", ["2.4", "4.1"])
def test_a_segment_whose_offsets_do_not_fit_is_split(tmp_path, version):
    far = [batch.with_offset(2**31 + 1 + slot) for slot, batch in enumerate(FORTY[20:30])]
    root = Log((Segment(0, (*FORTY[:20], *far)),)).write(tmp_path / "logs")
    after, damages = repaired(root / "t-0", version)
    assert len(after[f"{0:020}.log"]) == 20 * SIZE
    assert len(after[f"{2**31 + 1:020}.log"]) == 10 * SIZE
    assert not damages


def test_a_log_that_a_broker_would_delete_completely_is_left_alone(tmp_path):
    root = Log(tuple(segments(0, 10)), checkpointed_start=100).write(tmp_path / "logs")
    os.truncate(root / "t-0" / f"{10:020}.log", 30 * SIZE - 5)
    plan = plan_repair(root, "2.4", on_corrupt="truncate")
    assert not [change for change in plan.changes if change.path.endswith(".log")]
    assert isinstance(plan.not_repaired[0].error, LogDeletedError)
    of_older = plan_repair(root, "2.2", on_corrupt="truncate")
    (cut,) = (each for each in of_older.changes if each.path.endswith(".log"))
    assert cut.after.size == 29 * SIZE


def test_a_log_on_which_a_broker_fails_is_reported_and_not_changed(directory):
    os.truncate(directory / f"{10:020}.log", 10 * SIZE - 9)
    (directory / "leader-epoch-checkpoint").write_text("0\n1\nx y\n")
    plan = plan_repair(directory.parent, "2.4", on_corrupt="truncate")
    paths = {change.path for change in plan.changes}
    assert "t-0/leader-epoch-checkpoint" in paths
    assert not [path for path in paths if path.endswith(".log")]
    (alone,) = plan.not_repaired
    assert isinstance(alone.error, NoRecoveryError)
    assert isinstance(alone.error.__cause__, CorruptCheckpointError)
    kafkastore.apply(plan)
    repaired(directory, "2.4")


@pytest.mark.golden_cases(
    names=["crash*"], versions=["2.*", "3.*", "4.*"], answers="answers-recovered"
)
def test_logs_end_where_the_real_broker_truncated_them(golden_case, writable_copy):
    root = writable_copy(golden_case.root / "logs")
    options = {"index_interval_bytes": 200, "on_corrupt": "truncate"}
    kafkastore.apply(plan_repair(root, golden_case.version, **options))
    for log in kafkastore.open(root):
        recovered = files_of(golden_case.logs / log.path.name)
        logs = {name: data for name, data in files_of(log.path).items() if name.endswith(".log")}
        kept = {name: data for name, data in recovered.items() if name.endswith(".log")}
        assert logs == kept


def test_a_missing_index_of_a_removed_segment_is_not_built(directory):
    os.truncate(directory / f"{10:020}.log", 10 * SIZE - 9)
    (directory / f"{20:020}.timeindex").unlink()
    after, _ = repaired(directory, "2.4")
    assert f"{20:020}.timeindex" not in after


@pytest.mark.parametrize("version", ["2.4", "4.1"])
def test_a_swap_file_after_a_truncation_is_removed_and_reported(directory, version):
    path = directory / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[4 * SIZE + 70] ^= 1
    path.write_bytes(data)
    for suffix in (".log", ".index", ".timeindex"):
        (directory / f"{20:020}{suffix}").rename(directory / f"{20:020}{suffix}.swap")
    after, damages = repaired(directory, version)
    # If it stayed, the broker's next start would load it after a gap.
    assert not [name for name in after if name.endswith(".swap")]
    assert f"t-0/{20:020}.log.swap" in {damage.path for damage in damages}


def test_a_log_that_would_end_below_its_start_is_left_alone(tmp_path):
    root = Log(tuple(segments(0, 10, 20)), checkpointed_start=25).write(tmp_path / "logs")
    path = root / "t-0" / f"{10:020}.log"
    path.write_bytes(path.read_bytes()[:-5])
    plan = plan_repair(root, "2.4", on_corrupt="truncate")
    assert not plan.changes
    assert isinstance(plan.not_repaired[0].error, LogDeletedError)


@pytest.mark.parametrize("last", [slice(30), slice(20)], ids=["cut", "lost"])
def test_a_log_that_ends_below_its_start_is_reported_also_where_batches_are_skipped(tmp_path, last):
    root = Log(tuple(segments(0, 10, 20)), checkpointed_start=25).write(tmp_path / "logs")
    path = root / "t-0" / f"{20:020}.log"
    if last.stop == 20:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: 3 * SIZE - 5] + b"x" * SIZE)
    plan = plan_repair(root, "2.4", on_corrupt="skip")
    (left,) = plan.not_repaired
    assert isinstance(left.error, LogDeletedError)
    assert (left.path, left.is_partition) == (root / "log-start-offset-checkpoint", False)
    assert not plan_repair(root, "2.2", on_corrupt="skip").not_repaired


@pytest.mark.parametrize("version", VERSIONS)
def test_a_partition_without_any_log_needs_no_repair(tmp_path, version):
    directory = tmp_path / "logs" / "t-0"
    directory.mkdir(parents=True)
    (directory / f"{0:020}.log.deleted").write_bytes(FORTY[0].data)
    (directory / "leader-epoch-checkpoint").write_bytes(b"0\n0\n")
    assert not plan_repair(directory.parent, version, on_corrupt="truncate").changes
