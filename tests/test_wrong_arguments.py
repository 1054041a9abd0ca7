"""Arguments of a wrong kind: one clear error that names the argument, wherever it is passed."""

from collections import deque
from datetime import datetime
from types import SimpleNamespace as New

import numpy as np
import pytest
from kafkastore.legacy.answer_plot import plot_answers
from models.log_directory import Log, Segment
from models.record_format import Batch, Row
from models.refused import refused

import kafkastore
from kafkastore import (
    InvalidConfigError,
    LogConfig,
    OffsetIndex,
    TimeIndex,
    TransactionIndex,
    legacy,
    server,
)
from kafkastore.arguments import check_kind, whole_number
from kafkastore.errors import ArgumentTypeError, ArgumentValueError
from kafkastore.formats.requests.list_offsets import ListOffsetsRequest
from kafkastore.formats.state.file_names import InvalidNameError

LOG = Log((Segment(0, tuple(Batch((Row(n, 10 * n, b"k", b"v"),)) for n in range(9))).indexed(),))


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return LOG.write(tmp_path_factory.mktemp("logs") / "logs")


@pytest.fixture(scope="module")
def log(root):
    return kafkastore.open(root)["t-0"]


#: Integer arguments: the name that the error has -> a function that passes one.
NUMBERS = {
    "start_offset of records": lambda log, value: list(log.records(value)),
    "end_offset of records": lambda log, value: list(log.records(None, value)),
    "start_offset of batches": lambda log, value: list(log.batches(value)),
    "end_offset of batches": lambda log, value: list(log.batches(None, value)),
    "max_decompressed_bytes of records": lambda log, value: list(
        log.records(max_decompressed_bytes=value)
    ),
    **{
        f"{name} of to_arrow": lambda log, value, name=name: log.to_arrow(**{name: value})
        for name in ("start_offset", "end_offset", "start_timestamp", "end_timestamp", "limit",
                     "batch_rows", "batch_bytes", "max_decompressed_bytes")
    },
    "target_offset": lambda log, value: log.segments[0].translate_offset(value),
    "starting_position": lambda log, value: log.segments[0].translate_offset(1, value),
    "target_timestamp of explain_timestamp": lambda log, value: log.explain_timestamp(value),
    "target_timestamp of a segment": lambda log, value: log.segments[
        0
    ].find_offset_by_timestamp(value, 0),
    "starting_offset": lambda log, value: log.segments[0].find_offset_by_timestamp(0, value),
    "timestamp of list_offset": lambda log, value: log.list_offset(value),
    "index_interval_bytes": lambda log, value: log.segments[0].rebuilt_indexes(value),
    **{
        f"base_offset of {kind.__name__}": lambda log, value, kind=kind: kind.open(
            log.segments[0].offset_index_path, value
        )
        for kind in (OffsetIndex, TimeIndex, TransactionIndex)
    },
    "target of OffsetIndex": lambda log, value: log.segments[0].offset_index.lookup(value),
    "target of TimeIndex": lambda log, value: log.segments[0].time_index.lookup(value),
    "slot": lambda log, value: log.segments[0].time_index.entry(value),
    "offset of truncate_to": lambda log, value: log.segments[0].time_index.truncate_to(value),
    "position": lambda log, value: log.segments[0].offset_index.fetch_upper_bound(value, 1),
    "fetch_size": lambda log, value: log.segments[0].offset_index.fetch_upper_bound(1, value),
    "fetch_offset": lambda log, value: log.segments[0].transaction_index.collect_aborted_txns(
        value, 9
    ),
    "now of retention": lambda log, value: list(
        kafkastore.retention(kafkastore.open(log.path.parent), now=value)
    ),
    "broker_partitions": lambda log, value: kafkastore.sizing(broker_partitions=value),
    "intervals": lambda log, value: kafkastore.sizing(intervals=[value]),
    "threads of plan_reindex": lambda log, value: kafkastore.plan_reindex(log.path, threads=value),
    "threads of survey": lambda log, value: kafkastore.migration.survey(log.path, threads=value),
    "threads of plan_convert": lambda log, value: kafkastore.migration.plan_convert(
        log.path, threads=value
    ),
    "threads of plan_restore": lambda log, value: kafkastore.migration.plan_restore(
        log.path, log.path.parent, threads=value
    ),
    "leader_epoch of plan_restore": lambda log, value: kafkastore.migration.plan_restore(
        log.path, log.path.parent, leader_epoch=value
    ),
    "threads of verify": lambda log, value: list(kafkastore.verify(log.path, threads=value)),
    "threads of resume": lambda log, value: kafkastore.resume(log.path, threads=value),
    "threads of apply": lambda log, value: kafkastore.apply(
        kafkastore.plan_reindex(log.path), threads=value
    ),
    "partition": lambda log, value: kafkastore.open(log.path)["t", value],
    "request_version": lambda log, value: log.list_offset(1, "2.4", request_version=value),
    "known_end_offset": lambda log, value: log.to_arrow(known_end_offset=value),
}
NONE_ALLOWED = (
    "start_", "end_", "limit", "base_offset", "now", "threads", "request_version", "known_"
)


