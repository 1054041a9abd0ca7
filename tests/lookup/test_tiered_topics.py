"""Logs that start in remote storage: answers equal the broker's, or name the remote segment."""

import pickle
import shutil

import pytest
from kafkastore.legacy.answer_plot import plot_answers
from models.tiered_directory import VERSIONS, epoch_of, in_broker_form, unpack

import kafkastore
from kafkastore import (
    IN_REMOTE_STORAGE,
    InRemoteSegmentError,
    RemoteSource,
    RemoteStorage,
    UnknownRemoteSegmentsError,
)
from kafkastore.errors import CorruptionError, UnsupportedTimestampError
from kafkastore.formats.requests.list_offsets import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    MAX_TIMESTAMP,
)
from kafkastore.formats.topics.remote_log_metadata import metadata_partition_of
from kafkastore.log import remote_metadata
from kafkastore.log.log_view import BoundSource
from kafkastore.log.remote_metadata import UnknownRemote

UNSUPPORTED_VERSION = 35
#: Topics whose log starts before the first segment here.
STARTING_IN_REMOTE_STORAGE = {"tail", "epochs", "deleted", "random", "shortened", "copy-disabled"}
UNTIERED = {"plain", "plain-deleted", "turned-off"}


@pytest.fixture(scope="module", params=VERSIONS)
def tiered(request, tmp_path_factory):
    return unpack(request.param, tmp_path_factory.mktemp("tiered"))


@pytest.fixture(scope="module")
def newest(tmp_path_factory):
    return unpack(VERSIONS[-1], tmp_path_factory.mktemp("tiered"))


def compare(log, rows, rules, *, except_for=()):
    """Compare with the broker's answers; return how many lie in remote segments."""
    remote, wrong = 0, []
    for row in rows:
        timestamp = row["timestamp"]
        if timestamp in except_for:
            continue
        theirs = row["error"], (row["result_timestamp"], row["offset"], row["leader_epoch"])
        try:
            found = log.list_offset(
                timestamp, rules, request_version=row["version"],
                current_leader_epoch=epoch_of(rows),
            )
        except UnsupportedTimestampError:
            ours = UNSUPPORTED_VERSION, (-1, -1, -1)
        except InRemoteSegmentError as error:
            remote += 1
            assert error.target_timestamp == timestamp
            if not error.start_offset <= row["offset"] <= error.end_offset:
                wrong.append((timestamp, error, theirs))
            continue
        else:
            ours = 0, in_broker_form(found)
        if ours != theirs:
            wrong.append((timestamp, ours, theirs))
    assert not wrong
    return remote


def test_the_golden_topics_are_tiered_in_all_ways(tiered):
    assert set(tiered.topics) >= STARTING_IN_REMOTE_STORAGE | UNTIERED
    for topic in tiered.topics:
        starts_there = tiered.broker_offset(topic, -2) < tiered.broker_offset(topic, -4)
        assert starts_there == (topic in STARTING_IN_REMOTE_STORAGE)
        assert len(tiered.rows(topic)) >= 200 or topic in ("fresh", "empty")


def test_answers_are_those_of_the_broker(tiered):
    for topic in tiered.topics:
        remote = compare(tiered.log(topic), tiered.rows(topic), tiered.rules)
        assert (remote > 0) == (topic in STARTING_IN_REMOTE_STORAGE), topic


def test_without_the_configuration_answers_are_the_same_or_unknown(tiered):
    # Only the configuration says that copying was disabled, and whether an empty topic is tiered.
    by_configuration = (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP)
    for topic in tiered.topics:
        log = tiered.log(topic, configured=False)
        has_segments = log.remote_log.segments and log.remote_log.segments.finished
        known = has_segments and topic != "copy-disabled"
        compare(
            log, tiered.rows(topic), tiered.rules, except_for=() if known else by_configuration
        )
        if not has_segments:
            with pytest.raises(UnknownRemoteSegmentsError) as caught:
                log.list_offset(EARLIEST_PENDING_UPLOAD_TIMESTAMP)
            assert caught.value.reason == UnknownRemote.NO_CONFIGURATION


def test_the_metadata_log_of_the_directory_says_what_is_tiered(tiered):
    settings = kafkastore.writing.topic_settings.remote_settings_of(kafkastore.open(tiered.logs))
    for topic in tiered.topics:
        assert settings.remote_storage_of(topic) is tiered.storage(topic)


