from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli.running import Ran, Run, assert_one_sentence

from kafkastore.cli.output.grouped_lines import MAX_SHOWN
from kafkastore.fs import FileSystem

Files = dict[str, tuple[bytes, int]]


def files_of(root: Path) -> Files:
    """Return the bytes and modification time of every file below a directory."""
    return {
        str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in root.rglob("*") if path.is_file()
    }


def time_indexes(root: Path) -> list[Path]:
    return sorted(root.rglob("*.timeindex"))


def undo_areas(root: Path) -> list[Path]:
    return sorted(root.parent.glob(root.name + ".kafkastore-undo-*"))


@pytest.mark.parametrize("options", [[], ["--dry-run"], ["--copy-to", "copy", "--dry-run"]])
def test_a_plan_is_printed_and_nothing_is_changed(
    run: Run, sample_copy: Path, options: list[str]
) -> None:
    before = files_of(sample_copy.parent)
    ran = run("migrate", sample_copy, *options)
    assert ran.code == 0
    assert ran.out.count("\ncreate  up-") == 6
    assert "\ncreate  5 more .timeindex " in ran.out
    assert "11 segments of 4 partitions, 11 without time index entries" in ran.out
    assert ran.out.endswith("--copy-to DIR migrates a copy, --in-place this directory\n")
    assert files_of(sample_copy.parent) == before


def test_verbose_prints_every_file_of_the_plan_and_every_answer(
    run: Run, sample_copy: Path
) -> None:
    out = run("migrate", sample_copy, "--verbose").out
    assert out.count("\ncreate  up-") == 11
    assert out.count("2.4, 4.3") == 8
    assert "more" not in out


def test_the_printed_plan_does_not_grow_with_the_partitions(
    run: Run, sample_copy: Path
) -> None:
    for number in range(2, 40):
        shutil.copytree(sample_copy / "up-1", sample_copy / f"up-{number}")
    out = run("migrate", sample_copy).out
    assert len(out.splitlines()) < 25
    assert "4 partitions" not in out
    assert "125 segments of 42 partitions" in out
    assert len(run("migrate", sample_copy, "--verbose", "--samples", 0).out.splitlines()) > 125
    found = run("migrate", sample_copy, "--json", "--samples", 0).lines
    assert sum(each["kind"] == "change" for each in found) == 125


def test_the_printed_plan_is_the_applied_plan(run: Run, sample_copy: Path) -> None:
    planned = run("migrate", sample_copy, "--dry-run", "--json").lines
    done = run("migrate", sample_copy, "--in-place", "--yes", "--json").lines
    assert done[: len(planned)] == planned
    assert [each["kind"] for each in planned] == [
        "plan", *["change"] * 11, *["answer"] * 58, "answers", "answers"]
    for change in planned[1:12]:
        path = sample_copy / change["path"]
        assert path.stat().st_size == change["after"]["size"]
        assert path.stat().st_mtime_ns == change["after"]["mtime_ns"]
    assert done[-1] == {
        "kind": "result", "outcome": "applied", "root": str(sample_copy),
        "job": "migrate (auto)", "files": 11, "left": [],
        "undo_area": str(undo_areas(sample_copy)[0]),
    }


@pytest.mark.parametrize(
    ("mode", "sizes"),
    [("auto", {12, 0}), ("rebuild", {12, 0}), ("kip-33", {12, 0}), ("empty", {0})],
)
def test_each_mode_can_be_applied_in_place_and_undone(
    run: Run, sample_copy: Path, mode: str, sizes: set[int]
) -> None:
    before = files_of(sample_copy)
    ran = run("migrate", sample_copy, "--mode", mode, "--in-place", "--yes")
    assert ran.code == 0
    assert {path.stat().st_size for path in time_indexes(sample_copy)} == sizes
    after = files_of(sample_copy)
    assert {name: after[name] for name in before} == before
    (area,) = undo_areas(sample_copy)
    assert ran.out.splitlines()[-3:] == [
        f"done: 11 files changed in {sample_copy}",
        f"undo area: {area}",
        f"to undo: kafkastore changes undo {area}",
    ]
    again = run("migrate", sample_copy, "--mode", mode, "--in-place", "--yes")
    assert (again.code, files_of(sample_copy)) == (0, after)
    undone = run("changes", "undo", area)
    assert (undone.code, undone.out) == (0, f"undone: 11 files in {sample_copy}\n")
    assert files_of(sample_copy) == before


