"""Aborted batches and replayed transactions: by a model of Kafka's consumer, and by real ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import record_reader
from models.refused import refused
from models.seed import examples
from models.transaction_model import ABORT, COMMIT, batches_a_consumer_skips, logs

from kafkastore.formats.indexes import transaction_index
from kafkastore.formats.indexes.transaction_index import ABORTED_TXN
from kafkastore.formats.records import batch_header
from kafkastore.formats.records.batch_header import BATCH_HEADER
from kafkastore.formats.records.control_records import ControlRecord, first_control_record
from kafkastore.formats.records.record_batch import RecordBatch
from kafkastore.formats.state.aborted_batches import AbortedBatches
from kafkastore.formats.state.producer_snapshot import PRODUCER_ENTRY, parse
from kafkastore.formats.state.producer_state import ProducerState


def array(entries):
    return np.array(entries, ABORTED_TXN)


def header(offset, producer_id=7, attributes=0x10, magic=2, count=1):
    row = np.zeros(1, BATCH_HEADER)
    row["base_offset"], row["last_offset"] = offset, offset + count - 1
    row["producer_id"], row["attributes"], row["magic"] = producer_id, attributes, magic
    return row


@settings(max_examples=examples(200))
@given(logs())
def test_a_consumer_skips_the_batches_that_are_reported_aborted(log):
    aborted = [(first, producer_id) for producer_id, first, *_ in log.index()]
    expected = batches_a_consumer_skips(log.headers, log.control_types, aborted)
    assert AbortedBatches(array(log.index())).of(log.headers).tolist() == expected


@settings(max_examples=examples(200))
@given(logs(), st.data())
def test_a_consumer_that_begins_anywhere_skips_the_same_batches(log, data):
    """The transactions of a range are enough, in any order, and more do no damage."""
    first = data.draw(st.integers(0, len(log.headers)))
    last = data.draw(st.integers(first, len(log.headers)))
    read = log.headers[first:last]
    if not len(read):
        return
    start, end = int(read["base_offset"][0]), int(read["last_offset"][-1]) + 1
    found, _ = transaction_index.collect_aborted_txns(array(log.index()), start, end)
    expected = batches_a_consumer_skips(
        read,
        log.types_of(first, last),
        zip(found["first_offset"].tolist(), found["producer_id"].tolist(), strict=True),
    )
    assert AbortedBatches(found[::-1]).of(read).tolist() == expected
    assert AbortedBatches(array(log.index())).of(read).tolist() == expected


def replay(producers, headers, types):
    """Go over batches whose control records have these types; None: it has no record."""
    controls = [None if each is None else ControlRecord(each, 0) for each in types]
    return producers.replay(headers, controls)


@settings(max_examples=examples(200))
@given(logs(), st.lists(st.integers(0, 40)))
def test_a_replay_finds_the_entries_of_the_index_from_any_runs(log, cuts):
    producers = ProducerState()
    ends = [*sorted(min(cut, len(log.headers)) for cut in cuts), len(log.headers)]
    found, start = [], 0
    for end in ends:
        aborted = replay(producers, log.headers[start:end], log.types_of(start, end))
        assert aborted.dtype == ABORTED_TXN
        found += aborted.tolist()
        start = end
    assert found == log.index()
    still_open = {
        transaction.producer_id: transaction.first_offset
        for transaction in log.transactions
        if transaction.last_offset is None
    }
    assert producers.open_transactions == still_open
    assert producers.first_undecided_offset == min(still_open.values(), default=None)


@given(logs())
def test_a_replay_continues_from_a_producer_snapshot(log):
    middle = len(log.headers) // 2
    before = ProducerState()
    replay(before, log.headers[:middle], log.types_of(0, middle))
    producers = np.zeros(len(before.open_transactions) + 1, PRODUCER_ENTRY)
    producers["producer_id"][:-1] = list(before.open_transactions)
    producers["producer_id"][-1] = 99
    producers["current_txn_first_offset"][:-1] = list(before.open_transactions.values())
    producers["current_txn_first_offset"][-1] = -1
    after = ProducerState(producers)
    assert after.open_transactions == before.open_transactions
    rest = log.headers[middle:], log.types_of(middle, len(log.headers))
    assert replay(after, *rest).tolist() == replay(before, *rest).tolist()


@pytest.mark.parametrize(
    ("batch", "is_aborted"),
    [
        (header(20), True),
        (header(29), True),
        (header(19), False),
        (header(18, count=3), True),
        (header(31), False),
        (header(20, producer_id=8), False),
        (header(20, attributes=0), False),
        (header(30, attributes=0x30), False),
        (header(20, magic=1), False),
    ],
    ids=["first", "last", "before", "across its begin", "after", "another producer",
         "not transactional", "the marker", "an old format"],
)
def test_a_batch_is_aborted_if_it_is_of_the_producers_transaction(batch, is_aborted):
    aborted = AbortedBatches(array([(7, 20, 30, 31)]))
    assert aborted.of(batch).tolist() == [is_aborted]


def test_without_aborted_transactions_no_batch_is_aborted():
    headers = np.concatenate([header(0), header(1, attributes=0x30)])
    assert AbortedBatches(array([])).of(headers).tolist() == [False, False]
    assert AbortedBatches(array([(7, 0, 1, 2)])).of(headers[:0]).tolist() == []


def test_a_query_alters_neither_headers_nor_transactions():
    headers, entries = header(20), array([(7, 20, 30, 31)])
    aborted = AbortedBatches(entries)
    entries["first_offset"] = 25
    headers.flags.writeable = False
    assert aborted.of(headers).tolist() == [True]


def test_many_transactions_of_many_producers_are_distinguished():
    """100,000 transactions, each of two batches and a marker, half of them aborted."""
    count = 100_000
    headers = np.zeros(2 * count, BATCH_HEADER)
    headers["magic"], headers["attributes"] = 2, 0x10
    headers["producer_id"] = np.repeat(np.random.default_rng(8).integers(0, 5000, count), 2)
    headers["base_offset"] = headers["last_offset"] = np.arange(2 * count) * 3 // 2
    entries = np.zeros(count // 2, ABORTED_TXN)
    entries["producer_id"] = headers["producer_id"][::4]
    entries["first_offset"] = np.arange(0, 3 * count, 6)
    entries["last_offset"] = entries["first_offset"] + 2
    expected = np.arange(2 * count) % 4 < 2
    assert (AbortedBatches(entries).of(headers) == expected).all()


def test_control_types_must_be_as_many_as_control_batches():
    headers = np.concatenate([header(0), header(1, attributes=0x30)])
    for types in ([], [ABORT, COMMIT]):
        with refused("controls"):
            replay(ProducerState(), headers, types)


# Real brokers


def batches_of(partition):
    """Headers, data and positions of all batches of a partition."""
    for path in sorted(partition.glob("*.log")):
        for position, data in record_reader.split(path.read_bytes())[0]:
            yield batch_header.parse(data, position), RecordBatch(data, position)


@pytest.mark.golden_cases(names="transactions", answers="answers")
def test_the_remaining_records_are_those_of_a_read_committed_consumer(golden_case):
    skipped = 0
    for name, partition_answers in golden_case.answers["partitions"].items():
        if partition_answers.get("committed_offsets") is None:
            continue
        indexes = sorted((golden_case.logs / name).glob("*.txnindex"))
        aborted = AbortedBatches(
            np.concatenate([transaction_index.parse(path.read_bytes()) for path in indexes])
        )
        offsets = []
        for headers, batch in batches_of(golden_case.logs / name):
            if aborted.of(headers)[0]:
                skipped += 1
            elif not batch.is_control:
                offsets += [record.offset for record in batch.records()]
        expected = partition_answers["committed_offsets"]
        last_stable = partition_answers["last_stable_offset"]
        assert [each for each in offsets if each < last_stable] == expected
    assert skipped > 20


@pytest.mark.golden_cases(names="transactions", answers="answers")
def test_a_replay_of_the_log_finds_the_brokers_indexes_and_last_stable_offset(golden_case):
    compared = 0
    for name, partition_answers in golden_case.answers["partitions"].items():
        producers = ProducerState()
        found = {}
        for path in sorted((golden_case.logs / name).glob("*.log")):
            snapshot = path.with_suffix(".snapshot")
            if snapshot.exists():  # what was open at the segment's start
                there = ProducerState(parse(snapshot.read_bytes()))
                assert there.open_transactions == producers.open_transactions
                compared += 1
            entries = []
            for position, data in record_reader.split(path.read_bytes())[0]:
                batch = RecordBatch(data, position)
                types = [first_control_record(batch).type] if batch.is_control else []
                entries.append(replay(producers, batch_header.parse(data, position), types))
            found[path.stem] = b"".join(map(transaction_index.pack, entries))
        indexes = {path.stem: path.read_bytes()
                   for path in (golden_case.logs / name).glob("*.txnindex")}
        assert {base: data for base, data in found.items() if data} == indexes
        undecided = producers.first_undecided_offset
        expected = partition_answers["log_end_offset"] if undecided is None else undecided
        assert partition_answers["last_stable_offset"] == expected
    assert compared > 1
