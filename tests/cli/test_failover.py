"""``kafkastore failover``."""
from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli.running import Run, assert_one_sentence
from use_cases.stores import T0, commit, record, written

DOCUMENT = Path(__file__).parents[2] / "docs" / "cli.md"

# Two messages arrive in opposite orders.
FIRST = [(T0, b"m0"), (T0 + 20, b"m2"), (T0 + 10, b"m1"), (T0 + 30, b"m3")]
SECOND = [(T0, b"m0"), (T0 + 10, b"m1"), (T0 + 20, b"m2"), (T0 + 30, b"m3")]


def write(root: Path, records: list, topic: str = "orders", *, lat: bool = False) -> Path:
    clock = {"now": T0}
    config = {"message_timestamp_type": "LogAppendTime"} if lat else {}
    with written(root, clock=lambda: clock["now"]) as partition:
        for timestamp, value in records:
            clock["now"] = timestamp + 15
            partition(topic, **config).add(record(timestamp, value))
        partition("__consumer_offsets").add(commit("billing", topic, 0, 2))
    return root


@pytest.fixture
def clusters(tmp_path: Path) -> tuple[Path, Path]:
    return write(tmp_path / "1", FIRST), write(tmp_path / "2", SECOND)


def test_groups_continue_at_offsets_where_nothing_is_lost(
    run: Run, clusters: tuple[Path, Path]
) -> None:
    ran = run("failover", *clusters)
    assert ran.code == 0
    assert re.search(
        r"^billing +orders-0 +2 +1 +2020-09-13T12:26:40.010Z +0 +1  the earliest unread record",
        ran.out, re.MULTILINE,
    )
    assert ran.out.endswith(
        "cluster 2 has 2 of 2 unread records: none is lost; 1 are consumed twice\n"
    )


def test_json_has_the_documented_fields(run: Run, clusters: tuple[Path, Path]) -> None:
    chapter = DOCUMENT.read_text(encoding="utf-8").split("\n## failover\n")[1].split("\n## ")[0]
    documented = set(re.findall(r"`([a-z_0-9]+)`", chapter.partition("JSON")[2]))
    (row,) = run("failover", *clusters, "--json").lines
    assert set(row) <= documented
    assert (row["offset"], row["bound_timestamp"], row["lost_records"]) == (1, T0 + 10, 0)
    (row,) = run("failover", *clusters, "--no-check", "--json").lines
    assert (row["offset"], row["lost_records"]) == (1, None)


def test_the_output_is_a_file_of_positions(
    run: Run, clusters: tuple[Path, Path], tmp_path: Path
) -> None:
    """``lag`` of cluster 2 accepts it."""
    saved = tmp_path / "positions"
    saved.write_text(run("failover", *clusters, "--json").out)
    (row,) = run("lag", clusters[1], "--offsets-file", saved, "--json").lines
    assert (row["group"], row["offset"], row["lag_records"]) == ("billing", 1, 3)


def test_the_largest_latency_may_be_given_or_measured_here_or_elsewhere(
    run: Run, clusters: tuple[Path, Path], tmp_path: Path
) -> None:
    by = ("--by", "log-append-time", "--json")
    (row,) = run("failover", *clusters, *by, "--largest-latency", "12ms").lines
    assert (row["bound_timestamp"], row["offset"]) == (T0 + 20 - 12, 1)
    elsewhere = write(tmp_path / "3", FIRST, lat=True)
    (row,) = run("failover", *clusters, *by, "--latency-from", elsewhere).lines
    assert row["bound_timestamp"] == T0 + 20 - 15
    (row,) = run("failover", elsewhere, clusters[1], *by, "--clock-skew", "1s").lines
    assert row["bound_timestamp"] == T0 + 10 + 15 - 15 - 1000
    ran = run("failover", *clusters, "--by", "log-append-time")
    assert (ran.code, ran.out) == (1, "")
    assert "billing at orders-0: the largest latency of orders-0 is unknown" in ran.err
    unmeasured = run("failover", *clusters, *by, "--latency-from", clusters[1])
    assert "show no latency of topic orders" in unmeasured.err


def test_a_position_beyond_the_log_end_is_reported(run: Run, clusters: tuple[Path, Path]) -> None:
    for position, place in ((4, "in-log"), (5, "beyond-log-end")):
        given = ("--offsets", f"billing:orders:0:{position}")
        ran = run("failover", *clusters, *given, "--json")
        (row,) = ran.lines
        assert (row["place"], row["source_offset"]) == (place, position)
        assert ran.code == run("failover", *clusters, *given).code == int(position > 4)
        warning = "billing at orders-0: offset 5 is beyond the log end of cluster 1, 4; "
        assert (warning in ran.err) == (position > 4)


def test_records_that_would_be_lost_are_reported_with_exit_code_1(run: Run, tmp_path: Path) -> None:
    """Cluster 2's clock is slow, and its topic has log append times."""
    one = write(tmp_path / "1", FIRST)
    two = write(tmp_path / "2", [(each - 40, value) for each, value in SECOND], lat=True)
    options = ("--match", "content")
    ran = run("failover", one, two, *options)
    assert ran.code == 1
    assert "would be lost" in ran.out
    assert run("failover", one, two, *options, "--clock-skew", "25").code == 0


def test_mirrors_may_rename_topics(run: Run, clusters: tuple[Path, Path], tmp_path: Path) -> None:
    mirror = write(tmp_path / "3", SECOND, "eu.orders")
    (row,) = run("failover", clusters[0], mirror, "--topic-prefix", "eu.", "--json").lines
    assert (row["topic"], row["source_topic"], row["offset"]) == ("eu.orders", "orders", 1)
    ran = run("failover", clusters[0], mirror)
    assert ran.code == 1
    assert "cluster 2 has no partition orders-0" in ran.err


def test_unmatched_and_other_records_are_reported(run: Run, tmp_path: Path) -> None:
    one = write(tmp_path / "1", FIRST)
    two = write(tmp_path / "2", [(T0 + 5, b"unmatched"), *SECOND])
    assert "1 record before the offsets in cluster 2 are not in cluster 1" in run(
        "failover", one, two
    ).err.replace("records", "record")
    other = write(tmp_path / "3", [(T0 + 100, b"other")])
    assert "try --match content" in run("failover", one, other).err


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--largest-latency", "5m"], ["--by log-append-time"]),
        (["--latency-from", "."], ["--by log-append-time"]),
        (["--by", "log-append-time", "--latency-from", ".", "--largest-latency", "1"],
         ["cannot be combined"]),
        (["--clock-skew", "soon"], ["or a duration such as 90s", "got 'soon'"]),
        (["--clock-skew", f"{1 << 63}"], ["must be at most 9223372036854775807 ms"]),
        (["--by", "offset"], ["--by"]),
        (["--group", "nobody"], ["group nobody has no offset"]),
    ],
)
def test_wrong_arguments_are_one_sentence(
    run: Run, clusters: tuple[Path, Path], options: list[str], parts: list[str]
) -> None:
    assert_one_sentence(run("failover", *clusters, *options), *parts)


def test_both_clusters_must_be_log_directories(run: Run, clusters: tuple[Path, Path]) -> None:
    assert_one_sentence(run("failover", clusters[0], "/nowhere"), "/nowhere does not exist")
    assert_one_sentence(run("failover", "/nowhere", clusters[1]), "/nowhere does not exist")
