"""Control records: keys and values made here, and the markers of real brokers."""

import struct
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import record_reader

from kafkastore.errors import ArgumentValueError, CorruptBatchError, CorruptionError
from kafkastore.formats.records.control_records import (
    ControlRecord,
    ControlRecordType,
    first_control_record,
    parse_control_record,
)
from kafkastore.formats.records.record_batch import Record, RecordBatch, TimestampType


def record(key, value):
    return Record(42, 1500000000000, TimestampType.CREATE_TIME, key, value, (), 0)


@given(st.integers(0, 2**15 - 1), st.integers(0, 2**15 - 1), st.integers(-(2**31), 2**31 - 1),
       st.binary(max_size=5), st.sampled_from([ControlRecordType.ABORT, ControlRecordType.COMMIT]))
def test_markers_of_any_version_are_read_like_version_0(
    version, value_version, coordinator_epoch, suffix, kind
):
    key = struct.pack(">hh", version, kind) + suffix
    value = struct.pack(">hi", value_version, coordinator_epoch) + suffix
    parsed = parse_control_record(record(key, value))
    assert parsed == ControlRecord(kind, version, coordinator_epoch)
    assert isinstance(parsed.type, ControlRecordType)


@given(st.one_of(st.integers(2, 2**15 - 1), st.integers(-(2**15), -1)), st.binary(max_size=9))
def test_other_types_have_a_name_or_number_and_their_values_are_not_parsed(number, value):
    parsed = parse_control_record(record(struct.pack(">hh", 0, number), value))
    assert parsed == (number, 0, None)
    assert isinstance(parsed.type, ControlRecordType) == (2 <= number <= 6)


def test_the_types_have_kafkas_numbers():
    assert [(kind.name, int(kind)) for kind in ControlRecordType] == [
        ("ABORT", 0), ("COMMIT", 1), ("LEADER_CHANGE", 2), ("SNAPSHOT_HEADER", 3),
        ("SNAPSHOT_FOOTER", 4), ("KRAFT_VERSION", 5), ("KRAFT_VOTERS", 6),
    ]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"", b""),
        (bytes(3), bytes(6)),
        (b"\xff\xff\0\0", bytes(6)),
        (bytes(4), None),
        (bytes(4), bytes(5)),
        (b"\0\0\0\1", b"\x80\0\0\0\0\0"),
    ],
)
def test_an_unreadable_control_record_is_reported_with_its_position(key, value):
    with pytest.raises(CorruptBatchError) as refused:
        parse_control_record(record(key, value), position=1017)
    assert refused.value.position == 1017


@given(st.none() | st.binary(max_size=8), st.none() | st.binary(max_size=8))
def test_random_keys_and_values_are_a_control_record_or_an_error(key, value):
    try:
        parsed = parse_control_record(record(key, value), position=7)
    except CorruptBatchError as error:
        assert error.position == 7
    else:
        assert struct.pack(">hh", parsed.version, parsed.type) == key[:4]
        if parsed.type in (0, 1):
            assert struct.pack(">i", parsed.coordinator_epoch) == value[2:6]


@pytest.mark.golden_cases(names=["transactions", "kraft-metadata"], answers="answers")
def test_control_batches_of_brokers_end_their_transactions(golden_case):
    found = Counter()
    for path in sorted(golden_case.logs.rglob("*.log")):
        for position, data in record_reader.split(path.read_bytes())[0]:
            batch = RecordBatch(data, position)
            if batch.is_control:
                parsed = first_control_record(batch)
                assert parsed.version == 0
                assert (parsed.coordinator_epoch is None) == (batch.producer_id < 0)
                found[parsed.type] += 1
    if golden_case.name == "transactions":
        assert found[ControlRecordType.ABORT] >= 8
        assert found[ControlRecordType.COMMIT] >= 6
    else:
        assert found == {ControlRecordType.LEADER_CHANGE: 1}


@pytest.mark.golden_cases(names="kraft-metadata", answers="answers")
def test_a_kraft_snapshot_is_between_its_header_and_its_footer(golden_case):
    for path in golden_case.logs.rglob("*.checkpoint"):
        types = []
        for position, data in record_reader.split(path.read_bytes())[0]:
            batch = RecordBatch(data, position)
            if batch.is_control:
                types += [parse_control_record(each).type for each in batch.records()]
        assert types[0] == ControlRecordType.SNAPSHOT_HEADER
        assert types[-1] == ControlRecordType.SNAPSHOT_FOOTER


def markers(golden):
    """Every marker batch of one real log."""
    logs = golden("2.4.0", "transactions", "answers").logs
    for path in sorted(logs.glob("txn-1/*.log")):
        for _, data in record_reader.split(path.read_bytes())[0]:
            if RecordBatch(data, 0).is_control:
                yield data


def test_a_control_batch_without_records_has_no_type(golden):
    emptied = bytearray(next(markers(golden))[:61])
    emptied[8:12] = (61 - 12).to_bytes(4, "big")
    emptied[57:61] = bytes(4)
    assert first_control_record(RecordBatch(bytes(emptied), 0)) is None


def test_flipped_bits_of_a_marker_are_a_value_or_an_error(golden):
    marker = next(markers(golden))
    outcomes = Counter()
    for bit in range(8 * len(marker)):
        flipped = bytearray(marker)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            first_control_record(RecordBatch(bytes(flipped), 1000))
        except CorruptionError as error:
            assert error.position is None or error.position >= 1000
            outcomes["error"] += 1
        except ArgumentValueError as error:
            assert error.argument == "batch"
            outcomes["no marker"] += 1
        else:
            outcomes["value"] += 1
    assert min(outcomes["error"], outcomes["value"]) > 10
    assert outcomes["no marker"]
