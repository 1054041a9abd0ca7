"""The offset of the last record of each key, compared with a dict; its memory and its hash."""

import random
import subprocess
import sys
import threading
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.record_strategies import bounded
from models.refused import refused
from models.seed import SEED

from kafkastore.errors import ArgumentValueError, OffsetOverflowError
from kafkastore.formats.records.latest_offsets import LatestOffsets, hash_of_key

SECRET = random.Random(SEED).randbytes(16)
#: Larger than what the slots after the last one, and the smallest table, cost for each key.
MANY_KEYS = 200_000


def columns(keys, first=0):
    """The keys as Arrow's buffers, after some rows that do not count."""
    keys = [*[b"not asked"] * first, *keys]
    ends = np.cumsum([0, *(len(key or b"") for key in keys)], dtype=np.int32)
    has_key = np.array([key is not None for key in keys], bool)
    validity = np.packbits(has_key, bitorder="little")
    return first, validity, ends, b"".join(key or b"" for key in keys)


def longs(numbers):
    return np.array(numbers, np.int64)


def found_in(table, keys, offsets, shift=0, first=0):
    bitmap = table.find_latest(len(keys), columns(keys, first), longs(offsets), shift)
    return np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little")[: len(keys)].tolist()


KEYS = st.one_of(st.none(), st.sampled_from([b"", b"a", b"b"]), st.binary(max_size=20))
PARTITIONS = st.lists(st.lists(st.tuples(KEYS, st.integers(0, 3), st.integers(0, 9)), max_size=40))


def expected(partitions):
    """{key: (partition, offset)}, slowly."""
    found = {}
    for number, records in enumerate(partitions):
        last, newest = {}, defaultdict(lambda: -1)
        offset = 0
        for key, gap, timestamp in records:
            offset += gap
            if key is not None:
                last[key] = offset
                newest[key] = max(newest[key], timestamp)
            offset += 1
        for key, offset in last.items():
            if key not in found or newest[key] >= found[key][0]:
                found[key] = (newest[key], number, offset)
    return {key: place for key, (_, *place) in found.items()}


@bounded(300)
@given(PARTITIONS, st.integers(0, 9))
def test_the_last_offset_of_each_key_is_that_of_a_dict(partitions, first):
    table = LatestOffsets(SECRET, across_partitions=True)
    shifts = []
    for records in partitions:
        shifts.append(table.end_place)
        offsets = np.cumsum([gap + 1 for _, gap, _ in records]) - 1
        keys, times = [key for key, *_ in records], [time for *_, time in records]
        for begin in range(0, len(records), 7):
            piece = slice(begin, begin + 7)
            given_keys = columns(keys[piece], first)
            rows = len(keys[piece])
            table.add(rows, given_keys, longs(offsets[piece]), longs(times[piece]), shifts[-1])
    wanted = expected(partitions)
    assert table.count == len(wanted)
    newest = {
        key: max(time for each, _, time in partitions[number] if each == key)
        for key, (number, _) in wanted.items()
    }
    keys = [*newest, None, b"a key that was not added"]
    found = np.frombuffer(table.newest_timestamps(len(keys), columns(keys, first)), np.int64)
    assert found[: len(keys)].tolist() == [*newest.values(), -1, -1]
    for number, (records, shift) in enumerate(zip(partitions, shifts, strict=True)):
        keys = [key for key, *_ in records]
        offsets = (np.cumsum([gap + 1 for _, gap, _ in records]) - 1).tolist()
        is_last = [
            key is not None and wanted[key] == [number, offset]
            for key, offset in zip(keys, offsets, strict=True)
        ]
        assert found_in(table, keys, offsets, shift, first) == is_last


def numbered(start, count):
    return [b"key of record %d" % number for number in range(start, start + count)]


@pytest.mark.parametrize(("across_partitions", "most"), [(False, 26), (True, 32)])
def test_a_key_takes_at_most_these_bytes_also_while_the_table_grows(across_partitions, most):
    table = LatestOffsets(SECRET, across_partitions=across_partitions)
    step = 5000
    for start in range(0, MANY_KEYS, step):
        offsets = longs(range(start, start + step))
        table.add(step, columns(numbered(start, step)), offsets, offsets)
        if start > 100_000:
            assert table.nbytes <= most * table.count
    assert table.count == MANY_KEYS
    for start in range(0, MANY_KEYS, step):
        assert all(found_in(table, numbered(start, step), range(start, start + step)))
    assert not any(found_in(table, numbered(MANY_KEYS, step), range(step)))


