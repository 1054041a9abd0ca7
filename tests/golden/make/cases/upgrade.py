"""The case about directories from before the time index, and newer brokers started on them."""
from __future__ import annotations

import time
from functools import partial

from ..case_context import CaseContext
from ..cluster import Cluster
from .codecs import list_offsets_by_message_format
from .registry import case

_REFERENCE = "2.4.0"
# version, what is done in addition to starting it
_VARIANTS = (
    ("0.10.2.2", ""),
    ("0.11.0.3", ""),
    (_REFERENCE, ""),
    (_REFERENCE, "-unclean"),
    (_REFERENCE, "-appended"),
    ("3.9.1", ""),
)
_DONE = {
    "": ("", ""),
    "-unclean": (" without .kafka_cleanshutdown", ""),
    "-appended": ("", ", which was then given new records"),
}


class _SegmentTimes:
    """The mtimes that segments are given, and given again after a broker wrote to them."""

    def __init__(self, context: CaseContext) -> None:
        self._start = context.first_timestamp
        self._jumbled = [self._start + 1000 * delta for delta in context.rng.sample(range(300), 12)]

    def set(self, context: CaseContext) -> None:
        """Date all segments."""
        start = self._start
        context.set_mtimes("up-0", lambda number: start + 60_000 * (number + 1))
        context.set_mtimes("up-1", self._jumbled)
        context.set_mtimes("up-compressed-0", lambda number: start + 30_000 * (number + 1))


@case(before="0.10.1")
def upgrade(context: CaseContext) -> None:
    """A directory without time indexes; then newer brokers on copies of it."""
    context.start()
    context.create_topic("up", 2, segment_bytes=2500)
    context.create_topic("up-compressed", segment_bytes=2500)
    context.create_topic("up-empty", segment_bytes=2500)
    rng, start = context.rng, context.first_timestamp
    timestamp, stamps = start, []
    for number in range(80):
        timestamp += rng.choice((1, 100, 2000))
        stamps.append(timestamp if number % 9 else timestamp - 50_000)
    context.produce("up", context.batches(stamps), 0)
    unordered = [start + rng.randint(0, 100_000) for _ in range(60)]
    context.produce("up", context.batches(unordered), 1)
    for codec in ("none", "gzip", "snappy") + (("lz4",) if context.since(0, 9) else ()):
        batches = context.batches(stamps[:20], (4, 6), compressible=True)
        context.produce("up-compressed", batches, codec=codec)
    times = _SegmentTimes(context)
    times.set(context)
    extra = [start + delta for delta in range(0, 700_000, 30_000)]
    context.ask_all(extra_timestamps=extra)
    context.stop()
    times.set(context)  # a clean shutdown moves none, so far as was seen
    context.save()
    old = context.cluster
    for version, variant in _VARIANTS:
        make = partial(_upgrade_to, context, old, version, variant, times)
        context.try_variant(f"upgraded-{version}{variant}", make)


def _upgrade_to(
    context: CaseContext, old: Cluster, version: str, variant: str, times: _SegmentTimes
) -> None:
    """Start a newer broker on a copy of the old one's directory, query it and save."""
    start = context.first_timestamp
    extra = [start + delta for delta in range(0, 700_000, 30_000)]
    context.cluster = old
    context.continue_on_copy(f"upgraded-{version}{variant}", version)
    if variant == "-unclean":
        (context.cluster.logs / ".kafka_cleanshutdown").unlink()
    started_ms = int(time.time() * 1000)
    context.start()
    if variant == "-appended":
        _append(context)
        times.set(context)
    context.ask_all(extra_timestamps=extra)
    if version == _REFERENCE and not variant:
        answers = list_offsets_by_message_format(context, "up", [-1, -2, *extra[:12]])
        context.extra["list_offsets_when_message_format_version"] = answers
    before, after = _DONE[variant]
    context.extra["made"] = f"logs/ of {old.version}{before}, opened by {version}{after}"
    context.extra["started_ms"] = started_ms
    context.stop()
    lines = context.log_lines("up-", "Recover", "recover", "index")
    context.extra["broker_log"] = lines[:40]
    name = f"upgraded-{version}{variant}"
    context.save(f"answers-{name}", f"logs-{name}")


def _append(context: CaseContext) -> None:
    """Produce records with timestamps before, among and after the old segments' mtimes."""
    targets = (("up", 0, "none"), ("up", 1, "none"), ("up-compressed", 0, "lz4"))
    for topic, partition, codec in targets:
        deltas = context.rng.sample(range(400_000), 40)
        batches = context.batches([context.first_timestamp + delta for delta in deltas])
        context.produce(topic, batches, partition, codec=codec, producer=f"new-{codec}")
