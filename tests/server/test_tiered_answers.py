"""ListOffsets requests about tiered topics, answered from the directory as by its broker."""

from dataclasses import replace

import pytest
from models.tiered_directory import VERSIONS, epoch_of, unpack

import kafkastore
from kafkastore import InRemoteSegmentError
from kafkastore.formats.requests.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kafkastore.server import handle_list_offset_request, sole_broker
from kafkastore.writing.topic_settings import remote_settings_of


@pytest.fixture(scope="module", params=VERSIONS)
def tiered(request, tmp_path_factory):
    return unpack(request.param, tmp_path_factory.mktemp("tiered"))


def ask(broker, topic, timestamp, version):
    """The row of a response."""
    request = ListOffsetsRequest(
        (ListOffsetsTopic(topic, (ListOffsetsPartition(0, timestamp),)),)
    )
    (answered,) = handle_list_offset_request(broker, request, version).topics
    return answered.partitions[0]


def test_responses_are_those_of_the_broker(tiered):
    store = kafkastore.open(tiered.logs)
    settings = remote_settings_of(store)
    broker = sole_broker(store, tiered.rules)
    remote = 0
    for topic in tiered.topics:
        settings.apply_to(store[topic, 0])
        rows = tiered.rows(topic)
        described = replace(broker, metadata={
            key: state._replace(leader_epoch=epoch_of(rows))
            for key, state in broker.metadata.items()
        })
        for row in rows:
            try:
                found = ask(described, topic, row["timestamp"], row["version"])
            except InRemoteSegmentError as error:
                remote += 1
                assert error.start_offset <= row["offset"] <= error.end_offset
                continue
            assert (found.error_code, found.timestamp, found.offset, found.leader_epoch) == (
                row["error"], row["result_timestamp"], row["offset"], row["leader_epoch"]
            ), (topic, row)
    assert remote > 100
