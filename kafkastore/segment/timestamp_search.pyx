"""Search one segment by time: indexes, headers, records, without Python.

Both indexes give the place to start. From there the search finds the first batch whose header's
maximum reaches the timestamp, and in it the first record that does::

    time index  --floor-->  offset  --offset index-->  position  --headers-->  batch  -->  record

The ``.log`` is read with pread, piece by piece into reused memory: only the header of a batch that
is skipped, and the records of the batch that decides up to the one found.

A search starts in one of two ways. As a broker: at the floor entries of both indexes, right or
wrong. *Checked*: at the floor entry of the previous timestamp, and only if both entries match the
log; else at the segment's first byte. The previous timestamp is used because an entry with the
target timestamp need not be of the first record with that timestamp.

Source: Kafka 2.4.0 ``LogSegment.findOffsetByTimestamp``, ``FileRecords.searchForTimestamp``.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, INT64_MIN, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free

cimport cython

from kafkastore.formats.records.batch_header cimport (
    CODEC_MASK,
    CONTROL_FLAG,
    RECORDS_AT,
    BatchHeader,
    first_offset_of,
)
from kafkastore.formats.indexes.index_format cimport (
    OFFSET_ENTRY_SIZE,
    TIME_ENTRY_SIZE,
    OffsetEntry,
    TimeEntry,
    load_offset_entry,
    load_time_entry,
    offset_layout,
    time_layout,
)
from kafkastore.formats.records.record_batch cimport broken, records_of
from kafkastore.formats.records.record_cursor cimport (
    RecordCursor,
    RecordView,
    is_wrapper,
    next_record,
    open_cursor,
)
from kafkastore.formats.indexes.slot_search cimport SlotTrace, search_slots
from kafkastore.reads cimport check_fetched
from kafkastore.segment.log_window cimport (
    IS_BROKEN_RECORDS,
    IS_COMPRESSED,
    IS_CONTRADICTED,
    IS_FOUND,
    IS_NO_BATCH,
    IS_NONE,
    IS_OUT_OF_MEMORY,
    IS_OUT_OF_ORDER,
    IS_UNREADABLE,
    IS_WRAPPER,
    SearchOutcome,
    Window,
    cut_short,
    fill,
    peek_offset,
    read_header,
)

import os
from typing import NamedTuple

import numpy as np

from kafkastore.errors import ArgumentValueError, CorruptionError
from kafkastore.formats.records.decompression import MAX_DECOMPRESSED_BYTES
from kafkastore.formats.indexes.entries import (
    TIMESTAMP_AND_OFFSET,
    OffsetPosition,
    TimestampAndOffset,
    TimestampOffset,
)
from kafkastore.segment import open_file_limit


class SearchTrace(NamedTuple):
    """The steps of one search.

    `answer` is the result of `SegmentSearch.find`. The search started at the two floor entries or,
    if they do not match the log, at the first byte; `starting_position` is the byte position of the
    first batch read. The slots are those of the indexes that a broker reads, in order; empty for a
    checked search.
    """

    answer: TimestampAndOffset | None
    time_entry: TimestampOffset
    offset_entry: OffsetPosition
    starting_position: int
    time_slots: tuple[int, ...]
    offset_slots: tuple[int, ...]


cdef extern from *:
    """
    static PyObject* kafkastore_new_named_triple(
            PyObject* type, PyObject* first, PyObject* second, PyObject* third) {
        PyObject* triple = ((PyTypeObject*) type)->tp_alloc((PyTypeObject*) type, 3);
        if (triple != NULL) {
            PyTuple_SET_ITEM(triple, 0, Py_NewRef(first));
            PyTuple_SET_ITEM(triple, 1, Py_NewRef(second));
            PyTuple_SET_ITEM(triple, 2, Py_NewRef(third));
        }
        return triple;
    }
    """
    object new_named_triple "kafkastore_new_named_triple"(
        object named_tuple, object first, object second, object third)


cdef enum:
    # A read takes 430 ns, and 65 to 160 ns more for each KiB. After a large batch's header nothing
    # more is read, because the next header is far away; small batches lie in one index interval.
    # A batch of usual size is read at once with the offset after it, larger ones piece by piece.
    HEADER_READ = 128
    LARGE_BATCH = 2048
    INTERVAL_READ = 4096
    PIECE_READ = 8192
    USUAL_BATCH = 32768      # a producer's default is 16 KiB
    # The searches of `find_many` start near each other.
    READ_FOR_MANY = 65536


cdef packed struct Found:
    int64_t timestamp
    int64_t offset
    int32_t leader_epoch


cdef struct Halt:
    # Where the search of a batch's records ended: a search for a later time starts here.
    int64_t position         # of the batch; -1: none
    Py_ssize_t size          # of all its records
    int64_t target_timestamp
    Py_ssize_t consumed      # bytes of records before the one found
    RecordCursor cursor      # as it was there, except for `at` and `end`


cdef struct Payload:
    # The records of a compressed batch.
    int64_t position         # of the batch; -1: none
    const uint8_t* bytes
    Py_ssize_t size


cdef struct Wrapper:
    int64_t position         # -1: none
    int64_t first_offset     # -1: can't be read


cdef enum:
    AT_FLOOR
    AT_STARTING_OFFSET
    BEGINNINGS


cdef struct Search:
    int64_t target_timestamp
    int64_t starting_offset
    int64_t position         # of the current batch
    int64_t starting_position
    int64_t smallest_offset  # that the current batch may have
    bint has_begun
    BatchHeader header
    const char* error
    Halt halt
    Payload payload
    Wrapper wrappers[BEGINNINGS]
    int asked                # which wrapper
    SlotTrace* time_trace    # NULL: not traced
    SlotTrace* offset_trace
    Found found


cdef SearchOutcome search_records(Window* window, Search* search) noexcept nogil:
    """Find the record in the batch whose header was read, piece by piece."""
    cdef const BatchHeader* header = &search.header
    cdef RecordCursor* cursor = &search.halt.cursor
    cdef RecordView record
    cdef Py_ssize_t consumed = 0, size, here, unread = 0
    cdef Py_ssize_t piece = PIECE_READ
    cdef int64_t start
    cdef const uint8_t* records
    cdef const uint8_t* before
    cdef bint is_unpacked = search.payload.position == header.position, is_whole
    cdef int got
    cdef SearchOutcome outcome
    if header.attributes & CODEC_MASK and not is_unpacked:
        return IS_COMPRESSED
    start = header.position + (RECORDS_AT if header.magic == 2 else 0)
    size = search.payload.size if is_unpacked else header.position + header.size - start
    if (search.halt.position == header.position and search.halt.size == size
            and search.halt.target_timestamp <= search.target_timestamp):
        consumed = search.halt.consumed
    elif not open_cursor(cursor, header, search.payload.bytes if is_unpacked else NULL,
                         size if is_unpacked else 0):
        search.error = cursor.error
        return IS_BROKEN_RECORDS
    elif is_unpacked:
        # The cursor leaves out a torn message at the end.
        search.payload.size = size = cursor.end - search.payload.bytes
    search.halt.position = header.position
    search.halt.size = size
    search.halt.target_timestamp = search.target_timestamp
    while True:
        if is_unpacked:
            records = search.payload.bytes + consumed
            here = size - consumed
        else:
            # Bytes that were read with the header are searched before more is read.
            here = min(window.start + window.size - start, size) - consumed
            if here <= unread and here < size - consumed:
                # The piece grows until a record that does not fit is read whole.
                piece = max(piece, 2 * unread)
                outcome = fill(window, start + consumed, min(piece, size - consumed))
                if outcome != IS_FOUND:
                    return outcome
                here = min(window.start + window.size - start, size) - consumed
                if here <= unread:
                    return cut_short(window)
                piece *= 2
            records = window.bytes + (start + consumed - window.start)
        is_whole = here == size - consumed
        cursor.at = records
        cursor.end = records + here
        while True:
            before = cursor.at
            got = next_record(cursor, &record)
            if got <= 0:
                break
            if (record.timestamp >= search.target_timestamp
                    and record.offset >= search.starting_offset):
                search.halt.consumed = consumed + (before - records)
                cursor.records_left += 1
                search.found.timestamp = record.timestamp
                search.found.offset = record.offset
                search.found.leader_epoch = header.leader_epoch
                return IS_FOUND
        consumed += before - records
        if is_whole:
            search.halt.consumed = consumed
            search.error = cursor.error
            return IS_NONE if got == 0 else IS_BROKEN_RECORDS
        unread = here - (before - records)


cdef inline Py_ssize_t read_size_for(int32_t batch_size) noexcept nogil:
    if batch_size < PIECE_READ:
        return INTERVAL_READ
    # The next batch may be a little larger.
    return batch_size + batch_size // 64 + 8 if batch_size <= USUAL_BATCH else PIECE_READ


cdef inline SearchOutcome check_following(
    const Window* window, const Search* search, int64_t largest_offset
) noexcept nogil:
    """Check that the next batch's offsets agree with those of the one found."""
    cdef const BatchHeader* header = &search.header
    cdef int64_t offset
    if not peek_offset(window, header.position + header.size, &offset):
        return IS_OUT_OF_ORDER if header.last_offset > largest_offset else IS_FOUND
    return IS_CONTRADICTED if search.smallest_offset <= offset <= header.last_offset else IS_FOUND


