"""Cases about the records' timestamps: in order, out of order, given by the broker."""
from __future__ import annotations

import random
import time

from ..case_context import CaseContext
from ..questions import FAR_FUTURE, LARGEST_INT64
from ..records import make_record
from .registry import case


@case()
def create_time_monotonic(context: CaseContext) -> None:
    """Rising timestamps in many small segments."""
    context.start()
    context.create_topic("mono", 2)
    start, rng = context.first_timestamp, context.rng
    for partition, steps in ((0, (1, 5, 100, 1000, 5000)), (1, (0, 0, 1, 2))):
        timestamp, timestamps = start, []
        for _ in range(110):
            timestamp += rng.choice(steps)
            timestamps.append(timestamp)
        context.produce("mono", context.batches(timestamps), partition)
    context.set_mtimes("mono-0", lambda number: start + 60_000 * number)
    context.set_mtimes("mono-1", lambda number: start + 1000 * (number // 2))  # equal in pairs
    context.ask_all()
    context.stop()
    context.save()


def _segments_with_jumping_maxima(rng: random.Random, start: int) -> list[int]:
    """Return timestamps, 14 to a segment or so, whose maxima by segment go up and down."""
    parts = [
        [start + delta for delta in rng.sample(range(50_000), 14)],
        [start + delta for delta in rng.sample(range(20_000), 14)],
        [start + 30_000] * 14,
        [start + 60_000 + delta * rng.choice((1, -1)) for delta in rng.sample(range(30_000), 14)],
        [0] * 4 + [start + delta for delta in rng.sample(range(40_000), 10)],
        [start + 70_000, FAR_FUTURE] + [start + 71_000 + delta for delta in range(12)],
        [start + 80_000 + delta for delta in rng.sample(range(20_000), 14)],
        [start + 200_000 - delta for delta in range(0, 14_000, 1000)],
    ]
    return [timestamp for part in parts for timestamp in part]


def _random_walk(rng: random.Random, start: int) -> list[int]:
    """Return timestamps that go forward more than back."""
    timestamp, timestamps = start, []
    for _ in range(90):
        timestamp = max(0, timestamp + rng.randint(-3000, 4000))
        timestamps.append(timestamp)
    return timestamps


@case(since="0.10")
def create_time_out_of_order(context: CaseContext) -> None:
    """Timestamps in no order, between segments and within batches; then a restart."""
    context.start()
    any_future = {"message.timestamp.after.max.ms": LARGEST_INT64} if context.since(4) else {}
    context.create_topic("ooo", 4, any_future, segment_bytes=1600)
    start, rng = context.first_timestamp, context.rng
    jumping = _segments_with_jumping_maxima(rng, start)
    context.produce("ooo", context.batches(jumping, (1, 2), size=70), 0)
    context.produce("ooo", context.batches(_random_walk(rng, start), (1,), size=60), 1)
    unordered = [start + rng.randint(0, 100_000) for _ in range(150)]
    context.produce("ooo", context.batches(unordered, (5, 8), size=60), 2, codec="gzip")
    falling = [start + 100_000 - 1000 * number for number in range(60)]
    context.produce("ooo", context.batches(falling, (1, 3), size=80), 3)
    context.set_mtimes("ooo-0", [start + 1000 * delta for delta in rng.sample(range(50), 12)])
    context.set_mtimes("ooo-1", lambda number: start + 500_000 - 1000 * number)
    context.ask_all()
    context.stop(zookeeper=False)
    context.save()
    context.start()  # now the maxima come from the files
    context.ask_all()
    context.stop()
    context.save("answers-restarted", "logs-restarted")


@case(since="0.10")
def log_append_time(context: CaseContext) -> None:
    """Timestamps that the broker gives, uncompressed and compressed."""
    context.start()
    config = {"message.timestamp.type": "LogAppendTime"}
    context.create_topic("lat", 2, config, segment_bytes=2000)
    start, rng = context.first_timestamp, context.rng
    for number in range(40):
        count = rng.choice((1, 1, 2, 4))
        context.produce("lat", [[make_record(rng, start + number) for _ in range(count)]], 0)
        if number % 2:
            three = [make_record(rng, start - number) for _ in range(3)]
            context.produce("lat", [three], 1, codec=rng.choice(("gzip", "snappy")))
        time.sleep(rng.choice((0, 0.003, 0.02)))
    context.ask_all()
    context.stop()
    context.save()
