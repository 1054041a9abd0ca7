"""Attempts, failures and crashes: all rows of a frame are written, or none."""
import json
import os
import shutil
import subprocess
import sys

import pytest
from models.open_files import open_files
from models.refused import change_refused
from models.unprivileged import give_to_nobody
from spark.writing.writes import TWO, batch, faults, names, row, values, write, writer

import kafkastore
from kafkastore.errors import InvalidRecordError
from kafkastore.fs import FileSystem
from kafkastore.spark.source.writing.committed_logs import CommittedLogs
from kafkastore.writing.log_dir_writer import LogDirWriter


@pytest.mark.parametrize("partition", [0, 1])
def test_of_two_copies_of_a_task_one_counts_and_the_other_ends(target, partition):
    made = writer(target)
    counted = made.write_task([batch([row(b"x")])], 0, 0)
    made.write_task([batch([row(b"x")])], 0, 1)

    def rows():
        """A copy continues while the job is committed."""
        yield batch([row(b"x" * 600_000)])
        made.commit([counted])
        yield batch([row(b"y", partition)])

    with pytest.raises(FileNotFoundError):
        made.write_task(rows(), 0, 2)
    assert values(target) == {"t-0": [b"x"]}
    assert names(target.parent) == ["logs"]


def test_abort_removes_what_tasks_wrote_of_which_it_is_not_reported(target):
    made = writer(target)
    made.write_task([batch([row(b"x")])], 0, 0)
    made.abort([None, None])
    assert not names(target.parent)
    made.abort([None])
    with change_refused("changed"):
        made.commit([])
    with change_refused("unsuitable-place"):
        made.write_task([batch([row(b"x")])], 0, 0)


def test_a_task_that_failed_gives_its_files_back(target):
    made = writer(target)
    before = open_files(target.parent)
    for attempt in range(3):
        with pytest.raises(InvalidRecordError):
            made.write_task([batch([row(b"x" * 600_000)]), batch([row(b"x", -1)])], 0, attempt)
    assert open_files(target.parent) == before
    made.abort([])


class _Killed(BaseException):
    pass


def dead_process():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def abandoned(made):
    """Make a job look like one whose driver has ended."""
    owner = json.loads((made.job.path / "owner").read_text())
    (made.job.path / "owner").write_text(json.dumps(owner | {"pid": dead_process()}))


ADDED = [[[row(b"%d" % number, number, topic="new") for number in range(3)]]]


def committing(target, monkeypatch, step, error):
    """Commit three partitions into a directory; at one step of altering it raise an error."""
    write(target, TWO)
    made = writer(target)
    messages = [made.write_task([batch(rows) for rows in ADDED[0]], 0, 0)]
    steps = 0

    def counted(method):
        def call(self, *arguments):
            nonlocal steps
            steps += 1
            if steps == step:
                raise error
            return method(self, *arguments)

        return call

    with monkeypatch.context() as patch:
        for name in ("rename", "fsync_directory", "create", "mkdir", "unlink"):
            patch.setattr(FileSystem, name, counted(getattr(FileSystem, name)))
        try:
            made.commit(messages)
        except (OSError, _Killed) as raised:
            assert raised is error
            return made, True
    return made, False


def test_killed_at_any_step_of_a_commit_the_next_write_ends_it_or_removes_it(
    tmp_path, monkeypatch
):
    seen = set()
    for step in range(1, 100):
        target = tmp_path / str(step) / "logs"
        made, is_killed = committing(target, monkeypatch, step, _Killed())
        if not is_killed:
            break
        assert values(target).items() >= {"t-0": [b"x", b"z"], "t-1": [b"y"]}.items()
        writer(target).abort([])  # while the driver lives
        assert is_killed == made.job.path.exists()
        abandoned(made)
        write(target, [[[row(b"later", 9)]]])
        found = values(target)
        new = {name: found.pop(name) for name in list(found) if name.startswith("new")}
        assert found == {"t-0": [b"x", b"z"], "t-1": [b"y"], "t-9": [b"later"]}
        assert new in ({}, {f"new-{number}": [b"%d" % number] for number in range(3)})
        seen.add(len(new))
        assert names(target.parent) == ["logs"]
        assert not list(kafkastore.verify(target))
    assert seen == {0, 3}
    assert step > 10


