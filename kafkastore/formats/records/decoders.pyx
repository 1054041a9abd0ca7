"""Decompress what Kafka's clients write, in C, without the GIL.

Usual records are one gzip member; snappy blocks, raw or in xerial's framing; an lz4 frame of
independent blocks without checksums; one zstd frame. They can be decompressed into memory that was
reserved before.
Everything else, and all damage, is left to `decompression`, which also finds the reason.

The C sources are the codecs' own, in `vendor/`.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from kafkastore.formats.primitives.big_endian cimport load_i32
from kafkastore.formats.primitives.crc cimport Crc, crc_functions

from kafkastore.formats.records.compression import XERIAL_MAGIC, Codec


cdef extern from "vendor/snappy_decompress.h" nogil:
    int64_t snappy_stated_size(const uint8_t* data, size_t size, size_t* tags_at)
    int snappy_decompress_tags(const uint8_t* at, const uint8_t* end, uint8_t* to,
                               Py_ssize_t expected)


cdef extern from "vendor/lz4.h" nogil:
    int LZ4_decompress_safe(const char* data, char* to, int size, int capacity)


cdef extern from *:
    """
    #define ZSTD_STATIC_LINKING_ONLY
    #include "vendor/zstd.h"
    #include "vendor/libdeflate/libdeflate.h"
    """
    struct libdeflate_decompressor:
        pass
    enum libdeflate_result:
        LIBDEFLATE_SUCCESS

    libdeflate_decompressor* libdeflate_alloc_decompressor() nogil
    void libdeflate_free_decompressor(libdeflate_decompressor*) nogil
    libdeflate_result libdeflate_deflate_decompress_ex(
        libdeflate_decompressor*, const void* data, size_t size, void* to, size_t capacity,
        size_t* read, size_t* written) nogil

    ctypedef struct ZSTD_DCtx:
        pass
    ctypedef struct ZSTD_frameHeader "ZSTD_FrameHeader":
        unsigned long long windowSize

    ZSTD_DCtx* ZSTD_createDCtx() nogil
    size_t ZSTD_freeDCtx(ZSTD_DCtx* context) nogil
    size_t ZSTD_decompressDCtx(ZSTD_DCtx* context, void* to, size_t capacity, const void* data,
                               size_t size) nogil
    size_t ZSTD_findFrameCompressedSize(const void* data, size_t size) nogil
    unsigned long long ZSTD_decompressBound(const void* data, size_t size) nogil
    size_t ZSTD_getFrameHeader(ZSTD_frameHeader* header, const void* data, size_t size) nogil
    bint ZSTD_isError(size_t code) nogil
    unsigned long long ZSTD_CONTENTSIZE_ERROR
    unsigned int ZSTD_MAGICNUMBER


cdef int GZIP = Codec.GZIP, SNAPPY = Codec.SNAPPY, LZ4 = Codec.LZ4, ZSTD = Codec.ZSTD
cdef Crc CRC = crc_functions()
cdef uint8_t[8] XERIAL
XERIAL[:] = list(XERIAL_MAGIC)

cdef enum:
    XERIAL_HEADER_SIZE = 16
    LZ4_HEADER_SIZE = 7
    LZ4_STORED = 0x80000000
    GZIP_HEADER_SIZE = 10
    GZIP_TRAILER_SIZE = 8
    # The best ratios: of lz4, of a snappy copy of three bytes, which gives at most 64, and of
    # deflate, which needs at least two bits for a match of 258 bytes.
    LZ4_LARGEST_RATIO = 255
    SNAPPY_LARGEST_RATIO = 22
    GZIP_LARGEST_RATIO = 1032
    # As the stream decoder of the zstd library.
    ZSTD_LARGEST_WINDOW = 1 << 27


cdef inline uint32_t load_little_u32(const uint8_t* at) noexcept nogil:
    return at[0] | <uint32_t> at[1] << 8 | <uint32_t> at[2] << 16 | <uint32_t> at[3] << 24


cdef Py_ssize_t lz4_block_size(const uint8_t* data, Py_ssize_t size, bint check_header
                               ) noexcept nogil:
    """Return the largest block of a frame as Kafka's clients begin it; -1 for others.

    Source: Kafka 2.4.0 ``KafkaLZ4BlockOutputStream``: version 1, independent blocks, no checksums
    or sizes; then the descriptor of the block size, and the checksum of both bytes.
    """
    cdef uint8_t descriptor, checksum
    if size < LZ4_HEADER_SIZE or load_little_u32(data) != 0x184D2204 or data[4] != 0x60:
        return -1
    descriptor, checksum = data[5], data[6]
    if descriptor == 0x40 and (checksum == 0x82 or not check_header):
        return 64 * 1024
    if descriptor == 0x50 and (checksum == 0xfb or not check_header):
        return 256 * 1024
    if descriptor == 0x60 and (checksum == 0x51 or not check_header):
        return 1024 * 1024
    if descriptor == 0x70 and (checksum == 0x73 or not check_header):
        return 4096 * 1024
    return -1


cdef Py_ssize_t lz4_frame(const uint8_t* data, Py_ssize_t size, uint8_t* to, Py_ssize_t capacity,
                          bint check_header) noexcept nogil:
    """Decompress a frame; without `to`, return the bound of its size. -1: unusual."""
    cdef Py_ssize_t largest = lz4_block_size(data, size, check_header)
    cdef Py_ssize_t at = LZ4_HEADER_SIZE, total = 0, most
    cdef uint32_t block
    cdef bint is_stored
    if largest < 0:
        return -1
    while size - at >= 4:
        block = load_little_u32(data + at)
        at += 4
        if block == 0:
            return total if at == size else -1
        is_stored = block & LZ4_STORED != 0
        block = block & ~<uint32_t> LZ4_STORED
        if block > largest or <Py_ssize_t> block > size - at:
            return -1
        most = <Py_ssize_t> block if is_stored else min(largest, LZ4_LARGEST_RATIO * block)
        if to != NULL:
            if most > capacity - total:
                return -1
            if is_stored:
                memcpy(to + total, data + at, block)
            else:
                most = LZ4_decompress_safe(<const char*> data + at, <char*> to + total,
                                           <int> block, <int> most)
                if most < 0:
                    return -1
        total += most
        at += block
    return -1


cdef Py_ssize_t snappy_block(const uint8_t* data, Py_ssize_t size, uint8_t* to, Py_ssize_t capacity
                             ) noexcept nogil:
    """Decompress a raw block; without `to`, return its size. -1: unusual."""
    cdef size_t tags_at = 0
    cdef int64_t stated = snappy_stated_size(data, size, &tags_at)
    if stated < 0 or stated > SNAPPY_LARGEST_RATIO * size:
        return -1
    if to != NULL and (stated > capacity or not snappy_decompress_tags(
            data + tags_at, data + size, to, stated)):
        return -1
    return stated


cdef Py_ssize_t snappy_blocks(const uint8_t* data, Py_ssize_t size, uint8_t* to,
                              Py_ssize_t capacity) noexcept nogil:
    """Decompress a block, or xerial's framing; without `to`, return its size."""
    cdef Py_ssize_t at = XERIAL_HEADER_SIZE, total = 0, got
    cdef int64_t block
    if size < XERIAL_HEADER_SIZE or memcmp(data, XERIAL, sizeof(XERIAL)) != 0:
        return snappy_block(data, size, to, capacity)
    while at < size:
        if size - at < 4:
            return -1
        block = load_i32(data + at)
        at += 4
        if block < 0 or block > size - at:
            return -1
        got = snappy_block(data + at, block, NULL if to == NULL else to + total, capacity - total)
        if got < 0:
            return -1
        total += got
        at += block
    return total


