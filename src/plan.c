/* Sharing out the budget. A floor of everything first; then every sensible number of sequences and
 * of prompt rows per sweep is filled up with what helps most, in this order: a few slots, so that
 * reads have somewhere to go, layers, then experts. The forecast tells the best of them. */
#include "src/plan.h"

#include "src/forecast.h"
#include "src/moe.h"
#include "src/state.h"
#include "src/sweep.h"

#define MIB                 ((uint64_t)1 << 20)
#define RESERVE_BYTES       (40 * MIB) /* code, libraries, database pages */
#define THREAD_BYTES        (2 * MIB)  /* stacks */
#define DEFAULT_CONTEXT     8192
#define MOST_SEQUENCES      4096
#define LEAST_PREFILL       32
#define MOST_PREFILL        16384
#define LEAST_SLOTS         4
#define STREAM_SLOTS        16 /* enough to keep the readers busy */
#define DRAFTS_PER_SEQUENCE 3
#define MOST_DRAFTS         64
#define DRAFT_PART          32 /* drafts take at most this part of the budget */
#define DRAFT_TOKENS        262144
#define BEGINNINGS          12   /* shared ones worth keeping, where there is room */
#define SLOT_OVERHEAD       256  /* bookkeeping of one slot */
#define KEY_BYTES           128  /* of an expert: where its parts are, its slot, its uses */
#define BETTER              1.01 /* a plan that takes more must be so much faster */
#define AS_GOOD             0.95 /* of two chunks, the longer one needs to be no more than that */

struct budget {
    const struct plan_model *m;
    const struct plan_request *r;
    struct plan_speed speed;
    struct plan *p;
};

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t rows_bytes(const struct budget *b)
{
    const struct plan *p = b->p;
    struct sweep_size s = {.rows = p->sequences + p->draft_rows + p->prefill_rows,
                           .logits = p->sequences + p->draft_rows,
                           .context = p->context,
                           .threads = b->r->threads};
    uint64_t sampling = (uint64_t)b->r->threads * b->m->config->vocab * 8;
    return sweep_bytes(b->m->config, &s) + sampling + s.rows * 32 + s.logits * 128 + MIB;
}

/* Drafted rows in flight: what is logged to replay them, and the ring of finished outputs. */
static uint64_t draft_bytes(const struct budget *b, size_t rows)
{
    const struct config *c = b->m->config;
    if (!rows) return 0;
    uint64_t log = (uint64_t)config_layers_of(c, LAYER_KDA) * rows * draft_log_width(c) * 4;
    return log + b->p->draft_tokens * 16 + 1024;
}

