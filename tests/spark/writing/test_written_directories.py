"""New log directories, and writes into existing ones."""
import shutil
from pathlib import Path

import pytest
from models.refused import change_refused
from spark.writing.writes import MARKER, TWO, batch, left, names, row, values, write, writer

import kafkastore
from kafkastore.formats.state.checkpoints import parse_offset_checkpoint
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.writing.log_dir_writer import LogDirWriter


def checkpoint(target, name):
    return parse_offset_checkpoint((target / f"{name}-checkpoint").read_bytes())


def test_a_new_directory_is_cleanly_shut_down(target):
    write(target, TWO)
    ends = {TopicPartition("t", 0): 2, TopicPartition("t", 1): 1}
    assert checkpoint(target, "recovery-point-offset") == ends
    assert checkpoint(target, "replication-offset") == ends
    assert checkpoint(target, "log-start-offset") == {}
    assert (target / MARKER).exists()
    assert not (target / "meta.properties").exists()  # the broker writes it
    assert not (target / ".lock").exists()


@pytest.mark.parametrize("is_clean", [True, False])
def test_other_partitions_are_added_to_a_directory(target, is_clean):
    target.parent.mkdir()
    with LogDirWriter(target) as log_dir:
        log_dir.writer("old", 0).append_columns(batch([row(b"a"), row(b"b")]))
        log_dir.writer("old", 0 + 1).append_columns(batch([row(b"c")]))
        log_dir.writers["old", 0].delete_records(1)
    file = target / "log-start-offset-checkpoint"
    file.write_bytes(file.read_bytes().replace(b"0\n1\n", b"0\n2\nt 1 77\n"))
    if not is_clean:
        (target / MARKER).unlink()
    before = left(target)
    write(target, TWO)
    after = left(target)
    assert values(target) == {"old-0": [b"b"], "old-1": [b"c"], "t-0": [b"x", b"z"], "t-1": [b"y"]}
    altered = {name for name in before if after[name] != before[name]}
    assert altered == {f"{name}-checkpoint" for name in
                       ("recovery-point-offset", "replication-offset", "log-start-offset")}
    assert checkpoint(target, "log-start-offset") == {("old", 0): 1}
    assert checkpoint(target, "recovery-point-offset")["t", 0] == 2
    assert (target / MARKER).exists() == is_clean
    assert names(target.parent) == ["logs"]


def test_an_empty_directory_stays_the_same_directory(target):
    target.mkdir(parents=True, mode=0o750)
    before = target.stat()
    write(target, TWO)
    after = target.stat()
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    assert (target / MARKER).exists()
    assert not list(kafkastore.verify(target))


def test_an_existing_partition_is_not_changed(target):
    write(target, TWO)
    before = left(target)
    made = writer(target)
    with change_refused("not-empty"):
        made.write_task([batch([row(b"u", 1)])], 0, 0)
    made.abort([None])
    # And one that is created while tasks write.
    made = writer(target)
    message = made.write_task([batch([row(b"u", 2), row(b"v", 3)])], 0, 0)
    write(target, [[[row(b"w", 2)]]])
    before = left(target)
    with change_refused("not-empty"):
        made.commit([message])
    made.abort([message])
    assert left(target) == before
    assert names(target.parent) == ["logs"]


def test_a_directory_that_a_broker_uses_is_not_changed(target):
    target.parent.mkdir()
    made = writer(target)
    message = made.write_task([batch([row(b"u")])], 0, 0)
    with LogDirWriter(target) as log_dir:
        log_dir.writer("old", 0)
        with change_refused("in-use"):
            writer(target)
        with change_refused("in-use"):
            made.commit([message])
    made.abort([message])
    assert names(target.parent) == ["logs"]
    assert values(target) == {"old-0": []}


def test_a_path_that_is_not_a_log_directory_is_refused(tmp_path):
    file = tmp_path / "file"
    file.touch()
    other = tmp_path / "other"
    (other / "documents").mkdir(parents=True)
    write(tmp_path / "logs", TWO)
    damaged = tmp_path / "damaged"
    shutil.copytree(tmp_path / "logs", damaged)
    (damaged / "replication-offset-checkpoint").write_text("nonsense\n")
    before = left(tmp_path)
    for path, reason in (
        (file, "not-a-directory"),
        (other, "not-empty"),
        (tmp_path / "logs" / "t-0", "unsuitable-place"),
        (damaged, "changed"),
        (Path("/dev/shm"), "unsuitable-place"),
        (tmp_path / "logs" / "copy", "unsuitable-place"),
        (tmp_path / "logs" / "deep" / "copy", "unsuitable-place"),
    ):
        with change_refused(reason, path):
            writer(path)
    assert left(tmp_path) == before
    assert names(tmp_path) == ["damaged", "file", "logs", "other"]
