/* Opening and closing, sequences in and out. What happens in a sweep is in step.c. */
#include "src/engine.h"

#include "src/step.h"

#include <stdlib.h>
#include <string.h>

static enum status open_experts(struct engine *g, const struct engine_opts *o, struct err *e)
{
    if (!config_moe_layers(&g->config)) return OK;
    enum status rc = moe_experts_open(&g->io, g->mem, g->files, &g->config, e);
    if (rc) return rc;
    struct expert_cache_opts c = {.mem = g->mem, .slots = o->plan.expert_slots};
    c.slot_bytes = expert_slot_bytes(g->io);
    c.keys = g->config.layers * g->config.experts;
    c.readers = g->readers;
    c.fetch = expert_io_fetch;
    c.user = g->io;
    rc = expert_cache_open(&g->cache, &c, e);
    bool all = c.slots >= (size_t)config_moe_layers(&g->config) * g->config.experts;
    return rc || !c.readers || all ? rc : guess_open(&g->guess, g->mem, g->config.experts, e);
}

static enum status open_sweep(struct engine *g, const struct engine_opts *o, struct err *e)
{
    const struct plan *p = &o->plan;
    struct sweep_size size = {.context = p->context, .threads = pool_threads(o->compute.pool)};
    size.rows = p->sequences + p->draft_rows + p->prefill_rows;
    size.logits = p->sequences + p->draft_rows;
    g->sweep = (struct sweep){.c = o->compute, .k = &g->config, .weights = g->weights};
    g->sweep.moe = (struct moe){.c = &g->sweep.c, .k = &g->config, .cache = g->cache, .io = g->io};
    g->sweep.moe.group = p->expert_slots > 1 ? p->expert_slots - 1 : 1;
    g->sweep.moe.guess = g->guess;
    g->sweep.moe.on_route = o->route || o->affinity ? step_route : NULL;
    g->sweep.moe.user = g;
    g->on_route = o->route;
    g->user = o->trace_user;
    g->sweep.trace = o->trace;
    g->sweep.trace_user = o->trace_user;
    g->sweep.arena.cap = sweep_bytes(&g->config, &size);
    return mem_alloc_aligned(g->mem, &g->sweep.arena.base, g->sweep.arena.cap, 64,
                             "rows of a sweep", e);
}

static enum status open_drafts(struct engine *g, const struct engine_opts *o, struct err *e)
{
    if (!o->plan.draft_rows) return OK;
    struct spec_opts s = {.mem = g->mem,
                          .ring_tokens = o->plan.draft_tokens,
                          .fixed = o->draft_fixed,
                          .no_clock = o->no_read_ahead};
    enum status rc = spec_open(&g->spec, &s, e);
    size_t layers = config_layers_of(&g->config, LAYER_KDA), width = draft_log_width(&g->config);
    g->log.rows = o->plan.draft_rows;
    if (!rc)
        rc = mem_array(g->mem, &g->log.at, layers * g->log.rows * width, sizeof(float),
                       "drafted rows", e);
    return rc;
}

enum status engine_open(struct engine **out, const struct engine_opts *o, struct err *e)
{
    *out = NULL;
    struct engine *g = calloc(1, sizeof *g);
    if (!g) return err_set(e, E_NOMEM, "engine: no memory");
    g->mem = o->mem;
    g->plan = o->plan;
    enum status rc = config_load(&g->config, o->model_dir, e);
    if (!rc) rc = safetensors_open(&g->files, o->model_dir, o->direct_io, e);
    if (!rc && !o->no_read_ahead) rc = readers_open(&g->readers, READERS_THREADS, e);
    struct weights_source from = {g->mem, &g->config, g->files};
    if (!rc) rc = weights_open(&g->weights, &from, o->plan.pinned_layers, g->readers, e);
    if (!rc) rc = open_experts(g, o, e);
    if (!rc) rc = open_sweep(g, o, e);
    if (!rc) rc = open_drafts(g, o, e);
    if (!rc) rc = step_open(g, e);
    if (!rc && o->affinity && config_moe_layers(&g->config))
        rc = affinity_open(&g->affinity, g->mem, &g->config, &weights_global(g->weights)->embed, e);
    if (!rc && o->plan.prefix_bytes)
        rc = prefix_open(&g->prefix, g->mem, &g->config, o->plan.prefix_bytes, e);
    if (rc) {
        engine_close(g);
        return rc;
    }
    *out = g;
    return OK;
}

void engine_close(struct engine *g)
{
    if (!g) return;
    for (size_t i = 0; i < g->n_running; i++) sequence_close(g->running[i], g->mem);
    step_close(g);
    prefix_close(g->prefix);
    spec_close(g->spec);
    affinity_close(g->affinity);
    mem_free(g->mem, g->log.at);
    mem_free(g->mem, g->sweep.arena.base);
    expert_cache_close(g->cache);
    guess_close(g->guess);
    expert_io_close(g->io);
    weights_close(g->weights);
    readers_close(g->readers);
    safetensors_close(g->files);
    free(g);
}

