"""`cat --follow`: new records, rolled and deleted segments, new partitions, and how it ends."""
from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from cli.running import Run, assert_one_sentence

import kafkastore

PROGRAM = str(Path(sys.executable).with_name("kafkastore"))
SEGMENTS = {"segment.bytes": 1000}


def append(writer: Any, numbers: range) -> None:
    for number in numbers:
        fields = {"timestamp": number, "key": b"k", "value": b"value %d" % number, "headers": ()}
        writer.append_records([SimpleNamespace(**fields)])
    writer.flush()


@contextmanager
def following(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [PROGRAM, "cat", *map(str, arguments), "--follow"], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read_offsets(process: subprocess.Popen[str], count: int) -> list[tuple[int, int]]:
    """Read so many records; the test's own time limit ends a wait in vain."""
    assert process.stdout is not None
    rows = [json.loads(process.stdout.readline()) for _ in range(count)]
    return [(row["partition"], row["offset"]) for row in rows]


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=800)
    return process.returncode, out, err


def test_new_records_segments_and_partitions_are_followed(tmp_path: Path) -> None:
    root = tmp_path / "logs"
    with kafkastore.LogDirWriter(root) as log_dir:
        writer = log_dir.writer("t", 0, SEGMENTS)
        append(writer, range(30))
        with following(root, "--json", "--tail", 2) as process:
            assert read_offsets(process, 2) == [(0, 28), (0, 29)]
            append(writer, range(30, 31))
            assert read_offsets(process, 1) == [(0, 30)]
            append(writer, range(31, 90))  # rolls segments
            assert read_offsets(process, 59) == [(0, at) for at in range(31, 90)]
            assert len(list((root / "t-0").glob("*.log"))) > 3
            for path in sorted((root / "t-0").glob("*.log"))[:-1]:
                for file in (root / "t-0").glob(path.stem + ".*"):
                    file.unlink()
            append(log_dir.writer("t", 1, SEGMENTS), range(3))
            assert read_offsets(process, 3) == [(1, 0), (1, 1), (1, 2)]
            append(writer, range(90, 91))
            assert read_offsets(process, 1) == [(0, 90)]
            assert end(process) == (0, "", "")


def test_only_matching_records_are_followed_up_to_the_limit(tmp_path: Path) -> None:
    root = tmp_path / "logs"
    with kafkastore.LogDirWriter(root) as log_dir:
        writer = log_dir.writer("t", 0, SEGMENTS)
        append(writer, range(12))
        options = ["--value", "1$", "--limit", 3, "--from-offset", 5]
        with following(root, "--json", *options) as process:
            assert read_offsets(process, 1) == [(0, 11)]
            append(writer, range(12, 40))
            assert read_offsets(process, 2) == [(0, 21), (0, 31)]
            assert process.wait(800) == 0


def test_an_offset_in_the_future_is_waited_for(tmp_path: Path) -> None:
    root = tmp_path / "logs"
    with kafkastore.LogDirWriter(root) as log_dir:
        writer = log_dir.writer("t", 0, SEGMENTS)
        append(writer, range(5))
        with following(root, "--json", "--from-offset", 8, "--limit", 2) as process:
            time.sleep(1)
            append(writer, range(5, 10))
            assert read_offsets(process, 2) == [(0, 8), (0, 9)]
            assert process.wait(800) == 0


@pytest.mark.parametrize("form", ["arrows", "json"])
def test_an_output_file_is_complete_after_an_interrupt(
    run: Run, tmp_path: Path, form: str
) -> None:
    root, output = tmp_path / "logs", tmp_path / f"followed.{form}"
    with kafkastore.LogDirWriter(root) as log_dir:
        append(log_dir.writer("t", 0, SEGMENTS), range(7))
    run("cat", root, "-o", tmp_path / f"read.{form}")
    expected = (tmp_path / f"read.{form}").read_bytes()
    footer = {"arrows": 8, "json": 0}
    with following(root, "-o", output) as process:
        deadline = time.monotonic() + 800
        while time.monotonic() < deadline and not any(
            path.stat().st_size >= len(expected) - footer[form]
            for path in tmp_path.glob(".followed*")
        ):
            time.sleep(0.05)
        assert not output.exists()
        assert end(process) == (0, "", "")
    assert output.read_bytes() == expected
    assert not list(tmp_path.glob(".*"))


def test_each_partition_is_followed_into_a_file_of_its_own(tmp_path: Path) -> None:
    root, output = tmp_path / "logs", tmp_path / "{topic}" / "{partition}.json"
    with kafkastore.LogDirWriter(root) as log_dir:
        writers = [log_dir.writer("t", number, SEGMENTS) for number in range(3)]
        for writer in writers:
            append(writer, range(2))
        with following(root, "-o", output) as process:
            for count in (2, 4):
                for number in range(3):
                    wait_for_lines(process, tmp_path / "t", f".{number}.json*", count)
                for writer in writers:
                    append(writer, range(count, count + 2))
            for number in range(3):
                wait_for_lines(process, tmp_path / "t", f".{number}.json*", 6)
            assert end(process) == (0, "", "")
    for number in range(3):
        lines = (tmp_path / "t" / f"{number}.json").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        assert [(row["partition"], row["offset"]) for row in rows] == [
            (number, at) for at in range(6)
        ]


