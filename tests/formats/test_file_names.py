"""Names in a log directory: Kafka's parseTopicPartitionName tests, and the odd ones."""

import doctest

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from models import file_name_model, format_document
from models.seed import examples

from kafkastore.errors import KafkaStoreError
from kafkastore.formats.state import file_names
from kafkastore.formats.state.file_names import (
    InvalidNameError,
    PartitionDirectory,
    SegmentFile,
    TopicPartition,
    kind_in_log_dir,
    parse_partition_directory,
    parse_segment_file,
    segment_file_name,
)

UUID = "c5becab687174d2c923f6b14d4a77d11"


@pytest.mark.parametrize(
    ("name", "topic", "partition"),
    [
        ("test_topic-143", "test_topic", 143),
        ("page-views-12", "page-views", 12),
        ("t--1", "t-", 1),
        ("a-b--0", "a-b-", 0),
        ("---0", "--", 0),
        ("with.dots-0", "with.dots", 0),
        ("foo-delete-0", "foo-delete", 0),
        ("foo.bar-future-3", "foo.bar-future", 3),
        ("__cluster_metadata-0", "__cluster_metadata", 0),
        ("t-2147483647", "t", 2**31 - 1),
        ("t-+1", "t", 1),
        ("t-007", "t", 7),
        ("t-\u0663", "t", 3),
        ("not a topic name-5", "not a topic name", 5),
    ],
)
def test_a_partition_directory_is_split_at_its_last_dash(name, topic, partition):
    assert parse_partition_directory(name) == PartitionDirectory(TopicPartition(topic, partition))


@pytest.mark.parametrize("suffix", ["delete", "future", "stray"])
@pytest.mark.parametrize(
    ("name", "topic", "partition"),
    [
        ("foo-bar-0", "foo-bar", 0),
        ("foo.bar.baz-5", "foo.bar.baz", 5),
        ("t--1", "t-", 1),
        ("x-delete-1", "x-delete", 1),
    ],
)
def test_text_after_the_last_dot_of_a_marked_directory_is_removed(
    name, topic, partition, suffix
):
    assert parse_partition_directory(f"{name}.{UUID}-{suffix}") == (
        (topic, partition),
        suffix,
        UUID,
    )


def test_the_topic_of_a_delete_directory_may_be_cut():
    """logDeleteDirName: at most 255 characters, however little is left of the topic."""
    name = f"{'x' * 213}-1.{UUID}-delete"
    assert len(name) == 255
    assert parse_partition_directory(name).topic_partition == ("x" * 213, 1)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "-",
        "topic",
        "-0",
        "topic-",
        "topic0",
        "topic-zero",
        "t-2147483648",
        "t-1_0",
        "t-1 ",
        "t- 1",
        "t-0x1",
        "t-1.5",
        "lost+found",
        "remote-log-index-cache",
        "t-\U0001d7ce",
        "foo-delete",
        "foo-0-delete",
        f"foo.{UUID}-delete",
        f"foo-.{UUID}-future",
        f"foo-x.{UUID}-stray",
        f"-0.{UUID}-delete",
        f"fo o-0.{UUID}-delete",
        f"a-1.-{UUID}-b.-delete",
    ],
)
def test_a_name_that_stops_a_brokers_start_is_refused(name):
    with pytest.raises(InvalidNameError):
        parse_partition_directory(name)


def test_the_error_is_a_value_error_too():
    assert issubclass(InvalidNameError, ValueError)
    assert issubclass(InvalidNameError, KafkaStoreError)


