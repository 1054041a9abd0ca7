"""Options by which `cat` chooses records, divides them among files, and shows them."""
from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli.running import Ran, Run, assert_one_sentence
from hypothesis import given
from hypothesis import strategies as st
from models.log_directory import Log, Segment
from models.record_format import Batch, Row
from models.record_strategies import bounded, logs

import kafkastore
from kafkastore.cli.output import output_files

PROGRAM = str(Path(sys.executable).with_name("kafkastore"))
DAY = 86_400_000
KEYS = [b"a1", b"b2", None, b"", b"a\xff", b"A3"]
HEADERS = [
    (), (("h", b"x"),), (("h", None), ("h", b"x"), ("other", b"")), (("h", b"xy"),),
    (("", b"x"), ("g", b"=")), (("h=x", b"y=z"),),
]  # fmt: skip


def write_log(root: Path, topics: dict[str, list[SimpleNamespace]], **settings: Any) -> Path:
    with kafkastore.LogDirWriter(root) as log_dir:
        for name, records in topics.items():
            topic, _, number = name.rpartition("-")
            writer = log_dir.writer(topic, int(number), settings)
            for record in records:
                writer.append_records([record])
    return root


def record(at: int, timestamp: int | None = None) -> SimpleNamespace:
    return SimpleNamespace(
        timestamp=1000 + at if timestamp is None else timestamp, key=KEYS[at % 6],
        value=b"value %d\n" % at if at % 5 else None, headers=HEADERS[at % 6],
    )  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    records = {"t-0": [record(at) for at in range(40)], "t-1": [record(at) for at in range(7)]}
    return write_log(tmp_path / "logs", records, **{"segment.bytes": 1000})


def offsets(ran: Ran) -> list[tuple[int, int]]:
    assert ran.code == 0, ran
    return [(row["partition"], row["offset"]) for row in ran.lines]


def all_records(root: Path) -> list[tuple[int, int, Any]]:
    return [
        (log.partition, each.offset, each)
        for log in kafkastore.open(root)
        for each in log.records()
    ]


FILTERS = [
    (["--key", "a"], lambda each: each.key is not None and b"a" in each.key),
    (["--key", "^$"], lambda each: each.key == b""),
    (["--key", r"\xff$"], lambda each: each.key == b"a\xff"),
    (["--key", "(?i)^a.$"], lambda each: re.search(b"(?i)^a.$", each.key or b"") is not None),
    (["--value", "^value 1"], lambda each: (each.value or b"").startswith(b"value 1")),
    (["--value", "zzz"], lambda each: False),
    (["--header", "h=x"], lambda each: ("h", b"x") in each.headers),
    (["--header", "=x"], lambda each: ("", b"x") in each.headers),
    (["--header", "g=="], lambda each: ("g", b"=") in each.headers),
    (["--header", "h=x=y=z"], lambda each: ("h=x", b"y=z") in each.headers),
    (
        ["--header", "h=x", "--header", "other=", "--key", ""],
        lambda each: each.key is not None and {("h", b"x"), ("other", b"")} <= {*each.headers},
    ),
]


@pytest.mark.parametrize(
    ("options", "matches"), FILTERS, ids=[" ".join(options) for options, _ in FILTERS]
)
def test_filters_choose_records_in_every_format(
    run: Run, root: Path, tmp_path: Path, options: list[str], matches: Any
) -> None:
    expected = [(number, at) for number, at, each in all_records(root) if matches(each)]
    assert offsets(run("cat", root, "--json", *options)) == expected
    assert offsets(run("cat", root, "--json", *options, "--limit", 3)) == expected[:3]
    assert run("cat", root, *options, "--count").out == f"{len(expected)}\n"
    lines = run("cat", root, *options, "-f", r"%p %o\n").out.splitlines()
    assert [tuple(map(int, line.split())) for line in lines] == expected
    for form in ("parquet", "arrow", "arrows"):
        output = tmp_path / f"records.{form}"
        assert run("cat", root, *options, "-o", output).code == 0
        table = table_of(output)
        assert table.column_names == ["key", "value", "topic", "partition", "offset", "timestamp",
                                      "timestampType"]
        rows = zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)
        assert list(rows) == expected


