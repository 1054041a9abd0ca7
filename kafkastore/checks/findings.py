"""Findings of a check: their kinds, locations and remedies."""
from __future__ import annotations

import enum
import shlex
from pathlib import Path
from typing import NamedTuple, Self

from kafkastore.errors import NotAFileError
from kafkastore.paths import to_path


class Severity(enum.StrEnum):
    """The severity of a finding; compare with `is_at_least`.

    `STYLE`: no wrong answers. `SLOW`: a broker's start or a search takes longer. `WRONG_ANSWERS`:
    some lookup or read returns a wrong result. `DATA_LOSS_RISK`: a broker would truncate or delete
    records.
    """

    STYLE = "style"
    SLOW = "slow"
    WRONG_ANSWERS = "wrong-answers"
    DATA_LOSS_RISK = "data-loss-risk"

    def is_at_least(self, other: Severity) -> bool:
        """Return whether this severity is equal to or higher than `other`."""
        order = list(Severity)
        return order.index(self) >= order.index(other)


_STYLE, _SLOW, _WRONG, _RISK = Severity

_EMPTIED = "a broker that recovers this segment may empty it"
_TRUNCATED = (
    "a broker that recovers this segment truncates it here: it deletes the valid batches after it "
    "and all later segments"
)
_NOT_CONSUMED = "consumers fail at this batch"
_EPOCHS_COMPARED = "followers that compare leader epochs may truncate at the wrong offset"
_NO_LOOKUP = "lookups by time do not find the records at their real time"
_KEPT = f"{_NO_LOOKUP}, and time-based retention never deletes this segment and later ones"
_STRAY = "a broker of a KRaft cluster treats the partition as stray, and renames its directory"
_REBUILT = "a broker rebuilds the index at its next start"
_ABORTED_SERVED = "consumers with read_committed receive records of aborted transactions"
_COMMITTED_MISSED = "consumers with read_committed miss committed records"
_MODIFICATION_TIME_MAY_BE_LOST = (
    "a broker uses the modification time, which copies may lose; a time index entry would keep it "
    "(KIP-33)"
)
_MODIFICATION_TIME = (
    "a broker uses the modification time instead: lookups by time give wrong answers"
)
_SEARCHED = "a broker that loads it searches them like real entries"
_ASSIGNED_AGAIN = "treats the segment as empty and assigns the same offsets again"
_NO_START = "a broker does not start if its log directory contains this directory"
_DELETED = "a broker deletes it at its next start"


