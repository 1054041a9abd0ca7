"""A topic before and after a real broker's cleaner: the latest records are what it leaves."""

import random
import shutil

import pytest
from golden.make.brokers import WORK
from golden.make.case_context import CaseContext, Surroundings
from golden.make.cases.compaction import ALWAYS_DIRTY, CLEANED
from golden.make.java_client import JavaClients
from golden.make.records import Produced
from models.latest_model import latest
from models.seed import SEED, some

import kafkastore

from .test_latest_records import rows

pytestmark = pytest.mark.kafka

BACKOFF = "log.cleaner.backoff.ms"
TRANSACTIONAL_IDS = ("a", "b")
PARTITIONS = 2
FIRST_TIMESTAMP = 1_700_000_000_000


def produce(context, chance):
    """Records with few keys and tombstones, by producers with and without transactions."""
    timestamp = FIRST_TIMESTAMP
    for producer in TRANSACTIONAL_IDS:
        transaction(context, producer, "init")
    for _ in range(12):
        live = [each for each in TRANSACTIONAL_IDS if chance.random() < 0.7]
        for producer in live:
            transaction(context, producer, "begin")
        for _ in range(chance.randrange(1, 6)):
            batch = []
            for _ in range(chance.choice((1, 3, 8))):
                timestamp += 10
                key = chance.choice((b"", b"k%d" % chance.randrange(30)))
                value = None if chance.random() < 0.2 else b"value at %d" % timestamp
                batch.append(Produced(timestamp, key, value))
            codec = chance.choice(("none", "gzip", "lz4"))
            producer = chance.choice([None, *live])
            partition = chance.randrange(PARTITIONS)
            # The codec is that with which the producer was made.
            context.produce("t", [batch], partition, codec=codec, producer=producer)
        for producer in live:
            transaction(context, producer, chance.choice(("commit", "abort")))
    # The active segment is not cleaned: large records begin others.
    large = [[Produced(timestamp, b"last %d" % number, bytes(2000))] for number in range(2)]
    for partition in range(PARTITIONS):
        context.produce("t", large, partition)


def transaction(context, producer, action):
    config = {"transactional.id": producer, "enable.idempotence": "true", "acks": "all"}
    context.client("txn", id=producer, action=action, props=config)


@pytest.mark.parametrize("version", some(["2.4.0", "3.9.1", "4.3.1"], 2, __name__))
def test_latest_records_are_those_that_a_cleaner_leaves(require_broker, tmp_path, version):
    require_broker(version)
    chance = random.Random(f"{SEED}/{version}")
    before_cleaning = tmp_path / "before"
    with JavaClients(WORK) as clients:
        context = CaseContext(version, "latest", tmp_path / "out", Surroundings("l", WORK, clients))
        try:
            # The cleaner looks for work at the start, and then after ten minutes.
            settings = {"log.cleaner.enable": "true", BACKOFF: 600_000}
            context.cluster = context.new_cluster("cluster", version, settings)
            context.start()
            context.create_topic("t", PARTITIONS, ALWAYS_DIRTY, segment_bytes=1500)
            produce(context, chance)
            context.stop()
            shutil.copytree(context.cluster.logs, before_cleaning)
            context.cluster.properties.more[BACKOFF] = 300
            context.start()
            for partition in range(PARTITIONS):
                assert context.wait_until_still(f"t-{partition}", CLEANED)
            context.ask_all(committed=True)
            answers = context.answers
            context.stop()
            logs = tmp_path / "after"
            shutil.copytree(context.cluster.logs, logs)
        finally:
            context.abandon()
            context.remove_run_directory()
    before, after = (kafkastore.open(each).topic("t") for each in (before_cleaning, logs))
    for log in before:
        assert sum(batch.count for batch in log.batches()) == log.log_end_offset
    lines = (logs / "cleaner-offset-checkpoint").read_text().splitlines()
    ends = {int(line.split()[1]): int(line.split()[2]) for line in lines if line.startswith("t ")}
    removed = 0
    for partition in range(PARTITIONS):
        answer = answers[f"t-{partition}"]
        committed = set(answer["committed_offsets"])
        consumed = [record for record in answer["records"] if record[0] in committed]
        # What a consumer makes of all records that are left, and what we make of either log
        last = {record[3]: record for record in consumed}
        state = {record[0] for record in last.values() if record[4] is not None}
        assert {row[1] for row in rows(before[partition].latest())} == state
        assert rows(before[partition].latest()) == rows(after[partition].latest())
        # Up to where the cleaner came, its log has nothing else.
        end = ends[partition]
        assert end > 0
        left = [record for record in consumed if record[0] < end and record[4] is not None]
        ours = {row[1] for row in rows(before[partition].latest(end_offset=end))}
        assert {record[0] for record in left} == ours
        removed += len(list(before[partition].records())) - len(consumed)
    assert removed > 0
    # Over the whole topic the keys are in both partitions.
    records = {
        partition: list(after[partition].records(isolation="read_committed"))
        for partition in range(PARTITIONS)
    }
    wanted = [(partition, record[0]) for partition, record in latest(records)]
    for topic in (before, after):
        assert [row[:2] for row in rows(topic.latest())] == wanted
