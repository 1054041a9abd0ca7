"""The transaction index file: what is read of it, and which damage is reported."""

import pytest

from kafkastore.errors import CorruptIndexError, NotAFileError
from kafkastore.formats.indexes import transaction_index
from kafkastore.formats.state.file_names import InvalidNameError
from kafkastore.segment.transaction_index_file import TransactionIndex

BASE_OFFSET = 42
ENTRIES = [(1, 40, 50, 45), (2, 45, 60, 61), (1, 70, 71, 72)]


@pytest.fixture
def write(tmp_path):
    """Write a transaction index named for BASE_OFFSET."""

    def write(data):
        path = tmp_path / f"{BASE_OFFSET:020d}.txnindex"
        path.write_bytes(data)
        return path

    return write


def test_a_file_is_read_once_and_answers_as_its_bytes_do(write):
    data = transaction_index.pack(ENTRIES)
    path = write(data)
    index = TransactionIndex.open(path)
    path.unlink()
    assert index.base_offset == BASE_OFFSET
    assert index.size == 102
    assert index.entry_count == 3
    assert index.entries().tolist() == ENTRIES
    assert index.entry_bytes() == data
    assert index.truncate_to(60) == 1
    assert index.first_disorder() == -1
    index.check()
    found = index.collect_aborted_txns(55, 61)
    assert found.aborted_txns.tolist() == [ENTRIES[1]]
    assert found.is_complete
    assert not index.collect_aborted_txns(0, 73).is_complete
    assert repr(index) == f"TransactionIndex({str(path)!r}, base_offset=42)"


def test_entries_cannot_be_altered_by_who_reads_them(write):
    index = TransactionIndex.open(write(transaction_index.pack(ENTRIES)))
    with pytest.raises(ValueError, match="read-only"):
        index.entries()["last_offset"] = 0


@pytest.mark.parametrize("is_there", [True, False])
def test_an_empty_or_missing_file_has_no_aborted_transactions(write, is_there):
    path = write(b"")
    if not is_there:
        path.unlink()
    with TransactionIndex.open(path) as index:
        assert index.size == index.entry_count == index.truncate_to(0) == 0
        assert index.entries().tolist() == []
        assert index.entry_bytes() == b""
        assert index.first_disorder() == -1
        found = index.collect_aborted_txns(0, 2**63 - 1)
        assert (found.aborted_txns.tolist(), found.is_complete) == ([], False)
        index.check()


def test_a_directory_is_reported_as_one(tmp_path):
    folder = tmp_path / "00000000000000000042.txnindex"
    folder.mkdir()
    with pytest.raises(NotAFileError):
        TransactionIndex.open(folder)


def test_the_base_offset_is_that_of_the_name_unless_given(write, tmp_path):
    path = write(transaction_index.pack(ENTRIES))
    index = TransactionIndex.open(path, 51)
    assert index.base_offset == 51
    with pytest.raises(CorruptIndexError) as refused:
        index.check()
    assert refused.value.path == path
    other = path.rename(tmp_path / "aborted")
    with pytest.raises(InvalidNameError):
        TransactionIndex.open(other)
    assert TransactionIndex.open(str(other), 42).entry_count == 3


def test_damage_is_reported_with_path_and_position(write):
    data = transaction_index.pack(ENTRIES)
    torn = TransactionIndex.open(write(data + b"\0\0\1"))
    assert torn.entries().tolist() == ENTRIES
    assert torn.entry_bytes() == data
    with pytest.raises(CorruptIndexError) as refused:
        torn.check()
    assert (refused.value.path, refused.value.position) == (torn.path, 102)
    unknown = TransactionIndex.open(write(data[:34] + b"\0\1" + data[36:]))
    assert unknown.entry_count == 3
    for read in (
        unknown.entries, unknown.check, unknown.first_disorder,
        lambda: unknown.collect_aborted_txns(0, 9), lambda: unknown.truncate_to(9),
    ):
        with pytest.raises(CorruptIndexError) as refused:
            read()
        assert (refused.value.path, refused.value.position) == (unknown.path, 34)


@pytest.mark.golden_cases(names="transactions", answers="answers")
def test_reading_indexes_segment_by_segment_gives_what_any_range_needs(golden_case):
    """As a broker does: from the range's segment on, until an index says that it is complete."""
    for name in ("txn-0", "txn-1"):
        logs = sorted((golden_case.logs / name).glob("*.log"))
        indexes = [TransactionIndex.open(path.with_suffix(".txnindex")) for path in logs]
        every = [entry for index in indexes for entry in index.entries().tolist()]
        assert every
        for start in range(0, 140, 3):
            holder = max(
                (slot for slot, index in enumerate(indexes) if index.base_offset <= start)
            )
            for end in range(start + 1, 140, 5):
                found = []
                for index in indexes[holder:]:
                    aborted_txns, is_complete = index.collect_aborted_txns(start, end)
                    found += aborted_txns.tolist()
                    if is_complete:
                        break
                assert found == [entry for entry in every if entry[2] >= start and entry[1] < end]
