"""Answers about topics and offsets; nothing can be produced.

Source: Kafka 4.3.1 ``KafkaApis``, ``ReplicaManager``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from kafkastore.errors import (
    CorruptionError,
    KafkaStoreError,
    UnsupportedForMessageFormatError,
    UnsupportedTimestampError,
)
from kafkastore.formats.messages.message_table import Values
from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.requests.apis import REQUESTS
from kafkastore.formats.requests.list_offsets import (
    EARLIEST_TIMESTAMP,
    FIRST_VERSION_WITH,
    FIRST_VERSION_WITH_EPOCHS,
    FIRST_VERSION_WITH_ISOLATION,
    LATEST_TIMESTAMP,
    NEWEST_VERSION,
    READ_COMMITTED,
)
from kafkastore.legacy import fetch_offsets_before
from kafkastore.lookup.rules import CORRECT, KIP_33, LEGACY
from kafkastore.server.catalog import Catalog, Node, ServedTopic
from kafkastore.server.list_offsets import is_timestamp_unsupported
from kafkastore.server.replica_lookup import epoch_error
from kafkastore.server.served_log import ServedLog
from kafkastore.versions import rules_of

#: Operations that clients may do, as bits by Kafka's numbers: READ, DESCRIBE, DESCRIBE_CONFIGS.
_TOPIC_OPERATIONS = 1 << 3 | 1 << 8 | 1 << 10
_CLUSTER_OPERATIONS = 1 << 8 | 1 << 10
_FIRST_METADATA_BY_ID = 12
_UNREADABLE = (KafkaStoreError, OSError)


def _cluster_operations(request: Values) -> Values:
    """Return what clients may do, if they ask for it."""
    if not request["include_cluster_authorized_operations"]:
        return {}
    return {"cluster_authorized_operations": _CLUSTER_OPERATIONS}


def _has_ids(topics: Iterable[Values]) -> bool:
    """Return whether topics are named by their ids."""
    return any(each["topic_id"] is not None or each["name"] is None for each in topics)


def _refused(asked: Values) -> Values:
    return {
        "error_code": ErrorCode.INVALID_REQUEST,
        "name": asked["name"] or "",
        "topic_id": asked["topic_id"],
    }


@dataclass(frozen=True)
class ReadingRequests:
    """The answers of one node.

    `rules` are those for times: ``correct``, a version of Kafka, ``kip-33`` or ``legacy``.
    """

    catalog: Catalog
    node: Node
    rules: str = CORRECT

    def api_versions(self, keys: Iterable[int], error: ErrorCode = ErrorCode.NONE) -> Values:
        """Return the versions of the requests that are answered."""
        return {
            "error_code": error,
            "api_keys": [
                {"api_key": key, "min_version": versions.oldest, "max_version": versions.newest}
                for key in sorted(keys)
                for versions in [REQUESTS.descriptions[key].versions]
            ],
        }

    def metadata(self, request: Values, version: int) -> Values:
        """Describe the node and the topics that are asked for."""
        self.catalog.follow()
        asked = request["topics"]
        if version < _FIRST_METADATA_BY_ID and _has_ids(asked or ()):
            return {"topics": [_refused(each) for each in asked]}
        if asked is None or (version == 0 and not asked):
            topics = [self._topic(each) for each in self.catalog.topics.values()]
        else:
            topics = [self._asked_topic(each) for each in asked]
        for topic in topics:
            if request["include_topic_authorized_operations"] and not topic["error_code"]:
                topic["topic_authorized_operations"] = _TOPIC_OPERATIONS
        return {
            "brokers": [self.node._asdict()],
            "cluster_id": self.catalog.cluster_id,
            "controller_id": self.node.node_id,
            "topics": topics,
            **_cluster_operations(request),
        }

    def _asked_topic(self, asked: Values) -> Values:
        if asked["topic_id"] is not None:
            found = self.catalog.topics_by_id.get(asked["topic_id"])
            if found is None:
                return {
                    "error_code": ErrorCode.UNKNOWN_TOPIC_ID,
                    "name": None,
                    "topic_id": asked["topic_id"],
                }
            return self._topic(found)
        found = self.catalog.topics.get(asked["name"])
        if found is None:
            return {
                "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "name": asked["name"] or "",
            }
        return self._topic(found)

    def _topic(self, topic: ServedTopic) -> Values:
        return {
            "error_code": ErrorCode.NONE,
            "name": topic.name,
            "topic_id": topic.topic_id,
            "is_internal": topic.is_internal,
            "partitions": [
                self.partition(number, log) for number, log in sorted(topic.partitions.items())
            ],
        }

    def partition(self, number: int, log: ServedLog) -> Values:
        """Describe a partition: the node is its only replica."""
        replicas = [self.node.node_id]
        return {
            "error_code": ErrorCode.NONE,
            "partition_index": number,
            "leader_id": self.node.node_id,
            "leader_epoch": log.leader_epoch,
            "replica_nodes": replicas,
            "isr_nodes": replicas,
            "eligible_leader_replicas": (),
            "last_known_elr": (),
        }

    def describe_topic_partitions(self, request: Values, _version: int) -> Values:
        """Describe partitions, as many as asked for, from the cursor on."""
        self.catalog.follow()
        left = max(request["response_partition_limit"], 1)
        cursor = request["cursor"]
        names = sorted({each["name"] for each in request["topics"]} or self.catalog.topics)
        topics: list[Values] = []
        for name in names:
            first = 0
            if cursor is not None and name <= cursor["topic_name"]:
                if name < cursor["topic_name"]:
                    continue
                first = cursor["partition_index"]
            found = self.catalog.topics.get(name)
            if found is None:
                topics.append({
                    "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "name": name,
                })
                continue
            if not left:
                next_cursor = {"topic_name": name, "partition_index": first}
                return {"topics": topics, "next_cursor": next_cursor}
            described = self._topic(found) | {"topic_authorized_operations": _TOPIC_OPERATIONS}
            rows = [each for each in described["partitions"] if each["partition_index"] >= first]
            described["partitions"] = rows[:left]
            topics.append(described)
            if len(rows) > left:
                next_cursor = {
                    "topic_name": name, "partition_index": rows[left]["partition_index"],
                }
                return {"topics": topics, "next_cursor": next_cursor}
            left -= len(rows)
        return {"topics": topics}

    def describe_cluster(self, request: Values, _version: int) -> Values:
        """Describe the node."""
        return {
            "endpoint_type": request["endpoint_type"],
            "cluster_id": self.catalog.cluster_id,
            "controller_id": self.node.node_id,
            "brokers": [{
                "broker_id": self.node.node_id, "host": self.node.host, "port": self.node.port,
            }],
            **_cluster_operations(request),
        }

    def list_offsets(self, request: Values, version: int) -> Values:
        """Find the offsets at times, by the rules of this server."""
        counts = Counter(
            (topic["name"], row["partition_index"])
            for topic in request["topics"] for row in topic["partitions"]
        )
        topics = [
            {
                "name": topic["name"],
                "partitions": [
                    {"partition_index": row["partition_index"]}
                    | (
                        {"error_code": ErrorCode.INVALID_REQUEST}
                        if version and counts[topic["name"], row["partition_index"]] > 1
                        else self._offset(topic["name"], row, request, version)
                    )
                    for row in topic["partitions"]
                ],
            }
            for topic in request["topics"]
        ]
        return {"topics": topics}

    def _offset(self, topic: str, asked: Values, request: Values, version: int) -> Values:
        """Answer for one partition."""
        log = self.catalog.log(topic, asked["partition_index"])
        if log is None:
            return {"error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        log.follow()
        if error := epoch_error(log.leader_epoch, asked["current_leader_epoch"]):
            return {"error_code": error}
        timestamp = asked["timestamp"]
        if self._is_unsupported(timestamp, version):
            return {"error_code": ErrorCode.UNSUPPORTED_VERSION}
        try:
            if version == 0:
                offsets = fetch_offsets_before(
                    log.log, timestamp, max(asked["max_num_offsets"], 0)
                )
                return {"old_style_offsets": list(offsets)}
            if timestamp == LATEST_TIMESTAMP and self.rules == CORRECT:
                return self._latest(log, request, version)
            by_rules = self._version_of_rules(version)
            is_committed = (
                request["isolation_level"] == READ_COMMITTED
                and by_rules is not None
                and by_rules >= FIRST_VERSION_WITH_ISOLATION
            )
            found = log.log.list_offset(
                timestamp,
                self.rules,
                "read_committed" if is_committed else "read_uncommitted",
                request_version=by_rules,
                current_leader_epoch=log.leader_epoch,
                on_corrupt=log.on_corrupt,
                skipped=log.skipped,
            )
        except UnsupportedTimestampError:
            return {"error_code": ErrorCode.UNSUPPORTED_VERSION}
        except UnsupportedForMessageFormatError:
            return {"error_code": ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT}
        except _UNREADABLE as failure:
            if isinstance(failure, CorruptionError) and timestamp == EARLIEST_TIMESTAMP:
                return self._earliest(log, version)    # whatever is corrupt after it
            log.report(failure)
            return {"error_code": ErrorCode.KAFKA_STORAGE_ERROR}
        if found is None:
            return {}
        answer = {"timestamp": found.timestamp, "offset": found.offset}
        if version >= FIRST_VERSION_WITH_EPOCHS and found.leader_epoch is not None:
            answer["leader_epoch"] = found.leader_epoch
        return answer

    @staticmethod
    def _earliest(log: ServedLog, version: int) -> Values:
        """Return the log start offset."""
        start = log.log.log_start_offset
        epoch = log.epoch_of(start) if version >= FIRST_VERSION_WITH_EPOCHS else None
        return {"offset": start} | ({} if epoch is None else {"leader_epoch": epoch})

    @staticmethod
    def _latest(log: ServedLog, request: Values, version: int) -> Values:
        """Return where consumers' records end, as Fetch does."""
        end = log.bounds.end
        if (
            version >= FIRST_VERSION_WITH_ISOLATION
            and request["isolation_level"] == READ_COMMITTED
        ):
            end = log.last_stable_offset(end).offset
        epoch = {"leader_epoch": log.leader_epoch} if version >= FIRST_VERSION_WITH_EPOCHS else {}
        return {"offset": end} | epoch

    def _is_unsupported(self, timestamp: int, version: int) -> bool:
        """Return whether a timestamp is none of a version; older brokers look up any."""
        if self.rules not in (CORRECT, KIP_33, LEGACY):
            return is_timestamp_unsupported(timestamp, version, rules_of(self.rules))
        return timestamp < 0 and version < FIRST_VERSION_WITH.get(timestamp, NEWEST_VERSION + 1)

    def _version_of_rules(self, version: int) -> int | None:
        """Return the nearest version that the rules know; None: they have none."""
        if self.rules == LEGACY:
            return None
        if self.rules in (CORRECT, KIP_33):
            return version
        oldest, newest = rules_of(self.rules).list_offsets_versions
        return min(max(version, oldest, 1), newest)

    def offset_for_leader_epoch(self, request: Values, _version: int) -> Values:
        """Find where leader epochs end."""
        return {
            "topics": [
                {
                    "topic": topic["topic"],
                    "partitions": [
                        {"partition": row["partition"]} | self._end_of_epoch(topic["topic"], row)
                        for row in topic["partitions"]
                    ],
                }
                for topic in request["topics"]
            ]
        }

    def _end_of_epoch(self, topic: str, asked: Values) -> Values:
        log = self.catalog.log(topic, asked["partition"])
        if log is None:
            return {"error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        log.follow()
        if error := epoch_error(log.leader_epoch, asked["current_leader_epoch"]):
            return {"error_code": error}
        try:
            epoch, end_offset = log.end_of_epoch(asked["leader_epoch"])
        except _UNREADABLE:
            return {"error_code": ErrorCode.KAFKA_STORAGE_ERROR}
        return {"leader_epoch": epoch, "end_offset": end_offset}

    def refuse_produce(self, request: Values, _version: int) -> Values:
        """Refuse each partition: this node has nothing that can be written."""
        return {
            "responses": [
                {
                    **{name: topic[name] for name in ("name", "topic_id")},
                    "partition_responses": [
                        {
                            "index": row["index"],
                            "error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                            "base_offset": -1,
                            "error_message": "kafkastore serves directories for reading only",
                        }
                        for row in topic["partition_data"]
                    ],
                }
                for topic in request["topic_data"]
            ]
        }
