"""What consumers of golden directories get, as the answers of brokers have it."""

from __future__ import annotations

import base64
import hashlib

from kafkastore.formats.state.file_names import parse_partition_directory

#: Version and name of directories that are as the broker left them when it answered.
CASES = [
    ("0.8.2.2", "codecs"), ("0.8.2.2", "compacted"), ("0.9.0.1", "headers-and-nulls"),
    ("0.10.0.1", "log-append-time"), ("0.10.2.2", "codecs"),
    ("0.10.2.2", "create-time-out-of-order"), ("0.11.0.3", "transactions"),
    ("2.4.0", "old-formats"), ("2.4.0", "transactions"), ("2.4.0", "roll-and-retention-by-time"),
    ("3.9.1", "headers-and-nulls"), ("3.9.1", "leader-epochs"), ("4.1.1", "compacted"),
    ("4.1.1", "delete-records"), ("4.2.2", "log-append-time"), ("4.3.1", "codecs"),
    ("4.3.1", "transactions"),
]
#: LZ4 of version 0 has a wrong checksum: some clients do not read it, from any server.
WITH_OLD_LZ4 = {("0.8.2.2", "codecs"), ("2.4.0", "old-formats")}
LARGEST_SHOWN = 4096
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"


def topics_of(case):
    """Return {topic: {partition: answers}} of ordinary topics."""
    found = {}
    for name, row in case.answers["partitions"].items():
        topic, number = parse_partition_directory(name).topic_partition
        if "records" in row and not topic.startswith("__"):
            found.setdefault(topic, {})[number] = row
    return found


def expected(partitions, isolation):
    """Return (partition, offset, timestamp, type of it, key, value, headers) of each record."""
    return [
        (number, *record[:6])
        for number, row in sorted(partitions.items())
        for record in row["records"]
        if isolation == UNCOMMITTED
        or not row.get("committed_offsets")
        or record[0] in row["committed_offsets"]
    ]


def shown(data):
    """Return bytes as the answers have them."""
    if data is None:
        return None
    if len(data) > LARGEST_SHOWN:
        return f"sha256:{hashlib.sha256(data).hexdigest()}:{len(data)}"
    return base64.b64encode(data).decode()


def named(headers):
    """Return headers as the answers have them."""
    return [[name, shown(value)] for name, value in headers or ()]
