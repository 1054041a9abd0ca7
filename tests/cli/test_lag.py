"""``kafkastore lag``."""
from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from cli.running import Run, assert_one_sentence
from models.internal_topics import pack_offset_commit_key, pack_offset_commit_value
from use_cases.stores import T0, commit, record, set_topic_id, share_state, written

from kafkastore.cli.options.durations import format_duration
from kafkastore.formats.topics.consumer_offsets import OffsetAndMetadata, OffsetCommitKey

DOCUMENT = Path(__file__).parents[2] / "docs" / "cli.md"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Write a log with two groups that read orders; one of them lost records."""
    with written(tmp_path / "logs") as partition:
        orders = partition("orders")
        for number in range(20):
            orders.add(record(T0 + 60_000 * number))
        orders.log.delete_records(3)
        partition("__consumer_offsets").add(
            commit("billing", "orders", 0, 18), commit("audit:eu", "orders", 0, 1)
        )
    return tmp_path / "logs"


TOPIC_ID = "2P-XnPKnTZG5NwujU8kn6Q"


def add_share_group(root: Path, start_offset: int = 5, topic_id: str = TOPIC_ID) -> None:
    """Let a share group have completed 5 offsets of orders, of which it rejected 2."""
    with written(root) as partition:
        batches = ((6, 8, 2, 1), (9, 10, 4, 1), (11, 11, 0, 1))
        partition("__share_group_state").add(
            share_state("shared", topic_id, 0, start_offset, *batches)
        )
    set_topic_id(root / "orders-0", TOPIC_ID)


def test_groups_are_listed_with_their_unread_records(run: Run, root: Path) -> None:
    ran = run("lag", root)
    assert ran.code == 1
    assert re.search(
        r"^audit:eu +orders-0 +1 +20 +19 +17 +16m +2020-09-13T12:29:40.000Z  2 offsets deleted "
        r"unread, the log starts at 3$", ran.out, re.MULTILINE
    )
    assert re.search(r"^billing +orders-0 +18 +20 +2 +2 +1m +2020", ran.out, re.MULTILINE)
    assert ran.out.endswith("2 groups, 2 committed offsets: 19 unread records\n")


def test_a_group_that_lost_no_records_is_not_a_problem(run: Run, root: Path) -> None:
    ran = run("lag", root, "--group", "billing", "--now", T0 + 20 * 60_000, "--json")
    assert ran.code == 0
    (row,) = ran.lines
    assert (row["lag_offsets"], row["lag_records"], row["lag_ms"]) == (2, 2, 120_000)
    assert (row["first_unread_offset"], row["first_unread_timestamp"]) == (18, T0 + 18 * 60_000)


def test_the_end_of_the_lag_may_be_relative_to_the_newest_record(run: Run, root: Path) -> None:
    options = ("--group", "billing", "--topic", "orders", "--relative-to", "newest", "--json")
    for now, lag_ms in (("now", 60_000), ("-30s", 30_000)):
        (row,) = run("lag", root, "--now", now, *options).lines
        assert row["lag_ms"] == lag_ms


def test_share_groups_have_a_table_of_their_own(run: Run, root: Path) -> None:
    add_share_group(root)
    ran = run("lag", root)
    assert re.search(
        r"^shared +orders-0 +5 +20 +10 +10 +14m +3 +2 +1 +2020-09-13T12:31:40.000Z$", ran.out,
        re.MULTILINE,
    )
    assert "2 groups, 2 committed offsets: 19 unread records\n" in ran.out
    assert ran.out.endswith("1 share group, 1 partition: 10 unread records\n")
    ran = run("lag", root, "--group", "shared")
    assert (ran.code, "committed" in ran.out) == (0, False)
    (row,) = run("lag", root, "--group", "shared", "--topic", "orders", "--json").lines
    assert (row["lag_offsets"], row["lag_records"]) == (10, 10)
    ran = run("lag", root, "--group", "billing", "--json")
    assert [line["group"] for line in ran.lines] == ["billing"]
    assert_one_sentence(run("lag", root, "--group", "none"), "none")


def test_share_groups_are_enough(run: Run, root: Path) -> None:
    add_share_group(root)
    ran = run("lag", root / "__share_group_state-0", root / "orders-0")
    assert (ran.code, ran.out.splitlines()[-1]) == (
        0, "1 share group, 1 partition: 10 unread records"
    )


def test_a_share_group_that_lost_records_is_a_problem(run: Run, root: Path) -> None:
    add_share_group(root, start_offset=1)  # the log starts at 3
    ran = run("lag", root, "--group", "shared", "--json")
    assert (ran.code, ran.lines[0]["lost_offsets"], ran.lines[0]["lag_records"]) == (1, 2, 12)
    assert "2 offsets deleted unread" in run("lag", root, "--group", "shared").out


def test_a_share_group_of_a_missing_topic_is_shown_with_its_id(run: Run, root: Path) -> None:
    other = "AAAAAAAAAAAAAAAAAAAAAQ"
    add_share_group(root, topic_id=other)
    (row,) = run("lag", root, "--group", "shared", "--json").lines
    assert (row["topic"], row["start_offset"], row["lag_offsets"]) == (other, 5, None)
    assert other in run("lag", root, "--group", "shared").out


def test_positions_are_read_without_the_lines_of_share_groups(
    run: Run, root: Path, tmp_path: Path
) -> None:
    add_share_group(root)
    saved = tmp_path / "positions.json"
    saved.write_text(run("lag", root, "--json").out)
    rows = run("lag", root, "--offsets-file", saved, "--json").lines
    assert [row["group"] for row in rows] == ["audit:eu", "billing"]


def test_an_offset_of_a_deleted_topic_has_no_lag(run: Run, root: Path, tmp_path: Path) -> None:
    key = pack_offset_commit_key(OffsetCommitKey("billing", "orders", 0))
    with written(root) as partition:
        for topic_id in ("AAAAAAAAAAAAAAAAAAAAAQ", TOPIC_ID):
            value = pack_offset_commit_value(OffsetAndMetadata(4, "", T0, topic_id=topic_id), 4)
            partition("__consumer_offsets").add(record(T0, value, key))
            if topic_id != TOPIC_ID:
                set_topic_id(root / "orders-0", TOPIC_ID)
                stale = run("lag", root, "--group", "billing", "--json")
                shown = run("lag", root, "--group", "billing")
    (row,) = stale.lines
    saved = tmp_path / "positions.json"
    saved.write_text(stale.out)
    assert not run("lag", root, "--offsets-file", saved, "--json").lines
    assert (row["place"], row["offset"], row["lag_offsets"]) == ("other-topic", 4, None)
    assert "an earlier topic" in shown.out
    (row,) = run("lag", root, "--group", "billing", "--json").lines
    assert (row["place"], row["lag_offsets"]) == ("in-log", 16)


def test_json_has_the_documented_fields(run: Run, root: Path) -> None:
    chapter = DOCUMENT.read_text(encoding="utf-8").split("\n## lag\n")[1].split("\n## ")[0]
    own, _, of_share_groups = chapter.partition("JSON, ")[2].partition("JSON of share groups")
    documented = set(re.findall(r"`([a-z_]+)`", own))
    for row in run("lag", root, "--json").lines:
        assert set(row) <= documented
    add_share_group(root)
    *_, row = run("lag", root, "--json").lines
    cells = re.findall(r"^\| (`.*`) \|", of_share_groups, re.MULTILINE)
    assert set(row) == set(re.findall(r"`([a-z_]+)`", " ".join(cells)))


def test_its_json_output_can_be_read_as_positions(run: Run, root: Path, tmp_path: Path) -> None:
    saved = tmp_path / "positions.json"
    saved.write_text(run("lag", root, "--json").out)
    rows = run("lag", root, "--offsets-file", saved, "--json").lines
    reread = [json.loads(line) for line in saved.read_text().splitlines()]
    for one, other in zip(rows, reread, strict=True):
        assert one | {"commit_timestamp": None} == other | {"commit_timestamp": None}
        assert one["commit_timestamp"] is None


def test_positions_may_be_given_and_partitions_chosen(run: Run, root: Path) -> None:
    options = ("--offsets", "a:b:orders:0:20", "--offsets", "c:orders:0:12", "--offsets", "c:t:0:1")
    rows = run("lag", root, *options, "--json").lines
    assert [(row["group"], row["topic"], row["lag_records"]) for row in rows] == [
        ("a:b", "orders", 0), ("c", "orders", 8), ("c", "t", None)
    ]
    rows = run("lag", root, *options, "--topic", "orders", "--group", "c", "--json").lines
    assert [row["offset"] for row in rows] == [12]
    shown = run("lag", root / "orders-0", *options).out
    note = "the partition is not in PATH"
    assert re.search(rf"^c +t-0 +1 +- +- +- +- +-  +{note}$", shown, re.MULTILINE)


def test_a_given_offset_of_a_missing_partition_is_a_problem(
    run: Run, root: Path, tmp_path: Path
) -> None:
    """Committed offsets of other brokers' partitions are not a problem."""
    here, elsewhere = ("--offsets", "g:orders:0:20"), ("--offsets", "g:orders:7:5")
    assert run("lag", root, *here).code == 0
    for form in ((), ("--json",)):
        ran = run("lag", root, *here, *elsewhere, *form)
        assert ran.code == 1
        assert ("no-partition" if form else "the partition is not in PATH") in ran.out
    saved = tmp_path / "positions"
    saved.write_text('{"group": "g", "topic": "nope", "partition": 0, "offset": 1}\n')
    assert run("lag", root, "--offsets-file", saved).code == 1
    (root / "orders-0").rename(tmp_path / "orders-0")
    ran = run("lag", root, "--group", "billing")
    assert (ran.code, "the partition is not in PATH" in ran.out) == (0, True)


