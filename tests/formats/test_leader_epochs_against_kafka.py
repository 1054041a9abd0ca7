"""Leader epochs against the class that brokers keep them in, on random histories."""

import numpy as np
import pytest
from models import kafka_classes

from kafkastore.errors import InvalidLeaderEpochError
from kafkastore.formats.state.checkpoints import (
    pack_leader_epoch_checkpoint,
    parse_leader_epoch_checkpoint,
)
from kafkastore.formats.state.leader_epochs import LeaderEpochs

pytestmark = pytest.mark.kafka

STEPS = {"truncateFromEnd": "truncate_from_end", "truncateFromStart": "truncate_from_start"}
QUERIED_EPOCHS, QUERIED_OFFSETS = range(-1, 10), range(-1, 42)
LOG_END_OFFSET = 50


def shown(entries):
    return ",".join(f"{epoch},{start_offset}" for epoch, start_offset in entries)


def histories(count, version):
    """Checkpoint entries, out of order for versions that repair them, and the steps that follow."""
    random = np.random.default_rng(5)
    for _ in range(count):
        size = int(random.integers(4))
        epochs, offsets = random.integers(0, 9, size), random.integers(0, 40, size)
        if version == "2.4.0":
            epochs, offsets = np.unique(epochs), np.unique(offsets)
        entries = list(zip(epochs.tolist(), offsets.tolist(), strict=False))
        steps = []
        for _ in range(int(random.integers(8))):
            if random.random() < 0.6:
                lowest = -1 if random.random() < 0.02 else 0
                epoch, offset = random.integers(lowest, 9), random.integers(0, 40)
                steps.append(("assign", int(epoch), int(offset)))
            else:
                name = ("truncateFromEnd", "truncateFromStart")[int(random.integers(2))]
                steps.append((name, int(random.integers(-1, 42))))
        yield entries, steps


def answer(entries, steps, *, shows_epochs):
    """The expected output of the Java side, and the entries at the end."""
    try:
        epochs = LeaderEpochs(entries)
        lines = [shown(epochs.entries)]
        for name, *arguments in steps:
            getattr(epochs, STEPS.get(name, name))(*arguments)
            lines.append(shown(epochs.entries))
    except InvalidLeaderEpochError:
        return "refused", None
    lines += [shown([epochs.end_offset_for(epoch, LOG_END_OFFSET)]) for epoch in QUERIED_EPOCHS]
    for offset in QUERIED_OFFSETS:
        epoch = epochs.epoch_for_offset(offset)
        lines.append("" if epoch is None or not shows_epochs else str(epoch))
    return "\t".join(lines), epochs.entries


@pytest.mark.parametrize("version", ["2.4.0", "3.9.1", "4.3.1"])
def test_leader_epochs_are_kept_as_the_broker_does(tmp_path, require_broker, version):
    require_broker(version)
    requests, expected, files = [], [], []
    for number, (entries, steps) in enumerate(histories(250, version)):
        path = tmp_path / f"{number}-leader-epoch-checkpoint"
        path.write_bytes(pack_leader_epoch_checkpoint(entries))
        requests.append((
            path, LOG_END_OFFSET, " ".join(":".join(map(str, step)) for step in steps),
            " ".join(map(str, QUERIED_EPOCHS)), " ".join(map(str, QUERIED_OFFSETS)),
        ))
        here, kept = answer(entries, steps, shows_epochs=version != "2.4.0")
        expected.append(here)
        files.append((path, kept, steps))
    answers = kafka_classes.ask(version, requests, program="KafkaLeaderEpochs")
    wrong = [
        (request[2], lines, here)
        for request, lines, here in zip(requests, answers, expected, strict=True)
        if lines != here
    ]
    assert not wrong, (len(wrong), wrong[:3])
    assert 0 < answers.count("refused") < 100
    # The broker's last write; without a step it need not write at all.
    for path, kept, steps in files:
        if kept is not None and any(name == "assign" for name, *_ in steps[-1:]):
            assert parse_leader_epoch_checkpoint(path.read_bytes()) == kept
