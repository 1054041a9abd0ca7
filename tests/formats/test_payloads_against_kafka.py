"""Records of internal topics, and ListOffsets, against the classes of real brokers, both ways."""

import base64
import json
import re
import zipfile
from itertools import product

import pytest
from golden.make import brokers
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from models import internal_topics, kafka_classes, message_model, message_strategies
from models.message_model import (
    GROUP_METADATA_VALUE,
    LIST_OFFSETS_REQUEST,
    LIST_OFFSETS_RESPONSE,
    OFFSET_COMMIT_VALUE,
    TRANSACTION_LOG_VALUE,
    plain,
    snake_case,
)

from kafkastore.errors import KafkaStoreError
from kafkastore.formats.requests import list_offsets
from kafkastore.formats.requests.list_offsets_header import (
    RequestHeader,
    pack_request_header,
    pack_response_header,
)
from kafkastore.formats.topics import group_metadata, transaction_state

pytestmark = pytest.mark.kafka

GROUP_CLASSES = "org.apache.kafka.coordinator.group.generated."
TRANSACTION_CLASSES = "org.apache.kafka.coordinator.transaction.generated."
CLIENT_CLASSES = "org.apache.kafka.common.message."
OLD_GROUPS = "kafka.coordinator.group.GroupMetadataManager$"
OLD_TRANSACTIONS = "kafka.coordinator.transaction.TransactionLog$ValueSchema$"
#: Fields of 2.4.0 that have another name now.
NAMES_NOW = {
    "timestamp": "commit_timestamp",
    "transaction_timeout": "transaction_timeout_ms",
    "transaction_entry_timestamp": "transaction_last_update_timestamp_ms",
    "transaction_start_timestamp": "transaction_start_timestamp_ms",
}


def with_version(parse):
    """A parser of a record's value, given its version apart."""
    return lambda data, version: parse(version.to_bytes(2, "big") + data)


#: Message, parser, definition, generated class, and of 2.4.0 the class and the field of a schema.
KINDS = {
    "offset commit": (
        OFFSET_COMMIT_VALUE,
        with_version(group_metadata.parse_offset_commit_value),
        "OffsetCommitValue",
        GROUP_CLASSES + "OffsetCommitValue",
        (OLD_GROUPS, "OFFSET_COMMIT_VALUE_SCHEMA_V{}", 3),
    ),
    "group metadata": (
        GROUP_METADATA_VALUE,
        with_version(group_metadata.parse_group_metadata_value),
        "GroupMetadataValue",
        GROUP_CLASSES + "GroupMetadataValue",
        (OLD_GROUPS, "GROUP_METADATA_VALUE_SCHEMA_V{}", 3),
    ),
    "transaction": (
        TRANSACTION_LOG_VALUE,
        with_version(transaction_state.parse_value),
        "TransactionLogValue",
        TRANSACTION_CLASSES + "TransactionLogValue",
        (OLD_TRANSACTIONS, "V{}", 0),
    ),
    "request": (
        LIST_OFFSETS_REQUEST,
        list_offsets.parse_request,
        "ListOffsetsRequest",
        CLIENT_CLASSES + "ListOffsetsRequestData",
        (CLIENT_CLASSES + "ListOffsetRequestData", "SCHEMAS[{}]", 5),
    ),
    "response": (
        LIST_OFFSETS_RESPONSE,
        list_offsets.parse_response,
        "ListOffsetsResponse",
        CLIENT_CLASSES + "ListOffsetsResponseData",
        (CLIENT_CLASSES + "ListOffsetResponseData", "SCHEMAS[{}]", 5),
    ),
}
PACKS = {
    "offset commit": internal_topics.pack_offset_commit_value,
    "group metadata": internal_topics.pack_group_metadata_value,
    "transaction": internal_topics.pack_transaction_value,
    "request": list_offsets.pack_request,
    "response": list_offsets.pack_response,
}
#: The versions that a broker's classes know, where they are not all.
KNOWN = {
    ("3.9.1", "request"): range(10),
    ("3.9.1", "response"): range(10),
    ("4.1.1", "request"): range(1, 11),
    ("4.1.1", "response"): range(1, 11),
}
#: Tagged fields that came later than their message's version.
UNKNOWN_TO = {
    "3.9.1": {
        "topic_id",
        "previous_producer_id",
        "next_producer_id",
        "next_producer_epoch",
        "client_transaction_version",
    }
}


