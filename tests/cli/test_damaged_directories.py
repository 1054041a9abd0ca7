"""Every command on a directory with five partitions, two of which are damaged differently.

The results for the intact partitions are complete, as in the undamaged directory; the damaged ones
are named; the exit code shows the damage. Commands that read only batch frames, as brokers do, need
not find a wrong checksum: `docs/formats/what-the-formats-cannot-show.md` lists them.
"""
from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.ipc
import pyarrow.parquet
import pytest
from cli.running import Ran, Run
from models.damaged_directory import (
    DAMAGED,
    PARTITIONS,
    SOUND,
    Damage,
    copy_directory,
    damage_batch,
    timestamp_of,
    write_directory,
)
from models.seed import some

#: Two kinds of damage at a time: in b-0 (message format 1) and in d-0 (gzip, message format 2).
DAMAGES = {
    "length and payload": [("length", 1, 1), ("payload", 0, 1)],
    "payload and length": [("payload", 0, 2), ("length", 1, 2)],
    "torn and payload": [("torn", 0, 1), ("payload", 1, 0)],
    "payload and torn": [("payload", 1, 3), ("torn", 1, 1)],
}
CHOSEN = some(list(DAMAGES), 2, __name__)
FRAME_KINDS = ("length", "torn")
TIMES = [timestamp_of(offset) for offset in (0, 5, 11, 23, 40)]
AT = [word for time in TIMES for word in ("--at", time)]
OFFSETS = [word for name in "abcde" for word in ("--offsets", f"g:{name}:0:1")]

Rows = dict[str, list[dict[str, Any]]]


class Directories(NamedTuple):
    """The same directory, intact and damaged."""

    intact: Path
    damaged: Path
    damages: dict[str, Damage]
    broken_frames: set[str]


@pytest.fixture(params=CHOSEN)
def directories(request: pytest.FixtureRequest, tmp_path: Path) -> Directories:
    return make(tmp_path, request.param)


def make(place: Path, damages: str = "length and payload", **options: Any) -> Directories:
    """Write both directories."""
    intact = write_directory(place / "intact" / "logs", **options)
    damaged = copy_directory(intact, place / "damaged" / "logs")
    chosen = dict(zip(DAMAGED, DAMAGES[damages], strict=True))
    return Directories(
        intact,
        damaged,
        {
            name: damage_batch(damaged, name, kind, segment=segment, batch=batch)
            for name, (kind, segment, batch) in chosen.items()
        },
        {name for name, (kind, *_) in chosen.items() if kind in FRAME_KINDS},
    )


def by_partition(ran: Ran) -> Rows:
    """Return the rows that a command printed as JSON, by partition, without errors."""
    found: Rows = {name: [] for name in PARTITIONS}
    for row in ran.lines:
        if row.get("topic") is not None and row.get("kind") != "error":
            for name in ("store", "path"):  # these differ between the directories
                row.pop(name, None)
            found[f"{row['topic']}-{row.get('partition', 0)}"].append(row)
    return found


def named(text: str) -> Counter[str]:
    """Return how many lines of a text name each partition."""
    return Counter(
        name for line in text.splitlines() for name in PARTITIONS
        if re.search(rf"\b{name}\b", line)
    )


def check_intact(damaged: Ran, intact: Ran) -> Rows:
    """Check that the rows of undamaged partitions are the expected ones; return all rows."""
    assert intact.code == 0, intact
    rows, expected = by_partition(damaged), by_partition(intact)
    for name in SOUND:
        assert rows[name] == expected[name]
        assert rows[name]
    assert "Traceback" not in damaged.err
    return rows


def offsets_of(rows: list[dict[str, Any]]) -> list[int]:
    return [row["offset"] for row in rows]


# ---------------------------------------------------------------- cat


def read_columns(path: Path, form: str) -> Rows:
    """Return the offsets in an output file, by partition."""
    if form == "parquet":
        table = pyarrow.parquet.read_table(path)
    else:
        with pyarrow.ipc.open_file(path) as reader:
            table = reader.read_all()
    found: Rows = {name: [] for name in PARTITIONS}
    columns = ["topic", "partition", "offset", "timestamp", "key", "value"]
    for row in table.select(columns).to_pylist():
        found[f"{row['topic']}-{row['partition']}"].append(row)
    return found


