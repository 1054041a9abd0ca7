"""Memory that is filled without the GIL and then given to Arrow."""
from libc.stdint cimport uint8_t

cdef enum:
    MOST_SPARES = 256


cdef struct Block:
    uint8_t* data
    Py_ssize_t capacity


cdef bint grow(Block* block, Py_ssize_t capacity) noexcept nogil
cdef void put(Block block) noexcept nogil
cdef object give(Block* block, Py_ssize_t size)


cdef class Given:
    cdef Block block
    cdef Py_ssize_t size
