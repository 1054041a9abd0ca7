"""Every ListOffsets request by time that a real broker answered, asked again offline."""

import pytest

import kafkastore

READ_UNCOMMITTED = 0
#: The broker layer keeps an answer of the log layer only below the high watermark.
NOTHING = (-1, -1)


def asked_partitions(case):
    """(log, its answers) of every partition that was asked for times."""
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


def test_the_broker_s_own_rules_give_its_answers(golden_case):
    rules = golden_case.answers["kafka"]    # of the broker that was asked, in upgrades a newer one
    for log, answers in asked_partitions(golden_case):
        found = {}
        for target, version, (offset, timestamp, epoch) in questions(answers):
            if target not in found:
                answer = log.offset_for_timestamp(target, rules=rules)
                below = answer is not None and answer.offset < answers["high_watermark"]
                found[target] = answer if below else None
            assert as_answer(found[target]) == (offset, timestamp), target
            if found[target] is not None and version >= 4:
                assert found[target].leader_epoch == (None if epoch == -1 else epoch)


def test_the_right_answer_is_that_of_brute_force(golden_case):
    for log, answers in asked_partitions(golden_case):
        for target in {target for target, _, _ in questions(answers)}:
            found = as_answer(log.offset_for_timestamp(target))
            assert found == brute_force(answers["records"], target), target


# All but crash-torn and crash-bad-crc, where records are gone or not to be read.
@pytest.mark.golden_cases(names=["[!c]*", "co*", "create*", "crash"], answers="answers")
def test_right_answers_at_every_boundary_are_those_of_brute_force(golden_case):
    for log, answers in asked_partitions(golden_case):
        records = answers["records"]
        times = sorted({row[1] + by for row in records for by in (-1, 0, 1) if row[1] >= 0})
        for target in times[:: max(1, len(times) // 100)]:
            found = as_answer(log.offset_for_timestamp(target))
            assert found == brute_force(records, target), target


@pytest.mark.golden_cases(names="broken-index-*")
def test_broken_indexes_do_not_change_the_right_answer(golden_case, golden):
    unharmed = golden(golden_case.version, "broken-index", "answers")
    harmed = kafkastore.open(golden_case.root / "logs")
    for name, answers in unharmed.answers["partitions"].items():
        records = answers["records"]
        assert len(records) > 50
        for target in sorted({row[1] + by for row in records for by in (-1, 0, 1)}):
            found = as_answer(harmed[name].offset_for_timestamp(target))
            assert found == brute_force(records, target), target


@pytest.mark.golden_cases(names="broken-index-*")
def test_broken_indexes_do_not_change_what_is_read(golden_case, golden):
    unharmed = golden(golden_case.version, "broken-index", "answers")
    harmed = kafkastore.open(golden_case.root / "logs")
    for name, answers in unharmed.answers["partitions"].items():
        log, records = harmed[name], answers["records"]
        for start, end in ((0, None), (17, 60), (50, 51), (95, None)):
            wanted = [row[0] for row in records if start <= row[0] < (end or 1 << 60)]
            assert [record.offset for record in log.records(start, end)] == wanted
            table = log.to_arrow(["offset"], start_offset=start, end_offset=end).read_all()
            assert table["offset"].to_pylist() == wanted


@pytest.mark.golden_cases(names="crash-*", answers="answers")
def test_harm_at_the_end_leaves_answers_before_it_right(golden_case):
    for log, answers in asked_partitions(golden_case):
        end = log.segments[-1].rebuilt_indexes().next_offset
        kept = [row for row in answers["records"] if row[0] < end]
        for target in sorted({row[1] for row in kept if row[1] >= 0}):
            assert as_answer(log.offset_for_timestamp(target)) == brute_force(kept, target)


@pytest.mark.golden_cases(versions=["0.10.2.2", "2.4.0", "4.*"], names=["create*", "delete*"])
def test_a_partition_directory_alone_gives_the_same_right_answers(golden_case):
    for log, answers in asked_partitions(golden_case):
        if answers["log_start_offset"] > log.segments[0].base_offset:
            continue    # without its log directory a partition does not know its log start
        alone = next(iter(kafkastore.open(log.path)))
        assert alone.log_dir is None
        for target in {target for target, _, _ in questions(answers)}:
            assert alone.offset_for_timestamp(target) == log.offset_for_timestamp(target)
