"""Old message formats converted, undone, and loaded by brokers that no longer write them."""

import shutil

import pytest
from kafkastore.migration import plan_convert
from models.log_directory import Log, Segment
from models.record_format import Batch, Row
from models.record_strategies import in_a_row
from models.refused import refused
from models.seed import some

import kafkastore
from kafkastore.formats.records.compression import Codec

from .directories import contents, data

OLD = ["0.8.2.2", "0.9.0.1", "0.10.0.1", "0.10.2.2"]
CASES = ["codecs", "upgrade", "create-time-*", "log-append-time", "compacted", "old-formats"]
TEN = [Batch((Row(0, 100 + slot, b"k", b"v" * 40),), magic=1) for slot in range(10)]


def records_of(root):
    return {log.path.name: [what(record) for record in log.records()] for log in open_logs(root)}


def open_logs(root):
    return [log for log in kafkastore.open(root) if not log.topic.startswith("__")]


def what(record):
    return record.offset, record.timestamp, record.key, record.value, record.headers


def magics_of(root):
    return {
        magic for log in open_logs(root) for each in log.segments for magic in each.summary.magics
    }


def write(root, *segments, **fields):
    return Log(tuple(segments), is_clean=True, **fields).write(root / "logs")


@pytest.mark.golden_cases(names=CASES, answers="answers")
def test_records_are_kept_and_all_batches_have_the_new_format(golden_case, writable_copy):
    root = writable_copy(golden_case.logs)
    if magics_of(root) <= {2}:
        assert not plan_convert(root).changes
        return
    before, times = records_of(root), {p: c[1] for p, c in contents(root, "*.log").items()}
    plan = plan_convert(root)
    assert not plan.unconverted
    kafkastore.apply(plan)
    assert magics_of(root) == {2}
    assert records_of(root) == before
    assert {p: c[1] for p, c in contents(root, "*.log").items()} == times
    bad = [f for f in kafkastore.verify(root) if f.severity is not kafkastore.Severity.STYLE]
    assert not bad
    assert not plan_convert(root).changes


@pytest.mark.golden_cases(versions=["0.8.2.2", "0.10.0.1"], names="codecs", answers="answers")
def test_undo_restores_every_file(golden_case, writable_copy):
    root = writable_copy(golden_case.logs)
    before = contents(root)
    journal = kafkastore.apply(plan_convert(root, "zstd"))
    assert contents(root) != before
    kafkastore.undo(journal)
    assert contents(root) == before


@pytest.mark.golden_cases(versions="0.10.0.1", names="codecs", answers="answers")
def test_indexes_are_those_of_a_recovery(golden_case, writable_copy):
    root = writable_copy(golden_case.logs)
    kafkastore.apply(plan_convert(root, index_interval_bytes=200))
    assert not kafkastore.plan_reindex(root, index_interval_bytes=200).changes


def test_a_plan_survives_json(tmp_path):
    root = write(tmp_path, Segment(0, tuple(in_a_row(TEN))).indexed())
    plan = plan_convert(root, Codec.GZIP, untimed="mtime")
    assert kafkastore.Plan.from_json(plan.to_json()) == plan
    assert plan.changes[0].content.codec == "gzip"


def test_epochs_begin_at_the_first_converted_record(tmp_path):
    new = [Batch((Row(0, 5),), leader_epoch=epoch) for epoch in (4, 4, 6)]
    log = in_a_row([*TEN[:3], *new, *TEN[:2]])
    root = write(tmp_path, Segment(0, tuple(log)).indexed())
    (partition,) = kafkastore.open(root)
    (partition.path / "leader-epoch-checkpoint").write_text("0\n2\n4 3\n9 8\n")
    kafkastore.apply(plan_convert(root))
    (partition,) = kafkastore.open(root)
    assert [tuple(each) for each in partition.leader_epochs] == [(0, 0), (4, 3), (6, 5), (9, 8)]
    assert [batch.leader_epoch for batch in partition.batches()] == [0, 4, 4, 6, 6]


def test_every_batch_can_be_given_one_leader_epoch(tmp_path):
    new = [Batch((Row(0, 5), Row(1, 6)), leader_epoch=epoch) for epoch in (4, 4, 6)]
    log = in_a_row([*new, *TEN[:3], *new])
    segments = [Segment(0, tuple(log[:3])).indexed(), Segment(6, tuple(log[3:])).indexed()]
    root = write(tmp_path, *segments)
    (partition,) = kafkastore.open(root)
    (partition.path / "leader-epoch-checkpoint").write_text("0\n3\n4 0\n6 4\n9 15\n")
    before, files = records_of(root), contents(root)
    indexes = data(partition.path, f"{0:020}.*index")
    plan = plan_convert(root, leader_epoch=0)
    assert kafkastore.Plan.from_json(plan.to_json()) == plan
    journal = kafkastore.apply(plan)
    (partition,) = kafkastore.open(root)
    assert {batch.leader_epoch for batch in partition.batches()} == {0}
    assert [tuple(each) for each in partition.leader_epochs] == [(0, 0)]
    assert records_of(root) == before
    assert data(partition.path, f"{0:020}.*index") == indexes
    assert not [f for f in kafkastore.verify(root) if f.severity is not kafkastore.Severity.STYLE]
    assert not plan_convert(root, leader_epoch=0).changes
    kafkastore.undo(journal)
    assert contents(root) == files


