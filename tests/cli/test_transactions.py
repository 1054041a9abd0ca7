"""``kafkastore transactions``."""
from __future__ import annotations

from pathlib import Path

from cli.running import Run
from models import internal_topics
from models.record_format import Batch, Row

from kafkastore.formats.topics.transaction_state import TransactionState

TIME = 1_500_000_000_000


def write(root: Path, name: str, *batches: Batch) -> None:
    """Write a log of batches."""
    path = root / name / f"{0:020}.log"
    path.parent.mkdir()
    path.write_bytes(b"".join(batch.data for batch in batches))


def test_unreadable_coordinators_are_reported(run: Run, tmp_path: Path) -> None:
    write(tmp_path, "t-0", Batch(
        (Row(0, TIME, b"k", b"v"),), producer_id=9, producer_epoch=3, base_sequence=0,
        is_transactional=True,
    ))
    (tmp_path / "__transaction_state-0" / f"{0:020}.log").mkdir(parents=True)
    ran = run("transactions", tmp_path, "--json")
    assert ran.code == 1
    assert "__transaction_state-0" in ran.err
    (row,) = ran.lines
    assert (row["first_offset"], row["is_hanging"]) == (0, None)


def test_each_open_transaction_is_shown_with_how_to_abort_it(run: Run, tmp_path: Path) -> None:
    write(tmp_path, "t-0", *(
        Batch((Row(offset, TIME, b"k", b"v"),), producer_id=producer_id, producer_epoch=3,
              base_sequence=0, is_transactional=True)
        for offset, producer_id in enumerate((9, 7))
    ))
    noted = run("transactions", tmp_path)
    assert noted.err.startswith("note: ")
    value = internal_topics.pack_transaction_value(
        0, producer_id=9, producer_epoch=3, transaction_timeout_ms=60_000,
        transaction_status=TransactionState.ONGOING,
        transaction_partitions=({"topic": "t", "partition_ids": (0, 5)},),
        transaction_last_update_timestamp_ms=TIME, transaction_start_timestamp_ms=TIME,
    )
    key = internal_topics.pack_transaction_key("tx-a")
    write(tmp_path, "__transaction_state-0", Batch((Row(0, TIME, key, value),)))
    ran = run("transactions", tmp_path)
    assert (ran.code, ran.err) == (0, "")
    assert "--topic t --partition 0 --start-offset 0\n" in ran.out
    assert "ONGOING" in ran.out
    assert "2 open transactions in 2 partitions" in ran.out
    rows = run("transactions", tmp_path, "--json").lines
    assert [(row["producer_id"], row["is_hanging"]) for row in rows] == [(9, False), (7, True)]
    assert [row["transactional_id"] for row in rows] == ["tx-a", None]
