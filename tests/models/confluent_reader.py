"""All records of a topic, read by librdkafka."""

from __future__ import annotations

import uuid

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, TopicPartition
from models.served_records import named, shown


def read_by_confluent(servers, topic, partitions, isolation):
    """Return (partition, offset, timestamp, key, value, headers) of all records."""
    consumer = Consumer({
        "bootstrap.servers": servers, "group.id": str(uuid.uuid4()), "isolation.level": isolation,
        "auto.offset.reset": "earliest", "enable.auto.commit": False, "enable.partition.eof": True,
        "max.partition.fetch.bytes": 2000, "fetch.wait.max.ms": 50,
    })
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        found, ended = [], set()
        while ended != set(partitions):
            message = consumer.poll(20)
            assert message is not None
            if message.error():
                ended.add(message.partition())
            else:
                kind, timestamp = message.timestamp()
                found.append((
                    message.partition(), message.offset(),
                    -1 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
                    shown(message.key()), shown(message.value()), named(message.headers()),
                ))
        return found
    finally:
        consumer.close()
