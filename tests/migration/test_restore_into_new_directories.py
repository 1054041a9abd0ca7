"""Partitions restored where their directories do not exist yet."""

from __future__ import annotations

import os
import shutil
import stat

import pytest
from changes.small_store import contents, tree
from kafkastore.migration import plan_restore
from models import metadata_directory as made
from models.log_directory import Log, Segment
from models.record_format import Batch, Row

import kafkastore
from kafkastore import ChangeRefusedError, Plan, RefusalReason
from kafkastore.changes.plan import InvalidPlanError, NewDirectory
from kafkastore.metadata.cluster import NoMetadataError

KRAFT = f"version=1\nnode.id=1\ncluster.id=c\ndirectory.id={made.DIRECTORY}\n"
ZOOKEEPER = "version=0\nbroker.id=1\ncluster.id=c\n"
OTHER_ID = "dEYBbYzqQe2ua4s0PmjpMA"
OTHER_DIRECTORY = "AAAAAAAAAAAAAAAAAAAAZg"


@pytest.fixture
def source(tmp_path):
    """A disk with two partitions of t; records of t-0 before offset 2 were deleted."""
    batches = tuple(Batch((Row(slot, 100, b"k", b"v"),)) for slot in range(4))
    segment = Segment(0, batches).indexed(interval=50)
    root = Log((segment,), checkpointed_start=2).write(tmp_path / "source")
    shutil.copytree(root / "t-0", root / "t-1")
    (root / "t-1" / "partition.metadata").write_text(f"version: 0\ntopic_id: {OTHER_ID}")
    return root


@pytest.fixture
def root(tmp_path):
    """A log directory that was formatted, and that no broker has used."""
    root = tmp_path / "kafka-logs"
    root.mkdir(mode=0o750)
    (root / "meta.properties").write_text(KRAFT)
    return root


def empty_log(tmp_path):
    """The log of a new topic, as a broker has created it."""
    directory = Log((Segment(0, ()).indexed(),)).write(tmp_path / "empty") / "t-0"
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {made.TOPIC_ID}")
    return directory


def metadata_of(tmp_path, *frames):
    directory = tmp_path / "controller" / "__cluster_metadata-0"
    made.write_log(directory, frames)
    (tmp_path / "controller" / "meta.properties").write_text(KRAFT)
    return directory.parent


@pytest.fixture
def metadata(tmp_path):
    """The metadata of a cluster that has t with two partitions."""
    partitions = [made.partition(number, replicas=(1,)) for number in (0, 1)]
    return metadata_of(tmp_path, made.topic("t"), *partitions)


def refusal(source, root, **options):
    before = tree(root)
    with pytest.raises(ChangeRefusedError) as caught:
        plan_restore(source, root, **options)
    assert tree(root) == before
    return caught.value


def topic_id_in(directory):
    return kafkastore.cluster(directory.parent).topics[directory.name[:-2]].topic_id


def test_directories_get_the_topic_id_of_the_metadata_and_undo_removes_them(
    source, root, metadata
):
    before = tree(root)
    plan = plan_restore(source, root, metadata=metadata)
    assert [each.name for each in plan.directories] == ["t-0", "t-1"]
    assert Plan.from_json(plan.to_json()) == plan
    journal = kafkastore.apply(plan)
    assert journal.created == {"t-0", "t-1"}
    for log in kafkastore.open(root):
        assert [each.offset for each in log.records()] == [[2, 3], [0, 1, 2, 3]][log.partition]
        assert topic_id_in(log.path) == made.TOPIC_ID
    undone = kafkastore.undo(journal)
    assert (undone.phase, undone.created, undone.left) == ("undone", set(), set())
    assert tree(root) == before


def test_the_metadata_log_in_the_directory_is_used(tmp_path, source, root, metadata):
    shutil.move(metadata / "__cluster_metadata-0", root)
    kafkastore.apply(plan_restore(source, root))
    assert (root / "t-0/partition.metadata").read_text().endswith(made.TOPIC_ID)


def test_without_metadata_another_partition_has_the_topic_id(source, root):
    (root / ".kafka_cleanshutdown").touch()
    shutil.copytree(source / "t-1", root / "t-7")
    kafkastore.apply(plan_restore(source, root))
    assert topic_id_in(root / "t-0") == OTHER_ID


