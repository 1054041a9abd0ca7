"""All indexes against the classes of real brokers, on sound, padded, unsorted and any bytes."""

import struct

import numpy as np
import pytest
from models import kafka_classes
from models.index_bytes import sorted_entries, targets_near

from kafkastore.errors import (
    CorruptIndexError,
    IndexFullError,
    OffsetOverflowError,
    OutOfOrderAppendError,
)
from kafkastore.formats.indexes import index_growth, transaction_index
from kafkastore.formats.indexes.entries import TimestampOffset
from kafkastore.formats.indexes.index_format import offset_index, time_index
from kafkastore.segment.index_file import OffsetIndex, TimeIndex
from kafkastore.segment.transaction_index_file import TransactionIndex

pytestmark = pytest.mark.kafka

WITHOUT_WARM_SECTION = ["0.10.2.2", "0.11.0.3"]
VERSIONS = [*WITHOUT_WARM_SECTION, "2.4.0", "3.9.1", "4.3.1"]
LAYOUTS = {"offset": ">ii", "time": ">qi"}
WITH_TRANSACTIONS = ["0.11.0.3", "2.4.0", "3.9.1", "4.3.1"]


def index_files(layout, seed):
    """Index files of every sort, some with odd bytes at the end; never empty (no file to map)."""
    size = struct.calcsize(layout)
    random = np.random.default_rng(seed)
    for count in (1, 2, 3, 40, 681, 682, 683, 684, 1023, 1024, 1025, 1026, 2500):
        data = sorted_entries(layout, count, int(random.integers(2**32)))
        yield data
        yield data + bytes(size * int(random.integers(1, 3000)))
        yield data[: len(data) - 1 - int(random.integers(size - 1))]
        damaged = bytearray(data)
        for at in random.integers(len(data), size=3):
            damaged[at] ^= 1 << int(random.integers(8))
        yield bytes(damaged)
        few = int(random.integers(1, 2 * count + 2))
        slots = random.integers(-few, few, (count, 2)).tolist()
        yield b"".join(struct.pack(layout, *slot) for slot in slots)
        yield random.bytes(count * size)


def shown(entry):
    """Print an entry as the Java side does."""
    return "none" if entry is None else " ".join(map(str, entry))


def verdict(module, data, base_offset):
    """Print the sanity check's verdict as the Java side does."""
    try:
        module.check(data, base_offset)
    except CorruptIndexError:
        return "refused"
    return "sound"


def questions(kind, data, base_offset, seed, *, warm_section):
    """Yield the queries for both sides, with our answer: (answer, operation, arguments...)."""
    module = offset_index if kind == "offset" else time_index
    slots = module.parse(data, base_offset)
    options = {"warm_section": warm_section}
    yield str(module.entry_count(data)), "count"
    for target in targets_near(slots["offset" if kind == "offset" else "timestamp"], seed).tolist():
        yield shown(module.lookup(data, base_offset, target, **options)), "lookup", target
    for offset in targets_near(slots["offset"], seed).tolist()[:8]:
        yield str(module.truncate_to(data, base_offset, offset, **options)), "truncate", offset
    last = module.last_entry(data, base_offset)
    if kind == "time":
        yield shown(last), "last"
        yield verdict(module, data, base_offset), "check"
        return
    yield str(last.offset), "last"
    if warm_section:  # earlier versions check otherwise, see below; 0.10.2.2 knows no upper bound
        yield verdict(module, data, base_offset), "check"
        for position in [0, 1, *(abs(slots["position"][::50].astype(int)) % 2**30).tolist()]:
            bound = module.fetch_upper_bound(data, base_offset, position, 99)
            yield shown(bound), "upper", position, 99


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", LAYOUTS)
def test_every_answer_is_that_of_the_broker(tmp_path, require_broker, version, kind):
    require_broker(version)
    requests, expected = [], []
    for number, data in enumerate(index_files(LAYOUTS[kind], seed=11)):
        base_offset = (0, 45, 2**40, 2**63 - 5)[number % 4]
        path = tmp_path / str(number)
        path.write_bytes(data)
        for answer, *question in questions(
            kind, data, base_offset, number, warm_section=version not in WITHOUT_WARM_SECTION
        ):
            requests.append((kind, path, base_offset, *question))
            expected.append(answer)
    answers = kafka_classes.ask(version, requests)
    compared = zip(requests, answers, expected, strict=True)
    wrong = [(request, theirs, ours) for request, theirs, ours in compared if theirs != ours]
    assert not wrong, (len(wrong), len(requests), wrong[:5])
    assert len(set(answers)) > 1000


