"""Messages and records of internal topics against the classes of real brokers, both ways."""

import base64
import json
import math
import re
from itertools import product
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from models import kafka_classes, message_model, message_strategies, seed
from models.kafka_definitions import common, definitions
from models.message_model import snake_case
from models.message_tables import TABLES

from kafkastore.errors import KafkaStoreError
from kafkastore.formats.messages.description import Description, FieldType
from kafkastore.formats.messages.message_codec import StructCodec
from kafkastore.formats.requests import list_offsets
from kafkastore.formats.requests.apis import (
    ApiKey,
    RequestHeader,
    pack_request_header,
    pack_response_header,
)
from kafkastore.formats.topics import consumer_offsets, transaction_state

pytestmark = pytest.mark.kafka

NEWEST = "4.3.1"
BROKERS = ["3.9.1", "4.1.1", NEWEST]
CLIENT_CLASSES = "org.apache.kafka.common.message."
#: The packages of generated classes, and what they add to the names of our descriptions.
CLASSES = {
    "cluster metadata": ("org.apache.kafka.common.metadata.", ""),
    "consumer offsets": ("org.apache.kafka.coordinator.group.generated.", "Value"),
    "control records": (CLIENT_CLASSES, ""),
    "headers": (CLIENT_CLASSES, ""),
    "remote log metadata": ("org.apache.kafka.server.log.remote.metadata.storage.generated.", ""),
    "requests": (CLIENT_CLASSES, "Request"),
    "responses": (CLIENT_CLASSES, "Response"),
    "share group state": ("org.apache.kafka.coordinator.share.generated.", "Value"),
    "transaction state": ("org.apache.kafka.coordinator.transaction.generated.", "Value"),
}
KAFKA_NAMES = {
    "LeaderChange": "LeaderChangeMessage",
    "SnapshotHeader": "SnapshotHeaderRecord",
    "SnapshotFooter": "SnapshotFooterRecord",
    "KRaftVersion": "KRaftVersionRecord",
    "KRaftVoters": "VotersRecord",
}
#: Fields of batches: bytes here; Kafka's JSON has them empty.
RECORDS = "records"
#: Share groups of 3.9 could not be used: their records changed without a new version.
OTHER_LAYOUT = {"3.9.1": {"ShareGroupMetadata"}}
#: Only in brokers before or after the newest one here.
NOT_IN_NEWEST = {
    "ShareGroupPartitionMetadata",
    "StreamsGroupTargetAssignmentResolvedTopicIds",
    "UnregisterControllerRecord",
}
SCHEMAS_OF_2_4 = {
    ("consumer offsets", 1):
        ("kafka.coordinator.group.GroupMetadataManager$", "OFFSET_COMMIT_VALUE_SCHEMA_V{}", 3),
    ("consumer offsets", 2):
        ("kafka.coordinator.group.GroupMetadataManager$", "GROUP_METADATA_VALUE_SCHEMA_V{}", 3),
    ("transaction state", 0):
        ("kafka.coordinator.transaction.TransactionLog$ValueSchema$", "V{}", 0),
    ("requests", 2): (CLIENT_CLASSES + "ListOffsetRequestData", "SCHEMAS[{}]", 5),
    ("responses", 2): (CLIENT_CLASSES + "ListOffsetResponseData", "SCHEMAS[{}]", 5),
}
#: Fields of 2.4.0 that have another name now.
NAMES_NOW = {
    "timestamp": "commit_timestamp",
    "transaction_timeout": "transaction_timeout_ms",
    "transaction_entry_timestamp": "transaction_last_update_timestamp_ms",
    "transaction_start_timestamp": "transaction_start_timestamp_ms",
}


BOTH = list(product(seed.some(BROKERS, 1, __name__), TABLES))


class Message(NamedTuple):
    """A description and Kafka's, in the versions that both have."""

    ours: Description
    theirs: Description
    class_name: str

    @property
    def versions(self):
        oldest, newest = common(self.ours.versions, self.theirs.versions)
        return range(oldest, newest + 1)

    def without_unknown(self, fields):
        """Fields with those that this broker does not know at their default."""
        return at_default(fields, self.ours.fields, self.theirs.fields)


