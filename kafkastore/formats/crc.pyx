"""The two checksums of Kafka's records.

CRC-32C guards a v2 record batch from its attributes to its end; CRC-32 a v0 or v1 message from its
magic to its end.  Other modules call the C functions inside their loops; these are for tests and
for small files.  ``docs/formats/checksums.md`` has the kernels, and their speeds.

Source: Kafka 2.4.0 ``DefaultRecordBatch.computeChecksum``, ``LegacyRecord.computeChecksum``.
"""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t, uint32_t


cdef extern from "crc.h":
    struct crc_kernel:
        const char* name
        crc_function crc32c
        crc_function crc32
    int find_crc_kernels(crc_kernel*)


cdef crc_kernel FOUND[3]

#: The kernels that this processor can run, best first.
KERNELS = tuple([FOUND[number].name.decode() for number in range(find_crc_kernels(FOUND))])


cdef Crc crc_functions() noexcept:
    """The functions chosen for this processor."""
    return Crc(crc32c=FOUND[0].crc32c, crc32=FOUND[0].crc32)


cdef crc_kernel* find_kernel(kernel) except NULL:
    """Find a kernel by its name; None is the best."""
    if kernel is None:
        return &FOUND[0]
    if kernel not in KERNELS:
        raise ValueError(f"this processor has no kernel {kernel!r}, only {', '.join(KERNELS)}")
    return &FOUND[KERNELS.index(kernel)]


cdef compute(crc_function function, data, uint32_t initial):
    """Call a kernel; a memoryview would take longer than most of them."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return function(initial, <const uint8_t*> view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


def crc32c(data, uint32_t initial=0, *, kernel=None):
    """Compute the CRC-32C of bytes.

    Parameters
    ----------
    data : bytes-like
        The bytes, contiguous.
    initial : int
        The checksum of the bytes before, to go on from.
    kernel : str
        One of `KERNELS`; the first by default.

    Returns
    -------
    int
        0 to 2**32 - 1.

    Raises
    ------
    ValueError
        If this processor has no such kernel.

    Examples
    --------
    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    return compute(find_kernel(kernel).crc32c, data, initial)


def crc32(data, uint32_t initial=0, *, kernel=None):
    """Compute the CRC-32 (IEEE, as zlib's) of bytes.

    Parameters, result and errors are those of `crc32c`.

    Examples
    --------
    >>> hex(crc32(b"123456789"))
    '0xcbf43926'
    """
    return compute(find_kernel(kernel).crc32, data, initial)
