"""The case about rolling and deleting segments by the records' time."""
from __future__ import annotations

import time

from ..case_context import CaseContext
from .registry import case

_HOUR_MS = 3_600_000
_AGES_HOURS = (8, 7, 6, 5, 0.5, 4, 0.4, 0.3, 0.2)


@case(since="0.10.1")
def roll_and_retention_by_time(context: CaseContext) -> None:
    """segment.ms by record time, and what retention.ms leaves."""
    settings: dict[str, str | int] = {"log.retention.check.interval.ms": 1000}
    if context.since(3, 9):
        settings["log.initial.task.delay.ms"] = 1000
    context.start(settings)
    context.create_topic("roll", 1, {"segment.ms": 10_000}, segment_bytes=1_000_000)
    now = int(time.time() * 1000)
    retention = {"retention.ms": _HOUR_MS, "file.delete.delay.ms": 1000}
    context.create_topic("retention", 1, retention, segment_bytes=1500)
    timestamp, stamps = context.first_timestamp, []
    for _ in range(50):
        timestamp += context.rng.choice((100, 1000, 4000, 11_000, -3000))
        stamps.append(timestamp)
    context.produce("roll", context.batches(stamps, (1, 2)))
    for hours in _AGES_HOURS:
        stamps = [now - int(hours * _HOUR_MS) + number for number in range(14)]
        context.produce("retention", context.batches(stamps, (1, 2), size=80))
    # Before the delay was a setting, retention began 30 s after the start.
    time.sleep(5 if context.since(3, 9) else 33)
    context.wait_until_still("retention-0")
    context.ask_all()
    context.stop()
    context.extra["broker_log"] = context.log_lines("retention-0")[-30:]
    context.save()
