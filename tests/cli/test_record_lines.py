"""Lines that are written in C, compared with a slow and obvious model of each format."""
from __future__ import annotations

import base64
import csv
import io
import json
import struct
from types import SimpleNamespace
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from cli.running import Run
from hypothesis import given
from hypothesis import strategies as st
from models.record_strategies import NOW, bounded, logs

from kafkastore import open as open_store
from kafkastore.cli.cat.format_string import format_string
from kafkastore.cli.cat.line_formats import (
    LineFormat,
    LineWriter,
    csv_format,
    json_format,
    text_format,
)
from kafkastore.cli.dump.log import format_headers, json_record
from kafkastore.cli.output.json_lines import json_line
from kafkastore.formats.records.record_batch import Record, TimestampType
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.log.records_as_arrow import buffers_of, schema
from kafkastore.log.time_text import format_time
from kafkastore.shown_text import escape_control_characters, format_bytes

CHARACTERS = (
    "aZ \"\\'/,;=\t\n\r\b\f\0\x1b\x7f\x80\x9bäж€\ufffc\u2028\u202e\ufeff\ud7ff\ue000𝄞"
    "\U000e0001\U0010ffff"
)
NEARLY_UTF8 = [
    b"\xff", b"\xc3", b"\xc0\xaf", b"\xc1\xbf", b"\xe0\x80\x80", b"\xe0\x9f\xbf", b"\xed\xa0\x80",
    b"\xed\xbf\xbf", b"\xe2\x82", b"\xf0\x80\x80\x80", b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80",
    b"\xf0\x9f\x92", b"\xf5\x80\x80\x80", b"\xf8\x88\x80\x80\x80", b"\x80", b"\xbf",
]  # fmt: skip
TEXTS = st.text(st.sampled_from(CHARACTERS) | st.characters(codec="utf-8"), max_size=30)
HOSTILE = st.lists(
    TEXTS.map(str.encode) | st.sampled_from(NEARLY_UTF8) | st.binary(max_size=4), max_size=4
).map(b"".join)
OPTIONAL = st.none() | HOSTILE
TIMESTAMPS = st.sampled_from(
    [-1, 0, -2, 999, NOW, 951_782_399_999, 951_782_400_000, 4_107_542_399_999, 253_402_300_799_999,
     253_402_300_800_000, 2**63 - 1, -(2**63), 68_169_600_000, -86_400_000, -86_400_001,
     -62_135_596_800_000, -62_135_596_800_001]
) | st.integers(-62_135_596_800_000, 253_402_300_799_999)  # fmt: skip
NAMES = HOSTILE.map(lambda name: name.decode("utf-8", "surrogateescape"))
RECORDS = st.builds(
    Record,
    offset=st.integers(0, 2**63 - 1),
    timestamp=TIMESTAMPS,
    timestamp_type=st.sampled_from(TimestampType),
    key=OPTIONAL,
    value=OPTIONAL | st.integers(0, 300).map(lambda count: b"plain " * count),
    headers=st.lists(st.tuples(NAMES | st.just("same"), OPTIONAL), max_size=3).map(tuple),
    leader_epoch=st.none() | st.integers(0, 2**31 - 1),
)
TOPICS = st.sampled_from(["orders", "Zürich", "a\x1b[2J", "not-\udcff-utf-8"])


class Partition(NamedTuple):
    topic_partition: TopicPartition


def batch_of(records: list[Record], columns: tuple[str, ...]) -> pa.RecordBatch:
    rows = [
        {
            "key": each.key,
            "value": each.value,
            "offset": each.offset,
            "timestamp": each.timestamp,
            "timestampType": int(each.timestamp_type),
            "headers": [
                {"key": name.encode("utf-8", "surrogateescape"), "value": value}
                for name, value in each.headers
            ] or None,
            "leader_epoch": -1 if each.leader_epoch is None else each.leader_epoch,
        }
        for each in records
    ]
    return pa.RecordBatch.from_pylist(rows, schema(columns, exact=True))


def written(form: LineFormat, which: TopicPartition, records: list[Record], first: int) -> bytes:
    """Write rows from `first` on, in two batches of which one is a slice."""
    out = io.BytesIO()
    writer = LineWriter(out, form)
    batch = batch_of(records, form.columns)
    for part in (batch.slice(first, 1), batch.slice(first + 1)):
        if part.num_rows:
            writer.write_batch(Partition(which), buffers_of(part))  # type: ignore[arg-type]
    return out.getvalue()