def cat(run: Run, root: Path, form: str, *options: object) -> tuple[Ran, Rows]:
    """Print records in one of the forms; return the offsets by partition."""
    if form in ("parquet", "arrow"):
        out = root.parent / f"out.{form}"
        ran = run("cat", root, "--format", form, "-o", out, *options)
        assert [path for path in root.parent.iterdir() if path != root] == [out]
        rows = read_columns(out, form)
        out.unlink()
        return ran, rows
    if form == "json":
        ran = run("cat", root, "--json", *options)
        return ran, by_partition(ran)
    ran = run("cat", root, *options)
    found: Rows = {name: [] for name in PARTITIONS}
    for name, offset, *others in (line.split("\t") for line in ran.out.splitlines()):
        found[name].append({"offset": int(offset), "others": others})
    return ran, found


@pytest.mark.parametrize("form", ["text", "json", "parquet", "arrow"])
def test_cat_prints_undamaged_partitions_and_the_others_up_to_the_damage(
    run: Run, directories: Directories, form: str
) -> None:
    intact, expected = cat(run, directories.intact, form)
    assert (intact.code, intact.err) == (0, "")
    for choice in ("raise", "stop"):
        ran, rows = cat(run, directories.damaged, form, "--on-corrupt", choice)
        assert ran.code == 1
        for name, damage in directories.damages.items():
            before = [row for row in expected[name] if row["offset"] < damage.start_offset]
            assert rows[name] == before
        assert {name: rows[name] for name in SOUND} == {name: expected[name] for name in SOUND}
        assert named(ran.err) == dict.fromkeys(DAMAGED, 1)


@pytest.mark.parametrize("form", ["text", "json", "parquet", "arrow"])
def test_cat_skips_the_same_records_as_repair_and_names_the_bytes(
    run: Run, directories: Directories, form: str
) -> None:
    ran, rows = cat(run, directories.damaged, form, "--on-corrupt", "skip")
    assert ran.code == 1
    for damage, name in zip(directories.damages.values(), directories.damages, strict=True):
        (line,) = [line for line in ran.err.splitlines() if name in line]
        assert {str(damage.position), str(damage.end_position - 1)} <= set(re.findall(r"\d+", line))
    kept = copy_directory(directories.damaged, directories.damaged.parents[1] / "kept" / "logs")
    assert run("repair", kept, "--on-corrupt", "skip", "--in-place", "--yes").code == 0
    (undo_area,) = [path for path in kept.parent.iterdir() if path != kept]
    undo_area.rename(kept.parents[1] / "undo")
    repaired, expected = cat(run, kept, form)
    assert repaired.code == 0
    assert rows == expected
    for name, damage in directories.damages.items():
        lost = range(damage.start_offset, damage.end_offset)
        assert offsets_of(rows[name]) == [each for each in range(24) if each not in lost]


@pytest.mark.parametrize("form", ["text", "json", "parquet", "arrow"])
def test_cat_of_committed_records_reads_undamaged_partitions_completely(
    run: Run, directories: Directories, form: str
) -> None:
    options = ("--isolation", "read_committed")
    _, everything = cat(run, directories.intact, form)
    intact, committed = cat(run, directories.intact, form, *options)
    assert intact.code == 0
    assert committed == everything
    ran, rows = cat(run, directories.damaged, form, *options)
    assert ran.code == 1
    assert {name: rows[name] for name in SOUND} == {name: everything[name] for name in SOUND}
    assert named(ran.err) == dict.fromkeys(DAMAGED, 1)


# ---------------------------------------------------------------- offsets


def offsets(run: Run, root: Path, *options: object) -> Ran:
    return run("offsets", root, *AT, "--json", *options)