class FindingKind(enum.StrEnum):
    """The fault that a finding reports; each has one severity and one consequence.

    Attributes
    ----------
    severity : Severity
        How bad it is.
    consequence : str
        Its effect on a broker or a reader.
    """

    severity: Severity
    consequence: str

    # Type checkers take this signature for that of the lookup by value: so there are defaults.
    def __new__(cls, value: str, severity: Severity = _STYLE, consequence: str = "") -> Self:
        """Make a member of its value, with what is constant for the kind."""
        member = str.__new__(cls, value)
        member._value_, member.severity, member.consequence = value, severity, consequence
        return member

    # Logs.
    CHECKSUM_MISMATCH = "checksum-mismatch", _RISK, _TRUNCATED
    CORRUPT_BATCH = "corrupt-batch", _RISK, _TRUNCATED
    UNREADABLE_LOG = ("unreadable-log", _RISK,
        "a broker that reads it takes the log directory offline")
    UNOPENED_FILE = ("unopened-file", _RISK,
        "a broker takes the log directory offline, or does not start")
    NOT_A_FILE = ("not-a-file", _RISK,
        "a broker fails to read it, treats it as missing, or only checks whether it exists")
    INCOMPLETE_BATCH = ("incomplete-batch", _RISK,
        "a broker that recovers this segment truncates it, and deletes all later segments")
    BYTES_AFTER_CLEAN_SHUTDOWN = ("bytes-after-clean-shutdown", _RISK,
        ("after a clean shutdown a broker does not start, or appends batches that no reader finds"))
    INCOMPLETE_LAST_BATCH = ("incomplete-last-batch", _STYLE,
        "a batch is incomplete; a broker that recovers this segment truncates it")
    OUT_OF_ORDER_OFFSETS = "out-of-order-offsets", _RISK, _EMPTIED
    BATCH_OUTSIDE_SEGMENT = "batch-outside-segment", _RISK, _EMPTIED
    WRONG_RECORD_COUNT = "wrong-record-count", _WRONG, _NOT_CONSUMED
    UNKNOWN_COMPRESSION_TYPE = "unknown-compression-type", _WRONG, _NOT_CONSUMED
    UNKNOWN_ATTRIBUTES = "unknown-attributes", _STYLE, "readers ignore these bits"
    DECREASING_LEADER_EPOCH = "decreasing-leader-epoch", _WRONG, _EPOCHS_COMPARED
    NEGATIVE_LEADER_EPOCH = "negative-leader-epoch", _WRONG, _EPOCHS_COMPARED
    TIMESTAMP_IN_SECONDS = ("timestamp-in-seconds", _RISK,
        f"{_NO_LOOKUP}, and time-based retention deletes them immediately")
    KEPT_TIMESTAMP_IN_SECONDS = ("kept-timestamp-in-seconds", _WRONG,
        f"{_NO_LOOKUP}; the topic's configuration has no time-based retention")
    TIMESTAMP_IN_MICROSECONDS = "timestamp-in-microseconds", _WRONG, _KEPT
    TIMESTAMP_IN_NANOSECONDS = "timestamp-in-nanoseconds", _WRONG, _KEPT
    NEGATIVE_TIMESTAMP = ("negative-timestamp", _STYLE,
        ("no lookup by time finds its records; a broker uses the modification time of a segment "
        "without other timestamps"))
    FUTURE_TIMESTAMP = ("future-timestamp", _STYLE,
        ("lookups use the timestamps as they are; time-based retention keeps this segment and "
        "later ones until then"))
    CORRUPT_TRANSACTION_MARKER = ("corrupt-transaction-marker", _RISK,
        "a broker that recovers this segment truncates the log here")
    OPEN_TRANSACTIONS = ("open-transactions", _STYLE,
        "read_committed consumers wait there until the transaction ends or times out")
    MISSING_OFFSETS = ("missing-offsets", _STYLE,
        "normal if the log was compacted or repaired; otherwise a segment is lost")
    LOST_LOG = ("lost-log", _RISK,
        ("its records are not read; a broker deletes the index at its next start; then nothing "
        "shows that the segment existed"))

    # Indexes.
    CORRUPT_INDEX = "corrupt-index", _WRONG, "a broker that loads it searches invalid entries"
    UNREADABLE_INDEX = ("unreadable-index", _WRONG,
        "a broker takes the log directory offline at the first such error")
    INCOMPLETE_INDEX_ENTRY = ("incomplete-index-entry", _WRONG,
        "a broker ignores the incomplete entry: lookups may give wrong answers")
    MISSING_OFFSET_INDEX = ("missing-offset-index", _SLOW,
        "a broker reads the whole segment at its next start to rebuild it")
    EMPTY_OFFSET_INDEX = "empty-offset-index", _SLOW, "each read in this segment starts at byte 0"
    ZERO_OFFSET_INDEX_ENTRIES = "zero-offset-index-entries", _WRONG, _SEARCHED
    OFFSET_INDEX_BEYOND_LOG_END = ("offset-index-beyond-log-end", _WRONG,
        "reads from there return nothing")
    LOADED_OFFSET_INDEX_BEYOND_LOG_END = ("loaded-offset-index-beyond-log-end", _RISK,
        f"a broker that loads it {_ASSIGNED_AGAIN}")
    OFFSET_INDEX_LEFT_BY_CRASH = "offset-index-left-by-crash", _STYLE, _REBUILT
    OFFSET_INDEX_MISMATCH = ("offset-index-mismatch", _WRONG,
        "reads and lookups from there miss records or fail")
    LOADED_OFFSET_INDEX_MISMATCH = ("loaded-offset-index-mismatch", _RISK,
        f"a broker that loads it does not start, or {_ASSIGNED_AGAIN}")
    MISSING_TIME_INDEX = "missing-time-index", _WRONG, _MODIFICATION_TIME
    EMPTY_TIME_INDEX = "empty-time-index", _WRONG, _MODIFICATION_TIME
    MISSING_TIME_INDEX_WITHOUT_TIMESTAMPS = ("missing-time-index-without-timestamps", _STYLE,
        _MODIFICATION_TIME_MAY_BE_LOST)
    EMPTY_TIME_INDEX_WITHOUT_TIMESTAMPS = ("empty-time-index-without-timestamps", _STYLE,
        _MODIFICATION_TIME_MAY_BE_LOST)
    MISSING_TIME_INDEX_OF_UNREAD_LOG = ("missing-time-index-of-unread-log", _STYLE,
        "a broker uses the modification time as the time of the segment")
    ZERO_TIME_INDEX_ENTRIES = ("zero-time-index-entries", _RISK,
        ("a broker that loads it takes 0 (1970) as the segment's largest timestamp: lookups skip "
        "the segment, and time-based retention deletes it"))
    KEPT_ZERO_TIME_INDEX_ENTRIES = ("kept-zero-time-index-entries", _WRONG,
        ("a broker that loads it takes 0 (1970) as the segment's largest timestamp: lookups skip "
        "the segment; the topic's configuration has no time-based retention"))
    ZERO_TIME_INDEX_ENTRIES_IN_ACTIVE_SEGMENT = (
        "zero-time-index-entries-in-active-segment", _WRONG,
        ("a broker that loads it takes 0 (1970) as the segment's largest timestamp: lookups skip "
        "the segment"))
    TIME_INDEX_MISMATCH = ("time-index-mismatch", _WRONG,
        "lookups by time may skip records or return no answer")
    TIME_INDEX_LEFT_BY_CRASH = "time-index-left-by-crash", _STYLE, _REBUILT
    TIME_INDEX_ENDS_EARLY = ("time-index-ends-early", _WRONG,
        "lookups of times between the last entry and the largest timestamp skip this segment")
    TIME_INDEX_WITHOUT_TIMESTAMPS = ("time-index-without-timestamps", _WRONG,
        ("a broker uses the last entry as the time of the segment: lookups by time and retention "
        "are wrong"))
    CORRUPT_TRANSACTION_INDEX = ("corrupt-transaction-index", _WRONG,
        "a broker takes the log directory offline, or ignores the error")
    INCOMPLETE_TRANSACTION_INDEX_ENTRY = ("incomplete-transaction-index-entry", _WRONG,
        "a broker appends its next entry after the incomplete one, and then reads wrong entries")
    OUT_OF_ORDER_TRANSACTION_INDEX = "out-of-order-transaction-index", _WRONG, _ABORTED_SERVED
    MISSING_ABORT_MARKER = "missing-abort-marker", _WRONG, _COMMITTED_MISSED
    ABORTED_TRANSACTION_BEGINS_LATE = "aborted-transaction-begins-late", _WRONG, _ABORTED_SERVED
    ABORTED_TRANSACTION_BEGINS_EARLY = "aborted-transaction-begins-early", _WRONG, _COMMITTED_MISSED
    WRONG_LAST_STABLE_OFFSET = "wrong-last-stable-offset", _WRONG, _ABORTED_SERVED
    MISSING_ABORTED_TRANSACTIONS = "missing-aborted-transactions", _WRONG, _ABORTED_SERVED

    # Producers and leader epochs.
    CORRUPT_PRODUCER_SNAPSHOT = ("corrupt-producer-snapshot", _SLOW,
        "a broker deletes it when it starts, and reads the log from an older snapshot on")
    PRODUCER_SNAPSHOT_MISMATCH = ("producer-snapshot-mismatch", _WRONG,
        "a broker that loads it accepts a duplicate batch, or refuses a valid one")
    PRODUCER_SNAPSHOT_OUTSIDE_LOG = "producer-snapshot-outside-log", _STYLE, _DELETED
    CORRUPT_LEADER_EPOCH_CHECKPOINT = ("corrupt-leader-epoch-checkpoint", _WRONG,
        "a broker takes the log directory offline, or does not start")
    LEADER_EPOCH_MISMATCH = ("leader-epoch-mismatch", _WRONG,
        "replicas that ask where an epoch ends truncate their logs to a wrong offset")
    LEADER_EPOCH_BEYOND_LOG_END = ("leader-epoch-beyond-log-end", _STYLE,
        "a broker removes the line when it starts")
    MISSING_LEADER_EPOCH = ("missing-leader-epoch", _STYLE,
        "replicas that ask for it truncate their logs to their high watermarks")
    NO_LEADER_EPOCHS = ("no-leader-epochs", _STYLE,
        "replicas of this log truncate theirs to their high watermarks")

    # Names.
    UNEXPECTED_DIRECTORY = "unexpected-directory", _WRONG, _NO_START
    DUPLICATE_DIRECTORY = "duplicate-directory", _WRONG, _NO_START
    STRAY_DIRECTORY = ("stray-directory", _STYLE,
        "a broker from 3.6.1 on loads it but does not serve it; an older one does not start")
    FUTURE_DIRECTORY = ("future-directory", _STYLE,
        "a broker continues the move; it is checked like a partition")
    IGNORED_DIRECTORY = "ignored-directory", _STYLE, "its records, if any, are not read"
    DUPLICATE_PARTITION = ("duplicate-partition", _WRONG,
        "a broker does not start with a partition in two of its log directories")
    INVALID_FILE_NAME = ("invalid-file-name", _WRONG,
        ("a broker does not start, or loads it under another base offset; kafkastore does not read "
        "its records"))
    INDEX_WITHOUT_LOG = "index-without-log", _STYLE, _DELETED
    TEMPORARY_FILE = "temporary-file", _STYLE, _DELETED
    SWAP_FILE = ("swap-file", _STYLE,
        "a broker replaces segments with it, or deletes it, at its next start")
    CORRUPT_SWAP_FILE = ("corrupt-swap-file", _RISK,
        "a broker truncates it there, and replaces the original segments with it")
    UNFINISHED_JOB_FILE = ("unfinished-job-file", _STYLE,
        "no program reads it; the job may have changed other files")

    # Checkpoints and identities.
    LOG_END_BELOW_LOG_START = ("log-end-below-log-start", _RISK,
        "a broker from 2.3 on deletes all its segments when it starts")
    LOG_END_AFTER_CLEAN_SHUTDOWN = ("log-end-after-clean-shutdown", _WRONG,
        "the offset of the last batch is corrupt, or batches were added after the shutdown")
    RECOVERY_POINT_BEYOND_LOG_END = ("recovery-point-beyond-log-end", _STYLE,
        "flushed records are missing, or the log was truncated: a broker lowers it")
    HIGH_WATERMARK_BEYOND_LOG_END = ("high-watermark-beyond-log-end", _STYLE,
        "replicated records are missing, or the log was truncated: a broker lowers it")
    HIGH_WATERMARK_BELOW_LOG_START = ("high-watermark-below-log-start", _STYLE,
        "a broker raises it")
    CORRUPT_CHECKPOINT = ("corrupt-checkpoint", _WRONG,
        "a broker takes this log directory offline, and stops if it is the only one")
    UNKNOWN_PARTITIONS_IN_CHECKPOINT = ("unknown-partitions-in-checkpoint", _STYLE,
        "a broker ignores them, and omits them when it rewrites the file")
    MISSING_RECOVERY_POINTS = ("missing-recovery-points", _STYLE,
        "a broker recovers all their segments, unless it was shut down cleanly")
    MISSING_HIGH_WATERMARKS = ("missing-high-watermarks", _STYLE,
        "a broker starts at their log start offsets, and raises them")
    CORRUPT_PARTITION_METADATA = ("corrupt-partition-metadata", _WRONG,
        "a broker from 2.8 on takes the log directory offline")
    MISSING_TOPIC_ID = "missing-topic-id", _WRONG, _STRAY
    TOPIC_ID_MISMATCH = ("topic-id-mismatch", _WRONG,
        ("a topic was deleted and created again: a broker renames the partition of the old one, or "
        "refuses it and may not serve others"))
    NOT_IN_CLUSTER = "not-in-cluster", _WRONG, _STRAY
    NOT_A_REPLICA = "not-a-replica", _WRONG, _STRAY
    MISSING_PARTITION = ("missing-partition", _WRONG,
        ("a broker creates it empty at its next start, and other replicas may truncate theirs if "
        "it becomes the leader"))
    CLUSTER_MISMATCH = ("cluster-mismatch", _WRONG,
        "a broker does not start with log directories of several clusters")
    BROKER_MISMATCH = ("broker-mismatch", _WRONG,
        "a broker does not start with log directories of several brokers")
    DUPLICATE_DIRECTORY_ID = ("duplicate-directory-id", _WRONG,
        "a broker does not start with two log directories that have the same id")
    CORRUPT_META_PROPERTIES = "corrupt-meta-properties", _WRONG, "a broker does not start"

    # Modification times.
    LOST_MODIFICATION_TIMES = ("lost-modification-times", _WRONG,
        ("a broker uses them for segments without time index entries: lookups and retention by "
        "time are wrong"))
    DOUBTFUL_MODIFICATION_TIMES = ("doubtful-modification-times", _STYLE,
        ("a broker uses them for segments without time index entries: lookups and retention by "
        "time may be wrong"))
    LOST_UNUSED_MODIFICATION_TIMES = ("lost-unused-modification-times", _STYLE,
        "none as long as all segments have time index entries")


class Finding(NamedTuple):
    """One problem that a check found.

    Attributes
    ----------
    kind : FindingKind
        The fault, which decides the severity and the consequence.
    path : Path
        The file, or the directory where a file is missing.
    position : int or None
        Byte position in the file; None for the whole file.
    what : str
        The problem.
    remedy : str
        The command that repairs it, or an instruction.
    """

    kind: FindingKind
    path: Path
    position: int | None
    what: str
    remedy: str = "none needed"

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return self.kind.severity

    @property
    def consequence(self) -> str:
        """Its effect on a broker or a reader."""
        return self.kind.consequence


def command(name: str, directory: Path) -> str:
    """Return the shell command that repairs a partition, with the path quoted.

    `name` includes options, for example ``"repair --on-corrupt skip"``.
    """
    return f"kafkastore {name} {shlex.quote(str(directory))}"


def no_file(error: NotAFileError) -> Finding:
    """Report a path that is not a regular file."""
    return Finding(
        FindingKind.NOT_A_FILE, to_path(error.path), None,
        f"it is {error.kind} and not a regular file",
        "look for the real file, then move this one away",
    )
