"""The controllers of a KRaft cluster that vote, and their leader."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from kafkastore.errors import CorruptCheckpointError
from kafkastore.formats.messages.message_table import Values
from kafkastore.formats.records.control_records import ControlRecordType
from kafkastore.formats.state.file_names import QUORUM_STATE
from kafkastore.formats.state.quorum_state import parse_quorum_state
from kafkastore.log.log_view import LogView
from kafkastore.metadata.metadata_log import ControlValue, read_controls
from kafkastore.metadata.snapshots import Snapshot
from kafkastore.segment.log_file import LogFile
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
        The epoch of the last leader; -1 if there is none.
    voters : dict of int to dict
        By node id: ``voter_directory_id``, ``endpoints`` and ``k_raft_version_feature``, as
        far as they are known; with version 0 the ids only.
    """

    def __init__(self) -> None:
        self.version = 0
        self.leader_id: int | None = None
        self.leader_epoch = -1
        self.voters: dict[int, Values] = {}


def read_quorum(
    quorum: Quorum, log: LogView | None, snapshot: Snapshot | None, end_offset: int
) -> None:
    """Read the quorum from control records before an offset, and ``quorum-state``."""
    for control in chain(_of_snapshot(snapshot), _of_log(log, end_offset)):
        if control.type == ControlRecordType.KRAFT_VERSION:
            quorum.version = control.value["k_raft_version"]
        elif control.type == ControlRecordType.KRAFT_VOTERS:
            quorum.voters = {each["voter_id"]: each for each in control.value["voters"]}
        elif control.type == ControlRecordType.LEADER_CHANGE:
            quorum.leader_id = control.value["leader_id"]
            quorum.leader_epoch = control.epoch
            if not quorum.version:
                quorum.voters = {each["voter_id"]: each for each in control.value["voters"]}
    if log is None or quorum.voters:
        return
    path = log.path / QUORUM_STATE
    data = read_if_there(path, CorruptCheckpointError)
    if data is not None:
        try:
            voters = parse_quorum_state(data).voters
        except CorruptCheckpointError as error:
            raise error.located(path) from error
        quorum.voters = {each: {"voter_id": each} for each in voters or ()}


def _of_snapshot(snapshot: Snapshot | None) -> Iterator[ControlValue]:
    if snapshot is not None:
        with LogFile(snapshot.path) as file:
            yield from read_controls(file)


def _of_log(log: LogView | None, end_offset: int) -> Iterator[ControlValue]:
    for segment in () if log is None else log.segments:
        if segment.base_offset < end_offset:
            with segment.open_log() as file:
                yield from read_controls(file, end_offset)
