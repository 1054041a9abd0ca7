"""Every partition of real brokers, compared with answers of brokers, clients and tools."""

import base64
import hashlib

import pytest
from models.iteration import until_error

import kafkastore
from kafkastore import TimestampType
from kafkastore.errors import ChecksumError
from kafkastore.store.log_store import is_partition_directory

TIMESTAMP_TYPES = {
    TimestampType.NO_TIMESTAMP_TYPE: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}
LONGEST_VALUE = 4096
# Cases damaged after the broker had answered, and the expected result of reading.
DAMAGED = ("crash-torn", "crash-bad-crc")
CODECS = {"nocompressioncodec": "none"}


def encoded(data):
    return None if data is None else base64.b64encode(data).decode()


def value_as_answered(value):
    """Long values, as the answers have them: `sha256:<hex>:<length>`."""
    if value is not None and len(value) > LONGEST_VALUE:
        return f"sha256:{hashlib.sha256(value).hexdigest()}:{len(value)}"
    return encoded(value)


def as_answered(record):
    headers = [[name, encoded(value)] for name, value in record.headers]
    return [
        record.offset, record.timestamp, TIMESTAMP_TYPES[record.timestamp_type],
        encoded(record.key), value_as_answered(record.value), headers, record.leader_epoch,
    ]


def answered_partitions(case):
    """(log, its answers) of every partition that was queried."""
    store = kafkastore.open(case.logs)
    for name, answers in case.answers["partitions"].items():
        if "records" in answers:
            yield store[name], answers


def is_damaged(case, log):
    return case.name in DAMAGED and case.answers_name == "answers" and log.topic == "crash"


def test_records_are_those_a_consumer_got(golden_case):
    partitions = list(answered_partitions(golden_case))
    assert partitions
    for log, answers in partitions:
        if not is_damaged(golden_case, log):
            assert [as_answered(record) for record in log.records()] == answers["records"]


def test_the_log_starts_and_ends_at_the_broker_s_offsets(golden_case):
    for log, answers in answered_partitions(golden_case):
        assert log.log_start_offset == answers["log_start_offset"]
        if not is_damaged(golden_case, log):
            assert log.log_end_offset == log.high_watermark == answers["log_end_offset"]


def test_arrow_has_the_same_records(golden_case):
    for log, answers in answered_partitions(golden_case):
        if is_damaged(golden_case, log):
            continue
        table = log.to_arrow(include_headers=True, batch_rows=17).read_all()
        micros = table["timestamp"].cast("int64").to_pylist()
        rows = [
            [
                row["offset"], microseconds // 1000, TIMESTAMP_TYPES[row["timestampType"]],
                encoded(row["key"]), value_as_answered(row["value"]),
                [[header["key"], encoded(header["value"])] for header in row["headers"] or ()],
            ]
            for row, microseconds in zip(
                table.drop_columns("timestamp").to_pylist(), micros, strict=True
            )
        ]
        assert rows == [record[:6] for record in answers["records"]]
        assert set(table["topic"].to_pylist()) <= {log.topic}
        assert set(table["partition"].to_pylist()) <= {log.partition}


def test_batches_are_those_that_the_broker_s_own_tool_prints(golden_case):
    is_old = golden_case.version.startswith("0.11")
    for log, answers in answered_partitions(golden_case):
        for segment in log.segments:
            printed = answers.get("dump", {}).get("batches", {}).get(segment.log_path.name)
            if printed is None:
                continue
            with segment.open_log() as file:
                found = [as_printed(batch) for batch in file.batches()]
            # The tool may have stopped before the end, or found a torn batch.
            for batch, wanted in zip(found, printed, strict=False):
                compared = wanted.keys() & batch.keys() - ({"is_control"} if is_old else set())
                assert {name: batch[name] for name in compared} == {
                    name: codec(wanted[name]) if name == "compression" else wanted[name]
                    for name in compared
                }
                if not is_old:
                    assert batch["is_control"] == wanted.get("is_control", False)
                assert (batch["delete_horizon"] is None) == ("delete_horizon_ms" not in wanted)
            assert len(printed) <= len(found)
            if "printed" not in answers["dump"]:
                assert len(printed) == len(found)


