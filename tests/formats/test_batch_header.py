import random
import struct
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import record_reader
from models.golden_batches import smallest_batches
from models.record_format import Batch, Row, message
from models.record_strategies import batches, bounded

from kafkastore.formats.primitives.crc import crc32c
from kafkastore.formats.records import batch_header
from kafkastore.formats.records.batch_header import (
    ALL_SCANNED,
    BAD_CRC,
    BAD_LENGTH,
    BAD_MAGIC,
    BAD_OFFSETS,
    BATCH_HEADER,
    NEEDS_BYTES,
)

V0 = message(0, 5, -1, b"key", b"value")
V1 = message(1, 6, 1000, b"key", b"value")
V2 = Batch((Row(7, 2000, b"key", b"value"), Row(9, 1999))).data
SMALLEST = {0: message(0, 0, -1, None, None), 1: message(1, 0, 9, None, None),
            2: Batch((), first_offset=0, last_offset_kept=0, stated_max_timestamp=9).data}


def scan(data, *, position=0, capacity=100, verify_crc=False):
    """(fields of the headers found, bytes scanned, status, bytes wanted)."""
    headers = np.zeros(capacity, BATCH_HEADER)
    count, scanned, status, wanted = batch_header.scan(
        data, position, headers, verify_crc=verify_crc
    )
    return headers[:count], scanned, status, wanted


def with_length(batch, length):
    return batch[:8] + struct.pack(">i", length) + batch[12:]


def with_magic(batch, magic):
    return batch[:16] + struct.pack(">b", magic) + batch[17:]


def test_the_fields_of_a_record_batch_are_those_written():
    batch = Batch((Row(40, 100), Row(43, 900), Row(44, 200)), leader_epoch=3, producer_id=11,
                  producer_epoch=2, base_sequence=77, is_transactional=True, last_offset_kept=50)
    (header,), *_ = scan(batch.data, position=1000, verify_crc=True)
    wanted = {
        "position": 1000, "base_offset": 40, "last_offset": 50, "base_timestamp": 100,
        "max_timestamp": 900, "producer_id": 11, "size": len(batch.data), "leader_epoch": 3,
        "count": 3, "base_sequence": 77, "producer_epoch": 2, "attributes": 0x10, "magic": 2,
        "crc": int.from_bytes(batch.data[17:21], "big"), "crc_valid": 1,
    }
    assert {name: header[name].item() for name in BATCH_HEADER.names} == wanted


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (V0, {"base_offset": 5, "last_offset": 5, "max_timestamp": -1, "count": 1}),
        (V1, {"base_offset": 6, "last_offset": 6, "max_timestamp": 1000, "count": 1}),
        (Batch((Row(6, 10), Row(8, 30), Row(9, 20)), magic=1, codec=1).data,
         {"base_offset": -1, "last_offset": 9, "max_timestamp": 30, "count": -1}),
        (Batch((Row(6, 10), Row(8, 30)), magic=0, codec=1).data,
         {"base_offset": -1, "last_offset": 8, "max_timestamp": -1, "count": -1}),
    ],
    ids=["v0", "v1", "v1 wrapper", "v0 wrapper"],
)
def test_a_message_has_exactly_its_fields(data, wanted):
    (header,), *_ = scan(data)
    nothing = {"leader_epoch": -1, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1}
    assert {name: header[name].item() for name in wanted | nothing} == wanted | nothing


# Bytes after the last complete batch, and the status that the scan reports for them.
ENDS = {
    "nothing": (b"", ALL_SCANNED, 0),
    "one byte": (V2[:1], NEEDS_BYTES, 0),
    "16 bytes": (V2[:16], NEEDS_BYTES, 0),
    "17 bytes of magic 2": (V2[:17], NEEDS_BYTES, len(V2)),
    "a batch without its last byte": (V2[:-1], NEEDS_BYTES, len(V2)),
    "a message without its last byte": (V0[:-1], NEEDS_BYTES, len(V0)),
    "zeros": (bytes(100), BAD_LENGTH, 0),
    "17 zeros": (bytes(17), BAD_LENGTH, 0),
    "length 13": (with_length(V0, 13), BAD_LENGTH, 0),
    "length -1": (with_length(V2, -1), BAD_LENGTH, 0),
    "smallest length": (with_length(V2, -(2**31)), BAD_LENGTH, 0),
    "length 21 of magic 1": (with_length(V1, 21), BAD_LENGTH, 0),
    "length 48 of magic 2": (with_length(V2, 48), BAD_LENGTH, 0),
    "a length whose batch has more than 2 GiB": (with_length(V2, 2**31 - 12), BAD_LENGTH, 0),
    "largest length": (with_length(V2, 2**31 - 13), NEEDS_BYTES, 2**31 - 1),
    "magic 3": (with_magic(V2, 3), BAD_MAGIC, 0),
    "magic -1": (with_magic(V2, -1), BAD_MAGIC, 0),
    "magic 3 and length 0": (with_length(with_magic(V2, 3), 0), BAD_LENGTH, 0),
}


