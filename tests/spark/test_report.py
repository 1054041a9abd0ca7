"""The report: one self-contained page that no directory name can break."""
import json
import re
import tracemalloc
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.log_directory import Log, Segment
from models.pipeline_results import made_up_store, result_with, store_of
from models.record_format import Batch, Row
from models.record_strategies import bounded, logs

from kafkastore.checks.findings import Finding, FindingKind
from kafkastore.errors import CorruptBatchError
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.jobs.compare import AnswerRow
from kafkastore.jobs.error_fields import ErrorFields
from kafkastore.jobs.inventory import PartitionInventory, SegmentInventory
from kafkastore.spark.pipeline import plots
from kafkastore.spark.pipeline.digest import (
    LEAST_POWER,
    densities,
    differences,
    distances,
    grouped,
    severities,
    sizes_by_partition,
    sizes_by_topic,
)
from kafkastore.spark.pipeline.report import (
    FEW_ROWS,
    MOST_ANSWERS,
    MOST_ROWS,
    MOST_SIZES,
    MOST_STORES,
    answer_tables,
    moment,
    render,
    size,
)
from kafkastore.spark.pipeline.results import (
    AnswerColumns,
    FailedStep,
    PipelineResult,
    Problem,
    StoreResult,
    agreement,
)
from kafkastore.spark.pipeline.run import Run
from kafkastore.spark.pipeline.saved_steps import SavedSteps
from kafkastore.store.partition_path import PartitionPath
from kafkastore.time_axes import LAST_DATE_MS, MOST_TICKS, time_ticks

MIB = 1 << 20
VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """Checks that elements close in order, and collects what could load something."""

    def __init__(self, text):
        super().__init__()
        self.source = text
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
    result = result_with(store_of(golden(version, "upgrade", "answers").logs))
    page = page_of(result)
    text = page.source
    # Two of each partition with records, and of the store: segments, density, wrong answers.
    assert text.count("<svg") == 2 * 3 + (3 if version == "0.10.0.1" else 2)
    assert "var(--correct)" in text
    assert "up-compressed-0" in " ".join(page.text)
    has_no_times = "No record of store has a timestamp" in " ".join(page.text)
    assert has_no_times is (version == "0.8.2.2")


def damaged(root):
    """A store with one partition of four that can't be read to its end."""
    log = sorted((root / "up-1").glob("*.log"))[1]
    data = bytearray(log.read_bytes())
    data[400] ^= 1
    log.write_bytes(data)
    return store_of(root)


def test_a_corrupt_partition_is_shown_as_such_and_as_not_queried(golden, writable_copy):
    store = damaged(writable_copy(golden("0.10.0.1", "upgrade", "answers").logs))
    assert len(store.after) == 3
    summary = store.summary()
    assert (summary.partitions, summary.corrupt_partitions) == (4, 1)
    assert summary.partitions_without_answers == 1
    text = re.sub(r"\s+", " ", " ".join(page_of(result_with(store)).text))
    assert "1 corrupt" in text
    assert "1 partition without lookups" in text
    assert "3 of 4" in text
    assert "up-1 corrupt" in text


def test_percentages_are_of_lookups_before_and_of_lookups_after(golden):
    store = store_of(golden("0.10.0.1", "upgrade", "answers").logs)
    half, full = (agreement(each.values()) for each in (store.before, store.after))
    assert half == full
    store.after = {
        key: rows for key, rows in store.after.items() if key != TopicPartition("up", 0)
    }
    before, after = store.summary().before, store.summary().after
    assert before.times > after.times
    assert store.summary().partitions_without_answers == 1
    shares = [100 * each.broker / each.times for each in (before, after)]
    text = re.sub(r"\s+", " ", " ".join(page_of(result_with(store)).text))
    assert f"{shares[0]:.1f} → {shares[1]:.1f}" in text


