"""Produce the new bytes of a file, for each kind of content that a plan has."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from kafkastore.changes.plan import (
    ByteRange,
    Content,
    Converted,
    Copied,
    Inline,
    InvalidPlanError,
    Prefix,
    Rebuilt,
)
from kafkastore.formats.records.compression import Codec
from kafkastore.formats.state.file_names import parse_segment_file, segment_file_name
from kafkastore.log.parallel.parallel_map import IDLE_SECONDS, ParallelMap
from kafkastore.reads import fetch_bytes
from kafkastore.segment.conversion import (
    Conversion,
    RunToConvert,
    converted,
    converted_run,
    runs_to_convert,
)
from kafkastore.segment.log_file import LogFile, ReusedMemory
from kafkastore.segment.recovery import rebuild_indexes
from kafkastore.versions import NEWEST

_CHUNK_BYTES = 1 << 20
#: Runs of batches per thread that wait to be converted, or to be taken.
_QUEUED_PER_THREAD = 2


def chunks_of(
    content: Content, path: Path, threads: int = 1
) -> Iterator[bytes | memoryview]:
    """Yield the new bytes of a file in chunks.

    They are read from the file at `path`, one next to it or one elsewhere, converted by `threads`,
    or an index is rebuilt from its ``.log``.
    """
    match content:
        case Inline(data):
            yield data
        case Rebuilt():
            yield _rebuilt(path, content)
        case Prefix(length):
            yield from _bytes_of(path, 0, length)
        case ByteRange(source, start, end):
            yield from _bytes_of(path.with_name(source), start, end - start)
        case Converted():
            with LogFile(path) as log:
                yield from converted_in_threads(log, conversion_of(content), threads)
        case Copied(source, None):
            yield from _bytes_of(Path(source), 0, os.stat(source).st_size)
        case Copied(source, Converted() as conversion):
            yield from chunks_of(conversion, Path(source), threads)


def converted_in_threads(
    log: LogFile, conversion: Conversion, threads: int
) -> Iterator[bytes]:
    """Yield what `converted` does, and raise the same errors after the same bytes.

    The caller scans the log, and is one of the `threads` that convert the runs that it finds. With
    several, the batches of a run are joined: each further step would need the interpreter's lock.
    """
    if threads == 1:
        yield from converted(log, conversion)
        return
    # One for each run that waits for its turn, and one for the run that is read.
    memory = deque(ReusedMemory() for _ in range(_QUEUED_PER_THREAD * threads + 1))

    def room(size: int) -> memoryview:
        return memory[0].room(size)

    def runs() -> Iterator[RunToConvert | Exception]:
        for scanned in runs_to_convert(log, conversion, room):
            yield scanned
            memory.rotate()

    found = ParallelMap(
        partial(_converted_whole, log, conversion),
        runs(),
        threads,
        "kafkastore-convert",
        queued=_QUEUED_PER_THREAD,
        owner_helps=True,
        idle_seconds=IDLE_SECONDS,
    )
    for batches, error in found.helped():
        if batches:
            yield batches
        if error is not None:
            found.close()
            raise error


def _converted_whole(
    log: LogFile, conversion: Conversion, scanned: RunToConvert | Exception
) -> tuple[bytes, Exception | None]:
    """Convert a run; return its batches, and the error after them."""
    batches: list[bytes] = []
    try:
        for batch in converted_run(log, conversion, scanned):
            batches.append(batch)
    except Exception as error:
        return b"".join(batches), error
    return b"".join(batches), None


def conversion_of(content: Converted) -> Conversion:
    """Return how messages are converted; refuse an unknown codec."""
    try:
        codec = None if content.codec is None else Codec[content.codec.upper()]
    except KeyError:
        raise InvalidPlanError(f"unknown codec {content.codec!r}") from None
    return Conversion(codec, content.untimed_ms, content.leader_epoch, content.is_only_epoch)


def _rebuilt(path: Path, content: Rebuilt) -> bytes:
    """Rebuild one index from the ``.log`` next to it."""
    name = parse_segment_file(path.name)
    if name is None or name.type_suffix not in (".index", ".timeindex") or name.temporary:
        raise InvalidPlanError(f"{path} is not an index and can't be rebuilt", path)
    log_path = path.with_name(segment_file_name(name.base_offset, ".log"))
    rebuilt = rebuild_indexes(
        log_path,
        name.base_offset,
        index_interval_bytes=content.index_interval_bytes,
        rules=replace(NEWEST, offset_index_has_last_offset=not content.has_first_offsets),
    )
    return rebuilt.offset_index if name.type_suffix == ".index" else rebuilt.time_index


def _bytes_of(path: Path, start: int, length: int) -> Iterator[bytes]:
    """Yield bytes of a file; fewer if it is shorter, which the digest then detects."""
    with open(path, "rb", buffering=0) as file:
        file.seek(start)
        fetch_bytes(file.fileno(), start, start + length)
        while length > 0 and (chunk := file.read(min(length, _CHUNK_BYTES))):
            length -= len(chunk)
            yield chunk