@pytest.mark.parametrize("explain", [[], ["--explain"]], ids=["", "explained"])
@pytest.mark.parametrize("rules", ["correct", "2.4", "4.1", "kip-33", "legacy", "all"])
@pytest.mark.parametrize("choice", ["raise", "skip", "stop"])
def test_offsets_answers_for_undamaged_partitions_and_names_the_others(
    run: Run, directories: Directories, rules: str, choice: str, explain: list[str]
) -> None:
    options = ("--rules", rules, "--on-corrupt", choice, *explain)
    intact = offsets(run, directories.intact, *options)
    ran = offsets(run, directories.damaged, *options)
    rows = check_intact(ran, intact)
    expected = by_partition(intact)
    for name in DAMAGED:
        is_complete = len(rows[name]) == len(expected[name])
        # A broker can't decode a torn batch either, and has no answer then.
        assert is_complete or named(ran.err)[name]
        if rules == "correct":
            assert is_complete or choice == "raise"
            assert named(ran.err)[name] == 1
        if rules == "legacy":
            # An explanation compares with the correct answer, which may be unknown.
            assert is_complete or (explain and choice == "raise")
            answers = {row["target_timestamp"]: row["offset"] for row in expected[name]}
            for row in rows[name]:
                assert row["offset"] == answers[row["target_timestamp"]]
    assert ran.code == (1 if ran.err else 0)
    assert set(named(ran.err)) <= set(DAMAGED)
    if rules in ("correct", "all"):
        assert set(named(ran.err)) == set(DAMAGED)


def test_correct_offsets_are_those_of_the_readable_records(
    run: Run, directories: Directories
) -> None:
    expected = by_partition(offsets(run, directories.intact))
    for choice in ("raise", "skip", "stop"):
        rows = by_partition(offsets(run, directories.damaged, "--on-corrupt", choice))
        for name, damage in directories.damages.items():
            found = {row["target_timestamp"]: row["offset"] for row in rows[name]}
            for row in expected[name]:
                timestamp, offset = row["target_timestamp"], row["offset"]
                is_before = offset is not None and offset < damage.start_offset
                if choice == "raise":
                    assert (timestamp in found) == is_before
                    assert found.get(timestamp) == (offset if is_before else None)
                elif choice == "stop":
                    assert found[timestamp] == (offset if is_before else None)
                elif offset is None or offset not in range(damage.start_offset, damage.end_offset):
                    assert found[timestamp] == offset
                else:
                    assert found[timestamp] >= damage.end_offset


def test_a_time_after_the_damage_does_not_hide_the_answer_for_an_earlier_time(
    run: Run, directories: Directories
) -> None:
    ran = run("offsets", directories.damaged, "--at", TIMES[3], "--at", TIMES[0], "--json")
    rows = by_partition(ran)
    assert [offsets_of(rows[name]) for name in DAMAGED] == [[0], [0]]
    assert named(ran.err) == dict.fromkeys(DAMAGED, 1)


# ---------------------------------------------------------------- lag, latency, compare, failover


REPORTS: dict[str, tuple[str, Callable[[Directories, Path], list[object]]]] = {
    "lag": ("records", lambda _, root: ["lag", root, *OFFSETS]),
    "lag committed": (
        "records", lambda _, root: ["lag", root, *OFFSETS, "--isolation", "read_committed"]
    ),
    "latency": ("records", lambda _, root: ["latency", root]),
    "compare": ("records", lambda _, root: ["compare", root, *AT]),
    "compare summary": ("records", lambda _, root: ["compare", root, *AT, "--summary"]),
    "failover from": ("records", lambda its, root: ["failover", root, its.intact, *OFFSETS]),
    "failover to": ("records", lambda its, root: ["failover", its.intact, root, *OFFSETS]),
    "ls": ("ends", lambda _, root: ["ls", root]),
    "ls segments": ("frames", lambda _, root: ["ls", root, "--segments"]),
}


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_complete_for_undamaged_partitions_and_names_the_others(
    run: Run, directories: Directories, name: str
) -> None:
    reads, command = REPORTS[name]
    intact = run(*command(directories, directories.intact), "--json")
    ran = run(*command(directories, directories.damaged), "--json")
    rows = check_intact(ran, intact)
    found = named(ran.err)
    if reads == "records":
        assert found == dict.fromkeys(DAMAGED, 1)
        assert all(not rows[each] for each in DAMAGED)
    else:  # from headers and indexes, as far as those have to be read
        assert found == dict.fromkeys(set(found) & set(DAMAGED), 1)
        errors = [row for row in ran.lines if row["kind"] == "error"]
        assert {f"{row['topic']}-{row['partition']}" for row in errors} == set(found)
    if reads == "frames":
        assert directories.broken_frames <= set(found)
    assert ran.code == (1 if found else 0)
    shown = run(*command(directories, directories.damaged))
    assert (shown.code, named(shown.err)) == (ran.code, found)


