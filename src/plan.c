/* Sharing out the budget: first what must be, then more sequences and rows, then pinned layers,
 * then cache. */
#include "src/plan.h"

#include "src/moe.h"
#include "src/state.h"
#include "src/sweep.h"

#define MIB                 ((uint64_t)1 << 20)
#define RESERVE_BYTES       (40 * MIB) /* code, libraries, database pages */
#define THREAD_BYTES        (2 * MIB)  /* stacks */
#define DEFAULT_CONTEXT     8192
#define DEFAULT_SEQUENCES   32
#define DEFAULT_PREFILL     512
#define LEAST_PREFILL       32
#define LEAST_SLOTS         4
#define DRAFTS_PER_SEQUENCE 3
#define MOST_DRAFTS         64
#define DRAFT_TOKENS        262144
#define SLOT_OVERHEAD       256 /* bookkeeping of one slot */

struct budget {
    const struct plan_model *m;
    const struct plan_request *r;
    struct plan *p;
};

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static uint64_t rows_bytes(const struct budget *b, size_t sequences, size_t prefill)
{
    struct sweep_size s = {
        .rows = sequences + prefill, .logits = sequences, .context = b->p->context};
    s.threads = b->r->threads;
    uint64_t sampling = (uint64_t)b->r->threads * b->m->config->vocab * 8;
    return sweep_bytes(b->m->config, &s) + sampling + MIB;
}

/* Drafted rows in flight: what is logged to replay them, and the ring of finished outputs. */
static uint64_t draft_bytes(const struct budget *b)
{
    const struct config *c = b->m->config;
    if (!b->p->draft_rows) return 0;
    uint64_t log = (uint64_t)config_layers_of(c, LAYER_KDA) * b->p->draft_rows *
                   draft_log_width(c) * sizeof(float);
    return log + b->p->draft_tokens * 16 + 1024;
}

static uint64_t slots_bytes(const struct budget *b, size_t slots)
{
    return b->m->expert_slot_bytes ? slots * (b->p->slot_bytes + SLOT_OVERHEAD) : 0;
}

static uint64_t layers_bytes(const struct budget *b, size_t from, size_t to, uint64_t *largest)
{
    uint64_t sum = 0;
    *largest = 0;
    for (size_t i = from; i < to; i++) {
        sum += b->m->layer_bytes[i];
        if (b->m->layer_bytes[i] > *largest) *largest = b->m->layer_bytes[i];
    }
    return sum;
}

static uint64_t total(const struct budget *b)
{
    const struct plan *p = b->p;
    return p->reserve_bytes + p->jobs_bytes + p->vision_bytes + p->global_bytes + p->pinned_bytes +
           p->stream_bytes + p->sequences * p->sequence_bytes + p->rows_bytes + p->draft_bytes +
           p->prefix_bytes + p->cache_bytes;
}

/* Recomputes every share from the counts. */
static uint64_t settle(struct budget *b)
{
    struct plan *p = b->p;
    uint64_t largest;
    p->pinned_bytes = layers_bytes(b, 0, p->pinned_layers, &largest);
    layers_bytes(b, p->pinned_layers, b->m->config->layers, &largest);
    /* one layer in use, the next one being read (src/weights.c) */
    p->stream_bytes = p->pinned_layers + 1 < b->m->config->layers ? 2 * largest : largest;
    p->draft_rows = b->r->no_drafts ? 0 : least(p->sequences * DRAFTS_PER_SEQUENCE, MOST_DRAFTS);
    p->draft_bytes = draft_bytes(b);
    p->rows_bytes = rows_bytes(b, p->sequences, p->prefill_rows);
    p->cache_bytes = slots_bytes(b, p->expert_slots);
    return p->total_bytes = total(b);
}

/* The largest count in [now, most] for which the plan fits below `limit`. */
static void grow(struct budget *b, size_t *count, size_t most, uint64_t limit)
{
    size_t lo = *count, hi = most > lo ? most : lo;
    while (lo < hi) {
        size_t mid = lo + (hi - lo + 1) / 2;
        *count = mid;
        if (settle(b) <= limit)
            lo = mid;
        else
            hi = mid - 1;
    }
    *count = lo;
    settle(b);
}

