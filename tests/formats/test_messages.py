"""Messages by their descriptions: each type, and every message in each of its versions."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import message_model, message_strategies
from models.message_tables import TABLES
from models.record_strategies import bounded

from kafkastore.errors import CorruptionError, FieldValueError, KafkaStoreError
from kafkastore.formats.messages.description import FieldType, Versions, parse_descriptions
from kafkastore.formats.messages.message_codec import Elsewhere, Frames, StructCodec

MESSAGES = [
    pytest.param(
        message, version, table.codec(number, version), id=f"{name} {message.name} {version}"
    )
    for name, table in TABLES.items()
    for number, message in table.descriptions.items()
    for version in range(message.versions.oldest, message.versions.newest + 1)
]


# Descriptions


def test_a_description_is_read_by_its_lines() -> None:
    (message,) = parse_descriptions("""
Sample 7, key (group string, partition int32), versions 1-3, flexible 2+
    a int32 = -1
    b string?2+ 1-2 = null
    c struct[] 3+ tag 5
        d uuid[]?
        e bool ignorable = true
    f string? plain
""").values()
    assert message[:4] == ("Sample", 7, Versions(1, 3), Versions(2, 32767))
    assert [field.name for field in message.key] == ["group", "partition"]
    a, b, c, f = message.fields
    assert (a.type, a.default, a.versions, a.tag) == (FieldType.INT32, -1, (0, 32767), None)
    assert (b.nullable, b.versions, b.default) == ((2, 32767), (1, 2), None)
    assert (c.type, c.is_array, c.tag, c.default) == (FieldType.STRUCT, True, 5, ())
    d, e = c.fields
    assert (d.is_array, d.nullable, d.default) == (True, (0, 32767), ())
    assert (e.is_ignorable, e.default) == (True, True)
    assert (f.is_plain, b.is_plain) == (True, False)


# Types


def codec_of(kind: str, *, flexible: bool) -> StructCodec:
    """Return the codec of a structure with one field, f."""
    text = "One 0, version 0, flexible 0+\n    f " + kind.replace("|", "\n        ")
    return StructCodec(parse_descriptions(text)[0].fields, 0, flexible)


# Type, whether compact, the bytes, the value.
COMPLETE = [
    ("bool", False, "00", False),
    ("bool", False, "01", True),
    ("int8", False, "ff", -1),
    ("int16", False, "8000", -(2**15)),
    ("uint16", False, "8000", 2**15),
    ("int32", False, "7fffffff", 2**31 - 1),
    ("uint32", False, "ffffffff", 2**32 - 1),
    ("int64", False, "ffffffffffffff00", -256),
    ("float64", False, "3ff8000000000000", 1.5),
    ("string", False, "0000", ""),
    ("string", False, "0003 61c3a9", "a\xe9"),
    ("string", True, "04 61c3a9", "a\xe9"),
    ("string", False, "0002 61ff", "a\udcff"),
    ("string plain", True, "0001 61", "a"),
    ("string?", False, "ffff", None),
    ("string?", True, "00", None),
    ("string?", True, "01", ""),
    ("bytes", False, "00000002 00ff", b"\0\xff"),
    ("bytes", True, "03 00ff", b"\0\xff"),
    ("bytes?", False, "ffffffff", None),
    ("uuid", False, "00" * 16, None),
    ("uuid", True, "d8ff9e5cf29c4d91b9370ba353c927e9", "2P-eXPKcTZG5NwujU8kn6Q"),
    ("int16[]", False, "00000002 0001 0002", (1, 2)),
    ("int16[]", True, "03 0001 0002", (1, 2)),
    ("int16[]?", False, "ffffffff", None),
    ("int16[]?", True, "00", None),
    ("struct|g int8", False, "07", {"g": 7}),
    ("struct?|g int8", False, "ff", None),
    ("struct?|g int8", False, "01 07", {"g": 7}),
    ("struct[]|g int8", False, "00000002 07 08", ({"g": 7}, {"g": 8})),
]
#: Bytes that no writer produces: other negative lengths, other numbers for true, long varints.
ONLY_READ = [
    ("bool", False, "80", True),
    ("string?", False, "8000", None),
    ("struct?|g int8", False, "00 07", {"g": 7}),
    ("string", True, "8280808000 61", "a"),
]


@pytest.mark.parametrize(("kind", "flexible", "data", "value"), COMPLETE + ONLY_READ)
def test_a_field_is_read_and_the_position_after_it_returned(kind, flexible, data, value) -> None:
    data = bytes.fromhex(data) + b"\0" * flexible * (1 + ("struct" in kind))
    codec = codec_of(kind, flexible=flexible)
    assert codec.parse(data + b"next") == ({"f": value}, len(data))
    assert codec.parse(b"before" + data, 6) == ({"f": value}, 6 + len(data))


@pytest.mark.parametrize(("kind", "flexible", "data", "value"), COMPLETE)
def test_a_field_is_written_as_it_is_read(kind, flexible, data, value) -> None:
    packed = codec_of(kind, flexible=flexible).pack({"f": value})
    assert packed == bytes.fromhex(data) + b"\0" * flexible * (1 + ("struct" in kind))


@pytest.mark.parametrize(("kind", "flexible", "data", "value"), COMPLETE + ONLY_READ)
def test_a_field_cut_anywhere_is_refused_with_its_place(kind, flexible, data, value) -> None:
    data = bytes.fromhex(data)
    for size in range(len(data)):
        with pytest.raises(CorruptionError) as refused:
            codec_of(kind, flexible=flexible).parse(b"before" + data[:size], 6)
        assert 6 <= refused.value.position <= 6 + size


@pytest.mark.parametrize(
    ("kind", "flexible", "data", "position"),
    [
        ("string", False, "ffff", 0),
        ("string", True, "00", 0),
        ("bytes", False, "ffffffff", 0),
        ("int16[]", False, "80000000", 0),
        ("int16[]", True, "00", 0),
        ("string", True, "818002" + 40000 * "61", 0),
        ("string", True, "ffffffffff01", 0),
        ("int16[]", False, "00000003 0001", 0),
        ("int16[]", False, "7fffffff 0001", 0),
        ("int16[]", False, "00000002 0001 00", 6),
        ("bytes", False, "7fffffff 0001", 0),
        ("int8", True, "05 01 07 05 0001", 4),
        ("int8", True, "05 01 07 ffffffff0f", 8),
        ("int8", True, "05 ffffffff07", 6),
    ],
)
def test_a_field_that_breaks_its_form_is_refused(kind, flexible, data, position) -> None:
    with pytest.raises(CorruptionError) as refused:
        codec_of(kind, flexible=flexible).parse(bytes.fromhex(data))
    assert refused.value.position == position


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("00", {"f": 9}),
        ("01 01 02 0005", {"f": 5}),
        ("02 01 02 0005 07 03 aabbcc",
         {"f": 5, "unknown_tagged_fields": {7: bytes.fromhex("aabbcc")}}),
        # Kafka ignores the size of a tag that it knows, and counts in 32 bits.
        ("01 01 8001 0005", {"f": 5}),
        ("80 80 80 80 08", {"f": 9}),
    ],
)
def test_tagged_fields_are_read_and_unknown_ones_kept(data, value) -> None:
    codec = codec_of("int16 tag 1 = 9", flexible=True)
    assert codec.parse(bytes.fromhex(data))[0] == value
    assert codec.parse(codec.pack(value))[0] == value


def test_a_tag_of_another_version_is_refused() -> None:
    text = "One 0, versions 0-1, flexible 0+\n    f int8 1+ tag 3"
    (message,) = parse_descriptions(text).values()
    data = bytes.fromhex("01 03 01 07")
    assert StructCodec(message.fields, 1, True).parse(data)[0] == {"f": 7}
    with pytest.raises(CorruptionError) as refused:
        StructCodec(message.fields, 0, True).parse(data)
    assert refused.value.position == 3


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("00", {"g": 0}),
        ("01 00 01 00", None),
        ("01 00 03 01 07 00", {"g": 7}),
    ],
)
def test_a_tagged_structure_may_be_null_and_has_defaults_if_it_is_missing(data, value) -> None:
    codec = codec_of("struct? tag 0|g int8", flexible=True)
    assert codec.parse(bytes.fromhex(data)) == ({"f": value}, len(bytes.fromhex(data)))
    assert codec.pack({"f": value}) == bytes.fromhex(data)


def test_tags_are_written_in_their_order() -> None:
    codec = codec_of("int8 tag 2", flexible=True)
    packed = codec.pack({"f": 7, "unknown_tagged_fields": {300: b"b", 0: b"xy"}})
    assert packed.hex(" ") == "03 00 02 78 79 02 01 07 ac 02 01 62"


@pytest.mark.parametrize(
    ("kind", "flexible", "value"),
    [
        ("int8", False, 128),
        ("int16", False, -(2**15) - 1),
        ("uint16", False, -1),
        ("int32", True, 2**31),
        ("int64", True, 2**63),
        ("string", False, "\xe9" * 16384),
        ("string", True, "x" * 32768),
        ("string", False, None),
        ("int16[]", False, [2**15]),
        ("int16[]", False, None),
        ("struct[]|g int8", False, [None]),
        *(("uuid", False, text)
          for text in ("", "x", "A" * 21, "A" * 23, "A" * 21 + "+", "\xe9" * 22)),
    ],
)
def test_a_value_that_does_not_fit_is_refused(kind, flexible, value) -> None:
    with pytest.raises(FieldValueError) as refused:
        codec_of(kind, flexible=flexible).pack({"f": value})
    assert refused.value.field == "f"


def test_a_value_of_a_field_that_the_version_lacks_is_refused_unless_it_is_ignorable() -> None:
    for mark, is_refused in (("", True), (" ignorable", False)):
        codec = codec_of(f"int8 1+{mark}", flexible=False)
        assert codec.pack({"f": 0}) == codec.pack({}) == b""
        if is_refused:
            with pytest.raises(FieldValueError):
                codec.pack({"f": 1})
        else:
            assert codec.pack({"f": 1}) == b""


def test_a_false_count_allocates_no_memory() -> None:
    tracemalloc.start()
    for kind in ("int16[]", "bytes", "int16[]?", "struct[]|g int8"):
        with pytest.raises(CorruptionError):
            codec_of(kind, flexible=False).parse(b"\x7f\xff\xff\xff" + bytes(100))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


# Messages


def outcome(read, data):
    """The result of a reader; None if it raises an error of the package."""
    try:
        return read(data)
    except (KafkaStoreError, message_model.Broken):
        return None


@pytest.mark.parametrize(("message", "version", "codec"), MESSAGES)
def test_every_message_is_written_and_read_as_the_model_does(message, version, codec) -> None:
    @bounded(20)
    @given(message_strategies.values(message, version))
    def check(fields):
        data = codec.pack(fields)
        assert data == message_model.write(message, version, fields)
        assert codec.parse(data + b"more") == (fields, len(data))

    check()


@pytest.mark.parametrize(("message", "version", "codec"), MESSAGES)
def test_a_corrupt_message_is_read_as_the_model_does_or_refused(message, version, codec) -> None:
    sound = message_strategies.values(message, version).map(
        lambda fields: message_model.write(message, version, fields)
    )

    @bounded(40)
    @given(message_strategies.damaged(sound) | st.binary(max_size=60))
    def check(data):
        expected = outcome(lambda data: message_model.read(message, version, data), data)
        assert repr(outcome(codec.parse, data)) == repr(expected)  # nan is not itself

    check()


@pytest.mark.parametrize(("message", "version", "codec"), MESSAGES)
def test_a_message_cut_anywhere_is_refused_with_its_place(message, version, codec) -> None:
    @bounded(5)
    @given(message_strategies.values(message, version))
    def check(fields):
        data = codec.pack(fields)
        for size in range(len(data)):
            with pytest.raises(CorruptionError) as refused:
                codec.parse(data[:size])
            assert refused.value.position <= size

    check()


NUMBERS = {"e807": 1000, "ffffffff07": 2**31 - 1, "8080808008": -(2**31), "ffffffff0f": -1}


@pytest.mark.parametrize("version", NUMBERS)
@pytest.mark.parametrize("kind", NUMBERS)
def test_a_frame_of_an_unknown_record_type_keeps_its_bytes(kind, version) -> None:
    frame = bytes.fromhex("01" + kind + version + "abcd")
    ((number, found, rest),) = Frames(lambda *_: None, frame, np.array([0, len(frame)], np.int32))
    assert (number, found, rest) == (NUMBERS[kind], NUMBERS[version], bytes.fromhex("abcd"))


def test_an_unknown_message_or_version_has_no_codec() -> None:
    for table in TABLES.values():
        numbers = set(table.descriptions)
        assert table.codec(max(numbers) + 1, 0) is None
        assert table.codec(-1, 0) is None
        for number in numbers:
            newest = table.descriptions[number].versions.newest
            assert table.codec(number, newest) is not None
            assert table.codec(number, newest + 1) is None
            assert table.codec(number, -1) is None


# Null


@pytest.mark.parametrize("kind", ["string", "bytes"])
@pytest.mark.parametrize("flexible", [False, True])
def test_no_element_of_an_array_is_null_though_the_array_may_be(kind, flexible) -> None:
    codec = codec_of(f"{kind}[]?", flexible=flexible)
    assert codec.parse(codec.pack({"f": None}))[0] == {"f": None}
    with pytest.raises(FieldValueError):
        codec.pack({"f": (None,)})
    null = "ffff" if kind == "string" else "ffffffff"
    with pytest.raises(CorruptionError):
        codec.parse(bytes.fromhex("0200" if flexible else "00000001" + null) + bytes(9))


# Values that are not in memory


class Somewhere(Elsewhere):
    """Bytes for a test."""

    def __init__(self, data):
        self.data, self.size = data, len(data)


AROUND = "struct|a int32|rows struct[]|    b bytes?|    c int8|d bytes"


@pytest.mark.parametrize("flexible", [False, True])
@given(st.lists(st.none() | st.binary(max_size=300), max_size=4), st.binary(max_size=200))
def test_bytes_from_elsewhere_have_their_place(flexible, rows, last) -> None:
    codec = codec_of(AROUND, flexible=flexible)

    def fields(wrap):
        return {"f": {
            "a": 7, "d": wrap(last),
            "rows": [{"b": each if each is None else wrap(each), "c": 1} for each in rows],
        }}

    whole = codec.pack(fields(bytes))
    around, places = codec.pack_around(fields(Somewhere))
    joined, done = b"", 0
    for place, each in places:
        joined += around[done:place] + each.data
        done = place
    assert joined + around[done:] == whole
    assert len(places) == 1 + sum(each is not None for each in rows)
    assert codec.pack_around(fields(bytes)) == (whole, [])


@pytest.mark.parametrize("kind", ["bytes tag 0", "bytes[] tag 0"])
def test_bytes_from_elsewhere_are_only_for_fields_without_a_tag(kind) -> None:
    value = Somewhere(b"a")
    with pytest.raises(TypeError):
        codec_of(kind, flexible=True).pack_around({"f": (value,) if "[]" in kind else value})
    with pytest.raises(TypeError):
        codec_of("bytes", flexible=True).pack({"f": value})
