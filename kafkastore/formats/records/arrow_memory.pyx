"""Memory that is filled without the GIL and then handed over to Arrow.

A `Block` is plain memory. After the handover it is read through the buffer protocol. When the last
reference goes, it is a spare block: a reader that releases each batch before the one after the next
keeps reusing the same few megabytes, which stay in the processor's cache.
"""
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_FillInfo
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove

cimport cython

from kafkastore.formats.primitives.memory_pages cimport free_pages, resized

# Of what a caller kept for long and then drops at once, not all is kept.
cdef Py_ssize_t MOST_SPARE_BYTES = 64 * 1024 * 1024
# Blocks from this size on have their own pages. Otherwise malloc keeps what many threads free.
cdef Py_ssize_t MAPPED_BYTES = 256 * 1024
cdef Py_ssize_t SMALLEST = 64
# A larger block grows where it is, or its pages move.
cdef Py_ssize_t LARGEST_COPIED = 64 * 1024


cdef Py_ssize_t rounded(Py_ssize_t capacity) noexcept nogil:
    """Return one of four sizes for each power of two.

    A block then fits others than its first user, and is not replaced by larger and larger ones.
    """
    cdef Py_ssize_t step = SMALLEST
    while step * 8 < capacity:
        step *= 2
    return max((capacity + step - 1) // step, 1) * step


cdef void release(Block block) noexcept nogil:
    """Free the memory of a block."""
    if block.capacity >= MAPPED_BYTES:
        free_pages(block.data, block.capacity)
    else:
        free(block.data)


cdef extern from *:
    """
    static int kafkastore_try_enter(char* is_busy) {
        return !__atomic_test_and_set(is_busy, __ATOMIC_ACQUIRE);
    }
    static void kafkastore_leave(char* is_busy) {
        __atomic_clear(is_busy, __ATOMIC_RELEASE);
    }
    """
    bint try_enter "kafkastore_try_enter"(char* is_busy) noexcept nogil
    void leave "kafkastore_leave"(char* is_busy) noexcept nogil


# Blocks that can be reused, the last one first; those of all reads, because a new read needs the
# same ones as the read before. Without a GIL threads may come at once: then none of them waits, and
# a block is simply not reused.
cdef Block spares[MOST_SPARES]
cdef int spare_count = 0
cdef Py_ssize_t spare_bytes = 0
cdef char spares_are_busy = 0


cdef Block take_spare(Py_ssize_t capacity) noexcept nogil:
    """Return the spare block of a rounded capacity that was used last; or no data."""
    global spare_count, spare_bytes
    cdef int i
    cdef Block block
    block.data = NULL
    block.capacity = 0
    if try_enter(&spares_are_busy):
        for i in range(spare_count - 1, -1, -1):
            if spares[i].capacity == capacity:
                block = spares[i]
                spare_count -= 1
                spare_bytes -= capacity
                memmove(&spares[i], &spares[i + 1], (spare_count - i) * sizeof(Block))
                break
        leave(&spares_are_busy)
    return block


cdef void put(Block block) noexcept nogil:
    """Return a block to the spares; the oldest ones make room for it."""
    global spare_count, spare_bytes
    cdef int old = 0
    cdef Block released[MOST_SPARES]
    if block.data == NULL or block.capacity > MOST_SPARE_BYTES or not try_enter(&spares_are_busy):
        release(block)
        return
    while spare_count - old == MOST_SPARES or spare_bytes + block.capacity > MOST_SPARE_BYTES:
        released[old] = spares[old]
        spare_bytes -= spares[old].capacity
        old += 1
    spare_count -= old
    memmove(&spares[0], &spares[old], spare_count * sizeof(Block))
    spares[spare_count] = block
    spare_count += 1
    spare_bytes += block.capacity
    leave(&spares_are_busy)
    for old in range(old - 1, -1, -1):
        release(released[old])


cdef bint grow(Block* block, Py_ssize_t capacity) noexcept nogil:
    """Grow a block to at least `capacity`, keeping its bytes; False if out of memory."""
    cdef uint8_t* moved
    cdef Block spare
    if capacity <= block.capacity:
        return True
    capacity = rounded(capacity)
    if block.capacity <= LARGEST_COPIED:
        spare = take_spare(capacity)
        if spare.data != NULL:
            if block.data != NULL:
                memcpy(spare.data, block.data, block.capacity)
                put(block[0])
            block[0] = spare
            return True
    if capacity < MAPPED_BYTES:
        moved = <uint8_t*> realloc(block.data, capacity)
    elif block.capacity >= MAPPED_BYTES:
        moved = <uint8_t*> resized(block.data, block.capacity, capacity)
    else:
        moved = <uint8_t*> resized(NULL, 0, capacity)
        if moved != NULL and block.data != NULL:
            memcpy(moved, block.data, block.capacity)
            free(block.data)
    if moved == NULL:
        return False
    block.data = moved
    block.capacity = capacity
    return True


cdef object give(Block* block, Py_ssize_t size):
    """Turn the first `size` bytes of a block into an object; the block is replaced."""
    cdef Block fresh
    cdef Given given = Given.__new__(Given)
    fresh.data = NULL
    fresh.capacity = 0
    if not grow(&fresh, block.capacity):
        raise MemoryError
    given.block = block[0]
    given.size = size
    block[0] = fresh
    return given


@cython.final
@cython.no_gc
cdef class Given:
    """A block that was handed over: its first `size` bytes, read-only."""

    def __dealloc__(self):
        put(self.block)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.block.data, self.size, 1, flags & ~PyBUF_WRITABLE)