static void start_small(struct budget *b)
{
    struct plan *p = b->p;
    const struct plan_request *r = b->r;
    uint64_t slots = b->m->expert_count < LEAST_SLOTS ? b->m->expert_count : LEAST_SLOTS;
    if (slots == 1) slots = 2;
    p->sequences = 1;
    p->prefill_rows = r->prefill_rows ? r->prefill_rows : LEAST_PREFILL;
    p->expert_slots = r->expert_slots ? (r->expert_slots < 2 ? 2 : r->expert_slots) : slots;
    p->pinned_layers = 0;
}

enum status plan_make(struct plan *out, const struct plan_model *m, const struct plan_request *r,
                      struct err *e)
{
    const struct config *c = m->config;
    *out = (struct plan){.ram_bytes = r->ram_bytes, .jobs_bytes = r->jobs_bytes};
    out->reserve_bytes = RESERVE_BYTES + r->threads * THREAD_BYTES;
    out->vision_bytes = r->vision_weights + r->vision_scratch;
    out->global_bytes = m->global_bytes;
    out->slot_bytes = m->expert_slot_bytes;
    out->context = r->context ? r->context : least(c->context, DEFAULT_CONTEXT);
    out->sequence_bytes = state_bytes(c, out->context);

    out->draft_tokens = DRAFT_TOKENS;

    struct budget b = {m, r, out};
    start_small(&b);
    out->floor_bytes = settle(&b);
    if (out->floor_bytes > r->ram_bytes)
        return err_set(e, E_BUDGET,
                       "--ram %.1f MiB is too little: this model needs at least %.1f MiB here",
                       (double)r->ram_bytes / (double)MIB, (double)out->floor_bytes / (double)MIB);

    uint64_t spare = r->ram_bytes - out->floor_bytes;
    if (r->max_sequences)
        grow(&b, &out->sequences, r->max_sequences, r->ram_bytes);
    else
        grow(&b, &out->sequences, DEFAULT_SEQUENCES, out->floor_bytes + spare / 2);
    if (!r->prefill_rows)
        grow(&b, &out->prefill_rows, DEFAULT_PREFILL,
             out->total_bytes + (r->ram_bytes - out->total_bytes) / 4);
    if (!r->no_sharing) {
        out->prefix_bytes = (r->ram_bytes - out->total_bytes) / 8;
        settle(&b);
    }
    /* Pinning layer by layer may pass a hump: the last one pinned frees the stream buffer. */
    out->pinned_layers = c->layers;
    if (settle(&b) > r->ram_bytes) {
        out->pinned_layers = 0;
        grow(&b, &out->pinned_layers, c->layers - 1, r->ram_bytes);
    }
    if (!r->expert_slots) grow(&b, &out->expert_slots, (size_t)m->expert_count, r->ram_bytes);
    return OK;
}

enum status plan_model_load(struct plan_model *m, struct config *config, const char *dir,
                            struct err *e)
{
    *m = (struct plan_model){.config = config};
    enum status rc = config_load(config, dir, e);
    if (rc) return rc;
    struct safetensors *s;
    rc = safetensors_open(&s, dir, false, e);
    if (rc) return rc;
    for (unsigned i = 0; !rc && i <= config->layers; i++)
        rc = weights_bytes(config, s, i, i < config->layers ? &m->layer_bytes[i] : &m->global_bytes,
                           e);
    if (!rc && config->experts) {
        struct mem mem;
        struct expert_io *io;
        mem_init(&mem, 0);
        rc = moe_experts_open(&io, &mem, s, config, e);
        if (!rc) {
            m->expert_slot_bytes = expert_slot_bytes(io);
            m->expert_count = (uint64_t)config_moe_layers(config) * config->experts;
            expert_io_close(io);
        }
        mem_close(&mem);
    }
    safetensors_close(s);
    return rc;
}