def versions(broker, kind):
    return KNOWN.get((broker, kind), range(KINDS[kind][0].newest + 1))


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


def body(kind, data):
    """A message without the version that leads a record's value."""
    return data if kind in ("request", "response") else data[2:]


def as_json(value):
    """A value with Kafka's names, as its JSON converters have it."""
    if isinstance(value, dict):
        return {
            camel_case(name): as_json(field)
            for name, field in value.items()
            if (name, field) != ("topic_id", None)  # null is no uuid
        }
    if isinstance(value, tuple):
        return [as_json(element) for element in value]
    return coded(value) if isinstance(value, bytes) else value


def camel_case(name):
    first, *more = name.split("_")
    return first + "".join(word.capitalize() for word in more)


SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")


def comparable(value):
    """A value as a JSON text gives it: no bytes, no tuples, replaced what is not UTF-8."""
    if isinstance(value, dict):
        return {name: comparable(field) for name, field in value.items()}
    if isinstance(value, tuple | list):
        return [comparable(element) for element in value]
    if isinstance(value, str):
        # Java replaces the three bytes of a surrogate by one character, Python by three.
        data = SURROGATE.sub("\ufffd".encode(), value.encode("utf-8", "surrogateescape"))
        return data.decode("utf-8", "replace")
    return coded(value) if isinstance(value, bytes) else value


