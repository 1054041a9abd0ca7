from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli.running import Run

from kafkastore.log.batch_columns import TIMESTAMP_TYPE_NAMES


def files_of(golden_case: Any, suffix: str) -> list[tuple[Path, Any]]:
    """Return the files of a case that Kafka's tool decoded, with its output."""
    found = []
    for name, answers in golden_case.answers["partitions"].items():
        dump = answers.get("dump") or {}
        printed = dump.get("batches", {}) if suffix == ".log" else dump
        found += [
            (golden_case.logs / name / file, decoded)
            for file, decoded in printed.items()
            if file.endswith(suffix) and (golden_case.logs / name / file).exists()
        ]
    return found


HEALTHY = ["codecs", "create-time-*", "log-append-time", "transactions", "old-formats", "compacted"]


@pytest.mark.golden_cases(names=HEALTHY, versions=["0.10.2.2", "2.4.0", "4.1.1"], answers="answers")
def test_index_entries_are_those_of_kafkas_own_tool(run: Run, golden_case: Any) -> None:
    decoded = 0
    for path, expected in files_of(golden_case, ".index"):
        rows = run("dump", path, "--json").lines
        assert [[row["offset"], row["position"]] for row in rows] == expected
        decoded += len(expected)
    for path, expected in files_of(golden_case, ".timeindex"):
        rows = run("dump", path, "--json").lines
        assert [[row["timestamp"], row["offset"]] for row in rows] == expected
        decoded += len(expected)
    assert decoded


@pytest.mark.golden_cases(names=HEALTHY, versions=["2.4.0", "4.1.1"], answers="answers")
def test_batches_are_those_of_kafkas_own_tool(run: Run, golden_case: Any) -> None:
    fields = {
        "base_offset": "base_offset", "last_offset": "last_offset", "position": "position",
        "count": "count", "is_transactional": "is_transactional", "is_control": "is_control",
        "producer_id": "producer_id", "size": "size",
    }
    compared = 0
    for path, expected in files_of(golden_case, ".log"):
        rows = run("dump", path, "--json").lines
        assert len(rows) == len(expected)
        for row, batch in zip(rows, expected, strict=True):
            assert row["crc_valid"] is True
            assert row["last_offset"] == batch["last_offset"]
            for ours, theirs in fields.items():
                if batch.get(theirs) is not None and row[ours] is not None:
                    assert row[ours] == batch[theirs], (path, ours)
                    compared += 1
    assert compared


@pytest.mark.golden_cases(names=["codecs", "headers-and-nulls"], answers="answers")
def test_records_of_every_format_are_shown(run: Run, golden_case: Any) -> None:
    for name in golden_case.answers["partitions"]:
        for path in sorted((golden_case.logs / name).glob("*.log"))[:2]:
            rows = run("dump", "--records", path, "--json").lines
            records = [row for row in rows if row["kind"] == "record"]
            counts = [row["count"] for row in rows if row["kind"] == "batch"]
            if None not in counts:
                assert len(records) == sum(counts)
            assert all(row["timestamp_type"] in TIMESTAMP_TYPE_NAMES.values() for row in records)
            text = run("dump", "--records", path)
            assert text.code == 0
            assert text.out.count("    offset ") == len(records)


def test_long_values_are_shortened_without_the_option_to_show_all(
    run: Run, sample_root: Path
) -> None:
    log = sample_root / "up-1" / "00000000000000000044.log"
    assert "… (78 bytes)" in run("dump", "--records", log).out
    full = run("dump", "--records", "--full", log).out
    assert "…" not in full
    assert max(map(len, full.splitlines())) > 200


def test_padding_is_reported_and_is_not_a_problem(
    run: Run, sample_root: Path, tmp_path: Path
) -> None:
    index = tmp_path / "00000000000000000022.index"
    index.write_bytes((sample_root / "up-0" / index.name).read_bytes() + bytes(80))
    ran = run("dump", index)
    assert ran.code == 0
    assert ran.out.splitlines()[-1] == "10 slots of zeros after them, preallocated"
    assert run("dump", index, "--json").lines[-1] == {
        "kind": "zero_padding", "file": str(index), "slot": 9, "slots": 10}


def test_an_index_out_of_order_is_completely_shown_and_reported(
    run: Run, sample_root: Path, tmp_path: Path
) -> None:
    data = (sample_root / "up-0" / "00000000000000000022.index").read_bytes()
    index = tmp_path / "00000000000000000022.index"
    index.write_bytes(data[:16] + data[8:16] + data[:8])
    ran = run("dump", index)
    assert ran.code == 2
    assert len(ran.out.splitlines()) == 5
    assert "out of order" in ran.err
    assert "at byte 16" in ran.err


def test_an_empty_index_is_reported(run: Run, tmp_path: Path) -> None:
    index = tmp_path / "00000000000000000000.timeindex"
    index.touch()
    assert run("dump", index).out == "no entries\n"
    assert run("dump", index, "--json").out == ""


def test_a_torn_tail_prints_a_note(run: Run, golden: Any) -> None:
    logs = golden("2.4.0", "crash-torn", "answers").logs
    last = sorted((logs / "crash-0").glob("*.log"))[-1]
    ran = run("dump", last)
    assert ran.code == 0
    assert ran.err.startswith(f"note: {last} has ")
    assert "after its last complete batch" in ran.err


@pytest.mark.parametrize("number", [0, -1])
def test_a_length_that_leads_beyond_the_end_of_the_file_is_not_a_torn_tail(
    run: Run, sample_copy: Path, number: int
) -> None:
    path = sorted((sample_copy / "up-0").glob("*.log"))[number]
    data = bytearray(path.read_bytes())
    data[8] |= 16
    path.write_bytes(data)
    ran = run("dump", path)
    assert ran.code == 2
    assert "torn" not in ran.err
    assert path.name in ran.err


def test_small_files_are_decoded_by_their_names(run: Run, golden: Any) -> None:
    logs = golden("3.9.1", "leader-epochs", "answers").logs
    partition = next(logs.glob("*/leader-epoch-checkpoint")).parent
    files = [
        logs / "meta.properties", logs / "recovery-point-offset-checkpoint",
        logs / "replication-offset-checkpoint", logs / "log-start-offset-checkpoint",
        logs / ".kafka_cleanshutdown", partition / "leader-epoch-checkpoint",
        partition / "partition.metadata",
    ]
    ran = run("dump", *files, "--json")
    assert ran.code == 0
    assert {row["kind"] for row in ran.lines} >= {
        "property", "offset_checkpoint_entry", "clean_shutdown", "leader_epoch",
        "partition_metadata",
    }
    shown = run("dump", *files)
    assert shown.code == 0
    assert all(f"{file}:" in shown.out for file in files)


def test_a_kraft_snapshot_is_decoded_as_batches(run: Run, golden: Any) -> None:
    logs = golden("3.9.1", "kraft-metadata", "answers").logs
    snapshots = sorted((logs / "__cluster_metadata-0").glob("*.checkpoint"))
    for snapshot in snapshots:
        assert run("dump", "--records", snapshot).code == 0
    metadata = sorted((logs / "__cluster_metadata-0").glob("*.log"))
    assert run("dump", *metadata).code == 0
