"""Logs, topics and stores as tables: one after the other, read again, closed early."""
from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from models.iteration import until_error
from models.log_directory import Log, Segment
from models.open_files import open_files
from models.record_format import Batch, Row
from models.record_frames import write_logs
from models.refused import refused

import kafkastore
from kafkastore import DuplicatePartitionError, LogStore, UnknownTopicError
from kafkastore.errors import ArgumentTypeError, CorruptBatchError
from kafkastore.formats.state.file_names import InvalidNameError
from kafkastore.store.log_table import LogTable


def numbered(first: int, count: int) -> Log:
    """A log whose values are numbers from `first` on, in two segments."""
    batches = [Batch((Row(n, 1000 * n, b"k", b"%d" % (first + n)),)) for n in range(count)]
    half = count // 2
    return Log((Segment(0, tuple(batches[:half])), Segment(half, tuple(batches[half:]))))


SIZES = {("a", 0): 10, ("a", 1): 7, ("a", 10): 5, ("a-b", 0): 4, ("orders", 2): 9}


@pytest.fixture
def store(tmp_path: Path) -> LogStore:
    """A store of three topics."""
    root = tmp_path / "logs"
    for number, ((topic, partition), count) in enumerate(SIZES.items()):
        numbered(100 * number, count).write(root, f"{topic}-{partition}")
    return kafkastore.open(root)


def values(table: Any) -> list[int]:
    return [int(value) for batch in table for value in batch.column("value").to_pylist()]


def wanted(store: LogStore, *partitions: tuple[str, int]) -> list[int]:
    return [int(record.value or b"") for each in partitions for record in store[each].records()]


def test_topics_are_a_mapping_of_their_names(store: LogStore) -> None:
    assert [*store.topics] == ["a", "a-b", "orders"]
    assert len(store.topics) == 3
    assert "a-b" in store.topics
    assert "b" not in store.topics
    assert store.topics["a"].partitions == store.topic("a").partitions == (0, 1, 10)
    assert 10 in store.topic("a")
    assert 2 not in store.topic("a")


def test_a_topic_has_its_logs_and_their_bounds(store: LogStore) -> None:
    topic = store.topic("a")
    assert [log.topic_partition for log in topic] == [("a", 0), ("a", 1), ("a", 10)]
    assert len(topic) == 3
    assert topic[10] is store["a", 10]
    assert topic.log_start_offsets == {0: 0, 1: 0, 10: 0}
    assert topic.log_end_offsets == {0: 10, 1: 7, 10: 5}
    assert [record.value for record in topic.records(start_offset=4)] == [
        record.value for log in topic for record in log.records(start_offset=4)
    ]
    with pytest.raises(KeyError):
        topic[2]


@pytest.mark.parametrize(
    ("name", "nearest", "others"),
    [
        ("order", ["orders"], ()),
        ("ORDERS", ["orders"], ()),
        ("A", ["a"], ()),
        ("zzz", [], ("a", "a-b", "orders")),
    ],
)
def test_an_unknown_topic_is_refused_with_similar_names_or_else_some(
    store: LogStore, name: str, nearest: list[str], others: tuple[str, ...]
) -> None:
    for ask in (store.topic, store.topics.__getitem__, store.to_arrow):
        with pytest.raises(UnknownTopicError) as caught:
            ask(name)
        assert isinstance(caught.value, KeyError)
        assert (caught.value.topic, caught.value.nearest) == (name, nearest)
        assert caught.value.others == others
        assert caught.value.paths == store.paths


@pytest.mark.parametrize("name", [3, None, b"orders", ("orders", 0), ["orders"], ["a", "b"]])
def test_the_name_of_a_topic_must_be_a_str(store: LogStore, name: Any) -> None:
    with refused("name", ArgumentTypeError):
        store.topic(name)
    with pytest.raises((UnknownTopicError, ArgumentTypeError)):
        store.topics[name]


def test_partitions_are_not_counted_from_the_end(store: LogStore) -> None:
    for ask in (lambda: store.topic("a")[-1], lambda: store["a", -1]):
        with pytest.raises(KeyError, match="numbered"):
            ask()
    assert -1 not in store.topic("a")


def test_a_topic_is_no_partition(store: LogStore) -> None:
    name = next(iter(store.topics))
    with pytest.raises(InvalidNameError, match=r"store\.topic"):
        store[name]


