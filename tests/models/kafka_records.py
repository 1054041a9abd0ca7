"""Random batches, the requests to have Kafka write them, and results in Kafka's form.

The Java side is ``KafkaRecords.java``; its texts are compared as they are.
"""

import random
import struct
from dataclasses import replace
from functools import partial

from models import kafka_classes
from models.record_format import CODECS_OF, NONE, Batch, Row, emptied, marker

from kafkastore.formats.records.control_records import ControlRecordType, parse_control_record

VERSIONS = ["2.4.0", "3.9.1", "4.3.1"]
WITHOUT_DELETE_HORIZON = ["2.4.0"]
WITHOUT_KRAFT = ["2.4.0"]
NOW = 1_700_000_000_000

ask = partial(kafka_classes.ask, program="KafkaRecords")


def random_bytes(chance):
    """Null, empty, small or large."""
    kind = chance.randrange(40)
    if kind < 8:
        return None
    if kind < 12:
        return b""
    if kind == 39:
        return bytes(chance.choices(b"ab", k=40_000))
    return chance.randbytes(chance.randint(1, 100 if kind < 38 else 3000))


def random_headers(chance):
    """Mostly none; names of any text."""
    names = ["", "trace", "\u00e9\u2192\U0001f642", "n" * 200]
    count = chance.choice([0, 0, 0, 1, 2, 9])
    return tuple((chance.choice(names), random_bytes(chance)) for _ in range(count))


def random_timestamp(chance):
    """Timestamps that a builder accepts: not negative, or -1."""
    kinds = [0, -1, chance.randrange(50), NOW + chance.randrange(10**6), 2**33, 2**62, 2**63 - 1]
    return chance.choices(kinds, [1, 2, 4, 8, 1, 1, 1])[0]


def random_batch(chance, *, magic, codec, timestamp=random_timestamp):
    """A batch as a broker may have got or made it, from some offset on."""
    offset = chance.choice([0, 0, 1, 4711, 2**31 + 5, 2**53])
    append_time = timestamp(chance) if magic and chance.randrange(3) == 0 else None
    rows = []
    for _ in range(1 if magic < 2 and codec == NONE else chance.choice([1, 2, 3, 30])):
        row = Row(offset, timestamp(chance) if magic else -1)
        row = row._replace(key=random_bytes(chance), value=random_bytes(chance))
        rows.append(row if magic < 2 else row._replace(headers=random_headers(chance)))
        offset += chance.choice([1, 1, 1, 2, 1000])
    batch = Batch(tuple(rows), magic=magic, codec=codec, append_time=append_time, leader_epoch=-1)
    if magic < 2:
        return batch
    batch = replace(batch, leader_epoch=chance.choice([-1, 0, 7, 2**31 - 1]))
    kind = chance.randrange(6)
    if kind == 0:
        kind = chance.choice([marker, emptied])
        base = batch.base_offset
        fields = {"append_time": append_time, "leader_epoch": batch.leader_epoch}
        if kind is emptied:
            return emptied(base, base + chance.randrange(50), timestamp(chance), **fields)
        made = marker(base, timestamp(chance), is_commit=chance.random() < 0.5, **fields)
        value = struct.pack(">hi", 0, chance.randrange(2**31))
        return replace(made, rows=(made.rows[0]._replace(value=value),))
    if kind == 1:  # the first and the last record are removed
        first = batch.base_offset - chance.randrange(min(batch.base_offset, 9) + 1)
        last = batch.last_offset + chance.randrange(9)
        batch = replace(batch, first_offset=first, last_offset_kept=last)
    if kind in (1, 2):
        batch = replace(
            batch,
            producer_id=chance.choice([0, 2**62]),
            producer_epoch=chance.choice([0, 9]),
            base_sequence=chance.choice([0, 2**31 - 1]),
            is_transactional=chance.random() < 0.5,
        )
    if kind == 3 and batch.rows:
        batch = replace(batch, delete_horizon=NOW + chance.randrange(10**6))
    return batch


