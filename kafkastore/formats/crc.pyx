"""The two checksums of Kafka's records.

CRC-32C guards a v2 record batch from its attributes to its end; CRC-32 a v0 or v1 message from its
magic to its end.  Other modules call the C functions inside their loops; these are for tests and
for small files.

Source: Kafka 2.4.0 ``DefaultRecordBatch.computeChecksum``, ``LegacyRecord.computeChecksum``.
"""
from libc.stdint cimport uint8_t, uint32_t


cdef extern from "crc.h":
    const char* choose_crc32c()
    crc_function crc32c_best
    uint32_t crc32c_portable(uint32_t, const uint8_t*, size_t) noexcept nogil
    uint32_t crc32_ieee(uint32_t, const uint8_t*, size_t) noexcept nogil


KERNEL = choose_crc32c().decode()


cdef Crc crc_functions() noexcept:
    """The functions chosen for this processor."""
    return Crc(crc32c=crc32c_best, crc32=crc32_ieee)


def crc32c(const uint8_t[::1] data not None, uint32_t initial=0):
    """Compute the CRC-32C of bytes.

    Parameters
    ----------
    data : bytes-like
        The bytes.
    initial : int
        The checksum of the bytes before, to go on from.

    Returns
    -------
    int
        0 to 2**32 - 1.

    Examples
    --------
    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    if data.shape[0] == 0:
        return initial
    return crc32c_best(initial, &data[0], data.shape[0])


def crc32c_by_table(const uint8_t[::1] data not None, uint32_t initial=0):
    """Compute the CRC-32C of bytes by the portable code, whatever the processor has."""
    if data.shape[0] == 0:
        return initial
    return crc32c_portable(initial, &data[0], data.shape[0])


def crc32(const uint8_t[::1] data not None, uint32_t initial=0):
    """Compute the CRC-32 (IEEE, as zlib's) of bytes.

    Examples
    --------
    >>> hex(crc32(b"123456789"))
    '0xcbf43926'
    """
    if data.shape[0] == 0:
        return initial
    return crc32_ieee(initial, &data[0], data.shape[0])