@pytest.mark.parametrize("version", WITHOUT_WARM_SECTION)
def test_brokers_before_2_0_refuse_a_last_offset_equal_to_the_base_offset(
    tmp_path, require_broker, version
):
    require_broker(version)
    padded = tmp_path / "0.index"
    padded.write_bytes(offset_index.pack([(5, 100)], 0) + bytes(80))
    offset_index.check(padded.read_bytes(), 0)
    assert kafka_classes.ask(version, [("offset", padded, 0, "check")]) == ["refused"]


def entries_to_append(kind, base_offset, seed):
    """Entries as a segment gives them to its index, and some that it must refuse.

    A time index is not given offsets that it can't hold: it writes their timestamp before it looks.
    """
    random = np.random.default_rng(seed)
    first, furthest = (-1, 2**29) if kind == "offset" else (200, 90)
    offset, timestamp, position = base_offset + first, 1_700_000_000_000, 0
    for _ in range(60):
        offset += int(random.choice([1, 1, 1, 40, 40, 0, -3, furthest]))
        timestamp += int(random.choice([0, 1, 60_000, -1]))
        position += int(random.integers(1, 5000))
        if kind == "offset":
            yield offset, position
        else:
            yield timestamp, offset, int(random.integers(4) == 0)


def appended(kind, entries, base_offset, slots):
    """The result of appends by our rules: the bytes, and for each entry "." or "x"."""
    data, outcomes = b"", ""
    for entry in entries:
        try:
            if kind == "offset":
                index_growth.check_offset_append(
                    entry[0],
                    base_offset=base_offset,
                    last_offset=offset_index.last_entry(data, base_offset).offset,
                    entry_count=offset_index.entry_count(data),
                    max_entries=slots,
                )
                data += offset_index.pack([entry], base_offset)
            elif index_growth.may_append_timestamp(
                TimestampOffset(*entry[:2]),
                base_offset=base_offset,
                last_entry=time_index.last_entry(data, base_offset),
                entry_count=time_index.entry_count(data),
                max_entries=slots,
                skip_full_check=bool(entry[2]),
            ):
                data += time_index.pack([entry[:2]], base_offset)
        except (IndexFullError, OffsetOverflowError, OutOfOrderAppendError):
            outcomes += "x"
        else:
            outcomes += "."
    return data, outcomes


@pytest.mark.parametrize("version", ["2.4.0", "3.9.1", "4.3.1"])
@pytest.mark.parametrize("kind", LAYOUTS)
def test_a_broker_that_appends_the_same_entries_leaves_the_same_file(
    tmp_path, require_broker, version, kind
):
    """Closed, and as it is while the segment is active: with the space for more entries."""
    require_broker(version)
    entry_size = struct.calcsize(LAYOUTS[kind])
    requests, expected = [], []
    for number in range(120):
        base_offset, slots = (0, 45, 2**40)[number % 3], (2, 7, 20, 1000)[number % 4]
        closing = ("close", "flush")[number % 2]
        entries = list(entries_to_append(kind, base_offset, number))
        data, outcomes = appended(kind, entries, base_offset, slots)
        room = index_growth.preallocated_size(slots * entry_size + 3, entry_size)
        shown_entries = (" ".join(map(str, entry)) for entry in entries)
        path = tmp_path / f"{number}"
        requests.append(
            (kind, path, base_offset, "append", closing, slots * entry_size + 3, *shown_entries)
        )
        expected.append((outcomes, data if closing == "close" else data.ljust(room, b"\0")))
    answers = kafka_classes.ask(version, requests)
    for request, theirs, (outcomes, data) in zip(requests, answers, expected, strict=True):
        assert theirs == outcomes, request
        assert request[1].read_bytes() == data, request
    assert len(set(answers)) > 50


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", LAYOUTS)
def test_a_broker_opens_what_is_packed(tmp_path, require_broker, version, kind):
    require_broker(version)
    module = offset_index if kind == "offset" else time_index
    opening = OffsetIndex.open if kind == "offset" else TimeIndex.open
    requests, expected = [], []
    for number, count in enumerate((1, 2, 50, 1100)):
        base_offset = (0, 45, 2**40, 2**62)[number]
        slots = module.parse(sorted_entries(LAYOUTS[kind], count, number), base_offset)
        path = tmp_path / str(number)
        path.write_bytes(module.pack(slots, base_offset))
        keys = slots["offset" if kind == "offset" else "timestamp"]
        with opening(path, base_offset) as index:
            assert np.array_equal(index.entries(), slots)
            requests += [(kind, path, base_offset, name) for name in ("check", "count", "last")]
            last = index.last_entry
            last = shown(last) if kind == "time" else str(last.offset)
            expected += ["sound", str(count), last]
            for target in targets_near(keys, number).tolist():
                requests.append((kind, path, base_offset, "lookup", target))
                expected.append(shown(index.lookup(target)))
    assert kafka_classes.ask(version, requests) == expected


