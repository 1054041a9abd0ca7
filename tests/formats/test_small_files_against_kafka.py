"""Names, checkpoints and properties against the classes of real brokers, sound and damaged."""

import base64
import itertools

import numpy as np
import pytest
from models import kafka_classes

from kafkastore.errors import CorruptCheckpointError
from kafkastore.formats.state import checkpoints
from kafkastore.formats.state.file_names import InvalidNameError, parse_partition_directory

pytestmark = pytest.mark.kafka

UUID = "c5becab687174d2c923f6b14d4a77d11"
NAME_PARTS = [
    "-",
    "--",
    ".",
    "0",
    "12",
    "+3",
    "t",
    "a b",
    "delete",
    "-delete",
    "-future",
    UUID,
    "\t",
    "\u0663",
    "\xa0",
    "2147483647",
    "2147483648",
    "x-0.",
    ".y",
]
INSERTED = [
    b" ",
    b"\t",
    b"\n",
    b"\r",
    b"\r\n",
    b"\x0b",
    b"0",
    b"-",
    b"+",
    b"x",
    b"\xff",
    b"\xc3\xa9",
    b":",
    b"=",
    b"\\",
    b"\\u0041",
    b"#",
    b"!",
    "\u0663".encode(),
]


def text64(text):
    return base64.b64encode(text.encode()).decode()


def damaged(sound, count, seed):
    """A sound file, and as many damaged ones: cut, flipped, with something put in or taken out."""
    yield sound
    random = np.random.default_rng(seed)
    for _ in range(count):
        data = bytearray(sound)
        for _ in range(int(random.integers(1, 4))):
            at = int(random.integers(len(data) + 1))
            damage = int(random.integers(5))
            if damage == 0 and random.integers(4) == 0:
                del data[at:]
            elif damage == 1 and at < len(data):
                data[at] ^= 1 << int(random.integers(8))
            elif damage == 2:
                del data[at : at + int(random.integers(1, 4))]
            else:
                data[at:at] = INSERTED[int(random.integers(len(INSERTED)))]
        yield bytes(data)


def refused_or(parse, data, shown):
    try:
        return shown(parse(data))
    except CorruptCheckpointError:
        return "refused"


def shown_offsets(offsets):
    return " ".join(
        sorted(
            f"{text64(topic)}:{partition}:{offset}"
            for (topic, partition), offset in offsets.items()
        )
    )


def compare(version, tmp_path, operation, files, parse, shown):
    """Query every file on both sides; list the answers that differ."""
    requests, expected = [], []
    for number, data in enumerate(files):
        path = tmp_path / f"{number}-{operation}"
        path.write_bytes(data)
        requests.append((operation, path))
        expected.append(refused_or(parse, data, shown))
    answers = kafka_classes.ask(version, requests)
    wrong = [
        (path.read_bytes(), answer, here)
        for (_, path), answer, here in zip(requests, answers, expected, strict=True)
        if sorted(answer.split()) != sorted(here.split())
    ]
    assert not wrong, (len(wrong), wrong[:5])
    assert len(set(answers)) > 5
    assert "refused" in answers


@pytest.mark.parametrize("version", ["2.4.0", "3.9.1", "4.3.1"])
def test_partition_directories_are_read_as_the_broker_does(require_broker, version):
    require_broker(version)
    random = np.random.default_rng(5)
    names = [
        f"{name}.{UUID}-{mark}"
        for name, mark in itertools.product(
            ["foo-bar-0", "t--1", "-0", "foo", "a.b-1", "x-delete-2", "t- 1"], ["delete", "future"]
        )
    ]
    while len(names) < 3000:
        chosen = random.choice(NAME_PARTS, int(random.integers(1, 9)))
        names.append("".join(chosen.tolist()))
    answers = kafka_classes.ask(version, [("directory", text64(name)) for name in names])
    for name, answer in zip(names, answers, strict=True):
        try:
            topic, partition = parse_partition_directory(name).topic_partition
            here = f"{text64(topic)} {partition}"
        except InvalidNameError:
            here = "refused"
        assert answer == here, name
    assert 100 < answers.count("refused") < 2900


def test_stray_directories_are_known_from_3_7(require_broker):
    require_broker("2.4.0")
    require_broker("3.9.1")
    request = [("directory", text64(f"foo-0.{UUID}-stray"))]
    assert kafka_classes.ask("2.4.0", request) == ["refused"]
    assert kafka_classes.ask("3.9.1", request) == [f"{text64('foo')} 0"]


@pytest.mark.parametrize("version", ["2.4.0", "3.9.1", "4.3.1"])
def test_offset_checkpoints_are_read_as_the_broker_does(tmp_path, require_broker, version):
    require_broker(version)
    files = damaged(b"0\n3\n__transaction_state 0 64\ntxn 0 132\ntxn 1 61\n", 1500, seed=1)
    compare(version, tmp_path, "offsets", files, checkpoints.parse_offset_checkpoint, shown_offsets)


@pytest.mark.parametrize("version", ["2.4.0", "3.9.1", "4.3.1"])
def test_leader_epoch_checkpoints_are_read_as_the_broker_does(tmp_path, require_broker, version):
    require_broker(version)
    files = damaged(b"0\n3\n0 0\n2 4711\n5 4713\n", 1500, seed=2)
    compare(
        version,
        tmp_path,
        "epochs",
        files,
        checkpoints.parse_leader_epoch_checkpoint,
        lambda epochs: " ".join(f"{epoch}:{offset}" for epoch, offset in epochs),
    )


@pytest.mark.parametrize("version", ["3.9.1", "4.3.1"])
def test_partition_metadata_is_read_as_the_broker_does(tmp_path, require_broker, version):
    require_broker(version)
    files = damaged(b"version: 0\ntopic_id: 2P-XnPKnTZG5NwujU8kn6Q", 1500, seed=3)
    compare(version, tmp_path, "topic-id", files, checkpoints.parse_partition_metadata, str)


def test_meta_properties_are_read_as_java_does(tmp_path, require_broker):
    require_broker("2.4.0")
    sound = b"#\n#Fri Nov 20 2026\nbroker.id=0\nversion : 0\ncluster.id  a\\u002Db\\\n  c\n"
    compare(
        "2.4.0",
        tmp_path,
        "properties",
        damaged(sound, 3000, seed=4),
        checkpoints.parse_meta_properties,
        lambda properties: " ".join(
            f"{text64(key)}={text64(value)}" for key, value in properties.items()
        ),
    )
