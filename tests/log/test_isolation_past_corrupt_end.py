"""Reading committed records of a log whose last segment is corrupt."""

import pytest
from models.iteration import until_error

import kafkastore
from kafkastore.errors import CorruptionError


def exchange_batches(logs):
    """Exchange the second and the third batch of the last segment with batches."""
    path = [each for each in logs if each.stat().st_size][-1]
    data, batches = path.read_bytes(), []
    while data:
        size = 12 + int.from_bytes(data[8:12], "big")
        batches.append(data[:size])
        data = data[size:]
    if len(batches) > 2:
        batches[1], batches[2] = batches[2], batches[1]
    path.write_bytes(b"".join(batches))


def exchange_segments(logs):
    """Exchange the content of the last two segments."""
    first, second = logs[-2:]
    before = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(before)


def spoil_magic(logs):
    """Write other bytes over epoch, magic and checksum of a batch."""
    path = [each for each in logs if each.stat().st_size][-1]
    data = bytearray(path.read_bytes())
    data[13:17] = b"\x11\x22\x33\x44"
    path.write_bytes(data)


def offsets(log, **options):
    records, error = until_error(log.records(isolation="read_committed", **options))
    return [each.offset for each in records], error


@pytest.mark.parametrize("damage", [exchange_batches, exchange_segments, spoil_magic])
@pytest.mark.golden_cases(
    names="transactions", versions=["0.11.*", "2.*", "3.*", "4.*"], answers="answers"
)
def test_committed_records_before_a_corrupt_end_are_read(golden_case, writable_copy, damage):
    read_count = 0
    for before in kafkastore.open(golden_case.logs):
        intact, _ = offsets(before)
        root = writable_copy(golden_case.logs)
        logs = sorted((root / before.path.name).glob("*.log"))
        if len(logs) < 2:
            continue
        damage(logs)
        log = kafkastore.open(root)[before.path.name]
        found, error = offsets(log)
        assert set(found) <= set(intact)
        assert error is None or isinstance(error, CorruptionError)
        for choice in ("skip", "stop"):
            skipped = []
            kept, none = offsets(log, on_corrupt=choice, skipped=skipped)
            assert none is None
            assert set(kept) <= set(intact)
            assert kept[: len(found)] == found
            assert bool(skipped) == (error is not None)
            table = log.to_arrow(
                ["offset"], isolation="read_committed", on_corrupt=choice, skipped=[]
            ).read_all()
            assert table["offset"].to_pylist() == kept
        read_count += bool(found)
    assert read_count
