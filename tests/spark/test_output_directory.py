"""The output appears all at once, replaces only what is ours, and survives being killed anywhere.

What is taken over of a run that was killed is still so.
"""
import fcntl
from dataclasses import replace
from pathlib import Path

import pytest
from changes.small_store import change, write
from models.refused import change_refused

from kafkastore.changes.plan import Inline, Plan
from kafkastore.spark.pipeline.output_directory import MARK, output_directory
from kafkastore.spark.pipeline.saved_steps import SavedSteps, state_of


def run(out, text="new", inputs=(), *, fails=False, **options):
    with output_directory(out, inputs, **options) as working:
        (working / "records").mkdir(exist_ok=True)
        (working / "records" / "file").write_text(text)
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
    assert names(out) == {MARK, "records"}
    assert names(out.parent) == {"out"}


def test_all_output_of_an_earlier_run_is_replaced(tmp_path):
    out = tmp_path / "out"
    run(out, "old")
    (out / "records" / "other").touch()
    run(out, "new")
    assert names(out / "records") == {"file"}
    assert (out / "records" / "file").read_text() == "new"
    assert names(tmp_path) == {"out"}


def test_another_run_that_begins_between_the_renames_removes_nothing(tmp_path, monkeypatch):
    out = tmp_path / "out"
    run(out, "old")
    rename, renames = Path.rename, []

    def renamed(self, target):
        renames.append(rename(self, target))
        if len(renames) == 1:
            with change_refused("other-job"):
                run(out, "other")
        return renames[-1]

    monkeypatch.setattr(Path, "rename", renamed)
    run(out, "new")
    assert (out / "records" / "file").read_text() == "new"
    assert names(tmp_path) == {"out"}
    assert len(renames) == 2


def test_a_failed_run_leaves_the_earlier_output(tmp_path):
    out = tmp_path / "out"
    run(out, "old")
    with pytest.raises(InterruptedError):
        run(out, "half", fails=True)
    assert (out / "records" / "file").read_text() == "old"
    with output_directory(out, ()) as working:
        assert names(working) == {MARK}


def test_a_run_that_resumes_finds_what_was_made(tmp_path):
    out = tmp_path / "out"
    with pytest.raises(InterruptedError):
        run(out, "half", fails=True)
    with output_directory(out, (), resume=True) as working:
        assert (working / "records" / "file").read_text() == "half"
    assert names(out) == {MARK, "records"}


def test_a_run_killed_between_its_renames_loses_nothing(tmp_path):
    out = tmp_path / "out"
    run(out, "old")
    out.rename(tmp_path / ".out.kafkastore-old")
    with output_directory(out, ()):
        assert (out / "records" / "file").read_text() == "old"
    run(out, "new")
    (tmp_path / ".out.kafkastore-old").mkdir()
    run(out, "newer")
    assert (out / "records" / "file").read_text() == "newer"
    assert names(tmp_path) == {"out"}


