"""Migrated directories from before the time index, compared with files of real brokers."""

import itertools

import pytest
from kafkastore.migration import MODES, plan, survey

import kafkastore
from kafkastore import Severity
from kafkastore.changes.undo import undo

from .directories import contents, data, entries, migrate, remove

OLD = ["0.8.2.2", "0.9.0.1", "0.10.0.1"]
NEWER = ["0.10.2.2", "0.11.0.3", "2.4.0", "3.9.1"]
INTERVAL = 200


def list_offsets(case, version):
    """Yield the broker's answers by time: partition, timestamp, (timestamp, offset)."""
    for name, partition in case.answers["partitions"].items():
        for row in partition["list_offsets"]:
            if row["timestamp"] >= 0 and row["error"] == 0 and row["isolation"] == 0:
                yield name, row["timestamp"], (row["result_timestamp"], row["offset"])


def answer(log, timestamp, rules):
    found = log.offset_for_timestamp(timestamp, rules)
    return (-1, -1) if found is None else (found.timestamp, found.offset)


@pytest.mark.parametrize(("old", "newer"), [*itertools.product(OLD, NEWER)])
def test_mode_empty_writes_the_same_files_as_the_newer_broker(golden, writable_copy, old, newer):
    case = golden(old, "upgrade", f"answers-upgraded-{newer}")
    root = writable_copy(case.root / "logs")
    migrate(root, "empty")
    assert data(root, "*.timeindex") == data(case.logs, "*.timeindex")
    assert contents(root, "*.log") == contents(case.logs, "*.log")


@pytest.mark.parametrize(("old", "newer"), [*itertools.product(OLD, NEWER)])
def test_after_mode_empty_answers_are_those_of_the_upgraded_broker(
    golden, writable_copy, old, newer
):
    case = golden(old, "upgrade", f"answers-upgraded-{newer}")
    root = writable_copy(case.root / "logs")
    migrate(root, "empty")
    store = kafkastore.open(root)
    for name, timestamp, expected in list_offsets(case, newer):
        assert answer(store[name], timestamp, newer) == expected, (name, timestamp)


@pytest.mark.parametrize("old", OLD)
def test_mode_rebuild_writes_the_same_bytes_as_a_recovering_broker(
    golden, writable_copy, old
):
    case = golden(old, "upgrade", "answers-upgraded-2.4.0-unclean")
    root = writable_copy(case.root / "logs")
    (root / ".kafka_cleanshutdown").unlink()
    recovered = {
        partition.path(segment, ".timeindex")
        for partition in survey(root).partitions
        for segment in partition.segments
        if segment.is_recovered_by_broker
    }
    assert recovered
    remove(root, "*.index")  # so that the offset indexes are rebuilt too
    migrate(root, "rebuild", index_interval_bytes=INTERVAL)
    made = data(root, "*.timeindex") | data(root, "*.index")
    written = data(case.logs, "*.timeindex") | data(case.logs, "*.index")
    for path in recovered:
        assert made[path] == written[path], path
        index = path.replace(".timeindex", ".index")
        assert made[index] == written[index], index
    if old == "0.10.0.1":
        assert any(made[path] for path in recovered)


@pytest.mark.golden_cases(
    names=["create-time-*", "log-append-time", "codecs", "headers-and-nulls"],
    versions=["3.9.1", "4.1.1"],
    answers="answers",
)
def test_mode_rebuild_reproduces_the_indexes_of_newer_brokers(golden_case, writable_copy):
    # These brokers write the same entries while running as in recovery, for batches of one fetch.
    root = writable_copy(golden_case.logs)
    for name, partition in golden_case.answers["partitions"].items():
        topic = name.rpartition("-")[0]
        interval = int(golden_case.answers["topic_config"][topic]["index.interval.bytes"])
        before = data(root / name, "*.timeindex"), data(root / name, "*.index")
        remove(root / name, "*index")
        migrate(root / name, "rebuild", index_interval_bytes=interval)
        assert (data(root / name, "*.timeindex"), data(root / name, "*.index")) == before
        assert partition["records"]


