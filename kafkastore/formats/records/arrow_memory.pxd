"""Memory that is filled without the GIL and then given to Arrow."""
from libc.stdint cimport uint8_t

cdef enum:
    MOST_SPARES = 128


cdef struct Block:
    uint8_t* data
    Py_ssize_t capacity


cdef bint grow(Block* block, Py_ssize_t capacity) noexcept nogil
cdef void release(Block block) noexcept nogil


cdef class Spares:
    cdef Block blocks[MOST_SPARES]
    cdef int count
    cdef Py_ssize_t bytes
    cdef char is_busy

    cdef Block take(self, Py_ssize_t capacity) except *
    cdef void put(self, Block block) noexcept
    cdef object give(self, Block* block, Py_ssize_t size)


cdef class Given:
    cdef Block block
    cdef Py_ssize_t size
    cdef Spares spares


cdef class Lender:
    cdef Spares spares
    cdef Given owner
    cdef bint has_lent

    cdef object lend(self, const Block* block, Py_ssize_t at, Py_ssize_t size)
    cdef int move(self, Block* block, Py_ssize_t used, Py_ssize_t capacity) except -1
    cdef object give(self, Block* block, Py_ssize_t size)
