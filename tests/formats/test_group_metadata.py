"""Records of __consumer_offsets: every version against the model, and what real brokers wrote."""

import base64
import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import format_document, message_model, message_strategies
from models.internal_topics import (
    pack_group_key,
    pack_group_metadata_value,
    pack_offset_commit_value,
)
from models.message_model import GROUP_METADATA_VALUE, OFFSET_COMMIT_VALUE, plain
from models.record_strategies import bounded

from kafkastore.errors import CorruptionError, KafkaStoreError, UnsupportedFormatError
from kafkastore.formats.primitives.protocol import FieldValueError
from kafkastore.formats.topics import group_metadata
from kafkastore.formats.topics.group_metadata import (
    GroupMetadata,
    GroupMetadataKey,
    MemberMetadata,
    OffsetAndMetadata,
    OffsetCommitKey,
    UnknownKey,
    parse_group_metadata_value,
    parse_key,
    parse_offset_commit_value,
)

VERSIONS = range(5)
KINDS = {
    "offset commit": (
        OFFSET_COMMIT_VALUE,
        parse_offset_commit_value,
        pack_offset_commit_value,
        lambda fields: OffsetAndMetadata(**fields),
    ),
    "group metadata": (
        GROUP_METADATA_VALUE,
        parse_group_metadata_value,
        pack_group_metadata_value,
        lambda fields: GroupMetadata(
            **fields | {"members": tuple(MemberMetadata(**each) for each in fields["members"])}
        ),
    ),
}
KIND_AND_VERSION = [(kind, version) for kind in KINDS for version in VERSIONS]

OFFSET = OffsetAndMetadata(
    offset=2**40,
    metadata="m\xe9",
    commit_timestamp=1795165508017,
    leader_epoch=7,
    expire_timestamp=1795251908017,
    topic_id="2P-eXPKcTZG5NwujU8kn6Q",
)
GROUP = GroupMetadata(
    protocol_type="consumer",
    generation=3,
    protocol="range",
    leader="a-1",
    members=(
        MemberMetadata("a-1", "a", "/10.0.0.1", 10_000, b"\0\1", b"\2", 300_000, "static"),
        MemberMetadata("b-1", "b", "/10.0.0.2", 10_000, b"", b"", 300_000),
    ),
    current_state_timestamp=1795165508017,
)
SAMPLES = {"offset commit": OFFSET, "group metadata": GROUP}


def prefixed(version, data):
    return version.to_bytes(2, "big") + data


def outcome(read, data):
    """The result of a reader; None if it raises an error of the package."""
    try:
        return read(data)
    except (KafkaStoreError, message_model.Broken):
        return None


# Keys


@pytest.mark.parametrize(
    ("data", "key"),
    [
        ("0000 0001 67 0001 74 00000000", OffsetCommitKey("g", "t", 0)),
        ("0001 0001 67 0001 74 00000007", OffsetCommitKey("g", "t", 7)),
        ("0001 0000 0000 ffffffff", OffsetCommitKey("", "", -1)),
        ("0002 0001 67", GroupMetadataKey("g")),
        ("0005 0001 67 0001 6d", UnknownKey(5, "ConsumerGroupMemberMetadata", "g")),
        ("0010 0001 67 0002 2e2a", UnknownKey(16, "ConsumerGroupRegularExpression", "g")),
        ("0017 0001 67", UnknownKey(23, "StreamsGroupTopology", "g")),
        ("0012", UnknownKey(18, None, None)),
        ("7fff ff", UnknownKey(32767, None, None)),
        ("ffff", UnknownKey(-1, None, None)),
    ],
)
def test_a_key_is_read_by_its_record_type(data, key):
    assert parse_key(bytes.fromhex(data)) == key
    assert parse_key(bytes.fromhex(data) + b"more") == key


@bounded(100)
@given(message_strategies.STRINGS, message_strategies.STRINGS, message_strategies.NUMBERS["int32"])
def test_a_packed_key_is_read_again(group, topic, partition):
    for key in (OffsetCommitKey(group, topic, partition), GroupMetadataKey(group)):
        assert parse_key(pack_group_key(key)) == key


@pytest.mark.parametrize(
    "key", [OffsetCommitKey("group", "topic", 1), GroupMetadataKey("group")], ids=str
)
def test_a_key_cut_anywhere_is_refused_with_its_place(key):
    data = pack_group_key(key)
    for size in range(len(data)):
        with pytest.raises(CorruptionError) as refused:
            parse_key(data[:size])
        assert refused.value.position <= size


def test_a_known_type_needs_its_group():
    for data in ("0003", "0001 ffff 0001 74 00000000"):
        with pytest.raises(CorruptionError) as refused:
            parse_key(bytes.fromhex(data))
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


def test_the_fields_of_group_metadata_are_in_order():
    alone = GROUP._replace(members=GROUP.members[:1])
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
        assert pack_group_metadata_value(alone, version) == bytes.fromhex(data)


@pytest.mark.parametrize(("kind", "version"), KIND_AND_VERSION)
def test_values_without_a_field_in_a_version_are_left_out_and_read_as_none(kind, version):
    message, parse, pack, made = KINDS[kind]
    fields, _ = message_model.read(message, version, pack(SAMPLES[kind], version)[2:])
    assert parse(pack(SAMPLES[kind], version)) == made(fields)


