"""Record batches and message sets against Kafka's own classes: it writes and we read, and back.

What Kafka reads in some bytes, field by field, is compared as text: see ``KafkaRecords.java``.
"""

import random
import re
import struct
from collections import Counter

import pytest
from models.kafka_records import (
    VERSIONS,
    ask,
    building,
    can_be_built,
    hexed,
    in_a_row,
    random_batches,
    records_of,
    shown,
)
from models.record_format import (
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    Batch,
    Row,
    compress,
    emptied,
    message,
    with_right_crc,
)

import kafkastore
from kafkastore import (
    CorruptBatchError,
    KafkaStoreError,
    OffsetOverflowError,
    OutOfOrderAppendError,
    RecordBatch,
    UnsupportedFormatError,
)
from kafkastore.errors import DecompressionError
from kafkastore.formats.indexes.index_format import offset_index, time_index
from kafkastore.formats.records.compression import Codec
from kafkastore.formats.records.decompression import decompress
from kafkastore.formats.records.record_builder import build_batch, build_end_transaction_marker
from kafkastore.segment.log_file import LogFile
from kafkastore.segment.recovery import rebuild_indexes

pytestmark = pytest.mark.kafka


def build(version, batches):
    """Have Kafka write batches; return the bytes of each, and what it reads in them."""
    answers = ask(version, [building(batch) for batch in batches])
    assert not [answer for answer in answers if answer.startswith("refused")]
    split = [answer.partition("\t") for answer in answers]
    return [bytes.fromhex(data[1:]) for data, _, _ in split], [read for _, _, read in split]


@pytest.mark.parametrize("version", VERSIONS)
def test_batches_by_kafka_are_read_as_kafka_reads_them(require_broker, version):
    require_broker(version)
    written = [batch for batch in random_batches(1) if can_be_built(version, batch)]
    for batch, data, theirs in zip(written, *build(version, written), strict=True):
        found = [RecordBatch(data)]
        found[0].verify()
        assert shown(found, version) == theirs, batch
        assert records_of(found) == records_of([batch])
        if batch.codec == NONE:
            assert data == batch.data


@pytest.fixture
def log_directory(tmp_path):
    """A function that has Kafka put batches into a log directory, each after the one before."""

    def make(version, batches):
        path = tmp_path / "t-0" / f"{0:020}.log"
        path.parent.mkdir()
        written = ask(version, [("write file", path, *map(hexed, batches))])
        assert written == [str(sum(map(len, batches)))]
        return path

    return make


def rows_in(answer):
    """The records of an answer of the Java side, with the timestamps that Arrow has."""
    is_control = False
    for line in answer.split("\t"):
        fields = line.split(" ")
        if fields[0] == "batch":
            is_control = fields[14] == "true"
            continue
        micros = int(fields[1]) * 1000
        fields[1] = str(micros if micros < 2**63 else None)
        yield " ".join(fields[: 4 if is_control else None])


def rows_of(table):
    """The rows of a table as the Java side prints records."""
    at = table.schema.get_field_index("timestamp")
    table = table.set_column(at, "timestamp", table["timestamp"].cast("int64"))
    for row in table.to_pylist():
        fields = [row["offset"], row["timestamp"], hexed(row["key"]), hexed(row["value"])]
        for header in row["headers"] or ():
            fields += [hexed(header["key"].encode()), hexed(header["value"])]
        yield " ".join(map(str, fields))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_file_that_kafka_writes_is_read_as_kafka_reads_it(require_broker, log_directory, version):
    require_broker(version)
    batches = in_a_row(batch for batch in random_batches(2) if can_be_built(version, batch))
    path = log_directory(version, build(version, batches)[0])
    (theirs,) = ask(version, [("read file", path, True)])
    with LogFile(path) as log:
        assert shown(log.batches(), version) == theirs
    (partition,) = kafkastore.open(path.parent).partitions.values()
    columns = ["offset", "timestamp", "key", "value", "headers"]
    table = partition.to_arrow(columns, include_control=True).read_all()
    assert list(rows_of(table)) == list(rows_in(theirs))


