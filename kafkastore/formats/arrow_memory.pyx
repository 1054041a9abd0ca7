"""Memory that is filled without the GIL and then given to Arrow.

A `Block` is plain memory.  Given away, it is seen through the buffer protocol; when nobody sees it
any more it goes back to the `Spares` it came from, so that a reader who lets each batch go before
the one after the next keeps using the same few megabytes, which stay in the processor's cache.
"""
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_FillInfo
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, malloc, realloc

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
        cdef Given given = Given.__new__(Given)
        cdef Block fresh
        given.spares = self
        fresh = self.take(block.capacity)
        given.block = block[0]
        given.size = size
        block[0] = fresh
        return given


@cython.final
@cython.no_gc
cdef class Given:
    """A block that was given away: read-only bytes."""

    cdef Block block
    cdef Py_ssize_t size
    cdef Spares spares

    def __dealloc__(self):
        self.spares.put(self.block)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.block.data, self.size, 1, flags & ~PyBUF_WRITABLE)
