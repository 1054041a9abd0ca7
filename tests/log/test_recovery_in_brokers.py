"""Damaged directories that real brokers load, compared with the predicted result."""

import os
import random
import struct
import time

import pytest
from golden.make.java import BrokerFailure
from golden.make.load_into_broker import LoadOptions, broker_on
from models.log_directory import Log, Segment
from models.record_format import Batch, Row, marker
from models.record_strategies import in_a_row
from models.recovered_directory import (
    epochs_of,
    files_after,
    files_of,
    indexes_and_logs,
    kept_when_stopped,
    snapshots_of,
)
from models.seed import some

import kafkastore
from kafkastore.errors import CorruptIndexError, UnsupportedFormatError
from kafkastore.recovery.log_recovery import recover_log
from kafkastore.segment.log_segment import LogSegment
from kafkastore.versions import parse_version

pytestmark = pytest.mark.kafka

INTERVAL = 200  # the loader's setting
LONG_AGO = 1_500_000_000_000  # so that a broker forgets producers it finds in a snapshot
VERSIONS = some(["2.4.0", "3.9.1", "4.3.1"], 1, __name__)


def batches_of(chance, start, count):
    """Plain, idempotent and transactional batches, some transactions aborted, some left open."""
    written, sequences, begun = [], {1: 0, 2: 0, 3: 0}, set()
    for _ in range(count):
        producer_id = chance.choice([-1, -1, 1, 2, 3])
        if producer_id in begun and chance.randrange(3) == 0:
            begun.remove(producer_id)
            is_commit = chance.random() < 0.5
            written.append(marker(0, start, is_commit=is_commit, producer_id=producer_id))
            continue
        rows = tuple(
            Row(slot, start + chance.randrange(100_000), b"k", b"v" * chance.randrange(60))
            for slot in range(chance.randrange(1, 4))
        )
        fields = {}
        if producer_id > 0:
            fields = {
                "producer_id": producer_id, "producer_epoch": 0,
                "base_sequence": sequences[producer_id],
                "is_transactional": producer_id in begun or producer_id == 3,
            }
            sequences[producer_id] += len(rows)
            if producer_id == 3:
                begun.add(3)
        written.append(Batch(rows, **fields))
    return in_a_row(written)


def sound(chance, start):
    """Three segments with the indexes of a recovery; records from a time on."""
    batches = batches_of(chance, start, 45)
    segments = []
    for slot in range(0, 45, 15):
        part = tuple(batches[slot : slot + 15])
        base = part[0].base_offset
        segments.append(Segment(base, part).recovered(INTERVAL))
    return Log(tuple(segments))


def flip(path, at, bit):
    data = bytearray(path.read_bytes())
    data[at] ^= bit
    path.write_bytes(data)