@pytest.mark.parametrize(
    "value", [1.0, "7", b"7", [], object(), float("nan"), np.float64(7), True, np.True_, None]
)
@pytest.mark.parametrize("name", NUMBERS)
def test_a_value_that_is_not_an_int_is_refused_by_the_argument_s_name(log, name, value):
    if value is None and name.startswith(NONE_ALLOWED):
        return
    with refused(name.split(" of ")[0], ArgumentTypeError):
        NUMBERS[name](log, value)


@pytest.mark.parametrize("value", [0, -1])
@pytest.mark.parametrize("name", [name for name in NUMBERS if name.startswith("threads")])
def test_no_threads_are_refused(log, name, value):
    with refused("threads"):
        NUMBERS[name](log, value)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, -(10**30)])
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_beyond_64_bits_are_refused_by_the_argument_s_name(log, name, value):
    with refused(name.split(" of ")[0]):
        NUMBERS[name](log, value)


@pytest.mark.parametrize("value", [1.0, "7", None, np.float64(7)])
def test_a_time_that_is_not_an_int_is_refused_by_all_rules(log, value):
    for rules in ("correct", "2.4", "kip-33"):
        with refused("target_timestamp", ArgumentTypeError):
            log.offset_for_timestamp(value, rules)
    assert log.offset_for_timestamp(np.int64(35)).offset == 4


@pytest.mark.parametrize(
    "times",
    [[1.5], [2**63], np.array([1], np.uint64), ["7"], None],
    ids=["float", "beyond int64", "uint64", "text", "no list"],
)
def test_many_times_that_are_no_int64_are_refused_with_what_to_do(log, times):
    for rules in ("correct", "2.4", "kip-33"):
        with refused("targets", ArgumentTypeError):
            log.offsets_for_timestamps(times, rules)


@pytest.mark.parametrize(
    ("times", "kind"),
    [([None], ArgumentTypeError), ([datetime(2024, 3, 1)], ArgumentValueError)],
    ids=["None", "without zone"],
)
def test_many_times_of_which_one_is_no_time_are_refused(log, times, kind):
    with refused("target_timestamps", kind):
        log.offsets_for_timestamps(times)


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint8])
def test_integers_of_numpy_are_numbers_like_any(log, kind):
    assert [each.offset for each in log.records(kind(3), kind(5))] == [3, 4]
    for start, limit in ((kind(3), kind(2)), (3, 2)):
        table = log.to_arrow(["offset"], start_offset=start, limit=limit).read_all()
        assert table["offset"].to_pylist() == [3, 4]
    assert log.segments[0].translate_offset(kind(4)).offset == 4
    assert log.explain_bounds(kind(4)).high_watermark.offset == 4
    assert kafkastore.open(log.path)["t", kind(0)].log_end_offset == 9
    assert type(whole_number("any", kind(3))) is int


@pytest.mark.parametrize("key", [None, 5, 1.5, b"t-0", [], {}, (), ("t",), ("t", 0, 0), (0, "t")])
def test_a_key_that_is_not_a_partition_is_a_type_error_with_an_example(root, key):
    store = kafkastore.open(root)
    for ask in (store.__getitem__, store.partitions.__getitem__, store.partitions.get):
        with refused("partition", ArgumentTypeError):
            ask(key)
    assert key not in store.partitions if not isinstance(key, list | dict) else True
    with refused("partition", ArgumentTypeError):
        kafkastore.plan_reindex(root, partitions=[key])


