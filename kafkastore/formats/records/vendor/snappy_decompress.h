/*
 * Decompress one raw Snappy block into memory.
 *
 * Adapted from snappy.cc of Google's Snappy, https://github.com/google/snappy, commit
 * 6281a07b7e08629884ec93a89fea6e05c62e599c. `snappy_usual_tags` is DecompressBranchless, translated
 * from C++ to C, for one flat output; its copies use AVX where the processor has it, chosen when it
 * runs. The loop around it, for all other tags, is simpler than the original.
 *
 * Copyright 2011, Google Inc.
 * All rights reserved.
 *
 * Redistribution and use in source and binary forms, with or without
 * modification, are permitted provided that the following conditions are
 * met:
 *
 *     * Redistributions of source code must retain the above copyright
 * notice, this list of conditions and the following disclaimer.
 *     * Redistributions in binary form must reproduce the above
 * copyright notice, this list of conditions and the following disclaimer
 * in the documentation and/or other materials provided with the
 * distribution.
 *     * Neither the name of Google Inc. nor the names of its
 * contributors may be used to endorse or promote products derived from
 * this software without specific prior written permission.
 *
 * THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS AND CONTRIBUTORS
 * "AS IS" AND ANY EXPRESS OR IMPLIED WARRANTIES, INCLUDING, BUT NOT
 * LIMITED TO, THE IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS FOR
 * A PARTICULAR PURPOSE ARE DISCLAIMED. IN NO EVENT SHALL THE COPYRIGHT
 * OWNER OR CONTRIBUTORS BE LIABLE FOR ANY DIRECT, INDIRECT, INCIDENTAL,
 * SPECIAL, EXEMPLARY, OR CONSEQUENTIAL DAMAGES (INCLUDING, BUT NOT
 * LIMITED TO, PROCUREMENT OF SUBSTITUTE GOODS OR SERVICES; LOSS OF USE,
 * DATA, OR PROFITS; OR BUSINESS INTERRUPTION) HOWEVER CAUSED AND ON ANY
 * THEORY OF LIABILITY, WHETHER IN CONTRACT, STRICT LIABILITY, OR TORT
 * (INCLUDING NEGLIGENCE OR OTHERWISE) ARISING IN ANY WAY OUT OF THE USE
 * OF THIS SOFTWARE, EVEN IF ADVISED OF THE POSSIBILITY OF SUCH DAMAGE.
 */
#ifndef SNAPPY_DECOMPRESS_H
#define SNAPPY_DECOMPRESS_H

#include "processor.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SNAPPY_INLINE static inline __attribute__((always_inline))
#define SNAPPY_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

/* So many bytes after a copy may be overwritten, and after a tag be read. */
enum { SNAPPY_SLOP = 64 };

/*
 * By tag, the length minus 256 times the upper bits of the offset. Of a literal the offset is 256,
 * so that it is never less than the length; of long literals and copies with four bytes the length
 * is 255.
 */
#define SNAPPY_ENTRY(length, offset) ((length) - ((offset) << 8))
#define SNAPPY_TAGS(data) \
    ((data) < 60 ? SNAPPY_ENTRY((data) + 1, 1) : 0xff), \
    SNAPPY_ENTRY(((data) & 7) + 4, (data) >> 3), SNAPPY_ENTRY((data) + 1, 0), 0xff
#define SNAPPY_4_TAGS(data) \
    SNAPPY_TAGS(data), SNAPPY_TAGS((data) + 1), SNAPPY_TAGS((data) + 2), SNAPPY_TAGS((data) + 3)
#define SNAPPY_16_TAGS(data) \
    SNAPPY_4_TAGS(data), SNAPPY_4_TAGS((data) + 4), SNAPPY_4_TAGS((data) + 8), \
    SNAPPY_4_TAGS((data) + 12)
static const int16_t snappy_length_minus_offset[256] = {
    SNAPPY_16_TAGS(0), SNAPPY_16_TAGS(16), SNAPPY_16_TAGS(32), SNAPPY_16_TAGS(48),
};

typedef uint8_t snappy_32_bytes __attribute__((vector_size(32), aligned(1), may_alias));