def at_default(value, ours, theirs):
    known = {field.name: field for field in theirs}
    found = {}
    for field in ours:
        each = value[field.name]
        if field.name not in known:
            each = field.default
        elif field.fields and isinstance(each, tuple):
            each = tuple(at_default(one, field.fields, known[field.name].fields) for one in each)
        elif field.fields and each is not None:
            each = at_default(each, field.fields, known[field.name].fields)
        found[field.name] = each
    return found


def messages(broker, kind):
    """Every message of a table that this broker has, keys too."""
    package, suffix = CLASSES[kind]
    defined = definitions(broker)
    data = "Data" if kind in ("requests", "responses", "headers") else ""
    for ours in TABLES[kind].descriptions.values():
        name = KAFKA_NAMES.get(ours.name, ours.name + suffix)
        if name in defined and ours.name not in OTHER_LAYOUT.get(broker, ()):
            yield Message(ours, defined[name], package + name + data)
        if ours.key and ours.name + "Key" in defined:
            theirs = defined[ours.name + "Key"]
            key = Description(ours.name, ours.number, theirs.versions, theirs.flexible, ours.key)
            yield Message(key, theirs, package + ours.name + "Key")


def some(strategy, count):
    """A number of examples of a strategy."""
    found = []

    @settings(
        max_examples=count,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(value):
        found.append(value)

    collect()
    return found


def coded(data):
    return base64.b64encode(data).decode()


def decoded(text):
    return base64.b64decode(text)


def as_json(fields, value, version):
    """The fields of a version with Kafka's names, as its JSON converters have them."""
    return {
        camel_case(field.name): _as_json(field, value[field.name], version)
        for field in fields if version in field.versions
    }


def _as_json(field, value, version, *, is_element=False):
    if isinstance(value, tuple):
        return [_as_json(field, each, version, is_element=True) for each in value]
    if field.type == FieldType.UUID and value is None and field.is_array == is_element:
        return 22 * "A"
    if isinstance(value, dict):
        return as_json(field.fields, value, version)
    return coded(value) if isinstance(value, bytes) else value


def camel_case(name):
    first, *more = name.split("_")
    return first + "".join(word.capitalize() for word in more)


SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")


def comparable(fields, value):
    """A value as a JSON text gives it: no bytes, no tuples, replaced what is not UTF-8."""
    return {field.name: _comparable(field, value[field.name]) for field in fields}


def _comparable(field, value, *, is_element=False):
    if isinstance(value, tuple):
        return [_comparable(field, each, is_element=True) for each in value]
    if isinstance(value, dict):
        return comparable(field.fields, value)
    if field.type == FieldType.UUID and value is None and field.is_array == is_element:
        return 22 * "A"
    if isinstance(value, str):
        return as_java_reads(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
    if isinstance(value, bytes):
        return "" if field.name == RECORDS else coded(value)
    return value


def as_java_reads(text):
    """Java replaces the three bytes of a surrogate by one character, Python by three."""
    data = SURROGATE.sub("\ufffd".encode(), text.encode("utf-8", "surrogateescape"))
    return data.decode("utf-8", "replace")


def is_text(value):
    """Whether all strings are UTF-8, so that Java writes them as they were."""
    if isinstance(value, dict | tuple):
        return all(map(is_text, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, str) or value.isascii() or as_java_reads(value) == value


def named(theirs, ours):
    """Kafka's result with our names; fields that its version lacks are taken from ours."""
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        return [named(*pair) for pair in zip(theirs, ours, strict=True)]
    if not isinstance(theirs, dict) or not isinstance(ours, dict):
        return theirs
    names = {name: snake_case(name) for name in theirs}
    names = {name: own if own in ours else NAMES_NOW[own] for name, own in names.items()}
    found = {own: named(theirs[name], ours[own]) for name, own in names.items()}
    return ours | found


# Definitions


def layout(fields, versions, *, names):
    """What decides the bytes and values of fields in these versions; only those of `names`."""
    rows = []
    for field in fields:
        present = common(field.versions, versions)
        if field.name not in names or present.newest < 0:
            continue
        is_always_there = field.tag is None and present == versions
        default = () if is_always_there else (field.default,)
        below = names[field.name]
        rows.append((
            field.name, field.type, field.is_array, present, common(field.nullable, present),
            field.tag, default, field.is_plain, layout(field.fields, present, names=below),
        ))
    return sorted(rows, key=lambda row: (row[5] is not None, row[5] or 0))


def names_of(fields):
    return {field.name: names_of(field.fields) for field in fields}


def common_names(one, other):
    return {name: common_names(one[name], other[name]) for name in one if name in other}


@pytest.mark.parametrize(("broker", "kind"), BOTH)
def test_descriptions_are_kafkas_definitions(require_broker, broker, kind):
    require_broker(broker)
    found = list(messages(broker, kind))
    assert found or (broker, kind) == ("3.9.1", "share group state")
    for message in found:
        ours, theirs, _ = message
        both = common(ours.versions, theirs.versions)
        names = names_of(theirs.fields)
        if broker != NEWEST:
            names = common_names(names, names_of(ours.fields))
        assert layout(ours.fields, both, names=names) == layout(theirs.fields, both, names=names)
        assert common(ours.flexible, both) == common(theirs.flexible, both), ours.name
        if broker == NEWEST:
            assert common_names(names, names_of(ours.fields)) == names, ours.name
            assert both.newest == theirs.versions.newest, ours.name


def test_every_record_of_the_newest_broker_has_a_description(require_broker):
    require_broker(NEWEST)
    defined = definitions(NEWEST)
    for kind in ("cluster metadata", "consumer offsets", "share group state", "remote log metadata",
                 "transaction state"):
        suffix = CLASSES[kind][1]
        ours = {
            each.name: each.number for each in TABLES[kind].descriptions.values()
            if each.name not in NOT_IN_NEWEST
        }
        for name, number in ours.items():
            assert defined[name + suffix].number == number
    records = {
        name: each.number for name, each in defined.items()
        if each.number >= 0 and name.endswith("Record")
    }
    known = {
        each.name for kind in ("cluster metadata", "remote log metadata")
        for each in TABLES[kind].descriptions.values()
    }
    assert records.keys() <= known
    values = {name.removesuffix("Value") for name in defined if name.endswith("Value")}
    known = {
        each.name
        for kind in ("consumer offsets", "share group state", "transaction state")
        for each in TABLES[kind].descriptions.values()
    }
    assert values == known - NOT_IN_NEWEST


# Values

COUNT, DAMAGED = 12, 24


def tried_messages(broker, kind):
    """Some messages of a table; tables of requests are long and have many versions."""
    return seed.some(list(messages(broker, kind)), 12, f"{broker} {kind}")


def codec_of(message, version):
    return StructCodec(message.ours.fields, version, version in message.ours.flexible)


@pytest.mark.parametrize(("broker", "kind"), BOTH)
def test_values_are_written_as_kafka_does(require_broker, broker, kind):
    require_broker(broker)
    queries, expected = [], []
    for message in tried_messages(broker, kind):
        for version in message.versions:
            for chosen in some(finite(message_strategies.values(message.ours, version)), COUNT):
                fields = message.without_unknown(chosen)
                data = message_model.write(message.ours, version, fields)
                assert codec_of(message, version).pack(fields) == data
                text = json.dumps(as_json(message.ours.fields, fields, version)).encode()
                queries.append(("pack", message.class_name, version, coded(text)))
                expected.append(coded(data))
    answers = kafka_classes.ask(broker, queries, program="KafkaPayloads")
    wrong = [
        (request[1:3], decoded(request[3]), answer, here)
        for request, answer, here in zip(queries, answers, expected, strict=True)
        if answer != here
    ]
    assert not wrong, (len(wrong), sorted(wrong, key=lambda each: len(each[1]))[:4])


def finite(values):
    """JSON has no infinite numbers."""
    return values.filter(lambda value: "inf" not in repr(value))


@pytest.mark.parametrize(("broker", "kind"), BOTH)
def test_sound_and_corrupt_values_are_read_as_kafka_does(require_broker, broker, kind):
    require_broker(broker)
    requests = []
    for message in tried_messages(broker, kind):
        for version in message.versions:
            sound = message_strategies.values(message.ours, version).map(
                lambda fields, message=message, version=version: message_model.write(
                    message.ours, version, message.without_unknown(fields)
                )
            )
            data = some(sound, COUNT) + some(message_strategies.damaged(sound), DAMAGED)
            requests += [
                (message, version, each) for each in data if is_clear(message, version, each)
            ]
    queries = [
        ("parse", message.class_name, version, coded(data)) for message, version, data in requests
    ]
    answers = compare_readings(broker, requests, queries)
    if requests:
        assert len(answers) / 20 < answers.count("refused") < len(answers)


def is_clear(message, version, data):
    """Whether this broker's classes know every tag in the data that we know."""
    try:
        value, _ = message_model.read(message.ours, version, data)
    except message_model.Broken:
        return True
    value = message_model.known(value)
    return repr(value) == repr(message.without_unknown(value))


def compare_readings(broker, requests, queries):
    """Both sides must agree about each message, version and bytes."""
    answers = kafka_classes.ask(broker, queries, program="KafkaPayloads")
    wrong = []
    for (message, version, data), answer in zip(requests, answers, strict=True):
        codec, fields = codec_of(message, version), message.ours.fields
        try:
            here, _ = codec.parse(data)
        except KafkaStoreError:
            here = None
        if (here is None) != (answer == "refused"):
            wrong.append((message.ours.name, version, data, answer, here))
        elif here is not None:
            text, _, again = answer.partition(" ")
            shown = comparable(fields, here)
            if named(json.loads(decoded(text)), shown) != shown:
                wrong.append((message.ours.name, version, data, decoded(text), here))
            written = codec.pack(here)
            if is_text(here) and data.startswith(written) and again != coded(written):
                wrong.append((message.ours.name, version, data, again, written))
    assert not wrong, (len(wrong), sorted(wrong, key=lambda each: len(each[2]))[:4])
    return answers


@pytest.mark.parametrize(("kind", "number"), SCHEMAS_OF_2_4)
def test_values_are_read_and_written_as_2_4_does(require_broker, kind, number):
    require_broker("2.4.0")
    holder, field, newest = SCHEMAS_OF_2_4[kind, number]
    ours = TABLES[kind].descriptions[number]
    message = Message(ours, ours, holder)
    requests = [
        (message, version, message_model.write(ours, version, fields))
        for version in range(newest + 1)
        for fields in some(message_strategies.values(ours, version), 80)
    ]
    queries = [
        ("struct", holder, field.format(version), coded(data)) for _, version, data in requests
    ]
    answers = compare_readings("2.4.0", requests, queries)
    assert "refused" not in answers


@pytest.mark.parametrize("broker", BROKERS)
def test_headers_are_written_as_kafka_does(require_broker, broker):
    require_broker(broker)
    queries, expected = [], []
    for version in range(12):
        for correlation_id, client_id in ((7, "me"), (-1, None), (2**31 - 1, "")):
            header = RequestHeader(ApiKey.LIST_OFFSETS, version, correlation_id, client_id)
            fields = {
                "requestApiKey": 2,
                "requestApiVersion": version,
                "correlationId": correlation_id,
                "clientId": client_id,
            }
            text = coded(json.dumps(fields).encode())
            is_flexible = version >= list_offsets.FIRST_FLEXIBLE_VERSION
            queries.append(("pack", CLIENT_CLASSES + "RequestHeaderData", 1 + is_flexible, text))
            expected.append(coded(pack_request_header(header)))
            queries.append(("pack", CLIENT_CLASSES + "ResponseHeaderData", int(is_flexible), text))
            expected.append(coded(pack_response_header(header)))
    assert kafka_classes.ask(broker, queries, program="KafkaPayloads") == expected


def test_record_types_have_kafkas_numbers(require_broker):
    """Until 3.9 the number of a record was the version of its key."""
    require_broker("3.9.1")
    ours = {each.name: each.number for each in consumer_offsets.RECORDS.descriptions.values()}
    for name, key in definitions("3.9.1").items():
        if name.removesuffix("Key") in ours:
            assert key.versions.newest == ours[name.removesuffix("Key")]
    assert transaction_state.RECORDS.descriptions.keys() == {0}
