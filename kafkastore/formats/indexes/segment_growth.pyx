"""How a segment grows: when an index entry is due, and when the segment is full.

An entry is due if more than ``index.interval.bytes`` were appended since the last one. The count
starts with the segment, and again each time it is opened or truncated. The entry is for the set
that is appended then: its last offset and its position, and in the time index the largest timestamp
so far, if it has risen. Brokers from 3.9.1 on check each batch of a set separately.

A segment is rolled before a set that would make it larger than ``segment.bytes``; that is later
than its first batch by more than ``segment.ms``, by the records' timestamps or, if the first batch
has none, by the wall clock; for which an index is full; or whose last offset does not fit 31 bits
above the base offset.

Source: Kafka 2.4.0 and 3.9.0 ``LogSegment.append``, ``LogSegment.shouldRoll``,
``LogSegment.timeWaitedForRoll``; ``OffsetIndex.append``, ``TimeIndex.maybeAppend``.
"""
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t

from kafkastore.formats.records.append_sets cimport AppendSet, AppendSets
from kafkastore.formats.primitives.big_endian cimport store_i32, store_i64

from kafkastore.errors import OffsetOverflowError
from kafkastore.formats.indexes.entries import TimestampOffset
from kafkastore.formats.indexes.index_growth import check_offset_append, may_append_timestamp


