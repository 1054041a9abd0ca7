"""Kafka's search for a slot, shared by the offset index and the time index.

``search_slots`` is the broker's search step for step.  On strictly increasing keys it is an
ordinary binary search; on zero padded or unsorted ones its answer depends on which slots it looks
at, so nothing in it may be "improved".  It looks in the warm section first::

    slot    0                    hot                 count - 1
            +--------------------+-------------------+
            |                    |   warm section    |    hot = max(0, count - 1 - warm entries)
            +--------------------+-------------------+

    1.  key[hot] < target   -> bisect [hot, count - 1]
    2.  key[0]   > target   -> lower -1, upper 0
    3.  otherwise           -> bisect [0, hot]

The section is 8192 bytes, hence 1024 entries of 8 bytes or 682 of 12.  Kafka's reason: in-sync
followers and consumers look near the end; bisecting the whole index for them touches pages
elsewhere that change whenever the index grows by one page, and a page that fell out of the page
cache blocks the look-up.  8192 bytes are at most three pages, all touched by each look-up in the
section; with 4 KiB between entries the section covers the last 4 MiB (offset index) or 2.7 MiB
(time index) of the log.  Brokers before 2.1.0 have no warm section and bisect [0, count - 1].

``lower_slots`` answers many targets.  On keys that ``is_strictly_sorted`` has proved sorted it
takes several targets at a time by a plain binary search, whose answers are then the same.

Source: Kafka 2.4.0 ``AbstractIndex.indexSlotRangeFor``; before 2.1.0 ``AbstractIndex`` of 2.0.1;
KAFKA-6432.
"""
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from kafkastore.formats.primitives.big_endian cimport load_i32, load_i64, wrapping_sum


cdef enum:
    WARM_SECTION_SIZE = 8192
    # Targets searched in step. One search waits for memory at each halving, several overlap their
    # waits. Measured with 262,144 entries and random targets: 1 lane 100 ns a target, 4 lanes 53,
    # 8 lanes 35, 16 lanes 27, 32 lanes 26.
    LANES = 16
    # Targets whose slots fit on the stack, 4 KiB, before their entries are written out.
    CHUNK = 512
    # Of 2^28 entries, more than fit an index, a search compares 30.
    MOST_TRACED = 64


cdef struct Key:
    # The field of an entry that is searched: an int64 timestamp, or an int32 to add to an origin
    # (the base offset for offsets, 0 for positions).
    Py_ssize_t entry_size
    Py_ssize_t at
    bint is_relative
    int64_t origin


cdef struct SlotRange:
    Py_ssize_t lower     # greatest slot whose key is <= target; -1: none
    Py_ssize_t upper     # smallest slot whose key is >= target; -1: none


cdef struct SlotTrace:
    # The slots that a search compares, in order, with repetitions.
    Py_ssize_t slots[MOST_TRACED]
    int count


cdef inline int64_t key_of(const uint8_t* entries, Py_ssize_t slot, Key key) noexcept nogil:
    cdef const uint8_t* field = entries + slot * key.entry_size + key.at
    if key.is_relative:
        return wrapping_sum(key.origin, load_i32(field))
    return load_i64(field)


cdef inline int64_t read_key(
    const uint8_t* entries, Py_ssize_t slot, Key key, SlotTrace* trace,
) noexcept nogil:
    if trace != NULL and trace.count < MOST_TRACED:
        trace.slots[trace.count] = slot
        trace.count += 1
    return key_of(entries, slot, key)


cdef inline SlotRange bisect_slots(
    const uint8_t* entries, Py_ssize_t count, Py_ssize_t low, Py_ssize_t high,
    Key key, int64_t target, SlotTrace* trace,
) noexcept nogil:
    """Search [low, high] of `count` slots; any of several equal keys ends it."""
    cdef SlotRange found
    cdef Py_ssize_t middle
    cdef int64_t middle_key
    while low < high:
        middle = low + (high - low + 1) // 2
        middle_key = read_key(entries, middle, key, trace)
        if middle_key > target:
            high = middle - 1
        elif middle_key < target:
            low = middle
        else:
            found.lower = middle
            found.upper = middle
            return found
    found.lower = low
    found.upper = -1 if low == count - 1 else low + 1
    return found


