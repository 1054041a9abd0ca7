"""Leader epochs: Kafka's own test cases, a model, and the checkpoints of real brokers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import leader_epoch_model as model
from models.seed import examples

from kafkastore.errors import InvalidLeaderEpochError
from kafkastore.formats.records import batch_header
from kafkastore.formats.records.batch_header import BATCH_HEADER
from kafkastore.formats.state.checkpoints import (
    pack_leader_epoch_checkpoint,
    parse_leader_epoch_checkpoint,
)
from kafkastore.formats.state.leader_epochs import LeaderEpochs

THREE = [(2, 6), (3, 8), (4, 11)]
UNDEFINED = (-1, -1)


def headers(*batches):
    """Headers of batches (leader epoch, base offset), record batches by default."""
    rows = np.zeros(len(batches), BATCH_HEADER)
    for row, (epoch, offset, *magic) in zip(rows, batches, strict=True):
        row["leader_epoch"], row["base_offset"] = epoch, offset
        row["magic"] = magic[0] if magic else 2
    return rows


# Kafka's LeaderEpochFileCacheTest


@pytest.mark.parametrize(
    ("assigned", "expected"),
    [
        ([(2, 10)], [(2, 10)]),
        ([(2, 9), (2, 10)], [(2, 9)]),
        ([(2, 9), (3, 9)], [(3, 9)]),
        ([(5, 11), (6, 12), (7, 13), (7, 12)], [(5, 11), (7, 12)]),
        ([(1, 5), (2, 6), (1, 7)], [(1, 7)]),
        ([(2, 6), (3, 5)], [(3, 5)]),
        ([(0, 0), (1, 0), (2, 5)], [(1, 0), (2, 5)]),
        ([(0, 0), (0, 1), (1, 3), (1, 4), (2, 6), (2, 7)], [(0, 0), (1, 3), (2, 6)]),
    ],
    ids=["the first", "a later offset of the epoch changes nothing", "nothing written before",
         "an earlier offset of the epoch", "a lower epoch", "an earlier offset of a higher epoch",
         "a leader changes at once", "a follower gets many messages"],
)
def test_an_assigned_epoch_removes_what_it_contradicts(assigned, expected):
    epochs = LeaderEpochs()
    for epoch, start_offset in assigned:
        before = epochs.entries
        assert epochs.assign(epoch, start_offset) == (epochs.entries != before)
    assert list(epochs.entries) == expected
    assert epochs.latest_epoch == expected[-1][0]
    assert epochs.entries == LeaderEpochs(assigned).entries


@pytest.mark.parametrize(
    ("entries", "requested_epoch", "expected"),
    [
        ([], 0, UNDEFINED),
        ([], -1, UNDEFINED),
        ([], 7, UNDEFINED),
        ([(2, 11), (3, 12)], -1, UNDEFINED),
        ([(2, 100)], 3, UNDEFINED),
        ([(2, 11)], 2, (2, 99)),
        ([(5, 11), (6, 12), (7, 13)], 4, (4, 11)),
        ([(1, 11), (2, 13), (3, 15)], 2, (2, 15)),
        ([(0, 10), (2, 13), (4, 17)], 1, (0, 13)),
        ([(0, 10), (2, 13), (4, 17)], 2, (2, 17)),
        ([(0, 10), (2, 13), (4, 17)], 3, (2, 17)),
        ([(5, 11), (7, 12)], 6, (5, 12)),
        ([(1, 0), (2, 5)], 0, (0, 0)),
    ],
    ids=["none known", "none known, undefined", "none known, 7", "undefined", "above the latest",
         "the latest ends at the log end", "below the first", "an earlier one ends at the next",
         "the one below the first gap", "an exact one between gaps", "the one below another gap",
         "one that was removed", "one that wrote nothing"],
)
def test_an_epoch_ends_where_the_next_begins(entries, requested_epoch, expected):
    assert LeaderEpochs(entries).end_offset_for(requested_epoch, 99) == expected


@pytest.mark.parametrize(
    ("end_offset", "expected"),
    [(12, THREE), (11, THREE[:2]), (9, THREE[:2]), (8, THREE[:1]), (6, []), (0, []), (-1, THREE)],
    ids=["after all", "on the last boundary", "between", "on a boundary", "on the first", "at 0",
         "undefined"],
)
def test_cutting_the_end_drops_the_epochs_that_begin_there(end_offset, expected):
    epochs = LeaderEpochs(THREE)
    assert epochs.truncate_from_end(end_offset) == (expected != THREE)
    assert list(epochs.entries) == expected
    assert epochs.latest_epoch == (expected[-1][0] if expected else None)


@pytest.mark.parametrize(
    ("start_offset", "expected"),
    [
        (-1, THREE),
        (1, THREE),
        (6, THREE),
        (7, [(2, 7), (3, 8), (4, 11)]),
        (8, [(3, 8), (4, 11)]),
        (9, [(3, 9), (4, 11)]),
        (11, [(4, 11)]),
        (15, [(4, 15)]),
    ],
    ids=["undefined", "too early", "the first offset", "in the first", "on a boundary", "between",
         "the last boundary", "after all: the latest is kept"],
)
def test_truncating_the_start_moves_the_epoch_of_the_new_start(start_offset, expected):
    epochs = LeaderEpochs(THREE)
    assert epochs.truncate_from_start(start_offset) == (expected != THREE)
    assert list(epochs.entries) == expected


def test_truncating_no_epochs_has_no_effect():
    epochs = LeaderEpochs()
    assert not epochs.truncate_from_start(7)
    assert not epochs.truncate_from_end(7)
    assert not epochs.clear()
    assert (epochs.entries, epochs.latest_epoch, epochs.epoch_for_offset(7)) == ((), None, None)


def test_an_offset_is_of_the_last_epoch_that_begins_up_to_it():
    epochs = LeaderEpochs([(0, 10), (1, 20), (5, 30)])
    found = [epochs.epoch_for_offset(offset) for offset in (5, 10, 20, 25, 30, 50)]
    assert found == [None, 0, 1, 1, 5, 5]


def test_epochs_are_the_same_after_writing_and_reading_the_checkpoint():
    epochs = LeaderEpochs(THREE)
    epochs.truncate_from_end(11)
    epochs.truncate_from_start(8)
    data = pack_leader_epoch_checkpoint(epochs.entries)
    assert LeaderEpochs(parse_leader_epoch_checkpoint(data)).entries == ((3, 8),)


def test_all_epochs_can_be_forgotten():
    epochs = LeaderEpochs(THREE)
    assert epochs.clear()
    assert epochs.entries == ()


@pytest.mark.parametrize(("epoch", "start_offset"), [(-1, 5), (5, -1)])
def test_negative_epochs_and_offsets_are_refused(epoch, start_offset):
    epochs = LeaderEpochs(THREE)
    with pytest.raises(InvalidLeaderEpochError):
        epochs.assign(epoch, start_offset)
    assert list(epochs.entries) == THREE


def test_entries_that_were_given_out_do_not_change():
    epochs = LeaderEpochs(THREE)
    entries = epochs.entries
    epochs.truncate_from_end(0)
    assert list(entries) == THREE


# Recovery


def test_a_recovery_takes_only_rising_epochs():
    epochs = LeaderEpochs()
    assert epochs.assign_many(
        headers((0, 0), (0, 5), (2, 9), (1, 12), (2, 13), (3, 14, 1), (4, 15), (-1, 16))
    )
    assert epochs.entries == ((0, 0), (2, 9), (4, 15))
    assert not epochs.assign_many(headers((4, 20), (3, 25)))
    assert not epochs.assign_many(headers())


def test_a_recovery_before_2_7_leaves_epoch_0_out():
    epochs = LeaderEpochs()
    assert not epochs.assign_many(headers((0, 0), (-1, 3)), first_epoch=1)
    assert epochs.assign_many(headers((0, 5), (1, 9)), first_epoch=1)
    assert epochs.entries == ((1, 9),)


@settings(max_examples=examples(200))
@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 20)), max_size=5),
    st.lists(
        st.tuples(st.integers(-1, 8), st.integers(0, 30), st.sampled_from([2, 2, 2, 1])),
        max_size=12,
    ),
    st.integers(0, 1),
    st.integers(0, 12),
)
def test_a_recovery_takes_the_epochs_of_batches_from_any_runs(
    known, batches, first_epoch, cut
):
    epochs, rows = LeaderEpochs(known), headers(*batches)
    expected = model.recover(list(epochs.entries), rows, first_epoch)
    before = epochs.entries
    changed = [
        epochs.assign_many(part, first_epoch=first_epoch) for part in (rows[:cut], rows[cut:])
    ]
    assert list(epochs.entries) == expected
    assert any(changed) == (list(before) != expected)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("assign"), st.integers(0, 6), st.integers(0, 20)),
        st.tuples(st.just("truncate_from_end"), st.integers(-1, 21)),
        st.tuples(st.just("truncate_from_start"), st.integers(-1, 21)),
    ),
    max_size=15,
)


@settings(max_examples=examples(200))
@given(STEPS)
def test_after_any_steps_the_answers_are_those_of_the_model(steps):
    epochs, expected = LeaderEpochs(), []
    for name, *arguments in steps:
        before = epochs.entries
        changed = getattr(epochs, name)(*arguments)
        expected = getattr(model, name)(expected, *arguments)
        assert list(epochs.entries) == expected
        assert changed == (epochs.entries != before)
    for offset in range(-1, 22):
        assert epochs.epoch_for_offset(offset) == model.epoch_for_offset(expected, offset)
    for epoch in range(-1, 8):
        answer = epochs.end_offset_for(epoch, 22)
        assert answer == model.end_offset_for(expected, epoch, 22)


# Real brokers


def all_headers(partition):
    """The headers of all batches of a partition."""
    found = []
    for path in sorted(partition.glob("*.log")):
        data = path.read_bytes()
        rows = np.zeros(len(data) // batch_header.SMALLEST_FRAME + 1, BATCH_HEADER)
        count = batch_header.scan(data, 0, rows)[0]
        found.append(rows[:count])
    return np.concatenate(found)


@pytest.mark.golden_cases(names=["leader-epochs", "transactions"], answers="answers")
def test_the_batches_report_the_epochs_that_the_broker_wrote_down(golden_case):
    compared = 0
    for checkpoint in sorted(golden_case.logs.glob("*/leader-epoch-checkpoint")):
        expected = parse_leader_epoch_checkpoint(checkpoint.read_bytes())
        rows = all_headers(checkpoint.parent)
        if not len(rows):
            continue
        appended, recovered = LeaderEpochs(), LeaderEpochs()
        for row in rows:
            appended.assign(int(row["leader_epoch"]), int(row["base_offset"]))
        recovered.assign_many(rows)
        assert appended.entries == recovered.entries == expected
        compared += 1
    assert compared