def test_a_partition_is_found_by_each_way_of_naming_it_and_no_other_is(root):
    store = kafkastore.open(root)
    for mapping in (store, store.partitions):
        assert mapping["t-0"] is mapping["t", 0] is mapping[kafkastore.TopicPartition("t", 0)]
    assert "t-0" in store.partitions
    assert ("t", 0) in store.partitions
    for missing in ("t-1", ("t", 1), ("t", -1), ("u", 0)):
        assert missing not in store.partitions
        assert store.partitions.get(missing) is None
        with pytest.raises(KeyError):
            store[missing]
    for text in ("nope", "t", "t-", "-0", "t-2147483648"):
        assert text not in store.partitions
        with pytest.raises(InvalidNameError):
            store[text]


def test_a_reindex_of_partitions_takes_the_names_that_a_store_takes(root):
    expected = kafkastore.plan_reindex(root).changes
    assert expected
    for name in ("t-0", ("t", 0), kafkastore.TopicPartition("t", 0)):
        assert kafkastore.plan_reindex(root, partitions=[name]).changes == expected
    with pytest.raises(KeyError, match="t-1"):
        kafkastore.plan_reindex(root, partitions=["t-1"])
    with refused("partitions", ArgumentTypeError):
        kafkastore.plan_reindex(root, partitions="t-0")


@pytest.mark.parametrize(
    ("ask", "argument"),
    [
        (kafkastore.apply, "plan"),
        (kafkastore.migration.plan, "survey"),
        (lambda value: kafkastore.recover_log(value, version="2.4"), "log"),
    ],
)
@pytest.mark.parametrize("value", ["/d/logs", 5, New(path="/d"), [1]])
def test_a_path_in_place_of_what_is_opened_there_is_refused(ask, argument, value):
    with refused(argument, ArgumentTypeError):
        ask(value)


JOBS = [
    kafkastore.verify,
    lambda path: [(each.path, each.outcome) for each in kafkastore.predict_start(path)],
    lambda path: kafkastore.lag(path, offsets={}),
    kafkastore.latency,
    lambda path: kafkastore.failover(path, path, offsets={}),
    lambda path: kafkastore.retention(path, now=0),
    lambda path: [kafkastore.sizing(path)],
    kafkastore.list_logs,
    kafkastore.open,
]
PLANS = [
    kafkastore.plan_reindex,
    kafkastore.plan_repair,
    kafkastore.migration.plan_convert,
    lambda path: kafkastore.migration.plan(kafkastore.migration.survey(path)),
]


@pytest.mark.parametrize("job", JOBS)
def test_a_job_takes_a_path_several_paths_or_a_store(root, job):
    expected = list(map(repr, job(kafkastore.open(root))))
    for path in (root, str(root), [root], (str(root),), [kafkastore.open(root)]):
        assert list(map(repr, job(path))) == expected


@pytest.mark.parametrize("make", PLANS)
def test_a_plan_is_made_of_a_path_or_store_and_of_one(root, make, tmp_path):
    store = kafkastore.open(root)
    expected = make(root).changes
    for path in (str(root), store, [root], [store]):
        plan = make(path)
        assert (plan.root, plan.changes) == (str(root), expected)
    for path in ([root, tmp_path], []):
        with refused("path", ArgumentValueError):
            make(path)


def test_a_store_knows_the_paths_that_it_was_opened_from(root):
    partition = next(iter(kafkastore.open(root))).path
    assert kafkastore.open([root, partition]).paths == [root]
    assert kafkastore.open(partition).paths == [partition]
    assert kafkastore.open([kafkastore.open(partition)]).paths == [partition]


@pytest.mark.parametrize("job", [*JOBS, *PLANS])
@pytest.mark.parametrize("value", [5, New(path="/d"), [1], {"/d/logs"}])
def test_a_job_of_what_is_no_path_is_refused(job, value):
    with refused("path", ArgumentTypeError):
        list(job(value))


