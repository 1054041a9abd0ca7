"""Checks of every file of a store against the others, by partition."""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkastore.arguments import thread_count
from kafkastore.checks.findings import Finding, Severity
from kafkastore.checks.name_check import check_topic_id
from kafkastore.checks.partition_check import CheckedPartition, check_partition
from kafkastore.checks.store_check import check_checkpoints, check_log_dirs
from kafkastore.checks.verify import (
    ClusterCheck,
    check_sample,
    differing_topic_id,
    logs_to_check,
)
from kafkastore.errors import InvalidConfigError
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.jobs.job import Job, Row, columns_of
from kafkastore.log.parallel.parallel_map import ParallelMap, StopFlag
from kafkastore.paths import describe_error, to_path
from kafkastore.runner import Progress, threads_within
from kafkastore.store.cluster_metadata import Metadata, find_cluster_or_warn
from kafkastore.store.log_store import AnyPartition, LogStore, Paths, open_paths
from kafkastore.store.partition_log import PartitionLog
from kafkastore.store.partition_path import (
    FAILURES,
    PartitionPath,
    open_partition,
    store_around,
    to_partition_path,
    weight,
)

if TYPE_CHECKING:
    import pyarrow as pa


class PartitionToCheck(NamedTuple):
    """A partition directory, and findings about it that come from other directories.

    `duplicate` is a finding if another directory has the partition too; `topic_ids` are findings if
    its topic id differs from that of an earlier partition.
    """

    place: PartitionPath
    duplicate: Finding | None
    topic_ids: tuple[Finding, ...] = ()


class CheckedFile(NamedTuple):
    """A finding next to the partitions, and its log directory."""

    store: str | None
    checked: CheckedPartition


def _never() -> bool:
    return False


@dataclass(frozen=True)
class VerifyJob(Job[PartitionToCheck | CheckedFile, CheckedPartition]):
    """Check all files of each partition; options as for `verify`.

    `threads` check one partition.
    `is_stopped` is called before each segment; the check stops if it returns true.
    """

    sample: float = 1.0
    is_stopped: Callable[[], bool] = _never
    cluster: ClusterCheck | None = None
    threads: int = 1

    def __post_init__(self) -> None:
        check_sample(self.sample)

    def items(
        self,
        store: LogStore,
        chosen: Collection[TopicPartition] | None = None,
        *,
        has_topic_ids: bool = False,
        is_weighed: bool = True,
    ) -> Iterator[PartitionToCheck | CheckedFile]:
        """Yield the partitions, after what is next to them; if chosen, only checkpoints.

        Differing topic ids are found here if `has_topic_ids`, otherwise by `with_topic_ids`; those
        of a known cluster by `run`.
        """
        has_cluster = self.cluster is not None
        if chosen is None:
            check = partial(check_log_dirs, store.log_dirs, has_cluster=has_cluster)
        else:
            check = partial(check_checkpoints, store.log_dirs)
        yield from _next_to_partitions(store, check())
        if self.cluster is not None and chosen is None:
            for finding in self.cluster.missing:
                checked = CheckedPartition(finding.path, [finding])
                yield CheckedFile(store_around(finding.path.parent, store), checked)
        topic_ids: dict[str, tuple[str, Path]] = {}
        for log, duplicate in logs_to_check(store, chosen):
            differing: Iterable[Finding] = ()
            if has_topic_ids and not has_cluster:
                differing = differing_topic_id(log.topic, log.path, _topic_id(log), topic_ids)
            path = to_partition_path(log, store, is_weighed=is_weighed)
            yield PartitionToCheck(path, duplicate, tuple(differing))

    @staticmethod
    def columns() -> list[tuple[str, pa.DataType]]:
        """Return the columns of a finding, and the counts of its partition."""
        import pyarrow as pa

        return [
            ("finding", pa.string()),
            ("severity", pa.string()),
            ("file", pa.string()),
            ("position", pa.int64()),
            ("what", pa.string()),
            ("consequence", pa.string()),
            ("remedy", pa.string()),
            ("segments", pa.int64()),
            ("segments_read", pa.int64()),
        ]

    def run(self, item: PartitionToCheck | CheckedFile) -> CheckedPartition:
        """Check one partition; its failures are values."""
        if isinstance(item, CheckedFile):
            return item.checked
        log = open_partition(item.place)
        checked = check_partition(
            log, sample=self.sample, threads=self.threads, is_stopped=self.is_stopped
        )
        if item.duplicate is not None:
            checked.findings.insert(0, item.duplicate)
        checked.findings.extend(item.topic_ids)
        if self.cluster is not None:
            try:
                self.cluster.compare(log, checked)
            except InvalidConfigError as error:  # of a newer broker
                checked.failures.append(error)
            checked.topic_id = None  # compared already
        return checked

    def rows(self, result: CheckedPartition) -> Iterator[Row]:
        """Yield a row for each finding and failure, or one without severity."""
        counts = {}
        if result.topic_partition is not None:
            counts = {"segments": result.segments, "segments_read": result.segments_read}
        for finding in result.findings:
            yield counts | finding_row(finding)
        for failure in result.failures:
            yield counts | {"error": describe_error(failure)}
        if not result.findings and not result.failures:
            yield counts

    def place(self, item: PartitionToCheck | CheckedFile) -> Row:
        """Return the columns that name the partition or the file."""
        if isinstance(item, PartitionToCheck):
            return columns_of([item.place])
        return {"store": item.store, "path": str(item.checked.path)}

    def weigh(self, item: PartitionToCheck | CheckedFile) -> int:
        """Return the size of a partition's logs."""
        return weight([item.place]) if isinstance(item, PartitionToCheck) else 0


