"""Cases about what is in the batches: codecs, message formats, headers, nulls."""
from __future__ import annotations

import importlib
import time
from typing import Any

from ..case_context import CaseContext
from ..questions import LARGEST_INT64
from ..records import Produced, make_record
from .registry import case


def _codecs(context: CaseContext) -> list[str]:
    """Return the codecs that the version's producer knows."""
    return ["none", "gzip", "snappy", "lz4"] + (["zstd"] if context.since(2, 4) else [])


@case()
def codecs(context: CaseContext) -> None:
    """Every codec, from the Java producer, from librdkafka, recompressed by the broker."""
    context.start()
    context.create_topic("codecs", 2, segment_bytes=4000)
    context.create_topic("codecs-big", segment_bytes=300_000)
    topics_for_six = []
    if context.since(0, 9):
        config = {"compression.type": "gzip"}
        context.create_topic("codecs-broker", config=config, segment_bytes=4000)
        topics_for_six.append("codecs-broker")
    if context.since(0, 10):
        config = {"message.timestamp.type": "LogAppendTime"}
        context.create_topic("codecs-lat", config=config, segment_bytes=4000)
        topics_for_six.append("codecs-lat")
    timestamp, rng = context.first_timestamp, context.rng
    for turn in range(3):
        for codec in _codecs(context):
            for count in (1, 6, 20):
                batch = [
                    make_record(
                        rng,
                        timestamp + number * 10,
                        compressible=bool(number % 3),
                        size=rng.choice((0, 30, 90)),
                    )
                    for number in range(count)
                ]
                if turn == 2:
                    rng.shuffle(batch)
                timestamp += 1000
                context.produce("codecs", [batch], codec=codec)
                for topic in topics_for_six if count == 6 else ():
                    context.produce(topic, [batch], codec=codec)
    timestamp = _produce_big_values(context, timestamp)
    _produce_with_librdkafka(context, timestamp)
    context.ask_all()
    context.stop()
    context.save()


def _produce_big_values(context: CaseContext, timestamp: int) -> int:
    """Produce values larger than a codec's block: 64 KB lz4, 32 KB snappy-java, 128 KB zstd."""
    for codec in _codecs(context)[1:]:
        noise = bytes(context.rng.randrange(256) for _ in range(3000))
        big = (noise + b"kafkastore golden data " * 1000) * 3
        batch = [Produced(timestamp, b"big", big), Produced(timestamp + 1, None, b"small")]
        config = {"batch.size": 4_000_000}
        context.produce("codecs-big", [batch], codec=codec, producer=f"big-{codec}", config=config)
        timestamp += 1000
    return timestamp


def _produce_with_librdkafka(context: CaseContext, timestamp: int) -> None:
    """Produce to ``codecs-1`` with a client that frames its batches differently."""
    confluent_kafka = importlib.import_module("confluent_kafka")
    for codec in _codecs(context):
        config = {
            "bootstrap.servers": context.cluster.address,
            "compression.type": codec,
            "linger.ms": 50,
            "log_level": 2,  # it warns of its plans for versions to come
        }
        if not context.since(0, 10):
            version = context.version
            config |= {"api.version.request": "false", "broker.version.fallback": version}
        errors: list[str] = []
        try:
            producer = confluent_kafka.Producer(config)
            for count in (1, 10):
                for number in range(count):
                    more: dict[str, Any] = {}
                    if context.since(0, 10):
                        more["timestamp"] = timestamp + number
                    if context.since(0, 11):
                        more["headers"] = [("h", b"%d" % number)]
                    producer.produce(
                        "codecs",
                        b"librdkafka value %d " % number * 5,
                        b"k%d" % number,
                        1,
                        on_delivery=lambda error, _, to=errors: error and to.append(str(error)),
                        **more,
                    )
                producer.flush(10)
                timestamp += 1000
        except confluent_kafka.KafkaException as error:
            errors.append(str(error))
        if errors:
            context.extra.setdefault("librdkafka_errors", {})[codec] = errors[0]


def _set_message_format(context: CaseContext, topic: str, version: str) -> None:
    """Change the topic's ``message.format.version`` and give the broker time to see it."""
    context.client("config", topic=topic, configs={"message.format.version": version})
    time.sleep(1)


