"""A topic's configuration, as far as it affects its log, by Kafka's option names.

Source: Kafka 2.4.0, 4.1 and 4.4 ``LogConfig``, ``TopicConfig``, ``ConfigDef.parseType``.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from kafkastore.arguments import INT32_MAX, INT64_MAX
from kafkastore.errors import InvalidConfigError
from kafkastore.log.remote_log import RemoteStorage
from kafkastore.segment.recovery import INDEX_INTERVAL_BYTES
from kafkastore.shown_text import similar_names

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS

# Topic options without effect on the files of a log, or, as the levels of codecs, only on sizes.
_OF_OTHERS = frozenset(
    {
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "errors.deadletterqueue.group.enable",
        "flush.messages",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "max.compaction.lag.ms",
        "max.decompressed.message.bytes",
        "message.downconversion.enable",
        "message.format.version",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "remote.copy.lag.bytes",
        "remote.copy.lag.ms",
        "remote.log.delete.on.disable",
        "unclean.leader.election.enable",
    }
)
#: Sets both limits of a CreateTime, unless these are set too.
BOTH_TIME_LIMITS = "message.timestamp.difference.max.ms"
TIME_LIMITS = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")

# Smallest and largest value of each number, both inclusive.
_RANGES = {
    "segment_bytes": (14, INT32_MAX),
    "segment_ms": (1, INT64_MAX),
    "segment_jitter_ms": (0, INT64_MAX),
    "segment_index_bytes": (12, INT32_MAX),
    "index_interval_bytes": (0, INT32_MAX),
    "max_message_bytes": (0, INT32_MAX),
    "message_timestamp_before_max_ms": (0, INT64_MAX),
    "message_timestamp_after_max_ms": (0, INT64_MAX),
    "retention_ms": (-1, INT64_MAX),
    "retention_bytes": (-INT64_MAX - 1, INT64_MAX),
    "local_retention_ms": (-2, INT64_MAX),
    "local_retention_bytes": (-2, INT64_MAX),
    "delete_retention_ms": (0, INT64_MAX),
    "file_delete_delay_ms": (0, INT64_MAX),
}
_CHOICES = {
    "message_timestamp_type": ("CreateTime", "LogAppendTime"),
    "compression_type": ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
}
_CLEANUP_POLICIES = frozenset({"delete", "compact"})
_FLAGS = ("preallocate", "remote_storage_enable", "remote_log_copy_disable")
#: The local limit is that of the whole log.
_AS_THE_WHOLE = -2
#: Options that older brokers do not know: `LogConfig.to_options` leaves out their defaults.
_OF_TIERED_LOGS = (
    "local_retention_ms",
    "local_retention_bytes",
    "remote_storage_enable",
    "remote_log_copy_disable",
)


@dataclass(frozen=True, kw_only=True)
class LogConfig:
    """Configure a topic's log; the defaults are those of the newest known version.

    Each attribute is the topic option with ``_`` for ``.`` and ``-``.

    Parameters
    ----------
    segment_bytes : int
        Maximum size of a ``.log`` file.
    segment_ms, segment_jitter_ms : int
        Time after which a segment is rolled, and the maximum by which this is randomly shortened.
    segment_index_bytes : int
        Maximum size of an index file.
    index_interval_bytes : int
        Log bytes between two index entries.
    preallocate : bool
        Whether a new ``.log`` is created with its full size.
    max_message_bytes : int
        Maximum size of a batch.
    message_timestamp_type : str
        ``CreateTime`` or ``LogAppendTime``.
    message_timestamp_before_max_ms, message_timestamp_after_max_ms : int
        How far a CreateTime may be before and after the broker's clock. The option
        ``message.timestamp.difference.max.ms`` sets both.
    compression_type : str
        ``producer`` or a codec.
    cleanup_policy : frozenset of str
        ``delete``, ``compact``, both, or empty (Kafka 4.1).
    retention_ms, retention_bytes : int
        Negative: unlimited.
    local_retention_ms, local_retention_bytes : int
        The same for the segments on the broker's disks, if remote storage is enabled; -2: as the
        others.
    remote_storage_enable, remote_log_copy_disable : bool
        Whether segments are copied to remote storage, and whether that has ended.
    delete_retention_ms : int
        How long compaction keeps tombstones.
    file_delete_delay_ms : int
        How long a broker keeps a ``.deleted`` file.

    Raises
    ------
    InvalidConfigError
        If a value is invalid.

    Notes
    -----
    Source: Kafka 4.1 ``LogConfig``. Its minimum of 1 MiB for ``segment.bytes`` (KIP-1030) is not
    enforced: older brokers and their tests allow values down to 14.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * _DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = INDEX_INTERVAL_BYTES
    preallocate: bool = False
    max_message_bytes: int = 1048588
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = _HOUR_MS
    compression_type: str = "producer"
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    retention_ms: int = 7 * _DAY_MS
    retention_bytes: int = -1
    local_retention_ms: int = _AS_THE_WHOLE
    local_retention_bytes: int = _AS_THE_WHOLE
    remote_storage_enable: bool = False
    remote_log_copy_disable: bool = False
    delete_retention_ms: int = _DAY_MS
    file_delete_delay_ms: int = 60_000

    def __post_init__(self) -> None:
        for name, (smallest, largest) in _RANGES.items():
            number = _whole(value := getattr(self, name))
            if number is None or not smallest <= number <= largest:
                raise _invalid(name, value, f"an int from {smallest} to {largest}")
            object.__setattr__(self, name, number)  # a plain int, also for an integer of numpy
        for name in _FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise _invalid(name, getattr(self, name), "True or False")
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if not isinstance(value, str) or value not in allowed:
                raise _invalid(name, value, f"one of {', '.join(allowed)}")
        policy = self.cleanup_policy
        if not isinstance(policy, frozenset) or not policy <= _CLEANUP_POLICIES:
            if isinstance(policy, frozenset):
                shown = ",".join(sorted(map(str, policy)))
                raise _invalid("cleanup_policy", shown, "delete, compact, or delete,compact")
            raise _invalid("cleanup_policy", policy, "delete, compact or both, as a frozenset")

    @classmethod
    def of(cls, options: Mapping[str, object] | LogConfig | None = None) -> LogConfig:
        """Build a configuration from a topic's options.

        Parameters
        ----------
        options : mapping, LogConfig or None
            Values by Kafka's names, such as ``{"segment.bytes": "1048576"}``; strings are parsed as
            a broker parses them. A `LogConfig` is returned unchanged; None means the defaults.

        Returns
        -------
        LogConfig

        Raises
        ------
        InvalidConfigError
            If an option is not a Kafka topic option, or its value is invalid.

        Examples
        --------
        >>> LogConfig.of({"segment.bytes": "1048576"}).segment_bytes
        1048576
        """
        if isinstance(options, LogConfig):
            return options
        if not isinstance(options, Mapping | None):
            raise InvalidConfigError(
                "options", f"must be a mapping such as {{'segment.bytes': 100}}, got {options!r}"
            )
        values: dict[str, object] = {}
        for option, value in sorted((options or {}).items(), key=lambda item: str(item[0])):
            if not isinstance(option, str):
                raise _unknown(option)
            name = option.replace(".", "_")
            if option == BOTH_TIME_LIMITS:
                limit = _number(option, value)
                values.setdefault("message_timestamp_before_max_ms", limit)
                values.setdefault("message_timestamp_after_max_ms", limit)
            elif (name in _FIELDS and "." in option) or option == "preallocate":
                values[name] = _parsed(option, name, value)
            elif option not in _OF_OTHERS:
                raise _unknown(option)
        return cls(**values)  # type: ignore[arg-type]

    @property
    def remote_storage(self) -> RemoteStorage:
        """Whether the topic has remote storage; a compacted one never has.

        Source: Kafka 4.3.1 ``UnifiedLog.isRemoteLogEnabled``.
        """
        if not self.remote_storage_enable or "compact" in self.cleanup_policy:
            return RemoteStorage.OFF
        return RemoteStorage.COPY_DISABLED if self.remote_log_copy_disable else RemoteStorage.ON

    def retention_limits(self, storage: RemoteStorage) -> tuple[int, int]:
        """Return the largest age in ms and size in bytes of the segments here.

        Parameters
        ----------
        storage : RemoteStorage
            Whether more segments are copied to remote storage: then these are the local limits.

        Returns
        -------
        tuple of int
            Negative: unlimited.
        """
        limits = self.retention_ms, self.retention_bytes
        if storage is not RemoteStorage.ON:
            return limits
        local = self.local_retention_ms, self.local_retention_bytes
        age, size = (
            whole if here == _AS_THE_WHOLE else here
            for here, whole in zip(local, limits, strict=True)
        )
        return age, size

    def to_options(self) -> dict[str, str]:
        """Return all options as strings by Kafka's names, to configure a topic with.

        Without the defaults of those for remote storage, which older brokers do not know.
        """
        options = {}
        for field in _FIELDS.values():
            value = getattr(self, field.name)
            if field.name in _OF_TIERED_LOGS and value == field.default:
                continue
            if isinstance(value, frozenset):
                text = ",".join(sorted(value))
            else:
                text = str(value).lower() if isinstance(value, bool) else str(value)
            options[field.name.replace("_", ".")] = text
        return options