def damage(directory, kind, chance):
    """Damage a partition directory as crashes and bad disks do."""
    logs = sorted(directory.glob("*.log"))
    second, last = logs[1], logs[-1]
    match kind:
        case "last torn":
            last.write_bytes(last.read_bytes()[: -chance.randrange(1, 50)])
        case "second torn":
            second.write_bytes(second.read_bytes()[: -chance.randrange(1, 50)])
        case "bit in the second":
            flip(second, chance.randrange(21, second.stat().st_size), 4)
        case "bit in the last":
            flip(last, chance.randrange(21, last.stat().st_size), 4)
        case "garbage after the second":
            second.write_bytes(second.read_bytes() + chance.randbytes(70))
        case "zeros after the last":
            last.write_bytes(last.read_bytes() + bytes(300))
        case "no indexes":
            for path in (*directory.glob("*.index"), *directory.glob("*.timeindex")):
                path.unlink()
        case "no index of the second, which is torn":
            second.write_bytes(second.read_bytes()[:-9])
            second.with_suffix(".index").unlink()
        case "indexes of nonsense":
            for path in (*directory.glob("*.index"), *directory.glob("*.timeindex")):
                path.write_bytes(chance.randbytes(40))
        case "a transaction below the segment":
            second.with_suffix(".txnindex").write_bytes(bytes(34))
        case "orphans and leftovers":
            (directory / f"{5:020}.timeindex").write_bytes(b"x" * 12)
            (directory / f"{7:020}.log.deleted").write_bytes(b"x" * 12)
            (directory / f"{999:020}.log.cleaned").write_bytes(b"x" * 12)
            (directory / f"{3:020}.snapshot").write_bytes(b"x" * 12)
        case "offsets go back":
            data = second.read_bytes()
            second.write_bytes(data + data)
        case "epochs out of the log":
            (directory / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 5000\n")
        case "the first is missing":
            for path in directory.glob(f"{0:020}.*"):
                path.unlink()
            (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")


FAR = 2**31 + 1


def far_apart(chance, start, kind):
    """A segment that has to be split, as brokers before 2.0 could leave one (KAFKA-6264)."""
    batches = batches_of(chance, start, 30)
    first = in_a_row(batches[: 0 if kind == "nothing near" else 15])
    offset, later = FAR, []
    for batch in batches[15:]:
        later.append(batch.with_offset(offset))
        offset = later[-1].last_offset + 1
    return Log((Segment(0, (*first, *later)),))


SPLITS = ["near and far", "no index", "nothing near", "a bit in the far ones"]
KINDS = [
    "nothing", "last torn", "second torn", "bit in the second", "bit in the last",
    "garbage after the second", "zeros after the last", "no indexes",
    "no index of the second, which is torn", "indexes of nonsense",
    "a transaction below the segment", "orphans and leftovers", "offsets go back",
    "epochs out of the log", "the first is missing",
]


def damaged_directories(tmp_path, now):
    """Directories of three segments, each damaged in a different way."""
    chance, directories = random.Random(5), []
    for number, kind in enumerate(KINDS):
        start = LONG_AGO if number % 3 == 2 else now - 3_600_000
        root = sound(chance, start).write(tmp_path / f"made-{number}")
        directory = (root / "t-0").rename(root / f"damaged-{number}")
        damage(directory, kind, chance)
        directories.append(directory)
    return directories


def split_directories(tmp_path, topic, kinds, now):
    """Directories of one segment each that has to be split."""
    chance, directories = random.Random(6), []
    for number, kind in enumerate(kinds):
        root = far_apart(chance, now - 3_600_000, kind).write(tmp_path / f"made-{topic}-{number}")
        directory = (root / "t-0").rename(root / f"{topic}-{number}")
        (log,) = directory.glob("*.log")
        if kind == "no index":
            log.with_suffix(".index").unlink()
        elif kind == "a bit in the far ones":
            flip(log, log.stat().st_size - 1, 4)
        directories.append(directory)
    return directories


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_makes_of_corrupt_directories_what_was_worked_out(
    load_into_broker, tmp_path, version
):
    """A broker splits segments whose offsets overflow, and recovers none below a recovery point."""
    now = time.time_ns() // 1_000_000
    below = split_directories(tmp_path, "below", SPLITS[:2], now)
    directories = [
        *damaged_directories(tmp_path, now),
        *split_directories(tmp_path, "split", SPLITS, now),
        *below,
    ]
    kinds = [*KINDS, *SPLITS, *SPLITS[:2]]
    points = {directory.name: FAR + 3 for directory in below}
    compare_with_broker(
        load_into_broker, directories, version, kinds, now, recovery_points=points
    )


def add_entry_past_the_end(directory, kind):
    """Give an index a last entry past the end of its log, by offset, by position, or by both."""
    logs = sorted(directory.glob("*.log"))
    log = logs[1] if kind == "of the second" else logs[-1]
    base, size = int(log.stem), log.stat().st_size
    next_offset = LogSegment(directory, base).next_offset
    index = log.with_suffix(".index")
    offset, position = {
        "offset": (next_offset, 0),
        "position": (next_offset - 1, size),
    }.get(kind, (next_offset + 5, size + 100))
    match kind:
        case "nothing":
            return
        case "padded":
            entry = bytes(40)
        case "a log cut":
            entry = b""
            _, last_position = struct.unpack(">ii", index.read_bytes()[-8:])
            os.truncate(log, last_position)
        case _:
            entry = struct.pack(">ii", offset - base, position)
    index.write_bytes(index.read_bytes() + entry)


ENDS = ["nothing", "both", "offset", "position", "padded", "of the second", "a log cut"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_loads_what_was_shut_down_cleanly_as_was_worked_out(
    load_into_broker, tmp_path, version
):
    """A broker keeps the transaction index of a segment that it splits.

    And it treats a last segment as empty if its index has an entry past the end of its log.
    """
    splits, now = ["no index"] * 3, time.time_ns() // 1_000_000
    chance, directories = random.Random(7), split_directories(tmp_path, "split", splits, now)
    for number, kind in enumerate(ENDS):
        root = sound(chance, now - 3_600_000).write(tmp_path / f"made-end-{number}")
        directory = (root / "t-0").rename(root / f"end-{number}")
        add_entry_past_the_end(directory, kind)
        directories.append(directory)
    expected = compare_with_broker(
        load_into_broker, directories, version, [*splits, *ENDS], now, is_clean=True
    )
    for number, kind in enumerate(ENDS):
        recovered = expected[f"end-{number}"]
        active = recovered.segments[-1]
        is_found = kind in ("nothing", "padded", "of the second")
        assert recovered.log_end_offset == (active.next_offset if is_found else active.base_offset)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_does_not_start_on_an_index_that_leads_into_the_middle_of_a_batch(
    load_into_broker, tmp_path, version
):
    root = sound(random.Random(7), time.time_ns() // 1_000_000).write(tmp_path / "made")
    index = max((root / "t-0").glob("*.index"))
    entries = index.read_bytes()
    offset, position = struct.unpack(">ii", entries[-8:])
    # The size field of the frame now holds the upper 4 bytes of an offset.
    index.write_bytes(entries[:-8] + struct.pack(">ii", offset, position - 8))
    with pytest.raises(CorruptIndexError):
        recover_log(kafkastore.open(root)["t-0"], version, is_clean=True)
    with pytest.raises(BrokerFailure, match="CorruptRecordException"):
        load_into_broker([root / "t-0"], version, recover=False)


def with_magic(directory, magic, slot, first_offsets):
    """Write logs of 70-byte batches by base offset; one batch of the first has another magic."""
    directory.mkdir(parents=True)
    for base, offsets in first_offsets.items():
        data = bytearray().join(Batch((Row(at, 0, b"k", b"v"),)).data for at in offsets)
        if base == 0:
            data[slot * 70 + 16] = magic
        (directory / f"{base:020}.log").write_bytes(data)
        for suffix in (".index", ".timeindex"):
            (directory / f"{base:020}{suffix}").write_bytes(b"")
    return directory


# Name -> arguments of `with_magic`, and the recovery point. No checksum covers the magic.
ODD_MAGICS = {
    "t-0": (3, 0, {0: [0, FAR, FAR + 1]}, 0),
    "t-1": (3, 2, {0: [0, FAR, FAR + 1]}, 0),
    "t-2": (0, 2, {0: [0, FAR, FAR + 1]}, 0),
    "t-3": (130, 1, {0: [0, 1, 2], 5: [5]}, 5),
    "t-4": (130, 1, {0: [0, 1, 2], 5: [5]}, 0),
    "t-5": (3, 1, {0: [0, 1, 2], 5: [5]}, 5),
}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_splits_and_replays_batches_of_an_unknown_magic_as_was_worked_out(
    require_broker, tmp_path, version
):
    """Since 3.9.1 a broker does not start if it would have to split them."""
    require_broker(version)
    stops_at_split = version != "2.4.0"
    stopping = [name for name in ("t-0", "t-1") if stops_at_split]
    expected, points = {}, {}
    for name, (*arguments, points[name]) in ODD_MAGICS.items():
        log = kafkastore.open(with_magic(tmp_path / name, *arguments))[name]
        if name in stopping:
            with pytest.raises(UnsupportedFormatError):
                recover_log(log, version, recovery_point=points[name])
        else:
            expected[name] = recover_log(
                log, version, recovery_point=points[name], index_interval_bytes=INTERVAL
            )
    options = LoadOptions(
        recover=True, recovery_points=points, topic_config={"index.interval.bytes": INTERVAL}
    )
    # No client can read these records: only files are compared.
    directories = [tmp_path / name for name in expected]
    with broker_on(directories, version, tmp_path / "out", options) as context:
        for name, recovered in expected.items():
            theirs = files_of(context.cluster.logs / name)
            logs = {file: data for file, data in theirs.items() if file.endswith(".log")}
            ours = files_after(recovered)
            assert logs == {file: ours[file] for file in ours if file.endswith(".log")}, name
        context.stop()
    for name in stopping:
        with (
            pytest.raises(BrokerFailure, match="CorruptRecordException"),
            broker_on([tmp_path / name], version, tmp_path / "out", options),
        ):
            pass


# Name -> arguments of `with_magic`, the log start offset, and the version since which it stops.
# The first byte of the checksums, 0xfe, is to old formats attributes with an unknown codec.
NEAR = {0: [0, 1, 2], 5: [5]}
ODD_WRAPPERS = {
    "t-0": (130, 0, NEAR, 0, "4.0"),  # the first batch that is replayed
    "t-1": (0, 0, NEAR, 0, "4.0"),
    "t-2": (1, 1, NEAR, 0, None),  # a later one
    "t-3": (0, 1, NEAR, 2, "4.1"),  # one before it
    "t-4": (130, 1, NEAR, 2, "4.1"),
    "t-5": (255, 2, NEAR, 2, "4.0"),
}


@pytest.mark.parametrize("version", some(["3.9.1", "4.1.1", "4.3.1"], 1, "ODD_WRAPPERS"))
def test_a_broker_decompresses_old_batches_on_its_way_to_the_first_to_replay_as_was_worked_out(
    require_broker, tmp_path, version
):
    """Since 4.0 it does not start if it can't: its search for an offset reads first offsets."""
    require_broker(version)
    expected, starts, stopping = {}, {}, []
    for name, (*arguments, starts[name], since) in ODD_WRAPPERS.items():
        log = kafkastore.open(with_magic(tmp_path / name, *arguments))[name]
        options = {"recovery_point": 5, "log_start_offset": starts[name]}
        if since is None or parse_version(version) < parse_version(since):
            expected[name] = recover_log(log, version, **options)
            continue
        stopping.append(name)
        with pytest.raises(UnsupportedFormatError) as caught:
            recover_log(log, version, **options)
        assert caught.value.position == arguments[1] * 70
    options = LoadOptions(
        recover=True, recovery_points=dict.fromkeys(starts, 5), log_start_offsets=starts
    )
    directories = [tmp_path / name for name in expected]
    with broker_on(directories, version, tmp_path / "out", options) as context:
        for name, recovered in expected.items():
            ours, theirs = files_after(recovered), files_of(context.cluster.logs / name)
            assert ours.keys() - theirs.keys() == set(), name
        context.stop()
    for name in stopping:
        assert_search_stops_it([tmp_path / name], version, tmp_path / "out", options)


@pytest.mark.parametrize("version", some(["3.9.1", "4.1.1", "4.3.1"], 1, "ODD_WRAPPERS"))
def test_a_broker_decompresses_the_batch_of_the_last_index_entry_after_a_clean_shutdown(
    require_broker, tmp_path, version
):
    """Without an entry this is the first batch of the last segment."""
    require_broker(version)
    directory = with_magic(tmp_path / "t-0", 0, 0, {0: [0, 1, 2]})
    log = kafkastore.open(directory)["t-0"]
    if parse_version(version) < parse_version("4.0"):
        assert recover_log(log, version, is_clean=True).log_end_offset == 3
        with broker_on([directory], version, tmp_path / "out", LoadOptions()) as context:
            assert (context.cluster.logs / "t-0").exists()
    else:
        with pytest.raises(UnsupportedFormatError):
            recover_log(log, version, is_clean=True)
        assert_search_stops_it([directory], version, tmp_path / "out", LoadOptions())


def assert_search_stops_it(directories, version, out, options):
    """Assert that a broker does not start, because a search for an offset fails."""
    with (
        pytest.raises(BrokerFailure, match="searchForOffsetFromPosition"),
        broker_on(directories, version, out, options),
    ):
        pass


def compare_with_broker(
    load_into_broker, directories, version, kinds, now, *, is_clean=False, recovery_points=None
):
    """Compare predicted directories with those that a broker leaves."""
    expected = {}
    points = {each.name: 0 for each in directories} | (recovery_points or {})
    for directory in directories:
        (log,) = kafkastore.open(directory)
        expected[directory.name] = recover_log(
            log,
            version,
            index_interval_bytes=INTERVAL,
            now=now,
            is_clean=is_clean,
            recovery_point=points[directory.name],
        )
    case = load_into_broker(
        directories,
        version,
        recover=not is_clean,
        recovery_points=points,
        topic_config={"index.interval.bytes": INTERVAL},
    )
    parsed = tuple(map(int, version.split(".")))
    for kind, directory in zip(kinds, directories, strict=True):
        recovered = expected[directory.name]
        ours, theirs = files_after(recovered), files_of(case.logs / directory.name)
        theirs = {name: data for name, data in theirs.items() if not name.endswith(".deleted")}
        assert indexes_and_logs(ours) == indexes_and_logs(theirs), kind
        bases = [segment.base_offset for segment in recovered.segments]
        snapshots = kept_when_stopped(snapshots_of(ours), bases, parsed)
        assert snapshots == kept_when_stopped(snapshots_of(theirs), bases, parsed), kind
        # The new leader adds a line for its epoch at the log end.
        before = [each for each in epochs_of(theirs) if each[1] < recovered.log_end_offset]
        assert epochs_of(ours) == before, kind
        said = case.answers["partitions"][directory.name]
        assert said["log_start_offset"] == recovered.log_start_offset, kind
        assert said["log_end_offset"] == recovered.log_end_offset, kind
    return expected
