"""The bytes of the indexes; see `offset_index` and `time_index`.

Big-endian entries; no header, no checksum::

    byte                   0                 4                 8                 12
                           +-----------------+-----------------+
    <base offset>.index    | relative_offset |    position     |                     both int32
                           +-----------------+-----------------+-----------------+
    ....timeindex          |             timestamp             | relative_offset |   int64 ms, int32
                           +-----------------------------------+-----------------+

An entry (offset, position) promises that every record at or after ``offset`` lies at or after byte
``position`` of the log file, where a batch starts.  Offsets and positions both rise strictly.  A
true entry never has position 0: the first is written after a full index interval.

An entry (timestamp, offset) promises that every record later than ``timestamp`` has an offset
greater than ``offset``.  Timestamps rise strictly, offsets never decrease. This holds only within
one file.

A lookup takes the last entry at or before its target, and the log is scanned from there.  The file
of an active segment is preallocated: zeros follow the entries until the segment is rolled or
closed. The last slot of a time index stays free for the entry that is added at the roll.

``docs/formats/offset_index.md`` and ``time_index.md`` have the odd cases and worked examples.

Source: Kafka 2.4.0 ``AbstractIndex``, ``OffsetIndex``, ``TimeIndex``; KIP-33.

>>> positions = offset_index.pack([(55, 255)], 50)
>>> positions.hex(" ", 4)
'00000005 000000ff'
>>> offset_index.parse(positions, 50).tolist()
[(55, 255)]
>>> offset_index.lookup(positions, 50, 57)
OffsetPosition(offset=55, position=255)
>>> offset_index.lookup(b"", 50, 57)
OffsetPosition(offset=50, position=0)

>>> times = time_index.pack([(1000, 55)], 50)
>>> times.hex(" ", 4)
'00000000 000003e8 00000005'
>>> time_index.parse(times, 50).tolist()
[(1000, 55)]
>>> time_index.lookup(times, 50, 1001)
TimestampOffset(timestamp=1000, offset=55)
>>> time_index.lookup(b"", 50, 1001)
TimestampOffset(timestamp=-1, offset=50)
"""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t

from kafkastore.formats.primitives.named_pair cimport new_named_pair
from kafkastore.formats.indexes.slot_search cimport (
    CHUNK,
    SlotRange,
    is_strictly_sorted,
    lower_slots,
    proof_pays,
    search_slots,
    slots_before_padding,
)

import numpy as np

from kafkastore.arguments import check_one_dimension
from kafkastore.errors import CorruptIndexError, OffsetOverflowError
from kafkastore.formats.indexes.entries import (
    OFFSET_ENTRY,
    OFFSET_ENTRY_ON_DISK,
    TIME_ENTRY,
    TIME_ENTRY_ON_DISK,
    OffsetPosition,
    TimestampOffset,
    as_targets,
)


cpdef int32_t relative_offset(int64_t offset, int64_t base_offset) except -1:
    """Return an offset as both indexes store it.

    Raises `OffsetOverflowError` if it is not within the 31 bits above the base offset.

    Source: Kafka 2.4.0 ``AbstractIndex.relativeOffset``.
    """
    if offset < base_offset or <uint64_t> offset - <uint64_t> base_offset > INT32_MAX:
        raise OffsetOverflowError(
            f"offset {offset} must be at most {INT32_MAX} above the base offset {base_offset}")
    return <int32_t> (offset - base_offset)


# Callers pass `is_time` as a constant, so that each loop is compiled twice, once for the fields of
# each index. With fields that are known only at run time, a search takes up to twice as long.


cdef inline void decode(
    bint is_time, const uint8_t* entries, Py_ssize_t slot, int64_t base_offset,
    uint8_t* array, Py_ssize_t index
) noexcept nogil:
    """Decode a slot into an element of an array."""
    if is_time:
        (<TimeEntry*> array)[index] = load_time_entry(entries, slot, base_offset)
    else:
        (<OffsetEntry*> array)[index] = load_offset_entry(entries, slot, base_offset)


cdef inline void decode_each(
    bint is_time, const uint8_t* entries, Py_ssize_t count, int64_t base_offset, uint8_t* array
) noexcept nogil:
    """Decode every slot."""
    cdef Py_ssize_t slot
    for slot in range(count):
        decode(is_time, entries, slot, base_offset, array, slot)


