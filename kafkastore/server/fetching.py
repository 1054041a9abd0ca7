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
from kafkastore.server.catalog import Catalog
from kafkastore.server.replica_lookup import epoch_error
from kafkastore.server.served_log import FileRange, ServedLog

FIRST_VERSION_WITH_TOPIC_IDS = 13
_UNKNOWN_OFFSET = -1


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


@dataclass(frozen=True)
class Fetching:
    """The answers to Fetch of one node."""

    catalog: Catalog
    max_bytes: int

    def fetch(self, request: Values, version: int) -> Fetched:
        """Read what a request asks for."""
        left = min(request["max_bytes"], self.max_bytes)
        total, has_error = 0, False
        logs: list[tuple[ServedLog, tuple[int, ...]]] = []
        topics: list[Values] = []
        for topic in request["topics"]:
            rows = []
            for asked in topic["partitions"]:
                error, log = self._log(topic, asked, version)
                row: Values = {"partition_index": asked["partition"], "error_code": error}
                if log is not None and not error:
                    logs.append((log, log.state))
                    row |= self._read(log, asked, request, left, at_least_one=not total)
                if row["error_code"]:
                    has_error = True
                    row = {"high_watermark": _UNKNOWN_OFFSET, "records": b""} | row
                records = row["records"]
                if isinstance(records, FileRange):
                    total += records.size
                    left -= records.size
                rows.append(row)
            topics.append({
                "topic": topic["topic"], "topic_id": topic["topic_id"], "partitions": rows,
            })
        return Fetched({"responses": topics}, total, has_error, tuple(logs))

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
        return epoch_error(log.leader_epoch, asked["current_leader_epoch"]), log

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
            if not start <= offset <= end:
                return row | {"error_code": ErrorCode.OFFSET_OUT_OF_RANGE}
            room = min(asked["partition_max_bytes"], left)
            if offset >= stable or (room <= 0 and not at_least_one):
                return row
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