@pytest.mark.parametrize("choice", ["skip", "stop"])
@pytest.mark.parametrize("name", ["lag", "lag committed", "latency", "compare", "compare summary"])
def test_a_report_with_skipped_damage_equals_that_of_the_repaired_directory(
    run: Run, directories: Directories, name: str, choice: str
) -> None:
    _, command = REPORTS[name]
    options = ["--json", "--on-corrupt", choice]
    intact = run(*command(directories, directories.intact), *options)
    ran = run(*command(directories, directories.damaged), *options)
    rows = check_intact(ran, intact)
    assert ran.code == 1
    assert named(ran.err) == dict.fromkeys(DAMAGED, 1)
    if name not in ("lag", "latency"):
        # The broker, whose answers are compared, can't decode a torn batch.
        assert all(rows[each] or directories.broken_frames for each in DAMAGED)
        return
    expected = by_partition(intact)
    for each, damage in directories.damages.items():
        end = damage.end_offset if choice == "skip" else 24
        ((row,), (complete,)) = rows[each], expected[each]
        if name == "lag":
            lost = len(range(max(damage.start_offset, 1), end))
            expected_lag = None if choice == "stop" else complete["lag_records"] - lost
            assert row["lag_records"] == expected_lag
        elif each == "d-0":  # only its records have latencies
            assert row["records"] == complete["records"] - len(range(damage.start_offset, end))


# ---------------------------------------------------------------- files


def test_a_batch_is_found_by_offset_in_a_readable_segment(
    run: Run, directories: Directories
) -> None:
    for name, damage in directories.damages.items():
        other = 20 if damage.end_offset <= 16 else 4
        found = run("ls", directories.damaged / name, "--offset", other, "--json")
        same = run("ls", directories.intact / name, "--offset", other, "--json")
        assert found.code == same.code == 0
        place = ("position", "base_offset", "last_offset", "is_within")
        assert [[row[each] for each in place] for row in found.lines] == [
            [row[each] for each in place] for row in same.lines
        ]


def test_dump_prints_the_batches_before_the_damage_and_names_the_file(
    run: Run, directories: Directories
) -> None:
    for name, damage in directories.damages.items():
        ran = run("dump", damage.path, "--json")
        assert ran.code == (2 if name in directories.broken_frames else 1)
        assert named(ran.err)[name] == 1
        batches = [row for row in ran.lines if row["kind"] == "batch"]
        complete = run("dump", directories.intact / name / damage.path.name, "--json").lines
        count = sum(batch["position"] < damage.position for batch in complete)
        sizes = ("position", "size", "base_offset", "crc_valid")
        assert [[row[each] for each in sizes] for row in batches[:count]] == [
            [row[each] for each in sizes] for row in complete[:count]
        ]
        assert all(not row["crc_valid"] for row in batches[count : count + 1])


def test_verify_finds_both_damages_and_nothing_else(
    run: Run, directories: Directories
) -> None:
    def findings(root: Path) -> set[tuple[str, str, int | None]]:
        rows = run("verify", root, "--json").lines
        return {
            (str(Path(row["file"]).relative_to(root)), row["severity"], row["position"])
            for row in rows if row["kind"] == "finding"
        }

    ran = run("verify", directories.damaged, "--json")
    assert (ran.code, ran.err) == (1, "")
    assert ran.lines[-1]["data_loss_risk"] == 2
    found = findings(directories.damaged) - findings(directories.intact)
    expected = {
        (f"{name}/{damage.path.name}", "data-loss-risk", damage.position)
        for name, damage in directories.damages.items()
    }
    assert expected <= found
    assert {path.split("/")[0] for path, *_ in found} == set(DAMAGED)


