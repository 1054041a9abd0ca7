"""Producer snapshots: those of real brokers, made ones, damaged ones."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.record_format import crc32c
from models.refused import refused as argument_refused

from kafkastore.errors import CorruptCheckpointError, KafkaStoreError
from kafkastore.formats.state import producer_snapshot
from kafkastore.formats.state.producer_snapshot import PRODUCER_ENTRY

TWO = [
    (0, 0, 4, 31, 1, 1500000002253, 0, 28),
    (4711, 3, -1, -1, 0, -1, -1, -1),
]


def signed(bits):
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


ENTRIES = st.lists(
    st.tuples(*map(signed, (64, 16, 32, 64, 32, 64, 32, 64))), max_size=6
)


def packed(entries, *, version=1, count=None, suffix=b""):
    """A snapshot by Kafka's schema; its checksum is right even if other fields are wrong."""
    content = struct.pack(">i", len(entries) if count is None else count)
    content += b"".join(struct.pack(">qhiqiqiq", *entry) for entry in entries) + suffix
    return struct.pack(">hI", version, crc32c(content)) + content


@given(ENTRIES)
def test_packed_entries_are_parsed_again(entries):
    snapshot = producer_snapshot.pack(entries)
    assert snapshot == packed(entries)
    parsed = producer_snapshot.parse(snapshot)
    assert parsed.dtype == PRODUCER_ENTRY
    assert parsed.tolist() == entries
    assert producer_snapshot.whole_entries(snapshot).tolist() == entries
    assert producer_snapshot.pack(parsed) == snapshot


@pytest.mark.golden_cases(versions=["0.11.*", "2.*", "3.*", "4.*"])
def test_snapshots_of_brokers_are_written_again_byte_for_byte(golden_case):
    for path in sorted(golden_case.logs.rglob("*.snapshot*")):
        snapshot = path.read_bytes()
        entries = producer_snapshot.parse(snapshot)
        assert producer_snapshot.pack(entries) == snapshot
        end_offset = int(path.name.partition(".")[0])
        assert (entries["last_offset"] < end_offset).all()
        assert (entries["current_txn_first_offset"] < end_offset).all()


@pytest.mark.golden_cases(names="transactions", answers="answers")
def test_the_last_snapshot_gives_the_last_stable_offset(golden_case):
    """Each broker was shut down cleanly: the newest snapshot is at the log end."""
    was_open = 0
    for name, partition_answers in golden_case.answers["partitions"].items():
        newest = max((golden_case.logs / name).glob("*.snapshot"))
        assert int(newest.stem) == partition_answers["log_end_offset"]
        first_offsets = producer_snapshot.parse(newest.read_bytes())["current_txn_first_offset"]
        first_offsets = first_offsets[first_offsets >= 0]
        was_open += len(first_offsets)
        expected = min(first_offsets, default=partition_answers["log_end_offset"])
        assert partition_answers["last_stable_offset"] == expected
    assert was_open


def test_bytes_after_the_entries_are_ignored_if_the_checksum_covers_them():
    assert producer_snapshot.parse(packed(TWO, suffix=b"more")).tolist() == TWO
    with pytest.raises(CorruptCheckpointError) as refused:
        producer_snapshot.parse(packed(TWO) + b"more")
    assert refused.value.position == producer_snapshot.CRC_AT


@pytest.mark.parametrize("version", [0, 2, -1, 256])
def test_another_version_is_refused(version):
    snapshot = packed(TWO, version=version)
    with pytest.raises(CorruptCheckpointError) as refused:
        producer_snapshot.parse(snapshot)
    assert refused.value.position == 0
    assert producer_snapshot.whole_entries(snapshot).tolist() == []


@pytest.mark.parametrize(
    ("count", "position", "shown"),
    [(3, 102, TWO), (2**31 - 1, 102, TWO), (-1, 6, []), (-(2**31), 6, [])],
)
def test_a_count_that_cannot_be_is_refused(count, position, shown):
    snapshot = packed(TWO, count=count)
    with pytest.raises(CorruptCheckpointError) as refused:
        producer_snapshot.parse(snapshot)
    assert refused.value.position == position
    assert producer_snapshot.whole_entries(snapshot).tolist() == shown


def test_a_wrong_checksum_is_refused():
    snapshot = bytearray(packed(TWO))
    snapshot[2:6] = bytes.fromhex("01234567")
    with pytest.raises(CorruptCheckpointError) as refused:
        producer_snapshot.parse(bytes(snapshot))
    assert refused.value.position == 2
    assert producer_snapshot.whole_entries(bytes(snapshot)).tolist() == TWO


def test_every_cut_is_refused_where_it_is():
    snapshot = packed(TWO)
    for end in range(len(snapshot)):
        with pytest.raises(CorruptCheckpointError) as refused:
            producer_snapshot.parse(snapshot[:end])
        complete = max(end - 10, 0) // 46
        assert refused.value.position == (end if end < 10 else 10 + 46 * complete)
        assert producer_snapshot.whole_entries(snapshot[:end]).tolist() == TWO[:complete]


def test_every_flipped_bit_is_refused():
    snapshot = packed(TWO)
    for bit in range(8 * len(snapshot)):
        flipped = bytearray(snapshot)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptCheckpointError) as refused:
            producer_snapshot.parse(bytes(flipped))
        assert 0 <= refused.value.position <= len(snapshot)
        assert len(producer_snapshot.whole_entries(bytes(flipped))) <= 2


@given(st.binary(max_size=150), st.booleans())
def test_random_bytes_are_a_value_or_an_error_with_a_position(data, is_framed):
    if is_framed:
        data = b"\0\1" + crc32c(data).to_bytes(4, "big") + data
    producer_snapshot.whole_entries(data)
    try:
        producer_snapshot.parse(data)
    except KafkaStoreError as error:
        assert 0 <= error.position <= len(data)


def test_packing_needs_one_dimension():
    with argument_refused("entries"):
        producer_snapshot.pack(np.zeros((2, 2), PRODUCER_ENTRY))
