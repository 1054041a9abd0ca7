"""The benchmarks' own code, on tiny data: timing, comparisons, and skipped peers."""
import json
import os
import random
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from models.record_format import LZ4, NONE, Batch, Row

from kafkastore.formats.indexes.index_format import offset_index, time_index
from kafkastore.segment.recovery import rebuild_indexes

FIRST_TIMESTAMP = 1_500_000_000_000
FIRST_LOG = f"{0:020}.log"


@pytest.fixture(scope="module")
def benchmarks(pytestconfig):
    return pytestconfig.rootpath / "benchmarks"


def records():
    """Give offset, timestamp, key and value of each record in a data set."""
    chance = random.Random(1)
    for offset in range(300):
        yield offset, FIRST_TIMESTAMP + offset, b"%d" % offset, chance.randbytes(offset % 40)


@pytest.fixture
def work(tmp_path):
    """Return the driver's directory, with these data sets already in place."""
    rows = [Row(*record) for record in records()]
    for name, codec in (("b", NONE), ("c-lz4", LZ4), ("index", NONE)):
        log = log_of(tmp_path, name)
        log.parent.mkdir(parents=True)
        batches = (Batch(tuple(rows[at : at + 3]), codec=codec) for at in range(0, len(rows), 3))
        log.write_bytes(b"".join(batch.data for batch in batches))
        rebuilt = rebuild_indexes(log, 0, index_interval_bytes=200)
        log.with_suffix(".index").write_bytes(rebuilt.offset_index)
        log.with_suffix(".timeindex").write_bytes(rebuilt.time_index)
    return tmp_path


def log_of(work: Path, name: str) -> Path:
    return work / "data" / name / "benchmark-0" / FIRST_LOG


def answers(benchmarks, *arguments):
    """Request the results and a round from kafkastore's side."""
    ran = subprocess.run(
        [sys.executable, benchmarks / "ours.py", *arguments],
        input="check\ntime\n", capture_output=True, text=True,
        # As in `make bench`: the modules next to it are imported.
        env=os.environ | {"PYTHONSAFEPATH": ""},
    )
    assert ran.returncode == 0, ran.stderr
    check, took = map(json.loads, ran.stdout.splitlines())
    assert took["cpu"] >= 0
    assert took["wall"] > 0
    return check, took["sum"]


def compare(benchmarks, work, *arguments, path=""):
    """Run the driver where only the programs in `path` are found."""
    return subprocess.run(
        [
            *(sys.executable, benchmarks / "run.py", "--work", work),
            *("--rounds", "2", "--warm-up", "1", *arguments),
        ],
        env=os.environ | {"PATH": str(path), "PYTHONSAFEPATH": ""}, capture_output=True, text=True,
    )


@pytest.mark.parametrize("data_set", ["b", "c-lz4"])
def test_records_are_checked_column_by_column(benchmarks, work, data_set):
    log = log_of(work, data_set)
    offsets, timestamps, keys, values = zip(*records(), strict=True)
    check, rows = answers(benchmarks, "decode", log)
    assert rows == 300
    assert check == {
        "records": 300,
        "offsets": zlib.crc32(struct.pack("<300q", *offsets)),
        "timestamps": zlib.crc32(struct.pack("<300q", *timestamps)),
        "key_lengths": zlib.crc32(struct.pack("<300i", *map(len, keys))),
        "keys": zlib.crc32(b"".join(keys)),
        "value_lengths": zlib.crc32(struct.pack("<300i", *map(len, values))),
        "values": zlib.crc32(b"".join(values)),
    }


def test_the_start_of_a_server_ends_with_its_partitions(benchmarks, work):
    assert answers(benchmarks, "serve-start", log_of(work, "b")) == ({"partitions": 1}, 1)


def test_two_columns_are_checked_like_all_columns(benchmarks, work):
    log = log_of(work, "b")
    every, _ = answers(benchmarks, "decode", log)
    two, rows = answers(benchmarks, "decode-two-columns", log)
    assert rows == 300
    assert two == {name: every[name] for name in ("records", "offsets", "timestamps")}


