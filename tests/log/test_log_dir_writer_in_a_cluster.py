"""Topics are written as the metadata of their cluster configures them."""

import pytest
from models import metadata_directory as made
from models.metadata_directory import DIRECTORY, TOPIC_ID
from models.written_log import UnsyncedFileSystem

import kafkastore
from kafkastore.errors import ArgumentValueError
from kafkastore.formats.records.compression import Codec
from kafkastore.formats.records.record_batch import TimestampType
from kafkastore.formats.state.checkpoints import parse_meta_properties
from kafkastore.metadata.topic_configs import ConfigSource
from kafkastore.writing.log_dir_writer import LogDirWriter

from .written_logs import Clock, new_records

CONFIGS = {
    "segment.bytes": "1000", "index.interval.bytes": "100", "compression.type": "zstd",
    "message.timestamp.type": "LogAppendTime", "retention.ms": "-1",
}
METADATA = "partition.metadata"


def write_metadata(directory):
    made.write_log(directory / "__cluster_metadata-0", [
        made.broker(1, 1), made.topic("t"), made.partition(0), made.partition(1),
        made.topic("plain", DIRECTORY), made.partition(0, DIRECTORY),
        *(made.config(name, value) for name, value in CONFIGS.items()),
        made.config("log.segment.bytes", "7777", "3", kind=4),
        made.config("log.roll.ms", "86400000", "", kind=4),
    ])
    return directory


@pytest.fixture
def root(tmp_path):
    return tmp_path / "logs"


@pytest.fixture
def of_a_broker(root):
    """The log directory of a broker, with the metadata."""
    root.mkdir()
    (root / "meta.properties").write_text("version=1\nnode.id=3\ncluster.id=Cc\n")
    return write_metadata(root)


def open_dir(root, version="4.1", **options):
    return LogDirWriter(root, version, clock=Clock(), fs=UnsyncedFileSystem(), **options)


def test_a_new_partition_has_the_configurations_and_the_id_of_its_topic(of_a_broker):
    with open_dir(of_a_broker) as log_dir:
        writer = log_dir.writer("t", 1)
        assert {name: writer.config.to_options()[name] for name in CONFIGS} == CONFIGS
        assert set(CONFIGS.items()) == {
            (name, writer.config.to_options()[name])
            for name, source in writer.config_sources.items() if source is ConfigSource.TOPIC
        }
        assert writer.config_sources["segment.ms"] is ConfigSource.DEFAULT_BROKER
        for _ in range(20):
            writer.append_records(new_records(5))
    directory = of_a_broker / "t-1"
    assert (directory / METADATA).read_bytes() == f"version: 0\ntopic_id: {TOPIC_ID}".encode()
    log = kafkastore.open(directory)["t", 1]
    assert len(log.segments) > 1
    assert {batch.codec for batch in log.batches()} == {Codec.ZSTD}
    assert {batch.timestamp_type for batch in log.batches()} == {TimestampType.LOG_APPEND_TIME}


def test_the_broker_is_that_of_meta_properties_or_the_new_node(of_a_broker, tmp_path):
    with open_dir(of_a_broker) as log_dir:
        plain = log_dir.writer("plain", 0)
        assert plain.config.segment_bytes == 7777
        assert plain.config_sources["segment.bytes"] is ConfigSource.BROKER
    for node_id, size in ((3, 7777), (4, 1 << 30)):
        elsewhere = tmp_path / f"of-{node_id}"
        with open_dir(elsewhere, node_id=node_id, metadata=of_a_broker) as log_dir:
            assert log_dir.writer("plain", 0).config.segment_bytes == size


def test_an_option_wins_and_a_log_config_has_all_of_them(of_a_broker):
    with open_dir(of_a_broker) as log_dir:
        writer = log_dir.writer("t", 0, {"segment.bytes": 2000})
        assert writer.config.segment_bytes == 2000
        assert writer.config_sources["segment.bytes"] is ConfigSource.OPTION
        assert writer.config.compression_type == "zstd"
        whole = log_dir.writer("t", 1, kafkastore.LogConfig())
        assert whole.config == kafkastore.LogConfig()
        assert set(whole.config_sources.values()) == {ConfigSource.OPTION}