def built_here(batch):
    """The same batch as our own builder writes it."""
    if batch.is_control and batch.append_time is None:
        (row,) = batch.rows
        return build_end_transaction_marker(
            row.offset,
            row.timestamp,
            batch.producer_id,
            batch.producer_epoch,
            is_commit=bool(row.key[3]),
            coordinator_epoch=struct.unpack(">hi", row.value)[1],
            leader_epoch=batch.leader_epoch,
        )
    fields = {
        "magic": batch.magic,
        "codec": Codec(batch.codec),
        "log_append_time": batch.append_time,
    }
    if batch.magic == 2:
        fields |= {
            "base_offset": batch.base_offset,
            "last_offset": batch.last_offset,
            "leader_epoch": batch.leader_epoch,
            "producer_id": batch.producer_id,
            "producer_epoch": batch.producer_epoch,
            "base_sequence": batch.base_sequence,
            "is_transactional": batch.is_transactional,
            "is_control": batch.is_control,
            "delete_horizon_ms": batch.delete_horizon,
        }
    if not batch.rows:
        fields["max_timestamp"] = batch.max_timestamp
    return build_batch(batch.rows, **fields)


def without_compression(data):
    """The fields of a batch that describe its contents, and its records decompressed."""
    batch = RecordBatch(data)
    at = (26, 34, 61)[batch.magic]
    head = bytearray(data[:at])
    head[8:12] = bytes(4)  # the length
    crc_at = 17 if batch.magic == 2 else 12
    head[crc_at : crc_at + 4] = bytes(4)
    if batch.magic < 2:
        del head[at - 4 :]  # the length of the value
    records = data[at:]
    if batch.codec != NONE:
        records = decompress(batch.codec, records, magic=batch.magic)
    return bytes(head), records


@pytest.mark.parametrize("version", VERSIONS)
def test_kafka_reads_what_we_write_and_writes_the_same(require_broker, version):
    require_broker(version)
    batches = [batch for batch in random_batches(3) if can_be_built(version, batch)]
    written = [built_here(batch) for batch in batches]
    theirs = ask(version, [("read", hexed(data), True) for data in written])
    for batch, data, read in zip(batches, written, theirs, strict=True):
        found = [RecordBatch(data)]
        assert read == shown(found, version), batch
        assert records_of(found) == records_of([batch])
    for batch, here, there in zip(batches, written, build(version, batches)[0], strict=True):
        assert without_compression(here) == without_compression(there), batch
        assert here == there or batch.codec != NONE


def near_timestamp(chance):
    """So near each other that targets hit and miss by one."""
    return chance.choice([-1, *range(40), 10**6])


@pytest.mark.parametrize("version", VERSIONS)
def test_kafka_finds_what_we_find_in_a_file_that_we_write(require_broker, tmp_path, version):
    require_broker(version)
    path = tmp_path / f"{0:020}.log"
    batches = random_batches(4, timestamp=near_timestamp)
    batches = in_a_row(batch for batch in batches if len(batch.data) < 3000)
    written = [built_here(batch) for batch in batches]
    path.write_bytes(b"".join(written))
    positions = [sum(map(len, written[:number])) for number in range(len(written) + 1)]
    chance, end = random.Random(5), batches[-1].last_offset
    requests, expected = [("read file", path, True)], []
    with LogFile(path) as log:
        expected.append(shown(log.batches(), version))
        for _ in range(300):
            target, position = chance.randrange(-2, end + 3), chance.choice(positions)
            if chance.randrange(3):
                position = chance.choice(positions[:9])
            found = log.search_for_offset(target, position)
            requests.append(("search offset", path, target, position))
            expected.append("none" if found is None else f"{found.position} {found.size}")
            target = near_timestamp(chance) if chance.randrange(9) else 10**6 + 1
            start = chance.randrange(-1, end)
            found = log.search_for_timestamp(target, position, start)
            requests.append(("search timestamp", path, target, position, start))
            expected.append("none" if found is None else " ".join(map(str, found)))
    answers = ask(version, requests)
    wrong = [
        (request, theirs[:300], ours[:300])
        for request, theirs, ours in zip(requests, answers, expected, strict=True)
        if theirs != ours
    ]
    assert not wrong, (len(wrong), wrong[:5])
    assert 10 < expected.count("none") < 300
    assert len(set(expected)) > 60


