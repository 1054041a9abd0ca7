"""ListOffsets for one timestamp: special timestamps by version, bounds, what is refused."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.log_directory import Log, Segment
from models.offset_lookup import broker_list_offset, correct_answer, end_offset
from models.record_format import CODECS_OF, GZIP, NONE, Batch, Row, emptied, marker
from models.record_strategies import bounded, logs
from models.refused import refused

import kafkastore
from kafkastore.errors import (
    CorruptBatchError,
    UnsupportedForMessageFormatError,
    UnsupportedTimestampError,
)

# Each version with the newest ListOffsets request that it speaks.
VERSIONS = {
    "0.10.1": 1, "0.10.2.2": 1, "0.11.0": 2, "0.11.0.1": 2, "1.1": 2, "2.0": 3, "2.1": 4, "2.2": 5,
    "2.4": 5, "2.8": 6, "3.0": 7, "3.4": 7, "3.5": 8, "3.7": 8, "3.8": 8, "3.9": 9, "4.0": 10,
    "4.1": 10, "4.2": 11, "4.3": 11,
}
ERRORS = {
    UnsupportedTimestampError: "UNSUPPORTED_VERSION",
    UnsupportedForMessageFormatError: "UNSUPPORTED_FOR_MESSAGE_FORMAT",
}
SPECIAL = range(-9, 0)
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = range(-1, -7, -1)


def parsed(version):
    return tuple(map(int, version.split(".")))


def consumer_answer(log, timestamp, rules, **how):
    """The answer that a consumer gets, or the name of the error."""
    try:
        return log.list_offset(timestamp, rules, **how)
    except tuple(ERRORS) as error:
        return ERRORS[type(error)]


@pytest.fixture
def opened(tmp_path):
    """A function that writes a model log, with leader epochs if any are given, and opens it."""

    def write_and_open(log, epochs=()):
        root = log.write(tmp_path / "logs")
        if epochs:
            lines = "".join(f"{epoch} {start}\n" for epoch, start in epochs)
            text = f"0\n{len(epochs)}\n{lines}"
            (root / "t-0" / "leader-epoch-checkpoint").write_text(text)
        (found,) = kafkastore.open(root)
        return found

    return write_and_open


def one_by_one(first_offset, *times, **fields):
    return tuple(
        Batch((Row(first_offset + number, time),), **fields) for number, time in enumerate(times)
    )


def log_of(*times, **fields):
    return Log((Segment(0, one_by_one(0, *times, **fields)).indexed(),))


@pytest.mark.parametrize("rules", VERSIONS)
@bounded(15)
@given(log=logs(), data=st.data())
def test_a_broker_reports_what_its_model_reports(rules, log, data):
    version, newest = parsed(rules), VERSIONS[rules]
    times = {record[1] + by for record in log.records(include_control=True) for by in (0, 1)}
    bound = data.draw(st.integers(log.start_offset, end_offset(log)))
    with tempfile.TemporaryDirectory() as directory:
        (found,) = kafkastore.open(log.write(Path(directory) / "logs"))
        for timestamp in [*SPECIAL, *sorted(each for each in times if 0 <= each < 2**63)[:10]]:
            for request in {1, 3, 4, 6, 7, 8, 9, newest}:
                if request > newest:
                    continue
                wanted = broker_list_offset(log, timestamp, version, request, end=bound)
                answer = consumer_answer(
                    found, timestamp, rules, request_version=request, high_watermark=bound
                )
                assert answer == wanted, (timestamp, request)
            if newest > 1:
                assert consumer_answer(found, timestamp, rules, message_format_version="0.9.0") == (
                    broker_list_offset(log, timestamp, version, newest, message_format=(0, 9))
                )


@bounded(80)
@given(logs())
def test_the_right_largest_timestamp_is_that_of_brute_force(log):
    timed = [record for record in log.records() if record[1] >= 0]
    largest = max((record[1] for record in timed), default=None)
    wanted = None if largest is None else correct_answer(log, largest)
    with tempfile.TemporaryDirectory() as directory:
        (found,) = kafkastore.open(log.write(Path(directory) / "logs"))
        assert found.list_offset(MAX_TIMESTAMP) == wanted
        assert found.list_offset(LATEST) == (-1, end_offset(log), None)
        assert found.list_offset(EARLIEST) == (-1, log.start_offset, None)
        assert found.list_offset(EARLIEST_LOCAL) == (-1, log.start_offset, None)
        assert found.list_offset(LATEST_TIERED) is None
        assert found.list_offset(PENDING_UPLOAD) is None
        for timestamp in (-7, -(2**63)):
            with pytest.raises(UnsupportedTimestampError):
                found.list_offset(timestamp)


@pytest.mark.parametrize("rules", ["correct", "2.4", "4.1"])
def test_earliest_and_latest_name_their_leader_epochs(opened, rules):
    """As in Kafka's testFetchOffsetByTimestampIncludesLeaderEpoch."""
    found = opened(log_of(50, 51), epochs=[(0, 0), (1, 1)])
    assert found.list_offset(EARLIEST, rules) == (-1, 0, 0)
    assert found.list_offset(LATEST, rules) == (-1, 2, 1)
    assert found.list_offset(LATEST, rules, current_leader_epoch=2) == (-1, 2, 2)
    assert found.list_offset(50, rules) == (50, 0, 0)
    assert found.list_offset(LATEST, rules, request_version=3) == (-1, 2, None)