def aborted_transactions(count, seed):
    """Entries in the order that brokers write; transactions overlap."""
    random = np.random.default_rng(seed)
    last_offset, entries = 45, []
    for _ in range(count):
        last_offset += int(random.integers(1, 30))
        first_offset = max(0, last_offset - int(random.integers(1, 60)))
        last_stable_offset = last_offset - int(random.integers(-1, 20))
        producer_id = int(random.choice([0, 7, 2**62]))
        entries.append((producer_id, first_offset, last_offset, last_stable_offset))
    return entries


def transaction_index_files(seed):
    """Sound ones, empty ones, torn ones, unsorted and damaged ones; of version 0 throughout."""
    random = np.random.default_rng(seed)
    for count in (0, 1, 2, 3, 10, 40, 300):
        entries = aborted_transactions(count, seed + count)
        yield transaction_index.pack(entries)
        yield transaction_index.pack(entries) + bytes(int(random.integers(1, 34)))
        random.shuffle(entries)
        yield transaction_index.pack(entries)
        numbers = random.integers(-60, 120, (count, 4))
        yield transaction_index.pack([tuple(entry) for entry in numbers.tolist()])


def shown_transactions(entries):
    return " ".join(":".join(map(str, entry)) for entry in entries.tolist())


def questions_about_transactions(path, base_offset, random):
    """Yield queries about a file for both sides, with our answer: (answer, path, operation...)."""
    data = path.read_bytes()
    index = TransactionIndex.open(path, base_offset)
    yield shown_transactions(index.entries()), path, "all"
    if len(data) % transaction_index.ENTRY_SIZE == 0:  # brokers ignore a torn end
        yield verdict(transaction_index, data, base_offset), path, "check"
    for start, end in random.integers(-10, 400, (20, 2)).tolist():
        found = index.collect_aborted_txns(start, end)
        answer = f"{str(found.is_complete).lower()} {shown_transactions(found.aborted_txns)}"
        yield answer.strip(), path, "collect", start, end
    for offset in random.integers(-10, 400, 4).tolist():
        copy = path.with_name(f"{path.stem}-{offset}.txnindex")
        copy.write_bytes(data)
        yield str(index.truncate_to(offset)), copy, "truncate", offset


@pytest.mark.parametrize("version", WITH_TRANSACTIONS)
def test_every_answer_about_transactions_is_that_of_the_broker(tmp_path, require_broker, version):
    require_broker(version)
    random = np.random.default_rng(3)
    requests, expected = [], []
    for number, data in enumerate(transaction_index_files(seed=4)):
        base_offset = int(random.choice([0, 45, 80]))
        path = tmp_path / f"{number}.txnindex"
        path.write_bytes(data)
        for answer, file, *question in questions_about_transactions(path, base_offset, random):
            requests.append(("transaction", file, base_offset, *question))
            expected.append(answer)
    answers = kafka_classes.ask(version, requests)
    wrong = [
        (request, theirs, ours)
        for request, theirs, ours in zip(requests, answers, expected, strict=True)
        if theirs != ours
    ]
    assert not wrong, (len(wrong), wrong[:5])
    assert len(set(answers)) > 100


@pytest.mark.parametrize("version", WITH_TRANSACTIONS)
def test_a_broker_that_appends_the_same_transactions_leaves_the_same_file(
    tmp_path, require_broker, version
):
    require_broker(version)
    requests, expected = [], []
    for number in range(20):
        entries = aborted_transactions(30, number)
        entries[number] = entries[number - 1]  # refused: its last offset is not greater
        kept, outcomes = [], ""
        for entry in entries:
            try:
                transaction_index.check_append(entry[2], kept[-1][2] if kept else None)
            except OutOfOrderAppendError:
                outcomes += "x"
            else:
                outcomes += "."
                kept.append(entry)
        shown_entries = (" ".join(map(str, entry)) for entry in entries)
        path = tmp_path / f"{number}.txnindex"
        requests.append(("transaction", path, 45, "append", "close", 0, *shown_entries))
        expected.append((outcomes, transaction_index.pack(kept)))
    answers = kafka_classes.ask(version, requests)
    for request, theirs, (outcomes, data) in zip(requests, answers, expected, strict=True):
        assert theirs == outcomes
        assert request[1].read_bytes() == data


def test_transactions_of_another_version_are_refused_here_and_up_to_255_read_by_brokers(
    tmp_path, require_broker
):
    require_broker("4.3.1")
    data = transaction_index.pack([(7, 42, 49, 45)])
    requests = []
    for version in (1, 255, 256):
        path = tmp_path / f"{version}.txnindex"
        path.write_bytes(struct.pack(">h", version) + data[2:])
        requests.append(("transaction", path, 0, "all"))
        with pytest.raises(CorruptIndexError) as refused:
            TransactionIndex.open(path, 0).entries()
        assert refused.value.position == 0
    assert kafka_classes.ask("4.3.1", requests) == ["7:42:49:45", "7:42:49:45", "refused"]