def test_a_commit_that_is_killed_at_any_step_and_then_aborted_leaves_nothing(
    tmp_path, monkeypatch
):
    """As if the process that commits were killed, but not the driver."""
    for step in range(1, 100):
        target = tmp_path / str(step) / "logs"
        made, is_killed = committing(target, monkeypatch, step, _Killed())
        if not is_killed:
            break
        made.abort([None])
        assert values(target) == {"t-0": [b"x", b"z"], "t-1": [b"y"]}
        assert names(target.parent) == ["logs"]
        assert not faults(target)
    assert step > 10


def test_partitions_that_a_broker_has_appended_to_are_not_removed(target, monkeypatch):
    steps = iter(range(1, 100))
    made = None
    while made is None or not (target / "new-1").exists():  # until some are there, others not
        shutil.rmtree(target.parent, ignore_errors=True)
        made, is_killed = committing(target, monkeypatch, next(steps), _Killed())
    assert is_killed
    with LogDirWriter(target) as log_dir:
        with change_refused("in-use"):
            made.abort([None])
        log_dir.writer("new", 0).append_columns(batch([row(b"acknowledged")]))
    with change_refused("changed"):
        made.abort([None])
    abandoned(made)
    write(target, [[[row(b"later", 9)]]])
    assert values(target) == {
        "t-0": [b"x", b"z"], "t-1": [b"y"], "t-9": [b"later"],
        "new-0": [b"0", b"acknowledged"], "new-1": [b"1"], "new-2": [b"2"],
    }
    assert names(target.parent) == ["logs"]


def test_an_error_at_any_step_of_a_commit_leaves_all_of_it_or_nothing(tmp_path, monkeypatch):
    for step in range(1, 100):
        target = tmp_path / str(step) / "logs"
        made, has_failed = committing(target, monkeypatch, step, OSError(28, "no space left"))
        if not has_failed:
            break
        made.abort([None])
        assert values(target) == {"t-0": [b"x", b"z"], "t-1": [b"y"]}
        assert names(target.parent) == ["logs"]
    assert step > 10
    assert len(values(target)) == 5


def test_a_job_of_another_machine_is_not_changed(target):
    made = writer(target)
    owner = made.job.path / "owner"
    abandoned(made)
    text = owner.read_text()
    for name in ("host", "namespace"):
        known = json.loads(text) | {name: "elsewhere"}
        owner.write_text(json.dumps(known))
        writer(target).abort([])
        assert made.job.path.exists()
    owner.write_text(text)
    (target.parent / ".logs.kafkastore-0-removed").mkdir()
    (target.parent / ".logs2.kafkastore-0").mkdir()
    writer(target).abort([])
    assert names(target.parent) == [".logs2.kafkastore-0"]


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        "[]",
        '{"is_new": false, "ends": [["../../elsewhere/t", 0, 3]]}',
        '{"is_new": false, "ends": [["t", "0/../../elsewhere-0", 3]]}',
        '{"is_new": false, "ends": [["t", 0, "3"]]}',
    ],
)
def test_only_partitions_with_names_of_kafka_are_moved(tmp_path, text):
    (tmp_path / "staged").mkdir()
    (tmp_path / "staged" / "committed").write_text(text)
    committed = CommittedLogs(tmp_path / "staged", tmp_path / "logs")
    for step in (committed.finish, committed.undo_move):
        with change_refused("changed", tmp_path / "staged" / "committed"):
            step()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_remains_of_another_user_s_write_are_not_moved(target):
    write(target, TWO)
    made = writer(target)
    (made.job.path / "log-dir" / "evil-0").mkdir(parents=True)
    (made.job.path / "committed").write_text('{"is_new": false, "ends": [["evil", 0, 0]]}')
    abandoned(made)
    give_to_nobody(made.job.path)
    before = values(target)
    writer(target).abort([])
    assert values(target) == before
    assert (made.job.path / "log-dir" / "evil-0").is_dir()
