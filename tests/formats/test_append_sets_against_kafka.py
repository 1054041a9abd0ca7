"""A leader's changes to a batch, compared with LogValidator of real brokers."""

import base64
import random

import pytest
from models import kafka_classes

from kafkastore import Record, TimestampType
from kafkastore.formats.records.compression import Codec
from kafkastore.formats.records.record_batch import RecordBatch
from kafkastore.formats.records.record_builder import build_batch
from kafkastore.versions import rules_of
from kafkastore.writing.append_rules import AppendRules
from kafkastore.writing.log_config import LogConfig

pytestmark = pytest.mark.kafka

NOW = 1_600_000_000_000
FIELDS = (
    "magic", "base_offset", "last_offset", "count", "max_timestamp", "base_timestamp",
    "timestamp_type", "codec", "leader_epoch", "producer_id", "producer_epoch", "base_sequence",
    "is_transactional", "is_control",
)


def batches(chance):
    """Batches as producers send them, some of an idempotent or transactional one."""
    for number in range(40):
        fields = {}
        if chance.randrange(2):
            fields = {"producer_id": number, "producer_epoch": 1, "base_sequence": 5}
            fields["is_transactional"] = bool(chance.randrange(2))
        records = [
            Record(
                offset,
                chance.choice([-1, NOW - chance.randrange(10_000)]),
                TimestampType.CREATE_TIME,
                chance.choice([None, b"", b"key"]),
                chance.choice([None, bytes(chance.randrange(200))]),
                (("h", b"1"), ("none", None)) if chance.randrange(2) else (),
                None,
            )
            for offset in range(chance.randrange(1, 9))
        ]
        yield build_batch(records, codec=chance.choice(list(Codec)), **fields)


@pytest.mark.parametrize("version", ["2.4.0", "3.9.1", "4.3.1"])
def test_a_batch_gets_what_a_broker_gives_it_also_where_it_is_compressed_again(
    require_broker, version
):
    require_broker(version)
    chance, requests, ours = random.Random(5), [], []
    for data in batches(chance):
        old, codec = RecordBatch(data), chance.choice(list(Codec))
        has_append_time, offset = chance.random() < 0.3, chance.randrange(2**40)
        name = "uncompressed" if codec == Codec.NONE else codec.name.lower()
        config = LogConfig.of({
            "compression.type": name,
            "message.timestamp.type": "LogAppendTime" if has_append_time else "CreateTime",
        })
        written, sets = AppendRules(config, rules_of(version)).as_leader(
            data, offset, leader_epoch=9, now=NOW
        )
        ((*_, largest_timestamp, offset_of_max),) = sets.fields()
        ours.append((old.codec == codec, bytes(written), largest_timestamp, offset_of_max))
        kind = "LOG_APPEND_TIME" if has_append_time else "CREATE_TIME"
        shown = base64.b64encode(data).decode()
        requests.append((shown, old.codec.name, codec.name, offset, 9, kind, NOW))
    answers = kafka_classes.ask(version, requests, program="KafkaValidator")
    for (is_same, data, largest_timestamp, offset_of_max), answer in zip(
        ours, answers, strict=True
    ):
        answered_timestamp, answered_offset, shown = answer.split(" ")
        assert int(answered_timestamp) == largest_timestamp
        if version == "2.4.0":
            assert int(answered_offset) == offset_of_max
        theirs = base64.b64decode(shown)
        found, expected = RecordBatch(data), RecordBatch(theirs)
        if is_same or found.codec == Codec.NONE:
            assert data == theirs
        for field in FIELDS:
            assert getattr(found, field) == getattr(expected, field), field
        assert found.records() == expected.records()
        expected.verify()
    assert {is_same for is_same, *_ in ours} == {True, False}
