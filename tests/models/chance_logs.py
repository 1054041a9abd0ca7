"""Random logs by one seed for real brokers to load: larger than those of hypothesis, and as odd.

The seed determines the logs: every choice is made by `random.Random`.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

from models.log_directory import Log, Segment
from models.record_format import CODECS_OF, NONE, SNAPPY, Batch, Row, emptied, marker
from models.segment_indexes import (
    offset_entries_of,
    pack_offset_entries,
    pack_time_entries,
    time_entries_of,
)

from kafkastore.formats.state import producer_snapshot

NOW = 1_500_000_000_000
ODD_TIMESTAMPS = (-1, 0, -2, -7, 2**31, 2**40, 253_402_300_800_000, 2**62, 2**63 - 1, -(2**63))
TOPIC = "chance"
MAGICS = ((2,), (2,), (2,), (1,), (0,), (0, 1), (1, 2), (0, 1, 2))
SEGMENT_COUNTS = (2, 3, 3, 4, 5, 7, 11, 30)


class _Clock:
    """The timestamps of one log: one kind of clock, now and then an odd timestamp."""

    def __init__(self, chance):
        self.chance = chance
        self.kind = chance.choice(("rising", "rising", "late ones", "near", "equal", "any"))
        self.odd = chance.choice((0, 0, 0.02, 0.2))
        self.time = chance.choice((0, 1, 50, NOW, NOW))

    def __call__(self):
        chance = self.chance
        if chance.random() < self.odd:
            return chance.choice(ODD_TIMESTAMPS)
        match self.kind:
            case "rising":
                self.time += chance.choice((0, 1, 1, 2, 30))
            case "late ones":
                self.time += chance.choice((1, 2, 5))
                return max(-1, self.time - chance.choice((0, 0, 0, 3, 20, 500)))
            case "near":
                return self.time + chance.randrange(40)
            case "any":
                return self.time + chance.randrange(-self.time, 10**6)
        return self.time


class _Producers:
    """Producers of batches of magic 2, and their open transactions."""

    def __init__(self, chance):
        self.chance = chance
        self.ids = chance.choice(((-1,), (-1, 1, 2), (1, 2, 3), (-1, 2, 3)))
        self.sequences = {1: 0, 2: 0, 3: 0}
        self.begun = {}
        self.last = {}

    def fields(self, size, offset):
        """For a batch of a number of offsets; 1 is idempotent, 2 and 3 are transactional."""
        producer_id = self.chance.choice(self.ids)
        if producer_id < 0:
            return {}
        sequence = self.sequences[producer_id]
        self.sequences[producer_id] += size
        if producer_id > 1:
            self.begun.setdefault(producer_id, offset)
        last_offset = offset + size - 1
        self.last[producer_id] = (sequence + size - 1, last_offset, size - 1)
        return {
            "producer_id": producer_id,
            "producer_epoch": 0,
            "base_sequence": sequence,
            "is_transactional": producer_id > 1,
        }

    def end_one(self, offset, timestamp, **fields):
        """End a transaction that is open."""
        producer_id = self.chance.choice(sorted(self.begun))
        del self.begun[producer_id]
        is_commit = self.chance.random() < 0.5
        return marker(offset, timestamp, is_commit=is_commit, producer_id=producer_id, **fields)

    def snapshot(self):
        """The producer snapshot that a broker writes when it stops."""
        return producer_snapshot.pack(
            [
                (each, 0, *last, NOW, 0 if each > 1 else -1, self.begun.get(each, -1))
                for each, last in self.last.items()
                if each in self.begun
            ]
        )


class _Writer:
    """Writes one log batch by batch, with rising offsets."""

    def __init__(self, chance):
        self.chance = chance
        self.clock = _Clock(chance)
        self.producers = _Producers(chance)
        self.codecs = chance.choice(((NONE,), (NONE,), None))
        self.append_times = chance.choice((0, 0, 0, 0.3, 1))
        self.gaps = chance.choice((0, 0, 0.3))
        self.emptied = chance.choice((0, 0, 0.15))
        self.epoch, self.most_epochs = chance.choice(((0, 0), (0, 0), (-1, -1), (0, 9)))
        self.offset = chance.choice((0, 0, 0, 100, 2**31 - 10, 2**40))

    def batch(self, magic):
        """The next batch, which begins at `offset` or after a gap."""
        chance = self.chance
        if chance.random() < self.gaps:
            self.offset += chance.randrange(1, 9)
        codecs = self.codecs or tuple(CODECS_OF[magic])
        fields = {"magic": magic, "codec": chance.choice(codecs)}
        if fields["codec"] == SNAPPY:
            fields["is_raw_snappy"] = chance.random() < 0.5
        if magic and chance.random() < self.append_times:
            fields["append_time"] = max(self.clock(), 0)
        found = self._record_batch(fields) if magic == 2 else self._message_set(fields)
        self.offset = found.last_offset + 1
        return found

    def _rows(self, count):
        rows, offset = [], self.offset
        for _ in range(count):
            value = bytes([self.chance.randrange(256)]) * self.chance.randrange(50)
            rows.append(Row(offset, self.clock(), b"k", value))
            offset += 1
            if self.chance.random() < self.gaps / 2:
                offset += self.chance.randrange(1, 4)
        return tuple(rows)

    def _message_set(self, fields):
        count = 1 if fields["codec"] == NONE else self.chance.randrange(1, 6)
        if fields["codec"] != NONE and fields["magic"] == 1 and self.chance.random() < 0.05:
            fields["inner_magic"] = 0
        return Batch(self._rows(count), **fields)

    def _record_batch(self, fields):
        chance = self.chance
        if chance.random() < 0.1 and self.epoch < self.most_epochs:
            self.epoch += chance.randrange(1, 3)
        fields["leader_epoch"] = self.epoch
        if self.producers.begun and chance.random() < 0.25:
            fields.pop("codec")
            fields.pop("is_raw_snappy", None)
            return self.producers.end_one(self.offset, self.clock(), **fields)
        if chance.random() < self.emptied:
            del fields["codec"]     # compaction leaves none
            fields.pop("is_raw_snappy", None)
            size = chance.randrange(1, 6)
            last_offset = self.offset + size - 1
            fields |= self.producers.fields(size, self.offset)
            return emptied(self.offset, last_offset, self.clock(), **fields)
        rows = self._rows(chance.randrange(1, 6))
        if chance.random() < self.gaps:     # compaction keeps the first and the last offset
            fields["first_offset"] = self.offset
            rows = tuple(row._replace(offset=row.offset + 2) for row in rows)
            fields["last_offset_kept"] = rows[-1].offset + chance.randrange(3)
        last_offset = fields.get("last_offset_kept", rows[-1].offset)
        fields |= self.producers.fields(last_offset - self.offset + 1, self.offset)
        return Batch(rows, **fields)


def chance_log(chance, *, is_clean):
    """A log of 2 to 30 segments, and the producer snapshot at its end or None.

    Of the active segment the offset index is right: brokers find the log's end by it.
    """
    writer = _Writer(chance)
    magics = chance.choice(MAGICS)
    count = chance.choice(SEGMENT_COUNTS)
    damage = chance.choice((0, 0.2, 0.6))
    segments = []
    for number in range(count):
        magic = magics[number * len(magics) // count]
        base_offset = writer.offset
        batches = [writer.batch(magic) for _ in range(chance.choice((1, 2, 4, 8, 12)))]
        if chance.random() < 0.03 and number:
            batches = []
            writer.offset += 1
        segment = Segment(base_offset, tuple(batches), modified_ms=_modified_ms(chance, batches))
        segments.append(_indexed(chance, segment, damage, is_active=number == count - 1))
    first, end = segments[0].base_offset, segments[-1].base_offset
    if segments[-1].batches:
        end = writer.offset
    start = point = None
    if chance.random() < 0.4:
        start = chance.randrange(first, end + 1)
    if not is_clean and chance.random() < 0.7:
        point = chance.randrange(first, end + 1)
    log = Log(tuple(segments), is_clean, start, point)
    has_snapshot = segments[-1].batches and chance.random() < (0.7 if is_clean else 0.3)
    return log, writer.producers.snapshot() if has_snapshot else None


def _modified_ms(chance, batches):
    """Before, at, within and after the segment's times; files of 1970 are never in the future."""
    times = [batch.max_timestamp for batch in batches if 0 < batch.max_timestamp < 2**41]
    near = chance.choice([*times, NOW, 5]) + chance.choice((-50, -1, 0, 0, 1, 700))
    return max(near, 1)


