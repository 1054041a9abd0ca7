"""What members of a classic consumer group tell each other.

A version that is not known yet is read as the newest one: later ones only add fields.

Source: Kafka 4.3.1 ``ConsumerProtocolSubscription.json``, ``ConsumerProtocolAssignment.json``.
"""

from __future__ import annotations

from kafkastore.errors import CorruptionError
from kafkastore.formats.messages.message_table import MessageTable, Values

_SUBSCRIPTION, _ASSIGNMENT = 0, 1

MESSAGES = MessageTable("""
ConsumerProtocolSubscription 0, versions 0-3
    topics string[]
    user_data bytes?
    owned_partitions struct[] 1+ ignorable
        topic string
        partitions int32[]
    generation_id int32 2+ ignorable = -1
    rack_id string? 3+ ignorable = null

ConsumerProtocolAssignment 1, versions 0-3
    assigned_partitions struct[]
        topic string
        partitions int32[]
    user_data bytes?
""")


def parse_subscription(data: bytes) -> Values:
    """Parse the subscription of a member.

    Raises `CorruptionError` if a field is incomplete, or the version is negative.
    """
    return _parse(_SUBSCRIPTION, data)


def parse_assignment(data: bytes) -> Values:
    """Parse the assignment of a member; raises as `parse_subscription`.

    >>> data = bytes.fromhex("0000 00000001 0001 74 00000001 00000000 ffffffff")
    >>> parse_assignment(data)["assigned_partitions"]
    ({'topic': 't', 'partitions': (0,)},)
    """
    return _parse(_ASSIGNMENT, data)


def _parse(number: int, data: bytes) -> Values:
    version = int.from_bytes(data[:2], "big", signed=True)
    if len(data) < 2 or version < 0:
        raise CorruptionError(f"impossible version {version} of a group's protocol", position=0)
    newest = MESSAGES.descriptions[number].versions.newest
    fields, _ = MESSAGES.known_codec(number, min(version, newest)).parse(data, 2)
    return fields
