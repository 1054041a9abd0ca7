"""Usual batches of a file, decoded in one step: the same rows as scanned and decoded in two."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import record_format
from models.column_rows import ALL_COLUMNS, LOGS, binaries, rows_of, table
from models.record_format import GZIP, LZ4, NONE, SNAPPY, ZSTD, Batch, Row
from models.record_strategies import bounded, in_a_row
from models.seed import SEED

from kafkastore.formats.indexes.transaction_index import ABORTED_TXN
from kafkastore.formats.records import compression
from kafkastore.formats.records.record_columns import RecordColumns
from kafkastore.formats.state.aborted_batches import AbortedBatches
from kafkastore.segment.decoding.usual_batches import read_usual

LARGEST = 2**63 - 1
#: What follows the last batch: it has an offset after all others.
FOLLOWER = LARGEST.to_bytes(8, "big")
DEFAULTS = {
    "largest": LARGEST - 1,
    "end_offset": LARGEST,
    "aborted": None,
    "verify_crc": True,
    "check_all": False,
}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("usual") / "00000000000000000000.log"


def read(path, columns, data, *, read_size=100_000, follower=FOLLOWER, **options):
    """The rows of the usual batches, and the byte position after them."""
    path.write_bytes(data + follower)
    found, position, smallest, is_paused = [], 0, 0, True
    with path.open("rb") as file:
        while is_paused:
            before = position
            position, first_offset, smallest, is_paused = read_usual(
                columns,
                file.fileno(),
                position,
                len(data),
                len(data) + len(follower),
                smallest=smallest,
                **DEFAULTS | options,
                read_size=read_size,
            )
            assert first_offset < smallest or position == before
            found += table(columns)
    return found, position


def log_of(written):
    return b"".join(batch.data for batch in written)


@bounded(300)
@given(LOGS, st.integers(1, 400), st.integers(1, 50), st.sampled_from([1, 100, 10_000]))
def test_the_rows_are_the_same_with_any_read_size(path, written, read_size, max_rows, max_bytes):
    columns = RecordColumns(ALL_COLUMNS, max_rows=max_rows, max_bytes=max_bytes)
    found, position = read(path, columns, log_of(written), read_size=read_size)
    count = 0
    while len(log_of(written[:count])) < position:
        count += 1
    assert len(log_of(written[:count])) == position
    assert found == rows_of(written[:count])


def plain(count, codec=NONE, value=b"v" * 90):
    return in_a_row([Batch((Row(0, 1, b"k", value), Row(1, 1, None, b"")), codec=codec)] * count)


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, ZSTD])
@pytest.mark.parametrize("read_size", [10, 200, 100_000])
def test_all_batches_of_a_codec_are_usual(path, codec, read_size):
    written = plain(40, codec)
    found, position = read(path, RecordColumns(ALL_COLUMNS), log_of(written), read_size=read_size)
    assert (found, position) == (rows_of(written), len(log_of(written)))


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, ZSTD])
@pytest.mark.parametrize("other", [NONE, ZSTD])
@pytest.mark.parametrize("read_size", [300, 100_000])
def test_codecs_may_change_from_batch_to_batch(path, codec, other, read_size):
    written = in_a_row(
        [
            Batch(tuple(Row(row, 1, b"k", bytes([number]) * 700) for row in range(100)), codec=kind)
            for number, kind in enumerate([codec, other] * 9)
        ]
    )
    found, position = read(path, RecordColumns(ALL_COLUMNS), log_of(written), read_size=read_size)
    assert (found, position) == (rows_of(written), len(log_of(written)))


@pytest.mark.parametrize("codec", [NONE, ZSTD])
def test_batches_of_many_sizes_are_read_whole(path, codec):
    sizes = [10, 10**6, 10**7, 10, 10**6]
    written = in_a_row([Batch((Row(0, 1, None, bytes(size)),), codec=codec) for size in sizes])
    path.write_bytes(log_of(written) + FOLLOWER)
    columns = RecordColumns(["value"], max_bytes=2**40)
    size = path.stat().st_size
    with path.open("rb") as file:
        position, *_ = read_usual(
            columns, file.fileno(), 0, size - 8, size, smallest=0, read_size=5000, **DEFAULTS
        )
    assert position == size - 8
    _, taken = columns.take()
    assert binaries(taken["value"], 5) == [bytes(size) for size in sizes]


def test_taken_rows_stay_valid_when_the_next_ones_are_decoded(path):
    written = in_a_row([Batch((Row(0, 1, None, bytes([number]) * 50),)) for number in range(90)])
    path.write_bytes(log_of(written) + FOLLOWER)
    columns, taken = RecordColumns(["value"], max_rows=2), []
    position, smallest, is_paused = 0, 0, True
    size = path.stat().st_size
    with path.open("rb") as file:
        while is_paused:
            position, _, smallest, is_paused = read_usual(
                columns, file.fileno(), position, size - 8, size, smallest=smallest,
                read_size=1000, **DEFAULTS,
            )  # fmt: skip
            taken.append(columns.take())
    found = [value for rows, parts in taken for value in binaries(parts["value"], rows)]
    assert found == [bytes([number]) * 50 for number in range(90)]


def test_reading_ends_before_a_batch_that_needs_a_closer_look(path):
    written = plain(9)
    data, size = log_of(written), len(written[0].data)
    corrupt = bytearray(data)
    corrupt[4 * size + 100] ^= 1
    backwards = log_of([*written[:5], written[3], *written[6:]])
    for damaged, expected in [
        (bytes(corrupt), 4),  # its checksum is wrong
        (backwards, 4),  # the batch after it begins too early
        (log_of([*written[:4], *plain(2, LZ4)]), 3),  # not framed as Kafka's clients do
        (data[:-1], 8),  # the last one is not whole
    ]:
        found, position = read(path, RecordColumns(ALL_COLUMNS), damaged, read_size=1000)
        assert (found, position) == (rows_of(written[:expected]), expected * size)
    found, position = read(path, RecordColumns(ALL_COLUMNS), data, follower=b"")
    assert position == 8 * size  # nothing shows that the last one has right offsets
    found, position = read(path, RecordColumns(ALL_COLUMNS), data, largest=9)
    assert position == 5 * size
    found, position = read(path, RecordColumns(ALL_COLUMNS), data, end_offset=5)
    assert position == 3 * size  # the one that reaches the offset is the last


def wrappers(count, magic, codec, **fields):
    return [
        Batch(
            tuple(Row(3 * number + row, 1 + row, b"k", b"v" * 90) for row in range(3)),
            magic=magic,
            codec=codec,
            **fields,
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
@pytest.mark.parametrize("read_size", [10, 100_000])
def test_compressed_messages_of_old_formats_are_usual(path, monkeypatch, magic, codec, read_size):
    def as_kafka_does(codec, data, *, magic, is_raw_snappy):
        return compression.compress(compression.Codec(codec), data, magic=magic)

    monkeypatch.setattr(record_format, "compress", as_kafka_does)
    written = wrappers(30, magic, codec)
    found, position = read(path, RecordColumns(ALL_COLUMNS), log_of(written), read_size=read_size)
    assert (found, position) == (rows_of(written), len(log_of(written)))


@pytest.mark.parametrize("columns", [{}, {"start_timestamp": 10**15}])
def test_reading_ends_before_a_wrapper_whose_messages_do_not_fit_it(path, columns):
    """Where none of its messages is wanted, only with `check_all`."""
    written = wrappers(9, 1, GZIP)
    size = len(log_of(written[:4]))
    # With the wrapper's offset too small by 2, messages begin within the wrapper before, or, if
    # their own offsets are not relative, end after their wrapper.
    for base in (12, 0):
        wrong = Batch(written[4].rows, magic=1, codec=GZIP, last_offset_kept=12, inner_base=base)
        data = log_of([*written[:4], wrong, *written[5:]])
        found, position = read(
            path, RecordColumns(ALL_COLUMNS, **columns), data, check_all=bool(columns)
        )
        assert position == size
        assert found == ([] if columns else rows_of(written[:4]))
        if columns:
            found, position = read(path, RecordColumns(ALL_COLUMNS, **columns), data)
            assert (found, position) == ([], len(data))


def test_aborted_batches_give_no_rows_but_are_checked(path):
    written = in_a_row(
        [
            Batch((Row(0, 1, b"k", b"v"),), producer_id=number % 2, is_transactional=True)
            for number in range(9)
        ]
    )
    data, size = log_of(written), len(written[0].data)
    aborted = AbortedBatches(np.array([(1, 3, 5, 6)], ABORTED_TXN))
    found, position = read(path, RecordColumns(ALL_COLUMNS), data, aborted=aborted, read_size=100)
    kept = [batch for number, batch in enumerate(written) if number not in (3, 5)]
    assert (found, position) == (rows_of(kept), len(data))
    corrupt = bytearray(data)
    corrupt[5 * size + 60] ^= 1
    found, position = read(path, RecordColumns(ALL_COLUMNS), bytes(corrupt), aborted=aborted)
    assert (found, position) == (rows_of([*written[:3], written[4]]), 5 * size)


def test_checksums_are_compared_only_on_request(path):
    written = plain(3)
    data = bytearray(log_of(written))
    data[17] ^= 1
    assert read(path, RecordColumns(ALL_COLUMNS), bytes(data)) == ([], 0)
    found, _ = read(path, RecordColumns(ALL_COLUMNS), bytes(data), verify_crc=False)
    assert found == rows_of(written)


def test_an_end_within_a_batch_leaves_it(path):
    written = plain(3)
    data, size = log_of(written), len(written[0].data)
    found, position = read(path, RecordColumns(ALL_COLUMNS), data[: 2 * size + 30])
    assert (found, position) == (rows_of(written[:2]), 2 * size)


def test_random_damage_never_shows_a_wrong_row(path):
    chance = random.Random(SEED)
    written = in_a_row(
        [
            Batch((Row(0, 1, b"k", b"%d" % number * 30), Row(1, 1)), codec=codec)
            for number, codec in enumerate([NONE, SNAPPY, ZSTD, GZIP, NONE, NONE, ZSTD])
        ]
    )
    expected, data = rows_of(written), log_of(written)
    starts = [len(log_of(written[:number])) for number in range(len(written))]
    # The base offset is not in the checksum.
    places = [at for at in range(len(data)) if not any(0 <= at - start < 8 for start in starts)]
    for _ in range(300):
        damaged = bytearray(data)
        for _ in range(chance.randrange(1, 4)):
            damaged[chance.choice(places)] = chance.randrange(256)
        found, _ = read(
            path,
            RecordColumns(ALL_COLUMNS),
            bytes(damaged),
            read_size=chance.choice((50, 10**5)),
            follower=(written[-1].last_offset + 1).to_bytes(8, "big"),
        )
        for row, right in zip(found, expected, strict=False):
            assert row | {"leader_epoch": 0} == right | {"leader_epoch": 0}  # not in the checksum
