"""Kafka's hash of bytes, by which keys are assigned to partitions.

Source: Kafka 2.4.0 ``Utils.murmur2``.
"""

from __future__ import annotations

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the hash of bytes, 0 to 2^32 - 1.

    >>> murmur2(b"21") - 2**32
    -973932308
    """
    value = SEED ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * MULTIPLIER & _MASK
        word = (word ^ word >> 24) * MULTIPLIER & _MASK
        value = value * MULTIPLIER & _MASK ^ word
    if rest := data[whole:]:
        value = (value ^ int.from_bytes(rest, "little")) * MULTIPLIER & _MASK
    value = (value ^ value >> 13) * MULTIPLIER & _MASK
    return value ^ value >> 15
