"""Producer snapshots against the class that brokers read them with, sound and damaged."""

import numpy as np
import pytest
from models import kafka_classes
from models.record_format import crc32c

from kafkastore.errors import CorruptCheckpointError
from kafkastore.formats.state import producer_snapshot
from kafkastore.formats.state.producer_snapshot import PRODUCER_ENTRY

pytestmark = pytest.mark.kafka


def snapshots(count, seed):
    """Snapshots of any numbers, and as many damaged ones, most with a corrected checksum."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        entries = np.zeros(int(random.integers(5)), PRODUCER_ENTRY)
        for name, (kind, _) in PRODUCER_ENTRY.fields.items():
            limits = np.iinfo(kind)
            drawn = random.integers(limits.min, limits.max, len(entries), kind, endpoint=True)
            small = random.integers(-1, 100, len(entries), kind)
            entries[name] = np.where(random.random(len(entries)) < 0.3, drawn, small)
        yield producer_snapshot.pack(entries)
        damaged = bytearray(producer_snapshot.pack(entries))
        at, damage = int(random.integers(len(damaged))), int(random.integers(5))
        if damage == 0:
            del damaged[at:]
        elif damage == 1:
            damaged += bytes(at)
        elif damage == 2:
            damaged[6:10] = int(random.integers(-3, 9)).to_bytes(4, "big", signed=True)
        else:
            damaged[at] ^= 1 << int(random.integers(8))
        if random.random() < 0.7:
            damaged[2:6] = crc32c(bytes(damaged[6:])).to_bytes(4, "big")
        yield bytes(damaged)


def shown(snapshot, *, batch_may_be_none):
    """The expected output of the Java side."""
    try:
        entries = producer_snapshot.parse(snapshot)
    except CorruptCheckpointError:
        return "refused"
    if batch_may_be_none:
        none = entries["last_offset"] < 0
        entries["last_sequence"][none] = entries["last_offset"][none] = -1
        entries["offset_delta"][none] = 0
    entries["current_txn_first_offset"].clip(-1, out=entries["current_txn_first_offset"])
    return " ".join(",".join(map(str, entry)) for entry in entries.tolist())


@pytest.mark.parametrize("version", ["2.4.0", "3.9.1", "4.3.1"])
def test_producer_snapshots_are_read_as_the_broker_does(tmp_path, require_broker, version):
    """From 2.4.1 on a last offset below 0 means that no batch is known; 2.4 keeps the numbers."""
    require_broker(version)
    requests, expected = [], []
    for number, snapshot in enumerate(snapshots(800, seed=6)):
        path = tmp_path / f"{number}.snapshot"
        path.write_bytes(snapshot)
        requests.append((path,))
        expected.append(shown(snapshot, batch_may_be_none=version != "2.4.0"))
    answers = kafka_classes.ask(version, requests, program="KafkaProducerSnapshots")
    wrong = [
        (path.read_bytes(), answer, here)
        for (path,), answer, here in zip(requests, answers, expected, strict=True)
        if answer != here
    ]
    assert not wrong, (len(wrong), wrong[:5])
    assert 200 < answers.count("refused") < 700
