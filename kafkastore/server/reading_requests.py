"""Answers about topics and offsets.

Source: Kafka 4.3.1 ``KafkaApis``, ``ReplicaManager``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from kafkastore.errors import (
    KafkaStoreError,
    UnsupportedForMessageFormatError,
    UnsupportedTimestampError,
)
from kafkastore.formats.messages.message_table import Values
from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.requests.apis import REQUESTS, ApiKey
from kafkastore.formats.requests.list_offsets import (
    CONSUMER_REPLICA_ID,
    FIRST_VERSION_WITH,
    FIRST_VERSION_WITH_EPOCHS,
    FIRST_VERSION_WITH_ISOLATION,
    LATEST_TIMESTAMP,
    NEWEST_VERSION,
    READ_COMMITTED,
)
from kafkastore.formats.state.file_names import INTERNAL_TOPICS, is_topic_name
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
#: Endpoints that DescribeCluster asks about.
_BROKERS, _CONTROLLERS = 1, 2
#: As a broker's ``max.request.partition.size.limit``.
_MAX_PARTITIONS = 2000
#: Source: Kafka 4.3.1 ``ApiVersionsRequest.isValid``.
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_FIRST_API_VERSIONS_WITH_ZERO = 4
_GROUP_VERSION = "group.version"
_UNREADABLE = (KafkaStoreError, OSError)


def _cluster_operations(request: Values) -> Values:
    """Return what clients may do, if they ask for it."""
    if not request["include_cluster_authorized_operations"]:
        return {}
    return {"cluster_authorized_operations": _CLUSTER_OPERATIONS}


def is_known_software(request: Values) -> bool:
    """Return whether a client names itself and its version."""
    fields = request["client_software_name"], request["client_software_version"]
    return all(_SOFTWARE.fullmatch(each) for each in fields)


def _unknown(topic: str) -> Values:
    """Describe a topic that is not served."""
    is_valid = is_topic_name(topic)
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_valid else ErrorCode.INVALID_TOPIC_EXCEPTION
    return {"error_code": error, "name": topic, "is_internal": topic in INTERNAL_TOPICS}


def _cursor(topic: str, partition: int) -> Values:
    return {"topic_name": topic, "partition_index": partition}
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

    def api_versions(
        self, keys: Collection[int], version: int, error: ErrorCode = ErrorCode.NONE
    ) -> Values:
        """Return the versions of the requests that are answered, and those of features."""
        return {
            "error_code": error,
            "api_keys": [
                {"api_key": key, "min_version": versions.oldest, "max_version": versions.newest}
                for key in sorted(keys)
                for versions in [REQUESTS.descriptions[key].versions]
            ],
            **self._features(keys, version),
        }

    def _features(self, keys: Collection[int], version: int) -> Values:
        """Return the levels in the cluster's metadata, that of groups as it is here.

        Clients of older versions can't read a feature whose oldest version is 0 (KAFKA-17011).
        """
        cluster = self.catalog.cluster
        levels: dict[str, int] = {}
        if cluster is not None and cluster.features:
            levels |= cluster.features
            # A quorum with voters in its log has a level that is not among these records.
            if cluster.quorum.version:
                levels["kraft.version"] = cluster.quorum.version
        levels.pop(_GROUP_VERSION, None)
        supported = []
        if ApiKey.CONSUMER_GROUP_HEARTBEAT in keys:
            levels[_GROUP_VERSION] = 1
            if version >= _FIRST_API_VERSIONS_WITH_ZERO:
                supported = [{"name": _GROUP_VERSION, "min_version": 0, "max_version": 1}]
        if not levels:
            return {}
        return {
            "supported_features": supported,
            "finalized_features_epoch": 0 if cluster is None else cluster.end_offset - 1,
            "finalized_features": [
                {"name": name, "max_version_level": level, "min_version_level": level}
                for name, level in levels.items()
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
            once = {(each["topic_id"], each["name"]): each for each in asked}
            topics = [self._asked_topic(each) for each in once.values()]
        for topic in topics:
            if request["include_topic_authorized_operations"]:
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
        return _unknown(asked["name"] or "") if found is None else self._topic(found)

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
        left = min(max(request["response_partition_limit"], 1), _MAX_PARTITIONS)
        cursor = request["cursor"]
        start = ("", 0) if cursor is None else (cursor["topic_name"], cursor["partition_index"])
        asked = {each["name"] for each in request["topics"]}
        if start[1] < 0 or (cursor is not None and asked and start[0] not in asked):
            return {
                "topics": [
                    {"name": each["name"], "error_code": ErrorCode.INVALID_REQUEST}
                    for each in request["topics"]
                ]
            }
        names = sorted(asked or self.catalog.topics)
        topics: list[Values] = []
        for name in names:
            if name < start[0]:
                continue
            if not left:
                return {"topics": topics, "next_cursor": _cursor(name, 0)}
            found = self.catalog.topics.get(name)
            described = _unknown(name) if found is None else self._topic(found)
            topics.append(described | {"topic_authorized_operations": _TOPIC_OPERATIONS})
            first = start[1] if name == start[0] else 0
            rows = [
                each for each in described.get("partitions", ())
                if each["partition_index"] >= first
            ]
            topics[-1]["partitions"] = rows[:left]
            if len(rows) > left:
                next_cursor = _cursor(name, rows[left]["partition_index"])
                return {"topics": topics, "next_cursor": next_cursor}
            left -= len(rows)
        return {"topics": topics}

    def describe_cluster(self, request: Values, _version: int) -> Values:
        """Describe the node."""
        if request["endpoint_type"] != _BROKERS:
            is_known = request["endpoint_type"] == _CONTROLLERS
            error = (
                ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known
                else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            )
            return {"error_code": error, "error_message": error.name}
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
            for topic in request["topics"] if topic["partitions"]
        ]
        return {"topics": topics}

    def _offset(self, topic: str, asked: Values, request: Values, version: int) -> Values:
        """Answer for one partition."""
        timestamp = asked["timestamp"]
        if self._is_unsupported(timestamp, version):
            return {"error_code": ErrorCode.UNSUPPORTED_VERSION}
        log = self.catalog.log(topic, asked["partition_index"])
        if log is None:
            return {"error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        log.follow()
        if error := epoch_error(log.leader_epoch, asked["current_leader_epoch"]):
            return {"error_code": error}
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
                and request["replica_id"] == CONSUMER_REPLICA_ID
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
            log.report(failure)
            return {"error_code": ErrorCode.KAFKA_STORAGE_ERROR}
        if found is None:
            return {}
        answer = {"timestamp": found.timestamp, "offset": found.offset}
        if version >= FIRST_VERSION_WITH_EPOCHS and found.leader_epoch is not None:
            answer["leader_epoch"] = found.leader_epoch
        return answer

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
