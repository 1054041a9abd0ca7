"""Every ListOffsets request that a real broker answered, repeated offline."""

import pytest

import kafkastore
from kafkastore.errors import (
    CorruptBatchError,
    UnsupportedForMessageFormatError,
    UnsupportedTimestampError,
)

READ_UNCOMMITTED = 0
ISOLATIONS = ("read_uncommitted", "read_committed")
LATEST_TIMESTAMP = -1
ERRORS = {UnsupportedTimestampError: 35, UnsupportedForMessageFormatError: 43}
#: Damaged after the broker had answered.
DAMAGED_SINCE = {("crash-torn", "answers"), ("crash-bad-crc", "answers")}
#: The broker layer keeps an answer of the log layer only below the high watermark.
NOTHING = (-1, -1)


def queried_partitions(case):
    """(log, its answers) of every partition that was queried by time."""
    store = kafkastore.open(case.logs)
    for name, answers in case.answers["partitions"].items():
        if "records" in answers:
            yield store[name], answers


def questions(answers):
    """The requests by time that were answered: (timestamp, (offset, timestamp, leader epoch))."""
    for row in answers.get("list_offsets", []):
        if row["timestamp"] >= 0 and not row["error"] and row["isolation"] == READ_UNCOMMITTED:
            answer = row["offset"], row["result_timestamp"], row["leader_epoch"]
            yield row["timestamp"], row["version"], answer


def brute_force(records, target):
    return next(((row[0], row[1]) for row in records if row[1] >= target), NOTHING)


def as_answer(found):
    return NOTHING if found is None else (found.offset, found.timestamp)


def answer_of(log, row, rules, **how):
    """(error, offset, timestamp, leader epoch) as a response would have them."""
    try:
        found = log.list_offset(
            row["timestamp"], rules, ISOLATIONS[row.get("isolation", 0)],
            request_version=row["version"], **how,
        )
    except tuple(ERRORS) as error:
        return ERRORS[type(error)], -1, -1, -1
    if found is None:
        return 0, -1, -1, -1
    epoch = found.leader_epoch
    return 0, found.offset, found.timestamp, -1 if epoch is None else epoch


def answered(row):
    epoch = row["leader_epoch"]
    return row["error"], row["offset"], row["result_timestamp"], -1 if epoch is None else epoch


def current_epoch(rows):
    """The leader epoch that the broker named for the latest offset; it is not in every log."""
    epochs = {
        row["leader_epoch"]
        for row in rows
        if row["timestamp"] == LATEST_TIMESTAMP and row["leader_epoch"] not in (None, -1)
    }
    assert len(epochs) <= 1
    return epochs.pop() if epochs else None


def test_the_broker_s_own_rules_give_its_answers(golden_case):
    """Every timestamp, special or not, every version of the request, every isolation, errors."""
    rules = golden_case.answers["kafka"]    # of the broker that answered
    for log, answers in queried_partitions(golden_case):
        rows = answers.get("list_offsets", [])
        epoch = current_epoch(rows)
        if epoch is not None and log.leader_epochs:
            assert log.leader_epochs[-1].epoch <= epoch
        if (golden_case.name, golden_case.answers_name) in DAMAGED_SINCE:
            # The last batch is lost: what was answered with it, or of transactions, can't be equal.
            readable_end = log.segments[-1].rebuilt_indexes().next_offset
            assert answers["log_end_offset"] - 5 <= readable_end < answers["log_end_offset"]
            rows = [
                row for row in rows if row["offset"] < readable_end and not row.get("isolation", 0)
            ]
        for row in rows:
            found = answer_of(log, row, rules, current_leader_epoch=epoch)
            assert found == answered(row), (log, row)


@pytest.mark.golden_cases(names=["upgrade", "old-formats"])
def test_topics_of_old_formats_are_refused_as_brokers_did(golden_case):
    lookups = golden_case.answers.get("list_offsets_when_message_format_version", {})
    store = kafkastore.open(golden_case.logs)
    rules = golden_case.answers["kafka"]
    for version, partitions in lookups.items():
        for name, rows in partitions.items():
            found = [
                answer_of(store[name], row, rules, message_format_version=version) for row in rows
            ]
            assert found == [answered(row) for row in rows]
    was_queried = {"upgrade": "answers-upgraded-2.4.0", "old-formats": "answers"}
    if rules in ("2.4.0", "3.9.1") and golden_case.answers_name == was_queried[golden_case.name]:
        assert len(lookups) == 2


