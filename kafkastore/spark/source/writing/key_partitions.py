"""The partition of each key of a column, as Kafka's producers compute it.

Source: Kafka 2.4.0 ``DefaultPartitioner``, ``Utils.murmur2``.
"""
from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafkastore.formats.primitives import murmur2 as of_bytes

SEED = of_bytes.SEED
MULTIPLIER = np.uint32(of_bytes.MULTIPLIER)
#: The bytes of a word, and the number of bits to shift each by.
_SHIFTS = tuple(enumerate(np.arange(0, 32, 8, dtype=np.uint32)))


def partitions_of_keys(keys: pa.Array, partitions: int | NDArray[Any]) -> NDArray[np.int64]:
    """Return each non-null key's partition in a topic of `partitions` partitions.

    These are a number for all keys, or one for each.

    >>> partitions_of_keys(pa.array([b"21", b"foobar"]), 12).tolist()
    [0, 6]
    """
    return (murmur2(keys) & np.uint32(0x7FFFFFFF)).astype(np.int64) % partitions


def murmur2(keys: pa.Array) -> NDArray[np.uint32]:
    """Return the hash of each key (none null), word by word for all keys."""
    _, offsets, content = keys.buffers()
    ends = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    data = np.frombuffer(content or b"", np.uint8)
    starts, lengths = ends[:-1].astype(np.int64), np.diff(ends)
    hashes = np.uint32(SEED) ^ lengths.astype(np.uint32)
    words = lengths >> 2
    longer = np.flatnonzero(words)
    word = 0
    while len(longer):
        at = starts[longer] + 4 * word
        value = _word(data, at) * MULTIPLIER
        value = (value ^ value >> np.uint32(24)) * MULTIPLIER
        hashes[longer] = hashes[longer] * MULTIPLIER ^ value
        word += 1
        longer = longer[words[longer] > word]
    rest = lengths & 3
    for number, shift in _SHIFTS[:3]:
        more = np.flatnonzero(rest > number)
        at = starts[more] + (lengths[more] & ~3) + number
        hashes[more] ^= data[at].astype(np.uint32) << shift
    hashes[rest > 0] *= MULTIPLIER
    hashes = (hashes ^ hashes >> np.uint32(13)) * MULTIPLIER
    mixed: NDArray[np.uint32] = hashes ^ hashes >> np.uint32(15)
    return mixed


def _word(data: NDArray[np.uint8], at: NDArray[Any]) -> NDArray[np.uint32]:
    """Read the little-endian words that begin at given bytes."""
    value: NDArray[np.uint32] = np.zeros(len(at), np.uint32)
    for number, shift in _SHIFTS:
        value |= data[at + number].astype(np.uint32) << shift
    return value