@pytest.mark.parametrize(
    "text", ["g:orders:\u0660:5", "g:orders:0:\uff15", "g:orders:0:" + "9" * 5000]
)
def test_numbers_in_positions_must_be_ascii_digits(run: Run, root: Path, text: str) -> None:
    assert_one_sentence(run("lag", root, "--offsets", text), "must be GROUP:TOPIC:PARTITION:OFFSET")


def test_markers_and_aborted_records_are_left_out_for_read_committed(
    run: Run, golden: Any
) -> None:
    logs = golden("2.4.0", "transactions", "answers").logs
    given = ("--offsets", "g:txn:0:0", "--json")
    (all_of_them,) = run("lag", logs, *given).lines
    (row,) = run("lag", logs, *given, "--isolation", "read_committed").lines
    answers = golden("2.4.0", "transactions", "answers").answers["partitions"]["txn-0"]
    assert all_of_them["lag_records"] == len(answers["records"])
    assert all_of_them["lag_offsets"] == answers["log_end_offset"]
    assert row["lag_records"] == len(answers["committed_offsets"])
    assert row["log_end_offset"] == answers["last_stable_offset"]


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--offsets", "orders:0:1"], ["must be GROUP:TOPIC:PARTITION:OFFSET"]),
        (["--offsets", "g:orders:zero:1"], ["must be GROUP:TOPIC:PARTITION:OFFSET"]),
        (["--offsets", f"g:orders:0:{1 << 63}"], ["offset at most 9223372036854775807"]),
        (["--group", "nobody"], ["group nobody has no offset", "audit:eu, billing", "--offsets"]),
        (["--group", "x", "--offsets", "g:orders:0:1"], ["no committed offset of group x"]),
        (["--topic", "__consumer_offsets"], ["no committed offset for the selected partitions"]),
        (["--offsets-file", "/nowhere"], ["/nowhere does not exist"]),
        (["--now", "noon"], ["a time must be in ms since 1970", "got 'noon'"]),
        (["--isolation", "none"], ["--isolation"]),
    ],
)
def test_wrong_arguments_are_one_sentence(
    run: Run, root: Path, options: list[str], parts: list[str]
) -> None:
    assert_one_sentence(run("lag", root, *options), *parts)


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("orders 0 1", "line 2 of .* is not JSON"),
        ("[1]", "line 2 of .* must be a JSON object"),
        ('{"partition": 0, "offset": 1}', "line 2 of .*: group and topic must be strings"),
        ('{"group": 1, "topic": "t", "partition": 0, "offset": 1}', "topic must be strings"),
        ('{"topic": "t", "partition": "0", "offset": 1}', "line 2 of .*: partition .* got '0'"),
        ('{"topic": "t", "partition": 0, "offset": -1}', "line 2 of .*: offset must .* got -1"),
        ('{"topic": "t", "partition": 0, "offset": true}', "line 2 of .*: offset must .* got True"),
        ('{"topic": "t", "partition": 0}', "line 2 of .*: offset must .* got None"),
        ("[" * 100_000, "line 2 of .* is not JSON"),
    ],
)
def test_a_line_that_is_not_a_position_is_reported(
    run: Run, root: Path, tmp_path: Path, line: str, part: str
) -> None:
    file = tmp_path / "positions"
    file.write_text(f'{{"topic": "orders", "partition": 0, "offset": 1}}\n{line}\n')
    ran = run("lag", root, "--offsets-file", file)
    assert_one_sentence(ran)
    assert re.search(part, ran.err)