const struct config *engine_config(const struct engine *g)
{
    return &g->config;
}

static enum status check_rows(const struct engine *g, const struct engine_sequence *s,
                              struct err *e)
{
    for (size_t i = 0; i < s->n_ids + s->n_done; i++) {
        int32_t id = i < s->n_ids ? s->ids[i] : s->done[i - s->n_ids];
        if (id < 0 || (uint32_t)id >= g->config.vocab)
            return err_set(e, E_INTERNAL, "token id %d at row %zu, the vocabulary has %u", id, i,
                           g->config.vocab);
    }
    for (size_t i = 0, end = 0; i < s->n_images; i++) {
        const struct engine_image *m = &s->images[i];
        if (m->first < end || m->first > s->n_ids || m->n > s->n_ids - m->first)
            return err_set(e, E_INTERNAL, "image %zu has rows outside the prompt", i);
        end = m->first + m->n;
    }
    if (s->n_cuts > SEQUENCE_CUTS)
        return err_set(e, E_INTERNAL, "%zu cuts, %d at most", s->n_cuts, SEQUENCE_CUTS);
    for (size_t i = 0; i < s->n_cuts; i++)
        if (s->cuts[i] <= (i ? s->cuts[i - 1] : 0) || s->cuts[i] >= s->n_ids)
            return err_set(e, E_INTERNAL, "cut %zu at row %zu of %zu", i, s->cuts[i], s->n_ids);
    return OK;
}

static enum status check_sequence(const struct engine *g, const struct engine_sequence *s,
                                  struct err *e)
{
    if (s->n_ids == 0 || s->max_tokens == 0 || s->n_done >= s->max_tokens)
        return err_set(e, E_INTERNAL, "a sequence of %zu prompt rows, %zu of %zu tokens", s->n_ids,
                       s->n_done, s->max_tokens);
    bool context = s->n_ids > g->config.context || s->max_tokens > g->config.context - s->n_ids;
    if (context || s->n_ids > g->plan.context || s->max_tokens > g->plan.context - s->n_ids)
        return err_set(e, E_PROMPT_TOO_LONG,
                       "the prompt has %zu rows and may give %zu tokens; %s %zu in all", s->n_ids,
                       s->max_tokens, context ? "the model's context has" : "this run has room for",
                       context ? g->config.context : g->plan.context);
    return check_rows(g, s, e);
}

enum status engine_add(struct engine *g, const struct engine_sequence *s, struct err *e)
{
    enum status rc = check_sequence(g, s, e);
    if (rc) return rc;
    if (g->n_running == g->plan.sequences)
        return err_set(e, E_BUDGET, "all %zu sequences are running", g->plan.sequences);
    struct engine_sequence t = *s;
    if (!g->prefix) {
        t.row_hash = NULL;
        t.n_cuts = 0;
    }
    struct sequence *q;
    do {
        rc = sequence_open(&q, &t, g->mem, &g->config, e);
    } while (rc == E_BUDGET && g->prefix && prefix_shrink(g->prefix));
    if (rc) return rc;
    g->running[g->n_running++] = q;
    return OK;
}

void engine_remove(struct engine *g, uint64_t tag)
{
    for (size_t i = 0; i < g->n_running; i++)
        if (g->running[i]->tag == tag) {
            step_remove(g, i);
            return;
        }
}

size_t engine_running(const struct engine *g)
{
    return g->n_running;
}

void engine_learn(struct engine *g, const int32_t *ids, size_t n, size_t n_prompt)
{
    if (g->spec) spec_learn(g->spec, ids, n, n_prompt);
}

struct affinity *engine_affinity(struct engine *g)
{
    return g->affinity;
}

void engine_stats(const struct engine *g, struct engine_stats *out)
{
    *out = g->stats;
    struct expert_cache_stats c = {0};
    if (g->cache) expert_cache_stats(g->cache, &c);
    out->expert_uses = g->sweep.moe.uses;
    out->expert_fetches = c.fetches;
    out->expert_bytes = g->io ? c.fetches * expert_bytes(g->io) : 0;
    weights_stats(g->weights, &out->trunk_bytes, &out->trunk_wait_s);
    out->expert_least = g->io ? g->stats.expert_least * expert_bytes(g->io) : 0;
    out->expert_gets = c.gets;
    out->expert_hits = c.hits;
    out->expert_wait_s = c.wait_s;
    out->read_s = readers_read_s(g->readers);
    if (g->spec) spec_stats(g->spec, &out->spec);
    if (g->prefix) prefix_stats(g->prefix, &out->prefix);
}
