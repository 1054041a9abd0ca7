from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli.running import Run, assert_one_sentence
from models.log_directory import Log, Segment
from models.record_format import Batch, Row

from kafkastore.segment.log_segment import LogSegment
from kafkastore.shown_text import format_size


def test_the_table_has_offsets_times_sizes_and_missing_files(
    run: Run, sample_root: Path
) -> None:
    ran = run("ls", sample_root)
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0] == f"{sample_root}: 4 partitions, clean shutdown"
    assert lines[1].split() == [
        "partition", "segments", "start", "end", "first", "record", "newest", "record", "size",
        "missing",
    ]
    assert lines[3].split() == [
        "up-0", "4", "0", "80", "2017-07-14T02:39:12.000Z", "2017-07-14T02:40:54.034Z",
        "8.19", "KiB", "4", ".timeindex",
    ]
    assert lines[6].split() == ["up-empty-0", "1", "0", "0", "-", "-", "0", "B", "1", ".timeindex"]


@pytest.mark.golden_cases(versions=["0.8.2.2", "0.10.0.1", "2.4.0", "4.1.1"], answers="answers")
def test_offsets_are_those_of_the_broker(run: Run, golden_case: Any) -> None:
    ran = run("ls", golden_case.logs, "--json")
    listed, corrupt = (
        {
            f"{row['topic']}-{row['partition']}": row for row in ran.lines if row["kind"] == kind
        }
        for kind in ("partition", "error")
    )
    assert ran.code == (0 if not corrupt else 2 if len(corrupt) == len(listed) else 1)
    assert not corrupt  # checksums are not checked
    for name, answers in golden_case.answers["partitions"].items():
        if name not in listed or "log_start_offset" not in answers:
            continue  # deleted meanwhile, or unknown to the broker
        row = listed[name]
        if golden_case.name in ("crash-torn", "crash-bad-crc"):
            assert row["log_end_offset"] <= answers["log_end_offset"]
            continue
        assert row["log_start_offset"] == answers["log_start_offset"], name
        assert row["log_end_offset"] == answers["log_end_offset"], name
        stamps = [record[1] for record in answers["records"] if record[1] >= 0]
        if stamps and "transaction" not in golden_case.name:
            assert row["largest_timestamp"] == max(stamps), name
        largest = [
            each["largest_timestamp"]
            for each in run("ls", golden_case.logs / name, "--segments", "--json").lines
            if each["kind"] == "segment"
        ]
        assert len(largest) == row["segments"]
        assert max((each for each in largest if each is not None), default=None) == (
            row["largest_timestamp"]
        )


def test_directories_that_are_not_partitions_are_named(
    run: Run, golden: Callable[..., Any]
) -> None:
    logs = golden("2.4.0", "wide", "answers").logs
    ran = run("ls", logs)
    assert "not read: " in ran.out
    skipped = [row for row in run("ls", logs, "--json").lines if row["kind"] == "skipped"]
    assert len(skipped) == 2
    assert all(row["path"].endswith("-delete") for row in skipped)
    assert {row["skipped_kind"] for row in skipped} == {"deleted"}


def test_segments_have_their_files_and_modification_times(run: Run, sample_root: Path) -> None:
    rows = [
        row
        for row in run("ls", sample_root, "--topic", "up-0", "--segments", "--json").lines
        if row["kind"] == "segment"
    ]
    assert [(row["base_offset"], row["next_offset"]) for row in rows] == [
        (0, 22), (22, 44), (44, 69), (69, 80)]
    assert [row["index"] for row in rows] == [64, 72, 48, 16]
    assert [row["timeindex"] for row in rows] == [None] * 4
    assert [row["is_active"] for row in rows] == [False, False, False, True]
    assert rows[0]["modified"] == 1500000060000
    ran = run("ls", sample_root, "--topic", "up-0", "--segments")
    assert [line.split()[-1] for line in ran.out.splitlines()[3:]] == ["missing"] * 4


