"""What administrators ask about configurations, disks and transactions.

Source: Kafka 4.3.1 ``ConfigHelper``, ``ReplicaManager.describeLogDirs``,
``UnifiedLog.activeProducers``, ``TransactionCoordinator``.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

from kafkastore.errors import CorruptionError
from kafkastore.formats.messages.message_table import Values
from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.topics.transaction_state import TransactionState
from kafkastore.log.isolation import producers_at
from kafkastore.metadata.registrations import ResourceType
from kafkastore.metadata.topic_configs import ConfigSource
from kafkastore.server.catalog import Catalog
from kafkastore.server.served_log import ServedLog
from kafkastore.use_cases.open_transactions import TransactionalId, read_coordinators

_CONFIG_SOURCES = {
    ConfigSource.TOPIC: 1,
    ConfigSource.BROKER: 2,
    ConfigSource.DEFAULT_BROKER: 3,
    ConfigSource.DEFAULT: 5,
}
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
            "error_message": "No Authorizer is configured.",
        }

    def describe_configs(self, request: Values, _version: int) -> Values:
        """Return the configurations of topics; the node itself has none."""
        return {
            "results": [
                {name: each[name] for name in ("resource_type", "resource_name")}
                | self._configs(each)
                for each in request["resources"]
            ]
        }

    def _configs(self, asked: Values) -> Values:
        if asked["resource_type"] != ResourceType.TOPIC:
            return {}
        if asked["resource_name"] not in self.catalog.topics:
            return {"error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        setting = self.catalog.settings.of(asked["resource_name"])
        config = self.catalog.settings.config(asked["resource_name"])
        wanted = asked["configuration_keys"]
        return {
            "configs": [
                {
                    "name": name,
                    "value": value,
                    "read_only": True,
                    "config_source": _CONFIG_SOURCES[
                        setting.sources.get(name, ConfigSource.DEFAULT)
                    ],
                }
                for name, value in sorted(config.to_options().items())
                if wanted is None or name in wanted
            ]
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
                        | _producers(self.catalog.log(topic["name"], number))
                        for number in topic["partition_indexes"]
                    ],
                }
                for topic in request["topics"]
            ]
        }

    def list_transactions(self, request: Values, _version: int) -> Values:
        """List transactional ids, as their coordinators wrote them last."""
        states = set(request["state_filters"])
        producers = set(request["producer_id_filters"])
        pattern = request["transactional_id_pattern"]
        since = time.time() * 1000 - request["duration_filter"]
        return {
            "unknown_state_filters": sorted(states - set(_STATES.values())),
            "transaction_states": [
                {
                    "transactional_id": each.transactional_id,
                    "producer_id": each.producer_id,
                    "transaction_state": _state(each),
                }
                for each in self._transactional_ids().values()
                if (not states or _state(each) in states)
                and (not producers or each.producer_id in producers)
                and (
                    request["duration_filter"] < 0
                    or (each.start_timestamp is not None and each.start_timestamp < since)
                )
                and (not pattern or re.fullmatch(pattern, each.transactional_id))
            ],
        }

    def describe_transactions(self, request: Values, _version: int) -> Values:
        """Describe transactional ids."""
        known = self._transactional_ids()
        return {
            "transaction_states": [
                {"transactional_id": name}
                | (
                    _described(known[name]) if name in known
                    else {"error_code": ErrorCode.TRANSACTIONAL_ID_NOT_FOUND}
                )
                for name in request["transactional_ids"]
            ]
        }

    def _transactional_ids(self) -> Mapping[str, TransactionalId]:
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


def _producers(served: ServedLog | None) -> Values:
    if served is None:
        return {"error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    log = served.log
    try:
        producers = producers_at(log, log.log_end_offset)
    except (CorruptionError, OSError) as error:
        return {"error_code": ErrorCode.KAFKA_STORAGE_ERROR, "error_message": str(error)}
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


def _state(found: TransactionalId) -> str:
    return _STATES.get(found.state, "Unknown")


def _described(found: TransactionalId) -> Values:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(found.partitions):
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
