"""Kafka's protocol over directories.

`serve` serves directories to Kafka clients: see ``docs/serve.md``.

`handle_list_offset_request` answers one request exactly as a broker of a version does, without a
server: requests and responses are values, which `kafkastore.formats.requests.list_offsets` parses
and packs. See ``docs/list_offsets_answers.md``.
"""

from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.server.cluster import Broker, PartitionState, sole_broker
from kafkastore.server.list_offsets import handle_list_offset_request
from kafkastore.server.serving import ServedCluster, serve

__all__ = [
    "Broker",
    "ErrorCode",
    "PartitionState",
    "ServedCluster",
    "handle_list_offset_request",
    "serve",
    "sole_broker",
]
