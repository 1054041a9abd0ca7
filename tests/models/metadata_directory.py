"""Directories of a metadata log, written record by record."""

import struct
from pathlib import Path

from models import record_format
from models.internal_topics import pack_frame
from models.record_format import Batch, Row

from kafkastore.formats.records.control_records import KRAFT_VALUES, ControlRecordType
from kafkastore.formats.topics.cluster_metadata import RECORDS

TOPIC_ID = "2P-XnPKnTZG5NwujU8kn6Q"
DIRECTORY = "9mJPdp7VS-ykmNkaEelaiA"
NUMBERS = {description.name: number for number, description in RECORDS.descriptions.items()}


def frame(record, version=None, /, **fields):
    """A record of the metadata log; fields that are left out have their default."""
    number = NUMBERS[record + "Record"]
    newest = RECORDS.descriptions[number].versions.newest
    return pack_frame(RECORDS, number, newest if version is None else version, **fields)


def broker(broker_id, epoch, **fields):
    return frame("RegisterBroker", **{
        "broker_id": broker_id, "broker_epoch": epoch, "incarnation_id": TOPIC_ID,
        "end_points": ({"name": "PLAINTEXT", "host": "h", "port": 9092, "security_protocol": 0},),
        "features": (), "rack": None, "log_dirs": (DIRECTORY,), **fields,
    })


def topic(name="t", topic_id=TOPIC_ID):
    return frame("Topic", name=name, topic_id=topic_id)


def partition(number, topic_id=TOPIC_ID, replicas=(1, 2, 3), **fields):
    return frame("Partition", **{
        "partition_id": number, "topic_id": topic_id, "replicas": replicas, "isr": (1, 2, 3),
        "leader": 1, "leader_epoch": 0, "partition_epoch": 0,
        "directories": (DIRECTORY,) * len(replicas), **fields,
    })


def change(number, topic_id=TOPIC_ID, **fields):
    return frame("PartitionChange", partition_id=number, topic_id=topic_id, **fields)


def config(name, value, resource="t", kind=2):
    return frame("Config", resource_type=kind, resource_name=resource, name=name, value=value)


def feature(name, level):
    return frame("FeatureLevel", name=name, feature_level=level)


def control(offset, timestamp, kind, version=0, /, **fields):
    """A control batch of KRaft."""
    value = KRAFT_VALUES.known_codec(kind, version).pack({"version": version, **fields})
    row = Row(offset, timestamp, struct.pack(">hh", 0, kind), value)
    return Batch((row,), is_control=True)


def leader_change(offset, timestamp, leader, epoch):
    batch = control(
        offset, timestamp, ControlRecordType.LEADER_CHANGE, leader_id=leader,
        voters=tuple({"voter_id": each} for each in (1, 2, 3)), granting_voters=(),
    )
    return record_format.Batch(batch.rows, is_control=True, leader_epoch=epoch)


def write_log(directory, frames, *, start=0, epoch=1, first_time=1000):
    """A log with a batch for each record, one ms after another."""
    directory.mkdir(parents=True, exist_ok=True)
    path = Path(directory, f"{start:020}.log")
    path.write_bytes(b"".join(
        Batch((Row(offset, first_time + offset, None, each),), leader_epoch=epoch).data
        for offset, each in enumerate(frames, start)
    ))
    return path


def write_snapshot(directory, end_offset, frames, *, epoch=1, timestamp=0):
    """A snapshot: its header, a batch with all records, its footer."""
    directory.mkdir(parents=True, exist_ok=True)
    path = Path(directory, f"{end_offset:020}-{epoch:010}.checkpoint")
    header = control(
        0, timestamp, ControlRecordType.SNAPSHOT_HEADER, last_contained_log_timestamp=timestamp
    )
    rows = tuple(Row(1 + index, timestamp, None, each) for index, each in enumerate(frames))
    batches = [header, *([Batch(rows)] if rows else [])]
    batches.append(control(1 + len(rows), timestamp, ControlRecordType.SNAPSHOT_FOOTER))
    path.write_bytes(b"".join(batch.data for batch in batches))
    return path
