"""The time index, ``<base offset>.timeindex``: from a timestamp to an offset in the log.

Entries of 12 bytes, big-endian; no header, no checksum::

    byte   0                                   8                 12
           +-----------------------------------+-----------------+
           |             timestamp             | relative_offset |   int64 ms, int32
           +-----------------------------------+-----------------+

An entry (timestamp, offset) promises that every record later than ``timestamp`` has an offset
greater than ``offset``.  Timestamps rise strictly, offsets do not fall; nothing holds from one
file to the next.  A look-up takes the last entry at or before its target and scans the log from
that offset; without one, from (-1, base offset).  The file of an active segment is preallocated,
so zeros follow the entries until the segment is rolled or closed, and its last slot is kept free
for the entry that rolling adds.

``docs/formats/time_index.md`` has the odd cases and a worked example.

Source: Kafka 2.4.0 ``TimeIndex``, ``AbstractIndex``; KIP-33.
"""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t

from kafkastore.formats.big_endian cimport store_i32, store_i64
from kafkastore.formats.offset_index cimport relative_offset
from kafkastore.formats.named_pair cimport new_named_pair
from kafkastore.formats.slot_search cimport (
    CHUNK,
    Key,
    SlotRange,
    is_strictly_sorted,
    lower_slots,
    proof_pays,
    search_slots,
    slots_before_padding,
)

import numpy as np

from kafkastore.errors import CorruptIndexError
from kafkastore.formats.entries import TIME_ENTRY, TimestampOffset, as_targets

TIMESTAMP_AT = _TIMESTAMP_AT
RELATIVE_OFFSET_AT = _RELATIVE_OFFSET_AT
ENTRY_SIZE = _ENTRY_SIZE


cdef inline Key offset_key(int64_t base_offset) noexcept nogil:
    return Key(_ENTRY_SIZE, _RELATIVE_OFFSET_AT, True, base_offset)


cdef inline object as_tuple(Entry entry):
    return new_named_pair(TimestampOffset, entry.timestamp, entry.offset)


def entry_count(entries):
    """Count the slots as a broker does that loads the file: padding counts, odd bytes do not.

    Parameters
    ----------
    entries : bytes-like
        The content of a time index file.

    Returns
    -------
    int
        The size divided by 12, rounded down.

    Notes
    -----
    Source: Kafka 2.4.0 ``AbstractIndex``, position of a mapped file that existed before.
    """
    cdef Py_buffer view
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    cdef Py_ssize_t count = view.len // _ENTRY_SIZE
    PyBuffer_Release(&view)
    return count


def used_entry_count(entries, int64_t base_offset=0, *, first_timestamp_may_be_zero=None):
    """Count the entries without the zero padding behind them.

    Parameters
    ----------
    entries : bytes-like
        The content of a time index file, odd bytes at its end allowed.
    base_offset : int
        Not needed here; the other functions have it in this place too.
    first_timestamp_may_be_zero : bool, optional
        What the log says: whether its record at the base offset has timestamp 0 and none before
        the first index entry is later. Only then (0, base offset), twelve zero bytes, is a true
        entry, and only in slot 0: a file of nothing but zeros is then said to have one entry.
        Whether it was written cannot be known, but what it promises holds. By default true of a
        file of one slot: it was trimmed, and a trimmed file has no padding.

    Returns
    -------
    int
        The slots up to the last that is not all zeros. All-zero slots before it count: slot 0 is
        the entry above, any other is damage and not padding, and `first_disorder` finds it.
    """
    cdef Py_buffer view
    cdef Py_ssize_t count, used
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    count = view.len // _ENTRY_SIZE
    with nogil:
        used = slots_before_padding(<const uint8_t*> view.buf, count, _ENTRY_SIZE)
    PyBuffer_Release(&view)
    if used == 0 and count:
        used = count == 1 if first_timestamp_may_be_zero is None else first_timestamp_may_be_zero
    return used


