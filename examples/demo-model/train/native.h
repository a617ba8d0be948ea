/* Vectors of the training kernels: 16 floats, one register with AVX-512 and several elsewhere. BF16
 * travels as uint16_t. What is written with the operators of C runs on every processor; functions
 * over native_text.h do not. */
#ifndef NS_NATIVE_H
#define NS_NATIVE_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#pragma GCC diagnostic ignored "-Wpsabi" /* vectors are passed only to what is inlined */

#define LANES  16
#define LOG2_E 1.442695041f
#define INLINE static inline __attribute__((always_inline))

typedef uint16_t bf16;
typedef float vec __attribute__((vector_size(64)));
typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef uint32_t u32x16 __attribute__((vector_size(64)));
typedef uint16_t u16x32 __attribute__((vector_size(64)));
typedef uint16_t u16x16 __attribute__((vector_size(32)));

INLINE vec load(const float *from)
{
    vec v;
    memcpy(&v, from, sizeof v);
    return v;
}

INLINE void store(float *to, vec v)
{
    memcpy(to, &v, sizeof v);
}

INLINE void add_to(float *to, vec v)
{
    store(to, load(to) + v);
}

INLINE vec zero(void)
{
    return (vec){0};
}

INLINE vec splat(float x)
{
    return x - zero();
}

INLINE vec larger(vec a, vec b)
{
#if defined(__AVX512F__)
    return (vec)_mm512_max_ps((__m512)a, (__m512)b);
#else
    i32x16 mask = a > b;
    return (vec)((mask & (i32x16)a) | (~mask & (i32x16)b));
#endif
}

INLINE vec smaller(vec a, vec b)
{
#if defined(__AVX512F__)
    return (vec)_mm512_min_ps((__m512)a, (__m512)b);
#else
    return -larger(-a, -b);
#endif
}

INLINE float sum_of(vec v)
{
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)v);
#else
    float sum = 0;
    for (int i = 0; i < LANES; i++) sum += v[i];
    return sum;
#endif
}

INLINE vec load_bf16(const bf16 *from)
{
    u16x16 half;
    memcpy(&half, from, sizeof half);
    return (vec)(__builtin_convertvector(half, u32x16) << 16);
}

/* to BF16, ties to even */
INLINE u16x16 rounded(vec v)
{
#if defined(__AVX512BF16__)
    return (u16x16)_mm512_cvtneps_pbh((__m512)v);
#else
    u32x16 bits = (u32x16)v;
    return __builtin_convertvector((bits + 0x7fff + (bits >> 16 & 1)) >> 16, u16x16);
#endif
}

INLINE void store_bf16(bf16 *to, vec v)
{
    u16x16 half = rounded(v);
    memcpy(to, &half, sizeof half);
}

/* a row in the other precision; n: a multiple of LANES */
INLINE void row_to_bf16(bf16 *to, const float *from, long n)
{
    for (long i = 0; i < n; i += LANES) store_bf16(to + i, load(from + i));
}

INLINE void row_to_float(float *to, const bf16 *from, long n)
{
    for (long i = 0; i < n; i += LANES) store(to + i, load_bf16(from + i));
}

/* 2^x for x up to 126, relative error 4e-6 (a bf16 has 4e-3) */
INLINE vec power_of_two(vec x)
{
#if defined(__AVX512F__)
    vec whole = (vec)_mm512_roundscale_ps((__m512)x, 8); /* to the nearest whole number */
#else
    x = larger(x, splat(-126));
    /* truncating is rounding, as it is positive */
    i32x16 exponent = __builtin_convertvector(x + 127.5f, i32x16);
    vec whole = __builtin_convertvector(exponent - 127, vec);
#endif
    vec rest = x - whole;
    vec cubic = 0.05550411f + rest * 0.009618129f;
    vec power = 1 + rest * (0.6931472f + rest * (0.2402265f + rest * cubic));
#if defined(__AVX512F__)
    return (vec)_mm512_scalef_ps((__m512)power, (__m512)whole);
#else
    return power * (vec)(exponent << 23);
#endif
}

/* Buffers that stay from call to call: fresh pages are dear on a virtual machine. */
enum room {
    ROOM_LEFT,
    ROOM_RIGHT,
    ROOM_WEIGHTS,
    ROOM_MOE,
    ROOM_KDA,
    ROOM_KDA_STATES,
    ROOM_MLA,
    ROOM_ATTENTION,
    ROOMS
};

/* The calling thread's buffer of that name, at least so many bytes from the beginning of a page on.
 * Growing loses what was in it. */
void *room(enum room name, size_t bytes);

#endif