def list_offsets_by_message_format(
    context: CaseContext, topic: str, timestamps: list[int]
) -> dict[str, Any]:
    """Repeat the queries after the topic's message format was lowered.

    Parameters
    ----------
    context : CaseContext
        With a running cluster.
    topic : str
        Of two partitions.
    timestamps : list of int
        What is looked up.

    Returns
    -------
    dict
        By format and partition, rows of ListOffsets v1.
    """
    answers = {}
    for version in ("0.9.0", "0.10.0"):
        _set_message_format(context, topic, version)
        answers[version] = {
            f"{topic}-{partition}": [
                {"timestamp": timestamp, "version": 1}
                | context.cluster.wire.list_offsets(topic, partition, timestamp)
                for timestamp in timestamps
            ]
            for partition in (0, 1)
        }
    return answers


@case(since="2.4", before="4")
def old_formats(context: CaseContext) -> None:
    """All three message formats in one log; then a restart."""
    # KRaft brokers write version 2 only
    settings: dict[str, str | int] = {"inter.broker.protocol.version": "2.8"}
    context.start(settings if context.since(3) else {}, mode="zk")
    context.create_topic("formats", 2, segment_bytes=1800)
    start = timestamp = context.first_timestamp
    for step, version in enumerate(("0.9.0", "0.10.0", "0.11.0", "0.9.0", "0.10.2", "2.4")):
        _set_message_format(context, "formats", version)
        for partition, used in ((0, ["none"]), (1, ["none", "gzip", "snappy", "lz4"])):
            for codec in used:
                stamps = [timestamp + number * 100 for number in range(24 // len(used))]
                if step % 2:
                    context.rng.shuffle(stamps)
                batches = context.batches(stamps, (1, 3, 4), size=60)
                context.produce("formats", batches, partition, codec=codec)
                timestamp += 5000
    # Segments of version 0 have only mtimes; some are later than the timestamps of later segments.
    context.set_mtimes("formats-0", lambda number: start + 25_012 * number)
    context.set_mtimes("formats-1", lambda number: start + 45_000 + 3000 * number)
    extra = [start + delta for delta in range(0, 400_000, 25_000)]
    context.ask_all(extra_timestamps=extra)
    context.extra["list_offsets_when_message_format_version"] = list_offsets_by_message_format(
        context, "formats", [-1, -2, start, start + 5000, start + 30_000, LARGEST_INT64]
    )
    context.stop(zookeeper=False)
    context.save()
    context.start()
    _set_message_format(context, "formats", "2.4")
    context.ask_all(extra_timestamps=extra)
    context.stop()
    context.save("answers-restarted", "logs-restarted")


@case()
def headers_and_nulls(context: CaseContext) -> None:
    """Headers of every kind, null and empty keys and values, a value of 100 KB."""
    context.start()
    context.create_topic("headers_nulls", 2, segment_bytes=6000)
    rng, timestamp, has_headers = context.rng, context.first_timestamp, context.since(0, 11)
    rows: list[tuple[bytes | None, bytes | None]] = [
        *((None, None), (b"", b""), (b"k", None), (None, b"v"), (b"", None), (None, b"")),
        ("clé-ключ-鍵".encode(), "valeur ☃ 😀".encode()),
        (bytes(range(256)), b"\0" * 100),
        (b"k", bytes(rng.randrange(256) for _ in range(500))),
    ]
    kinds: list[list[tuple[str, bytes | None]] | None] = [
        None,
        [("h", b"v")],
        [("h", None), ("h", b""), ("h", b"again")],
        [("", b"empty name")],
        [("юникод-☃", "значение".encode())],
        [(f"h{number}", b"%d" % number * number) for number in range(40)],
    ]
    for partition, codec in ((0, "none"), (1, "gzip")):
        for headers in kinds if has_headers else [None]:
            batch = []
            for key, value in rows:
                if rng.random() < (1 if headers is None else 0.5):
                    batch.append(Produced(timestamp, key, value, headers))
                    timestamp += 10
            batches = [batch[:3], batch[3:]] if len(batch) > 3 else [batch]
            context.produce("headers_nulls", batches, partition, codec=codec)
        big = Produced(timestamp, b"big", bytes(rng.randrange(97, 122) for _ in range(100_000)))
        context.produce("headers_nulls", [[big]], partition, codec=codec)
        after = Produced(timestamp + 1, b"after", b"x", [("a", b"b")] if has_headers else None)
        context.produce("headers_nulls", [[after]], partition, codec=codec)
    context.ask_all()
    context.stop()
    context.save()
