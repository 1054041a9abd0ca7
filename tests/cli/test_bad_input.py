"""Errors are one sentence with exit code 2: no traceback, no incomplete output file."""
from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.running import Ran, Run, assert_one_sentence
from models.unprivileged import give_to_nobody

from kafkastore.cli.output.failures import format_error
from kafkastore.errors import CorruptIndexError, NoUndoPlaceError

READING = {
    "ls": [],
    "cat": [],
    "offsets": ["--at", "0"],
    "compare": [],
    "verify": [],
    "migrate": ["--dry-run"],
}


@pytest.fixture(params=READING)
def command(request: pytest.FixtureRequest) -> tuple[str, list[str]]:
    """Return each command that reads log directories, with its required options."""
    name: str = request.param
    return name, READING[name]


def test_a_path_that_does_not_exist_is_one_sentence(
    run: Run, command: tuple[str, list[str]]
) -> None:
    name, options = command
    assert_one_sentence(run(name, "/nowhere/logs", *options), "/nowhere/logs does not exist")


def test_a_file_instead_of_a_directory_is_one_sentence(
    run: Run, command: tuple[str, list[str]], sample_root: Path
) -> None:
    name, options = command
    file = sample_root / "meta.properties"
    assert_one_sentence(run(name, file, *options), f"{file} is a file")


def test_a_directory_without_partitions_is_one_sentence(
    run: Run, command: tuple[str, list[str]], tmp_path: Path
) -> None:
    name, options = command
    assert_one_sentence(run(name, tmp_path, *options), "is not a Kafka log directory")


def test_for_a_parent_of_a_log_directory_the_log_directory_is_named(
    run: Run, tmp_path: Path, sample_root: Path
) -> None:
    above = tmp_path / "above"
    above.mkdir()
    (above / "kafka-logs").symlink_to(sample_root)
    assert_one_sentence(run("ls", above), f"did you mean {above / 'kafka-logs'}?")


def test_a_topic_with_a_typo_gets_a_suggestion(
    run: Run, command: tuple[str, list[str]], sample_root: Path
) -> None:
    name, options = command
    ran = run(name, sample_root, "--topic", "up-compresed", *options)
    assert_one_sentence(ran, "no topic up-compresed", "did you mean up-compressed?")


def test_an_unknown_topic_gets_a_list_of_topics(
    run: Run, sample_root: Path
) -> None:
    ran = run("ls", sample_root, "--topic", "zzz")
    assert_one_sentence(ran, "there are up, up-compressed, up-empty")


def test_a_missing_partition_is_one_sentence(run: Run, sample_root: Path) -> None:
    ran = run("ls", sample_root, "--topic", "up", "--partition", 7)
    assert_one_sentence(ran, "no partition 7 of up", "there are 0, 1")


def test_a_missing_path_argument_is_one_sentence(run: Run, command: tuple[str, list[str]]) -> None:
    name, options = command
    assert_one_sentence(run(name, *options), "PATH", f"see kafkastore {name} --help")


def test_unknown_commands_and_options_are_one_sentence(run: Run, sample_root: Path) -> None:
    assert_one_sentence(run("lss"), "lss", "kafkastore --help")
    assert_one_sentence(run("ls", sample_root, "--sgments"), "--sgments", "kafkastore ls --help")


def test_for_a_partition_in_two_directories_both_are_named(
    run: Run, sample_root: Path, writable_copy: Callable[[Path], Path]
) -> None:
    second = writable_copy(sample_root)
    ran = run("cat", sample_root, second)
    partitions = [path.name for path in sample_root.iterdir() if path.is_dir()]
    assert ran.code == 2
    assert ran.out == ""
    reported = ran.err.splitlines()
    assert len(reported) == len(partitions) > 1
    for partition, line in zip(sorted(partitions), sorted(reported), strict=True):
        assert line.startswith(f"kafkastore: {partition}: ")
        assert str(sample_root / partition) in line
        assert str(second / partition) in line