def json_model(which: TopicPartition, record: Record, *, headers: bool) -> bytes:
    place = {"topic": which.topic, "partition": which.partition}
    return json_line(place | json_record(record, headers=headers))


def text_model(which: TopicPartition, record: Record, zone: Any, *, headers: bool) -> bytes:
    cells = [
        escape_control_characters(str(which)),
        str(record.offset),
        format_time(record.timestamp, zone),
        format_bytes(record.key),
        format_bytes(record.value),
    ]
    cells += [format_headers(record)] if headers else []
    return ("\t".join(cells) + "\n").encode("utf-8", "backslashreplace")


@bounded(100)
@given(st.lists(RECORDS, min_size=1, max_size=12), TOPICS, st.booleans(), st.data())
def test_json_lines_equal_those_of_python(
    records: list[Record], topic: str, headers: bool, data: st.DataObject
) -> None:
    which = TopicPartition(topic, 7)
    first = data.draw(st.integers(0, len(records) - 1))
    lines = written(json_format(headers=headers), which, records, first)
    expected = [json_model(which, each, headers=headers) for each in records[first:]]
    assert [json.loads(line) for line in lines.splitlines()] == list(map(json.loads, expected))
    if topic == "Zürich":  # a line with a header name that is not UTF-8 escapes all but the topic
        lines = lines.replace("Zürich".encode(), b"Z\\u00fcrich")
        expected = [line.replace("Zürich".encode(), b"Z\\u00fcrich") for line in expected]
    assert lines == b"".join(expected)


@bounded(100)
@given(
    st.lists(RECORDS, min_size=1, max_size=12), TOPICS, st.booleans(),
    st.sampled_from([None, ZoneInfo("Europe/Berlin"), ZoneInfo("America/St_Johns")]), st.data(),
)  # fmt: skip
def test_lines_of_text_equal_those_of_python(
    records: list[Record], topic: str, headers: bool, zone: Any, data: st.DataObject
) -> None:
    which = TopicPartition(topic, 7)
    first = data.draw(st.integers(0, len(records) - 1))
    lines = written(text_format(headers=headers, zone=zone), which, records, first)
    assert lines == b"".join(
        text_model(which, each, zone, headers=headers) for each in records[first:]
    )


def csv_cells(data: bytes | None) -> list[str]:
    """Return text and base64 of bytes, as Python reads the cells of a line."""
    if data is None:
        return ["", ""]
    try:
        return [data.decode(), ""]
    except UnicodeDecodeError:
        return ["", base64.b64encode(data).decode()]


@bounded(100)
@given(st.lists(RECORDS, min_size=1, max_size=12), st.booleans())
def test_csv_is_read_back_with_the_fields_of_json(records: list[Record], headers: bool) -> None:
    which = TopicPartition("orders", 7)
    lines = written(csv_format(headers=headers), which, records, 0)
    text = lines.decode("utf-8", "surrogateescape")
    names, *rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    assert names[-1] == ("headers" if headers else "value_base64")
    for record, row in zip(records, rows, strict=True):
        fields = json.loads(json_model(which, record, headers=True))
        epoch = "" if record.leader_epoch is None else str(record.leader_epoch)
        assert row[:6] == [
            "orders", "7", str(record.offset), str(record.timestamp), fields["timestamp_type"],
            epoch,
        ]
        assert row[6:8] == csv_cells(record.key)
        assert row[8:10] == csv_cells(record.value)
        assert not headers or json.loads(row[10]) == fields["headers"]


def test_csv_tells_an_empty_key_from_none() -> None:
    records = [
        Record(at, NOW, TimestampType.CREATE_TIME, key, value, (), None)
        for at, (key, value) in enumerate([(b"", None), (None, b""), (b"\xff", b'a"b,c')])
    ]
    lines = written(csv_format(headers=False), TopicPartition("t", 0), records, 0).splitlines()
    assert [line.split(b",CreateTime,,")[1] for line in lines[1:]] == [
        b'"",,,', b',,"",', b',/w==,"a""b,c",'
    ]


def raw_model(which: TopicPartition, record: Record) -> bytes:
    """Return what kcat prints for ``%t %p %o %k %K %s %S %R %h %T%%``."""

    def size(data: bytes | None) -> int:
        return -1 if data is None else len(data)

    headers = b",".join(
        name.encode("utf-8", "surrogateescape") + b"=" + (b"NULL" if value is None else value)
        for name, value in record.headers
    )
    return b" ".join([
        which.topic.encode("utf-8", "surrogateescape"), b"%d" % which.partition,
        b"%d" % record.offset, record.key or b"", b"%d" % size(record.key), record.value or b"",
        b"%d" % size(record.value), struct.pack(">i", size(record.value)), headers,
        b"%d%%" % record.timestamp,
    ])


