"""Groups of every kind, by the partition of ``__consumer_offsets`` that has them."""
from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kafkastore.arguments import check_collection
from kafkastore.jobs.job import JobResults, PartitionJob, Row
from kafkastore.store.log_store import AnyPartition, LogStore, Paths, open_paths
from kafkastore.store.partition_path import Copies, list_copies, open_copies
from kafkastore.use_cases.committed_offsets import CONSUMER_OFFSETS, NoCommittedOffsetsError
from kafkastore.use_cases.groups import Assigned, Group, GroupMember, groups_in

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class GroupsJob(PartitionJob[list[Group]]):
    """Read the groups of each ``__consumer_offsets`` partition; no `names` means all."""

    names: Sequence[str] = ()

    @staticmethod
    def columns() -> list[tuple[str, pa.DataType]]:
        """Return the columns of a group."""
        import pyarrow as pa

        number, text = pa.int64(), pa.string()
        return [
            ("group", text),
            ("type", text),
            ("state", text),
            ("epoch", pa.int32()),
            ("assignment_epoch", pa.int32()),
            ("protocol_type", text),
            ("protocol", text),
            ("members", number),
            ("offsets", number),
        ]

    @staticmethod
    def items(
        store: LogStore,
        partitions: Iterable[AnyPartition] | None = None,
        *,
        is_weighed: bool = True,
    ) -> list[Copies]:
        """Return the ``__consumer_offsets`` partitions of a store."""
        chosen = [each for each in store.chosen(partitions) if each.topic == CONSUMER_OFFSETS]
        if not chosen:
            where = " and ".join(map(str, store.paths))
            if any(each.topic == CONSUMER_OFFSETS for each in store.partitions):
                where = "the selection; all groups are in that topic"
            raise NoCommittedOffsetsError(f"no partition of {CONSUMER_OFFSETS} in {where}")
        return list_copies(store, chosen, is_weighed=is_weighed)

    def run(self, item: Copies) -> list[Group]:
        """Read the groups of one partition."""
        found = groups_in(open_copies(item))
        return [each for each in found if not self.names or each.group in self.names]

    def rows(self, result: list[Group]) -> Iterator[Row]:
        """Yield a row for each group."""
        return map(group_row, result)


def group_row(group: Group) -> Row:
    """Return the columns of a group."""
    return {
        "group": group.group,
        "type": group.type.value,
        "state": group.state.value,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol,
        "members": len(group.members),
        "offsets": len(group.offsets),
    }


def member_row(group: Group, member: GroupMember) -> Row:
    """Return a member of a group, with what it has."""
    return {
        "group": group.group,
        **member._asdict(),
        "subscribed": list(member.subscribed),
        "assigned": _assigned(member.assigned),
        "target": _assigned(member.target),
    }


def _assigned(assigned: Sequence[Assigned]) -> list[Row]:
    return [{**each._asdict(), "partitions": list(each.partitions)} for each in assigned]


def offset_rows(group: Group) -> Iterator[Row]:
    """Yield the committed offsets of a group."""
    for key, value in sorted(group.offsets.items()):
        yield {
            **key._asdict(),
            "offset": value.offset,
            "leader_epoch": value.leader_epoch if value.leader_epoch >= 0 else None,
            "metadata": value.metadata,
            "commit_timestamp": value.commit_timestamp if value.commit_timestamp >= 0 else None,
        }


def groups(path: Paths, names: Collection[str] = ()) -> JobResults[Copies, list[Group]]:
    """Read groups of every kind: their state, members and committed offsets.

    Parameters
    ----------
    path : path-like, LogStore or list of these
        Log directories or partition directories with ``__consumer_offsets``. Only groups whose
        partitions are there are found.
    names : collection of str
        Only these groups; none means all.

    Returns
    -------
    iterator of list of Group
        For each partition of ``__consumer_offsets``: its groups by name.

    Raises
    ------
    NoCommittedOffsetsError
        If `path` has no partition of ``__consumer_offsets``.
    CorruptionError
        If a partition or a record can't be read.
    TypeError
        If `names` is a str.

    Notes
    -----
    Source: Kafka 4.3.1 ``GroupMetadataManager``; KIP-848, KIP-932, KIP-1071.
    """
    check_collection("names", names)
    store = open_paths(path)
    job = GroupsJob(tuple(names))
    return JobResults(job, partial(job.items, store))
