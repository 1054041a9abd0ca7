"""Of many similar lines a few are printed; ``--verbose`` prints all, and JSON has them all."""
from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from cli.running import Run

from kafkastore.cli.output.grouped_lines import MAX_SHOWN, group_items, group_lines

#: Partitions of the directory, all with the same three segments.
MANY = 12

Damage = Callable[[Path], None]


def flip_a_byte(partition: Path) -> None:
    """Corrupt the log's second segment after its first batch."""
    log = sorted(partition.glob("*.log"))[1]
    data = bytearray(log.read_bytes())
    data[200] ^= 1
    log.write_bytes(data)


def truncate_log(partition: Path) -> None:
    log = sorted(partition.glob("*.log"))[1]
    os.truncate(log, log.stat().st_size - 7)


def add_leftover(partition: Path) -> None:
    (partition / f"{0:020}.log.deleted").touch()


def do_nothing(partition: Path) -> None:
    """Leave the partition undamaged."""


CASES: dict[str, tuple[Damage, list[str], str, dict[str, str]]] = {
    "verify": (flip_a_byte, ["verify"], ".log at byte ", {"severity": "data-loss-risk"}),
    "ls": (add_leftover, ["ls"], "leftover file: ", {"kind": "leftover"}),
    "predict": (
        do_nothing, ["predict"], " loads with all records", {"outcome": "is-changed"},
    ),
    "predict-lost": (
        truncate_log, ["predict"], " loses records", {"outcome": "loses-records"},
    ),
    "repair": (flip_a_byte, ["repair", "--on-corrupt", "skip", "--dry-run"], " skipped",
               {"kind": "damage"}),
    "reindex": (truncate_log, ["reindex", "--dry-run"], "not complete batches",
                {"kind": "unindexed"}),
    "convert": (flip_a_byte, ["convert"], " is not converted: ", {"kind": "unconverted"}),
    "migrate": (do_nothing, ["migrate", "--samples", "0"], "create  up-", {"kind": "change"}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_few_of_many_lines_are_printed_and_all_with_verbose(
    name: str, run: Run, sample_copy: Path
) -> None:
    damage, (command, *options), line, fields = CASES[name]
    logs = sample_copy.parent / "many"
    logs.mkdir()
    for path in sample_copy.iterdir():
        if path.is_file():
            shutil.copy2(path, logs)
    (logs / ".kafka_cleanshutdown").unlink()  # a broker recovers the complete log
    names = [f"up-{number}" for number in range(MANY)]
    (logs / "recovery-point-offset-checkpoint").write_text(
        f"0\n{MANY}\n" + "".join(f"{each.replace('-', ' ')} 0\n" for each in names)
    )
    for each in names:
        shutil.copytree(sample_copy / "up-1", logs / each)
        damage(logs / each)
    rows = run(command, logs, *options, "--json").lines
    total = sum(all(row.get(key) == value for key, value in fields.items()) for row in rows)
    assert total >= MANY
    out = run(command, logs, *options).out
    assert out.count(line) == MAX_SHOWN
    assert f"{total - MAX_SHOWN:,} more " in out
    assert "--verbose lists" in out
    out = run(command, logs, *options, "--verbose").out
    assert out.count(line) == total
    assert " more " not in out


def test_remarks_on_retention_are_printed_a_few_of_each_kind(run: Run, sample_copy: Path) -> None:
    for number in range(2, MANY):
        shutil.copytree(sample_copy / "up-1", sample_copy / f"up-{number}")
    options = ["--now", "2017-07-14T02:42:30Z"]
    remark = ": the modification time of segment "
    assert run("retention", sample_copy, *options).out.count(remark) == MAX_SHOWN
    assert run("retention", sample_copy, *options, "--verbose").out.count(remark) == MANY


def test_an_interrupted_check_prints_the_findings_so_far(
    run: Run, sample_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafkastore.jobs.verify import CheckedPartition, with_topic_ids

    def interrupted(checked: Iterable[CheckedPartition]) -> object:
        yield from with_topic_ids(checked)
        raise KeyboardInterrupt

    monkeypatch.setattr("kafkastore.cli.commands.verify.with_topic_ids", interrupted)
    ran = run("verify", sample_copy)
    assert ran.code == 130
    assert ran.out.count(".timeindex\n") == MAX_SHOWN
    assert "partitions checked" not in ran.out


def test_kinds_keep_their_order_and_each_counts_the_lines_not_printed() -> None:
    lines = [(number % 2, f"line {number}") for number in range(20)]
    more = "... and 5 more like these; --verbose lists all"
    shown = list(group_lines(lines, verbose=False))
    assert shown == [
        *(f"line {number}" for number in range(0, 10, 2)), more,
        *(f"line {number}" for number in range(1, 10, 2)), more,
    ]  # fmt: skip
    assert list(group_lines(lines, verbose=True)) == [line for _, line in lines]
    (group,) = group_items(range(1000), lambda number: None, verbose=False)
    assert (group.shown, group.more, group.count, group.last) == ([0, 1, 2, 3, 4], 995, 1000, 999)


@pytest.mark.parametrize("command", ["migrate", "reindex", "repair", "convert"])
def test_the_summaries_of_all_plans_come_before_their_details(
    run: Run, sample_root: Path, writable_copy: Callable[[Path], Path], command: str
) -> None:
    other = writable_copy(sample_root)
    shown = run(command, sample_root, other, "--topic", "up-1").out
    assert shown.count("of new bytes") == 2
    assert shown.count("\nchange  ") == 2
    assert shown.rindex("of new bytes") < shown.index("\nchange  ")
    for root in (sample_root, other):
        assert f"\n{root}:\nchange  " in shown
    if command == "migrate":
        assert shown.rindex("correct before") < shown.index("\nchange  ")
    actions = run(command, sample_root, "--json", "--topic", "up-1").lines
    counts = Counter(
        "create" if row["before"] is None else "replace"
        for row in actions if row["kind"] == "change"
    )
    parts = ", ".join(f"{action} {count}" for action, count in counts.items())
    assert (f"({parts})" in shown) == (len(counts) > 1)