def test_a_fault_that_is_met_in_each_step_is_one_problem(tmp_path):
    store = StoreResult("s", "/logs", str(tmp_path / "out" / "migrated" / "s"))
    result = PipelineResult(tmp_path / "out", "auto", 0, [store])
    run = Run(result, tmp_path / ".working", SavedSteps(tmp_path), None)
    place = PartitionPath("s", None, "/logs/t-3", "t", 3, 0)
    copy = tmp_path / ".working" / "migrated" / "s"
    for root, step in (("/logs", "read"), ("/logs", "verified"), (copy, "verified")):
        error = CorruptBatchError("broken", path=f"{root}/t-3/0.log", position=7)
        run.fail_partition(place, ErrorFields.of(error), step)
    (problem,) = store.problems
    assert problem.key == ("t-3", "CorruptBatchError", "t-3/0.log", 7)
    assert problem.steps == ("read", "verified")
    (sentence,) = result.problems
    assert "/logs/t-3/0.log" in sentence
    other = CorruptBatchError("broken", path="/logs/t-3/9.log", position=7)
    run.fail_partition(place, ErrorFields.of(other), "verified")
    assert len(store.problems) == 2


@bounded(10)
@given(logs())
def test_any_log_has_a_report(tmp_path_factory, log):
    page_of(result_with(store_of(log.write(tmp_path_factory.mktemp("log") / "logs"))))


def problem(whose, text="failed"):
    return Problem(whose, (FailedStep.READ,), "/logs", ErrorFields("OSError", text))


def test_names_and_sentences_are_only_text(tmp_path):
    (tmp_path / "meta.properties").touch()
    store = store_of(tmp_path, "<b>&amp;</b>")
    result = result_with(store)
    store.problems.append(problem("a-0", "<script>alert(1)</script>"))
    store.warnings.append("<img src=x>")
    store.findings_before.append(
        Finding(FindingKind.EMPTY_OFFSET_INDEX, Path("/<i>"), None, "it's <em>", "\"'")
    )
    page = page_of(result)
    text = " ".join(page.text)
    for each in ("<b>&amp;</b>", "<script>alert(1)</script>", "<img src=x>", "/<i>", "it's <em>"):
        assert each in text


def test_a_long_list_is_shortened_with_a_note(tmp_path):
    (tmp_path / "meta.properties").touch()
    result = result_with(store_of(tmp_path))
    result.stores[0].problems += [problem(f"t-{number}") for number in range(MOST_ROWS + 5)]
    text = " ".join(page_of(result).text)
    assert f"{MOST_ROWS - FEW_ROWS} more" in text
    assert "and 5 more, in result.json" in text
    assert f"t-{MOST_ROWS - 1} could" in text
    assert f"t-{MOST_ROWS} could" not in text


@pytest.mark.soak
def test_the_page_of_a_large_store_has_a_bounded_size():
    store = made_up_store(partitions=2000, segments=20, times=70)
    page = page_of(result_with(store))
    text = re.sub(r"\s+", " ", " ".join(page.text))
    assert len(page.source) < 1_500_000
    assert f"The {MOST_ROWS} largest of 2,000; all are in result.json" in text
    assert f"{70 - MOST_SIZES} more topics" in text
    assert f"{2000 - MOST_SIZES:,} more partitions" in text
    assert "1,994 more partitions are not drawn" in text
    assert "Offsets of 1,980 more partitions are in result.json" in text
    assert f"and {70 - MOST_ANSWERS} more times, in result.json" in text


@pytest.mark.soak
def test_the_page_of_many_stores_has_a_bounded_size():
    stores = [made_up_store(4, 5, 100, name=f"store-{number}") for number in range(30)]
    page = page_of(result_with(*stores))
    assert len(page.source) < 2_500_000
    assert "store-0, store-1, store-2 and 27 more" in " ".join(page.text)
    assert f"{30 - MOST_STORES} more stores are in result.json" in " ".join(page.text)


