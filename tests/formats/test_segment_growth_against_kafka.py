"""Segment growth compared with LogSegment of real brokers: equal sets give equal indexes."""

import random

import pytest
from models import kafka_classes

from kafkastore import Record, TimestampType
from kafkastore.formats.indexes.segment_growth import SegmentGrowth
from kafkastore.formats.records.append_sets import keep_offsets
from kafkastore.formats.records.record_builder import build_batch
from kafkastore.versions import rules_of

pytestmark = pytest.mark.kafka

VERSIONS = ["2.4.0", "3.9.1", "4.3.1"]
QUERIED_MS = 1_000_000  # how long a segment has waited for a record of this time


def new_sets(chance, base_offset):
    """Yield sets of batches as a follower takes them: bytes, and what they are."""
    offset = base_offset
    for _ in range(chance.randrange(1, 12)):
        batches = []
        for _ in range(chance.choice([1, 1, 2, 3, 15])):
            records = []
            for _ in range(chance.randrange(1, 4)):
                timestamp = chance.choice([-1, chance.randrange(900), chance.randrange(900)])
                value = bytes(chance.randrange(300))
                records.append(
                    Record(offset, timestamp, TimestampType.CREATE_TIME, None, value, (), None)
                )
                offset += chance.choice([1, 1, 1, 30])
            batches.append(build_batch(records))
        data = b"".join(batches)
        yield data, keep_offsets(data, 0)[0]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_that_appends_the_same_sets_leaves_the_same_indexes(
    tmp_path, require_broker, version
):
    require_broker(version)
    chance, requests, expected = random.Random(806), [], []
    for number in range(60):
        base_offset, interval = chance.choice([0, 45, 2**40]), chance.choice([0, 100, 700, 4096])
        directory = tmp_path / str(number)
        directory.mkdir()
        growth = SegmentGrowth(
            base_offset, index_interval_bytes=interval, segment_bytes=1 << 30, roll_ms=1 << 60,
            created_ms=0, max_offset_entries=1 << 17, max_time_entries=1 << 17,
            each_batch=rules_of(version).each_batch_is_indexed,
        )
        batches, shown = b"", []
        for data, sets in new_sets(chance, base_offset):
            batches += data
            size, _, *numbers = sets.fields()[0]
            shown.append(" ".join(map(str, (size, *numbers))))
            assert growth.append(sets, 0, 0) == 1
        growth.finish()
        (tmp_path / f"{number}.batches").write_bytes(batches)
        requests.append(
            (directory, base_offset, interval, tmp_path / f"{number}.batches", *shown)
        )
        waited = QUERIED_MS - growth.first_timestamp if growth.first_timestamp >= 0 else None
        expected.append((base_offset, batches, growth.take_entries(), waited))
    answers = kafka_classes.ask(version, requests, program="KafkaSegments")
    for request, answer, (base_offset, batches, entries, waited) in zip(
        requests, answers, expected, strict=True
    ):
        left = [
            (request[0] / f"{base_offset:020}{suffix}").read_bytes()
            for suffix in (".log", ".index", ".timeindex")
        ]
        assert left == [batches, *entries]
        if waited is not None:  # else by the wall clock
            assert int(answer) == waited
    assert sum(len(entries[0]) for _, _, entries, _ in expected) > 8 * 100
