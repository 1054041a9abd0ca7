"""Predictions of a broker's start, compared with the files and logs of real brokers."""

import re
import struct
from functools import partial
from pathlib import Path

import pytest
from models.garbage import GARBAGE
from models.log_directory import Log, Segment
from models.no_regular_file import KINDS
from models.record_format import Batch, Row
from models.record_strategies import in_a_row
from models.recovered_directory import files_after, files_of, indexes_and_logs
from models.refused import refused

import kafkastore
from kafkastore.checks.findings import FindingKind, Severity
from kafkastore.checks.predict import Outcome, changed_files
from kafkastore.checks.reindex import plan_reindex
from kafkastore.checks.repair import plan_repair
from kafkastore.errors import (
    ArgumentTypeError,
    CorruptCheckpointError,
    CorruptIndexError,
    DuplicatePartitionError,
    NotAFileError,
    NotALogDirectoryError,
)
from kafkastore.jobs.predict import predict_start
from kafkastore.jobs.verify import verify
from kafkastore.recovery.log_recovery import recover_log
from kafkastore.versions import UnknownVersionError

FROM_0_11 = ["0.11.*", "2.*", "3.*", "4.*"]
FROM_0_10_2 = ["0.10.2.*", *FROM_0_11]
STARTED = ["crash*", "preallocate-killed", "broken-index-*", "wide"]
THIRTY = in_a_row([Batch((Row(0, 100 + slot, b"k", b"v" * 40),)) for slot in range(30)])
SIZE = len(THIRTY[0].data)
TORN = THIRTY[0].with_offset(30).data[:-1]

RECOVERS = re.compile(r"partition=(\S+?), .*Recovering unflushed segment (\d+)")
WANTS_INDEX = re.compile(r"Could not find offset index file .*/(\S+)/(\d+)\.log, recovering")
TRUNCATES = re.compile(r"Corruption found in segment (\d+), truncating to offset (\d+)")
LOADED = re.compile(
    r"partition=(\S+?), .*Completed load of log with (\d+) segments, "
    r"log start offset (\d+) and log end offset (\d+)"
    r"|Completed load of log (\S+) with (\d+) log segments, "
    r"log start offset (\d+) and log end offset (\d+)"
    r"|Completed load of Log\(dir=\S+/(\S+), topicId=.*logStartOffset=(\d+), "
    r"logEndOffset=(\d+)\) with (\d+) segments"
)


def predictions(case, root=None, **options):
    interval = {
        int(config["index.interval.bytes"])
        for config in case.answers["topic_config"].values() if "index.interval.bytes" in config
    }
    interval = interval.pop() if len(interval) == 1 else 4096
    return list(
        predict_start(
            root or case.root / "logs", case.version, index_interval_bytes=interval, **options
        )
    )


def of_partitions(found):
    return {each.path.name: each for each in found if each.recovered is not None}


@pytest.mark.golden_cases(names=STARTED, versions=FROM_0_10_2, answers="answers-recovered")
def test_the_broker_loaded_and_left_the_predicted_files(golden_case):
    found = predictions(golden_case)
    assert not any(each.outcome is Outcome.STOPS_THE_START for each in found)
    for name, each in of_partitions(found).items():
        if golden_case.name == "wide" and name not in golden_case.answers["partitions"]:
            continue
        left = files_of(golden_case.logs / name)
        kept = {name: data for name, data in left.items() if not name.endswith(".deleted")}
        options = {"whole_entries": True}
        if golden_case.name != "wide":    # whose topics differ in index.interval.bytes
            predicted = files_after(each.recovered)
            assert indexes_and_logs(predicted, **options) == indexes_and_logs(kept, **options)
        before = files_of(each.path)
        logs = {name for name in before if name.endswith(".log")}
        cut_or_gone = sum(len(before[name]) - len(kept.get(name, b"")) for name in logs)
        if each.outcome is Outcome.LOSES_RECORDS:
            assert each.lost_bytes == cut_or_gone
        if each.outcome is Outcome.IS_LOADED:
            assert cut_or_gone == 0
            assert not changed_files(each.recovered)