def row_of(topic, partition, *segments):
    """A surveyed partition of segments: size, entries of the offset and of the time index."""
    rows = tuple(
        SegmentInventory(at * 10, size, 1000 + at, 900 + at, 10, offset_entries, time_entries)
        for at, (size, offset_entries, time_entries) in enumerate(segments)
    )
    place = PartitionPath("s", None, f"/s/{topic}-{partition}", topic, partition,
                  sum(each.size for each in rows))  # fmt: skip
    end = len(rows) * 10
    return PartitionInventory(place, rows, 0, end, end, None, ((950, 5),), None)


def test_entries_are_counted_against_the_bytes_of_those_logs_that_have_the_index():
    offset, time = densities(
        [row_of("t", 0, (MIB, 256, None), (MIB, 128, 64)), row_of("t", 1, (4096, 0, 1))]
    )
    assert (offset.files, offset.missing, offset.entries) == (3, 0, 384)
    assert offset.spacing == (2 * MIB + 4096) / 384
    assert offset.per_mib == pytest.approx(384 / (2 + 4096 / MIB))
    assert {at + LEAST_POWER: count for at, count in enumerate(offset.counts) if count} == {
        12: 1, 13: 1,
    }
    assert (time.files, time.missing, time.entries, time.small) == (2, 1, 65, 1)
    assert time.bytes == MIB + 4096
    assert {at + LEAST_POWER: count for at, count in enumerate(time.counts) if count} == {
        12: 1, 14: 1,
    }


def test_without_entries_there_is_no_density():
    store = StoreResult("s", "/s", partitions=[row_of("t", 0, (500, 0, None))])
    offset, time = densities(store.partitions)
    assert (offset.spacing, offset.per_mib, time.spacing, time.per_mib) == (None, 0, None, None)
    assert plots.density(store) is None
    assert plots.density(StoreResult("s", "/s")) is None
    assert plots.timeline(StoreResult("s", "/s")) is None
    assert "No index has entries" in " ".join(page_of(result_with(store)).text)


def test_sizes_are_added_up_by_topic_and_by_partition_the_largest_first():
    store = StoreResult("s", "/s", partitions=[
        row_of("a", 0, (100, 1, 1)), row_of("a", 1, (300, 1, 2)), row_of("b", 0, (350, 0, None)),
    ])  # fmt: skip
    assert [(each.name, each.bytes, each.partitions) for each in sizes_by_topic(store)] == [
        ("a", 400, 2), ("b", 350, 1),
    ]
    assert [(each.name, each.bytes) for each in sizes_by_partition(store)] == [
        ("b-0", 350), ("a-1", 300), ("a-0", 100),
    ]
    assert [each.offset_spacing for each in sizes_by_topic(store)] == [200, None]
    assert sizes_by_partition(store)[1].time_spacing == 150


def answers(legacy, kip_33, broker, correct, timestamp=5):
    return AnswerRow(timestamp, legacy, kip_33, broker, correct, 0, 0)


def test_answers_are_right_early_late_missing_or_needless():
    store = StoreResult("s", "/s")
    key = TopicPartition("t", 0)
    store.before[key] = (answers(3, 7, None, 7), answers(9, 8, 7, 7), answers(9, 7, 9, None))
    store.after[key] = (answers(3, 7, 7, 7), answers(9, 7, 7, 7), answers(9, None, None, None))
    assert [tuple(each)[:8] for each in differences(store)] == [
        ("legacy", "", 3, 0, 1, 1, 0, 1),
        ("kip-33", "before", 3, 1, 0, 1, 0, 1),
        ("kip-33", "after", 3, 3, 0, 0, 0, 0),
        ("4.3", "before", 3, 1, 0, 0, 1, 1),
        ("4.3", "after", 3, 3, 0, 0, 0, 0),
        ("correct", "", 3, 3, 0, 0, 0, 0),
    ]
    legacy = differences(store)[0]
    assert (legacy.most_early, legacy.most_late) == (4, 2)
    stamps, offsets = distances(store, "legacy")
    assert (stamps.tolist(), offsets.tolist()) == ([5, 5], [-4, 2])


