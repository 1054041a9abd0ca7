"""Segments that a killed broker had not yet put in place of others."""

import pytest
from kafkastore.migration.convert import plan_convert
from kafkastore.migration.plan import LeftReason, left_segments
from models.recovered_directory import files_of

import kafkastore
from kafkastore import migration, samples
from kafkastore.checks.reindex import plan_reindex
from kafkastore.checks.repair import plan_repair

NAME = f"{24:020}"


@pytest.fixture
def root(tmp_path):
    """Directories of 0.10.0.1; of one partition, the original log is already deleted."""
    samples.unpack(tmp_path)
    root = tmp_path / "0.10.0.1"
    directory = root / "up-1"
    (directory / f"{NAME}.log").rename(directory / f"{NAME}.log.swap")
    (directory / f"{NAME}.index.swap").write_bytes((directory / f"{NAME}.index").read_bytes())
    return root


def migrate(root):
    survey = migration.survey(root)
    left = [(each.path, each.reason) for each in left_segments(survey)]
    return migration.plan(survey), left == [(f"up-1/{NAME}.log", LeftReason.SWAP)]


def reindex(root):
    plan = plan_reindex(root)
    return plan, [each.path for each in plan.unindexed] == [f"up-1/{NAME}.log"]


def convert(root):
    plan = plan_convert(root)
    return plan, [each.path for each in plan.unconverted] == [f"up-1/{NAME}.log"]


def repair(root):
    plan = plan_repair(root, on_corrupt="skip")
    return plan, {each.path.name for each in plan.not_repaired} == {f"{NAME}.timeindex.swap"}


@pytest.mark.parametrize("job", [migrate, reindex, convert, repair])
def test_a_swap_segment_is_named_and_all_others_are_changed(root, job):
    before = {path.name: files_of(path) for path in root.iterdir() if path.is_dir()}
    plan, is_named = job(root)
    assert is_named
    assert {change.path.split("/")[0] for change in plan.changes} >= {"up-0", "up-1"}
    assert not [change for change in plan.changes if NAME in change.path and "up-1" in change.path]
    journal = kafkastore.apply(plan)
    after = files_of(root / "up-1")
    assert after != before["up-1"]
    of_swap = {name for name in after if name.startswith(NAME)}
    assert {name: after[name] for name in of_swap} == {
        name: data for name, data in before["up-1"].items() if name.startswith(NAME)
    }
    kafkastore.undo(journal)
    assert {path.name: files_of(path) for path in root.iterdir() if path.is_dir()} == before