@pytest.mark.golden_cases(names=STARTED[:-1], versions=FROM_0_11, answers="answers-recovered")
def test_the_broker_s_log_reports_the_predicted_recovery(golden_case):
    found = of_partitions(predictions(golden_case))
    compared = 0
    for line in golden_case.answers["broker_log"]:
        if "__cluster_metadata" in line:
            continue
        if match := RECOVERS.search(line):
            each = found[match[1]]
            recovered = {s.base_offset for s in each.recovered.segments if s.is_recovered}
            assert int(match[2]) in recovered
            assert each.recovered_from is not None
        elif match := WANTS_INDEX.search(line):
            each = found[match[1]]
            assert int(match[2]) in {s.base_offset for s in each.recovered.segments}
            assert f"{match[2]}.index" not in files_of(each.path)
        elif match := TRUNCATES.search(line):
            (each,) = found.values()
            cut = {s.base_offset: s.next_offset for s in each.recovered.segments if s.cut_bytes}
            assert cut == {int(match[1]): int(match[2])}
        elif match := LOADED.search(line):
            name, segments, start, end = (
                match.group(1, 2, 3, 4) if match[1]
                else match.group(5, 6, 7, 8) if match[5]
                else match.group(9, 12, 10, 11)
            )
            recovered = found[name].recovered
            assert len(recovered.segments) == int(segments)
            assert recovered.log_start_offset == int(start)
            assert recovered.log_end_offset == int(end)
        else:
            continue
        compared += 1
    assert compared > 0


@pytest.mark.golden_cases(
    names=["codecs", "transactions", "broken-index"], versions=FROM_0_11, answers="answers"
)
def test_a_directory_is_loaded_unchanged_after_a_clean_shutdown(golden_case):
    outcomes = {each.outcome for each in predictions(golden_case, golden_case.logs)}
    assert outcomes <= {Outcome.IS_LOADED, Outcome.IS_CHANGED}
    for each in predictions(golden_case, golden_case.logs):
        allowed = ("leader-epoch-checkpoint", ".snapshot")
        assert all(name.endswith(allowed) for name in changed_files(each.recovered))


def three_segments(**fields):
    segments = [
        Segment(base, tuple(THIRTY[base : base + 10])).recovered(200) for base in (0, 10, 20)
    ]
    return Log(tuple(segments), **fields)


@pytest.fixture
def written(tmp_path):
    """Return a function that writes three segments of ten records and returns the root."""

    def write(**fields):
        return three_segments(**fields).write(tmp_path / "logs")

    return write


def flip(root, base_offset, position):
    (log,) = kafkastore.open(root)
    path = log.path / f"{base_offset:020}.log"
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    return log.path


def test_a_corrupt_batch_costs_the_rest_of_its_segment_and_all_later_segments(written):
    root = written()
    flip(root, 10, 3 * SIZE + 70)
    (found,) = predict_start(root, "2.4", index_interval_bytes=200)
    assert found.outcome is Outcome.LOSES_RECORDS
    assert (found.lost_bytes, found.lost_offsets) == (17 * SIZE, 17)
    assert found.recovered.log_end_offset == 13
    assert found.recovered.cut == {f"{10:020}.log": 3 * SIZE}
    assert f"{20:020}.log" in found.recovered.deleted


@pytest.mark.parametrize("broker", ["2.4", "3.9", "4.1"])
def test_after_a_clean_shutdown_an_index_beyond_the_end_makes_the_broker_reassign_offsets(
    written, broker
):
    root = written()
    (log,) = kafkastore.open(root)
    index = log.path / f"{20:020}.index"
    index.write_bytes(index.read_bytes() + struct.pack(">ii", 10, 10 * SIZE))
    (found,) = predict_start(root, broker, index_interval_bytes=200)
    assert (found.outcome, found.why) == (Outcome.IS_CHANGED, None)
    (root / ".kafka_cleanshutdown").touch()
    (found,) = predict_start(root, broker, index_interval_bytes=200)
    assert (found.outcome, found.lost_bytes) == (Outcome.LOSES_RECORDS, 0)
    assert found.lost_offsets == 10
    assert found.reassigned_from == 20
    assert found.recovered.log_end_offset == 20


