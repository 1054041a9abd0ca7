"""Texts of errors that are made of their fields, for the texts' own sake."""
from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

import kafkastore
from kafkastore import errors
from kafkastore.arguments import (
    check_choice,
    check_collection,
    check_kind,
    timestamp_ms,
    whole_number,
)
from kafkastore.formats.indexes import index_growth
from kafkastore.formats.indexes.index_format import offset_index, time_index
from kafkastore.formats.messages.message_table import MessageTable
from kafkastore.formats.records.compression import Codec, check_codec
from kafkastore.formats.records.control_records import parse_control_record
from kafkastore.formats.records.decompression import decompress
from kafkastore.formats.records.record_batch import Record, RecordBatch, TimestampType
from kafkastore.formats.records.record_builder import build_batch
from kafkastore.formats.requests.list_offsets import ListOffsetsRequest, pack_request
from kafkastore.formats.state import checkpoints, file_names, producer_snapshot
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.formats.state.leader_epochs import LeaderEpochs
from kafkastore.log.damage import SkippedBytes, SkippedBytesWarning
from kafkastore.remote.stores import failed
from kafkastore.spark.shipping import archive
from kafkastore.spark.source.options import parse_options
from kafkastore.store.data_loss import DataLossError, Loss, LossKind
from kafkastore.store.log_store import as_topic_partition