def table_of(path: Path) -> pa.Table:
    if path.suffix == ".parquet":
        return pq.read_table(path)
    opened = pa.ipc.open_file if path.suffix == ".arrow" else pa.ipc.open_stream
    with opened(path.read_bytes()) as reader:
        return reader.read_all()


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--key", "("], "--key must be a regular expression, got '('"),
        (["--value", "*"], "--value must be a regular expression"),
        (["--header", "name"], "--header must be NAME=VALUE, got 'name'"),
        (["-f", "%o %q"], "unknown field '%q'"),
        (["-f", "%"], "unknown field '%'"),
        (["-f", "%o", "--json"], "-f has the format"),
        (["-f", "%o", "--format", "csv"], "-f has the format"),
        (["-f", "%o", "-o", "up.parquet"], "and up.parquet is not text"),
        (["--count", "--format", "json"], "--count prints a number"),
        (["--count", "-o", "x"], "--count prints a number"),
        (["--count", "--follow"], "--count prints a number"),
        (["--follow", "--until", "now"], "--follow has no end"),
        (["--follow", "--until-offset", "3"], "--follow has no end"),
        (["-o", "beginning"], "-o is the output file"),
        (["-o", "up.json.gz"], "would not be compressed"),
        (["-o", "up.avro"], "up.avro would not be in the format .avro: known endings are .arrow, "),
        (["-o", "{topic}.TSV"], "would not be in the format .tsv"),
        (["-o", "-10"], "-o is the output file"),
        (["-o", "s@1500000000000"], "-o is the output file"),
        (["-o", "{topic}/{day}"], "unknown field {day}"),
        (["-o", "out/"], "out/ is a directory: add the name of a file"),
        (["-o", "by-topic/{topic}/"], "is a directory"),
        (["-o", "{nope}.csv"], "unknown field {nope}; the fields are {topic}, {partition}, {date}"),
        (["-o", "{Topic}.csv"], "unknown field {Topic}"),
        (["-o", "{ topic }.csv"], "unknown field { topic }"),
        (["-o", "{partition:03}.csv"], "unknown field {partition:03}"),
        (["-o", "{}.csv"], "unknown field {}"),
        (["-o", "{topic.csv"], "unmatched { in {topic.csv"),
        (["-o", "topic}.csv"], "unmatched } in topic}.csv"),
        (["-o", "{{topic}}.csv"], "unmatched { in {{topic}}.csv"),
        (["-o", "{topic}{.csv"], "unmatched { in {topic}{.csv"),
        (["-o", "{topic}/{date.csv"], "unmatched { in {topic}/{date.csv"),
    ],
)
def test_wrong_options_are_one_sentence(
    run: Run, root: Path, tmp_path: Path, options: list[str], part: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_one_sentence(run("cat", root, *options), part)
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]


