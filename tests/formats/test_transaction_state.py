"""Records of __transaction_state: both versions against the model, and what real brokers wrote."""

import base64
import doctest
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import format_document, message_model, message_strategies
from models.internal_topics import pack_transaction_key, pack_transaction_value
from models.message_model import TRANSACTION_LOG_VALUE, plain
from models.record_strategies import bounded

from kafkastore.errors import CorruptionError, KafkaStoreError, UnsupportedFormatError
from kafkastore.formats.primitives.protocol import FieldValueError
from kafkastore.formats.topics import transaction_state
from kafkastore.formats.topics.transaction_state import (
    TransactionLogValue,
    TransactionPartitions,
    TransactionState,
    parse_key,
    parse_value,
)

VERSIONS = (0, 1)
VALUE = TransactionLogValue(
    producer_id=2**40,
    producer_epoch=7,
    transaction_timeout_ms=60_000,
    transaction_status=TransactionState.ONGOING,
    transaction_partitions=(
        TransactionPartitions("txn", (1, 0)),
        TransactionPartitions("\xe9", ()),
    ),
    transaction_last_update_timestamp_ms=1795166447595,
    transaction_start_timestamp_ms=1795166447536,
)
TAGGED = {
    "previous_producer_id": 5,
    "next_producer_id": 6,
    "client_transaction_version": 2,
    "next_producer_epoch": 8,
}
# Kafka 3.9.0 TransactionState.validPreviousStates.
MAY_COME_FROM = {
    TransactionState.EMPTY: {0, 4, 5},
    TransactionState.ONGOING: {0, 1, 4, 5},
    TransactionState.PREPARE_COMMIT: {1},
    TransactionState.PREPARE_ABORT: {1, 7},
    TransactionState.COMPLETE_COMMIT: {2},
    TransactionState.COMPLETE_ABORT: {3},
    TransactionState.DEAD: {0, 4, 5},
    TransactionState.PREPARE_EPOCH_FENCE: {1},
}


def made(fields):
    partitions = fields["transaction_partitions"]
    if partitions is not None:
        partitions = tuple(TransactionPartitions(**topic) for topic in partitions)
    return TransactionLogValue(**fields | {"transaction_partitions": partitions})


def outcome(read, data):
    """The result of a reader; None if it raises an error of the package."""
    try:
        return read(data)
    except (KafkaStoreError, message_model.Broken):
        return None


def modelled(version):
    return lambda data: message_model.read(TRANSACTION_LOG_VALUE, version, data)[0]


def test_the_key_is_the_transactional_id():
    assert parse_key(bytes.fromhex("0000 0003 6dc3a9")) == "m\xe9"
    assert pack_transaction_key("m\xe9") == bytes.fromhex("0000 0003 6dc3a9")
    for size in range(7):
        with pytest.raises(CorruptionError):
            parse_key(pack_transaction_key("m\xe9")[:size])
    with pytest.raises(UnsupportedFormatError):
        parse_key(bytes.fromhex("0001 0003 6dc3a9"))
    with pytest.raises(FieldValueError) as refused:
        pack_transaction_key("x" * 40000)
    assert refused.value.field == "transactional id"


def test_the_fields_are_in_order():
    numbers = "0000010000000000 0007 0000ea60 01"
    times = f"{1795166447595:016x} {1795166447536:016x}"
    plain_form = f"""0000 {numbers}
        00000002 0003 74786e 00000002 00000001 00000000 0002 c3a9 00000000 {times}"""
    flexible = f"""0001 {numbers}
        03 04 74786e 03 00000001 00000000 00 03 c3a9 01 00 {times}
        04 00 08 0000000000000005 01 08 0000000000000006 02 02 0002 03 02 0008"""
    assert pack_transaction_value(VALUE, 0) == bytes.fromhex(plain_form)
    assert pack_transaction_value(VALUE._replace(**TAGGED), 1) == bytes.fromhex(flexible)


def test_an_empty_transaction_has_no_partitions():
    value = VALUE._replace(transaction_partitions=None, transaction_status=TransactionState.EMPTY)
    for version in VERSIONS:
        assert parse_value(pack_transaction_value(value, version)) == value


def test_an_unknown_state_stays_a_number():
    data = bytearray(pack_transaction_value(VALUE, 0))
    assert parse_value(bytes(data)).transaction_status is TransactionState.ONGOING
    for number in (8, 127, -1):
        data[16] = number & 255
        assert parse_value(bytes(data)).transaction_status == number
        assert not isinstance(parse_value(bytes(data)).transaction_status, TransactionState)


