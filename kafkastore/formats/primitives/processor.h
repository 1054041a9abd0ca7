/* Which instructions this processor has and the system saves the registers of.
 *
 * Not __builtin_cpu_supports: it asks the compiler's own library, and that of Zig, which compiles
 * the wheels, always answers no.
 */
#ifndef KAFKASTORE_PROCESSOR_H
#define KAFKASTORE_PROCESSOR_H

#if defined(__x86_64__)
#include <cpuid.h>

enum { HAS_PCLMUL = 1, HAS_AVX2 = 2, HAS_WIDE_PCLMUL = 4 };

#define ALL_OF(word, bits) (((word) & (bits)) == (bits))

/* The sum of what there is.  Virtual machines trap the instruction, so ask once.
 * Source: Intel's manual, volume 2, CPUID; volume 1, 13.2 and 13.3 for XCR0. */
static int processor_features(void) {
    unsigned a, b, c, d, saved = 0, features = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    if (ALL_OF(c, bit_SSE4_2 | bit_PCLMUL)) features |= HAS_PCLMUL;
    if (ALL_OF(c, bit_OSXSAVE | bit_AVX)) __asm__("xgetbv" : "=a"(saved), "=d"(d) : "c"(0));
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return features;
    if (ALL_OF(saved, 0x06) && (b & bit_AVX2)) features |= HAS_AVX2;
    if (ALL_OF(saved, 0xe6) && ALL_OF(b, bit_AVX512F | bit_AVX512BW | bit_AVX512VL) &&
        ALL_OF(c, bit_AVX512VBMI2 | bit_VPCLMULQDQ))
        features |= HAS_WIDE_PCLMUL;
    return features;
}
#endif
#endif
