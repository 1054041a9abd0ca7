"""Requests that would write or alter something."""

from __future__ import annotations

import pytest
from models.protocol_client import ProtocolClient

from kafkastore import samples
from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.requests.apis import REQUESTS, ApiKey
from kafkastore.server import serve
from kafkastore.server.refusing_requests import REFUSALS

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAABQ"
CONFIG_OF_TOPIC = 2


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with serve(samples.unpack(tmp_path_factory.mktemp("samples"))[-1]) as served:
        yield served.bootstrap_servers


@pytest.fixture
def client(address):
    with ProtocolClient(address) as connected:
        yield connected


def versions_of(key):
    versions = REQUESTS.descriptions[key].versions
    return range(versions.oldest, versions.newest + 1)


def test_nothing_can_be_produced(client):
    topic = {"name": "up", "partition_data": [{"index": each, "records": b""} for each in (0, 9)]}
    for version in versions_of(ApiKey.PRODUCE):
        named = topic | {"topic_id": TOPIC_ID}
        answer = client.ask(
            ApiKey.PRODUCE, version, acks=-1, timeout_ms=100, topic_data=[named]
        )
        (found,) = answer["responses"]
        assert found["topic_id" if version >= 13 else "name"] == (
            TOPIC_ID if version >= 13 else "up"
        )
        assert [(row["index"], row["error_code"]) for row in found["partition_responses"]] == [
            (0, ErrorCode.POLICY_VIOLATION), (9, ErrorCode.POLICY_VIOLATION),
        ]
        for row in found["partition_responses"]:
            assert bool(row["error_message"]) == (version >= 8)


def test_a_producer_that_wants_no_response_is_cut_off(client):
    client.send(ApiKey.PRODUCE, 9, acks=0, timeout_ms=100, topic_data=())
    assert client.has_ended()


@pytest.mark.parametrize("transactional_id", [None, "t", ""])
def test_idempotent_producers_get_an_id_and_transactional_ones_none(client, transactional_id):
    for version in versions_of(ApiKey.INIT_PRODUCER_ID):
        answer = client.ask(
            ApiKey.INIT_PRODUCER_ID, version, transactional_id=transactional_id,
            transaction_timeout_ms=1000,
        )
        found = [answer[each] for each in ("error_code", "producer_id", "producer_epoch")]
        if transactional_id is None:
            assert found == [ErrorCode.NONE, 0, 0]
        else:
            assert found == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1, -1]


@pytest.mark.parametrize(
    ("key", "field", "rows", "result", "named_by"),
    [
        (
            ApiKey.CREATE_TOPICS, "topics",
            [
                {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": (),
                 "configs": ()}
                for name in ("up", "new")
            ],
            "topics", "name",
        ),
        (
            ApiKey.CREATE_PARTITIONS, "topics",
            [{"name": name, "count": 9, "assignments": None} for name in ("up", "new")],
            "results", "name",
        ),
        *(
            (
                key, "resources",
                [
                    {"resource_type": CONFIG_OF_TOPIC, "resource_name": name, "configs": ()}
                    for name in ("up", "new")
                ],
                "responses", "resource_name",
            )
            for key in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)
        ),
    ],
)
def test_each_row_is_refused_with_the_reason(client, key, field, rows, result, named_by):
    assert key in REFUSALS
    for version in versions_of(key):
        answer = client.ask(
            key, version, timeout_ms=10, validate_only=version > 0, **{field: rows}
        )
        assert [
            (row[named_by], row["error_code"], bool(row["error_message"]))
            for row in answer[result]
        ] == [(name, ErrorCode.POLICY_VIOLATION, True) for name in ("up", "new")]


def test_no_topic_is_deleted(client):
    for version in versions_of(ApiKey.DELETE_TOPICS):
        topics = [{"name": "up", "topic_id": None}, {"name": None, "topic_id": TOPIC_ID}]
        asked = {"topics": topics} if version >= 6 else {"topic_names": ["up", "new"]}
        answer = client.ask(ApiKey.DELETE_TOPICS, version, timeout_ms=10, **asked)
        assert [(row["name"], row["error_code"]) for row in answer["responses"]] == [
            ("up", ErrorCode.POLICY_VIOLATION),
            (None if version >= 6 else "new", ErrorCode.POLICY_VIOLATION),
        ]
    assert "up" in client.topic_ids()