/* Copies at least `size` bytes, at most 64: all are read before one is written, 32 at a time. */
SNAPPY_INLINE void snappy_copy(uint8_t *to, const uint8_t *from, size_t size, int is_wide)
{
    if (is_wide) {
        *(snappy_32_bytes *)to = *(const snappy_32_bytes *)from;
        if (SNAPPY_UNLIKELY(size > 32))
            *(snappy_32_bytes *)(to + 32) = *(const snappy_32_bytes *)(from + 32);
    } else {
        memmove(to, from, 32);
        if (SNAPPY_UNLIKELY(size > 32))
            memmove(to + 32, from + 32, 32);
    }
}

/* Repeats the `offset` bytes before `to` over 64 bytes; offset 0 is impossible. */
SNAPPY_INLINE int snappy_repeat(uint8_t *to, size_t offset)
{
    int i;
    if (offset < 16) {
        if (SNAPPY_UNLIKELY(offset == 0))
            return 0;
        for (i = 0; i < 16; i++)
            to[i] = to[i - (ptrdiff_t)offset];
        /* A multiple of the pattern, of at least 16 bytes. */
        offset *= 16 / offset + 1;
        for (i = 1; i < 4; i++)
            memcpy(to + 16 * i, to + 16 * i - offset, 16);
        return 1;
    }
    for (i = 0; i < 4; i++)
        memcpy(to + 16 * i, to + 16 * i - offset, 16);
    return 1;
}

/*
 * The usual tags, while there is enough room on both sides; `*at` and `*size` become the places
 * where it stopped. Each copy is made one tag later, when its successor is already known.
 */
SNAPPY_INLINE void snappy_usual_tags(const uint8_t **at, const uint8_t *end, uint8_t *to,
                                     ptrdiff_t *size, ptrdiff_t most, int is_wide)
{
    static const uint32_t offset_masks[4] = {0, 0xff, 0xffff, 0};
    uint8_t nothing[SNAPPY_SLOP];
    const uint8_t *ip = *at, *last_ip;
    const uint8_t *deferred = nothing;
    size_t deferred_length = 0, tag;
    ptrdiff_t op = *size, last_op = most - 2 * SNAPPY_SLOP;
    int i;

    if (end - ip <= 2 * (SNAPPY_SLOP + 1) || op >= last_op)
        return;
    memset(nothing, 0, sizeof nothing);
    last_ip = end - 2 * SNAPPY_SLOP - 1;
    tag = *ip++;
    do {
        __builtin_prefetch(ip + 128);
        for (i = 0; i < 2; i++) {
            const uint8_t *old_ip = ip, *from;
            ptrdiff_t entry = snappy_length_minus_offset[tag];
            size_t length = entry & 0xff, literal = tag >> 2, type = tag & 3, tag_literal, tag_copy;
            ptrdiff_t extracted, length_minus_offset, start;
            uint32_t next;
            /* Both are loaded before one is chosen: that takes less time than the reverse. */
            tag_literal = ((const volatile uint8_t *)ip)[1 + literal];
            tag_copy = ((const volatile uint8_t *)ip)[type];
            tag = type == 0 ? tag_literal : tag_copy;
            ip = type == 0 ? ip + 2 + literal : ip + 1 + type;
            memcpy(&next, old_ip, sizeof next);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
            next = __builtin_bswap32(next);
#endif
            extracted = next & offset_masks[type];
            length_minus_offset = entry - extracted;
            start = op + (ptrdiff_t)deferred_length + length_minus_offset - (ptrdiff_t)length;
            if (SNAPPY_UNLIKELY(entry > extracted)) {
                if (SNAPPY_UNLIKELY(length & 0x80)) {
                    ip = old_ip;
                    goto stop;
                }
                /* A copy that overlaps itself. */
                snappy_copy(to + op, deferred, deferred_length, is_wide);
                op += deferred_length;
                deferred = nothing;
                deferred_length = 0;
                if (SNAPPY_UNLIKELY(start < 0
                        || !snappy_repeat(to + op, (ptrdiff_t)length - length_minus_offset))) {
                    ip = old_ip;
                    goto stop;
                }
                op += length;
                continue;
            }
            if (SNAPPY_UNLIKELY(start < 0)) {
                if (type != 0) {
                    ip = old_ip;
                    goto stop;
                }
                from = old_ip;   /* a literal has no offset */
            } else {
                from = type ? to + start : old_ip;
            }
            snappy_copy(to + op, deferred, deferred_length, is_wide);
            op += deferred_length;
            deferred = from;
            deferred_length = length;
        }
    } while (ip < last_ip && op + (ptrdiff_t)deferred_length < last_op);
stop:
    ip--;
    snappy_copy(to + op, deferred, deferred_length, is_wide);
    *at = ip;
    *size = op + deferred_length;
}

