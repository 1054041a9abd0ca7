"""The report: one page, whole by itself, that nothing in a directory's names can break."""
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.log_directory import Log, Segment
from models.record_format import Batch, Row
from models.record_strategies import bounded, logs

import kafkastore
from kafkastore.checks.findings import Finding, Severity
from kafkastore.formats.file_names import TopicPartition
from kafkastore.spark.jobs.partition_jobs import (
    answer_times,
    places_of,
    survey_partition,
    times_to_ask,
)
from kafkastore.spark.pipeline.report import MOST_ROWS, grouped, moment, render, size
from kafkastore.spark.pipeline.results import PipelineResult, Step, StoreResult
from kafkastore.time_axes import LAST_DATE_MS, MOST_TICKS, time_ticks

NOW = 1_600_000_000_000
VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """Checks that elements close in order, and collects what could load something."""

    def __init__(self, text):
        super().__init__()
        self.open, self.references, self.ids, self.text = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("href", "src", "xlink:href", "srcset", "action", "data", "poster"):
                self.references.append(value)
            if name == "id":
                self.ids.append(value)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def result_of(root, name="store"):
    """What a run would have found in a directory, made without Spark."""
    store = StoreResult(name, str(root), str(root))
    for place in places_of(name, kafkastore.open(root)):
        row = survey_partition(place)
        store.partitions.append(row)
        key = TopicPartition(place.topic, place.partition)
        store.before[key] = answer_times((place, times_to_ask(row, 5)), now=NOW).rows
        store.after[key] = store.before[key]
    return PipelineResult(Path("/out"), "auto", NOW, [store], [Step("survey", 1.5, "done")])


def page_of(result):
    text = render(result)
    page = Page(text)
    for reference in page.references:
        assert reference.startswith(("#", "data:,")), reference
    for reference in page.references:
        assert not reference.startswith("#") or reference[1:] in page.ids
    assert len(set(page.ids)) == len(page.ids)
    assert not re.search(r"https?:|//\w|@import|url\((?!#)|<script", text)
    assert 'name="viewport"' in text
    assert "prefers-color-scheme: dark" in text
    return page


@pytest.mark.parametrize("version", ["0.8.2.2", "0.10.0.1"])
def test_the_report_of_a_real_directory_needs_nothing_else(golden, version):
    result = result_of(golden(version, "upgrade", "answers").logs)
    text = render(result)
    page = page_of(result)
    assert text.count("<svg") == 2 * 3
    assert "var(--correct)" in text
    assert "up-compressed-0" in " ".join(page.text)
    has_no_times = "No record of store has a timestamp" in " ".join(page.text)
    assert has_no_times is (version == "0.8.2.2")


@bounded(25)
@given(logs())
def test_any_log_has_a_report(tmp_path_factory, log):
    page_of(result_of(log.write(tmp_path_factory.mktemp("log") / "logs")))


def test_names_and_sentences_are_only_text(tmp_path):
    (tmp_path / "meta.properties").touch()
    result = result_of(tmp_path, "<b>&amp;</b>")
    store = result.stores[0]
    store.problems.append("a-0 could not be read: <script>alert(1)</script>")
    store.warnings.append("<img src=x>")
    store.findings_before.append(
        Finding(Severity.SLOW, Path("/<i>"), None, "it's <em>", "none & all", "\"'")
    )
    page = page_of(result)
    text = " ".join(page.text)
    for each in ("<b>&amp;</b>", "<script>alert(1)</script>", "<img src=x>", "/<i>", "it's <em>"):
        assert each in text


def test_a_long_list_is_cut_and_says_so(tmp_path):
    (tmp_path / "meta.properties").touch()
    result = result_of(tmp_path)
    result.stores[0].problems += [f"t-{number} failed" for number in range(MOST_ROWS + 5)]
    text = " ".join(page_of(result).text)
    assert "and 5 more, in result.json" in text
    assert f"t-{MOST_ROWS + 4} failed" not in text


def test_times_that_are_no_dates_are_not_drawn(tmp_path):
    stamps = [5, 1_500_000_000_000, LAST_DATE_MS, LAST_DATE_MS + 1]
    rows = tuple(Row(at, stamp, None, b"v", ()) for at, stamp in enumerate(stamps))
    log = Log((Segment(0, (Batch(rows=rows),), modified_ms=10**15),))
    page_of(result_of(log.write(tmp_path / "logs")))


def test_findings_that_differ_in_numbers_only_are_one_group_the_worst_first():
    def finding(severity, what):
        return Finding(severity, Path("/f"), 3, what, "c", "r")

    store = StoreResult("s", "/s")
    store.findings_before = [
        finding(Severity.STYLE, "entry 1 of 2"),
        finding(Severity.STYLE, "entry 20 of 30"),
        finding(Severity.DATA_LOSS_RISK, "gone"),
    ]
    store.findings_after = [finding(Severity.STYLE, "entry 7 of 7")]
    assert [(group.what, group.before, group.after) for group in grouped(store)] == [
        ("gone", 1, 0), ("entry 1 of 2", 2, 1),
    ]


@bounded(300)
@given(
    st.integers(0, LAST_DATE_MS),
    st.integers(0, 60).flatmap(lambda bits: st.integers(0, 1 << min(bits, 47))),
)
def test_ticks_are_few_round_and_inside(first, length):
    last = min(first + length, LAST_DATE_MS)
    ticks, form, _ = time_ticks(first, last)
    assert len(ticks) <= MOST_TICKS
    assert all(first <= tick <= last for tick in ticks)
    assert form.startswith("%")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (moment(0), "1970-01-01 00:00:00.000 UTC"),
        (moment(-1), "-1 ms"),
        (moment(LAST_DATE_MS), "9999-12-31 23:59:59.999 UTC"),
        (moment(LAST_DATE_MS + 1), "253402300800000 ms"),
        (size(0), "0 B"),
        (size(999), "999 B"),
        (size(1000), "1.0 KiB"),
        (size(5 << 40), "5.0 TiB"),
    ],
)
def test_times_and_sizes_are_written_for_people(found, expected):
    assert found == expected
