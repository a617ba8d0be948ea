/* One decoder layer over the rows of a sweep (kimi-k3, pseudo-flow of section 0). */
#ifndef NS_LAYER_H
#define NS_LAYER_H

#include "src/attn_res.h"
#include "src/moe.h"
#include "src/state.h"

/* Looks at intermediate rows, for tests: what ("attn", "ffn", "live", "embed"), data [rows][width].
 */
typedef void (*trace_fn)(void *user, const char *what, unsigned layer, const float *data,
                         size_t rows, size_t width);

struct layer_run {
    const struct compute *c;
    const struct config *k;
    struct moe *moe;
    const struct batch *batch;
    struct residual *residual;
    float *x, *y; /* [rows][hidden] scratch */
    struct arena *arena;
    trace_fn trace; /* or NULL */
    void *trace_user;
};

/* nth: how many-eth layer of its attention kind. next: see moe_layer. */
enum status layer_forward(const struct layer_run *r, unsigned layer, unsigned nth,
                          const struct layer_weights *w, const struct layer_weights *next,
                          struct err *e);
/* x[row] = rms(x[row], norm) for all rows. */
void layer_norm_rows(const struct compute *c, const struct config *k, const float *norm, float *x,
                     size_t rows);

#endif
