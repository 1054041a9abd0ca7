from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli.running import Run, assert_one_sentence
from models.log_directory import Log, Segment
from models.record_format import GZIP, Batch, Row
from models.record_strategies import in_a_row

from kafkastore import open as open_store

FORMATS = ["codecs", "headers-and-nulls", "old-formats", "transactions", "compacted", "upgrade"]


def field(row: dict[str, Any], name: str) -> str | None:
    """Return a key or value as in the answers: base64, or a digest if it is long."""
    if f"{name}_base64" in row:
        data = base64.b64decode(row[f"{name}_base64"])
    elif row[name] is None:
        return None
    else:
        data = row[name].encode()
    if name == "value" and len(data) > 4096:
        return f"sha256:{hashlib.sha256(data).hexdigest()}:{len(data)}"
    return base64.b64encode(data).decode()


@pytest.mark.golden_cases(names=FORMATS, answers="answers")
def test_json_has_the_records_that_a_consumer_received(run: Run, golden_case: Any) -> None:
    for name, answers in golden_case.answers["partitions"].items():
        if not (golden_case.logs / name).exists():
            continue
        rows = run("cat", golden_case.logs, "--topic", name, "--json", "--headers").lines
        got = [row for row in rows if f"{row['topic']}-{row['partition']}" == name]
        expected = answers["records"]
        assert [row["offset"] for row in got] == [each[0] for each in expected]
        assert [row["timestamp"] for row in got] == [each[1] for each in expected]
        assert [row["timestamp_type"] for row in got] == [each[2] for each in expected]
        assert [field(row, "key") for row in got] == [each[3] for each in expected]
        assert [field(row, "value") for row in got] == [each[4] for each in expected]
        assert [
            [[each["name"], field(each, "value")] for each in row["headers"]] for row in got
        ] == [each[5] for each in expected]
        assert [row["leader_epoch"] for row in got] == [each[6] for each in expected]


def test_text_has_one_line_a_record_with_separated_fields(run: Run, sample_root: Path) -> None:
    ran = run("cat", sample_root, "--topic", "up-1")
    lines = [line.split("\t") for line in ran.out.splitlines()]
    assert len(lines) == 60
    assert {len(line) for line in lines} == {5}
    assert lines[44][:4] == ["up-1", "44", "2017-07-14T02:41:14.634Z", "k35"]


@pytest.mark.parametrize(
    ("start", "end"), [(0, 60), (23, 45), (24, 25), (59, 100), (10, 10), (70, 80)]
)
def test_offsets_limit_the_printed_records(
    run: Run, sample_root: Path, start: int, end: int
) -> None:
    ran = run(
        "cat", sample_root / "up-1", "--from-offset", start, "--until-offset", end, "--json"
    )
    assert [row["offset"] for row in ran.lines] == list(range(start, min(end, 60)))
    if not ran.out:
        assert ran.err == (
            "note: no record matches; up-1 has offsets 0 to 59\n"
        )


