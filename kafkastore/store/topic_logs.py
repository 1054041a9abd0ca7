"""The topics of a store, each with its partitions."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from kafkastore.arguments import whole_number
from kafkastore.errors import ArgumentTypeError, UnknownTopicError
from kafkastore.formats.records.record_batch import Record
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.shown_text import similar_names
from kafkastore.store.arrow_export import ArrowExport
from kafkastore.store.partition_log import PartitionLog

if TYPE_CHECKING:
    from kafkastore.log.records_as_arrow import ArrowArguments
    from kafkastore.store.latest_records import LatestArguments
    from kafkastore.store.log_table import LogTable

#: The characters with which a name is a pattern; Kafka allows none of them in a topic's name.
_WILDCARDS = frozenset("*?[")
#: How many topics' names are shown.
_SHOWN_NAMES = 10


def match_topics(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the name that equals a pattern, or else all names that match it.

    >>> match_topics("ord*", ["orders", "order-items", "users"])
    ['orders', 'order-items']
    """
    names = list(names)
    if pattern in names:
        return [pattern]
    if not is_pattern(pattern):
        return []
    return [name for name in names if fnmatchcase(name, pattern)]


def is_pattern(name: str) -> bool:
    """Return whether a topic's name, as given, is a pattern."""
    return not _WILDCARDS.isdisjoint(name)


class LogSource(Protocol):
    """What topics need of a `LogStore`."""

    @property
    def partitions(self) -> Iterable[TopicPartition]:
        """Its partitions, sorted."""

    @property
    def paths(self) -> list[Path]:
        """Its directories."""

    def __getitem__(self, key: tuple[str, int]) -> PartitionLog:
        """Return a partition's log."""

    def logs_of(self, partitions: Iterable[TopicPartition]) -> Iterator[PartitionLog]:
        """Open partitions one after the other."""


class TopicLogs(ArrowExport):
    """The partitions of one topic in a store: ``topic[3]`` is the log of partition 3.

    Parameters
    ----------
    store : LogStore
        The store.
    name : str
        The topic's name.
    topic_partitions : tuple of TopicPartition
        Its partitions in the store, sorted.
    """

    def __init__(
        self, store: LogSource, name: str, topic_partitions: tuple[TopicPartition, ...]
    ) -> None:
        self.store, self.name, self.topic_partitions = store, name, topic_partitions

    def __repr__(self) -> str:
        return f"TopicLogs({self.name!r}, partitions={len(self)})"

    def _repr_html_(self) -> str:
        """Return what notebooks show: the partitions, and the first records of one."""
        from kafkastore.store.notebook_view import show_partitions

        return show_partitions(
            self.name, self.topic_partitions, lambda each: next(self.store.logs_of([each]))
        )

    @property
    def partitions(self) -> tuple[int, ...]:
        """The numbers of the partitions in the store, sorted."""
        return tuple(each.partition for each in self.topic_partitions)

    def __len__(self) -> int:
        return len(self.topic_partitions)

    def __getitem__(self, partition: int) -> PartitionLog:
        """Return the log of a partition.

        Raises
        ------
        KeyError
            If the store does not contain the partition.
        DuplicatePartitionError
            If the partition lies in several directories.
        """
        return self.store[self.name, partition]

    def __contains__(self, partition: object) -> bool:
        """Return whether the store has a partition of this number."""
        return partition in self.partitions

    def __iter__(self) -> Iterator[PartitionLog]:
        """Yield the logs of the partitions, by number.

        Raises
        ------
        DuplicatePartitionError
            Before the first log, if a partition lies in several directories.
        """
        return self.store.logs_of(self.topic_partitions)

    @property
    def log_start_offsets(self) -> dict[int, int]:
        """The log start offset of each partition, by number."""
        return {log.partition: log.log_start_offset for log in self}

    @property
    def log_end_offsets(self) -> dict[int, int]:
        """The log end offset of each partition, by number."""
        return {log.partition: log.log_end_offset for log in self}

    def records(self, **options: Any) -> Iterator[Record]:
        """Read records one by one, by partition and offset; `to_arrow` is faster.

        Parameters
        ----------
        **options
            As for `PartitionLog.records`; offsets bound each partition.

        Yields
        ------
        Record
            It does not say of which partition; read that partition's log for it.

        Raises
        ------
        DuplicatePartitionError
            If a partition lies in several directories.
        CorruptBatchError
            At the first corrupt batch, after all records before it have been yielded.
        """
        for log in self:
            yield from log.records(**options)

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        *,
        partitions: Iterable[int] | None = None,
        dictionary: bool = False,
        **options: Unpack[ArrowArguments],
    ) -> LogTable:
        """Return the topic's records as an Arrow table that is read when it is used.

        Parameters
        ----------
        columns : sequence of str, optional
            As for `PartitionLog.to_arrow`.
        partitions : iterable of int, optional
            Only these partitions. Default: all.
        dictionary : bool
            Whether `topic` is dictionary-encoded.
        **options
            As for `LogStore.to_arrow`.

        Returns
        -------
        LogTable
            By partition and offset.

        Raises
        ------
        KeyError
            If the store does not contain a partition.
        DuplicatePartitionError
            If a partition lies in several directories.
        ArgumentTypeError, ArgumentValueError
            If an argument has a wrong type or value.
        """
        from kafkastore.store.log_table import table_of_partitions  # imports pyarrow

        return table_of_partitions(
            self.store.logs_of, self._chosen(partitions), columns, dictionary=dictionary, **options
        )

    def latest(
        self,
        columns: Sequence[str] | None = None,
        *,
        partitions: Iterable[int] | None = None,
        include_tombstones: bool = False,
        dictionary: bool = False,
        **options: Unpack[LatestArguments],
    ) -> LogTable:
        """Return the last record of each key as an Arrow table, as if compacted.

        A key may be in several partitions, as after their number was raised. Then the partition
        with its newest record by timestamp counts, or of several equally new ones that with the
        highest number; in it, the last record by offset is the key's, as in compaction.

        Parameters
        ----------
        columns : sequence of str, optional
            As for `PartitionLog.to_arrow`.
        partitions : iterable of int, optional
            Only these partitions. Default: all.
        include_tombstones : bool
            Whether a key whose last value is null, which deletes the key, has a row.
        dictionary : bool
            Whether `topic` is dictionary-encoded.
        **options
            As for `PartitionLog.latest`; offsets and times bound each partition, `limit` is the
            maximum number of rows in all.

        Returns
        -------
        LogTable
            By partition and offset. Reading uses up to 32 bytes of memory for each key.

        Raises
        ------
        KeyError
            If the store does not contain a partition.
        DuplicatePartitionError
            If a partition lies in several directories.
        ArgumentTypeError, ArgumentValueError
            If an argument has a wrong type or value.
        """
        from kafkastore.store.log_table import latest_of_partitions  # imports pyarrow

        return latest_of_partitions(
            self.store.logs_of,
            self._chosen(partitions),
            columns,
            include_tombstones=include_tombstones,
            dictionary=dictionary,
            **options,
        )

    def _chosen(self, partitions: Iterable[int] | None) -> Sequence[TopicPartition]:
        """Return the partitions of these numbers, sorted; None: all."""
        if partitions is None:
            return self.topic_partitions
        try:
            numbers = sorted({whole_number("partitions", each) for each in partitions})
        except TypeError:
            raise ArgumentTypeError("partitions", "numbers such as [0, 3]", partitions) from None
        return [TopicPartition(self.name, each) for each in numbers]


