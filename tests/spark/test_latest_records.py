"""The last record of each key on Spark is that of `TopicLogs.latest`."""

import pytest
from models.latest_model import topic_logs, write_topic
from models.seed import SEED
from spark.frames import rows_of

import kafkastore
from kafkastore.spark import jobs


def table_of(topics, **options):
    return [row for topic in topics for row in rows_of(topic.latest(**options).read_all())]


@pytest.mark.parametrize("tombstones", [False, True])
def test_latest_records_of_all_topics_are_those_of_each_topic(spark, tmp_path, tombstones):
    for topic in ("a", "b"):
        write_topic(tmp_path / topic, topic, topic_logs(f"{SEED}/spark/{topic}", 4))
    paths = [tmp_path / "a", tmp_path / "b"]
    frame = jobs.latest_records(
        spark, paths, include_headers=True, include_tombstones=tombstones
    )
    topics = kafkastore.open(paths).topics.values()
    wanted = table_of(topics, include_headers=True, include_tombstones=tombstones)
    assert wanted
    assert rows_of(frame.toArrow()) == wanted


def test_chosen_partitions_are_read_alone(spark, tmp_path):
    write_topic(tmp_path / "logs", "t", topic_logs(f"{SEED}/chosen", 3))
    topic = kafkastore.open(tmp_path / "logs").topic("t")
    frame = jobs.latest_records(spark, tmp_path / "logs", partitions=["t-0", ("t", 2)])
    assert rows_of(frame.toArrow()) == rows_of(topic.latest(partitions=[0, 2]).read_all())
    with pytest.raises(KeyError):
        jobs.latest_records(spark, tmp_path / "logs", partitions=["t-9"])