def test_of_many_answers_those_that_differ_are_shown_in_order():
    store = StoreResult("s", "/s")
    for partition in range(3):
        store.after[TopicPartition("t", partition)] = tuple(
            answers(7 - (at % 50 == partition), 7, 7, 7, at) for at in range(500 * partition)
        )
    store.before = store.after
    tables = answer_tables(store, most=1)
    assert [(each.name, each.times, each.differing) for each in tables] == [("t-2", 1000, 20)]
    (table,) = tables
    stamps = [after.target_timestamp for _, after in table.rows]
    assert len(stamps) == MOST_ANSWERS
    assert stamps == sorted(stamps)
    assert {at for at in range(1000) if at % 50 == 2} <= set(stamps)


def test_findings_are_counted_by_severity_the_worst_first():
    finding = Finding(FindingKind.EMPTY_OFFSET_INDEX, Path("/f"), 3, "what", "r")
    store = StoreResult("s", "/s", findings_before=[finding, finding], findings_after=[finding])
    assert [tuple(each) for each in severities(store)] == [
        ("data-loss-risk", 0, 0), ("wrong-answers", 0, 0), ("slow", 2, 1), ("style", 0, 0),
    ]


def test_times_that_are_not_dates_are_not_drawn(tmp_path):
    stamps = [5, 1_500_000_000_000, LAST_DATE_MS, LAST_DATE_MS + 1]
    rows = tuple(Row(at, stamp, None, b"v", ()) for at, stamp in enumerate(stamps))
    log = Log((Segment(0, (Batch(rows=rows),), modified_ms=10**15),))
    page_of(result_with(store_of(log.write(tmp_path / "logs"))))


def test_findings_of_one_kind_are_one_group_the_worst_first():
    def finding(kind, what):
        return Finding(kind, Path("/f"), 3, what, "r")

    store = StoreResult("s", "/s")
    store.findings_before = [
        finding(FindingKind.UNKNOWN_ATTRIBUTES, "entry 1 of 2"),
        finding(FindingKind.UNKNOWN_ATTRIBUTES, "entry 20 of 30"),
        finding(FindingKind.CORRUPT_BATCH, "gone"),
    ]
    store.findings_after = [finding(FindingKind.UNKNOWN_ATTRIBUTES, "entry 7 of 7")]
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


@given(st.lists(st.builds(
    AnswerRow, st.integers(0, 2**63 - 1), *[st.none() | st.integers(0, 2**63 - 1)] * 6
)))
def test_answers_in_columns_are_the_same_answers(rows):
    columns = AnswerColumns(rows)
    assert list(columns) == [columns[at] for at in range(len(columns))] == columns[:] == rows


def test_results_of_many_partitions_take_little_memory(tmp_path):
    """The largest of what the driver holds: answers, and result.json while it is written."""
    number, count = 400, 100
    rows = [AnswerRow(10**12 + at, *range(at, at + 6)) for at in range(count)]
    store = StoreResult("store", str(tmp_path))
    tracemalloc.start()
    try:
        for partition in range(number):
            place = PartitionPath("store", None, "", "t", partition, 0)
            store.partitions.append(PartitionInventory(place, (), 0, 0, 0, None, (), None))
            store.before[TopicPartition("t", partition)] = AnswerColumns(rows)
        kept = tracemalloc.get_traced_memory()[0]
        assert kept / number < 1.5 * 8 * count * len(AnswerRow._fields)
        tracemalloc.reset_peak()
        result = PipelineResult(tmp_path, "auto", 0, [store])
        written = sum(map(len, result.json_parts()))
        assert tracemalloc.get_traced_memory()[1] - kept < written / 4
    finally:
        tracemalloc.stop()
    assert len(json.loads(result.to_json())["stores"][0]["partitions"]) == number