@pytest.mark.golden_cases(
    names=["create-time-*", "log-append-time", "compacted", "upgrade"],
    versions=["0.8.2.2", "0.10.0.1", "2.4.0"],
    answers="answers",
)
def test_times_limit_the_printed_and_written_records(
    run: Run, golden_case: Any, tmp_path: Path
) -> None:
    for name, answers in golden_case.answers["partitions"].items():
        stamps = [each[1] for each in answers["records"]]
        if not stamps:
            continue
        middle = sorted(stamps)[len(stamps) // 2]
        for start, end in ((middle, None), (None, max(middle, 0)), (max(middle, 0), middle + 500)):
            options = []
            options += [] if start is None or start < 0 else ["--from", start]
            options += [] if end is None or end < 0 else ["--until", end]
            expected = [
                each[0] for each in answers["records"]
                if (start is None or start < 0 or each[1] >= start)
                and (end is None or end < 0 or each[1] < end)
            ]
            ran = run("cat", golden_case.logs / name, *options, "--json")
            assert [row["offset"] for row in ran.lines] == expected
            output = tmp_path / "records.arrow"
            run("cat", golden_case.logs / name, *options, "--format", "arrow", "-o", output)
            with pa.ipc.open_file(output) as file:
                assert file.read_all()["offset"].to_pylist() == expected


def test_a_time_can_be_relative_to_the_newest_record(run: Run, sample_root: Path) -> None:
    ran = run("cat", sample_root, "--topic", "up-0", "--from", "-200ms", "--relative-to", "newest",
              "--json")
    assert [row["offset"] for row in ran.lines] == [75, 76, 77, 78, 79]
    ran = run("cat", sample_root, "--topic", "up-empty", "--from", "-1h", "--relative-to", "newest")
    assert_one_sentence(ran, "no selected record has a timestamp", "absolute")


def test_seconds_instead_of_ms_print_a_note(run: Run, sample_root: Path) -> None:
    ran = run("cat", sample_root, "--from", "1500000000", "--limit", 1)
    assert ran.code == 0
    assert "note: 1500000000 is taken as ms" in ran.err
    assert "1500000000000" in ran.err


def test_a_limit_counts_over_all_partitions(run: Run, sample_root: Path, tmp_path: Path) -> None:
    lines = run("cat", sample_root).out.splitlines()
    for limit in (0, 1, 80, 81, 1000):
        assert run("cat", sample_root, "--limit", limit).out.splitlines() == lines[:limit]
        output = tmp_path / f"{limit}.parquet"
        assert run(
            "cat", sample_root, "--limit", limit, "--format", "parquet", "-o", output
        ).code == 0
        assert pq.read_table(output).num_rows == min(limit, 220)


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_columns_are_written_as_in_spark(
    run: Run, golden: Any, tmp_path: Path, form: str
) -> None:
    logs = golden("2.4.0", "headers-and-nulls", "answers").logs
    output = tmp_path / f"records.{form}"
    for options, headers in (([], False), (["--headers"], True)):
        ran = run("cat", logs, "--format", form, "-o", output, *options)
        assert (ran.code, ran.out, ran.err) == (0, "", "")
        if form == "parquet":
            table = pq.read_table(output)
        else:
            with pa.ipc.open_file(output) as file:
                table = file.read_all()
        expected = pa.concat_tables(
            [log.to_arrow(include_headers=headers).read_all() for log in open_store(logs)]
        )
        assert table.equals(expected)
        assert table.column_names[:7] == [
            "key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


@pytest.mark.golden_cases(names=["transactions"], answers="answers")
@pytest.mark.parametrize("form", ["json", "parquet"])
def test_committed_records_are_those_that_a_consumer_got(
    run: Run, golden_case: Any, tmp_path: Path, form: str
) -> None:
    for name, answers in golden_case.answers["partitions"].items():
        if "committed_offsets" not in answers:
            continue
        topic, _, partition = name.rpartition("-")
        wanted = ["--topic", topic, "--partition", partition, "--isolation", "read_committed"]
        if form == "json":
            rows = run("cat", golden_case.logs, *wanted, "--json").lines
            offsets = [row["offset"] for row in rows]
        else:
            output = tmp_path / f"{name}.parquet"
            run("cat", golden_case.logs, *wanted, "--format", form, "-o", output)
            offsets = pq.read_table(output)["offset"].to_pylist()
        assert offsets == answers["committed_offsets"]


def test_two_formats_are_refused(run: Run, sample_root: Path) -> None:
    assert_one_sentence(
        run("cat", sample_root, "--format", "parquet", "--json", "-o", "x"), "combined"
    )


def test_an_output_file_equals_the_printed_output(
    run: Run, sample_root: Path, tmp_path: Path
) -> None:
    for form in ("text", "json"):
        output = tmp_path / form
        printed = run("cat", sample_root, "--format", form)
        ran = run("cat", sample_root, "--format", form, "-o", output)
        assert (ran.code, ran.out) == (0, "")
        assert output.read_text() == printed.out
    assert sorted(os.listdir(tmp_path)) == ["json", "text"]


def test_an_output_file_keeps_the_mode_of_the_file_it_replaces(
    run: Run, sample_root: Path, tmp_path: Path
) -> None:
    output = tmp_path / "records"
    output.write_text("old")
    output.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(output)
    assert run("cat", sample_root, "-o", link).code == 0
    assert link.is_symlink()
    assert output.stat().st_mode & 0o777 == 0o640
    mask = os.umask(0)
    os.umask(mask)
    run("cat", sample_root, "-o", tmp_path / "new")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o666 & ~mask


def test_the_output_is_never_in_the_input_directory(run: Run, sample_copy: Path) -> None:
    log = sample_copy / "up-0" / "00000000000000000000.log"
    before = log.read_bytes()
    for source in (sample_copy, sample_copy / "up-0"):
        for output in (log, source / "records"):
            assert_one_sentence(run("cat", source, "-o", output), "only read")
    assert log.read_bytes() == before


def test_an_output_path_that_cannot_be_a_file_is_refused_before_reading(
    run: Run, sample_root: Path, tmp_path: Path
) -> None:
    assert_one_sentence(run("cat", sample_root, "-o", tmp_path), "not a regular file")
    missing = tmp_path / "missing" / "records"
    assert_one_sentence(run("cat", sample_root, "-o", missing), str(missing.parent))


def test_an_empty_partition_prints_no_records_and_a_note(run: Run, sample_root: Path) -> None:
    ran = run("cat", sample_root, "--topic", "up-empty")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == "note: no record matches; up-empty-0 has no records\n"


@pytest.mark.parametrize(
    ("name", "form"),
    [("a.parquet", "parquet"), ("a.ARROW", "arrow"), ("a.json", "json"), ("a.jsonl", "json"),
     ("a.txt", "text"), ("parquet", "text")],
)  # fmt: skip
def test_the_suffix_of_the_output_selects_the_format(
    run: Run, sample_root: Path, tmp_path: Path, name: str, form: str
) -> None:
    named, given = tmp_path / name, tmp_path / "given"
    run("cat", sample_root, "--topic", "up-1", "-o", named)
    run("cat", sample_root, "--topic", "up-1", "--format", form, "-o", given)
    assert named.read_bytes() == given.read_bytes()
    other = tmp_path / "other.parquet"
    run("cat", sample_root, "--topic", "up-1", "--format", "text", "-o", other)
    assert other.read_text() == run("cat", sample_root, "--topic", "up-1").out


@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_an_output_may_be_standard_output(
    execute: Run, sample_root: Path, tmp_path: Path, name: str
) -> None:
    printed = execute("cat", sample_root, "--topic", "up-1")
    assert execute("cat", sample_root, "--topic", "up-1", "-o", name) == printed
    assert not Path("-").exists()


def test_columns_can_be_written_to_a_pipe(sample_root: Path, tmp_path: Path) -> None:
    pipe, written = tmp_path / "pipe", tmp_path / "a.parquet"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "kafkastore.cli", "cat", str(sample_root), "--format"]
    with open(written, "wb") as file, subprocess.Popen(["cat", str(pipe)], stdout=file) as reader:
        subprocess.run([*command, "parquet", "-o", str(pipe)], check=True, timeout=800)
        reader.wait(timeout=800)
    assert pq.read_table(written).num_rows == 220
    data = subprocess.run(
        [*command, "arrow", "-o", "-"], check=True, timeout=800, stdout=subprocess.PIPE
    ).stdout
    assert pa.ipc.open_file(pa.py_buffer(data)).read_all().num_rows == 220
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.parquet", "pipe"]


def test_a_limit_beyond_64_bits_is_unlimited(run: Run, sample_root: Path, tmp_path: Path) -> None:
    limited = run("cat", sample_root, "--limit", 2**63)
    assert (limited.code, limited.out) == (0, run("cat", sample_root).out)
    output = tmp_path / "a.parquet"
    assert run("cat", sample_root, "--limit", 2**63, "-o", output).code == 0
    assert pq.read_table(output).num_rows == 220


@pytest.mark.parametrize("form", ["text", "json"])
def test_memory_is_bounded_by_one_decompressed_batch(
    run: Run, tmp_path: Path, form: str
) -> None:
    """The previous batch is not in memory at the same time."""
    rows = tuple(Row(at, 1_600_000_000_000, b"k", b"v" * 50_000) for at in range(200))
    size = 200 * 50_000
    batches = tuple(in_a_row([Batch(rows, codec=GZIP)] * 3))
    logs = Log((Segment(0, batches),)).write(tmp_path / "logs")
    run("cat", logs, "--limit", 1, "-o", tmp_path / "before")  # imports count once
    tracemalloc.start()
    try:
        assert run("cat", logs, "--format", form, "-o", tmp_path / "records").code == 0
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (tmp_path / "records").stat().st_size > 3 * size
    assert most < 2.5 * size


@pytest.mark.parametrize("options", [["--json"], ["--format", "text"], ["--format", "arrow"]])
def test_records_that_belong_to_the_next_segment_are_reported_not_silently_left_out(
    run: Run, tmp_path: Path, options: list[str]
) -> None:
    batches = tuple(in_a_row([Batch((Row(0, 100, b"k", b"v"),)) for _ in range(6)]))
    root = Log((Segment(0, batches[:4]), Segment(4, batches[4:]))).write(tmp_path / "logs")
    directory = root / "t-0"
    (directory / f"{4:020}.log").rename(directory / f"{3:020}.log")
    ran = run("cat", root, *options, "-o", tmp_path / "records")
    assert ran.code != 0
    assert str(directory / f"{0:020}.log") in ran.err
