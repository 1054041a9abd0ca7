"""Convert messages of formats 0 and 1 to record batches (magic 2).

No Kafka tool rewrites stored messages: a broker keeps old messages, and converts them each time
they are read.

- Offsets and records stay the same. Each wrapper becomes one batch. Messages that are not
  compressed are grouped into batches of up to 16 KiB, a producer's default ``batch.size``.
- Record batches stay byte for byte, except for their leader epoch if all get the same one.
- Timestamps, timestamp types, keys and values stay. A message of format 0 has no timestamp. It
  gets none, or the time that the caller gives as LogAppendTime.
- A new batch has the leader epoch of the record batches before it, or 0: every offset then has an
  epoch, and epochs never decrease.

Source: Kafka 2.4.0 ``LazyDownConversionRecords`` (what brokers do instead), ``RecordBatch``; KIP-98
"Message Format".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkastore.arguments import INT32_MAX
from kafkastore.errors import CorruptBatchError, CorruptionError
from kafkastore.formats.records.batch_header import (
    CODEC_BITS,
    LOG_APPEND_TIME_BIT,
    RECORD_BATCH_FIELDS,
)
from kafkastore.formats.records.compression import Codec
from kafkastore.formats.records.record_batch import RecordBatch
from kafkastore.formats.records.record_builder import (
    build_batch,
    build_batch_from_columns,
    build_batches_from_columns,
)
from kafkastore.formats.records.record_columns import RecordColumns
from kafkastore.segment.log_file import BatchRun, LogFile, ReusedMemory

BATCH_BYTES = 16 * 1024
#: Bytes that are read at once, on every machine: messages are grouped within a run.
_READ = 1024 * 1024
_LEADER_EPOCH_AT = RECORD_BATCH_FIELDS["partition_leader_epoch"]
_COLUMNS = ("key", "value", "offset", "timestamp")


class Conversion(NamedTuple):
    """How to convert messages of old formats."""

    codec: Codec | None = None
    untimed_ms: int | None = None
    leader_epoch: int = 0
    is_only_epoch: bool = False


def converted(log: LogFile, conversion: Conversion) -> Iterator[bytes]:
    """Yield a segment's log as record batches, without incomplete ones at its end.

    Equal logs give equal output with the same compression libraries. Raises `CorruptionError` at a
    corrupt batch, and ValueError if a batch would be larger than 2**31 - 1 bytes.
    """
    for scanned in runs_to_convert(log, conversion, ReusedMemory().room):
        yield from converted_run(log, conversion, scanned)


class RunToConvert(NamedTuple):
    """A run, and what follows from the batches before it."""

    run: BatchRun
    next_offset: int
    leader_epoch: int


def runs_to_convert(
    log: LogFile, conversion: Conversion, room: Callable[[int], memoryview]
) -> Iterator[RunToConvert | Exception]:
    """Yield the runs of a log, and last the error that ends the scan.

    `room` returns memory for the bytes of the next run.
    """
    epoch, next_offset = conversion.leader_epoch, 0
    runs = log.runs(
        verify_crc=True, decodes=True, room=room, first_read=_READ, largest_read=_READ
    )
    while True:
        try:
            run = next(runs, None)
        except Exception as error:
            yield error  # at its turn: the batches before it may be converted later
            return
        if run is None:
            return
        headers = run.headers.copy()  # the next run is scanned before this one is converted
        yield RunToConvert(
            run._replace(headers=headers), max(next_offset, run.smallest_offset), epoch
        )
        next_offset = run.next_offset
        if not conversion.is_only_epoch:
            epoch = int(headers["leader_epoch"][headers["magic"] == 2].max(initial=epoch))


def converted_run(
    log: LogFile, conversion: Conversion, scanned: RunToConvert | Exception
) -> Iterator[bytes]:
    """Yield the batches of a run as record batches, or raise the error of the scan."""
    if isinstance(scanned, Exception):
        raise scanned
    run, next_offset, epoch = scanned
    headers, columns = run.headers, _new_columns()
    for wrong in run.wrong_wrappers(next_offset):
        raise wrong.error.located(log.path)
    if bad := np.flatnonzero(headers["crc_valid"] == 0).tolist():
        position = int(headers["position"][bad[0]])
        raise CorruptBatchError("checksum is wrong", path=log.path, position=position)
    for first, end in _groups(headers):
        group = headers[first:end]
        at = int(group["position"][0]) - run.position
        if group["magic"][0] == 2:
            end_at = int(group["position"][-1] + group["size"][-1]) - run.position
            data = bytes(run.data[at:end_at])
            if conversion.is_only_epoch:
                yield _with_epoch(data, group["position"] - group["position"][0], epoch)
            else:
                epoch = max(epoch, int(group["leader_epoch"].max()))
                yield data
            continue
        try:
            yield from _converted_group(run, group, conversion, epoch, columns)
        except CorruptionError as error:
            raise error.located(log.path) from error


def convert_messages(
    run: BatchRun, headers: NDArray[Any], conversion: Conversion
) -> Iterator[bytes]:
    """Yield messages of formats 0 and 1 as record batches.

    `headers` are some of the run's. Raises `CorruptionError` with the position of the message.
    """
    columns = _new_columns()
    for first, end in _groups(headers):
        yield from _converted_group(
            run, headers[first:end], conversion, conversion.leader_epoch, columns
        )


def _new_columns() -> RecordColumns:
    """Return columns that hold one wrapper of any size, or about 1 MiB of messages."""
    return RecordColumns(_COLUMNS, max_rows=INT32_MAX, max_bytes=1 << 20)


def _with_epoch(data: bytes, positions: NDArray[Any], leader_epoch: int) -> bytes:
    """Return record batches with another leader epoch."""
    changed = np.frombuffer(data, np.uint8).copy()
    places = positions[:, np.newaxis] + np.arange(_LEADER_EPOCH_AT, _LEADER_EPOCH_AT + 4)
    changed[places] = np.frombuffer(leader_epoch.to_bytes(4, "big"), np.uint8)
    return changed.tobytes()


def _groups(headers: NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Yield groups: record batches, one wrapper, or messages that fit in one batch."""
    is_batch = headers["magic"] == 2
    codec = headers["attributes"] & CODEC_BITS
    is_appended = headers["attributes"] & LOG_APPEND_TIME_BIT != 0
    key = np.stack(
        [
            is_batch,
            np.where(is_batch, 0, headers["magic"]),
            np.where(is_batch, 0, is_appended),
            np.where(is_appended & ~is_batch, headers["max_timestamp"], 0),
            # Each wrapper is a group of its own.
            np.where((codec != 0) & ~is_batch, np.arange(1, len(headers) + 1), 0),
        ]
    )
    starts = np.flatnonzero(np.any(key[:, 1:] != key[:, :-1], axis=0)) + 1
    bounds = [0, *starts.tolist(), len(headers)]
    yield from pairwise(bounds)