GROWTH = """
import numpy as np
from kafkastore.formats.records.latest_offsets import LatestOffsets

def peak():
    with open("/proc/self/status") as status:
        return 1024 * int(next(line for line in status if line.startswith("VmHWM")).split()[1])

def add(table, count, step=1000):
    ends = np.arange(0, 8 * step + 1, 8, dtype=np.int32)
    for start in range(0, count, step):
        numbers = np.arange(start, start + step)
        table.add(step, (0, None, ends, numbers), numbers, numbers)

add(LatestOffsets(bytes(16), across_partitions=True), 10_000)
before = peak()
table = LatestOffsets(bytes(16), across_partitions=True)
add(table, 1_000_000)
print((peak() - before) / table.count)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and only Linux moves pages")
def test_a_million_keys_need_at_most_32_bytes_each_at_the_peak():
    """Measured by the kernel: a table that grows is never in memory twice."""
    done = subprocess.run(
        [sys.executable, "-c", GROWTH], check=True, capture_output=True, text=True
    )
    assert 20 < float(done.stdout) <= 32.5     # of which 0.5 for all else


def test_keys_by_one_producer_do_not_fill_neighbouring_slots():
    """Equal prefixes, counted suffixes, single bits: the table stays as quick as for others."""
    families = {
        "counted": [b"%020d" % number for number in range(50_000)],
        "bits": [bytes(at) + b"\1" + bytes(200 - at) for at in range(200)],
        "long": [b"x" * size for size in range(3000)],
    }
    for keys in families.values():
        table = LatestOffsets(SECRET)
        table.add(len(keys), columns(keys), longs(range(len(keys))))
        assert table.count == len(keys)
        assert all(found_in(table, keys, range(len(keys))))


def test_two_tables_have_different_secrets_and_the_same_answers():
    chance = random.Random(SEED)
    keys = [b"%d" % chance.randrange(500) for _ in range(3000)]
    answers = []
    for secret in (SECRET, bytes(16), bytes(range(16))):
        table = LatestOffsets(secret)
        table.add(len(keys), columns(keys), longs(range(len(keys))))
        answers.append(found_in(table, keys, range(len(keys))))
    assert answers[0] == answers[1] == answers[2]


def test_end_offsets_of_all_partitions_together_fit_63_bits():
    table = LatestOffsets(SECRET, across_partitions=True)
    table.add(1, columns([b"k"]), longs([2**63 - 2]), longs([0]))
    assert table.end_place == 2**63 - 1
    with pytest.raises(OffsetOverflowError):
        table.add(1, columns([b"k"]), longs([0]), longs([0]), table.end_place)
    with pytest.raises(OffsetOverflowError):
        LatestOffsets(SECRET).add(1, columns([b"k"]), longs([-1]))


def test_buffers_that_do_not_fit_are_refused():
    table = LatestOffsets(SECRET)
    first, validity, ends, values = columns([b"key", None])
    offsets = longs([0, 1])
    for wrong in (
        (0, validity, ends, b"ke"),
        (0, validity, ends[:2], values),
        (0, b"", ends, values),
        (1, validity, ends, values),
        (-1, validity, ends, values),
        (0, validity, ends[::-1].copy(), values),
        (0, validity, ends - 1, values),
    ):
        for method in (table.add, table.find_latest):
            with pytest.raises(ArgumentValueError):
                method(2, wrong, offsets)
    with pytest.raises(ArgumentValueError):
        table.add(2, (first, validity, ends, values), offsets[:1])
    with pytest.raises(ArgumentValueError):
        table.add(-1, (first, validity, ends, values), offsets)
    with pytest.raises(TypeError):
        LatestOffsets(SECRET, across_partitions=True).add(2, columns([b"a", b"b"]), offsets)
    with refused("secret"):
        LatestOffsets(b"short")
    assert table.count == 0
    table.add(2, (first, None, ends, values), offsets)
    assert table.count == 2


# SipHash, against its definition in Python


MASK = 2**64 - 1
#: The first vectors of the reference implementation's ``vectors_sip128``.
VECTORS = ("a3817f04ba25a8e66df67214c7550293", "da87c1d86b99af44347659119b22fc45")


def sip_hash(secret, data):
    low, high = (int.from_bytes(secret[at : at + 8], "little") for at in (0, 8))
    v0, v1 = low ^ 0x736F6D6570736575, high ^ 0x646F72616E646F6D ^ 0xEE
    v2, v3 = low ^ 0x6C7967656E657261, high ^ 0x7465646279746573

    def turned(word, bits):
        return (word << bits | word >> (64 - bits)) & MASK

    def rounds(count):
        nonlocal v0, v1, v2, v3
        for _ in range(count):
            v0 = (v0 + v1) & MASK
            v1 = turned(v1, 13) ^ v0
            v0 = turned(v0, 32)
            v2 = (v2 + v3) & MASK
            v3 = turned(v3, 16) ^ v2
            v0 = (v0 + v3) & MASK
            v3 = turned(v3, 21) ^ v0
            v2 = (v2 + v1) & MASK
            v1 = turned(v1, 17) ^ v2
            v2 = turned(v2, 32)

    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 255])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v3 ^= word
        rounds(2)
        v0 ^= word
    v2 ^= 0xEE
    rounds(4)
    first = v0 ^ v1 ^ v2 ^ v3
    v1 ^= 0xDD
    rounds(4)
    return first.to_bytes(8, "little") + (v0 ^ v1 ^ v2 ^ v3).to_bytes(8, "little")


def test_the_hash_is_siphash_with_128_bits():
    secret = bytes(range(16))
    assert [hash_of_key(bytes(range(size)), secret).hex() for size in (0, 1)] == [*VECTORS]
    chance = random.Random(SEED)
    for size in (*range(40), 255, 256, 1000):
        secret, key = chance.randbytes(16), chance.randbytes(size)
        assert hash_of_key(key, secret) == sip_hash(secret, key)


def test_a_table_that_several_threads_use_at_once_refuses_all_but_one():
    """Each call is done, or refused; the table is whole afterwards."""
    table, outcomes = LatestOffsets(SECRET), []
    keys = numbered(0, 20_000)
    given, offsets = columns(keys), longs(range(len(keys)))

    def add():
        for _ in range(5):
            try:
                table.add(len(keys), given, offsets)
                outcomes.append(True)
            except RuntimeError:
                outcomes.append(False)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 20
    assert any(outcomes)
    assert table.count == len(keys)
    assert all(found_in(table, keys, range(len(keys))))
