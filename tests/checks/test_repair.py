"""Damaged directories repaired in both ways: lost records, kept records, and undo."""

import pytest
from models.log_directory import Log, Segment
from models.record_format import Batch, Row, marker
from models.record_strategies import in_a_row
from models.recovered_directory import files_of
from models.refused import refused
from models.seed import some

import kafkastore
from kafkastore import Severity
from kafkastore.checks.repair import plan_repair
from kafkastore.errors import NotALogDirectoryError
from kafkastore.versions import UnknownVersionError

FROM_0_11 = ["0.11.*", "2.*", "3.*", "4.*"]
THIRTY = in_a_row([Batch((Row(0, 100 + slot, b"k", b"v" * 40),)) for slot in range(30)])
SIZE = len(THIRTY[0].data)


@pytest.fixture
def root(tmp_path):
    """Return a root with three segments of ten records after a clean shutdown."""
    segments = [Segment(base, tuple(THIRTY[base : base + 10])).indexed() for base in (0, 10, 20)]
    return Log(tuple(segments), is_clean=True).write(tmp_path / "logs")


def the_log(root):
    (log,) = kafkastore.open(root)
    return log


def flip_bytes(root, base_offset, position, size=1):
    path = the_log(root).path / f"{base_offset:020}.log"
    data = bytearray(path.read_bytes())
    for at in range(position, position + size):
        data[at] ^= 0x55
    path.write_bytes(data)


def repaired(root, version="2.4", **options):
    """Plan and apply a repair; return the damages and the journal."""
    plan = plan_repair(root, version, **options)
    assert not plan.not_repaired
    return list(plan.removed), kafkastore.apply(plan)


def offsets(root):
    return [record.offset for record in the_log(root).records()]


def findings(root):
    return [each for each in kafkastore.verify(root) if each.severity is not Severity.STYLE]


