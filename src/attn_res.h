/* Attention Residuals: the residual stream as frozen blocks and a live sum (kimi-k3 2.3). Without
 * them (period 0) the live sum is the plain residual stream. */
#ifndef NS_ATTN_RES_H
#define NS_ATTN_RES_H

#include "src/config.h"
#include "src/mem.h"
#include "src/quant.h"

#include <stddef.h>

struct residual {
    float *live;   /* P: [rows][hidden] */
    float *blocks; /* B: [n][rows][hidden], in order of storage */
    size_t rows, n;
    bool cleared; /* P was frozen and holds nothing yet */
};

/* Takes memory for a sweep of that many rows; live is for the caller to fill with embeddings. */
void residual_init(struct residual *r, const struct config *c, size_t rows, struct arena *a);

/* out[rows][hidden] = the mixture of blocks and live sum: s_c = sum_d v_c[d] rsqrt(mean(v_c^2) +
 * eps) fold[d], a = softmax(s), out = sum_c a_c v_c. With no blocks, or fold NULL: a copy of the
 * live sum. */
void residual_mix(const struct compute *c, const struct config *k, const struct residual *r,
                  const float *fold, float *out);
/* At the attention side of a layer, after its input was formed: freezes the live sum when layer %
 * period == 0. */
void residual_store(struct residual *r, const struct config *k, unsigned layer);
/* live += y, or live = y when cleared. */
void residual_add(struct residual *r, const struct config *k, const float *y);

#endif