def test_contradicting_topic_ids_are_refused(source, root):
    (root / ".kafka_cleanshutdown").touch()
    for number, topic_id in ((7, OTHER_ID), (8, made.TOPIC_ID)):
        directory = shutil.copytree(source / "t-1", root / f"t-{number}")
        (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    assert refusal(source, root, partitions=["t-0"]).reason == RefusalReason.NOT_SERVED


def test_a_kraft_broker_needs_the_topic_id(source, root):
    for without_topic_ids in (False, True):
        error = refusal(
            source, root, partitions=["t-0"], without_topic_ids=without_topic_ids
        )
        assert (error.reason, error.path) == (RefusalReason.NOT_SERVED, root / "t-0")


def test_a_broker_with_zookeeper_needs_no_topic_id(source, root):
    (root / "meta.properties").write_text(ZOOKEEPER)
    kafkastore.apply(plan_restore(source, root))
    assert not list(root.glob("*/partition.metadata"))
    assert len(kafkastore.open(root).partitions) == 2


def test_an_empty_directory_may_be_for_a_broker_with_zookeeper(source, root):
    (root / "meta.properties").unlink()
    assert refusal(source, root, partitions=["t-0"]).reason == RefusalReason.NOT_SERVED
    journal = kafkastore.apply(plan_restore(source, root, without_topic_ids=True))
    assert [each.offset for each in kafkastore.open(root)["t", 0].records()] == [2, 3]
    assert (root / "log-start-offset-checkpoint").stat().st_mode & 0o777 == 0o640
    kafkastore.undo(journal)
    assert not tree(root)


def test_an_empty_directory_gets_the_topic_id_of_the_metadata(source, root, metadata):
    (root / "meta.properties").unlink()
    kafkastore.apply(plan_restore(source, root, metadata=metadata))
    assert topic_id_in(root / "t-0") == made.TOPIC_ID


@pytest.mark.parametrize("frames", [
    pytest.param([made.topic("u")], id="no such topic"),
    pytest.param([made.topic("t"), made.partition(0, replicas=(1,))], id="no such partition"),
    pytest.param(
        [made.topic("t"), *(made.partition(each, replicas=(2,)) for each in (0, 1))],
        id="another broker",
    ),
    pytest.param([
        made.broker(1, 5, log_dirs=(made.DIRECTORY, OTHER_DIRECTORY)), made.topic("t"),
        *(made.partition(each, replicas=(1,), directories=(OTHER_DIRECTORY,)) for each in (0, 1)),
    ], id="another log directory of the broker"),
])
def test_what_the_broker_would_not_serve_is_refused(tmp_path, source, root, frames):
    metadata = metadata_of(tmp_path, *frames)
    error = refusal(source, root, metadata=metadata, partitions=["t-1"])
    assert (error.reason, error.path) == (RefusalReason.NOT_SERVED, root / "t-1")


def test_partitions_of_other_brokers_are_left_out(tmp_path, source, root):
    metadata = metadata_of(
        tmp_path, made.topic("t"), made.partition(0, replicas=(2,)),
        made.partition(1, replicas=(1,)),
    )
    for partitions in (None, ["t-0", "t-1"]):
        plan = plan_restore(source, root, metadata=metadata, partitions=partitions)
        assert plan.elsewhere == (("t", 0),)
        assert {each.path.partition("/")[0] for each in plan.changes} == {"t-1"}
    assert not plan_restore(source, root, metadata=metadata, partitions=["t-1"]).elsewhere


def test_a_partition_with_other_replicas_is_refused(tmp_path, source, root):
    """Another one that is empty may become leader, and this log would be truncated to it."""
    metadata = metadata_of(tmp_path, made.topic("t"), made.partition(0, replicas=(1, 2)))
    for is_there in (False, True):
        if is_there:
            shutil.copytree(empty_log(tmp_path), root / "t-0")
            (root / ".kafka_cleanshutdown").touch()
        error = refusal(source, root, metadata=metadata, partitions=["t-0"])
        assert (error.reason, error.path) == (RefusalReason.OTHER_REPLICAS, root / "t-0")


@pytest.mark.parametrize("topic_id", [None, OTHER_ID])
def test_an_empty_log_of_a_deleted_topic_is_refused(tmp_path, source, root, metadata, topic_id):
    directory = shutil.copytree(empty_log(tmp_path), root / "t-0")
    (root / ".kafka_cleanshutdown").touch()
    if topic_id is None:
        (directory / "partition.metadata").unlink()
    else:
        (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    error = refusal(source, root, metadata=metadata, partitions=["t-0"])
    assert (error.reason, error.path) == (RefusalReason.NOT_SERVED, root / "t-0")


def test_a_disk_that_was_replaced_is_no_other_directory(tmp_path, source, root):
    """The metadata still has the directory of the old disk."""
    partitions = [
        made.partition(each, replicas=(1,), directories=(OTHER_DIRECTORY,)) for each in (0, 1)
    ]
    broker = made.broker(1, 5, log_dirs=(OTHER_DIRECTORY,))
    metadata = metadata_of(tmp_path, broker, made.topic("t"), *partitions)
    assert plan_restore(source, root, metadata=metadata).directories


def test_metadata_of_another_cluster_is_refused(source, root, metadata):
    (metadata / "meta.properties").write_text(KRAFT.replace("id=c", "id=d"))
    error = refusal(source, root, metadata=metadata)
    assert (error.reason, error.path) == (RefusalReason.NOT_SERVED, root)


def test_a_directory_without_metadata_is_an_error(source, root):
    with pytest.raises(NoMetadataError):
        plan_restore(source, root, metadata=source)


def test_a_directory_with_logs_needs_a_clean_shutdown(source, root, metadata):
    shutil.copytree(source / "t-0", root / "u-0")
    error = refusal(source, root, metadata=metadata)
    assert (error.reason, error.path) == (RefusalReason.IN_USE, root)


def test_directories_get_the_owners_and_the_mode_of_their_neighbours(source, root, metadata):
    user, group = (1234, 2345) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    os.chown(root, user, group)
    kafkastore.apply(plan_restore(source, root, metadata=metadata, partitions=["t-0"]))
    (root / ".kafka_cleanshutdown").touch()
    (root / "t-0").chmod(0o700)
    kafkastore.apply(plan_restore(source, root, metadata=metadata, partitions=["t-1"]))
    for name, mode in (("t-0", 0o640), ("t-1", 0o600)):
        for path in (root / name).iterdir():
            status = path.stat()
            found = status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)
            assert found == (user, group, mode)
    status = (root / "t-1").stat()
    assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (user, 0o700)


def test_an_empty_partition_directory_is_filled_and_stays(source, root, metadata):
    (root / "t-0").mkdir()
    (root / ".kafka_cleanshutdown").touch()
    before = tree(root)
    plan = plan_restore(source, root, metadata=metadata, partitions=["t-0"])
    assert not plan.directories
    journal = kafkastore.apply(plan)
    assert topic_id_in(root / "t-0") == made.TOPIC_ID
    kafkastore.undo(journal)
    assert tree(root) == before


@pytest.fixture
def plan(source, root, metadata):
    return plan_restore(source, root, metadata=metadata)


@pytest.mark.parametrize("name", ["", "a file"])
def test_a_directory_that_appeared_since_the_plan_is_refused(root, plan, name):
    (root / "t-1").mkdir()
    if name:
        (root / "t-1" / name).touch()
    before = tree(root)
    with pytest.raises(ChangeRefusedError) as caught:
        kafkastore.apply(plan)
    assert (caught.value.reason, caught.value.path) == (RefusalReason.CHANGED, root / "t-1")
    assert tree(root) == before


def test_a_directory_that_is_a_link_is_refused(tmp_path, root, plan):
    (root / "t-1").symlink_to(tmp_path)
    with pytest.raises(ChangeRefusedError) as caught:
        kafkastore.apply(plan)
    assert caught.value.path == root / "t-1"


def test_undo_never_removes_the_later_files_of_a_broker(root, plan):
    journal = kafkastore.apply(plan)
    later = root / "t-0" / f"{5:020}.snapshot"
    later.write_bytes(b"later")
    before = contents(root)
    with pytest.raises(ChangeRefusedError) as caught:
        kafkastore.undo(journal)
    assert (caught.value.reason, caught.value.path) == (RefusalReason.CHANGED, root / "t-0")
    assert contents(root) == before
    undone = kafkastore.undo(journal, leave_changed=True)
    assert undone.left == {"t-0"}
    assert tree(root).keys() == {"meta.properties", "t-0/", f"t-0/{later.name}"}
    later.unlink()
    assert not kafkastore.undo(journal).left
    assert tree(root).keys() == {"meta.properties"}


def test_undo_accepts_that_a_directory_is_gone(root, plan):
    journal = kafkastore.apply(plan)
    shutil.rmtree(root / "t-0")
    assert not kafkastore.undo(journal).left
    assert tree(root).keys() == {"meta.properties"}


def test_an_undone_plan_does_not_own_a_directory_that_others_created(root, plan):
    journal = kafkastore.undo(kafkastore.apply(plan))
    (root / "t-0").mkdir()
    with pytest.raises(ChangeRefusedError) as caught:
        kafkastore.apply(plan)
    assert caught.value.reason == RefusalReason.CHANGED
    assert not kafkastore.undo(journal).left
    assert tree(root).keys() == {"meta.properties", "t-0/"}


def test_a_plan_applied_again_creates_a_removed_directory_again(root, plan):
    kafkastore.apply(plan)
    planned = tree(root)
    shutil.rmtree(root / "t-0")
    journal = kafkastore.apply(plan)
    assert tree(root) == planned
    kafkastore.undo(journal)
    assert tree(root).keys() == {"meta.properties"}


def test_a_plan_creates_only_directories_with_access_as_known(root, plan):
    text = plan.to_json()
    (user,) = {each.user for each in plan.directories}
    for old, new in ((f'"mode": {0o750}', f'"mode": {0o777}'), ('"name": "t-0"', '"name": "t-5"')):
        assert old in text
        with pytest.raises((ChangeRefusedError, InvalidPlanError)):
            kafkastore.apply(Plan.from_json(text.replace(old, new)))
    assert tree(root).keys() == {"meta.properties"}
    for name in ("..", "a/t-0", "/t-0", "t", "", f"t-0.{'a' * 32}-delete"):
        with pytest.raises(InvalidPlanError):
            Plan(
                plan.root, plan.job, plan.changes,
                directories=(*plan.directories, NewDirectory(name, 0o750, user, user)),
            )
