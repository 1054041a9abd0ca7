"""Committed offsets from the records of ``__consumer_offsets``."""
from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models.internal_topics import pack_group_key, pack_group_value, pack_offset_commit_key
from models.seed import examples
from use_cases.stores import T0, commit, record, written

import kafkastore
from kafkastore.errors import CorruptionError
from kafkastore.formats.topics.consumer_offsets import OffsetCommitKey
from kafkastore.use_cases.committed_offsets import NoCommittedOffsetsError, committed_offsets

TOPIC = "__consumer_offsets"


def found(root, *groups):
    return {
        tuple(key): each.offset
        for key, each in committed_offsets(kafkastore.open(root), groups).items()
    }


@pytest.mark.golden_cases(names="wide")
def test_the_commit_of_every_real_broker_is_found(golden_case):
    """Each commits offset 0 of a-0 as golden-group, since 0.10.2 within `wide`."""
    store = kafkastore.open(golden_case.logs)
    if not any(each.topic == TOPIC for each in store.partitions):
        assert golden_case.version in ("0.8.2.2", "0.9.0.1", "0.10.0.1")
        with pytest.raises(NoCommittedOffsetsError):
            committed_offsets(store)
        return
    ((key, committed),) = committed_offsets(store).items()
    assert key == ("golden-group", "a", 0)
    assert committed.offset == 0
    assert committed.commit_timestamp < golden_case.answers["asked_at_ms"]


def test_the_last_commit_counts_and_a_tombstone_deletes_it(tmp_path):
    with written(tmp_path / "logs") as partition:
        offsets = partition(TOPIC)
        offsets.add(commit("a", "t", 0, 1), commit("a", "t", 1, 5), commit("b", "t", 0, 9))
        offsets.add(commit("a", "t", 0, 2), commit("a", "t", 1, None))
        offsets.add(commit("b", "t", 0, None), commit("b", "t", 0, 3))
    assert found(tmp_path / "logs") == {("a", "t", 0): 2, ("b", "t", 0): 3}


def test_all_partitions_of_the_topic_are_read_and_groups_can_be_chosen(tmp_path):
    with written(tmp_path / "logs") as partition:
        partition(TOPIC, 3).add(commit("a", "t", 0, 1))
        partition(TOPIC, 17).add(commit("b", "t", 0, 2))
    assert found(tmp_path / "logs") == {("a", "t", 0): 1, ("b", "t", 0): 2}
    assert found(tmp_path / "logs", "b") == {("b", "t", 0): 2}
    with pytest.raises(NoCommittedOffsetsError) as error:
        found(tmp_path / "logs", "c")
    assert error.value.group == "c"


def test_other_records_of_the_topic_are_skipped(tmp_path):
    with written(tmp_path / "logs") as partition:
        offsets = partition(TOPIC)
        empty = pack_group_value(3, protocol_type="consumer", generation=1)
        group = record(T0, empty, pack_group_key("a"))
        offsets.add(group, commit("a", "t", 0, 4))
        offsets.add(record(T0, b"?", bytes.fromhex("0003 0001 61")))
    assert found(tmp_path / "logs") == {("a", "t", 0): 4}


def test_offsets_of_a_transaction_count_once_it_is_committed(tmp_path):
    with written(tmp_path / "logs") as partition:
        offsets = partition(TOPIC)
        offsets.add(commit("a", "t", 0, 1), commit("a", "t", 1, 1), commit("a", "t", 2, 1))
        offsets.send(7, commit("a", "t", 0, 10))
        offsets.send(8, commit("a", "t", 1, 20))
        offsets.send(9, commit("a", "t", 2, 30))
        offsets.end(7, is_commit=True)
        offsets.end(8, is_commit=False)
        offsets.send(7, commit("a", "t", 0, 11))  # never ends
    assert found(tmp_path / "logs") == {("a", "t", 0): 10, ("a", "t", 1): 1, ("a", "t", 2): 1}


def test_a_commit_does_not_undo_a_later_record(tmp_path):
    with written(tmp_path / "logs") as partition:
        offsets = partition(TOPIC)
        offsets.send(7, commit("a", "t", 0, 10), commit("a", "t", 1, 10))
        offsets.add(commit("a", "t", 0, 12))
        offsets.end(7, is_commit=True)
    assert found(tmp_path / "logs") == {("a", "t", 0): 12, ("a", "t", 1): 10}


def test_a_commit_does_not_restore_an_offset_that_was_deleted(tmp_path):
    with written(tmp_path / "logs") as partition:
        offsets = partition(TOPIC)
        offsets.send(7, commit("a", "t", 0, 10), commit("a", "t", 1, 10))
        offsets.add(commit("a", "t", 0, None))
        offsets.send(7, commit("a", "t", 1, 11))
        offsets.end(7, is_commit=True)
    assert found(tmp_path / "logs") == {("a", "t", 1): 11}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["plain", "send", "commit", "abort"]),
        st.integers(1, 2),
        st.integers(0, 2),
        st.none() | st.integers(0, 99),
    ),
    max_size=30,
)


@settings(max_examples=examples(60))
@given(STEPS)
def test_any_sequence_gives_the_offsets_of_a_coordinator_that_reads_each_record(
    tmp_path_factory, steps
):
    root = tmp_path_factory.mktemp("any") / "logs"
    loaded, pending, position, is_open = {}, {}, 0, set()
    with written(root) as partition:
        offsets = partition(TOPIC)
        offsets.add(commit("first", "t", 0, 0))
        position += 1
        for kind, producer, number, offset in steps:
            key = ("a", "t", number)
            if kind == "plain":
                offsets.add(commit(*key, offset))
                loaded[key] = (position, offset)
                if offset is None:
                    del loaded[key]
                    for written_by in pending.values():
                        written_by.pop(key, None)
            elif kind == "send":
                offsets.send(producer, commit(*key, offset))
                is_open.add(producer)
                written_by = pending.setdefault(producer, {})
                written_by[key] = (position, offset)
                if offset is None:
                    del written_by[key]
            elif producer in is_open:
                offsets.end(producer, is_commit=kind == "commit")
                is_open.remove(producer)
                for each, at in pending.pop(producer, {}).items():
                    if kind == "commit" and loaded.get(each, (-1,))[0] < at[0]:
                        loaded[each] = at
            else:
                continue
            position += 1
    expected = {key: offset for key, (_, offset) in loaded.items()}
    assert found(root) == {("first", "t", 0): 0} | expected


def test_a_corrupt_value_is_an_error_with_its_offset(tmp_path):
    with written(tmp_path / "logs") as partition:
        key = pack_offset_commit_key(OffsetCommitKey("a", "t", 0))
        partition(TOPIC).add(commit("b", "t", 0, 4), record(T0, b"\0\3\0", key))
    with pytest.raises(CorruptionError) as error:
        found(tmp_path / "logs")
    assert error.value.path == tmp_path / "logs" / "__consumer_offsets-0"


def test_a_store_without_the_topic_raises_an_error(tmp_path):
    with written(tmp_path / "logs") as partition:
        partition("t").add(record(T0))
    with pytest.raises(NoCommittedOffsetsError) as error:
        found(tmp_path / "logs")
    assert error.value.group is None