cdef SearchOutcome search_batches(
    Window* window, Search* search, bint skip_control, bint is_placed, int64_t base_offset,
    int64_t largest_offset
) noexcept nogil:
    """Search from ``search.position``; set it to that of the batch that decides."""
    cdef BatchHeader* header = &search.header
    cdef SearchOutcome outcome
    while True:
        outcome = read_header(window, search.position, header)
        if outcome != IS_FOUND:
            return outcome
        if is_placed and (first_offset_of(header) < search.smallest_offset
                          or header.last_offset < first_offset_of(header)
                          or header.last_offset > largest_offset):
            return IS_OUT_OF_ORDER
        if window.smallest < READ_FOR_MANY:
            window.smallest = read_size_for(header.size)
        if (header.max_timestamp >= search.target_timestamp
                and header.last_offset >= search.starting_offset
                and not (skip_control and header.magic == 2
                         and header.attributes & CONTROL_FLAG)):
            outcome = search_records(window, search)
            if outcome == IS_FOUND and is_placed:
                return check_following(
                    window, search, min(largest_offset, base_offset + INT32_MAX))
            if outcome != IS_NONE:
                return outcome
        search.position += header.size
        search.smallest_offset = header.last_offset + 1


cdef tuple slots_of(const SlotTrace* trace):
    return tuple([trace.slots[number] for number in range(trace.count)])