@pytest.mark.parametrize(
    ("options", "is_text"),
    [
        (["-o", "up.txt"], True),
        (["-o", "up.log"], True),
        (["-o", "up"], True),
        (["-o", "up.2017-07-14"], True),
        (["-o", "up.avro", "--format", "text"], True),
        (["-o", "up.avro", "--json"], False),
        (["-o", "up.tsv", "-f", "%p\\t%o\\n"], False),
    ],
)
def test_other_names_and_an_explicit_format_are_written(
    run: Run, root: Path, tmp_path: Path, options: list[str], is_text: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("cat", root, *options).code == 0
    written = Path(options[1]).read_bytes()
    assert (written == run("cat", root).out.encode()) == is_text
    assert written


@bounded(40)
@given(logs(has_headers=True), st.integers(0, 12), st.integers(-2, 45), st.data())
def test_the_tail_and_the_count_are_those_of_the_printed_records(
    tmp_path_factory: Any, run: Run, log: Any, tail: int, start: int, data: st.DataObject
) -> None:
    root = log.write(tmp_path_factory.mktemp("logs"))
    options: list[str] = []
    if start >= 0:
        options += data.draw(st.sampled_from([["--from", str(start)], ["--key", "x"], []]))
    if data.draw(st.booleans()):
        options += ["--until-offset", str(data.draw(st.integers(0, 60)))]
    lines = run("cat", root, "--json", *options).out.splitlines()
    wanted = lines[-tail:] if tail else []
    assert run("cat", root, "--json", "--tail", tail, *options).out.splitlines() == wanted
    assert run("cat", root, "--count", *options).out == f"{len(lines)}\n"
    assert run("cat", root, "--count", "--tail", tail, *options).out == f"{len(wanted)}\n"


def test_the_tail_is_of_each_partition_and_the_limit_of_all(run: Run, root: Path) -> None:
    expected = [(0, 37), (0, 38), (0, 39), (1, 4), (1, 5), (1, 6)]
    assert offsets(run("cat", root, "--json", "--tail", 3)) == expected
    assert offsets(run("cat", root, "--json", "--tail", 3, "-c", 4)) == expected[:4]
    assert run("cat", root, "--count", "--tail", 3, "-c", 4).out == "4\n"


def test_the_tail_reads_only_the_end(run: Run, tmp_path: Path) -> None:
    records = [record(at) for at in range(3000)]
    root = write_log(tmp_path / "logs", {"t-0": records}, **{"segment.bytes": 20_000})
    segments = sorted((root / "t-0").glob("*.log"))
    assert len(segments) > 6
    for segment in segments[:3]:
        segment.write_bytes(b"\xff" * segment.stat().st_size)  # reading it is an error
    assert [row["offset"] for row in run("cat", root, "--json", "--tail", 2).lines] == [2998, 2999]
    assert run("cat", root, "--json").code == 2


@pytest.mark.golden_cases(names=["transactions"], versions=["2.4.0"], answers="answers")
def test_committed_records_are_counted_by_headers(run: Run, golden_case: Any) -> None:
    for isolation in ("read_committed", "read_uncommitted"):
        options = ["--isolation", isolation]
        lines = run("cat", golden_case.logs, "--json", *options).lines
        counted = run("cat", golden_case.logs, "--count", "--json", *options)
        assert counted.lines == [{"records": len(lines)}]
        tail = run("cat", golden_case.logs, "--json", "--tail", 2, *options).lines
        by_partition: dict[Any, list[Any]] = {}
        for row in lines:
            by_partition.setdefault((row["topic"], row["partition"]), []).append(row)
        assert tail == [row for rows in by_partition.values() for row in rows[-2:]]


def test_the_count_of_a_corrupt_partition_is_that_of_the_printed_records(
    run: Run, root: Path
) -> None:
    path = sorted((root / "t-0").glob("*.log"))[1]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    for choice, code in (("raise", 1), ("skip", 1), ("stop", 1)):
        options = ["--on-corrupt", choice]
        printed = run("cat", root, "--json", *options)
        counted = run("cat", root, "--count", *options)
        assert (printed.code, counted.code) == (code, code)
        assert counted.out == f"{len(printed.lines)}\n"
        assert printed.err == counted.err


@pytest.mark.parametrize("choice", ["skip", "stop"])
def test_a_tail_reports_corrupt_bytes_once(run: Run, root: Path, choice: str) -> None:
    path = sorted((root / "t-0").glob("*.log"))[-2]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    options = ["--topic", "t-0", "--on-corrupt", choice, "--json"]
    whole = run("cat", root, *options)
    tail = run("cat", root, *options, "--tail", 30)
    assert tail.lines == whole.lines[-30:]
    assert (tail.code, tail.err) == (1, whole.err)
    assert len(tail.err.splitlines()) == 1


def test_bytes_that_are_skipped_before_the_limit_are_reported(run: Run, root: Path) -> None:
    path = sorted((root / "t-0").glob("*.log"))[0]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    options = ["--topic", "t-0", "--on-corrupt", "skip", "--json"]
    whole = run("cat", root, *options)
    assert len(whole.lines) == 39
    assert run("cat", root, *options, "--limit", 35) == whole._replace(
        out="".join(line + "\n" for line in whole.out.splitlines()[:35])
    )


def test_csv_has_a_line_of_names_and_a_line_for_each_record(run: Run, root: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(run("cat", root, "--format", "csv").out, newline="")))
    assert [int(row["offset"]) for row in rows] == [*range(40), *range(7)]
    assert rows[1]["value"] == "value 1\n"
    assert (rows[4]["key"], rows[4]["key_base64"]) == ("", "Yf8=")


