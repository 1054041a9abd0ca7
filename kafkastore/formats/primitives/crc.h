/* CRC-32C (Castagnoli, record batches v2) and CRC-32 (IEEE, messages v0 and v1).
 *
 * A checksum is the remainder of message * x^32 divided by P, the message taken as one long
 * polynomial over bits.  Both are "reflected": in n bits, bit i is the coefficient of x^(n-1-i), so
 * a little-endian load gives bytes in order.  To go on from a checksum is to XOR it into the first
 * four bytes; it is inverted before and after.
 *
 * Zeros in front of a message change nothing.  So what does not fill a word or a vector is taken
 * first, after zeros, and there is no tail.  Three ways to sum:
 *
 * - Folding: a vector of the message is multiplied by (x^distance mod P), and the carry-less
 *   product added to the vector that far after it.  The last ones are summed into 128 bits, each
 *   by its own distance from the end, and the sum is divided by P.
 * - Streams: the processor's CRC instruction takes three cycles, but one can start in each.  Three
 *   thirds of a message are summed in parallel, and joined by such products.
 * - Tables: one for each of eight bytes ("slicing by 8").  Works on any processor.
 *
 * docs/formats/checksums.md says what is covered, and how fast each is.  Sources: V. Gopal et al.,
 * "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009, and "Fast
 * CRC Computation for iSCSI Polynomial Using CRC32 Instruction", Intel 2011.
 */
#ifndef KAFKASTORE_CRC_H
#define KAFKASTORE_CRC_H

#include "processor.h"

#include <stddef.h>
#include <stdint.h>

#define INLINED static inline __attribute__((always_inline))

#define LONGEST_STREAM 256 /* words of 8 bytes in one of three streams */
#define DISTANCES 32       /* vectors of 128 bits that can be summed without folding */
#define AHEAD 2048         /* bytes that are fetched before their turn */

typedef uint32_t (*crc_function)(uint32_t, const uint8_t*, size_t);

/* P, and what the kernels need of its arithmetic; prepare() fills it. */
typedef struct {
    uint32_t bits; /* without x^32 */
    uint32_t slices[8][256];
    uint32_t over_words[2 * LONGEST_STREAM + 1]; /* [n]: the step over n words; [0] is not used */
    /* Steps for the two halves of 128 bits.  In over_last the last vector's is the last, so that a
     * wider vector loads its steps as it loads the message. */
    uint64_t over_last[DISTANCES][2] __attribute__((aligned(64)));
    uint64_t over_512[2], over_2048[2]; /* bits */
    uint64_t last_step, quotient;       /* see divide() */
} polynomial;

static polynomial CASTAGNOLI = {.bits = 0x82f63b78}, IEEE = {.bits = 0xedb88320};

static uint32_t times_x(const polynomial* p, uint32_t a) {
    return a & 1 ? a >> 1 ^ p->bits : a >> 1;
}

static uint32_t times(const polynomial* p, uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (; a; a <<= 1, b = times_x(p, b))
        if (a >> 31) product ^= b;
    return product;
}

/* x^power mod P */
static uint32_t x_to(const polynomial* p, uint32_t power) {
    uint32_t result = 1u << 31;
    for (uint32_t square = 1u << 30; power; power >>= 1, square = times(p, square, square))
        if (power & 1) result = times(p, result, square);
    return result;
}

/* 128 bits are a * x^64 + b, a being first in memory.  A remainder in a word of 64 bits is
 * remainder * x^32, and the product of two words stands one bit too low in 128.  With the remainder
 * shifted by one bit the product is word * remainder * x^32. */
static void fill_step(const polynomial* p, uint64_t halves[2], uint32_t power) {
    halves[0] = (uint64_t)x_to(p, power + 64) << 1;
    halves[1] = (uint64_t)x_to(p, power) << 1;
}