@pytest.mark.parametrize("is_clean", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("damages", CHOSEN)
def test_predict_reports_the_effect_of_the_damage_on_a_start(
    run: Run, tmp_path: Path, damages: str, is_clean: bool
) -> None:
    directories = make(tmp_path, damages, is_clean=is_clean)
    intact, ran = (
        run("predict", root, "--json") for root in (directories.intact, directories.damaged)
    )
    rows = check_intact(ran, intact)
    outcomes = {name: rows[name][0]["outcome"] for name in DAMAGED}
    if is_clean:  # a start does not read the logs then
        assert "loses-records" not in outcomes.values()
        assert ran.code == 0
    else:
        assert outcomes == dict.fromkeys(DAMAGED, "loses-records")
        assert ran.code == 1
        for name, damage in directories.damages.items():
            assert rows[name][0]["log_end_offset"] == damage.start_offset


def test_retention_reports_by_index_and_file_as_a_broker_does(
    run: Run, directories: Directories
) -> None:
    command = ("--now", "2030-01-01T00:00:00Z", "--json")
    intact = run("retention", directories.intact, *command)
    ran = run("retention", directories.damaged, *command)
    check_intact(ran, intact)
    assert ran.code == 0 or named(ran.err)


def test_sizing_leaves_out_unreadable_partitions_and_names_them(
    run: Run, directories: Directories
) -> None:
    ran = run("sizing", directories.damaged, "--json")
    assert ran.code == 1
    assert named(ran.err) == dict.fromkeys(directories.broken_frames, 1)
    (log,) = [row for row in ran.lines if row["kind"] == "log"]
    assert log["partitions"] == 5 - len(directories.broken_frames)
    without = [each for name in SOUND for each in ("--topic", name)]
    sound = [run("sizing", root, *without, "--json") for root in directories[:2]]
    assert sound[0] == sound[1]
    assert sound[0].code == 0


# ---------------------------------------------------------------- altering commands


def files_of(root: Path, *names: str) -> dict[str, bytes]:
    """Return the files of some partitions."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for name in names for path in sorted((root / name).iterdir())
    }


def kinds(ran: Ran, kind: str) -> set[str]:
    """Return the paths in the rows of a kind."""
    return {row["path"] for row in ran.lines if row["kind"] == kind}


def paths_of(directories: Directories, *names: str) -> set[str]:
    return {f"{name}/{directories.damages[name].path.name}" for name in names}


@pytest.mark.parametrize("time_indexes", [True, False], ids=["with indexes", "without"])
@pytest.mark.parametrize("damages", CHOSEN)
@pytest.mark.parametrize("where", ["--dry-run", "--copy-to", "--in-place"])
def test_migrate_migrates_undamaged_partitions_and_names_the_others(
    run: Run, tmp_path: Path, damages: str, where: str, time_indexes: bool
) -> None:
    directories = make(tmp_path, damages, time_indexes=time_indexes)
    before = files_of(directories.damaged, *PARTITIONS)
    done = []
    for root in directories[:2]:
        target = root.parent / "copy"
        how = {
            "--dry-run": ["--dry-run"],
            "--copy-to": ["--copy-to", target],
            "--in-place": ["--in-place", "--yes"],
        }[where]
        done.append((run("migrate", root, *how, "--json"),
                     target if where == "--copy-to" else root))
    (intact, complete), (ran, changed) = done
    assert (intact.code, ran.code) == (0, 1), ran
    assert kinds(ran, "unmigrated") == paths_of(directories, *DAMAGED)
    assert files_of(changed, *SOUND) == files_of(complete, *SOUND)
    if where == "--dry-run" or time_indexes:
        assert files_of(changed, *DAMAGED) == {
            path: data for path, data in before.items() if path[:3] in DAMAGED
        }
    for path in paths_of(directories, *DAMAGED):
        assert (changed / path).read_bytes() == before[path]
        assert (changed / path).with_suffix(".timeindex").exists() == time_indexes


@pytest.mark.parametrize("command", ["convert", "reindex"])
def test_readable_logs_are_converted_and_indexed(
    run: Run, directories: Directories, command: str
) -> None:
    before = files_of(directories.damaged, *PARTITIONS)
    for root in directories[:2]:
        planned = run(command, root, "--dry-run", "--json")
        assert files_of(root, *SOUND) == files_of(directories.intact, *SOUND)
    assert files_of(directories.damaged, *PARTITIONS) == before
    assert run(command, directories.intact, "--in-place", "--yes").code == 0
    ran = run(command, directories.damaged, "--in-place", "--yes", "--json")
    assert (planned.code, ran.code) == (1, 1)
    # Convert does not touch message format 2, whatever its checksums are.
    concerned = {"b-0", *directories.broken_frames} if command == "convert" else set(DAMAGED)
    kind = {"convert": "unconverted", "reindex": "unindexed"}[command]
    assert kinds(ran, kind) == kinds(planned, kind) == paths_of(directories, *concerned)
    assert files_of(directories.damaged, *SOUND) == files_of(directories.intact, *SOUND)
    for path in paths_of(directories, *DAMAGED):
        assert (directories.damaged / path).read_bytes() == before[path]


def test_repair_shows_both_outcomes_and_changes_only_the_damaged_partitions(
    run: Run, directories: Directories
) -> None:
    before = files_of(directories.damaged, *PARTITIONS)
    shown = run("repair", directories.damaged, "--json")
    assert shown.code == 1
    assert [
        row["on_corrupt"] for row in shown.lines if row["kind"] == "choice"
    ] == ["skip", "truncate"]
    assert files_of(directories.damaged, *PARTITIONS) == before
    done = run(
        "repair", directories.damaged, "--on-corrupt", "skip", "--json", "--in-place", "--yes"
    )
    assert done.code == 0
    assert kinds(done, "damage") == paths_of(directories, *DAMAGED)
    logs = {path: data for path, data in before.items() if path.endswith(".log")}
    after = files_of(directories.damaged, *SOUND)
    assert {path: after[path] for path in after if path.endswith(".log")} == {
        path: data for path, data in logs.items() if path[:3] in SOUND
    }
    assert run("cat", directories.damaged).code == 0
    assert len(run("changes", "list", directories.damaged, "--json").lines) == 1


# ---------------------------------------------------------------- a single path


def test_no_result_for_the_only_path_is_exit_code_2(
    run: Run, directories: Directories
) -> None:
    for name in DAMAGED:
        root = directories.damaged / name
        for command in (
            ["cat", root],
            ["offsets", root, "--at", TIMES[4]],
            ["lag", root, "--offsets", f"g:{name[0]}:0:1"],
            ["latency", root],
            ["compare", root, "--at", TIMES[4]],
        ):
            ran = run(*command)
            assert ran.code == 2, command
            assert named(ran.err)[name] == 1
            assert ran.err.count("\n") == 1 or command[0] == "latency"


@pytest.mark.parametrize(
    "command",
    [
        ("cat", "--topic", "deleted-0"),
        ("offsets", "--topic", "deleted-0", "--at", "earliest"),
        ("offsets", "--at", "earliest", "--rules", "2.4"),
        ("lag", "--offsets", "g:deleted:0:30"),
        ("latency",),
        ("compare", "--summary"),
        ("retention",),
        ("migrate", "--dry-run"),
        ("sizing",),
        ("ls",),
    ],
    ids=" ".join,
)
def test_unknown_log_starts_are_reported_by_each_command(
    run: Run, golden: Any, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """Deleted records below the log start come back then."""
    name, *options = command
    directory = tmp_path / "logs"
    shutil.copytree(golden("2.4.0", "delete-records", "answers").logs, directory)
    checkpoint = directory / "log-start-offset-checkpoint"
    assert run(name, directory, *options).code == 0
    checkpoint.write_bytes(checkpoint.read_bytes()[:10])
    ran = run(name, directory, *options)
    assert ran.code == 1
    (line,) = [line for line in ran.err.splitlines() if str(checkpoint) in line]
    assert "at byte 4: logs begin at their first segments" in line