static size_t draft_rows(const struct budget *b)
{
    size_t rows = (size_t)least(b->p->sequences * DRAFTS_PER_SEQUENCE, MOST_DRAFTS);
    if (b->r->no_drafts) return 0;
    while (rows && draft_bytes(b, rows) > b->r->ram_bytes / DRAFT_PART) rows /= 2;
    return rows;
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

static uint64_t total(const struct plan *p)
{
    return p->reserve_bytes + p->jobs_bytes + p->vision_bytes + p->table_bytes + p->global_bytes +
           p->pinned_bytes + p->stream_bytes + p->state_bytes + p->rows_bytes + p->draft_bytes +
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
    p->state_bytes = most(p->sequences * p->sequence_bytes, state_bytes(b->m->config, p->context));
    p->draft_rows = draft_rows(b);
    p->draft_bytes = draft_bytes(b, p->draft_rows);
    p->rows_bytes = rows_bytes(b);
    p->cache_bytes = slots_bytes(b, p->expert_slots);
    return p->total_bytes = total(p);
}

/* The largest count in [now, most] for which the plan fits. */
static void grow(struct budget *b, size_t *count, size_t top)
{
    size_t lo = *count, hi = top > lo ? top : lo;
    while (lo < hi) {
        size_t mid = lo + (hi - lo + 1) / 2;
        *count = mid;
        if (settle(b) <= b->r->ram_bytes)
            lo = mid;
        else
            hi = mid - 1;
    }
    *count = lo;
    settle(b);
}

static size_t least_slots(const struct budget *b)
{
    size_t n = (size_t)least(b->m->expert_count, LEAST_SLOTS);
    return n == 1 ? 2 : n;
}

static void start_small(struct budget *b)
{
    struct plan *p = b->p;
    const struct plan_request *r = b->r;
    p->sequences = 1;
    p->prefill_rows = r->prefill_rows ? r->prefill_rows : LEAST_PREFILL;
    p->expert_slots = r->expert_slots ? (size_t)most(r->expert_slots, 2) : least_slots(b);
    p->pinned_layers = 0;
    p->prefix_bytes = 0;
}

/* All that is left goes to what saves reads. */
static void fill(struct budget *b)
{
    struct plan *p = b->p;
    const struct plan_request *r = b->r;
    size_t layers = b->m->config->layers, experts = (size_t)b->m->expert_count;
    if (!r->no_sharing && r->mix.jobs != 1)
        p->prefix_bytes =
            least(BEGINNINGS * p->sequence_bytes, (r->ram_bytes - p->total_bytes) / 8);
    settle(b);
    if (!r->expert_slots) grow(b, &p->expert_slots, (size_t)least(experts, STREAM_SLOTS));
    /* Pinning layer by layer may pass a hump: the last one pinned frees the stream buffers. */
    p->pinned_layers = layers;
    if (settle(b) > r->ram_bytes) {
        p->pinned_layers = 0;
        grow(b, &p->pinned_layers, layers - 1);
    }
    if (!r->expert_slots) grow(b, &p->expert_slots, experts);
}

/* With so many sequences and rows: false when they do not fit. */
static bool fits(struct budget *b, size_t sequences, size_t rows)
{
    start_small(b);
    b->p->sequences = sequences;
    b->p->prefill_rows = rows;
    return settle(b) <= b->r->ram_bytes;
}

static double tokens_s(const struct budget *b)
{
    struct forecast f;
    struct forecast_night n;
    forecast_init(&f, b->m, b->p, &b->speed);
    forecast_night(&f, &b->r->mix, &n);
    return n.tokens_s;
}

/* Of 1, 2, 3, 4, 6, 8, 12, 16 ... last the one after n; beyond last when there is none. */
static size_t next_count(size_t n, size_t last)
{
    size_t next = 1;
    while (next <= n) next = next < 3 ? next + 1 : next % 3 ? next / 2 * 3 : next / 3 * 4;
    return n < last && next > last ? last : next;
}

static size_t most_sequences(struct budget *b)
{
    const struct plan_request *r = b->r;
    uint64_t top = r->max_sequences ? r->max_sequences : MOST_SEQUENCES;
    if (r->mix.jobs) top = least(top, r->mix.jobs);
    start_small(b);
    grow(b, &b->p->sequences, (size_t)top);
    return b->p->sequences;
}

/* Answers that end early make room for prompts sooner than forecast; a chunk that then takes them
 * in one sweep costs little, and one that does not costs sweeps. */
static bool takes_more_prompts(const struct budget *b, const struct plan *best)
{
    const struct plan *p = b->p;
    return p->sequences == best->sequences && p->expert_slots == best->expert_slots &&
           (double)best->prefill_rows < (double)p->sequences * b->r->mix.prompt_rows;
}

static void search(struct budget *b)
{
    const struct plan_request *r = b->r;
    size_t last = most_sequences(b), first = r->max_sequences ? last : 1;
    size_t low = r->prefill_rows ? r->prefill_rows : LEAST_PREFILL;
    size_t high = r->prefill_rows ? r->prefill_rows : MOST_PREFILL;
    struct plan best = *b->p;
    double best_s = 0;
    for (size_t n = first; n <= last; n = next_count(n, last)) {
        for (size_t rows = low; rows <= high && fits(b, n, rows); rows *= 2) {
            fill(b);
            double s = tokens_s(b);
            double needed = takes_more_prompts(b, &best) ? AS_GOOD : BETTER;
            if (best_s > 0 && s <= best_s * needed) continue;
            best = *b->p;
            if (s > best_s) best_s = s;
        }
    }
    *b->p = best;
}

enum status plan_make(struct plan *out, const struct plan_model *m, const struct plan_request *r,
                      struct err *e)
{
    const struct config *c = m->config;
    struct budget b = {.m = m, .r = r, .p = out};
    if (r->speed)
        b.speed = *r->speed;
    else
        plan_speed_guess(&b.speed, r->threads);
    *out = (struct plan){.ram_bytes = r->ram_bytes, .jobs_bytes = r->jobs_bytes};
    out->reserve_bytes = RESERVE_BYTES + r->threads * THREAD_BYTES + m->header_bytes;
    out->vision_flop = r->vision_flop;
    out->vision_bytes = r->vision_weights + r->vision_scratch;
    out->table_bytes = m->table_bytes;
    out->global_bytes = m->global_bytes;
    out->slot_bytes = m->expert_slot_bytes;
    out->context = r->context ? r->context : (size_t)least(c->context, DEFAULT_CONTEXT);
    size_t rows = r->mix.room_rows >= 1 ? (size_t)r->mix.room_rows : out->context;
    out->sequence_bytes = state_bytes(c, (size_t)least(rows, out->context));
    out->draft_tokens = DRAFT_TOKENS;

    start_small(&b);
    uint64_t floor = settle(&b);
    out->floor_bytes = floor;
    if (floor > r->ram_bytes)
        return err_set(e, E_BUDGET,
                       "--ram %.1f MiB is too little: this model needs at least %.1f MiB here",
                       (double)r->ram_bytes / (double)MIB, (double)floor / (double)MIB);
    search(&b);
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
            m->expert_bytes = expert_bytes(io);
            m->table_bytes = (uint64_t)config->layers * config->experts * KEY_BYTES +
                             guess_bytes(config->experts);
            m->expert_count = (uint64_t)config_moe_layers(config) * config->experts;
            expert_io_close(io);
        }
        mem_close(&mem);
    }
    m->header_bytes = safetensors_memory(s);
    safetensors_close(s);
    return rc;
}
