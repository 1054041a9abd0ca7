"""ListOffsets requests and responses, every version against the model; and their headers."""


import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import message_model, message_strategies
from models.message_model import known, plain
from models.record_strategies import bounded

from kafkastore.errors import (
    CorruptionError,
    FieldValueError,
    KafkaStoreError,
    UnsupportedFormatError,
)
from kafkastore.formats.requests import list_offsets
from kafkastore.formats.requests.apis import (
    ApiKey,
    RequestHeader,
    pack_request_header,
    pack_response_header,
    parse_request_header,
    parse_response_header,
)
from kafkastore.formats.requests.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
    pack_request,
    pack_response,
    parse_request,
    parse_response,
)

VERSIONS = range(12)
(LIST_OFFSETS_REQUEST,) = list_offsets.REQUESTS.descriptions.values()
(LIST_OFFSETS_RESPONSE,) = list_offsets.RESPONSES.descriptions.values()


def made(message_type, topic_type, partition_type):
    """A function that builds a message of the package from the model's dictionaries."""

    def build(fields):
        topics = tuple(
            topic_type(
                topic["name"],
                tuple(partition_type(**partition) for partition in topic["partitions"]),
            )
            for topic in fields["topics"]
        )
        return message_type(**fields | {"topics": topics})

    return build


KINDS = {
    "request": (
        LIST_OFFSETS_REQUEST,
        parse_request,
        pack_request,
        made(ListOffsetsRequest, ListOffsetsTopic, ListOffsetsPartition),
    ),
    "response": (
        LIST_OFFSETS_RESPONSE,
        parse_response,
        pack_response,
        made(ListOffsetsResponse, ListOffsetsTopicResponse, ListOffsetsPartitionResponse),
    ),
}
KIND_AND_VERSION = [(kind, version) for kind in KINDS for version in VERSIONS]


def sample(kind, version):
    """A message with every field of this version set, in two topics and three partitions."""
    if kind == "request":
        common = {
            "current_leader_epoch": 9 if version >= 4 else -1,
            "max_num_offsets": 100 if version == 0 else 1,
        }
        partitions = (
            ListOffsetsPartition(0, -1, **common),
            ListOffsetsPartition(70_000, 1795166447595, **common),
        )
        topics = (ListOffsetsTopic("t\xe9", partitions), ListOffsetsTopic("u", partitions[:1]))
        return ListOffsetsRequest(
            topics, 3, int(version >= 2), timeout_ms=30_000 if version >= 10 else 0
        )
    epoch = 9 if version >= 4 else -1
    found = ListOffsetsPartitionResponse(70_000, 0, 1795166447595, 2**40, epoch)
    if version == 0:
        found = ListOffsetsPartitionResponse(70_000, old_style_offsets=(2**40, 0))
    topics = (
        ListOffsetsTopicResponse("t\xe9", (ListOffsetsPartitionResponse(0, 3), found)),
        ListOffsetsTopicResponse("u", (found,)),
    )
    return ListOffsetsResponse(topics, throttle_time_ms=250 if version >= 2 else 0)


def outcome(read, data):
    """The result of a reader; None if it raises an error of the package."""
    try:
        return read(data)
    except (KafkaStoreError, message_model.Broken):
        return None


@pytest.mark.parametrize(("kind", "version"), KIND_AND_VERSION)
def test_every_message_is_written_and_read_as_the_model_does(kind, version):
    message, parse, pack, build = KINDS[kind]

    @bounded(30)
    @given(message_strategies.values(message, version))
    def check(fields):
        value = build(fields)
        data = pack(value, version)
        assert data == message_model.write(message, version, fields)
        assert parse(data, version) == value
        assert parse(data + b"more", version) == value

    check()


@pytest.mark.parametrize(("kind", "version"), KIND_AND_VERSION)
def test_a_corrupt_message_is_read_as_the_model_does_or_refused(kind, version):
    message, parse, _, _ = KINDS[kind]
    sound = message_strategies.values(message, version).map(
        lambda fields: message_model.write(message, version, fields)
    )

    @bounded(50)
    @given(message_strategies.damaged(sound) | st.binary(max_size=60))
    def check(data):
        expected = known(outcome(lambda data: message_model.read(message, version, data)[0], data))
        assert plain(outcome(lambda data: parse(data, version), data)) == expected

    check()