def as_printed(batch):
    fields = {
        "position": batch.position, "magic": batch.magic, "compression": batch.codec.name.lower(),
        "crc": batch.crc, "is_valid": batch.is_valid(), "last_offset": batch.last_offset,
        "is_control": batch.is_control, "delete_horizon": batch.delete_horizon_ms,
        "is_transactional": batch.is_transactional, "size": batch.size,
        "max_timestamp": batch.max_timestamp,
        "timestamp_type": TIMESTAMP_TYPES[batch.timestamp_type],
    }
    if batch.magic == 2:
        fields |= {
            "base_offset": batch.base_offset, "count": batch.count,
            "partition_leader_epoch": batch.leader_epoch, "producer_id": batch.producer_id,
            "producer_epoch": batch.producer_epoch, "base_sequence": batch.base_sequence,
        }
    return fields


def codec(printed):
    """Versions print `NoCompressionCodec`, `NONE` and `none`."""
    name = printed.lower()
    return CODECS.get(name, name.removesuffix("compressioncodec"))


def test_summaries_agree_with_the_batches(golden_case):
    for log, _ in answered_partitions(golden_case):
        for segment in log.segments:
            summary = segment.summary
            with segment.open_log() as file:
                batches = list(file.batches())
            assert summary.error is None
            assert summary.batch_count == len(batches)
            assert summary.magics == {batch.magic for batch in batches}
            times = [batch.max_timestamp for batch in batches if batch.max_timestamp >= 0]
            assert summary.largest_record_timestamp == max(times, default=None)
            if segment.verified_end[1] is None:
                assert segment.largest_record_timestamp() == max(times, default=None)
            if batches:
                assert summary.next_offset == batches[-1].last_offset + 1
                assert (segment.next_offset, segment.end_error) == (summary.next_offset, None)
                if segment.verified_end != (segment.next_offset, None):
                    assert golden_case.name == "crash-bad-crc"
                assert summary.valid_bytes == batches[-1].position + batches[-1].size


@pytest.mark.golden_cases(names="crash-torn", answers="answers")
def test_a_torn_batch_is_the_end_of_the_log(golden_case):
    for log, answers in answered_partitions(golden_case):
        records = [as_answered(record) for record in log.records()]
        assert records == answers["records"][: len(records)]
        assert 0 < len(records) < len(answers["records"])
        assert log.log_end_offset == answers["records"][len(records)][0]
        assert len(list(log.batches())) > 0


@pytest.mark.golden_cases(names="crash-bad-crc", answers="answers")
def test_a_wrong_checksum_is_an_error_after_the_records_before_it(golden_case):
    for log, answers in answered_partitions(golden_case):
        last = log.segments[-1]
        sound = last.rebuilt_indexes()
        wanted = [row for row in answers["records"] if row[0] < sound.next_offset]
        records, error = until_error(log.records(), ChecksumError)
        assert [as_answered(record) for record in records] == wanted
        assert (error.path, error.position) == (last.log_path, sound.valid_bytes)
        batches, error = until_error(log.to_arrow(["offset"]), ChecksumError)
        offsets = [offset for batch in batches for offset in batch["offset"].to_pylist()]
        assert offsets == [row[0] for row in wanted]
        assert (error.path, error.position) == (last.log_path, sound.valid_bytes)
        assert len(list(log.records(verify=False))) >= len(records)


@pytest.mark.golden_cases(names="transactions")
def test_markers_are_left_out_unless_requested(golden_case):
    for log, answers in answered_partitions(golden_case):
        with_markers = [record.offset for record in log.records(include_control=True)]
        markers = [
            offset
            for batch in log.batches()
            if batch.is_control
            for offset in range(batch.base_offset, batch.last_offset + 1)
        ]
        without = [record[0] for record in answers["records"]]
        assert sorted(without + markers) == with_markers


def test_every_leader_epoch_of_the_records_is_in_the_checkpoint(golden_case):
    for log, answers in answered_partitions(golden_case):
        if not log.leader_epochs:
            continue
        for record in answers["records"]:
            epochs = [epoch for epoch, start in log.leader_epochs if start <= record[0]]
            if record[6] is not None and epochs:
                assert epochs[-1] == record[6]


def test_partitions_are_listed_without_those_being_deleted(golden_case):
    store = kafkastore.open(golden_case.logs)
    listed = {str(log.topic_partition) for log in store}
    on_disk = {
        path.name for path in golden_case.logs.iterdir()
        if path.is_dir() and is_partition_directory(path)
    }
    skipped = {skipped.path.name for skipped in store.log_dirs[0].skipped}
    assert listed | skipped >= on_disk
    assert not listed & skipped
    assert {name for name in on_disk if name.endswith("-delete")} <= skipped
