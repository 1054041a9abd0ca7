"""Random values of messages, for hypothesis, and damaged bytes of them."""

from hypothesis import strategies as st

from kafkastore.formats.messages.description import FieldType

NUMBERS = {
    f"int{bits}": st.one_of(
        st.sampled_from([-(2 ** (bits - 1)), -1, 0, 1, 2 ** (bits - 1) - 1]),
        st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1),
    )
    for bits in (8, 16, 32, 64)
}
STRINGS = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=6),
    st.just("x" * 126),
    st.just("y" * 127),
    st.just("z" * 300),
)
BINARY = st.one_of(st.binary(max_size=9), st.just(bytes(200)))
UUIDS = st.one_of(
    st.none(),
    st.sampled_from(["2P-XnPKnTZG5NwujU8kn6Q", "____________________-w", 21 * "A" + "Q"]),
)
VALUES = {
    FieldType.BOOL: st.booleans(),
    FieldType.INT8: NUMBERS["int8"],
    FieldType.INT16: NUMBERS["int16"],
    FieldType.UINT16: st.integers(0, 2**16 - 1),
    FieldType.INT32: NUMBERS["int32"],
    FieldType.UINT32: st.integers(0, 2**32 - 1),
    FieldType.INT64: NUMBERS["int64"],
    FieldType.FLOAT64: st.floats(allow_nan=False),
    FieldType.STRING: STRINGS,
    FieldType.BYTES: BINARY,
    FieldType.UUID: UUIDS,
}


def values(message, version):
    """Dictionaries that `message_model` writes in this version; other fields at their default."""
    return _structures(message.fields, version)


def _structures(fields, version):
    return st.fixed_dictionaries({
        field.name: _values(field, version)
        if version in field.versions
        else st.just(field.default)
        for field in fields
    })


def _values(field, version):
    one = _structures(field.fields, version) if field.fields else VALUES[field.type]
    chosen = st.lists(one, max_size=3).map(tuple) if field.is_array else one
    if version in field.nullable:
        return st.none() | chosen
    return st.just(field.default) | chosen if field.tag is not None else chosen


@st.composite
def damaged(draw, sound):
    """Bytes of a sound message: cut, flipped, with something put in or taken out."""
    data = bytearray(draw(sound))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        damage = draw(st.sampled_from(["cut", "flip", "set", "insert", "remove"]))
        if damage == "cut":
            del data[at:]
        elif damage == "insert":
            data[at:at] = draw(st.binary(min_size=1, max_size=4))
        elif damage == "remove":
            del data[at : at + draw(st.integers(1, 4))]
        elif at < len(data):
            flipped = data[at] ^ 1 << draw(st.integers(0, 7))
            data[at] = flipped if damage == "flip" else draw(st.sampled_from([0, 1, 127, 128, 255]))
    return bytes(data)