def test_one_option_for_both_limits_of_a_time_wins_over_each_of_them(root, tmp_path):
    made.write_log(tmp_path / "__cluster_metadata-0", [
        made.topic(), made.partition(0),
        made.config("message.timestamp.before.max.ms", "1"),
        made.config("message.timestamp.after.max.ms", "2"),
    ])
    with open_dir(root, metadata=tmp_path) as log_dir:
        config = log_dir.writer("t", 0, {"message.timestamp.difference.max.ms": 9}).config
    limits = (config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms)
    assert limits == (9, 9)


def test_a_new_directory_gets_the_cluster_s_id(of_a_broker, tmp_path):
    for given, expected in (({}, "Cc"), ({"cluster_id": "other"}, "other")):
        target = tmp_path / expected
        with open_dir(target, metadata=kafkastore.cluster(of_a_broker), **given) as log_dir:
            log_dir.writer("t", 0).append_records(new_records(2))
        properties = parse_meta_properties((target / "meta.properties").read_bytes())
        assert properties["cluster.id"] == expected


@pytest.mark.parametrize("partition", [2, 100])
def test_a_new_partition_that_the_topic_does_not_have_is_refused(of_a_broker, partition):
    with open_dir(of_a_broker) as log_dir:
        with pytest.raises(ArgumentValueError) as caught:
            log_dir.writer("t", partition)
        assert (caught.value.argument, caught.value.value) == ("partition", partition)
        log_dir.writer("unknown", partition).append_records(new_records(1))
    assert not (of_a_broker / f"t-{partition}").exists()
    assert not (of_a_broker / f"unknown-{partition}" / METADATA).exists()


def test_an_existing_partition_is_opened_whatever_the_metadata_says(of_a_broker, tmp_path):
    with open_dir(tmp_path / "before") as log_dir:
        log_dir.writer("t", 7).append_records(new_records(3))
    (tmp_path / "before" / "t-7").rename(of_a_broker / "t-7")
    with open_dir(of_a_broker) as log_dir:
        log_dir.writer("t", 7, recover=True).append_records(new_records(3))
    assert kafkastore.open(of_a_broker)["t", 7].log_end_offset == 6
    assert not (of_a_broker / "t-7" / METADATA).exists()


def test_a_given_id_wins(of_a_broker):
    with open_dir(of_a_broker) as log_dir:
        log_dir.writer("t", 0, topic_id=DIRECTORY)
    assert DIRECTORY in (of_a_broker / "t-0" / METADATA).read_text()


def test_versions_without_topic_ids_write_none(root, of_a_broker):
    with open_dir(root.parent / "old", "2.7", metadata=of_a_broker) as log_dir:
        writer = log_dir.writer("t", 0)
        assert writer.config.segment_bytes == 1000
        writer.append_records(new_records(1))
    assert not (root.parent / "old" / "t-0" / METADATA).exists()


def test_unreadable_metadata_is_an_error_if_it_was_given_and_else_a_warning(of_a_broker, tmp_path):
    made.write_log(of_a_broker / "__cluster_metadata-0", [b"?"])
    with pytest.raises(kafkastore.errors.KafkaStoreError):
        open_dir(tmp_path / "new", metadata=of_a_broker)
    assert not (tmp_path / "new").exists()
    with open_dir(of_a_broker) as log_dir, pytest.warns(kafkastore.UnreadMetadataWarning):
        assert log_dir.writer("t", 0).config == kafkastore.LogConfig()


def test_a_directory_without_a_metadata_log_is_no_metadata(root, tmp_path):
    with open_dir(tmp_path / "zookeeper", "2.4") as log_dir:
        log_dir.writer("t", 0).append_records(new_records(1))
    with pytest.raises(kafkastore.NoMetadataError):
        open_dir(root, metadata=tmp_path / "zookeeper")


def test_the_metadata_log_itself_is_written_as_before(of_a_broker):
    end = kafkastore.open(of_a_broker)["__cluster_metadata", 0].log_end_offset
    with open_dir(of_a_broker) as log_dir:
        writer = log_dir.writer("__cluster_metadata", 0, recover=True)
        assert writer.config == kafkastore.LogConfig()
        assert writer.log_end_offset == end
