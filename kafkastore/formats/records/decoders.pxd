"""Decompression without the GIL of what Kafka's clients write."""
from libc.stdint cimport uint8_t


cdef enum:
    # Not a codec of Kafka: the checksum of the frame's header is wrong, and ignored.
    LZ4_OF_MAGIC_0 = 8


cdef struct Decoder:
    # Contexts that are used again; NULL until the first frame.
    void* zstd
    void* deflate

cdef Py_ssize_t decoded_bound(int codec, const uint8_t* data, Py_ssize_t size) noexcept nogil
cdef Py_ssize_t decode(Decoder* decoder, int codec, const uint8_t* data, Py_ssize_t size,
                       uint8_t* to, Py_ssize_t capacity) noexcept nogil
cdef void free_decoder(Decoder* decoder) noexcept nogil
