"""A partition directory with random changes as by a broker, and all its past records."""

from __future__ import annotations

import os
import threading
import time

from models.record_format import GZIP, NONE, Batch, Row

SUFFIXES = (".log", ".index", ".timeindex")


class LivePartition:
    """Appends, rolls, truncates, deletes and compacts; every value contains its offset.

    What a reader may get for an offset are the values that were ever written there: `written`.
    """

    def __init__(self, directory, source):
        self.directory, self.source = directory, source
        self.written: dict[int, set[bytes]] = {}
        self.segments: list[list] = []      # [base offset, [batch, ...]]
        self.generation = 0
        self._roll(0)

    @property
    def next_offset(self):
        base, batches = self.segments[-1]
        return batches[-1].last_offset + 1 if batches else base

    def _path(self, base, suffix):
        return self.directory / f"{base:020}{suffix}"

    def _roll(self, base):
        self.segments.append([base, []])
        self._path(base, ".log").write_bytes(b"")
        for suffix in SUFFIXES[1:]:     # preallocated, as in a running broker
            self._path(base, suffix).write_bytes(bytes(240))

    def append(self):
        """One batch, in two writes as a reader may meet them."""
        base, batches = self.segments[-1]
        first, self.generation = self.next_offset, self.generation + 1
        rows = tuple(
            Row(offset, offset, b"k", b"%d of %d " % (offset, self.generation) + b"." * 40)
            for offset in range(first, first + self.source.randrange(1, 5))
        )
        for row in rows:
            self.written.setdefault(row.offset, set()).add(row.value)
        batch = Batch(rows, codec=self.source.choice([NONE, NONE, GZIP]))
        position = sum(len(each.data) for each in batches)
        cut = self.source.randrange(len(batch.data))
        with open(self._path(base, ".log"), "ab", buffering=0) as log:
            log.write(batch.data[:cut])
            log.write(batch.data[cut:])
        batches.append(batch)
        slot = len(batches) - 2
        if position and slot < 20:
            offset = (batch.last_offset - base).to_bytes(4, "big")
            entry = offset + position.to_bytes(4, "big")
            self._overwrite(base, ".index", 8 * slot, entry)
            entry = batch.last_offset.to_bytes(8, "big") + offset
            self._overwrite(base, ".timeindex", 12 * slot, entry)

    def _overwrite(self, base, suffix, position, data):
        with open(self._path(base, suffix), "r+b", buffering=0) as file:
            os.pwrite(file.fileno(), data, position)

    def roll(self):
        """Begin a new segment after one or more batches."""
        if self.segments[-1][1]:
            self._roll(self.next_offset)

    def truncate(self):
        """Cut the active segment at a batch, or delete it as a follower does."""
        base, batches = self.segments[-1]
        if not batches and len(self.segments) > 1:
            self.segments.pop()
            self._delete(base)
            return
        kept = self.source.randrange(len(batches) + 1)
        for suffix in SUFFIXES[1:]:
            self._path(base, suffix).write_bytes(bytes(240))
        del batches[kept:]
        os.truncate(self._path(base, ".log"), sum(len(each.data) for each in batches))

    def delete_oldest(self):
        """Retention: set aside, and delete a while later."""
        if len(self.segments) > 2:
            base, _ = self.segments.pop(0)
            self._delete(base)

    def _delete(self, base):
        for suffix in SUFFIXES:
            path = self._path(base, suffix)
            if not path.exists():       # what was compacted has no indexes here
                continue
            aside = path.with_name(path.name + ".deleted")
            path.rename(aside)
            if self.source.random() < 0.5:
                aside.unlink()

    def compact(self):
        """Replace two inactive segments by one that lacks some batches."""
        if len(self.segments) < 4:
            return
        (base, first), (second_base, second) = self.segments[:2]
        kept = [each for each in first + second if self.source.random() < 0.7]
        kept = kept or (first + second)[-1:]
        self._path(base, ".log.cleaned").write_bytes(b"".join(each.data for each in kept))
        self._path(base, ".log.cleaned").rename(self._path(base, ".log.swap"))
        self._delete(base)
        self._delete(second_base)
        self._path(base, ".log.swap").rename(self._path(base, ".log"))
        self.segments[:2] = [[base, kept]]

    def alter(self, steps, pause):
        """Do a number of random steps."""
        actions = [self.append] * 12 + [self.roll] * 3 + [self.truncate, self.delete_oldest]
        actions += [self.compact]
        for _ in range(steps):
            self.source.choice(actions)()
            time.sleep(pause)

    def altering(self, steps, pause=0.0005):
        """A thread that does these steps; not yet started."""
        return threading.Thread(target=self.alter, args=(steps, pause))