cdef inline SlotRange search_slots(
    const uint8_t* entries, Py_ssize_t count, Key key, int64_t target, bint warm_section,
    SlotTrace* trace=NULL,
) noexcept nogil:
    """Find the slots around a target; brokers have `warm_section` since 2.1.0."""
    cdef SlotRange found
    cdef Py_ssize_t hot = count - 1
    if count == 0:
        found.lower = -1
        found.upper = -1
        return found
    if warm_section:
        hot = max(0, count - 1 - WARM_SECTION_SIZE // key.entry_size)
        if read_key(entries, hot, key, trace) < target:
            return bisect_slots(entries, count, hot, count - 1, key, target, trace)
    if read_key(entries, 0, key, trace) > target:
        found.lower = -1
        found.upper = 0
        return found
    return bisect_slots(entries, count, 0, hot, key, target, trace)


cdef inline Py_ssize_t slots_before_padding(
    const uint8_t* entries, Py_ssize_t count, Py_ssize_t entry_size,
) noexcept nogil:
    """Count the slots up to the last one that is not all zeros.

    Only the padding and that slot are read.
    """
    cdef Py_ssize_t size = count * entry_size
    cdef uint64_t eight_bytes
    while size >= 8:
        memcpy(&eight_bytes, entries + size - 8, 8)
        if eight_bytes:
            break
        size -= 8
    while size > 0 and entries[size - 1] == 0:
        size -= 1
    return (size + entry_size - 1) // entry_size


cdef inline bint is_strictly_sorted(
    const uint8_t* entries, Py_ssize_t count, Key key,
) noexcept nogil:
    cdef Py_ssize_t slot
    cdef int64_t this_key, last_key
    if count == 0:
        return True
    last_key = key_of(entries, 0, key)
    for slot in range(1, count):
        this_key = key_of(entries, slot, key)
        if this_key <= last_key:
            return False
        last_key = this_key
    return True


cdef inline bint proof_pays(Py_ssize_t count, Py_ssize_t target_count) noexcept nogil:
    """Return whether proving `count` slots sorted costs less than it saves."""
    return target_count >= count // 64


cdef inline void floor_slots_in_step(
    const uint8_t* entries, Py_ssize_t count, Key key, const int64_t* targets, Py_ssize_t* slots,
) noexcept nogil:
    """Find the floor slots of LANES targets in count > 0 strictly increasing keys.

    The interval halves alike in every lane, so there is no branch to mispredict.
    """
    cdef const uint8_t* floors[LANES]
    cdef Py_ssize_t length = count, half, step
    cdef int lane
    for lane in range(LANES):
        floors[lane] = entries
    while length > 1:
        half = length // 2
        step = half * key.entry_size
        for lane in range(LANES):
            floors[lane] += step & -<Py_ssize_t> (key_of(floors[lane], half, key) <= targets[lane])
        length -= half
    for lane in range(LANES):
        slots[lane] = (floors[lane] - entries) // key.entry_size
        if slots[lane] == 0 and key_of(entries, 0, key) > targets[lane]:
            slots[lane] = -1


cdef inline void lower_slots(
    const uint8_t* entries, Py_ssize_t count, Key key, const int64_t* targets,
    Py_ssize_t target_count, bint is_sorted, bint warm_section, Py_ssize_t* slots,
) noexcept nogil:
    """Find the lower slot of each target; `is_sorted` if the keys are proved so."""
    cdef Py_ssize_t done = 0
    if is_sorted and count:
        while target_count - done >= LANES:
            floor_slots_in_step(entries, count, key, targets + done, slots + done)
            done += LANES
    while done < target_count:
        slots[done] = search_slots(entries, count, key, targets[done], warm_section).lower
        done += 1
