"""Cases about cleaned logs."""
from __future__ import annotations

import random
import time
from collections.abc import Iterator

from ..case_context import CaseContext
from ..records import Produced
from .registry import case

# The cleaner's log line after a partition; the text differs between versions.
CLEANED = r"[Cc]leaned log|cleaner thread 0 cleaned"
EAGER_CLEANER: dict[str, str | int] = {
    "log.cleaner.backoff.ms": 300,
    "log.cleaner.enable": "true",
}
ALWAYS_DIRTY: dict[str, str | int] = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": 100,
}
_SOON_DELETED: dict[str, str | int] = {"file.delete.delay.ms": 1000}


def _save_with_cleaner_log(context: CaseContext) -> None:
    """Stop the broker and save, with what its cleaner logged."""
    context.stop()
    lines = context.log_lines("Cleaner 0: .*(Cleaning|Swapping|Beginning)")
    context.extra["cleaner_log"] = lines[:40]
    context.save()


def produced_turns(
    rng: random.Random, timestamp: int
) -> Iterator[list[tuple[int, str, list[list[Produced]]]]]:
    """Yield what is produced between two cleanings: partition, codec, batches."""
    for turn in range(4):
        produced = []
        for partition, codec in ((0, "none"), (1, "gzip")):
            batches = []
            for _ in range(12):
                batch = []
                for _ in range(rng.choice((1, 3))):
                    timestamp += rng.randint(1, 900)
                    key = b"key-%d" % rng.randint(0, 9 + turn)
                    value = None if rng.random() < 0.15 else b"v%d " % timestamp * 5
                    batch.append(Produced(timestamp, key, value))
                batches.append(batch)
            produced.append((partition, codec, batches))
        yield produced


@case()
def compacted(context: CaseContext) -> None:
    """A cleaned log with gaps and tombstones, uncompressed and compressed."""
    context.start(EAGER_CLEANER)
    config = ALWAYS_DIRTY | _SOON_DELETED
    if context.since(0, 10, 1):
        config["min.compaction.lag.ms"] = 0
    context.create_topic("compacted", 2, config, segment_bytes=1500)
    for turn in produced_turns(context.rng, context.first_timestamp):
        for partition, codec, batches in turn:
            context.produce("compacted", batches, partition, codec=codec)
        time.sleep(1.2)
    context.extra["compaction_seen"] = context.wait_until_still("compacted-0", CLEANED)
    context.wait_until_still("compacted-1", CLEANED)
    context.ask_all()
    _save_with_cleaner_log(context)


@case(since="2.4")
def compacted_empty_segment(context: CaseContext) -> None:
    """A first segment that the cleaner left with 0 bytes, dated by its mtime."""
    context.start(EAGER_CLEANER)
    context.create_topic("emptied", 1, ALWAYS_DIRTY | _SOON_DELETED, segment_bytes=1500)
    rng, timestamp = context.rng, context.first_timestamp
    keys = 10
    for turn in range(4):
        batches = []
        for number in range(keys):
            value = bytes(rng.randrange(256) for _ in range(60))
            batches.append([Produced(timestamp + number * 1000, b"key-%d" % number, value)])
        context.produce("emptied", batches)
        timestamp += keys * 1000
        time.sleep(1.5 if turn < 2 else 0)
    context.extra["compaction_seen"] = context.wait_until_still("emptied-0", CLEANED)
    # the empty segments into the middle of the timestamps that are left
    middle = context.first_timestamp + keys * 1000 * 3 + 2500
    context.set_mtimes("emptied-0", lambda number: middle - 100 * number)
    context.ask_all(extra_timestamps=[middle - 1, middle, middle + 1])
    _save_with_cleaner_log(context)