def test_columns_go_to_a_pipe_without_an_output_option(root: Path) -> None:
    readers = {
        "arrows": lambda data: pa.ipc.open_stream(data).read_all(),
        "arrow": lambda data: pa.ipc.open_file(data).read_all(),
        "parquet": lambda data: pq.read_table(io.BytesIO(data)),
    }
    for form, read in readers.items():
        command = [PROGRAM, "cat", str(root), "--format", form]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=800)
        assert read(done.stdout).num_rows == 47


@pytest.mark.parametrize("suffix", [".arrow", ".feather", ".ipc"])
def test_an_arrow_file_has_the_extensions_by_which_tools_name_it(
    run: Run, root: Path, tmp_path: Path, suffix: str
) -> None:
    output = tmp_path / f"rows{suffix}"
    assert run("cat", root, "-o", output).code == 0
    assert pa.ipc.open_file(output).read_all().num_rows == 47


def on_terminal(*arguments: object, **environment: str) -> tuple[int, str]:
    """Run `cat` with its output on a terminal; return its code, and what the terminal got."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [PROGRAM, "cat", *map(str, arguments)], stdin=theirs, stdout=theirs, stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", **environment},
    )
    os.close(theirs)
    shown = b""
    while block := read_terminal(ours):
        shown += block
    os.close(ours)
    return process.wait(800), shown.decode().replace("\r\n", "\n")


def read_terminal(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # the other end is closed
        return b""


HOSTILE = b"\x1b[2J\x1b]0;title\x07\xc2\x9b31m\xe2\x80\xae\n\x7f"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    hostile = SimpleNamespace(
        timestamp=1, key=HOSTILE, value=HOSTILE, headers=((HOSTILE.decode(), HOSTILE),)
    )
    return write_log(tmp_path / "logs", {"t-0": [hostile]})


@pytest.mark.parametrize(
    "options",
    [["--json"], ["--format", "csv"], ["-f", r"%k %s %R %h\n"], ["--format", "text"]],
    ids=lambda each: each[0],
)
def test_records_never_control_a_terminal(hostile: Path, options: list[str], run: Run) -> None:
    code, shown = on_terminal(hostile, "--headers", *options, NO_COLOR="1")
    assert code == 0
    assert all(line.replace("\t", "").isprintable() for line in shown.split("\n")), shown
    if options == ["--json"]:
        assert json.loads(shown) == run("cat", hostile, "--headers", "--json").lines[0]
    if options[0] == "-f":  # elsewhere the bytes are unchanged
        length = len(HOSTILE).to_bytes(4)
        fields = [HOSTILE, HOSTILE, length, HOSTILE + b"=" + HOSTILE]
        raw = run("cat", hostile, *options).out
        assert raw.encode() == b" ".join(fields) + b"\n"


def test_only_a_terminal_shows_colours(root: Path, run: Run) -> None:
    plain = run("cat", root, "--topic", "t-1").out
    code, shown = on_terminal(root, "--topic", "t-1")
    assert code == 0
    assert "\x1b[36mt-1\x1b[0m" in shown
    assert re.sub(r"\x1b\[[0-9]+m", "", shown) == plain
    for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert on_terminal(root, "--topic", "t-1", **environment) == (0, plain)


def test_columns_are_not_written_to_a_terminal(root: Path) -> None:
    for form, options in (("arrow", []), ("arrows", ["-o", "-"]), ("parquet", [])):
        code, shown = on_terminal(root, "--format", form, *options)
        assert code == 2
        assert "is not for terminals: give -o FILE, or a pipe" in shown


@pytest.fixture
def dated(tmp_path: Path) -> Path:
    """Return a log with records of three days, out of order, one of them without a date."""
    times = [0, DAY, 1, DAY + 1, -1, 23 * 3_600_000, 2 * DAY]
    records = [record(at, timestamp) for at, timestamp in enumerate(times)]
    topics = {"orders-0": records, "orders-1": records[:2], "payments-0": records[3:]}
    return write_log(tmp_path / "logs", topics)


def files_below(directory: Path) -> dict[str, int]:
    return {
        str(path.relative_to(directory)): len(path.read_text().splitlines())
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize(
    ("pattern", "options", "expected"),
    [
        ("{topic}.jsonl", [], {"orders.jsonl": 9, "payments.jsonl": 4}),
        ("{topic}-{partition}.txt", [], {
            "orders-0.txt": 7, "orders-1.txt": 2, "payments-0.txt": 4}),
        ("all/{date}.json", [], {
            "all/1970-01-01.json": 5, "all/1970-01-02.json": 4, "all/1970-01-03.json": 2,
            "all/undated.json": 2}),
        ("{date}.json", ["--tz", "Asia/Tokyo", "--topic", "payments"], {
            "1970-01-02.json": 2, "1970-01-03.json": 1, "undated.json": 1}),
        ("{topic}/{date}.csv", ["--topic", "orders-1"], {
            "orders/1970-01-01.csv": 2, "orders/1970-01-02.csv": 3}),
        ("{date}/{partition}.json", ["--limit", "1"], {"1970-01-01/0.json": 1}),
    ],
)  # fmt: skip
def test_a_pattern_divides_records_among_files(
    run: Run, dated: Path, tmp_path: Path, pattern: str, options: list[str],
    expected: dict[str, int], monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(output_files, "MOST_OPEN", 1)
    out = tmp_path / "out"
    ran = run("cat", dated, "-o", out / pattern, *options)
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert files_below(out) == expected


@pytest.mark.parametrize("form", ["json", "parquet"])
@pytest.mark.parametrize("zone", [[], ["--tz", "Asia/Tokyo"]])
def test_times_after_the_year_9999_are_undated(
    run: Run, tmp_path: Path, form: str, zone: list[str]
) -> None:
    last = 253_402_300_799_999  # the last ms of 9999 in UTC
    times = [last - DAY, last + DAY, 2**53, 2**62, 2**63 - 1, -1]
    records = [record(at, time) for at, time in enumerate(times)]
    limits = {"message.timestamp.after.max.ms": 2**63 - 1}
    root = write_log(tmp_path / "logs", {"t-0": records}, **limits)
    out = tmp_path / "out"
    assert run("cat", root, "-o", out / f"{{date}}.{form}", *zone).code == 0
    date = "9999-12-31" if zone else "9999-12-30"
    assert {path.name for path in out.iterdir()} == {f"{date}.{form}", f"undated.{form}"}


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_times_before_1970_have_their_dates_and_minus_1_has_none(
    run: Run, tmp_path: Path, form: str
) -> None:
    first = -62_135_596_800_000  # the first ms of the year 1
    rows = [Row(at, time) for at, time in enumerate([-1, -2, -DAY, -DAY - 1, first, first - 1])]
    root = Log((Segment(0, tuple(Batch((row,)) for row in rows)),)).write(tmp_path / "logs")
    out = tmp_path / "out"
    assert run("cat", root, "-o", out / f"{{date}}.{form}").code == 0
    assert {path.stem for path in out.iterdir()} == {
        "1969-12-31", "1969-12-30", "0001-01-01", "undated"
    }  # fmt: skip
    times = [line.split("\t")[2] for line in run("cat", root, "--format", "text").out.splitlines()]
    assert times == [
        "-", "1969-12-31T23:59:59.998Z", "1969-12-31T00:00:00.000Z", "1969-12-30T23:59:59.999Z",
        "0001-01-01T00:00:00.000Z", f"{first - 1} ms",
    ]  # fmt: skip


def test_columns_are_divided_too(
    run: Run, dated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_files, "MOST_OPEN", 2)
    for form in ("parquet", "arrow", "arrows"):
        out = tmp_path / form
        assert run("cat", dated, "-o", out / f"{{topic}}/{{date}}.{form}").code == 0
        tables = {path.parent.name + path.stem: table_of(path) for path in out.glob("*/*")}
        assert {name: table.num_rows for name, table in tables.items()} == {
            "orders1970-01-01": 4, "orders1970-01-02": 3, "orders1970-01-03": 1,
            "ordersundated": 1, "payments1970-01-01": 1, "payments1970-01-02": 1,
            "payments1970-01-03": 1, "paymentsundated": 1,
        }
        assert tables["orders1970-01-01"]["offset"].to_pylist() == [0, 2, 5, 0]


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_many_dates_take_the_memory_and_descriptors_of_a_few(
    run: Run, tmp_path: Path, form: str
) -> None:
    records = [record(at, at * 13 % 200 * DAY) for at in range(600)]
    root = write_log(tmp_path / "logs", {"t-0": records})
    assert run("cat", root, "-o", tmp_path / f"out/{{date}}.{form}").code == 0
    paths = sorted((tmp_path / "out").iterdir())
    assert len(paths) == 200
    if form == "jsonl":
        offsets = [
            [json.loads(line)["offset"] for line in path.read_text().splitlines()]
            for path in paths
        ]
    else:
        offsets = [pq.read_table(path)["offset"].to_pylist() for path in paths]
    assert offsets == [[at for at in range(600) if at * 13 % 200 == day] for day in range(200)]


def test_after_an_error_no_file_and_no_directory_is_left(
    run: Run, dated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "orders.json").write_text("old")
    (out / "payments.json").mkdir()  # no file can replace it
    assert_one_sentence(run("cat", dated, "-o", out / "{topic}.json"), "not a regular file")
    assert sorted(path.name for path in out.iterdir()) == ["orders.json", "payments.json"]
    assert (out / "orders.json").read_text() == "old"

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(output_files.os, "fsync", fail)
    assert_one_sentence(run("cat", dated, "-o", tmp_path / "new/{topic}/{date}"), "no space")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("pattern", ["{topic}.json", "one.json"])
def test_an_error_of_the_system_names_the_output(
    run: Run, dated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(27, "File too large")

    monkeypatch.setattr(output_files.os, "fsync", fail)
    ran = run("cat", dated, "-o", tmp_path / pattern)
    assert_one_sentence(ran, str(tmp_path / pattern.format(topic="orders")))
    ran = run("cat", dated, "-o", Path("/proc") / pattern)
    assert_one_sentence(ran, "/proc/" + pattern.format(topic="orders"))


@pytest.mark.parametrize("pattern", ["{topic}.json", "t" * 249 + ".json"])
def test_an_output_may_have_the_longest_name(run: Run, tmp_path: Path, pattern: str) -> None:
    topic = "t" * 249
    root = write_log(tmp_path / "logs", {f"{topic}-0": [record(1)]})
    out = tmp_path / "out"
    out.mkdir()
    assert run("cat", root, "-o", out / pattern).code == 0
    assert [path.name for path in out.iterdir()] == [f"{topic}.json"]


def test_two_partitions_never_share_a_file_by_accident(
    run: Run, tmp_path: Path
) -> None:
    root = write_log(tmp_path / "logs", {"t1-1": [record(1)], "t-11": [record(1)]})
    ran = run("cat", root, "-o", tmp_path / "out/{topic}{partition}")
    assert_one_sentence(ran, "separate {topic} and {partition}")
    assert not (tmp_path / "out").exists()


def test_divided_files_are_never_in_the_input_directory(run: Run, dated: Path) -> None:
    before = sorted(dated.rglob("*"))
    for pattern in ("{topic}.json", "new/{date}.json"):
        assert_one_sentence(run("cat", dated, "-o", dated / pattern), "only read")
    assert sorted(dated.rglob("*")) == before
