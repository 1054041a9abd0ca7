"""Frames are written as the metadata of the cluster describes their topics."""

import pytest
from models import metadata_directory as made
from models.metadata_directory import DIRECTORY, TOPIC_ID
from spark.refused_options import option_refused
from spark.writing.writes import COLUMNS, names, row, schema_of, values, write

import kafkastore
from kafkastore.errors import InvalidColumnError
from kafkastore.formats.records.compression import Codec
from kafkastore.spark.source.writing.writer import writer_of

WITHOUT_PARTITION = tuple(name for name in COLUMNS if name != "partition")
METADATA = "partition.metadata"


@pytest.fixture
def metadata(tmp_path):
    """Metadata of a topic with three partitions, and of one with a single one."""
    directory = tmp_path / "cluster" / "__cluster_metadata-0"
    made.write_log(directory, [
        made.topic("t"), *(made.partition(number) for number in range(3)),
        made.topic("u", DIRECTORY), made.partition(0, DIRECTORY),
        made.config("compression.type", "gzip"), made.config("segment.bytes", "500"),
    ])
    return directory


def keyed(count, topic="t"):
    return [row(b"v%d" % number, None, topic=topic, key=b"k%d" % number)
            for number in range(count)]


def codecs(target, name):
    return {batch.codec for batch in kafkastore.open(target)[name].batches()}


@pytest.mark.parametrize("tasks", [1, 2])
def test_topics_have_their_own_configurations_partitions_and_ids(target, metadata, tasks):
    rows = [*keyed(60), *keyed(4, "u")]
    write(target, [[rows]] * tasks, WITHOUT_PARTITION, metadata=str(metadata), batch_size="100")
    by_option = target.parent / "by-option"
    write(by_option, [[keyed(60)]] * tasks, WITHOUT_PARTITION, partitions="3")
    found = values(target)
    assert found.keys() == {"t-0", "t-1", "t-2", "u-0"}
    assert {name: found[name] for name in ("t-0", "t-1", "t-2")} == values(by_option)
    assert codecs(target, "t-0") == {Codec.GZIP}
    assert codecs(target, "u-0") == {Codec.NONE}
    assert len(kafkastore.open(target)["t-0"].segments) > 1
    for name, topic_id in (("t-1", TOPIC_ID), ("u-0", DIRECTORY)):
        content = (target / name / METADATA).read_bytes()
        assert content == f"version: 0\ntopic_id: {topic_id}".encode()


def test_an_option_wins(target, metadata):
    write(
        target, [[keyed(30)]], WITHOUT_PARTITION, metadata=str(metadata), partitions="1",
        compression="lz4", segment_bytes="100000",
    )
    assert values(target).keys() == {"t-0"}
    assert codecs(target, "t-0") == {Codec.LZ4}
    assert len(kafkastore.open(target)["t-0"].segments) == 1


def test_the_metadata_of_the_target_is_found(target, metadata):
    target.mkdir(parents=True)
    metadata.rename(target / metadata.name)
    (target / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=Cc\n")
    write(target, [[keyed(30)]], WITHOUT_PARTITION)
    assert {"t-0", "t-1", "t-2"} <= set(names(target))
    assert (target / "t-0" / METADATA).exists()


@pytest.mark.parametrize("partitions", [{}, {"partitions": "9"}])
def test_a_partition_that_the_topic_does_not_have_is_refused(target, metadata, partitions):
    with pytest.raises(InvalidColumnError) as caught:
        write(target, [[[row(b"x", 3)]]], metadata=str(metadata), **partitions)
    assert caught.value.column == "partition"
    assert not target.exists()


def test_rows_of_an_unknown_topic_need_a_partition(target, metadata):
    with pytest.raises(InvalidColumnError) as caught:
        write(target, [[keyed(3, "unknown")]], WITHOUT_PARTITION, metadata=str(metadata))
    assert caught.value.column == "partition"
    write(target, [[[row(b"x", 5, topic="unknown")]]], metadata=str(metadata))
    assert names(target / "unknown-5").count(METADATA) == 0


def test_the_topic_of_the_option_must_have_partitions_too(target, metadata):
    schema = schema_of("key binary, value binary")
    given = {"path": str(target), "metadata": str(metadata)}
    assert writer_of(given | {"topic": "t"}, schema, overwrite=False)
    with option_refused("missing", "partitions"):
        writer_of(given | {"topic": "unknown"}, schema, overwrite=False)


def test_a_place_without_metadata_is_refused(target, tmp_path):
    with pytest.raises(kafkastore.NotALogDirectoryError):
        write(target, [[[row(b"x")]]], metadata=str(tmp_path / "none"))
    assert not target.exists()
