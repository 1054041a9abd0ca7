"""Requests with fields that no client should send get the errors of brokers.

`test_answers_by_brokers.py` compares such requests with brokers.
"""

from __future__ import annotations

import pytest
from models.protocol_client import ProtocolClient

from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.requests.apis import ApiKey
from kafkastore.server import serve

TOPIC = "epochs"
CONFIGS = {"configuration_keys": None, "resource_type": 2, "resource_name": TOPIC}
FETCH = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}
UNSOUND = {
    "a name that no topic may have":
        (ApiKey.METADATA, 8, {"topics": ({"name": "no such/name"},)}, "topics", 17),
    "no name":
        (ApiKey.METADATA, 8, {"topics": ({"name": ""},)}, "topics", 17),
    "an endpoint of controllers":
        (ApiKey.DESCRIBE_CLUSTER, 1, {"endpoint_type": 2}, "", 114),
    "an unknown endpoint":
        (ApiKey.DESCRIBE_CLUSTER, 1, {"endpoint_type": 3}, "", 115),
    "a pattern that is none":
        (ApiKey.LIST_TRANSACTIONS, 2, {"transactional_id_pattern": "("}, "", 128),
    "a client without a name":
        (ApiKey.API_VERSIONS, 3, {"client_software_name": ""}, "", 42),
    "an empty group":
        (ApiKey.HEARTBEAT, 3, {"group_id": "", "generation_id": 0, "member_id": ""}, "", 24),
    "configurations of an unknown kind": (
        ApiKey.DESCRIBE_CONFIGS, 4, {"resources": (CONFIGS | {"resource_type": 99},)},
        "results", 42,
    ),
    "configurations of another broker": (
        ApiKey.DESCRIBE_CONFIGS, 4,
        {"resources": (CONFIGS | {"resource_type": 4, "resource_name": "99"},)}, "results", 42,
    ),
    "an empty transactional id":
        (ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ("",)}, "transaction_states", 42),
    "a cursor that is not among the topics": (
        ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0,
        {"topics": ({"name": TOPIC},), "cursor": {"topic_name": "a", "partition_index": 0}},
        "topics", 42,
    ),
}


@pytest.fixture(scope="module")
def client(golden):
    """A client of a server of logs with several leader epochs."""
    with (
        serve(golden("4.3.1", "leader-epochs", "answers").logs) as served,
        ProtocolClient(served.bootstrap_servers) as connected,
    ):
        yield connected


@pytest.mark.parametrize("name", UNSOUND)
def test_unsound_fields_get_the_error_of_a_broker(client, name):
    key, version, fields, rows, error = UNSOUND[name]
    defaults = {"state_filters": (), "producer_id_filters": (), "response_partition_limit": 9}
    known = {"state_filters", "producer_id_filters"} if key == ApiKey.LIST_TRANSACTIONS else set()
    answer = client.ask(key, version, **{each: defaults[each] for each in known}, **fields)
    (row,) = answer[rows] if rows else (answer,)
    assert row["error_code"] == ErrorCode(error)


def fetch(client, **fields):
    """Return the row of a response to Fetch."""
    ids = client.topic_ids()
    answer = client.ask(
        ApiKey.FETCH, 16, max_wait_ms=0, min_bytes=1,
        topics=({"topic_id": ids[TOPIC], "partitions": (FETCH | fields,)},),
    )
    return answer["responses"][0]["partitions"][0], answer["node_endpoints"]


def test_a_reader_of_another_lineage_is_told_where_to_go_back_to(client):
    row, _ = fetch(client)
    end = row["high_watermark"]
    assert row["records"]
    metadata = client.ask(ApiKey.METADATA, 9, topics=({"name": TOPIC},))
    newest = metadata["topics"][0]["partitions"][0]["leader_epoch"]
    ends = client.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, topics=({
        "topic": TOPIC, "partitions": ({"partition": 0, "leader_epoch": 0},),
    },))["topics"][0]["partitions"][0]
    assert 0 < ends["end_offset"] < end
    row, _ = fetch(client, fetch_offset=end, last_fetched_epoch=0)
    assert row["error_code"] == ErrorCode.NONE
    assert row["diverging_epoch"] == {"epoch": 0, "end_offset": ends["end_offset"]}
    assert row["records"] == b""
    row, _ = fetch(client, fetch_offset=ends["end_offset"], last_fetched_epoch=0)
    assert row["records"]
    row, _ = fetch(client, last_fetched_epoch=newest + 1)
    assert row["error_code"] == ErrorCode.OFFSET_OUT_OF_RANGE
    row, nodes = fetch(client, current_leader_epoch=0)
    assert row["error_code"] == ErrorCode.FENCED_LEADER_EPOCH
    assert row["current_leader"]["leader_epoch"] == newest
    assert [each["node_id"] for each in nodes] == [row["current_leader"]["leader_id"]]
