/* Kimi Delta Attention over the rows of a sweep (kimi-k3 2.4). */
#ifndef NS_ATTN_KDA_H
#define NS_ATTN_KDA_H

#include "src/quant.h"
#include "src/state.h"
#include "src/weights.h"

/* y[rows][hidden] = KDA(x[rows][hidden]); advances matrices and conv windows of KDA layer n of each
 * span's state. x is the normed input. Scratch comes from a and is given back. */
void attn_kda(const struct compute *c, const struct config *k, const struct kda_weights *w,
              unsigned n, const struct batch *b, const float *x, float *y, struct arena *a);
/* Makes the first n drafts of a span part of its sequence: matrices and windows of every KDA layer
 * advance by the same arithmetic as if the rows had been sure; the length too. scratch: [threads][3
 * * dim] floats. */
void attn_kda_accept(const struct compute *c, const struct config *k, const struct draft_log *log,
                     const struct span *s, size_t n, float *scratch);
/* Scratch bytes for that many rows. */
uint64_t attn_kda_scratch(const struct config *k, size_t rows, unsigned threads);

#endif
