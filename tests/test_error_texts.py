"""Texts of errors that are made of their fields, for the texts' own sake."""
from __future__ import annotations

import pytest

from kafkastore import errors

TEXTS = [
    (
        errors.CorruptBatchError("checksum is wrong", path="/d/t-0/0.log", position=945),
        "checksum is wrong in /d/t-0/0.log at byte 945",
    ),
    (errors.CorruptIndexError("5 bytes are not whole entries"), "5 bytes are not whole entries"),
    (
        errors.DuplicatePartitionError({"t-0": ["/a/t-0", "/b/t-0"]}),
        ("partition t-0 is in two places, /a/t-0 and /b/t-0; a broker does not start with them: "
        "open one of the two directories by itself"),
    ),
    (
        errors.DuplicatePartitionError({"t-0": ["/a/t-0", "/b/t-0"], "t-1": ["/a/t-1"] * 3}),
        ("partition t-0 is in two places, /a/t-0 and /b/t-0; partition t-1 is in 3 places, "
        "/a/t-1 and /a/t-1 and /a/t-1; a broker does not start with them: open one directory of "
        "each by itself"),
    ),
    (
        errors.NotAFileError("/d/t-0/0.log", "a FIFO"),
        "/d/t-0/0.log is a FIFO and not a regular file; move it away",
    ),
    (
        errors.SegmentGoneError("/d/t-0/0.log"),
        "/d/t-0/0.log is gone: deleted, truncated or compacted after it was listed",
    ),
    (
        errors.NoUndoPlaceError("/d is a mount point, and / another file system"),
        ("/d is a mount point, and / another file system; choose another directory for replaced "
        "files with undo_dir"),
    ),
    (
        errors.LogWouldBeCutError("/d/t-0", {"0.log": 945, "9.log": 0}, 33),
        ("/d/t-0: a recovery would truncate 0.log at byte 945 (and 1 more), so that the log ends "
        "at offset 33; nothing was changed: recover=True truncates it, and keeps the truncated "
        "bytes next to the log directory"),
    ),
    (
        errors.RemoteStoreError("s3://b/k", "access is denied; check credentials", 0, 65536),
        "s3://b/k, bytes 0 to 65536, can't be read: access is denied; check credentials",
    ),
    (
        errors.RemoteObjectChangedError("s3://b/k", "is another one than was listed"),
        "s3://b/k is another one than was listed: it was replaced or deleted; open the store again",
    ),
]


@pytest.mark.parametrize(("error", "text"), TEXTS, ids=[type(error).__name__ for error, _ in TEXTS])
def test_an_error_says_what_its_fields_hold(error: errors.KafkaStoreError, text: str) -> None:
    assert str(error) == text