def test_records_are_read_in_spite_of_a_truncated_index(
    run: Run, sample_root: Path, sample_copy: Path
) -> None:
    index = sample_copy / "up-0" / "00000000000000000022.index"
    os.truncate(index, 13)
    assert run("cat", sample_copy).out == run("cat", sample_root).out


def test_dump_shows_a_truncated_index_up_to_the_cut_and_reports_its_position(
    run: Run, sample_copy: Path
) -> None:
    index = sample_copy / "up-0" / "00000000000000000022.index"
    os.truncate(index, 13)
    ran = run("dump", index)
    assert_one_sentence(ran, "5 bytes", str(index), "at byte 8", "kafkastore reindex")
    assert [line.split() for line in ran.out.splitlines()[1:]] == [["0", "24", "238"]]


def damage(path: Path, position: int, data: bytes) -> None:
    """Overwrite some bytes of a file."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


@pytest.mark.parametrize("name", ["cat", "dump"])
def test_an_unknown_magic_is_reported_with_its_position(
    run: Run, sample_copy: Path, name: str
) -> None:
    log = sample_copy / "up-1" / "00000000000000000024.log"
    damage(log, 945 + 16, b"\x07")  # the batch of offset 33
    ran = run(name, log if name == "dump" else sample_copy / "up-1")
    assert_one_sentence(ran, "magic 7, not 0, 1 or 2", str(log), "at byte 945")
    before = "\t32\t" if name == "cat" else " 32  "
    assert before in ran.out
    assert "\t33\t" not in ran.out


def test_records_end_before_a_wrong_checksum_and_the_error_names_on_corrupt(
    run: Run, sample_copy: Path, tmp_path: Path
) -> None:
    log = sample_copy / "up-1" / "00000000000000000024.log"
    damage(log, 945 + 60, b"\xff\xff")
    partition = sample_copy / "up-1"
    ran = run("cat", partition)
    assert_one_sentence(ran, "fails its checksum", str(log), "at byte 945", "--on-corrupt skip")
    assert ran.out == run("cat", partition, "--until-offset", 33).out
    assert len(ran.out.splitlines()) == 33
    for form in ("text", "json", "arrow", "parquet"):
        output, before = tmp_path / form, tmp_path / f"{form} before"
        ran = run("cat", partition, "--format", form, "-o", output)
        assert_one_sentence(ran, "checksum", "at byte 945", "--on-corrupt skip")
        run("cat", partition, "--format", form, "-o", before, "--until-offset", 33)
        assert output.read_bytes() == before.read_bytes()


def test_dump_continues_after_a_wrong_checksum_and_exits_with_1(
    run: Run, sample_copy: Path
) -> None:
    log = sample_copy / "up-1" / "00000000000000000024.log"
    damage(log, 945 + 60, b"\xff\xff")
    ran = run("dump", log)
    assert ran.code == 1
    assert [line.split()[0] for line in ran.out.splitlines() if "WRONG" in line] == ["945"]
    assert " 43  " in ran.out
    assert "1 batch of" in ran.err
    ran = run("dump", "--records", log)
    assert_one_sentence(ran, "fails its checksum", "at byte 945")
    assert "offset 32 " in ran.out


def test_a_corrupt_checkpoint_is_dumped_up_to_the_damage(run: Run, sample_copy: Path) -> None:
    file = sample_copy / "recovery-point-offset-checkpoint"
    file.write_bytes(b"0\n3\nup 0 80\nup 1 many\nup-empty 0 0\n")
    ran = run("dump", file, "--json")
    assert_one_sentence(ran, "got 'up 1 many'", str(file), "at byte 12")
    assert [(each["topic"], each["offset"]) for each in ran.lines] == [("up", 80)]


def test_dump_continues_with_the_next_file(run: Run, sample_root: Path) -> None:
    ran = run("dump", "/nowhere/00000000000000000000.index", sample_root / "meta.properties")
    assert_one_sentence(ran, "/nowhere/00000000000000000000.index does not exist")
    assert "broker.id" in ran.out


def test_dump_refuses_a_file_of_unknown_type(run: Run, tmp_path: Path) -> None:
    strange = tmp_path / "notes.txt"
    strange.touch()
    assert_one_sentence(run("dump", strange), str(strange), "meta.properties")
    assert_one_sentence(run("dump", tmp_path), "is a directory", "kafkastore ls")


@pytest.mark.parametrize("time_text", ["yesterday", "2024-03-01T14:05"])
def test_invalid_times_are_refused(run: Run, sample_root: Path, time_text: str) -> None:
    assert_one_sentence(run("offsets", sample_root, "--at", time_text), time_text)


def test_permission_errors_name_the_file_and_a_remedy(
    run: Run, command: tuple[str, list[str]], sample_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really_open = os.open

    def refuse(path: object, *arguments: int, **options: int) -> int:
        if str(path).endswith("00000000000000000000.log"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return really_open(path, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refuse)
    name, options = command
    ran = run(name, sample_root / "up-0", *options)
    assert_one_sentence(ran, "00000000000000000000.log", "no permission", "as root")


RunAsNobody = Callable[..., list[Ran]]


def test_a_user_without_read_permission_gets_a_sentence(
    run_as_nobody: RunAsNobody, public_directory: Path, sample_root: Path
) -> None:
    root = public_directory / "logs"
    shutil.copytree(sample_root, root)
    log = root / "up-1" / "00000000000000000024.log"
    log.chmod(0)
    locked = public_directory / "locked"
    shutil.copytree(sample_root, locked)
    locked.chmod(0)
    cat, listed, quick, refused = run_as_nobody(
        ["cat", root], ["ls", root], ["ls", root, "--quick"], ["ls", locked]
    )
    for ran in (cat, listed):
        assert ran.code == 1
        assert ran.err.startswith("kafkastore: up-1: ")
        assert ran.err.count("\n") == 1
        assert str(log) in ran.err
        assert "no permission" in ran.err
        assert "up-compressed" in ran.out  # continues with the readable partitions
    assert quick.code == 0
    assert_one_sentence(refused, str(locked), "permission")


@pytest.mark.parametrize("name", ["", "00000000000000000024.log", "00000000000000000024.timeindex"])
def test_altering_commands_skip_unreadable_partitions_and_alter_the_others(
    run_as_nobody: RunAsNobody, public_directory: Path, sample_root: Path, name: str
) -> None:
    root = public_directory / "logs"
    shutil.copytree(sample_root, root)
    locked = root / "up-1" / name
    if name.endswith(".timeindex"):
        locked.write_bytes(b"")
    give_to_nobody(public_directory)
    locked.chmod(0)
    unchanged = {path: path.read_bytes() for path in root.rglob("up-1/*.log") if path != locked}
    for command in ("migrate", "reindex"):
        only_this, planned, done = run_as_nobody(
            [command, root, "--topic", "up", "--partition", "1", "--dry-run"],
            [command, root, "--dry-run"],
            [command, root, "--in-place", "--yes"],
        )
        assert (only_this.code, planned.code, done.code) == (2, 1, 1)
        for ran in (only_this, planned, done):
            assert ran.err.count("kafkastore: up-1: ") == 1, ran
            assert str(locked) in ran.err
            assert "run as the user that the files belong to" in ran.err
            assert "Errno" not in ran.out + ran.err
    locked.chmod(0o755)
    assert [*root.glob("up-0/*.timeindex")]
    assert {path: path.read_bytes() for path in unchanged} == unchanged
    assert len([*root.glob("up-1/*.timeindex")]) == name.endswith(".timeindex")


def test_reading_needs_no_write_permission_and_alters_nothing(
    run_as_nobody: RunAsNobody, public_directory: Path, sample_root: Path, run: Run
) -> None:
    root = public_directory / "logs"
    shutil.copytree(sample_root, root)
    for path in [*root.rglob("*"), root]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    lines = [[name, root, *options] for name, options in READING.items()]
    *done, migrated = run_as_nobody(*lines, ["migrate", root, "--in-place", "--yes"])
    for ran, line in zip(done, lines, strict=True):
        expected = run(*line)
        assert (ran.code, ran.out) == (expected.code, expected.out), line
        assert ran.code in (0, 1)
    assert_one_sentence(migrated, "no permission")
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


def test_a_closed_pipe_ends_the_command_silently(
    golden: Callable[..., object], tmp_path: Path
) -> None:
    logs = golden("2.4.0", "codecs", "answers").logs  # type: ignore[attr-defined]
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("kafkastore")), "cat", str(logs)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path,
    )
    assert process.stdout is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(800) == 141


def test_ctrl_c_ends_the_command_with_one_line(
    golden: Callable[..., object], tmp_path: Path
) -> None:
    logs = golden("2.4.0", "codecs", "answers").logs  # type: ignore[attr-defined]
    # A shell ignores SIGINT in background jobs, perhaps also in these tests, and children inherit
    # that; a handled signal has its default action in a child.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(
            [str(Path(sys.executable).with_name("kafkastore")), "cat", str(logs)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    assert process.stdout is not None
    assert process.stdout.readline()  # it runs, and waits for a reader now
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, reported = process.communicate(timeout=800)
    assert process.returncode == 130
    assert reported == b"kafkastore: interrupted\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has a full device")
def test_a_full_disk_under_stdout_is_reported(sample_root: Path) -> None:
    with open("/dev/full", "w") as full:
        process = subprocess.run(
            [str(Path(sys.executable).with_name("kafkastore")), "cat", str(sample_root)],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )
    assert process.returncode == 2
    assert process.stderr == (
        "kafkastore: standard output: no space is left on the disk; free some space, or choose "
        "another directory\n"
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has a full device")
def test_a_full_device_is_named(run: Run, sample_root: Path) -> None:
    ran = run("cat", sample_root, "-o", "/dev/full")
    assert_one_sentence(ran, "/dev/full: no space is left on the disk")


LIMITED = """
import resource, sys
sys.dont_write_bytecode = True  # it would be cut too
from kafkastore.cli.__main__ import main
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
main()
"""


def test_an_output_file_that_cannot_be_completed_is_removed(
    sample_root: Path, tmp_path: Path
) -> None:
    output = tmp_path / "records.json"
    output.write_text("of an earlier run")
    process = subprocess.run(
        [sys.executable, "-c", LIMITED, "cat", str(sample_root), "--json", "-o", str(output)],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )
    assert process.returncode == 2
    assert process.stderr.count("\n") == 1
    assert os.listdir(tmp_path) == ["records.json"]
    assert output.read_text() == "of an earlier run"


def test_an_interrupted_output_file_is_removed(
    run: Run, sample_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    ran = run("cat", sample_root, "-o", tmp_path / "records")
    assert ran.code == 130
    assert os.listdir(tmp_path) == []


def test_an_error_message_says_what_to_do() -> None:
    corrupt = CorruptIndexError("odd", path="/d/t-0/x.index", position=8)
    assert "kafkastore reindex" in format_error(corrupt)
    unreadable = OSError(errno.EIO, "Input/output error", "/d/x")
    assert format_error(unreadable).startswith("/d/x: I/O error")
    assert "/d/x" in format_error(OSError(errno.ELOOP, "Too many levels", "/d/x"))
    assert "--undo-dir" in format_error(NoUndoPlaceError("cannot make /d"))


@pytest.mark.parametrize(
    "words",
    [
        ("compare", "ROOT", "--summary", "--samples"),
        ("migrate", "ROOT", "--dry-run", "--samples"),
        ("pipeline", "ROOT", "--out", "out", "--samples"),
        ("sizing", "ROOT", "--interval"),
        ("sizing", "--broker-partitions"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("number", ["10000000000", "9" * 25])
def test_a_number_that_is_too_large_is_refused(
    run: Run, sample_root: Path, words: tuple[str, ...], number: str
) -> None:
    """The number would need more memory than exists, or does not fit 64 bits."""
    given = [sample_root if word == "ROOT" else word for word in words]
    assert_one_sentence(run(*given, number), words[-1], number, "must be an int from")
