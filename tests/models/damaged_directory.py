"""A log directory of five partitions in all formats, intact or with two damaged."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from models.log_directory import Log, Segment
from models.record_format import GZIP, Batch, Row

#: Message format and codec of each partition.
PARTITIONS = {"a-0": (2, 0), "b-0": (1, 0), "c-0": (1, GZIP), "d-0": (2, GZIP), "e-0": (0, 0)}
#: These have LogAppendTime, and keep create times as well.
APPENDED = ("a-0", "d-0")
SOUND, DAMAGED = ("a-0", "c-0", "e-0"), ("b-0", "d-0")
FIRST_TIMESTAMP, STEP_MS = 1_600_000_000_000, 1000
SEGMENTS, BATCHES, ROWS = 3, 4, 2


class Damage(NamedTuple):
    """The damage of a partition: the file, the bytes that are no batch, the lost offsets."""

    path: Path
    position: int
    end_position: int
    start_offset: int
    end_offset: int


def write_directory(root, *, is_clean=True, time_indexes=True):
    """Write the directory, intact."""
    for name in PARTITIONS:
        segments = tuple(
            _segment(name, number, time_indexes=time_indexes) for number in range(SEGMENTS)
        )
        Log(segments, is_clean).write(root / "building")
        (root / "building" / "t-0").rename(root / name)
        for path in (root / "building").iterdir():
            path.replace(root / path.name)
        (root / "building").rmdir()
    return root


def timestamp_of(offset):
    return FIRST_TIMESTAMP + STEP_MS * offset


def _segment(name, number, *, time_indexes):
    magic, codec = PARTITIONS[name]
    first = number * BATCHES * ROWS
    rows = [
        Row(offset, timestamp_of(offset), b"key-%d" % offset, b"value of %d" % offset)
        for offset in range(first, first + BATCHES * ROWS)
    ]
    size = 1 if magic < 2 and codec == 0 else ROWS
    batches = tuple(
        Batch(
            tuple(rows[at : at + size]),
            magic,
            codec,
            append_time=rows[at + size - 1].timestamp + 5 if name in APPENDED else None,
        )
        for at in range(0, len(rows), size)
    )
    modified = rows[-1].timestamp + 1
    segment = Segment(first, batches, modified).recovered(interval=0)
    return segment if time_indexes else replace(segment, time_index=None)


def batches_of(path):
    """[(position, end)] of a log's batches, by their frames."""
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        found.append((at, end))
        at = end
    return found


def damage_batch(root, partition, kind, *, segment=1, batch=1):
    """Damage a batch, and keep the times of its file.

    `kind`: a bit of its "length" is flipped, a bit of its last byte ("payload"), or bytes of its
    middle are missing ("torn").

    Returns
    -------
    Damage
    """
    path = sorted((root / partition).glob("*.log"))[segment]
    status = path.stat()
    places = batches_of(path)
    position, end = places[batch]
    data = bytearray(path.read_bytes())
    if kind == "length":
        data[position + 8] |= 16
    elif kind == "payload":
        data[end - 1] ^= 1
    elif kind == "torn":
        del data[position + 20 : end - 3]
        end = position + 23
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    first = int(path.stem)
    rows = ROWS if len(places) == BATCHES else 1
    return Damage(path, position, end, first + batch * rows, first + (batch + 1) * rows)


def copy_directory(root, destination):
    return Path(shutil.copytree(root, destination))
