"""Compare records of two logs by 64-bit fingerprints of key, value and time.

Fingerprints are computed over whole buffers, because a log may have very many records. Among ten
million different records, the probability of two equal fingerprints is 1 in 400,000.
"""
from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kafkastore.formats.records.record_columns import RecordColumns
from kafkastore.log.range_scan import ScannedRun
from kafkastore.use_cases.record_times import timestamps_of

#: Which fields of equal records match: time, key and value, or only key and value.
Match = Literal["timestamp", "content"]

Hashes = NDArray[np.uint64]

_RANDOM = np.random.default_rng(33)
#: A random number for each byte value, multiplied by powers of an odd number and summed.
_OF_BYTE = _RANDOM.integers(1, 1 << 64, 256, np.uint64, endpoint=False)
_BASE = int(_RANDOM.integers(1 << 60, 1 << 63)) | 1
_INVERSE = pow(_BASE, -1, 1 << 64)
_OF_NULL = np.uint64(0x9E3779B97F4A7C15)
#: Keys and values from this size (bytes) on are hashed singly: arrays take 8 times their size.
_LARGE = 1 << 18


class Fingerprints:
    """Compute fingerprints of the records in a range of offsets."""

    def __init__(self, start_offset: int, end_offset: int, match: Match) -> None:
        self._match = match
        self._columns = RecordColumns(
            ("key", "value", "timestamp"),
            start_offset=start_offset,
            end_offset=end_offset,
        )
        self._powers = np.empty(0, np.uint64)
        self._inverses = np.empty(0, np.uint64)

    def of(self, scanned: ScannedRun) -> Iterator[tuple[NDArray[np.int64], Hashes]]:
        """Yield timestamps and fingerprints of batches, as arrays.

        Timestamps are those of `timestamps_of`; the headers in `scanned` decide their type. Raises
        CorruptionError for corrupt records unless they are skipped.
        """
        for rows, taken in scanned.decoded(self._columns):
            found = _mixed(self._of_binary(taken["key"], rows))
            found = _mixed(found + self._of_binary(taken["value"], rows))
            timestamps = timestamps_of(taken["timestamp"], rows)
            if self._match == "timestamp":
                found = _mixed(found + timestamps.view(np.uint64))
            yield timestamps, found

    def _of_binary(self, column: tuple[int, Any, Any, Any], rows: int) -> Hashes:
        """Hash each key or value of a column."""
        nulls, validity, places, content = column
        offsets = np.frombuffer(places, np.int32, rows + 1).astype(np.int64)
        data = np.frombuffer(content, np.uint8) if offsets[-1] else np.empty(0, np.uint8)
        sizes = np.diff(offsets)
        found = np.zeros(rows, np.uint64)
        for first, end in _small_ranges(offsets):
            found[first:end] = self._of_bytes(data, offsets[first : end + 1])
        for row in np.flatnonzero(sizes >= _LARGE).tolist():
            large = memoryview(content)[offsets[row] : offsets[row + 1]]
            digest = hashlib.blake2b(large, digest_size=8).digest()
            found[row] = int.from_bytes(digest, "big")
        found = _mixed(found + sizes.astype(np.uint64))
        if nulls:
            bits = np.frombuffer(validity, np.uint8, (rows + 7) // 8)
            found[np.unpackbits(bits, count=rows, bitorder="little") == 0] = _OF_NULL
        return found

    def _of_bytes(self, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> Hashes:
        """Sum each row's bytes times powers that count from the row's start."""
        start, end = int(offsets[0]), int(offsets[-1])
        self._reserve(end - start + 1)
        sums = np.zeros(end - start + 1, np.uint64)
        np.cumsum(_OF_BYTE[data[start:end]] * self._powers[: end - start], out=sums[1:])
        places = offsets - start
        return (sums[places[1:]] - sums[places[:-1]]) * self._inverses[places[:-1]]

    def _reserve(self, count: int) -> None:
        """Compute at least `count` powers."""
        if count <= len(self._powers):
            return
        self._powers = _powers(_BASE, count)
        self._inverses = _powers(_INVERSE, count)


def _small_ranges(offsets: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Split rows into ranges of a few times `_LARGE` bytes, without the large rows."""
    first, size = 0, 0
    sizes = np.diff(offsets)
    if int(offsets[-1] - offsets[0]) < 4 * _LARGE and not (sizes >= _LARGE).any():
        yield 0, len(sizes)
        return
    for row, each in enumerate(sizes.tolist()):
        if each >= _LARGE or size + each >= 4 * _LARGE:
            if row > first:
                yield first, row
            first, size = (row + 1, 0) if each >= _LARGE else (row, each)
        else:
            size += each
    if first < len(sizes):
        yield first, len(sizes)


def _powers(base: int, count: int) -> Hashes:
    """Return the first `count` powers of a number, beginning with 1, modulo 2**64."""
    powers = np.full(count, base, np.uint64)
    powers[0] = 1
    return np.cumprod(powers, dtype=np.uint64)


def _mixed(numbers: Hashes) -> Hashes:
    """Make every bit depend on all others (the finalizer of SplitMix64)."""
    mixed = numbers + _OF_NULL
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
