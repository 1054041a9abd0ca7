"""The data sets: files that Kafka's own classes write, once, the same bytes each time."""
from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

MIB = 1 << 20
#: Codec, content, bytes of a value, of a batch before compression, of the segment.
SEGMENTS = {
    "a": ("none", "noise", 100, 16 * 1024, 1024 * MIB),
    "b": ("none", "noise", 1024, 16 * 1024, 1024 * MIB),
    "c-lz4": ("lz4", "json", 1024, 64 * 1024, 64 * MIB),
    "c-zstd": ("zstd", "json", 1024, 64 * 1024, 64 * MIB),
    "c-snappy": ("snappy", "json", 1024, 64 * 1024, 64 * MIB),
    "c-gzip": ("gzip", "json", 1024, 64 * 1024, 64 * MIB),
    "d": ("none", "noise", 100, 1, 256 * MIB),  # a batch holds at least one record
    **{f"b-{mib}": ("none", "noise", 1024, 16 * 1024, mib * MIB) for mib in (32, 64)},
}
INDEXES = "index"
METADATA = "metadata"
#: Topics, partitions of each, records of the log.
METADATA_LOG = (1000, 100, 1_000_000)
#: Partitions, segments of each, bytes of a segment, of a value, of a batch.
LOGS = {
    "e": (1, 20, 16 * MIB, 1024, 16 * 1024),
    "wide": (900, 20, 12 * 1024, 100, 4096),
    "wider": (2000, 20, 12 * 1024, 100, 4096),
}
WIDE, WIDER = "wide", "wider"
ENTRIES = 262_144
TARGETS = 1 << 20
#: Number of random times: one after the other, and in one call.
TIMES = {"find-time": 1 << 16, "find-times": 1 << 18}
FIRST_PARTITION = "benchmark-0"
FIRST_FILE = f"{0:020}.log"

MakeData = Callable[[list[str]], None]


def log_path(folder: Path, name: str, make_data: MakeData) -> Path:
    """Return the log of a data set; create it if it is missing.

    Parameters
    ----------
    folder : path
        Holds the data sets.
    name : str
        Of `SEGMENTS` or `LOGS`; or `INDEXES`: index files alone, without a log; or `METADATA`.
    make_data : callable
        Runs ``MakeData.java`` with these arguments.
    """
    directory = folder / name / FIRST_PARTITION
    if not directory.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix="making-") as temporary:
            made = Path(temporary, name, FIRST_PARTITION)
            if name == INDEXES:
                make_data(["indexes", str(made), str(ENTRIES)])
                _make_targets(made)
            elif name == METADATA:
                make_data(["metadata", str(made), *map(str, METADATA_LOG)])
            elif name in LOGS:
                partitions, *segments = LOGS[name]
                make_data(["segments", str(made), *map(str, segments)])
                for number in range(1, partitions):
                    shutil.copytree(made, made.with_name(f"benchmark-{number}"))
            else:
                make_data(["segment", str(made), *map(str, SEGMENTS[name])])
            made.parent.rename(directory.parent)
    return directory / FIRST_FILE


def read_from_disk(directory: Path) -> None:
    """Bring the files of a data set into the page cache from the disk.

    The kernel keeps what it reads from a disk in large pieces, and what was written in small ones
    in single pages, out of which it copies at a quarter of the speed. Most directories that
    kafkastore opens were written on another machine, or long ago.
    """
    for path in directory.rglob("*"):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                if hasattr(os, "posix_fadvise"):
                    os.fsync(file.fileno())  # only pages that are on the disk can be dropped
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                while file.read(MIB):
                    pass


def targets_path(log: Path, measure: str) -> Path:
    """Return the file of lookup targets; create it for times in a log."""
    path = log.with_name(f"{measure}.int64")
    if measure in TIMES and not path.exists():
        _make_times(log.parent, path, TIMES[measure])
    return path


def _make_times(directory: Path, path: Path, count: int) -> None:
    """Choose at random between the first and the last time of a log's indexes."""
    first, *_, last = sorted(directory.glob("*.timeindex")) * 2
    bounds = [np.fromfile(index, ">i8,>i4")["f0"] for index in (first, last)]
    chosen = np.random.default_rng(5).integers(bounds[0][0], bounds[1][-1], count, endpoint=True)
    temporary = path.with_suffix(".part")
    chosen.astype("<i8").tofile(temporary)
    temporary.rename(path)


def _make_targets(directory: Path) -> None:
    """Choose at random between the first and the last entry of each index."""
    random = np.random.default_rng(5)
    log = directory / FIRST_FILE
    offsets = np.fromfile(log.with_suffix(".index"), ">i4,>i4")["f0"]
    timestamps = np.fromfile(log.with_suffix(".timeindex"), ">i8,>i4")["f0"]
    for measure, keys in (("lookup-offset", offsets), ("lookup-time", timestamps)):
        chosen = random.integers(keys[0], keys[-1], TARGETS, endpoint=True)
        chosen.astype("<i8").tofile(targets_path(log, measure))
