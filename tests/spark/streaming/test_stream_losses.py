"""Records that are deleted or replaced while a stream runs."""
import shutil

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows
from spark.raised import losses
from spark.streaming.streams import ALL, append, numbers, read, reader_of

from kafkastore import LogDirWriter
from kafkastore.spark.source.streaming.stream_offsets import StreamOffset
from kafkastore.store.growing_logs import BatchMark
from kafkastore.store.log_store import open_store


def lose(reader, start, *expected):
    """A loss fails the query, or with failOnDataLoss off is reported in the next offset."""
    with losses(expected):
        reader.latestOffset(start, ALL)
    indulgent = reader_of(reader.given["path"], failOnDataLoss="false")
    end = indulgent.latestOffset(start, ALL)
    assert indulgent.latestOffset(end, ALL) is end  # reported once
    assert reader_of(reader.given["path"]).latestOffset(end, ALL) is end
    return end, read(indulgent, start, end)


def test_a_log_that_ends_before_what_was_read_was_truncated(log_dir):
    writer = log_dir.writer("orders", 0)
    append(writer, *numbers(0, 9))
    reader = reader_of(log_dir.path)
    start = reader.latestOffset({}, ALL)
    writer.truncate_to(6)
    end, rows = lose(reader, start, "truncated", "orders-0", 6)
    assert rows == []
    assert end["orders"] == {"0": 6}
    assert end["@lost"]["orders"].keys() == {"0"}
    append(writer, "other")
    indulgent = reader_of(log_dir.path, failOnDataLoss="false")
    following = indulgent.latestOffset(end, ALL)
    assert read(indulgent, end, following) == [("orders", 0, 6, "other")]
    assert "@lost" not in following


@pytest.mark.parametrize("rolls", [False, True])
@pytest.mark.parametrize("is_new", [False, True])
def test_a_log_that_was_cut_and_written_again_is_noticed(log_dir, rolls, is_new):
    writer = log_dir.writer("orders", 0)
    append(writer, *numbers(0, 9))
    reader = reader_of(log_dir.path)
    start = reader.latestOffset({}, ALL)
    writer.truncate_to(6)
    append(writer, "a", "b")
    if rolls:
        writer.roll()
    append(writer, *"cdefgh")
    if is_new:
        reader = reader_of(log_dir.path)
    _, rows = lose(reader, start, "rewritten", "orders-0", 9)
    assert rows == [("orders", 0, 9, "d"), *(("orders", 0, 10 + n, "efgh"[n]) for n in range(4))]


def test_with_a_new_leader_the_place_is_known_from_which_records_are_others(log_dir):
    writer = log_dir.writer("orders", 0)
    append(writer, *numbers(0, 9))
    reader = reader_of(log_dir.path)
    start = reader.latestOffset({}, ALL)
    writer.truncate_to(6)
    append(writer, "a", leader_epoch=1)
    lost = lose(reader, start, "truncated", "orders-0", 6)
    assert lost[1] == [("orders", 0, 6, "a")]
    append(writer, *"bcd", leader_epoch=1)
    lost = lose(reader, start, "rewritten", "orders-0", 6)
    assert [row[3] for row in lost[1]] == list("abcd")


def test_records_truncated_before_they_were_read_are_not_a_loss(log_dir):
    writer = log_dir.writer("orders", 0)
    append(writer, *numbers(0, 9))
    reader = reader_of(log_dir.path, maxOffsetsPerTrigger="4")
    start = reader.latestOffset({}, ReadMaxRows(4))
    writer.truncate_to(4)
    append(writer, "a", "b", leader_epoch=1)
    end = reader.latestOffset(start, ALL)
    assert read(reader, start, end) == [("orders", 0, 4, "a"), ("orders", 0, 5, "b")]


def test_retention_beyond_what_was_read_is_a_loss(log_dir):
    writer = log_dir.writer("orders", 0, {"segment.bytes": 150, "retention.ms": -1})
    append(writer, *numbers(0, 4))
    reader = reader_of(log_dir.path)
    start = reader.latestOffset({}, ALL)
    append(writer, *numbers(4, 9))
    writer.delete_records(4)
    writer.delete_old_segments()
    log_dir.checkpoint()
    end = reader.latestOffset(start, ALL)
    assert [row[2] for row in read(reader, start, end)] == [4, 5, 6, 7, 8]
    writer.delete_records(6)
    log_dir.checkpoint()
    lost = lose(reader, start, "deleted", "orders-0", 6)
    assert [row[2] for row in lost[1]] == [6, 7, 8]


def test_a_deleted_topic_is_a_loss(log_dir):
    append(log_dir.writer("orders", 0), "0")
    append(payments := log_dir.writer("payments", 0), "0")
    reader = reader_of(log_dir.path)
    start = reader.latestOffset({}, ALL)
    payments.path.rename(payments.path.with_name("payments-0." + "0" * 32 + "-delete"))
    end, rows = lose(reader, start, "gone", "payments-0", 1)
    assert rows == []
    assert "payments" not in end
    with LogDirWriter(log_dir.path.parent / "other") as other:
        append(made := other.writer("payments", 0), "recreated")
        shutil.copytree(made.path, payments.path)
    following = reader_of(log_dir.path)
    assert [row[3] for row in read(following, end, following.latestOffset(end, ALL))] == [
        "recreated"
    ]


def test_a_topic_that_is_not_subscribed_to_any_more_is_a_loss(log_dir):
    for topic in ("orders", "payments"):
        append(log_dir.writer(topic, 0), "0")
    start = reader_of(log_dir.path).latestOffset({}, ALL)
    with losses(("gone", "payments-0", 1)):
        reader_of(log_dir.path, subscribe="orders").latestOffset(start, ALL)


def test_a_recreated_topic_is_noticed(log_dir, tmp_path):
    append(log_dir.writer("orders", 0), *numbers(0, 3))
    start = reader_of(log_dir.path).latestOffset({}, ALL)
    with LogDirWriter(tmp_path / "recreated") as recreated:
        append(recreated.writer("orders", 0), *"abcdef")
        with losses(("rewritten", "orders-0", 3)):
            reader_of(recreated.path).latestOffset(start, ALL)


def test_a_new_partition_that_does_not_begin_at_0_has_lost_its_beginning(log_dir):
    append(log_dir.writer("orders", 0), "0")
    reader = reader_of(log_dir.path)
    start = reader.latestOffset({}, ALL)
    new = log_dir.writer("orders", 1)
    append(new, *numbers(0, 3))
    new.delete_records(2)
    log_dir.checkpoint()
    assert lose(reader, start, "deleted", "orders-1", 2)[1] == [("orders", 1, 2, "2")]


def test_compaction_is_not_a_loss(golden):
    case = golden("2.4.0", "compacted", "answers")
    log = next(iter(open_store(case.logs)))
    before = StreamOffset({log.topic_partition: log.segments[-1].base_offset - 1})
    before.marks[log.topic_partition] = BatchMark(log.segments[-1].base_offset - 2, 0, 1)
    reader = reader_of(case.logs, subscribe=log.topic)
    start = before.to_json()
    end = reader.latestOffset(start, ALL)
    assert "@lost" not in end
    # In the active segment, which is never compacted, it would be one.
    at = log.log_end_offset
    active = StreamOffset({log.topic_partition: at}, {log.topic_partition: BatchMark(at - 1, 0, 1)})
    with losses(("rewritten", str(log.topic_partition), at)):
        reader.latestOffset(active.to_json(), ALL)
