"""A real broker with topics of every kind, and programs that read it and its directory."""
from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack

from golden.make.brokers import WORK
from golden.make.case_context import CaseContext, Surroundings
from golden.make.java_client import JavaClients
from golden.make.records import Produced
from spark.kafka_connector import connector_jars

VERSION = "4.1.1"
T0 = 1_600_000_000_000
IDEMPOTENT = {"enable.idempotence": "true", "acks": "all"}


def ask_both(folder, program, request_of):
    """Run a program next to a broker that has the topics; it writes its answers to a folder.

    `program` is a module, given by JSON the connector's jars, the broker's directory, and what
    `request_of` makes of the options by which Spark's Kafka source finds the broker.
    """
    with ExitStack() as stack:
        clients = stack.enter_context(JavaClients(WORK))
        context = CaseContext(
            VERSION, folder.name, folder / "out", Surroundings(folder.name, WORK, clients)
        )
        stack.callback(context.remove_run_directory)
        stack.callback(context.abandon)
        context.start()
        produce(context)
        server = {
            "kafka.bootstrap.servers": context.cluster.address,
            # The time that the Kafka source waits for a missing offset; the default is two minutes.
            "kafkaConsumer.pollTimeoutMs": "2000",
        }
        request = folder / "request.json"
        content = {
            "jars": [str(each) for each in connector_jars()],
            "logs": str(context.cluster.logs),
            **request_of(server),
        }
        request.write_text(json.dumps(content))
        ran = subprocess.run(
            [sys.executable, program.__file__, request, folder],
            cwd=folder, capture_output=True, text=True, timeout=800,
        )
        assert ran.returncode == 0, ran.stderr[-4000:]


def produce(context):
    """Topics with every kind of record."""
    context.create_topic("plain", 3, segment_bytes=4000)
    context.produce(
        "plain",
        [
            [Produced(T0, None, None), Produced(T0 + 1, b"", b"")],
            [Produced(T0 + 5, b"k", b"v", [("a", b"1"), ("b", None), ("a", b"")])],
            [Produced(T0 + 3, b"late", b"v", [("", b"x")]), Produced(T0 + 9, None, b"v")],
        ],
    )
    context.produce("plain", context.batches([T0 + 10 * each for each in range(60)]), 1)
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        context.create_topic(f"packed-{codec}")
        batches = context.batches([T0 + 7 * each for each in range(20)], (5,), compressible=True)
        context.produce(f"packed-{codec}", batches, codec=codec)
    context.create_topic("stamped", config={"message.timestamp.type": "LogAppendTime"})
    context.produce("stamped", context.batches([T0] * 6))
    context.create_topic("sales", 2)
    for turn, action in enumerate(("commit", "abort", "commit", "abort")):
        config = {"transactional.id": "tx"} | IDEMPOTENT
        if turn == 0:
            context.client("txn", id="tx", action="init", props=config)
        context.client("txn", id="tx", action="begin", props=config)
        for partition in (0, 1):
            batches = context.batches([T0 + 100 * turn + each for each in range(5)])
            context.produce("sales", batches, partition, producer="tx")
        context.client("txn", id="tx", action=action, props=config)
        context.produce("sales", context.batches([T0 + 100 * turn + 50]), 0)
    open_one = {"transactional.id": "open", "transaction.timeout.ms": "600000"} | IDEMPOTENT
    context.client("txn", id="open", action="init", props=open_one)
    context.client("txn", id="open", action="begin", props=open_one)
    context.produce("sales", context.batches([T0 + 700]), 0, producer="open")
    context.produce("sales", context.batches([T0 + 800]), 0)


def offsets(**by_topic):
    """JSON of numbers by topic and partition."""
    return json.dumps(
        {topic: {str(at): number for at, number in enumerate(each)}
         for topic, each in by_topic.items()}
    )
