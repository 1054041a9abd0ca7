"""OffsetRequest v0 step by step, as KafkaApis of 0.10.0.1 and Log of 2.4.0 go: slow and literal.

Apart from the package's code. A log is a list of (base offset, mtime, bytes) with its bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

LATEST, EARLIEST = -1, -2


@dataclass(frozen=True)
class LegacyLog:
    """A partition as those classes see it."""

    segments: tuple[tuple[int, int, int], ...]
    log_end_offset: int
    log_start_offset: int
    high_watermark: int


def fetch_offsets(version, log, timestamp, max_num_offsets, now):
    """The answer to a consumer; "error" where the broker answers one."""
    if version >= (4, 0):
        return "error"
    if version >= (3, 9) and timestamp < EARLIEST:
        return "error"
    if log is None:
        if version >= (2, 1):
            return "error"
        if timestamp in (LATEST, EARLIEST):
            return [0]
        return []
    every_offset = _offsets_before(version, log, timestamp, max_num_offsets, now)
    above = False
    for offset in every_offset:
        if offset > log.high_watermark:
            above = True
    if not above:
        return every_offset
    answer = [log.high_watermark]
    dropping = True
    for offset in every_offset:
        if offset <= log.high_watermark:
            dropping = False
        if not dropping:
            answer.append(offset)
    return answer


def _offsets_before(version, log, timestamp, max_num_offsets, now):
    last_segment_has_size = log.segments[-1][2] > 0
    offset_time_array = [None] * len(log.segments)
    if last_segment_has_size:
        offset_time_array = [None] * (len(log.segments) + 1)
    for index, (base_offset, last_modified, _) in enumerate(log.segments):
        offset = base_offset
        if version >= (0, 11) and offset < log.log_start_offset:
            offset = log.log_start_offset
        offset_time_array[index] = (offset, last_modified)
    if last_segment_has_size:
        offset_time_array[len(log.segments)] = (log.log_end_offset, now)

    start_index = -1
    if timestamp == LATEST:
        start_index = len(offset_time_array) - 1
    elif timestamp == EARLIEST:
        start_index = 0
    else:
        is_found = False
        start_index = len(offset_time_array) - 1
        while start_index >= 0 and not is_found:
            if offset_time_array[start_index][1] <= timestamp:
                is_found = True
            else:
                start_index -= 1

    size = start_index + 1
    if max_num_offsets < size:
        size = max_num_offsets
    answer = []
    for _ in range(size):
        answer.append(offset_time_array[start_index][0])
        start_index -= 1
    answer.sort(key=lambda offset: -offset)
    return answer