def _indexed(chance, segment, damage, *, is_active):
    """The segment with indexes as leaders, followers and recoveries of each version leave them."""
    if chance.random() < 0.25:
        segment = segment.recovered(chance.choice((0, 60, 200, 4096)))
    else:
        segment = segment.indexed(
            interval=chance.choice((0, 60, 150, 400, 4096)),
            batches_a_set=chance.choice((1, 1, 2, 3)),
            is_exact=chance.random() < 0.5,
            stores_first_offset=chance.random() < 0.3,
            is_closed=chance.random() < 0.9,
        )
    if chance.random() < damage:
        segment = chance.choice(_TIME_INDEX_DAMAGES)(chance, segment)
    if chance.random() < damage and not is_active:
        segment = chance.choice(_OFFSET_INDEX_DAMAGES)(chance, segment)
    return segment


def _with_time_entries(change, chance, segment):
    entries = time_entries_of(segment.time_index, segment.base_offset)
    entries = change(chance, segment, entries)
    return replace(segment, time_index=pack_time_entries(entries, segment.base_offset))


def _last_entry_moved(chance, segment, entries):
    if not entries:
        return [(chance.choice((0, 7, NOW)), segment.base_offset)]
    by = chance.choice((-1000, -1, 1, 1000))
    time = min(max(entries[-1][0] + by, 0), 2**63 - 1)
    return [*entries[:-1], (time, entries[-1][1])]