@settings(max_examples=examples(500))
@given(
    st.lists(
        st.sampled_from(
            [
                "-",
                "--",
                ".",
                "0",
                "12",
                "+3",
                "t",
                "a b",
                "x",
                "delete",
                "-delete",
                "-future",
                "-stray",
                UUID,
                "\t",
                "\u0663",
                "\xa0",
                "2147483648",
            ]
        ),
        max_size=8,
    ).map("".join)
)
@example("a-b.c-7.-delete")
@example("a-b.c.-delete")
def test_any_name_is_what_the_model_reads_or_refused(name):
    try:
        directory = parse_partition_directory(name)
        found = (*directory.topic_partition, directory.suffix)
    except InvalidNameError:
        found = None
    assert found == file_name_model.parse_topic_partition_name(name)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("00000000000000000042.log", (42, ".log", "", None)),
        ("00000000000000000000.index", (0, ".index", "", None)),
        ("00000000000000000042.timeindex.swap", (42, ".timeindex", ".swap", None)),
        ("00000000000000000042.txnindex.cleaned", (42, ".txnindex", ".cleaned", None)),
        ("00000000000000000042.snapshot.deleted", (42, ".snapshot", ".deleted", None)),
        ("09223372036854775807.log", (2**63 - 1, ".log", "", None)),
        ("00000000000000000003-0000000001.checkpoint", (3, ".checkpoint", "", 1)),
        ("00000000000000000003-0000000001.checkpoint.deleted", (3, ".checkpoint", ".deleted", 1)),
        ("00000000000000000003-0000000001-87310.checkpoint.part", (3, ".checkpoint", ".part", 1)),
        (
            "09223372036854775807-2147483647.checkpoint",
            (2**63 - 1, ".checkpoint", "", 2**31 - 1),
        ),
    ],
)
def test_a_segment_file_has_base_offset_type_and_state(name, file):
    assert parse_segment_file(name) == SegmentFile(*file)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".log",
        "42.log",
        "0000000000000000042.log",
        "000000000000000000042.log",
        "09223372036854775808.log",
        "99999999999999999999.log",
        "-0000000000000000042.log",
        "0000000000000000004x.log",
        "\u0660" * 20 + ".log",
        "00000000000000000042",
        "00000000000000000042.LOG",
        "00000000000000000042.log.swap.deleted",
        "00000000000000000042.log.tmp",
        "00000000000000000042.log\n",
        "x00000000000000000042.log",
        "00000000000000000042.checkpoint",
        "00000000000000000003-0000000001.log",
        "00000000000000000003-0000000001.checkpoint.part",
        "00000000000000000003-0000000001-8731.checkpoint",
        "00000000000000000003-0000000001-8731.checkpoint.deleted",
        "00000000000000000003-0000000001-.checkpoint.part",
        "00000000000000000003-0000000001.checkpoint.swap",
        "00000000000000000003-2147483648.checkpoint",
        "09223372036854775808-0000000001.checkpoint",
        "00000000000000000003-1.checkpoint",
        "00000000000000000042.log.part",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ],
)
def test_a_name_no_broker_writes_is_none(name):
    assert parse_segment_file(name) is None


@given(
    st.integers(0, 2**63 - 1),
    st.sampled_from([".log", ".index", ".timeindex", ".txnindex", ".snapshot"]),
    st.sampled_from(["", ".deleted", ".cleaned", ".swap"]),
)
def test_a_built_name_is_parsed_again(base_offset, type_suffix, temporary):
    name = segment_file_name(base_offset, type_suffix + temporary)
    assert len(name.partition(".")[0]) == 20
    assert parse_segment_file(name) == (base_offset, type_suffix, temporary, None)


@given(st.text("0123456789.-loginde", max_size=40))
def test_a_parsed_name_is_built_again(name):
    file = parse_segment_file(name)
    if file is not None and file.leader_epoch is None:
        assert segment_file_name(file.base_offset, file.type_suffix + file.temporary) == name


@pytest.mark.parametrize("base_offset", [-1, 2**63])
def test_a_number_that_is_not_an_offset_is_refused_in_a_name(base_offset):
    with pytest.raises(InvalidNameError):
        segment_file_name(base_offset, ".log")


@pytest.mark.parametrize(
    ("name", "is_directory", "kind"),
    [
        ("orders-3", True, "partition"),
        (f"orders-3.{UUID}-delete", True, "partition"),
        ("__cluster_metadata-0", True, "partition"),
        ("remote-log-index-cache", True, "skipped"),
        ("meta.properties", False, "skipped"),
        ("orders-3", False, "skipped"),
        ("lost+found", True, "unexpected"),
        (".snapshot", True, "unexpected"),
    ],
)
def test_a_log_directorys_content_is_sorted_as_a_broker_does(name, is_directory, kind):
    assert kind_in_log_dir(name, is_directory=is_directory) == kind


def test_a_topic_partition_shows_as_its_directory():
    assert str(TopicPartition("page-views", 12)) == "page-views-12"
    assert f"{TopicPartition('t', 0)}" == "t-0"


def test_everything_in_the_log_directories_of_every_broker_has_its_place(golden_case):
    known = {
        file_names.LEADER_EPOCH_CHECKPOINT,
        file_names.PARTITION_METADATA,
        file_names.QUORUM_STATE,
    }
    for found in golden_case.logs.iterdir():
        kind = kind_in_log_dir(found.name, is_directory=found.is_dir())
        assert kind == ("partition" if found.is_dir() else "skipped")
        for path in found.iterdir() if found.is_dir() else ():
            assert parse_segment_file(path.name) is not None or path.name in known
    for directory in golden_case.answers["partitions"]:
        assert str(parse_partition_directory(directory).topic_partition) == directory


def test_the_examples_of_the_document_and_the_module_are_true():
    for failed, run in (format_document.run_examples("file_names"), doctest.testmod(file_names)):
        assert run > 3
        assert failed == 0
