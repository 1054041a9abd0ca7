"""Plots of answers over time."""
import io
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from kafkastore.legacy import fetch_offsets_before, offset_times
from kafkastore.legacy.answer_plot import NothingToDrawError, draw_answers, plot_answers
from models.log_directory import Log, Segment
from models.record_format import Batch, Row

import kafkastore

SPAN = (1_500_000_000_000, 1_500_000_600_000)


@pytest.fixture
def log(golden):
    return kafkastore.open(golden("2.4.0", "create-time-monotonic", "answers").logs)["mono-0"]


def test_each_point_is_the_answer_of_the_rules(log):
    drawn = plot_answers(log, SPAN, now=1 << 45, rules="3.9")
    assert drawn.timestamps[[0, -1]].tolist() == list(SPAN)
    assert (np.diff(drawn.timestamps) > 0).all()
    points = list(zip(*(column.tolist() for column in drawn[:4]), strict=True))
    for timestamp, legacy, broker, correct in points[::37]:
        before = fetch_offsets_before(log, timestamp, 1, now=1 << 45)
        assert legacy == (before[0] if before else -1)
        for offset, rules in ((broker, "3.9"), (correct, "correct")):
            found = log.offset_for_timestamp(timestamp, rules)
            assert offset == (-1 if found is None else found.offset)


def test_every_change_of_the_legacy_answer_is_a_point(log):
    drawn = plot_answers(log, SPAN, now=SPAN[1] - 5)
    times = offset_times(log, SPAN[1] - 5)
    changes = {mtime for _, mtime in times.segments if SPAN[0] <= mtime <= SPAN[1]}
    assert len(changes) > 3
    assert {*changes, SPAN[1] - 5} <= set(drawn.timestamps.tolist())
    assert drawn.legacy[-1] == log.log_end_offset


def test_given_modification_times_are_used(log):
    mtimes = {"00000000000000000000.log": SPAN[0] + 12_345}
    drawn = plot_answers(log, SPAN, now=1 << 45, mtimes=mtimes, whole_seconds=True)
    assert SPAN[0] + 12_000 in drawn.timestamps
    assert drawn.times.segments[0] == (0, SPAN[0] + 12_000)


@pytest.mark.parametrize("times", [[], [5], [5, 5], [1 << 60, 1 << 61], [5, 1 << 62]])
def test_a_plot_needs_two_times(log, times):
    with pytest.raises(NothingToDrawError):
        plot_answers(log, times)


def drawing_of(drawn, form, **options):
    file = io.BytesIO()
    draw_answers(file, form, drawn, **options)
    return file.getvalue()


def test_a_plot_has_labels_and_is_reproducible(log):
    drawn = plot_answers(log, SPAN, now=1 << 45)
    svg = drawing_of(drawn, "svg", rules="3.9")
    text = "".join(ElementTree.fromstring(svg).itertext())
    for said in ("3.9: by time indexes", "legacy: by modification times", "correct:", "2017-07-14"):
        assert said in text
    assert drawing_of(drawn, "svg", rules="3.9") == svg
    png = drawing_of(drawn, "png")
    assert png.startswith(b"\x89PNG\r\n")
    assert len(png) > 10_000


def test_every_segment_in_the_range_has_a_line_and_a_mark(tmp_path):
    segments = tuple(
        Segment(base, (Batch((Row(base, 1000 * base + 500),)),), 1000 * base + 900).recovered()
        for base in range(7)
    )
    log = kafkastore.open(Log(segments, is_clean=True).write(tmp_path / "logs"))["t-0"]
    assert marks_and_lines(plot_answers(log, [0, 7000], now=1 << 45)) == (7, 7)
    assert marks_and_lines(plot_answers(log, [0, 3500], now=1 << 45)) == (3, 7)


def marks_and_lines(drawn):
    svg = drawing_of(drawn, "svg").decode()
    marks = re.findall(r'<use [^>]*style="fill: #7c3aed', svg)
    lines = re.findall(r'<path [^>]*style="fill: none; stroke: #c8cdd2; stroke-width: 0\.6', svg)
    return len(marks) - 1, len(lines)    # one more mark in the legend


def test_without_timestamps_there_is_only_the_legacy_line(golden):
    log = kafkastore.open(golden("0.8.2.2", "upgrade", "answers").logs)["up-0"]
    drawn = plot_answers(log, SPAN, now=1 << 45)
    assert (drawn.correct == -1).all()
    assert (drawn.legacy > 0).any()
    assert drawing_of(drawn, "png").startswith(b"\x89PNG")


def test_only_plots_import_matplotlib():
    script = (
        "import kafkastore.legacy, kafkastore.legacy.answer_plot, kafkastore.time_axes, sys;"
        "sys.exit('matplotlib' in sys.modules or 'pyarrow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
