"""Texts of findings, for the texts' own sake; other tests expect kinds."""
from __future__ import annotations

from pathlib import Path

import pytest
from checks.harms import HARMS

from kafkastore.jobs.verify import verify

TEXTS = {
    "index missing": "the offset index is missing",
    "time index missing": "the time index is missing, although records have timestamps",
    "time index padded": "50 zero entries after the last entry",
    "closed before its end": "the log was closed at offset 9 according to "
    "recovery-point-offset-checkpoint, and now ends at 100",
    "bad checksum": "checksum of the batch that ends with offset 22 is wrong; 115 bytes are lost, "
    "10 valid batches of 2,210 bytes follow",
    "torn tail of a clean log": "50 bytes after the last complete batch",
    "segment lost": "offsets 22 to 39 are missing between segments",
    "lines of no partition": "it has lines of 1 partition (gone-3) that is not in this directory",
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_finding_says_what_was_found(name: str, golden, writable_copy) -> None:
    (harm,) = (each for each in HARMS if each.name == name)
    root: Path = writable_copy(golden(*harm.case, "answers").logs)
    harm.do(root)
    texts = [each.what for each in verify(root) if each.kind is harm.kind]
    assert TEXTS[name] in texts
