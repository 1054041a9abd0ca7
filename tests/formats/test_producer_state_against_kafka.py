"""The state of producers against the class that brokers keep it in, on random histories."""

import re

import numpy as np
import pytest
from models import kafka_classes, producer_model, record_format
from models.producer_model import Producers, headers

from kafkastore import errors
from kafkastore.formats.state import producer_snapshot
from kafkastore.formats.state.producer_state import ProducerState
from kafkastore.versions import rules_of

pytestmark = pytest.mark.kafka

PRODUCER_IDS = (0, 1, 7)
KINDS = ["data", "data", "in transaction", "in transaction", "in transaction", "abort", "commit",
         "emptied", "other", "old format"]
EXCEPTIONS = {
    "OutOfOrderSequenceException": "OutOfOrderSequenceError",
    "UnknownProducerIdException": "UnknownProducerIdError",
    "ProducerFencedException": "InvalidProducerEpochError",
    "InvalidProducerEpochException": "InvalidProducerEpochError",
    "TransactionCoordinatorFencedException": "TransactionCoordinatorFencedError",
    "InvalidTxnStateException": "InvalidTxnStateError",
    # The error of EndTransactionMarker for another control record.
    "IllegalArgumentException": "InvalidTxnStateError",
}


def data_of(batch):
    """The bytes of a batch of the model."""
    fields = {
        "producer_id": batch.producer_id, "producer_epoch": batch.epoch,
        "base_sequence": batch.sequence, "is_transactional": batch.is_transactional,
        "is_control": batch.is_control,
    }
    if batch.magic < 2:
        row = record_format.Row(batch.offset, batch.timestamp, None, b"v")
        return record_format.Batch((row,), magic=1).data
    if batch.is_control and batch.control is None:
        return record_format.emptied(
            batch.offset, batch.last_offset, batch.timestamp, **fields
        ).data
    key = value = b"v"
    if batch.is_control:
        key = b"\0\0" + int(batch.control.type).to_bytes(2, "big")
        value = b"\0\0" + (batch.control.coordinator_epoch or 0).to_bytes(4, "big", signed=True)
    # Keep only the first record, as after a compaction: a batch may span many offsets.
    rows = (record_format.Row(batch.offset, batch.timestamp, key, value),)
    return record_format.Batch(rows, last_offset_kept=batch.last_offset, **fields).data


