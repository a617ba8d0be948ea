/* A deterministic engine for tests of what is around it. */
#include "tests/lib/fake_engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 64

struct engine {
    struct fake_engine_opts o;
    struct fake_sequence {
        uint64_t tag, hash;
        size_t n, max;
    } at[MOST];
    size_t n, peak;
    struct engine_stats stats;
};

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15ull;
    return h ^ (h >> 29);
}

static enum status add(struct engine *g, const struct engine_sequence *s, struct err *e)
{
    if (s->n_ids + s->max_tokens > g->o.context)
        return err_set(e, E_PROMPT_TOO_LONG, "%zu rows do not fit", s->n_ids + s->max_tokens);
    if (g->n == g->o.sequences) return err_set(e, E_BUDGET, "full");
    uint64_t h = mix(1, s->sample.seed);
    for (size_t i = 0; i < s->n_ids; i++) h = mix(h, (uint64_t)s->ids[i]);
    for (size_t i = 0; i < s->n_images; i++)
        for (size_t r = 0; r < s->images[i].n; r++) h = mix(h, (uint64_t)s->images[i].rows[r]);
    g->at[g->n++] = (struct fake_sequence){s->tag, h, s->n_done, s->max_tokens};
    g->stats.prefill_rows += s->n_ids + s->n_done;
    if (g->n > g->peak) g->peak = g->n;
    return OK;
}

static void remove_at(struct engine *g, size_t i)
{
    memmove(&g->at[i], &g->at[i + 1], (--g->n - i) * sizeof g->at[0]);
}

static void remove_tag(struct engine *g, uint64_t tag)
{
    for (size_t i = g->n; i-- > 0;)
        if (g->at[i].tag == tag) remove_at(g, i);
}

static enum status sweep(struct engine *g, engine_token_fn fn, void *user, struct err *e)
{
    if (g->o.on_sweep) g->o.on_sweep(g->o.user);
    g->stats.sweeps++;
    if (g->stats.sweeps == g->o.fail_sweep) return err_set(e, E_IO, "the disk went away");
    for (size_t i = 0; i < g->n;) {
        struct fake_sequence *s = &g->at[i];
        bool last = s->n >= s->hash % g->o.length;
        uint64_t h = mix(s->hash, s->n);
        int32_t id = last ? g->o.stop_id : g->o.first_id + (int32_t)(h % (uint64_t)g->o.ids);
        if (s->n == 2 && s->max == g->o.broken_max && g->o.broken) {
            g->o.broken--;
            id = SAMPLE_BROKEN;
        }
        g->stats.decode_rows++;
        g->stats.tokens++;
        bool more = fn(user, s->tag, id, NULL);
        if (!more || id == SAMPLE_BROKEN || ++s->n == s->max)
            remove_at(g, i);
        else
            i++;
    }
    return OK;
}

static void stats(const struct engine *g, struct engine_stats *out)
{
    *out = g->stats;
}

struct pipeline_engine fake_engine_open(const struct fake_engine_opts *o)
{
    struct engine *g = calloc(1, sizeof *g);
    if (!g) abort();
    g->o = *o;
    return (struct pipeline_engine){g, add, remove_tag, sweep, stats, NULL};
}

void fake_engine_close(struct pipeline_engine *e)
{
    free(e->g);
    e->g = NULL;
}

size_t fake_engine_peak(const struct pipeline_engine *e)
{
    return e->g->peak;
}

static struct mem *row_mem;
static size_t row_width;

void fake_vision(struct mem *mem, size_t hidden)
{
    row_mem = mem;
    row_width = hidden;
}

enum status fake_encode(struct vision *v, const void *bytes, size_t len, struct picture_info *info,
                        float **rows, struct err *e)
{
    if (v) ++*(unsigned *)(void *)v;
    if (len >= 3 && !memcmp(bytes, "bad", 3)) return err_set(e, E_IMAGE_UNREADABLE, "no picture");
    *info = (struct picture_info){.format = "png", .width = 3, .height = 2, .orientation = 1};
    info->frames = 1;
    info->rows = 2;
    snprintf(info->warnings[info->n_warnings++], sizeof info->warnings[0], "it is \"fake\"");
    enum status rc = mem_array(row_mem, rows, 2 * row_width, sizeof **rows, "picture", e);
    uint64_t h = 7;
    for (size_t i = 0; i < len; i++) h = mix(h, ((const unsigned char *)bytes)[i]);
    for (size_t i = 0; i < 2 * row_width && !rc; i++) (*rows)[i] = (float)((h >> (i % 32)) & 255);
    return rc;
}
