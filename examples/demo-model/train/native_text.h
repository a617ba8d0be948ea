/* What the text layers' kernels share: vector functions that need AVX-512, buffers, the norm of a
 * row; the products of native_product.c and the SiTU of native_mix.c. All of it only where the
 * processor multiplies BF16.
 *
 * One thread; the trainer runs a process for each core. Rows are ragged: [rows][...] of all
 * conversations one after another, conversation c from first[c] to first[c + 1]. Sums are F32.
 * Widths are multiples of 16; a name like ldx is what lies between the beginnings of two rows of x,
 * in values. Forms and names follow model.py and kda.py; native_text.py makes autograd functions of
 * these. Integers that come from Python are long. */
#ifndef NS_NATIVE_TEXT_H
#define NS_NATIVE_TEXT_H

#include "examples/demo-model/train/native.h"

#if defined(__AVX512BF16__)

#define WIDEST 1024 /* values of a row that is kept on the stack */

INLINE vec madd(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}

INLINE float largest_of(vec x)
{
    return _mm512_reduce_max_ps(x);
}

/* 2^n times a polynomial; scalef saturates by itself */
INLINE vec exp_of(vec x)
{
    vec t = x * splat(LOG2_E), n = _mm512_roundscale_ps(t, 8), g = t - n;
    vec p = splat(0.000154690f);
    p = madd(p, g, splat(0.00133898091f));
    p = madd(p, g, splat(0.00961842425f));
    p = madd(p, g, splat(0.0555032640f));
    p = madd(p, g, splat(0.240226462f));
    p = madd(p, g, splat(0.693147182f));
    p = madd(p, g, splat(1));
    return _mm512_scalef_ps(p, n);
}

/* 1 / x for positive x below infinity: a step of Newton instead of the slow division */
INLINE vec reciprocal(vec x)
{
    vec y = _mm512_rcp14_ps(x);
    return y * _mm512_fnmadd_ps(x, y, splat(2));
}

INLINE vec sigmoid(vec x)
{
    return reciprocal(splat(1) + exp_of(smaller(-x, splat(80))));
}

/* -- norms: rows of F32 -- */

INLINE float inverse_rms(const float *x, long width, float eps)
{
    vec s = zero();
    for (long j = 0; j < width; j += LANES) s = madd(load(x + j), load(x + j), s);
    return 1 / sqrtf(sum_of(s) / width + eps);
}

/* y = x w / rms(x), in BF16 */
INLINE void norm_row(const float *x, const float *w, float eps, long width, bf16 *y)
{
    float r = inverse_rms(x, width, eps);
    for (long j = 0; j < width; j += LANES) store_bf16(y + j, load(x + j) * splat(r) * load(w + j));
}

/* dx = of y = x r w with r = 1 / rms(x); adds to dw */
INLINE void norm_row_back(const float *x, float r, const float *w, const float *dy, long width,
                          float *dx, float *dw)
{
    vec s = zero();
    for (long j = 0; j < width; j += LANES) {
        vec unit = load(x + j) * splat(r), d = load(dy + j);
        add_to(dw + j, d * unit);
        s = madd(d * load(w + j), unit, s);
    }
    float mean = sum_of(s) / width;
    for (long j = 0; j < width; j += LANES) {
        vec along = load(x + j) * splat(r * mean);
        store(dx + j, splat(r) * (load(dy + j) * load(w + j) - along));
    }
}

/* -- products: native_product.c -- */

#define PANEL 48 /* columns of a packed matrix that lie together */
#define BLOCK 64 /* rows of the left side that stay in the nearest cache */

/* Two BF16 of neighbouring k, as vdpbf16ps takes them */
typedef int32_t __attribute__((may_alias)) bf16_pair;

/* The right side of a product: [panel][pair of k][PANEL] */
typedef struct {
    bf16_pair *data;
    long panel; /* pairs from panel to panel */
} packed;

typedef enum { TO_BF16, TO_F32, ADD_F32 } kind;

/* Where a product goes */
typedef struct {
    void *data;
    long ld;
    kind kind;
} target;

/* Bytes of a packed matrix [k][columns] */
size_t packed_size(long k, long columns);

/* w [k][columns], and the transposed of w [columns][k]; data: of packed_size(k, columns) bytes */
packed pack(bf16_pair *data, const bf16 *w, long ldw, long columns, long k);
packed pack_transposed(bf16_pair *data, const bf16 *w, long ldw, long columns, long k);

/* out [rows][columns] = a [rows][k] b; k is even or what follows it in a is zero */
void product(const bf16 *a, long lda, long rows, long k, packed b, long columns, target out);

/* out [x_columns][y_columns] = x [rows][x_columns] transposed times y [rows][y_columns]; uses
 * ROOM_LEFT and ROOM_RIGHT */
void product_of_columns(const bf16 *x, long ldx, long x_columns, const bf16 *y, long ldy,
                        long y_columns, long rows, target out);

/* -- SiTU: native_mix.c -- */

void situ(const bf16 *gate_up, long ld, long rows, long width, float beta, float linear, bf16 *out,
          long ldo);
void situ_back(const bf16 *gate_up, long ld, long rows, long width, float beta, float linear,
               const bf16 *dout, long ldo, bf16 *dgate_up, long ldd, bf16 *again, long lda);

#endif
#endif
