"""A stream written for Spark's Kafka source gives the same from the broker's directory."""
from __future__ import annotations

import json

import pytest
from spark import kafka_streams
from spark.kafka_streams import AGAIN, SOURCES
from spark.kafka_topics import T0, ask_both, offsets

pytestmark = pytest.mark.kafka

ALL = "plain,packed-gzip,packed-snappy,packed-lz4,packed-zstd,stamped,sales"
EARLIEST = {"startingOffsets": "earliest"}
STREAMS = {
    "everything, with headers": {
        "subscribe": ALL, "includeHeaders": "true", AGAIN: "", **EARLIEST,
    },
    "few offsets a trigger": {
        "subscribe": ALL, "maxOffsetsPerTrigger": "70", AGAIN: "", **EARLIEST,
    },
    "the latest by default": {"subscribe": ALL, AGAIN: ""},
    "a pattern, small tasks": {
        "subscribePattern": "ack|^s", "minPartitions": "11", **EARLIEST,
    },
    "offsets": {"subscribe": "plain", "startingOffsets": offsets(plain=[1, -1, -2])},
    "offsets, some partitions unnamed": {
        "subscribe": "plain", "startingOffsets": '{"plain": {"0": 1}}',
    },
    "a time": {"subscribe": "packed-gzip,packed-zstd", "startingTimestamp": str(T0 + 30)},
    "times by partition, over offsets": {
        "subscribe": "packed-lz4", **EARLIEST,
        "startingOffsetsByTimestamp": offsets(**{"packed-lz4": [T0 + 36]}),
    },
    "a time after all records": {"subscribe": "stamped", "startingTimestamp": str(T0 * 10)},
    "a time after all records, from the latest": {
        "subscribe": "stamped",
        "startingTimestamp": str(T0 * 10),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "committed, few offsets a trigger": {
        "subscribe": "sales", "kafka.isolation.level": "read_committed", "includeHeaders": "true",
        "maxOffsetsPerTrigger": "15", AGAIN: "", **EARLIEST,
    },
    "moved to the directory, few offsets a trigger": {
        "subscribe": ALL, "maxOffsetsPerTrigger": "100", AGAIN: "moved", **EARLIEST,
    },
    "a topic that is not there": {"subscribe": "plain,nowhere", **EARLIEST},
    "an end": {"subscribe": "plain", "endingOffsets": "latest"},
}
REFUSED = {
    "offsets, some partitions unnamed", "a time after all records", "a topic that is not there",
    "an end",
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """The results of both sources in two runs, by stream."""
    folder = tmp_path_factory.mktemp("streams")
    ask_both(
        folder,
        kafka_streams,
        lambda server: {
            "server": server,
            "streams": [each | server for each in STREAMS.values()],
            "added": [("plain", 0), ("plain", 1), ("packed-lz4", 0), ("stamped", 0), ("sales", 1)],
        },
    )
    return {
        name: [json.loads((folder / f"{number}.{source}.json").read_text()) for source in SOURCES]
        for number, name in enumerate(STREAMS)
    }


@pytest.mark.parametrize("name", [name for name in STREAMS if name not in REFUSED])
def test_the_same_batches_from_a_broker_and_from_its_directory(answers, name):
    ours, theirs = answers[name]
    assert not [run["error"] for run in theirs if "error" in run]
    assert ours == theirs


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_options_that_the_kafka_source_refuses_are_refused(answers, name):
    for runs in answers[name]:
        assert "error" in runs[0]


def test_the_streams_see_what_they_are_about(answers):
    first, second = answers["everything, with headers"][1]
    assert len(first["batches"]) == len(second["batches"]) == 1
    assert len(second["batches"][0]) == 5 * 20
    few = answers["few offsets a trigger"][1]
    assert len(few[0]["batches"]) > 2
    assert len(few[1]["batches"]) > 1
    latest = answers["the latest by default"][1]
    assert [len(each["batches"]) for each in latest] == [0, 1]
    committed = [row for batch in answers["committed, few offsets a trigger"][1][0]["batches"]
                 for row in batch]
    assert 0 < len(committed) < sum("'sales'" in row[2] for row in first["batches"][0])