@pytest.mark.parametrize("mode", ["auto", "rebuild"])
def test_after_a_rebuild_the_broker_s_rules_give_the_correct_answer(golden, writable_copy, mode):
    case = golden("0.10.0.1", "upgrade", "answers-upgraded-2.4.0")
    root = writable_copy(case.root / "logs")
    before = kafkastore.open(case.root / "logs")
    mistaken = [
        (name, timestamp)
        for name, timestamp, _ in list_offsets(case, "2.4.0")
        if answer(before[name], timestamp, "2.4") != answer(before[name], timestamp, "correct")
    ]
    assert len(mistaken) > 20
    migrate(root, mode, index_interval_bytes=INTERVAL)
    store = kafkastore.open(root)
    for name, timestamp, _ in list_offsets(case, "2.4.0"):
        right = answer(before[name], timestamp, "correct")
        assert answer(store[name], timestamp, "2.4") == right, (name, timestamp)
        assert answer(store[name], timestamp, "correct") == right, (name, timestamp)


def findings_above_style(root):
    return [each for each in kafkastore.verify(root) if each.severity is not Severity.STYLE]


@pytest.mark.golden_cases(versions=OLD)
def test_after_auto_and_rebuild_verify_finds_no_fault_of_an_index(
    golden_case, writable_copy
):
    for mode in ("auto", "rebuild"):
        root = writable_copy(golden_case.logs)
        migrate(root, mode)
        found = findings_above_style(root)
        if golden_case.name == "crash-bad-crc" and not golden_case.logs.name.endswith("recovered"):
            needs_repair = kafkastore.FindingKind.CHECKSUM_MISMATCH
            assert any(each.kind is needs_repair for each in found)
        else:
            assert found == []


INDEX_DAMAGES = {
    "missing": lambda path, content: path.unlink(),
    "empty": lambda path, content: path.write_bytes(b""),
    "zeros": lambda path, content: path.write_bytes(bytes(1200)),
    "zeros after": lambda path, content: path.write_bytes(content + bytes(1200)),
}


@pytest.mark.parametrize("damage", INDEX_DAMAGES)
@pytest.mark.golden_cases(
    versions=["0.10.2.2", "2.4.0", "3.9.1"],
    names=["create-time-out-of-order", "transactions"],
    answers="answers",
)
def test_missing_or_zeroed_time_indexes_of_newer_brokers_are_repaired(
    golden_case, writable_copy, damage
):
    root = writable_copy(golden_case.logs)
    for path in root.glob("*/*.timeindex"):
        INDEX_DAMAGES[damage](path, path.read_bytes())
    found = findings_above_style(root)
    assert found
    migrate(root)
    remaining = findings_above_style(root)
    if damage == "zeros after":  # these indexes have entries; the remedy of verify trims them
        assert {each.path for each in remaining} <= {each.path for each in found}
        assert all("kafkastore reindex" in each.remedy for each in remaining)
        kafkastore.apply(kafkastore.plan_reindex(root))
        remaining = findings_above_style(root)
    assert remaining == []


@pytest.mark.parametrize(("old", "entry_offset"), [*itertools.product(OLD, ["next", "first"])])
def test_mode_kip_33_gives_inactive_segments_one_entry_by_modification_time(
    golden, writable_copy, old, entry_offset
):
    root = writable_copy(golden(old, "upgrade", "answers").logs)
    migrate(root, "kip-33", entry_offset)
    for log in kafkastore.open(root):
        for segment in log.segments:
            made = entries(root, segment.time_index_path.relative_to(root))
            if segment.is_active:
                assert made == []
            else:
                relative = segment.next_base_offset - segment.base_offset
                relative = relative if entry_offset == "next" else 0
                assert made == [(segment.last_modified_ms, relative)]
                segment.time_index.check()


