"""Logs for the tests of recovery, and functions that recover them."""

from models import log_recovery
from models.record_format import Batch, Row
from models.record_strategies import in_a_row
from models.recovered_directory import files_after, files_of

from kafkastore.recovery.log_recovery import recover_log

THIRTY = in_a_row([Batch((Row(0, 100 + slot, b"k", b"v" * 40),)) for slot in range(30)])
SIZE = len(THIRTY[0].data)
VERSIONS = ["2.4", "3.9", "4.1"]


def name(base, suffix):
    return f"{base:020}{suffix}"


def recover(log, version="2.4", **options):
    """Recover, and check that nothing was altered."""
    before = files_of(log.path)
    recovered = recover_log(log, version, index_interval_bytes=200, **options)
    assert files_of(log.path) == before
    return recovered


def offsets_left(recovered):
    """The first offsets of the remaining batches."""
    files = files_after(recovered)
    return [
        batch.base_offset
        for segment in recovered.segments
        for batch in log_recovery.sound_batches(files[name(segment.base_offset, ".log")])
    ]