@pytest.mark.parametrize(("kind", "version"), KIND_AND_VERSION)
def test_every_value_is_written_and_read_as_the_model_does(kind, version):
    message, parse, pack, made = KINDS[kind]

    @bounded(60)
    @given(message_strategies.values(message, version))
    def check(fields):
        value = made(fields)
        data = pack(value, version)
        assert data == prefixed(version, message_model.write(message, version, fields))
        assert parse(data) == value
        assert parse(data + b"more") == value

    check()


@pytest.mark.parametrize(("kind", "version"), KIND_AND_VERSION)
def test_a_corrupt_value_is_read_as_the_model_does_or_refused(kind, version):
    message, parse, _, _ = KINDS[kind]
    sound = message_strategies.values(message, version).map(
        lambda fields: message_model.write(message, version, fields)
    )

    @bounded(120)
    @given(message_strategies.damaged(sound) | st.binary(max_size=60))
    def check(data):
        expected = outcome(lambda data: message_model.read(message, version, data)[0], data)
        assert plain(outcome(parse, prefixed(version, data))) == expected

    check()


@pytest.mark.parametrize(("kind", "version"), KIND_AND_VERSION)
def test_a_value_cut_anywhere_is_refused_with_its_place(kind, version):
    _, parse, pack, _ = KINDS[kind]
    data = pack(SAMPLES[kind], version)
    for size in range(len(data)):
        with pytest.raises(CorruptionError) as refused:
            parse(data[:size])
        assert refused.value.position <= size


@pytest.mark.parametrize(("kind", "version"), KIND_AND_VERSION)
def test_a_value_with_any_bit_flipped_is_a_value_or_refused(kind, version):
    message, parse, pack, _ = KINDS[kind]
    sound = pack(SAMPLES[kind], version)
    outcomes = set()
    for bit in range(16, 8 * len(sound)):
        data = bytearray(sound)
        data[bit // 8] ^= 1 << bit % 8
        expected = outcome(lambda data: message_model.read(message, version, data)[0], data[2:])
        assert plain(outcome(parse, bytes(data))) == expected
        outcomes.add(expected is None)
    assert outcomes == {True, False}


@pytest.mark.parametrize("kind", KINDS)
def test_a_null_value_is_a_tombstone(kind):
    assert KINDS[kind][1](None) is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", [5, -1])
def test_another_version_is_refused(kind, version):
    _, parse, pack, _ = KINDS[kind]
    with pytest.raises(UnsupportedFormatError) as refused:
        parse(version.to_bytes(2, "big", signed=True) + bytes(100))
    assert refused.value.position == 0
    with pytest.raises(UnsupportedFormatError):
        pack(SAMPLES[kind], version)


def test_an_unknown_tag_is_skipped():
    data = pack_offset_commit_value(OFFSET._replace(topic_id=None), 4)
    with_tag = data[:-1] + bytes.fromhex("01 09 03 aabbcc")
    assert parse_offset_commit_value(with_tag) == parse_offset_commit_value(data)


def test_metadata_that_is_not_utf_8_is_read_back_unchanged():
    data = bytes.fromhex("0000 0000000000000001 0003 61ff62 0000000000000002")
    value = parse_offset_commit_value(data)
    assert value.metadata == "a\udcffb"
    assert pack_offset_commit_value(value, 0) == data


def test_a_value_that_does_not_fit_is_refused():
    for field, pack, value, version in (
        ("metadata", pack_offset_commit_value, OFFSET._replace(metadata="x" * 40000), 3),
        ("topic id", pack_offset_commit_value, OFFSET._replace(topic_id="short"), 4),
        ("generation", pack_group_metadata_value, GROUP._replace(generation=2**31), 3),
    ):
        with pytest.raises(FieldValueError) as refused:
            pack(value, version)
        assert refused.value.field == field


# What brokers wrote

WRITTEN = {"0.10.2.2": 1, "0.11.0.3": 1, "2.4.0": 3, "3.9.1": 3, "4.1.1": 4}


@pytest.mark.golden_cases(names="wide", versions=list(WRITTEN), answers="answers")
def test_the_committed_offset_of_every_broker_is_read_and_packed_again(golden_case):
    """The case commits offset 0 of a-0 for golden-group, and nothing else."""
    partition = golden_case.answers["partitions"]["__consumer_offsets-0"]
    ((_, timestamp, _, key, value, *_),) = partition["records"]
    key, value = base64.b64decode(key), base64.b64decode(value)
    assert parse_key(key) == ("golden-group", "a", 0)
    assert pack_group_key(parse_key(key)) == key
    parsed = parse_offset_commit_value(value)
    version = WRITTEN[golden_case.version]
    assert value[:2] == version.to_bytes(2, "big")
    assert parsed[:2] == (0, "")
    assert abs(parsed.commit_timestamp - timestamp) < 5000
    day = parsed.commit_timestamp + 86_400_000
    assert parsed.expire_timestamp == (day if version == 1 else -1)
    assert parsed[3:4] + parsed[5:] == (-1, None)
    assert pack_offset_commit_value(parsed, version) == value


def test_the_examples_of_the_document_and_the_module_are_true():
    for failed, run in (
        format_document.run_examples("group_metadata"),
        doctest.testmod(group_metadata),
    ):
        assert run > 3
        assert failed == 0


def test_the_documents_tables_are_those_of_the_model():
    text = (format_document.DOCUMENTS / "group_metadata.md").read_text()
    expected = [
        row
        for message in (OFFSET_COMMIT_VALUE, GROUP_METADATA_VALUE)
        for row in message_model.as_documented(message.fields)
    ]
    assert message_model.documented(text) == expected