static void prepare(polynomial* p) {
    for (uint32_t byte = 0; byte < 256; byte++)
        for (uint32_t slice = 0, crc = byte; slice < 8; slice++) {
            for (int bit = 0; bit < 8; bit++) crc = times_x(p, crc);
            p->slices[slice][byte] = crc;
        }
    /* A product of two remainders, unshifted, and then the CRC instruction, make x^33 more. */
    p->over_words[1] = x_to(p, 64 - 33);
    for (uint32_t words = 2, word = x_to(p, 64); words <= 2 * LONGEST_STREAM; words++)
        p->over_words[words] = times(p, p->over_words[words - 1], word);
    /* The sum of the last vectors keeps its x^32; what is added to the message has none yet. */
    for (uint32_t distance = 0; distance < DISTANCES; distance++)
        fill_step(p, p->over_last[DISTANCES - 1 - distance], 128 * distance);
    fill_step(p, p->over_512, 512 - 32);
    fill_step(p, p->over_2048, 2048 - 32);
    p->last_step = (uint64_t)x_to(p, 63) << 32;
    p->quotient = 0; /* of x^95 / P, by long division */
    for (uint32_t power = 0, rest = 1u << 31; power < 95; power++, rest = times_x(p, rest))
        if (rest & 1) p->quotient |= (uint64_t)1 << (power - 31);
}

/* Compilers make one instruction of it, on processors that have bytes in that order. */
static inline uint64_t load_u64(const uint8_t* at) {
    return (uint64_t)at[0] | (uint64_t)at[1] << 8 | (uint64_t)at[2] << 16 | (uint64_t)at[3] << 24 |
           (uint64_t)at[4] << 32 | (uint64_t)at[5] << 40 | (uint64_t)at[6] << 48 |
           (uint64_t)at[7] << 56;
}

static uint32_t by_table(const polynomial* p, uint32_t crc, const uint8_t* at, size_t size) {
    const uint32_t(*slices)[256] = p->slices;
    crc = ~crc;
    for (; size >= 8; size -= 8, at += 8) {
        uint64_t word = load_u64(at) ^ crc;
        crc = slices[7][word & 255] ^ slices[6][word >> 8 & 255] ^ slices[5][word >> 16 & 255] ^
              slices[4][word >> 24 & 255] ^ slices[3][word >> 32 & 255] ^
              slices[2][word >> 40 & 255] ^ slices[1][word >> 48 & 255] ^ slices[0][word >> 56];
    }
    for (; size; size--, at++) crc = crc >> 8 ^ slices[0][(crc ^ *at) & 255];
    return ~crc;
}

static uint32_t crc32c_by_table(uint32_t crc, const uint8_t* at, size_t size) {
    return by_table(&CASTAGNOLI, crc, at, size);
}

static uint32_t crc32_by_table(uint32_t crc, const uint8_t* at, size_t size) {
    return by_table(&IEEE, crc, at, size);
}

/* What x86-64 and ARM64 call differently.  Assembler where compilers disagree on the names of
 * features, or have headers that need flags. */
#if defined(__x86_64__)
#include <immintrin.h>

#define PCLMUL __attribute__((target("sse4.2,pclmul")))
#define VECTORS PCLMUL
typedef __m128i vector;

PCLMUL INLINED vector load(const void* at) { return _mm_loadu_si128((const __m128i*)at); }
PCLMUL INLINED vector from_word(uint64_t word) { return _mm_cvtsi64_si128((long long)word); }
PCLMUL INLINED vector shuffle(vector a, vector by) { return _mm_shuffle_epi8(a, by); }
PCLMUL INLINED vector product(vector a, vector b) { return _mm_clmulepi64_si128(a, b, 0x00); }
PCLMUL INLINED vector high_product(vector a, vector b) { return _mm_clmulepi64_si128(a, b, 0x11); }

#elif defined(__aarch64__) && defined(__AARCH64EL__)
#include <arm_neon.h>
#if defined(__linux__)
#include <sys/auxv.h>
#endif

#define VECTORS
typedef uint64x2_t vector;

INLINED vector load(const void* at) { return vreinterpretq_u64_u8(vld1q_u8((const uint8_t*)at)); }
INLINED vector from_word(uint64_t word) { return vsetq_lane_u64(word, vdupq_n_u64(0), 0); }
INLINED vector shuffle(vector a, vector by) {
    return vreinterpretq_u64_u8(vqtbl1q_u8(vreinterpretq_u8_u64(a), vreinterpretq_u8_u64(by)));
}
INLINED vector product(vector a, vector b) {
    vector result;
    __asm__(".arch_extension aes\n\tpmull %0.1q, %1.1d, %2.1d" : "=w"(result) : "w"(a), "w"(b));
    return result;
}
INLINED vector high_product(vector a, vector b) {
    vector result;
    __asm__(".arch_extension aes\n\tpmull2 %0.1q, %1.2d, %2.2d" : "=w"(result) : "w"(a), "w"(b));
    return result;
}
#endif