def wait_for_lines(
    process: subprocess.Popen[str], folder: Path, pattern: str, count: int
) -> None:
    """Wait until the file that matches has so many lines."""
    while not any(path.read_bytes().count(b"\n") == count for path in folder.glob(pattern)):
        assert process.poll() is None
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_completes_the_file_of_a_background_process(
    tmp_path: Path, number: signal.Signals
) -> None:
    root, output = tmp_path / "logs", tmp_path / "followed.json"
    with kafkastore.LogDirWriter(root) as log_dir:
        append(log_dir.writer("t", 0, SEGMENTS), range(7))
    ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as shells do for "command &"
    try:
        with following(root, "-o", output) as process:
            wait_for_lines(process, tmp_path, ".followed.json*", 7)
            process.send_signal(number)
            assert process.communicate(timeout=800) == ("", "")
            assert process.returncode == 0
    finally:
        signal.signal(signal.SIGINT, ignored)
    assert len(output.read_text().splitlines()) == 7
    assert not list(tmp_path.glob(".*"))


def test_an_interrupt_completes_a_parquet_file(tmp_path: Path) -> None:
    root, output = tmp_path / "logs", tmp_path / "followed.parquet"
    with kafkastore.LogDirWriter(root) as log_dir:
        append(log_dir.writer("t", 0, SEGMENTS), range(7))
    with following(root, "-o", output) as process:
        while not list(tmp_path.glob(".followed*")):
            assert process.poll() is None
            time.sleep(0.05)
        time.sleep(1)  # rows are in memory until a row group is full
        assert end(process) == (0, "", "")
    assert pq.read_table(output)["offset"].to_pylist() in ([], list(range(7)))


@pytest.mark.golden_cases(names=["transactions"], versions=["2.4.0"], answers="answers")
def test_committed_records_are_followed(run: Run, golden_case: Any) -> None:
    options = ["--json", "--isolation", "read_committed"]
    expected = run("cat", golden_case.logs, *options)
    count = len(expected.lines)
    assert count > 10
    assert run("cat", golden_case.logs, *options, "--follow", "-c", count) == expected


def test_following_ends_when_no_process_reads_its_output(tmp_path: Path) -> None:
    root = tmp_path / "logs"
    with kafkastore.LogDirWriter(root) as log_dir:
        append(log_dir.writer("t", 0, SEGMENTS), range(2))
    with following(root, "--json") as process:
        assert read_offsets(process, 2) == [(0, 0), (0, 1)]
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(800) == 141
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_following_up_to_no_record_ends_at_once(tmp_path: Path) -> None:
    with kafkastore.LogDirWriter(tmp_path / "logs") as log_dir:
        append(log_dir.writer("t", 0), range(1))
    with following(tmp_path / "logs", "--limit", 0) as process:
        assert process.communicate(timeout=800) == ("", "")


def test_deleted_and_replaced_records_are_noted(tmp_path: Path) -> None:
    root = tmp_path / "logs"
    with kafkastore.LogDirWriter(root) as log_dir:
        append(log_dir.writer("t", 0, SEGMENTS), range(30))
    with following(root, "--json") as process:
        assert len(read_offsets(process, 30)) == 30
        for path in (root / "t-0").iterdir():
            path.unlink()
        assert process.stderr is not None
        assert "t-0 ends at offset 0, and was read up to 30" in process.stderr.readline()
        assert process.poll() is None


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_following_continues_after_skipped_bytes(tmp_path: Path, isolation: str) -> None:
    root = tmp_path / "logs"
    with kafkastore.LogDirWriter(root) as log_dir:
        writer = log_dir.writer("t", 0, SEGMENTS)
        append(writer, range(30))
        path = min((root / "t-0").glob("*.log"))
        data = bytearray(path.read_bytes())
        data[-1] ^= 1  # the last batch of the first segment
        path.write_bytes(data)
        options = ["--json", "--on-corrupt", "skip", "--isolation", isolation]
        with following(root, *options) as process:
            assert len(read_offsets(process, 29)) == 29
            for count in (30, 31):
                append(writer, range(count, count + 1))
                assert read_offsets(process, 1) == [(0, count)]
            code, out, errors = end(process)
    assert (code, out) == (1, "")
    assert len(errors.splitlines()) == 1


def test_records_of_a_topic_that_is_deleted_are_kept(tmp_path: Path) -> None:
    root, output = tmp_path / "logs", tmp_path / "{partition}.json"
    with kafkastore.LogDirWriter(root) as log_dir:
        for number in range(2):
            append(log_dir.writer("t", number, SEGMENTS), range(5))
        append(log_dir.writer("other", 0, SEGMENTS), range(1))
    with following(root, "-o", output, "--topic", "t") as process:
        for number in range(2):
            wait_for_lines(process, tmp_path, f".{number}.json*", 5)
        for number in range(2):
            (root / f"t-{number}").rename(tmp_path / f"t-{number}.deleted")
        _, errors = process.communicate(timeout=800)
        assert process.returncode == 2
        assert [line.split(":")[1] for line in errors.splitlines()] == [" t-0", " t-1"]
    for number in range(2):
        assert len((tmp_path / f"{number}.json").read_text().splitlines()) == 5


def test_a_corrupt_batch_ends_its_partition(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "logs"
    with kafkastore.LogDirWriter(root) as log_dir:
        append(log_dir.writer("t", 0, {}), range(3))
    path = root / "t-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    ran = run("cat", root, "--json", "--follow")
    assert_one_sentence(ran, "t-0: ")
    assert [row["offset"] for row in ran.lines] == [0]
