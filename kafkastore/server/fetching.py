"""Fetch: whole batches, as they lie in the files.

A response has at least the first batch of the first partition that has any, whatever the limits
say (KIP-74), and else as many whole batches as fit. The log end is the high watermark.

Source: Kafka 4.3.1 ``KafkaApis.handleFetchRequest``, ``ReplicaManager.readFromLog``,
``Partition.fetchRecords``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kafkastore.errors import CorruptionError, KafkaStoreError
from kafkastore.formats.messages.message_table import Values
from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.requests.list_offsets import READ_COMMITTED
from kafkastore.server.catalog import Catalog, Node
from kafkastore.server.replica_lookup import epoch_error
from kafkastore.server.served_log import FileRange, ServedLog

FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_LEADERS = 16
_UNKNOWN_OFFSET = _UNKNOWN_EPOCH = -1
#: Errors of rows whose log is not known.
_OF_UNKNOWN_LOGS = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class Fetched(NamedTuple):
    """A response, the bytes of records in it, and whether it has an error.

    `logs` are those that may grow, each with its state before it was read.
    """

    response: Values
    records_bytes: int
    has_error: bool
    logs: tuple[tuple[ServedLog, tuple[int, ...]], ...]

    def close(self) -> None:
        """Close the files of a response that is not sent."""
        for topic in self.response["responses"]:
            for row in topic["partitions"]:
                if isinstance(row["records"], FileRange):
                    row["records"].close()


def _without_records(error: ErrorCode) -> Values:
    """Return a row with an error."""
    return {
        "error_code": error,
        "high_watermark": _UNKNOWN_OFFSET,
        "aborted_transactions": [] if error in _OF_UNKNOWN_LOGS else None,
        "records": b"",
    }


@dataclass(frozen=True)
class Fetching:
    """The answers to Fetch of one node."""

    catalog: Catalog
    node: Node
    max_bytes: int

    def fetch(self, request: Values, version: int) -> Fetched:
        """Read what a request asks for."""
        left = min(request["max_bytes"], self.max_bytes)
        total, has_error, is_fenced = 0, False, False
        logs: list[tuple[ServedLog, tuple[int, ...]]] = []
        topics: list[Values] = []
        for topic in request["topics"]:
            rows = []
            for asked in topic["partitions"]:
                error, log = self._log(topic, asked, version)
                row: Values = {"error_code": error}
                if log is not None and not error:
                    logs.append((log, log.state))
                    row = self._read(log, asked, request, left, at_least_one=not total)
                if row["error_code"]:
                    has_error = True
                    row = _without_records(row["error_code"])
                if row["error_code"] == ErrorCode.FENCED_LEADER_EPOCH and log is not None:
                    is_fenced = version >= FIRST_VERSION_WITH_LEADERS
                    row |= self._leader(log) if is_fenced else {}
                records = row["records"]
                if isinstance(records, FileRange):
                    total += records.size
                    left = max(left - records.size, 0)
                rows.append(row | {"partition_index": asked["partition"]})
            if rows:
                topics.append({
                    "topic": topic["topic"], "topic_id": topic["topic_id"], "partitions": rows,
                })
        response: Values = {"responses": topics}
        if is_fenced:
            response["node_endpoints"] = [self.node._asdict()]
        return Fetched(response, total, has_error, tuple(logs))

    def _log(
        self, topic: Values, asked: Values, version: int
    ) -> tuple[ErrorCode, ServedLog | None]:
        """Find the partition that a row asks for."""
        if version >= FIRST_VERSION_WITH_TOPIC_IDS:
            found = self.catalog.topics_by_id.get(topic["topic_id"])
            if found is None:
                return ErrorCode.UNKNOWN_TOPIC_ID, None
            log = found.partitions.get(asked["partition"])
        else:
            log = self.catalog.log(topic["topic"], asked["partition"])
        if log is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
        known = max(asked["current_leader_epoch"], _UNKNOWN_EPOCH)    # a negative one is none
        return epoch_error(log.leader_epoch, known), log

    def _leader(self, log: ServedLog) -> Values:
        """Return the leader that a client should know."""
        leader = {"leader_id": self.node.node_id, "leader_epoch": log.leader_epoch}
        return {"current_leader": leader}

    def _read(
        self, log: ServedLog, asked: Values, request: Values, left: int, *, at_least_one: bool
    ) -> Values:
        """Read one partition, and its bounds."""
        is_committed = request["isolation_level"] == READ_COMMITTED
        offset = asked["fetch_offset"]
        try:
            log.follow()
            start, end = log.log.log_start_offset, log.log.log_end_offset
            stable = log.log.last_stable_offset if is_committed else end
            row: Values = {
                "error_code": ErrorCode.NONE,
                "high_watermark": end,
                "last_stable_offset": stable,
                "log_start_offset": start,
                "aborted_transactions": [] if is_committed else None,
                "records": b"",
            }
            diverging = _divergence(log, offset, asked["last_fetched_epoch"])
            if diverging is not None and offset >= start:
                return row | diverging
            if not start <= offset <= end:
                return {"error_code": ErrorCode.OFFSET_OUT_OF_RANGE}
            room = min(asked["partition_max_bytes"], left)
            if offset >= stable or (room == 0 and not at_least_one):
                return row
            if room < 0:
                return {"error_code": ErrorCode.UNKNOWN_SERVER_ERROR}
            found = log.read(offset, stable, room, at_least_one=at_least_one)
            if found is not None:
                row["records"] = found
                if is_committed:
                    row["aborted_transactions"] = [
                        each._asdict()
                        for each in log.aborted(offset, min(found.end_offset, stable))
                    ]
        except CorruptionError:
            return {"error_code": ErrorCode.CORRUPT_MESSAGE}
        except (KafkaStoreError, OSError):
            return {"error_code": ErrorCode.KAFKA_STORAGE_ERROR}
        return row


def _divergence(log: ServedLog, offset: int, epoch: int) -> Values | None:
    """Return where a reader has to go back to, if its last record is not here."""
    if epoch <= _UNKNOWN_EPOCH:
        return None
    known, end = log.end_of_epoch(epoch)
    if known == _UNKNOWN_EPOCH:
        return {"error_code": ErrorCode.OFFSET_OUT_OF_RANGE}
    if known == epoch and end >= offset:
        return None
    diverging = {"epoch": known, "end_offset": end}
    return {"diverging_epoch": diverging, "aborted_transactions": None}
