"""The offset of the last record of each key, in at most 32 bytes a key.

This is what Kafka's cleaner calls its offset map. Entries hold a hash of the key under a random
secret, so that no one can choose keys with equal hashes; and the entries of the table are always in
the order of their hashes. Each has its place by its hash, or follows the entry before it: a table
grows in place, in one walk over its entries, and may be nearly full.

Source: Kafka 2.4.0 ``SkimpyOffsetMap``, ``Cleaner.buildOffsetMapForSegment``.
"""
cimport cython
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from kafkastore.formats.primitives.siphash cimport SipHash, SipKey, load_word, sip_hash
from kafkastore.formats.primitives.memory_pages cimport free_pages, resized
from kafkastore.formats.records.record_rows cimport BinaryRows, binary_of, int64_of

from kafkastore.errors import ArgumentValueError, OffsetOverflowError

cdef extern from *:
    """
    #define KAFKASTORE_HIGH_PRODUCT(a, b) ((uint64_t) (((unsigned __int128) (a) * (b)) >> 64))
    """
    uint64_t high_product "KAFKASTORE_HIGH_PRODUCT" (uint64_t, uint64_t) noexcept nogil
    void __builtin_prefetch(const void*) noexcept nogil
    enum:
        __ATOMIC_ACQUIRE
        __ATOMIC_RELEASE
    bint __atomic_test_and_set(char*, int) noexcept nogil
    void __atomic_clear(char*, int) noexcept nogil


cdef packed struct KeyEntry:
    uint64_t hash
    uint32_t more_hash
    int64_t place            # below 0: the slot is empty
    int64_t timestamp        # exists only in tables of several partitions


cdef enum:
    SIZE_WITH_TIMESTAMP = 28
    SIZE_WITHOUT_TIMESTAMP = 20
    # One in so many slots stays empty, and a table grows by as much: that is 26 bytes a key at most
    # with the smaller entries, and 32 with the larger ones.
    EMPTY_SHARE_WITH_TIMESTAMP = 16
    EMPTY_SHARE_WITHOUT_TIMESTAMP = 8
    FEWEST_SLOTS = 1024
    # Slots after the last: entries that follow the entry before them. At 15/16 full, more than
    # these are needed once in 10^29 tables, which then grow earlier.
    MORE_SLOTS = 512
    # Keys whose slots are fetched into the cache together.
    AHEAD = 16


cdef enum TableOutcome:
    DONE
    NO_MEMORY
    BROKEN_KEYS
    BAD_OFFSET


cdef uint8_t NOTHING = 0


cdef struct Keys:
    Py_ssize_t first                  # where the rows begin in `keys`
    BinaryRows keys
    const uint8_t* offsets
    const uint8_t* timestamps         # NULL: not used


cdef inline bint is_less(const KeyEntry* entry, SipHash hash) noexcept nogil:
    return entry.hash < hash.low or (
        entry.hash == hash.low and entry.more_hash < <uint32_t> hash.high)


cdef inline bint is_same(const KeyEntry* entry, SipHash hash) noexcept nogil:
    return entry.hash == hash.low and entry.more_hash == <uint32_t> hash.high