@pytest.mark.parametrize("old", OLD)
def test_mode_auto_rebuilds_where_timestamps_exist_and_dates_other_segments(
    golden, writable_copy, old
):
    case = golden(old, "upgrade", "answers")
    by_auto, by_other = writable_copy(case.logs), writable_copy(case.logs)
    migrate(by_auto, "auto", index_interval_bytes=INTERVAL)
    # 0.10.0.1 wrote v1 only, the older two v0 only; empty active segments are empty in every mode.
    mode = "rebuild" if old == "0.10.0.1" else "kip-33"
    migrate(by_other, mode, index_interval_bytes=INTERVAL)
    assert data(by_auto, "*.timeindex") == data(by_other, "*.timeindex")


@pytest.mark.parametrize(("old", "mode"), [*itertools.product(OLD, MODES)])
def test_every_mode_only_adds_missing_indexes_and_undo_removes_them(
    golden, writable_copy, old, mode
):
    root = writable_copy(golden(old, "upgrade", "answers").logs)
    before = contents(root)
    journal = migrate(root, mode)
    after = contents(root)
    logs = {path.removesuffix(".log") for path in before if path.endswith(".log")}
    assert after.keys() - before.keys() == {path + ".timeindex" for path in logs}
    assert {path: after[path] for path in before} == before
    for path in logs:
        # The new file has the log's time, mode and (not shown here) owners.
        assert after[path + ".timeindex"][1:] == before[path + ".log"][1:]
    undo(journal)
    assert contents(root) == before


@pytest.mark.parametrize(("old", "mode"), [*itertools.product(OLD, MODES)])
def test_migrating_twice_has_the_same_result_as_once(golden, writable_copy, old, mode):
    root = writable_copy(golden(old, "upgrade", "answers").logs)
    migrate(root, mode)
    before = contents(root)
    assert plan(survey(root), mode).changes == ()
    migrate(root, mode)
    assert contents(root) == before


@pytest.mark.parametrize("mode", MODES)
def test_a_directory_that_a_newer_broker_opened_gets_entries_for_its_records(
    golden, writable_copy, mode
):
    for old in OLD:
        case = golden(old, "upgrade", "answers-upgraded-2.4.0")
        opened, never_opened = writable_copy(case.logs), writable_copy(case.root / "logs")
        before = contents(opened)
        journal = migrate(opened, mode, index_interval_bytes=INTERVAL)
        migrate(never_opened, "rebuild", index_interval_bytes=INTERVAL)
        if mode in ("auto", "rebuild"):
            assert data(opened, "*.timeindex") == data(never_opened, "*.timeindex")
        else:
            assert contents(opened) == before
        undo(journal)
        assert contents(opened) == before


@pytest.mark.golden_cases(versions=["0.11*", "2.*", "3.*", "4.*"], answers="answers")
def test_the_directories_of_newer_brokers_need_no_migration(golden_case):
    if golden_case.name in ("old-formats", "compacted-empty-segment", "compacted", "broken-index"):
        return  # empty time indexes of old messages or of emptied segments
    found = plan(survey(golden_case.logs, threads=1), "auto")
    assert found.changes == ()


@pytest.mark.golden_cases(versions=OLD, answers="answers")
def test_every_old_directory_can_be_migrated_and_gives_correct_answers(golden_case, writable_copy):
    root = writable_copy(golden_case.logs)
    before = contents(root)
    journal = migrate(root, "auto", threads=1)
    store = kafkastore.open(root)
    for name, partition in golden_case.answers["partitions"].items():
        records = partition.get("records") or []
        for _, stamp, *_ in records[::5]:
            if stamp < 0:
                continue
            found = store[name].offset_for_timestamp(stamp)
            right = next(offset for offset, each, *_ in records if each >= stamp)
            if right < store[name].log_end_offset:
                assert found is not None
                assert found.offset == right
    undo(journal)
    assert contents(root) == before


def test_a_single_partition_directory_is_migrated_too(golden, writable_copy):
    case = golden("0.10.0.1", "upgrade", "answers")
    root, alone = writable_copy(case.logs), writable_copy(case.logs)
    migrate(root)
    journal = migrate(alone / "up-0")
    assert data(alone / "up-0", "*.timeindex") == data(root / "up-0", "*.timeindex")
    assert not list((alone / "up-1").glob("*.timeindex"))
    assert journal.area.parent == alone.parent