@pytest.mark.parametrize("asked", [[1], None, "t-0", {1: 2}.items()])
def test_partitions_and_times_that_are_not_a_mapping_are_refused(root, asked):
    store = kafkastore.open(root)
    with refused("timestamps_to_search", ArgumentTypeError):
        store.offsets_for_times(asked)
    with refused("asked", ArgumentTypeError):
        legacy.get_offsets_before(store, asked)


@pytest.mark.parametrize("pair", [-1, (-1,), (-1, 5, 6), "ab", None, np.array([-1, 5])])
def test_a_value_that_is_not_a_pair_of_time_and_number_is_refused(root, pair):
    with refused("asked['t-0']", ArgumentTypeError):
        legacy.get_offsets_before(kafkastore.open(root), {"t-0": pair})


@pytest.mark.parametrize("value", [1.0, "7", None, []])
def test_numbers_of_old_requests_are_refused_by_their_names(root, value):
    store = kafkastore.open(root)
    log = store["t-0"]
    with refused("asked['t-0'][0]", ArgumentTypeError):
        legacy.get_offsets_before(store, {"t-0": (value, 5)})
    with refused("asked['t-0'][1]", ArgumentTypeError):
        legacy.get_offsets_before(store, {"t-0": (-1, value)})
    with refused("target_timestamp", ArgumentTypeError):
        legacy.fetch_offsets_before(log, value, 5)
    with refused("max_num_offsets", ArgumentTypeError):
        legacy.fetch_offsets_before(log, -1, value)
    if value is not None:
        with refused("now", ArgumentTypeError):
            legacy.fetch_offsets_before(log, -1, 5, now=value)
        with refused("high_watermark", ArgumentTypeError):
            legacy.fetch_offsets_before(log, -1, 5, high_watermark=value)


@pytest.mark.parametrize(
    "times", [np.zeros((2, 2), np.int64), [[1, 2]], np.zeros((0, 3), np.int64), [[1], [2, 3]]]
)
def test_times_in_more_than_one_dimension_are_refused(log, times):
    index = log.segments[0].time_index
    for ask in (log.offsets_for_timestamps, index.lookup_many,
                lambda times: legacy.compare(log, times)):
        with refused("targets"):
            ask(times)


@pytest.mark.parametrize("times", ["x", b"x", 5, None])
def test_times_to_compare_that_are_no_row_are_refused(log, times):
    with refused("timestamps", ArgumentTypeError):
        legacy.compare(log, times)


def test_arguments_of_lookups_are_of_their_kinds(root):
    store = kafkastore.open(root)
    sole, request = server.sole_broker(store, "2.4"), ListOffsetsRequest(())
    with refused("broker", ArgumentTypeError):
        server.handle_list_offset_request("b", request, 5)
    with refused("request", ArgumentTypeError):
        server.handle_list_offset_request(sole, 5, 5)
    with refused("request_version", ArgumentTypeError):
        server.handle_list_offset_request(sole, request, "5")
    assert server.handle_list_offset_request(sole, request, 5).topics == ()
    with refused("store", ArgumentTypeError):
        server.sole_broker(root, "2.4")


@pytest.mark.parametrize(
    "ask",
    [
        lambda value: legacy.fetch_offsets_before(value, -1, 5),
        lambda value: legacy.compare(value, [5]),
        lambda value: plot_answers(value, [5, 9]),
        legacy.segment_times,
    ],
)
def test_a_store_or_path_in_place_of_a_partition_is_refused(root, ask):
    for value in (kafkastore.open(root), root, None):
        with refused("log", ArgumentTypeError):
            ask(value)


def test_modification_times_that_are_no_mapping_are_refused(log):
    with refused("mtimes", ArgumentTypeError):
        legacy.fetch_offsets_before(log, -1, 5, mtimes=[1])


def test_mtimes_that_are_no_mapping_are_refused(root):
    with refused("mtimes", ArgumentTypeError):
        kafkastore.migration.survey(root, 5)


def test_nothing_to_open_is_an_error():
    for ask in (kafkastore.open, lambda paths: list(kafkastore.verify(paths))):
        with pytest.raises(kafkastore.NotALogDirectoryError):
            ask([])