def _shuffled(chance, segment, entries):
    return chance.sample(entries, len(entries))


def _offsets_moved(chance, segment, entries):
    """Entries that point after or before their record."""
    by = chance.choice((-3, 1, 2, 10))
    return [(key, max(offset + by, segment.base_offset)) for key, offset in entries]


def _without_last_entry(chance, segment, entries):
    return entries[:-1]


def _padded(name, size, chance, segment):
    data = getattr(segment, name)
    return replace(segment, **{name: data + bytes(size * chance.choice((1, 2, 30, 1000)))})


def _with(name, data, chance, segment):
    return replace(segment, **{name: data})


def _with_odd_bytes(name, chance, segment):
    data = getattr(segment, name)
    return replace(segment, **{name: data + bytes([0, 1, 2, 3][: chance.randrange(1, 5)])})


def _rebuilt(chance, segment):
    return segment.indexed(interval=60, from_batch=chance.randrange(len(segment.batches) + 1))


_TIME_INDEX_DAMAGES = (
    partial(_with, "time_index", None),
    partial(_with, "time_index", b""),
    partial(_with, "time_index", bytes(120)),
    partial(_padded, "time_index", 12),
    partial(_padded, "time_index", 12),
    partial(_with_odd_bytes, "time_index"),
    partial(_with_time_entries, _last_entry_moved),
    partial(_with_time_entries, _shuffled),
    partial(_with_time_entries, _offsets_moved),
    partial(_with_time_entries, _without_last_entry),
    _rebuilt,
)


def _with_offset_entries(change, chance, segment):
    entries = offset_entries_of(segment.offset_index, segment.base_offset)
    entries = change(chance, segment, entries)
    return replace(segment, offset_index=pack_offset_entries(entries, segment.base_offset))


def _led_astray(chance, segment, entries):
    """Entries of other batches, or of none: past the end of the log."""
    positions = [at for at, _ in segment.placed] + [len(segment.log), len(segment.log) + 500]
    return [
        (offset, chance.choice(positions) if chance.random() < 0.3 else at)
        for offset, at in entries
    ]


_OFFSET_INDEX_DAMAGES = (
    partial(_with, "offset_index", None),
    partial(_with, "offset_index", b""),
    partial(_padded, "offset_index", 8),
    partial(_with_odd_bytes, "offset_index"),
    partial(_with_offset_entries, _shuffled),
    partial(_with_offset_entries, _without_last_entry),
    partial(_with_offset_entries, _led_astray),
)


def write_chance_logs(root, seed, count, *, is_clean):
    """Write a log directory of a number of partitions of `TOPIC`; return its logs by partition."""
    root.mkdir(parents=True)
    (root / "meta.properties").write_text("version=0\nbroker.id=0\n")
    if is_clean:
        (root / ".kafka_cleanshutdown").touch()
    logs = {}
    for number in range(count):
        chance = random.Random(f"{seed}/{is_clean}/{number}")
        log, snapshot = chance_log(chance, is_clean=is_clean)
        directory = root / f"{TOPIC}-{number}"
        directory.mkdir()
        for segment in log.segments:
            segment.write(directory)
        epochs = leader_epochs(log)
        if epochs:
            lines = "".join(f"{epoch} {offset}\n" for epoch, offset in epochs)
            (directory / "leader-epoch-checkpoint").write_text(f"0\n{len(epochs)}\n{lines}")
        if snapshot is not None:
            end = log.batches[-1].last_offset + 1
            (directory / f"{end:020}.snapshot").write_bytes(snapshot)
        logs[number] = log
    for name, offset_of in (
        ("log-start-offset-checkpoint", lambda log: log.checkpointed_start),
        ("recovery-point-offset-checkpoint", lambda log: log.recovery_point),
    ):
        offsets = {n: offset_of(log) for n, log in logs.items() if offset_of(log) is not None}
        lines = "".join(f"{TOPIC} {number} {offset}\n" for number, offset in offsets.items())
        (root / name).write_text(f"0\n{len(offsets)}\n{lines}")
    return logs


def leader_epochs(log):
    """[(epoch, start offset)] as the broker that wrote the log noted them."""
    epochs = []
    for batch in log.batches:
        if batch.magic == 2 and batch.leader_epoch > (epochs[-1][0] if epochs else -1):
            epochs.append((batch.leader_epoch, batch.base_offset))
    return epochs


def boundaries(log):
    """Every time at which an answer may change, and its neighbours; a few that match nothing."""
    times = {row.timestamp for batch in log.batches for row in batch.rows}
    times |= {batch.max_timestamp for batch in log.batches}
    times |= {segment.modified_ms for segment in log.segments}
    near = {time + by for time in times for by in (-1, 0, 1)}
    return sorted(time for time in near | {0, 1, NOW, 2**63 - 1} if 0 <= time < 2**63)
