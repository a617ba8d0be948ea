/* Sequences in and out, and the rows of each sweep. */
#include "src/engine.h"

#include "src/os.h"
#include "src/sweep.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define READERS 4

struct sequence {
    uint64_t tag;
    int32_t *ids;       /* prompt, then outputs: room for n_prompt + max_tokens */
    size_t n_prompt, n; /* known ids */
    size_t max_tokens;
    struct engine_image *images;
    size_t n_images;
    struct sample_params sample;
    struct state state;
};

struct engine {
    struct mem *mem;
    struct config config;
    struct plan plan;
    struct safetensors *files;
    struct weights *weights;
    struct expert_io *io;
    struct expert_cache *cache;
    struct sweep sweep;
    struct sequence **running; /* [plan.sequences], in order of admission */
    size_t n_running;
    struct span *spans;
    struct sweep_row *rows;
    size_t *out_rows;
    struct sequence **out_seqs;
    int32_t *drawn;
    struct sample_entry *draw; /* [threads][vocab] */
    struct engine_stats stats;
};

static enum status open_experts(struct engine *g, const struct engine_opts *o, struct err *e)
{
    if (!config_moe_layers(&g->config)) return OK;
    enum status rc = moe_experts_open(&g->io, g->mem, g->files, &g->config, e);
    if (rc) return rc;
    struct expert_cache_opts c = {.mem = g->mem, .slots = o->plan.expert_slots};
    c.slot_bytes = expert_slot_bytes(g->io);
    c.keys = g->config.layers * g->config.experts;
    c.readers = READERS;
    c.fetch = expert_io_fetch;
    c.user = g->io;
    return expert_cache_open(&g->cache, &c, e);
}

static enum status open_sweep(struct engine *g, const struct engine_opts *o, struct err *e)
{
    const struct plan *p = &o->plan;
    size_t rows = p->sequences + p->prefill_rows, threads = pool_threads(o->compute.pool);
    struct sweep_size size = {rows, p->sequences, p->context, (unsigned)threads};
    g->sweep = (struct sweep){.c = o->compute, .k = &g->config, .weights = g->weights};
    g->sweep.moe = (struct moe){.c = &g->sweep.c, .k = &g->config, .cache = g->cache, .io = g->io};
    g->sweep.moe.group = p->expert_slots > 1 ? p->expert_slots - 1 : 1;
    g->sweep.trace = o->trace;
    g->sweep.trace_user = o->trace_user;
    g->sweep.arena.cap = sweep_bytes(&g->config, &size);
    enum status rc = mem_alloc_aligned(g->mem, &g->sweep.arena.base, g->sweep.arena.cap, 64,
                                       "rows of a sweep", e);
    if (!rc) rc = mem_array(g->mem, &g->rows, rows, sizeof *g->rows, "rows of a sweep", e);
    if (!rc) rc = mem_array(g->mem, &g->spans, p->sequences, sizeof *g->spans, "sequences", e);
    if (!rc)
        rc = mem_array(g->mem, &g->out_rows, p->sequences, sizeof *g->out_rows, "sequences", e);
    if (!rc)
        rc = mem_array(g->mem, &g->out_seqs, p->sequences, sizeof *g->out_seqs, "sequences", e);
    if (!rc) rc = mem_array(g->mem, &g->drawn, p->sequences, sizeof *g->drawn, "sequences", e);
    if (!rc) rc = mem_array(g->mem, &g->running, p->sequences, sizeof *g->running, "sequences", e);
    if (!rc)
        rc = mem_array(g->mem, &g->draw, threads * g->config.vocab, sizeof *g->draw, "sampling", e);
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
    if (!rc) rc = weights_open(&g->weights, g->mem, &g->config, g->files, o->plan.pinned_layers, e);
    if (!rc) rc = open_experts(g, o, e);
    if (!rc) rc = open_sweep(g, o, e);
    if (rc) {
        engine_close(g);
        return rc;
    }
    *out = g;
    return OK;
}

static void sequence_free(struct engine *g, struct sequence *s)
{
    if (!s) return;
    state_free(&s->state, g->mem);
    free(s->ids);
    free(s->images);
    free(s);
}

void engine_close(struct engine *g)
{
    if (!g) return;
    for (size_t i = 0; i < g->n_running; i++) sequence_free(g, g->running[i]);
    expert_cache_close(g->cache);
    expert_io_close(g->io);
    weights_close(g->weights);
    safetensors_close(g->files);
    void *blocks[] = {g->sweep.arena.base, g->rows,  g->spans,   g->out_rows,
                      g->out_seqs,         g->drawn, g->running, g->draw};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) mem_free(g->mem, blocks[i]);
    free(g);
}

const struct config *engine_config(const struct engine *g)
{
    return &g->config;
}

static enum status check_sequence(const struct engine *g, const struct engine_sequence *s,
                                  struct err *e)
{
    if (s->n_ids == 0 || s->max_tokens == 0 || s->n_done >= s->max_tokens)
        return err_set(e, E_INTERNAL, "a sequence of %zu prompt rows, %zu of %zu tokens", s->n_ids,
                       s->n_done, s->max_tokens);
    if (s->n_ids > g->plan.context || s->max_tokens > g->plan.context - s->n_ids)
        return err_set(
            e, E_PROMPT_TOO_LONG,
            "the prompt has %zu rows and may give %zu tokens; this run has room for %zu in all",
            s->n_ids, s->max_tokens, g->plan.context);
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
    return OK;
}

static void *copy(const void *from, size_t bytes, size_t room)
{
    void *p = malloc(room ? room : 1);
    if (p && bytes) memcpy(p, from, bytes);
    return p;
}

