"""Checkpoints and the other small text files, by the rules of Kafka's readers."""

import base64
import doctest

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import format_document, java_text_model
from models.checkpoint_bytes import (
    CLEAN_SHUTDOWN_FILES,
    EPOCH_CHECKPOINTS,
    META_PROPERTIES,
    OFFSET_CHECKPOINTS,
    PARTITION_METADATA,
)
from models.refused import refused as argument_refused
from models.seed import examples

from kafkastore.errors import CorruptCheckpointError
from kafkastore.formats.state import checkpoints
from kafkastore.formats.state.file_names import TopicPartition

OFFSETS = b"0\n3\n__transaction_state 0 64\ntxn 0 132\ntxn 1 61\n"
EPOCHS = b"0\n2\n0 0\n2 4711\n"
TOPIC_ID = "2P-XnPKnTZG5NwujU8kn6Q"
METADATA = f"version: 0\ntopic_id: {TOPIC_ID}".encode()


def value_or_none(parse, data):
    """Parse; None where the one documented error is raised, with a position inside the file."""
    try:
        return parse(data)
    except CorruptCheckpointError as error:
        position = error.position
    assert 0 <= position <= len(data)
    return None


# Offset checkpoints


def test_an_offset_checkpoint_is_read_in_its_order():
    assert list(checkpoints.parse_offset_checkpoint(OFFSETS).items()) == [
        (TopicPartition("__transaction_state", 0), 64),
        (TopicPartition("txn", 0), 132),
        (TopicPartition("txn", 1), 61),
    ]


@pytest.mark.parametrize("data", [b"", b"0", b"0\n", b"0\n0", b"0\n0\n"])
def test_a_checkpoint_without_entries_is_empty(data):
    assert checkpoints.parse_offset_checkpoint(data) == {}
    assert checkpoints.parse_leader_epoch_checkpoint(data) == ()


@pytest.mark.parametrize(
    ("data", "offsets"),
    [
        (b"0\r\n1\r\nt 0 5\r\n", 5),
        (b"0\r1\rt 0 5", 5),
        (b"0\n1\nt \t0\x0b 5 \t\n", 5),
        (b"+0\n01\nt +0 -5\n", -5),
        (b"0\n2\nt 0 4\nt 0 5\n", 5),
        (b"0\n1\nt 0 9223372036854775807\n", 2**63 - 1),
        ("0\n1\nt \u0660 \u0665\n".encode(), 5),
    ],
    ids=["CR LF", "CR, no end", "blanks", "signs", "twice", "largest", "other digits"],
)
def test_a_checkpoint_is_read_as_java_does(data, offsets):
    assert checkpoints.parse_offset_checkpoint(data) == {("t", 0): offsets}


@pytest.mark.parametrize(
    ("data", "position"),
    [
        (b"1\n0\n", 0),
        (b"x\n0\n", 0),
        (b"\n0\n", 0),
        (b" 0\n0\n", 0),
        (b"0\n-\n", 2),
        (b"0\n1\n", 4),
        (b"0\n1\nt 0 5\nt 1 5\n", 16),
        (b"0\n-1\n", 5),
        (b"0\n1\nt 0\n", 4),
        (b"0\n1\nt 0 5 6\n", 4),
        (b"0\n1\nt x 5\n", 4),
        (b"0\n1\nt 2147483648 5\n", 4),
        (b"0\n2\nt 0 5\nt 0 9223372036854775808\n", 10),
        (b"0\n1\n\n", 4),
        (b"0\n2\nt 0 5\n\xff\xfe 0 5\n", 10),
        (b"0\n1\n" + 200 * b"x" + b"\n", 4),
    ],
    ids=[
        "version",
        "no version",
        "blank version",
        "blank before version",
        "no count",
        "too few",
        "too many",
        "negative count",
        "two fields",
        "four fields",
        "no partition",
        "large partition",
        "large offset",
        "blank line",
        "bytes",
        "long line",
    ],
)
def test_a_damaged_checkpoint_is_refused_with_its_place(data, position):
    with pytest.raises(CorruptCheckpointError) as refused:
        checkpoints.parse_offset_checkpoint(data)
    assert refused.value.position == position


def test_a_checkpoint_is_packed_as_brokers_write_it():
    offsets = checkpoints.parse_offset_checkpoint(OFFSETS)
    assert checkpoints.pack_offset_checkpoint(offsets) == OFFSETS
    assert checkpoints.pack_offset_checkpoint({}) == b"0\n0\n"
    epochs = checkpoints.parse_leader_epoch_checkpoint(EPOCHS)
    assert checkpoints.pack_leader_epoch_checkpoint(epochs) == EPOCHS


def test_a_leader_epoch_checkpoint_is_read_in_its_order():
    assert checkpoints.parse_leader_epoch_checkpoint(b"0\n2\n2 4711\n0 0\n") == ((2, 4711), (0, 0))


