"""Groups of tiered topics: unread records in remote storage are unknown, not missing."""

import pytest
from models.tiered_directory import VERSIONS, unpack

import kafkastore
from kafkastore.formats.topics.consumer_offsets import OffsetCommitKey
from kafkastore.use_cases.failover import FailoverError, failover_of
from kafkastore.use_cases.lag import OffsetPlace
from kafkastore.use_cases.share_lag import share_lag_of
from kafkastore.use_cases.share_states import SharePartition, SharePartitionState

KEY = OffsetCommitKey("group", "tail", 0)


@pytest.fixture(scope="module")
def tiered(tmp_path_factory):
    return unpack(VERSIONS[-1], tmp_path_factory.mktemp("tiered"))


def lag(tiered, offset):
    (found,) = kafkastore.lag(kafkastore.open(tiered.logs), offsets={KEY: offset})
    return found


def test_records_in_remote_storage_are_not_counted_and_not_lost(tiered):
    found = lag(tiered, 3)
    assert found.place is OffsetPlace.IN_LOG
    assert (found.lost_offsets, found.offsets, found.records, found.lag_ms) == (0, 37, None, None)


def test_records_here_are_counted(tiered):
    found = lag(tiered, 38)
    assert (found.records, found.lag_ms) == (2, 1000)


@pytest.mark.parametrize(("start_offset", "records"), [(3, None), (38, 2)])
def test_share_groups_count_what_is_here(tiered, start_offset, records):
    log = kafkastore.open(tiered.logs)["tail", 0]
    state = SharePartitionState(start_offset, 0, 0, None, ())
    found = share_lag_of(log, SharePartition("group", "id", 0), state)
    assert (found.offsets, found.lost_offsets, found.records) == (40 - start_offset, 0, records)


def test_a_group_whose_next_record_is_in_remote_storage_has_no_failover(tiered):
    store = kafkastore.open(tiered.logs)
    assert failover_of(store, store, KEY, 38, check=False).offset == 38
    with pytest.raises(FailoverError) as caught:
        failover_of(store, store, KEY, 3, check=False)
    assert caught.value.topic_partition == ("tail", 0)
