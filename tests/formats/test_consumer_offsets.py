"""Records of __consumer_offsets: their bytes by hand, and what real brokers wrote."""

import base64
import doctest

import pytest
from hypothesis import given
from models import format_document, message_model, message_strategies
from models.internal_topics import (
    pack_group_key,
    pack_group_value,
    pack_offset_commit_key,
    pack_offset_commit_value,
)
from models.record_strategies import bounded

from kafkastore.errors import CorruptionError, UnsupportedFormatError
from kafkastore.formats.topics import consumer_offsets
from kafkastore.formats.topics.consumer_offsets import (
    RECORDS,
    OffsetAndMetadata,
    OffsetCommitKey,
    parse_offset_commit,
)

KEY = OffsetCommitKey("g", "t", 7)
OFFSET = OffsetAndMetadata(
    offset=2**40,
    metadata="m\xe9",
    commit_timestamp=1795165508017,
    leader_epoch=7,
    expire_timestamp=1795251908017,
    topic_id="2P-eXPKcTZG5NwujU8kn6Q",
)
MEMBER = {
    "member_id": "a-1",
    "group_instance_id": "static",
    "client_id": "a",
    "client_host": "/10.0.0.1",
    "rebalance_timeout": 300_000,
    "session_timeout": 10_000,
    "subscription": b"\0\1",
    "assignment": b"\2",
}
GROUP = {
    "protocol_type": "consumer",
    "generation": 3,
    "protocol": "range",
    "leader": "a-1",
    "current_state_timestamp": 1795165508017,
}


# Keys


@pytest.mark.parametrize(
    ("data", "name", "fields"),
    [
        ("0000 0001 67 0001 74 00000000", "LegacyOffsetCommit", ("g", "t", 0)),
        ("0001 0001 67 0001 74 00000007", "OffsetCommit", ("g", "t", 7)),
        ("0001 0000 0000 ffffffff", "OffsetCommit", ("", "", -1)),
        ("0002 0001 67", "GroupMetadata", ("g",)),
        ("0005 0001 67 0001 6d", "ConsumerGroupMemberMetadata", ("g", "m")),
        ("0010 0001 67 0002 2e2a", "ConsumerGroupRegularExpression", ("g", ".*")),
        ("0017 0001 67", "StreamsGroupTopology", ("g",)),
    ],
)
def test_a_key_is_read_by_its_record_type(data, name, fields):
    for more in (b"", b"more"):
        record = RECORDS.parse_keyed(bytes.fromhex(data) + more, None)
        assert (record.name, tuple(record.key.values())) == (name, fields)
        assert record[2:3] + record[4:] == (None, None, None)
    for size in range(len(bytes.fromhex(data))):
        with pytest.raises(CorruptionError) as refused:
            RECORDS.parse_keyed(bytes.fromhex(data)[:size], None)
        assert refused.value.position <= size


@pytest.mark.parametrize("data", ["0012", "7fffff", "ffff", "0019 0001 67"])
def test_a_record_of_an_unknown_type_keeps_its_bytes(data):
    data = bytes.fromhex(data)
    record = RECORDS.parse_keyed(data, b"\0\0value")
    assert record.number == int.from_bytes(data[:2], "big", signed=True)
    assert record[1:] == (None, None, None, None, data[2:])
    assert parse_offset_commit(data, b"\0\0value") is None


def test_a_null_group_is_refused():
    with pytest.raises(CorruptionError) as refused:
        parse_offset_commit(bytes.fromhex("0001 ffff 0001 74 00000000"), None)
    assert refused.value.position == 2


# Values


def test_the_fields_of_an_offset_commit_are_in_order():
    number, text, time, epoch = "0000010000000000", "6dc3a9", "000001a1f833d1b1", "00000007"
    expected = (
        f"0000 {number} 0003 {text} {time}",
        f"0001 {number} 0003 {text} {time} 000001a1fd5a2db1",
        f"0002 {number} 0003 {text} {time}",
        f"0003 {number} {epoch} 0003 {text} {time}",
        f"0004 {number} {epoch} 04 {text} {time} 01 00 10 d8ff9e5cf29c4d91b9370ba353c927e9",
    )
    for version, data in enumerate(expected):
        assert pack_offset_commit_value(OFFSET, version) == bytes.fromhex(data)
        key, value = parse_offset_commit(pack_offset_commit_key(KEY), bytes.fromhex(data))
        assert key == KEY
        assert value == OFFSET._replace(
            leader_epoch=7 if version >= 3 else -1,
            expire_timestamp=OFFSET.expire_timestamp if version == 1 else -1,
            topic_id=OFFSET.topic_id if version == 4 else None,
        )


