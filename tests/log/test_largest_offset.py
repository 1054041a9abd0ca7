"""No record has the offset 2^63 - 1: the log end offset after it would not fit 64 bits."""

import pytest
from models.log_directory import Log, Segment
from models.record_format import Batch, Row

import kafkastore
from kafkastore.arguments import INT64_MAX, LARGEST_OFFSET
from kafkastore.checks.findings import FindingKind
from kafkastore.checks.predict import Outcome
from kafkastore.checks.repair import plan_repair
from kafkastore.errors import CorruptBatchError
from kafkastore.jobs.latency import latency
from kafkastore.jobs.predict import predict_start
from kafkastore.jobs.verify import verify

NOW = 1_600_000_000_000
LATE = NOW + 1_000_000


def segment(base_offset, *batches, magic=2):
    return Segment(
        base_offset,
        tuple(
            Batch(tuple(Row(each, NOW, b"k", b"v" * 50) for each in batch), magic=magic)
            for batch in batches
        ),
    )


FIRST = segment(0, (0,), (1,), (2,))
#: The last segment, and the batches before the one that ends with 2^63 - 1.
TOO_LARGE = {
    "in a segment of that name": (segment(INT64_MAX, (INT64_MAX,)), 0),
    "as a message": (segment(INT64_MAX, (INT64_MAX,), magic=1), 0),
    "after another batch": (segment(LARGEST_OFFSET, (LARGEST_OFFSET,), (INT64_MAX,)), 1),
    "in one batch with another": (segment(LARGEST_OFFSET, (LARGEST_OFFSET, INT64_MAX)), 0),
}
READERS = {
    "records": lambda log: [*log.records()],
    "batches": lambda log: [*log.batches()],
    "to_arrow": lambda log: [*log.to_arrow(["offset"])],
    "records at the end": lambda log: [*log.records(LARGEST_OFFSET)],
    "log_end_offset": lambda log: log.log_end_offset,
    "end_offset": lambda log: log.end_offset(),
    "a late time": lambda log: log.offset_for_timestamp(LATE),
    "latency": lambda log: [*latency(log.path.parent)],
}


@pytest.fixture(params=TOO_LARGE.values(), ids=TOO_LARGE)
def damaged(request, tmp_path):
    """The log directory, the last log, and the position of its corrupt batch."""
    last, before = request.param
    logs = Log((FIRST, last), is_clean=True).write(tmp_path / "logs")
    position = sum(len(batch.data) for batch in last.batches[:before])
    return logs, logs / "t-0" / f"{last.base_offset:020}.log", position


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_every_reader_raises_at_the_largest_number(damaged, read):
    logs, path, position = damaged
    with pytest.raises(CorruptBatchError) as caught:
        read(kafkastore.open(logs)["t-0"])
    assert (caught.value.path, caught.value.position) == (path, position)


def test_verify_finds_the_largest_number(damaged):
    logs, path, position = damaged
    found = [each for each in verify(logs) if each.kind is FindingKind.BATCH_OUTSIDE_SEGMENT]
    assert [(each.path, each.position) for each in found] == [(path, position)]


def test_readers_skip_the_largest_number_on_request(damaged):
    logs, path, position = damaged
    skipped = []
    log = kafkastore.open(logs)["t-0"]
    offsets = [each.offset for each in log.records(on_corrupt="skip", skipped=skipped)]
    assert offsets == [0, 1, 2, *([LARGEST_OFFSET] if position else [])]
    assert [(each.path, each.position, each.end_position) for each in skipped] == [
        (path, position, path.stat().st_size)
    ]
    plan = plan_repair(logs, on_corrupt="skip")
    assert [(each.path, each.position) for each in plan.removed] == [
        (f"t-0/{path.name}", position)
    ]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_broker_deletes_a_log_whose_end_offset_has_wrapped(damaged, is_clean):
    logs, _, _ = damaged
    if not is_clean:
        (logs / ".kafka_cleanshutdown").unlink()
    (predicted,) = predict_start(logs)
    assert predicted.outcome is Outcome.LOSES_RECORDS


@pytest.mark.parametrize("last", [
    segment(LARGEST_OFFSET, (LARGEST_OFFSET,)), segment(INT64_MAX), segment(LARGEST_OFFSET),
    segment(INT64_MAX - 5, (INT64_MAX - 5, INT64_MAX - 4), (LARGEST_OFFSET,)),
], ids=str)  # fmt: skip
def test_offsets_up_to_the_largest_are_read(tmp_path, last):
    logs = Log((FIRST, last), is_clean=True).write(tmp_path / "logs")
    log = kafkastore.open(logs)["t-0"]
    offsets = [row[0] for batch in last.batches for row in batch.records]
    assert [each.offset for each in log.records()] == [0, 1, 2, *offsets]
    assert log.log_end_offset == (offsets[-1] + 1 if offsets else last.base_offset)
    assert FindingKind.BATCH_OUTSIDE_SEGMENT not in {each.kind for each in verify(logs)}
    assert not plan_repair(logs).removed


def test_damage_in_the_last_offsets_is_searched_for_batches(tmp_path):
    last = segment(INT64_MAX - 5, (INT64_MAX - 5, INT64_MAX - 4), (LARGEST_OFFSET,))
    logs = Log((FIRST, last), is_clean=True).write(tmp_path / "logs")
    path = logs / "t-0" / f"{last.base_offset:020}.log"
    data = path.read_bytes()
    path.write_bytes(b"\xff" * 30 + data[30:])
    skipped = []
    log = kafkastore.open(logs)["t-0"]
    offsets = [each.offset for each in log.records(on_corrupt="skip", skipped=skipped)]
    assert offsets == [0, 1, 2, LARGEST_OFFSET]
    end = len(last.batches[0].data)
    assert [(each.position, each.end_position) for each in skipped] == [(0, end)]
    assert next(each.position for each in verify(logs) if each.path == path) == 0


def test_a_broker_does_not_start_with_a_name_above_the_largest_offset(tmp_path):
    logs = Log((FIRST,), is_clean=True).write(tmp_path / "logs")
    path = logs / "t-0" / f"{2**63:020}.log"
    path.write_bytes(FIRST.log)
    (predicted,) = predict_start(logs)
    assert predicted.outcome is Outcome.STOPS_THE_START
    assert [each.path for each in verify(logs) if each.kind is FindingKind.INVALID_FILE_NAME] == [
        path
    ]
