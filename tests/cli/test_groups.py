"""``kafkastore groups``."""
from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cli.running import Run, assert_one_sentence
from cli.test_documentation import check, documented
from models import internal_topics
from models import metadata_directory as made
from models.metadata_directory import TOPIC_ID
from models.record_format import Batch, Row

from kafkastore.formats.topics.consumer_offsets import (
    RECORDS,
    OffsetAndMetadata,
    OffsetCommitKey,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a log directory with a consumer group, one that only commits, and metadata."""
    group, member = {"group_id": "new"}, {"group_id": "new", "member_id": "m"}
    assigned = ({"topic_id": TOPIC_ID, "partitions": (0, 2)},)
    records = [
        (3, group, {"epoch": 4}),
        (6, group, {"assignment_epoch": 4}),
        (5, member, {"client_id": "c", "client_host": "/h", "subscribed_topic_names": ("t",)}),
        (8, member, {"member_epoch": 4, "previous_member_epoch": 3, "state": 0,
                     "assigned_partitions": assigned}),
    ]
    rows = [
        Row(offset, 5, internal_topics.pack_key(RECORDS, number, **key),
            internal_topics.pack_value(RECORDS, number, 0, **value))
        for offset, (number, key, value) in enumerate(records)
    ]
    commit = OffsetAndMetadata(17, "", 1_500_000_000_000, leader_epoch=3)
    rows += [
        Row(4 + index, 5,
            internal_topics.pack_offset_commit_key(OffsetCommitKey(name, "t", 2)),
            internal_topics.pack_offset_commit_value(commit, 3))
        for index, name in enumerate(("new", "old"))
    ]
    path = tmp_path / "__consumer_offsets-0" / f"{0:020}.log"
    path.parent.mkdir()
    path.write_bytes(Batch(tuple(rows)).data)
    made.write_log(tmp_path / "__cluster_metadata-0", [made.topic("t"), made.partition(0)])
    return tmp_path


def test_groups_are_shown_with_their_members(run: Run, root: Path) -> None:
    ran = run("groups", root)
    assert (ran.code, ran.err) == (0, "")
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    assert "new consumer stable 4 - 1 1" in lines
    assert "old classic empty - - 0 1" in lines
    assert "new m c /h 4 t: 0, 2" in lines
    assert lines[-1] == "2 groups"
    assert "2017" not in ran.out


def test_committed_offsets_of_a_chosen_group_are_shown(run: Run, root: Path) -> None:
    ran = run("groups", root, "--group", "old")
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    assert "old t-2 17 2017-07-14T02:40:00.000Z" in lines
    assert "new" not in ran.out
    assert_one_sentence(run("groups", root, "--group", "none"), "none")


def test_json_has_documented_fields(run: Run, root: Path) -> None:
    rows = run("groups", root, "--json").lines
    assert [row["kind"] for row in rows] == ["group", "member", "offset", "group", "offset"]
    assert rows[1]["assigned"] == [{"topic": "t", "partitions": [0, 2], "kind": None}]
    assert (rows[2]["offset"], rows[2]["leader_epoch"]) == (17, 3)
    for kind in ("group", "member", "offset"):
        check((row for row in rows if row["kind"] == kind), documented("groups", kind))


def test_no_readable_partition_of_groups_is_unreadable_input(run: Run, root: Path) -> None:
    log = next(root.glob("__consumer_offsets-*/*.log"))
    log.unlink()
    log.mkdir()
    assert run("groups", root).code == 2
    shutil.copytree(log.parent, root / "__consumer_offsets-49")
    (root / "__consumer_offsets-49" / log.name).rmdir()
    (root / "__consumer_offsets-49" / log.name).touch()
    assert run("groups", root).code == 1


def test_topics_without_groups_are_refused(run: Run, root: Path) -> None:
    ran = run("groups", root, "--topic", "__cluster_metadata")
    assert ran.code == 2
    assert str(root) not in ran.err  # the directory has groups


def test_a_store_without_groups_is_refused(run: Run, root: Path) -> None:
    assert_one_sentence(run("groups", root / "__cluster_metadata-0"), "__consumer_offsets")