def parse(entries, int64_t base_offset):
    """Decode every slot.

    Parameters
    ----------
    entries : bytes-like
        The content of a time index file; odd bytes at its end are left out.
    base_offset : int
        Base offset of the segment, as in its file name.

    Returns
    -------
    numpy.ndarray
        Of dtype `TIME_ENTRY`: `timestamp` in ms, absolute `offset`.

    Examples
    --------
    >>> parse(bytes.fromhex("00000000 000003e8 00000005"), 50).tolist()
    [(1000, 55)]
    """
    cdef Py_buffer view
    cdef Py_ssize_t count, slot
    cdef const uint8_t* data
    cdef uint8_t[::1] out
    cdef Entry* decoded
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    try:
        data = <const uint8_t*> view.buf
        count = view.len // _ENTRY_SIZE
        array = np.empty(count, TIME_ENTRY)
        if count:
            out = array.view(np.uint8)
            decoded = <Entry*> &out[0]
            with nogil:
                for slot in range(count):
                    decoded[slot] = load_entry(data, slot, base_offset)
        return array
    finally:
        PyBuffer_Release(&view)


def pack(entries, int64_t base_offset):
    """Encode entries; their order is not checked.

    Parameters
    ----------
    entries : array_like
        Of dtype `TIME_ENTRY`, or a list of (timestamp, offset) tuples.
    base_offset : int
        Base offset of the segment.

    Returns
    -------
    bytes
        12 bytes an entry.

    Raises
    ------
    OffsetOverflowError
        If an offset is not within the 31 bits above the base offset.

    Examples
    --------
    >>> pack([(1000, 55)], 50).hex(" ", 4)
    '00000000 000003e8 00000005'
    """
    array = np.ascontiguousarray(entries, TIME_ENTRY)
    if array.ndim != 1:
        raise ValueError(f"entries have {array.ndim} dimensions, not 1")
    cdef Py_ssize_t count = array.shape[0], slot
    cdef bytes packed = PyBytes_FromStringAndSize(NULL, count * _ENTRY_SIZE)
    cdef uint8_t* at = <uint8_t*> PyBytes_AS_STRING(packed)
    cdef const uint8_t[::1] source
    cdef const Entry* decoded
    if count == 0:
        return packed
    source = array.view(np.uint8)
    decoded = <const Entry*> &source[0]
    for slot in range(count):
        store_i64(at + _TIMESTAMP_AT, decoded[slot].timestamp)
        store_i32(at + _RELATIVE_OFFSET_AT, relative_offset(decoded[slot].offset, base_offset))
        at += _ENTRY_SIZE
    return packed


def pack_entry(int64_t timestamp, int64_t offset, int64_t base_offset):
    """Encode one entry.

    Parameters
    ----------
    timestamp, offset : int
        The entry: ms, absolute offset.
    base_offset : int
        Base offset of the segment.

    Returns
    -------
    bytes
        12 bytes.

    Raises
    ------
    OffsetOverflowError
        If the offset is not within the 31 bits above the base offset.
    """
    cdef bytes packed = PyBytes_FromStringAndSize(NULL, _ENTRY_SIZE)
    cdef uint8_t* at = <uint8_t*> PyBytes_AS_STRING(packed)
    store_i64(at + _TIMESTAMP_AT, timestamp)
    store_i32(at + _RELATIVE_OFFSET_AT, relative_offset(offset, base_offset))
    return packed


def entry(entries, int64_t base_offset, Py_ssize_t slot):
    """Decode the entry in one slot.

    Parameters
    ----------
    entries : bytes-like
        The content of a time index file.
    base_offset : int
        Base offset of the segment.
    slot : int
        From 0 on.

    Returns
    -------
    TimestampOffset
        The entry.

    Raises
    ------
    IndexError
        If there is no such slot.

    Notes
    -----
    Source: Kafka 2.4.0 ``TimeIndex.entry``.
    """
    cdef Py_buffer view
    cdef Entry found
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    cdef Py_ssize_t count = view.len // _ENTRY_SIZE
    if 0 <= slot < count:
        found = load_entry(<const uint8_t*> view.buf, slot, base_offset)
    PyBuffer_Release(&view)
    if not 0 <= slot < count:
        raise IndexError(f"no slot {slot} in a time index of {count} entries")
    return as_tuple(found)