def test_quick_opens_no_files(
    run: Run, sample_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError(arguments)

    monkeypatch.setattr("kafkastore.segment.log_segment.LogFile", refuse)
    monkeypatch.setattr("kafkastore.segment.index_file.FileIO", refuse)
    for options in ([], ["--segments"]):
        ran = run("ls", sample_root, "--quick", *options, "--json")
        assert ran.code == 0
        assert all("largest_timestamp" not in row for row in ran.lines)
        assert run("ls", sample_root, "--quick", *options).code == 0


def test_a_partition_directory_can_be_the_path(run: Run, sample_root: Path) -> None:
    (row,) = run("ls", sample_root / "up-1", "--json").lines
    assert (row["topic"], row["partition"], row["log_end_offset"]) == ("up", 1, 60)


def test_a_path_given_twice_or_within_another_is_listed_once(run: Run, sample_root: Path) -> None:
    once = run("ls", sample_root, "--json").lines
    assert run("ls", sample_root, sample_root / "." / "", "--json").lines == once
    assert run("ls", sample_root / "up-1", sample_root, "--json").lines == once


def test_several_topics_and_partitions_can_be_chosen(run: Run, sample_root: Path) -> None:
    def chosen(*options: object) -> list[tuple[str, int]]:
        rows = run("ls", sample_root, *options, "--json").lines
        return [(row["topic"], row["partition"]) for row in rows if row["kind"] == "partition"]

    assert chosen("--topic", "up") == [("up", 0), ("up", 1)]
    assert chosen("--topic", "up-1") == [("up", 1)]
    assert chosen("--topic", "up-1", "--topic", "up-empty") == [("up", 1), ("up-empty", 0)]
    assert chosen("--partition", 1) == [("up", 1)]
    assert chosen("--partition", 0, "--topic", "up", "--topic", "up-empty") == [
        ("up", 0), ("up-empty", 0)]


def test_a_topic_named_like_a_partition_takes_precedence(
    run: Run, golden: Callable[..., Any]
) -> None:
    logs = golden("2.4.0", "wide", "answers").logs
    rows = run("ls", logs, "--topic", "a-1", "--json").lines
    assert [(row["topic"], row["partition"]) for row in rows if row["kind"] == "partition"] == [
        ("a-1", 0)]


def test_an_offset_is_located_in_its_batch(run: Run, sample_root: Path) -> None:
    ran = run("ls", sample_root, "--topic", "up-1", "--offset", 33)
    assert ran.out == (
        "up-1 offset 33 is in the batch of only offset 33, 122 bytes at byte 945 of "
        f"{sample_root}/up-1/00000000000000000024.log\n"
    )
    (row,) = run("ls", sample_root, "--topic", "up-1", "--offset", 33, "--json").lines
    assert (row["position"], row["size"], row["is_within"]) == (945, 122, True)


@pytest.mark.golden_cases(names=["compacted", "codecs"], versions="2.4.0", answers="answers")
def test_every_offset_is_located_in_the_batch_that_contains_it_or_the_next(
    run: Run, golden_case: Any
) -> None:
    name, answers = next(iter(golden_case.answers["partitions"].items()))
    offsets = {record[0] for record in answers["records"]}
    for offset in range(answers["log_start_offset"], answers["log_end_offset"], 7):
        (row,) = run("ls", golden_case.logs / name, "--offset", offset, "--json").lines
        assert row["is_within"] == (row["base_offset"] <= offset <= row["last_offset"])
        if offset in offsets:
            assert row["is_within"]
        else:
            assert row["last_offset"] >= offset


def test_an_offset_outside_the_log_or_for_several_partitions_is_refused(
    run: Run, sample_root: Path
) -> None:
    ran = run("ls", sample_root, "--topic", "up-1", "--offset", 60)
    assert_one_sentence(ran, "up-1 has no offset 60", "it has 0 to 59")
    ran = run("ls", sample_root, "--topic", "up-empty", "--offset", 0)
    assert_one_sentence(ran, "it has no records")
    ran = run("ls", sample_root, "--topic", "up", "--offset", 3)
    assert_one_sentence(ran, "needs one partition, got 2", "--partition")


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (10 * 1024, "10.0 KiB"),
     (100 * 1024, "100 KiB"), (1 << 20, "1.00 MiB"), (1 << 60, "1024 PiB")],
)
def test_sizes_are_shown_with_three_digits(size: int, shown: str) -> None:
    assert format_size(size) == shown


