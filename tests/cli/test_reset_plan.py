"""``--csv`` is what ``kafka-consumer-groups --reset-offsets --from-file`` takes."""
from __future__ import annotations

import csv
import re
import shlex
from pathlib import Path

import pytest
from cli.running import Run, assert_one_sentence
from models import kafka_tools
from models.seed import some

import kafkastore
from kafkastore.server import serve

#: Later than two of the four partitions' records, see docs/cli.md.
AT = "2017-07-14T02:40:30Z"
BEGIN = {("up", 0): 35, ("up", 1): 2, ("up-compressed", 0): 80, ("up-empty", 0): 0}
AUDIT = 'audit, "daily"'
POSITIONS = {(AUDIT, "up", 0): 80, ("billing", "up", 0): 7, ("billing", "up", 1): 30}


def offsets_of(positions: dict[tuple[str, str, int], int]) -> list[str]:
    """Return the options that give these positions."""
    texts = [
        f"{group}:{topic}:{number}:{offset}"
        for (group, topic, number), offset in positions.items()
    ]
    return [word for text in texts for word in ("--offsets", text)]


def rows_of(text: str) -> list[tuple[str, ...]]:
    return [tuple(row) for row in csv.reader(text.splitlines())]


def expected_rows(positions: dict) -> list[tuple[str, ...]]:
    return [tuple(map(str, (*place, offset))) for place, offset in positions.items()]


def test_offsets_are_of_records_at_or_after_the_time_or_else_log_ends(
    run: Run, sample_root: Path
) -> None:
    ran = run("offsets", sample_root, "--at", AT, "--csv")
    assert (ran.code, ran.err) == (0, "")
    assert rows_of(ran.out) == expected_rows(BEGIN)
    rows = run("offsets", sample_root, "--at", AT, "--json").lines
    found = {
        (row["topic"], row["partition"]): (row["offset"], row["log_end_offset"]) for row in rows
    }
    ends = {
        tuple(log.topic_partition): log.log_end_offset for log in kafkastore.open(sample_root)
    }
    for place, (offset, end) in found.items():
        assert (end is None) == (offset is not None)
        assert BEGIN[place] == (ends[place] if offset is None else offset)
        assert end in (None, ends[place])


def test_without_a_record_that_late_a_note_names_the_log_end(run: Run, sample_root: Path) -> None:
    up, up_1, *_ = run("offsets", sample_root, "--topic", "up", "--at", "now").out.splitlines()[2:]
    assert up.endswith("begin at the log end, 80")
    assert up_1.endswith("begin at the log end, 60")
    by_broker = run("offsets", sample_root, "--topic", "up-0", "--at", AT, "--rules", "2.4")
    assert "no answer: kafka-consumer-groups begins at the log end, 80" in by_broker.out


def test_committed_offsets_have_their_groups_unless_one_is_named(
    run: Run, sample_root: Path
) -> None:
    ran = run("lag", sample_root, *offsets_of(POSITIONS), "--csv")
    assert (ran.code, ran.err) == (0, "")
    assert rows_of(ran.out) == expected_rows(POSITIONS)
    of_one = run("lag", sample_root, *offsets_of(POSITIONS), "--csv", "--group", AUDIT)
    assert rows_of(of_one.out) == [("up", "0", "80")]
    for group in ('a,"b', "é ü", "#x", " y "):
        ran = run("lag", sample_root, "--offsets", f"{group}:up:0:7", "--csv")
        assert rows_of(ran.out) == [(group, "up", "0", "7")]


def test_positions_that_a_cluster_would_refuse_are_left_out_with_a_note(
    run: Run, sample_root: Path
) -> None:
    positions = {("b", "gone", 0): 5, ("two\nlines", "up", 0): 5, ("b", "up", 0): 7}
    ran = run("lag", sample_root, *offsets_of(positions), "--csv")
    assert rows_of(ran.out) == [("b", "up", "0", "7")]
    assert "1 committed offset left out: the partition is not in PATH" in ran.err
    assert r"group 'two\nlines' is left out" in ran.err


def test_failover_writes_new_positions(run: Run, sample_root: Path) -> None:
    given = ("--offsets", "billing:up:1:30")
    ran = run("failover", sample_root, sample_root, *given, "--csv", "--topic-prefix", "")
    (row,) = run("failover", sample_root, sample_root, *given, "--json").lines
    assert rows_of(ran.out) == [("billing", "up", "1", str(row["offset"]))]


@pytest.mark.parametrize("options", [["--rules", "all"], ["--at", "0"], ["--explain"], ["--json"]])
def test_more_than_one_offset_for_a_partition_is_refused(
    run: Run, sample_root: Path, options: list[str]
) -> None:
    ran = run("offsets", sample_root, "--at", AT, "--csv", *options)
    assert_one_sentence(ran, "--csv", "kafkastore offsets --help")
    assert ran.out == ""


def test_an_unknown_offset_is_left_out_and_the_exit_code_is_1(run: Run, sample_root: Path) -> None:
    ran = run("offsets", sample_root, "--at", "0", "--rules", "legacy", "--csv")
    assert (ran.code, ran.out) == (1, "")
    assert "4 partitions left out" in ran.err


@pytest.mark.kafka
@pytest.mark.parametrize("version", some(kafka_tools.VERSIONS, 1, __name__))
def test_kafka_s_tool_resets_groups_to_these_offsets(
    version: str, run: Run, sample_root: Path, tmp_path: Path, require_broker
) -> None:
    for each in kafka_tools.VERSIONS:
        require_broker(each)
    plans = {
        "by time": run("offsets", sample_root, "--at", AT, "--csv").out,
        "of groups": run("lag", sample_root, *offsets_of(POSITIONS), "--csv").out,
        "of one group": run(
            "lag", sample_root, *offsets_of(POSITIONS), "--csv", "--group", "billing"
        ).out,
    }
    groups = {
        "by time": ["late"], "of groups": [AUDIT, "billing"], "of one group": ["billing"]
    }
    with serve([sample_root]) as served:
        commands, at = [], f"--bootstrap-server {served.bootstrap_servers}"
        for name, text in plans.items():
            file = tmp_path / f"{name}.csv"
            file.write_text(text)
            named = " ".join(f"--group {shlex.quote(each)}" for each in groups[name])
            commands += [
                f"kafka-consumer-groups.sh {at} {named} --reset-offsets --from-file "
                f"{shlex.quote(str(file))} {end}"
                for end in ("--export --dry-run", "--execute")
            ]
            commands.append(f"kafka-consumer-groups.sh {at} {named} --describe --offsets")
        printed = kafka_tools.run_tools(version, commands)
    assert [each.code for each in printed] == [0] * len(commands), printed
    for at_command, text in enumerate(plans.values()):
        exported, _, described = printed[3 * at_command : 3 * at_command + 3]
        wanted = {*text.splitlines()}
        assert wanted
        assert wanted <= {*exported.text.splitlines()}
        found = re.findall(r"\b(up\S*)\s+(\d+)\s+(\d+)\s", described.text)
        assert {*found} >= {tuple(each.rsplit(",", 3)[-3:]) for each in wanted}
