/* Whole runs of a queue that is thrown away. */
#include "jobs/cmd_bench_order.h"

#include "jobs/cmd_queue.h"
#include "jobs/queue.h"
#include "jobs/schema.h"

#include <stdio.h>
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

static struct beginnings *seen;

static enum status add(struct engine *g, const struct engine_sequence *s, struct err *e)
{
    enum status rc = engine_add(g, s, e);
    if (!rc) note_prompt(seen, s);
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
        .engine = {m->engine, add, engine_remove, engine_sweep, engine_stats,
                   engine_affinity(m->engine)},
        .sequences = m->plan.sequences,
        .prefill_rows = m->plan.prefill_rows,
        .prepare = {.mem = &m->mem,
                    .config = &m->config,
                    .tok = m->tok,
                    .encode = m->vision ? encode : NULL,
                    .vision = (struct vision *)(void *)&vision,
                    .image_bytes = m->store_bytes,
                    .images = o->images,
                    .model_name = m->name},
        .checkpoint_s = 1e9,
        .patient = true,
    };
    seen = &b;
    enum status rc = pipeline_run(&p, &out->report, e);
    out->images = vision.images;
    out->prefix_rows = distinct(&b);
    return rc;
}

enum status cmd_bench_order(struct bench_order *out, const struct cmd_options *o, struct err *e)
{
    struct cmd_model m = {0};
    struct db *db = NULL;
    struct import_counts c;
    struct measure need;
    *out = (struct bench_order){0};
    enum status rc = cmd_model_begin(&m, o, e);
    m.no_read_ahead = true;
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

static void print(const char *name, const struct bench_order *b)
{
    const struct engine_stats *g = &b->report.engine;
    double jobs = (double)(b->report.done + b->report.failed);
    if (jobs < 1) jobs = 1;
    printf("%-6s %5.0f jobs %6llu sweeps %9.1f kB %9.1f kB %8.1f rows %8.1f rows %6llu images "
           "%5.2f tokens\n",
           name, jobs, (unsigned long long)g->sweeps, (double)g->expert_bytes / jobs / 1e3,
           (double)g->expert_least / jobs / 1e3, (double)g->prefill_rows / jobs,
           (double)b->prefix_rows / jobs, (unsigned long long)b->images,
           (double)(g->decode_rows + g->spec.accepted) /
               (double)(g->decode_rows ? g->decode_rows : 1));
}

enum status cmd_bench_orders(const struct cmd_options *o, struct err *e)
{
    struct cmd_options each = *o;
    struct bench_order input, best;
    each.order = ORDER_INPUT;
    enum status rc = cmd_bench_order(&input, &each, e);
    each.order = ORDER_AUTO;
    if (!rc) rc = cmd_bench_order(&best, &each, e);
    if (rc) return rc;
    printf("order   (a job: experts read, the least for its sweeps; prompt rows computed, the "
           "least; tokens a sequence and sweep)\n");
    print("input", &input);
    print("auto", &best);
    printf(
        "auto reads %.1f %% fewer expert bytes a job, computes %.2f times fewer prompt rows\n",
        100 - 100 * (double)best.report.engine.expert_bytes /
                  (double)(input.report.engine.expert_bytes ? input.report.engine.expert_bytes : 1),
        (double)input.report.engine.prefill_rows /
            (double)(best.report.engine.prefill_rows ? best.report.engine.prefill_rows : 1));
    return OK;
}
