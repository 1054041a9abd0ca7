"""Random values of messages, for hypothesis, and damaged bytes of them."""

from hypothesis import strategies as st

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


def values(message, version):
    """Dictionaries that `message_model` writes in this version; other fields at their default."""
    return _structures(message.fields, version)


def _structures(fields, version):
    chosen = {}
    for field in fields:
        if not field.is_in(version):
            chosen[field.name] = st.just(field.default)
        elif field.nullable:
            chosen[field.name] = st.none() | _values(field.type, version)
        elif field.tag is not None:
            chosen[field.name] = st.just(field.default) | _values(field.type, version)
        else:
            chosen[field.name] = _values(field.type, version)
    return st.fixed_dictionaries(chosen)


def _values(kind, version):
    if kind in NUMBERS:
        return NUMBERS[kind]
    if kind in ("string", "bytes", "uuid"):
        return {"string": STRINGS, "bytes": BINARY, "uuid": UUIDS}[kind]
    if isinstance(kind, str):
        return st.lists(NUMBERS[kind.removeprefix("[]")], max_size=4).map(tuple)
    return st.lists(_structures(kind, version), max_size=3).map(tuple)


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