def damaged(data, chance):
    """Flip bits, cut bytes, put some in or take some out."""
    data = bytearray(data)
    for _ in range(chance.choice([1, 1, 1, 2, 5])):
        if not data:
            break
        at = chance.randrange(len(data))
        kind = chance.randrange(12)
        if kind == 0:
            del data[at:]
            break
        if kind == 1:
            del data[at : at + chance.randint(1, 9)]
        elif kind == 2:
            data[at:at] = chance.randbytes(chance.randint(1, 9))
        elif kind == 3:
            data[at : at + 4] = chance.choice([bytes(4), b"\xff" * 4, b"\x7f\xff\xff\xff"])
        else:
            data[at] ^= 1 << chance.randrange(8)
    return bytes(data)


def small_batches(seed):
    """A few of every magic and codec, with little in them."""
    return [batch for batch in random_batches(seed, each=30) if len(batch.data) < 400]


def without_damaged_epochs(answer):
    """The checksum does not cover the leader epoch; here any value below 0 means none."""
    return re.sub(r"(batch(?: \S+){8}) -\d+", r"\1 -1", answer)


def seen(path, version):
    """Our reading of a file in the format of the Java side, and the error that ended it."""
    lines, refused = [], None
    with LogFile(path) as log:
        try:
            for batch in log.batches():
                batch.verify()
                lines.append(shown([batch], version))
        except KafkaStoreError as error:
            refused = error
    return "\t".join(lines), refused


@pytest.mark.parametrize("version", VERSIONS)
def test_corrupt_files_end_for_us_where_they_end_for_kafka(require_broker, tmp_path, version):
    """But for a magic above 2, which is in no checksum: Kafka reads files as if it was 2."""
    require_broker(version)
    chance, batches, requests = random.Random(6), small_batches(7), []
    for number in range(500):
        path = tmp_path / f"{number}.log"
        chosen = in_a_row(chance.choices(batches, k=3))
        path.write_bytes(damaged(b"".join(batch.data for batch in chosen), chance))
        requests.append(("read file", path, True))
    outcomes = Counter()
    for (_, path, _), answer in zip(requests, ask(version, requests), strict=True):
        theirs, _, refused = answer.partition("refused ")
        theirs = without_damaged_epochs(theirs.rstrip("\t"))
        ours, error = seen(path, version)
        if isinstance(error, UnsupportedFormatError) and path.read_bytes()[error.position + 16] > 2:
            assert theirs.startswith(ours)
        else:
            assert ours == theirs, path
            assert (error is not None) == bool(refused), (path, refused)
        outcomes[refused or "read to its end"] += 1
    assert min(outcomes[name] for name in ("CorruptRecordException", "read to its end")) > 50


def repacked(batch, records):
    """A batch of other records, compressed as its own were, with the right length and checksum."""
    data, at = batch.data, (26, 34, 61)[batch.magic]
    if batch.codec:
        records = compress(batch.codec, records, magic=batch.magic)
    if batch.magic < 2:
        at, records = at - 4, struct.pack(">i", len(records)) + records
    return measured(data[:at] + records)


def measured(data):
    """The bytes of a batch with the length and the checksum that fit them."""
    return with_right_crc(data[:8] + struct.pack(">i", len(data) - 12) + data[12:])


def damaged_within(batch, chance):
    """A batch damaged after its magic or in its records, with the right length and checksum."""
    data = batch.data
    if chance.randrange(2) and (batch.magic == 2 or batch.codec):
        records = without_compression(data)[1]
        return repacked(batch, damaged(records, chance)) if records else data
    at = 21 if batch.magic == 2 else 17
    data = measured(data[:at] + damaged(data[at:], chance))
    return data if len(data) >= (26, 34, 61)[batch.magic] else batch.data


