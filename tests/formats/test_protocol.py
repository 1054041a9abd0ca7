"""The primitives of Kafka's protocol, one by one."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import message_model
from models.internal_topics import pack_uuid
from models.record_strategies import bounded

from kafkastore.errors import CorruptionError, KafkaStoreError, UnsupportedFormatError
from kafkastore.formats.primitives import protocol
from kafkastore.formats.primitives.protocol import FieldValueError, ProtocolReader, ProtocolWriter

TAKES = {
    "int8": lambda reader: reader.int8("f"),
    "int16": lambda reader: reader.int16("f"),
    "int32": lambda reader: reader.int32("f"),
    "int64": lambda reader: reader.int64("f"),
    "varint": lambda reader: reader.unsigned_varint("f"),
    "string": lambda reader: reader.string("f"),
    "nullable string": lambda reader: reader.nullable_string("f"),
    "binary": lambda reader: reader.binary("f"),
    "uuid": lambda reader: reader.uuid("f"),
    "array": lambda reader: reader.array("f", lambda: reader.int16("e")),
    "nullable array": lambda reader: reader.nullable_array("f", lambda: reader.int16("e")),
    "tagged": lambda reader: reader.tagged_fields("f", {1: reader.int16}),
}

# Type, whether compact, the bytes, the value.
COMPLETE = [
    ("int8", False, "ff", -1),
    ("int16", False, "8000", -(2**15)),
    ("int32", False, "7fffffff", 2**31 - 1),
    ("int64", False, "ffffffffffffff00", -256),
    ("varint", True, "00", 0),
    ("varint", True, "7f", 127),
    ("varint", True, "8001", 128),
    ("varint", True, "ac02", 300),
    ("varint", True, "ffffffff07", 2**31 - 1),
    ("varint", True, "ffffffff0f", -1),
    ("varint", True, "8080808000", 0),
    ("string", False, "0000", ""),
    ("string", False, "0003 61c3a9", "a\xe9"),
    ("string", True, "04 61c3a9", "a\xe9"),
    ("string", False, "0002 61ff", "a\udcff"),
    ("nullable string", False, "ffff", None),
    ("nullable string", False, "8000", None),
    ("nullable string", True, "00", None),
    ("nullable string", True, "01", ""),
    ("binary", False, "00000002 00ff", b"\0\xff"),
    ("binary", True, "03 00ff", b"\0\xff"),
    ("uuid", False, "00" * 16, None),
    ("uuid", True, "d8ff9e5cf29c4d91b9370ba353c927e9", "2P-eXPKcTZG5NwujU8kn6Q"),
    ("array", False, "00000002 0001 0002", (1, 2)),
    ("array", True, "03 0001 0002", (1, 2)),
    ("nullable array", False, "ffffffff", None),
    ("nullable array", True, "00", None),
    ("tagged", False, "", {}),
    ("tagged", True, "00", {}),
    ("tagged", True, "01 01 02 0005", {1: 5}),
    ("tagged", True, "02 01 02 0005 07 03 aabbcc", {1: 5}),
    # Kafka ignores the size of a tag that it knows, and counts in 32 bits.
    ("tagged", True, "01 01 8001 0005", {1: 5}),
    ("tagged", True, "80 80 80 80 08", {}),
]


@pytest.mark.parametrize(("kind", "flexible", "data", "value"), COMPLETE)
def test_a_field_is_taken_and_the_next_one_follows(kind, flexible, data, value):
    data = bytes.fromhex(data)
    reader = ProtocolReader(data + b"next", is_flexible=flexible)
    assert TAKES[kind](reader) == value
    assert reader.position == len(data)


@pytest.mark.parametrize(("kind", "flexible", "data", "value"), COMPLETE)
def test_a_field_cut_anywhere_is_refused_with_its_place(kind, flexible, data, value):
    data = bytes.fromhex(data)
    for size in range(len(data)):
        reader = ProtocolReader(b"before" + data[:size], is_flexible=flexible)
        reader.position = 6
        with pytest.raises(CorruptionError) as refused:
            TAKES[kind](reader)
        assert 6 <= refused.value.position <= 6 + size


@pytest.mark.parametrize(
    ("kind", "flexible", "data", "position"),
    [
        ("string", False, "ffff", 0),
        ("string", True, "00", 0),
        ("binary", False, "ffffffff", 0),
        ("array", False, "80000000", 0),
        ("array", True, "00", 0),
        ("string", True, "818002" + 40000 * "61", 0),
        ("varint", True, "ffffffffff01", 0),
        ("array", False, "00000003 0001", 0),
        ("array", False, "7fffffff 0001", 0),
        ("array", False, "00000002 0001 00", 6),
        ("binary", False, "7fffffff 0001", 0),
        ("tagged", True, "01 07 05 0001", 3),
        ("tagged", True, "01 07 ffffffff0f", 7),
        ("tagged", True, "ffffffff07", 5),
    ],
)
def test_a_field_that_breaks_its_form_is_refused(kind, flexible, data, position):
    with pytest.raises(CorruptionError) as refused:
        TAKES[kind](ProtocolReader(bytes.fromhex(data), is_flexible=flexible))
    assert refused.value.position == position


@bounded(300)
@given(st.sampled_from(sorted(TAKES)), st.booleans(), st.binary(max_size=40))
def test_any_bytes_are_a_field_or_refused(kind, flexible, data):
    reader = ProtocolReader(data, is_flexible=flexible)
    try:
        TAKES[kind](reader)
    except KafkaStoreError:
        return
    assert 0 <= reader.position <= len(data)


def test_a_false_count_allocates_no_memory():
    data = b"\x7f\xff\xff\xff" + bytes(100)
    tracemalloc.start()
    for kind in ("array", "binary", "nullable array"):
        with pytest.raises(CorruptionError):
            TAKES[kind](ProtocolReader(data))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


@bounded(200)
@given(st.integers(0, 2**31 - 1))
def test_a_varint_is_written_and_taken_again(number):
    writer = ProtocolWriter()
    writer.unsigned_varint("f", number)
    assert writer.packed() == message_model.varint(number)
    assert ProtocolReader(writer.packed()).unsigned_varint("f") == number


PUTS = {
    "int8": lambda writer, value: writer.int8("f", value),
    "int16": lambda writer, value: writer.int16("f", value),
    "int32": lambda writer, value: writer.int32("f", value),
    "int64": lambda writer, value: writer.int64("f", value),
    "varint": lambda writer, value: writer.unsigned_varint("f", value),
    "string": lambda writer, value: writer.string("f", value),
    "nullable string": lambda writer, value: writer.nullable_string("f", value),
    "binary": lambda writer, value: writer.binary("f", value),
    "array": lambda writer, value: writer.array("f", value, lambda e: writer.int16("e", e)),
    "nullable array": lambda writer, value: writer.nullable_array(
        "f", value, lambda e: writer.int16("e", e)
    ),
    "tagged": lambda writer, value: writer.tagged_fields(
        "f", {tag: protocol.pack_int("f", number, 2) for tag, number in value.items()}
    ),
}
# Bytes that no writer produces: other negative lengths, long or negative varints, unknown tags.
ONLY_READ = (
    ("nullable string", "8000"),
    ("varint", "8080808000"),
    ("varint", "ffffffff0f"),
    ("tagged", "01 01 8001 0005"),
    ("tagged", "80 80 80 80 08"),
)


@pytest.mark.parametrize(
    ("kind", "flexible", "data", "value"),
    [
        case
        for case in COMPLETE
        if case[0] in PUTS and (case[0], case[2]) not in ONLY_READ and case[2][-2:] != "cc"
    ],
)
def test_a_value_is_written_as_it_is_read(kind, flexible, data, value):
    writer = ProtocolWriter(is_flexible=flexible)
    PUTS[kind](writer, value)
    assert writer.packed() == bytes.fromhex(data)


def test_tags_are_written_in_their_order():
    writer = ProtocolWriter(is_flexible=True)
    writer.tagged_fields("f", {300: b"b", 2: b"", 0: b"xy"})
    assert writer.packed().hex(" ") == "03 00 02 78 79 02 00 ac 02 01 62"


@pytest.mark.parametrize(
    ("kind", "flexible", "value"),
    [
        ("int8", False, 128),
        ("int16", False, -(2**15) - 1),
        ("int32", True, 2**31),
        ("int64", True, 2**63),
        ("varint", True, -1),
        ("varint", True, 2**31),
        ("string", False, "\xe9" * 16384),
        ("string", True, "x" * 32768),
        ("tagged", False, {1: 5}),
        ("array", False, [2**15]),
    ],
)
def test_a_value_that_does_not_fit_is_refused(kind, flexible, value):
    with pytest.raises(FieldValueError) as refused:
        PUTS[kind](ProtocolWriter(is_flexible=flexible), value)
    assert refused.value.field == ("e" if kind == "array" else "f")
    assert isinstance(refused.value, ValueError)


@pytest.mark.parametrize("text", ["", "x", "A" * 21, "A" * 23, "A" * 21 + "+", "\xe9" * 22])
def test_a_text_that_is_not_an_id_is_refused(text):
    with pytest.raises(FieldValueError) as refused:
        pack_uuid("topic id", text)
    assert refused.value.field == "topic id"


def test_an_id_is_packed_and_taken_again():
    for shown in (None, "2P-eXPKcTZG5NwujU8kn6Q", "____________________-w"):
        assert ProtocolReader(pack_uuid("f", shown)).uuid("f") == shown


@pytest.mark.parametrize("version", [-1, 5, 32767])
def test_a_version_that_is_not_known_is_named(version):
    with pytest.raises(UnsupportedFormatError):
        protocol.check_version("value", version, 4)