static void snappy_usual_tags_anywhere(const uint8_t **at, const uint8_t *end, uint8_t *to,
                                       ptrdiff_t *size, ptrdiff_t most)
{
    snappy_usual_tags(at, end, to, size, most, 0);
}

#if defined(__x86_64__)
__attribute__((target("avx2")))
static void snappy_usual_tags_avx(const uint8_t **at, const uint8_t *end, uint8_t *to,
                                  ptrdiff_t *size, ptrdiff_t most)
{
    snappy_usual_tags(at, end, to, size, most, 1);
}

static int snappy_has_avx(void)
{
    static int features = -1; /* two threads write the same */
    int known = __atomic_load_n(&features, __ATOMIC_RELAXED);
    if (known < 0)
        __atomic_store_n(&features, known = processor_features(), __ATOMIC_RELAXED);
    return known & HAS_AVX2;
}
#endif

/* Returns the decompressed size that a block states, and where its tags begin; -1: none. */
static inline int64_t snappy_stated_size(const uint8_t *data, size_t size, size_t *tags_at)
{
    uint64_t stated = 0;
    size_t i;
    for (i = 0; i < size && i < 5; i++) {
        stated |= (uint64_t)(data[i] & 0x7f) << 7 * i;
        if (data[i] < 128) {
            *tags_at = i + 1;
            return stated > 0xffffffff ? -1 : (int64_t)stated;
        }
    }
    return -1;
}

/* Decompresses a block's tags to exactly `expected` bytes; 0 if they give others. */
static int snappy_decompress_tags(const uint8_t *at, const uint8_t *end, uint8_t *to,
                                  ptrdiff_t expected)
{
    ptrdiff_t size = 0, i;
    void (*usual_tags)(const uint8_t **, const uint8_t *, uint8_t *, ptrdiff_t *, ptrdiff_t) =
        snappy_usual_tags_anywhere;
#if defined(__x86_64__)
    if (snappy_has_avx())
        usual_tags = snappy_usual_tags_avx;
#endif
    for (;;) {
        uint32_t tag, bytes, number = 0;
        ptrdiff_t length;
        usual_tags(&at, end, to, &size, expected);
        if (at == end)
            return size == expected;
        tag = *at++;
        bytes = tag & 3;
        length = (tag >> 2) + 1;
        if (bytes == 3)
            bytes = 4;
        if (bytes == 0 && length > 60)
            bytes = (uint32_t)length - 60;
        if (end - at < (ptrdiff_t)bytes)
            return 0;
        for (i = 0; i < (ptrdiff_t)bytes; i++)
            number |= (uint32_t)at[i] << 8 * i;
        at += bytes;
        if ((tag & 3) == 0) {
            if (length > 60)
                length = (ptrdiff_t)number + 1;
            if (length > end - at || length > expected - size)
                return 0;
            memcpy(to + size, at, length);
            at += length;
        } else {
            ptrdiff_t offset = number;
            if ((tag & 3) == 1) {
                length = (tag >> 2 & 7) + 4;
                offset |= (tag >> 5) << 8;
            }
            if (offset == 0 || offset > size || length > expected - size)
                return 0;
            if (offset >= length)
                memcpy(to + size, to + size - offset, length);
            else
                for (i = 0; i < length; i++)
                    to[size + i] = to[size + i - offset];
        }
        size += length;
    }
}

#endif