@pytest.mark.parametrize("damage", ["torn", "bad length", "torn before others"])
def test_only_a_last_batch_that_was_cut_short_is_not_a_loss(written, damage):
    root = written()
    base = 10 if damage == "torn before others" else 20
    path = root / "t-0" / f"{base:020}.log"
    data = bytearray(path.read_bytes())
    if damage == "bad length":
        data[9 * SIZE + 8 : 9 * SIZE + 12] = struct.pack(">i", 5000)
        path.write_bytes(data)
    else:
        path.write_bytes(data[:-7])
    (found,) = predict_start(root, "2.4", index_interval_bytes=200)
    assert found.recovered.cut == {path.name: 9 * SIZE}
    if damage == "torn":
        assert (found.outcome, found.lost_bytes) == (Outcome.IS_CHANGED, 0)
    else:
        lost = SIZE if damage == "bad length" else SIZE - 7 + 10 * SIZE
        assert (found.outcome, found.lost_bytes) == (Outcome.LOSES_RECORDS, lost)
    worst = {each.severity for each in verify(root)} & {Severity.DATA_LOSS_RISK}
    assert bool(worst) == (found.outcome is Outcome.LOSES_RECORDS)


@pytest.mark.parametrize("broker", ["2.4", "3.9", "4.1"])
@pytest.mark.parametrize(
    ("tail", "outcome"),
    [
        (TORN[:8], Outcome.LOSES_RECORDS),
        (TORN[:30], Outcome.LOSES_RECORDS),
        (bytes(17), Outcome.LOSES_RECORDS),
        (bytes(18), Outcome.STOPS_THE_START),
        (bytes(500), Outcome.STOPS_THE_START),
    ],
)
def test_bytes_after_the_last_batch_matter_only_after_a_clean_shutdown(
    written, broker, tail, outcome
):
    """Brokers append after these bytes; they do not start at an impossible batch length."""
    root = written()
    path = root / "t-0" / f"{20:020}.log"
    with path.open("ab") as file:
        file.write(tail)
    outcomes = []
    for is_clean in (False, True):
        if is_clean:
            (root / ".kafka_cleanshutdown").touch()
        (found,) = predict_start(root, broker, index_interval_bytes=200)
        assert found.lost_bytes == 0
        outcomes.append(found.outcome)
        worst = {each.severity for each in verify(root)} & {Severity.DATA_LOSS_RISK}
        assert bool(worst) == is_clean
    assert outcomes == [Outcome.IS_CHANGED, outcome]


@pytest.mark.parametrize("broker", ["0.10.2", "2.4", "4.1"])
def test_truncated_bytes_are_not_read_for_the_producer_state(tmp_path, broker):
    """Old formats have no snapshots: the broker reads the log for them once it is truncated."""
    batches = in_a_row([Batch((Row(0, 100 + slot),), magic=1) for slot in range(30)])
    segments = [Segment(base, tuple(batches[base : base + 10])).indexed() for base in (0, 10, 20)]
    root = Log(tuple(segments), recovery_point=20).write(tmp_path / "logs")
    path = root / "t-0" / f"{20:020}.log"
    with path.open("ab") as file:
        file.write(GARBAGE["a negative length"])
    (found,) = predict_start(root, broker, index_interval_bytes=200)
    assert (found.outcome, found.recovered_from) == (Outcome.LOSES_RECORDS, 20)


@pytest.mark.parametrize("broker", ["2.4", "3.9", "4.1"])
@pytest.mark.parametrize("tail", GARBAGE)
@pytest.mark.parametrize("is_clean", [False, True])
def test_bytes_that_cannot_begin_a_batch_are_lost(written, broker, tail, is_clean):
    root = written()
    path = root / "t-0" / f"{20:020}.log"
    with path.open("ab") as file:
        file.write(GARBAGE[tail])
    if is_clean:
        (root / ".kafka_cleanshutdown").touch()
    (found,) = predict_start(root, broker, index_interval_bytes=200)
    assert found.outcome in {Outcome.LOSES_RECORDS, Outcome.STOPS_THE_START}
    if not is_clean:
        assert (found.outcome, found.lost_bytes) == (Outcome.LOSES_RECORDS, len(GARBAGE[tail]))
        assert found.recovered.cut == {path.name: 10 * SIZE}
    worst = {
        (each.path, each.position)
        for each in verify(root) if each.severity is Severity.DATA_LOSS_RISK
    }
    assert worst == {(path, 10 * SIZE)}


