/* Whole runs of a queue that is thrown away. */
#include "jobs/cmd_bench_order.h"

#include "jobs/cmd_queue.h"
#include "jobs/queue.h"
#include "jobs/schema.h"

#include <stdlib.h>
#include <string.h>

/* Counts what goes through to the vision tower. */
struct counting {
    struct vision *vision;
    uint64_t images;
};

static enum status encode(struct vision *v, const void *bytes, size_t len,
                          struct picture_info *info, float **rows, struct err *e)
{
    struct counting *c = (struct counting *)(void *)v;
    c->images++;
    return vision_encode(c->vision, bytes, len, info, rows, e);
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Beginnings of prompts as they come by: names[n] of each of their lengths. */
struct beginnings {
    uint64_t *at;
    size_t n, cap;
    bool failed;
};

static void note_prompt(struct beginnings *b, const struct engine_sequence *s)
{
    struct prefix_key key = prefix_empty();
    for (size_t i = 0; i < s->n_ids && !b->failed; i++) {
        if (b->n == b->cap) {
            size_t cap = b->cap ? b->cap * 2 : 4096;
            uint64_t *p = realloc(b->at, cap * sizeof *p);
            b->failed = !p;
            if (!p) return;
            b->at = p;
            b->cap = cap;
        }
        key = prefix_step(key, s->row_hash[i]);
        b->at[b->n++] = key.a;
    }
}

static uint64_t distinct(struct beginnings *b)
{
    uint64_t n = 0;
    if (b->n) qsort(b->at, b->n, sizeof *b->at, by_value);
    for (size_t i = 0; i < b->n; i++) n += i == 0 || b->at[i] != b->at[i - 1];
    free(b->at);
    return b->failed ? 0 : n;
}

/* What the engine's face has no place for. */
static struct {
    struct beginnings *beginnings;
    const struct bench_order_watch *watch;
    uint64_t prompts;
} seen;

static enum status add(struct engine *g, const struct engine_sequence *s, struct err *e)
{
    bool watched = seen.watch && seen.watch->add;
    enum status rc = watched ? seen.watch->add(g, s, e) : engine_add(g, s, e);
    if (!rc) note_prompt(seen.beginnings, s);
    return rc;
}

static enum status sweep(struct engine *g, engine_token_fn fn, void *user, struct err *e)
{
    struct engine_stats before, after;
    engine_stats(g, &before);
    enum status rc = engine_sweep(g, fn, user, e);
    engine_stats(g, &after);
    seen.prompts += after.prefill_rows > before.prefill_rows;
    return rc;
}

static enum status work(struct bench_order *out, struct cmd_model *m, const struct cmd_options *o,
                        struct db *db, struct err *e)
{
    struct beginnings b = {0};
    struct counting vision = {.vision = m->vision};
    struct pipeline_opts p = {
        .db = db,
        .worker = {.name = "bench", .input_order = o->order == ORDER_INPUT},
        .alone = true,
        .engine = {m->engine, add, engine_remove, sweep, engine_stats, engine_affinity(m->engine)},
        .sequences = m->plan.sequences,
        .prefill_rows = m->plan.prefill_rows,
        .prepare = {.mem = &m->mem,
                    .config = &m->config,
                    .tok = m->tok,
                    .vocab = m->vocab,
                    .encode = m->vision ? encode : NULL,
                    .vision = (struct vision *)(void *)&vision,
                    .image_bytes = m->store_bytes,
                    .images = o->images,
                    .model_name = m->name},
        .checkpoint_s = 1e9,
        .patient = true,
    };
    seen.beginnings = &b;
    seen.prompts = 0;
    enum status rc = pipeline_run(&p, &out->report, e);
    out->images = vision.images;
    out->prefix_rows = distinct(&b);
    out->prompts = seen.prompts;
    return rc;
}

enum status cmd_bench_order(struct bench_order *out, const struct cmd_options *o,
                            const struct bench_order_watch *watch, struct err *e)
{
    struct cmd_model m = {0};
    struct db *db = NULL;
    struct import_counts c;
    struct measure need;
    *out = (struct bench_order){0};
    enum status rc = cmd_model_begin(&m, o, e);
    m.no_read_ahead = true;
    m.route = watch ? watch->route : NULL;
    seen.watch = watch;
    if (!rc) rc = db_open(&db, "", &(struct db_opts){.must_exist = false}, e);
    if (!rc) rc = schema_apply(db, e);
    if (!rc) rc = cmd_import(db, o, &m, &c, e);
    if (!rc) rc = measure_queue(db, &m.config, m.tok, cmd_model_image_rows(&m), &need, e);
    if (!rc) rc = cmd_model_plan(&m, o, &need, e);
    if (!rc) rc = cmd_model_load(&m, o, e);
    if (!rc) rc = work(out, &m, o, db, e);
    db_close(db);
    cmd_model_close(&m);
    return rc;
}