def is_text(value):
    """Whether all strings are UTF-8, so that Java writes them as they were."""
    if isinstance(value, dict | tuple):
        return all(map(is_text, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, str) or value.isascii() or comparable(value) == value


def normalized_answer(text, ours):
    """Kafka's result with our names; fields that its version lacks are taken from ours."""
    found = json.loads(decoded(text))
    return _named(found, comparable(ours))


def _named(theirs, ours):
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        return [_named(*pair) for pair in zip(theirs, ours, strict=True)]
    if not isinstance(theirs, dict) or not isinstance(ours, dict):
        return theirs
    names = {name: snake_case(name) for name in theirs}
    names = {name: own if own in ours else NAMES_NOW[own] for name, own in names.items()}
    found = {own: _named(theirs[name], ours[own]) for name, own in names.items()}
    return ours | found


def compare_readings(broker, kind, requests):
    """Parse (version, bytes) by a generated class or a schema: both sides must agree."""
    _, parse, _, generated, schema = KINDS[kind]
    if broker == "2.4.0":
        holder, field, _ = schema
        queries = [
            ("struct", holder, field.format(number), coded(data)) for number, data in requests
        ]
    else:
        queries = [("parse", generated, number, coded(data)) for number, data in requests]
    answers = kafka_classes.ask(broker, queries, program="KafkaPayloads")
    wrong = []
    for (number, data), answer in zip(requests, answers, strict=True):
        try:
            here = plain(parse(data, number))
        except KafkaStoreError:
            here = None
        if (here is None) != (answer == "refused"):
            wrong.append((number, data, answer, here))
        elif here is not None:
            text, _, again = answer.partition(" ")
            if normalized_answer(text, here) != comparable(here):
                wrong.append((number, data, decoded(text), here))
            written = body(kind, PACKS[kind](parse(data, number), number))
            if is_text(here) and data.startswith(written) and again != coded(written):
                wrong.append((number, data, again, written))
    assert not wrong, (len(wrong), sorted(wrong, key=lambda each: len(each[1]))[:4])
    return answers


BOTH = list(product(["3.9.1", "4.1.1"], KINDS))


@pytest.mark.parametrize(("broker", "kind"), BOTH)
def test_values_are_written_as_kafka_does(require_broker, broker, kind):
    require_broker(broker)
    message, parse, _, generated, _ = KINDS[kind]
    queries, expected = [], []
    for version in versions(broker, kind):
        for chosen in some(message_strategies.values(message, version), 60):
            fields = without(chosen, UNKNOWN_TO.get(broker, ()), message)
            data = message_model.write(message, version, fields)
            text = json.dumps(as_json(fields)).encode()
            queries.append(("pack", generated, version, coded(text)))
            expected.append(coded(data))
            assert body(kind, PACKS[kind](parse(data, version), version)) == data
    answers = kafka_classes.ask(broker, queries, program="KafkaPayloads")
    wrong = [
        (request[2], decoded(request[3]), answer, here)
        for request, answer, here in zip(queries, answers, expected, strict=True)
        if answer != here
    ]
    assert not wrong, (len(wrong), sorted(wrong, key=lambda each: len(each[1]))[:4])
    assert len(set(answers)) > len(answers) / 4


def without(fields, names, message):
    """Fields with some at their default."""
    return fields | {field.name: field.default for field in message.fields if field.name in names}


@pytest.mark.parametrize(("broker", "kind"), BOTH)
def test_sound_and_corrupt_values_are_read_as_kafka_does(require_broker, broker, kind):
    require_broker(broker)
    message = KINDS[kind][0]
    requests = []
    for version in versions(broker, kind):
        sound = message_strategies.values(message, version).map(
            lambda fields, version=version: message_model.write(
                message, version, without(fields, UNKNOWN_TO.get(broker, ()), message)
            )
        )
        data = some(sound, 30) + some(message_strategies.damaged(sound), 90)
        requests += [(version, each) for each in data if is_clear(broker, message, version, each)]
    answers = compare_readings(broker, kind, requests)
    assert len(answers) / 20 < answers.count("refused") < len(answers)


def is_clear(broker, message, version, data):
    """Whether these classes know every tag in the data that we know."""
    try:
        value, _ = message_model.read(message, version, data)
    except message_model.Broken:
        return True
    return value == without(value, UNKNOWN_TO.get(broker, ()), message)


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_read_and_written_as_2_4_does(require_broker, kind):
    require_broker("2.4.0")
    message, _, _, _, (_, _, newest) = KINDS[kind]
    requests = [
        (version, message_model.write(message, version, fields))
        for version in range(newest + 1)
        for fields in some(message_strategies.values(message, version), 80)
    ]
    answers = compare_readings("2.4.0", kind, requests)
    assert "refused" not in answers


@pytest.mark.parametrize("broker", ["3.9.1", "4.1.1"])
def test_keys_are_written_and_read_as_kafka_does(require_broker, broker):
    require_broker(broker)
    versions_of = {"3.9.1": (1, 2), "4.1.1": (0, 0)}[broker]
    queries, expected = [], []
    for group, topic, partition in some(
        st.tuples(
            message_strategies.STRINGS, message_strategies.STRINGS, st.integers(0, 2**31 - 1)
        ),
        60,
    ):
        for name, key, version in (
            ("OffsetCommitKey", group_metadata.OffsetCommitKey(group, topic, partition),
             versions_of[0]),
            ("GroupMetadataKey", group_metadata.GroupMetadataKey(group), versions_of[1]),
        ):
            text = json.dumps(as_json(key._asdict())).encode()
            queries.append(("pack", GROUP_CLASSES + name, version, coded(text)))
            expected.append(coded(internal_topics.pack_group_key(key)[2:]))
        text = json.dumps({"transactionalId": group}).encode()
        queries.append(("pack", TRANSACTION_CLASSES + "TransactionLogKey", 0, coded(text)))
        expected.append(coded(internal_topics.pack_transaction_key(group)[2:]))
    assert kafka_classes.ask(broker, queries, program="KafkaPayloads") == expected


@pytest.mark.parametrize("broker", ["3.9.1", "4.1.1"])
def test_headers_are_written_as_kafka_does(require_broker, broker):
    require_broker(broker)
    queries, expected = [], []
    for version in range(12):
        for correlation_id, client_id in ((7, "me"), (-1, None), (2**31 - 1, "")):
            header = RequestHeader(version, correlation_id, client_id)
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
            expected.append(coded(pack_response_header(correlation_id, version)))
    assert kafka_classes.ask(broker, queries, program="KafkaPayloads") == expected


# The definitions in the jars


def definitions(broker, jars="kafka-*.jar"):
    """Kafka's message definitions by name, comments left out."""
    found = {}
    for jar in (brokers.WORK / "jars" / broker).glob(jars):
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if re.fullmatch(r"common/message/\w+\.json", name):
                    text = re.sub(r"(?m)^\s*//.*$", "", archive.read(name).decode())
                    found[name[15:-5]] = json.loads(text)
    return found


def span(versions):
    """First and last of a span of versions."""
    first, dash, last = versions.partition("-")
    return int(first.rstrip("+")), 99 if first.endswith("+") else int(last if dash else first)


def described(fields, structures):
    """Our table of Kafka's fields."""
    table = []
    for field in fields:
        kind = field["type"]
        if kind.startswith("[]") and kind[2:3].isupper():
            kind = described(field.get("fields") or structures[kind[2:]]["fields"], structures)
        first, last = span(field.get("versions", field.get("taggedVersions")))
        default = field.get("default")
        table.append(
            (snake_case(field["name"]), kind, first, last, "nullableVersions" in field,
             field.get("tag"), None if default in (None, "null") else int(default))
        )
    return tuple(table)


def tabled(fields):
    """The model's table in the same form, without defaults that Kafka need not state."""
    return tuple(
        (field.name, tabled(field.type) if isinstance(field.type, tuple) else field.type,
         field.first, field.last, field.nullable, field.tag, field.default)
        for field in fields
    )


def without_implied_defaults(table):
    """Zero, none and empty are defaults without a word."""
    return tuple(
        (name, without_implied_defaults(kind) if isinstance(kind, tuple) else kind, *more,
         default or None)
        for name, kind, *more, default in table
    )


@pytest.mark.parametrize(("broker", "kind"), BOTH)
def test_the_models_tables_are_kafkas_definitions(require_broker, broker, kind):
    require_broker(broker)
    message, _, name, _, _ = KINDS[kind]
    definition = definitions(broker)[name]
    structures = {each["name"]: each for each in definition.get("commonStructs", ())}
    theirs = without_implied_defaults(described(definition["fields"], structures))
    ours = without_implied_defaults(tabled(message.fields))
    later = UNKNOWN_TO.get(broker, set())
    if broker == "4.1.1" and kind == "request":  # version 0 has left
        ours = leave_out(ours, {"max_num_offsets"})
    if broker == "4.1.1" and kind == "response":
        ours = leave_out(ours, {"old_style_offsets"})
    if broker == "3.9.1" and kind == "request":  # version 10 came
        later = {"timeout_ms"}
    assert leave_out(ours, later) == theirs
    first, newest = span(definition["validVersions"])
    assert range(first, newest + 1) == versions(broker, kind)
    assert span(definition["flexibleVersions"])[0] == message.flexible


def leave_out(table, names):
    return tuple(
        (name, leave_out(kind, names) if isinstance(kind, tuple) else kind, *more)
        for name, kind, *more in table
        if name not in names
    )


def test_record_types_have_kafkas_numbers_and_names(require_broker):
    require_broker("3.9.1")
    require_broker("4.1.1")
    known = {
        definition["apiKey"]: name.removesuffix("Key")
        for name, definition in definitions("4.1.1", "kafka-group-coordinator-*.jar").items()
        if definition["type"] == "coordinator-key"
    }
    keys = {
        name.removesuffix("Key"): definition
        for name, definition in definitions("3.9.1", "kafka-group-coordinator-*.jar").items()
        if name.endswith("Key")
    }
    assert keys.keys() - set(known.values()) == {"ShareGroupPartitionMetadata"}
    for name, definition in keys.items():
        first, last = span(definition["validVersions"])
        assert known.setdefault(last, name) == name
        assert first == (0 if name == "OffsetCommit" else last)
    assert known == group_metadata.RECORD_TYPE_NAMES
