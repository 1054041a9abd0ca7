from __future__ import annotations

from pathlib import Path

from cli.running import Run, assert_one_sentence


def test_each_time_has_three_answers_and_what_the_legacy_one_costs(
    run: Run, sample_root: Path
) -> None:
    at = ["--at", "2017-07-14T02:41:23Z"]
    (row,) = run("compare", sample_root, "--topic", "up-1", *at, "--json").lines
    assert row == {
        "topic": "up", "partition": 1, "asked_timestamp": 1500000083000, "legacy": 44,
        "broker": 11, "correct": 11, "redelivered": 0, "missed": 33,
    }
    ran = run("compare", sample_root, "--topic", "up-1", *at)
    assert ran.out.splitlines()[-2].split()[2:] == ["44", "11", "11", "0", "33"]
    assert ran.out.splitlines()[-1].startswith("1 question: legacy answers redeliver 0 records")


def test_times_are_spread_where_none_are_given(run: Run, sample_root: Path) -> None:
    rows = run("compare", sample_root, "--topic", "up", "--samples", 4, "--json").lines
    asked = [row["asked_timestamp"] for row in rows if row["partition"] == 0]
    assert asked == sorted(asked)
    assert (len(asked), len(rows)) == (4, 8)
    assert len(run("compare", sample_root, "--topic", "up-0", "--samples", 1, "--json").lines) == 1


def test_old_segments_without_timestamps_are_compared_by_their_modification_times(
    run: Run, sample_roots: dict[str, Path]
) -> None:
    rows = run("compare", sample_roots["0.8.2.2"], "--topic", "up", "--json").lines
    assert rows
    assert all(row["correct"] is None for row in rows)
    assert any(row["legacy"] is not None for row in rows)


def test_the_broker_must_be_one_with_time_indexes(run: Run, sample_root: Path) -> None:
    assert_one_sentence(run("compare", sample_root, "--rules", "legacy"), "name a version")
    assert_one_sentence(run("compare", sample_root, "--rules", "0.8"), "no time indexes")
