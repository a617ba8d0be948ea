/* One sweep of the engine: choose the rows, run them, draw tokens, accept drafts, keep shared
 * beginnings.
 *
 * Nothing here may change a result: which rows go together, where a prompt is cut and what is
 * drafted decide only how much work is done when. */
#include "src/step.h"

#include "src/attn_kda.h"
#include "src/os.h"

#include <assert.h>
#include <string.h>

enum status step_open(struct engine *g, struct err *e)
{
    const struct plan *p = &g->plan;
    size_t threads = pool_threads(g->sweep.c.pool), outs = p->sequences + p->draft_rows;
    const struct {
        void *at;
        size_t count, size;
    } blocks[] = {
        {&g->running, p->sequences, sizeof *g->running},
        {&g->spans, p->sequences * STEP_SPANS, sizeof *g->spans},
        {&g->live, p->sequences, sizeof *g->live},
        {&g->kept, p->sequences * SEQUENCE_CUTS, sizeof *g->kept},
        {&g->outputs, p->sequences, sizeof *g->outputs},
        {&g->rows, outs + p->prefill_rows, sizeof *g->rows},
        {&g->out_rows, outs, sizeof *g->out_rows},
        {&g->drawn, outs, sizeof *g->drawn},
        {&g->draw, threads * g->config.vocab, sizeof *g->draw},
        {&g->replay, threads * 3 * g->config.kda_dim, sizeof *g->replay},
    };
    enum status rc = OK;
    for (size_t i = 0; !rc && i < sizeof blocks / sizeof blocks[0]; i++)
        rc = mem_array(g->mem, blocks[i].at, blocks[i].count, blocks[i].size, "sequences", e);
    return rc;
}

void step_close(struct engine *g)
{
    void *blocks[] = {g->running, g->spans,    g->live,  g->kept, g->outputs,
                      g->rows,    g->out_rows, g->drawn, g->draw, g->replay};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) mem_free(g->mem, blocks[i]);
}

void step_remove(struct engine *g, size_t i)
{
    sequence_close(g->running[i], g->mem);
    memmove(&g->running[i], &g->running[i + 1], (--g->n_running - i) * sizeof g->running[0]);
}

/* A sequence that has computed nothing takes up a beginning: one that another sequence passes in
 * this sweep, or one that is kept. It waits while another one, admitted before it, is on its way to
 * a longer one that both share. */
static bool may_start(struct engine *g, size_t i)
{
    struct sequence *s = g->running[i];
    if (s->started || !g->prefix || !s->row_hash) return true;
    size_t kept = prefix_find(g->prefix, s->row_hash, s->n_prompt - 1);
    for (size_t j = 0; j < i; j++) sequence_branch(s, g->running[j], kept);
    size_t begun = s->from ? s->planned : kept;
    for (size_t j = 0; j < i; j++)
        if (sequence_waits_for(s, g->running[j], begun)) return false;
    s->started = true;
    if (s->from)
        prefix_branched(g->prefix, s->planned);
    else
        s->planned = prefix_restore(g->prefix, s->row_hash, s->n_prompt - 1, &s->state);
    while (s->next_cut < s->n_cuts && s->cuts[s->next_cut].at <= s->planned) s->next_cut++;
    s->first_cut = s->next_cut;
    return true;
}

struct gathering {
    struct engine *g;
    struct batch b;
    bool prompts;           /* there are rows of prompts */
    size_t prefill, drafts; /* rows left */
    size_t n_out_rows, n_kept;
};

/* The next n known rows of s, and its drafts. */
static void add_span(struct gathering *a, struct sequence *s, size_t n)
{
    struct engine *g = a->g;
    struct span *span = &g->spans[a->b.n_spans++];
    *span = (struct span){&s->state, s->from,        s->depth, s->planned,
                          a->b.rows, n + s->draft.n, n,        g->log.rows - a->drafts};
    a->drafts -= s->draft.n;
    for (size_t at = s->planned; at < s->planned + n; at++) {
        struct sweep_row row = {.id = s->ids[at]};
        if (at < s->n_prompt) row.image = sequence_image_row(s, at, g->config.hidden);
        g->rows[a->b.rows++] = row;
    }
    for (size_t r = 0; r < s->draft.n; r++)
        g->rows[a->b.rows++] = (struct sweep_row){.id = s->draft.ids[r]};
    s->planned += n;
    s->from = NULL;
    if (a->b.depths <= s->depth++) a->b.depths = s->depth;
    if (s->planned < s->n) return;
    g->outputs[g->n_outputs++] = (struct output){s, span, a->n_out_rows, s->draft.n + 1, 0};
    for (size_t r = 0; r <= s->draft.n; r++) g->out_rows[a->n_out_rows++] = span->first + n - 1 + r;
}