@pytest.mark.parametrize("broker", ["2.4", "3.9", "4.1"])
# The size is read from where the lower or the upper half of the offset is.
@pytest.mark.parametrize("before", [4, 8])
def test_after_a_clean_shutdown_an_index_that_leads_into_a_batch_stops_the_start(
    written, broker, before
):
    root = written()
    index = root / "t-0" / f"{20:020}.index"
    true = index.read_bytes()
    offset, position = struct.unpack(">ii", true[-8:])
    index.write_bytes(true[:-8] + struct.pack(">ii", offset, position - before))
    (found,) = predict_start(root, broker, index_interval_bytes=200)
    assert found.outcome is Outcome.IS_CHANGED  # recovered: the index is rebuilt
    (root / ".kafka_cleanshutdown").touch()
    (found,) = predict_start(root, broker, index_interval_bytes=200)
    assert found.outcome is Outcome.STOPS_THE_START
    assert isinstance(found.error, CorruptIndexError)
    assert Path(found.error.path) == index
    with pytest.raises(CorruptIndexError) as caught:
        recover_log(kafkastore.open(root)["t-0"], broker, is_clean=True)
    assert (caught.value.path, caught.value.position) == (index, len(true) - 8)
    # A wrong offset with the position of a batch is found at once.
    for right in (true, true[:-8] + struct.pack(">ii", offset - 1, position)):
        index.write_bytes(right)
        (found,) = predict_start(root, broker, index_interval_bytes=200)
        assert found.outcome is not Outcome.STOPS_THE_START


def test_below_the_recovery_point_and_after_a_clean_shutdown_no_log_is_read(written):
    root = written(recovery_point=30)
    flip(root, 10, 3 * SIZE + 70)
    (found,) = predict_start(root, "2.4", index_interval_bytes=200)
    assert found.outcome is not Outcome.LOSES_RECORDS
    assert found.recovered_from == 30
    (root / ".kafka_cleanshutdown").touch()
    (found,) = predict_start(root, "2.4", index_interval_bytes=200)
    assert (found.lost_bytes, found.recovered_from) == (0, None)


@pytest.mark.parametrize(
    ("name", "broker", "outcome"),
    [
        ("lost+found", "2.4", Outcome.STOPS_THE_START),
        ("lost+found", "4.1", Outcome.STOPS_THE_START),
        (".snapshots", "3.9", Outcome.STOPS_THE_START),
        ("remote-log-index-cache", "3.4", Outcome.STOPS_THE_START),
        ("remote-log-index-cache", "3.5", Outcome.IS_NOT_READ),
        ("old-0.8ba1bf4f3a8e4e4e9f7d0c9a7c6c1f11-stray", "3.6", Outcome.STOPS_THE_START),
        ("old-0.8ba1bf4f3a8e4e4e9f7d0c9a7c6c1f11-stray", "3.6.1", Outcome.IS_NOT_READ),
        ("old-0.8ba1bf4f3a8e4e4e9f7d0c9a7c6c1f11-delete", "2.4", Outcome.IS_DELETED),
    ],
)
def test_unknown_directory_names_stop_the_start_of_some_versions(written, name, broker, outcome):
    root = written()
    (root / name).mkdir()
    first, *_ = predict_start(root, broker)
    assert (first.path.name, first.outcome) == (name, outcome)
    assert first.why


def test_a_file_and_a_broken_link_in_the_log_directory_are_reported_as_not_read(written):
    root = written(is_clean=True)
    (root / "notes.txt").touch()
    (root / "gone-0").symlink_to(root / "nowhere")
    (root / "loop-0").symlink_to(root / "loop-0")
    outcomes = {each.path.name: each.outcome for each in predict_start(root, "2.4")}
    assert outcomes.pop("gone-0") is outcomes.pop("loop-0") is Outcome.IS_NOT_READ
    assert set(outcomes.values()) <= {Outcome.IS_LOADED, Outcome.IS_CHANGED}


def test_a_partition_in_two_log_directories_stops_the_start(written, tmp_path):
    root = written()
    other = three_segments().write(tmp_path / "other")
    (found,) = predict_start([root, other], "2.4")
    assert found.outcome is Outcome.STOPS_THE_START
    assert isinstance(found.error, DuplicatePartitionError)
    assert found.error.places == {("t", 0): (root / "t-0", other / "t-0")}


@pytest.mark.parametrize(
    "name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint",
             "replication-offset-checkpoint", "cleaner-offset-checkpoint"],
)
def test_a_corrupt_checkpoint_costs_the_log_directory(written, name):
    root = written()
    (root / name).write_text("0\nmany\n")
    first, second = predict_start(root, "2.4")
    assert first.outcome is Outcome.STOPS_THE_START
    assert first.path.name == name
    assert isinstance(first.error, CorruptCheckpointError)
    assert second.recovered is not None


