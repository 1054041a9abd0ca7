"""Offsets within wrappers: no checksum covers the one that the header has."""

import shutil
from itertools import pairwise

import pytest
from kafkastore.migration.convert import plan_convert
from models.iteration import until_error
from models.log_directory import Log, Segment
from models.record_format import GZIP, Batch, Row
from models.record_strategies import in_a_row

import kafkastore
from kafkastore import CorruptBatchError
from kafkastore.checks.findings import FindingKind
from kafkastore.checks.repair import plan_repair

#: Six wrappers of six messages in each segment.
PER_WRAPPER, WRAPPERS = 6, 6


def write(root, magic):
    batches = in_a_row([
        Batch(tuple(Row(slot, 100 + slot) for slot in range(PER_WRAPPER)), magic=magic, codec=GZIP)
        for _ in range(2 * WRAPPERS)
    ])
    halves = batches[:WRAPPERS], batches[WRAPPERS:]
    segments = [Segment(half[0].base_offset, tuple(half)).indexed() for half in halves]
    return Log(tuple(segments), is_clean=True).write(root), batches


def rising(offsets):
    return all(one < other for one, other in pairwise(offsets))


@pytest.mark.parametrize("slot", range(WRAPPERS))
def test_offsets_that_overlap_with_the_wrapper_before_are_reported_by_all(tmp_path, slot):
    error_count = 0
    for bit in range(16):
        root, batches = write(tmp_path / f"{bit}", 1)
        path = root / "t-0" / f"{0:020}.log"
        data = bytearray(path.read_bytes())
        begin = sum(len(each.data) for each in batches[:slot])
        data[begin + 7 - bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        log = kafkastore.open(root)["t", 0]
        records, error = until_error(log.records())
        tables, arrow_error = until_error(log.to_arrow(["offset"]))
        offsets = [each.offset for each in records]
        assert [at for table in tables for at in table["offset"].to_pylist()] == offsets
        assert rising(offsets), bit
        assert (arrow_error is None) == (error is None)
        kinds = {each.kind for each in kafkastore.verify(root) if each.path == path}
        shutil.copytree(root, tmp_path / f"{bit}-converted")
        plan = plan_convert(tmp_path / f"{bit}-converted")
        kafkastore.apply(plan)
        converted = kafkastore.open(tmp_path / f"{bit}-converted")["t", 0]
        if error is None:
            assert [each.offset for each in converted.records()] == offsets
            continue
        error_count += 1
        assert isinstance(error, CorruptBatchError)
        assert (error.path, error.position) == (arrow_error.path, arrow_error.position)
        assert kinds & {FindingKind.OUT_OF_ORDER_OFFSETS, FindingKind.BATCH_OUTSIDE_SEGMENT}
        assert plan.unconverted
        kafkastore.apply(plan_repair(root, on_corrupt="skip"))
        kept, none = until_error(kafkastore.open(root)["t", 0].records())
        assert none is None
        assert rising([each.offset for each in kept])
        assert len(kept) >= (2 * WRAPPERS - 2) * PER_WRAPPER
    assert error_count


def wrong_wrapper(magic):
    """Messages, a wrapper whose messages do not fit after them, and more messages."""
    single = [Batch((Row(each, 100 + each),), magic=magic) for each in range(12)]
    rows = tuple(Row(each, 1000 + each) for each in ((5, 6, 7) if magic else (304, 305, 306)))
    wrapper = Batch(rows, magic=magic, codec=GZIP, **({} if magic else {"wrapper_offset": 7}))
    return [*single[:7], wrapper, *single[8:]]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("indexes", ["check", "ignore"])
def test_a_wrapper_that_no_reader_accepts_answers_no_lookup(tmp_path, magic, indexes):
    segment = Segment(0, tuple(wrong_wrapper(magic))).indexed()
    root = Log((segment,), is_clean=True).write(tmp_path / "logs")
    log = kafkastore.open(root)["t", 0]
    records, error = until_error(log.records())
    assert [each.offset for each in records] == list(range(7))
    assert isinstance(error, CorruptBatchError)
    assert {each.kind for each in kafkastore.verify(root)} & {FindingKind.OUT_OF_ORDER_OFFSETS}
    assert plan_convert(root).unconverted
    if magic:
        with pytest.raises(CorruptBatchError) as raised:
            log.offset_for_timestamp(500, indexes=indexes)
        assert raised.value.position == error.position
        skipped = []
        assert log.offset_for_timestamp(500, on_corrupt="skip", skipped=skipped) is None
        assert [each.position for each in skipped] == [error.position]
    kafkastore.apply(plan_repair(root, on_corrupt="skip"))
    kept = [each.offset for each in kafkastore.open(root)["t", 0].records()]
    assert kept == [*range(7), *range(8, 12)]


def test_complete_wrappers_of_all_formats_are_read(tmp_path):
    for magic in (0, 1):
        root, batches = write(tmp_path / f"{magic}", magic)
        found = [each.offset for each in kafkastore.open(root)["t", 0].records()]
        assert found == list(range(len(batches) * PER_WRAPPER))
        assert not [each for each in kafkastore.verify(root) if each.path.suffix == ".log"]
