/* A weight matrix in whatever form the checkpoint has it, and its product with rows. */
#ifndef NS_QUANT_H
#define NS_QUANT_H

#include "src/kern.h"
#include "src/pool.h"

#include <stdbool.h>

enum dtype { DT_NONE, DT_F32, DT_BF16, DT_U8, DT_MXFP4, DT_OTHER };

/* What computing needs: kernels, threads, and whether activations are rounded to BF16 before each
 * product. */
struct compute {
    const struct kern *kern;
    struct pool *pool;
    bool bf16;
};

/* y = W x with W [out][in]. MXFP4 (kimi-k3 1.4): byte j of a row holds columns 2j (low nibble) and
 * 2j+1; one E8M0 scale for 32 columns, value 2^(e-127), e = 0 is 2^-127 and e = 255 is refused at
 * load. */
struct linear {
    enum dtype type; /* DT_F32, DT_BF16 or DT_MXFP4 */
    uint32_t out, in;
    const void *w;
    const uint8_t *scale;
};

/* Bytes of w and of scale for a matrix of this type; false on a type or width that cannot be. */
bool linear_bytes(enum dtype type, uint64_t out, uint64_t in, uint64_t *w_bytes,
                  uint64_t *scale_bytes);

/* y[r][0..out) = W x[r][0..in), all rows, split over the pool by outputs. */
void linear_apply(const struct compute *c, const struct linear *l, float *y, size_t ldy,
                  const float *x, size_t ldx, size_t rows);
/* The same for outputs [first, last) on the calling thread. */
void linear_part(const struct kern *k, const struct linear *l, float *y, size_t ldy, const float *x,
                 size_t ldx, size_t rows, size_t first, size_t last);

/* Round n values to BF16 in place when c->bf16; else nothing. */
void round_bf16(const struct compute *c, float *x, size_t n);
/* Row `r` of W widened to F32. */
void linear_row(const struct linear *l, size_t r, float *out);

#endif