ONE = MessageTable("""
One 0, versions 0-1
    f int8
    g string 1+
""")
TEXTS = [
    (
        errors.CorruptBatchError("checksum is wrong", path="/d/t-0/0.log", position=945),
        "checksum is wrong in /d/t-0/0.log at byte 945",
    ),
    (errors.CorruptIndexError("5 bytes are not whole entries"), "5 bytes are not whole entries"),
    (
        errors.DuplicatePartitionError({"t-0": ["/a/t-0", "/b/t-0"]}),
        ("partition t-0 is in two directories, /a/t-0 and /b/t-0; a broker does not start with "
        "them: open one of the two directories by itself"),
    ),
    (
        errors.DuplicatePartitionError({"t-0": ["/a/t-0", "/b/t-0"], "t-1": ["/a/t-1"] * 3}),
        ("partition t-0 is in two directories, /a/t-0 and /b/t-0; partition t-1 is in 3 "
        "directories, /a/t-1 and /a/t-1 and /a/t-1; a broker does not start with them: open one "
        "directory of each by itself"),
    ),
    (
        errors.UnknownTopicError("order", ["orders", "border"], ["/a", "/b"]),
        "no topic 'order' in /a and /b; did you mean orders or border?",
    ),
    (
        errors.UnknownTopicError("zzz", [], ["/a"], ["orders", "border"]),
        "no topic 'zzz' in /a; among its topics are orders, border",
    ),
    (errors.UnknownTopicError("order", [], ["/a"]), "no topic 'order' in /a; it has none"),
    (
        errors.SeveralClustersError({"A": "/a", "B": "/b"}),
        ("/a belongs to cluster A, /b belongs to cluster B; name the log directories of one "
        "cluster only"),
    ),
    (
        errors.RecordValueError(5, "messages of magic 0 do not support timestamps"),
        "record at offset 5: messages of magic 0 do not support timestamps",
    ),
    (errors.InvalidColumnError("value", "is missing"), "column 'value' is missing"),
    (
        failed("s3://b/k", PermissionError("403")),
        "s3://b/k can't be read: access is denied (403); check credentials",
    ),
    (
        failed("s3://b/k", OSError("refused"), done="written"),
        ("s3://b/k can't be written: refused; check the endpoint and the network, and try again"),
    ),
    (
        errors.NotAFileError("/d/t-0/0.log", "a FIFO"),
        "/d/t-0/0.log is a FIFO and not a regular file; move it away",
    ),
    (
        errors.SegmentGoneError("/d/t-0/0.log"),
        "/d/t-0/0.log is gone: deleted, truncated or compacted after it was listed",
    ),
    (
        errors.NoUndoPlaceError("/d is a mount point, and / another file system"),
        ("/d is a mount point, and / another file system; choose another directory for replaced "
        "files with undo_dir"),
    ),
    (
        errors.ChangeRefusedError("/d/t-0/0.log has changed", errors.RefusalReason.CHANGED),
        "/d/t-0/0.log has changed",
    ),
    (
        errors.PlanRefusedError([errors.ChangeRefusedError(f"{name} changed") for name in "abcde"]),
        "a changed; b changed; c changed; and 2 more",
    ),
    (
        errors.DirectoryInUseError("/d", "/d/.lock", 33),
        "process 33 holds /d/.lock: stop the broker that has /d open",
    ),
    (
        errors.DirectoryInUseError("/d", "/d/.lock", 0),
        "another process holds /d/.lock: stop the broker that has /d open",
    ),
    (
        errors.NoSpaceError("/d", 10, 11, "the new files"),
        "/d has 10 bytes left, the new files need 11; free some space",
    ),
    (
        errors.LogWouldBeCutError("/d/t-0", {"0.log": 945, "9.log": 0}, 33),
        ("/d/t-0: a recovery would truncate 0.log at byte 945 (and 1 more), so that the log ends "
        "at offset 33; nothing was changed: recover=True truncates it, and keeps the truncated "
        "bytes next to the log directory"),
    ),
    (
        errors.RemoteStoreError("s3://b/k", "access is denied; check credentials", 0, 65536),
        "s3://b/k, bytes 0 to 65536, can't be read: access is denied; check credentials",
    ),
    (
        DataLossError(
            "; load again",
            Loss(LossKind.DELETED, TopicPartition("t", 0), 5, "t-0 begins at offset 5"),
            Loss(LossKind.GONE, TopicPartition("t", 1), 9, "t-1 is gone"),
        ),
        "t-0 begins at offset 5; t-1 is gone; load again",
    ),
    (
        SkippedBytesWarning(SkippedBytes(Path("/d/0.log"), 10, 20, 5, 8, "no batch")),
        "skipped bytes 10 to 19 of /d/0.log, offsets 5 to 7: no batch",
    ),
    (
        SkippedBytesWarning(SkippedBytes(Path("/d/0.log"), 10, 20, 5, None, "no batch")),
        "skipped bytes 10 to 19 of /d/0.log, offsets from 5 on: no batch",
    ),
    (
        SkippedBytesWarning(SkippedBytes(Path("/d/0.log"), 10, 20, 5, 5, "ends with offset 3")),
        "skipped bytes 10 to 19 of /d/0.log, between offsets 4 and 5: ends with offset 3",
    ),
    (
        errors.RemoteObjectChangedError("s3://b/k", "has changed"),
        "s3://b/k has changed: it was replaced or deleted; open the store again",
    ),
]


@pytest.mark.parametrize(("error", "text"), TEXTS, ids=[type(error).__name__ for error, _ in TEXTS])
def test_an_error_says_what_its_fields_hold(error: Exception, text: str) -> None:
    assert str(error) == text


def _control(key: bytes | None, value: bytes | None) -> Record:
    return Record(42, 0, TimestampType.CREATE_TIME, key, value, (), None)