@pytest.mark.parametrize("line", [b"0", b" 0 5", b"0 5 6", b"x 5", b"0 5.0", b"2147483648 5"])
def test_an_epoch_line_not_of_its_form_is_refused(line):
    with pytest.raises(CorruptCheckpointError) as refused:
        checkpoints.parse_leader_epoch_checkpoint(b"0\n1\n" + line + b"\n")
    assert refused.value.position == 4


@settings(max_examples=examples(400))
@given(OFFSET_CHECKPOINTS)
def test_any_bytes_are_the_offsets_that_the_model_reads_or_refused(data):
    expected = java_text_model.read_checkpoint(data, ["text", 32, 64])
    if expected is not None:
        expected = {(topic, partition): offset for topic, partition, offset in expected}
    assert value_or_none(checkpoints.parse_offset_checkpoint, data) == expected


@settings(max_examples=examples(400))
@given(EPOCH_CHECKPOINTS)
def test_any_bytes_are_the_epochs_that_the_model_reads_or_refused(data):
    expected = java_text_model.read_checkpoint(data, [32, 64])
    found = value_or_none(checkpoints.parse_leader_epoch_checkpoint, data)
    assert found == (None if expected is None else tuple(expected))


@pytest.mark.parametrize(
    ("parse", "data"),
    [
        (checkpoints.parse_offset_checkpoint, OFFSETS),
        (checkpoints.parse_leader_epoch_checkpoint, EPOCHS),
        (checkpoints.parse_partition_metadata, METADATA),
        (checkpoints.parse_clean_shutdown_marker, b'{"version":0,"brokerEpoch":11}'),
    ],
    ids=["offsets", "epochs", "partition.metadata", "marker"],
)
def test_every_cut_and_every_flipped_bit_gives_a_value_or_the_error(parse, data):
    for end in range(len(data)):
        value_or_none(parse, data[:end])
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        value_or_none(parse, bytes(flipped))


# meta.properties


@pytest.mark.parametrize(
    ("data", "properties"),
    [
        (
            b"#\n#Fri Nov 20 09:20:02 UTC 2026\nbroker.id=0\nversion=0\ncluster.id=-kfTi5qtRS6\n",
            {"broker.id": "0", "version": "0", "cluster.id": "-kfTi5qtRS6"},
        ),
        (
            b"node.id=1\ndirectory.id=C8Mh_Djhkg5pqH9A7KgMSw\nversion=1\ncluster.id=Z29sZGVuLWthZmthc3RvcmU\n",
            {
                "node.id": "1",
                "directory.id": "C8Mh_Djhkg5pqH9A7KgMSw",
                "version": "1",
                "cluster.id": "Z29sZGVuLWthZmthc3RvcmU",
            },
        ),
        (b"", {}),
    ],
    ids=["version 0", "version 1", "empty"],
)
def test_meta_properties_are_read(data, properties):
    assert checkpoints.parse_meta_properties(data) == properties


def test_meta_properties_with_a_broken_escape_are_refused_with_its_place():
    with pytest.raises(CorruptCheckpointError) as refused:
        checkpoints.parse_meta_properties(b"broker.id=0\ncluster.id=\\u00\n")
    assert refused.value.position == 12


@given(META_PROPERTIES)
def test_any_bytes_are_properties_or_refused(data):
    expected = java_text_model.load_properties(data.decode("latin-1"))
    assert value_or_none(checkpoints.parse_meta_properties, data) == expected


# partition.metadata


def test_a_topic_id_is_read_and_packed():
    assert checkpoints.parse_partition_metadata(METADATA) == TOPIC_ID
    assert checkpoints.pack_partition_metadata(TOPIC_ID) == METADATA


@pytest.mark.parametrize(
    "data",
    [
        METADATA + b"\n",
        METADATA.replace(b"\n", b"\r\n"),
        METADATA.replace(b"0", b"1", 1),
        METADATA + b"==",
        METADATA.replace(b"topic_id", b"id"),
        METADATA + b"\nanything\n",
        METADATA.replace(b": ", b":\t "),
    ],
    ids=["line end", "CR LF", "version 1", "padding", "other name", "more lines", "blanks"],
)
def test_a_topic_id_is_read_where_a_broker_reads_it(data):
    assert checkpoints.parse_partition_metadata(data) == TOPIC_ID


@pytest.mark.parametrize(
    ("data", "position"),
    [
        (b"", 0),
        (b"version: 0\n", 11),
        (b"version: -1\ntopic_id: " + TOPIC_ID.encode(), 0),
        (b"version: x\ntopic_id: " + TOPIC_ID.encode(), 0),
        (b"version:0\ntopic_id: " + TOPIC_ID.encode(), 0),
        (b"version: 0\ntopic_id: " + TOPIC_ID[:-1].encode(), 11),
        (b"version: 0\ntopic_id: " + TOPIC_ID.encode() + b"=", 11),
        (b"version: 0\ntopic_id: " + 21 * b"A" + b"+", 11),
        (b"version: 0\ntopic_id: " + 22 * b"A", 11),
        (b"version: 0\ntopic_id: a: b", 11),
        (b"version: 0\n\xff", 11),
    ],
    ids=[
        "empty",
        "one line",
        "negative version",
        "no version",
        "no blank",
        "short id",
        "one padding character",
        "plain base64",
        "zeros",
        "two colons",
        "bytes",
    ],
)
def test_a_damaged_partition_metadata_is_refused_with_its_place(data, position):
    with pytest.raises(CorruptCheckpointError) as refused:
        checkpoints.parse_partition_metadata(data)
    assert refused.value.position == position


