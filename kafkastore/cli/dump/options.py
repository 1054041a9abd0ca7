"""The options of ``kafkastore dump``."""
from __future__ import annotations

from datetime import tzinfo
from typing import NamedTuple


class DumpOptions(NamedTuple):
    """Print records, whole values, times in `zone` (None: UTC), or JSON.

    With `max_bytes`, only the batches that end within this many bytes of a log. Unless
    `show_secrets`, passwords and the like in the metadata of a cluster are masked.
    """

    records: bool
    full: bool
    zone: tzinfo | None
    as_json: bool
    max_bytes: int | None = None
    show_secrets: bool = False