def test_after_the_migration_verify_finds_nothing_and_lookups_are_correct(
    run: Run, sample_copy: Path
) -> None:
    at = ["--at", "2017-07-14T02:40:30Z", "--topic", "up-0", "--rules", "2.4"]
    assert run("verify", sample_copy).code == 1
    assert run("offsets", sample_copy, *at, "--json").lines[0]["offset"] is None
    assert run("migrate", sample_copy, "--in-place", "--yes").code == 0
    assert run("verify", sample_copy, "--fail-on", "slow").code == 0
    assert run("offsets", sample_copy, *at, "--json").lines[0]["offset"] == 35


def test_a_copy_is_migrated_and_the_original_is_unchanged(
    run: Run, sample_copy: Path, tmp_path: Path
) -> None:
    before = files_of(sample_copy)
    copy = tmp_path / "copy"
    ran = run("migrate", sample_copy, "--copy-to", copy)
    assert ran.code == 0
    assert f"copied 27 files of {sample_copy} to {copy}" in ran.out
    assert files_of(sample_copy) == before
    migrated = files_of(copy)
    assert {name: migrated[name] for name in before if name != ".lock"} == {
        name: before[name] for name in before if name != ".lock"}
    assert len(time_indexes(copy)) == 11
    assert_one_sentence(run("migrate", sample_copy, "--copy-to", copy), "is not empty")


def test_the_entry_offset_can_be_the_segments_first(run: Run, sample_copy: Path) -> None:
    options = ["--mode", "kip-33", "--topic", "up-0", "--in-place", "--yes"]
    run("migrate", sample_copy, *options, "--entry-offset", "first")
    index = sample_copy / "up-0" / "00000000000000000022.timeindex"
    (row,) = run("dump", index, "--json").lines
    assert (row["timestamp"], row["offset"]) == (1500000120000, 22)
    run("changes", "undo", undo_areas(sample_copy)[0])
    run("migrate", sample_copy, *options, "--entry-offset", "next")
    (row,) = run("dump", index, "--json").lines
    assert (row["timestamp"], row["offset"]) == (1500000120000, 44)


def test_index_interval_bytes_makes_rebuilt_indexes_dense(run: Run, sample_copy: Path) -> None:
    run("migrate", sample_copy, "--index-interval-bytes", 1, "--in-place", "--yes")
    sizes = [path.stat().st_size for path in time_indexes(sample_copy / "up-0")]
    assert min(sizes) > 12


def test_only_the_chosen_topics_are_migrated(run: Run, sample_copy: Path) -> None:
    ran = run("migrate", sample_copy, "--topic", "up", "--partition", 1, "--in-place", "--yes")
    assert ran.code == 0
    assert {path.parent.name for path in time_indexes(sample_copy)} == {"up-1"}
    assert len(time_indexes(sample_copy)) == 3


def test_a_single_partition_directory_can_be_migrated(run: Run, sample_copy: Path) -> None:
    ran = run("migrate", sample_copy / "up-1", "--in-place", "--yes")
    assert ran.code == 0
    assert {path.parent.name for path in time_indexes(sample_copy)} == {"up-1"}
    (area,) = undo_areas(sample_copy)
    assert area.parent == sample_copy.parent