cdef inline int encode_each(
    bint is_time, const uint8_t* array, Py_ssize_t count, int64_t base_offset, uint8_t* entries
) except -1:
    """Encode every element of an array."""
    cdef const TimeEntry* times = <const TimeEntry*> array
    cdef const OffsetEntry* offsets = <const OffsetEntry*> array
    cdef Py_ssize_t index
    for index in range(count):
        if is_time:
            store_time_entry(entries, times[index].timestamp,
                             relative_offset(times[index].offset, base_offset))
            entries += TIME_ENTRY_SIZE
        else:
            store_offset_entry(entries, relative_offset(offsets[index].offset, base_offset),
                               offsets[index].position)
            entries += OFFSET_ENTRY_SIZE
    return 0


cdef inline void answer_each(
    bint is_time, const uint8_t* entries, Py_ssize_t count, int64_t base_offset,
    const int64_t* targets, Py_ssize_t target_count, bint warm_section, uint8_t* answers
) noexcept nogil:
    """Write the entry found for each target."""
    cdef Key key = layout_of(is_time, base_offset).key
    cdef Py_ssize_t slots[CHUNK]
    cdef Py_ssize_t done = 0, chunk, index
    cdef bint is_sorted = proof_pays(count, target_count) and is_strictly_sorted(
        entries, count, key)
    while done < target_count:
        chunk = min(CHUNK, target_count - done)
        lower_slots(entries, count, key, targets + done, chunk, is_sorted, warm_section, slots)
        for index in range(chunk):
            decode(is_time, entries, slots[index], base_offset, answers, done + index)
        done += chunk


