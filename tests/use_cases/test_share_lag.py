"""The lag of share groups: records that are not complete, from small logs."""
import pytest
from use_cases.stores import T0, commit, record, set_topic_id, share_state, written

import kafkastore
from kafkastore.use_cases.committed_offsets import NoCommittedOffsetsError

TOPIC_ID = "2P-XnPKnTZG5NwujU8kn6Q"
ACKNOWLEDGED, ARCHIVED = 2, 4


@pytest.fixture
def lag(tmp_path):
    """Return a function that writes a group's state next to orders-0, and measures its lag.

    Orders are 0 to 9, 10 to 12 of an aborted transaction, its marker 13, and 14 to 16.
    """
    root = tmp_path / "logs"

    def measure(start_offset, *batches, options=(), **fields):
        with written(root) as partition:
            orders = partition("orders")
            for number in range(10):
                orders.add(record(T0 + number))
            orders.send(7, *(record(T0 + number) for number in range(10, 13)))
            orders.end(7, is_commit=False)
            orders.add(*(record(T0 + number) for number in range(14, 17)))
            partition("__share_group_state").add(
                share_state("g", TOPIC_ID, 0, start_offset, *batches, **fields)
            )
        set_topic_id(root / "orders-0", TOPIC_ID)
        (found,) = kafkastore.share_lag(root, **dict(options))
        return found

    measure.root = root
    return measure


def test_records_that_are_complete_are_not_unread(lag):
    found = lag(2, (3, 4, ACKNOWLEDGED, 1), (8, 10, ARCHIVED, 5), (6, 6, 0, 2))
    assert (found.offsets, found.records) == (17 - 2 - 5, 9)
    assert (found.acknowledged, found.archived, found.released) == (2, 3, 1)
    assert found.unread.first_offset == 2
    assert (found.lag_ms, found.unread.newest_timestamp) == (14, T0 + 16)


def test_the_first_unread_record_may_be_after_all_complete_ones(lag):
    found = lag(0, (0, 13, ACKNOWLEDGED, 1))
    assert (found.offsets, found.records, found.unread.first_offset) == (3, 3, 14)
    assert found.lag_ms == 2


def test_a_group_that_completed_everything_has_no_lag(lag):
    found = lag(4, (4, 16, ACKNOWLEDGED, 1))
    assert (found.offsets, found.records, found.lag_ms) == (0, 0, 0)


def test_the_count_of_the_leader_applies_to_offsets(lag):
    found = lag(2, (3, 4, ACKNOWLEDGED, 1), delivery_complete_count=7)
    assert (found.offsets, found.records) == (17 - 2 - 7, 12)


def test_a_group_that_has_not_read_yet_has_no_lag(lag):
    found = lag(-1)
    assert (found.state.start_offset, found.offsets, found.records, found.lag_ms) == (None,) * 4
    assert found.log_end_offset == 17


def test_readers_of_committed_records_have_fewer(lag):
    batch = (3, 4, ACKNOWLEDGED, 1)
    assert lag(2, batch).records == 12
    (found,) = kafkastore.share_lag(lag.root, isolation="read_committed")
    assert (found.records, found.offsets) == (9, 13)


def test_the_end_of_the_lag_in_time_may_be_given(lag):
    assert lag(2, (2, 2, ACKNOWLEDGED, 1), options={"now": T0 + 103}).lag_ms == 100


def test_corrupt_bytes_are_skipped_or_end_the_count(lag):
    lag(2, (3, 4, ACKNOWLEDGED, 1))
    (log,) = (lag.root / "orders-0").glob("*.log")
    data = bytearray(log.read_bytes())
    data[6 * (12 + int.from_bytes(data[8:12])) - 1] ^= 1  # in the sixth batch of the same size
    log.write_bytes(data)
    with pytest.raises(kafkastore.CorruptionError):
        list(kafkastore.share_lag(lag.root))
    (found,) = kafkastore.share_lag(lag.root, on_corrupt="skip")
    assert (found.records, len(found.skipped)) == (11, 1)
    (found,) = kafkastore.share_lag(lag.root, on_corrupt="stop")
    assert (found.log_end_offset, found.records, len(found.skipped)) == (5, 1, 1)


def test_groups_and_partitions_can_be_chosen(lag):
    lag(2)
    assert len(list(kafkastore.share_lag(lag.root, ["g"], partitions=["orders-0"]))) == 1
    assert list(kafkastore.share_lag(lag.root, partitions=["__share_group_state-0"])) == []
    with pytest.raises(NoCommittedOffsetsError) as refused:
        kafkastore.share_lag(lag.root, ["other"])
    assert refused.value.group == "other"


def test_a_store_without_states_of_share_groups_is_refused(tmp_path):
    with written(tmp_path / "logs") as partition:
        partition("__consumer_offsets").add(commit("g", "orders", 0, 1))
    with pytest.raises(NoCommittedOffsetsError):
        kafkastore.share_lag(tmp_path / "logs")


def test_a_partition_of_another_topic_with_the_same_name_is_not_read(lag):
    lag(2)
    set_topic_id(lag.root / "orders-0", "AAAAAAAAAAAAAAAAAAAAAQ")
    (found,) = kafkastore.share_lag(lag.root)
    assert (found.topic_partition, found.offsets, found.records) == (None, None, None)
    with written(lag.root) as partition:
        partition("orders", 1).add(record(T0))
    set_topic_id(lag.root / "orders-1", TOPIC_ID)
    (found,) = kafkastore.share_lag(lag.root)
    assert (found.topic_id, found.partition, found.offsets) == (TOPIC_ID, 0, None)
