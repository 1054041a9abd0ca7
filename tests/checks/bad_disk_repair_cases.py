"""Repair of logs with unreadable sectors: records on both sides of them are kept.

`test_repair_on_bad_disks.py` runs these so that compiled code meets such sectors too.
"""

import pytest
from models.bad_disk import BadDisk
from models.log_directory import Log, Segment
from models.record_format import Batch, Row

import kafkastore
from kafkastore import Severity
from kafkastore.checks.broker_repair import NoRecoveryError
from kafkastore.checks.repair import plan_repair

SECTOR = 4096


def segment(first, count):
    batches = tuple(
        Batch((Row(offset, 10 * offset, b"k", bytes([offset]) * 400),))
        for offset in range(first, first + count)
    )
    return Segment(first, batches).indexed(interval=600)


LOG = Log((segment(0, 60), segment(60, 60), segment(120, 60)), recovery_point=0)
SIZE = len(LOG.batches[0].data)


@pytest.fixture
def disk(monkeypatch):
    return BadDisk(monkeypatch)


@pytest.fixture
def logs(tmp_path):
    return LOG.write(tmp_path / "logs")


@pytest.mark.parametrize("base_offset", [0, 60, 120])
@pytest.mark.parametrize("sectors", [(0, 1), (2, 3), (3, 5), (6, 99)])
def test_records_on_both_sides_of_bad_sectors_are_kept(logs, disk, base_offset, sectors):
    path = logs / "t-0" / f"{base_offset:020}.log"
    start, end = (min(each * SECTOR, 60 * SIZE) for each in sectors)
    disk.damage(path, start, end)
    lost = {base_offset + at for at in range(start // SIZE, -(-end // SIZE))}
    plan = plan_repair(logs, on_corrupt="skip")
    assert not plan.not_repaired
    journal = kafkastore.apply(plan)
    (log,) = kafkastore.open(logs)
    assert [record.offset for record in log.records()] == [
        offset for offset in range(180) if offset not in lost
    ]
    assert sum(each.size for each in plan.removed) == len(lost) * SIZE
    assert not [each for each in kafkastore.verify(logs) if each.severity is not Severity.STYLE]
    kafkastore.undo(journal)
    assert path.stat().st_size == 60 * SIZE


@pytest.mark.parametrize("version", ["2.4", "4.1"])
def test_where_a_broker_fails_on_a_bad_sector_repair_offers_to_skip_it(logs, disk, version):
    disk.damage(logs / "t-0" / f"{60:020}.log", SECTOR, 2 * SECTOR)
    plan = plan_repair(logs, version, on_corrupt="truncate")
    assert not [change for change in plan.changes if change.path.endswith(".log")]
    errors = [each.error for each in plan.not_repaired]
    assert any(isinstance(each, NoRecoveryError) and each.can_salvage for each in errors)
