/* What the tables over AVX-512 share: strips of two vectors of sixteen outputs, twelve rows in
 * a tile, over AVX-512 F, BW, VL and DQ. */
#ifndef NS_KERN_ZMM_H
#define NS_KERN_ZMM_H

#include "src/kern.h"

#include "src/kern_tables.h"

#include <immintrin.h>

#define V               16
#define TILE_ROWS       12
#define DIRECT_ROWS     8
#define BOTH_ROWS       4
#define EACH_DIRECT(DO) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8)
typedef __m512 vf;
#define vload  _mm512_loadu_ps
#define vstore _mm512_storeu_ps
#define vset1  _mm512_set1_ps
#define vfma   _mm512_fmadd_ps

/* Each product takes x from memory itself: a broadcast for both is a shuffle on Zen 4, and shuffles
 * are what decoding needs. Emulation has no such instructions. */
#ifndef KERN_EMULATED
#ifndef FMA_NAME
#define FMA_NAME "vfmadd231ps"
#endif
#define fma_from(x, w, sum) __asm__(FMA_NAME " %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*(x)))
#define strip_fma(x, w0, w1, sum0, sum1)                                                           \
    do {                                                                                           \
        fma_from(x, w0, sum0);                                                                     \
        fma_from(x, w1, sum1);                                                                     \
    } while (0)
#endif

#define turn_line turn_rows
#include "src/kern_mm.h"

typedef __m512i vb;
#define low8    _mm512_unpacklo_epi8
#define high8   _mm512_unpackhi_epi8
#define low16   _mm512_unpacklo_epi16
#define high16  _mm512_unpackhi_epi16
#define low32   _mm512_unpacklo_epi32
#define high32  _mm512_unpackhi_epi32
#define look_up _mm512_shuffle_epi8

INLINE __m128i load16(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

INLINE vb every_lane(const uint8_t *p)
{
    return _mm512_broadcast_i32x4(load16(p));
}

INLINE vb load_lanes(const struct strip *s, size_t i, size_t at)
{
    __m512i r = _mm512_castsi128_si512(load16(s->w[i] + at));
    r = _mm512_inserti32x4(r, load16(s->w[i + 4] + at), 1);
    r = _mm512_inserti32x4(r, load16(s->w[i + 8] + at), 2);
    return _mm512_inserti32x4(r, load16(s->w[i + 12] + at), 3);
}

/* Pairs of rows, fours, then lanes change places. */
INLINE void turn_rows(vb v[16], const struct strip *s, size_t h, size_t at)
{
    vb a[16];
    foreach (i, 16) v[i] = _mm512_loadu_si512(s->w[h + (size_t)i] + at);
    foreach (i, 8) {
        a[2 * i] = low32(v[2 * i], v[2 * i + 1]);
        a[2 * i + 1] = high32(v[2 * i], v[2 * i + 1]);
    }
    foreach (q, 4)
        foreach (i, 2) {
            v[4 * q + 2 * i] = _mm512_unpacklo_epi64(a[4 * q + i], a[4 * q + 2 + i]);
            v[4 * q + 2 * i + 1] = _mm512_unpackhi_epi64(a[4 * q + i], a[4 * q + 2 + i]);
        }
    foreach (i, 4) {
        a[i] = _mm512_shuffle_i32x4(v[i], v[4 + i], 0x88);
        a[4 + i] = _mm512_shuffle_i32x4(v[i], v[4 + i], 0xdd);
        a[8 + i] = _mm512_shuffle_i32x4(v[8 + i], v[12 + i], 0x88);
        a[12 + i] = _mm512_shuffle_i32x4(v[8 + i], v[12 + i], 0xdd);
    }
    foreach (i, 8) {
        v[i] = _mm512_shuffle_i32x4(a[i], a[8 + i], 0x88);
        v[8 + i] = _mm512_shuffle_i32x4(a[i], a[8 + i], 0xdd);
    }
}

#define look_up16(p, w) _mm512_permutexvar_epi16(w, _mm512_loadu_si512(p))

#include "src/kern_turn.h"

#endif
