import re
from itertools import pairwise

import pytest
from models.format_document import DOCUMENTS, run_examples

from kafkastore.formats.records import batch_header

CONSTANTS = {
    ("record_batch", 0): batch_header.RECORD_BATCH_FIELDS,
    ("message_set", 0): batch_header.MESSAGE_FIELDS_V0,
    ("message_set", 1): batch_header.MESSAGE_FIELDS_V1,
}


def offset_tables(name):
    """The tables `| at | bytes | field | ...` of a document, each as [(at, bytes, field)]."""
    tables = []
    for line in (DOCUMENTS / f"{name}.md").read_text().splitlines():
        if line.startswith("| at | bytes | field |"):
            tables.append([])
        row = re.match(r"\| (\d+) \| (?:(\d+) )?\| (\w+) \|", line)
        if row:
            at, size, field = row.groups()
            tables[-1].append((int(at), int(size) if size else None, field))
    return tables


@pytest.mark.parametrize(("name", "number"), CONSTANTS)
def test_the_table_has_the_places_that_the_code_has(name, number):
    table = offset_tables(name)[number]
    assert {field: at for at, _, field in table} == CONSTANTS[name, number]


@pytest.mark.parametrize(("name", "number"), CONSTANTS)
def test_the_fields_of_the_table_follow_each_other(name, number):
    table = offset_tables(name)[number]
    for (at, size, _), (following, _, _) in pairwise(table):
        assert at + size == following
    assert table[-1][1] is None


@pytest.mark.parametrize("name", ["record_batch", "message_set"])
def test_the_examples_of_the_document_print_what_it_says(name):
    failed, run = run_examples(name)
    assert failed == 0
    assert run > 4