/* The state that s has after the rows added so far, for those that come later. */
static void add_kept(struct gathering *a, struct sequence *s, struct prefix_key key)
{
    struct engine *g = a->g;
    struct state *kept = &g->kept[a->n_kept];
    if (!g->prefix || !prefix_reserve(g->prefix, key, s->planned, kept)) return;
    a->n_kept++;
    g->spans[a->b.n_spans++] = (struct span){.state = kept,
                                             .from = &s->state,
                                             .depth = s->depth,
                                             .start = s->planned,
                                             .first = a->b.rows};
    if (a->b.depths <= s->depth) a->b.depths = s->depth + 1;
}

/* As many rows of a prompt as there is room for, in parts that end at its cuts. */
static void add_prompt(struct gathering *a, struct sequence *s)
{
    size_t end = s->planned + a->prefill;
    if (end > s->n) end = s->n;
    a->g->stats.prefill_rows += end - s->planned;
    a->prefill -= end - s->planned;
    while (s->planned < end) {
        bool whole = s->next_cut < s->n_cuts && s->cuts[s->next_cut].at <= end;
        add_span(a, s, (whole ? s->cuts[s->next_cut].at : end) - s->planned);
        if (whole) add_kept(a, s, s->cuts[s->next_cut++].key);
    }
}

/* Drafts for a sequence that has one row to go: never more than it may still give. */
static void draft(struct gathering *a, struct sequence *s)
{
    struct engine *g = a->g;
    size_t left =
        s->n_prompt + s->max_tokens - s->n - 1; /* after the token this sweep gives for sure */
    size_t most = left < a->drafts ? left : a->drafts;
    if (!g->spec || !most) return;
    size_t some = most < SPEC_MAX_DRAFT ? most : SPEC_MAX_DRAFT;
    const struct constraint *c = &s->constraint;
    size_t forced = c->forced ? c->forced(c->user, s->draft.ids, some) : 0;
    if (!spec_take(g->spec, forced, &s->draft)) spec_draft(g->spec, s->ids, s->n, most, &s->draft);
}

static bool has_prompts(const struct engine *g)
{
    for (size_t i = 0; i < g->n_running; i++) {
        const struct sequence *s = g->running[i];
        if (sequence_todo(s) > 1 || s->n == s->n_prompt) return true;
    }
    return false;
}

static void gather(struct gathering *a)
{
    struct engine *g = a->g;
    g->n_outputs = 0;
    for (size_t i = 0; i < g->n_running; i++) {
        struct sequence *s = g->running[i];
        g->live[i] = (struct spec_text){s->ids, s->n, s->n_prompt};
        sequence_begin(s);
    }
    if (g->spec) spec_begin(g->spec, a->prompts, g->live, g->n_running);
    for (size_t i = 0; i < g->n_running; i++) {
        struct sequence *s = g->running[i];
        if (sequence_todo(s) > 1 || s->n == s->n_prompt) {
            if (a->prefill && may_start(g, i)) add_prompt(a, s);
        } else {
            draft(a, s);
            g->stats.decode_rows++;
            g->stats.draft_rows += s->draft.n;
            add_span(a, s, 1);
        }
    }
}

void step_route(void *engine, unsigned layer, const uint32_t *experts, const float *biased,
                size_t rows)
{
    struct engine *g = engine;
    size_t top = g->config.top_k;
    for (size_t i = 0; g->affinity && i < g->n_outputs; i++) {
        const struct span *span = g->outputs[i].span;
        affinity_used(g->affinity, g->outputs[i].s->kind, layer,
                      experts + (span->first + span->sure - 1) * top, top);
    }
    if (g->on_route) g->on_route(g->user, layer, experts, biased, rows);
}

struct drawing {
    struct engine *g;
    float *logits;
};

/* Draws the tokens of one sequence: a draft stands when it is what the seed draws at its position;
 * the first token that differs stands as well, and everything after it is void. */
