/* CRC-32C (Castagnoli, record batches v2) and CRC-32 (IEEE, messages v0 and v1).
 *
 * Portable code eats eight bytes a step by tables ("slicing by 8").  Where the processor has a
 * CRC-32C instruction it is chosen once, at import: its latency is three cycles and its throughput
 * one, so three streams run side by side and are joined by tables that advance a checksum over
 * a fixed number of zero bytes.
 */
#ifndef KAFKASTORE_CRC_H
#define KAFKASTORE_CRC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CRC32C_POLYNOMIAL 0x82f63b78u /* both reflected */
#define CRC32_POLYNOMIAL 0xedb88320u

#define LONG_STREAM 4096 /* bytes of one of three streams; both divisible by 8 */
#define SHORT_STREAM 256

typedef uint32_t (*crc_function)(uint32_t, const uint8_t*, size_t);

static uint32_t crc32c_slices[8][256], crc32_slices[8][256];
static uint32_t crc32c_over_long[4][256], crc32c_over_short[4][256];

static void fill_slices(uint32_t slices[8][256], uint32_t polynomial) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ polynomial : crc >> 1;
        slices[0][byte] = crc;
    }
    for (int slice = 1; slice < 8; slice++)
        for (int byte = 0; byte < 256; byte++)
            slices[slice][byte] =
                slices[slice - 1][byte] >> 8 ^ slices[0][slices[slice - 1][byte] & 255];
}

static inline uint64_t load_little_u64(const uint8_t* at) {
    return (uint64_t)at[0] | (uint64_t)at[1] << 8 | (uint64_t)at[2] << 16 | (uint64_t)at[3] << 24 |
           (uint64_t)at[4] << 32 | (uint64_t)at[5] << 40 | (uint64_t)at[6] << 48 |
           (uint64_t)at[7] << 56;
}

static uint32_t by_slices(uint32_t slices[8][256], uint32_t crc, const uint8_t* at, size_t size) {
    crc = ~crc;
    for (; size >= 8; size -= 8, at += 8) {
        uint64_t word = load_little_u64(at) ^ crc;
        crc = slices[7][word & 255] ^ slices[6][word >> 8 & 255] ^ slices[5][word >> 16 & 255] ^
              slices[4][word >> 24 & 255] ^ slices[3][word >> 32 & 255] ^
              slices[2][word >> 40 & 255] ^ slices[1][word >> 48 & 255] ^ slices[0][word >> 56];
    }
    for (; size; size--, at++) crc = crc >> 8 ^ slices[0][(crc ^ *at) & 255];
    return ~crc;
}

static uint32_t crc32c_portable(uint32_t crc, const uint8_t* at, size_t size) {
    return by_slices(crc32c_slices, crc, at, size);
}

static uint32_t crc32_ieee(uint32_t crc, const uint8_t* at, size_t size) {
    return by_slices(crc32_slices, crc, at, size);
}

/* A checksum advanced over zero bytes is linear in its 32 bits: four tables, one per byte. */
static void fill_over_zeros(uint32_t tables[4][256], size_t zeros) {
    uint32_t bits[32];
    for (int bit = 0; bit < 32; bit++) {
        uint32_t crc = 1u << bit;
        for (size_t i = 0; i < zeros; i++) crc = crc >> 8 ^ crc32c_slices[0][crc & 255];
        bits[bit] = crc;
    }
    for (int byte = 0; byte < 4; byte++)
        for (int value = 0; value < 256; value++) {
            uint32_t crc = 0;
            for (int bit = 0; bit < 8; bit++)
                if (value >> bit & 1) crc ^= bits[8 * byte + bit];
            tables[byte][value] = crc;
        }
}

static inline uint32_t over_zeros(uint32_t tables[4][256], uint32_t crc) {
    return tables[0][crc & 255] ^ tables[1][crc >> 8 & 255] ^ tables[2][crc >> 16 & 255] ^
           tables[3][crc >> 24];
}

#if defined(__x86_64__)
#include <nmmintrin.h>
#define HARDWARE __attribute__((target("sse4.2")))
#define CRC_BYTE(crc, byte) _mm_crc32_u8((uint32_t)(crc), byte)
#define CRC_WORD(crc, word) _mm_crc32_u64(crc, word)
static int has_crc32c_instruction(void) { return __builtin_cpu_supports("sse4.2"); }
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define HARDWARE
#define CRC_BYTE(crc, byte) __crc32cb((uint32_t)(crc), byte)
#define CRC_WORD(crc, word) __crc32cd((uint32_t)(crc), word)
static int has_crc32c_instruction(void) { return 1; }
#endif

#ifdef HARDWARE
static inline uint64_t load_word(const uint8_t* at) {
    uint64_t word;
    memcpy(&word, at, 8);
    return word;
}

#define THREE_STREAMS(STREAM, TABLES)                                          \
    while (size >= 3 * STREAM) {                                               \
        uint64_t second = 0, third = 0;                                        \
        for (const uint8_t* end = at + STREAM; at < end; at += 8) {            \
            crc = CRC_WORD(crc, load_word(at));                                \
            second = CRC_WORD(second, load_word(at + STREAM));                 \
            third = CRC_WORD(third, load_word(at + 2 * STREAM));               \
        }                                                                      \
        crc = over_zeros(TABLES, (uint32_t)crc) ^ second;                      \
        crc = over_zeros(TABLES, (uint32_t)crc) ^ third;                       \
        at += 2 * STREAM;                                                      \
        size -= 3 * STREAM;                                                    \
    }

HARDWARE static uint32_t crc32c_hardware(uint32_t initial, const uint8_t* at, size_t size) {
    uint64_t crc = ~initial;
    THREE_STREAMS(LONG_STREAM, crc32c_over_long)
    THREE_STREAMS(SHORT_STREAM, crc32c_over_short)
    for (; size >= 8; size -= 8, at += 8) crc = CRC_WORD(crc, load_word(at));
    for (; size; size--, at++) crc = CRC_BYTE(crc, *at);
    return ~(uint32_t)crc;
}
#endif

static crc_function crc32c_best = crc32c_portable;

static const char* choose_crc32c(void) {
    fill_slices(crc32c_slices, CRC32C_POLYNOMIAL);
    fill_slices(crc32_slices, CRC32_POLYNOMIAL);
#ifdef HARDWARE
    fill_over_zeros(crc32c_over_long, LONG_STREAM);
    fill_over_zeros(crc32c_over_short, SHORT_STREAM);
    if (has_crc32c_instruction()) {
        crc32c_best = crc32c_hardware;
        return "hardware";
    }
#endif
    return "portable";
}

#endif
