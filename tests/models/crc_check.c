/* Compares every kernel of crc.h that this processor runs with a division bit by bit.
 *
 * The bytes are at the end, and then at the beginning, of memory between two pages that must not be
 * touched.  Prints the names of the kernels, or what is wrong.
 */
#include "crc.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST 40000

static uint32_t by_bits(uint32_t polynomial, uint32_t crc, const uint8_t* at, size_t size) {
    crc = ~crc;
    for (; size; size--, at++) {
        crc ^= *at;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ polynomial : crc >> 1;
    }
    return ~crc;
}

static int check(const char* name, crc_function kernel, uint32_t polynomial, uint8_t* start,
                 uint8_t* end) {
    for (size_t size = 0; size <= MOST; size += size < 1100 ? 1 : size / 7)
        for (int side = 0; side < 2; side++) {
            uint8_t* at = side ? start : end - size;
            uint32_t initial = (uint32_t)size % 3 * 0x9e3779b9u;
            uint32_t wanted = by_bits(polynomial, initial, at, size);
            uint32_t got = kernel(initial, at, size);
            if (got != wanted) {
                printf("%s: %08x instead of %08x, %zu bytes\n", name, got, wanted, size);
                return 1;
            }
        }
    return 0;
}

int main(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (MOST / page + 1) * page;
    uint8_t* memory = mmap(NULL, pages + 2 * page, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 2;
    uint8_t *start = memory + page, *end = start + pages;
    uint32_t random = 7;
    for (uint8_t* at = start; at < end; at++) *at = (random = random * 1664525 + 1013904223) >> 24;
    if (mprotect(memory, page, PROT_NONE) || mprotect(end, page, PROT_NONE)) return 2;

    struct crc_kernel kernels[3];
    int count = find_crc_kernels(kernels), wrong = 0;
    for (int i = 0; i < count; i++) {
        wrong |= check("CRC-32C", kernels[i].crc32c, 0x82f63b78u, start, end);
        wrong |= check("CRC-32", kernels[i].crc32, 0xedb88320u, start, end);
        puts(kernels[i].name);
    }
    return wrong;
}