def test_without_a_terminal_nothing_is_changed_without_yes(
    run: Run, sample_copy: Path
) -> None:
    before = files_of(sample_copy)
    assert_one_sentence(run("migrate", sample_copy, "--in-place", stdin="y\n"), "add --yes")
    assert files_of(sample_copy) == before


@pytest.mark.parametrize(("answer", "files"), [("y\n", 11), ("n\n", 0), ("\n", 0)])
def test_on_a_terminal_the_user_is_asked(
    run: Run, sample_copy: Path, monkeypatch: pytest.MonkeyPatch, answer: str, files: int
) -> None:
    monkeypatch.setattr(
        "kafkastore.cli.options.change_options.check_can_confirm", lambda option: None)
    ran = run("migrate", sample_copy, "--in-place", stdin=answer)
    assert f"Change 11 files in {sample_copy}?" in ran.err
    assert len(time_indexes(sample_copy)) == files
    assert ran.code == (0 if files else 2)


def test_the_user_is_not_asked_if_there_is_nothing_to_change(run: Run, golden: Any,
        writable_copy: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    logs = writable_copy(golden("2.4.0", "create-time-monotonic", "answers").logs)
    monkeypatch.setattr(
        "kafkastore.cli.options.change_options.check_can_confirm", lambda option: None)
    ran = run("migrate", logs, "--in-place")
    assert ran.code == 0
    assert ran.out.endswith("migrate (auto): nothing to change\n")
    assert undo_areas(logs) == []


@pytest.mark.parametrize(
    "options",
    [["--dry-run", "--in-place"], ["--copy-to", "x", "--in-place"]],
)
def test_contradictory_options_are_refused(
    run: Run, sample_copy: Path, options: list[str]
) -> None:
    assert_one_sentence(run("migrate", sample_copy, *options), "--", *(options[-1:]))


def test_an_unreadable_segment_is_skipped_and_reported(run: Run, sample_copy: Path) -> None:
    log = sample_copy / "up-1" / "00000000000000000024.log"
    with log.open("r+b") as file:
        file.seek(945 + 60)
        file.write(b"\xff\xff")
    ran = run("migrate", sample_copy, "--in-place", "--yes")
    assert ran.code == 1
    assert ran.out.endswith(
        "not migrated: 1 segment: the log can't be read to its end; --json lists them\n"
    )
    assert f"note: unreadable: {log}" in ran.err
    assert not log.with_suffix(".timeindex").exists()
    assert len(time_indexes(sample_copy)) == 10
    left = {"kind": "unmigrated", "root": str(sample_copy), "path": f"up-1/{log.name}",
            "reason": "unread"}
    assert left in run("migrate", sample_copy, "--json").lines


def test_segments_that_a_broker_rebuilds_are_skipped_and_reported(
    run: Run, sample_copy: Path
) -> None:
    (sample_copy / ".kafka_cleanshutdown").unlink()
    active = max((sample_copy / "up-0").glob("*.log")).with_suffix(".timeindex")
    active.touch()
    ran = run("migrate", sample_copy, "--in-place", "--yes")
    assert ran.code == 0
    assert ran.out.endswith(
        "not migrated: 1 segment: the next start of a broker rebuilds it; --json lists them\n"
    )
    assert active.read_bytes() == b""
    assert len(time_indexes(sample_copy)) == 11


UNTIMED = ["--mode", "kip-33", "--topic", "up-0"]
LOST_NS = 1_700_000_000_000_000_000


def lose_mtimes(root: Path) -> None:
    for path in root.rglob("*.log"):
        os.utime(path, ns=(1, LOST_NS))


@pytest.mark.parametrize("into_a_copy", [False, True])
def test_modification_times_can_be_saved_and_used(
    run: Run, sample_copy: Path, tmp_path: Path, into_a_copy: bool
) -> None:
    saved, copy = tmp_path / "mtimes.json", tmp_path / "copy"
    how = ["--copy-to", copy] if into_a_copy else ["--in-place", "--yes"]
    assert run("migrate", sample_copy, "--save-mtimes", saved).code == 0
    entries = [
        json.loads(saved.read_text())[f"up-0/{base:020}.log"] for base in (0, 22, 44)
    ]
    lose_mtimes(sample_copy)
    ran = run("migrate", sample_copy, *UNTIMED, *how, "--mtimes", saved)
    assert (ran.code, ran.err) == (0, "")
    migrated = copy if into_a_copy else sample_copy
    for base, expected in zip((0, 22, 44), entries, strict=True):
        (row,) = run("dump", migrated / "up-0" / f"{base:020}.timeindex", "--json").lines
        assert row["timestamp"] == expected
    # The modification times of the files do not change.
    assert {path.stat().st_mtime_ns for path in migrated.rglob("*.log")} == {LOST_NS}


def test_the_plan_with_given_modification_times_is_the_plan_applied(
    run: Run, sample_copy: Path, tmp_path: Path
) -> None:
    saved = tmp_path / "mtimes.json"
    run("migrate", sample_copy, "--save-mtimes", saved)
    lose_mtimes(sample_copy)
    options = [*UNTIMED, "--mtimes", saved, "--json"]
    planned = run("migrate", sample_copy, *options, "--dry-run").lines
    done = run("migrate", sample_copy, *options, "--in-place", "--yes").lines
    assert done[: len(planned)] == planned
    assert "1500000120000 -> offset" in str(planned)


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "is not JSON"), ("[]", "must be an object"), ('{"a": "b"}', "must be a number of ms"),
     ('{"00000000000000000000.log": 5}', "without a partition")],
)
def test_an_invalid_file_of_modification_times_is_refused(
    run: Run, sample_copy: Path, tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "bad.json").write_text(text)
    copy = tmp_path / "copy"
    ran = run("migrate", sample_copy, "--mtimes", tmp_path / "bad.json", "--copy-to", copy)
    assert_one_sentence(ran, words)
    assert not copy.exists()
    assert_one_sentence(run("migrate", sample_copy, "--mtimes", tmp_path / "none"), "none")