def random_batches(seed, each=12, **options):
    """A number of batches of every magic and codec."""
    chance = random.Random(seed)
    kinds = [(magic, codec) for magic, codecs in CODECS_OF.items() for codec in codecs]
    made = [
        random_batch(chance, magic=magic, codec=codec, **options)
        for magic, codec in kinds
        for _ in range(each)
    ]
    chance.shuffle(made)
    return made


def in_a_row(batches):
    """Batches, each moved after the one before."""
    moved, offset = [], 0
    for batch in batches:
        moved.append(batch.with_offset(offset))
        offset = moved[-1].last_offset + 1
    return moved


def hexed(data):
    return "-" if data is None else f"x{data.hex()}"


def timestamp_type(batch):
    return "CreateTime" if batch.append_time is None else "LogAppendTime"


def building(batch):
    """The request that has Kafka write a batch."""
    end = (batch.leader_epoch, batch.producer_id, batch.producer_epoch, batch.base_sequence)
    flags = (batch.is_transactional, batch.is_control)
    if not batch.rows:
        offsets = (batch.base_offset, batch.last_offset)
        return ("empty", timestamp_type(batch), batch.max_timestamp, *offsets, *end, *flags)
    kept = "-" if batch.last_offset_kept is None else batch.last_offset
    horizon = "-" if batch.delete_horizon is None else batch.delete_horizon
    append_time = -1 if batch.append_time is None else batch.append_time
    request = ["build", batch.magic, batch.codec, timestamp_type(batch), append_time]
    request += [batch.base_offset, kept, *end, *flags, horizon]
    for row in batch.rows:
        request += [row.offset, row.timestamp]
        if batch.is_control:
            request += ["COMMIT" if row.key[3] else "ABORT", struct.unpack(">hi", row.value)[1]]
            continue
        request += [hexed(row.key), hexed(row.value), len(row.headers)]
        for name, value in row.headers:
            request += [hexed(name.encode()), hexed(value)]
    return request


def can_be_built(version, batch):
    return batch.delete_horizon is None or version not in WITHOUT_DELETE_HORIZON


def shown_record(record, control_types=None):
    """One record as the Java side prints it; of a control batch where types are given."""
    fields = [record.offset, record.timestamp, hexed(record.key), hexed(record.value)]
    for name, value in record.headers:
        # Java has a replacement character for what is not UTF-8.
        text = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        fields += [hexed(text.encode()), hexed(value)]
    if control_types is not None:
        parsed = parse_control_record(record)
        fields += [parsed.type.name if parsed.type in control_types else "UNKNOWN"]
        fields += [] if parsed.coordinator_epoch is None else [parsed.coordinator_epoch]
    return " ".join(map(str, fields))


def shown(batches, version):
    """All batches and records, as the Java side prints them."""
    lines = []
    for batch in batches:
        horizon = "-" if batch.delete_horizon_ms is None else batch.delete_horizon_ms
        epoch = -1 if batch.leader_epoch is None else batch.leader_epoch
        flags = (str(batch.is_transactional).lower(), str(batch.is_control).lower())
        fields = ["batch", batch.base_offset, batch.last_offset, batch.last_offset + 1, batch.size]
        fields += [batch.magic, int(batch.codec), int(batch.timestamp_type), batch.max_timestamp]
        fields += [epoch, batch.producer_id, batch.producer_epoch, batch.base_sequence, *flags]
        fields += [batch.count if batch.magic == 2 else "-"]
        fields += ["?" if version in WITHOUT_DELETE_HORIZON else horizon, batch.crc]
        lines.append(" ".join(map(str, fields)))
        types = None
        if batch.is_control:
            types = list(ControlRecordType)[: 2 if version in WITHOUT_KRAFT else None]
        lines += [shown_record(record, types) for record in batch.records()]
    return "\t".join(lines)


def records_of(batches):
    """Offset, timestamp, key, value and headers: what was written, or what was read of it."""
    return [
        [(*record[:2], *record[3:6]) for record in found]
        for found in (
            batch.records if isinstance(batch, Batch) else batch.records() for batch in batches
        )
    ]
