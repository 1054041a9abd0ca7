"""Random records that the cases produce."""
from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from .answers_file import to_base64


class Produced(NamedTuple):
    """A record to produce."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] | None = None

    def as_row(self) -> list[Any]:
        """Write it as the driver reads it."""
        row: list[Any] = [self.timestamp, to_base64(self.key), to_base64(self.value)]
        if self.headers:
            row.append([[name, to_base64(value)] for name, value in self.headers])
        return row


def make_record(
    rng: random.Random, timestamp: int, *, size: int | None = None, compressible: bool = False
) -> Produced:
    """Make up a record whose value has 20 to 120 bytes, or `size`."""
    length = rng.randint(20, 120) if size is None else size
    if compressible:
        value = (b"lorem ipsum %d " % rng.randint(0, 9)) * (length // 10)
    else:
        value = bytes(rng.randrange(256) for _ in range(length))
    return Produced(timestamp, b"k%d" % rng.randint(0, 50), value)


def make_batches(
    rng: random.Random,
    timestamps: Sequence[int],
    sizes: Sequence[int],
    *,
    size: int | None = None,
    compressible: bool = False,
) -> list[list[Produced]]:
    """Make up records with these timestamps, in batches of numbers chosen from `sizes`."""
    batches, done = [], 0
    while done < len(timestamps):
        part = timestamps[done : done + rng.choice(sizes)]
        batches.append(
            [make_record(rng, stamp, size=size, compressible=compressible) for stamp in part]
        )
        done += len(part)
    return batches
