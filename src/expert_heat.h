/* Which expert to give up first.
 *
 * One number per expert, fed by its uses: the cache evicts where it is least. The simulator of
 * cache_sim.h replays recorded routes through the same code. Not thread safe. */
#ifndef NS_EXPERT_HEAT_H
#define NS_EXPERT_HEAT_H

#include "src/mem.h"

#include <stdint.h>

struct expert_heat {
    struct mem *mem;
    float *uses; /* [keys]: one for each sweep that used the expert, halved with each sweep since */
    uint32_t keys;
};

enum status expert_heat_init(struct expert_heat *h, struct mem *mem, uint32_t keys, struct err *e);
void expert_heat_free(struct expert_heat *h);

void expert_heat_use(struct expert_heat *h, uint32_t key);
/* A sweep begins: what was used before counts less. */
void expert_heat_tick(struct expert_heat *h);
/* What keeping the expert is worth; the least goes first. In 0..1e9. */
double expert_heat_worth(const struct expert_heat *h, uint32_t key);

#endif
