"""Write a log directory: its lock, its checkpoints and its clean-shutdown marker.

Only one process at a time, a broker or a writer, may hold a log directory.  While it is being
written it has no clean-shutdown marker; `LogDirWriter.close` creates the marker if no error
occurred.  Bytes that a recovery cuts are saved next to the log directory, never deleted.

Source: Kafka 2.4.0 and 3.9.0 ``LogManager``.
"""

from __future__ import annotations

import os
import re
import threading
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from kafkastore.arguments import INT32_MAX, INT64_MAX
from kafkastore.caching import cached_property
from kafkastore.clock import clock
from kafkastore.errors import (
    ArgumentValueError,
    ChangeRefusedError,
    CorruptBatchError,
    CorruptCheckpointError,
    DirectoryInUseError,
    LogWouldBeCutError,
    RefusalReason,
    WriterFailedError,
)
from kafkastore.formats.state.checkpoints import (
    encode_id,
    pack_offset_checkpoint,
    pack_partition_metadata,
    parse_partition_metadata,
)
from kafkastore.formats.state.file_names import (
    CLEAN_SHUTDOWN_FILE,
    CLUSTER_METADATA_TOPIC,
    LOCK_FILE,
    LOG_SUFFIX,
    META_PROPERTIES,
    PARTITION_METADATA,
    InvalidNameError,
    TopicPartition,
    is_topic_name,
    segment_file_name,
)
from kafkastore.formats.state.producer_state import ProducerState
from kafkastore.fs import FileSystem, LockFile, lock_holder
from kafkastore.log.log_dir import CHECKPOINTS, LogDir
from kafkastore.log.log_view import LogView
from kafkastore.paths import refuse_remote
from kafkastore.recovery.applied_recovery import apply_recovery, cuts_of
from kafkastore.recovery.log_recovery import RecoveredLog, RecoveredSegment, recover_log
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.segment_writer import check_end
from kafkastore.segment.small_file import read_if_there
from kafkastore.store.cluster_metadata import Metadata
from kafkastore.versions import NEWEST_VERSION, parse_version, rules_of
from kafkastore.writing import CUT_MARK
from kafkastore.writing.cluster_topics import NO_TOPICS, ClusterTopics, find_topics
from kafkastore.writing.log_config import LogConfig
from kafkastore.writing.log_writer import LogWriter

_CLUSTER = re.compile(r"[a-zA-Z0-9._-]+")
# Since 2.0 an offset index entry has the last offset of its batch; before, it had the first.
_OLDEST = (2, 0)


