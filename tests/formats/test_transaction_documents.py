"""The documents of transactions against the code, and their examples run."""

import doctest
import re

import pytest
from models import format_document

from kafkastore.formats.indexes import transaction_index
from kafkastore.formats.records import control_records
from kafkastore.formats.state import producer_snapshot


def offset_tables(name):
    """The tables `at | bytes | field` of a document: [([(at, bytes, field), ...], end), ...]."""
    tables = []
    for line in (format_document.DOCUMENTS / f"{name}.md").read_text().splitlines():
        if line.startswith("| at | bytes | field |"):
            fields = []
        if row := re.match(r"\| (\d+) \| (\d+) \| (\w+) \|", line):
            fields.append((int(row[1]), int(row[2]), row[3]))
        if row := re.match(r"\| (\d+) \| \| \| end of ", line):
            tables.append((fields, int(row[1])))
    return tables


def fields_of(dtype):
    """The places of a dtype's fields, as a document's table has them."""
    fields = [(at, kind.itemsize, name) for name, (kind, at) in dtype.fields.items()]
    return fields, dtype.itemsize


def test_the_transaction_index_has_the_fields_that_the_document_says():
    (table,) = offset_tables("transaction_index")
    assert table == fields_of(transaction_index.ABORTED_TXN_ON_DISK)
    assert table == (
        [
            (transaction_index.VERSION_AT, 2, "version"),
            (transaction_index.PRODUCER_ID_AT, 8, "producer_id"),
            (transaction_index.FIRST_OFFSET_AT, 8, "first_offset"),
            (transaction_index.LAST_OFFSET_AT, 8, "last_offset"),
            (transaction_index.LAST_STABLE_OFFSET_AT, 8, "last_stable_offset"),
        ],
        transaction_index.ENTRY_SIZE,
    )


def test_a_producer_snapshot_has_the_fields_that_the_document_says():
    head, entry = offset_tables("producer_snapshot")
    assert head == (
        [
            (producer_snapshot.VERSION_AT, 2, "version"),
            (producer_snapshot.CRC_AT, 4, "crc"),
            (producer_snapshot.COUNT_AT, 4, "count"),
        ],
        producer_snapshot.ENTRIES_AT,
    )
    assert entry == fields_of(producer_snapshot.PRODUCER_ENTRY_ON_DISK)
    assert entry[1] == producer_snapshot.ENTRY_SIZE


def test_control_records_have_the_fields_that_the_document_says():
    key, value = offset_tables("control_records")
    assert key == (
        [
            (control_records.KEY_VERSION_AT, 2, "version"),
            (control_records.KEY_TYPE_AT, 2, "type"),
        ],
        control_records.KEY_SIZE,
    )
    assert value == (
        [
            (control_records.MARKER_VERSION_AT, 2, "version"),
            (control_records.MARKER_COORDINATOR_EPOCH_AT, 4, "coordinator_epoch"),
        ],
        control_records.MARKER_SIZE,
    )
    text = (format_document.DOCUMENTS / "control_records.md").read_text()
    assert re.findall(r"^\| (\d) \| ([A-Z_]+) \|", text, re.MULTILINE) == [
        (str(int(kind)), kind.name) for kind in control_records.ControlRecordType
    ]


@pytest.mark.parametrize("name", ["transaction_index", "producer_snapshot", "control_records"])
def test_the_examples_of_the_documents_are_true(name):
    failed, run = format_document.run_examples(name)
    assert failed == 0
    assert run >= 5


@pytest.mark.parametrize("module", [transaction_index, producer_snapshot])
def test_the_examples_of_the_modules_are_true(module):
    failed, run = doctest.testmod(module)
    assert failed == 0
    assert run >= 1


def test_the_worked_example_is_what_a_broker_wrote(golden):
    """The bytes in the document are those of a golden file."""
    logs = golden("2.4.0", "transactions", "answers").logs
    text = (format_document.DOCUMENTS / "transaction_index.md").read_text()
    (shown,) = re.findall(r"begins:\n\n((?:    [0-9a-f ]+\n)+)", text)
    index = (logs / "txn-1" / "00000000000000000009.txnindex").read_bytes()
    assert index.startswith(bytes.fromhex(shown))