#ifdef VECTORS
typedef uint64_t (*step_function)(uint64_t crc, uint64_t word);

/* Take the first 0 to 7 of at least 8 bytes: what comes before whole words. */
INLINED uint64_t begin_words(step_function step, uint32_t crc, const uint8_t* at, size_t first) {
    crc = ~crc;
    return step(0, (load_u64(at) ^ crc) << 1 << (63 - 8 * first)) ^ (uint64_t)crc >> 8 * first;
}

/* 16 of these from [n] on shuffle a vector by 16 - n bytes towards its end; 128 makes a zero. */
static const uint8_t SHIFTS[48] = {
    128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,
    0,   1,   2,   3,   4,   5,   6,   7,   8,   9,   10,  11,  12,  13,  14,  15,
    128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,
};

VECTORS INLINED vector step_over(vector a, const uint64_t step[2]) {
    vector by = load(step);
    return product(a, by) ^ high_product(a, by);
}

/* Reduce at least 16 bytes to 96 bits that leave the remainder of message * x^32. */
VECTORS INLINED vector fold(const polynomial* p, uint32_t crc, const uint8_t* at, size_t size) {
    size_t first = (size - 1) % 16 + 1, more = (size - 1) / 16; /* bytes; whole vectors */
    uint32_t rest_of_crc = first < 4 ? ~crc >> 8 * first : 0;
    vector a = shuffle(load(at) ^ from_word(~crc), load(SHIFTS + first)), sum;
    const uint64_t(*over)[2] = p->over_last + DISTANCES;
    at += first;
    if (more < 8) {
        over -= more;
        sum = step_over(a, over[-1]);
        if (rest_of_crc) sum ^= step_over(from_word(rest_of_crc), over[0]);
    } else {
        vector b = load(at) ^ from_word(rest_of_crc), c = load(at + 16), d = load(at + 32);
        for (at += 48, more -= 3; more >= 4; at += 64, more -= 4) {
            __builtin_prefetch(at + AHEAD);
            a = step_over(a, p->over_512) ^ load(at);
            b = step_over(b, p->over_512) ^ load(at + 16);
            c = step_over(c, p->over_512) ^ load(at + 32);
            d = step_over(d, p->over_512) ^ load(at + 48);
        }
        over -= more;
        sum = step_over(a, over[-4]) ^ step_over(b, over[-3]) ^ step_over(c, over[-2]) ^
              step_over(d, over[-1]);
    }
    for (; more; more--, at += 16, over++) sum ^= step_over(load(at), over[0]);
    return sum;
}

/* Divide what fold() left by P: its first 32 bits are stepped over the 64 after them; of these,
 * times x^32, the quotient follows from that of x^95 (Barrett's reduction, exact without carries),
 * and the remainder is the quotient * P, of which only the lowest 32 bits are not known before. */
VECTORS INLINED uint32_t divide(const polynomial* p, vector a) {
    vector first = from_word((uint32_t)a[0]);
    a = shuffle(a ^ product(first, from_word(p->last_step)), load(SHIFTS + 16 + 4));
    a = product(a, from_word(p->quotient));
    a = product(a, from_word((uint64_t)p->bits << 1));
    return ~(uint32_t)a[1];
}

VECTORS static uint32_t crc32_by_vectors(uint32_t crc, const uint8_t* at, size_t size) {
    if (size < 16) return crc32_by_table(crc, at, size);
    return divide(&IEEE, fold(&IEEE, crc, at, size));
}
#endif

#if defined(__x86_64__)
/* The CRC instruction of x86-64 knows Castagnoli's P alone. */
INLINED uint64_t crc32c_step(uint64_t crc, uint64_t word) {
    __asm__("crc32q %1, %0" : "+r"(crc) : "r"(word));
    return crc;
}