@pytest.mark.parametrize(("kind", "version"), KIND_AND_VERSION)
def test_a_message_cut_anywhere_is_refused_with_its_place(kind, version):
    _, parse, pack, _ = KINDS[kind]
    data = pack(sample(kind, version), version)
    assert parse(data, version) == sample(kind, version)
    for size in range(len(data)):
        with pytest.raises(CorruptionError) as refused:
            parse(data[:size], version)
        assert refused.value.position <= size


@pytest.mark.parametrize(("kind", "version"), KIND_AND_VERSION)
def test_a_message_with_any_bit_flipped_is_a_message_or_refused(kind, version):
    message, parse, pack, _ = KINDS[kind]
    sound = pack(sample(kind, version), version)
    outcomes = set()
    for bit in range(8 * len(sound)):
        data = bytearray(sound)
        data[bit // 8] ^= 1 << bit % 8
        data = bytes(data)
        expected = known(outcome(lambda data: message_model.read(message, version, data)[0], data))
        assert plain(outcome(lambda data: parse(data, version), data)) == expected
        outcomes.add(expected is None)
    assert outcomes == {True, False}


def test_versions_that_differ_in_meaning_alone_have_the_same_bytes():
    for kind, (_, _, pack, _) in KINDS.items():
        for same in ((2, 3), (4, 5), (6, 7, 8, 9), (10, 11)):
            assert len({pack(sample(kind, same[0]), version) for version in same}) == 1
    response = {pack_response(sample("response", 6), version) for version in range(6, 12)}
    assert len(response) == 1


def test_the_bytes_of_a_request_of_each_form():
    topics = (ListOffsetsTopic("t", (ListOffsetsPartition(1, -1, -1, 1),)),)
    request = ListOffsetsRequest(topics, timeout_ms=5)
    no_id, one, name, partition, latest = "ffffffff", "00000001", "0001 74", "00000001", 8 * "ff"
    flexible = f"{no_id} 00 02 02 74 02 {partition} {no_id} {latest} 00 00"
    expected = {
        0: f"{no_id} {one} {name} {one} {partition} {latest} 00000001",
        1: f"{no_id} {one} {name} {one} {partition} {latest}",
        2: f"{no_id} 00 {one} {name} {one} {partition} {latest}",
        4: f"{no_id} 00 {one} {name} {one} {partition} {no_id} {latest}",
        6: f"{flexible} 00",
        10: f"{flexible} 00000005 00",
    }
    for version, data in expected.items():
        assert pack_request(request, version) == bytes.fromhex(data)


def test_the_bytes_of_a_response_of_each_form():
    partition = ListOffsetsPartitionResponse(1, 0, 16, 17)
    old = ListOffsetsPartitionResponse(1, 0, old_style_offsets=(17,))
    head, found = "00000001 0001 74 00000001 00000001 0000", f"{16:016x} {17:016x}"
    throttle, epoch = "00000000", "ffffffff"
    expected = {
        0: f"{head} 00000001 {17:016x}",
        1: f"{head} {found}",
        2: f"{throttle} {head} {found}",
        4: f"{throttle} {head} {found} {epoch}",
        6: f"{throttle} 02 02 74 02 00000001 0000 {found} {epoch} 00 00 00",
    }
    for version, data in expected.items():
        topic = ListOffsetsTopicResponse("t", (partition if version else old,))
        assert pack_response(ListOffsetsResponse((topic,)), version) == bytes.fromhex(data)


@pytest.mark.parametrize(
    ("version", "request_", "field"),
    [
        (1, ListOffsetsRequest((), isolation_level=1), "isolation_level"),
        (
            1,
            ListOffsetsRequest((ListOffsetsTopic("t", (ListOffsetsPartition(0, -1, -1, 2),)),)),
            "max_num_offsets",
        ),
        (2, ListOffsetsRequest((), isolation_level=128), "isolation_level"),
        (2, ListOffsetsRequest((), replica_id=2**31), "replica_id"),
        (7, ListOffsetsRequest((ListOffsetsTopic("x" * 32768, ()),)), "name"),
    ],
)
def test_a_request_that_would_lose_something_is_refused(version, request_, field):
    with pytest.raises(FieldValueError) as refused:
        pack_request(request_, version)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("version", "partition", "field"),
    [
        (0, ListOffsetsPartitionResponse(0, offset=1), "offset"),
        (0, ListOffsetsPartitionResponse(0, timestamp=1), "timestamp"),
        (1, ListOffsetsPartitionResponse(0, old_style_offsets=(1,)), "old_style_offsets"),
        (3, ListOffsetsPartitionResponse(0, leader_epoch=1), "leader_epoch"),
        (4, ListOffsetsPartitionResponse(0, error_code=2**15), "error_code"),
    ],
)
def test_a_response_that_would_lose_something_is_refused(version, partition, field):
    response = ListOffsetsResponse((ListOffsetsTopicResponse("t", (partition,)),))
    with pytest.raises(FieldValueError) as refused:
        pack_response(response, version)
    assert refused.value.field == field