def test_a_directory_without_committed_offsets_says_how_to_give_them(
    run: Run, sample_root: Path
) -> None:
    assert_one_sentence(
        run("lag", sample_root), f"no partition of __consumer_offsets in {sample_root}",
        "--offsets-file",
    )


def test_a_corrupt_batch_is_reported_and_the_other_partitions_are_measured(
    run: Run, root: Path
) -> None:
    (path,) = (root / "orders-0").glob("*.log")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    ran = run("lag", root, "--offsets", "g:orders:0:5", "--offsets", "g:other:0:5")
    assert ran.code == 1
    assert "other-0" in ran.out
    assert "orders-0: the batch that ends with offset 19 fails its checksum" in ran.err
    assert "Traceback" not in ran.err


def test_unreadable_positions_of_some_groups_do_not_hide_the_others(
    run: Run, root: Path
) -> None:
    add_share_group(root)
    whole = run("lag", root, "--json")
    assert whole.err == ""
    shared = next((root / "__share_group_state-0").glob("*.log"))
    shared.rename(root / "shared")
    shared.mkdir()
    only_classic = run("lag", root, "--json")
    assert only_classic.code == 1
    assert only_classic.err.count("\n") == 1
    assert only_classic.lines == [line for line in whole.lines if "start_offset" not in line]
    shared.rmdir()
    (root / "shared").rename(shared)
    committed = next(root.glob("__consumer_offsets-*/*.log"))
    committed.rename(root / "committed")
    committed.mkdir()
    only_shared = run("lag", root, "--json")
    assert (only_shared.code, only_shared.err.count("\n")) == (1, 1)
    assert only_shared.lines == [line for line in whole.lines if "start_offset" in line]


@pytest.mark.parametrize(
    ("duration", "shown"),
    [(None, "-"), (0, "0 ms"), (-1500, "-1.500 s"), (3_600_000, "1h"), (86_400_000 * 400, "400d"),
     (86_461_000, "1d"), (3_660_000, "1h 1m")],
)
def test_durations_are_shown_in_their_two_largest_units(duration: int | None, shown: str) -> None:
    assert format_duration(duration) == shown
