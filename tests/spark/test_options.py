"""The data source's options, as text."""
from uuid import uuid4

import pytest
from spark.refused_options import option_refused

from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.spark.source.options import parse_options
from kafkastore.spark.source.selection import EARLIEST, INTERNAL_TOPICS, LATEST
from kafkastore.spark.source.writing.write_options import parse_write_options
from kafkastore.versions import NEWEST_VERSION

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def parsed(**options):
    return parse_options({"path": "/logs", **options})


def test_without_options_everything_is_read():
    options = parsed()
    assert options.paths == ("/logs",)
    assert options.selection.includes(T0)
    assert (options.start.of(T0), options.end.of(T0)) == (EARLIEST, LATEST)
    assert options.columns is None
    assert options.fail_on_data_loss
    assert not options.include_headers


@pytest.mark.parametrize(
    ("options", "included"),
    [
        ({"subscribe": "t"}, {T0, T1}),
        ({"subscribe": " t , u "}, {T0, T1, U0}),
        ({"SUBSCRIBE": "u"}, {U0}),
        ({"subscribePattern": "t|v"}, {T0, T1}),
        ({"subscribePattern": "."}, {T0, T1, U0}),
        ({"subscribePattern": " uu? "}, {U0}),
        ({"subscribePattern": "^x|u$"}, {U0}),
        ({"subscribePattern": "^$"}, set()),
        ({"assign": '{"t": [1], "u": [0]}'}, {T1, U0}),
    ],
)
def test_partitions_are_chosen_by_one_option(options, included):
    selection = parsed(**options).selection
    assert {each for each in (T0, T1, U0) if selection.includes(each)} == included


@pytest.mark.parametrize(
    ("options", "start", "is_timestamp"),
    [
        ({"startingOffsets": "earliest"}, {T0: EARLIEST, T1: EARLIEST}, False),
        ({"startingOffsets": "Earliest "}, {T0: EARLIEST, T1: EARLIEST}, False),
        ({"startingOffsets": '{"t": {"0": 23, "1": -2}}'}, {T0: 23, T1: EARLIEST}, False),
        ({"startingTimestamp": "1500"}, {T0: 1500, T1: 1500}, True),
        ({"startingOffsetsByTimestamp": '{"t": {"0": 1, "1": 2}}'}, {T0: 1, T1: 2}, True),
        (
            {"startingOffsets": '{"t": {"0": 1}}', "startingOffsetsByTimestamp": '{"t": {"0": 2}}'},
            {T0: 2},
            True,
        ),
        (
            {"startingOffsetsByTimestamp": '{"t": {"0": 2}}', "startingTimestamp": "3"},
            {T0: 3, T1: 3},
            True,
        ),
    ],
)
def test_the_start_is_the_first_that_is_given(options, start, is_timestamp):
    bound = parsed(**options).start
    assert {each: bound.of(each) for each in start} == start
    assert bound.by_timestamp is is_timestamp


def test_the_end_has_the_same_options():
    assert parsed(endingTimestamp="7", endingOffsets="latest").end.of(T0) == 7
    assert parsed(endingOffsets='{"t": {"0": -1}}').end.of(T0) == LATEST
    assert parsed(endingOffsetsByTimestamp='{"t": {"0": 9}}').end.by_timestamp


def test_paths_are_a_list_in_json():
    assert parse_options({"paths": '["/a", "/b,c"]'}).paths == ("/a", "/b,c")
    assert parsed(path="file:///a").paths == ("/a",)


@pytest.mark.parametrize("folder", ["userFiles", "artifacts"])
def test_a_relative_path_in_a_folder_of_spark_connect_s_is_refused(tmp_path, monkeypatch, folder):
    """The server gives each session one, and removes it."""
    place = tmp_path / f"{folder}-{uuid4()}" / str(uuid4())
    place.mkdir(parents=True)
    monkeypatch.chdir(place)
    for parse in (parse_options, parse_write_options):
        with option_refused("unsuitable", "path"):
            parse({"path": "logs"})
    assert parse_options({"path": "/logs"}).paths == ("/logs",)


