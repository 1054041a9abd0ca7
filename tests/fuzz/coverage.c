/* Report to libFuzzer which compiled code was run.

   gcc calls __sanitizer_cov_trace_pc at the start of every basic block; libFuzzer needs a table of
   counters.  This file is linked into each module of a build with coverage, with a table for it
   alone: a block's counter is found by a hash of its place, and blocks may share one.
   Comparisons (__sanitizer_cov_trace_cmp1 and so on) go to libFuzzer itself, but for floats. */
#include <stdint.h>

#define BITS 13
#define COUNTERS (1 << BITS)
#define HIDDEN __attribute__((visibility("hidden")))

void __sanitizer_cov_8bit_counters_init(uint8_t *begin, uint8_t *end);
void __sanitizer_cov_pcs_init(const uintptr_t *begin, const uintptr_t *end);

static uint8_t counters[COUNTERS];
static uintptr_t places[COUNTERS][2];   /* an address and flags: libFuzzer needs one for each */

HIDDEN void __sanitizer_cov_trace_pc(void)
{
    uintptr_t block = (uintptr_t)__builtin_return_address(0) - (uintptr_t)counters;
    counters[(uint32_t)block * 2654435761u >> (32 - BITS)]++;
}

HIDDEN void __sanitizer_cov_trace_cmpf(float a, float b) { (void)a; (void)b; }
HIDDEN void __sanitizer_cov_trace_cmpd(double a, double b) { (void)a; (void)b; }

__attribute__((constructor)) static void register_with_libfuzzer(void)
{
    for (int i = 0; i < COUNTERS; i++)
        places[i][0] = (uintptr_t)&counters[i];
    __sanitizer_cov_8bit_counters_init(counters, counters + COUNTERS);
    __sanitizer_cov_pcs_init(places[0], places[COUNTERS]);
}
