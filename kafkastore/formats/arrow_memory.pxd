"""Memory that is filled without the GIL and then given to Arrow."""
from libc.stdint cimport uint8_t

cdef enum:
    MOST_SPARES = 32


cdef struct Block:
    uint8_t* data
    Py_ssize_t capacity


cdef bint grow(Block* block, Py_ssize_t capacity) noexcept nogil


cdef class Spares:
    cdef Block blocks[MOST_SPARES]
    cdef int count

    cdef Block take(self, Py_ssize_t capacity) except *
    cdef void put(self, Block block) noexcept
    cdef object give(self, Block* block, Py_ssize_t size)