_FIELDS = {field.name: field for field in dataclasses.fields(LogConfig)}

#: All options that `LogConfig.of` accepts.
TOPIC_OPTIONS = _OF_OTHERS | {BOTH_TIME_LIMITS} | {name.replace("_", ".") for name in _FIELDS}


def _parsed(option: str, name: str, value: object) -> object:
    """Parse a value as ``ConfigDef`` does: trim strings, split lists at commas."""
    if name == "cleanup_policy":
        parts = value.split(",") if isinstance(value, str) else value
        try:
            return frozenset(str(part).strip() for part in parts) - {""}  # type: ignore[attr-defined]
        except TypeError:
            raise _invalid(option, value, "a list") from None
    if name in _FLAGS:
        text = str(value).strip().lower()
        if text not in ("true", "false"):
            raise _invalid(option, value, "true or false")
        return text == "true"
    if name in _RANGES:
        return _number(option, value)
    return value.strip() if isinstance(value, str) else value


def _number(option: str, value: object) -> int:
    """Parse an integer."""
    number = _whole(value)
    if isinstance(value, str) and "_" not in value:  # Python allows it, Java does not
        with suppress(ValueError):
            number = int(value.strip())
    if number is None:
        raise _invalid(option, value, "an int")
    return number


def _whole(value: object) -> int | None:
    """Return an integer of any type as an int; None for a bool or anything else."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def _invalid(name: str, value: object, wanted: str) -> InvalidConfigError:
    """Build the error for one option."""
    return InvalidConfigError(name.replace("_", "."), f"must be {wanted}, got {value!r}")


def _unknown(option: object) -> InvalidConfigError:
    """Build the error for an option that Kafka does not have."""
    names = [name.replace("_", ".") for name in _FIELDS]
    near = similar_names(str(option), names, cutoff=0.9)
    hint = f"; did you mean {near[0]}?" if near else ""
    return InvalidConfigError(str(option), f"is not a topic configuration of Kafka{hint}")