PCLMUL static uint32_t crc32c_by_streams(uint32_t crc, const uint8_t* at, size_t size) {
    const uint32_t* over = CASTAGNOLI.over_words;
    size_t first = size % 8, words = size / 8;
    uint64_t sum = begin_words(crc32c_step, crc, at, first);
    for (at += first; words % 3; words--, at += 8) sum = crc32c_step(sum, load_u64(at));
    while (words) {
        size_t stream = words / 3 < LONGEST_STREAM ? words / 3 : LONGEST_STREAM;
        uint64_t second = 0, third = 0;
        const uint8_t *end = at + 8 * stream, *ahead = at + 24 * stream;
        for (; at < end; at += 8, ahead += 24) {
            __builtin_prefetch(ahead);
            sum = crc32c_step(sum, load_u64(at));
            second = crc32c_step(second, load_u64(at + 8 * stream));
            third = crc32c_step(third, load_u64(at + 16 * stream));
        }
        vector joined = product(from_word(sum), from_word(over[2 * stream])) ^
                        product(from_word(second), from_word(over[stream]));
        sum = crc32c_step(0, (uint64_t)joined[0]) ^ third;
        at += 16 * stream;
        words -= 3 * stream;
    }
    return ~(uint32_t)sum;
}

/* divide(), for Castagnoli's P: two instructions, where the processor has them. */
PCLMUL INLINED uint32_t divide_by_castagnoli(vector a) {
    a = shuffle(a, load(SHIFTS + 12));
    return ~(uint32_t)crc32c_step(crc32c_step(0, (uint64_t)a[0]), (uint64_t)a[1]);
}

/* Short ones are folded, for the branches of three streams are hard to foretell; long ones are not,
 * for older processors start a product only every other cycle. */
PCLMUL static uint32_t crc32c_pclmul(uint32_t crc, const uint8_t* at, size_t size) {
    if (size < 16) return crc32c_by_table(crc, at, size);
    if (size >= 1024) return crc32c_by_streams(crc, at, size);
    return divide_by_castagnoli(fold(&CASTAGNOLI, crc, at, size));
}

#define AVX512 \
    __attribute__((target("sse4.2,pclmul,avx512f,avx512bw,avx512vl,avx512vbmi2,vpclmulqdq")))
typedef __m512i wide;

AVX512 INLINED wide load_wide(const void* at) { return _mm512_loadu_si512(at); }
AVX512 INLINED wide widen(uint32_t word) {
    return _mm512_inserti32x4(_mm512_setzero_si512(), from_word(word), 0);
}
AVX512 INLINED wide step_wide_over(wide a, wide by, wide onto) {
    return _mm512_ternarylogic_epi64( /* a three-way XOR */
        _mm512_clmulepi64_epi128(a, by, 0x00), _mm512_clmulepi64_epi128(a, by, 0x11), onto, 0x96);
}

/* fold(), with vectors of 512 bits, for at least 4 bytes. */
AVX512 INLINED vector fold_wide(const polynomial* p, uint32_t crc, const uint8_t* at, size_t size) {
    size_t first = (size - 1) % 64 + 1, more = (size - 1) / 64; /* bytes; whole vectors */
    uint32_t rest_of_crc = first < 4 ? ~crc >> 8 * first : 0;
    wide zero = _mm512_setzero_si512(), sum;
    wide a = _mm512_maskz_loadu_epi8(~(uint64_t)0 >> (64 - first), at) ^ widen(~crc);
    a = _mm512_maskz_expand_epi8(~(uint64_t)0 << (64 - first), a);
    const uint64_t(*over)[2] = p->over_last + DISTANCES;
    at += first;
    if (more < 8) {
        over -= 4 * more;
        sum = step_wide_over(a, load_wide(over - 4), zero);
        if (rest_of_crc) sum = step_wide_over(widen(rest_of_crc), load_wide(over), sum);
    } else {
        wide by = _mm512_broadcast_i32x4(load(p->over_2048));
        wide b = load_wide(at) ^ widen(rest_of_crc);
        wide c = load_wide(at + 64), d = load_wide(at + 128);
        for (at += 192, more -= 3; more >= 4; at += 256, more -= 4) {
            for (int line = 0; line < 256; line += 64) __builtin_prefetch(at + AHEAD + line);
            a = step_wide_over(a, by, load_wide(at));
            b = step_wide_over(b, by, load_wide(at + 64));
            c = step_wide_over(c, by, load_wide(at + 128));
            d = step_wide_over(d, by, load_wide(at + 192));
        }
        over -= 4 * more;
        sum = step_wide_over(a, load_wide(over - 16), zero);
        sum = step_wide_over(b, load_wide(over - 12), sum);
        sum = step_wide_over(c, load_wide(over - 8), sum);
        sum = step_wide_over(d, load_wide(over - 4), sum);
    }
    for (; more; more--, at += 64, over += 4)
        sum = step_wide_over(load_wide(at), load_wide(over), sum);
    __m256i half = _mm512_castsi512_si256(sum) ^ _mm512_extracti64x4_epi64(sum, 1);
    return _mm256_castsi256_si128(half) ^ _mm256_extracti128_si256(half, 1);
}

