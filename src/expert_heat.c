/* Decayed use frequencies and the distance to an expert's next turn. Recency would be the worst
 * guide here: what was used longest ago is what comes next. */
#include "src/expert_heat.h"

/* Chosen on recorded routes of two models: one time scale alone reads more, and so do frequencies
 * without the distance. */
#define FAST 0.8f
#define SLOW 0.98f

enum status expert_heat_init(struct expert_heat *h, struct mem *mem, uint32_t keys, struct err *e)
{
    *h = (struct expert_heat){.mem = mem, .keys = keys};
    enum status rc = mem_array(mem, &h->fast, keys, sizeof *h->fast, "expert use counts", e);
    if (!rc) rc = mem_array(mem, &h->slow, keys, sizeof *h->slow, "expert use counts", e);
    return rc;
}

void expert_heat_free(struct expert_heat *h)
{
    mem_free(h->mem, h->fast);
    mem_free(h->mem, h->slow);
}

void expert_heat_use(struct expert_heat *h, uint32_t key)
{
    h->fast[key] += 1;
    h->slow[key] += 1;
    h->last = key;
}

void expert_heat_tick(struct expert_heat *h)
{
    h->fast_sweeps = h->fast_sweeps * FAST + 1;
    h->slow_sweeps = h->slow_sweeps * SLOW + 1;
    for (uint32_t i = 0; i < h->keys; i++) {
        h->fast[i] *= FAST;
        h->slow[i] *= SLOW;
    }
}

double expert_heat_worth(const struct expert_heat *h, uint32_t key)
{
    uint32_t ahead = key > h->last ? key - h->last : key + (h->keys - h->last);
    /* One sweep more than there were: little evidence is not certainty. */
    double p = 0.5 * ((double)h->fast[key] / ((double)h->fast_sweeps + 1) +
                      (double)h->slow[key] / ((double)h->slow_sweeps + 1));
    if (p <= 0) return 0;
    return 1 / ((p < 1 ? 1 / p - 1 : 0) + (double)ahead / h->keys);
}
