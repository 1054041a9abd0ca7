"""Records of __transaction_state: their bytes by hand, and what real brokers wrote."""

import base64
import re

import pytest
from models import format_document, message_model
from models.internal_topics import pack_transaction_key, pack_transaction_value

from kafkastore.errors import CorruptionError, FieldValueError
from kafkastore.formats.topics.transaction_state import RECORDS, TransactionState

VALUE = {
    "producer_id": 2**40,
    "producer_epoch": 7,
    "transaction_timeout_ms": 60_000,
    "transaction_status": TransactionState.ONGOING,
    "transaction_partitions": (
        {"topic": "txn", "partition_ids": (1, 0)},
        {"topic": "\xe9", "partition_ids": ()},
    ),
    "transaction_last_update_timestamp_ms": 1795166447595,
    "transaction_start_timestamp_ms": 1795166447536,
}
TAGGED = {
    "previous_producer_id": 5,
    "next_producer_id": 6,
    "client_transaction_version": 2,
    "next_producer_epoch": 8,
}
NO_TAGS = {
    "previous_producer_id": -1,
    "next_producer_id": -1,
    "client_transaction_version": 0,
    "next_producer_epoch": -1,
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


def test_the_key_is_the_transactional_id():
    key = bytes.fromhex("0000 0003 6dc3a9")
    assert RECORDS.parse_keyed(key, None)[:4] == (
        0, "TransactionLog", None, {"transactional_id": "m\xe9"})
    assert pack_transaction_key("m\xe9") == key
    for size in range(7):
        with pytest.raises(CorruptionError):
            RECORDS.parse_keyed(key[:size], None)
    # Brokers skip a record with another version of the key.
    assert RECORDS.parse_keyed(bytes.fromhex("0001 0003 6dc3a9"), None).key is None


def test_the_fields_are_in_order():
    numbers = "0000010000000000 0007 0000ea60 01"
    times = f"{1795166447595:016x} {1795166447536:016x}"
    plain_form = f"""0000 {numbers}
        00000002 0003 74786e 00000002 00000001 00000000 0002 c3a9 00000000 {times}"""
    flexible = f"""0001 {numbers}
        03 04 74786e 03 00000001 00000000 00 03 c3a9 01 00 {times}
        04 00 08 0000000000000005 01 08 0000000000000006 02 02 0002 03 02 0008"""
    for version, data, fields in ((0, plain_form, VALUE | NO_TAGS), (1, flexible, VALUE | TAGGED)):
        assert pack_transaction_value(version, **fields) == bytes.fromhex(data)
        record = RECORDS.parse_keyed(pack_transaction_key("x"), bytes.fromhex(data))
        assert (record.version, record.value) == (version, fields)


def test_an_empty_transaction_has_no_partitions():
    for version in (0, 1):
        data = pack_transaction_value(version, **VALUE | {"transaction_partitions": None})
        assert RECORDS.parse_keyed(pack_transaction_key("x"), data).value == (
            VALUE | NO_TAGS | {"transaction_partitions": None})


@pytest.mark.parametrize("field", TAGGED)
def test_version_0_has_no_room_for_a_tagged_field(field):
    with pytest.raises(FieldValueError) as refused:
        pack_transaction_value(0, **VALUE | {field: TAGGED[field]})
    assert refused.value.field == field


@pytest.mark.golden_cases(names="transactions")
def test_the_states_that_every_broker_wrote_follow_each_other(golden_case):
    """The case leaves one transaction of three transactional ids open, with partition 0."""
    version = 1 if golden_case.version.startswith("4.") else 0
    records = golden_case.answers["partitions"]["__transaction_state-0"]["records"]
    last = {}
    for _, timestamp, _, *key_and_value in (record[:5] for record in records):
        key, data = map(base64.b64decode, key_and_value)
        record = RECORDS.parse_keyed(key, data)
        transactional_id, value = record.key["transactional_id"], record.value
        assert record.version == version
        assert pack_transaction_key(transactional_id) == key
        assert pack_transaction_value(version, **value) == data
        assert value["transaction_timeout_ms"] == 600_000
        assert abs(value["transaction_last_update_timestamp_ms"] - timestamp) < 5000
        status = TransactionState(value["transaction_status"])
        is_empty = status is TransactionState.EMPTY
        assert (value["transaction_partitions"] is None) == is_empty
        for partitions in value["transaction_partitions"] or ():
            assert partitions["topic"] == "txn"
            assert set(partitions["partition_ids"]) <= {0, 1}
        if transactional_id in last:
            before = last[transactional_id]
            assert before["transaction_status"] in MAY_COME_FROM[status]
            assert before["producer_id"] == value["producer_id"]
        last[transactional_id] = value
    assert sorted(last) == ["tx-a", "tx-b", "tx-c"]
    still_open = last.pop("tx-c")
    assert still_open["transaction_status"] == TransactionState.ONGOING
    assert still_open["transaction_partitions"] == ({"topic": "txn", "partition_ids": (0,)},)
    ended = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
    assert all(value["transaction_status"] in ended for value in last.values())
    expected = 2 if version else 0
    assert still_open["client_transaction_version"] == expected


def test_the_examples_of_the_document_are_true():
    failed, run = format_document.run_examples("transaction_state")
    assert run > 0
    assert failed == 0


def test_the_documents_tables_are_those_of_the_description():
    text = (format_document.DOCUMENTS / "transaction_state.md").read_text()
    expected = message_model.as_documented(RECORDS.descriptions[0].fields)
    assert message_model.documented(text) == expected
    states = re.findall(r"^\| (\d) ([A-Z_]+) \|.*\| ([\d, ]+) \|$", text, re.M)
    assert [(int(number), name) for number, name, _ in states] == [
        (state.value, state.name) for state in TransactionState
    ]
    for number, _, before in states:
        expected_before = MAY_COME_FROM[TransactionState(int(number))]
        assert set(map(int, before.split(", "))) == expected_before
