"""Reading past corrupt bytes skips exactly what `repair --on-corrupt skip` removes."""

import shutil
import struct
import tempfile
import warnings
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from models.iteration import until_error
from models.log_directory import Log, Segment
from models.record_format import GZIP, Batch, Row, with_right_crc
from models.record_strategies import bounded, in_a_row, logs
from models.refused import refused

import kafkastore
from kafkastore import CorruptionError, UnsupportedFormatError
from kafkastore.checks.repair import plan_repair
from kafkastore.log import range_scan
from kafkastore.log.damage import SkippedBytesWarning

COLUMNS = ["offset", "timestamp", "key", "value"]
FOLLOWING = 40


def damage(data, source):
    """Damage some bytes: flip a bit, cut bytes out, overwrite them or put others between."""
    at = source.randrange(len(data))
    size = source.randrange(1, 60)
    match source.randrange(5):
        case 0:
            data[at] ^= 1 << source.randrange(8)
        case 1:
            del data[at : at + size]
        case 2:
            data[at : at + size] = source.randbytes(len(data[at : at + size]))
        case 3:
            data[at : at + size] = bytes(len(data[at : at + size]))
        case 4:
            data[at:at] = source.randbytes(size)


@contextmanager
def damaged(log, source):
    """Write a log of which one to three places are corrupt, or none where it is empty."""
    with tempfile.TemporaryDirectory() as directory:
        root = log.write(Path(directory) / "logs")
        paths = [path for path in sorted((root / "t-0").glob("*.log")) if path.stat().st_size]
        for _ in range(source.randrange(1, 4) if paths else 0):
            path = source.choice(paths)
            data = bytearray(path.read_bytes())
            if data:
                damage(data, source)
            path.write_bytes(data)
        yield root


def repaired(root):
    """A copy of the partition after repair."""
    copy = root.parent / "repaired"
    shutil.copytree(root, copy)
    kafkastore.apply(plan_repair(copy, on_corrupt="skip"))
    return kafkastore.open(copy)["t-0"]


def rows(records):
    return [(each.offset, each.timestamp, each.key, each.value) for each in records]