def test_a_corrupt_segment_is_skipped_and_reported(tmp_path):
    first, second = in_a_row(TEN)[:5], in_a_row(TEN)[5:]
    root = write(tmp_path, Segment(0, tuple(first)).indexed(), Segment(5, tuple(second)).indexed())
    (partition,) = kafkastore.open(root)
    path = partition.segments[0].log_path
    damaged = bytearray(path.read_bytes())
    damaged[30] ^= 1
    path.write_bytes(damaged)
    plan = plan_convert(root)
    unconverted = plan.unconverted
    assert [each.path for each in unconverted] == [f"{partition.path.name}/{0:020}.log"]
    assert {change.path.rpartition("/")[2][:20] for change in plan.changes} == {
        f"{5:020}", "leader-epoch-checkpo"
    }
    other_epoch = plan_convert(root, leader_epoch=3)
    assert not other_epoch.changes
    assert [each.path for each in other_epoch.unconverted] == [
        f"{partition.path.name}/{base:020}.log" for base in (0, 5)
    ]
    assert all(each.reason for each in (*unconverted, *other_epoch.unconverted))


def test_a_segment_with_an_index_that_can_t_be_replaced_is_skipped_whole(tmp_path):
    new = [Batch((Row(0, 5),), leader_epoch=epoch) for epoch in (4, 4, 6)]
    log = in_a_row([*TEN[:3], *new, *TEN])
    first, second = log[:6], log[6:]
    root = write(tmp_path, Segment(0, tuple(first)).indexed(), Segment(6, tuple(second)).indexed())
    (partition,) = kafkastore.open(root)
    index = partition.segments[0].offset_index_path
    index.rename(tmp_path / "index")
    index.symlink_to(tmp_path / "index")
    before, records = contents(partition.path, f"{0:020}.*"), records_of(root)
    plan = plan_convert(root)
    assert [each.path for each in plan.unconverted] == [f"{partition.path.name}/{0:020}.log"]
    assert not [each.path for each in plan.changes if f"{0:020}" in each.path]
    kafkastore.apply(plan)
    assert contents(partition.path, f"{0:020}.*") == before
    assert records_of(root) == records
    (partition,) = kafkastore.open(root)
    assert [tuple(each) for each in partition.leader_epochs] == [(0, 6)]


def test_only_chosen_partitions_are_converted(tmp_path):
    root = write(tmp_path, Segment(0, tuple(in_a_row(TEN))).indexed())
    (partition,) = kafkastore.open(root)
    other = root / "other-0"
    shutil.copytree(partition.path, other)
    plan = plan_convert(root, partitions=[kafkastore.TopicPartition("other", 0)])
    assert {change.path.partition("/")[0] for change in plan.changes} == {"other-0"}
    assert plan_convert(root, partitions=["other-0"]) == plan
    with pytest.raises(KeyError, match="nope-0"):
        plan_convert(root, partitions=["nope-0"])
    assert plan_convert(other).changes[0].path == f"{0:020}.log"


def test_wrong_arguments_are_refused(tmp_path):
    root = write(tmp_path, Segment(0, tuple(in_a_row(TEN))).indexed())
    with refused("codec"):
        plan_convert(root, "brotli")
    with refused("untimed"):
        plan_convert(root, untimed="now")
    with refused("leader_epoch"):
        plan_convert(root, leader_epoch=-1)


@pytest.mark.kafka
@pytest.mark.parametrize("version", some(["3.9.1", "4.3.1"], 1, "brokers of what was converted"))
def test_new_brokers_load_converted_logs_and_serve_every_record(
    golden, load_into_broker, tmp_path, version
):
    root = tmp_path / "converted" / "logs"
    root.mkdir(parents=True)
    (root / ".kafka_cleanshutdown").touch()
    original = {}
    for old in OLD:
        for case in ("codecs", "log-append-time" if old.startswith("0.10") else "upgrade"):
            found = golden(old, case, "answers")
            for log in open_logs(found.logs):
                if not log.log_end_offset:
                    continue
                name = f"from.{old}.{case}.{len(original)}-0"
                shutil.copytree(log.path, root / name)
                original[name] = found.answers["partitions"][log.path.name]["records"]
    kafkastore.apply(plan_convert(root, index_interval_bytes=200))
    assert magics_of(root) == {2}
    said = load_into_broker(sorted(root.glob("from.*")), version)
    assert len(original) > 10
    for name, records in original.items():
        served = said.answers["partitions"][name]["records"]
        assert [(o, t, k, v) for o, t, _, k, v, *_ in served] == [
            (o, t, k, v) for o, t, _, k, v, *_ in records
        ], name
        inactive = sorted(data(root / name, "*.timeindex"))[:-1]
        left = data(said.logs / name, "*.timeindex")
        assert {each: left[each] for each in inactive} == {
            each: data(root / name, "*.timeindex")[each] for each in inactive
        }
    logged = "\n".join(said.answers["broker_log"])
    assert "orrupt" not in logged
    assert "ecovering segment and rebuilding" not in logged
