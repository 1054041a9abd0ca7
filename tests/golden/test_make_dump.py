"""The output of DumpLogSegments is parsed the same way for each version."""
import pytest
from golden.make.dump import parse_dump

LOG = "00000000000000000000.log"
# version: a line of its tool, and the fields kept of it
BATCH_LINES = {
    "0.8.2.2": (
        (
            "offset: 1 position: 118 isvalid: true payloadsize: 0 magic: 0"
            " compresscodec: NoCompressionCodec crc: 2641906761 keysize: 2"
        ),
        {
            "position": 118,
            "payload_size": 0,
            "magic": 0,
            "compression": "NoCompressionCodec",
            "crc": 2641906761,
            "key_size": 2,
            "last_offset": 1,
        },
    ),
    "0.11.0.3": (
        (
            "baseOffset: 1 lastOffset: 6 baseSequence: -1 lastSequence: -1 producerId: -1"
            " producerEpoch: -1 partitionLeaderEpoch: 0 isTransactional: false position: 70"
            " CreateTime: 1500000001050 isvalid: true size: 381 magic: 2 compresscodec: NONE"
            " crc: 753087018"
        ),
        {
            "base_offset": 1,
            "last_offset": 6,
            "partition_leader_epoch": 0,
            "position": 70,
            "size": 381,
            "magic": 2,
            "compression": "NONE",
            "crc": 753087018,
            "max_timestamp": 1500000001050,
            "timestamp_type": "CreateTime",
        },
    ),
    "4.1.1": (
        (
            "baseOffset: 7 lastOffset: 8 count: 2 baseSequence: 0 lastSequence: 1 producerId: 5"
            " producerEpoch: 0 partitionLeaderEpoch: 2 isTransactional: true isControl: false"
            " deleteHorizonMs: OptionalLong[9] position: 388 LogAppendTime: 1500000002190 size: 887"
            " magic: 2 compresscodec: none crc: 1681820499 isvalid: false"
        ),
        {
            "base_offset": 7,
            "last_offset": 8,
            "count": 2,
            "base_sequence": 0,
            "last_sequence": 1,
            "producer_id": 5,
            "producer_epoch": 0,
            "partition_leader_epoch": 2,
            "is_transactional": True,
            "delete_horizon_ms": "OptionalLong",
            "position": 388,
            "size": 887,
            "magic": 2,
            "compression": "none",
            "crc": 1681820499,
            "is_valid": False,
            "max_timestamp": 1500000002190,
            "timestamp_type": "LogAppendTime",
        },
    ),
}


@pytest.mark.parametrize("version", BATCH_LINES)
def test_batches_are_reported_without_what_is_usual(version):
    line, batch = BATCH_LINES[version]
    dump = parse_dump(f"Dumping /some/where/{LOG}\nStarting offset: 0\n{line}\n")
    assert dump.batches == {LOG: [batch]}
    assert dump.printed == []


def test_entries_of_each_index_are_read():
    dump = parse_dump(
        "Dumping a/1.index\noffset: 26 position: 391\noffset: 27 position: 1769\n"
        "Dumping a/1.timeindex\ntimestamp: 1500000002190 offset: 26\n"
        "Dumping a/1.txnindex\n"
        "version: 0 producerId: 1 firstOffset: 17 lastOffset: 29 lastStableOffset: 13\n"
    )
    aborted = {
        "version": 0, "producer_id": 1, "firstOffset": 17, "last_offset": 29, "lastStableOffset": 13
    }
    assert dump.entries == {
        "1.index": [[26, 391], [27, 1769]],
        "1.timeindex": [[1500000002190, 26]],
        "1.txnindex": [aborted],
    }


def test_an_empty_file_is_reported_as_empty():
    assert parse_dump(f"Dumping {LOG}\nLog starting offset: 0\n").batches == {LOG: []}


def test_an_exception_is_reported_with_its_file():
    dump = parse_dump(
        "Dumping 0.log\nStarting offset: 0\nDumping 5.log\nStarting offset: 5\n"
        'Exception in thread "main" org.apache.kafka.common.errors.CorruptRecordException: small\n'
        "\tat org.apache.kafka.Here\n"
    )
    assert dump.died_in == "5.log"
    assert len(dump.printed) == 2