def test_ignorable_fields_are_left_out():
    topics = (ListOffsetsTopic("t", (ListOffsetsPartition(0, -1, current_leader_epoch=5),)),)
    request = ListOffsetsRequest(topics, timeout_ms=5)
    partition = parse_request(pack_request(request, 3), 3).topics[0].partitions[0]
    assert partition.current_leader_epoch == -1
    assert parse_request(pack_request(request, 9), 9).timeout_ms == 0
    response = ListOffsetsResponse((), throttle_time_ms=5)
    assert parse_response(pack_response(response, 1), 1).throttle_time_ms == 0


def test_an_unknown_tag_is_skipped():
    request = sample("request", 10)
    data = pack_request(request, 10)
    assert parse_request(data[:-1] + bytes.fromhex("01 00 03 aabbcc"), 10) == request


@pytest.mark.parametrize("version", [-1, 12])
def test_another_version_is_refused(version):
    for kind, (_, parse, pack, _) in KINDS.items():
        with pytest.raises(UnsupportedFormatError):
            parse(bytes(100), version)
        with pytest.raises(UnsupportedFormatError):
            pack(sample(kind, 11), version)


# Headers


def header_of(version, correlation_id=7, client_id="me"):
    return RequestHeader(ApiKey.LIST_OFFSETS, version, correlation_id, client_id)


@pytest.mark.parametrize(
    ("header", "data"),
    [
        (header_of(0, -1, None), "0002 0000 ffffffff ffff"),
        (header_of(5), "0002 0005 00000007 0002 6d65"),
        (header_of(6), "0002 0006 00000007 0002 6d65 00"),
        (header_of(11, 7, None), "0002 000b 00000007 ffff 00"),
        # A newer version is flexible too; of an unknown request nothing is known.
        (header_of(12), "0002 000c 00000007 0002 6d65 00"),
        (RequestHeader(99, 3, 7, "me"), "0063 0003 00000007 0002 6d65"),
    ],
)
def test_a_request_header_is_written_and_read(header, data):
    data = bytes.fromhex(data)
    assert pack_request_header(header) == data
    assert parse_request_header(data + b"request") == (header, len(data))
    for size in range(len(data)):
        with pytest.raises(CorruptionError):
            parse_request_header(data[:size])


@pytest.mark.parametrize(
    ("header", "data"),
    [
        (header_of(0), "00000007"),
        (header_of(5), "00000007"),
        (header_of(6), "00000007 00"),
        # A client reads this one before it knows the versions of the server.
        (RequestHeader(ApiKey.API_VERSIONS, 4, 7, "me"), "00000007"),
    ],
)
def test_a_response_header_is_written_and_read(header, data):
    data = bytes.fromhex(data)
    assert pack_response_header(header) == data
    assert parse_response_header(data + b"response", header) == len(data)
    for size in range(len(data)):
        with pytest.raises(CorruptionError):
            parse_response_header(data[:size], header)
    with pytest.raises(CorruptionError):
        parse_response_header(data, header._replace(correlation_id=8))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_complete_exchange_is_read_from_its_frames(version):
    request, answered = sample("request", version), sample("response", version)
    header = header_of(version)
    sent = pack_request_header(header) + pack_request(request, version)
    read, position = parse_request_header(sent)
    assert (read, parse_request(sent[position:], read.version)) == (header, request)
    sent = pack_response_header(header) + pack_response(answered, version)
    position = parse_response_header(sent, header)
    assert parse_response(sent[position:], version) == answered