def test_a_directory_that_is_not_ours_is_refused(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").touch()
    (tmp_path / "file").touch()
    with change_refused("not-empty"):
        run(tmp_path / "out")
    with change_refused("not-a-directory"):
        run(tmp_path / "file")
    with change_refused("unsuitable-place"):
        run("/proc")
    assert names(tmp_path / "out") == {"thesis.txt"}


@pytest.mark.parametrize("place", ["logs", "logs/out", "."])
def test_output_and_input_must_not_contain_each_other(tmp_path, place):
    (tmp_path / "logs").mkdir()
    with change_refused("overlap"):
        run(tmp_path / place, inputs=[tmp_path / "logs"])


def test_two_runs_do_not_write_one_output(tmp_path):
    working = tmp_path / ".out.kafkastore-running"
    working.mkdir()
    with (working / MARK).open("w") as mark:
        fcntl.flock(mark, fcntl.LOCK_EX)
        with change_refused("other-job"):
            run(tmp_path / "out")


@pytest.fixture
def saved(tmp_path):
    """Saved steps of a run over a store of one file, which was planned to be replaced."""
    write(tmp_path / "store" / "t-0" / "0.timeindex", b"old", 7)
    write(tmp_path / "store" / "t-0" / f"{0:020}.log", b"log", 7)
    (tmp_path / "working").mkdir()
    saved = SavedSteps(tmp_path / "working")
    saved.start({"mode": "auto"}, [tmp_path / "store"], {"now": 1})
    return saved


def take_over(saved, tmp_path, mode="auto"):
    (tmp_path / "working" / "migrated").mkdir(exist_ok=True)
    found = saved.take_over({"mode": mode}, [tmp_path / "store"])
    assert (tmp_path / "working" / "migrated").exists() == (found is not None)
    return found


def test_steps_are_reused_if_nothing_has_changed(saved, tmp_path):
    saved.write("survey", {"result": [1, "a"]})
    assert take_over(saved, tmp_path) == {"now": 1}
    assert saved.read("survey") == {"result": [1, "a"]}
    assert saved.read("verify") is None


@pytest.mark.parametrize(
    "name", [f"t-0/{0:020}.log", "t-0/0.timeindex", "t-0/new", "meta.properties"]
)
def test_steps_are_not_reused_if_any_file_has_changed(saved, tmp_path, name):
    write(tmp_path / "store" / name, b"new", 8)
    assert take_over(saved, tmp_path) is None
    assert saved.read("started") is None


def test_steps_are_not_reused_with_other_options(saved, tmp_path):
    assert take_over(saved, tmp_path, "kip-33") is None


def test_files_that_the_plans_name_may_change(saved, tmp_path):
    root = tmp_path / "store"
    made = change(root, "t-0/0.timeindex", Inline(b"time"), b"time")
    plan = Plan(str(root), "migrate (auto)", (replace(made, relies_on=()),))
    saved.write_plans([plan], [root])
    write(root / "t-0" / "0.timeindex", b"time", 9)
    write(root / "t-0" / f"kafkastore-{plan.id}.a.timeindex.new", b"ti", 9)
    assert take_over(saved, tmp_path) == {"now": 1}
    assert saved.read_plans([root]) == [plan]
    write(root / "t-0" / f"{0:020}.log", b"log", 8)
    assert take_over(saved, tmp_path) is None


def test_files_that_the_plans_name_may_not_change_where_copies_are_migrated(saved, tmp_path):
    root = tmp_path / "store"
    made = change(root, "t-0/0.timeindex", Inline(b"time"), b"time")
    saved.write_plans([Plan(str(root), "migrate (auto)", (replace(made, relies_on=()),))], [])
    assert take_over(saved, tmp_path) == {"now": 1}
    write(root / "t-0" / "0.timeindex", b"time", 9)
    assert take_over(saved, tmp_path) is None


@pytest.mark.parametrize("name", ["t-0/new", "t-0/0.timeindex"])
def test_a_file_that_changes_between_start_and_plan_is_noticed(saved, tmp_path, name):
    root = tmp_path / "store"
    made = change(root, "t-0/0.timeindex", Inline(b"time"), b"time")
    write(root / name, b"new", 8)
    saved.write_plans([Plan(str(root), "migrate (auto)", (replace(made, relies_on=()),))], [root])
    assert take_over(saved, tmp_path) is None


def test_paths_that_cannot_be_read_have_a_state_too(tmp_path):
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "dangling").symlink_to("nowhere")
    (tmp_path / "t-0" / "round").symlink_to(tmp_path)
    assert state_of(tmp_path) == state_of(tmp_path) != state_of(tmp_path / "t-0")
    assert state_of(tmp_path / "missing") == state_of(tmp_path / "missing")


@pytest.mark.parametrize("text", ["[" * 200_000, "[]", '{"a": '])
def test_saved_steps_that_no_run_writes_are_refused(saved, tmp_path, text):
    (tmp_path / "working" / ".steps" / "survey.json").write_text(text)
    with change_refused("changed"):
        saved.read("survey")


def test_saved_steps_that_others_may_write_are_refused(saved, tmp_path):
    (tmp_path / "working" / ".steps").chmod(0o777)
    with change_refused("untrusted-area"):
        saved.read("started")


def test_saved_plans_are_applied_to_the_run_s_own_stores_only(saved, tmp_path):
    saved.write_plans([Plan(str(tmp_path / "elsewhere"), "migrate", ())], [tmp_path / "store"])
    with change_refused("changed"):
        saved.read_plans([tmp_path / "store"])
    assert len(saved.read_plans([tmp_path / "elsewhere"])) == 1