def last_entry(entries, int64_t base_offset):
    """Decode the last slot, padding or not; of no slots it is (-1, base offset).

    Parameters
    ----------
    entries : bytes-like
        The content of a time index file; its used part, for the last true entry.
    base_offset : int
        Base offset of the segment.

    Returns
    -------
    TimestampOffset
        The entry.

    Notes
    -----
    Source: Kafka 2.4.0 ``TimeIndex.lastEntry``.
    """
    cdef Py_buffer view
    cdef Entry found
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    found = load_entry(<const uint8_t*> view.buf, view.len // _ENTRY_SIZE - 1, base_offset)
    PyBuffer_Release(&view)
    return as_tuple(found)


def lookup(entries, int64_t base_offset, int64_t target_timestamp, *, bint warm_section=True):
    """Find the last entry at or before a timestamp, as a broker's search does.

    Parameters
    ----------
    entries : bytes-like
        The content of a time index file, or its used part. Every whole slot is searched, so
        padding changes answers as it does in a broker.
    base_offset : int
        Base offset of the segment.
    target_timestamp : int
        Milliseconds since 1970.
    warm_section : bool
        Whether the search looks in the last 8 KiB first, as brokers from 2.1.0 on do. On strictly
        sorted entries the answer is the same.

    Returns
    -------
    TimestampOffset
        The entry; (-1, base offset) where no entry is small enough.

    Notes
    -----
    Source: Kafka 2.4.0 ``TimeIndex.lookup``.

    Examples
    --------
    >>> lookup(bytes.fromhex("00000000 000003e8 00000005"), 50, 1001)
    TimestampOffset(timestamp=1000, offset=55)
    >>> lookup(b"", 50, 1001)
    TimestampOffset(timestamp=-1, offset=50)
    """
    cdef Py_buffer view
    cdef SlotRange found
    cdef Entry floor
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    found = search_slots(<const uint8_t*> view.buf, view.len // _ENTRY_SIZE,
                         timestamp_key(), target_timestamp, warm_section)
    floor = load_entry(<const uint8_t*> view.buf, found.lower, base_offset)
    PyBuffer_Release(&view)
    return as_tuple(floor)


def lookup_many(entries, int64_t base_offset, target_timestamps, *, bint warm_section=True):
    """Find the last entry at or before each of many timestamps; the same answers as `lookup`.

    Parameters
    ----------
    entries : bytes-like
        The content of a time index file, or its used part.
    base_offset : int
        Base offset of the segment.
    target_timestamps : array_like of int64, shape (n,)
        Milliseconds since 1970, in any order.
    warm_section : bool
        As for `lookup`.

    Returns
    -------
    numpy.ndarray, shape (n,)
        Of dtype `TIME_ENTRY`.
    """
    cdef Py_buffer view
    cdef const int64_t[::1] targets = as_targets(target_timestamps)
    cdef Py_ssize_t target_count = targets.shape[0]
    cdef uint8_t[::1] out
    answers = np.empty(target_count, TIME_ENTRY)
    if target_count == 0:
        return answers
    out = answers.view(np.uint8)
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    with nogil:
        answer_each(<const uint8_t*> view.buf, view.len // _ENTRY_SIZE, base_offset,
                    &targets[0], target_count, warm_section, <Entry*> &out[0])
    PyBuffer_Release(&view)
    return answers


cdef void answer_each(
    const uint8_t* entries, Py_ssize_t count, int64_t base_offset,
    const int64_t* targets, Py_ssize_t target_count, bint warm_section, Entry* answers,
) noexcept nogil:
    """Write the entry found for every target."""
    cdef Key key = timestamp_key()
    cdef Py_ssize_t slots[CHUNK]
    cdef Py_ssize_t done = 0, chunk, index
    cdef bint is_sorted = proof_pays(count, target_count) and is_strictly_sorted(
        entries, count, key)
    while done < target_count:
        chunk = min(CHUNK, target_count - done)
        lower_slots(entries, count, key, targets + done, chunk, is_sorted, warm_section, slots)
        for index in range(chunk):
            answers[done + index] = load_entry(entries, slots[index], base_offset)
        done += chunk


def truncate_to(entries, int64_t base_offset, int64_t offset, *, bint warm_section=True):
    """Count the slots that remain when entries at or after an offset are dropped.

    Parameters
    ----------
    entries : bytes-like
        The content of a time index file, or its used part.
    base_offset : int
        Base offset of the segment.
    offset : int
        First offset to drop.
    warm_section : bool
        As for `lookup`.

    Returns
    -------
    int
        The number of slots to keep. Of several entries with this very offset (a broker that
        appends never writes them) some may be kept: the search stops at any of them.

    Notes
    -----
    Source: Kafka 2.4.0 ``TimeIndex.truncateTo``.
    """
    cdef Py_buffer view
    cdef Py_ssize_t slot
    cdef Entry floor
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    slot = search_slots(<const uint8_t*> view.buf, view.len // _ENTRY_SIZE,
                        offset_key(base_offset), offset, warm_section).lower
    floor = load_entry(<const uint8_t*> view.buf, slot, base_offset)
    PyBuffer_Release(&view)
    return slot if slot >= 0 and floor.offset == offset else slot + 1


def check(entries, int64_t base_offset):
    """Check what a broker's sanity check looks at: first and last slot, and the size.

    Parameters
    ----------
    entries : bytes-like
        The content of a time index file.
    base_offset : int
        Base offset of the segment.

    Raises
    ------
    CorruptIndexError
        If the last slot's timestamp is below the first one's, its offset is below the base
        offset, or the size is no multiple of 12.

    Notes
    -----
    Source: Kafka 2.4.0 ``TimeIndex.sanityCheck``. Brokers up to 2.2 run it on load and rebuild the
    index of the segment; later ones do not run it.
    """
    cdef Py_buffer view
    cdef Entry first, last
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    cdef Py_ssize_t size = view.len, count = view.len // _ENTRY_SIZE
    first = load_entry(<const uint8_t*> view.buf, 0 if count else -1, base_offset)
    last = load_entry(<const uint8_t*> view.buf, count - 1, base_offset)
    PyBuffer_Release(&view)
    if last.timestamp < first.timestamp:
        raise CorruptIndexError(
            f"the last time index entry has timestamp {last.timestamp}, less than"
            f" {first.timestamp} of the first", position=(count - 1) * _ENTRY_SIZE)
    if last.offset < base_offset:
        raise CorruptIndexError(
            f"the last time index entry has offset {last.offset}, below the base offset"
            f" {base_offset}", position=(count - 1) * _ENTRY_SIZE)
    if size % _ENTRY_SIZE:
        raise CorruptIndexError(
            f"time index is {size} bytes, not a multiple of {_ENTRY_SIZE}",
            position=count * _ENTRY_SIZE)


def first_disorder(entries, int64_t base_offset):
    """Find the first slot that breaks the order of true entries.

    Parameters
    ----------
    entries : bytes-like
        The used part of a time index file.
    base_offset : int
        Base offset of the segment.

    Returns
    -------
    int
        The first slot whose timestamp is not greater, or whose offset is less, than that of the
        slot before it; slot 0 needs a timestamp and a relative offset of at least 0. -1 if none.
    """
    cdef Py_buffer view
    cdef Py_ssize_t disorder
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    with nogil:
        disorder = first_slot_out_of_order(<const uint8_t*> view.buf, view.len // _ENTRY_SIZE)
    PyBuffer_Release(&view)
    return disorder