def test_a_table_of_several_logs_has_them_by_topic_and_partition(store: LogStore) -> None:
    every = [*SIZES]
    assert values(store.to_arrow()) == wanted(store, *every)
    assert values(store.to_arrow("a")) == wanted(store, *every[:3])
    assert values(store.topic("a").to_arrow()) == wanted(store, *every[:3])
    assert values(store.to_arrow(["orders", "a-b"])) == wanted(store, *every[3:])
    assert values(store.to_arrow(partitions=["a-10", ("a", 0)])) == wanted(
        store, ("a", 0), ("a", 10)
    )
    assert values(store.topic("a").to_arrow(partitions=[10, 1, 1])) == wanted(
        store, ("a", 1), ("a", 10)
    )
    assert values(store.to_arrow([])) == []


def test_bounds_are_those_of_each_log_and_the_limit_is_of_all(store: LogStore) -> None:
    table = store.to_arrow(["a", "orders"], start_offset=3, end_timestamp=8000)
    expected = [
        int(record.value or b"")
        for name in ("a", "orders")
        for record in store.topic(name).records(start_offset=3)
        if record.timestamp < 8000
    ]
    assert values(table) == expected
    for limit in range(len(expected) + 2):
        limited = store.to_arrow(
            ["a", "orders"], start_offset=3, end_timestamp=8000, limit=limit, batch_rows=3
        )
        assert values(limited) == expected[:limit]


def test_each_reading_of_a_table_begins_at_the_first_record(store: LogStore) -> None:
    table = store.to_arrow("a", batch_rows=4)
    whole = wanted(store, *[*SIZES][:3])
    assert values(table) == values(table) == whole
    first, second = iter(table), iter(table)  # side by side
    assert next(first).equals(next(second))
    assert [*map(len, first)] == [*map(len, second)]
    assert values(table.to_reader()) == values(table.to_reader()) == whole
    assert table.read_all()["value"].to_pylist() == [b"%d" % each for each in whole]
    assert [int(each) for each in table.to_pandas()["value"]] == whole


def test_batches_can_be_read_one_by_one(store: LogStore) -> None:
    table = store.to_arrow("a", batch_rows=4, threads=1)
    for _ in range(2):
        assert [len(table.read_next_batch()) for _ in range(7)] == [4, 4, 2, 4, 3, 4, 1]
        with pytest.raises(StopIteration):
            table.read_next_batch()


def test_closing_a_table_stops_its_iterations_and_closes_files(store: LogStore) -> None:
    log = store["a", 0]
    with log.to_arrow(batch_rows=1) as table:
        iterations = [iter(table) for _ in range(3)]
        for each in iterations:
            next(each)
        table.read_next_batch()
        assert open_files(log.path)
    assert not open_files(log.path)
    assert [next(each, None) for each in iterations] == [None] * 3
    assert len(values(table)) == 10  # it can be read again
    reader = table.to_reader()
    reader.read_next_batch()
    assert open_files(log.path)
    del reader
    gc.collect()
    assert not open_files(log.path)


def test_nothing_is_read_before_the_first_batch(store: LogStore) -> None:
    table = store.to_arrow("a")
    for log in store.topic("a"):
        for segment in log.segments:
            segment.log_path.unlink()
    assert table.schema.names[:2] == ["key", "value"]
    assert values(table) == []


BAD: dict[str, Any] = {
    "start_offset": 1.5, "end_offset": "7", "start_timestamp": b"", "end_timestamp": [],
    "limit": 2.0, "batch_rows": None, "batch_bytes": "x", "max_decompressed_bytes": None,
    "columns": "offset",
}


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_argument_is_refused_before_anything_is_read(store: LogStore, name: str) -> None:
    for owner in (store, store.topic("a"), store["a", 0]):
        with refused(name, ArgumentTypeError):
            owner.to_arrow(**{name: BAD[name]})


@pytest.mark.parametrize("name", ["isolation", "on_corrupt", "indexes"])
def test_an_unknown_choice_is_refused_before_anything_is_read(store: LogStore, name: str) -> None:
    for owner in (store, store.topic("a"), store["a", 0]):
        with refused(name):
            owner.to_arrow(**{name: "some"})


def test_topics_and_partitions_exclude_each_other(store: LogStore) -> None:
    for topics in ("a", ["a", "orders"]):
        with refused("partitions"):
            store.to_arrow(topics, partitions=[0])
    with pytest.raises(KeyError):
        store.to_arrow(partitions=["a-2"])
    for wrong in ("0", 0, ["a-0"], [("a", 0)], [0, 1.0], [True]):
        with refused("partitions", ArgumentTypeError):
            store.topic("a").to_arrow(partitions=wrong)  # type: ignore[arg-type]


def test_a_duplicate_partition_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    for name in ("one", "two"):
        numbered(0, 3).write(tmp_path / name, "a-0")
    numbered(0, 3).write(tmp_path / "two", "b-0")
    store = kafkastore.open([tmp_path / "one", tmp_path / "two"])
    with pytest.raises(DuplicatePartitionError):
        store.to_arrow()
    assert len(values(store.to_arrow("b"))) == 3


