import pytest
from kafkastore.legacy import compare, fetch_offsets_before

import kafkastore


def moments(records):
    """Every timestamp of a partition, and both its neighbours."""
    stamps = {stamp for _, stamp, *_ in records}
    return sorted({stamp + each for stamp in stamps for each in (-1, 0, 1)} | {0, -1, -2, 1 << 50})


@pytest.mark.golden_cases(
    names=["create-time-*", "compacted", "transactions", "delete-records", "old-formats"],
    versions=["2.4.0", "0.10.0.1"],
)
def test_comparison_counts_what_a_brute_force_reading_counts(golden_case):
    for name, partition in golden_case.answers["partitions"].items():
        log = kafkastore.open(golden_case.logs)[name]
        records = [(offset, stamp) for offset, stamp, *_ in partition["records"]]
        asked = [moment for moment in moments(partition["records"]) if moment >= 0][::3]
        for each in compare(log, asked, now=1 << 51):
            before = fetch_offsets_before(log, each.target_timestamp, 1, now=1 << 51)
            assert each.legacy == (before[0] if before else None)
            matching = [offset for offset, stamp in records if stamp >= each.target_timestamp]
            right = matching[0] if matching else log.log_end_offset
            assert (None if each.correct is None else each.correct.offset) == (
                matching[0] if matching else None
            )
            if each.legacy is None:
                assert (each.redelivered, each.missed) == (None, None)
                continue
            assert each.redelivered == sum(each.legacy <= offset < right for offset, _ in records)
            assert each.missed == sum(right <= offset < each.legacy for offset, _ in records)


def test_rows_come_in_the_order_asked_and_carry_the_broker_s_answer(golden):
    log = kafkastore.open(golden("2.4.0", "create-time-monotonic", "answers").logs)["mono-0"]
    asked = [record.timestamp for record in log.records()][::-7]
    rows = compare(log, asked)
    assert [row.target_timestamp for row in rows] == asked
    assert [row.broker for row in rows] == [log.offset_for_timestamp(T, "2.4") for T in asked]


def test_no_times_give_no_rows(golden):
    log = kafkastore.open(golden("2.4.0", "create-time-monotonic", "answers").logs)["mono-0"]
    assert compare(log, []) == []
