"""Disks of several brokers: each partition is served from its best replica."""

from __future__ import annotations

import itertools

import pytest
from models.log_directory import Log, Segment
from models.protocol_client import ProtocolClient, batches
from models.record_format import Batch, Row
from models.seed import some

import kafkastore
from kafkastore.errors import SeveralClustersError
from kafkastore.formats.requests.apis import ApiKey
from kafkastore.server import serve
from kafkastore.use_cases.replicas import TopicIdError

ID, OTHER_ID = 21 * "A" + "Q", 21 * "A" + "g"
#: The epoch of the batch at each offset, by replica.
HISTORIES = {
    "one behind the other": ([0, 0, 2, 2], [0, 0, 2]),
    "a longer log of an older leader": ([0, 0, 1, 1, 1, 1], [0, 0, 2]),
    "three lineages": ([0, 1, 1], [0, 0, 0, 0], [0, 1, 4]),
    "the same": ([3, 3], [3, 3]),
    "an empty one": ([], [0]),
}


def disk(root, epochs, *, start=0, checkpoint=True, topic_id=None, cluster_id="c", node_id=1):
    """Write a broker's disk with one batch of one record for each epoch."""
    found = [
        Batch((Row(start + slot, 1_600_000_000_000, b"k", b"%d" % epoch),), leader_epoch=epoch)
        for slot, epoch in enumerate(epochs)
    ]
    Log((Segment(start, tuple(found)),)).write(root)
    (root / "meta.properties").write_text(
        f"version=1\ncluster.id={cluster_id}\nnode.id={node_id}\n"
    )
    if checkpoint:
        starts = {epoch: start + slot for slot, epoch in reversed(list(enumerate(epochs)))}
        lines = "".join(f"{each} {starts[each]}\n" for each in sorted(starts))
        (root / "t-0" / "leader-epoch-checkpoint").write_text(f"0\n{len(starts)}\n{lines}")
    if topic_id is not None:
        (root / "t-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    return root


def served_path(paths):
    """Return the directory that a partition is served from, having read all of it."""
    with serve(paths) as served, ProtocolClient(served.bootstrap_servers) as client:
        log = served.catalog.log("t", 0).log
        (row,) = client.fetch(12, {("t", 0): log.log_start_offset}).values()
        found, _ = batches(row["records"])
        assert row["high_watermark"] == log.log_end_offset
        assert [each.data for each in found] == [
            each.data for path in sorted(log.path.glob("*.log"))
            for each in batches(path.read_bytes())[0]
        ]
        return log.path


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("has_checkpoints", [True, False])
def test_a_partition_is_served_from_the_replica_to_restore_from(
    tmp_path, history, has_checkpoints
):
    paths = [
        disk(tmp_path / str(number), epochs, checkpoint=has_checkpoints, node_id=number)
        for number, epochs in enumerate(HISTORIES[history])
    ]
    orders = list(itertools.permutations(paths))
    for order in some(orders, 2, history):
        (best,) = kafkastore.best_replicas(list(order))
        chosen = served_path(list(order))
        if history == "the same":
            assert chosen.parent in paths
        else:
            assert chosen == best.best.path


def test_an_epoch_in_batches_counts_that_a_checkpoint_does_not_have(tmp_path):
    older = disk(tmp_path / "1", [0, 1, 1, 1, 1], node_id=1)
    newer = disk(tmp_path / "2", [0, 1, 2], node_id=2)
    (newer / "t-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 1\n")
    assert served_path([older, newer]).parent == newer
    (newer / "t-0" / "leader-epoch-checkpoint").write_text("no checkpoint")
    assert served_path([older, newer]).parent == newer


def test_of_one_lineage_the_replica_with_the_most_records_is_served(tmp_path):
    whole = disk(tmp_path / "1", [0, 0, 1, 1], node_id=1)
    newer = disk(tmp_path / "2", [1], start=4, node_id=2)
    assert served_path([newer, whole]).parent == whole


def test_disks_of_several_clusters_are_refused(tmp_path):
    paths = [
        disk(tmp_path / cluster_id, [0], cluster_id=cluster_id) for cluster_id in ("Cc", "Dd")
    ]
    with pytest.raises(SeveralClustersError) as caught, serve(paths):
        pass
    assert caught.value.paths.keys() == {"Cc", "Dd"}
    with serve(paths[:1]) as served, ProtocolClient(served.bootstrap_servers) as client:
        assert client.ask(ApiKey.METADATA, 8, topics=None)["cluster_id"] == "Cc"


def test_replicas_of_two_topics_of_one_name_are_refused(tmp_path):
    paths = [disk(tmp_path / topic_id, [0], topic_id=topic_id) for topic_id in (ID, OTHER_ID)]
    with pytest.raises(TopicIdError), serve(paths):
        pass