def test_an_epoch_that_begins_after_the_log_start_is_not_that_of_the_earliest(opened):
    found = opened(log_of(50, 51), epochs=[(3, 1)])
    assert found.list_offset(EARLIEST, "2.4") == (-1, 0, None)


@pytest.mark.parametrize("rules", ["correct", "3.0", "3.8", "4.1"])
def test_the_largest_timestamp_of_unordered_records(opened, rules):
    """As in Kafka's testFetchOffsetByTimestampForMaxTimestampWithUnorderedTimestamps."""
    found = opened(log_of(0, 1, 2, 3, 4, 6, 5))
    assert found.list_offset(MAX_TIMESTAMP, rules)[:2] == (6, 5)
    assert found.list_offset(LATEST, rules)[:2] == (-1, 7)


@pytest.mark.parametrize("rules", ["correct", "3.0", "3.8", "4.1"])
def test_an_empty_log_has_no_largest_timestamp(opened, rules):
    """As in testFetchOffsetByTimestampForMaxTimestampWithEmptyLog, and ...AfterTruncate."""
    assert opened(Log((Segment(0, ()),))).list_offset(MAX_TIMESTAMP, rules) is None


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("is_one_batch", [True, False])
def test_the_largest_timestamp_is_of_a_record_in_every_layout(opened, magic, is_one_batch):
    """As in Kafka's ListOffsetsIntegrationTest: three records in one batch or in three."""
    rows = tuple(Row(offset, time) for offset, time in enumerate((100, 999, 200)))
    for codec in CODECS_OF[magic]:
        if is_one_batch and (magic == 2 or codec != NONE):
            batches = (Batch(rows, magic=magic, codec=codec),)
        else:
            batches = tuple(Batch((row,), magic=magic, codec=codec) for row in rows)
        log = Log((Segment(0, batches).indexed(),))
        with tempfile.TemporaryDirectory() as directory:
            (found,) = kafkastore.open(log.write(Path(directory) / "logs"))
            for rules in ("correct", "3.8", "4.1"):
                assert found.list_offset(MAX_TIMESTAMP, rules)[:2] == (999, 1)


def test_brokers_before_3_8_answer_the_index_s_offset(opened):
    batch = Batch(tuple(Row(offset, time) for offset, time in enumerate((100, 999, 200))), codec=1)
    found = opened(Log((Segment(0, (batch,)).indexed(),)), epochs=[(4, 0)])
    assert found.list_offset(MAX_TIMESTAMP, "3.0") == (999, 2, 4)
    assert found.list_offset(MAX_TIMESTAMP, "3.8") == (999, 1, 0)


def test_the_right_largest_timestamp_is_of_no_marker_and_no_deleted_record(opened):
    batches = (*one_by_one(0, 5, 9, 7), marker(3, 50), emptied(4, 5, 80))
    found = opened(Log((Segment(0, batches).indexed(),)))
    assert found.list_offset(MAX_TIMESTAMP) == (9, 1, 0)
    assert found.list_offset(MAX_TIMESTAMP, "4.1") is None