@cython.final
@cython.no_gc
cdef class LatestOffsets:
    """The last record of each key, for one thread at a time.

    Records are added partition by partition, each in offset order; those without a key do not
    count. With `across_partitions`, a key belongs to the partition with its newest record, by
    timestamp; to the last of these partitions if several have one equally new. `secret`: 16 random
    bytes, the key of the hash.
    """

    cdef uint8_t* table
    cdef Py_ssize_t size              # bytes of an entry
    cdef Py_ssize_t empty_share
    cdef Py_ssize_t slots             # where hashes point; MORE_SLOTS follow
    cdef Py_ssize_t most              # entries before the table grows
    cdef readonly Py_ssize_t count
    cdef readonly int64_t end_place   # exclusive
    cdef SipKey key
    cdef char is_busy                 # a thread works on it without the GIL

    def __cinit__(self, secret not None, *, bint across_partitions=False):
        self.key = key_of(secret)
        if across_partitions:
            self.size, self.empty_share = SIZE_WITH_TIMESTAMP, EMPTY_SHARE_WITH_TIMESTAMP
        else:
            self.size, self.empty_share = SIZE_WITHOUT_TIMESTAMP, EMPTY_SHARE_WITHOUT_TIMESTAMP
        if not self._resize(FEWEST_SLOTS):
            raise MemoryError

    def __dealloc__(self):
        free_pages(self.table, (self.slots + MORE_SLOTS) * self.size)

    @property
    def nbytes(self):
        """The memory of the table."""
        return (self.slots + MORE_SLOTS) * self.size

    def add(self, Py_ssize_t rows, keys not None, offsets not None, timestamps=None,
            int64_t shift=0):
        """Add records of a partition: `rows` rows of Arrow's buffers.

        `keys`: (first row, validity or None, int32 offsets, bytes); `offsets`: int64; `timestamps`:
        int64, needed across partitions. Across partitions, `shift` is what `end_place` was before
        the first record of the partition, and 0 for the first partition. Raises ValueError for
        buffers that do not fit each other, and `OffsetOverflowError` if the end offsets of all
        partitions together exceed 63 bits.
        """
        cdef list held = []
        cdef Keys given = keys_of(rows, keys, offsets, held)
        cdef TableOutcome outcome
        if self.size == SIZE_WITH_TIMESTAMP:
            given.timestamps = data_of(held, timestamps, 8 * rows)
        self._begin()
        try:
            with nogil:
                outcome = self._add(&given, rows, shift)
        finally:
            __atomic_clear(&self.is_busy, __ATOMIC_RELEASE)
        check(outcome)

    def find_latest(self, Py_ssize_t rows, keys not None, offsets not None, int64_t shift=0):
        """Return which of these records are the last of their keys: a bitmap, as Arrow's.

        The parameters are as for `add`.
        """
        cdef list held = []
        cdef Keys given = keys_of(rows, keys, offsets, held)
        cdef uint8_t[::1] found = bytearray(rows // 8 + 1)
        cdef TableOutcome outcome
        self._begin()
        try:
            with nogil:
                outcome = self._find_latest(&given, rows, shift, &found[0])
        finally:
            __atomic_clear(&self.is_busy, __ATOMIC_RELEASE)
        check(outcome)
        return found.base

    def newest_timestamps(self, Py_ssize_t rows, keys not None):
        """Return the newest timestamps of these keys: int64 for each of `rows` rows.

        They are those of the partitions to which the keys belong; -1 for a key that was not added.
        `keys` is as for `add`; the table must be one across partitions.
        """
        cdef list held = []
        cdef uint8_t[::1] found = bytearray(max(8 * rows, 1))
        cdef Keys given = keys_of(rows, keys, found, held)  # which uses no offsets
        cdef TableOutcome outcome
        if self.size != SIZE_WITH_TIMESTAMP:
            raise ArgumentValueError("across_partitions", "True for timestamps", False)
        self._begin()
        try:
            with nogil:
                outcome = self._newest_timestamps(&given, rows, &found[0])
        finally:
            __atomic_clear(&self.is_busy, __ATOMIC_RELEASE)
        check(outcome)
        return found.base

    cdef int _begin(self) except -1:
        if __atomic_test_and_set(&self.is_busy, __ATOMIC_ACQUIRE):
            raise RuntimeError("another thread uses these LatestOffsets")
        return 0

    cdef inline KeyEntry* _at(self, Py_ssize_t slot) noexcept nogil:
        return <KeyEntry*> (self.table + slot * self.size)

    cdef inline Py_ssize_t _home(self, uint64_t hash) noexcept nogil:
        """Return the slot a hash points at: the order of slots is that of hashes."""
        return high_product(hash, self.slots)

    cdef inline Py_ssize_t _find(self, SipHash hash) noexcept nogil:
        """Return the slot of a hash, or the slot where it belongs.

        The very last slot is always empty.
        """
        cdef Py_ssize_t slot = self._home(hash.low)
        while self._at(slot).place >= 0 and is_less(self._at(slot), hash):
            slot += 1
        return slot

    cdef TableOutcome _hash_ahead(
        self, const Keys* given, Py_ssize_t row, Py_ssize_t end, SipHash* hashes, bint* has_key
    ) noexcept nogil:
        """Hash the keys of some rows, and let the processor fetch their slots."""
        cdef const uint8_t* at
        cdef int32_t size = 0
        cdef Py_ssize_t i
        for i in range(end - row):
            if not binary_of(&given.keys, given.first + row + i, &at, &size):
                return BROKEN_KEYS
            has_key[i] = size >= 0
            if has_key[i]:
                hashes[i] = sip_hash(self.key, at, size)
                __builtin_prefetch(self._at(self._home(hashes[i].low)))
        return DONE

    cdef TableOutcome _add(self, const Keys* given, Py_ssize_t rows, int64_t shift) noexcept nogil:
        cdef SipHash[AHEAD] hashes
        cdef bint[AHEAD] has_key
        cdef TableOutcome outcome
        cdef Py_ssize_t row = 0, end, i
        cdef int64_t offset, timestamp = 0
        while row < rows:
            end = min(rows, row + AHEAD)
            outcome = self._hash_ahead(given, row, end, hashes, has_key)
            if outcome != DONE:
                return outcome
            for i in range(end - row):
                if not has_key[i]:
                    continue
                offset = int64_of(given.offsets, row + i)
                if not 0 <= offset < INT64_MAX - shift:
                    return BAD_OFFSET
                if given.timestamps != NULL:
                    timestamp = int64_of(given.timestamps, row + i)
                if not self._put(hashes[i], shift + offset, timestamp, shift):
                    return NO_MEMORY
                self.end_place = max(self.end_place, shift + offset + 1)
            row = end
        return DONE

    cdef TableOutcome _find_latest(
        self, const Keys* given, Py_ssize_t rows, int64_t shift, uint8_t* found
    ) noexcept nogil:
        cdef SipHash[AHEAD] hashes
        cdef bint[AHEAD] has_key
        cdef TableOutcome outcome
        cdef Py_ssize_t row = 0, end, i
        cdef const KeyEntry* entry
        while row < rows:
            end = min(rows, row + AHEAD)
            outcome = self._hash_ahead(given, row, end, hashes, has_key)
            if outcome != DONE:
                return outcome
            for i in range(end - row):
                if not has_key[i]:
                    continue
                entry = self._at(self._find(hashes[i]))
                if (entry.place >= 0 and is_same(entry, hashes[i])
                        and entry.place - shift == int64_of(given.offsets, row + i)):
                    found[(row + i) >> 3] |= 1 << ((row + i) & 7)
            row = end
        return DONE

    cdef TableOutcome _newest_timestamps(
        self, const Keys* given, Py_ssize_t rows, uint8_t* found
    ) noexcept nogil:
        cdef SipHash[AHEAD] hashes
        cdef bint[AHEAD] has_key
        cdef TableOutcome outcome
        cdef Py_ssize_t row = 0, end, i
        cdef const KeyEntry* entry
        cdef int64_t newest
        while row < rows:
            end = min(rows, row + AHEAD)
            outcome = self._hash_ahead(given, row, end, hashes, has_key)
            if outcome != DONE:
                return outcome
            for i in range(end - row):
                newest = -1
                if has_key[i]:
                    entry = self._at(self._find(hashes[i]))
                    if entry.place >= 0 and is_same(entry, hashes[i]):
                        newest = entry.timestamp
                memcpy(found + 8 * (row + i), &newest, sizeof(newest))
            row = end
        return DONE

    cdef bint _put(self, SipHash hash, int64_t place, int64_t timestamp, int64_t first_place
                   ) noexcept nogil:
        """Note a record, or ignore it; False if out of memory.

        `first_place` is where its partition begins.
        """
        cdef Py_ssize_t slot = self._find(hash), empty
        cdef KeyEntry* entry = self._at(slot)
        if entry.place >= 0 and is_same(entry, hash):
            if self.size == SIZE_WITHOUT_TIMESTAMP:
                entry.place = place
            elif entry.place >= first_place:
                entry.place = place
                entry.timestamp = max(entry.timestamp, timestamp)
            elif timestamp >= entry.timestamp:
                entry.place = place
                entry.timestamp = timestamp
            return True
        empty = slot
        while self._at(empty).place >= 0:
            empty += 1
        if self.count >= self.most or empty == self.slots + MORE_SLOTS - 1:
            return (self._resize(self.slots + self.slots // self.empty_share)
                    and self._put(hash, place, timestamp, first_place))
        memmove(self._at(slot + 1), entry, (empty - slot) * self.size)
        entry.hash = hash.low
        entry.more_hash = <uint32_t> hash.high
        entry.place = place
        if self.size == SIZE_WITH_TIMESTAMP:
            entry.timestamp = timestamp
        self.count += 1
        return True

    cdef inline void _move(self, Py_ssize_t to, Py_ssize_t slot) noexcept nogil:
        if to == slot:
            return
        if self.size == SIZE_WITH_TIMESTAMP:  # copies of a constant size are a few instructions
            memcpy(self._at(to), self._at(slot), SIZE_WITH_TIMESTAMP)
        else:
            memcpy(self._at(to), self._at(slot), SIZE_WITHOUT_TIMESTAMP)

    cdef bint _resize(self, Py_ssize_t slots) noexcept nogil:
        """Grow in place; False if out of memory.

        Entries move to the end of the larger table, and from there forward: in that order none is
        overwritten before it moves.
        """
        cdef Py_ssize_t before = self.slots + MORE_SLOTS if self.table else 0
        cdef Py_ssize_t end = slots + MORE_SLOTS, to = end, free_slot = 0, slot
        cdef uint8_t* table = <uint8_t*> resized(self.table, before * self.size, end * self.size)
        if table == NULL:
            return False
        self.table, self.slots = table, slots
        self.most = slots - slots // self.empty_share
        for slot in range(before - 1, -1, -1):
            if self._at(slot).place >= 0:
                to -= 1
                self._move(to, slot)
        for slot in range(to, end):
            to = max(self._home(self._at(slot).hash), free_slot)
            if to > slot or to == end - 1:  # too few slots follow the last one
                self._empty(free_slot, slot)
                return self._resize(slots + slots // self.empty_share)
            self._empty(free_slot, to)
            self._move(to, slot)
            free_slot = to + 1
        self._empty(free_slot, end)
        return True

    cdef inline void _empty(self, Py_ssize_t slot, Py_ssize_t end) noexcept nogil:
        while slot < end:
            self._at(slot).place = -1
            slot += 1


def hash_of_key(const uint8_t[::1] key not None, secret not None):
    """Return the 16 bytes of a key's hash, of which entries hold the first 12."""
    cdef SipHash found = sip_hash(key_of(secret), &key[0] if key.shape[0] else &NOTHING,
                                  key.shape[0])
    return (<object> found.low).to_bytes(8, "little") + (<object> found.high).to_bytes(8, "little")


cdef SipKey key_of(const uint8_t[::1] secret) except *:
    cdef SipKey key
    if secret.shape[0] != 16:
        raise ArgumentValueError("secret", "16 bytes", secret.shape[0])
    key.low, key.high = load_word(&secret[0], 8), load_word(&secret[8], 8)
    return key


cdef int check(TableOutcome outcome) except -1:
    """Raise the error of an outcome."""
    if outcome == NO_MEMORY:
        raise MemoryError
    if outcome == BROKEN_KEYS:
        raise ArgumentValueError("keys", "offsets within their bytes", "others")
    if outcome == BAD_OFFSET:
        raise OffsetOverflowError(
            "offsets must be from 0 to 2^63 - 1, also the sum of all partitions' end offsets")
    return 0


cdef Keys keys_of(Py_ssize_t rows, keys, offsets, list held) except *:
    """Return buffers of these rows, kept alive by `held`; raise if too short."""
    cdef Keys given
    first, validity, places, values = keys
    if not 0 <= first <= first + rows <= INT32_MAX:
        raise ArgumentValueError("rows", "from 0 to 2^31 - 1", (first, rows))
    values = b"" if values is None else values
    given.first = first
    given.keys.validity = NULL
    if validity is not None:
        given.keys.validity = data_of(held, validity, (first + rows + 7) // 8)
    given.keys.offsets = data_of(held, places, 4 * (first + rows + 1))
    given.keys.values = data_of(held, values, 0)
    given.keys.values_size = memoryview(values).nbytes
    given.offsets = data_of(held, offsets, 8 * rows)
    given.timestamps = NULL
    return given


cdef const uint8_t* data_of(list held, buffer, Py_ssize_t least) except NULL:
    """Return the bytes of a buffer, kept alive; raise if fewer than `least`."""
    cdef const uint8_t[::1] data
    cdef Py_ssize_t size = memoryview(buffer).nbytes
    if size < least:
        raise ArgumentValueError("a buffer", f"of at least {least} bytes", size)
    if size == 0:
        return &NOTHING
    data = memoryview(buffer).cast("B")
    held.append(data)
    return &data[0]