cdef class SegmentGrowth:
    """The state of a growing segment, and its index entries not yet taken.

    The options are the topic's; `roll_ms` is ``segment.ms`` minus the segment's jitter.
    `created_ms` is when the segment was created or opened, by the wall clock. `max_offset_entries`
    and `max_time_entries` are the capacities of the index files. `first_timestamp` is the largest
    timestamp of the first append, None (as an attribute -1) for an empty segment; the segment is
    rolled by it or else by `created_ms`. `last_indexed_offset` is that of the last offset index
    entry and ignored without one; `last_time_entry` is (-1, base offset) without one. `largest` is
    the segment's largest timestamp with its offset, by default the last time index entry.
    `each_batch`: an entry may be due at each batch of a set (`BrokerRules.each_batch_is_indexed`).

    `largest_timestamp` and `offset_of_max_timestamp` are those of the next time index entry; -1 for
    none.
    """

    cdef readonly int64_t base_offset, size, largest_timestamp, offset_of_max_timestamp
    cdef readonly int64_t created_ms, first_timestamp
    cdef int64_t index_interval_bytes, bytes_since_last_entry, segment_bytes, roll_ms
    cdef int64_t max_offset_entries, max_time_entries, offset_entries, time_entries
    cdef int64_t last_indexed_offset, last_timestamp, last_timestamp_offset
    cdef bint each_batch
    cdef bytearray new_offset_entries, new_time_entries

    def __cinit__(
        self, int64_t base_offset, *, int64_t index_interval_bytes, int64_t segment_bytes,
        int64_t roll_ms, int64_t created_ms, int64_t max_offset_entries,
        int64_t max_time_entries, int64_t size=0, first_timestamp=None,
        int64_t offset_entries=0, int64_t time_entries=0, int64_t last_indexed_offset=-1,
        last_time_entry=None, largest=None, bint each_batch=False,
    ):
        self.base_offset, self.size = base_offset, size
        self.segment_bytes, self.roll_ms = segment_bytes, roll_ms
        self.index_interval_bytes, self.created_ms = index_interval_bytes, created_ms
        self.max_offset_entries, self.max_time_entries = max_offset_entries, max_time_entries
        self.first_timestamp = -1 if first_timestamp is None else first_timestamp
        self.bytes_since_last_entry = 0
        self.each_batch = each_batch
        self.offset_entries, self.time_entries = offset_entries, time_entries
        self.last_indexed_offset = last_indexed_offset
        self.last_timestamp, self.last_timestamp_offset = (
            (-1, base_offset) if last_time_entry is None else last_time_entry)
        self.largest_timestamp, self.offset_of_max_timestamp = (
            (self.last_timestamp, self.last_timestamp_offset) if largest is None else largest)
        self.new_offset_entries, self.new_time_entries = bytearray(), bytearray()

    cdef bint is_representable(self, int64_t offset) noexcept:
        return (offset >= self.base_offset
                and <uint64_t> offset - <uint64_t> self.base_offset <= INT32_MAX)

    cdef bint must_roll(self, const AppendSet* new, int64_t now) noexcept:
        cdef uint64_t waited
        if self.size > self.segment_bytes - new.size:
            return True
        if self.size > 0:
            # As Java's subtraction, which may overflow.
            waited = (<uint64_t> new.largest_timestamp - <uint64_t> self.first_timestamp
                      if self.first_timestamp >= 0 else <uint64_t> now - <uint64_t> self.created_ms)
            if <int64_t> waited > self.roll_ms:
                return True
        return (self.offset_entries >= self.max_offset_entries
                or self.time_entries >= self.max_time_entries - 1
                or not self.is_representable(new.last_offset))

    def append(self, AppendSets sets not None, Py_ssize_t first, int64_t now,
               bint is_new=False):
        """Append sets until the segment must be rolled; return the first one left.

        `first` is the first set that is not in the log yet; `now` is the wall clock, ms since 1970.
        `is_new`: the segment was created for the first set, which does not cause a roll. Raises
        `OffsetOverflowError` if the last offset of a set does not fit a new segment, and
        `IndexFullError` or `OutOfOrderAppendError` if an index refuses an entry.
        """
        cdef Py_ssize_t i
        for i in range(first, sets.count):
            if (i > first or not is_new) and self.must_roll(sets.item(i), now):
                return i
            self._add_set(sets, sets.item(i))
        return sets.count

    cdef int _add_set(self, AppendSets sets, const AppendSet* new) except -1:
        cdef AppendSet one
        cdef Py_ssize_t i
        if not self.is_representable(new.last_offset):
            raise OffsetOverflowError(
                f"offset {new.last_offset} does not fit the segment with base offset "
                f"{self.base_offset}: it is more than {INT32_MAX} away")
        if not self.each_batch or sets.count == sets.batch_count:
            return self._add(new)
        for i in range(sets.batch_count):   # a follower has one set of all batches
            one.size, one.last_offset = sets.batches[i].size, sets.batches[i].last_offset
            one.largest_timestamp = sets.batches[i].max_timestamp
            one.first_offset = one.offset_of_max_timestamp = one.last_offset
            self._add(&one)
        return 0

    cdef int _add(self, const AppendSet* new) except -1:
        if self.size == 0:
            self.first_timestamp = new.largest_timestamp
        if new.largest_timestamp > self.largest_timestamp:
            self.largest_timestamp = new.largest_timestamp
            self.offset_of_max_timestamp = new.offset_of_max_timestamp
        if self.bytes_since_last_entry > self.index_interval_bytes:
            self._add_offset_entry(new.last_offset)
            self._maybe_add_time_entry(False)
            self.bytes_since_last_entry = 0
        self.bytes_since_last_entry += new.size
        self.size += new.size
        return 0

    @property
    def new_bytes(self):
        """Bytes of index entries that have not been taken."""
        return len(self.new_offset_entries) + len(self.new_time_entries)

    def finish(self):
        """Add the time index entry of the largest timestamp, as at roll and close."""
        self._maybe_add_time_entry(True)

    def take_entries(self):
        """Return the new entries of both indexes, as the files have them."""
        if not self.new_offset_entries and not self.new_time_entries:
            return b"", b""
        taken = bytes(self.new_offset_entries), bytes(self.new_time_entries)
        self.new_offset_entries.clear()
        self.new_time_entries.clear()
        return taken

    cdef int _add_offset_entry(self, int64_t offset) except -1:
        cdef uint8_t entry[8]
        if (self.offset_entries >= self.max_offset_entries
                or self.offset_entries and offset <= self.last_indexed_offset):
            check_offset_append(
                offset, base_offset=self.base_offset, last_offset=self.last_indexed_offset,
                entry_count=self.offset_entries, max_entries=self.max_offset_entries)
        store_i32(entry, <int32_t> (offset - self.base_offset))
        store_i32(entry + 4, <int32_t> self.size)
        self.new_offset_entries += entry[:8]
        self.offset_entries += 1
        self.last_indexed_offset = offset
        return 0

    cdef int _maybe_add_time_entry(self, bint is_last) except -1:
        cdef uint8_t entry[12]
        if (self.time_entries >= self.max_time_entries - 1
                or self.offset_of_max_timestamp < self.last_timestamp_offset):
            if not may_append_timestamp(
                TimestampOffset(self.largest_timestamp, self.offset_of_max_timestamp),
                base_offset=self.base_offset,
                last_entry=TimestampOffset(self.last_timestamp, self.last_timestamp_offset),
                entry_count=self.time_entries,
                max_entries=self.max_time_entries,
                skip_full_check=is_last,
            ):
                return 0
        if self.largest_timestamp <= self.last_timestamp:
            return 0
        store_i64(entry, self.largest_timestamp)
        store_i32(entry + 8, <int32_t> (self.offset_of_max_timestamp - self.base_offset))
        self.new_time_entries += entry[:12]
        self.time_entries += 1
        self.last_timestamp = self.largest_timestamp
        self.last_timestamp_offset = self.offset_of_max_timestamp
        return 0