@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_checkpoint_that_is_not_a_file_stops_the_start(written, kind):
    root = written()
    path = root / "t-0" / "leader-epoch-checkpoint"
    path.unlink(missing_ok=True)
    KINDS[kind](path)
    (found,) = predict_start(root, "2.4")
    assert (found.outcome, found.path) == (Outcome.STOPS_THE_START, path.parent)
    assert isinstance(found.error, NotAFileError)
    assert Path(found.error.path) == path


def test_a_corrupt_topic_id_stops_the_start_of_brokers_that_read_it(written):
    root = written()
    path = root / "t-0" / "partition.metadata"
    path.write_text("version: 0\ntopic_id: nonsense")
    outcomes = [predicted.outcome for broker in ("2.7", "2.8", "3.9", "4.1")
                for predicted in predict_start(root, broker)]
    assert outcomes[0] is not Outcome.STOPS_THE_START
    assert set(outcomes[1:]) == {Outcome.STOPS_THE_START}
    (found,) = predict_start(root, "4.1")
    assert isinstance(found.error, CorruptCheckpointError)
    assert Path(found.error.path) == path


def test_a_corrupt_epoch_checkpoint_stops_the_start(written):
    root = written()
    (log,) = kafkastore.open(root)
    (log.path / "leader-epoch-checkpoint").write_text("0\n1\nx y\n")
    (found,) = predict_start(root, "2.4")
    assert found.outcome is Outcome.STOPS_THE_START
    assert isinstance(found.error, CorruptCheckpointError)
    assert Path(found.error.path) == log.path / "leader-epoch-checkpoint"


@pytest.mark.parametrize("entry", ["-1 0", "0 -1"])
def test_an_epoch_below_zero_stops_the_start_and_is_repaired(written, entry):
    root = written()
    path = root / "t-0" / "leader-epoch-checkpoint"
    path.write_text(f"0\n1\n{entry}\n")
    (found,) = predict_start(root, "4.1")
    assert found.outcome is Outcome.STOPS_THE_START
    reported = [(each.kind, each.position) for each in verify(root) if each.path == path]
    assert reported == [(FindingKind.CORRUPT_LEADER_EPOCH_CHECKPOINT, 4)]
    kafkastore.apply(plan_repair(root))
    (found,) = predict_start(root, "4.1")
    assert found.outcome is not Outcome.STOPS_THE_START


@pytest.mark.parametrize("broker", ["0.11.0.3", "2.4", "3.9", "4.1"])
def test_a_segment_without_an_index_is_recovered_after_a_clean_shutdown_too(written, broker):
    """The broker then truncates its torn batch: nothing is appended after it."""
    root = written(is_clean=True)
    path = root / "t-0" / f"{20:020}.log"
    with path.open("ab") as file:
        file.write(TORN)
    for has_index in (True, False):
        if not has_index:
            path.with_suffix(".index").unlink()
        (found,) = predict_start(root, broker, index_interval_bytes=200)
        kinds = {each.kind for each in verify(root) if each.path == path}
        assert (found.outcome, kinds) == (
            (Outcome.LOSES_RECORDS, {FindingKind.BYTES_AFTER_CLEAN_SHUTDOWN}) if has_index
            else (Outcome.IS_CHANGED, {FindingKind.INCOMPLETE_LAST_BATCH})
        )


@pytest.mark.parametrize(
    "plan", [plan_reindex, plan_repair, partial(plan_repair, on_corrupt="skip")]
)
@pytest.mark.parametrize("tail", [TORN, TORN[:5], TORN[:40], bytes(4096)])
def test_no_remedy_writes_an_index_that_makes_the_start_worse(written, plan, tail):
    root = written(is_clean=True)
    path = root / "t-0" / f"{20:020}.log"
    with path.open("ab") as file:
        file.write(tail)
    path.with_suffix(".index").unlink()
    kafkastore.apply(plan(root))
    (found,) = predict_start(root, "4.1", index_interval_bytes=200)
    assert found.outcome in {Outcome.IS_CHANGED, Outcome.IS_LOADED}
    assert not {each.severity for each in verify(root)} & {Severity.DATA_LOSS_RISK}
    assert len(list(kafkastore.open(root)["t", 0].records())) == 30