def _converted_group(
    run: BatchRun,
    group: NDArray[Any],
    conversion: Conversion,
    leader_epoch: int,
    columns: RecordColumns,
) -> Iterator[bytes]:
    """Convert one wrapper, or messages that are not compressed, to record batches."""
    attributes, magic = int(group["attributes"][0]), int(group["magic"][0])
    stored = Codec(attributes & CODEC_BITS)
    log_append_time = None
    if magic == 0:
        log_append_time = conversion.untimed_ms
    elif attributes & LOG_APPEND_TIME_BIT:
        log_append_time = int(group["max_timestamp"][0])
    fields: dict[str, Any] = {
        "codec": stored if conversion.codec is None else conversion.codec,
        "log_append_time": log_append_time,
        "leader_epoch": leader_epoch,
    }
    done = 0
    while done < len(group):
        first = done
        done = columns.append(run.data, group, done, position=run.position)
        rows, taken = columns.take()
        nulls, _, micros = taken["timestamp"]
        if nulls:  # timestamps that do not fit the columns' microseconds
            yield from _one_by_one(run, group[first:done], fields)
            continue
        taken["timestamp"] = times = np.frombuffer(micros, np.int64, rows) // 1000
        if magic == 1 and log_append_time is not None and (times != log_append_time).any():
            # Messages of format 0 in a wrapper of format 1 have no timestamp.
            fields["log_append_time"] = None
        if stored:
            yield build_batch_from_columns(rows, taken, **fields)
        else:
            yield from build_batches_from_columns(rows, taken, BATCH_BYTES, **fields)


def _one_by_one(
    run: BatchRun, group: NDArray[Any], fields: dict[str, Any]
) -> Iterator[bytes]:
    """Convert each batch to one batch, record by record."""
    for header in group:
        at = int(header["position"]) - run.position
        batch = RecordBatch(run.data[at : at + int(header["size"])], int(header["position"]))
        yield build_batch(batch.records(), **fields)