#: Function that raises an error -> its text.
RAISED: list[tuple[Callable[[], object], str]] = [
    (lambda: whole_number("limit", "7"), "limit must be an int, got '7'"),  # type: ignore[arg-type]
    (
        lambda: timestamp_ms("start_timestamp", datetime(2024, 3, 1)),
        (
            "start_timestamp must be a datetime with a time zone, such as datetime(2024, 3, 1, "
            "tzinfo=UTC), got datetime.datetime(2024, 3, 1, 0, 0)"
        ),
    ),
    (
        lambda: timestamp_ms("start_timestamp", "2024-03-01"),  # type: ignore[arg-type]
        "start_timestamp must be an int (ms since 1970) or a datetime, got '2024-03-01'",
    ),
    (lambda: whole_number("limit", -1, 0), "limit must be at least 0, got -1"),
    (lambda: whole_number("slot", 9, 0, 8), "slot must be from 0 to 8, got 9"),
    (lambda: check_choice("like", "a", ["b", "c"]), "like must be 'b' or 'c', got 'a'"),
    (lambda: check_choice("like", "a", ["b"]), "like must be 'b', got 'a'"),
    (
        lambda: check_collection("columns", "offset"),
        "columns must be a collection such as ['offset'], got 'offset'",
    ),
    (lambda: check_kind("log", 5, str), "log must be a str, got 5"),
    (
        lambda: as_topic_partition(5),  # type: ignore[arg-type]
        "partition must be such as ('orders', 3) or 'orders-3', got 5",
    ),
    (
        lambda: kafkastore.LogConfig.of({"segment.bytes": 13}),
        "segment.bytes must be an int from 14 to 2147483647, got 13",
    ),
    (
        lambda: kafkastore.LogConfig.of({"segment.size": 13}),
        "segment.size is not a topic configuration of Kafka",
    ),
    (
        lambda: check_codec(Codec.GZIP, 2, 10),
        "compression_level must be from 1 to 9 for codec gzip, got 10",
    ),
    (
        lambda: check_codec(Codec.ZSTD, 1, None),
        "codec must be one that magic 1 supports, got 'zstd'",
    ),
    (
        lambda: decompress(Codec.ZSTD, b"", magic=2),
        "zstd records can't be decompressed (truncated)",
    ),
    (lambda: decompress(6, b"", magic=1), "magic 1 does not support codec 6"),
    (
        lambda: decompress(Codec.SNAPPY, b"\x0a\x24" + b"a" * 10, magic=2,
                           max_decompressed_bytes=9),
        "records decompress to more than 9 bytes (max_decompressed_bytes)",
    ),
    (
        lambda: parse_control_record(_control(None, b""), position=7),
        "control record at offset 42: the key must be at least 4 bytes, got null at byte 7",
    ),
    (
        lambda: parse_control_record(_control(bytes(4), bytes(5)), position=7),
        "control record at offset 42: the value must be at least 6 bytes, got 5 at byte 7",
    ),
    (
        lambda: parse_control_record(_control(b"\xff\xff\0\0", bytes(6)), position=7),
        "control record at offset 42: impossible version -1 of the key at byte 7",
    ),
    (lambda: RecordBatch(b"x", 7), "1 bytes are not exactly one record batch at byte 7"),
    (lambda: build_batch([], magic=3), "magic must be 0, 1 or 2, got 3"),
    (
        lambda: offset_index.entry(b"", 0, 1),
        "slot must be less than 0, the entries of the offset index, and at least 0, got 1",
    ),
    (
        lambda: offset_index.pack(np.zeros((2, 2), offset_index.dtype), 0),
        "entries must be an array of 1 dimension, got 2",
    ),
    (
        lambda: offset_index.pack([(44, 1)], 45),
        "offset 44 must be at most 2147483647 above the base offset 45",
    ),
    (
        lambda: offset_index.check(b"\0" * 9, 0),
        "offset index is 9 bytes, not a multiple of 8 at byte 8",
    ),
    (
        lambda: time_index.lookup_many(b"", 0, [1.5]),
        "targets must be an array of int64 (times: ms since 1970), got dtype('float64')",
    ),
    (
        lambda: index_growth.max_entries(7, 8),
        "max_index_size must be at least 8 bytes, one entry, got 7",
    ),
    (
        lambda: producer_snapshot.parse(b"\0\2" + bytes(8)),
        "producer snapshot has version 2, not 1 at byte 0",
    ),
    (
        lambda: producer_snapshot.parse(b"\0"),
        "producer snapshot ends within its header of 10 bytes at byte 1",
    ),
    (
        lambda: producer_snapshot.parse(b"\0\1" + bytes(8)),
        ("producer snapshot has a wrong checksum (stored 0x00000000, computed 0x48674bc7) "
        "at byte 2"),
    ),
    (
        lambda: checkpoints.parse_offset_checkpoint(b"0\n1\nt x 5\n"),
        "line must be 'topic partition offset', got 't x 5' at byte 4",
    ),
    (
        lambda: checkpoints.parse_offset_checkpoint(b"0\n2\nt 0 5\n"),
        "checkpoint must have 2 entries, got 1 at byte 10",
    ),
    (
        lambda: checkpoints.parse_partition_metadata(b""),
        "file ends before 'version: number' at byte 0",
    ),
    (
        lambda: checkpoints.parse_meta_properties(b"a=\\u00"),
        r"meta.properties: a \u escape needs four hexadecimal digits at byte 0",
    ),
    (
        lambda: file_names.segment_file_name(-1, ".log"),
        "base offset must be from 0 to 9223372036854775807, got -1",
    ),
    (
        lambda: LeaderEpochs().assign(-1, 5),
        "leader epoch and start offset must be at least 0, got -1 and 5",
    ),
    (lambda: ONE.known_codec(0, 0).parse(b""), "the bytes end in f at byte 0"),
    (lambda: ONE.known_codec(0, 1).parse(b"\1\xff\xff"), "g is null at byte 1"),
    (
        lambda: ONE.known_codec(0, 2, position=7),
        "version of One must be from 0 to 1, got 2 at byte 7",
    ),
    (lambda: ONE.known_codec(0, 0).pack({"f": 128}), "f must be a signed int of 8 bits, got 128"),
    (
        lambda: pack_request(ListOffsetsRequest((), isolation_level=1), 1),
        "isolation_level is not a field of version 1",
    ),
    (lambda: kafkastore.open([]), "no path is given"),
    (lambda: kafkastore.open("/nowhere"), "/nowhere does not exist"),
    (
        lambda: kafkastore.open("s3:///logs"),
        ("s3:///logs can't be read: a bucket or host is missing: s3://bucket/path, "
        "webhdfs://host:port/path"),
    ),
    (
        lambda: kafkastore.open("s3://b/../logs"),
        "s3://b/../logs can't be read: its path must not have empty parts, dots or '::'",
    ),
    (
        lambda: parse_options({"path": "/logs", "startingOffset": "1"}),
        "option startingOffset is not known; did you mean startingOffsets?",
    ),
    (
        lambda: parse_options({"path": "/logs", "assign": "t-0"}),
        'option assign must be JSON like {"orders": [0, 1]}, got t-0',
    ),
    (
        lambda: parse_options({"path": "/logs", "minPartitions": "0"}),
        "option minPartitions must be an int of at least 1, got 0",
    ),
    (
        lambda: parse_options({"path": "/logs", "paths": "[]"}),
        "options path and paths cannot be combined: give one of them",
    ),
    (
        lambda: parse_options({"path": "/l", "table": "segments", "includeHeaders": "true"}),
        "option includeHeaders applies to records, not to the table segments",
    ),
    (
        lambda: parse_options({"path": "/l", "endingOffsets": "latest"}, is_stream=True),
        "option endingOffsets is not supported for streams, which have no end",
    ),
    (
        lambda: archive("/ks.whl"),
        "/ks.whl: the name must end in .zip, or Spark does not unpack it",
    ),
]


@pytest.mark.parametrize(("fail", "text"), RAISED, ids=[text for _, text in RAISED])
def test_an_error_says_in_plain_words_what_is_wrong(fail: Callable[[], object], text: str) -> None:
    with pytest.raises(Exception) as raised:  # noqa: PT011
        fail()
    assert str(raised.value) == text
