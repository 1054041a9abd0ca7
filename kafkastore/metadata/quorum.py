"""The controllers of a KRaft cluster that vote, and their leader."""

from __future__ import annotations

from collections.abc import Iterator

from kafkastore.arguments import INT64_MAX
from kafkastore.errors import CorruptCheckpointError
from kafkastore.formats.messages.message_table import Values
from kafkastore.formats.records.control_records import ControlRecordType
from kafkastore.formats.state.file_names import QUORUM_STATE
from kafkastore.formats.state.quorum_state import NO_ID, parse_quorum_state
from kafkastore.log.log_view import LogView
from kafkastore.metadata.metadata_log import ControlValue, read_controls
from kafkastore.segment.small_file import read_if_there


class Quorum:
    """The quorum of a metadata log.

    Attributes
    ----------
    version : int
        ``kraft.version``: 0, the voters are in every node's configuration, or 1, they are in the
        log.
    leader_id : int or None
        The leader of `leader_epoch`; None if no record names one.
    leader_epoch : int
        The epoch of the last leader, or of the last record; -1 if there is none.
    voters : dict of int to dict
        By node id: ``voter_directory_id``, ``endpoints`` and ``k_raft_version_feature``, as
        far as they are known; with version 0 the ids only.
    """

    def __init__(self) -> None:
        self.version = 0
        self.leader_id: int | None = None
        self.leader_epoch = -1
        self.voters: dict[int, Values] = {}

    def apply(self, control: ControlValue) -> None:
        """Change what is known by a control record."""
        if control.type == ControlRecordType.KRAFT_VERSION:
            self.version = control.value["k_raft_version"]
        elif control.type == ControlRecordType.KRAFT_VOTERS:
            self.voters = {each["voter_id"]: each for each in control.value["voters"]}
        elif control.type == ControlRecordType.LEADER_CHANGE:
            self.leader_id = control.value["leader_id"]
            self.leader_epoch = control.epoch
            if not self.version:
                self.voters = {each["voter_id"]: each for each in control.value["voters"]}


def read_quorum(
    quorum: Quorum, log: LogView, end_offset: int, end_timestamp: int = INT64_MAX
) -> int:
    """Read the quorum from control records before a moment.

    Returns the offset after the last of them; 0 without any.
    """
    next_offset = 0
    for control in _of_log(log, end_offset):
        if control.timestamp > end_timestamp:
            break
        next_offset = control.offset + 1
        quorum.apply(control)
    return next_offset


def complete_quorum(quorum: Quorum, log: LogView, epoch: int) -> None:
    """Add from ``quorum-state`` what no control record says, as of an epoch.

    It has the voters of version 0, and the leader of its epoch: the record may be deleted.
    """
    quorum.leader_epoch = max(quorum.leader_epoch, epoch)
    if quorum.voters and quorum.leader_id is not None:
        return
    path = log.path / QUORUM_STATE
    data = read_if_there(path, CorruptCheckpointError)
    if data is None:
        return
    try:
        state = parse_quorum_state(data)
    except CorruptCheckpointError as error:
        raise error.located(path) from error
    if not quorum.voters:
        quorum.voters = {each: {"voter_id": each} for each in state.voters or ()}
    if quorum.leader_id is None and state.leader_epoch == quorum.leader_epoch:
        quorum.leader_id = None if state.leader_id == NO_ID else state.leader_id


def _of_log(log: LogView, end_offset: int) -> Iterator[ControlValue]:
    for segment in log.segments:
        if segment.base_offset < end_offset:
            with segment.open_log() as file:
                yield from read_controls(file, end_offset)
