"""``kafkastore latency``."""
from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.running import Run, assert_one_sentence
from use_cases.stores import T0, record, written

DOCUMENT = Path(__file__).parents[2] / "docs" / "cli.md"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Write a topic of 100 records with latencies of 1 to 100 ms, and one with create times."""
    clock = {"now": T0}
    with written(tmp_path / "logs", clock=lambda: clock["now"]) as partition:
        orders = partition("orders", message_timestamp_type="LogAppendTime")
        for number in range(1, 101):
            clock["now"] = T0 + 1000 * number
            header = (("sent", b"%d" % (clock["now"] - 5)),) if number > 50 else ()
            orders.add(record(clock["now"] - number, headers=header))
        partition("plain").add(record(T0))
    return tmp_path / "logs"


def test_percentiles_are_listed_by_topic(run: Run, root: Path) -> None:
    ran = run("latency", root)
    assert ran.code == 0
    assert re.search(
        r"^orders +100 +50 ms +90 ms +99 ms +100 ms +100 ms +0 +0$", ran.out, re.MULTILINE
    )
    assert ran.err == "note: no latency is known of plain\n"


def test_json_has_the_documented_fields(run: Run, root: Path) -> None:
    chapter = DOCUMENT.read_text(encoding="utf-8").split("\n## latency\n")[1].split("\n## ")[0]
    documented = set(re.findall(r"`([a-z_0-9]+)`", chapter.partition("JSON")[2]))
    orders, plain = run("latency", root, "--json").lines
    assert set(orders) | set(plain) <= documented
    assert (orders["p99_ms"], orders["max_ms"], orders["records"]) == (99, 100, 100)
    assert (plain["max_ms"], plain["create_time_batches"]) == (None, 1)


def test_the_create_time_may_be_in_a_header(run: Run, root: Path) -> None:
    (row,) = run(
        "latency", root, "--topic", "orders", "--create-time-header", "sent", "--json"
    ).lines
    assert (row["records"], row["unknown_records"], row["max_ms"]) == (50, 50, 5)
    ran = run("latency", root, "--create-time-header", "none")
    assert (ran.code, ran.out) == (0, "")
    assert "have no header none with a time" in ran.err


def test_create_times_may_come_from_another_cluster(
    run: Run, root: Path, tmp_path: Path
) -> None:
    with written(tmp_path / "other") as partition:
        partition("orders").add(record(T0))
    given = ("--topic", "orders", "--created-in", tmp_path / "other")
    (row,) = run("latency", root, *given, "--json").lines
    # All records are equal: the first of one cluster is the first of the other.
    assert (row["records"], row["unknown_records"], row["max_ms"]) == (1, 99, 1000)
    assert_one_sentence(run("latency", root, *given, "--create-time-header", "x"), "combined")
    assert_one_sentence(run("latency", root, "--created-in", "/nowhere"), "/nowhere does not exist")


def test_latencies_of_a_real_broker(run: Run, golden: Any) -> None:
    case = golden("3.9.1", "log-append-time", "answers")
    (row,) = run("latency", case.logs, "--partition", 0, "--json").lines
    records = case.answers["partitions"]["lat-0"]["records"]
    assert row["records"] == len(records)
    appended = np.array([timestamp for _, timestamp, *_ in records])
    # They were sent with 40 timestamps from 2017, one ms apart.
    assert appended.max() - 1_500_000_000_040 < row["max_ms"] <= appended.max() - 1_500_000_000_000


def test_the_reason_is_reported_if_no_latency_is_known(
    run: Run, sample_root: Path, golden: Any
) -> None:
    ran = run("latency", sample_root)
    assert (ran.code, ran.out) == (0, "")
    assert "no record has LogAppendTime" in ran.err
    logs = golden("0.10.2.2", "log-append-time", "answers").logs
    assert "kept no create times" in run("latency", logs, "--partition", 0).err


def test_wrong_arguments_are_one_sentence(run: Run, root: Path) -> None:
    assert_one_sentence(run("latency", root, "--topic", "order"), "did you mean orders?")
    assert_one_sentence(run("latency", root / "none"), "does not exist")
    (path,) = (root / "orders-0").glob("*.log")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    ran = run("latency", root)
    assert ran.code == 1
    assert "kafkastore: orders-0: the batch that ends with offset 99 fails its checksum" in ran.err
