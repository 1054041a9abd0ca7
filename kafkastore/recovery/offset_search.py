"""What a broker decompresses while it searches for an offset.

Source: Kafka 4.0.0 ``FileRecords.searchForOffsetWithSize``; 4.1.0 ``searchForOffsetFromPosition``,
``AbstractLegacyRecordBatch.baseOffset``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from kafkastore.errors import CorruptionError, DecompressedSizeError
from kafkastore.formats.records.record_batch import RecordBatch
from kafkastore.segment.log_file import BatchRun, LogFile
from kafkastore.segment.recovery import batch_runs
from kafkastore.versions import BrokerRules


def check_search(log: LogFile, target_offset: int, position: int, rules: BrokerRules) -> None:
    """Raise the error of a wrapper that ends a broker's search for an offset.

    It starts at the batch at `position`, which is that of an index entry. Bytes that are no batch
    end the search without an error: the read after it finds them too.
    """
    for run in _complete_batches(log, position):
        if _is_found(run, target_offset, rules, log):
            return


def _complete_batches(log: LogFile, position: int) -> Iterator[BatchRun]:
    with suppress(CorruptionError):
        yield from batch_runs(log, position=position, frames_negative_magic=True)


def _is_found(run: BatchRun, target_offset: int, rules: BrokerRules, log: LogFile) -> bool:
    """Return whether the search ends in a run, whose wrappers have base offset -1."""
    base_offsets, last_offsets = run.headers["base_offset"], run.headers["last_offset"]
    compared = base_offsets if rules.search_reads_all_first_offsets else last_offsets
    reached = np.flatnonzero(compared >= target_offset)
    found = int(reached[0]) if len(reached) else len(compared)
    first = 0 if rules.search_reads_all_first_offsets else found
    for index in range(first, min(found + 1, len(compared))):
        if base_offsets[index] < 0 and _first_offset(run, index, log) >= target_offset:
            return True
    return found < len(compared)


def _first_offset(run: BatchRun, index: int, log: LogFile) -> int:
    """Decompress a wrapper, and return its first offset; the last if it is too large."""
    position = int(run.headers["position"][index])
    try:
        return RecordBatch(bytes(run.batch(index)), position).base_offset
    except DecompressedSizeError:  # a broker has no such limit
        return int(run.headers["last_offset"][index])
    except CorruptionError as error:
        raise error.located(log.path) from error
