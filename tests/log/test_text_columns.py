"""Keys and values as text, and logs as what Python's own functions take."""
from __future__ import annotations

import json
import pydoc
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from cli.examples import blocks_of, run_python
from hypothesis import given
from hypothesis import strategies as st
from models.log_directory import Log, Segment
from models.record_format import Batch, Row
from models.refused import refused

import kafkastore
from kafkastore import PartitionLog, samples
from kafkastore.log.records_as_arrow import COLUMN_TYPES

VALUES = [b"plain", "grüße".encode(), b"", None, b"\xff\x00cut \xe2\x82", b'{"customer": 7}']


def log_of(values, root):
    rows = [Row(n, 1000, value, value) for n, value in enumerate(values)]
    return kafkastore.open(Log((Segment(0, (Batch(tuple(rows)),)),)).write(root))["t-0"]


@pytest.fixture
def log(tmp_path):
    return log_of(VALUES, tmp_path / "logs")


def texts(values):
    return [None if each is None else each.decode("utf-8", "replace") for each in values]


@pytest.mark.parametrize("is_view", [False, True])
def test_text_is_decoded_like_a_consumer_s(log, is_view):
    table = log.to_arrow(decode="utf-8", binary_view=is_view).read_all()
    kind = pa.string_view() if is_view else pa.string()
    assert table.schema.field("key").type == table.schema.field("value").type == kind
    assert table["key"].to_pylist() == table["value"].to_pylist() == texts(VALUES)
    assert table.schema.field("topic").type == pa.string()
    table.validate(full=True)
    store = kafkastore.open(log.path.parent)
    for each in (store.to_arrow("t", decode="utf-8"), store.topic("t").to_arrow(decode="utf-8")):
        assert each.read_all()["value"].to_pylist() == texts(VALUES)
    assert log.to_arrow(decode="utf-8", threads=2).read_all()["key"].to_pylist() == texts(VALUES)


@given(values=st.lists(st.none() | st.binary(max_size=6) | st.text().map(str.encode), min_size=1))
def test_any_bytes_are_text(tmp_path_factory, values):
    root = tmp_path_factory.mktemp("logs")
    log = log_of(values, root / "logs")
    assert log.to_arrow(["value"], decode="utf-8").read_all()["value"].to_pylist() == texts(values)
    shutil.rmtree(root)


def test_other_encodings_are_refused(log):
    for wrong in ("latin-1", "json", 5):
        with refused("decode"):
            log.to_arrow(decode=wrong)


def test_the_page_of_python_prints_what_its_comments_say(tmp_path):
    samples.unpack(tmp_path / "samples")
    (block,) = blocks_of(Path(__file__).parents[2] / "docs" / "python.md")
    printed = run_python(block.text, tmp_path).splitlines()
    comments = re.findall(r"# (\S.*)$", block.text, re.MULTILINE)
    assert printed == [each for each in comments if not each.startswith("the same")]


def test_help_names_every_column_and_its_type():
    text = pydoc.plain(pydoc.render_doc(PartitionLog.to_arrow))
    for name, kind in COLUMN_TYPES.items():
        (line,) = (line for line in text.splitlines() if re.search(rf"`{name}`.*  ", line))
        assert str(kind).split("<")[0] in line


def test_json_is_parsed_where_it_is_used(log):
    frame = log.to_arrow(["value"], start_offset=5, decode="utf-8").to_pandas()
    assert frame["value"].map(json.loads).str["customer"].tolist() == [7]


def test_the_records_of_a_log_are_iterated(log):
    assert [record.offset for record in log] == [*range(6)]
    assert [*log] == [*log.records()]
    assert [each.offset for each in kafkastore.open(log.path.parent)["t", 0]] == [*range(6)]
    assert pa.table(log).num_rows == 6  # Arrow reads columns, not records


def test_what_was_read_is_shown_and_nothing_is_read_for_it(tmp_path):
    rows = [Batch((Row(n, 1000, b"k", b"v"),)) for n in range(8)]
    root = Log((Segment(0, tuple(rows[:5])), Segment(5, tuple(rows[5:])))).write(tmp_path / "logs")
    store = kafkastore.open(root)
    log = store["t-0"]
    assert repr(store) == f"LogStore({str(root)!r}, topics=1, partitions=1)"
    assert repr(store.topic("t")) == "TopicLogs('t', partitions=1)"
    assert repr(log) == f"PartitionLog({str(log.path)!r})"
    assert log.facts == {}
    assert (log.log_start_offset, log.log_end_offset) == (0, 8)
    shown = f"PartitionLog({str(log.path)!r}, log_start_offset=0, log_end_offset=8, segments=2)"
    assert repr(log) == shown
    first, last = log.segments
    assert repr(first) == f"LogSegment({str(first.log_path)!r}, next_base_offset=5)"
    assert repr(last) == f"LogSegment({str(last.log_path)!r}, is_active=True)"
    shutil.rmtree(root)
    for each in (store, log, store.topic("t"), store.topics, log.to_arrow(), last):
        assert repr(each)


def test_thousands_of_names_are_not_all_shown(tmp_path):
    log = Log((Segment(0, (Batch((Row(0, 1000, b"k", b"v"),)),)),))
    roots = [log.write(tmp_path / f"logs{n}", f"topic{n}-0") for n in range(20)]
    store = kafkastore.open(roots)
    assert "and 17 more" in repr(store)
    assert "topics=20" in repr(store)
    assert "and 10 more" in repr(store.topics)