def test_many_times_at_once_have_the_answers_of_each(golden_case):
    for log, answers in queried_partitions(golden_case):
        targets = sorted({row["timestamp"] for row in answers.get("list_offsets", [])})
        shuffled = targets[1::2] + targets[::2]
        for rules in ("correct", "kip-33", golden_case.answers["kafka"]):
            if rules.startswith(("0.8", "0.9", "0.10.0")):
                continue
            if rules == "correct" and golden_case.name == "crash-bad-crc":
                continue  # what is at or after some of the times is not known
            found = log.offsets_for_timestamps(shuffled, rules)
            for target, many in zip(shuffled, found.tolist(), strict=True):
                one = log.offset_for_timestamp(target, rules)
                epoch = -1 if one is None or one.leader_epoch is None else one.leader_epoch
                assert many == ((-1, -1, -1) if one is None else (*one[:2], epoch))


def test_the_right_answer_is_that_of_brute_force(golden_case):
    for log, answers in queried_partitions(golden_case):
        for target in {target for target, _, _ in questions(answers)}:
            wanted = brute_force(answers["records"], target)
            if golden_case.name == "crash-bad-crc" and is_corrupt(log, wanted):
                with pytest.raises(CorruptBatchError):
                    log.offset_for_timestamp(target)
            else:
                assert as_answer(log.offset_for_timestamp(target)) == wanted, target


def is_corrupt(log, wanted):
    """Whether a record is in a batch with a wrong checksum, or would be."""
    skipped = []
    readable = [record.offset for record in log.records(on_corrupt="stop", skipped=skipped)]
    return bool(skipped) and (wanted == NOTHING or wanted[0] > readable[-1])


# All cases but crash-torn and crash-bad-crc, where records are lost or unreadable.
@pytest.mark.golden_cases(names=["[!c]*", "co*", "create*", "crash"], answers="answers")
def test_right_answers_at_every_boundary_are_those_of_brute_force(golden_case):
    for log, answers in queried_partitions(golden_case):
        records = answers["records"]
        times = sorted({row[1] + by for row in records for by in (-1, 0, 1) if row[1] >= 0})
        for target in times[:: max(1, len(times) // 100)]:
            found = as_answer(log.offset_for_timestamp(target))
            assert found == brute_force(records, target), target


@pytest.mark.golden_cases(names="broken-index-*")
def test_broken_indexes_do_not_change_the_right_answer(golden_case, golden):
    intact = golden(golden_case.version, "broken-index", "answers")
    damaged = kafkastore.open(golden_case.root / "logs")
    for name, answers in intact.answers["partitions"].items():
        records = answers["records"]
        assert len(records) > 50
        for target in sorted({row[1] + by for row in records for by in (-1, 0, 1)}):
            found = as_answer(damaged[name].offset_for_timestamp(target))
            assert found == brute_force(records, target), target


@pytest.mark.golden_cases(names="broken-index-*")
def test_broken_indexes_do_not_change_what_is_read(golden_case, golden):
    intact = golden(golden_case.version, "broken-index", "answers")
    damaged = kafkastore.open(golden_case.root / "logs")
    for name, answers in intact.answers["partitions"].items():
        log, records = damaged[name], answers["records"]
        for start, end in ((0, None), (17, 60), (50, 51), (95, None)):
            wanted = [row[0] for row in records if start <= row[0] < (end or 1 << 60)]
            assert [record.offset for record in log.records(start, end)] == wanted
            table = log.to_arrow(["offset"], start_offset=start, end_offset=end).read_all()
            assert table["offset"].to_pylist() == wanted


@pytest.mark.golden_cases(names="crash-*", answers="answers")
def test_damage_at_the_end_leaves_answers_before_it_right(golden_case):
    for log, answers in queried_partitions(golden_case):
        end = log.segments[-1].rebuilt_indexes().next_offset
        kept = [row for row in answers["records"] if row[0] < end]
        for target in sorted({row[1] for row in kept if row[1] >= 0}):
            assert as_answer(log.offset_for_timestamp(target)) == brute_force(kept, target)


@pytest.mark.golden_cases(versions=["0.10.2.2", "2.4.0", "4.*"], names=["create*", "delete*"])
def test_a_partition_directory_alone_gives_the_same_right_answers(golden_case):
    for log, answers in queried_partitions(golden_case):
        if answers["log_start_offset"] > log.segments[0].base_offset:
            continue    # without its log directory a partition does not know its log start
        alone = next(iter(kafkastore.open(log.path)))
        assert alone.log_dir is None
        for target in {target for target, _, _ in questions(answers)}:
            assert alone.offset_for_timestamp(target) == log.offset_for_timestamp(target)