def test_bounds_are_those_of_the_broker(tiered):
    for topic in tiered.topics:
        for configured in (True, False):
            log = tiered.log(topic, configured=configured)
            assert log.log_start_offset == tiered.broker_offset(topic, EARLIEST_TIMESTAMP)
            assert log.local_log_start_offset == tiered.broker_offset(
                topic, EARLIEST_LOCAL_TIMESTAMP
            )


def test_correct_answers_are_those_of_the_broker_where_its_answers_are_correct(tiered):
    for topic in tiered.topics:
        log = tiered.log(topic)
        for row in tiered.rows(topic):
            if row["timestamp"] < 0:
                continue
            try:
                found = log.offset_for_timestamp(row["timestamp"])
            except InRemoteSegmentError as error:
                assert error.start_offset <= row["offset"] <= error.end_offset
            else:
                assert (-1 if found is None else found.offset) == row["offset"]


def test_the_record_with_the_largest_timestamp_may_be_in_remote_storage(newest):
    log = newest.log("random")
    times = {row["timestamp"] for row in newest.rows("random") if row["offset"] >= 0}
    try:
        found = log.list_offset(MAX_TIMESTAMP)
    except InRemoteSegmentError as error:
        assert error.start_offset < log.local_log_start_offset
    else:
        assert found.timestamp == max(times)
    assert newest.log("tail").list_offset(MAX_TIMESTAMP).offset == 39


def test_records_here_are_read_and_those_in_remote_storage_left_out(newest):
    log = newest.log("epochs")
    offsets = [record.offset for record in log.records()]
    assert offsets == list(range(log.local_log_start_offset, log.log_end_offset))
    assert [record.offset for record in log.records(3)] == offsets


def test_brokers_before_tiered_storage_raise_the_log_start(newest):
    log = newest.log("tail")
    found = log.list_offset(EARLIEST_TIMESTAMP, "3.5")
    assert found.offset == log.local_log_start_offset
    first = log.offset_for_timestamp(0, "3.5")
    assert first.offset == log.local_log_start_offset


def test_special_timestamps_have_the_same_answer_without_a_version(newest):
    for topic in newest.topics:
        special = [row for row in newest.rows(topic) if row["timestamp"] in (-1, -2, -4, -5, -6)]
        assert compare(newest.log(topic), special, "correct") == 0


@pytest.mark.parametrize("on_corrupt", ["raise", "skip"])
def test_many_times_have_the_answers_of_the_broker_or_the_remote_segments(tiered, on_corrupt):
    for topic in tiered.topics:
        log = tiered.log(topic)
        rows = [row for row in tiered.rows(topic) if row["timestamp"] >= 0 and not row["error"]]
        if not rows:
            continue
        for rules in (tiered.rules, "correct"):
            remote = {}
            asked = [row["timestamp"] for row in rows]
            answers = log.offsets_for_timestamps(
                [*asked, asked[0]], rules, on_corrupt=on_corrupt, remote=remote
            ).tolist()
            assert answers[-1] == answers[0]
            for row, answer in zip(rows, answers, strict=False):
                timestamp = row["timestamp"]
                if timestamp in remote:
                    error = remote[timestamp]
                    assert answer == (-1, IN_REMOTE_STORAGE, -1)
                    assert error.target_timestamp == timestamp
                    assert error.start_offset <= row["offset"] <= error.end_offset
                elif rules == "correct":
                    assert answer[1] == row["offset"]
                else:
                    assert answer == (
                        row["result_timestamp"], row["offset"], row["leader_epoch"]
                    )
            assert bool(remote) == (topic in STARTING_IN_REMOTE_STORAGE)


def test_remote_outcomes_of_many_times_are_those_of_one(newest):
    log, remote = newest.log("epochs"), {}
    answers = log.offsets_for_timestamps([0, 1_500_000_090_000], "4.2", remote=remote)
    assert answers["offset"].tolist() == [IN_REMOTE_STORAGE, 90]
    with pytest.raises(InRemoteSegmentError) as caught:
        log.offset_for_timestamp(0, "4.2")
    assert remote.keys() == {0}
    assert remote[0].args == caught.value.args
    assert log.offsets_for_timestamps([0], "4.2")["offset"].tolist() == [IN_REMOTE_STORAGE]


def test_of_many_partitions_one_may_be_in_remote_storage(newest):
    store = kafkastore.open(newest.logs)
    found = store.offsets_for_times({"epochs-0": 0, "plain-0": 0}, rules="4.2")
    assert isinstance(found["epochs", 0], InRemoteSegmentError)
    assert found["plain", 0].offset == 0