def test_a_relative_path_means_the_planners_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert parsed(path="logs").paths == (str(tmp_path / "logs"),)


def test_urls_stay_and_those_of_local_files_are_paths():
    given = ["s3://b/k", "HDFS://host:8020/k", "file:/logs", "FILE:///logs", "file:///logs"]
    assert parsed(path=given[0]).paths == (given[0],)
    assert [parsed(path=each).paths[0] for each in given] == [*given[:2], *["/logs"] * 3]


def test_options_for_a_broker_only_are_ignored():
    parsed(**{
        "kafka.bootstrap.servers": "h:9092",
        "kafkaConsumer.pollTimeoutMs": "1",
        "fetchOffset.numRetries": "3",
        "groupIdPrefix": "g",
    })


def test_a_pattern_is_found_anywhere_but_in_internal_topics():
    """As `findFirstIn` in Spark's `SubscribePatternStrategy`, and a broker's list of topics."""
    selection = parsed(subscribePattern="order|off|state|clust").selection
    for topic in ("orders", "reorder-2", "my_state"):
        assert selection.includes(TopicPartition(topic, 0))
    for topic in INTERNAL_TOPICS:
        assert not selection.includes(TopicPartition(topic, 0))
        assert parsed(subscribe=topic).selection.includes(TopicPartition(topic, 0))


def test_options_of_streams_and_of_writing_are_let_pass():
    parsed(maxOffsetsPerTrigger="10", minOffsetsPerTrigger="1", maxTriggerDelay="15m", topic="t")


@pytest.mark.parametrize(
    ("options", "isolation"),
    [
        ({}, "read_uncommitted"),
        ({"kafka.isolation.level": "read_committed"}, "read_committed"),
        ({"isolation": "READ_COMMITTED "}, "read_committed"),
        ({"isolation": "read_committed", "kafka.isolation.level": "read_committed"},
         "read_committed"),
    ],
)
def test_isolation_is_the_consumers_or_our_own_option(options, isolation):
    assert parsed(**options).isolation == isolation


def test_rules_are_a_broker_s_unless_others_are_requested():
    assert parsed().rules == NEWEST_VERSION
    assert parsed(rules="correct").rules == "correct"
    assert parsed(rules="2.4").rules == "2.4"


def test_both_ends_may_name_partitions():
    """Bounds that are known only later are not compared."""
    parsed(startingOffsets='{"t": {"0": 5}}', endingOffsets='{"t": {"0": -1}}')
    parsed(startingOffsets='{"t": {"0": 5}}', endingOffsets="latest")
    parsed(startingOffsets='{"t": {"0": 5}}', endingOffsetsByTimestamp='{"t": {"0": 3}}')


def test_columns_are_named_by_commas():
    assert parsed(columns=" offset,value ").columns == ("offset", "value")
    assert parsed(columns="offset,headers", includeHeaders="true").include_headers


