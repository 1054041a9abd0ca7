"""The offset index, ``<base offset>.index``: from an offset to a byte position in the log.

Entries of 8 bytes, big-endian; no header, no checksum::

    byte   0                 4                 8
           +-----------------+-----------------+
           | relative_offset |    position     |     both int32
           +-----------------+-----------------+

An entry (offset, position) promises that every record at or after ``offset`` lies at or after byte
``position`` of the log file, where a batch starts.  Offsets and positions both rise strictly.  A
look-up takes the last entry at or before its target and scans the log forward from there; without
one, from (base offset, 0).  The file of an active segment is preallocated, so zeros follow the
entries until the segment is rolled or closed; a true entry never has position 0, because none is
written before the first index interval is full.

``docs/formats/offset_index.md`` has the odd cases and a worked example.

Source: Kafka 2.4.0 ``OffsetIndex``, ``AbstractIndex``.
"""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t

from kafkastore.formats.big_endian cimport load_i32, store_i32
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

from kafkastore.errors import CorruptIndexError, OffsetOverflowError
from kafkastore.formats.entries import OFFSET_ENTRY, OffsetPosition, as_targets

RELATIVE_OFFSET_AT = _RELATIVE_OFFSET_AT
POSITION_AT = _POSITION_AT
ENTRY_SIZE = _ENTRY_SIZE


cpdef int32_t relative_offset(int64_t offset, int64_t base_offset) except -1:
    """Return an offset as both indexes store it.

    Parameters
    ----------
    offset : int
        Absolute offset.
    base_offset : int
        Base offset of the segment.

    Returns
    -------
    int
        Their difference.

    Raises
    ------
    OffsetOverflowError
        If the offset is not within the 31 bits above the base offset.

    Notes
    -----
    Source: Kafka 2.4.0 ``AbstractIndex.relativeOffset``.
    """
    if offset < base_offset or <uint64_t> offset - <uint64_t> base_offset > INT32_MAX:
        raise OffsetOverflowError(
            f"offset {offset} is not within 0 to {INT32_MAX} above the base offset {base_offset}")
    return <int32_t> (offset - base_offset)


cdef inline Key position_key() noexcept nogil:
    return Key(_ENTRY_SIZE, _POSITION_AT, True, 0)


cdef inline object as_tuple(Entry entry):
    return new_named_pair(OffsetPosition, entry.offset, entry.position)


def entry_count(entries):
    """Count the slots as a broker does that loads the file: padding counts, odd bytes do not.

    Parameters
    ----------
    entries : bytes-like
        The content of an offset index file.

    Returns
    -------
    int
        The size divided by 8, rounded down.

    Notes
    -----
    Source: Kafka 2.4.0 ``AbstractIndex``, position of a mapped file that existed before.
    """
    cdef Py_buffer view
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    cdef Py_ssize_t count = view.len // _ENTRY_SIZE
    PyBuffer_Release(&view)
    return count


