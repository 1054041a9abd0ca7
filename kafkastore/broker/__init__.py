"""What a broker answers to ListOffsets requests, as a function of its log directories and cluster.

Nothing listens on a port here: requests and responses are values, which
`kafkastore.formats.list_offsets` reads from bytes and writes.  ``docs/list_offsets_answers.md``
tells the whole story.
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
