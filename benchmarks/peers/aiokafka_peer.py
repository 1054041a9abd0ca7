"""Decodes a segment with aiokafka's record parser, which is written in Cython.

usage:  aiokafka_peer.py decode SEGMENT.log

A line ``check`` or ``time`` on stdin is answered by one JSON object on stdout.
"""
import json
import struct
import sys
import time
import zlib
from pathlib import Path

from aiokafka.record.memory_records import MemoryRecords

DATA = Path(sys.argv[2]).read_bytes()


def records():
    batches = MemoryRecords(DATA)
    while batches.has_next():
        batch = batches.next_batch()
        if not batch.validate_crc():
            raise SystemExit("a checksum is wrong")
        yield from batch


def time_round():
    wall, cpu, total = time.perf_counter(), time.process_time(), 0
    batches = MemoryRecords(DATA)
    while batches.has_next():
        batch = batches.next_batch()
        if not batch.validate_crc():
            raise SystemExit("a checksum is wrong")
        for record in batch:
            total += record.offset + record.timestamp + len(record.key) + len(record.value)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {"cpu": cpu, "wall": wall, "sum": total}


def check():
    names = ["offsets", "timestamps", "key_lengths", "keys", "value_lengths", "values"]
    crcs = dict.fromkeys(names, 0)
    count = 0
    for record in records():
        count += 1
        parts = (
            struct.pack("<q", record.offset),
            struct.pack("<q", record.timestamp),
            struct.pack("<i", len(record.key)),
            record.key,
            struct.pack("<i", len(record.value)),
            record.value,
        )
        for name, part in zip(names, parts, strict=True):
            crcs[name] = zlib.crc32(part, crcs[name])
    return {"records": count, **crcs}


for line in sys.stdin:
    answer = {"check": check, "time": time_round}[line.strip()]()
    print(json.dumps(answer), flush=True)
