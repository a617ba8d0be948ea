/* Which expert to give up first.
 *
 * Every sweep visits the layers in order, so keys are used in cyclic order. What matters is how
 * soon an expert is used again: after 1 / p - 1 whole sweeps and the rest of this one up to its
 * place, where p is the chance that a sweep uses it. p is the mean of two decayed frequencies, one
 * that follows the text and one that remembers the night. The cache evicts what will be used last;
 * cache_sim.h replays recorded routes through the same code. Not thread safe. */
#ifndef NS_EXPERT_HEAT_H
#define NS_EXPERT_HEAT_H

#include "src/mem.h"

#include <stdint.h>

struct expert_heat {
    struct mem *mem;
    uint32_t keys;
    uint32_t last; /* key used last: where in its cycle the sweep is */
    /* Decayed counts of sweeps, and of those that used each expert [keys]. */
    float fast_sweeps, slow_sweeps;
    float *fast, *slow;
};

enum status expert_heat_init(struct expert_heat *h, struct mem *mem, uint32_t keys, struct err *e);
void expert_heat_free(struct expert_heat *h);

/* Once for each sweep that uses the expert. */
void expert_heat_use(struct expert_heat *h, uint32_t key);
/* A sweep begins: what was used before counts less. */
void expert_heat_tick(struct expert_heat *h);
/* What keeping the expert is worth, 1 / (sweeps until its next use); the least goes first. In
 * 0..keys. */
double expert_heat_worth(const struct expert_heat *h, uint32_t key);

#endif
