/* Opens an engine with a plan for the load, sweeps until the cache has what it is going to have,
 * and measures from there. The routes of all sweeps are kept as a trace, which cache_sim replays.
 */
#include "src/bench_run.h"

#include "src/bench_clock.h"
#include "src/cache_sim.h"
#include "src/os.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PROMPT       512 /* rows of a prompt in prefill */
#define SHORT_PROMPT 4   /* in decode */
#define WARM_SWEEPS  4   /* at least, before measuring */
#define MOST_SWEEPS  1000
#define LEAST_SWEEPS 3

struct run {
    const struct bench_run_opts *o;
    const struct bench_run_load *load;
    struct bench_run_result *out;
    struct config config;
    struct mem mem;
    struct engine *engine;
    uint8_t *needed; /* [experts] of the layer being told */
    struct buf trace;
    enum status trace_rc;
    uint64_t next_tag;
    size_t todo; /* prompt rows not yet computed */
    double took[MOST_SWEEPS];
    struct engine_stats before; /* the first measured sweep */
};

static void put(struct run *r, const char *text)
{
    if (!r->trace_rc) r->trace_rc = buf_addf(&r->trace, NULL, "%s", text);
}

/* One line of the trace is a sweep; a layer's list is every expert that a row chose. */
static void on_route(void *user, unsigned layer, const uint32_t *experts, const float *biased,
                     size_t rows)
{
    (void)biased;
    struct run *r = user;
    const struct config *c = &r->config;
    unsigned first = 0, last = 0;
    while (!c->is_moe[first]) first++;
    for (unsigned i = 0; i < c->layers; i++)
        if (c->is_moe[i]) last = i;
    memset(r->needed, 0, c->experts);
    for (size_t i = 0; i < rows * c->top_k; i++) r->needed[experts[i]] = 1;
    put(r, layer == first ? "{\"layers\":[[" : ",[");
    const char *comma = "";
    for (uint32_t i = 0; i < c->experts; i++) {
        if (!r->needed[i]) continue;
        if (!r->trace_rc) r->trace_rc = buf_addf(&r->trace, NULL, "%s%u", comma, i);
        comma = ",";
    }
    put(r, layer == last ? "]]}\n" : "]");
}

