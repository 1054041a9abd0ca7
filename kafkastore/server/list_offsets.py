"""Answer a ListOffsets request as a broker does, partition by partition.

The checks, in this order; the first one that applies gives the answer:

1. A duplicate partition, from request version 1 on: INVALID_REQUEST.
2. A negative timestamp that the request version does not define, from Kafka 3.9 on:
   UNSUPPORTED_VERSION. Older brokers treat it as a time.
3. Whether the broker answers for the partition: `replica_lookup`.
4. LATEST_TIMESTAMP while the leader's high watermark has not reached the start of its epoch:
   OFFSET_NOT_AVAILABLE, and in versions before 5 LEADER_NOT_AVAILABLE. From Kafka 2.2 on.
5. The search, `kafkastore.lookup`, and in version 0 `kafkastore.legacy`. A time can't be looked up
   if ``message.format.version`` is before 0.10: UNSUPPORTED_FOR_MESSAGE_FORMAT.
6. No match while the high watermark has not reached the start of the epoch: as 4.

=======================  ================================================  ================
replica id               offsets are below                                 asks
=======================  ================================================  ================
-1, a consumer           the high watermark; under isolation level 1 the   the leader
                         last stable offset
-2, debugging            the log end                                       any replica
0 and above, a follower  the log end                                       the leader
=======================  ================================================  ================

Source: Kafka 2.4.0 ``KafkaApis.handleListOffsetRequest``, ``Partition.fetchOffsetForTimestamp``;
3.9.1 ``KafkaApis``; 4.1.1 ``ReplicaManager.fetchOffset``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kafkastore.arguments import check_kind, whole_number
from kafkastore.errors import (
    FieldValueError,
    UnsupportedFormatError,
    UnsupportedForMessageFormatError,
)
from kafkastore.formats.indexes.entries import TimestampAndOffset
from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.requests.list_offsets import (
    CONSUMER_REPLICA_ID,
    DEBUGGING_REPLICA_ID,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    FIRST_VERSION_WITH,
    FIRST_VERSION_WITH_EPOCHS,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    NEWEST_VERSION,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.legacy import fetch_offsets_before
from kafkastore.log.bounds import find_high_watermark
from kafkastore.server.cluster import Broker, PartitionState
from kafkastore.server.replica_lookup import get_log_or_error
from kafkastore.store.partition_log import PartitionLog
from kafkastore.versions import BrokerRules, rules_of

_FIRST_WITH_OFFSET_NOT_AVAILABLE = 5
#: Without tiered storage the answer is offset -1, which counts as found.
_TIERED_TIMESTAMPS = (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP)


def handle_list_offset_request(
    broker: Broker,
    request: ListOffsetsRequest,
    request_version: int,
    *,
    now: int | None = None,
    mtimes: Mapping[str, int] | None = None,
) -> ListOffsetsResponse:
    """Answer a request as a broker would.

    Parameters
    ----------
    broker : Broker
        The broker.
    request : ListOffsetsRequest
        The request.
    request_version : int
        The version of the request.
    now : int, optional
        The broker's clock for version 0, ms since 1970; by default this machine's clock.
    mtimes : mapping of str to int, optional
        Modification times for version 0, if the files have lost theirs; see
        `kafkastore.legacy.segment_times`.

    Returns
    -------
    ListOffsetsResponse
        With a row for every requested partition, in the order of the request. Brokers of 2.7 to 3.9
        repeat a partition that is requested repeatedly, others answer it once (in version 0 the
        last request for it), and all of them in arbitrary order.

    Raises
    ------
    UnsupportedFormatError
        If the broker does not support this version: it closes the connection.
    FieldValueError
        If the isolation level is neither 0 nor 1.
    UnknownVersionError
        If the broker's version is unknown.
    TypeError
        If an argument has another type.
    CorruptionError
        If the log is corrupt where the search reads it.
    InRemoteSegmentError, UnknownRemoteSegmentsError
        If an answer depends on segments in remote storage.

    Notes
    -----
    Authorization and quotas are not supported.

    Source: Kafka ``KafkaApis.handleListOffsetRequest``, versions as in the module docstring.
    """
    check_kind("broker", broker, Broker)
    check_kind("request", request, ListOffsetsRequest)
    version = whole_number("request_version", request_version)
    rules = rules_of(broker.version)
    oldest, newest = rules.list_offsets_versions
    if not oldest <= version <= newest:
        raise UnsupportedFormatError(
            f"Kafka {broker.version} supports ListOffsets versions {oldest} to {newest}, got "
            f"version {version}"
        )
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        raise FieldValueError("isolation level", f"must be 0 or 1, got {request.isolation_level}")
    counts = Counter(topic_partition for topic_partition, _ in _rows(request))
    duplicates = frozenset(each for each, count in counts.items() if count > 1 and version > 0)
    question = _Question(broker, rules, request, version, duplicates, now, mtimes)
    if rules.list_offsets_rows_are_kept:
        topics = [
            (topic.name, [question.answer(topic.name, asked) for asked in topic.partitions])
            for topic in request.topics
        ]
    else:
        found: dict[str, list[ListOffsetsPartitionResponse]] = {}
        for (topic, _), asked in dict(_rows(request)).items():
            found.setdefault(topic, []).append(question.answer(topic, asked))
        topics = list(found.items())
    return ListOffsetsResponse(
        tuple(ListOffsetsTopicResponse(name, tuple(answers)) for name, answers in topics)
    )


def _rows(request: ListOffsetsRequest) -> Iterator[tuple[TopicPartition, ListOffsetsPartition]]:
    """Yield the topic, partition and question of each row of a request."""
    for topic in request.topics:
        for asked in topic.partitions:
            yield TopicPartition(topic.name, asked.partition_index), asked


def is_timestamp_unsupported(timestamp: int, version: int, rules: BrokerRules) -> bool:
    """Return whether a broker rejects a timestamp in a version of the request.

    Source: Kafka 4.1.1 ``ReplicaManager.isListOffsetsTimestampUnsupported``.
    """
    if timestamp >= 0 or not rules.other_negatives_are_refused:
        return False
    return version < FIRST_VERSION_WITH.get(timestamp, NEWEST_VERSION + 1)


@dataclass(frozen=True, slots=True)
class _Question:
    """A request with everything that its answers depend on."""

    broker: Broker
    rules: BrokerRules
    request: ListOffsetsRequest
    version: int
    duplicates: frozenset[TopicPartition]
    now: int | None
    mtimes: Mapping[str, int] | None

    @property
    def is_from_consumer(self) -> bool:
        return self.request.replica_id == CONSUMER_REPLICA_ID

    def answer(self, topic: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        """Answer for one partition."""
        index = asked.partition_index
        topic_partition = TopicPartition(topic, index)
        if topic_partition in self.duplicates:
            return ListOffsetsPartitionResponse(index, ErrorCode.INVALID_REQUEST)
        if is_timestamp_unsupported(asked.timestamp, self.version, self.rules):
            return ListOffsetsPartitionResponse(index, ErrorCode.UNSUPPORTED_VERSION)
        log = get_log_or_error(
            self.broker,
            topic_partition,
            current_leader_epoch=asked.current_leader_epoch,
            require_leader=self.request.replica_id != DEBUGGING_REPLICA_ID,
        )
        if isinstance(log, ErrorCode):
            return ListOffsetsPartitionResponse(index, log)
        state = self.broker.metadata[topic_partition]
        if self.version == 0:
            return self._old_style_answer(log, state, asked)
        found = self._fetch_offset(log, state, asked.timestamp)
        if isinstance(found, ErrorCode):
            return ListOffsetsPartitionResponse(index, found)
        if found is None:
            return ListOffsetsPartitionResponse(index)
        response = ListOffsetsPartitionResponse(
            index, timestamp=found.timestamp, offset=found.offset
        )
        if self.version < FIRST_VERSION_WITH_EPOCHS or found.leader_epoch is None:
            return response
        return response._replace(leader_epoch=found.leader_epoch)

    def _old_style_answer(
        self, log: PartitionLog, state: PartitionState, asked: ListOffsetsPartition
    ) -> ListOffsetsPartitionResponse:
        """Answer version 0, by modification times."""
        if asked.max_num_offsets < 0:  # the broker fails to allocate the array
            return ListOffsetsPartitionResponse(
                asked.partition_index, ErrorCode.UNKNOWN_SERVER_ERROR
            )
        high_watermark = state.high_watermark if self.is_from_consumer else "log-end"
        offsets = fetch_offsets_before(
            log,
            asked.timestamp,
            asked.max_num_offsets,
            self.now,
            self.broker.version,
            self.mtimes,
            high_watermark=find_high_watermark(log, high_watermark).offset,
        )
        return ListOffsetsPartitionResponse(
            asked.partition_index, old_style_offsets=tuple(offsets)
        )

    def _fetch_offset(
        self, log: PartitionLog, state: PartitionState, timestamp: int
    ) -> TimestampAndOffset | ErrorCode | None:
        """Answer from version 1 on, as ``Partition.fetchOffsetForTimestamp`` does."""
        not_available = self._offset_not_available(log, state)
        if timestamp == LATEST_TIMESTAMP and not_available:
            return not_available
        is_committed = self.is_from_consumer and self.request.isolation_level == READ_COMMITTED
        try:
            found = log.list_offset(
                timestamp,
                self.broker.version,
                "read_committed" if is_committed else "read_uncommitted",
                high_watermark=state.high_watermark if self.is_from_consumer else "log-end",
                request_version=self.version,
                message_format_version=state.message_format_version,
                current_leader_epoch=state.leader_epoch,
            )
        except UnsupportedForMessageFormatError:
            return ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
        is_tiered = timestamp in _TIERED_TIMESTAMPS and timestamp in self.rules.special_timestamps
        return not_available if found is None and not_available and not is_tiered else found

    def _offset_not_available(self, log: PartitionLog, state: PartitionState) -> ErrorCode:
        """Return the error for a high watermark below the epoch's start, or NONE."""
        start = state.leader_epoch_start_offset
        if (
            start is None
            or not self.is_from_consumer
            or not self.rules.offsets_wait_for_high_watermark
            or start <= find_high_watermark(log, state.high_watermark).offset
        ):
            return ErrorCode.NONE
        if self.version < _FIRST_WITH_OFFSET_NOT_AVAILABLE:
            return ErrorCode.LEADER_NOT_AVAILABLE
        return ErrorCode.OFFSET_NOT_AVAILABLE