static void draw_task(void *ctx, size_t i, unsigned thread)
{
    const struct drawing *d = ctx;
    struct engine *g = d->g;
    struct output *o = &g->outputs[i];
    size_t vocab = g->config.vocab, position = o->s->n - o->s->n_prompt;
    for (o->given = 0; o->given < o->n; o->given++) {
        size_t at = o->first + o->given;
        const struct constraint *c = &o->s->constraint;
        if (c->mask) c->mask(c->user, d->logits + at * vocab, vocab);
        g->drawn[at] = sample_token(d->logits + at * vocab, vocab, &o->s->sample,
                                    position + o->given, g->draw + thread * vocab);
        if (c->mask && g->drawn[at] != SAMPLE_BROKEN) c->push(c->user, g->drawn[at]);
        if (o->given + 1 < o->n && g->drawn[at] != o->s->draft.ids[o->given]) {
            o->given++;
            break;
        }
    }
}

static size_t index_of(const struct engine *g, const struct sequence *s)
{
    size_t i = 0;
    while (g->running[i] != s) i++;
    return i;
}

/* Hands out one sequence's tokens; false when it has ended. */
static bool hand_out(struct engine *g, struct output *o, const float *logits, engine_token_fn fn,
                     void *user)
{
    struct sequence *s = o->s;
    for (size_t i = 0; i < o->given; i++) {
        size_t at = o->first + i;
        bool broken = g->drawn[at] == SAMPLE_BROKEN;
        if (!broken) s->ids[s->n++] = g->drawn[at];
        g->stats.tokens += !broken;
        bool more = fn(user, s->tag, g->drawn[at], logits + at * g->config.vocab);
        if (!more || broken || s->n == s->n_prompt + s->max_tokens) return false;
    }
    return true;
}

static void settle(struct engine *g, const float *logits, engine_token_fn fn, void *user)
{
    for (size_t i = 0; i < g->n_outputs; i++) {
        struct output *o = &g->outputs[i];
        size_t accepted = o->given - 1;
        if (g->spec && o->s->draft.n) spec_judge(g->spec, &o->s->draft, accepted);
        if (!hand_out(g, o, logits, fn, user)) {
            if (g->spec) spec_learn(g->spec, o->s->ids, o->s->n, o->s->n_prompt);
            step_remove(g, index_of(g, o->s));
        } else if (accepted) {
            attn_kda_accept(&g->sweep.c, &g->config, &g->log, o->span, accepted, g->replay);
        }
    }
}

/* Of experts and layers, so far. */
static uint64_t bytes_read(const struct engine *g)
{
    struct engine_stats s;
    engine_stats(g, &s);
    return s.expert_bytes + s.trunk_bytes;
}

enum status engine_sweep(struct engine *g, engine_token_fn fn, void *user, struct err *e)
{
    double start = os_now();
    uint64_t uses = g->sweep.moe.uses, read = bytes_read(g);
    struct gathering a = {.g = g, .b = {.spans = g->spans, .log = g->log}};
    a.prompts = has_prompts(g);
    a.prefill = g->plan.prefill_rows;
    a.drafts = g->log.rows;
    gather(&a);
    assert(a.b.rows || !g->n_running);
    if (a.b.rows == 0) return OK;
    float *logits;
    enum status rc = sweep_run(&g->sweep, &a.b, g->rows, g->out_rows, a.n_out_rows, &logits, e);
    if (rc) return rc;
    struct drawing d = {g, logits};
    pool_run(g->sweep.c.pool, g->n_outputs, draw_task, &d);
    if (g->prefix) prefix_settle(g->prefix);
    size_t before = g->stats.tokens;
    settle(g, logits, fn, user);
    double seconds = os_now() - start;
    g->stats.sweeps++;
    uses = g->sweep.moe.uses - uses;
    if (uses > g->plan.expert_slots) g->stats.expert_least += uses - g->plan.expert_slots;
    g->stats.sweep_s += seconds;
    struct spec_sweep w = {.prompts = a.prompts,
                           .rows = a.b.rows,
                           .drafts = g->log.rows - a.drafts,
                           .tokens = g->stats.tokens - before,
                           .seconds = seconds,
                           .bytes = (double)(bytes_read(g) - read)};
    if (g->spec) spec_cost(g->spec, &w);
    return OK;
}
