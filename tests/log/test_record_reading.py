"""Records as buffers are those of Arrow, also of a part of the rows."""
from __future__ import annotations

import random

import numpy as np
import pytest
from models.seed import SEED

import kafkastore
from kafkastore.formats.records.record_batch import Record, TimestampType
from kafkastore.log.record_reading import RecordOptions, read
from kafkastore.writing.log_dir_writer import LogDirWriter

NUMBERS = ("offset", "timestamp", "timestampType", "leader_epoch", "producer_id", "is_control")
COLUMNS = ("key", "value", *NUMBERS)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    root = tmp_path_factory.mktemp("logs")
    random_ = random.Random(SEED)
    with LogDirWriter(root) as log_dir:
        writer = log_dir.writer("t", 0)
        for _ in range(5):
            writer.append_records([
                Record(0, random_.choice((-1, 5, 1_700_000_000_000)), TimestampType.CREATE_TIME,
                       *random_.choices((None, b"", b"x", b"long" * 9), k=2), (), None)
                for _ in range(random_.randint(1, 30))
            ])
    return kafkastore.open(root)["t", 0]


def rows_of(batch):
    """Return the rows of buffers as tuples, by each way to get a value."""
    columns = [batch.binary(name).take(batch.rows) for name in ("key", "value")]
    assert columns == [
        [batch.binary(name)[row] for row in batch.rows.tolist()] for name in ("key", "value")
    ]
    valid = batch.binary("value").is_valid()[batch.rows].tolist()
    assert valid == [each is not None for each in columns[1]]
    columns += [batch.numbers(name).tolist() for name in NUMBERS]
    assert batch.num_rows == len(columns[0])
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize("batch_rows", [7, 10_000])
def test_buffers_have_the_rows_of_arrow(log, batch_rows):
    found = [*read(log, RecordOptions(columns=COLUMNS, batch_rows=batch_rows))]
    assert max(each.num_rows for each in found) <= batch_rows
    records = [*log.records()]
    assert [row for each in found for row in rows_of(each)] == [
        (each.key, each.value, each.offset, each.timestamp, 0,
         -1 if each.leader_epoch is None else each.leader_epoch, -1, False)
        for each in records
    ]
    arrow = log.to_arrow(["key", "value", "offset"]).read_all().to_pylist()
    assert arrow == [{"key": row[0], "value": row[1], "offset": row[2]}
                     for each in found for row in rows_of(each)]


def test_slices_and_filters_are_those_of_a_list(log):
    random_ = random.Random(SEED)
    (batch,) = read(log, RecordOptions(columns=COLUMNS))
    rows = rows_of(batch)
    for _ in range(30):
        keeps = np.array([random_.random() < 0.5 for _ in rows], bool)
        kept = [row for row, keep in zip(rows, keeps.tolist(), strict=True) if keep]
        start, count = random_.randint(0, len(rows) + 2), random_.randint(0, len(rows))
        assert rows_of(batch.slice(start, count)) == rows[start : start + count]
        assert rows_of(batch.filter(keeps)) == kept
        assert rows_of(batch.filter(keeps).slice(start, count)) == kept[start : start + count]
        again = np.array([random_.random() < 0.5 for _ in kept], bool)
        assert rows_of(batch.filter(keeps).filter(again)) == [
            row for row, keep in zip(kept, again.tolist(), strict=True) if keep
        ]
        part = batch.slice(start, count)
        some = keeps[: part.num_rows]
        assert rows_of(part.filter(some)) == [
            row for row, keep in zip(rows_of(part), some.tolist(), strict=True) if keep
        ]