def test_the_epochs_of_a_partition_without_a_log_are_repaired(tmp_path):
    root = tmp_path / "logs"
    (root / "t-0").mkdir(parents=True)
    (root / "meta.properties").write_text("version=0\n")
    path = root / "t-0" / "leader-epoch-checkpoint"
    path.write_text("garbage")
    kafkastore.apply(plan_repair(root))
    assert path.read_text() == "0\n0\n"


@pytest.mark.filterwarnings("ignore::kafkastore.UnreadMetadataWarning")
def test_the_metadata_log_is_completely_recovered_with_or_without_a_marker(written):
    root = written(is_clean=True)
    (log,) = kafkastore.open(root)
    log.path.rename(root / "__cluster_metadata-0")
    flip(root, 10, 3 * SIZE + 70)
    for broker, from_offset in (("2.4", None), ("3.9", 0)):
        (found,) = predict_start(root, broker)
        assert found.recovered_from == from_offset
        assert (found.outcome is Outcome.LOSES_RECORDS) == (from_offset == 0)


def test_a_single_partition_directory_has_no_marker_and_is_recovered(written):
    root = written(is_clean=True)
    (log,) = kafkastore.open(root)
    (found,) = predict_start(log.path, "2.4")
    assert found.recovered_from == 0
    assert found.recovered.log_end_offset == 30


def test_nothing_is_altered(written):
    root = written()
    flip(root, 10, 5)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    for broker in ("0.11.0.3", "2.4", "3.9", "4.1"):
        list(predict_start(root, broker))
    assert before == {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("base_offset", [0, 10, 20])
@pytest.mark.parametrize("kind", KINDS)
def test_a_log_that_is_not_a_file_is_skipped(written, kind, base_offset):
    root = written()
    path = root / "t-0" / f"{base_offset:020}.log"
    path.unlink()
    KINDS[kind](path)
    (found,) = predict_start(root, "2.4")
    assert found.outcome is Outcome.LOSES_RECORDS
    assert isinstance(found.error, NotAFileError)
    assert Path(found.error.path) == path
    assert found.reassigned_from == (20 if base_offset == 20 else None)


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".snapshot"])
@pytest.mark.parametrize("kind", KINDS)
def test_any_other_segment_file_that_is_not_a_file_stops_the_start(written, kind, suffix):
    root = written()
    path = root / "t-0" / f"{10:020}{suffix}"
    path.unlink(missing_ok=True)
    KINDS[kind](path)
    (found,) = predict_start(root, "2.4")
    assert (found.outcome, found.path) == (Outcome.STOPS_THE_START, path.parent)
    assert Path(found.error.path) == path
    # Also together with a log that would only be skipped.
    (path.parent / f"{0:020}.log").unlink()
    KINDS[kind](path.parent / f"{0:020}.log")
    (found,) = predict_start(root, "2.4")
    assert found.outcome is Outcome.STOPS_THE_START


def test_partitions_can_be_chosen_in_each_form(written):
    root = written(is_clean=True)
    (expected,) = predict_start(root)
    named = kafkastore.open(root).partitions
    for chosen in (["t-0"], [("t", 0)], set(named)):
        (found,) = predict_start(root, partitions=chosen)
        assert (found.path, found.outcome) == (expected.path, expected.outcome)
    assert not list(predict_start(root, partitions=[]))
    with pytest.raises(KeyError, match="nope-0"):
        list(predict_start(root, partitions=["t-0", "nope-0"]))
    with refused("partitions", ArgumentTypeError):
        list(predict_start(root, partitions="t-0"))


def test_wrong_arguments_are_refused(tmp_path, written):
    with pytest.raises(UnknownVersionError):
        list(predict_start(written(), "newest"))
    with pytest.raises(NotALogDirectoryError):
        list(predict_start(tmp_path / "nowhere", "2.4"))


def test_a_negative_epoch_in_the_checkpoint_is_an_error_of_that_file(tmp_path):
    root = Log((Segment(0, (Batch((Row(0, 1),)),)),)).write(tmp_path / "logs")
    path = root / "t-0" / "leader-epoch-checkpoint"
    path.write_text("0\n1\n-5 0\n")
    (found,) = [each for each in predict_start(root, "3.9") if each.error is not None]
    assert found.outcome is Outcome.STOPS_THE_START
    assert Path(found.error.path) == path
