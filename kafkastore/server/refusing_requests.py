"""Refusals of requests that would write or alter something.

They have an error and its reason, which clients show. Requests whose responses have no room for
a reason are not offered at all: clients then say that the node does not support them.

Source: Kafka 4.3.1 ``KafkaApis``, ``ControllerApis``; a policy is what refuses with a reason there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain

from kafkastore.formats.messages.message_table import Values
from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.requests.apis import ApiKey

#: What clients show, where a response has room for it.
REASON = "kafkastore serves directories for reading only"
_REFUSAL = {"error_code": ErrorCode.POLICY_VIOLATION, "error_message": REASON}
_NO_OFFSET = -1


def refuse_produce(request: Values, _version: int) -> Values:
    """Refuse each partition."""
    return {
        "responses": [
            {
                **_of(topic, "name", "topic_id"),
                "partition_responses": [
                    _of(row, "index") | {"base_offset": _NO_OFFSET} | _REFUSAL
                    for row in topic["partition_data"]
                ],
            }
            for topic in request["topic_data"]
        ]
    }


def _init_producer_id(request: Values, _version: int) -> Values:
    """Give idempotent producers an id; their batches are refused with the reason.

    Producers are idempotent by default. All of them get the same id: nothing is written.
    """
    if request["transactional_id"] is None:
        return {"producer_id": 0}
    return {"error_code": ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "producer_epoch": -1}


def _create_topics(request: Values, _version: int) -> Values:
    return {"topics": _refused(request["topics"], "name")}


def _delete_topics(request: Values, _version: int) -> Values:
    by_name = ({"name": each, "topic_id": None} for each in request["topic_names"])
    return {"responses": _refused(chain(by_name, request["topics"]), "name", "topic_id")}


def _create_partitions(request: Values, _version: int) -> Values:
    return {"results": _refused(request["topics"], "name")}


def _alter_configs(request: Values, _version: int) -> Values:
    return {"responses": _refused(request["resources"], "resource_type", "resource_name")}


def _of(row: Values, *fields: str) -> Values:
    return {name: row[name] for name in fields}


def _refused(rows: Iterable[Values], *fields: str) -> list[Values]:
    return [_of(each, *fields) | _REFUSAL for each in rows]


#: By request; Produce, which may want no response, is not one of them.
REFUSALS: dict[ApiKey, Callable[[Values, int], Values]] = {
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _alter_configs,
}
