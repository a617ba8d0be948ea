/* Decayed use counts. Access is cyclic (all layers in order, again and again), which defeats
 * recency: what was used longest ago is what comes next. */
#include "src/expert_heat.h"

#define DECAY 0.9f

enum status expert_heat_init(struct expert_heat *h, struct mem *mem, uint32_t keys, struct err *e)
{
    *h = (struct expert_heat){.mem = mem, .keys = keys};
    return mem_array(mem, &h->uses, keys, sizeof *h->uses, "expert use counts", e);
}

void expert_heat_free(struct expert_heat *h)
{
    mem_free(h->mem, h->uses);
}

void expert_heat_use(struct expert_heat *h, uint32_t key)
{
    h->uses[key] += 1;
}

void expert_heat_tick(struct expert_heat *h)
{
    for (uint32_t i = 0; i < h->keys; i++) h->uses[i] *= DECAY;
}

double expert_heat_worth(const struct expert_heat *h, uint32_t key)
{
    return (double)h->uses[key];
}
