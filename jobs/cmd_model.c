/* Opening a model for a command. */
#include "jobs/cmd_model.h"

#include "jobs/constrain.h"
#include "jobs/model_id.h"
#include "jobs/progress.h"
#include "src/os.h"
#include "src/plan_text.h"
#include "vision/patch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB           ((uint64_t)1 << 20)
#define STACK_BYTES   MIB
#define LEAST_PICTURE (8 * MIB)
#define LEAST_CONTEXT 256

uint64_t cmd_ram(const struct cmd_options *o)
{
    uint64_t all = os_ram_bytes();
    return o->ram_bytes ? o->ram_bytes : all - all / 8;
}

static void take_name(struct cmd_model *m)
{
    char *real = realpath(m->dir, NULL);
    const char *path = real ? real : m->dir, *slash = strrchr(path, '/');
    snprintf(m->name, sizeof m->name, "%s", slash ? slash + 1 : path);
    free(real);
}

void cmd_limits(struct vision_limits *l, const struct cmd_options *o)
{
    vision_limits_default(l);
    if (o->max_pixels) l->max_pixels = o->max_pixels;
    if (o->images.max_bytes) l->max_bytes = o->images.max_bytes;
    if (o->image_timeout_s > 0) l->timeout_s = (uint32_t)ceil(fmin(o->image_timeout_s, 86400));
    l->max_patches = o->max_patches;
    l->lenient = o->lenient_images;
    l->exif = !o->no_exif;
}

enum status cmd_model_begin(struct cmd_model *m, const struct cmd_options *o, struct err *e)
{
    *m = (struct cmd_model){.dir = o->model};
    if (!o->model) return err_set(e, E_USAGE, "%s: needs --model DIR", o->command);
    take_name(m);
    m->threads = o->threads ? o->threads : os_cpus();
    cmd_limits(&m->limits, o);
    enum status rc = kern_select(&m->kern, o->isa, o->activations == ACTIVATIONS_BF16, e);
    if (!rc) rc = config_load(&m->config, m->dir, e);
    if (!rc) rc = model_id(m->dir, m->sha256, e);
    if (!rc) rc = tok_open(&m->tok, m->dir, m->config.vocab, e);
    m->has_vision = m->config.has_vision && vision_present(m->dir);
    if (!rc) rc = vision_processor_load(&m->processor, m->has_vision ? m->dir : NULL, e);
    if (rc) cmd_model_close(m);
    return rc;
}

static uint64_t patches(const struct cmd_model *m)
{
    return patch_most(&m->processor, m->limits.max_patches);
}

unsigned cmd_model_image_rows(const struct cmd_model *m)
{
    return (unsigned)(patches(m) / (m->processor.merge * m->processor.merge));
}

static uint64_t between(uint64_t least, uint64_t v, uint64_t most)
{
    return v < least ? least : v > most ? most : v;
}

/* Bytes to read and decode one picture: what the largest known one takes; of an unknown one, a
 * guess. */
static uint64_t picture_bytes(const struct cmd_model *m, const struct plan_request *r,
                              const struct measure *need)
{
    if (!m->has_vision || need->images == 0) return 0;
    uint64_t guess = between(LEAST_PICTURE, r->ram_bytes / 16, 256 * MIB);
    return need->unknown && guess > need->picture ? guess : need->picture;
}

/* What is held beside the engine: encoded pictures that wait, one being decoded, stacks. */
static enum status ask_for_pictures(struct cmd_model *m, struct plan_request *r,
                                    const struct measure *need, struct err *e)
{
    r->jobs_bytes = 4 * MIB + m->threads * STACK_BYTES / 2;
    r->jobs_bytes += affinity_bytes(&m->config);
    if (!m->has_vision || need->images == 0) return OK;
    uint64_t cell = m->processor.merge * m->processor.merge;
    uint64_t most = need->unknown ? cmd_model_image_rows(m) : need->picture_rows;
    uint64_t rows = most * m->config.hidden * sizeof(float);
    m->store_bytes = between(2 * rows, r->ram_bytes / 50, 64 * rows);
    /* One picture more than the store's limit is being encoded. */
    r->jobs_bytes += m->store_bytes + rows;
    /* As if a job had one picture; several are less to attend to. */
    double mean = need->mix.image_rows >= 1 ? need->mix.image_rows : (double)most;
    enum status rc = vision_flop(m->dir, mean * (double)cell, &r->vision_flop, e);
    r->vision_flop /= mean;
    return rc ? rc : vision_bytes(m->dir, most * cell, &r->vision_weights, &r->vision_scratch, e);
}

static size_t cache_slots(const struct cmd_model *m, const struct cmd_options *o)
{
    if (o->cache_experts_percent > 0) {
        double n = (double)m->sizes.expert_count * o->cache_experts_percent / 100;
        return n < 1 ? 1 : (size_t)n;
    }
    return (size_t)o->cache_experts;
}

