"""Answer ListOffsets requests as a broker does, from its log directories and cluster metadata.

There is no server: requests and responses are values, which `kafkastore.formats.list_offsets`
parses and packs. See ``docs/list_offsets_answers.md``.
"""

from kafkastore.broker.cluster import Broker, PartitionState, sole_broker
from kafkastore.broker.list_offsets import handle_list_offset_request
from kafkastore.formats.error_codes import ErrorCode

__all__ = [
    "Broker",
    "ErrorCode",
    "PartitionState",
    "handle_list_offset_request",
    "sole_broker",
]
