"""The cases, one module a subject; importing this registers them."""
from . import (  # noqa: F401
    broken_index,
    codecs,
    compaction,
    crashes,
    groups,
    kraft_cluster,
    kraft_metadata,
    kraft_single,
    kraft_upgrade,
    log_start_and_epochs,
    tiered,
    time_limits,
    timestamps,
    transactions,
    upgrade,
    wide,
)