def test_leftovers_and_corrupt_checkpoints_are_reported(
    run: Run, sample_root: Path, writable_copy: Callable[[Path], Path]
) -> None:
    root = writable_copy(sample_root)
    leftover = root / "up-1" / "00000000000000000000.log.deleted"
    leftover.write_bytes(b"")
    (root / "recovery-point-offset-checkpoint").write_bytes(b"0\n5\n")
    ran = run("ls", root)
    assert ran.code == 0
    assert f"leftover file: {leftover}, a deleted file: deleted at the next start\n" in ran.out
    assert "corrupt: checkpoint must have 5 entries, got 0" in ran.out
    rows = run("ls", root, "--json").lines
    (left,) = [row for row in rows if row["kind"] == "leftover"]
    assert (left["topic"], left["partition"], left["path"]) == ("up", 1, str(leftover))
    assert (left["leftover_kind"], left["start_action"]) == ("deleted", "delete")
    (corrupt,) = [row for row in rows if row["kind"] == "corrupt-checkpoint"]
    assert corrupt["path"] == str(root / "recovery-point-offset-checkpoint")


def test_bounds_are_shown_with_their_source(
    run: Run, sample_root: Path, writable_copy: Callable[[Path], Path]
) -> None:
    root = writable_copy(sample_root)
    (root / "log-start-offset-checkpoint").write_text("0\n1\nup 1 7\n")
    first, second = run("ls", root, "--topic", "up", "--json").lines[1:3]
    assert (first["partition"], first["log_start_offset"]) == (0, 0)
    assert first["log_start_source"] == "first-segment"
    assert (second["log_start_offset"], second["log_start_source"]) == (7, "checkpoint")
    assert second["log_end_source"] == "last-batch"
    assert all(row["log_start_basis"] and row["log_end_basis"] for row in (first, second))


def test_an_offset_is_located_with_its_segment(run: Run, sample_root: Path) -> None:
    (row,) = run("ls", sample_root, "--topic", "up-1", "--offset", 33, "--json").lines
    assert row["segment"] == 24
    assert row["path"].endswith("00000000000000000024.log")


def test_an_offset_in_the_gap_before_an_empty_last_segment_has_no_batch(
    run: Run, tmp_path: Path
) -> None:
    batches = tuple(Batch((Row(n, n, b"k", b"v"),)) for n in range(5))
    root = Log((Segment(0, batches).indexed(), Segment(10, ()))).write(tmp_path / "logs")
    assert "in the batch of only offset 4" in run("ls", root, "--offset", 4).out
    ran = run("ls", root, "--offset", 7)
    assert_one_sentence(ran, "t-0 has no batch at or after offset 7", "log end offset 10")


def test_a_segment_that_is_deleted_while_it_is_listed_is_not_an_error(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = tuple(Batch((Row(n, n, b"k", b"v"),)) for n in range(9))
    log = Log(tuple(Segment(n, batches[n : n + 3]).indexed() for n in (0, 3, 6)))
    for options in ([], ["--segments"], ["--quick"], ["--offset", "7"]):
        root = log.write(tmp_path / f"logs{len(options)}{''.join(options)}")
        plain = LogSegment._log_stat.func  # type: ignore[attr-defined]

        def deleting(self: LogSegment, root: Path = root, plain: Any = plain) -> Any:
            (root / "t-0" / f"{0:020}.log").unlink(missing_ok=True)
            return plain(self)

        with monkeypatch.context() as patched:
            patched.setattr(LogSegment, "_log_stat", property(deleting))
            ran = run("ls", root, *options)
        assert (ran.code, ran.err) == (0, ""), options
        assert "t-0" in ran.out
        if options == ["--segments"]:
            listed = [line.split() for line in ran.out.splitlines() if line.startswith("t-0 ")]
            assert [row[1] for row in listed] == ["3", "6"]


@pytest.mark.parametrize("command", ["ls", "verify", "predict"])
def test_control_characters_in_names_are_escaped(
    run: Run, sample_copy: Path, command: str
) -> None:
    (directory, *_) = sorted(path for path in sample_copy.iterdir() if path.is_dir())
    directory.rename(directory.with_name("evil\x1b]0;title\x07\x9b2J-0"))
    (sample_copy / "left\x1b[2J").mkdir()
    ran = run(command, sample_copy)
    assert not {"\x1b", "\x07", "\x9b"} & {*ran.out, *ran.err}
    if command == "ls":
        assert r"evil\x1b]0;title\x07\x9b2J" in ran.out
        assert r"left\x1b[2J" in ran.out
