"""What share groups have read, from the records of ``__share_group_state``."""
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import format_document, internal_topics
from models.record_format import Batch, Row

import kafkastore
from kafkastore.formats.topics.share_group_state import RECORDS
from kafkastore.use_cases.share_states import (
    DeliveryState,
    SharePartition,
    StateBatch,
    combine,
    share_states_in,
)

TOPIC_ID = "2P-XnPKnTZG5NwujU8kn6Q"
KEY = SharePartition("g", TOPIC_ID, 3)
SNAPSHOT, UPDATE = 0, 1
ACKNOWLEDGED, ARCHIVED = DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED

BATCHES = st.lists(
    st.builds(
        lambda first, more, state, count: StateBatch(first, first + more, state, count),
        st.integers(0, 30), st.integers(0, 12), st.sampled_from([0, 2, 4]), st.integers(1, 3),
    ),
    max_size=12,
)


@given(BATCHES)
def test_at_each_offset_the_batch_with_the_most_deliveries_counts(batches):
    expected = {}
    for each in batches:
        for offset in range(each.first_offset, each.last_offset + 1):
            what = (each.delivery_count, each.state)
            expected[offset] = max(expected.get(offset, what), what)
    combined = list(combine(batches))
    assert {
        offset: (each.delivery_count, each.state)
        for each in combined
        for offset in range(each.first_offset, each.last_offset + 1)
    } == expected
    for one, next_one in pairwise(combined):
        assert one.last_offset < next_one.first_offset
        assert one.last_offset + 1 < next_one.first_offset or one[2:] != next_one[2:]


def pack(number, group="g", partition=3, **fields):
    key = internal_topics.pack_key(
        RECORDS, number, group_id=group, topic_id=TOPIC_ID, partition=partition
    )
    return key, internal_topics.pack_value(RECORDS, number, 0, **fields)


def batch(first, last, state, count=1):
    return {
        "first_offset": first, "last_offset": last, "delivery_state": state,
        "delivery_count": count,
    }


def snapshot(start, *batches, **fields):
    return pack(
        SNAPSHOT, snapshot_epoch=0, state_epoch=5, leader_epoch=1, start_offset=start,
        create_timestamp=0, write_timestamp=0, state_batches=batches, **fields,
    )


def update(start, *batches, leader_epoch=-1, **fields):
    return pack(
        UPDATE, snapshot_epoch=0, leader_epoch=leader_epoch, start_offset=start,
        state_batches=batches, **fields,
    )


@pytest.fixture
def read(tmp_path):
    """Return a function that reads the states of some records."""

    def states(*records, **options):
        path = tmp_path / "__share_group_state-0" / f"{0:020}.log"
        path.parent.mkdir(exist_ok=True)
        rows = tuple(Row(offset, 5, *each) for offset, each in enumerate(records))
        path.write_bytes(Batch(rows).data)
        return share_states_in(kafkastore.open(tmp_path)["__share_group_state-0"], **options)

    return states


def test_an_update_changes_what_it_names(read):
    ((key, state),) = read(
        snapshot(3, batch(3, 9, ACKNOWLEDGED)), update(-1, batch(8, 12, ARCHIVED, 2)),
        update(5, leader_epoch=7, delivery_complete_count=8),
    ).items()
    assert key == KEY
    assert (state.start_offset, state.state_epoch, state.leader_epoch) == (5, 5, 7)
    assert state.batches == (
        StateBatch(5, 7, ACKNOWLEDGED, 1), StateBatch(8, 12, ARCHIVED, 2)
    )
    assert (state.count(ACKNOWLEDGED), state.count(ARCHIVED)) == (3, 5)
    assert (state.complete_count, state.complete) == (8, 8)


def test_without_a_count_the_complete_offsets_are_those_of_the_batches(read):
    (state,) = read(
        snapshot(3, batch(3, 9, DeliveryState.AVAILABLE, 2), batch(11, 12, ARCHIVED))
    ).values()
    assert (state.complete_count, state.complete) == (None, 2)
    assert state.count(DeliveryState.AVAILABLE) == 7


def test_what_was_dropped_before_the_start_does_not_come_back(read):
    (state,) = read(
        snapshot(0, batch(0, 9, ACKNOWLEDGED)), update(8), update(2, batch(2, 3, ARCHIVED))
    ).values()
    assert state.start_offset == 2
    assert state.batches == (
        StateBatch(2, 3, ARCHIVED, 1), StateBatch(8, 9, ACKNOWLEDGED, 1)
    )


def test_a_snapshot_replaces_everything_before_it(read):
    (state,) = read(
        snapshot(0, batch(0, 9, ACKNOWLEDGED)), update(2), snapshot(-1)
    ).values()
    assert (state.start_offset, state.batches) == (None, ())


def test_a_tombstone_deletes_the_state(read):
    deleted = internal_topics.pack_key(
        RECORDS, SNAPSHOT, group_id="g", topic_id=TOPIC_ID, partition=3
    ), None
    assert read(snapshot(0), update(2), deleted) == {}
    assert list(read(snapshot(0), deleted, update(2))) == [KEY]


def test_records_of_newer_brokers_are_left_out(read):
    newer = (bytes.fromhex("0063 0001 67"), bytes.fromhex("0000 00"))
    key, value = snapshot(7)
    (state,) = read(newer, snapshot(4), (key, b"\0\x63" + value[2:])).values()
    assert state.start_offset == 4


def test_the_examples_of_the_document_are_true():
    failed, run = format_document.run_examples("share_group_state")
    assert (failed, run > 3) == (0, True)


def test_a_corrupt_record_is_named_or_left_out(read):
    key, value = snapshot(7)
    with pytest.raises(kafkastore.CorruptionError) as refused:
        read((key, value[:9]))
    assert refused.value.path is not None
    assert read((key, value[:9]), on_corrupt="skip") == {}
