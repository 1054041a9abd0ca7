"""``kafkastore sizing``."""
from __future__ import annotations

import re
from pathlib import Path

from cli.running import Run, assert_one_sentence

DOCUMENT = Path(__file__).parents[2] / "docs" / "cli.md"


def test_without_a_path_the_table_of_the_proposal_is_computed(run: Run) -> None:
    ran = run("sizing")
    assert ran.code == 0
    assert ran.out.startswith("3,500 partitions, ")
    assert re.search(r"^second +302,400,000 +3\.38 GiB$", ran.out, re.MULTILINE)
    assert re.search(r"^minute +5,040,000 +57\.7 MiB$", ran.out, re.MULTILINE)


def test_a_partition_of_1_gb_has_a_time_index_of_3_mb(run: Run) -> None:
    ran = run("sizing", "--broker-partitions", 1, "--interval", 4096)
    assert re.search(r"^4\.00 KiB +262,144 +2\.00 MiB +262,144 +3\.00 MiB ", ran.out, re.MULTILINE)


def test_a_directory_has_actual_and_estimated_sizes(run: Run, sample_root: Path) -> None:
    ran = run("sizing", sample_root, "--topic", "up-1", "--interval", 100)
    assert ran.out.startswith("1 partition, 3 segments, 6.17 KiB of log\n")
    assert re.search(r"^as it is +\d+ +\d+ B +0 +0 B ", ran.out, re.MULTILINE)
    assert re.search(r"^ +100 B +\d+ ", ran.out, re.MULTILINE)


def test_json_has_the_documented_fields(run: Run, sample_root: Path) -> None:
    chapter = DOCUMENT.read_text(encoding="utf-8").split("\n## sizing\n")[1].split("\n## ")[0]
    fields = set(re.findall(r"`([a-z_]+)`", chapter[chapter.index("JSON"):]))
    rows = run("sizing", sample_root, "--json").lines
    assert {row["kind"] for row in rows} == {"log", "interval", "bucket"} <= fields
    for row in rows:
        assert set(row) - {"kind"} <= fields
    intervals = [row["index_interval_bytes"] for row in rows if row["kind"] == "interval"]
    assert intervals == [None, 1024, 4096, 16_384, 65_536]


def test_topics_need_a_path(run: Run) -> None:
    assert_one_sentence(run("sizing", "--topic", "orders"), "--topic", "PATH")
    assert_one_sentence(run("sizing", "--interval", 0), "--interval")


def test_unreadable_partitions_are_reported_and_the_rest_is_sized(
    run: Run, sample_copy: Path
) -> None:
    index = sample_copy / "up-0" / "00000000000000000000.index"
    index.unlink()
    index.mkdir()
    ran = run("sizing", sample_copy)
    assert ran.code == 1
    assert ran.err.startswith("kafkastore: up-0: ")
    assert ran.out.startswith("3 partitions, ")