@pytest.mark.parametrize("interval", [-1, 2**31, 1.5, "4096", None, True])
def test_index_intervals_are_refused_as_the_option_that_they_are(root, interval):
    for ask in (kafkastore.plan_reindex, kafkastore.migration.survey):
        with pytest.raises(InvalidConfigError) as caught:
            ask(root, index_interval_bytes=interval)
        assert caught.value.option == "index.interval.bytes"
    with pytest.raises(InvalidConfigError) as caught:
        LogConfig(index_interval_bytes=interval)
    assert caught.value.option == "index.interval.bytes"


def test_kinds_are_checked_with_their_subclasses():
    check_kind("value", True, int)
    with refused("value", ArgumentTypeError):
        check_kind("value", 5, str)


@pytest.mark.parametrize("now", ["7", 1.5, 2**63, [], object()])
def test_a_time_that_is_none_is_refused_before_a_writer_begins_to_alter_anything(tmp_path, now):
    with kafkastore.LogDirWriter(tmp_path / "logs") as log_dir:
        writer = log_dir.writer("t", 0)
        with pytest.raises((ArgumentTypeError, ArgumentValueError)) as caught:
            writer.delete_old_segments(now)
        assert caught.value.argument == "now"
        assert not writer.has_failed
        assert writer.delete_old_segments(np.int64(7)).log_start_offset == 0


@pytest.mark.parametrize("value", [5, 1.5, True, "offset"])
def test_a_value_that_is_not_a_collection_is_refused_by_the_argument_s_name(log, value):
    with refused("columns", ArgumentTypeError):
        log.to_arrow(value)


#: Functions that add the bytes they skip to a list.
SKIPPING = {
    "batches": lambda log, value: list(log.batches(skipped=value)),
    "records": lambda log, value: list(log.records(skipped=value)),
    "to_arrow": lambda log, value: log.to_arrow(skipped=value),
    "latest": lambda log, value: log.latest(skipped=value),
    "to_arrow of a store": lambda log, value: kafkastore.open(log.path).to_arrow(skipped=value),
    "end_offset": lambda log, value: log.end_offset(skipped=value),
    "offset_for_timestamp": lambda log, value: log.offset_for_timestamp(5, skipped=value),
    "offsets_for_timestamps": lambda log, value: log.offsets_for_timestamps([5], skipped=value),
    "offsets_for_times": lambda log, value: kafkastore.open(log.path).offsets_for_times(
        {"t-0": 5}, skipped=value
    ),
    "list_offset": lambda log, value: log.list_offset(5, skipped=value),
    "compare": lambda log, value: legacy.compare(log, [5], skipped=value),
}


@pytest.mark.parametrize("value", [(), {1}, {}, "s", 5, True])
@pytest.mark.parametrize("name", SKIPPING)
def test_skipped_bytes_that_can_t_be_added_are_refused_before_there_are_any(log, name, value):
    log.offset_for_timestamp(5)  # a prepared lookup checks it too
    with refused("skipped", ArgumentTypeError):
        SKIPPING[name](log, value)


@pytest.mark.parametrize("name", SKIPPING)
def test_a_list_for_skipped_bytes_is_any_that_grows(log, name):
    for value in ([], deque()):
        SKIPPING[name](log, value)
        assert not value


def test_remote_answers_go_to_a_dict(log):
    for value in ([], (), set(), 5):
        with refused("remote", ArgumentTypeError):
            log.offsets_for_timestamps([5], remote=value)


@pytest.mark.parametrize("value", [True, 5, "print", []])
def test_what_can_t_be_called_is_refused_before_anything_is_changed(tmp_path, value):
    plan = kafkastore.plan_reindex(LOG.write(tmp_path / "logs"))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "logs").rglob("*")}
    for name in ("progress", "runner"):
        with refused(name, ArgumentTypeError):
            kafkastore.apply(plan, **{name: value})
        with refused(name, ArgumentTypeError):
            kafkastore.resume(tmp_path, **{name: value})
    with refused("progress", ArgumentTypeError):
        kafkastore.undo(tmp_path, progress=value)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "logs").rglob("*")} == before
    assert [*tmp_path.iterdir()] == [tmp_path / "logs"]