def finding_row(finding: Finding) -> dict[str, str | int | None]:
    """Return the columns of a finding."""
    return {
        "finding": finding.kind.value,
        "severity": finding.severity.value,
        "file": str(finding.path),
        "position": finding.position,
        "what": finding.what,
        "consequence": finding.consequence,
        "remedy": finding.remedy,
    }


def with_topic_ids(checked: Iterable[CheckedPartition]) -> Iterator[CheckedPartition]:
    """Add findings where partitions of a topic have different topic ids."""
    known: dict[str, tuple[str, Path]] = {}
    for each in checked:
        if each.topic_partition is not None:
            topic = each.topic_partition.topic
            each.findings.extend(differing_topic_id(topic, each.path, each.topic_id, known))
        yield each


@dataclass
class VerifySummary:
    """The totals of the check of a store."""

    findings: Counter[Severity] = field(default_factory=Counter)
    partitions: int = 0
    segments: int = 0
    segments_read: int = 0
    failures: int = 0

    def add(self, checked: CheckedPartition) -> None:
        """Count one result."""
        self.findings.update(each.severity for each in checked.findings)
        self.partitions += checked.topic_partition is not None and not checked.failures
        self.segments += checked.segments
        self.segments_read += checked.segments_read
        self.failures += len(checked.failures)


def summary_row(summary: VerifySummary) -> dict[str, int]:
    """Return the row of the totals."""
    return {
        "partitions": summary.partitions,
        "segments": summary.segments,
        "segments_read": summary.segments_read,
        **{severity_column(each): summary.findings[each] for each in reversed(Severity)},
        "failures": summary.failures,
    }


def severity_column(severity: Severity) -> str:
    """Return the column of a summary that counts the findings of a severity."""
    return severity.value.replace("-", "_")


def verify(
    path: Paths,
    *,
    partitions: Collection[AnyPartition] | None = None,
    sample: float = 1.0,
    threads: int | None = None,
    progress: Progress | None = None,
    metadata: Metadata = None,
) -> Iterator[Finding]:
    """Check every file of a store against the others; change nothing.

    Parameters
    ----------
    path : path-like, LogStore or list of these
        Log directories or partition directories.
    partitions : collection, optional
        Check only these partitions, each as ``("orders", 3)`` or ``"orders-3"``, and whether the
        checkpoints next to them can be read.
    sample : float
        The fraction of segments whose logs are read, above 0 and up to 1; names, small files and
        the structure of indexes are always checked. The choice depends on the segments' names, so
        that each run reads the same ones, and always includes the last segment of a partition.
    threads : int, optional
        How many threads check partitions, or the segments of few partitions. Default: the number
        of processors.
    progress : callable, optional
        Called after each partition with the number of partitions done and their total number.
    metadata : Cluster, path-like, LogStore or list of these, optional
        The cluster, or where its metadata is: topic ids and replicas are compared with it, and the
        topics' configurations are taken from it. Default: the metadata log in `path`, if it has
        one; if that can't be read, an `UnreadMetadataWarning` says why.

    Returns
    -------
    iterator of Finding
        First the findings that do not belong to one partition, then in the order of partitions and
        segments. Its `close` stops the check early, and waits for the threads.

    Raises
    ------
    NotALogDirectoryError
        If a path is neither a log directory nor a partition directory.
    KeyError
        If one of `partitions` does not exist.
    OSError
        If a file cannot be opened; raised after the findings of its partition.
    """
    stop = StopFlag()
    store = open_paths(path)
    cluster = ClusterCheck.of(find_cluster_or_warn(store, metadata), store)
    chosen = None if partitions is None else set(store.chosen(partitions))
    total = len(store.partitions if chosen is None else chosen)
    threads = thread_count(threads)
    job = VerifyJob(sample, stop, cluster, threads_within(threads, total))
    items = job.items(store, chosen, is_weighed=False)
    at_once = 1 if total == 1 else threads
    checked = ParallelMap(job.run, items, at_once, "kafkastore-verify", stop=stop)
    return _Findings(checked, total, progress)


class _Findings(Iterator[Finding]):
    """An iterator of findings; see `ParallelMap` for the end of its threads."""

    def __init__(
        self, checked: ParallelMap[Any, CheckedPartition], total: int, progress: Progress | None
    ) -> None:
        self._checked = checked
        self._findings = _findings_of(checked, total, progress)

    def __next__(self) -> Finding:
        try:
            return next(self._findings)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop the check and wait for the threads; safe to repeat."""
        self._findings = iter(())
        self._checked.close()


def _findings_of(
    checked: Iterable[CheckedPartition], total: int, progress: Progress | None
) -> Iterator[Finding]:
    """Yield all findings; raise a partition's first failure after its findings."""
    done = 0
    for each in with_topic_ids(checked):
        yield from each.findings
        for error in each.failures:
            raise error
        if progress is not None and each.topic_partition is not None:
            done += 1
            progress(done, max(done, total))


def _next_to_partitions(
    store: LogStore, results: Iterable[Finding | OSError]
) -> Iterator[CheckedFile]:
    """Yield the findings next to the partitions, then unreadable files."""
    failures: list[OSError] = []
    for found in results:
        if isinstance(found, OSError):
            failures.append(found)
        else:
            checked = CheckedPartition(found.path, [found])
            yield CheckedFile(store_around(found.path, store), checked)
    for error in failures:
        path = to_path(str(error.filename or getattr(error, "path", "")))
        yield CheckedFile(store_around(path, store), CheckedPartition(path, failures=[error]))


def _topic_id(log: PartitionLog) -> str | None:
    """Return a partition's topic id; None if it has none, for any reason."""
    checking = check_topic_id(log)
    try:
        while True:
            next(checking)
    except StopIteration as end:
        topic_id: str | None = end.value
        return topic_id
    except FAILURES:
        return None
