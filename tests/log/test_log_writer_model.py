"""Random steps of a writer, with crashes, compared with a list of batches."""

import random
from itertools import pairwise

import pytest
from models.seed import SEED, some
from models.written_log import (
    ModelBatch,
    ModelLog,
    UnsyncedFileSystem,
    abandon,
    log_sizes,
    lose_what_was_not_flushed,
)

import kafkastore
from kafkastore.formats.records.compression import Codec
from kafkastore.writing.log_dir_writer import LogDirWriter

from .written_logs import FIRST_TIMESTAMP, Clock, batch_of

STEPS = 700
RETENTION_MS = 60_000
CODECS = [Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD]


class Run:
    """One log directory, its writer and the model of its log."""

    def __init__(self, root, seed):
        self.rng, self.root, self.clock = random.Random(seed), root, Clock()
        self.version = self.rng.choice(["2.4", "2.8", "3.9", "4.1"])
        self.config = {
            "segment.bytes": self.rng.choice([400, 1500, 6000]),
            "index.interval.bytes": self.rng.choice([0, 200, 1000]),
            "segment.index.bytes": self.rng.choice([60, 4000]),
            "segment.ms": self.rng.choice([3_000, 1 << 50]),
            "preallocate": self.rng.random() < 0.3,
            "retention.ms": RETENTION_MS,
        }
        self.model = ModelLog()
        self.flushed_sizes = {}
        self.epoch = 0
        self.open()

    def open(self, *, recover=False):
        fs = UnsyncedFileSystem()
        self.log_dir = LogDirWriter(self.root, self.version, clock=self.clock, fs=fs)
        self.writer = self.log_dir.writer("t", 0, self.config, recover=recover)

    def read(self):
        (log,) = kafkastore.open(self.root)
        return log

    def new_batch(self, first_offset, step=1):
        count = self.rng.randint(1, 4)
        self.clock.now += self.rng.randint(0, 400)
        stamps = [self.clock.now - self.rng.randint(0, 900) for _ in range(count)]
        return ModelBatch(tuple(range(first_offset, first_offset + count)), tuple(stamps))

    # Steps

    def append_as_leader(self):
        batches = []
        for _ in range(self.rng.randint(1, 3)):
            end = batches[-1].offsets[-1] + 1 if batches else self.model.end
            batches.append(self.new_batch(end))
        codec = self.rng.choice(CODECS)
        self.epoch += self.rng.random() < 0.1
        data = b"".join(batch_of(0, batch.timestamps, codec=codec) for batch in batches)
        info = self.writer.append(data, leader_epoch=self.epoch)
        assert (info.first_offset, info.last_offset) == (
            batches[0].offsets[0], batches[-1].offsets[-1],
        )
        for batch in batches:
            self.model.append(batch)

    def append_as_follower(self):
        gap = self.rng.choice([0, 0, 1, 7, 2**31])
        batch = self.new_batch(self.model.end + gap)
        data = batch_of(batch.offsets[0], batch.timestamps, leader_epoch=self.epoch)
        self.writer.append(data, as_follower=True)
        self.model.append(batch)

    def roll(self):
        self.writer.roll()

    def truncate(self):
        offset = max(self.model.end - self.rng.choice([0, 1, 3, 10, 40]), 0)
        self.writer.truncate_to(offset)
        self.model.truncate_to(offset)
        sizes = log_sizes(self.writer.path)
        self.flushed_sizes = {
            name: min(size, sizes[name])
            for name, size in self.flushed_sizes.items()
            if name in sizes
        }

    def delete_records(self):
        offset = self.rng.randint(self.model.start, self.model.end)
        assert self.writer.delete_records(offset) == offset
        self.model.start = offset

    def retain(self):
        bases = self.writer.base_offsets
        self.clock.now += self.rng.choice([0, 1000, RETENTION_MS])
        rules = [self.outlived_by_start, self.outlived_by_time]
        left = bases
        # The order in which brokers check; each continues where the one before stopped.
        for outlived in rules if self.version >= "3" else reversed(rules):
            left = left[outlived(left) :]
        self.writer.delete_old_segments()
        left = left or (self.model.end,)
        assert self.writer.base_offsets == left
        self.model.begin_at(left[0])
        self.forget_deleted()

    def outlived_by_start(self, bases):
        return sum(following <= self.model.start for _, following in pairwise(bases))

    def outlived_by_time(self, bases):
        count = 0
        for largest in self.model.in_segments(bases):
            if largest is None or self.clock.now - largest <= RETENTION_MS:
                break
            count += 1
        return count

    def forget_deleted(self):
        sizes = log_sizes(self.writer.path)
        self.flushed_sizes = {n: s for n, s in self.flushed_sizes.items() if n in sizes}

    def flush(self):
        self.writer.flush()
        assert self.writer.recovery_point == self.model.end
        self.model.flushed = len(self.model.batches)
        self.flushed_sizes = log_sizes(self.writer.path)
        if self.config["preallocate"]:
            active = self.writer._log.local.active
            self.flushed_sizes[active.log_path.name] = active.size
        if self.rng.random() < 0.5:
            self.log_dir.checkpoint()

    def reopen(self):
        self.log_dir.close()
        findings = list(kafkastore.verify(self.root))
        # Cut within a gap, with a start after it: a broker drops such a log, too.
        dropped = kafkastore.FindingKind.LOG_END_BELOW_LOG_START
        trouble = [finding for finding in findings if finding.kind is not dropped]
        assert {finding.severity for finding in trouble} <= {kafkastore.Severity.STYLE}
        is_dropped = len(trouble) < len(findings)
        self.open(recover=is_dropped)
        if is_dropped:
            self.model.batches = []  # all of them lay below the start
        self.model.flushed = len(self.model.batches)
        self.flushed_sizes = log_sizes(self.writer.path)
        self.end_is_found_again()

    def crash(self):
        # Everything before the active segment was flushed when that began.
        *inactive, active = self.writer.base_offsets
        sizes = log_sizes(self.writer.path)
        self.flushed_sizes |= {f"{base:020}.log": sizes[f"{base:020}.log"] for base in inactive}
        before = sum(batch.offsets[0] < active for batch in self.model.batches)
        self.model.flushed = max(self.model.flushed, before)
        abandon(self.log_dir)
        lose_what_was_not_flushed(self.writer.path, self.flushed_sizes, self.rng)
        self.open(recover=True)
        # The partition alone, so that batches below the log start offset are also seen.
        (log,) = kafkastore.open(self.writer.path)
        found = [
            tuple(record.offset for record in batch.records()) for batch in log.batches()
        ]
        kept = [batch.offsets for batch in self.model.batches]
        # A start offset that was not written is lost, and batches below it are visible again.
        assert self.writer.log_start_offset <= max(self.model.start, self.writer.base_offsets[0])
        self.model.start = self.writer.log_start_offset
        if found:
            assert kept[kept.index(found[0]) :][: len(found)] == found
            first = kept.index(found[0])
            assert first + len(found) >= self.model.flushed
            self.model.batches = self.model.batches[first : first + len(found)]
        else:
            flushed = kept[: self.model.flushed]
            assert not flushed or flushed[-1][-1] < self.model.start
            self.model.batches = []
        self.model.flushed = len(self.model.batches)
        self.flushed_sizes = log_sizes(self.writer.path)
        self.end_is_found_again()

    def end_is_found_again(self):
        """A loaded log ends after its last batch, wherever it was truncated."""
        last = self.model.batches[-1].offsets[-1] + 1 if self.model.batches else 0
        base = self.writer.base_offsets[-1]
        assert self.writer.log_end_offset == max(last, base)
        self.model.end = self.writer.log_end_offset

    def check(self):
        model = self.model
        assert (self.writer.log_start_offset, self.writer.log_end_offset) == (
            model.start, model.end,
        )
        (log,) = kafkastore.open(self.writer.path)
        records = [(r.offset, r.timestamp) for r in log.records(start_offset=model.start)]
        assert records == model.records()

    def check_lookups(self):
        records = self.model.records()
        log = self.read()
        for _ in range(3):
            if not records or log.log_start_offset != self.model.start:
                return
            target = self.rng.choice(records)[1] + self.rng.choice([-1, 0, 1])
            found = log.offset_for_timestamp(target)
            assert (found and (found.timestamp, found.offset)) == (
                self.model.offset_for_timestamp(target)
            )


STEPS_BY_WEIGHT = {
    Run.append_as_leader: 30, Run.append_as_follower: 6, Run.roll: 3, Run.truncate: 4,
    Run.delete_records: 2, Run.retain: 3, Run.flush: 6, Run.reopen: 3, Run.crash: 6,
    Run.check_lookups: 4,
}


@pytest.mark.parametrize("number", some(range(6), 3))
def test_a_writer_does_what_a_list_of_batches_does(tmp_path, number):
    run = Run(tmp_path / "logs", SEED + number)
    steps = run.rng.choices(
        list(STEPS_BY_WEIGHT), weights=list(STEPS_BY_WEIGHT.values()), k=STEPS
    )
    for number, step in enumerate(steps):
        step(run)
        if number % 5 == 0 or step in (Run.truncate, Run.crash):
            run.check()
    run.reopen()
    run.check()
    assert run.clock.now > FIRST_TIMESTAMP
    run.log_dir.close()