static bool on_token(void *user, uint64_t tag, int32_t id, const float *logits)
{
    (void)user;
    (void)tag;
    (void)id;
    (void)logits;
    return true;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static enum status add(struct run *r, size_t prompt, size_t tokens, struct err *e)
{
    int32_t ids[PROMPT];
    uint64_t tag = r->next_tag++;
    for (size_t i = 0; i < prompt; i++) {
        ids[i] = (int32_t)(mix(tag * PROMPT + i + 1) % r->config.vocab);
        if (ids[i] == r->config.media_pad) ids[i] = 0;
    }
    struct engine_sequence s = {.tag = tag, .ids = ids, .n_ids = prompt, .max_tokens = tokens};
    s.sample = (struct sample_params){.temperature = 1, .top_p = 1, .seed = tag};
    r->todo += prompt;
    return engine_add(r->engine, &s, e);
}

/* The next sweep has as many rows as the load says. */
static enum status fill(struct run *r, struct err *e)
{
    enum status rc = OK;
    if (r->load->sequences) {
        while (!rc && engine_running(r->engine) < r->load->sequences)
            rc = add(r, SHORT_PROMPT, MOST_SWEEPS, e);
        return rc;
    }
    while (!rc && r->todo < r->load->rows) rc = add(r, PROMPT, 1, e);
    return rc;
}

static enum status sweep(struct run *r, double *seconds, struct err *e)
{
    struct engine_stats a, b;
    enum status rc = fill(r, e);
    if (rc) return rc;
    engine_stats(r->engine, &a);
    double since = os_now();
    rc = engine_sweep(r->engine, on_token, r, e);
    *seconds = os_now() - since;
    engine_stats(r->engine, &b);
    r->todo -= (size_t)(b.prefill_rows - a.prefill_rows);
    return rc ? rc : r->trace_rc;
}

static bool warm(const struct run *r, size_t sweeps, double seconds)
{
    struct engine_stats s;
    engine_stats(r->engine, &s);
    bool full = s.expert_fetches >= r->out->plan.expert_slots || seconds > 2 * r->o->seconds;
    return sweeps >= WARM_SWEEPS && full && (!r->load->sequences || r->todo == 0);
}

static enum status warm_up(struct run *r, double most_s, struct err *e)
{
    double all = 0, s;
    for (size_t n = 0; !warm(r, n, all); n++) {
        enum status rc = sweep(r, &s, e);
        if (rc) return rc;
        all += s;
        /* the first one has the prompts */
        if (n == 1 && s * (WARM_SWEEPS + LEAST_SWEEPS) > most_s)
            return err_set(e, E_STOPPED, "a sweep takes %.2g s", s);
    }
    return OK;
}

static enum status measure(struct run *r, struct err *e)
{
    double all = 0;
    struct bench_run_result *out = r->out;
    engine_stats(r->engine, &r->before);
    while (out->sweeps < MOST_SWEEPS && (out->sweeps < LEAST_SWEEPS || all < r->o->seconds)) {
        /* Answers are as long as MOST_SWEEPS; warming up took some of it. */
        if (r->load->sequences && engine_running(r->engine) < r->load->sequences) break;
        enum status rc = sweep(r, &r->took[out->sweeps], e);
        if (!rc && r->o->between) rc = r->o->between(r->o->user, e);
        if (rc) return rc;
        all += r->took[out->sweeps++];
    }
    return OK;
}

/* Misses of a cache with as many slots, from the first sweep on. */
static enum status simulate(struct run *r, enum cache_policy policy, double *misses, struct err *e)
{
    struct mem mem;
    struct cache_sim *sim = NULL;
    struct cache_sim_facts facts;
    struct cache_sim_result res;
    if (!r->trace.len) return OK;
    mem_init(&mem, 0);
    enum status rc = cache_sim_parse(&sim, &mem, "routes", r->trace.data, r->trace.len, e);
    if (!rc) {
        cache_sim_facts(sim, &facts);
        double all = (double)facts.layers * facts.experts;
        struct cache_sim_opts o = {.policy = policy, .sequences = 1};
        o.share = ((double)r->out->plan.expert_slots + 0.5) / all;
        if (o.share > 1) o.share = 1;
        rc = cache_sim_run(sim, &o, &res, e);
        if (!rc) *misses = (double)res.misses;
    }
    cache_sim_close(sim);
    mem_close(&mem);
    return rc;
}

static enum status conclude(struct run *r, struct err *e)
{
    struct bench_run_result *out = r->out;
    struct engine_stats s;
    engine_stats(r->engine, &s);
    const struct engine_stats *b = &r->before;
    double n = (double)out->sweeps;
    double rows = (double)(s.prefill_rows - b->prefill_rows + s.decode_rows - b->decode_rows);
    out->rows = rows / n;
    out->sweep_s = bench_clock_median(r->took, out->sweeps);
    out->rows_s = out->rows / out->sweep_s;
    out->tokens_s = (double)(s.tokens - b->tokens) / n / out->sweep_s;
    out->uses = (double)(s.expert_uses - b->expert_uses) / n;
    out->fetches = (double)(s.expert_fetches - b->expert_fetches) / n;
    out->expert_bytes = (double)(s.expert_bytes - b->expert_bytes) / n;
    out->trunk_bytes = (double)(s.trunk_bytes - b->trunk_bytes) / n;
    out->expert_wait_s = (s.expert_wait_s - b->expert_wait_s) / n;
    out->trunk_wait_s = (s.trunk_wait_s - b->trunk_wait_s) / n;
    out->read_s = (s.read_s - b->read_s) / n;
    out->read = (double)s.expert_fetches;
    uint32_t layers = config_moe_layers(&r->config);
    out->skew = layers ? forecast_skew(&r->config, out->rows, out->uses / layers) : 0;
    enum status rc = simulate(r, CACHE_HEAT, &out->needed, e);
    return rc ? rc : simulate(r, CACHE_BELADY, &out->best, e);
}

static enum status open_engine(struct run *r, struct err *e)
{
    const struct bench_run_opts *o = r->o;
    const struct bench_run_load *l = r->load;
    struct plan_request q = {.ram_bytes = o->ram_bytes,
                             .threads = pool_threads(o->compute.pool),
                             .context = l->sequences ? MOST_SWEEPS + SHORT_PROMPT : PROMPT + 1,
                             .no_drafts = true,
                             .no_sharing = true,
                             .speed = o->speed};
    q.max_sequences = l->sequences ? l->sequences : l->rows / PROMPT + 2;
    q.prefill_rows = l->sequences ? l->sequences * SHORT_PROMPT : l->rows;
    if (l->cached >= 0) q.expert_slots = (size_t)(l->cached * (double)o->model->expert_count);
    enum status rc = plan_make(&r->out->plan, o->model, &q, e);
    if (!rc && r->out->plan.sequences < q.max_sequences)
        rc = err_set(e, E_BUDGET, "there is no room for %zu sequences", q.max_sequences);
    if (rc) return rc;
    mem_init(&r->mem, o->ram_bytes - r->out->plan.reserve_bytes);
    struct engine_opts g = {.model_dir = o->model_dir,
                            .mem = &r->mem,
                            .compute = o->compute,
                            .plan = r->out->plan,
                            .direct_io = o->direct_io,
                            .route = on_route,
                            .trace_user = r};
    rc = engine_open(&r->engine, &g, e);
    if (rc) mem_close(&r->mem);
    return rc;
}

static void expect(struct run *r)
{
    struct plan_speed s = *r->o->speed;
    struct forecast f;
    double prompt = r->load->sequences ? 0 : r->out->rows;
    s.skew = r->out->skew;
    double bytes = r->out->expert_bytes + r->out->trunk_bytes;
    if (bytes > 0 && r->out->read_s > 0) s.read_bytes_s = bytes / r->out->read_s;
    forecast_init(&f, r->o->model, &r->out->plan, &s);
    struct forecast_rows rows = {.prefill = prompt,
                                 .decode = r->out->rows - prompt,
                                 .outputs = prompt > 0 ? prompt / PROMPT : r->out->rows,
                                 .context = prompt > 0 ? PROMPT / 2.0 : (double)r->out->sweeps};
    forecast_sweep(&f, &rows, &r->out->expected);
}

enum status bench_run(struct bench_run_result *out, const struct bench_run_opts *o,
                      const struct bench_run_load *load, double most_s, struct err *e)
{
    *out = (struct bench_run_result){0};
    struct run *r = calloc(1, sizeof *r);
    if (!r) return err_set(e, E_NOMEM, "bench: no memory");
    r->o = o;
    r->load = load;
    r->out = out;
    r->config = *o->model->config;
    r->needed = malloc(r->config.experts + 1);
    enum status rc = r->needed ? open_engine(r, e) : err_set(e, E_NOMEM, "bench: no memory");
    if (!rc) {
        rc = warm_up(r, most_s, e);
        if (!rc) rc = measure(r, e);
        if (!rc) rc = conclude(r, e);
        if (!rc) expect(r);
        engine_close(r->engine);
        mem_close(&r->mem);
    }
    free(r->needed);
    buf_free(&r->trace);
    free(r);
    return rc;
}
