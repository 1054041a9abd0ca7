"""Tasks whose planned records no longer exist."""
import pickle
import shutil
from dataclasses import replace

import pyarrow as pa
import pytest
from spark.raised import losses

import kafkastore
from kafkastore.spark.source.data_source import KafkaStoreDataSource
from kafkastore.spark.source.slices import SlicePack
from kafkastore.store.data_loss import DataLossError
from kafkastore.writing.log_dir_writer import LogDirWriter

BATCHES, ROWS = 30, 10  # of 50 bytes


@pytest.fixture
def logs_dir(tmp_path):
    """Three segments of 100 records, of batches of 10."""
    with LogDirWriter(tmp_path / "logs") as log_dir:
        writer = log_dir.writer("t", 0, {"index.interval.bytes": 1})
        for number in range(BATCHES):
            stamps = [1000 + number * ROWS + at for at in range(ROWS)]
            table = pa.table({"value": [b"v" * 50] * ROWS, "timestamp": stamps})
            writer.append_columns(table)
            if number in (9, 19):
                writer.roll()
    return tmp_path / "logs"


def planned(path, **options):
    """A reader in a task, and the pieces of work, as they were planned."""
    source = KafkaStoreDataSource({"path": str(path), **options})
    reader = source.reader(schema=source.schema())
    return pickle.loads(pickle.dumps((reader, reader.partitions())))


def offsets(reader, parts):
    return [
        row["offset"] for part in parts for batch in reader.read(part) for row in batch.to_pylist()
    ]


def delete_segment(logs_dir, base_offset):
    for path in (logs_dir / "t-0").glob(f"{base_offset:020}.*"):
        path.unlink()


def cut_last(logs_dir, size):
    path = max((logs_dir / "t-0").glob("*.log"))
    with open(path, "r+b") as file:
        file.truncate(size)


DAMAGES = {
    "the first segment is deleted": (lambda logs: delete_segment(logs, 0), range(100)),
    "the last segment is deleted": (lambda logs: delete_segment(logs, 200), range(200, 300)),
    "the last segment is cut": (lambda logs: cut_last(logs, 0), range(200, 300)),
    "the last batch is torn": (lambda logs: cut_last(logs, -1), range(290, 300)),
    "the directory is deleted": (lambda logs: shutil.rmtree(logs / "t-0"), range(300)),
}


@pytest.mark.parametrize("many", ["1", "12"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_records_deleted_since_they_were_planned_end_the_query(logs_dir, damage, many):
    damaged, deletion = DAMAGES[damage]
    reader, parts = planned(logs_dir, minPartitions=many)
    careless, others = planned(logs_dir, minPartitions=many, failOnDataLoss="false")
    size = max((logs_dir / "t-0").glob("*.log")).stat().st_size
    if damage == "the last batch is torn":
        cut_last(logs_dir, size - 1)
    else:
        damaged(logs_dir)
    with pytest.raises(kafkastore.KafkaStoreError) as raised:
        offsets(reader, parts)
    if damage != "the directory is deleted":
        assert isinstance(raised.value, DataLossError)
    assert offsets(careless, others) == [each for each in range(300) if each not in deletion]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("many", ["1", "12"])
@pytest.mark.parametrize(
    ("base_offset", "damage"),
    [
        (0, "cut"), (100, "cut"),
        (0, "a length leads too far"), (100, "a length leads too far"),
        (200, "a length leads too far"),
    ],
)
def test_a_segment_that_ends_before_existing_records_ends_the_query(
    logs_dir, base_offset, damage, many, isolation
):
    log = logs_dir / "t-0" / f"{base_offset:020}.log"
    data = bytearray(log.read_bytes())
    batch = len(data) // 10
    if damage == "a length leads too far":
        data[5 * batch + 8] ^= 0x40  # the sixth of ten batches
        lost = range(base_offset + 50, base_offset + 60)
    else:
        del data[-30:]
        lost = range(base_offset + 90, base_offset + 100)
    log.write_bytes(data)
    options = {"minPartitions": many, "isolation": isolation}
    reader, parts = planned(logs_dir, **options)
    with pytest.raises(kafkastore.CorruptionError) as caught:
        offsets(reader, parts)
    assert caught.value.path == log
    careless, others = planned(logs_dir, **options, failOnDataLoss="false")
    found = offsets(careless, others)
    assert len(found) == len(set(found))
    assert set(range(base_offset)) <= set(found)
    assert not set(lost) & set(found)


@pytest.fixture(scope="module")
def large_logs(tmp_path_factory):
    """Three segments of 100 records, of which a batch of Arrow's holds no two."""
    root = tmp_path_factory.mktemp("large") / "logs"
    with LogDirWriter(root) as log_dir:
        writer = log_dir.writer("t", 0)
        for number in range(3):
            writer.append_columns(pa.table({"value": [b"v" * (64 << 10)] * 100}))
            if number < 2:
                writer.roll()
    return root


@pytest.mark.parametrize("careless", [False, True])
def test_segments_that_are_deleted_before_their_turn_end_the_query(
    large_logs, writable_copy, careless
):
    copy = writable_copy(large_logs)
    reader, parts = planned(copy, failOnDataLoss=str(not careless))
    batches = reader.read(as_one(parts))
    first = next(batches)
    assert first.num_rows < 100
    delete_segment(copy, 0)
    delete_segment(copy, 100)
    if careless:
        found = [row["offset"] for batch in (first, *batches) for row in batch.to_pylist()]
        assert found == [*range(100), *range(200, 300)]
    else:
        with losses(("deleted", "t-0", 200)):
            list(batches)


def as_one(parts):
    """All slices of one partition, as one that one task reads."""
    slices = [one for part in parts for one in part.slices]
    return SlicePack((replace(slices[0], end_offset=slices[-1].end_offset),))


def test_records_appended_after_planning_are_read_too(logs_dir):
    reader, parts = planned(logs_dir)
    with LogDirWriter(logs_dir) as log_dir:
        writer = log_dir.writer("t", 0)
        writer.append_columns(pa.table({"value": [b"v"] * 5}))
    assert offsets(reader, parts) == [*range(305)]


def test_records_read_before_their_deletion_are_not_a_loss(large_logs, writable_copy):
    copy = writable_copy(large_logs)
    reader, parts = planned(copy)
    batches = reader.read(as_one(parts))
    first = next(batches)
    delete_segment(copy, 0)
    found = [row["offset"] for batch in (first, *batches) for row in batch.to_pylist()]
    assert found == [*range(300)]


@pytest.mark.parametrize(
    ("options", "end"), [({}, ""), ({"endingOffsets": '{"t": {"0": 295}}'}, " up to offset 295")]
)
def test_a_warning_of_skipped_records_names_an_offset_only_if_known(
    logs_dir, caplog, options, end
):
    reader, parts = planned(logs_dir, failOnDataLoss="false", **options)
    shutil.rmtree(logs_dir / "t-0")
    assert offsets(reader, parts) == []
    assert {record.args[2] for record in caplog.records} == {end}
