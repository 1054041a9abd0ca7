"""Each bit of each field of each batch's header, in segments that hold batches."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from models.bit_flips import HEADS, batches, offsets_of

#: A broker's relative offsets have 31 bits.
MOST_OFFSETS = 2**31


class Flip(NamedTuple):
    """One bit of one field.

    Attributes
    ----------
    path : Path
        The ``.log``.
    position, bit : int
        The byte, and the bit in it.
    magic, field : int, str
        As in `HEADS`.
    segment : str
        "first", "middle" or "last" of those that hold batches.
    batch_position : int
        Where the batch begins.
    """

    path: Path
    position: int
    bit: int
    magic: int
    field: str
    segment: str
    batch_position: int

    @property
    def kind(self):
        """The kinds that a sample has one each of."""
        return self.magic, self.field, self.segment

    def __str__(self):
        return (
            f"`{self.path.name}` byte {self.position} bit {self.bit} (v{self.magic} {self.field},"
            f" {self.segment} segment)"
        )


def flips_of(root):
    """Each bit, by file and position."""
    logs = [path for path in sorted(root.rglob("*.log")) if any(batches(path.read_bytes()))]
    for number, path in enumerate(logs):
        is_last = number == len(logs) - 1
        segment = "last" if is_last else "middle" if number else "first"
        data = path.read_bytes()
        for begin, magic, _ in batches(data):
            position = begin
            for field, size in HEADS[magic]:
                for at in range(position, position + size):
                    for bit in range(8):
                        yield Flip(path, at, bit, magic, field, segment, begin)
                position += size


def offsets_rise(root):
    """Whether offsets rise from batch to batch, each within its segment."""
    logs = sorted(root.rglob("*.log"))
    bases = [int(path.stem) for path in logs]
    before = -1
    for path, base, following in zip(logs, bases, [*bases[1:], 2**63], strict=True):
        for _, first, last in offsets_of(path.read_bytes()):
            if not max(before + 1, base) <= first <= last < min(following, base + MOST_OFFSETS):
                return False
            before = last
    return True
