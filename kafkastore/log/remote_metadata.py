"""What ``__remote_log_metadata`` in a log directory says of other partitions.

Each partition of that topic has the records of some partitions. A broker that leads or follows a
partition reads the one with its records, of which its own log directories may have no replica:
then nothing is known of what is in remote storage.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from kafkastore.errors import CorruptionError
from kafkastore.formats.state.checkpoints import EpochStart
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.formats.topics.remote_log_metadata import (
    DEFAULT_PARTITIONS,
    RECORDS,
    metadata_partition_of,
)
from kafkastore.log.log_dir import LogDir
from kafkastore.log.partition_files import PartitionFiles
from kafkastore.log.remote_segments import RemoteSegment, RemoteSegments, RemoteSegmentState
from kafkastore.segment.log_segment import LogSegment

#: The numbers of `RECORDS`.
_SEGMENT, _UPDATE, _PARTITION_DELETE = 0, 1, 2
_DELETE_PARTITION_FINISHED = 2
_STATES = frozenset(RemoteSegmentState)
_FACT = "remote_metadata"


class UnknownRemote(StrEnum):
    """Why the remote segments of a partition are not known.

    `NO_CONFIGURATION`: its records only say that the topic had remote storage once.
    """

    NO_METADATA = "no-metadata"
    NO_METADATA_PARTITION = "no-metadata-partition"
    NO_CONFIGURATION = "no-configuration"
    CORRUPT = "corrupt"


class RemoteContent(NamedTuple):
    """The remote segments of a partition; None: no record, or unknown."""

    segments: RemoteSegments | None
    unknown: UnknownRemote | None = None
    error: CorruptionError | None = None


class RemoteMetadata:
    """The partitions of ``__remote_log_metadata`` in a log directory."""

    def __init__(self, paths: Mapping[int, Path]) -> None:
        self.paths = paths
        self._read: dict[int, dict[TopicPartition, dict[str, RemoteSegments]]] = {}

    def content_of(
        self, topic_partition: TopicPartition, topic_id: str | None, count: int | None = None
    ) -> RemoteContent:
        """Return what is known of a partition, by the id of its topic if that is known.

        `count` is the number of partitions of ``__remote_log_metadata``, if that is known.
        """
        if not self.paths:
            return RemoteContent(None, UnknownRemote.NO_METADATA)
        numbers = sorted(self.paths)
        if topic_id is not None:
            likely = self._homes(topic_partition, topic_id, self._likely_counts(count))
            numbers.sort(key=lambda number: number not in likely)
        error = None
        for number in numbers:
            try:
                known = self._partition(number).get(topic_partition, {})
            except CorruptionError as corrupt:
                error = error or corrupt
                continue
            if topic_id is None and known:
                return RemoteContent(known[next(reversed(known))])
            if topic_id in known:
                return RemoteContent(known[topic_id])
        if error is not None:
            return RemoteContent(None, UnknownRemote.CORRUPT, error)
        counts = [each for each in self._likely_counts(count) if count or self._fits(each)]
        if topic_id is None or not counts:
            return RemoteContent(None, UnknownRemote.NO_METADATA_PARTITION)
        is_home_here = self.paths.keys() >= self._homes(topic_partition, topic_id, counts)
        return RemoteContent(None, None if is_home_here else UnknownRemote.NO_METADATA_PARTITION)

    def _likely_counts(self, count: int | None) -> list[int]:
        """List what the number of the topic's partitions may be."""
        if count is not None:
            return [count]
        here, last = len(self.paths), max(self.paths)
        whole = [here] * (last == here - 1 and here != DEFAULT_PARTITIONS)
        return [*whole, *[DEFAULT_PARTITIONS] * (last < DEFAULT_PARTITIONS)]

    def _homes(
        self, topic_partition: TopicPartition, topic_id: str, counts: list[int]
    ) -> set[int]:
        """Return the partitions of the topic that may have the records of a partition."""
        partition = topic_partition.partition
        return {metadata_partition_of(topic_id, partition, each) for each in counts}

    def _fits(self, count: int) -> bool:
        """Return whether all records fit a topic of `count` partitions."""
        return all(
            metadata_partition_of(topic_id, topic_partition.partition, count) == number
            for number in self.paths
            for topic_partition, by_id in self._partition(number).items()
            for topic_id in by_id
        )

    def _partition(self, number: int) -> dict[TopicPartition, dict[str, RemoteSegments]]:
        """Replay a partition once: the segments by partition and topic id."""
        known = self._read.get(number)
        if known is None:
            known = self._read.setdefault(number, _replayed(self.paths[number]))
        return known


