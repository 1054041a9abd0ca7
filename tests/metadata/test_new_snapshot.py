"""Snapshots with which a cluster begins again, of the golden metadata logs."""

import json
from pathlib import Path

import pytest

import kafkastore
from kafkastore import NoMetadataError, TopicPartition, new_snapshot
from kafkastore.metadata.snapshots import snapshot_name
from kafkastore.samples.unpacking import unpack_archive

ARCHIVES = Path(__file__).parents[1] / "golden" / "metadata"
MANIFEST = json.loads((ARCHIVES / "MANIFEST.json").read_text())
CASES = [
    (version, name) for version, entry in MANIFEST.items() for name in entry["cases"]
]


@pytest.fixture(scope="module")
def clusters(tmp_path_factory):
    """The cluster of each golden case."""
    found = {}
    for version, entry in MANIFEST.items():
        root = tmp_path_factory.mktemp(version)
        unpack_archive(ARCHIVES / entry["archive"], root)
        for name, case in entry["cases"].items():
            found[version, name] = kafkastore.cluster([root / name / logs for logs in case["logs"]])
    return found


def has_eligible_replicas(cluster):
    """With these, a controller elects the last known leader; without, one in sync."""
    return cluster.features.get("eligible.leader.replicas.version", 0) > 0


def read_again(cluster, leaders, directory):
    path = directory / snapshot_name(cluster.end_offset, cluster.epoch)
    path.write_bytes(new_snapshot(cluster, leaders))
    return kafkastore.cluster(path)


@pytest.mark.parametrize(("version", "name"), CASES)
def test_everything_but_nodes_and_leaders_is_kept(clusters, tmp_path, version, name):
    cluster = clusters[version, name]
    again = read_again(cluster, {}, tmp_path)
    for field in (
        "features", "configs", "client_quotas", "acls", "scram_credentials", "delegation_tokens",
        "next_producer_id", "end_offset", "epoch", "timestamp",
    ):
        assert getattr(again, field) == getattr(cluster, field)
    assert not again.brokers
    assert not again.controllers
    assert again.topics.keys() == cluster.topics.keys()
    for topic in cluster.topics.values():
        made = again.topics[topic.name]
        assert made.topic_id == topic.topic_id
        for number, before in topic.partitions.items():
            after = made.partitions[number]
            assert (after.replicas, after.leader) == (before.replicas, -1)
            if has_eligible_replicas(cluster) and before.leader >= 0:
                assert (after.isr, after.last_known_elr) == ((), (before.leader,))
            else:
                assert after.isr == before.isr
            assert after.leader_epoch == before.leader_epoch + 1
            assert after.partition_epoch == before.partition_epoch + 1


@pytest.mark.parametrize(("version", "name"), [
    ("3.9.1", "kraft-cluster"), ("4.1.1", "kraft-cluster"),
])
def test_only_the_leader_to_be_is_in_sync_and_its_epoch_is_above_its_records(
    clusters, tmp_path, version, name
):
    cluster = clusters[version, name]
    assert has_eligible_replicas(cluster) == (version == "4.1.1")
    topic = next(each for each in cluster.topics.values() if each.partitions)
    before = topic.partitions[0]
    for leader, epoch, replicas in (
        (before.replicas[-1], 70, before.replicas),
        (99, None, (99, *before.replicas[1:])),
    ):
        leaders = {TopicPartition(topic.name, 0): (leader, epoch)}
        after = read_again(cluster, leaders, tmp_path).topics[topic.name].partitions[0]
        elected = ((), (leader,)) if has_eligible_replicas(cluster) else ((leader,), ())
        assert (after.leader, after.replicas) == (-1, replicas)
        assert (after.isr, after.last_known_elr) == elected
        assert after.leader_epoch == max(before.leader_epoch, epoch or 0) + 1


def test_a_cluster_of_directories_alone_has_no_snapshot(golden):
    cluster = kafkastore.cluster(golden("2.4.0", "wide", "answers").logs)
    with pytest.raises(NoMetadataError):
        new_snapshot(cluster, {})
