"""``cat --latest`` prints the records that `latest()` of each topic returns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from cli.running import Ran, Run, assert_one_sentence
from models.latest_model import topic_logs, write_topic
from models.log_directory import Log, Segment
from models.record_format import Batch, Row
from models.record_strategies import in_a_row
from models.seed import SEED

import kafkastore


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory of two topics: one of three partitions, one of one."""
    root: Path = write_topic(tmp_path / "logs", "t", topic_logs(f"{SEED}/cat", 3))
    other: Path = write_topic(tmp_path / "other", "u", topic_logs(f"{SEED}/cat other", 1))
    (other / "u-0").rename(root / "u-0")
    return root


def wanted(root: Path, **options: Any) -> list[tuple[str, int, int]]:
    """Topic, partition and offset of each row of `latest()`."""
    found = []
    for topic in kafkastore.open(root).topics.values():
        rows = topic.latest(["topic", "partition", "offset"], **options).read_all().to_pylist()
        found += [(row["topic"], row["partition"], row["offset"]) for row in rows]
    return found


def printed(ran: Ran) -> list[tuple[str, int, int]]:
    return [(row["topic"], row["partition"], row["offset"]) for row in ran.lines]


def test_the_last_record_of_each_key_of_each_topic_is_printed(run: Run, root: Path) -> None:
    assert printed(run("cat", root, "--latest", "--json")) == wanted(root)
    assert printed(run("cat", root, "--latest", "--json", "--topic", "u")) == [
        each for each in wanted(root) if each[0] == "u"
    ]
    assert run("cat", root, "--latest", "--count").out.split() == [str(len(wanted(root)))]


def test_bounds_filters_and_limits_choose_as_documented(run: Run, root: Path) -> None:
    ran = run("cat", root, "--latest", "--json", "--until-offset", 40, "--topic", "u")
    one = kafkastore.open(root)["u-0"].latest(["offset"], end_offset=40).read_all()
    assert [each[2] for each in printed(ran)] == one["offset"].to_pylist()
    assert printed(run("cat", root, "--latest", "--json", "--limit", 5)) == wanted(root)[:5]
    rows = kafkastore.open(root).topic("t").latest(["key", "partition", "offset"]).read_all()
    matching = [
        ("t", row["partition"], row["offset"])
        for row in rows.to_pylist()
        if row["key"].startswith((b"a", b"1"))
    ]
    ran = run("cat", root, "--latest", "--json", "--topic", "t", "--key", "^[a1]")
    assert printed(ran) == matching


def test_a_parquet_file_has_the_same_rows(run: Run, root: Path, tmp_path: Path) -> None:
    out = tmp_path / "latest.parquet"
    run("cat", root, "--latest", "-o", out)
    rows = pq.read_table(out, columns=["topic", "partition", "offset"]).to_pylist()
    assert [(row["topic"], row["partition"], row["offset"]) for row in rows] == wanted(root)


def test_a_topic_with_a_corrupt_partition_is_left_out(run: Run, tmp_path: Path) -> None:
    rows = [Batch((Row(0, 5, b"k%d" % number, b"value"),)) for number in range(3)]
    log = Log((Segment(0, tuple(in_a_row(rows))),))
    root: Path = write_topic(tmp_path / "logs", "t", {0: log, 1: log})
    path = root / "t-1" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[len(rows[0].data) - 1] ^= 1
    path.write_bytes(data)
    other: Path = write_topic(tmp_path / "other", "u", {0: log})
    (other / "u-0").rename(root / "u-0")
    ran = run("cat", root, "--latest", "--json")
    assert ran.code == 1
    assert printed(ran) == [("u", 0, 0), ("u", 0, 1), ("u", 0, 2)]
    skipping = run("cat", root, "--latest", "--json", "--topic", "t", "--on-corrupt", "skip")
    assert skipping.code == 1
    assert printed(skipping) == [("t", 0, 0), ("t", 1, 1), ("t", 1, 2)]


@pytest.mark.parametrize("option", [["--tail", "3"], ["--follow"]])
def test_options_that_do_not_fit_are_refused(run: Run, root: Path, option: list[str]) -> None:
    assert_one_sentence(run("cat", root, "--latest", *option))


def test_uncommitted_records_are_refused_because_only_committed_ones_count(
    run: Run, sample_root: Path
) -> None:
    plain = run("cat", sample_root, "--latest", "--json")
    assert plain == run("cat", sample_root, "--latest", "--json", "--isolation", "read_committed")
    ran = run("cat", sample_root, "--latest", "--isolation", "read_uncommitted")
    assert_one_sentence(ran, "--latest reads committed records only", "--isolation")
