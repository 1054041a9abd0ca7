import pytest
from models.stub import differences

from kafkastore.formats.indexes import index_builder, index_format, segment_growth
from kafkastore.formats.primitives import crc
from kafkastore.formats.records import (
    append_sets,
    batch_builder,
    batch_header,
    batch_sequence,
    latest_offsets,
    record_batch,
    record_columns,
    record_rows,
)

#: Imported for the default of a parameter; it belongs to `compression`.
IMPORTED = "constant MAX_DECOMPRESSED_BYTES is not in the stub"


@pytest.mark.parametrize(
    "module",
    [
        append_sets,
        batch_builder,
        batch_header,
        batch_sequence,
        crc,
        index_builder,
        index_format,
        latest_offsets,
        record_batch,
        record_columns,
        record_rows,
        segment_growth,
    ],
    ids=lambda module: module.__name__.rpartition(".")[2],
)
def test_the_stub_matches_the_module(module):
    assert [found for found in differences(module) if found != IMPORTED] == []
