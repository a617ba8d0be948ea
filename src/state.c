/* Allocation and addressing of a sequence's state. */
#include "src/state.h"

static uint64_t kda_floats(const struct config *c)
{
    return (uint64_t)c->kda_heads * c->kda_dim * c->kda_dim;
}

static uint64_t conv_floats(const struct config *c)
{
    return (uint64_t)(c->conv - 1) * 3 * c->kda_heads * c->kda_dim;
}

static uint64_t latent_width(const struct config *c)
{
    return c->kv_lora + c->rope_dim;
}

uint64_t state_bytes(const struct config *c, size_t capacity)
{
    /* three blocks, each with the allocator's header and alignment */
    return config_state_bytes(c) + capacity * config_position_bytes(c) + 3 * 128;
}

enum status state_init(struct state *s, struct mem *mem, const struct config *c, size_t capacity,
                       struct err *e)
{
    *s = (struct state){.capacity = capacity};
    uint64_t kda = config_layers_of(c, LAYER_KDA), mla = config_layers_of(c, LAYER_MLA);
    enum status rc =
        mem_array(mem, &s->kda, kda * kda_floats(c), sizeof(float), "sequence state", e);
    if (!rc)
        rc = mem_array(mem, &s->conv, kda * conv_floats(c), sizeof(float), "sequence state", e);
    if (!rc)
        rc = mem_array(mem, &s->latent, mla * capacity, latent_width(c) * sizeof(float),
                       "sequence state", e);
    if (rc) state_free(s, mem);
    return rc;
}

void state_free(struct state *s, struct mem *mem)
{
    mem_free(mem, s->kda);
    mem_free(mem, s->conv);
    mem_free(mem, s->latent);
    *s = (struct state){0};
}

float *state_kda(const struct state *s, const struct config *c, unsigned n)
{
    return s->kda + n * kda_floats(c);
}

float *state_conv(const struct state *s, const struct config *c, unsigned n)
{
    return s->conv + n * conv_floats(c);
}

float *state_latent(const struct state *s, const struct config *c, unsigned n)
{
    return s->latent + n * s->capacity * latent_width(c);
}

size_t draft_log_width(const struct config *c)
{
    return (size_t)6 * c->kda_heads * c->kda_dim + c->kda_heads;
}

float *draft_log_row(const struct draft_log *l, const struct config *c, unsigned layer, size_t row)
{
    return l->at + (layer * l->rows + row) * draft_log_width(c);
}
