from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow.ipc
import pyarrow.parquet
import pytest
from cli.running import Run, assert_one_sentence

import kafkastore
from kafkastore.cli.commands import compare as compare_command
from kafkastore.cli.options.selection import select

AT = ["--at", "2017-07-14T02:41:23Z"]


def test_each_time_has_three_answers_and_the_cost_of_the_legacy_one(
    run: Run, sample_root: Path
) -> None:
    (row,) = run("compare", sample_root, "--topic", "up-1", *AT, "--json").lines
    assert row == {
        "topic": "up", "partition": 1, "target_timestamp": 1500000083000, "legacy": 44,
        "broker": 11, "correct": 11, "redelivered": 0, "missed": 33,
        "remote_segment": None, "skipped": [],
    }
    ran = run("compare", sample_root, "--topic", "up-1", *AT)
    assert ran.out.splitlines()[-2].split()[2:] == ["44", "11", "11", "0", "33"]
    assert ran.out.splitlines()[-1].startswith("1 lookup: legacy answers redeliver 0 records")


def test_times_are_spread_if_none_are_given(run: Run, sample_root: Path) -> None:
    rows = run("compare", sample_root, "--topic", "up", "--samples", 4, "--json").lines
    times = [row["target_timestamp"] for row in rows if row["partition"] == 0]
    assert times == sorted(times)
    assert (len(times), len(rows)) == (4, 8)
    assert len(run("compare", sample_root, "--topic", "up-0", "--samples", 1, "--json").lines) == 1


def test_old_segments_without_timestamps_are_compared_by_their_modification_times(
    run: Run, sample_roots: dict[str, Path]
) -> None:
    rows = run("compare", sample_roots["0.8.2.2"], "--topic", "up", "--json").lines
    assert rows
    assert all(row["correct"] is None for row in rows)
    assert any(row["legacy"] is not None for row in rows)


def test_the_version_must_have_time_indexes(run: Run, sample_root: Path) -> None:
    for name in ("legacy", "correct", "all", "0.8"):
        assert_one_sentence(run("compare", sample_root, "--rules", name), "--rules", name)


def test_a_summary_has_a_row_for_each_partition_and_the_total(
    run: Run, sample_root: Path
) -> None:
    rows = run("compare", sample_root, "--samples", 7, "--json").lines
    *parts, total = run("compare", sample_root, "--samples", 7, "--summary", "--json").lines
    assert len(parts) == 4
    for part in parts:
        own = [
            row for row in rows
            if (row["topic"], row["partition"]) == (part["topic"], part["partition"])
        ]
        assert part == summary_of(own) | {"topic": part["topic"], "partition": part["partition"]}
    assert total == summary_of(rows) | {"topic": None, "partition": None}
    printed = run("compare", sample_root, "--samples", 7, "--summary").out.splitlines()
    assert [line.split()[0] for line in printed[2:-1]] == [
        f"{part['topic']}-{part['partition']}" for part in parts
    ]
    of_rows = run("compare", sample_root, "--samples", 7).out.splitlines()
    assert printed[-1] == of_rows[-1]
    assert len(of_rows) == 1 + len(rows) + 1


