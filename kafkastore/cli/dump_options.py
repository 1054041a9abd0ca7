"""How files are dumped: the options of ``kafkastore dump``."""
from __future__ import annotations

from datetime import tzinfo
from typing import NamedTuple


class DumpOptions(NamedTuple):
    """Show records too; whole values; times in this zone (UTC if None); JSON instead of tables.

    With `max_bytes` only the batches that end within so many bytes of a log.
    """

    records: bool
    full: bool
    zone: tzinfo | None
    as_json: bool
    max_bytes: int | None = None
