"""A metadata transaction that a controller did not end: its successor aborts it."""

import pytest
from golden.make.kraft_cluster import KraftCluster, NodePlan
from metadata.test_cluster_against_brokers import COMPARED
from models import metadata_directory as made
from models.record_format import Batch, Row
from models.seed import some

import kafkastore
from kafkastore.arguments import INT64_MAX
from kafkastore.formats.topics.cluster_metadata import RECORDS
from kafkastore.metadata.cluster_rows import rows_of
from kafkastore.metadata.metadata_log import read_log
from kafkastore.store.cluster_metadata import METADATA_PARTITION

pytestmark = pytest.mark.kafka

SETTINGS = {
    "super.users": "User:ANONYMOUS",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
}


def append_transaction(log, cluster):
    """Leave what a controller that died within a transaction leaves."""
    topic_id = cluster.topics["kept"].topic_id
    frames = [
        made.frame("BeginTransaction", name="unfinished"),
        made.topic("begun"),
        made.partition(0, replicas=(1,), isr=(1,), directories=(made.DIRECTORY,)),
        made.config("retention.ms", "1", resource="kept"),
        made.frame("RemoveTopic", topic_id=topic_id),
    ]
    start = log.log_end_offset
    rows = tuple(Row(start + slot, cluster.timestamp + 1, None, each)
                 for slot, each in enumerate(frames))
    with log.segments[-1].log_path.open("ab") as file:
        file.write(Batch(rows, leader_epoch=log.leader_epochs[-1].epoch).data)
    return start


def metadata_of(logs):
    return kafkastore.open(logs)[METADATA_PARTITION]


def rows_in(cluster):
    """What a cluster has, without what is known of its log."""
    return [row for row in rows_of(cluster) if row["kind"] != "cluster"]


@pytest.mark.parametrize("version", some(["3.9.1", "4.1.1", "4.3.1"], 1, __name__))
def test_the_records_of_an_aborted_transaction_do_not_count(
    require_broker, run, tmp_path, version
):
    require_broker(version)
    with KraftCluster(version, tmp_path, [NodePlan(1)], SETTINGS) as nodes:
        nodes.format()
        nodes.start()
        topic = {"name": "kept", "assignment": [[1]], "configs": {"retention.ms": "-1"}}
        nodes.admin("create_topics", topics=[topic])
        nodes.wait_for_replicas()
        nodes.nodes[1].stop()
        logs = nodes.nodes[1].logs
        before = kafkastore.cluster(logs)
        start = append_transaction(metadata_of(logs), before)
        begun = kafkastore.cluster(logs)
        nodes.start()
        nodes.wait_for_brokers(1)
        nodes.wait_for_replicas()
        answers = nodes.admin("ask", brokers=[1], groups=[]) | {"revived": False}
        nodes.kill(1)
    assert (before.open_transaction, begun.open_transaction) == (None, start)
    assert rows_in(begun) == rows_in(before)

    aborted = [
        each.offset for read in read_log(metadata_of(logs), start, INT64_MAX, INT64_MAX)
        for each in iter(read.read, None)
        if RECORDS.name(each.number) == "AbortTransactionRecord"
    ]
    assert len(aborted) == 1
    after = kafkastore.cluster(logs)
    assert after.open_transaction is None
    for field in ("topics", "configs", "features", "brokers"):
        answered, read = COMPARED[field]
        assert read(answers, after) == answered(answers, after)
    changes = run("cluster", logs, "--diff", f"{start}..", "--json").lines
    assert changes
    assert not [each for each in changes if each["offset"] <= aborted[0]]