def summary_of(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Return the expected summary of rows."""
    redelivered = [row["redelivered"] or 0 for row in rows]
    missed = [row["missed"] or 0 for row in rows]
    return {
        "times": len(rows),
        "unanswered_times": sum(row["legacy"] is None for row in rows),
        "too_low": sum(count > 0 for count in redelivered),
        "too_high": sum(count > 0 for count in missed),
        "redelivered": sum(redelivered),
        "missed": sum(missed),
        "most_redelivered": max(redelivered),
        "most_missed": max(missed),
        "broker_differs": sum(row["broker"] != row["correct"] for row in rows),
        "remote_times": sum(row["remote_segment"] is not None for row in rows),
    }


def test_rows_become_arrow_and_parquet(run: Run, sample_root: Path, tmp_path: Path) -> None:
    rows = run("compare", sample_root, "--samples", 5, "--json").lines
    for form in ("arrow", "parquet"):
        file = tmp_path / f"rows.{form}"
        ran = run("compare", sample_root, "--samples", 5, "--format", form, "-o", file)
        assert ran.code == 0
        assert ran.out.splitlines()[0].startswith(f"{len(rows)} lookups: legacy answers")
        if form == "arrow":
            with pyarrow.ipc.open_file(file) as reader:
                table = reader.read_all()
        else:
            table = pyarrow.parquet.read_table(file)
        assert table.to_pylist() == rows
        assert os.listdir(tmp_path).count(f"rows.{form}") == 1
    assert sorted(os.listdir(tmp_path)) == ["rows.arrow", "rows.parquet"]


def test_a_copy_that_lost_its_modification_times_can_use_a_file_of_them(
    run: Run, sample_root: Path, tmp_path: Path
) -> None:
    copy, times = tmp_path / "copy", tmp_path / "mtimes.json"
    shutil.copytree(sample_root, copy, copy_function=shutil.copyfile)
    questions = ["--samples", 6, "--json"]
    right = run("compare", sample_root, *questions, "--save-mtimes", times)
    assert right.err == ""
    assert run("compare", copy, *questions).lines != right.lines
    ran = run("compare", copy, *questions, "--mtimes", times)
    assert ran.err == ""
    strip = ("broker",)     # the broker's answers also depend on the copy's modification times
    for row, expected in zip(ran.lines, right.lines, strict=True):
        assert {k: v for k, v in row.items() if k not in strip} == {
            k: v for k, v in expected.items() if k not in strip
        }
    by_partition = run("compare", copy / "up-1", *questions, "--mtimes", times).lines
    assert [row["legacy"] for row in by_partition] == [
        row["legacy"] for row in right.lines if (row["topic"], row["partition"]) == ("up", 1)
    ]


def test_whole_seconds_are_the_times_that_java_8_saw(
    run: Run, sample_root: Path, tmp_path: Path
) -> None:
    times = tmp_path / "mtimes.json"
    names = [segment.log_path.name for segment in kafkastore.open(sample_root)["up-1"].segments]
    times.write_text(json.dumps(dict.fromkeys(names, 1500000083001)))
    question = ["compare", sample_root, "--topic", "up-1", *AT, "--json", "--mtimes", times]
    assert run(*question).lines[0]["legacy"] is None
    assert run(*question, "--whole-seconds").lines[0]["legacy"] == 44


def test_implausible_modification_times_are_refused_or_noted(
    run: Run, sample_root: Path, tmp_path: Path
) -> None:
    times = tmp_path / "mtimes.json"
    times.write_text('{"00000000000000000000.log": 5}')
    question = ["compare", sample_root, *AT, "--mtimes", times]
    assert_one_sentence(run(*question), "several are selected", "orders-3/00000000000000000000.log")
    assert run(*question, "--topic", "up-1").err == ""
    times.write_text('{"other-1/00000000000000000000.log": 5}')
    ran = run(*question)
    assert ran.code == 0
    assert ran.err.startswith("note: ")
    assert "has no entry for the selected segments" in ran.err
    times.write_text("[]")
    assert_one_sentence(run(*question), "must be an object", str(times))
    assert_one_sentence(run("compare", sample_root, "--mtimes", tmp_path / "none"), "not exist")


@pytest.mark.parametrize("form", ["svg", "png"])
def test_the_answers_of_one_partition_can_be_plotted(
    run: Run, sample_root: Path, tmp_path: Path, form: str
) -> None:
    file = tmp_path / f"up.{form}"
    ran = run("compare", sample_root, "--topic", "up-1", "--samples", 3, "--plot", file)
    assert (ran.code, len(ran.out.splitlines())) == (0, 5)
    drawn = file.read_bytes()
    assert drawn.startswith(b"\x89PNG" if form == "png" else b"<?xml")
    if form == "svg":
        assert b"legacy: by modification times" in drawn
    ran = run("compare", sample_root, "--topic", "up-1", "--json", "--plot", file)
    assert len(ran.lines) == 10


def test_several_partitions_are_plotted_into_a_file_each(
    run: Run, sample_root: Path, tmp_path: Path
) -> None:
    ran = run("compare", sample_root, "--topic", "up", "--summary", "--plot", tmp_path / "a.svg")
    assert ran.code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"a.up-0.svg", "a.up-1.svg"}


def test_what_cannot_be_plotted_is_one_sentence(
    run: Run, sample_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "up.svg"
    one = ["compare", sample_root, "--topic", "up-1"]
    assert_one_sentence(run(*one, "--plot", tmp_path / "up.pdf"), ".svg or .png")
    assert_one_sentence(run(*one, *AT, "--plot", file), "two different times")
    inside = sample_root / "up.svg"
    assert_one_sentence(run(*one, "--plot", inside), "only read")
    monkeypatch.setattr(compare_command, "find_spec", lambda name: None)
    assert_one_sentence(run(*one, "--plot", file), "--plot needs matplotlib")
    assert not file.exists()
    assert not inside.exists()


def test_contradictory_output_options_are_refused(
    run: Run, sample_root: Path, tmp_path: Path
) -> None:
    file = tmp_path / "rows"
    for options, said in (
        (["--format", "arrow"], "needs a file"),
        (["-o", file], "--format arrow"),
        (["--format", "arrow", "-o", file, "--json"], "a row for each time"),
        (["--format", "parquet", "-o", file, "--summary"], "a row for each time"),
        (["--format", "parquet", "-o", sample_root / "rows"], "only read"),
        (["--save-mtimes", sample_root / "mtimes.json"], "only read"),
    ):
        assert_one_sentence(run("compare", sample_root, *options), said)
    assert os.listdir(tmp_path) == []


def test_finished_partitions_are_closed(sample_root: Path) -> None:
    selection = select([sample_root])
    for log in compare_command._logs(selection):
        assert log.segments
    for topic_partition in selection.topic_partitions:
        assert "segments" not in vars(selection.store.partitions[topic_partition])


def test_a_partition_with_nothing_to_plot_does_not_stop_the_others(
    run: Run, sample_root: Path, tmp_path: Path
) -> None:
    ran = run("compare", sample_root, "--samples", 3, "--plot", tmp_path / "drawn.svg")
    assert ran.code == 0
    assert "note: up-empty-0 is not drawn: " in ran.err
    assert {file.name for file in tmp_path.glob("drawn.*")} == {
        "drawn.up-0.svg", "drawn.up-1.svg", "drawn.up-compressed-0.svg",
    }
    alone = run("compare", sample_root, "--topic", "up-empty", "--plot", tmp_path / "alone.svg")
    assert_one_sentence(alone, "two different times")
    assert not (tmp_path / "alone.svg").exists()


def test_times_are_chosen_where_a_migration_finds_wrong_answers(
    run: Run, sample_root: Path, tmp_path: Path
) -> None:
    """Times are not after the last record, even if all files have the time of a copy."""
    copy = tmp_path / "copy"
    shutil.copytree(sample_root, copy, copy_function=shutil.copyfile)
    *_, total = run("compare", copy, "--summary", "--json").lines
    assert total["broker_differs"] >= 5
    rows = run("compare", copy, "--topic", "up", "--json").lines
    after_end = [row for row in rows if row["correct"] is None]
    assert len(rows) == 20
    assert len(after_end) <= 2
    before = [each for each in run("migrate", copy, "--json").lines if each["kind"] == "answers"]
    assert before[0]["correct_before"] < before[0]["times"]
