"""Memory that is filled without the GIL and then handed over to Arrow.

A `Block` is plain memory. After the handover it is read through the buffer protocol. When the last
reference goes, it returns to its `Spares`: a reader that releases each batch before the one after
the next keeps reusing the same few megabytes, which stay in the processor's cache.
"""
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_FillInfo
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

cimport cython

from kafkastore.formats.primitives.memory_pages cimport free_pages, resized

# Larger blocks are not kept: one huge record must not hold memory forever.
cdef Py_ssize_t LARGEST_SPARE = 64 * 1024 * 1024
# Of what a caller kept for long and then drops at once, not all is kept.
cdef Py_ssize_t MOST_SPARE_BYTES = 40 * 1024 * 1024
# Blocks from this size on have their own pages. Otherwise malloc keeps what many threads free.
cdef Py_ssize_t MAPPED_BYTES = 256 * 1024
# How much larger than wanted a reused block may be, and a size below which that does not matter.
cdef Py_ssize_t FITTING = 4, SMALLEST_SPARE = 16 * 1024


cdef bint grow(Block* block, Py_ssize_t capacity) noexcept nogil:
    """Grow a block to at least `capacity`, keeping its bytes; False if out of memory."""
    cdef uint8_t* moved
    if capacity <= block.capacity:
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


cdef class Spares:
    """Blocks that can be reused.

    One thread takes blocks; any thread may drop what it was given, also the garbage collector.
    Without a GIL both may come at once: then neither waits, and a block is simply not reused.
    """

    def __dealloc__(self):
        cdef int i
        for i in range(self.count):
            release(self.blocks[i])

    cdef Block take(self, Py_ssize_t capacity) except *:
        """Return the smallest spare block of about `capacity` bytes, or a new one.

        A much larger one is kept for those who need it: many blocks may be in use.
        """
        cdef int i, best = -1
        cdef Py_ssize_t largest = FITTING * max(capacity, SMALLEST_SPARE)
        cdef Block block
        cdef bint has_entered = try_enter(&self.is_busy)
        for i in range(self.count if has_entered else 0):
            if capacity <= self.blocks[i].capacity <= largest and (
                    best < 0 or self.blocks[i].capacity < self.blocks[best].capacity):
                best = i
        if best >= 0:
            block = self.blocks[best]
            self.count -= 1
            self.bytes -= block.capacity
            self.blocks[best] = self.blocks[self.count]
        if has_entered:
            leave(&self.is_busy)
        if best >= 0:
            return block
        block.data = NULL
        block.capacity = 0
        if not grow(&block, max(capacity, 1)):
            raise MemoryError
        block.capacity = capacity
        return block

    cdef void put(self, Block block) noexcept:
        """Return a block to the spares."""
        cdef bint is_kept = False
        if block.capacity <= LARGEST_SPARE and try_enter(&self.is_busy):
            is_kept = self.count < MOST_SPARES and (
                self.count == 0 or self.bytes + block.capacity <= MOST_SPARE_BYTES)
            if is_kept:
                self.blocks[self.count] = block
                self.count += 1
                self.bytes += block.capacity
            leave(&self.is_busy)
        if not is_kept:
            release(block)

    cdef object give(self, Block* block, Py_ssize_t size):
        """Turn the first `size` bytes of a block into an object; the block is replaced."""
        cdef Block fresh = self.take(block.capacity)
        cdef Given given = own(block[0], self)
        given.size = size
        block[0] = fresh
        return given


cdef Given own(Block block, Spares spares):
    """Return an object that owns a block and shows none of its bytes yet."""
    cdef Given given = Given.__new__(Given)
    given.block = block
    given.spares = spares
    return given


@cython.final
@cython.no_gc
cdef class Given:
    """A block that was handed over: its first `size` bytes, read-only."""

    def __dealloc__(self):
        if self.spares is None:
            release(self.block)
        else:
            self.spares.put(self.block)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.block.data, self.size, 1, flags & ~PyBUF_WRITABLE)


@cython.final
@cython.no_gc
cdef class Room:
    """Writable bytes of a block, which is kept while there are views of them."""

    cdef Given owner
    cdef Py_ssize_t at, size

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.owner.block.data + self.at, self.size, 0, flags)


@cython.final
cdef class Lender:
    """Lend room in a block that is being filled.

    From then on the block has an owner, which lives as long as any view of the room: the block
    can't be resized in place.
    """

    def __cinit__(self, Spares spares not None):
        self.spares = spares

    cdef object lend(self, const Block* block, Py_ssize_t at, Py_ssize_t size):
        """Lend bytes of a block."""
        cdef Room room = Room.__new__(Room)
        if not self.has_lent:
            self.owner = own(block[0], self.spares)
            self.has_lent = True
        room.owner, room.at, room.size = self.owner, at, size
        return memoryview(room)

    cdef int move(self, Block* block, Py_ssize_t used, Py_ssize_t capacity) except -1:
        """Move the filled bytes to another block; views of its room keep the old one."""
        cdef Block fresh = self.spares.take(capacity)
        cdef Given owner = self.owner if self.has_lent else own(block[0], self.spares)
        memcpy(fresh.data, block.data, used)
        if capacity > block.capacity:
            owner.spares = None   # the block must not be reused
        self.owner = None
        self.has_lent = False
        block[0] = fresh
        return 0

    cdef object give(self, Block* block, Py_ssize_t size):
        """Turn the first `size` bytes of the block into an object; the block is replaced."""
        cdef Given owner = self.owner
        if not self.has_lent:
            return self.spares.give(block, size)
        block[0] = self.spares.take(block.capacity)
        owner.size = size
        self.owner = None
        self.has_lent = False
        return owner
