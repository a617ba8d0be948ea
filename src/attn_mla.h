/* Multi-head latent attention without positions, absorbed form (kimi-k3 2.5). */
#ifndef NS_ATTN_MLA_H
#define NS_ATTN_MLA_H

#include "src/quant.h"
#include "src/state.h"
#include "src/weights.h"

/* y[rows][hidden] = MLA(x[rows][hidden]); appends the rows' latents to MLA layer n of each span's
 * state. */
void attn_mla(const struct compute *c, const struct config *k, const struct mla_weights *w,
              unsigned n, const struct batch *b, const float *x, float *y, struct arena *a);
/* Scratch bytes for that many rows of sequences of at most `context` positions. */
uint64_t attn_mla_scratch(const struct config *k, size_t rows, size_t context, unsigned threads);

#endif
