"""The last record of each key on Spark is that of `TopicLogs.latest`."""

import pytest
from models.latest_model import committed, latest, topic_logs, write_topic
from models.seed import SEED
from spark.frames import rows_of

import kafkastore
from kafkastore.spark import jobs


@pytest.mark.parametrize("tombstones", [False, True])
def test_latest_records_of_all_topics_are_those_of_a_slow_model(spark, tmp_path, tombstones):
    wanted = []
    for topic in ("a", "b"):
        logs = topic_logs(f"{SEED}/spark/{topic}", 4)
        write_topic(tmp_path / topic, topic, logs)
        records = {partition: committed(log) for partition, log in logs.items()}
        wanted += [
            (topic, partition, offset, key, value)
            for partition, (offset, _, _, key, value, *_) in latest(
                records, include_tombstones=tombstones
            )
        ]
    frame = jobs.latest_records(
        spark,
        [tmp_path / "a", tmp_path / "b"],
        include_headers=True,
        include_tombstones=tombstones,
    )
    assert "headers" in frame.columns
    columns = ["topic", "partition", "offset", "key", "value"]
    assert wanted
    assert rows_of(frame.select(columns).toArrow()) == wanted


def test_chosen_partitions_are_read_alone(spark, tmp_path):
    write_topic(tmp_path / "logs", "t", topic_logs(f"{SEED}/chosen", 3))
    topic = kafkastore.open(tmp_path / "logs").topic("t")
    frame = jobs.latest_records(spark, tmp_path / "logs", partitions=["t-0", ("t", 2)])
    assert rows_of(frame.toArrow()) == rows_of(topic.latest(partitions=[0, 2]).read_all())
    with pytest.raises(KeyError):
        jobs.latest_records(spark, tmp_path / "logs", partitions=["t-9"])