def read_arrow(log, **options):
    """Rows by Arrow up to an error, and the error."""
    found, error = until_error(log.to_arrow(COLUMNS, **options))
    columns = [
        (
            batch["offset"].to_pylist(),
            [each // 1000 for each in batch["timestamp"].cast(pa.int64()).to_pylist()],
            batch["key"].to_pylist(),
            batch["value"].to_pylist(),
        )
        for batch in found
    ]
    return [row for each in columns for row in zip(*each, strict=True)], error


@bounded(150)
@given(logs(), st.randoms(use_true_random=False))
def test_skip_gives_what_repair_keeps(log, source):
    with damaged(log, source) as root:
        found = kafkastore.open(root)["t-0"]
        kept = repaired(root)
        skipped = []
        records, error = until_error(found.records(on_corrupt="skip", skipped=skipped))
        assert error is None
        expected, unexpected = until_error(kept.records(start_offset=found.log_start_offset))
        assert unexpected is None
        assert rows(records) == rows(expected)
        by_arrow = []
        table, error = read_arrow(found, on_corrupt="skip", skipped=by_arrow)
        assert error is None
        assert table == rows(records)
        assert by_arrow == skipped


@bounded(150)
@given(logs(), st.randoms(use_true_random=False))
def test_all_bytes_that_are_no_batch_are_skipped_once_in_order(log, source):
    with damaged(log, source) as root:
        found = kafkastore.open(root)["t-0"]
        assume(found.log_start_offset == found.segments[0].base_offset)
        damages = plan_repair(root, on_corrupt="skip").removed
        skipped = []
        list(found.records(on_corrupt="skip", skipped=skipped))
        left_out = {
            (root / each.path, at)
            for each in damages
            for at in range(each.position, each.position + each.size)
        }
        in_turn = [
            (each.path, at) for each in skipped for at in range(each.position, each.end_position)
        ]
        assert in_turn == sorted(set(in_turn))
        # What repair also cuts is a torn tail, which is not corruption.
        torn = left_out - set(in_turn)
        assert set(in_turn) <= left_out
        last = max((root / "t-0").glob("*.log"))
        assert sorted(torn) == [
            (last, at) for at in range(last.stat().st_size - len(torn), last.stat().st_size)
        ]


@bounded(150)
@given(logs(), st.randoms(use_true_random=False))
def test_stop_ends_where_raise_has_its_error(log, source):
    with damaged(log, source) as root:
        found = kafkastore.open(root)["t-0"]
        stopped = []
        records, none = until_error(found.records(on_corrupt="stop", skipped=stopped))
        assert none is None
        raised, error = until_error(found.records())
        assert rows(records) == rows(raised)
        assert [(each.path, each.position) for each in stopped] == (
            [] if error is None else [(error.path, error.position)]
        )
        by_arrow = []
        table, none = read_arrow(found, on_corrupt="stop", skipped=by_arrow)
        assert none is None
        assert (table, by_arrow) == (rows(records), stopped)
        table, arrow_error = read_arrow(found)
        assert table == rows(records)
        if error is not None:
            place = (arrow_error.path, arrow_error.position)
            assert place == (error.path, error.position)
            assert isinstance(error, CorruptionError | UnsupportedFormatError)


@bounded(150)
@given(logs(), st.randoms(use_true_random=False), st.integers(0, 60), st.integers(0, 60))
def test_records_between_offsets_are_those_of_all(log, source, start, end):
    with damaged(log, source) as root:
        found = kafkastore.open(root)["t-0"]
        everything = rows(found.records(on_corrupt="skip", skipped=[]))
        between = [row for row in everything if start <= row[0] < end]
        options = {"on_corrupt": "skip", "skipped": []}
        assert rows(found.records(start, end, **options)) == between
        bounds = {"start_offset": start, "end_offset": end}
        for binary_view in (False, True):
            table, error = read_arrow(found, binary_view=binary_view, **bounds, **options)
            assert error is None
            assert table == between


@bounded(60)
@given(logs(), st.randoms(use_true_random=False))
def test_small_reads_and_committed_ones_skip_the_same(log, source):
    with damaged(log, source) as root, pytest.MonkeyPatch.context() as patch:
        found = kafkastore.open(root)["t-0"]
        skipped = []
        records = rows(found.records(on_corrupt="skip", skipped=skipped))
        patch.setattr(range_scan, "SMALLEST_READ", 100)
        patch.setattr(range_scan, "LARGEST_READ", 100)
        for isolation in ("read_uncommitted", "read_committed"):
            in_pieces, by_arrow = [], []
            found.refresh()
            one_by_one = rows(
                found.records(isolation=isolation, on_corrupt="skip", skipped=in_pieces)
            )
            table, error = read_arrow(
                found, isolation=isolation, on_corrupt="skip", skipped=by_arrow
            )
            assert error is None
            assert table == one_by_one
            assert by_arrow == in_pieces
            if isolation == "read_uncommitted":
                assert (one_by_one, in_pieces) == (records, skipped)
            else:
                assert set(one_by_one) <= set(records)


@bounded(100)
@given(logs(), st.randoms(use_true_random=False), st.sampled_from(["skip", "stop"]))
def test_a_lookup_finds_the_first_of_the_readable_records(log, source, on_corrupt):
    with damaged(log, source) as root:
        found = kafkastore.open(root)["t-0"]
        records = rows(found.records(on_corrupt=on_corrupt, skipped=[]))
        targets = [0, 1, 7, 20, 40, 10**6]
        _, error = until_error(found.records())
        if error is None:
            return  # the lookups of sound logs have tests of their own
        expected = [
            next(((time, offset) for offset, time, *_ in records if time >= target), (-1, -1))
            for target in targets
        ]
        skipped = []
        options = {"on_corrupt": on_corrupt, "skipped": skipped}
        answers = found.offsets_for_timestamps(targets, **options)
        assert [(each["timestamp"], each["offset"]) for each in answers] == expected
        assert len(set(skipped)) == len(skipped)
        for target, answer in zip(targets, expected, strict=True):
            for query in (found.offset_for_timestamp, found.list_offset):
                one = query(target, **options)
                assert ((-1, -1) if one is None else (one.timestamp, one.offset)) == answer
        assert found.list_offset(-1, **options).offset == found.end_offset(**options)


KINDS = {
    "v0": Batch((Row(0, 7, b"k", b"v"),), magic=0),
    "v1": Batch((Row(0, 7, b"k", b"v"),), magic=1),
    "v1 wrapper": Batch((Row(0, 7, b"k", b"v"), Row(1, 8)), magic=1, codec=GZIP),
    "v2": Batch((Row(0, 7, b"k", b"v"), Row(1, 8))),
}


def three(kind):
    found = []
    for _ in range(3):
        found.append(kind.with_offset(found[-1].last_offset + 1 if found else 0))
    return tuple(found)


@pytest.mark.parametrize("is_last", [True, False], ids=["last segment", "closed segment"])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_batch_cut_anywhere_is_a_torn_tail_of_the_last_segment_only(tmp_path, kind, is_last):
    batches = three(kind)
    segments = (Segment(0, batches),)
    if not is_last:
        segments += (Segment(FOLLOWING, (kind.with_offset(FOLLOWING),)),)
    root = Log(segments).write(tmp_path / "logs")
    path = root / "t-0" / f"{0:020}.log"
    data = path.read_bytes()
    complete = len(data) - len(batches[-1].data)
    before = [row.offset for batch in batches[:-1] for row in batch.rows]
    tails = [data[complete:end] for end in range(complete + 1, len(data))]
    tails += [bytes(size) for size in (1, 8, 12, 17, 26, 61, 5000)]
    for tail in tails:
        path.write_bytes(data[:complete] + tail)
        log = kafkastore.open(root)["t-0"]
        records, error = until_error(log.records())
        table, arrow_error = read_arrow(log)
        _, batch_error = until_error(log.batches())
        assert [record.offset for record in records] == before, tail
        assert [row[0] for row in table] == before, tail
        if is_last:
            assert (error, arrow_error, batch_error) == (None, None, None), tail
            assert log.log_end_offset == before[-1] + 1
            assert log.offset_for_timestamp(10**6) is None
        else:
            for each in (error, arrow_error, batch_error):
                assert isinstance(each, CorruptionError), tail
                assert (each.path, each.position) == (path, complete), tail
            with pytest.raises(CorruptionError):
                log.offset_for_timestamp(10**6)


@pytest.fixture
def broken(tmp_path):
    """A partition of six records, the third of which fails its checksum."""
    batches = tuple(Batch((Row(n, 10 * n, b"k", b"v"),)) for n in range(6))
    root = Log((Segment(0, batches),)).write(tmp_path / "logs")
    path = root / "t-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[3 * len(batches[0].data) - 1] ^= 1
    path.write_bytes(data)
    return kafkastore.open(root)["t-0"]


def test_without_a_list_what_is_skipped_is_a_warning(broken):
    for read in (broken.records, broken.to_arrow):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            list(read(on_corrupt="skip"))
        (warning,) = [each.message for each in caught]
        assert isinstance(warning, SkippedBytesWarning)
        assert (warning.skipped.start_offset, warning.skipped.end_offset) == (2, 3)


@pytest.mark.parametrize(
    "read",
    [
        lambda log, choice: list(log.batches(on_corrupt=choice)),
        lambda log, choice: list(log.records(on_corrupt=choice)),
        lambda log, choice: log.to_arrow(on_corrupt=choice),
        lambda log, choice: log.offset_for_timestamp(0, on_corrupt=choice),
        lambda log, choice: log.offset_for_timestamp(0, "2.4", on_corrupt=choice),
        lambda log, choice: log.offsets_for_timestamps([0], on_corrupt=choice),
        lambda log, choice: log.list_offset(0, on_corrupt=choice),
        lambda log, choice: log.end_offset(choice),
    ],
    ids=[
        "batches", "records", "to_arrow", "lookup", "lookup by 2.4", "lookups", "list_offset",
        "end_offset",
    ],
)
@pytest.mark.parametrize("choice", ["ignore", "", None])
def test_another_choice_is_refused(broken, read, choice):
    with refused("on_corrupt"):
        read(broken, choice)


def test_one_list_names_the_same_bytes_once(broken):
    skipped = []
    broken.offsets_for_timestamps([20, 30, 40], on_corrupt="skip", skipped=skipped)
    assert [(each.start_offset, each.end_offset) for each in skipped] == [(2, 3)]


def test_a_batch_after_corrupt_bytes_is_found_by_an_offset_within_it(tmp_path):
    batches = (Batch((Row(0, 7),)), Batch((Row(1, 8), Row(2, 9), Row(3, 10))))
    root = Log((Segment(0, batches),)).write(tmp_path / "logs")
    path = root / "t-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[8] |= 0x80
    path.write_bytes(data)
    log = kafkastore.open(root)["t-0"]
    found = log.records(2, 3, on_corrupt="skip", skipped=[])
    assert [record.offset for record in found] == [2]
    answer = log.offset_for_timestamp(9, on_corrupt="skip", skipped=[])
    assert (answer.timestamp, answer.offset) == (9, 2)


def test_a_record_outside_the_offsets_of_its_batch_is_found_past_corrupt_bytes(tmp_path):
    first = Batch((Row(0, 5), Row(1, 6)))
    wrong = bytearray(Batch((Row(10, 20), Row(60, 30)), leader_epoch=3).data)
    wrong[23:27] = struct.pack(">i", 2)  # the last offset delta
    corrupt = bytearray(first.data)
    corrupt[-1] ^= 1
    tail = bytes(corrupt) + with_right_crc(bytes(wrong))
    root = Log((Segment(0, (), tail=tail),)).write(tmp_path / "logs")
    found = kafkastore.open(root)["t-0"]
    answer = found.offset_for_timestamp(30, on_corrupt="skip", skipped=[])
    assert (answer.timestamp, answer.offset, answer.leader_epoch) == (30, 60, 3)


def test_a_time_that_microseconds_can_t_hold_is_found_past_corrupt_bytes(tmp_path):
    batches = in_a_row([Batch((Row(0, 5),)), Batch((Row(0, 2**62),))])
    corrupt = bytearray(batches[0].data)
    corrupt[-1] ^= 1
    root = Log((Segment(0, (), tail=bytes(corrupt) + batches[1].data),)).write(tmp_path / "logs")
    answer = kafkastore.open(root)["t-0"].offset_for_timestamp(30, on_corrupt="skip", skipped=[])
    assert (answer.timestamp, answer.offset) == (2**62, 1)
