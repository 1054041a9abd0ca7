"""Memory that is filled without the GIL and then given to Arrow.

A `Block` is plain memory.  Given away, it is seen through the buffer protocol; when nobody sees it
any more it goes back to the `Spares` it came from, so that a reader who lets each batch go before
the one after the next keeps using the same few megabytes, which stay in the processor's cache.
"""
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_FillInfo
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

cimport cython

# A block above this is not kept: one huge record must not hold memory for ever.
cdef Py_ssize_t LARGEST_SPARE = 64 * 1024 * 1024


cdef bint grow(Block* block, Py_ssize_t capacity) noexcept nogil:
    """Make a block at least so large; its content stays. False without memory."""
    cdef uint8_t* moved
    if capacity <= block.capacity:
        return True
    moved = <uint8_t*> realloc(block.data, capacity)
    if moved == NULL:
        return False
    block.data = moved
    block.capacity = capacity
    return True


cdef class Spares:
    """Blocks that wait to be used again."""

    def __dealloc__(self):
        cdef int i
        for i in range(self.count):
            free(self.blocks[i].data)

    cdef Block take(self, Py_ssize_t capacity) except *:
        """Return a block of at least so many bytes: the smallest such spare, or a new one."""
        cdef int i, best = -1
        cdef Block block
        for i in range(self.count):
            if self.blocks[i].capacity >= capacity and (
                    best < 0 or self.blocks[i].capacity < self.blocks[best].capacity):
                best = i
        if best >= 0:
            block = self.blocks[best]
            self.count -= 1
            self.blocks[best] = self.blocks[self.count]
            return block
        block.data = <uint8_t*> malloc(max(capacity, 1))
        block.capacity = capacity
        if block.data == NULL:
            raise MemoryError
        return block

    cdef void put(self, Block block) noexcept:
        """Take a block back."""
        if self.count == MOST_SPARES or block.capacity > LARGEST_SPARE:
            free(block.data)
        else:
            self.blocks[self.count] = block
            self.count += 1

    cdef object give(self, Block* block, Py_ssize_t size):
        """Turn the first `size` bytes of a block into an object; the block is replaced."""
        cdef Block fresh = self.take(block.capacity)
        cdef Given given = own(block[0], self)
        given.size = size
        block[0] = fresh
        return given


cdef Given own(Block block, Spares spares):
    """Let an object own a block, of which nothing is seen yet."""
    cdef Given given = Given.__new__(Given)
    given.block = block
    given.spares = spares
    return given


@cython.final
@cython.no_gc
cdef class Given:
    """A block that was given away: read-only bytes, its first `size`."""

    def __dealloc__(self):
        if self.spares is None:
            free(self.block.data)
        else:
            self.spares.put(self.block)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.block.data, self.size, 1, flags & ~PyBUF_WRITABLE)


@cython.final
@cython.no_gc
cdef class Room:
    """Bytes of a block that can be written to; the block is kept as long as they are seen."""

    cdef Given owner
    cdef Py_ssize_t at, size

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.owner.block.data + self.at, self.size, 0, flags)


@cython.final
cdef class Lender:
    """Lends room in a block that is being filled.

    From then on the block has an owner, who outlives whoever sees the room: it can't be resized in
    its place.
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
        """Take another block for what was filled, and leave this one to who sees its room."""
        cdef Block fresh = self.spares.take(capacity)
        cdef Given owner = self.owner if self.has_lent else own(block[0], self.spares)
        memcpy(fresh.data, block.data, used)
        if capacity > block.capacity:
            owner.spares = None   # no use any more
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
