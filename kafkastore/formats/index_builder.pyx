"""The offset and time index of a segment, built from its batch headers as a recovering broker does.

An entry is due where more than ``index.interval.bytes`` of log lie between a batch and the last one
that got an entry; the first batch never gets one. The time index then takes the largest
timestamp so far with the last offset of the batch that reached it first, if it is larger than
in the entry before; its last entry has the segment's maximum.

Source: Kafka 2.4.0 ``LogSegment.recover``; 3.8 and later give the same bytes.
"""
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t

from kafkastore.formats.batch_header cimport BatchHeader
from kafkastore.formats.big_endian cimport store_i32, store_i64

from kafkastore.errors import OffsetOverflowError, OutOfOrderAppendError

OFFSET_ENTRY_SIZE = 8
TIME_ENTRY_SIZE = 12


cdef class IndexBuilder:
    """Both indexes of one segment, growing run by run.

    Parameters
    ----------
    base_offset : int
        Of the segment.
    index_interval_bytes : int
        The topic's ``index.interval.bytes``.

    Attributes
    ----------
    largest_timestamp : int
        Of all headers so far, ms; -1 where none has one.
    offset_of_max_timestamp : int
        Last offset of the batch that reached it first.
    """

    cdef int64_t base_offset, index_interval_bytes, last_entry_position, last_time_entry
    cdef readonly int64_t largest_timestamp, offset_of_max_timestamp
    cdef int64_t last_offset_in_index, last_offset_in_time_index
    cdef bytearray offset_entries, time_entries

    def __cinit__(self, int64_t base_offset, int64_t index_interval_bytes):
        self.base_offset = base_offset
        self.index_interval_bytes = index_interval_bytes
        self.last_entry_position = 0
        self.last_time_entry = self.largest_timestamp = -1
        self.offset_of_max_timestamp = base_offset
        self.last_offset_in_index = self.last_offset_in_time_index = -1
        self.offset_entries, self.time_entries = bytearray(), bytearray()

    def append(self, const BatchHeader[::1] headers not None):
        """Go on with the headers of the next batches, in the order of the log.

        Parameters
        ----------
        headers : numpy.ndarray of BATCH_HEADER

        Raises
        ------
        OffsetOverflowError
            If an offset does not fit the 31 bits above the base offset.
        OutOfOrderAppendError
            If an entry's offset is not above the one before it; a recovering broker gives up there.
        """
        cdef Py_ssize_t i
        cdef int64_t last_offset
        for i in range(headers.shape[0]):
            last_offset = headers[i].last_offset
            if (last_offset < self.base_offset
                    or <uint64_t> last_offset - <uint64_t> self.base_offset > INT32_MAX):
                raise OffsetOverflowError(
                    f"offset {last_offset} can't be in the segment with base offset "
                    f"{self.base_offset}: the batch at byte {headers[i].position} is more than "
                    f"{INT32_MAX} offsets away")
            if headers[i].max_timestamp > self.largest_timestamp:
                self.largest_timestamp = headers[i].max_timestamp
                self.offset_of_max_timestamp = last_offset
            if headers[i].position - self.last_entry_position > self.index_interval_bytes:
                self._add_offset_entry(last_offset, headers[i].position)
                self._maybe_add_time_entry()
                self.last_entry_position = headers[i].position

    def finish(self):
        """Add the last time entry and return both files.

        Returns
        -------
        offset_index, time_index : bytes
        """
        self._maybe_add_time_entry()
        return bytes(self.offset_entries), bytes(self.time_entries)

    cdef int _add_offset_entry(self, int64_t offset, int64_t position) except -1:
        cdef uint8_t entry[8]
        if offset <= self.last_offset_in_index:
            raise OutOfOrderAppendError(
                f"offset {offset} of the batch at byte {position} is not greater than "
                f"{self.last_offset_in_index}, which the offset index has before it")
        self.last_offset_in_index = offset
        store_i32(entry, <int32_t> (offset - self.base_offset))
        store_i32(entry + 4, <int32_t> position)
        self.offset_entries += entry[:8]
        return 0

    cdef int _maybe_add_time_entry(self) except -1:
        cdef uint8_t entry[12]
        if self.largest_timestamp <= self.last_time_entry:
            return 0
        if self.offset_of_max_timestamp < self.last_offset_in_time_index:
            raise OutOfOrderAppendError(
                f"offset {self.offset_of_max_timestamp} of the timestamp "
                f"{self.largest_timestamp} is less than {self.last_offset_in_time_index}, which "
                "the time index has before it")
        self.last_offset_in_time_index = self.offset_of_max_timestamp
        store_i64(entry, self.largest_timestamp)
        store_i32(entry + 8, <int32_t> (self.offset_of_max_timestamp - self.base_offset))
        self.time_entries += entry[:12]
        self.last_time_entry = self.largest_timestamp
        return 0