@pytest.mark.parametrize(("end", "status", "wanted"), ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("before", [b"", V0 + V1 + V2], ids=["alone", "after batches"])
def test_a_scan_reports_why_it_stopped(before, end, status, wanted):
    headers, scanned, found, bytes_wanted = scan(before + end)
    assert (len(headers), scanned) == (3 if before else 0, len(before))
    assert found == status
    if status == NEEDS_BYTES:
        assert bytes_wanted == wanted


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_the_smallest_batch_of_each_magic_is_read(magic):
    headers, scanned, status, _ = scan(SMALLEST[magic] * 2, verify_crc=True)
    assert headers["crc_valid"].tolist() == [1, 1]
    assert (scanned, status) == (2 * len(SMALLEST[magic]), ALL_SCANNED)


@pytest.mark.parametrize("batch", [V0, V1, V2, *SMALLEST.values()])
def test_a_batch_cut_at_any_byte_needs_more(batch):
    for size in range(1, len(batch)):
        headers, scanned, status, wanted = scan(V0 + batch[:size])
        assert (len(headers), scanned, status) == (1, len(V0), NEEDS_BYTES), size
        assert wanted == (len(batch) if size >= 17 else 0), size


def test_a_scan_stops_where_the_headers_are_full_and_can_continue():
    data, found, at = (V0 + V1 + V2) * 5, [], 0
    while at < len(data):
        headers, scanned, status, _ = scan(data[at:], position=at, capacity=4)
        found += headers["position"].tolist()
        assert status == ALL_SCANNED
        at += scanned
    assert found == [position for position, _ in record_reader.split(data)[0]]


def test_no_room_or_no_bytes_give_an_empty_scan():
    assert scan(V2, capacity=0)[1:] == (0, ALL_SCANNED, 0)
    assert scan(b"")[1:] == (0, ALL_SCANNED, 0)


def test_checksums_are_verified_only_on_request():
    damaged = V2[:-1] + b"\xff"
    assert scan(damaged)[0]["crc_valid"].tolist() == [-1]
    assert scan(damaged + V1, verify_crc=True)[0]["crc_valid"].tolist() == [0, 1]


@pytest.mark.parametrize("batch", [V0, V1, V2])
def test_every_flipped_bit_after_the_checksum_is_noticed(batch):
    guarded_from = 21 if batch[16] == 2 else 17    # a flipped magic may be another valid one
    for bit in range(guarded_from * 8, len(batch) * 8):
        damaged = bytearray(batch)
        damaged[bit // 8] ^= 1 << bit % 8
        headers, *_ = scan(bytes(damaged), verify_crc=True)
        assert headers["crc_valid"].tolist() == [0], bit


def test_a_single_header_is_parsed_from_an_incomplete_batch():
    (header,) = batch_header.parse(V2[: batch_header.LARGEST_HEADER], 500)
    assert (header["position"], header["last_offset"], header["size"]) == (500, 9, len(V2))


@pytest.mark.parametrize("batch", [V0, V1, V2, *SMALLEST.values()])
def test_a_single_header_is_none_until_it_is_complete(batch):
    needed = min(len(batch), batch_header.LARGEST_HEADER)
    for size in range(len(batch) + 1):
        assert (batch_header.parse(batch[:size], 0) is None) == (size < needed), size


@pytest.mark.parametrize("name", [name for name, row in ENDS.items() if row[1] > NEEDS_BYTES])
def test_a_single_header_is_none_where_none_can_be(name):
    assert batch_header.parse(ENDS[name][0], 0) is None


@pytest.mark.golden_cases(versions=["0.8.2.2", "0.10.*", "2.4.0", "4.*"], names=["codecs", "tr*"])
def test_golden_logs_cut_at_each_byte_give_the_complete_batches_before(golden_case):
    path = min(golden_case.logs.glob("*/*.log"), key=lambda path: path.stat().st_size or 1 << 40)
    log = path.read_bytes()
    for size in range(min(len(log), 1200)):
        complete, _ = record_reader.split(log[:size])
        headers, *_ = scan(log[:size], capacity=1000)
        assert headers["position"].tolist() == [position for position, _ in complete], size


@bounded(300)
@given(st.lists(batches(), max_size=6), st.integers(0, 40))
def test_random_logs_are_walked_as_the_model_walks_them(written, cut):
    log = b"".join(batch.data for batch in written)
    log = log[: max(0, len(log) - cut)]
    complete, _ = record_reader.split(log)
    headers, *_ = scan(log, verify_crc=True)
    assert headers["position"].tolist() == [position for position, _ in complete]
    assert headers["last_offset"].tolist() == [
        batch.last_offset for batch in written[: len(complete)]
    ]
    assert headers["max_timestamp"].tolist() == [
        batch.max_timestamp for batch in written[: len(complete)]
    ]
    assert all(headers["crc_valid"] == 1)


class Spanned(NamedTuple):
    """A batch of which only its offsets matter, and whether its checksum is right."""

    first: int
    last: int
    is_valid: bool

    @property
    def data(self):
        data = bytearray(V2)
        data[:8] = struct.pack(">q", self.first)
        data[23:27] = struct.pack(">i", self.last - self.first)
        data[17:21] = struct.pack(">I", crc32c(data[21:]) ^ (not self.is_valid))
        return bytes(data)


SPANNED = st.builds(
    lambda first, more, is_valid: Spanned(first, first + more, is_valid),
    st.integers(0, 12), st.integers(-1, 4), st.sampled_from([True, True, True, False]),
)


def model_of_scan_within(written, smallest, largest, verify_crc):
    """(batches scanned, status): the longest valid beginning, with one exception.

    If an offset decreases, but not below the end of the batch before the last, the last is wrong.
    """
    def are_in_order(found):
        ends = [smallest, *(each.last + 1 for each in found)]
        return all(
            end <= each.first <= each.last <= largest
            for end, each in zip(ends, found, strict=False)
        )

    def are_right(found):
        return are_in_order(found) and (not verify_crc or all(each.is_valid for each in found))

    count = max(size for size in range(len(written) + 1) if are_right(written[:size]))
    if count == len(written):
        return count, ALL_SCANNED
    if are_in_order(written[: count + 1]):
        return count, BAD_CRC
    first = written[count].first
    goes_back = count and first <= written[count - 1].last
    if goes_back and are_in_order([*written[: count - 1], Spanned(first, first, True)]):
        count -= 1
    return count, BAD_OFFSETS


@bounded(1000)
@given(
    st.lists(SPANNED, min_size=1, max_size=6), st.integers(0, 4), st.integers(4, 16), st.booleans()
)
def test_a_scan_within_offsets_stops_where_the_model_does(written, smallest, largest, verify_crc):
    data = b"".join(each.data for each in written)
    headers = np.zeros(10, BATCH_HEADER)
    count, scanned, status, wanted = batch_header.scan(
        data, 100, headers, verify_crc=verify_crc, within=(smallest, largest)
    )
    assert (count, status) == model_of_scan_within(written, smallest, largest, verify_crc)
    assert (scanned, wanted) == (count * len(V2), 0)
    assert headers["position"][:count].tolist() == [100 + i * len(V2) for i in range(count)]
    assert headers["last_offset"][:count].tolist() == [each.last for each in written[:count]]


@pytest.mark.parametrize(
    ("offsets", "within", "expected"),
    [
        ([(0, 2), (3, 5)], (0, 5), (2, ALL_SCANNED)),
        ([(0, 2), (3, 5)], (0, 4), (1, BAD_OFFSETS)),
        ([(0, 2), (3, 5)], (1, 5), (0, BAD_OFFSETS)),
        ([(0, 9), (3, 5)], (0, 20), (0, BAD_OFFSETS)),
        ([(0, 2), (3, 9), (5, 6)], (0, 20), (1, BAD_OFFSETS)),
        ([(0, 2), (3, 9), (1, 6)], (0, 20), (2, BAD_OFFSETS)),
    ],
)
def test_the_batch_that_leaves_the_order_of_offsets_ends_a_scan_within_them(
    offsets, within, expected
):
    data = b"".join(Spanned(first, last, True).data for first, last in offsets)
    count, _, status, _ = batch_header.scan(data, 0, np.zeros(9, BATCH_HEADER), within=within)
    assert (count, status) == expected


def test_random_bytes_never_read_past_the_end(golden):
    source = random.Random(2)
    kinds = list(smallest_batches(golden).values())
    for _ in range(2000):
        data = bytearray(source.choice(kinds))
        for _ in range(source.randrange(1, 5)):
            data[source.randrange(min(len(data), 24))] = source.randrange(256)
        headers, scanned, status, _ = scan(bytes(data))
        assert scanned == sum(headers["size"].tolist()) <= len(data)
        assert status in (ALL_SCANNED, NEEDS_BYTES, BAD_LENGTH, BAD_MAGIC)
