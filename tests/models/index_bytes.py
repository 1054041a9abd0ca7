"""Hypothesis strategies for the bytes of index files: sound, padded, damaged, any and others."""

import struct

import numpy as np
from hypothesis import strategies as st

INT32_MAX = 2**31 - 1

# Around nothing, one, the warm sections (682 and 1024 entries), and beyond.
COUNTS = st.one_of(
    st.integers(0, 40),
    st.sampled_from([681, 682, 683, 684, 685, 1023, 1024, 1025, 1026, 1027]),
    st.integers(0, 2500),
)


def sorted_entries(layout, count, seed):
    """Bytes of entries in the order that brokers write."""
    random = np.random.default_rng(seed)
    room = INT32_MAX // (count + 1)
    offsets = np.cumsum(random.integers(1, 1 + min(room, random.integers(1, 100_000)), count))
    if layout == ">ii":
        positions = np.cumsum(random.integers(1, min(room, 9000), count))
        entries = zip(offsets.tolist(), positions.tolist(), strict=True)
    else:
        timestamps = np.cumsum(random.integers(1, 5000, count)) - 1
        timestamps += random.integers(2) * 1_600_000_000_000
        offsets -= offsets[:1].sum()  # the first one may be the base offset
        entries = zip(timestamps.tolist(), offsets.tolist(), strict=True)
    return b"".join(struct.pack(layout, *entry) for entry in entries)


@st.composite
def index_bytes(draw, layout):
    """The bytes of an index file with this struct layout of an entry."""
    size = struct.calcsize(layout)
    kind = draw(st.sampled_from(["sorted", "padded", "unsorted", "repeating", "damaged", "any"]))
    if kind == "any":
        return draw(st.binary(max_size=20 * size))
    seed = draw(st.integers(0, 2**32 - 1))
    count = draw(COUNTS)
    random = np.random.default_rng(seed)
    if kind == "unsorted":
        few = int(random.integers(1, 50))
        return b"".join(
            struct.pack(layout, *map(int, random.integers(-few, few, 2))) for _ in range(count)
        )
    if kind == "repeating":
        slots = np.sort(random.integers(0, count + 1, (2, count))).T.tolist()
        return b"".join(struct.pack(layout, *slot) for slot in slots)
    data = bytearray(sorted_entries(layout, count, seed))
    if kind == "padded":
        return bytes(data) + bytes(draw(st.integers(0, 3000)) * size)
    if kind == "damaged" and data:
        for _ in range(int(random.integers(1, 4))):
            at = int(random.integers(len(data)))
            if random.integers(2):
                data[at] ^= 1 << int(random.integers(8))
            else:
                end = min(len(data), at + int(random.integers(1, 4097)))
                data[at:end] = bytes(end - at)
        return bytes(data[: len(data) - int(random.integers(0, size))])
    return bytes(data)


def targets_near(keys, seed):
    """Targets at, next to and far from the keys."""
    random = np.random.default_rng(seed)
    chosen = random.choice(keys, min(len(keys), 40)) if len(keys) else np.array([], np.int64)
    edges = [-(2**63), -1, 0, 1, 2**31, 2**63 - 1]
    return np.concatenate(
        [
            np.clip(chosen, -(2**63) + 1, 2**63 - 2) + random.integers(-1, 2, len(chosen)),
            random.integers(-(2**62), 2**62, 5),
            np.array(edges, np.int64),
        ]
    ).astype(np.int64)