@bounded(80)
@given(st.lists(RECORDS, min_size=1, max_size=12), TOPICS)
def test_a_format_string_writes_bytes_as_they_are(records: list[Record], topic: str) -> None:
    which = TopicPartition(topic, 7)
    form = format_string("%t %p %o %k %K %s %S %R %h %T%%", for_terminal=False)
    assert written(form, which, records, 0) == b"".join(
        raw_model(which, record) for record in records
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"a\n\t\r\\\q%%", b"a\n\t\r\\q%"), (r"\x41\x0a\xffg\x", b"A\n\xffgx"),
        (r"\65\101\0", b"Ae\0"),
        (r"\012\300", b"\n,"), ("é\\", "é\\".encode()), ("", b""), (r"\x25o", b"%o"),
    ],
)  # fmt: skip
def test_escapes_of_a_format_string(text: str, expected: bytes) -> None:
    form = format_string(text, for_terminal=False)
    assert b"".join(form.parts_of(TopicPartition("t", 0))) == expected  # type: ignore[arg-type]


@bounded(100)
@given(st.lists(RECORDS, min_size=1, max_size=6), TOPICS)
def test_on_a_terminal_records_write_no_control_characters(
    records: list[Record], topic: str
) -> None:
    which = TopicPartition(topic, 7)
    for form in (
        json_format(headers=True, for_terminal=True),
        csv_format(headers=True, for_terminal=True),
        format_string("%t %k %s %R %h\n", for_terminal=True),
        text_format(headers=True, zone=None),
    ):
        lines = written(form, which, records, 0).decode().removesuffix("\n").split("\n")
        assert len(lines) == len(records) + bool(form.head)
        assert all(line.replace("\t", "").isprintable() for line in lines)
    lines = written(json_format(headers=True, for_terminal=True), which, records, 0).splitlines()
    assert [json.loads(line) for line in lines] == [
        json.loads(json_model(which, record, headers=True)) for record in records
    ]


@pytest.mark.parametrize(
    "unit", [b"text ", "läßt\t\"\\".encode(), b"\xff\0", b"\x1b", b'"', "𝄞\u202e".encode()]
)
@pytest.mark.parametrize("size", [64 * 1024 - 3, 300_003])
def test_a_value_larger_than_the_buffer_is_written_whole(unit: bytes, size: int) -> None:
    value = unit * (size // len(unit)) + b"."
    records = [
        Record(at, NOW, TimestampType.CREATE_TIME, b"k", value, (("h", value),), 0)
        for at in range(2)
    ]
    which = TopicPartition("t", 0)
    assert written(json_format(headers=True), which, records, 0) == b"".join(
        json_model(which, each, headers=True) for each in records
    )
    assert written(text_format(headers=True, zone=None), which, records, 0) == b"".join(
        text_model(which, each, None, headers=True) for each in records
    )


def test_memory_of_lines_is_one_small_buffer() -> None:
    value = b"\x01" * 3_000_000
    records = [Record(0, NOW, TimestampType.CREATE_TIME, None, value, (), 0)]
    sizes: list[int] = []
    form = json_format(headers=False)
    file = SimpleNamespace(write=lambda data: sizes.append(len(data)))
    writer = LineWriter(file, form)  # type: ignore[arg-type]
    batch = buffers_of(batch_of(records, form.columns))
    writer.write_batch(Partition(TopicPartition("t", 0)), batch)  # type: ignore[arg-type]
    assert sum(sizes) > 6 * len(value)
    assert max(sizes) <= 64 * 1024


@bounded(25)
@given(logs(has_headers=True))
def test_cat_prints_the_records_of_any_log(tmp_path_factory: Any, run: Run, log: Any) -> None:
    root = log.write(tmp_path_factory.mktemp("logs"))
    (found,) = open_store(root)
    records = list(found.records())
    which = found.topic_partition
    for headers in (False, True):
        options = ["--headers"] if headers else []
        ran = run("cat", root, "--json", *options)
        assert ran.out.encode() == b"".join(
            json_model(which, each, headers=headers) for each in records
        )
        ran = run("cat", root, *options)
        assert ran.out.encode() == b"".join(
            text_model(which, each, None, headers=headers) for each in records
        )