def test_a_comparison_has_the_remote_segment_of_a_time_and_compares_the_others(newest):
    log, times = newest.log("epochs"), [0, 1_500_000_090_000]
    (here,) = kafkastore.legacy.compare(log, times[1:], now=0)
    remote, same = kafkastore.legacy.compare(log, times, now=0)
    assert same == here
    assert here.correct.offset == here.broker.offset == 90
    assert (remote.redelivered, remote.missed) == (None, None)
    for outcome in (remote.broker, remote.correct):
        assert isinstance(outcome, InRemoteSegmentError)
        assert (outcome.start_offset, outcome.target_timestamp) == (0, 0)
    summary = kafkastore.legacy.summarize(kafkastore.legacy.compare_columns(log, times))
    assert (summary.times, summary.remote_times, summary.broker_differs) == (2, 1, 0)
    table = kafkastore.legacy.compare_as_arrow(log, times).to_pylist()
    assert [row["correct"] for row in table] == [None, 90]
    assert [row["remote_segment"] is None for row in table] == [False, True]
    assert table[0]["remote_segment"]["segment_id"] == remote.correct.segment_id


def test_a_plot_needs_all_offsets(newest):
    with pytest.raises(InRemoteSegmentError):
        plot_answers(newest.log("epochs"), [0, 1_500_000_090_000])


def test_an_explanation_of_an_answer_here_is_given(newest):
    row = newest.rows("epochs")[-10]
    explained = newest.log("epochs").explain_timestamp(row["timestamp"], "4.2")
    assert explained.answer.offset == row["offset"]
    assert explained.difference is None


# What is unknown


@pytest.fixture
def without_metadata(newest, tmp_path):
    """The directory of a broker that has no replica of ``__remote_log_metadata``."""
    logs = newest.copy_to(tmp_path / "logs")
    for path in logs.glob("__remote_log_metadata-*"):
        shutil.rmtree(path)
    return logs


def test_without_remote_log_metadata_the_remote_segments_are_unknown(newest, without_metadata):
    log = kafkastore.open(without_metadata)["tail", 0]
    log.remote_storage = RemoteStorage.ON
    assert log.log_start_offset == newest.broker_offset("tail", EARLIEST_TIMESTAMP)
    for timestamp in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP, 0):
        with pytest.raises(UnknownRemoteSegmentsError) as caught:
            log.list_offset(timestamp)
        assert caught.value.reason == UnknownRemote.NO_METADATA
    assert log.list_offset(EARLIEST_LOCAL_TIMESTAMP).offset == log.local_log_start_offset


def test_times_are_answered_without_it_if_the_whole_log_is_here(newest, without_metadata):
    log = kafkastore.open(without_metadata)["kept", 0]
    log.remote_storage = RemoteStorage.ON
    special = (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP)
    assert compare(log, newest.rows("kept"), newest.rules, except_for=special) == 0


def test_another_partition_of_the_metadata_topic_is_not_taken_for_the_right_one(newest, tmp_path):
    logs = newest.copy_to(tmp_path / "logs")
    shutil.rmtree(logs / "__remote_log_metadata-0")
    missing = UnknownRemote.NO_METADATA_PARTITION
    for count in (None, 3):
        unknown = {}
        for topic in newest.topics:
            log = kafkastore.open(logs)[topic, 0]
            log.set_remote_storage(RemoteStorage.ON, count)
            unknown[topic] = log.remote_log.unknown
        assert set(unknown.values()) == {None, missing}
        if count == 3:
            there = {
                topic for topic in newest.topics
                if metadata_partition_of(newest.topic_id(topic), 0, count) != 0
            }
            assert {topic for topic, reason in unknown.items() if reason is None} == there


def test_the_number_of_partitions_of_the_metadata_topic_is_that_of_its_records(newest):
    # Three partitions without a gap, and records that are where they are in a topic of three.
    log = newest.log("plain")
    log.set_remote_storage(RemoteStorage.ON)
    assert log.remote_log.unknown is None
    assert log.remote_log.segments.finished == []
    log.set_remote_storage(RemoteStorage.ON, 5000)
    assert log.remote_log.unknown is UnknownRemote.NO_METADATA_PARTITION


def test_the_metadata_may_be_in_another_log_directory_of_the_broker(newest, tmp_path):
    logs, other = newest.copy_to(tmp_path / "logs"), tmp_path / "other"
    other.mkdir()
    shutil.copy(logs / "meta.properties", other)
    for path in logs.glob("__remote_log_metadata-*"):
        path.rename(other / path.name)
    log = kafkastore.open([logs, other])["tail", 0]
    log.remote_storage = RemoteStorage.ON
    assert compare(log, newest.rows("tail"), newest.rules) > 0
    properties = other / "meta.properties"
    properties.write_text(properties.read_text().replace("node.id=1", "node.id=2"))
    log = kafkastore.open([logs, other])["tail", 0]
    log.remote_storage = RemoteStorage.ON
    assert log.remote_log.unknown is UnknownRemote.NO_METADATA


