"""What Fetch finds in random logs: sound, damaged, of old formats, and with transactions."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log.test_on_corrupt import damaged
from models.log_directory import Log, Segment
from models.protocol_client import LARGEST, batches
from models.record_format import Batch, Row, marker
from models.record_reader import read_records
from models.record_strategies import bounded, logs
from models.seed import SEED

import kafkastore
from kafkastore.formats.indexes import transaction_index
from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.state import producer_snapshot
from kafkastore.server.catalog import Catalog, Node
from kafkastore.server.fetch.batches import SMALL_BYTES, FileRange
from kafkastore.server.fetch.fetch_requests import MAX_OPEN_FILES, Fetching
from kafkastore.server.fetch.sessions import Wanted
from kafkastore.server.served_log import Reading

LIMITS = st.sampled_from([1, 100, 400, LARGEST])
NEWEST = 17
REQUEST = {
    "max_bytes": LARGEST, "isolation_level": 0, "replica_id": -1,
    "replica_state": {"replica_id": -1},
}
LOGS = 40
RANGES = 60


def fetching(root, **reading):
    """The answers for a directory."""
    store = kafkastore.open(root)
    catalog = Catalog(lambda: (store, list(store.partitions)), None, Reading(**reading))
    return Fetching(catalog, Node(1, "localhost", 9092), LARGEST)


def fetch(answers, offset, limit=LARGEST, isolation=0):
    """Return the row of ``t-0`` with its bytes."""
    wanted = Wanted("t", None, 0, offset, limit, -1, -1)
    fetched = answers.fetch([wanted], REQUEST | {"isolation_level": isolation}, NEWEST)
    (_, row), = fetched.rows
    records = row["records"]
    if isinstance(records, FileRange):
        row["records"] = bytes(records.log.read(records.position, records.size))
        records.close()
    assert fetched.records_bytes == len(row["records"])
    return row


def consume(answers, start, limit):
    """Return all batches from an offset on, and the last row."""
    found, offset = [], start
    while True:
        row = fetch(answers, offset, limit)
        more, size = batches(row["records"])
        assert size == len(row["records"])
        if not more:
            return found, row
        assert more[0].last_offset >= offset
        found += more
        offset = more[-1].last_offset + 1


def fields(records, start=0):
    """Return offset, timestamp, key and value of records from an offset on."""
    return [(each[0], each[1], each[3], each[4]) for each in records if each[0] >= start]


def stored(log, **options):
    """Return the same of the records that are stored."""
    return [
        (each.offset, each.timestamp, each.key, each.value)
        for each in log.records(include_control=True, **options)
    ]


@bounded(60)
@given(log=logs(), source=st.randoms(use_true_random=False), limit=LIMITS, as_v2=st.booleans())
def test_consumers_get_all_sound_records_of_a_damaged_log(log, source, limit, as_v2):
    with damaged(log, source) as root:
        partition = kafkastore.open(root)["t-0"]
        skipped = []
        expected = stored(partition, on_corrupt="skip", skipped=skipped)
        answers = fetching(root, on_corrupt="skip", as_v2=as_v2)
        start = partition.log_start_offset
        found, last = consume(answers, start, limit)
        sent = [record for each in found for record in read_records(each.data)]
        assert fields(sent, start) == expected
        assert last["error_code"] == ErrorCode.NONE
        assert (found[-1].last_offset + 1 if found else start) <= last["high_watermark"]
        reported = [each[:3] for each in answers.catalog.skipped]
        assert len(reported) == len(set(reported))


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("interval", [0, 100_000])
def test_a_corrupt_batch_is_an_error_at_its_offset_only(tmp_path, magic, interval, caplog):
    written = [
        Batch((Row(offset, 5, b"k", b"v" * 20),), magic=magic) for offset in range(8)
    ]
    segment = Segment(0, tuple(written)).indexed(interval=interval)
    for number, bad in enumerate(written):
        root = Log((segment,), True).write(tmp_path / str(number))
        path = root / "t-0" / f"{0:020}.log"
        data = bytearray(path.read_bytes())
        data[sum(len(each.data) for each in written[: number + 1]) - 3] ^= 1
        path.write_bytes(data)
        answers = fetching(root)
        for limit in (1, LARGEST):
            found, last = consume(answers, 0, limit)
            assert b"".join(each.data for each in found) == b"".join(
                each.data for each in written[:number]
            )
            assert last["error_code"] == ErrorCode.CORRUPT_MESSAGE
            for offset in range(number + 1, len(written) + 1):
                found, last = consume(answers, offset, limit)
                assert [each.data for each in found] == [each.data for each in written[offset:]]
                assert last["error_code"] == ErrorCode.NONE
        assert [record.args[0].partition for record in caplog.records] == [0]
        caplog.clear()
        found, last = consume(fetching(root, on_corrupt="skip"), 0, 1)
        assert [each.data for each in found] == [
            each.data for each in written if each is not bad
        ]
        assert last["error_code"] == ErrorCode.NONE
        (record,) = caplog.records
        assert record.args[0].start_offset == number
        caplog.clear()


@bounded(60)
@given(log=logs(magics=(0, 1)), limit=LIMITS)
def test_old_messages_become_record_batches_with_the_same_records(log, limit):
    with tempfile.TemporaryDirectory() as directory:
        root = log.write(Path(directory) / "logs")
        partition = kafkastore.open(root)["t-0"]
        answers = fetching(root, as_v2=True)
        start = partition.log_start_offset
        found, _ = consume(answers, start, limit)
        assert {each.data[16] for each in found} <= {2}
        sent = [record for each in found for record in read_records(each.data)]
        assert fields(sent, start) == stored(partition)
        kinds = [each.timestamp_type for each in partition.records()]
        for record, kind in zip((each for each in sent if each[0] >= start), kinds, strict=True):
            assert record[1] == -1 or record[2] == int(kind)


def test_a_response_opens_few_files_and_each_consumer_gets_all(tmp_path):
    batch = Batch((Row(0, 5, b"k", bytes(SMALL_BYTES)),))
    root = Log((Segment(0, (batch,)),), True).write(tmp_path / "logs")
    partitions = MAX_OPEN_FILES + 30
    for number in range(1, partitions):
        shutil.copytree(root / "t-0", root / f"t-{number}")
    answers = fetching(root)
    left = [Wanted("t", None, number, 0, LARGEST, -1, -1) for number in range(partitions)]
    counts = []
    while left:
        fetched = answers.fetch(left, REQUEST, NEWEST)
        sent = [each for each, row in fetched.rows if row["records"]]
        open_files = [row for _, row in fetched.rows if isinstance(row["records"], FileRange)]
        assert 0 < len(open_files) <= MAX_OPEN_FILES
        counts.append(len(sent))
        fetched.close()
        left = [each for each in left if each not in sent]
    assert counts == [MAX_OPEN_FILES, 30]


class Outcome(NamedTuple):
    """A transaction, whose marker is at `last`, or None."""

    producer_id: int
    first: int
    last: int | None
    is_aborted: bool


class TransactionalLog:
    """A random log with transactions, and what became of them."""

    def __init__(self, chance):
        self.batches, self.outcomes, self.bases = [], [], []
        begun, offset = {}, 0
        for _ in range(chance.choice((1, 2, 4))):
            self.bases.append((offset, dict(begun)))
            for _ in range(chance.randrange(1, 15)):
                producer_id = chance.choice((1, 2, 3))
                if begun and chance.random() < 0.3:
                    producer_id = chance.choice(sorted(begun))
                    is_aborted = chance.random() < 0.7
                    self.batches.append(
                        marker(offset, 5, is_commit=not is_aborted, producer_id=producer_id)
                    )
                    first = begun.pop(producer_id)
                    self.outcomes.append(Outcome(producer_id, first, offset, is_aborted))
                    offset += 1
                    continue
                is_transactional = chance.random() < 0.8
                if is_transactional:
                    begun.setdefault(producer_id, offset)
                rows = tuple(Row(offset + at, 5, b"k", b"v" * 20) for at in range(2))
                self.batches.append(Batch(
                    rows, producer_id=producer_id, producer_epoch=0, base_sequence=0,
                    is_transactional=is_transactional,
                ))
                offset += 2
        self.outcomes += [Outcome(each, first, None, False) for each, first in begun.items()]
        self.end = offset

    def write(self, root):
        """Write the log without transaction indexes and snapshots."""
        bases = [base for base, _ in self.bases]
        ends = [*bases[1:], self.end]
        segments = tuple(
            Segment(base, tuple(
                each for each in self.batches if base <= each.base_offset < end
            )).indexed(interval=150)
            for base, end in zip(bases, ends, strict=True)
        )
        return Log(segments, True).write(root) / "t-0"

    def stable(self, before=None):
        """Where the oldest transaction begins that is open at an offset, or that."""
        end = self.end if before is None else before
        return min(
            (each.first for each in self.outcomes
             if each.first < end and (each.last is None or each.last >= end)),
            default=end,
        )

    def write_indexes(self, directory, change):
        """Write transaction indexes, after a change of their entries."""
        bases = [base for base, _ in self.bases]
        for base, end in zip(bases, [*bases[1:], self.end], strict=True):
            entries = change([
                [each.producer_id, each.first, each.last, self.stable(each.last + 1)]
                for each in sorted(self.outcomes, key=lambda each: each.last or 0)
                if each.is_aborted and base <= each.last < end
            ])
            if entries:
                data = transaction_index.pack([tuple(each) for each in entries])
                (directory / f"{base:020}.txnindex").write_bytes(data)

    def write_snapshots(self, directory):
        """Write the producers at the beginning of each segment."""
        for base, begun in self.bases[1:]:
            data = producer_snapshot.pack([
                (each, 0, 0, first, 0, 5, 0, first) for each, first in begun.items()
            ])
            (directory / f"{base:020}.snapshot").write_bytes(data)

    def aborted(self, start, end):
        """Return the aborted transactions that overlap a range, by producer and first offset."""
        return {
            (each.producer_id, each.first): each for each in self.outcomes
            if each.is_aborted and each.first < end and each.last >= start
        }


def no_change(entries):
    return entries


def no_entries(_):
    return []


def moved(entries):
    """Let transactions begin within their first batch."""
    return [[each[0], min(each[1] + 1, each[2]), *each[2:]] for each in entries]


def of_others(entries):
    """Let others have aborted."""
    return [[each[0] + 7, *each[1:]] for each in entries]


def without_first(entries):
    return entries[1:]


@pytest.mark.parametrize("has_snapshots", [False, True])
@pytest.mark.parametrize("change", [no_change, no_entries, moved, of_others, without_first])
def test_aborted_transactions_have_their_first_offsets_whatever_the_index_has(
    tmp_path, change, has_snapshots
):
    checked = 0
    for number in range(LOGS // 5):
        chance = random.Random(f"{SEED}/{change.__name__}/{has_snapshots}/{number}")
        log = TransactionalLog(chance)
        directory = log.write(tmp_path / str(number))
        log.write_indexes(directory, change)
        if has_snapshots:
            log.write_snapshots(directory)
        answers = fetching(directory.parent)
        for _ in range(RANGES // 2):
            offset = chance.randint(0, log.end)
            row = fetch(answers, offset, chance.choice((1, 300, LARGEST)), isolation=1)
            assert row["last_stable_offset"] == log.stable()
            found, _ = batches(row["records"])
            if not found:
                assert offset >= log.stable()
                continue
            end = found[-1].last_offset + 1
            given = {
                (each["producer_id"], each["first_offset"])
                for each in row["aborted_transactions"]
            }
            expected = log.aborted(offset, end)
            assert given <= expected.keys(), (number, offset, end)
            # One without records in the range makes no difference to a consumer.
            missing = [expected[each] for each in expected.keys() - given]
            assert not any(
                each.producer_id == batch.producer_id
                and each.first <= batch.last_offset < each.last
                for each in missing for batch in found if batch.is_transactional
            ), (number, offset, end)
            if change is no_change:
                assert given == expected.keys()
            checked += len(given)
    assert checked
