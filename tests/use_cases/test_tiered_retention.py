"""Retention of tiered topics: segments here go by the local limits, once they are copied."""

import shutil

import pytest
from golden.make.brokers import WORK
from golden.make.cases.tiered import tiered_settings
from golden.make.kraft_cluster import KraftCluster, NodePlan
from models.seed import some
from models.tiered_directory import VERSIONS, unpack

import kafkastore
from kafkastore import RemoteStorage, UnknownRemoteSegmentsError
from kafkastore.log.partition_files import PartitionFiles
from kafkastore.versions import rules_of
from kafkastore.writing.log_config import LogConfig
from kafkastore.writing.retention import (
    RemoteCopies,
    RetentionRule,
    SegmentFacts,
    StopReason,
    find_deletable,
)

HOUR = 3_600_000
SEGMENTS = [
    SegmentFacts(10, 20, 100, 1_000),
    SegmentFacts(20, 30, 100, 2_000),
    SegmentFacts(30, 40, 100, 3_000),
]


@pytest.fixture(scope="module", params=VERSIONS)
def tiered(request, tmp_path_factory):
    return unpack(request.param, tmp_path_factory.mktemp("tiered"))


def deletable(options, highest, *, storage=RemoteStorage.ON, log_start_offset=0):
    return find_deletable(
        SEGMENTS,
        high_watermark=40,
        log_start_offset=log_start_offset,
        config=LogConfig.of({"retention.ms": -1, **options}),
        now=4_000,
        rules=rules_of("4.2"),
        remote=RemoteCopies(storage, lambda: highest),
    )


def bases(outcome):
    return [each.segment.base_offset for each in outcome.deletions]


def test_a_segment_is_kept_until_all_of_it_is_copied():
    for highest, expected in ((None, []), (9, []), (18, []), (19, [10]), (29, [10, 20])):
        outcome = deletable({"local.retention.bytes": 1}, highest)
        assert bases(outcome) == expected
        assert outcome.log_start_offset == 0
        assert outcome.local_log_start_offset == 10 + 10 * len(expected)
        if len(expected) < 2:
            assert outcome.stops[-1].reason is StopReason.NOT_COPIED
        assert not outcome.rolls


def test_the_last_segment_is_rolled_and_not_deleted():
    outcome = deletable({"local.retention.ms": 1}, 29)
    assert bases(outcome) == [10, 20]
    assert outcome.rolls
    assert outcome.stops[-1].reason is StopReason.NOT_COPIED
    assert outcome.local_log_start_offset == 30


def test_without_local_limits_those_of_the_whole_log_apply():
    assert bases(deletable({"retention.bytes": 150}, 39)) == [10]
    assert bases(deletable({"retention.bytes": 150, "local.retention.bytes": -1}, 39)) == []


def test_segments_before_the_log_start_go_without_a_copy():
    outcome = deletable({}, None, log_start_offset=25)
    assert bases(outcome) == [10]
    assert [each.rule for each in outcome.deletions] == [RetentionRule.START]


@pytest.mark.parametrize("storage", [RemoteStorage.OFF, RemoteStorage.COPY_DISABLED])
def test_if_nothing_is_copied_local_limits_are_not_used(storage):
    options = {"retention.bytes": 150, "local.retention.bytes": 1}
    outcome = deletable(options, None, storage=storage)
    assert bases(outcome) == [10]
    assert outcome.log_start_offset == outcome.local_log_start_offset == 20


def test_a_broker_at_rest_deletes_nothing_more(tiered):
    for found in kafkastore.retention(tiered.logs, now=1_600_000_000_000):
        assert not found.going
        if found.topic_partition.topic in tiered.topics:
            topic = found.topic_partition.topic
            assert found.remote_storage is tiered.storage(topic)
            assert found.outcome.log_start_offset == tiered.broker_offset(topic, -2)
            assert found.outcome.local_log_start_offset == tiered.broker_offset(topic, -4)


def test_segments_in_remote_storage_are_deleted_here_and_the_log_start_stays(tiered):
    options = {"local.retention.bytes": 1}
    (found,) = kafkastore.retention(tiered.logs, partitions=["kept-0"], config=options)
    assert len(found.going) == len(found.segments) - 1
    assert found.outcome.log_start_offset == 0
    assert found.outcome.local_log_start_offset == found.segments[-1].base_offset
    given = {**options, "remote.storage.enable": False, "retention.ms": -1}
    (found,) = kafkastore.retention(tiered.logs, partitions=["kept-0"], config=given)
    assert not found.going


def test_what_was_copied_is_unknown_without_its_metadata(tiered, tmp_path):
    logs = tiered.copy_to(tmp_path / "logs")
    for path in logs.glob("__remote_log_metadata-*"):
        shutil.rmtree(path)
    kept = {"partitions": ["kept-0"]}
    with pytest.raises(UnknownRemoteSegmentsError):
        next(kafkastore.retention(logs, config={"local.retention.bytes": 1}, **kept))
    (found,) = kafkastore.retention(logs, **kept)
    assert not found.going


#: New limits, by topic; size only: a segment that is rolled by time goes after its upload.
LIMITS = {
    "kept": {"local.retention.bytes": "1"},
    "epochs": {"local.retention.bytes": "2500"},
    "random": {"local.retention.bytes": "1000"},
    "fresh": {"local.retention.bytes": "1"},
    "deleted-local": {"local.retention.bytes": "1"},
    "copy-disabled": {"retention.bytes": "1"},
    "plain": {"retention.bytes": "2500"},
}


@pytest.mark.kafka
@pytest.mark.parametrize("version", some(list(VERSIONS), 1, __name__))
def test_a_broker_deletes_the_segments_that_are_predicted(
    require_broker, tmp_path, tmp_path_factory, version
):
    require_broker(version)
    tiered = unpack(version, tmp_path_factory.mktemp("tiered"))
    expected = {}
    for topic, options in LIMITS.items():
        (found,) = kafkastore.retention(tiered.logs, partitions=[(topic, 0)], config=options)
        gone = {each.base_offset for each in found.going}
        expected[topic] = [
            each.base_offset for each in found.segments if each.base_offset not in gone
        ]
        assert bool(gone) == (topic not in ("fresh", "copy-disabled")), topic
    root = tmp_path / "cluster"
    settings = tiered_settings(version, root, WORK)
    with KraftCluster(version, root, [NodePlan(1)], settings, WORK) as cluster:
        cluster.format()
        logs = cluster.nodes[1].logs
        shutil.rmtree(logs)
        tiered.copy_to(logs)
        cluster.start()
        for topic, options in LIMITS.items():
            cluster.admin("alter_configs", type="TOPIC", name=topic, set=options)
        cluster.wait_until(
            "the predicted segments",
            lambda: expected == {
                topic: list(PartitionFiles(logs / f"{topic}-0").base_offsets) for topic in LIMITS
            },
        )
        cluster.nodes[1].stop()
    store = kafkastore.open(logs)
    for topic in LIMITS:
        assert [each.base_offset for each in store[topic, 0].segments] == expected[topic]