def test_a_checkpoint_below_the_first_segment_alone_is_raised_and_reported(
    newest, without_metadata
):
    log = kafkastore.open(without_metadata)["deleted", 0]
    assert log.start_bound.source is BoundSource.FIRST_SEGMENT
    assert log.log_start_offset == log.local_log_start_offset
    assert log.log_start_if_tiered == newest.broker_offset("deleted", EARLIEST_TIMESTAMP)
    log.remote_storage = RemoteStorage.ON
    assert log.log_start_offset == newest.broker_offset("deleted", EARLIEST_TIMESTAMP)
    assert log.log_start_if_tiered is None
    log.remote_storage = RemoteStorage.OFF
    assert log.log_start_offset == log.local_log_start_offset
    assert log.log_start_if_tiered is None


def test_records_about_a_partition_say_that_it_is_tiered(newest):
    assert newest.log("tail", configured=False).remote_log.source is (
        RemoteSource.REMOTE_LOG_METADATA
    )
    assert newest.log("tail").remote_log.source is RemoteSource.CONFIGURATION


@pytest.mark.parametrize("content", [None, "0\n0\n", "x"])
def test_without_a_line_in_the_checkpoint_the_log_starts_at_the_first_remote_segment(
    newest, tmp_path, content
):
    logs = newest.copy_to(tmp_path / "logs")
    checkpoint = logs / "log-start-offset-checkpoint"
    checkpoint.unlink()
    if content is not None:  # as brokers before 3.8 leave it, or corrupt
        checkpoint.write_text(content)
    assert kafkastore.open(logs)["shortened", 0].log_start_offset == newest.broker_offset(
        "shortened", EARLIEST_TIMESTAMP
    )


def test_corrupt_records_about_remote_segments_are_an_error_where_they_decide(newest, tmp_path):
    logs = newest.copy_to(tmp_path / "logs")
    for path in logs.glob("__remote_log_metadata-*/*.log"):
        data = bytearray(path.read_bytes())
        if data:
            data[70] ^= 1
            path.write_bytes(data)
    log = kafkastore.open(logs)["tail", 0]
    log.remote_storage = RemoteStorage.ON
    assert log.log_start_offset == newest.broker_offset("tail", EARLIEST_TIMESTAMP)
    with pytest.raises(CorruptionError):
        log.list_offset(LATEST_TIERED_TIMESTAMP)


@pytest.mark.parametrize("rules", ["correct", "4.2"])
def test_corrupt_records_that_hide_whether_a_log_starts_here_are_an_error(newest, tmp_path, rules):
    logs = newest.copy_to(tmp_path / "logs")
    for path in logs.glob("__remote_log_metadata-*/*.log"):
        path.write_bytes(path.read_bytes()[:-1] + b"\x7f")
    store = kafkastore.open(logs)
    for timestamp in (EARLIEST_TIMESTAMP, 1_500_000_010_000, MAX_TIMESTAMP):
        if (rules, timestamp) == ("4.2", MAX_TIMESTAMP):
            continue  # of the segments here only
        with pytest.raises(CorruptionError):
            store["tail", 0].list_offset(timestamp, rules=rules)
    assert store["tail", 0].list_offset(EARLIEST_LOCAL_TIMESTAMP, rules=rules).offset == (
        newest.broker_offset("tail", EARLIEST_LOCAL_TIMESTAMP))
    special = (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP)
    rows = newest.rows("plain")
    assert compare(store["plain", 0], rows, newest.rules, except_for=special) == 0


def test_partitions_without_a_sign_do_not_read_the_records(newest, monkeypatch):
    def fail(path):
        raise AssertionError(path)

    monkeypatch.setattr(remote_metadata, "_replayed", fail)
    for topic in ("plain", "plain-deleted", "kept", "fresh"):
        log = newest.log(topic, configured=False)
        special = (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP)
        assert compare(log, newest.rows(topic), newest.rules, except_for=special) == 0


@pytest.mark.parametrize("error", [
    InRemoteSegmentError("orders-3", 5, 0, 9, "FBuTCO9fTCOzDPqTiTp2JQ"),
    UnknownRemoteSegmentsError("orders-3", "no-metadata"),
])
def test_errors_keep_their_fields_between_processes(error):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), vars(again)) == (type(error), vars(error))