/* Rather run without the largest pictures and the longest jobs than not at all: they fail alone. */
static enum status plan_within(struct cmd_model *m, struct plan_request *r, uint64_t picture,
                               struct err *e)
{
    const uint64_t jobs_bytes = r->jobs_bytes, whole_picture = picture, whole_context = r->context;
    for (;;) {
        r->jobs_bytes = jobs_bytes + picture;
        enum status rc = plan_make(&m->plan, &m->sizes, r, e);
        m->picture_bytes = picture;
        m->short_picture = picture < whole_picture ? picture : 0;
        m->short_of = r->context < whole_context ? whole_context : 0;
        if (rc != E_BUDGET) return rc;
        if (picture > LEAST_PICTURE)
            picture = between(LEAST_PICTURE, picture / 2, picture);
        else if (r->context > LEAST_CONTEXT)
            r->context -= r->context / 4;
        else
            return rc;
    }
}

static void expect(struct cmd_model *m)
{
    struct forecast f;
    forecast_init(&f, &m->sizes, &m->plan, &m->speed);
    forecast_night(&f, &m->mix, &m->night);
}

enum status cmd_model_plan(struct cmd_model *m, const struct cmd_options *o,
                           const struct measure *need, struct err *e)
{
    static const struct measure nothing_known = {.images = 1, .unknown = 1};
    if (!need) need = &nothing_known;
    struct plan_request r = {
        .ram_bytes = cmd_ram(o),
        .threads = m->threads,
        .max_sequences = (size_t)o->max_sequences,
        .prefill_rows = (size_t)o->prefill_rows,
        .context = (size_t)(o->context ? o->context : need->context),
        .no_drafts = o->no_drafts,
        .speed = &m->speed,
        .mix = need->mix,
        .no_sharing = o->order == ORDER_INPUT,
    };
    m->mix = need->mix;
    if (!(m->speed.read_bytes_s > 0)) plan_speed_guess(&m->speed, m->threads);
    enum status rc = plan_model_load(&m->sizes, &m->config, m->dir, e);
    if (!rc) rc = ask_for_pictures(m, &r, need, e);
    if (rc) return rc;
    r.expert_slots = cache_slots(m, o);
    rc = plan_within(m, &r, picture_bytes(m, &r, need), e);
    if (!rc) expect(m);
    return rc;
}

static enum status load_vision(struct cmd_model *m, const struct compute *c, struct err *e)
{
    struct vision_opts v = {
        .mem = &m->mem, .compute = *c, .limits = m->limits, .sandbox = m->sandbox};
    enum status rc = pool_open(&m->vision_pool, m->threads, e);
    v.compute.pool = m->vision_pool;
    return rc ? rc : vision_open(&m->vision, m->dir, &v, e);
}

enum status cmd_model_load(struct cmd_model *m, const struct cmd_options *o, struct err *e)
{
    mem_init(&m->mem, m->plan.ram_bytes - m->plan.reserve_bytes);
    m->mem_open = true;
    enum status rc = OK;
    /* before any thread: it forks */
    if (m->plan.vision_bytes) rc = vision_sandbox_open(&m->sandbox, e);
    if (!rc) rc = pool_open(&m->pool, m->threads, e);
    if (rc) return rc;
    struct compute c = {
        .kern = m->kern, .pool = m->pool, .bf16 = o->activations == ACTIVATIONS_BF16};
    struct engine_opts g = {.model_dir = m->dir,
                            .mem = &m->mem,
                            .compute = c,
                            .plan = m->plan,
                            .direct_io = !o->no_direct_io,
                            .draft_fixed = (size_t)o->draft_tokens,
                            .no_read_ahead = m->no_read_ahead,
                            .route = m->route,
                            .affinity = o->order != ORDER_INPUT};
    rc = engine_open(&m->engine, &g, e);
    if (!rc) rc = constrain_vocab_open(&m->vocab, m->tok, e);
    if (!rc && m->plan.vision_bytes) rc = load_vision(m, &c, e);
    return rc;
}

void cmd_model_close(struct cmd_model *m)
{
    vision_close(m->vision);
    engine_close(m->engine);
    if (m->vision_pool) pool_close(m->vision_pool);
    if (m->pool) pool_close(m->pool);
    vision_sandbox_close(m->sandbox);
    constrain_vocab_close(m->vocab);
    tok_close(m->tok);
    if (m->mem_open) mem_close(&m->mem);
    *m = (struct cmd_model){0};
}

enum status cmd_print_plan(const struct cmd_model *m, bool json, struct err *e)
{
    struct buf b = {0};
    enum status rc = json ? plan_text_json(&b, &m->plan, &m->sizes, &m->night, e)
                          : plan_text(&b, &m->plan, &m->sizes, &m->night, e);
    if (!rc) printf("%s%s", b.data, json ? "\n" : "");
    buf_free(&b);
    return rc;
}