AVX512 static uint32_t crc32c_avx512(uint32_t crc, const uint8_t* at, size_t size) {
    if (size < 4) return crc32c_by_table(crc, at, size);
    return divide_by_castagnoli(fold_wide(&CASTAGNOLI, crc, at, size));
}

AVX512 static uint32_t crc32_avx512(uint32_t crc, const uint8_t* at, size_t size) {
    if (size < 4) return crc32_by_table(crc, at, size);
    return divide(&IEEE, fold_wide(&IEEE, crc, at, size));
}

#elif defined(VECTORS)
/* The CRC instructions of ARM64, for processors that have no carry-less product. */
INLINED uint64_t crc32c_step(uint64_t crc, uint64_t word) {
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %1" : "+r"(crc) : "r"(word));
    return crc;
}
INLINED uint64_t crc32_step(uint64_t crc, uint64_t word) {
    __asm__(".arch_extension crc\n\tcrc32x %w0, %w0, %1" : "+r"(crc) : "r"(word));
    return crc;
}

INLINED uint32_t by_words(step_function step, uint32_t crc, const uint8_t* at, size_t size) {
    size_t first = size % 8, words = size / 8;
    uint64_t sum = begin_words(step, crc, at, first);
    for (at += first; words; words--, at += 8) sum = step(sum, load_u64(at));
    return ~(uint32_t)sum;
}

static uint32_t crc32c_by_words(uint32_t crc, const uint8_t* at, size_t size) {
    return size < 8 ? crc32c_by_table(crc, at, size) : by_words(crc32c_step, crc, at, size);
}

static uint32_t crc32_by_words(uint32_t crc, const uint8_t* at, size_t size) {
    return size < 8 ? crc32_by_table(crc, at, size) : by_words(crc32_step, crc, at, size);
}

static uint32_t crc32c_by_vectors(uint32_t crc, const uint8_t* at, size_t size) {
    if (size < 16) return crc32c_by_table(crc, at, size);
    return divide(&CASTAGNOLI, fold(&CASTAGNOLI, crc, at, size));
}
#endif

struct crc_kernel {
    const char* name;
    crc_function crc32c, crc32;
};

/* Fill in the kernels that this processor runs, best first; return how many. */
static int find_crc_kernels(struct crc_kernel kernels[3]) {
    int count = 0;
    prepare(&CASTAGNOLI);
    prepare(&IEEE);
#if defined(__x86_64__)
    int features = processor_features();
    if (ALL_OF(features, HAS_PCLMUL | HAS_WIDE_PCLMUL))
        kernels[count++] = (struct crc_kernel){"avx512", crc32c_avx512, crc32_avx512};
    if (features & HAS_PCLMUL)
        kernels[count++] = (struct crc_kernel){"pclmul", crc32c_pclmul, crc32_by_vectors};
#elif defined(VECTORS)
#if defined(__linux__)
    int pmull = (getauxval(AT_HWCAP) & HWCAP_PMULL) != 0;
    int crc = (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
#elif defined(__APPLE__)
    int pmull = 1, crc = 1; /* in every one of their processors */
#else
    int pmull = 0, crc = 0; /* no way to query them */
#endif
    if (pmull)
        kernels[count++] = (struct crc_kernel){"pmull", crc32c_by_vectors, crc32_by_vectors};
    if (crc) kernels[count++] = (struct crc_kernel){"crc", crc32c_by_words, crc32_by_words};
#endif
    kernels[count++] = (struct crc_kernel){"table", crc32c_by_table, crc32_by_table};
    return count;
}

#endif
