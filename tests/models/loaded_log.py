"""What loading a partition must report, computed slowly from all its contents."""

from __future__ import annotations

import random

from models.record_format import Batch, Row, marker

UUID = "0123456789abcdef0123456789abcdef"


def transactions(source: random.Random, count, first_offset=0):
    """Batches of three transactional producers and a plain one, with markers between."""
    found, offset, open_producers = [], first_offset, set()
    for _ in range(count):
        producer = source.randrange(4)
        if producer in open_producers and source.random() < 0.4:
            open_producers.discard(producer)
            batch = marker(offset, 5, is_commit=source.random() < 0.5, producer_id=producer)
        else:
            length = source.randrange(1, 4)
            rows = tuple(Row(offset + number, 5, b"k", b"v") for number in range(length))
            fields = {}
            if producer:
                open_producers.add(producer)
                fields = {"producer_id": producer, "producer_epoch": 0, "is_transactional": True}
            batch = Batch(rows, **fields)
        found.append(batch)
        offset = batch.last_offset + 1
    return tuple(found)


def first_undecided(batches, end_offset):
    """The first offset of the oldest transaction open at an offset; None if none is."""
    first_offsets = {}
    for batch in batches:
        if batch.base_offset >= end_offset or not batch.is_transactional:
            continue
        if batch.is_control:
            first_offsets.pop(batch.producer_id, None)
        else:
            first_offsets.setdefault(batch.producer_id, batch.base_offset)
    return min(first_offsets.values(), default=None)


def bounds(log, *, start_line=None, watermark_line=None, high_watermark="log-end"):
    """(log start, log end, high watermark, last stable offset) as a broker would have them."""
    base = log.segments[0].base_offset
    start = base if start_line is None or start_line < base else start_line
    end = log.segments[-1].base_offset
    for batch in log.batches:
        end = max(end, batch.last_offset + 1)
    end = max(start, end)
    watermark = end
    if high_watermark == "checkpoint":
        watermark = 0 if watermark_line is None else watermark_line
    elif high_watermark != "log-end":
        watermark = high_watermark
    watermark = min(max(watermark, start), end)
    undecided = first_undecided(log.batches, watermark)
    stable = watermark if undecided is None else max(undecided, start)
    return start, end, watermark, stable


def position_of(placed, target_offset, starting_position=0):
    """Kafka's search forward: (last offset, position, size) of the batch of an offset, or None."""
    for position, batch in placed:
        if position >= starting_position and batch.last_offset >= target_offset:
            return batch.last_offset, position, len(batch.data)
    return None


TYPES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
STATES = ("", ".deleted", ".cleaned", ".swap")
BASES = (0, 3, 7)


def split_name(name):
    """(base offset, type, state) of a name made of these."""
    digits, kind, *state = name.split(".")
    return int(digits), "." + kind, "".join("." + each for each in state)


def listing(names):
    """(offsets of logs, of logs to be read under .swap, missing, {leftover: is deleted})."""
    files = [split_name(name) for name in names]
    live = {base for base, kind, state in files if (kind, state) == (".log", "")}
    cleaned = [base for base, _, state in files if state == ".cleaned"]

    def is_unfinished(base):
        return any(base >= each for each in cleaned)

    waiting = sorted(
        base for base, kind, state in files
        if (kind, state) == (".log", ".swap") and not is_unfinished(base)
    )
    swapped = [base for base in waiting if base not in live]
    if waiting and waiting[0] in live:
        swapped = []        # the old segments are all there still
    missing = [
        f"{base:020}{kind}" for base in sorted(live) for kind in (".index", ".timeindex")
        if (base, kind, "") not in files
    ]
    leftovers = {}
    for name, (base, kind, state) in zip(names, files, strict=True):
        if state in (".deleted", ".cleaned"):
            leftovers[name] = True
        elif state == ".swap":
            has_log = (base, ".log", ".swap") in files
            leftovers[name] = is_unfinished(base) or not has_log
        elif kind.endswith("index") and base not in live:
            leftovers[name] = True
    return sorted(live), swapped, missing, leftovers