cdef class SegmentSearch:
    """Search one segment by time; threads may share it.

    `open_log` returns the segment's `LogFile`; it is called when the log is first needed, and again
    after `close_log`: at most `open_file_limit.MAX_OPEN_LOGS` objects keep theirs open. The entries
    are those of the segment's indexes, with the padding for a broker that counts it; if they are
    empty, the search starts at the segment's first byte. `warm_section`: search the last 8 KiB of
    an index first, as brokers since 2.1.0 do. `checks_entries`: use index entries only if they
    match the log. `skip_control`: skip transaction markers, which brokers do not. `checks_order`:
    raise at offsets that go back or leave the segment; not needed if the batches were checked.

    Index entries are fixed at creation; each search reads the log up to its size at opening. The
    state that a search changes belongs to one thread until the search ends: a second thread gets an
    object of its own. Everything else is read only, or changed with the GIL held, which critical
    sections replace in a Python without one.
    """

    cdef object _open_log
    cdef object _log             # LogFile, or None
    cdef object _payload         # keeps alive the memory that the search's Payload points at
    cdef bytes _time_entries, _offset_entries
    cdef const uint8_t* _times
    cdef const uint8_t* _offsets
    cdef Py_ssize_t _time_count, _offset_count
    cdef int64_t _base_offset, _largest_offset, _max_decompressed_bytes
    cdef bint _warm_section, _checks_entries, _skip_control
    cdef bint _is_busy, _is_placed, _checks_order
    cdef Py_ssize_t _first_read, _later_read
    cdef int32_t* _next_positions  # by slot of the time index: see `_begin_checked`
    cdef Window _window
    cdef readonly bint was_used
    cdef object __weakref__

    def __cinit__(
        self, open_log, int64_t base_offset, bytes time_entries not None,
        bytes offset_entries not None, *, bint warm_section=True,
        bint checks_entries=False, bint skip_control=False, bint checks_order=True,
        int64_t max_decompressed_bytes=MAX_DECOMPRESSED_BYTES,
    ):
        self._open_log = open_log
        self._base_offset = base_offset
        self._time_entries, self._offset_entries = time_entries, offset_entries
        self._times = <const uint8_t*> PyBytes_AS_STRING(time_entries)
        self._offsets = <const uint8_t*> PyBytes_AS_STRING(offset_entries)
        self._time_count = len(time_entries) // <Py_ssize_t> TIME_ENTRY_SIZE
        self._offset_count = len(offset_entries) // <Py_ssize_t> OFFSET_ENTRY_SIZE
        self._warm_section, self._checks_entries = warm_section, checks_entries
        self._skip_control, self._checks_order = skip_control, checks_order
        self._max_decompressed_bytes = max_decompressed_bytes
        self._first_read = self._later_read = INTERVAL_READ
        self._window.bytes = NULL
        self._window.capacity = 0
        self._next_positions = NULL

    def __dealloc__(self):
        free(self._window.bytes)
        free(self._next_positions)

    def close_log(self):
        """Close the log, unless a search is using it; the next search opens it again."""
        with cython.critical_section(self):
            self._log = None
            if not self._is_busy:
                free(self._window.bytes)
                free(self._next_positions)
                self._next_positions = NULL
                self._window.bytes = NULL
                self._window.capacity = 0

    def clear_used(self):
        """Return whether the search was used since the last call."""
        was_used = self.was_used
        self.was_used = False
        return was_used

    def find(self, int64_t target_timestamp, int64_t starting_offset, /):
        """Find the first record with at least a timestamp (ms), at or after an offset.

        The record is in the first batch, from where the search starts, whose header's maximum is at
        least the timestamp. Returns a `TimestampAndOffset` or None. Raises `CorruptBatchError` for
        corrupt or unreadable bytes on the way (checksums are not checked), `UnsupportedFormatError`
        for an unknown magic or codec, and `SegmentGoneError` if the log is missing when it is
        opened.
        """
        cdef Search search
        search.target_timestamp = target_timestamp
        search.starting_offset = starting_offset
        search.has_begun = False
        search.time_trace = search.offset_trace = NULL
        return self._find_one(&search)

    def find_from(self, int64_t position, int64_t target_timestamp, int64_t starting_offset):
        """Do `find`, starting at the byte position of a batch."""
        cdef Search search
        search.target_timestamp = target_timestamp
        search.starting_offset = starting_offset
        search.position = position
        search.smallest_offset = self._base_offset
        search.has_begun = True
        return self._find_one(&search)

    def find_many(self, const int64_t[::1] target_timestamps not None, int64_t starting_offset,
                  answers not None, /):
        """Do `find` for many timestamps, into `answers` (TIMESTAMP_AND_OFFSET).

        An answer of -1 means that there is no record. Timestamps in rising order are faster. Raises
        ValueError if the arrays differ in length, and the errors of `find` for the first timestamp
        that fails.
        """
        cdef Search search
        if answers.dtype != TIMESTAMP_AND_OFFSET or answers.shape != (target_timestamps.shape[0],):
            raise ArgumentValueError(
                "answers", f"{target_timestamps.shape[0]} TIMESTAMP_AND_OFFSET", answers.shape)
        cdef uint8_t[::1] answer_bytes = answers.view(np.uint8)
        cdef Py_ssize_t done = 0, count = target_timestamps.shape[0]
        cdef SegmentSearch free_one
        cdef Found* answer
        cdef SearchOutcome outcome = IS_NONE
        if not count:
            return
        answer = <Found*> &answer_bytes[0]
        search.starting_offset = starting_offset
        search.time_trace = search.offset_trace = NULL
        free_one = self._free_one()
        try:
            log = free_one._begin(&search, READ_FOR_MANY)
            while done < count:
                with nogil:
                    while done < count:
                        if outcome < IS_WRAPPER:
                            search.target_timestamp = target_timestamps[done]
                            search.has_begun = False
                        outcome = free_one._advance(&search)
                        if outcome >= IS_WRAPPER:
                            break
                        answer[done] = search.found
                        if outcome == IS_NONE:
                            answer[done].timestamp = answer[done].offset = -1
                            answer[done].leader_epoch = -1
                        done += 1
                check_fetched()
                if done < count:
                    outcome = free_one._decide(log, &search, outcome)
                    if outcome == IS_FOUND:
                        answer[done] = search.found
                        done += 1
                    elif outcome == IS_NONE:
                        answer[done].timestamp = answer[done].offset = -1
                        answer[done].leader_epoch = -1
                        done += 1
        finally:
            free_one._release()

    def trace(self, int64_t target_timestamp, int64_t starting_offset):
        """Do `find`, and return the steps of the search as a `SearchTrace`."""
        cdef Search search
        cdef TimeEntry time_entry
        cdef OffsetEntry offset_entry
        cdef SlotTrace time_trace, offset_trace
        time_trace.count = offset_trace.count = 0
        search.time_trace, search.offset_trace = &time_trace, &offset_trace
        search.target_timestamp = target_timestamp
        search.starting_offset = starting_offset
        search.has_begun = False
        answer = self._find_one(&search)
        time_entry = self._time_floor(self._floor_of(target_timestamp))
        offset_entry = self._offset_floor(max(time_entry.offset, starting_offset))
        return SearchTrace(
            answer, TimestampOffset(time_entry.timestamp, time_entry.offset),
            OffsetPosition(offset_entry.offset, offset_entry.position), search.starting_position,
            slots_of(&time_trace), slots_of(&offset_trace))

    cdef object _find_one(self, Search* search):
        cdef SegmentSearch free_one = self._free_one()
        cdef SearchOutcome outcome
        try:
            log = free_one._begin(search, free_one._first_read)
            with nogil:
                outcome = free_one._advance(search)
            check_fetched()
            while outcome >= IS_WRAPPER:
                outcome = free_one._decide(log, search, outcome)
                if outcome >= IS_WRAPPER:
                    with nogil:
                        outcome = free_one._advance(search)
                    check_fetched()
            if outcome != IS_NONE:
                free_one._first_read = (
                    HEADER_READ if search.header.size >= LARGE_BATCH else INTERVAL_READ)
                free_one._later_read = read_size_for(search.header.size)
        finally:
            free_one._release()
        if outcome == IS_NONE:
            return None
        return new_named_triple(
            TimestampAndOffset, search.found.timestamp, search.found.offset,
            search.found.leader_epoch if search.found.leader_epoch >= 0 else None)

    cdef SegmentSearch _free_one(self):
        """Return this object, or a copy if another thread is using it, marked as busy."""
        cdef SegmentSearch copy
        with cython.critical_section(self):
            if not self._is_busy:
                self._is_busy = True
                return self
        copy = SegmentSearch(
            self._open_log, self._base_offset, self._time_entries, self._offset_entries,
            warm_section=self._warm_section, checks_entries=self._checks_entries,
            skip_control=self._skip_control, checks_order=self._checks_order,
            max_decompressed_bytes=self._max_decompressed_bytes)
        copy._is_busy = True
        with cython.critical_section(self):
            copy._log = self._log
            copy._window.descriptor = self._window.descriptor
            copy._window.file_size = self._window.file_size
            copy._is_placed, copy._largest_offset = self._is_placed, self._largest_offset
        return copy

    cdef int _release(self) except -1:
        """End the search that this object is used for."""
        self._payload = None
        with cython.critical_section(self):
            self._is_busy = False
        return 0

    cdef object _begin(self, Search* search, Py_ssize_t first_read):
        """Open the log if it is closed; it stays open while the result is kept."""
        cdef int descriptor
        cdef int64_t size, largest_offset
        cdef bint is_placed
        with cython.critical_section(self):
            log = self._log
        if log is None:
            log = self._open_log()
            descriptor, size, bounds = log.descriptor, log.size, log.bounds
            is_placed = bounds is not None and self._checks_order
            largest_offset = bounds.offsets[1] if is_placed else 0
            # Another thread sees all of this or none.
            with cython.critical_section(self):
                self._window.descriptor, self._window.file_size = descriptor, size
                self._is_placed, self._largest_offset = is_placed, largest_offset
                self._log = log
            open_file_limit.register(self)
        self.was_used = True
        self._window.smallest = first_read
        self._window.start = self._window.size = 0
        search.halt.position = search.payload.position = -1
        search.wrappers[AT_FLOOR].position = search.wrappers[AT_STARTING_OFFSET].position = -1
        return log

    cdef SearchOutcome _advance(self, Search* search) noexcept nogil:
        """Search up to an answer, or to a point where Python must decide."""
        cdef SearchOutcome outcome
        if not search.has_begun:
            outcome = (self._begin_checked(search) if self._checks_entries
                       else self._begin_as_brokers(search))
            if outcome != IS_FOUND:
                return outcome
            search.has_begun = True
            search.starting_position = search.position
            search.smallest_offset = self._base_offset
        return search_batches(&self._window, search, self._skip_control, self._is_placed,
                              self._base_offset, self._largest_offset)

    cdef int64_t _floor_of(self, int64_t target_timestamp) noexcept nogil:
        """Return the timestamp whose floor entry a search starts at."""
        return target_timestamp - (self._checks_entries and target_timestamp > INT64_MIN)

    cdef Py_ssize_t _time_slot(
        self, int64_t timestamp, SlotTrace* trace=NULL
    ) noexcept nogil:
        return search_slots(self._times, self._time_count, time_layout(0).key, timestamp,
                            self._warm_section, trace).lower

    cdef TimeEntry _time_floor(
        self, int64_t timestamp, SlotTrace* trace=NULL
    ) noexcept nogil:
        return load_time_entry(
            self._times, self._time_slot(timestamp, trace), self._base_offset)

    cdef OffsetEntry _offset_floor(
        self, int64_t offset, SlotTrace* trace=NULL
    ) noexcept nogil:
        return load_offset_entry(
            self._offsets,
            search_slots(self._offsets, self._offset_count,
                         offset_layout(self._base_offset).key, offset,
                         self._warm_section, trace).lower,
            self._base_offset)

    cdef SearchOutcome _begin_as_brokers(self, Search* search) noexcept nogil:
        cdef int64_t offset = self._time_floor(
            search.target_timestamp, search.time_trace).offset
        search.position = self._offset_floor(
            max(offset, search.starting_offset), search.offset_trace).position
        return IS_FOUND

    cdef SearchOutcome _begin_checked(self, Search* search) noexcept nogil:
        """Start at the floor entry's batch, or after it if it matched the log before.

        That batch is as late as the entry, and so too early. The batch after it must still have
        larger offsets: a running broker may have truncated the log there, and appended to it.
        """
        cdef Py_ssize_t slot = self._time_slot(self._floor_of(search.target_timestamp))
        cdef TimeEntry floor = load_time_entry(self._times, slot, self._base_offset)
        cdef int64_t position = 0, candidate
        cdef BatchHeader header
        cdef SearchOutcome outcome
        if floor.timestamp >= 0:
            if self._next_positions != NULL and self._next_positions[slot]:
                if self._window.smallest < INTERVAL_READ:
                    self._window.smallest = self._later_read
                if (read_header(&self._window, self._next_positions[slot], &header) == IS_FOUND
                        and header.base_offset > floor.offset):
                    position = self._next_positions[slot]
            if not position:
                outcome = self._position_before(search, AT_FLOOR, floor.offset, &candidate)
                if outcome != IS_FOUND:
                    return outcome
                if self._fits(floor, candidate, slot):
                    position = candidate
        outcome = self._position_before(
            search, AT_STARTING_OFFSET, search.starting_offset, &candidate)
        if outcome == IS_FOUND:
            search.position = max(position, candidate)
        return outcome

    cdef SearchOutcome _position_before(
        self, Search* search, int asked, int64_t offset, int64_t* position
    ) noexcept nogil:
        """Find a batch with only smaller offsets before it; 0 if entries do not match."""
        cdef OffsetEntry entry
        cdef BatchHeader header
        cdef int64_t first_offset
        position[0] = 0
        if offset <= self._base_offset:
            return IS_FOUND
        entry = self._offset_floor(offset)
        if (entry.position <= 0
                or read_header(&self._window, entry.position, &header) != IS_FOUND):
            return IS_FOUND
        first_offset = header.base_offset
        if is_wrapper(&header):
            if search.wrappers[asked].position != entry.position:
                search.position, search.asked = entry.position, asked
                return IS_WRAPPER
            first_offset = search.wrappers[asked].first_offset
        if self._base_offset <= first_offset <= entry.offset <= offset:
            position[0] = entry.position
        return IS_FOUND

    cdef bint _fits(
        self, TimeEntry entry, int64_t position, Py_ssize_t slot
    ) noexcept nogil:
        """Return whether the batch of an entry's offset has its timestamp as maximum."""
        cdef BatchHeader header
        cdef bint is_first = True
        while read_header(&self._window, position, &header) == IS_FOUND:
            position += header.size
            if header.last_offset >= entry.offset:
                if header.max_timestamp != entry.timestamp:
                    return False
                if self._next_positions == NULL:
                    self._next_positions = <int32_t*> calloc(self._time_count, sizeof(int32_t))
                if is_first and position <= INT32_MAX and self._next_positions != NULL:
                    self._next_positions[slot] = <int32_t> position
                return True
            is_first = False
        return False

    cdef SearchOutcome _decide(self, object log, Search* search, SearchOutcome outcome) except *:
        """Do the step that needs Python; IS_NONE ends the search, others continue it."""
        cdef const uint8_t[::1] payload
        if outcome == IS_OUT_OF_MEMORY:
            raise MemoryError("not enough memory to read a log")
        if outcome == IS_UNREADABLE:
            position = self._window.start + self._window.size
            if position < 0:
                raise log.unreadable(0, f"the offset index leads to byte {position}")
            raise log.unreadable(position, os.strerror(self._window.error))
        if outcome == IS_NO_BATCH:
            log.check_end(search.position)
            return IS_NONE
        if outcome == IS_CONTRADICTED:
            if log.header_at(search.header.position + search.header.size) is None:
                return IS_FOUND
            outcome = IS_OUT_OF_ORDER
        if outcome == IS_OUT_OF_ORDER:
            raise log.out_of_order(
                search.header.position, search.header.last_offset, search.smallest_offset)
        if outcome == IS_WRAPPER:
            first_offset = log.first_offset_at(search.position)
            search.wrappers[search.asked].position = search.position
            search.wrappers[search.asked].first_offset = (
                -1 if first_offset is None else first_offset)
            return outcome
        try:
            if outcome == IS_BROKEN_RECORDS:
                raise broken(search.error.decode(), &search.header)
            batch = self._batch(search)
            if batch is None:
                if cut_short(&self._window) == IS_UNREADABLE:
                    return self._decide(log, search, IS_UNREADABLE)
                return IS_NONE
            payload = self._payload = records_of(
                batch, &search.header, self._max_decompressed_bytes)
        except CorruptionError as error:
            if error.path is not None:
                raise
            raise error.located(log.path) from error
        search.payload.position = search.header.position
        search.payload.size = payload.shape[0]
        search.payload.bytes = &payload[0] if payload.shape[0] else NULL
        search.halt.position = -1
        return outcome

    cdef object _batch(self, Search* search):
        """Return the bytes of the batch whose header was read; None if truncated."""
        cdef int64_t position = search.header.position
        cdef Py_ssize_t at
        cdef SearchOutcome outcome
        with nogil:
            outcome = fill(&self._window, position, search.header.size)
        if outcome == IS_OUT_OF_MEMORY:
            raise MemoryError(f"not enough memory for a batch of {search.header.size} bytes")
        check_fetched()
        at = position - self._window.start
        if self._window.size - at < search.header.size:
            return None
        return PyBytes_FromStringAndSize(
            <const char*> self._window.bytes + at, search.header.size)
