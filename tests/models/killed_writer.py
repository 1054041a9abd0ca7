"""A process whose children append to a log until they are killed; run by a test.

usage: python killed_writer.py ROOT ACKS

For each line on stdin, a seed, it forks a child, and writes the child's process id; when the child
ends, another line.  A child appends records whose values follow from their offsets, and adds to
the file ACKS, as 8 bytes, each log end offset that `flush` has made durable.
"""

import os
import random
import sys
from types import SimpleNamespace

from kafkastore.writing.log_dir_writer import LogDirWriter

CONFIG = {"segment.bytes": 5000, "index.interval.bytes": 300, "segment.index.bytes": 2000}
FIRST_TIMESTAMP = 1_600_000_000_000


def value_at(offset):
    """The value of the record at an offset."""
    return b"%d " % offset * (1 + offset % 17)


def work(root, acks, seed):
    """Append until killed."""
    rng = random.Random(seed)
    with LogDirWriter(root) as log_dir:
        writer = log_dir.writer("t", 0, CONFIG, recover=True)
        flushed = writer.log_end_offset
        while True:
            end = writer.log_end_offset
            records = [
                SimpleNamespace(
                    timestamp=FIRST_TIMESTAMP + offset, key=b"k", value=value_at(offset)
                )
                for offset in range(end, end + rng.randint(1, 30))
            ]
            writer.append_records(records, batch_bytes=rng.choice([200, 1000]))
            action = rng.random()
            if action < 0.4:
                writer.flush()
                flushed = writer.log_end_offset
                os.write(acks, flushed.to_bytes(8, "big"))
                if action < 0.1:
                    log_dir.checkpoint()
            elif action < 0.5:
                writer.roll()
            elif action < 0.55:
                writer.truncate_to(flushed)
            elif action < 0.57:
                writer.delete_records(max(flushed - 300, writer.log_start_offset))
                writer.delete_old_segments(FIRST_TIMESTAMP)


def main():
    """Fork a child for each line on stdin."""
    root, acks_path = sys.argv[1:]
    acks = os.open(acks_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                work(root, acks, int(line))
            finally:
                os._exit(1)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