enum status engine_add(struct engine *g, const struct engine_sequence *s, struct err *e)
{
    enum status rc = check_sequence(g, s, e);
    if (rc) return rc;
    if (g->n_running == g->plan.sequences)
        return err_set(e, E_BUDGET, "all %zu sequences are running", g->plan.sequences);
    struct sequence *q = calloc(1, sizeof *q);
    if (!q) return err_set(e, E_NOMEM, "sequence: no memory");
    q->tag = s->tag;
    q->n_prompt = s->n_ids;
    q->n = s->n_ids + s->n_done;
    q->max_tokens = s->max_tokens;
    q->sample = s->sample;
    q->n_images = s->n_images;
    size_t room = s->n_ids + s->max_tokens;
    q->ids = copy(s->ids, s->n_ids * sizeof *s->ids, room * sizeof *s->ids);
    q->images = copy(s->images, s->n_images * sizeof *s->images, s->n_images * sizeof *s->images);
    if (!q->ids || !q->images)
        rc = err_set(e, E_NOMEM, "sequence: no memory");
    else
        rc = state_init(&q->state, g->mem, &g->config, room, e);
    if (rc) {
        sequence_free(g, q);
        return rc;
    }
    if (s->n_done) memcpy(q->ids + s->n_ids, s->done, s->n_done * sizeof *s->done);
    g->running[g->n_running++] = q;
    return OK;
}

static void remove_at(struct engine *g, size_t i)
{
    sequence_free(g, g->running[i]);
    memmove(&g->running[i], &g->running[i + 1], (--g->n_running - i) * sizeof g->running[0]);
}

void engine_remove(struct engine *g, uint64_t tag)
{
    for (size_t i = 0; i < g->n_running; i++)
        if (g->running[i]->tag == tag) {
            remove_at(g, i);
            return;
        }
}

size_t engine_running(const struct engine *g)
{
    return g->n_running;
}

/* The embedding of a sequence's row: an image's, or the token's. */
static struct sweep_row row_at(const struct engine *g, const struct sequence *s, size_t at)
{
    for (size_t i = 0; i < s->n_images; i++) {
        const struct engine_image *m = &s->images[i];
        if (at >= m->first && at < m->first + m->n)
            return (struct sweep_row){.image = m->rows + (at - m->first) * g->config.hidden};
    }
    return (struct sweep_row){.id = s->ids[at]};
}

/* Fills the sweep: one row of every sequence that has just one to go, then chunks of the others,
 * first come first served. */
static size_t gather_rows(struct engine *g, struct batch *b)
{
    size_t prefill = g->plan.prefill_rows, outs = 0;
    *b = (struct batch){.spans = g->spans};
    for (size_t i = 0; i < g->n_running; i++) {
        struct sequence *s = g->running[i];
        size_t todo = s->n - s->state.length, n = todo;
        if (todo > 1) {
            n = todo < prefill ? todo : prefill;
            prefill -= n;
            g->stats.prefill_rows += n;
        } else {
            g->stats.decode_rows++;
        }
        if (n == 0) continue;
        g->spans[b->n_spans++] = (struct span){&s->state, b->rows, n};
        for (size_t r = 0; r < n; r++) g->rows[b->rows + r] = row_at(g, s, s->state.length + r);
        b->rows += n;
        if (n == todo) {
            g->out_rows[outs] = b->rows - 1;
            g->out_seqs[outs++] = s;
        }
    }
    return outs;
}

struct drawing {
    struct engine *g;
    const float *logits;
};

static void draw_task(void *ctx, size_t i, unsigned thread)
{
    struct drawing *d = ctx;
    struct engine *g = d->g;
    const struct sequence *s = g->out_seqs[i];
    size_t vocab = g->config.vocab;
    g->drawn[i] = sample_token(d->logits + i * vocab, vocab, &s->sample, s->n - s->n_prompt,
                               g->draw + thread * vocab);
}

static size_t index_of(const struct engine *g, const struct sequence *s)
{
    size_t i = 0;
    while (g->running[i] != s) i++;
    return i;
}

enum status engine_sweep(struct engine *g, engine_token_fn fn, void *user, struct err *e)
{
    struct batch b;
    double start = os_now();
    size_t outs = gather_rows(g, &b);
    if (b.rows == 0) return OK;
    const float *logits;
    enum status rc = sweep_run(&g->sweep, &b, g->rows, g->out_rows, outs, &logits, e);
    if (rc) return rc;
    struct drawing d = {g, logits};
    pool_run(g->sweep.c.pool, outs, draw_task, &d);
    g->stats.sweeps++;
    g->stats.tokens += outs;
    g->stats.sweep_s += os_now() - start;
    for (size_t i = 0; i < outs; i++) {
        struct sequence *s = g->out_seqs[i];
        s->ids[s->n++] = g->drawn[i];
        bool more = fn(user, s->tag, g->drawn[i], logits + i * g->config.vocab);
        if (!more || s->n == s->n_prompt + s->max_tokens) remove_at(g, index_of(g, s));
    }
    return OK;
}

void engine_stats(const struct engine *g, struct engine_stats *out)
{
    *out = g->stats;
    struct expert_cache_stats c = {0};
    if (g->cache) expert_cache_stats(g->cache, &c);
    out->expert_uses = g->sweep.moe.uses;
    out->expert_fetches = c.fetches;
    out->expert_bytes = g->io ? c.fetches * expert_bytes(g->io) : 0;
    out->trunk_bytes = weights_streamed(g->weights);
    out->wait_s = c.wait_s;
}