def test_modification_times_of_unknown_files_are_reported(
    run: Run, sample_copy: Path, tmp_path: Path
) -> None:
    (tmp_path / "other.json").write_text('{"other-0/00000000000000000000.log": 5}')
    ran = run("migrate", sample_copy, "--mtimes", tmp_path / "other.json")
    path = tmp_path / "other.json"
    assert ran.err.startswith(f"note: {path} has no entry for the selected segments")


def test_modification_times_are_not_saved_into_the_directory(
    run: Run, sample_copy: Path
) -> None:
    before = files_of(sample_copy)
    ran = run("migrate", sample_copy, "--save-mtimes", sample_copy / "mtimes.json")
    assert_one_sentence(ran, str(sample_copy / "mtimes.json"))
    assert files_of(sample_copy) == before


def test_only_the_chosen_topic_of_a_copy_is_migrated(
    run: Run, sample_copy: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    planned = run("migrate", sample_copy, "--copy-to", copy, "--topic", "up-1", "--dry-run",
                  "--json").lines
    assert not copy.exists()
    done = run("migrate", sample_copy, "--copy-to", copy, "--topic", "up-1", "--json").lines
    assert done[: len(planned)] == planned
    assert {path.parent.name for path in time_indexes(copy)} == {"up-1"}
    assert {path.name for path in copy.iterdir()} >= {"up-0", "up-1", "up-compressed-0"}


def test_a_topic_may_be_in_only_one_of_several_directories(
    run: Run, sample_copy: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (sample_copy / "up-1").rename(other / "up-1")
    (other / ".kafka_cleanshutdown").touch()
    ran = run("migrate", sample_copy, other, "--topic", "up-1", "--in-place", "--yes")
    assert (ran.code, len(time_indexes(other)), time_indexes(sample_copy)) == (0, 3, [])
    assert_one_sentence(run("migrate", sample_copy, other, "--topic", "down"), "no topic down")


def test_a_partition_without_answers_is_not_counted(run: Run, sample_copy: Path) -> None:
    log = sample_copy / "up-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[8] |= 16  # the length of the first batch
    log.write_bytes(data)
    ran = run("migrate", sample_copy, "--dry-run")
    assert "note: no times looked up in up-0" in ran.err
    assert "; looked up in 3 of 4 partitions\n" in ran.out


def test_answers_before_and_after_are_reported(run: Run, sample_copy: Path) -> None:
    ran = run("migrate", sample_copy, "--topic", "up-0")
    assert (
        "\nanswers of 2.4 and 4.3 for 9 sample times: 3 correct before, 9 after; "
        "looked up in 1 of 1 partition\n" in ran.out
    )
    assert ran.out.count("2.4, 4.3") == 5
    assert "\n... and 1 more like these; --verbose lists all\n" in ran.out
    lines = run("migrate", sample_copy, "--topic", "up-0", "--json").lines
    assert [each for each in lines if each["kind"] == "answers"] == [
        {"kind": "answers", "root": str(sample_copy), "rules": rules, "times": 9,
         "correct_before": 3, "correct_after": 9, "partitions": 1, "changed_partitions": 1}
        for rules in ("2.4", "4.3")
    ]
    for each in lines:
        if each["kind"] == "answer":
            found = run("offsets", sample_copy, "--topic", "up-0", "--json", "--at",
                        each["target_timestamp"], "--rules", each["rules"]).lines
            assert found[0]["offset"] == each["before"]


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_answers_are_left_out_with_samples_0(
    run: Run, sample_copy: Path, options: list[str]
) -> None:
    out = run("migrate", sample_copy, "--samples", 0, *options).out
    assert "correct before" not in out
    assert '"kind": "answer' not in out


def test_without_timestamps_the_answers_say_so(
    run: Run, golden: Any, writable_copy: Callable[[Path], Path]
) -> None:
    logs = writable_copy(golden("0.8.2.2", "upgrade", "answers").logs)
    line = "answers: no record has a timestamp; looked up in 4 of 4 partitions\n"
    assert line in run("migrate", logs).out


class Failing(FileSystem):
    """Fails at the nth rename, as with a full disk or Ctrl-C."""

    def __init__(self, left: int, failure: BaseException) -> None:
        self.left, self.failure = left, failure

    def rename(self, source: Path, target: Path, **where: Any) -> None:
        self.left -= 1
        if self.left < 0:
            raise self.failure
        super().rename(source, target, **where)


@pytest.mark.parametrize(
    ("failure", "code"),
    [(OSError(errno.ENOSPC, "No space left on device", "/d"), 2), (KeyboardInterrupt(), 130)],
)
def test_an_interrupted_migration_can_be_finished_or_undone(
    run: Run, sample_copy: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException, code: int
) -> None:
    from kafkastore.changes.apply import apply

    before = files_of(sample_copy)
    with monkeypatch.context() as patch:
        patch.setattr(
            "kafkastore.cli.apply_plans.apply",
            lambda *arguments, **options: apply(*arguments, fs=Failing(4, failure), **options),
        )
        ran = run("migrate", sample_copy, "--in-place", "--yes", "--threads", "1")
    assert ran.code == code
    assert ran.err.count("\n") == 1
    (area,) = undo_areas(sample_copy)
    assert f"kafkastore changes resume {area} finishes" in ran.err
    assert f"kafkastore changes undo {area} undoes it" in ran.err
    assert 0 < len(time_indexes(sample_copy)) < 11
    (row,) = run("changes", "list", sample_copy, "--json").lines
    assert (row["phase"], row["files"]) == ("applying", 11)
    assert "interrupted while applying" in run("changes", "list", sample_copy).out
    finished = run("changes", "resume", area)
    assert finished.code == 0
    assert finished.out == (
        f"done: 11 files changed in {sample_copy}\n"
        f"undo area: {area}\nto undo: kafkastore changes undo {area}\n"
    )
    assert len(time_indexes(sample_copy)) == 11
    assert run("changes", "undo", area).code == 0
    assert files_of(sample_copy) == before


def test_an_undo_area_is_listed_undone_and_removed(run: Run, sample_copy: Path) -> None:
    assert run("changes", "list", sample_copy).out == (
        f"no undo area found next to {sample_copy}; give --undo-dir DIR if it is elsewhere\n"
    )
    run("migrate", sample_copy, "--in-place", "--yes")
    (area,) = undo_areas(sample_copy)
    listed = run("changes", "list", sample_copy)
    place, *job, state, since, files, kept, unit = listed.out.splitlines()[-1].split()
    assert (place, job, state, files, kept, unit) == (
        str(area), ["migrate", "(auto)"], "applied", "11", "0", "B")
    assert since.endswith("Z")
    assert_one_sentence(run("changes", "remove", area), "add --yes")
    assert run("changes", "undo", area, "--json").lines[-1]["outcome"] == "undone"
    removed = run("changes", "remove", area, "--yes")
    assert (removed.code, area.exists()) == (0, False)
    assert_one_sentence(run("changes", "undo", area), f"{area} is not an undo area", "changes list")


def test_undo_refuses_files_that_changed_since_without_leave_changed(
    run: Run, sample_copy: Path
) -> None:
    run("migrate", sample_copy, "--in-place", "--yes")
    (area,) = undo_areas(sample_copy)
    changed = time_indexes(sample_copy)[0]
    changed.write_bytes(bytes(24))
    assert_one_sentence(run("changes", "undo", area), changed.name, "changed after")
    ran = run("changes", "undo", area, "--leave-changed")
    assert ran.code == 1
    assert f"{changed.relative_to(sample_copy)} was skipped" in ran.err
    assert time_indexes(sample_copy) == [changed]


def test_undo_names_five_of_many_skipped_files_and_all_with_verbose(
    run: Run, sample_copy: Path
) -> None:
    run("migrate", sample_copy, "--in-place", "--yes")
    (area,) = undo_areas(sample_copy)
    changed = time_indexes(sample_copy)
    assert len(changed) > MAX_SHOWN
    for path in changed:
        path.write_bytes(bytes(24))
    few = run("changes", "undo", area, "--leave-changed")
    everything = run("changes", "undo", area, "--leave-changed", "--verbose")
    assert (few.code, everything.code) == (1, 1)
    assert (few.err.count(".timeindex"), few.err.count("\n")) == (MAX_SHOWN, MAX_SHOWN + 1)
    assert everything.err.count(".timeindex") == everything.err.count("\n") == len(changed)


def test_a_given_undo_dir_is_used_and_is_needed_to_list(
    run: Run, sample_copy: Path, tmp_path: Path
) -> None:
    place = tmp_path / "undo"
    place.mkdir()
    run("migrate", sample_copy, "--in-place", "--yes", "--undo-dir", place)
    assert len(list(place.iterdir())) == 1
    assert undo_areas(sample_copy) == []
    (row,) = run("changes", "list", sample_copy, "--undo-dir", place, "--json").lines
    assert Path(row["undo_area"]).parent == place


def test_a_broker_that_holds_the_lock_is_named(run: Run, sample_copy: Path) -> None:
    from kafkastore.fs import LockFile

    lock = LockFile(sample_copy / ".lock")
    try:
        ran: Ran = run("migrate", sample_copy, "--in-place", "--yes")
    finally:
        lock.close()
    assert ran.code == 2
    assert f"process {os.getpid()} holds {sample_copy / '.lock'}" in ran.err
    assert time_indexes(sample_copy) == []