def test_a_broken_batch_with_the_largest_timestamp_is_an_error_with_its_place(opened):
    complete, broken = Batch((Row(0, 5),)), Batch((Row(1, 9),), codec=GZIP)
    found = opened(Log((Segment(0, (complete, broken)).indexed(),), is_clean=True))
    path = found.segments[0].log_path
    path.write_bytes(complete.data + broken.data[:61] + bytes(len(broken.data) - 61))
    with pytest.raises(CorruptBatchError) as raised:
        found.list_offset(MAX_TIMESTAMP, "3.8")
    assert (raised.value.path, raised.value.position) == (path, len(complete.data))


@pytest.mark.parametrize(("rules", "wanted"), [("2.4", (0, 0, 0)), ("3.8", (0, 0, 0))])
def test_other_negatives_are_times_up_to_3_8(opened, rules, wanted):
    assert opened(log_of(0, 1)).list_offset(-7, rules) == wanted


def test_other_negatives_are_refused_from_3_9_on(opened):
    found = opened(log_of(0, 1))
    for rules in ("3.9", "4.1", "correct"):
        with pytest.raises(UnsupportedTimestampError):
            found.list_offset(-7, rules)


def test_answers_lie_below_the_high_watermark(opened):
    found = opened(log_of(10, 20, 30))
    for rules in ("correct", "2.4", "kip-33"):
        assert found.list_offset(20, rules, high_watermark=2)[:2] == (20, 1)
        assert found.list_offset(20, rules, high_watermark=1) is None
        assert found.list_offset(LATEST, rules, high_watermark=1)[:2] == (-1, 1)
    # Before 0.11.0.1 the high watermark itself could be answered.
    assert found.list_offset(20, "0.11.0", high_watermark=1) == (20, 1, None)
    assert found.list_offset(20, "0.11.0.1", high_watermark=1) is None


def test_the_checkpointed_high_watermark_bounds_on_request(opened):
    found = opened(log_of(10, 20, 30))
    (found.path.parent / "replication-offset-checkpoint").write_text("0\n1\nt 0 2\n")
    assert found.list_offset(LATEST, "2.4", high_watermark="checkpoint") == (-1, 2, None)
    assert found.list_offset(30, "2.4", high_watermark="checkpoint") is None


def test_a_reader_of_committed_records_ends_where_a_transaction_is_open(opened):
    fields = {"producer_id": 1, "producer_epoch": 0, "is_transactional": True}
    batches = (*one_by_one(0, 10), *one_by_one(1, 20, **fields), *one_by_one(2, 30))
    found = opened(Log((Segment(0, batches).indexed(),)))
    for rules in ("correct", "2.4", "4.1"):
        assert found.list_offset(LATEST, rules, "read_committed") == (-1, 1, None)
        assert found.list_offset(10, rules, "read_committed") == (10, 0, 0)
        assert found.list_offset(20, rules, "read_committed") is None
        assert found.list_offset(20, rules) == (20, 1, 0)


@pytest.mark.parametrize(
    ("rules", "version"), [("2.4", 6), ("2.4", 0), ("4.1", 11), ("correct", 12), ("0.10.2", 2)]
)
def test_requests_that_a_broker_does_not_speak_are_an_error(opened, rules, version):
    with refused("request_version"):
        opened(log_of(1)).list_offset(LATEST, rules, request_version=version)


@pytest.mark.parametrize(("rules", "version"), [("2.4", 1), ("0.10.2", None)])
def test_an_isolation_that_the_request_has_not_is_an_error(opened, rules, version):
    with refused("isolation"):
        opened(log_of(1)).list_offset(LATEST, rules, "read_committed", request_version=version)


def test_topics_without_timestamps_are_not_searched(opened):
    found = opened(log_of(1))
    for rules in ("0.10.1", "2.4", "3.9"):
        assert found.list_offset(1, rules, message_format_version="0.10.0") is not None
        with pytest.raises(UnsupportedForMessageFormatError):
            found.list_offset(1, rules, message_format_version="0.9.0")
    assert found.list_offset(1, "4.0", message_format_version="0.9.0") == (1, 0, 0)