def test_the_fields_of_group_metadata_are_in_order():
    kind, time = "0008 636f6e73756d6572 00000003", "000001a1f833d1b1"
    names, one = "0005 72616e6765 0003 612d31", "00000001"
    member, static, client = "0003 612d31", "0006 737461746963", "0001 61 0009 2f31302e302e302e31"
    rebalance, session, ends = "000493e0", "00002710", "00000002 0001 00000001 02"
    expected = (
        f"0000 {kind} {names} {one} {member} {client} {session} {ends}",
        f"0001 {kind} {names} {one} {member} {client} {rebalance} {session} {ends}",
        f"0002 {kind} {names} {time} {one} {member} {client} {rebalance} {session} {ends}",
        f"0003 {kind} {names} {time} {one} {member} {static} {client} {rebalance} {session} {ends}",
        f"""0004 09 636f6e73756d6572 00000003 06 72616e6765 04 612d31 {time}
        02 04 612d31 07 737461746963 02 61 0a 2f31302e302e302e31 {rebalance} {session}
        03 0001 02 02 00 00""",
    )
    for version, data in enumerate(expected):
        record = RECORDS.parse_keyed(pack_group_key("g"), bytes.fromhex(data))
        assert (record.name, record.version) == ("GroupMetadata", version)
        assert record.key == {"group": "g"}
        (found,) = record.value["members"]
        assert found == MEMBER | {
            "group_instance_id": "static" if version >= 3 else None,
            "rebalance_timeout": 300_000 if version >= 1 else -1,
        }
        timestamp = GROUP["current_state_timestamp"] if version >= 2 else -1
        expected_group = GROUP | {"current_state_timestamp": timestamp, "members": (found,)}
        assert record.value == expected_group
        assert pack_group_value(version, **expected_group) == bytes.fromhex(data)


@bounded(100)
@given(message_strategies.STRINGS, message_strategies.STRINGS, message_strategies.NUMBERS["int32"])
def test_a_packed_commit_is_read_again(group, topic, partition):
    key = OffsetCommitKey(group, topic, partition)
    data = pack_offset_commit_key(key)
    assert parse_offset_commit(data, pack_offset_commit_value(OFFSET, 1))[0] == key
    assert parse_offset_commit(data, None) == (key, None)


@pytest.mark.parametrize("version", [5, -1])
def test_another_version_of_a_commit_is_refused_and_of_a_record_kept(version):
    data = version.to_bytes(2, "big", signed=True) + b"more"
    with pytest.raises(UnsupportedFormatError) as refused:
        parse_offset_commit(pack_offset_commit_key(KEY), data)
    assert refused.value.position == 0
    record = RECORDS.parse_keyed(pack_group_key("g"), data)
    assert record == (2, "GroupMetadata", version, {"group": "g"}, None, b"more")


def test_metadata_that_is_not_utf_8_is_read_back_unchanged():
    data = bytes.fromhex("0000 0000000000000001 0003 61ff62 0000000000000002")
    _, value = parse_offset_commit(pack_offset_commit_key(KEY), data)
    assert value.metadata == "a\udcffb"
    assert pack_offset_commit_value(value, 0) == data


# What brokers wrote

WRITTEN = {"0.10.2.2": 1, "0.11.0.3": 1, "2.4.0": 3, "3.9.1": 3, "4.1.1": 4, "4.3.1": 4}


@pytest.mark.golden_cases(names="wide", versions=list(WRITTEN), answers="answers")
def test_the_committed_offset_of_every_broker_is_read_and_packed_again(golden_case):
    """The case commits offset 0 of a-0 for golden-group, and nothing else."""
    partition = golden_case.answers["partitions"]["__consumer_offsets-0"]
    ((_, timestamp, _, key, value, *_),) = partition["records"]
    key, value = base64.b64decode(key), base64.b64decode(value)
    committed, parsed = parse_offset_commit(key, value)
    assert committed == ("golden-group", "a", 0)
    assert pack_offset_commit_key(committed) == key
    version = WRITTEN[golden_case.version]
    assert value[:2] == version.to_bytes(2, "big")
    assert parsed[:2] == (0, "")
    assert abs(parsed.commit_timestamp - timestamp) < 5000
    day = parsed.commit_timestamp + 86_400_000
    assert parsed.expire_timestamp == (day if version == 1 else -1)
    metadata = golden_case.logs / "a-0" / "partition.metadata"
    topic_id = metadata.read_text().split()[-1] if golden_case.version == "4.3.1" else None
    assert parsed[3:4] + parsed[5:] == (-1, topic_id)
    assert pack_offset_commit_value(parsed, version) == value


def test_the_examples_of_the_document_and_the_module_are_true():
    for failed, run in (
        format_document.run_examples("consumer_offsets"),
        doctest.testmod(consumer_offsets),
    ):
        assert run > 2
        assert failed == 0


def test_the_documents_tables_are_those_of_the_descriptions():
    text = (format_document.DOCUMENTS / "consumer_offsets.md").read_text()
    expected = [
        row
        for number in (1, 2)
        for row in message_model.as_documented(RECORDS.descriptions[number].fields)
    ]
    assert message_model.documented(text) == expected
