"""The two checksums of Kafka's records.

CRC-32C covers a v2 record batch from its attributes to its end, CRC-32 a v0 or v1 message from its
magic to its end. Other modules call the C functions in their loops; the Python functions are for
tests and small files. ``docs/formats/checksums.md`` lists the kernels and their speeds.

Source: Kafka 2.4.0 ``DefaultRecordBatch.computeChecksum``, ``LegacyRecord.computeChecksum``.
"""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t, uint32_t

from kafkastore.arguments import check_choice


cdef extern from "crc.h":
    struct crc_kernel:
        const char* name
        crc_function crc32c
        crc_function crc32
    int find_crc_kernels(crc_kernel*)


cdef crc_kernel FOUND[3]

#: The kernels that this processor supports, fastest first.
KERNELS = tuple([FOUND[number].name.decode() for number in range(find_crc_kernels(FOUND))])


cdef Crc crc_functions() noexcept:
    """Return the functions selected for this processor."""
    return Crc(crc32c=FOUND[0].crc32c, crc32=FOUND[0].crc32)


cdef crc_kernel* find_kernel(kernel) except NULL:
    """Find a kernel by its name; None selects the fastest."""
    if kernel is None:
        return &FOUND[0]
    return &FOUND[KERNELS.index(check_choice("kernel", kernel, KERNELS))]


cdef compute(crc_function function, data, uint32_t initial):
    """Call a kernel. A memoryview would take longer than most kernels."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return function(initial, <const uint8_t*> view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


def crc32c(data, uint32_t initial=0, *, kernel=None):
    """Compute the CRC-32C of contiguous bytes.

    `initial` is the checksum of the bytes before. `kernel` is one of `KERNELS`, by default the
    first; ValueError if the processor does not support it.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    return compute(find_kernel(kernel).crc32c, data, initial)


def crc32(data, uint32_t initial=0, *, kernel=None):
    """Compute the CRC-32 (IEEE, as zlib's) of contiguous bytes; see `crc32c`.

    >>> hex(crc32(b"123456789"))
    '0xcbf43926'
    """
    return compute(find_kernel(kernel).crc32, data, initial)
