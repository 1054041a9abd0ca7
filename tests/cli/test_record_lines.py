"""Lines that are written in C, compared with a slow and obvious model of each format."""
from __future__ import annotations

import json
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from cli.running import Run
from hypothesis import given
from hypothesis import strategies as st
from models.record_strategies import NOW, bounded, logs

from kafkastore import open as open_store
from kafkastore.cli.cat.line_formats import LineFormat, LineWriter, json_format, text_format
from kafkastore.cli.dump.log import format_headers, json_record
from kafkastore.cli.output.bytes_text import format_bytes
from kafkastore.cli.output.control_characters import escape_control_characters
from kafkastore.cli.output.json_lines import json_line
from kafkastore.formats.records.record_batch import Record, TimestampType
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.log.records_as_arrow import schema
from kafkastore.log.time_text import format_time

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
     253_402_300_800_000, 2**63 - 1, -(2**63), 68_169_600_000]
) | st.integers(0, 253_402_300_799_999)  # fmt: skip
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
    out: list[bytes] = []
    writer = LineWriter(out.append, form)
    batch = batch_of(records, form.columns)
    for part in (batch.slice(first, 1), batch.slice(first + 1)):
        if part.num_rows:
            writer.write_batch(Partition(which), part)  # type: ignore[arg-type]
    return b"".join(out)


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


@bounded(300)
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


@bounded(300)
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


@pytest.mark.parametrize(
    "unit", [b"text ", "läßt\t\"\\".encode(), b"\xff\0", b"\x1b", b'"', "𝄞\u202e".encode()]
)
@pytest.mark.parametrize("size", [256 * 1024 - 3, 1_000_003])
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
    writer = LineWriter(lambda data: sizes.append(len(data)), form)
    writer.write_batch(Partition(TopicPartition("t", 0)), batch_of(records, form.columns))  # type: ignore[arg-type]
    assert sum(sizes) > 6 * len(value)
    assert max(sizes) <= 256 * 1024


@bounded(60)
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