class History:
    """Random requests, and what this package answers to each."""

    def __init__(self, version, random, directory):
        self.random, self.directory = random, directory
        self.rules = rules_of(version)
        self.has_coordinators = version != "2.4.0"
        self.known, self.state = Producers(self.rules), ProducerState(rules=self.rules)
        self.offset = 0
        self.requests, self.answers = [("new", directory)], ["ok"]

    def choose(self, values):
        return values[int(self.random.integers(len(values)))]

    def ask(self, answer, *request):
        self.requests.append(request)
        self.answers.append(answer)

    def step(self):
        kind = self.random.random()
        if kind < 0.75:
            self.write()
        elif kind < 0.85:
            offset = int(self.random.integers(-1, self.offset + 1))
            self.state.on_high_watermark(offset)
            self.ask("ok", "watermark", offset)
        elif kind < 0.97:
            self.look()
        else:
            self.reload()

    def write(self):
        """Append or replay one to four batches; what is refused is not in the log."""
        before, start = list(self.known.batches), self.offset
        batches = []
        # Epochs of half of the histories end soon.
        epochs = [0] * 12 + [1, -1] if before else [0, producer_model.LAST_EPOCH]
        for _ in range(self.choose([1, 1, 1, 2, 4])):
            step = (
                self.choose([*PRODUCER_IDS, 1, -1]), self.choose(KINDS),
                self.choose(["next"] * 6 + ["again", "again", "zero", "gap", "none"]),
                self.choose([1, 2, 3, 4] * 8 + [2**31 - 1, 2**31]),
                self.choose(epochs), self.choose([0] * 6 + [1, -1]), int(self.random.integers(3)),
                int(self.random.integers(-1, 10**13)),
            )
            batch = producer_model.batch_of(self.known, step, self.offset)
            if batch.magic < 2:
                batch = batch._replace(count=1, producer_id=-1)
            elif self.random.random() < 0.02:
                batch = batch._replace(sequence=int(self.random.integers(-(2**31), 2**31)))
            batches.append(batch)
            self.known.batches.append(batch)
            self.offset = batch.last_offset + 1
        rows, controls = headers(batches)
        data = b"".join(map(data_of, batches)).hex()
        if self.random.random() < 0.3:
            found = self.state.replay(rows, controls)
            if self.state.first_refusal is None:
                self.ask(shown(found), "replay", data)
                return
            # Kafka has already applied some of the batches: start again on both sides.
            self.ask(type(self.state.first_refusal).__name__, "replay", data)
            self.state = ProducerState(rules=self.rules)
            self.ask("ok", "new", self.directory)
            self.known.batches.clear()
            return
        origin = self.choose(["client", "client", "coordinator", "replication"])
        if origin == "coordinator" and not self.has_coordinators:
            origin = "replication"
        # Only markers of coordinators have one; Kafka before 4.2 does not know it.
        transaction_version = self.choose([0, 1, 2, 2]) if origin == "coordinator" else 0
        try:
            prepared = self.state.prepare(
                rows, controls, origin=origin, transaction_version=transaction_version
            )
        except errors.ProducerStateError as error:
            answer, is_written = type(error).__name__, False
        else:
            duplicate = prepared.duplicate
            is_written = duplicate is None
            if is_written:
                answer = shown(self.state.update(prepared))
            else:
                first, last, timestamp = (
                    duplicate.first_offset, duplicate.last_offset, duplicate.timestamp
                )
                answer = f"duplicate {first},{last},{timestamp}"
        self.ask(answer, "append", origin, transaction_version, data)
        if not is_written:
            self.known.batches, self.offset = before, start

    def look(self):
        remembered = [
            " ".join(",".join(map(str, batch)) for batch in self.state.last_batches(producer_id))
            for producer_id in PRODUCER_IDS
        ]
        entries = self.state.entries().tolist()
        self.ask(
            (self.state.first_undecided_offset, self.state.first_unstable_offset, remembered,
             entries),
            "state", *PRODUCER_IDS,
        )

    def reload(self):
        """Continue from a snapshot that this package wrote and Kafka reads."""
        path = self.directory / f"written-{len(self.requests)}"
        data = producer_snapshot.pack(self.state.entries())
        path.write_bytes(data)
        self.state = ProducerState(producer_snapshot.parse(data), rules=self.rules)
        self.ask("ok", "load", path)


def shown(aborted):
    return "".join(",".join(map(str, entry)) + " " for entry in aborted.tolist())


def as_expected(answer, request):
    """Kafka's answer in this package's terms."""
    if request[0] != "state":
        return EXCEPTIONS.get(answer, answer)
    undecided, unstable, *batches, path = answer.split("\t")
    remembered = []
    for text in batches:
        numbers = [number for number in re.split(",+", text.strip(",")) if number]
        remembered.append(
            " ".join(",".join(numbers[at : at + 5]) for at in range(0, len(numbers), 5))
        )
    with open(path, "rb") as file:
        entries = np.sort(producer_snapshot.parse(file.read()), order="producer_id").tolist()
    offsets = (None if text == "null" else int(text) for text in (undecided, unstable))
    return (*offsets, remembered, entries)


@pytest.mark.parametrize("version", ["2.4.0", "3.9.1", "4.2.2", "4.3.1"])
def test_producers_are_followed_as_the_broker_does(tmp_path, require_broker, version):
    require_broker(version)
    random = np.random.default_rng(11)
    requests, expected = [], []
    for number in range(150):
        directory = tmp_path / str(number)
        directory.mkdir()
        history = History(version, random, directory)
        for _ in range(30):
            history.step()
        history.look()
        requests += history.requests
        expected += history.answers
    answers = kafka_classes.ask(version, requests, program="KafkaProducerState")
    theirs = [
        as_expected(answer, request) for answer, request in zip(answers, requests, strict=True)
    ]
    wrong = [
        (number, requests[number], theirs[number], here)
        for number, here in enumerate(expected)
        if theirs[number] != here
    ]
    assert not wrong, (len(wrong), wrong[:3])
    assert {*EXCEPTIONS.values()} - {answer for answer in theirs if isinstance(answer, str)} <= (
        {"UnknownProducerIdError"} if version != "2.4.0" else set()
    )
    assert sum(isinstance(answer, str) and answer.startswith("duplicate") for answer in theirs) > 10
    assert sum(isinstance(answer, str) and "," in answer for answer in theirs) > 100
