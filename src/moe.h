/* The feed-forward half of a layer: dense MLP, or routed and shared experts (kimi-k3 2.6, 2.7).
 *
 * Rows are grouped by expert; each needed expert is borrowed from the cache once a sweep, in
 * ascending order, and a row's experts are summed in ascending order, so that the sum does not
 * depend on what else runs. */
#ifndef NS_MOE_H
#define NS_MOE_H

#include "src/expert_cache.h"
#include "src/expert_io.h"
#include "src/guess.h"
#include "src/quant.h"
#include "src/weights.h"

/* Told the choice of every row of a sweep at one layer: experts [rows][top_k] ascending, biased
 * [rows][experts] the scores it was made by. */
typedef void (*route_fn)(void *user, unsigned layer, const uint32_t *experts, const float *biased,
                         size_t rows);

struct moe {
    const struct compute *c;
    const struct config *k;
    struct expert_cache *cache;
    const struct expert_io *io;
    size_t group;        /* most experts borrowed at a time: cache slots - 1 at most */
    struct guess *guess; /* or NULL: what the next layer needs is not announced */
    route_fn on_route;   /* or NULL */
    void *user;
    uint64_t uses; /* (expert, sweep) pairs so far */
};

/* The rows of a sweep at one layer. */
struct moe_rows {
    size_t rows;
    float *x; /* [rows][hidden]; rounded after the router has seen it, when activations are BF16 */
    float *y; /* [rows][hidden] */
    struct arena *arena;
};

/* y[rows][hidden] = ffn(x[rows][hidden]). E_IO, E_MODEL from fetching an expert. next: weights of
 * layer + 1 where they are at hand, else NULL: its router, applied to x, guesses which experts to
 * read ahead. */
enum status moe_layer(struct moe *m, unsigned layer, const struct layer_weights *w,
                      const struct layer_weights *next, struct moe_rows *r, struct err *e);
uint64_t moe_scratch(const struct config *k, size_t rows);

/* Where the routed experts of a model are: their names and sizes follow from its config. */
enum status moe_experts_open(struct expert_io **out, struct mem *mem,
                             const struct safetensors *files, const struct config *k,
                             struct err *e);

/* Selection for one row: logits [experts] are overwritten with scores; the top_k experts by score +
 * bias, ties to the lower id, ascending in ids; their weights. biased: scratch [experts]. */
void moe_route(const struct kern *kern, const struct config *k, float *logits, const float *bias,
               float *biased, uint32_t *ids, float *weights);

#endif
