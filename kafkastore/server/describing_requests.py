"""What administrators ask about disks and transactions.

Source: Kafka 4.3.1 ``ReplicaManager.describeLogDirs``, ``UnifiedLog.activeProducers``,
``TransactionCoordinator``, ``TransactionStateManager.listTransactionStates``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from kafkastore.errors import KafkaStoreError
from kafkastore.formats.messages.message_table import Values
from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.state.file_names import is_topic_name
from kafkastore.formats.topics.transaction_state import TransactionState
from kafkastore.log.isolation import producers_at
from kafkastore.server.catalog import Catalog
from kafkastore.server.served_log import ServedLog
from kafkastore.use_cases.open_transactions import (
    TRANSACTION_STATE,
    TransactionalId,
    read_coordinators,
)

#: Kafka's names of the states, such as ``PrepareCommit``.
_STATES: Mapping[int, str] = {
    each: each.name.title().replace("_", "") for each in TransactionState
}
_NO_TIME = -1


class DescribingRequests:
    """The answers of one node."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    def describe_acls(self, _request: Values, _version: int) -> Values:
        """Say that there are no ACLs, as a broker without an authorizer does."""
        return {
            "error_code": ErrorCode.SECURITY_DISABLED,
            "error_message": "No Authorizer is configured on the broker",
        }

    def describe_log_dirs(self, request: Values, _version: int) -> Values:
        """Return the sizes of partitions by log directory."""
        self.catalog.follow()
        wanted = None if request["topics"] is None else {
            (each["topic"], number) for each in request["topics"] for number in each["partitions"]
        }
        found: dict[Path, dict[str, list[Values]]] = {
            log_dir.path: {} for log_dir in self.catalog.store.log_dirs
        }
        for topic in self.catalog.topics.values():
            for number, served in topic.partitions.items():
                if wanted is None or (topic.name, number) in wanted:
                    topics = found.setdefault(served.log.path.parent, {})
                    topics.setdefault(topic.name, []).append({
                        "partition_index": number,
                        "partition_size": sum(each.size for each in served.log.segments),
                    })
        return {
            "results": [
                {
                    "log_dir": str(path),
                    "topics": [
                        {"name": name, "partitions": rows} for name, rows in topics.items()
                    ],
                    **_space(path),
                }
                for path, topics in found.items()
            ]
        }

    def describe_producers(self, request: Values, _version: int) -> Values:
        """Return the producers that partitions remember."""
        return {
            "topics": [
                {
                    "name": topic["name"],
                    "partitions": [
                        {"partition_index": number}
                        | self._producers(topic["name"], number)
                        for number in topic["partition_indexes"]
                    ],
                }
                for topic in request["topics"]
            ]
        }

    def _producers(self, topic: str, number: int) -> Values:
        """Return the producers of one partition."""
        if not is_topic_name(topic):
            return _refused(ErrorCode.INVALID_TOPIC_EXCEPTION)
        served = self.catalog.log(topic, number)
        return _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) if served is None else _active(served)

    def list_transactions(self, request: Values, _version: int) -> Values:
        """List transactional ids, as their coordinators wrote them last."""
        states = set(request["state_filters"])
        producers = set(request["producer_id_filters"])
        known = self._transactional_ids()
        try:
            matching = _matching(request["transactional_id_pattern"], list(known))
        except (ImportError, ValueError):
            return {"error_code": ErrorCode.INVALID_REGULAR_EXPRESSION}
        since = time.time() * 1000 - request["duration_filter"]
        return {
            "unknown_state_filters": sorted(states - set(_STATES.values())),
            "transaction_states": [
                {
                    "transactional_id": each.transactional_id,
                    "producer_id": each.producer_id,
                    "transaction_state": _state(each),
                }
                for each in known.values()
                if (not states or _state(each) in states)
                and (not producers or each.producer_id in producers)
                and (
                    request["duration_filter"] < 0
                    or (each.start_timestamp is not None and each.start_timestamp < since)
                )
                and each.transactional_id in matching
            ],
        }

    def describe_transactions(self, request: Values, _version: int) -> Values:
        """Describe transactional ids."""
        known = self._transactional_ids()
        return {
            "transaction_states": [
                {"transactional_id": name}
                | (self._described(known[name]) if name in known else _not_found(name))
                for name in request["transactional_ids"]
            ]
        }

    def _described(self, found: TransactionalId) -> Values:
        """Describe a transactional id, with the partitions that are served."""
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(found.partitions):
            if not self.catalog.is_hidden(topic):
                topics.setdefault(topic, []).append(partition)
        start = found.start_timestamp
        return {
            "transaction_state": _state(found),
            "transaction_timeout_ms": found.timeout_ms,
            "transaction_start_time_ms": _NO_TIME if start is None else start,
            "producer_id": found.producer_id,
            "producer_epoch": found.producer_epoch,
            "topics": [{"topic": name, "partitions": each} for name, each in topics.items()],
        }

    def _transactional_ids(self) -> Mapping[str, TransactionalId]:
        if self.catalog.is_hidden(TRANSACTION_STATE):
            return {}
        found = read_coordinators(self.catalog.store, unreadable={})
        ids = {} if found is None else found.by_producer
        return {each.transactional_id: each for each in ids.values()}


def _space(path: Path) -> Values:
    """Return the size of a directory's disk, if it is a local one."""
    try:
        disk = os.statvfs(path)
    except OSError:
        return {}
    return {
        "total_bytes": disk.f_blocks * disk.f_frsize,
        "usable_bytes": disk.f_bavail * disk.f_frsize,
    }


def _matching(pattern: str | None, names: list[str]) -> Collection[str]:
    """Return the names that match a pattern as a whole; ValueError if it is invalid.

    Arrow and brokers have RE2, with which no pattern of a client takes long.
    """
    if not pattern:
        return names
    import pyarrow as pa
    import pyarrow.compute as pc

    pc.match_substring_regex(pa.array([""]), pattern)    # valid by itself
    array = pa.array(names, pa.string())
    is_matched = pc.match_substring_regex(array, rf"\A(?:{pattern})\z")
    return set(array.filter(is_matched).to_pylist())


def _refused(error: ErrorCode) -> Values:
    return {"error_code": error, "error_message": error.name}


def _active(served: ServedLog) -> Values:
    """Return the producers that a log remembers."""
    log = served.log
    try:
        producers = producers_at(log, log.log_end_offset)
    except (KafkaStoreError, OSError):
        return _refused(ErrorCode.KAFKA_STORAGE_ERROR)
    return {
        "active_producers": [
            {
                "producer_id": int(each["producer_id"]),
                "producer_epoch": int(each["producer_epoch"]),
                "last_sequence": int(each["last_sequence"]),
                "last_timestamp": int(each["timestamp"]),
                "coordinator_epoch": int(each["coordinator_epoch"]),
                "current_txn_start_offset": int(each["current_txn_first_offset"]),
            }
            for each in producers.entries()
        ]
    }


def _not_found(transactional_id: str) -> Values:
    is_valid = transactional_id != ""
    error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if is_valid else ErrorCode.INVALID_REQUEST
    return {"error_code": error}


def _state(found: TransactionalId) -> str:
    return _STATES.get(found.state, "Unknown")
