"""Dumps of transaction indexes, producer snapshots and markers."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli.running import Run

from kafkastore.formats.indexes import transaction_index
from kafkastore.formats.state import producer_snapshot

ENTRIES = [(7, 0, 10, 11), (2**40, 5, 15, 13)]
PRODUCERS = [
    (7, 0, 9, 96, 1, 1500000000123, 4, 90),
    (8, 32767, -1, -1, 0, -1, -1, -1),
]


@pytest.fixture
def txn_index(tmp_path: Path) -> Path:
    path = tmp_path / "00000000000000000003.txnindex"
    path.write_bytes(transaction_index.pack(ENTRIES))
    return path


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    path = tmp_path / "00000000000000000100.snapshot"
    path.write_bytes(producer_snapshot.pack(PRODUCERS))
    return path


@pytest.mark.golden_cases(names="transactions", answers="answers")
def test_aborted_transactions_are_those_of_kafkas_own_tool(run: Run, golden_case: Any) -> None:
    compared = 0
    for path in sorted(golden_case.logs.rglob("*.txnindex")):
        dump = golden_case.answers["partitions"][path.parent.name]["dump"]
        ran = run("dump", path, "--json")
        assert ran.code == 0
        assert ran.lines == [
            {"kind": "transaction_index_entry", "file": str(path), "slot": slot,
             "producer_id": entry["producer_id"], "first_offset": entry["firstOffset"],
             "last_offset": entry["last_offset"], "last_stable_offset": entry["lastStableOffset"]}
            for slot, entry in enumerate(dump[path.name])
        ]
        shown = run("dump", path)
        assert shown.code == 0
        assert len(shown.out.splitlines()) == 1 + len(dump[path.name])
        compared += len(ran.lines)
    assert compared >= 8


def test_a_transaction_index_is_shown_as_a_table(run: Run, txn_index: Path) -> None:
    head, *rows = run("dump", txn_index).out.splitlines()
    assert " ".join(head.split()) == (
        "slot producer id first offset last offset last stable offset"
    )
    assert [row.split() for row in rows] == [
        [str(slot), *map(str, entry)] for slot, entry in enumerate(ENTRIES)
    ]


def test_an_empty_transaction_index_is_reported(run: Run, txn_index: Path) -> None:
    txn_index.write_bytes(b"")
    assert run("dump", txn_index).out == "no entries\n"
    assert run("dump", txn_index, "--json").out == ""


@pytest.mark.parametrize(
    ("damage", "shown", "complaint"),
    [
        (lambda data: data + b"\0\0\1", 2, "not a multiple of 34 in {path} at byte 68;"),
        (lambda data: data[:34] + b"\0\2" + data[36:], 1,
         "entry 1 has version 2, not 0 in {path} at byte 34;"),
        (lambda data: b"\1" + data[1:], 0, "entry 0 has version 256, not 0 in {path} at byte 0;"),
        (lambda data: data[34:] + data[:34], 2,
         "entry 1 is out of order in {path} at byte 34;"),
        (lambda data: data[:18] + bytes(7) + b"\2" + data[26:], 2,
         "entry 0 has last offset 2, below the base offset 3 in {path} at byte 0;"),
    ],
    ids=["torn", "version", "first version", "disorder", "below the base offset"],
)
def test_a_corrupt_transaction_index_is_shown_up_to_the_damage(
    run: Run, txn_index: Path, damage: Any, shown: int, complaint: str
) -> None:
    txn_index.write_bytes(damage(txn_index.read_bytes()))
    for options in ((), ("--json",)):
        ran = run("dump", txn_index, *options)
        assert ran.code == 2
        assert ran.err.count("\n") == 1
        assert complaint.format(path=txn_index) in ran.err
        if options:
            assert [row["slot"] for row in ran.lines] == list(range(shown))
        else:
            assert len(ran.out.splitlines()) == shown + bool(shown)


@pytest.mark.golden_cases(names="transactions", answers="answers")
def test_snapshots_of_brokers_are_shown(run: Run, golden_case: Any) -> None:
    for name in ("txn-0", "txn-1"):
        for path in sorted((golden_case.logs / name).glob("*.snapshot")):
            entries = producer_snapshot.parse(path.read_bytes())
            ran = run("dump", path, "--json")
            assert ran.code == 0
            assert [row["producer_id"] for row in ran.lines] == entries["producer_id"].tolist()
            assert len(run("dump", path).out.splitlines()) == 1 + len(entries)


def test_a_snapshot_has_null_and_dashes_for_unknown_values(run: Run, snapshot: Path) -> None:
    ran = run("dump", snapshot, "--json")
    assert ran.lines == [
        {"kind": "producer_snapshot_entry", "file": str(snapshot), "producer_id": 7,
         "producer_epoch": 0, "last_sequence": 9, "last_offset": 96, "offset_delta": 1,
         "timestamp": 1500000000123, "coordinator_epoch": 4, "current_txn_first_offset": 90},
        {"kind": "producer_snapshot_entry", "file": str(snapshot), "producer_id": 8,
         "producer_epoch": 32767, "last_sequence": None, "last_offset": None, "offset_delta": 0,
         "timestamp": -1, "coordinator_epoch": None, "current_txn_first_offset": None},
    ]
    _, known, unknown = run("dump", snapshot, "--tz", "UTC").out.splitlines()
    assert known.split() == ["7", "0", "9", "96", "1", "2017-07-14T02:40:00.123+00:00", "4", "90"]
    assert unknown.split() == ["8", "32767", "-", "-", "0", "-", "-", "-"]


def test_a_snapshot_without_producers_is_reported(run: Run, snapshot: Path) -> None:
    snapshot.write_bytes(producer_snapshot.pack([]))
    assert run("dump", snapshot).out == "no producers\n"
    assert run("dump", snapshot, "--json").out == ""


@pytest.mark.parametrize(
    ("damage", "shown", "complaint"),
    [
        (lambda data: data[:-1] + b"\0", 2, "producer snapshot has a wrong checksum (stored 0x"),
        (lambda data: data[:-1], 1, "ends within entry 1 of 2 in {path} at byte 56;"),
        (lambda data: data[:9], 0, "ends within its header of 10 bytes in {path} at byte 9;"),
        (lambda data: b"", 0, "ends within its header of 10 bytes in {path} at byte 0;"),
        (lambda data: b"\0\2" + data[2:], 0, "version 2, not 1 in {path} at byte 0;"),
    ],
    ids=["checksum", "cut", "head", "empty", "version"],
)
def test_a_corrupt_snapshot_is_shown_as_far_as_possible(
    run: Run, snapshot: Path, damage: Any, shown: int, complaint: str
) -> None:
    snapshot.write_bytes(damage(snapshot.read_bytes()))
    for options in ((), ("--json",)):
        ran = run("dump", snapshot, *options)
        assert ran.code == 2
        assert ran.err.count("\n") == 1
        assert complaint.format(path=snapshot) in ran.err
        assert "kafkastore verify" in ran.err  # only verify reports what a broker does with it
        assert len(ran.out.splitlines()) == (shown if options else shown + bool(shown))


def test_markers_are_shown_with_their_type(run: Run, golden: Any) -> None:
    logs = golden("2.4.0", "transactions", "answers").logs
    path = logs / "txn-1" / "00000000000000000009.log"
    types = {row["base_offset"]: row["control_type"] for row in run("dump", path, "--json").lines}
    markers = {offset: name for offset, name in types.items() if name}
    assert markers == {
        9: "ABORT", 10: "ABORT", 16: "ABORT", 17: "ABORT", 26: "COMMIT", 27: "COMMIT"
    }
    shown = run("dump", path).out
    assert shown.count("transactional, control ABORT\n") == 4
    assert shown.count("transactional, control COMMIT\n") == 2


def test_a_corrupt_marker_has_no_type(
    run: Run, golden: Any, tmp_path: Path
) -> None:
    logs = golden("2.4.0", "transactions", "answers").logs
    data = bytearray((logs / "txn-1" / "00000000000000000009.log").read_bytes()[:78])
    path = tmp_path / "00000000000000000009.log"
    path.write_bytes(data[:69] + b"\x09" + data[70:])
    (row,) = run("dump", path, "--json").lines
    assert (row["is_control"], row["control_type"], row["crc_valid"]) == (True, "9", False)
    path.write_bytes(data[:62] + b"\xff" * 8 + data[70:])
    (row,) = run("dump", path, "--json").lines
    assert (row["is_control"], row["control_type"]) == (True, None)
    assert "control ?" in run("dump", path).out
