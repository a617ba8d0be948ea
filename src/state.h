/* What one sequence keeps between sweeps: KDA matrices, conv windows, MLA latents (kimi-k3 3). All
 * F32. */
#ifndef NS_STATE_H
#define NS_STATE_H

#include "src/config.h"
#include "src/mem.h"

#include <stddef.h>

struct state {
    float *kda;    /* [kda layers][heads][dim][dim], key dimension first */
    float *conv;   /* [kda layers][conv - 1][3][heads * dim]: pre-filter q, k, v, oldest first */
    float *latent; /* [mla layers][capacity][kv_lora + rope]: normed latent, then shared key part */
    size_t capacity, length; /* positions */
};

/* Fresh: zero state, length 0. */
enum status state_init(struct state *s, struct mem *mem, const struct config *c, size_t capacity,
                       struct err *e);
void state_free(struct state *s, struct mem *mem);
uint64_t state_bytes(const struct config *c, size_t capacity);

/* n: how many-eth layer of its kind */
float *state_kda(const struct state *s, const struct config *c, unsigned n);
float *state_conv(const struct state *s, const struct config *c, unsigned n);
float *state_latent(const struct state *s, const struct config *c, unsigned n);

/* What the KDA layers saw of drafted rows, so that accepted ones can be replayed (kimi-k3 3.3): for
 * each layer and row qkv [3][C] before the filter, then key, value, decay [C] each, then beta
 * [heads]. */
struct draft_log {
    float *at; /* [kda layers][rows][draft_log_width] */
    size_t rows;
};
size_t draft_log_width(const struct config *c);
float *draft_log_row(const struct draft_log *l, const struct config *c, unsigned layer, size_t row);

/* Consecutive rows of one sequence inside a sweep, at positions `start` and up. The first `sure`
 * rows advance the state; the rest are drafts: they see what came before them and leave the state
 * as if they had not been, apart from latents beyond its length.
 *
 * Spans may build upon each other within a sweep, layer by layer. Spans of one depth run side by
 * side, after all of lower depth; two spans of one state have different depths. With `from`, what
 * that state is after all spans of lower depth is copied first, `start` positions of it, and there
 * may be no rows at all. */
struct span {
    struct state *state;
    const struct state *from; /* of another sequence, or NULL */
    unsigned depth;
    size_t start;    /* state->length, unless it builds upon another span */
    size_t first, n; /* rows of the sweep */
    size_t sure;     /* 1..n; 0 without rows */
    size_t log_row;  /* of the first draft */
};

/* The rows of one sweep. */
struct batch {
    const struct span *spans; /* by their rows; each after those it builds upon */
    size_t n_spans, rows;
    unsigned depths;      /* more than any span's */
    struct draft_log log; /* room for all drafts of the sweep */
};

#endif