class Topics(Mapping[str, TopicLogs]):
    """Map the names of a store's topics, sorted, to the topics; nothing is opened.

    Parameters
    ----------
    store : LogStore
        The store.
    """

    def __init__(self, store: LogSource) -> None:
        self._store = store
        self._partitions: dict[str, list[TopicPartition]] = {}
        for each in store.partitions:
            self._partitions.setdefault(each.topic, []).append(each)

    def __repr__(self) -> str:
        """Return the first names, of which a cluster may have thousands."""
        shown = [repr(each) for each in islice(self, _SHOWN_NAMES)]
        more = [f"and {len(self) - len(shown)} more"] * (len(self) > len(shown))
        return f"Topics({', '.join([*shown, *more])})"

    def __getitem__(self, name: str) -> TopicLogs:
        """Return a topic.

        Raises
        ------
        UnknownTopicError
            If the store has no partition of it.
        """
        try:
            return TopicLogs(self._store, name, tuple(self._partitions[name]))
        except (KeyError, TypeError):
            near = similar_names(str(name), self._partitions, 3)
            others = () if near else tuple(islice(self._partitions, 3))
            raise UnknownTopicError(name, near, self._store.paths, others) from None

    def matching(self, pattern: str) -> list[TopicLogs]:
        """Return the topic of a name, or those that match a pattern such as ``ord*``.

        Parameters
        ----------
        pattern : str
            ``*`` stands for any characters, ``?`` for one, ``[ab]`` for one of these. A topic whose
            name is `pattern` itself is the only match.

        Returns
        -------
        list of TopicLogs
            At least one, sorted by name.

        Raises
        ------
        UnknownTopicError
            If no topic matches.
        """
        if not isinstance(pattern, str):
            raise ArgumentTypeError("topics", "names such as 'orders' or 'ord*'", pattern)
        return [self[name] for name in match_topics(pattern, self._partitions) or (pattern,)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._partitions)

    def __len__(self) -> int:
        return len(self._partitions)