def remote_metadata_of(log_dir: LogDir) -> RemoteMetadata:
    """Return the metadata in a broker's log directories, read once until a refresh."""
    found: RemoteMetadata | None = log_dir.facts.get(_FACT)
    if found is None:
        paths = {
            number: path
            for each in (log_dir, *_others_of_the_broker(log_dir))
            for number, path in each.remote_metadata_paths.items()
        }
        found = log_dir.facts.setdefault(_FACT, RemoteMetadata(paths))
    return found


def _others_of_the_broker(log_dir: LogDir) -> Iterator[LogDir]:
    """Yield the other log directories of a broker that were opened together."""
    with suppress(CorruptionError):  # a broker does not start with such meta.properties
        for each in log_dir.siblings:
            if each.node_id is not None and each.node_id == log_dir.node_id:
                yield each


def _replayed(path: Path) -> dict[TopicPartition, dict[str, RemoteSegments]]:
    """Replay the records of a partition of the topic."""
    found: dict[TopicPartition, dict[str, RemoteSegments]] = {}
    for number, value in _records(path):
        if number == _SEGMENT:
            place = value["remote_log_segment_id"]["topic_id_partition"]
            segments = found.setdefault(_partition_in(place), {})
            segments.setdefault(place["id"], RemoteSegments()).add(_segment_in(value))
        elif number == _UPDATE:
            place = value["remote_log_segment_id"]["topic_id_partition"]
            known = found.get(_partition_in(place), {}).get(place["id"])
            state = value["remote_log_segment_state"]
            if known is not None and state in _STATES:
                known.update(value["remote_log_segment_id"]["id"], RemoteSegmentState(state))
        elif number == _PARTITION_DELETE:
            place = value["topic_id_partition"]
            if value["remote_partition_delete_state"] == _DELETE_PARTITION_FINISHED:
                found.get(_partition_in(place), {}).pop(place["id"], None)
    return found


def _records(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the type and the fields of each record; unknown ones are left out."""
    bases = PartitionFiles(path).base_offsets
    for base, following in zip(bases, [*bases[1:], None], strict=False):
        segment = LogSegment(path, base, following)
        with segment.open_log() as file:
            for batch in file.batches():
                if batch.is_control:
                    continue
                try:
                    batch.verify()
                    for record in batch.records():
                        parsed = RECORDS.parse_framed(record.value or b"")
                        if parsed.value is not None:
                            yield parsed.number, parsed.value
                except CorruptionError as error:
                    raise CorruptionError(
                        f"record of remote segments: {error.reason}",
                        path=segment.log_path, position=batch.position,
                    ) from error


def _partition_in(place: Any) -> TopicPartition:
    return TopicPartition(place["name"], place["partition"])


def _segment_in(value: Any) -> RemoteSegment:
    return RemoteSegment(
        value["remote_log_segment_id"]["id"],
        value["start_offset"],
        value["end_offset"],
        value["max_timestamp_ms"],
        value["segment_size_in_bytes"],
        tuple(
            sorted(
                EpochStart(each["leader_epoch"], each["offset"])
                for each in value["segment_leader_epochs"]
            )
        ),
        value["broker_id"],
    )