WRAPPER = Batch((Row(5, 7, b"k", b"v"), Row(6, 8)), magic=1, codec=GZIP)
INNER = without_compression(WRAPPER.data)[1]
TOO_LARGE_A_VARINT = b"\x80\x80\x80\x80\x20"  # 2 ** 32

#: Odd batches that Kafka reads, and how we refuse them; None where we read the same.
ODD_BATCHES = {
    "a record's null value of length -2": (
        measured(Batch((Row(0, 5),)).data[:-2] + b"\x03\0"),
        None,
    ),
    "a number of more bytes than it needs": (
        measured(Batch((Row(0, 5),)).data[:61] + b"\x0e\0\0\x80\0\x01\x01\0"),
        None,
    ),
    "bytes after a message's value": (
        measured(message(1, 5, 7, b"k", b"v") + b"more"),
        None,
    ),
    "a message's null key of length -2": (
        measured(message(1, 5, 7, None, b"v")[:26] + b"\xff\xff\xff\xfe\0\0\0\x01v"),
        None,
    ),
    "a message's null value of length -2": (
        measured(message(1, 5, 7, b"k", None)[:-1] + b"\xfe"),
        None,
    ),
    "a wrapper's null key of length -2": (
        measured(WRAPPER.data[:26] + b"\xff\xff\xff\xfe" + WRAPPER.data[30:]),
        None,
    ),
    "a few bytes of a frame at the end of a wrapper's messages": (
        repacked(WRAPPER, INNER + INNER[:11]),
        None,
    ),
    "half a message at the end of a wrapper's messages": (
        repacked(WRAPPER, INNER + INNER[:20]),
        None,
    ),
    "a message of magic 7 in a wrapper": (
        repacked(WRAPPER, INNER[:16] + b"\x07" + INNER[17:]),
        "a message in a set has a magic above 1",
    ),
    "bytes in a batch of no records": (
        measured(emptied(3, 9, 5).data + b"left over"),
        "bytes follow the last record",
    ),
    "a number of more bits than its field, of which Kafka drops the highest": (
        measured(Batch((Row(0, 5),)).data[:61] + b"\x14\0\0" + TOO_LARGE_A_VARINT + b"\x01\x01\0"),
        "a record's key runs past its end",
    ),
    "an end of lz4's blocks with the flag of a stored block": (
        measured(Batch((Row(0, 5),), codec=LZ4).data[:-1] + b"\x80"),
        "lz4 records can't be decompressed",
    ),
    "two bytes after snappy's blocks": (
        measured(Batch((Row(0, 5),), codec=SNAPPY).data + b"\0\0"),
        "snappy records can't be decompressed",
    ),
}


@pytest.mark.parametrize("version", VERSIONS)
def test_odd_batches_that_kafka_reads_are_read_or_known_to_be_refused(require_broker, version):
    require_broker(version)
    written = [data for data, _ in ODD_BATCHES.values()]
    answers = ask(version, [("read", hexed(data), True) for data in written])
    for (name, (data, reason)), theirs in zip(ODD_BATCHES.items(), answers, strict=True):
        assert "refused" not in theirs, name
        if reason is None:
            assert shown([RecordBatch(data)], version) == theirs
            continue
        with pytest.raises(CorruptBatchError) as refused:
            RecordBatch(data).records()
        assert kind_of(refused.value) == reason


@pytest.mark.parametrize("version", VERSIONS)
def test_damage_that_the_checksum_does_not_show_is_read_as_kafka_reads_it(require_broker, version):
    require_broker(version)
    chance, batches = random.Random(8), small_batches(9)
    written = [damaged_within(chance.choice(batches), chance) for _ in range(2500)]
    answers = ask(version, [("read", hexed(data), True) for data in written])
    outcomes, stricter = Counter(), set()
    for data, theirs in zip(written, answers, strict=True):
        try:
            ours = shown([RecordBatch(data)], version)
        except KafkaStoreError as error:
            outcomes["refused by us"] += 1
            if not theirs.startswith("refused"):
                stricter.add(kind_of(error))
            continue
        outcomes["read by us"] += 1
        if theirs != "refused OutOfMemoryError":  # Kafka makes room for a length before it reads
            assert ours == theirs, data.hex()
    assert stricter
    assert stricter <= {reason for _, reason in ODD_BATCHES.values()}
    assert min(outcomes.values()) > 500