def test_scan_and_recovery_are_checked_by_their_batches(benchmarks, work):
    log = log_of(work, "b")
    scanned, batches = answers(benchmarks, "scan", log)
    recovered, next_offset = answers(benchmarks, "recover", log)
    last_offsets = range(2, 300, 3)
    assert (batches, next_offset) == (100, 300)
    assert scanned == {
        "batches": 100,
        "valid_bytes": log.stat().st_size,
        "last_offsets": zlib.crc32(struct.pack("<100q", *last_offsets)),
        "max_timestamps": zlib.crc32(
            struct.pack("<100q", *(FIRST_TIMESTAMP + offset for offset in last_offsets))
        ),
    }
    rebuilt = rebuild_indexes(log, 0)
    indexes = {
        "offset_index": zlib.crc32(rebuilt.offset_index),
        "time_index": zlib.crc32(rebuilt.time_index),
    }
    assert recovered == scanned | indexes
    planned, new_bytes = answers(benchmarks, "reindex", log)
    assert planned == indexes
    assert new_bytes == len(rebuilt.offset_index) + len(rebuilt.time_index)


@pytest.mark.parametrize(
    ("measure", "suffix", "index", "first"),
    [
        ("lookup-offset", ".index", offset_index, 0),
        ("lookup-time", ".timeindex", time_index, FIRST_TIMESTAMP),
    ],
)
def test_lookups_are_checked_one_by_one(benchmarks, work, measure, suffix, index, first):
    log = log_of(work, "index")
    entries = log.with_suffix(suffix).read_bytes()
    targets = [first + target for target in (5, 290, 7, 0, 131)]
    np.array(targets, "<i8").tofile(work / "targets")
    check, count = answers(benchmarks, measure, log, work / "targets")
    found = list(zip(*(index.lookup(entries, 0, target) for target in targets), strict=True))
    formats = {"offset": "<5q", "timestamp": "<5q", "position": "<5i"}
    names = index.lookup(entries, 0, first)._fields
    assert count == 5
    assert check == {"entries": index.entry_count(entries)} | {
        f"{name}s": zlib.crc32(struct.pack(formats[name], *column))
        for name, column in zip(names, found, strict=True)
    }


def test_a_scan_with_a_wrong_checksum_has_no_time(benchmarks, work):
    log = log_of(work, "b")
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    ran = compare(benchmarks, work, "--only", "scan", "--sets", "b")
    assert ran.returncode == 1
    assert ran.stdout.splitlines()[-1].split() == [
        "scan", "b", "FAILED:", "a", "checksum", "is", "wrong",
    ]
    assert (work / "bench.jsonl").read_text() == ""


def test_a_peer_without_its_tools_is_named(benchmarks, work):
    ran = compare(benchmarks, work, "--only", "scan", "--sets", "b")
    assert ran.returncode == 0, ran.stderr
    _, left_out, ours = ran.stdout.splitlines()
    assert left_out.split() == ["scan", "b", "kafka", "recover", "not", "run:", "no", "java"]
    assert ours.split()[:3] == ["scan", "b", "kafkastore"]
    (line,) = (work / "bench.jsonl").read_text().splitlines()
    sample = json.loads(line)
    assert (sample["measure"], sample["set"], sample["who"]) == ("scan", "b", "kafkastore")
    assert len(sample["cpu"]) == len(sample["wall"]) == 2


def test_data_sets_cannot_be_made_without_java(benchmarks, work):
    ran = compare(benchmarks, work, "--only", "scan", "--sets", "a")
    assert ran.returncode == 1
    assert ran.stderr == "no data sets: no java\n"