@given(PARTITION_METADATA)
def test_any_bytes_are_a_topic_id_or_refused(data):
    topic_id = value_or_none(checkpoints.parse_partition_metadata, data)
    assert topic_id is None or len(base64.urlsafe_b64decode(topic_id + "==")) == 16


# .kafka_cleanshutdown


@pytest.mark.parametrize(
    ("data", "epoch"),
    [
        (b"", None),
        (b'{"version":0,"brokerEpoch":11}', 11),
        (b'{"version":0}', None),
        (b"{}", None),
        (b'{"version":0,"brokerEpoch":null}', None),
        (b'{"brokerEpoch":-1,"more":[1]}', -1),
    ],
)
def test_the_clean_shutdown_file_is_read(data, epoch):
    assert checkpoints.parse_clean_shutdown_marker(data) == epoch


@pytest.mark.parametrize(
    "data",
    [
        b"\0",
        b"{",
        b"[]",
        b"11",
        b"null",
        b'{"brokerEpoch":"11"}',
        b'{"brokerEpoch":1.5}',
        b'{"brokerEpoch":true}',
        b'{"brokerEpoch":9223372036854775808}',
        b"\xff",
        9999 * b"[",
        b'{"brokerEpoch":' + 5000 * b"1" + b"}",
    ],
)
def test_anything_else_in_the_clean_shutdown_file_is_refused(data):
    with pytest.raises(CorruptCheckpointError) as refused:
        checkpoints.parse_clean_shutdown_marker(data)
    assert refused.value.position == 0


@given(CLEAN_SHUTDOWN_FILES)
def test_any_bytes_are_an_epoch_or_refused(data):
    epoch = value_or_none(checkpoints.parse_clean_shutdown_marker, data)
    assert epoch is None or -(2**63) <= epoch < 2**63


# What brokers wrote


def test_the_checkpoints_of_every_broker_are_read_and_packed_again(golden_case):
    for path in golden_case.logs.rglob("*-checkpoint"):
        data = path.read_bytes()
        if path.name == "leader-epoch-checkpoint":
            epochs = checkpoints.parse_leader_epoch_checkpoint(data)
            assert list(epochs) == sorted(epochs)
            packed = checkpoints.pack_leader_epoch_checkpoint(epochs)
        else:
            packed = checkpoints.pack_offset_checkpoint(checkpoints.parse_offset_checkpoint(data))
        assert packed == data or data == b""


def test_the_other_small_files_of_every_broker_are_read(golden_case):
    for path in golden_case.logs.rglob("partition.metadata"):
        data = path.read_bytes()
        topic_id = checkpoints.parse_partition_metadata(data)
        assert checkpoints.pack_partition_metadata(topic_id) == data
    for path in golden_case.logs.rglob("meta.properties"):
        properties = checkpoints.parse_meta_properties(path.read_bytes())
        assert properties["version"] in ("0", "1")
        assert ("node.id" if properties["version"] == "1" else "broker.id") in properties
    for path in golden_case.logs.rglob(".kafka_cleanshutdown"):
        epoch = checkpoints.parse_clean_shutdown_marker(path.read_bytes())
        assert (epoch is not None) == (golden_case.answers["kafka"] >= "3.7")  # text order will do


def test_the_examples_of_the_document_and_the_module_are_true():
    for failed, run in (format_document.run_examples("checkpoints"), doctest.testmod(checkpoints)):
        assert run > 3
        assert failed == 0


@given(
    st.dictionaries(
        st.tuples(st.text("ab._-", min_size=1), st.integers(0, 2**31 - 1)),
        st.integers(-1, 2**63 - 1),
    )
)
def test_packed_offsets_are_parsed_again(offsets):
    packed = checkpoints.pack_offset_checkpoint(offsets)
    assert checkpoints.parse_offset_checkpoint(packed) == offsets


@pytest.mark.parametrize(
    ("pack", "value"),
    [
        (checkpoints.pack_offset_checkpoint, {("a\nb", 0): 1}),
        (checkpoints.pack_offset_checkpoint, {("a b", 0): 1}),
        (checkpoints.pack_offset_checkpoint, {("a", None): 1}),
        (checkpoints.pack_offset_checkpoint, {("a", 0): 1.5}),
        (checkpoints.pack_offset_checkpoint, {("a", 0): 1 << 70}),
        (checkpoints.pack_leader_epoch_checkpoint, [(1 << 40, 2)]),
        (checkpoints.pack_leader_epoch_checkpoint, [("x", "y")]),
        (checkpoints.pack_partition_metadata, "hello"),
        (checkpoints.pack_partition_metadata, None),
    ],
)
def test_values_that_could_not_be_read_back_are_not_written(pack, value):
    with argument_refused("value"):
        pack(value)
