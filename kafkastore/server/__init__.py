"""Answer ListOffsets requests as a broker does, from its directories.

There is no server: requests and responses are values, which
`kafkastore.formats.requests.list_offsets` parses and packs. See ``docs/list_offsets_answers.md``.
"""

from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.server.cluster import Broker, PartitionState, sole_broker
from kafkastore.server.list_offsets import handle_list_offset_request

__all__ = [
    "Broker",
    "ErrorCode",
    "PartitionState",
    "handle_list_offset_request",
    "sole_broker",
]
