"""What notebooks show of stores, topics and logs."""
from __future__ import annotations

import shutil
import time
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.log_directory import Log, Segment
from models.record_format import Batch, Row, emptied

import kafkastore
from kafkastore.store.notebook_view import MOST_BATCHES

SCRIPT = b"<script>alert('x')</script>\x1b[2J\"&$\\alpha$ \xe2\x80\xae"


def log_of(*values, first=0):
    rows = (Batch((Row(first + n, 1000 + n, value, value),)) for n, value in enumerate(values))
    return Log((Segment(first, tuple(rows)),))


class Shown(HTMLParser):
    """The rows of the tables, the paragraphs, and every tag."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.rows, self.paragraphs, self.open = set(), [], [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        assert {name for name, _ in attributes} <= {"class", "colspan"}
        self.tags.add(tag)
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        elif tag == "p":
            self.paragraphs.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        assert data.isprintable()
        if self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data
        else:
            self.paragraphs[-1] += data


def shown(thing):
    found = Shown(thing._repr_html_())
    assert found.tags <= {"div", "p", "b", "table", "tr", "th", "td"}
    return found


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "logs"
    log_of(*(b"value %d" % n for n in range(15))).write(root, "orders-0")
    log_of(b"seven", first=7).write(root, "orders-1")
    log_of(b"\x00", None).write(root, "__internal-0")
    return root


def test_a_log_has_its_range_and_the_first_ten_records(root):
    log = kafkastore.open(root)["orders", 0]
    found = shown(log)
    size = next(log.path.glob("*.log")).stat().st_size
    assert found.rows[1] == ["orders-0", "0", "15", "1", f"{size / 1024:.2f} KiB", "-"]
    records = found.rows[3:]
    assert [row[:2] for row in records] == [["orders-0", str(n)] for n in range(10)]
    assert records[9][2:] == ["1970-01-01T00:00:01.009Z", "value 9", "value 9"]
    assert log.facts == {}


def test_a_topic_and_a_store_have_their_partitions_and_one_preview(root):
    store = kafkastore.open(root)
    names = [row[0] for row in shown(store.topic("orders")).rows]
    assert names == ["partition", "orders-0", "orders-1", "partition", *["orders-0"] * 10]
    found = shown(store)
    assert str(root) in found.paragraphs[0]
    assert "2 topics, 3 partitions" in found.paragraphs[0]
    assert [row[:4] for row in found.rows[1:4]] == [
        ["__internal-0", "0", "2", "1"], ["orders-0", "0", "15", "1"], ["orders-1", "7", "8", "1"]
    ]


def test_records_and_names_are_text_for_the_browser(tmp_path):
    log_of(SCRIPT, b"\xff" * 3_000_000).write(tmp_path / "logs", "<b onload=x>-0")
    store = kafkastore.open(tmp_path / "logs")
    for each in (store, store.topic("<b onload=x>"), store["<b onload=x>", 0]):
        html = each._repr_html_()
        assert len(html) < 3000
        assert "<script" not in html
        assert 'class="tex2jax_ignore' in html  # no formulas
        rows = shown(each).rows
        assert rows[1][0] == "<b onload=x>-0"
        assert rows[-1][4].endswith("(3,000,000 bytes)")
    assert html.count("&lt;b onload=x&gt;") > 1


def test_text_that_is_printable_is_shown_as_it_is(tmp_path):
    log_of(b"<script>alert(1)</script>").write(tmp_path / "logs")
    assert shown(kafkastore.open(tmp_path / "logs")).rows[-1][4] == "<script>alert(1)</script>"


@pytest.mark.parametrize("count", [MOST_BATCHES - 1, MOST_BATCHES, 2 * MOST_BATCHES])
def test_after_so_many_empty_batches_records_are_not_looked_for(tmp_path, count):
    empty = [emptied(n, n, 1000) for n in range(count)]
    for name, last in (("t-0", []), ("t-1", [Batch((Row(count, 1000, None, b"last"),))])):
        Log((Segment(0, (*empty, *last)),)).write(tmp_path / "logs", name)
    found = shown(kafkastore.open(tmp_path / "logs").topic("t"))
    if count < MOST_BATCHES:
        assert found.rows[-1][1:2] == [str(count)]
        assert found.rows[-1][4] == "last"
    else:
        assert len(found.rows) == 3  # the head of the table, and two partitions
        assert f"{MOST_BATCHES:,}" in found.paragraphs[-1]


def test_thousands_of_partitions_are_a_short_page(tmp_path):
    root = tmp_path / "logs"
    log_of(b"v").write(root, "topic000-0")
    (log,) = (root / "topic000-0").glob("*.log")
    for number in range(1, 2000):
        folder = root / f"topic{number // 20:03}-{number % 20}"
        folder.mkdir(exist_ok=True)
        (folder / log.name).hardlink_to(log)
    store = kafkastore.open(root)
    start = time.process_time()
    html = store._repr_html_()
    assert time.process_time() - start < 2
    assert len(html) < 5000
    found = shown(store)
    assert found.rows[1] == ["topic000", "20", f"{20 * log.stat().st_size / 1024:.2f} KiB"]
    assert "and 80 more" in found.paragraphs
    assert found.rows[-1][0] == "topic000-0"


def test_damage_is_shown_and_not_raised(root):
    store = kafkastore.open(root)
    (log,) = (root / "orders-0").glob("*.log")
    data = bytearray(log.read_bytes())
    data[150] ^= 0xFF  # in the second batch
    log.write_bytes(data)
    found = shown(store["orders", 0])
    assert [row[1] for row in found.rows[3:]] == ["0"]
    assert str(log) in found.paragraphs[-1]
    (root / "replication-offset-checkpoint").write_text("not a checkpoint")
    (root / "log-start-offset-checkpoint").write_text("not a checkpoint")
    assert "log-start-offset-checkpoint" in "".join(shown(kafkastore.open(root)).paragraphs)


def test_what_has_gone_is_shown_as_an_error(root):
    store = kafkastore.open(root)
    log, topic = store["orders", 0], store.topic("orders")
    shutil.rmtree(root)
    for each in (store, topic, log):
        assert "orders-0" in each._repr_html_()
        shown(each)


def test_a_duplicate_is_shown_as_an_error(root, tmp_path):
    log_of(b"again").write(tmp_path / "other", "orders-1")
    store = kafkastore.open([root, tmp_path / "other"])
    rows = {row[0]: row for row in shown(store).rows[:4]}
    assert len(rows["orders-0"]) == 6
    assert len(rows["orders-1"]) == 2
    assert str(tmp_path / "other") in rows["orders-1"][1]


@given(
    flips=st.dictionaries(st.integers(0, 500), st.integers(1, 255), max_size=4),
    cut=st.integers(0, 500),
)
def test_no_bytes_make_it_fail(tmp_path_factory, flips, cut):
    root = tmp_path_factory.mktemp("logs") / "logs"
    (segment,) = log_of(b"one", b"two", SCRIPT).segments
    Log((segment.indexed(),)).write(root)
    for path in (root / "t-0").iterdir():
        data = bytearray(path.read_bytes())
        for at, flip in flips.items():
            if at < len(data):
                data[at] ^= flip
        path.write_bytes(data[: len(data) - cut % (len(data) + 1)])
    store = kafkastore.open(root)
    for each in (store, store.topic("t"), store["t", 0]):
        shown(each)
