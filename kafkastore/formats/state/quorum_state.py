"""``quorum-state``: what a controller or broker last knew of the metadata quorum.

It is JSON, next to the segments and snapshots of ``__cluster_metadata-0``::

    {"clusterId":"","leaderId":1,"leaderEpoch":7,"votedId":-1,"appliedOffset":0,
     "currentVoters":[{"voterId":1}],"data_version":0}
    {"leaderId":1,"leaderEpoch":7,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA",
     "data_version":1}

Version 1 is of quorums whose voters are in the log (``kraft.version`` 1, from 3.9).

Source: Kafka 4.3.1 ``FileQuorumStateStore``, ``QuorumStateData.json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kafkastore.arguments import INT32_MAX
from kafkastore.errors import CorruptCheckpointError
from kafkastore.formats.primitives.json_text import parse_json

NO_ID = -1
_NEWEST_VERSION = 1
_ZERO_ID = 22 * "A"


class QuorumState(NamedTuple):
    """The state of the quorum as its file has it.

    | field                | value                                                    |
    | -------------------- | -------------------------------------------------------- |
    | `version`            | of the file, 0 or 1                                      |
    | `leader_id`          | -1 if no leader is known                                 |
    | `leader_epoch`       | the newest epoch that was seen                           |
    | `voted_id`           | the candidate that got the vote in this epoch; -1: none  |
    | `voted_directory_id` | the directory of that candidate; None: none or version 0 |
    | `voters`             | the ids of the voters; None: version 1                   |
    """

    version: int
    leader_id: int
    leader_epoch: int
    voted_id: int
    voted_directory_id: str | None
    voters: tuple[int, ...] | None


def parse_quorum_state(data: bytes) -> QuorumState:
    """Parse ``quorum-state``.

    Raises `CorruptCheckpointError` for a file that a broker refuses.
    """
    try:
        state = parse_json(data)
    except ValueError as error:
        position = getattr(error, "pos", 0)
        raise CorruptCheckpointError(f"invalid JSON: {error}", position=position) from None
    if not isinstance(state, dict):
        raise CorruptCheckpointError("must be an object", position=0)
    version = _int32(state, "data_version", 0)
    if version > _NEWEST_VERSION:
        raise CorruptCheckpointError(
            f"data_version must be from 0 to {_NEWEST_VERSION}, got {version}", position=0
        )
    return QuorumState(
        version,
        _int32(state, "leaderId", NO_ID),
        _int32(state, "leaderEpoch", NO_ID),
        _int32(state, "votedId", NO_ID),
        _directory_id(state) if version else None,
        None if version else _voters(state),
    )


def _int32(state: Mapping[str, Any], name: str, smallest: int) -> int:
    number = state.get(name)
    if type(number) is not int or not smallest <= number <= INT32_MAX:
        raise CorruptCheckpointError(
            f"{name} must be an int32 from {smallest} on, got {number!r}", position=0
        )
    return number


def _directory_id(state: Mapping[str, Any]) -> str | None:
    text = state.get("votedDirectoryId")
    if not isinstance(text, str):
        raise CorruptCheckpointError(f"votedDirectoryId must be an id, got {text!r}", position=0)
    return None if text == _ZERO_ID else text


def _voters(state: Mapping[str, Any]) -> tuple[int, ...]:
    voters = state.get("currentVoters") or []
    if not isinstance(voters, list) or not all(isinstance(each, dict) for each in voters):
        raise CorruptCheckpointError(
            f"currentVoters must be an array of objects, got {voters!r}", position=0
        )
    return tuple(_int32(each, "voterId", 0) for each in voters)
