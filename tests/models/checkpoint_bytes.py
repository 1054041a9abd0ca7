"""Hypothesis strategies for small text files: sound, nearly sound, any bytes."""

from hypothesis import strategies as st


@st.composite
def damaged(draw, sound):
    """Bytes of a sound file: complete, cut, changed, with insertions, or repeated."""
    data = bytearray(draw(sound))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(data)))
        damage = draw(st.sampled_from(["cut", "flip", "insert", "remove", "repeat"]))
        if damage == "cut":
            del data[at:]
        elif damage == "flip" and at < len(data):
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif damage == "insert":
            data[at:at] = draw(
                st.sampled_from(
                    [
                        b" ",
                        b"\t",
                        b"\n",
                        b"\r",
                        b"\r\n",
                        b"0",
                        b"-",
                        b"+",
                        b"x",
                        b"\xff",
                        b"\xc3\xa9",
                        b":",
                        b"=",
                        b"\\",
                    ]
                )
            )
        elif damage == "remove":
            del data[at : at + draw(st.integers(1, 5))]
        elif damage == "repeat":
            data[at:at] = data[at : at + draw(st.integers(1, 20))]
    return bytes(data)


def checkpoint(lines):
    """A checkpoint file of lines from a strategy."""
    return st.lists(lines, max_size=5).map(
        lambda entries: "\n".join(["0", str(len(entries)), *entries, ""]).encode()
    )


OFFSET_LINES = st.tuples(
    st.text("ab.-_1", min_size=1, max_size=8),
    st.integers(-1, 300),
    st.one_of(st.integers(-1, 10**6), st.just(2**63 - 1)),
).map(lambda fields: "{} {} {}".format(*fields))

EPOCH_LINES = st.tuples(st.integers(0, 300), st.integers(0, 10**6)).map(
    lambda fields: "{} {}".format(*fields)
)

OFFSET_CHECKPOINTS = st.one_of(damaged(checkpoint(OFFSET_LINES)), st.binary(max_size=40))
EPOCH_CHECKPOINTS = st.one_of(damaged(checkpoint(EPOCH_LINES)), st.binary(max_size=40))
PARTITION_METADATA = st.one_of(
    damaged(st.just(b"version: 0\ntopic_id: 2P-XnPKnTZG5NwujU8kn6Q")), st.binary(max_size=40)
)
META_PROPERTIES = st.one_of(
    damaged(
        st.just(b"#\n#Fri Nov 20 09:20:02 UTC 2026\nbroker.id=0\nversion=0\ncluster.id=a\\u002Db\n")
    ),
    st.binary(max_size=40),
)
CLEAN_SHUTDOWN_FILES = st.one_of(
    damaged(st.just(b'{"version":0,"brokerEpoch":11}')), st.binary(max_size=40)
)
