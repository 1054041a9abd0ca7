"""KRaft snapshots: their names, and the control records that frame them."""

import doctest
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import format_document, record_reader
from models.record_strategies import bounded

from kafkastore.errors import CorruptionError, KafkaStoreError
from kafkastore.formats.records.control_records import ControlRecordType, first_control_record
from kafkastore.formats.records.record_batch import RecordBatch
from kafkastore.formats.state import raft_snapshot
from kafkastore.formats.state.file_names import BOOTSTRAP_CHECKPOINT, parse_segment_file
from kafkastore.formats.state.raft_snapshot import (
    SnapshotHeader,
    parse_snapshot_footer,
    parse_snapshot_header,
)

HEADER = bytes.fromhex("0000 000001a1f849b0f6 00")
FOOTER = bytes.fromhex("0000 00")


def batches_of(path):
    """All batches of a file."""
    return [RecordBatch(data) for _, data in record_reader.split(path.read_bytes())[0]]


@pytest.mark.golden_cases(names="kraft-metadata")
def test_a_snapshot_of_a_real_controller_is_a_framed_log(golden_case):
    metadata = golden_case.logs / "__cluster_metadata-0"
    (path,) = metadata.glob("*.checkpoint")
    first, *_, last = batches_of(path)
    header, footer = first.records()[0], last.records()[0]
    assert first.base_offset == 0
    assert first_control_record(first).type is ControlRecordType.SNAPSHOT_HEADER
    assert first_control_record(last).type is ControlRecordType.SNAPSHOT_FOOTER
    assert parse_snapshot_footer(footer.value) == 0

    end_offset = parse_segment_file(path.name).base_offset
    (covered,) = (
        batch
        for batch in batches_of(metadata / f"{0:020}.log")
        if batch.base_offset < end_offset <= batch.last_offset + 1
    )
    assert parse_snapshot_header(header.value) == SnapshotHeader(0, covered.max_timestamp)
    assert covered.leader_epoch == parse_segment_file(path.name).leader_epoch


@pytest.mark.golden_cases(names="kraft-metadata")
def test_a_snapshot_s_name_is_parsed_as_by_kafka_s_own_tool(golden_case):
    dump = (golden_case.root / "cluster-metadata.txt").read_text()
    ((name, end_offset, epoch),) = re.findall(
        r"Dumping (\S+\.checkpoint)\nSnapshot end offset: (\d+), epoch: (\d+)", dump
    )
    file = parse_segment_file(name)
    assert (file.base_offset, file.leader_epoch) == (int(end_offset), int(epoch))
    assert (golden_case.logs / "__cluster_metadata-0" / name).exists()


@pytest.mark.golden_cases(names=["kraft-metadata", "transactions"], versions=["3.*", "4.*"])
def test_a_bootstrap_checkpoint_is_a_framed_log_too(golden_case):
    first, *_, last = batches_of(golden_case.logs / BOOTSTRAP_CHECKPOINT)
    assert parse_snapshot_header(first.records()[0].value) == (0, 0)
    assert parse_snapshot_footer(last.records()[0].value) == 0
    assert first_control_record(first).type is ControlRecordType.SNAPSHOT_HEADER
    assert first_control_record(last).type is ControlRecordType.SNAPSHOT_FOOTER


def test_unknown_tags_are_skipped():
    with_tag = "01 05 02 aabb"
    assert parse_snapshot_header(HEADER[:-1] + bytes.fromhex(with_tag)) == (0, 1795166941430)
    assert parse_snapshot_footer(FOOTER[:-1] + bytes.fromhex(with_tag)) == 0


@pytest.mark.parametrize(
    ("parse", "data"), [(parse_snapshot_header, HEADER), (parse_snapshot_footer, FOOTER)]
)
def test_a_value_cut_anywhere_is_refused_with_its_place(parse, data):
    for size in range(len(data)):
        with pytest.raises(CorruptionError) as refused:
            parse(data[:size])
        assert refused.value.position <= size


@bounded(100)
@given(st.binary(max_size=30))
def test_any_bytes_are_a_value_or_refused(data):
    for parse, smallest in ((parse_snapshot_header, 11), (parse_snapshot_footer, 3)):
        try:
            parse(data)
        except KafkaStoreError:
            continue
        assert len(data) >= smallest


def test_the_examples_of_the_document_and_the_module_are_true():
    examples = format_document.run_examples("raft_checkpoint")
    for failed, run in (examples, doctest.testmod(raft_snapshot)):
        assert run > 0
        assert failed == 0


def test_the_documents_table_is_the_headers_layout():
    fields, end = format_document.offset_table("raft_checkpoint")
    assert end == len(HEADER) - 1
    assert [name for _, _, name in fields] == list(SnapshotHeader._fields)
    for at, size, name in fields:
        data = bytearray(len(HEADER))
        data[at : at + size] = (4711).to_bytes(size, "big")
        header = parse_snapshot_header(bytes(data))
        assert header == SnapshotHeader(0, 0)._replace(**{name: 4711})
