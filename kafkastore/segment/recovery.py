"""What a recovering broker makes of a segment's log: where it ends, and its indexes."""
from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from kafkastore.errors import CorruptionError, OffsetOverflowError, OutOfOrderAppendError
from kafkastore.formats.index_builder import IndexBuilder
from kafkastore.segment.log_file import LogFile

#: Kafka's default of ``index.interval.bytes``.
INDEX_INTERVAL_BYTES = 4096


class RebuiltIndexes(NamedTuple):
    """A segment's indexes as its log alone gives them.

    Bytes from `valid_bytes` on are torn, preallocated or, with a `reason`, broken: a broker would
    cut them.
    """

    offset_index: bytes
    time_index: bytes
    valid_bytes: int
    next_offset: int
    largest_timestamp: int
    offset_of_max_timestamp: int
    reason: str | None


def rebuild_indexes(
    log_path: Path,
    base_offset: int,
    *,
    index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    verify_crc: bool = True,
) -> RebuiltIndexes:
    """Build the indexes of a segment from its log, without writing anything.

    Parameters
    ----------
    log_path : path-like
        The ``.log`` file.
    base_offset : int
        Of the segment.
    index_interval_bytes : int
        The topic's ``index.interval.bytes``.
    verify_crc : bool
        Stop at the first batch with a wrong checksum, as a broker does.

    Returns
    -------
    RebuiltIndexes

    Raises
    ------
    OffsetOverflowError
        If an offset does not fit the 31 bits above the base offset.
    OutOfOrderAppendError
        If offsets go back from one index entry to the next: a recovering broker gives up there.

    Notes
    -----
    Source: Kafka 2.4.0 ``LogSegment.recover``.
    """
    builder = IndexBuilder(base_offset, index_interval_bytes)
    valid_bytes, next_offset, reason = 0, base_offset, None
    with LogFile(log_path) as log:
        try:
            for run in log.runs(verify_crc=verify_crc):
                headers = run.headers
                bad = np.flatnonzero(headers["crc_valid"] == 0)
                if len(bad):
                    reason = f"checksum is wrong at byte {int(headers['position'][bad[0]])}"
                    headers = headers[: bad[0]]
                builder.append(headers)
                if len(headers):
                    valid_bytes = int(headers["position"][-1] + headers["size"][-1])
                    next_offset = int(headers["last_offset"][-1]) + 1
                if reason:
                    break
        except CorruptionError as error:
            reason = str(error)
        except (OffsetOverflowError, OutOfOrderAppendError) as error:
            raise type(error)(f"{log_path}: {error}") from error
    offset_index, time_index = builder.finish()
    return RebuiltIndexes(
        offset_index,
        time_index,
        valid_bytes,
        next_offset,
        builder.largest_timestamp,
        builder.offset_of_max_timestamp,
        reason,
    )
