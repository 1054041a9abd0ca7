"""The clock of this machine, as brokers read it."""
from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


def clock() -> int:
    """Return the current time in ms since 1970."""
    return time.time_ns() // 1_000_000