cdef Py_ssize_t gzip_size(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Return the stated size of one member without optional fields; -1: unusual."""
    cdef int64_t stated
    # Magic, deflate, no flags: so do Java and the C library begin.
    if size < GZIP_HEADER_SIZE + GZIP_TRAILER_SIZE or load_little_u32(data) != 0x00088b1f:
        return -1
    stated = load_little_u32(data + size - 4)
    return -1 if stated > INT32_MAX or stated > GZIP_LARGEST_RATIO * size else stated


cdef Py_ssize_t gzip_member(Decoder* decoder, const uint8_t* data, Py_ssize_t size, uint8_t* to,
                            Py_ssize_t capacity) noexcept nogil:
    """Decompress a member of `gzip_size` bytes; -1: damaged, or several members."""
    cdef Py_ssize_t stated = gzip_size(data, size)
    cdef size_t read = 0, written = 0
    cdef Py_ssize_t compressed = size - GZIP_HEADER_SIZE - GZIP_TRAILER_SIZE
    if stated < 0 or stated > capacity:
        return -1
    if decoder.deflate == NULL:
        decoder.deflate = libdeflate_alloc_decompressor()
        if decoder.deflate == NULL:
            return -1
    if libdeflate_deflate_decompress_ex(
            <libdeflate_decompressor*> decoder.deflate, data + GZIP_HEADER_SIZE, compressed, to,
            stated, &read, &written) != LIBDEFLATE_SUCCESS:
        return -1
    if (<Py_ssize_t> read != compressed or <Py_ssize_t> written != stated
            or CRC.crc32(0, to, stated) != load_little_u32(data + size - GZIP_TRAILER_SIZE)):
        return -1
    return stated


cdef Py_ssize_t zstd_bound(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Return a bound of the size of exactly one frame; -1: unusual."""
    cdef ZSTD_frameHeader header
    cdef unsigned long long bound
    if size < 4 or load_little_u32(data) != ZSTD_MAGICNUMBER:
        return -1
    if (ZSTD_findFrameCompressedSize(data, size) != <size_t> size
            or ZSTD_getFrameHeader(&header, data, size) != 0
            or header.windowSize > ZSTD_LARGEST_WINDOW):
        return -1
    bound = ZSTD_decompressBound(data, size)
    # A frame need not state its size; each of its blocks may then have 128 KiB.
    return -1 if bound == ZSTD_CONTENTSIZE_ERROR or bound > INT32_MAX else <Py_ssize_t> bound


cdef Py_ssize_t decoded_bound(int codec, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Return the most bytes that `decode` can give; -1: unusual, `decode` can't.

    Of memory for so many bytes, only those that are written take any.
    """
    if size > INT32_MAX:
        return -1
    if codec == SNAPPY:
        return snappy_blocks(data, size, NULL, 0)
    if codec == LZ4 or codec == LZ4_OF_MAGIC_0:
        return lz4_frame(data, size, NULL, 0, codec == LZ4)
    if codec == ZSTD:
        return zstd_bound(data, size)
    if codec == GZIP:
        return gzip_size(data, size)
    return -1


cdef Py_ssize_t decode(Decoder* decoder, int codec, const uint8_t* data, Py_ssize_t size,
                       uint8_t* to, Py_ssize_t capacity) noexcept nogil:
    """Decompress into room for `decoded_bound` bytes; return how many, -1 if damaged."""
    cdef size_t got
    if codec == SNAPPY:
        return snappy_blocks(data, size, to, capacity)
    if codec == LZ4 or codec == LZ4_OF_MAGIC_0:
        return lz4_frame(data, size, to, capacity, codec == LZ4)
    if codec == GZIP:
        return gzip_member(decoder, data, size, to, capacity)
    if decoder.zstd == NULL:
        decoder.zstd = ZSTD_createDCtx()
        if decoder.zstd == NULL:
            return -1
    got = ZSTD_decompressDCtx(<ZSTD_DCtx*> decoder.zstd, to, capacity, data, size)
    return -1 if ZSTD_isError(got) else <Py_ssize_t> got


cdef void free_decoder(Decoder* decoder) noexcept nogil:
    ZSTD_freeDCtx(<ZSTD_DCtx*> decoder.zstd)
    libdeflate_free_decompressor(<libdeflate_decompressor*> decoder.deflate)
    decoder.zstd = decoder.deflate = NULL


def decompress_usual(int codec, const uint8_t[::1] data not None, Py_ssize_t limit):
    """Decompress usual records to at most `limit` bytes; None for all others."""
    cdef Decoder decoder
    cdef const uint8_t* start = &data[0] if data.shape[0] else NULL
    cdef Py_ssize_t size = data.shape[0], got
    cdef Py_ssize_t bound = decoded_bound(codec, start, size)
    cdef bytes decompressed
    cdef uint8_t* to
    if not 0 <= bound <= limit:
        return None
    decompressed = PyBytes_FromStringAndSize(NULL, bound)
    to = decompressed
    decoder.zstd = decoder.deflate = NULL
    with nogil:
        got = decode(&decoder, codec, start, size, to, bound)
        free_decoder(&decoder)
    if got < 0:
        return None
    return decompressed if got == bound else decompressed[:got]