class LogDirWriter:
    """Write a log directory; neither it nor its log writers are thread-safe.

    Parameters
    ----------
    root : path-like
        The directory; created if missing, but its parent must exist.
    version : str
        The broker version whose rules apply, from 2.0 on; `kafkastore.versions` lists the
        differences.
    node_id, cluster_id : int, str
        Written to ``meta.properties`` if that is missing; the default cluster id is that of
        `metadata`, or random. A broker accepts the directory only if both match its own.
    cut_dir : path-like, optional
        Where to save the bytes that a recovery cuts; default: the parent of `root`. Must not be
        inside `root`.
    clock : callable, optional
        Returns ms since 1970.
    fs : FileSystem, optional
        Makes all changes to files.
    metadata : Cluster, path-like, LogStore or list of these, optional
        The cluster, or where its metadata is: topics get their configurations from there, and new
        partitions their topic ids. Default: the metadata log in `root`, if it has one; if that
        can't be read, an `UnreadMetadataWarning` says why.

    Raises
    ------
    DirectoryInUseError
        If a broker or another writer has the directory open.
    KafkaStoreError
        If the version is older than 2.0, or `metadata` can't be read.

    Examples
    --------
    >>> import tempfile
    >>> from kafkastore.formats.records.record_batch import Record, TimestampType
    >>> record = Record(0, 1700000000000, TimestampType.CREATE_TIME, b"key", b"value", (), None)
    >>> with tempfile.TemporaryDirectory() as root, LogDirWriter(root) as log_dir:
    ...     writer = log_dir.writer("orders", 0, {"segment.bytes": 1048576})
    ...     writer.append_records([record, record])
    AppendInfo(first_offset=0, last_offset=1, log_append_time=-1, is_duplicate=False)
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        version: str = NEWEST_VERSION,
        *,
        node_id: int = 0,
        cluster_id: str | None = None,
        cut_dir: str | os.PathLike[str] | None = None,
        clock: Callable[[], int] = clock,
        fs: FileSystem | None = None,
        metadata: Metadata | ClusterTopics = None,
    ) -> None:
        refuse_remote(root)
        self.path, self.version = Path(root), version
        if parse_version(version) < _OLDEST:
            raise ArgumentValueError("version", "2.0 or later", version)
        self._node_id, self._has_metadata = node_id, metadata is not None
        self._given_topics = NO_TOPICS
        if isinstance(metadata, ClusterTopics):
            self._given_topics = metadata
        elif metadata is not None:
            self._given_topics = find_topics(self.path, metadata, node_id)
        if cluster_id is None:
            cluster_id = self._given_topics.cluster_id
        self._rules = rules_of(version)
        self._clock = clock
        self._fs = FileSystem() if fs is None else fs
        self._writers: dict[TopicPartition, LogWriter] = {}
        # Writers whose files have changed, or may have.
        self._begun: dict[TopicPartition, LogWriter] = {}
        self._beginning = threading.RLock()
        self._is_begun = self._is_half_opened = self._is_closed = False
        parent = self.path.absolute().parent if cut_dir is None else Path(cut_dir)
        self._cut_area = parent / f"{self.path.absolute().name}{CUT_MARK}{clock()}"
        is_new = not self.path.exists()
        if is_new:
            self._fs.mkdir(self.path)
        try:
            self._lock = LockFile(self.path / LOCK_FILE, create=True)
        except BlockingIOError as error:
            lock = self.path / LOCK_FILE
            raise DirectoryInUseError(self.path, lock, lock_holder(lock)) from error
        try:
            # A corrupt checkpoint counts as empty, as in a broker.
            self._recovery_points, self._log_start_offsets, self._high_watermarks = (
                dict(LogDir(self.path).checkpoint(name).offsets) for name in CHECKPOINTS
            )
            self._meta_properties = self._new_meta_properties(node_id, cluster_id)
            self._was_clean = (self.path / CLEAN_SHUTDOWN_FILE).exists()
            if is_new:
                self._begin()
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> LogDirWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"LogDirWriter({str(self.path)!r})"

    @cached_property
    def _found_topics(self) -> ClusterTopics:
        """The topics of the metadata in the directory."""
        return find_topics(self.path, None, self._node_id)

    @property
    def writers(self) -> Mapping[TopicPartition, LogWriter]:
        """The log writers opened so far, by topic and partition."""
        return self._writers

    def writer(
        self,
        topic: str,
        partition: int,
        config: Mapping[str, object] | LogConfig | None = None,
        *,
        topic_id: str | None = None,
        start_offset: int = 0,
        recover: bool = False,
    ) -> LogWriter:
        """Open a partition for writing; it is created if missing.

        The files of an existing partition do not change before the first append or other change.

        Parameters
        ----------
        topic : str
            Topic name.
        partition : int
            Partition number.
        config : mapping or LogConfig, optional
            The topic's options by Kafka's names; see `LogConfig.of`. Missing ones are those of the
            metadata, or Kafka's defaults; a `LogConfig` has all.
        topic_id : str, optional
            The topic's id in its cluster, 22 characters, for ``partition.metadata``. Default: for a
            new partition, that of the metadata. Without it, a broker of a KRaft cluster treats the
            partition as stray.
        start_offset : int
            First offset of the log, if the partition is created.
        recover : bool
            Whether a recovery may cut bytes off the log; it then runs immediately.

        Returns
        -------
        LogWriter
            Closed together with the directory.

        Raises
        ------
        InvalidNameError
            If Kafka does not allow the topic name or the partition number.
        InvalidConfigError
            If an option is unknown to Kafka, or its value is invalid.
        ValueError
            If a new partition has a number that its topic in the metadata does not have.
        KafkaStoreError
            If the partition is already open, can't be loaded, or belongs to a topic with another
            id, or if the directory is closed.
        LogWouldBeCutError
            If the log would lose bytes, and `recover` is not set.

        Notes
        -----
        Bytes that a recovery cuts off a ``.log``, and files that it drops, are saved in a directory
        next to the log directory, with `CUT_MARK` in its name. ``kafkastore changes list`` lists
        these.
        """
        topic_partition = TopicPartition(topic, partition)
        if self._is_closed:
            raise WriterFailedError(f"the writer of {self.path} is closed")
        if not is_topic_name(topic):
            raise InvalidNameError(f"topic must be a name that Kafka allows, got {topic!r}")
        if type(partition) is not int or not 0 <= partition <= INT32_MAX:
            raise InvalidNameError(
                f"partition must be an int from 0 to {INT32_MAX}, got {partition!r}"
            )
        if topic_partition in self._writers:
            raise ChangeRefusedError(
                f"{topic_partition} has an open writer", RefusalReason.IN_USE, self.path
            )
        if type(start_offset) is not int or not 0 <= start_offset <= INT64_MAX:
            raise ArgumentValueError("start_offset", f"an int from 0 to {INT64_MAX}", start_offset)
        known = NO_TOPICS
        if topic != CLUSTER_METADATA_TOPIC:
            known = self._given_topics if self._has_metadata else self._found_topics
        setting = known.setting(topic, config)
        log_config = LogConfig.of(setting.options)
        path = self.path / str(topic_partition)
        is_new = not path.exists()
        if is_new:
            known_id = known.topic_id_of_new(topic_partition)
            if topic_id is None and self._rules.partitions_have_topic_ids:
                topic_id = known_id
        metadata = None if topic_id is None else self._partition_metadata(path, topic_id)
        if is_new:
            loaded = self._create(topic_partition, start_offset)
        else:
            loaded = self._load(topic_partition, log_config)
            cuts = cuts_of(loaded)
            if cuts and not recover:
                raise LogWouldBeCutError(path, cuts, loaded.log_end_offset)
        writer = LogWriter(
            loaded,
            topic_partition,
            log_config,
            rules=self._rules,
            reload=self._reload,
            clock=self._clock,
            fs=self._fs,
            prepare=partial(self._prepare, loaded, metadata),
            config_sources=setting.sources,
        )
        self._writers[topic_partition] = writer
        if is_new or recover or metadata is not None:
            writer.begin()
        return writer

    def _begin(self) -> None:
        """Mark the directory as being written: a crash from now on needs recovery."""
        with self._beginning:
            if self._is_begun:
                return
            if self._meta_properties is not None:
                self._fs.replace_content(self.path / META_PROPERTIES, self._meta_properties)
            if self._was_clean:
                # Must be the first change (KAFKA-10471).
                self._fs.unlink(self.path / CLEAN_SHUTDOWN_FILE)
                self._fs.fsync_directory(self.path)
            self._is_begun = True

    def _prepare(self, loaded: RecoveredLog, metadata: bytes | None, writer: LogWriter) -> None:
        """Apply the loaded state to a partition's files before the first write."""
        with self._beginning:
            self._is_half_opened = True
            self._begin()
            apply_recovery(loaded, self._cut_area, self._fs)
            if metadata is not None:
                self._fs.replace_content(writer.path / PARTITION_METADATA, metadata)
            self._begun[writer.topic_partition] = writer
            self._lower_recovery_point(writer)
            self._is_half_opened = False

    def checkpoint(self) -> None:
        """Write recovery points, log start offsets and high watermarks to checkpoints.

        Raises
        ------
        WriterFailedError
            If the directory is closed: another process may hold it by now.

        Notes
        -----
        A broker writes them every minute, and the high watermarks every 5 s.
        """
        if self._is_closed:
            raise WriterFailedError(f"the writer of {self.path} is closed")
        if self._is_begun:
            self._write_checkpoints()

    def _write_checkpoints(self) -> None:
        """Write all partitions' offsets to the checkpoints, then drop old snapshots."""
        for topic_partition, writer in self._begun.items():
            self._recovery_points[topic_partition] = writer.recovery_point
            self._high_watermarks[topic_partition] = writer.high_watermark
            self._log_start_offsets.pop(topic_partition, None)
            if writer.log_start_offset > writer.base_offsets[0]:
                self._log_start_offsets[topic_partition] = writer.log_start_offset
        known = (self._recovery_points, self._log_start_offsets, self._high_watermarks)
        for name, offsets in zip(CHECKPOINTS, known, strict=True):
            self._fs.replace_content(self.path / name, pack_offset_checkpoint(offsets))
        for writer in self._begun.values():
            writer.drop_old_snapshots()

    def close(self) -> None:
        """Close all writers, write checkpoints, mark a clean shutdown, release the lock.

        The clean-shutdown marker is not written, so that the next start recovers, if a writer has
        failed, or if the last shutdown was not clean and some partitions were not opened for
        writing. A directory without any changes is not altered.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._close_writers()
            if not self._is_begun:
                return
            if self._is_half_opened or any(each.has_failed for each in self._writers.values()):
                return
            self._write_checkpoints()
            if self._was_clean or self._is_whole():
                self._fs.close(self._fs.create(self.path / CLEAN_SHUTDOWN_FILE))
                self._fs.fsync_directory(self.path)
        finally:
            self._lock.close()

    def _close_writers(self) -> None:
        """Close every writer, even if one fails; raise the first failure."""
        failure = None
        for writer in self._writers.values():
            try:
                writer.close()
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _is_whole(self) -> bool:
        """Return whether every partition was loaded, and recovered if needed."""
        log_dir = LogDir(self.path)
        return log_dir.partition_paths.keys() <= self._begun.keys()

    def _new_meta_properties(self, node_id: int, cluster_id: str | None) -> bytes | None:
        """Return the content of a new ``meta.properties``; None if the file exists."""
        if (self.path / META_PROPERTIES).exists():
            return None
        if type(node_id) is not int or not 0 <= node_id <= INT32_MAX:
            raise ArgumentValueError("node_id", f"an int from 0 to {INT32_MAX}", node_id)
        cluster = _random_id() if cluster_id is None else cluster_id
        if not isinstance(cluster, str) or not _CLUSTER.fullmatch(cluster):
            raise ArgumentValueError("cluster_id", "of letters, digits, dots, - and _", cluster)
        if self._rules.needs_kraft:
            lines = ["version=1", f"node.id={node_id}", f"directory.id={_random_id()}"]
        else:
            lines = ["version=0", f"broker.id={node_id}"]
        return "\n".join(["#", *lines, f"cluster.id={cluster}", ""]).encode()

    def _partition_metadata(self, path: Path, topic_id: str) -> bytes | None:
        """Return a new ``partition.metadata``; None if it already has this topic id."""
        if not self._rules.partitions_have_topic_ids:
            raise ArgumentValueError(
                "topic_id", f"None for Kafka {self.version}, which has no topic ids", topic_id
            )
        try:
            data = pack_partition_metadata(topic_id)
        except ValueError as error:
            raise ArgumentValueError("topic_id", "16 bytes in URL-safe base64", topic_id) from error
        found = read_if_there(path / PARTITION_METADATA, CorruptCheckpointError)
        if found is None:
            return data
        try:
            known = parse_partition_metadata(found)
        except CorruptCheckpointError as error:
            raise error.located(path / PARTITION_METADATA) from error
        if known != topic_id:
            raise ArgumentValueError("topic_id", f"{known}, that of {path}", topic_id)
        return None

    def _create(self, topic_partition: TopicPartition, start_offset: int) -> RecoveredLog:
        """Create a partition directory; its writer creates the first segment."""
        path = self.path / str(topic_partition)
        self._is_half_opened = True  # until its writer is prepared
        self._begin()
        self._fs.mkdir(path)
        self._fs.fsync_directory(self.path)
        return RecoveredLog(
            path=path,
            segments=(RecoveredSegment(start_offset, 0, 0, start_offset, is_recovered=False),),
            deleted={},
            renamed={},
            cut={},
            written={},
            log_start_offset=start_offset,
            log_end_offset=start_offset,
            recovery_point=start_offset,
            leader_epochs=(),
            producers=ProducerState(rules=self._rules),
        )

    def _load(self, topic_partition: TopicPartition, config: LogConfig) -> RecoveredLog:
        """Load a partition as a broker does, without changes on disk.

        In contrast to a broker, recover the last segment if its index points beyond the end of the
        log, as its offsets would be assigned twice, or if it does not end with a complete batch.
        """
        log = LogView(self.path / str(topic_partition), topic_partition)
        recovery_point = self._recovery_points.get(topic_partition, 0)
        load = partial(
            recover_log,
            log,
            self.version,
            index_interval_bytes=config.index_interval_bytes,
            log_start_offset=self._log_start_offsets.get(topic_partition, 0),
            now=self._clock(),
        )
        if not self._was_clean:
            return load(is_clean=False, recovery_point=recovery_point)
        try:
            loaded = load(is_clean=True, recovery_point=recovery_point)
            active = loaded.segments[-1]
            if not active.is_recovered:
                end = log.log_end_offset
                if loaded.log_end_offset < end:
                    return load(is_clean=False, recovery_point=end)
                if segment_file_name(active.base_offset, LOG_SUFFIX) not in loaded.written:
                    check_end(LogSegment(log.path, active.base_offset))
        except CorruptBatchError:
            return load(is_clean=False, recovery_point=recovery_point)
        return loaded

    def _reload(self, writer: LogWriter) -> RecoveredLog:
        """Load a truncated partition, after its lower recovery point is checkpointed."""
        self._lower_recovery_point(writer)
        # A batch that was removed as a whole may have begun below the log start offset: a log that
        # ends before its start would be deleted.
        end = LogSegment(writer.path, writer.base_offsets[-1]).next_offset
        return recover_log(
            LogView(writer.path, writer.topic_partition),
            self.version,
            index_interval_bytes=writer.config.index_interval_bytes,
            is_clean=True,
            recovery_point=writer.recovery_point,
            log_start_offset=min(writer.log_start_offset, end),
            now=self._clock(),
        )

    def _lower_recovery_point(self, writer: LogWriter) -> None:
        """Checkpoint a recovery point that is lower than the last one.

        Otherwise, after a crash, later appends would count as flushed.
        """
        if writer.recovery_point < self._recovery_points.get(writer.topic_partition, 0):
            self.checkpoint()


def _random_id() -> str:
    """Return a random id as Kafka's: 22 characters of base64, no leading dash."""
    while True:
        text = encode_id(uuid.uuid4().bytes)
        if not text.startswith("-"):
            return text
