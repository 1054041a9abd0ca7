"""The output appears whole, replaces only what is ours, and survives being killed anywhere."""
import fcntl

import pytest

from kafkastore.errors import ChangeRefusedError
from kafkastore.spark.pipeline.output_directory import MARK, output_directory


def run(out, text="new", inputs=(), *, fails=False, **options):
    with output_directory(out, inputs, **options) as working:
        (working / "folder").mkdir(exist_ok=True)
        (working / "folder" / "file").write_text(text)
        if fails:
            raise InterruptedError


def names(folder):
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("is_there", [False, True])
def test_output_appears_where_nothing_is(tmp_path, is_there):
    out = tmp_path / "deep" / "out"
    if is_there:
        out.mkdir(parents=True)
    run(out)
    assert names(out) == {MARK, "folder"}
    assert names(out.parent) == {"out"}


def test_the_output_of_an_earlier_run_is_replaced_whole(tmp_path):
    out = tmp_path / "out"
    run(out, "old")
    (out / "folder" / "other").touch()
    run(out, "new")
    assert names(out / "folder") == {"file"}
    assert (out / "folder" / "file").read_text() == "new"
    assert names(tmp_path) == {"out"}


def test_a_failed_run_leaves_the_earlier_output(tmp_path):
    out = tmp_path / "out"
    run(out, "old")
    with pytest.raises(InterruptedError):
        run(out, "half", fails=True)
    assert (out / "folder" / "file").read_text() == "old"
    with output_directory(out, ()) as working:
        assert names(working) == {MARK}


def test_a_run_that_resumes_finds_what_was_made(tmp_path):
    out = tmp_path / "out"
    with pytest.raises(InterruptedError):
        run(out, "half", fails=True)
    with output_directory(out, (), resume=True) as working:
        assert (working / "folder" / "file").read_text() == "half"
    assert names(out) == {MARK, "folder"}


def test_a_run_killed_between_its_renames_loses_nothing(tmp_path):
    out = tmp_path / "out"
    run(out, "old")
    out.rename(tmp_path / ".out.kafkastore-old")
    with output_directory(out, ()):
        assert (out / "folder" / "file").read_text() == "old"
    run(out, "new")
    (tmp_path / ".out.kafkastore-old").mkdir()
    run(out, "newer")
    assert (out / "folder" / "file").read_text() == "newer"
    assert names(tmp_path) == {"out"}


def test_what_is_not_ours_is_refused(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").touch()
    (tmp_path / "file").touch()
    with pytest.raises(ChangeRefusedError, match=r"out is not empty and no output of an earlier"):
        run(tmp_path / "out")
    with pytest.raises(ChangeRefusedError, match=r"file is a file: name a directory"):
        run(tmp_path / "file")
    with pytest.raises(ChangeRefusedError, match=r"is a mount point: name a directory in it"):
        run("/proc")
    assert names(tmp_path / "out") == {"thesis.txt"}


@pytest.mark.parametrize("place", ["logs", "logs/out", "."])
def test_output_and_input_must_not_contain_each_other(tmp_path, place):
    (tmp_path / "logs").mkdir()
    with pytest.raises(ChangeRefusedError, match=r"can't be the output for .*logs: one contains"):
        run(tmp_path / place, inputs=[tmp_path / "logs"])


def test_two_runs_do_not_write_one_output(tmp_path):
    working = tmp_path / ".out.kafkastore-running"
    working.mkdir()
    with (working / MARK).open("w") as mark:
        fcntl.flock(mark, fcntl.LOCK_EX)
        with pytest.raises(ChangeRefusedError, match=r"another run is writing .*out"):
            run(tmp_path / "out")
