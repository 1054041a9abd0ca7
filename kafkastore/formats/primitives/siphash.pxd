"""SipHash-2-4 with a result of 128 bits: a hash with a secret key.

Who writes the hashed bytes but does not know the key can't choose bytes with equal hashes.

Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF", and their reference
implementation (CC0), https://github.com/veorq/SipHash.
"""
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy


cdef extern from *:
    """
    #if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    #define KAFKASTORE_LITTLE_ENDIAN(word) __builtin_bswap64(word)
    #else
    #define KAFKASTORE_LITTLE_ENDIAN(word) (word)
    #endif
    """
    uint64_t little_endian "KAFKASTORE_LITTLE_ENDIAN" (uint64_t) noexcept nogil


cdef struct SipKey:
    uint64_t low
    uint64_t high


cdef struct SipHash:
    uint64_t low
    uint64_t high


cdef struct SipState:
    uint64_t v0
    uint64_t v1
    uint64_t v2
    uint64_t v3


cdef inline uint64_t load_word(const uint8_t* at, Py_ssize_t size) noexcept nogil:
    """Load at most 8 bytes, the first as the lowest."""
    cdef uint64_t word = 0
    memcpy(&word, at, size)
    return little_endian(word)


cdef inline uint64_t rotated(uint64_t word, int bits) noexcept nogil:
    return word << bits | word >> (64 - bits)


cdef inline SipState mixed(SipState state) noexcept nogil:
    """Return the state after one round."""
    state.v0 += state.v1
    state.v2 += state.v3
    state.v1 = rotated(state.v1, 13) ^ state.v0
    state.v3 = rotated(state.v3, 16) ^ state.v2
    state.v0 = rotated(state.v0, 32)
    state.v2 += state.v1
    state.v0 += state.v3
    state.v1 = rotated(state.v1, 17) ^ state.v2
    state.v3 = rotated(state.v3, 21) ^ state.v0
    state.v2 = rotated(state.v2, 32)
    return state


cdef inline SipState compressed(SipState state, uint64_t word) noexcept nogil:
    """Return the state after one more word of input."""
    state.v3 ^= word
    state = mixed(mixed(state))
    state.v0 ^= word
    return state


cdef inline SipHash sip_hash(SipKey key, const uint8_t* at, Py_ssize_t size) noexcept nogil:
    cdef SipState state
    cdef SipHash result
    cdef Py_ssize_t left = size
    state.v0 = key.low ^ 0x736f6d6570736575ULL
    state.v1 = key.high ^ 0x646f72616e646f6dULL ^ 0xee
    state.v2 = key.low ^ 0x6c7967656e657261ULL
    state.v3 = key.high ^ 0x7465646279746573ULL
    while left >= 8:
        state = compressed(state, load_word(at, 8))
        at += 8
        left -= 8
    state = compressed(state, load_word(at, left) | <uint64_t> size << 56)
    state.v2 ^= 0xee
    state = mixed(mixed(mixed(mixed(state))))
    result.low = state.v0 ^ state.v1 ^ state.v2 ^ state.v3
    state.v1 ^= 0xdd
    state = mixed(mixed(mixed(mixed(state))))
    result.high = state.v0 ^ state.v1 ^ state.v2 ^ state.v3
    return result