def used_entry_count(entries, int64_t base_offset=0):
    """Count the entries without the zero padding behind them.

    Parameters
    ----------
    entries : bytes-like
        The content of an offset index file, odd bytes at its end allowed.
    base_offset : int
        Not needed here; the other functions have it in this place too.

    Returns
    -------
    int
        The slots up to the last that is not all zeros. All-zero slots before it count: they are
        damage (a lost page) and not padding, and `first_disorder` finds them.
    """
    cdef Py_buffer view
    cdef Py_ssize_t count
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    with nogil:
        count = slots_before_padding(
            <const uint8_t*> view.buf, view.len // _ENTRY_SIZE, _ENTRY_SIZE)
    PyBuffer_Release(&view)
    return count


def parse(entries, int64_t base_offset):
    """Decode every slot.

    Parameters
    ----------
    entries : bytes-like
        The content of an offset index file; odd bytes at its end are left out.
    base_offset : int
        Base offset of the segment, as in its file name.

    Returns
    -------
    numpy.ndarray
        Of dtype `OFFSET_ENTRY`: absolute `offset`, `position` in bytes.

    Examples
    --------
    >>> parse(bytes.fromhex("00000005 000000ff"), 50).tolist()
    [(55, 255)]
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
        array = np.empty(count, OFFSET_ENTRY)
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
    """Encode entries; neither their order nor their positions are checked.

    Parameters
    ----------
    entries : array_like
        Of dtype `OFFSET_ENTRY`, or a list of (offset, position) tuples.
    base_offset : int
        Base offset of the segment.

    Returns
    -------
    bytes
        8 bytes an entry.

    Raises
    ------
    OffsetOverflowError
        If an offset is not within the 31 bits above the base offset.

    Examples
    --------
    >>> pack([(55, 255)], 50).hex(" ", 4)
    '00000005 000000ff'
    """
    array = np.ascontiguousarray(entries, OFFSET_ENTRY)
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
        store_i32(at + _RELATIVE_OFFSET_AT, relative_offset(decoded[slot].offset, base_offset))
        store_i32(at + _POSITION_AT, decoded[slot].position)
        at += _ENTRY_SIZE
    return packed


def pack_entry(int64_t offset, int32_t position, int64_t base_offset):
    """Encode one entry.

    Parameters
    ----------
    offset, position : int
        The entry: absolute offset, byte position in the log.
    base_offset : int
        Base offset of the segment.

    Returns
    -------
    bytes
        8 bytes.

    Raises
    ------
    OffsetOverflowError
        If the offset is not within the 31 bits above the base offset.
    """
    cdef bytes packed = PyBytes_FromStringAndSize(NULL, _ENTRY_SIZE)
    cdef uint8_t* at = <uint8_t*> PyBytes_AS_STRING(packed)
    store_i32(at + _RELATIVE_OFFSET_AT, relative_offset(offset, base_offset))
    store_i32(at + _POSITION_AT, position)
    return packed


def entry(entries, int64_t base_offset, Py_ssize_t slot):
    """Decode the entry in one slot.

    Parameters
    ----------
    entries : bytes-like
        The content of an offset index file.
    base_offset : int
        Base offset of the segment.
    slot : int
        From 0 on.

    Returns
    -------
    OffsetPosition
        The entry.

    Raises
    ------
    IndexError
        If there is no such slot.

    Notes
    -----
    Source: Kafka 2.4.0 ``OffsetIndex.entry``.
    """
    cdef Py_buffer view
    cdef Entry found
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    cdef Py_ssize_t count = view.len // _ENTRY_SIZE
    if 0 <= slot < count:
        found = load_entry(<const uint8_t*> view.buf, slot, base_offset)
    PyBuffer_Release(&view)
    if not 0 <= slot < count:
        raise IndexError(f"no slot {slot} in an offset index of {count} entries")
    return as_tuple(found)


def last_entry(entries, int64_t base_offset):
    """Decode the last slot, padding or not; of no slots it is (base offset, 0).

    Parameters
    ----------
    entries : bytes-like
        The content of an offset index file; its used part, for the last true entry.
    base_offset : int
        Base offset of the segment.

    Returns
    -------
    OffsetPosition
        The entry.

    Notes
    -----
    Source: Kafka 2.4.0 ``OffsetIndex.lastEntry``.
    """
    cdef Py_buffer view
    cdef Entry found
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    found = load_entry(<const uint8_t*> view.buf, view.len // _ENTRY_SIZE - 1, base_offset)
    PyBuffer_Release(&view)
    return as_tuple(found)


def lookup(entries, int64_t base_offset, int64_t target_offset, *, bint warm_section=True):
    """Find the last entry at or before an offset, as a broker's search does.

    Parameters
    ----------
    entries : bytes-like
        The content of an offset index file, or its used part. Every whole slot is searched, so
        padding changes answers as it does in a broker.
    base_offset : int
        Base offset of the segment.
    target_offset : int
        Absolute offset.
    warm_section : bool
        Whether the search looks in the last 8 KiB first, as brokers from 2.1.0 on do. On strictly
        sorted entries the answer is the same.

    Returns
    -------
    OffsetPosition
        The entry; (base offset, 0) where no entry is small enough.

    Notes
    -----
    Source: Kafka 2.4.0 ``OffsetIndex.lookup``.

    Examples
    --------
    >>> lookup(bytes.fromhex("00000005 000000ff"), 50, 57)
    OffsetPosition(offset=55, position=255)
    >>> lookup(b"", 50, 57)
    OffsetPosition(offset=50, position=0)
    """
    cdef Py_buffer view
    cdef SlotRange found
    cdef Entry floor
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    found = search_slots(<const uint8_t*> view.buf, view.len // _ENTRY_SIZE,
                         offset_key(base_offset), target_offset, warm_section)
    floor = load_entry(<const uint8_t*> view.buf, found.lower, base_offset)
    PyBuffer_Release(&view)
    return as_tuple(floor)


def lookup_many(entries, int64_t base_offset, target_offsets, *, bint warm_section=True):
    """Find the last entry at or before each of many offsets; the same answers as `lookup`.

    Parameters
    ----------
    entries : bytes-like
        The content of an offset index file, or its used part.
    base_offset : int
        Base offset of the segment.
    target_offsets : array_like of int64, shape (n,)
        Absolute offsets, in any order.
    warm_section : bool
        As for `lookup`.

    Returns
    -------
    numpy.ndarray, shape (n,)
        Of dtype `OFFSET_ENTRY`.
    """
    cdef Py_buffer view
    cdef const int64_t[::1] targets = as_targets(target_offsets)
    cdef Py_ssize_t target_count = targets.shape[0]
    cdef uint8_t[::1] out
    answers = np.empty(target_count, OFFSET_ENTRY)
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
    cdef Key key = offset_key(base_offset)
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


def fetch_upper_bound(
    entries, int64_t base_offset, int32_t position, int32_t fetch_size, *, bint warm_section=True,
):
    """Find the first entry at or after the end of a fetch: an offset surely outside it.

    Parameters
    ----------
    entries : bytes-like
        The content of an offset index file, or its used part.
    base_offset : int
        Base offset of the segment.
    position, fetch_size : int
        Where the fetch starts in the log, and its size in bytes.
    warm_section : bool
        As for `lookup`.

    Returns
    -------
    OffsetPosition or None
        None if the fetch ends behind every entry.

    Notes
    -----
    Source: Kafka 2.4.0 ``OffsetIndex.fetchUpperBoundOffset``; there the sum wraps at 31 bits.
    """
    cdef Py_buffer view
    cdef SlotRange found
    cdef Entry bound
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    found = search_slots(<const uint8_t*> view.buf, view.len // _ENTRY_SIZE, position_key(),
                         <int64_t> position + fetch_size, warm_section)
    bound = load_entry(<const uint8_t*> view.buf, found.upper, base_offset)
    PyBuffer_Release(&view)
    return None if found.upper < 0 else as_tuple(bound)


def truncate_to(entries, int64_t base_offset, int64_t offset, *, bint warm_section=True):
    """Count the slots that remain when entries at or after an offset are dropped.

    Parameters
    ----------
    entries : bytes-like
        The content of an offset index file, or its used part.
    base_offset : int
        Base offset of the segment.
    offset : int
        First offset to drop.
    warm_section : bool
        As for `lookup`.

    Returns
    -------
    int
        The number of slots to keep.

    Notes
    -----
    Source: Kafka 2.4.0 ``OffsetIndex.truncateTo``.
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
    """Check what a broker's sanity check looks at: the last offset and the size.

    Parameters
    ----------
    entries : bytes-like
        The content of an offset index file.
    base_offset : int
        Base offset of the segment.

    Raises
    ------
    CorruptIndexError
        If the last slot's offset is below the base offset, or the size is no multiple of 8.

    Notes
    -----
    Source: Kafka 2.4.0 ``OffsetIndex.sanityCheck``. Brokers up to 2.2 run it on load and rebuild
    the index of the segment; later ones do not run it. Up to 1.1 the last offset had to be above
    the base offset, so that a padded file was refused too.
    """
    cdef Py_buffer view
    cdef Entry last
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    cdef Py_ssize_t size = view.len, count = view.len // _ENTRY_SIZE
    last = load_entry(<const uint8_t*> view.buf, count - 1, base_offset)
    PyBuffer_Release(&view)
    if last.offset < base_offset:
        raise CorruptIndexError(
            f"the last offset index entry has offset {last.offset}, below the base offset"
            f" {base_offset}", position=(count - 1) * _ENTRY_SIZE)
    if size % _ENTRY_SIZE:
        raise CorruptIndexError(
            f"offset index is {size} bytes, not a multiple of {_ENTRY_SIZE}",
            position=count * _ENTRY_SIZE)


def first_disorder(entries, int64_t base_offset):
    """Find the first slot that breaks the order of true entries.

    Parameters
    ----------
    entries : bytes-like
        The used part of an offset index file.
    base_offset : int
        Base offset of the segment.

    Returns
    -------
    int
        The first slot whose offset or position is not greater than that of the slot before it;
        slot 0 needs an offset at or above the base offset and a position above 0. -1 if none.
    """
    cdef Py_buffer view
    cdef Py_ssize_t slot, disorder = -1
    cdef const uint8_t* at
    cdef int32_t last_relative_offset = -1, last_position = 0
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    at = <const uint8_t*> view.buf
    with nogil:
        for slot in range(view.len // _ENTRY_SIZE):
            if (load_i32(at + _RELATIVE_OFFSET_AT) <= last_relative_offset
                    or load_i32(at + _POSITION_AT) <= last_position):
                disorder = slot
                break
            last_relative_offset = load_i32(at + _RELATIVE_OFFSET_AT)
            last_position = load_i32(at + _POSITION_AT)
            at += _ENTRY_SIZE
    PyBuffer_Release(&view)
    return disorder