def test_a_zstd_frame_without_its_end_is_refused(require_broker):
    require_broker("4.3.1")
    batch = Batch((Row(0, 5, b"k", b"v"),), codec=ZSTD)
    data = bytearray(batch.data)
    assert data[61:65] == bytes.fromhex("28b52ffd")
    data[65] |= 4  # the frame says that a checksum follows
    data = measured(bytes(data))
    assert ask("4.3.1", [("read", hexed(data), True)]) == ["refused KafkaException"]
    with pytest.raises(DecompressionError):
        RecordBatch(data).records()


def kind_of(error):
    """The reason of an error, without its numbers."""
    return re.split("[,(]", error.reason)[0].strip()


def is_in_disorder(rebuilt):
    """Whether offsets decrease, so that a broker fails: its index refuses such an entry."""
    return (
        offset_index.first_disorder(rebuilt.offset_index, 0) >= 0
        or time_index.first_disorder(rebuilt.time_index, 0) >= 0
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_recovering_broker_cuts_and_indexes_as_foreseen(require_broker, tmp_path, version):
    """By its class of one segment. A batch whose magic was made larger than 2 is kept by it."""
    require_broker(version)
    chance, requests, foreseen = random.Random(12), [], []
    batches = [
        batch for batch in small_batches(13) if batch.producer_id < 0 and not batch.is_control
    ]
    for number in range(300):
        path = tmp_path / str(number) / f"{0:020}.log"
        path.parent.mkdir()
        chosen = in_a_row(chance.choices(batches, k=chance.randrange(1, 9)))
        data = b"".join(batch.data for batch in chosen)
        kind = chance.randrange(5)
        if kind == 0:  # a base offset, which is in no checksum
            at = sum(len(batch.data) for batch in chosen[: chance.randrange(len(chosen))])
            offset = chance.choice([0, 1, 40, 2**31 - 1, 2**31, 2**40])
            data = data[:at] + struct.pack(">q", offset) + data[at + 8 :]
        path.write_bytes(damaged(data, chance) if kind > 1 else data)
        interval = chance.choice([0, 100, 500])
        requests.append(("recover", path.parent, 0, interval))
        try:
            foreseen.append(rebuild_indexes(path, 0, index_interval_bytes=interval))
        except (OffsetOverflowError, OutOfOrderAppendError):
            foreseen.append(None)
    sizes = [next(directory.glob("*.log")).stat().st_size for _, directory, *_ in requests]
    outcomes = Counter()
    for request, answer, size, ours in zip(
        requests, ask(version, requests), sizes, foreseen, strict=True
    ):
        if answer == "refused InvalidOffsetException":
            assert ours is None or is_in_disorder(ours), request
            outcomes["in disorder"] += 1
            continue
        if ours is None or answer.startswith("refused"):
            assert (ours, answer) == (None, "refused LogSegmentOffsetOverflowException"), request
            outcomes["too far"] += 1
            continue
        files = {path.suffix: path.read_bytes() for path in request[1].iterdir()}
        kept = files[".log"][ours.valid_bytes :]
        if kept and kept[16] > 2:  # the magic
            continue
        assert answer == str(size - ours.valid_bytes), request
        assert len(files[".log"]) == ours.valid_bytes
        assert files[".index"] == ours.offset_index
        assert files[".timeindex"] == ours.time_index
        outcomes["cut" if answer != "0" else "kept"] += 1
    assert min(outcomes[name] for name in ("in disorder", "too far", "cut", "kept")) > 3, outcomes