def test_verify_and_a_dry_run_are_checked_for_problems(benchmarks, work):
    log = log_of(work, "b")
    commands = ("verify", "dry-run")
    rebuilt = rebuild_indexes(log, 0)  # the dry run's index interval is Kafka's
    log.with_suffix(".index").write_bytes(rebuilt.offset_index)
    log.with_suffix(".timeindex").write_bytes(rebuilt.time_index)
    assert [answers(benchmarks, each, log)[0] for each in commands] == [{"bad_files": 0}] * 2
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    for each in commands:
        check, lines = answers(benchmarks, each, log)
        assert check["bad_files"] > 0
        assert lines > 0


def write_java(work: Path, script: str) -> Path:
    """Put a script where Java is looked for, and jars where they are fetched to."""
    (work / "jars").mkdir()
    folder = work / "bin"
    folder.mkdir()
    for name, text in (("java", script), ("javac", "#!/bin/sh\n")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        ("timestamp: 1500000000002 offset: 2", "x  4x:"),
        ("Found timestamp mismatch in :0.timeindex", "1 by kafka-dump timeindex"),
    ],
)
def test_a_dump_counts_when_it_finds_what_verify_finds(benchmarks, work, line, outcome):
    log_of(work, "b").parents[1].rename(work / "data" / "b-32")
    path = write_java(work, f'#!/bin/sh\necho "$@" >>{work}/words\necho "{line}"\n')
    ran = compare(
        benchmarks, work, "--only", "verify", "--sets", "b-32", path=f"{path}:/bin:/usr/bin"
    )
    assert outcome in ran.stdout, ran.stderr
    words = (work / "words").read_text().splitlines()[0].split()
    index = log_of(work, "b-32").with_suffix(".timeindex")
    assert words[-3:] == ["--verify-index-only", "--files", str(index)]


def write_rust_peer(work: Path, script: str) -> Path:
    """Put a script where cargo leaves the peer in Rust; return a folder with a `cargo`."""
    peer, cargo = work / "rust" / "release" / "rust-peer", work / "bin" / "cargo"
    for path, text in ((peer, script), (cargo, "#!/bin/sh\n")):
        path.parent.mkdir(parents=True)
        path.write_text(text)
        path.chmod(0o755)
    return cargo.parent


def test_a_peer_with_the_same_results_is_compared(benchmarks, work):
    script = f'#!/bin/sh\nexec "{sys.executable}" "{benchmarks}/ours.py" "${{1%-memory}}" "$2"\n'
    path = write_rust_peer(work, script)
    ran = compare(benchmarks, work, "--only", "decode", "--sets", "c-lz4", path=path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    *_, ours, rust, from_memory = ran.stdout.splitlines()
    assert ours.split()[:3] == ["decode", "c-lz4", "kafkastore"]
    assert rust.split()[:4] == ["decode", "c-lz4", "rust", "decode"]
    assert rust.split()[-2] == "1.25x:"
    assert rust.split()[-1] in ("ok", "BELOW")
    assert from_memory.split()[:4] == ["decode", "c-lz4", "rust", "decode-memory"]
    assert from_memory.split()[-1].endswith("x")


def test_a_peer_with_other_results_has_no_time(benchmarks, work):
    path = write_rust_peer(work, "#!/bin/sh\nread question\necho '{\"records\": 299}'\n")
    ran = compare(benchmarks, work, "--only", "decode", "--sets", "c-lz4", path=path)
    assert ran.returncode == 1
    assert "FAILED: records: 300 by kafkastore, 299 by rust decode" in ran.stdout
    assert (work / "bench.jsonl").read_text() == ""


def test_appended_batches_are_the_log_again_with_its_indexes(benchmarks, work):
    log = log_of(work, "b")
    found, size = answers(benchmarks, "append", log)
    assert found["size"] == size == log.stat().st_size
    assert found["log"] == zlib.crc32(log.read_bytes())
    rebuilt = rebuild_indexes(log, 0)
    assert found["offset_index"] == zlib.crc32(rebuilt.offset_index)
    assert found["time_index"] == zlib.crc32(rebuilt.time_index)
    assert not list(work.glob("**/append-*"))