cdef class IndexFormat:
    """The bytes of one kind of index.

    Every method takes the content of a file, any contiguous buffer, and ignores a partial entry at
    its end. `base_offset` is that of the segment, as in the file's name; offsets are absolute.
    `warm_section`: search the last 8 KiB first, as brokers from 2.1.0 on do; the result differs
    only for unsorted entries.
    """

    cdef bint is_time
    cdef str name
    cdef readonly Py_ssize_t ENTRY_SIZE
    cdef readonly object dtype, dtype_on_disk
    cdef object entry_type

    def entry_count(self, entries):
        """Count the slots, padding included, as a broker that loads the file does."""
        cdef Py_buffer view
        PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
        cdef Py_ssize_t count = view.len // self.ENTRY_SIZE
        PyBuffer_Release(&view)
        return count

    def used_entry_count(self, entries, int64_t base_offset=0):
        """Count the entries before the zero padding.

        All-zero slots before another entry count: they are damage (a lost page) and not padding,
        and `first_disorder` finds them.
        """
        cdef Py_buffer view
        cdef Py_ssize_t count
        PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
        with nogil:
            count = slots_before_padding(
                <const uint8_t*> view.buf, view.len // self.ENTRY_SIZE, self.ENTRY_SIZE)
        PyBuffer_Release(&view)
        return count

    def parse(self, entries, int64_t base_offset):
        """Decode every slot into an array of `dtype`."""
        cdef Py_buffer view
        cdef const uint8_t* data
        cdef Py_ssize_t count
        cdef uint8_t[::1] array
        PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
        try:
            data, count = <const uint8_t*> view.buf, view.len // self.ENTRY_SIZE
            parsed = np.empty(count, self.dtype)
            if count:
                array = parsed.view(np.uint8)
                with nogil:
                    if self.is_time:
                        decode_each(True, data, count, base_offset, &array[0])
                    else:
                        decode_each(False, data, count, base_offset, &array[0])
            return parsed
        finally:
            PyBuffer_Release(&view)

    def pack(self, entries, int64_t base_offset):
        """Encode an array of `dtype`, or a list of tuples; their order is not checked.

        Raises `OffsetOverflowError` if an offset is not within the 31 bits above the base offset.
        """
        array = np.ascontiguousarray(entries, self.dtype)
        check_one_dimension("entries", array.ndim)
        cdef Py_ssize_t count = array.shape[0]
        cdef bytes packed = PyBytes_FromStringAndSize(NULL, count * self.ENTRY_SIZE)
        cdef uint8_t* at = <uint8_t*> PyBytes_AS_STRING(packed)
        cdef const uint8_t[::1] source
        if count:
            source = array.view(np.uint8)
            if self.is_time:
                encode_each(True, &source[0], count, base_offset, at)
            else:
                encode_each(False, &source[0], count, base_offset, at)
        return packed

    cdef object load(self, const Py_buffer* view, int64_t base_offset, Py_ssize_t slot):
        """Return the entry in a slot; slot -1 is a lookup without a match."""
        cdef Entry entry = load_entry(
            <const uint8_t*> view.buf, slot, layout_of(self.is_time, base_offset))
        return new_named_pair(self.entry_type, entry.key, entry.value)

    def entry(self, entries, int64_t base_offset, Py_ssize_t slot):
        """Decode the entry in one slot; `IndexError` if the slot does not exist."""
        cdef Py_buffer view
        PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
        cdef Py_ssize_t count = view.len // self.ENTRY_SIZE
        found = self.load(&view, base_offset, slot) if 0 <= slot < count else None
        PyBuffer_Release(&view)
        if found is None:
            raise IndexError(f"slot must be less than {count}, the entries of the {self.name}, "
                             f"and at least 0, got {slot}")
        return found

    def last_entry(self, entries, int64_t base_offset):
        """Decode the last slot, padding or not; without slots, decode slot -1."""
        cdef Py_buffer view
        PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
        found = self.load(&view, base_offset, view.len // self.ENTRY_SIZE - 1)
        PyBuffer_Release(&view)
        return found

    def lookup(self, entries, int64_t base_offset, int64_t target, *, bint warm_section=True):
        """Find the last entry at or before an offset or timestamp, as a broker does.

        Every whole slot is searched, so that padding changes the result as it does in a broker. If
        all entries are above the target, the result is (base offset, 0), or (-1, base offset) for a
        time index.
        """
        cdef Py_buffer view
        cdef SlotRange found
        PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
        found = search_slots(<const uint8_t*> view.buf, view.len // self.ENTRY_SIZE,
                             layout_of(self.is_time, base_offset).key, target, warm_section)
        floor = self.load(&view, base_offset, found.lower)
        PyBuffer_Release(&view)
        return floor

    def lookup_many(self, entries, int64_t base_offset, targets, *, bint warm_section=True):
        """Find the last entry at or before each of many targets, as `lookup` does.

        Targets are integers in any order; the result is an array of `dtype`.
        """
        cdef Py_buffer view
        cdef const uint8_t* data
        cdef const int64_t[::1] wanted = as_targets(targets)
        cdef Py_ssize_t target_count = wanted.shape[0], count
        cdef uint8_t[::1] out
        answers = np.empty(target_count, self.dtype)
        if target_count == 0:
            return answers
        out = answers.view(np.uint8)
        PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
        data, count = <const uint8_t*> view.buf, view.len // self.ENTRY_SIZE
        with nogil:
            if self.is_time:
                answer_each(True, data, count, base_offset, &wanted[0], target_count,
                            warm_section, &out[0])
            else:
                answer_each(False, data, count, base_offset, &wanted[0], target_count,
                            warm_section, &out[0])
        PyBuffer_Release(&view)
        return answers

    def truncate_to(self, entries, int64_t base_offset, int64_t offset, *, bint warm_section=True):
        """Count the slots that remain when entries at or after an offset are dropped.

        If several time index entries have exactly this offset (a broker never appends such
        entries), some may be kept: the search stops at any of them.
        """
        cdef Py_buffer view
        cdef Layout layout = layout_of(self.is_time, base_offset)
        cdef Key offsets = layout.value if layout.is_time else layout.key
        cdef Py_ssize_t slot
        PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
        slot = search_slots(<const uint8_t*> view.buf, view.len // self.ENTRY_SIZE,
                            offsets, offset, warm_section).lower
        if slot < 0 or key_of(<const uint8_t*> view.buf, slot, offsets) != offset:
            slot += 1
        PyBuffer_Release(&view)
        return slot

    def check(self, entries, int64_t base_offset):
        """Run a broker's sanity check; `CorruptIndexError` if it fails.

        Brokers up to 2.2 run it on load and rebuild the indexes of the segment; later ones do not
        run it. Up to 1.1 the last offset of an offset index had to be above the base offset, so
        that a padded file failed too.
        """
        count = self.entry_count(entries)
        last_offset = self.last_entry(entries, base_offset).offset
        if last_offset < base_offset:
            raise CorruptIndexError(
                f"the last {self.name} entry has offset {last_offset}, below the base offset"
                f" {base_offset}", position=(count - 1) * self.ENTRY_SIZE)
        size = memoryview(entries).nbytes
        if size % self.ENTRY_SIZE:
            raise CorruptIndexError(
                f"{self.name} is {size} bytes, not a multiple of {self.ENTRY_SIZE}",
                position=count * self.ENTRY_SIZE)

    def first_disorder(self, entries, int64_t base_offset):
        """Return the first slot that is out of order; -1 if there is none.

        Timestamps, relative offsets and offset index positions rise strictly, from 0, 0 and 1 on;
        offsets of a time index may repeat.
        """
        cdef Py_buffer view
        cdef const uint8_t* data
        cdef Py_ssize_t count, disorder
        PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
        data, count = <const uint8_t*> view.buf, view.len // self.ENTRY_SIZE
        with nogil:
            if self.is_time:
                disorder = first_slot_out_of_order(data, count, time_layout(0))
            else:
                disorder = first_slot_out_of_order(data, count, offset_layout(0))
        PyBuffer_Release(&view)
        return disorder


cdef class OffsetIndexFormat(IndexFormat):
    """Entries of 8 bytes: relative offset, byte position."""

    def __cinit__(self):
        self.is_time = False
        self.name = "offset index"
        self.ENTRY_SIZE = OFFSET_ENTRY_SIZE
        self.entry_type = OffsetPosition
        self.dtype, self.dtype_on_disk = OFFSET_ENTRY, OFFSET_ENTRY_ON_DISK

    def fetch_upper_bound(
        self, entries, int64_t base_offset, int32_t position, int32_t fetch_size, *,
        bint warm_section=True,
    ):
        """Find the first entry at or after the end of a fetch; None if there is none.

        Source: Kafka 2.4.0 ``OffsetIndex.fetchUpperBoundOffset``; there the sum wraps at 31 bits.
        """
        cdef Py_buffer view
        cdef SlotRange found
        PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
        found = search_slots(
            <const uint8_t*> view.buf, view.len // self.ENTRY_SIZE, offset_layout(0).value,
            <int64_t> position + fetch_size, warm_section)
        bound = None if found.upper < 0 else self.load(&view, base_offset, found.upper)
        PyBuffer_Release(&view)
        return bound


cdef class TimeIndexFormat(IndexFormat):
    """Entries of 12 bytes: timestamp, relative offset."""

    def __cinit__(self):
        self.is_time = True
        self.name = "time index"
        self.ENTRY_SIZE = TIME_ENTRY_SIZE
        self.entry_type = TimestampOffset
        self.dtype, self.dtype_on_disk = TIME_ENTRY, TIME_ENTRY_ON_DISK

    def used_entry_count(
        self, entries, int64_t base_offset=0, *, first_timestamp_may_be_zero=None
    ):
        """Count the entries before the zero padding.

        `first_timestamp_may_be_zero`: whether (0, base offset) may be a true entry. It is all
        zeros, like padding, so that only the log shows which it is. Default: True for a file of one
        slot, which was trimmed and has no padding.
        """
        count = IndexFormat.used_entry_count(self, entries)
        if count:
            return count
        slots = self.entry_count(entries)
        if first_timestamp_may_be_zero is None:
            return int(slots == 1)
        return int(first_timestamp_may_be_zero and slots > 0)

    def check(self, entries, int64_t base_offset):
        """Run a broker's sanity check; `CorruptIndexError` if it fails."""
        count = self.entry_count(entries)
        if count:
            first = self.entry(entries, base_offset, 0).timestamp
            last = self.last_entry(entries, base_offset).timestamp
            if last < first:
                raise CorruptIndexError(
                    f"the last time index entry has timestamp {last}, less than {first} of the"
                    " first", position=(count - 1) * self.ENTRY_SIZE)
        IndexFormat.check(self, entries, base_offset)


offset_index = OffsetIndexFormat()
time_index = TimeIndexFormat()
