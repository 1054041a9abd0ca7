"""Appending the batches of real brokers gives the same files, byte for byte."""

import pytest
from models.written_log import UnsyncedFileSystem

import kafkastore
from kafkastore import TimestampType
from kafkastore.formats.state import producer_snapshot
from kafkastore.writing.log_dir_writer import LogDirWriter

from .written_logs import Clock

# Written in one go: a restarted broker restarts the index interval, a recovered or compacted
# segment has indexes of its own kind.
CASES = [
    "codecs", "create-time-*", "delete-records", "headers-and-nulls", "log-append-time",
    "roll-and-retention-by-time", "transactions",
]
FILES = (".log", ".index", ".timeindex", ".txnindex")


def options_of(case, log):
    """The topic's, but records of any time are taken; 4.x has another name for a size."""
    configured = case.answers["topic_config"][log.topic]
    options = {name.removeprefix("internal."): value for name, value in configured.items()}
    return options | {"message.timestamp.difference.max.ms": 2**63 - 1}


def write_again(writer, clock, log):
    """Append batch by batch, as the leader that wrote them."""
    for segment in log.segments:
        content = segment.log_path.read_bytes()
        with segment.open_log() as file:
            for batch in file.batches():
                data = bytearray(content[batch.position : batch.position + batch.size])
                if batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
                    # The broker had these from a producer, which does not say so.
                    clock.now = batch.max_timestamp
                    data = without_append_time(data)
                writer.append(data, leader_epoch=batch.leader_epoch)


def without_append_time(data):
    from kafkastore.formats.primitives.crc import crc32c

    data[22] &= ~8
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return data


@pytest.mark.golden_cases(names=CASES, versions=["2.*", "3.*", "4.*"])
def test_a_broker_s_batches_written_again_give_the_broker_s_files(golden_case, tmp_path):
    compared = 0
    for log in kafkastore.open(golden_case.logs):
        written_in_one_go = log.segments and log.segments[0].base_offset == 0
        if log.topic not in golden_case.answers["topic_config"] or not written_in_one_go:
            continue
        clock, root = Clock(), tmp_path / log.path.name
        fs = UnsyncedFileSystem()
        with LogDirWriter(root, golden_case.version, clock=clock, fs=fs) as log_dir:
            writer = log_dir.writer(*log.topic_partition, options_of(golden_case, log))
            write_again(writer, clock, log)
            writer.delete_records(log.log_start_offset)
            epochs = writer.leader_epochs
            assert log.leader_epochs[: len(epochs)] == epochs
            # A broker that only starts, and leads again, has an epoch without records.
            later = [start_offset for _, start_offset in log.leader_epochs[len(epochs) :]]
            assert set(later) <= {log.log_end_offset}
        for path in sorted(log.path.iterdir()):
            ours = root / log.path.name / path.name
            if path.suffix in FILES:
                assert ours.read_bytes() == path.read_bytes(), path.name
                compared += 1
            elif path.suffix == ".snapshot":
                assert entries_of(ours) == entries_of(path), path.name
        assert names_of_snapshots(root / log.path.name) == names_of_snapshots(log.path)
    assert compared >= 3


def entries_of(snapshot):
    """A snapshot's producers, in any order."""
    return sorted(producer_snapshot.parse(snapshot.read_bytes()).tolist())


def names_of_snapshots(partition):
    return {path.name for path in partition.glob("*.snapshot")}