@pytest.mark.parametrize(
    ("options", "problem", "named"),
    [
        ({"startingOffset": "1"}, "unknown", ["startingOffset"]),
        ({"frobnicate": "1"}, "unknown", ["frobnicate"]),
        ({"subscribe": "t", "assign": "{}"}, "contradiction", ["subscribe", "assign"]),
        ({"subscribe": " , "}, "value", ["subscribe"]),
        ({"subscribePattern": "("}, "value", ["subscribePattern"]),
        ({"assign": "t-0"}, "value", ["assign"]),
        ({"assign": '{"t": 0}'}, "value", ["assign"]),
        ({"assign": '["t"]'}, "value", ["assign"]),
        ({"startingOffsets": "latest"}, "value", ["startingOffsets"]),
        ({"endingOffsets": "earliest"}, "value", ["endingOffsets"]),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "value", ["startingOffsets"]),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "value", ["endingOffsets"]),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "value", ["startingOffsets"]),
        ({"startingOffsets": '{"t": {"0": 1.5}}'}, "value", ["startingOffsets"]),
        ({"startingOffsets": '{"t": [1]}'}, "value", ["startingOffsets"]),
        ({"startingOffsets": "[" * 100_000}, "value", ["startingOffsets"]),
        ({"startingOffsets": "earlist"},
         "value", ["startingOffsets"]),
        ({"startingOffsetsByTimestamp": "now"}, "value", ["startingOffsetsByTimestamp"]),
        ({"startingTimestamp": "-5"}, "value", ["startingTimestamp"]),
        ({"endingTimestamp": "now"}, "value", ["endingTimestamp"]),
        ({"endingTimestamp": str(1 << 63)}, "value", ["endingTimestamp"]),
        ({"startingOffsetsByTimestampStrategy": "x"},
         "value", ["startingOffsetsByTimestampStrategy"]),
        ({"includeHeaders": "yes"}, "value", ["includeHeaders"]),
        ({"columns": "offset", "includeHeaders": "true"},
         "contradiction", ["columns", "includeHeaders"]),
        ({"minPartitions": "0"}, "value", ["minPartitions"]),
        ({"paths": "[]"}, "contradiction", ["path", "paths"]),
        ({"subscribePattern": " "}, "value", ["subscribePattern"]),
        ({"endingOffsets": ""}, "value", ["endingOffsets"]),
        ({"maxRecordsPerPartition": "0"}, "value", ["maxRecordsPerPartition"]),
        ({"isolation": "none"}, "value", ["isolation"]),
        ({"isolation": "read_committed", "kafka.isolation.level": "read_uncommitted"},
         "contradiction", ["isolation", "kafka.isolation.level"]),
        ({"latest": "yes"}, "value", ["latest"]),
        ({"latest": "true", "isolation": "read_uncommitted"},
         "contradiction", ["latest", "isolation"]),
        ({"latest": "true", "kafka.isolation.level": "read_uncommitted"},
         "contradiction", ["latest", "kafka.isolation.level"]),
        ({"latest": "true", "minPartitions": "4"}, "contradiction", ["latest", "minPartitions"]),
        ({"latest": "partition", "maxRecordsPerPartition": "4"},
         "contradiction", ["latest", "maxRecordsPerPartition"]),
        ({"latest": "true", "table": "batches"}, "unsuitable", ["latest"]),
        ({"includeTombstones": "true"}, "unsuitable", ["includeTombstones"]),
        ({"rules": "newest"}, "value", ["rules"]),
        ({"rules": "0.10.1", "isolation": "read_committed"},
         "value", ["rules"]),
        ({"kafka.auto.offset.reset": "latest"}, "refused", ["kafka.auto.offset.reset"]),
        ({"kafka.Enable.auto.commit": "true"}, "refused", ["kafka.Enable.auto.commit"]),
        ({"startingOffsets": '{"t": {"0": 5}}', "endingOffsets": '{"t": {"0": 4}}'},
         "contradiction", ["startingOffsets", "endingOffsets"]),
        ({"startingOffsets": '{"t": {"0": 5}}', "endingOffsets": '{"t": {"0": 9, "1": 9}}'},
         "contradiction", ["startingOffsets", "endingOffsets"]),
        ({"startingOffsetsByTimestamp": '{"t": {"0": 5}}',
          "endingOffsetsByTimestamp": '{"t": {"0": 4}}'},
          "contradiction", ["startingOffsetsByTimestamp", "endingOffsetsByTimestamp"]),
    ],
)
def test_a_bad_option_is_refused_with_one_sentence(options, problem, named):
    with option_refused(problem, *named):
        parsed(**options)


def test_a_load_without_path_is_refused():
    for options in ({}, {"paths": "[]"}):
        with option_refused("missing", "path"):
            parse_options(options)


def test_a_partition_that_a_bound_does_not_name_is_refused():
    bound = parsed(startingOffsets='{"t": {"0": 1}}').start
    with option_refused("missing", "startingOffsets"):
        bound.of(T1)
