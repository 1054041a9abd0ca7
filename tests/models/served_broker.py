"""A broker with records of all kinds, and a server of the directory that it has in use."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

from golden.make.brokers import WORK
from golden.make.case_context import CaseContext, Surroundings
from golden.make.java_client import JavaClients
from golden.make.server_properties import METADATA_WITH_LOGS

from kafkastore.server import serve

FIRST_TIMESTAMP = 1_600_000_000_000
TIMES = [FIRST_TIMESTAMP + 1000 * number for number in range(60)]
GROUPS = {"readers": {("plain", 0): 7, ("plain", 1): 60}, "others": {("txn", 0): 3}}
TRANSACTIONAL_IDS = {"committed": ["commit"], "aborted": ["commit", "abort"], "open": [None]}

@contextmanager
def broker_and_server(version, out):
    """Yield the addresses of a broker and of a server of its directory, and that directory."""
    with JavaClients(WORK) as clients:
        context = CaseContext(version, "served", out, Surroundings("served", WORK, clients))
        try:
            context.start({METADATA_WITH_LOGS: 1})
            make_records(context)
            with serve(context.cluster.logs, rules=version) as served:
                yield SimpleNamespace(
                    version=version, logs=context.cluster.logs,
                    theirs=context.cluster.address, ours=served.bootstrap_servers,
                )
        finally:
            context.abandon()
            context.remove_run_directory()


def make_records(context):
    """Let a broker write ordinary and transactional records, delete some, and keep offsets."""
    late = TIMES[:20] + TIMES[40:] + TIMES[20:40]
    context.create_topic("plain", 3)
    context.produce("plain", context.batches(late), 0)
    context.produce("plain", context.batches(TIMES), 1, codec="gzip")
    config = {"retention.ms": 10**12, "max.message.bytes": 20_000}
    context.create_topic("deleted", 1, config)
    context.produce("deleted", context.batches(TIMES[:30]), 0)
    context.client("delete_records", topic="deleted", partition=0, offset=11)
    context.stop()
    context.start()    # with another leader epoch
    context.produce("plain", context.batches([each + 500 for each in TIMES[:20]]), 0)
    context.create_topic("txn", 2)
    for name, ends in TRANSACTIONAL_IDS.items():
        config = {
            "transactional.id": name, "enable.idempotence": "true",
            "transaction.timeout.ms": "900000",
        }

        def act(action, name=name, config=config):
            context.client("txn", id=name, action=action, props=config)

        act("init")
        for end in ends:
            act("begin")
            for number in (0, 1):
                sent = context.batches(TIMES[:6])
                context.produce("txn", sent, number, producer=name, config=config)
            if end is not None:
                act(end)
    context.produce("txn", context.batches(TIMES[:6]), 0)
    for group, offsets in GROUPS.items():
        for (topic, number), offset in offsets.items():
            context.client(
                "commit_offsets", group=group, topic=topic, partition=number, offset=offset
            )
