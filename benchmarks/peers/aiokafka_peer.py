"""Decodes a segment with aiokafka's record parser, which is written in Cython.

usage:  aiokafka_peer.py decode|decode-memory SEGMENT.log

``decode`` opens and reads the file in each round, ``decode-memory`` once, before the first round. A
line ``check`` or ``time`` on stdin is answered by one JSON object on stdout.
"""
import json
import struct
import sys
import time
import zlib
from pathlib import Path

from aiokafka.record.memory_records import MemoryRecords

MEASURE, PATH = sys.argv[1], Path(sys.argv[2])
#: Larger memory is returned to the system, and is zeroed pages again at the next read: for `b` a
#: read of 1 MiB takes 1.07 s instead of 0.78.
READ_BYTES = 100 << 10
LENGTH = struct.Struct(">i")


def pieces_of_file():
    """Read complete batches; the parser does not tell how far it came."""
    with PATH.open("rb", buffering=0) as file:
        rest = b""
        while got := file.read(READ_BYTES):
            data = rest + got
            at, last = 0, len(data) - 12
            while at <= last:
                after = at + 12 + LENGTH.unpack_from(data, at + 8)[0]
                if after > len(data):
                    break
                at = after
            yield data
            rest = data[at:]
        if rest:
            raise SystemExit("the last batch is torn")


if MEASURE == "decode-memory":
    DATA = [PATH.read_bytes()]


def pieces():
    return DATA if MEASURE == "decode-memory" else pieces_of_file()


def valid_batches():
    for data in pieces():
        batches = MemoryRecords(data)
        while batches.has_next():
            batch = batches.next_batch()
            if not batch.validate_crc():
                raise SystemExit("a checksum is wrong")
            yield batch


def time_round():
    wall, cpu, total = time.perf_counter(), time.process_time(), 0
    for batch in valid_batches():
        for record in batch:
            total += record.offset + record.timestamp + len(record.key) + len(record.value)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {"cpu": cpu, "wall": wall, "sum": total}


def check():
    names = ["offsets", "timestamps", "key_lengths", "keys", "value_lengths", "values"]
    crcs = dict.fromkeys(names, 0)
    count = 0
    for batch in valid_batches():
        for record in batch:
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