def test_corrupt_bytes_raise_after_all_rows_before_them(store: LogStore) -> None:
    path = store["a", 1].segments[0].log_path
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    table = store.to_arrow("a")
    for _ in range(2):
        batches, error = until_error(iter(table), CorruptBatchError)
        assert error is not None
        assert error.path == path
        assert values(batches) == [*wanted(store, ("a", 0)), 100, 101]
    skipped: list[kafkastore.SkippedBytes] = []
    rest = store.to_arrow("a", on_corrupt="skip", skipped=skipped)
    assert values(rest) == [
        *wanted(store, ("a", 0)), 100, 101, 103, 104, 105, 106, *wanted(store, ("a", 10))
    ]
    assert [each.path for each in skipped] == [path]


def capsules(store: LogStore) -> Iterator[tuple[Any, list[int]]]:
    """Everything that other libraries read, with its values."""
    yield store, wanted(store, *SIZES)
    yield store.topic("a"), wanted(store, *[*SIZES][:3])
    yield store["a", 0], wanted(store, ("a", 0))
    yield store.to_arrow("orders"), wanted(store, ("orders", 2))


def test_stores_topics_logs_and_tables_are_arrow_streams(store: LogStore) -> None:
    for owner, expected in capsules(store):
        for _ in range(2):
            assert values(pa.table(owner).to_batches()) == expected
            assert values(pa.RecordBatchReader.from_stream(owner)) == expected
        assert pa.schema(owner) == pa.table(owner).schema
        assert pa.schema(owner).field("timestamp").type == pa.timestamp("us", "UTC")


def test_a_consumer_gets_the_types_that_it_requests(store: LogStore) -> None:
    fields = pa.schema(store)
    at = fields.get_field_index("topic")
    requested = fields.set(at, pa.field("topic", pa.dictionary(pa.int32(), pa.string())))
    found = pa.RecordBatchReader.from_stream(store, requested).read_all()
    assert found.schema == requested
    assert found["topic"].to_pylist() == store.to_arrow().read_all()["topic"].to_pylist()


def test_the_dictionary_of_topics_is_the_same_in_all_batches(store: LogStore) -> None:
    plain = store.to_arrow(["orders", "a"]).read_all()
    table = store.to_arrow(["orders", "a"], dictionary=True)
    batches = [*table]
    assert {tuple(batch["topic"].dictionary.to_pylist()) for batch in batches} == {("a", "orders")}
    assert table.schema.field("topic").type == pa.dictionary(pa.int32(), pa.string())
    assert [name for batch in batches for name in batch["topic"].to_pylist()] == plain[
        "topic"
    ].to_pylist()
    assert str(table.to_pandas()["topic"].dtype) == "category"
    assert isinstance(table, LogTable)


def test_other_libraries_are_given_one_sentence_of_an_error(tmp_path: Path) -> None:
    root = write_logs(tmp_path / "logs", {"a-0": numbered(0, 10)})
    store = kafkastore.open(root)
    path = next(root.rglob("00000000000000000005.log"))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    for table in (store, store.topic("a"), store["a", 0], store.to_arrow("a")):
        with pytest.raises(pa.ArrowException) as caught:
            pa.table(table)
        assert str(path) in str(caught.value)
        assert "Traceback" not in str(caught.value)
    with pytest.raises(CorruptBatchError):
        store.to_arrow().to_reader().read_all()


def test_other_libraries_are_given_one_sentence_of_an_interrupt(store: LogStore) -> None:
    def interrupted() -> Iterator[pa.RecordBatch]:
        yield from store["a", 0].to_arrow()
        raise KeyboardInterrupt

    table = LogTable(store.to_arrow().schema, interrupted)
    with pytest.raises(pa.ArrowException, match="KeyboardInterrupt") as caught:
        pa.table(table)
    assert "Traceback" not in str(caught.value)
    with pytest.raises(KeyboardInterrupt):
        table.read_all()


def test_topics_and_stores_refuse_arguments_of_other_methods(store: LogStore) -> None:
    topic = store.topic("a")
    for read in (store.to_arrow, topic.to_arrow):
        with pytest.raises(TypeError, match="is_decided"):
            read(is_decided=True)  # type: ignore[call-arg]
    for name, value in (("isolation", "read_uncommitted"), ("include_control", True)):
        for latest in (topic.latest, topic[0].latest):
            with pytest.raises(TypeError):
                latest(**{name: value})  # type: ignore[arg-type]
