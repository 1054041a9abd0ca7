"""Checksums by their definition: a division, bit by bit."""

CASTAGNOLI = 0x82F63B78
IEEE = 0xEDB88320


def crcs_of_beginnings(polynomial, data, initial=0):
    """The checksums of ``data[:0]``, ``data[:1]`` and so on to all of it, in one pass."""
    register = initial ^ 0xFFFFFFFF
    checksums = [initial]
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (polynomial if register & 1 else 0)
        checksums.append(register ^ 0xFFFFFFFF)
    return checksums
