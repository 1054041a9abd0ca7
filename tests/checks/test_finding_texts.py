"""The texts of findings; all other tests check only their kinds."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from checks.damages import DAMAGES
from models.checked_segments import findings_of
from models.log_directory import Log, Segment
from models.record_format import Batch, Row
from models.record_strategies import in_a_row

from kafkastore.jobs.verify import verify

NOW = 1_500_000_000_000
TEXTS = {
    "index missing": "the offset index is missing",
    "time index missing": "the time index is missing, although records have timestamps",
    "time index padded": "50 zero entries after the last entry",
    "closed before its end": "the last clean shutdown was at offset 9 according to "
    "recovery-point-offset-checkpoint, and now ends at 100",
    "bad checksum": "checksum of the batch that ends with offset 22 is wrong; 115 bytes are lost, "
    "10 valid batches of 2,210 bytes follow",
    "torn tail of a clean log": "50 bytes after the last complete batch",
    "segment lost": "offsets 22 to 39 are missing between segments",
    "lines of no partition":
        "it has a line of 1 partition (gone-3), which is not in this directory",
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_finding_describes_the_fault(name: str, golden, writable_copy) -> None:
    (damage,) = (each for each in DAMAGES if each.name == name)
    root: Path = writable_copy(golden(*damage.case, "answers").logs)
    damage.do(root)
    texts = [each.what for each in verify(root) if each.kind is damage.kind]
    assert TEXTS[name] in texts


@pytest.mark.parametrize(("name", "command"), [
    ("bad checksum", "kafkastore repair --on-corrupt skip"),
    ("time index missing", "kafkastore migrate --in-place"),
    ("time index padded", "kafkastore reindex"),
])
def test_a_remedy_is_a_command(name: str, command: str, golden, writable_copy) -> None:
    (damage,) = (each for each in DAMAGES if each.name == name)
    root: Path = writable_copy(golden(*damage.case, "answers").logs)
    damage.do(root)
    found = [each for each in verify(root) if each.kind is damage.kind]
    assert {each.remedy for each in found} == {f"{command} {each.path.parent}" for each in found}


def batch(**fields: Any) -> Batch:
    return Batch((Row(0, NOW, b"k", b"v"),), **fields)


def test_a_finding_counts_further_faults_of_its_kind(tmp_path: Path) -> None:
    faulty = in_a_row([batch(), *[batch(stated_max_timestamp=NOW // 1000)] * 7])
    (found,) = findings_of(Log((Segment(0, tuple(faulty)).indexed(),)).write(tmp_path / "faulty"))
    assert found.what == (
        "the batch that ends with offset 1 has timestamp 1500000000, which looks like seconds: as "
        "milliseconds it is in the 1970s; 6 more batches have this fault"
    )
    valid = in_a_row([batch()] * 60)
    logs = Log((Segment(0, tuple(valid)).indexed(),)).write(tmp_path / "damaged")
    size = len(valid[0].data)
    with (logs / "t-0" / f"{0:020}.log").open("r+b") as file:
        for number in range(0, 60, 2):
            file.seek(number * size + 40)
            file.write(b"\xff")
    assert findings_of(logs)[-1].what == (
        f"checksum of the batch that ends with offset 30 is wrong; {size} bytes are lost, "
        f"15 valid batches of {15 * size:,} bytes follow; 14 later ranges are corrupt too"
    )
