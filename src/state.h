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

/* Consecutive rows of one sequence inside a sweep. */
struct span {
    struct state *state;
    size_t first, n; /* rows of the sweep; they stand at positions state->length .. + n - 1 */
};

/* The rows of one sweep. */
struct batch {
    const struct span *spans;
    size_t n_spans, rows;
};

#endif