def all_files(root):
    return {
        path: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in root.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize(
    "options", [{"on_corrupt": "skip"}, {"version": "2.4"}, {"version": "4.1"}]
)
def test_a_healthy_log_is_left_alone(root, options):
    assert not plan_repair(root, **options).changes


@pytest.mark.golden_cases(
    names=["codecs", "transactions", "compacted", "create-time-*", "old-formats"],
    versions=[*FROM_0_11, "0.10.2.2"], answers="answers",
)
def test_directories_of_healthy_brokers_are_left_alone(golden_case):
    assert not plan_repair(golden_case.logs, on_corrupt="skip").changes


@pytest.mark.parametrize("byte", [70, 9, 16])
def test_skip_leaves_out_only_the_corrupt_batch(root, byte):
    before = all_files(root)
    flip_bytes(root, 10, 3 * SIZE + byte)
    damaged = all_files(root)
    damages, journal = repaired(root, on_corrupt="skip")
    (damage,) = damages
    assert (damage.position, damage.size) == (3 * SIZE, SIZE)
    assert (damage.first_offset, damage.end_offset) == (13, 14)
    assert offsets(root) == [*range(13), *range(14, 30)]
    assert [each.base_offset for each in the_log(root).segments] == [0, 10, 14, 20]
    assert not findings(root)
    kafkastore.undo(journal)
    assert all_files(root) == damaged != before


@pytest.mark.parametrize("options", [{"on_corrupt": "skip"}, {"version": "2.4"}])
@pytest.mark.parametrize("byte", [9, 24])  # in its length, in its last offset delta
def test_the_number_of_offsets_missing_after_a_corrupt_last_batch_is_unknown(root, options, byte):
    (root / ".kafka_cleanshutdown").unlink()
    flip_bytes(root, 20, 9 * SIZE + byte)
    (damage,) = plan_repair(root, **options).removed
    assert (damage.position, damage.first_offset, damage.end_offset) == (9 * SIZE, 29, None)


def test_a_broker_removes_all_segments_after_a_corrupt_batch(root):
    (root / ".kafka_cleanshutdown").unlink()
    flip_bytes(root, 0, 70)
    removed = plan_repair(root, "2.4", on_corrupt="truncate").removed
    assert [(each.first_offset, each.end_offset) for each in removed] == [
        (0, 10), (10, 20), (20, 30)
    ]


def test_skip_names_a_segment_after_its_first_readable_offset(root):
    flip_bytes(root, 10, 70)
    repaired(root, on_corrupt="skip")
    assert [each.base_offset for each in the_log(root).segments] == [0, 11, 20]
    assert offsets(root) == [*range(10), *range(11, 30)]
    assert not findings(root)


def test_skip_drops_a_segment_without_readable_batches(root):
    for number in range(10):
        flip_bytes(root, 10, number * SIZE + 16)
    damages, _ = repaired(root, on_corrupt="skip")
    assert offsets(root) == [*range(10), *range(20, 30)]
    assert damages[0].size == 10 * SIZE


def test_skip_finds_batches_after_bytes_of_any_kind(root):
    path = the_log(root).path / f"{10:020}.log"
    data = path.read_bytes()
    path.write_bytes(data[: 2 * SIZE] + b"\xff" * 777 + data[5 * SIZE :])
    damages, _ = repaired(root, on_corrupt="skip")
    assert offsets(root) == [*range(12), *range(15, 30)]
    assert [(each.position, each.size) for each in damages] == [(2 * SIZE, 777)]


def test_repair_like_a_version_truncates_the_log_where_that_broker_would(root):
    flip_bytes(root, 10, 3 * SIZE + 70)
    before = all_files(root)
    predicted = kafkastore.recover_log(the_log(root), "2.4", is_clean=False, recovery_point=0)
    damages, journal = repaired(root, "2.4", on_corrupt="truncate")
    assert offsets(root) == list(range(13))
    assert the_log(root).log_end_offset == predicted.log_end_offset == 13
    assert not findings(root)
    assert sum(damage.size for damage in damages) == 17 * SIZE
    kafkastore.undo(journal)
    assert all_files(root) == before


def test_removed_bytes_of_a_log_are_in_the_undo_area(root):
    flip_bytes(root, 10, 3 * SIZE + 70)
    path = the_log(root).path / f"{10:020}.log"
    data = path.read_bytes()
    _, journal = repaired(root, on_corrupt="skip")
    assert path.read_bytes() == data[: 3 * SIZE]
    kept = journal.area / "kept" / path.relative_to(root)
    assert kept.read_bytes() == data


def test_indexes_that_do_not_match_are_rebuilt_and_others_stay(root):
    log = the_log(root)
    _, second, third = log.segments
    second.time_index_path.write_bytes(second.time_index_path.read_bytes() + bytes(120))
    third.offset_index_path.unlink()
    plan = plan_repair(root, on_corrupt="skip")
    assert {change.path.rpartition("/")[2] for change in plan.changes} == {
        second.time_index_path.name, third.offset_index_path.name
    }
    kafkastore.apply(plan)
    assert not findings(root)


def test_aborted_transactions_stay_aborted_in_split_segments(tmp_path):
    sent = [
        Batch((Row(0, 5, b"k", b"%d" % n),), producer_id=7, producer_epoch=0, base_sequence=n,
              is_transactional=True)
        for n in range(4)
    ]
    abort = marker(0, 9, is_commit=False, producer_id=7)
    log = in_a_row([*sent, abort, *(Batch((Row(0, 6),)) for _ in range(3))])
    root = Log((Segment(0, tuple(log)).indexed(),), is_clean=True).write(tmp_path / "logs")
    sizes = [len(batch.data) for batch in log]
    flip_bytes(root, 0, sum(sizes[:2]) + 30)
    repaired(root, on_corrupt="skip")
    assert [each.base_offset for each in the_log(root).segments] == [0, 3]
    committed = [r.offset for r in the_log(root).records(isolation="read_committed")]
    assert committed == [5, 6, 7]
    (aborted,) = the_log(root).segments[1].transaction_index.entries().tolist()
    assert aborted[:3] == (7, 0, 4)


def test_a_plan_survives_json(root):
    flip_bytes(root, 10, 3 * SIZE + 70)
    plan = plan_repair(root, on_corrupt="skip")
    assert kafkastore.Plan.from_json(plan.to_json()) == plan


def test_a_single_partition_directory_is_repaired_too(root):
    flip_bytes(root, 10, 3 * SIZE + 70)
    path = the_log(root).path
    (path / ".lock").touch()
    kafkastore.apply(plan_repair(path, on_corrupt="skip"))
    assert offsets(path) == [*range(13), *range(14, 30)]


def test_only_chosen_partitions_are_repaired_in_each_form_of_choice(root):
    flip_bytes(root, 10, 3 * SIZE + 70)
    name = the_log(root).path.name
    expected = plan_repair(root, on_corrupt="skip")
    for named in ([name], [the_log(root).topic_partition], {tuple(the_log(root).topic_partition)}):
        assert plan_repair(root, on_corrupt="skip", partitions=named) == expected
    assert not plan_repair(root, on_corrupt="skip", partitions=[]).changes
    with pytest.raises(KeyError, match="nope-0"):
        plan_repair(root, on_corrupt="skip", partitions=["nope-0"])


def test_wrong_arguments_are_refused(root, tmp_path):
    with pytest.raises(UnknownVersionError):
        plan_repair(root, "best")
    with refused("on_corrupt"):
        plan_repair(root, on_corrupt="keep")
    with pytest.raises(NotALogDirectoryError):
        plan_repair(tmp_path / "nowhere")


@pytest.mark.kafka
@pytest.mark.parametrize("version", some(["2.4.0", "3.9.1", "4.3.1"], 2, __name__))
def test_brokers_load_and_serve_the_kept_records(golden, load_into_broker, writable_copy, version):
    logs = writable_copy(golden(version, "broken-index", "answers").logs)
    all_offsets = [record.offset for record in the_log(logs).records()]
    segment = the_log(logs).segments[1]
    with segment.open_log() as log:
        first, broken, *_ = log.batches()
    flip_bytes(logs, segment.base_offset, broken.position + 70)
    repaired(logs, on_corrupt="skip", index_interval_bytes=200)
    lost = set(range(broken.base_offset, broken.last_offset + 1))
    left = offsets(logs)
    assert left == [offset for offset in all_offsets if offset not in lost]
    path = the_log(logs).path
    said = load_into_broker([path], version)
    answers = said.answers["partitions"][path.name]
    assert [row[0] for row in answers["records"]] == left
    assert answers["log_end_offset"] == all_offsets[-1] + 1
    logged = "\n".join(said.answers["broker_log"])
    assert "orrupt" not in logged
    assert "rebuilding index" not in logged
    assert first.last_offset + 1 == broken.base_offset
    indexes = {name: data for name, data in files_of(path).items() if name.endswith("index")}
    after = files_of(said.logs / path.name)
    active = max(indexes)[:20]
    assert all(after[name] == data for name, data in indexes.items() if name[:20] != active)