@pytest.mark.parametrize("field", TAGGED)
def test_version_0_has_no_room_for_a_tagged_field(field):
    value = VALUE._replace(**{field: TAGGED[field]})
    assert parse_value(pack_transaction_value(value, 1)) == value
    with pytest.raises(FieldValueError):
        pack_transaction_value(value, 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_value_is_written_and_read_as_the_model_does(version):
    @bounded(100)
    @given(message_strategies.values(TRANSACTION_LOG_VALUE, version))
    def check(fields):
        value = made(fields)
        data = pack_transaction_value(value, version)
        body = message_model.write(TRANSACTION_LOG_VALUE, version, fields)
        assert data == version.to_bytes(2, "big") + body
        assert parse_value(data) == value
        assert parse_value(data + b"more") == value

    check()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_corrupt_value_is_read_as_the_model_does_or_refused(version):
    sound = message_strategies.values(TRANSACTION_LOG_VALUE, version).map(
        lambda fields: message_model.write(TRANSACTION_LOG_VALUE, version, fields)
    )

    @bounded(200)
    @given(message_strategies.damaged(sound) | st.binary(max_size=60))
    def check(data):
        read = outcome(parse_value, version.to_bytes(2, "big") + data)
        assert plain(read) == outcome(modelled(version), data)

    check()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_value_cut_anywhere_is_refused_with_its_place(version):
    data = pack_transaction_value(VALUE, version)
    for size in range(len(data)):
        with pytest.raises(CorruptionError) as refused:
            parse_value(data[:size])
        assert refused.value.position <= size


@pytest.mark.parametrize("version", VERSIONS)
def test_a_value_with_any_bit_flipped_is_a_value_or_refused(version):
    sound = pack_transaction_value(VALUE, version)
    outcomes = set()
    for bit in range(16, 8 * len(sound)):
        data = bytearray(sound)
        data[bit // 8] ^= 1 << bit % 8
        expected = outcome(modelled(version), bytes(data[2:]))
        assert plain(outcome(parse_value, bytes(data))) == expected
        outcomes.add(expected is None)
    assert outcomes == {True, False}


def test_a_null_value_is_a_tombstone():
    assert parse_value(None) is None


@pytest.mark.parametrize("version", [2, -1])
def test_another_version_is_refused(version):
    with pytest.raises(UnsupportedFormatError):
        parse_value(version.to_bytes(2, "big", signed=True) + bytes(100))
    with pytest.raises(UnsupportedFormatError):
        pack_transaction_value(VALUE, version)


@pytest.mark.golden_cases(names="transactions")
def test_the_states_that_every_broker_wrote_follow_each_other(golden_case):
    """The case leaves one transaction of three transactional ids open, with partition 0."""
    version = 1 if golden_case.version == "4.1.1" else 0
    records = golden_case.answers["partitions"]["__transaction_state-0"]["records"]
    last = {}
    for _, timestamp, _, *key_and_value in (record[:5] for record in records):
        key, data = map(base64.b64decode, key_and_value)
        transactional_id, value = parse_key(key), parse_value(data)
        assert pack_transaction_key(transactional_id) == key
        assert pack_transaction_value(value, version) == data
        assert value.transaction_timeout_ms == 600_000
        assert abs(value.transaction_last_update_timestamp_ms - timestamp) < 5000
        is_empty = value.transaction_status is TransactionState.EMPTY
        assert (value.transaction_partitions is None) == is_empty
        for topic, partition_ids in value.transaction_partitions or ():
            assert topic == "txn"
            assert set(partition_ids) <= {0, 1}
        if transactional_id in last:
            before = last[transactional_id]
            assert before.transaction_status in MAY_COME_FROM[value.transaction_status]
            assert before.producer_id == value.producer_id
        last[transactional_id] = value
    assert sorted(last) == ["tx-a", "tx-b", "tx-c"]
    still_open = last.pop("tx-c")
    assert still_open.transaction_status is TransactionState.ONGOING
    assert still_open.transaction_partitions == (("txn", (0,)),)
    ended = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
    assert all(value.transaction_status in ended for value in last.values())
    expected = 2 if version else 0
    assert still_open.client_transaction_version == expected


def test_the_examples_of_the_document_and_the_module_are_true():
    examples = format_document.run_examples("transaction_state")
    for failed, run in (examples, doctest.testmod(transaction_state)):
        assert run > 0
        assert failed == 0


def test_the_documents_tables_are_those_of_the_model():
    text = (format_document.DOCUMENTS / "transaction_state.md").read_text()
    expected = message_model.as_documented(TRANSACTION_LOG_VALUE.fields)
    assert message_model.documented(text) == expected
    states = re.findall(r"^\| (\d) ([A-Z_]+) \|.*\| ([\d, ]+) \|$", text, re.M)
    assert [(int(number), name) for number, name, _ in states] == [
        (state.value, state.name) for state in TransactionState
    ]
    for number, _, before in states:
        expected_before = MAY_COME_FROM[TransactionState(int(number))]
        assert set(map(int, before.split(", "))) == expected_before
