"""KRaft snapshots: their names, and the control records that frame them."""

import re

import pytest
from models import format_document, record_reader

from kafkastore.errors import CorruptionError
from kafkastore.formats.records.control_records import (
    ControlRecordType,
    first_control_record,
    parse_kraft_value,
)
from kafkastore.formats.records.record_batch import Record, RecordBatch, TimestampType
from kafkastore.formats.state.file_names import BOOTSTRAP_CHECKPOINT, parse_segment_file

HEADER = bytes.fromhex("0000 000001a1f849b0f6 00")
FOOTER = bytes.fromhex("0000 00")


def control_record(number, value):
    """A control record of a type."""
    key = b"\0\0" + number.to_bytes(2, "big")
    return Record(0, 0, TimestampType.CREATE_TIME, key, value, (), 0)


def batches_of(path):
    """All batches of a file."""
    return [RecordBatch(data) for _, data in record_reader.split(path.read_bytes())[0]]


@pytest.mark.golden_cases(names="kraft-metadata")
def test_a_snapshot_of_a_real_controller_is_a_framed_log(golden_case):
    metadata = golden_case.logs / "__cluster_metadata-0"
    paths = sorted(metadata.glob("*.checkpoint"))
    assert paths
    for path in paths:
        first, *_, last = batches_of(path)
        header, footer = first.records()[0], last.records()[0]
        assert first.base_offset == 0
        assert first_control_record(first).type is ControlRecordType.SNAPSHOT_HEADER
        assert first_control_record(last).type is ControlRecordType.SNAPSHOT_FOOTER
        assert parse_kraft_value(footer) == {"version": 0}

        end_offset = parse_segment_file(path.name).base_offset
        (covered,) = (
            batch
            for batch in batches_of(metadata / f"{0:020}.log")
            if batch.base_offset < end_offset <= batch.last_offset + 1
        )
        assert parse_kraft_value(header) == {
            "version": 0, "last_contained_log_timestamp": covered.max_timestamp}
        assert covered.leader_epoch == parse_segment_file(path.name).leader_epoch


@pytest.mark.golden_cases(names="kraft-metadata")
def test_a_snapshot_s_name_is_parsed_as_by_kafka_s_own_tool(golden_case):
    dump = (golden_case.root / "cluster-metadata.txt").read_text()
    dumped = re.findall(
        r"Dumping (\S+\.checkpoint)\nSnapshot end offset: (\d+), epoch: (\d+)", dump
    )
    for name, end_offset, epoch in dumped:
        file = parse_segment_file(name)
        assert (file.base_offset, file.leader_epoch) == (int(end_offset), int(epoch))
    snapshots = (golden_case.logs / "__cluster_metadata-0").glob("*.checkpoint")
    assert sorted(name for name, *_ in dumped) == sorted(path.name for path in snapshots)


@pytest.mark.golden_cases(names=["kraft-metadata", "transactions"], versions=["3.*", "4.*"])
def test_a_bootstrap_checkpoint_is_a_framed_log_too(golden_case):
    first, *_, last = batches_of(golden_case.logs / BOOTSTRAP_CHECKPOINT)
    assert parse_kraft_value(first.records()[0])["last_contained_log_timestamp"] == 0
    assert parse_kraft_value(last.records()[0]) == {"version": 0}
    assert first_control_record(first).type is ControlRecordType.SNAPSHOT_HEADER
    assert first_control_record(last).type is ControlRecordType.SNAPSHOT_FOOTER


def test_a_value_that_is_cut_or_missing_is_refused():
    for data, number in ((HEADER, 3), (FOOTER, 4)):
        for size in range(len(data)):
            with pytest.raises(CorruptionError):
                parse_kraft_value(control_record(number, data[:size]))
        with pytest.raises(CorruptionError):
            parse_kraft_value(control_record(number, None))


def test_a_newer_version_is_read_as_the_newest_known():
    assert parse_kraft_value(control_record(3, b"\0\7" + HEADER[2:])) == {
        "version": 7, "last_contained_log_timestamp": 1795166941430}
    assert parse_kraft_value(control_record(0, bytes(6))) is None  # a marker


def test_the_examples_of_the_document_are_true():
    failed, run = format_document.run_examples("raft_checkpoint")
    assert run > 0
    assert failed == 0


def test_the_documents_table_is_the_headers_layout():
    fields, end = format_document.offset_table("raft_checkpoint")
    assert end == len(HEADER) - 1
    header = parse_kraft_value(control_record(3, HEADER))
    assert [name for _, _, name in fields] == list(header)
    for at, size, name in fields:
        data = bytearray(len(HEADER))
        data[at : at + size] = (4711).to_bytes(size, "big")
        expected = {"version": 0, "last_contained_log_timestamp": 0} | {name: 4711}
        assert parse_kraft_value(control_record(3, bytes(data))) == expected
