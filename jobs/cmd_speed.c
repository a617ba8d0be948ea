/* A machine is told by its host name, processor, threads, kernels and way of reading. */
#include "jobs/cmd_speed.h"

#include "jobs/speeds.h"
#include "src/bench_speed.h"
#include "src/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_BYTES    384
#define MOST_BYTES   ((uint64_t)512 << 20) /* of memory to measure with */
#define LEAST_READ_S 1                     /* of reading, before it is taken for the disk */
#define LEAST_SWEEPS 8                     /* before a run is believed */
#define MOST_CHANGE  4.0                   /* of a speed by one run */

static void key_of(const struct cmd_model *m, const struct cmd_options *o, char key[KEY_BYTES])
{
    char machine[192];
    os_machine_name(machine, sizeof machine);
    snprintf(key, KEY_BYTES, "%s, %u threads, %s, %s I/O, model %.16s", machine, m->threads,
             m->kern->name, o->no_direct_io ? "buffered" : "direct", m->sha256);
}

static enum status measure(struct cmd_model *m, const struct cmd_options *o, struct err *e)
{
    uint64_t ram = cmd_ram(o);
    struct mem mem;
    struct bench_speed_opts b = {.model_dir = m->dir,
                                 .mem = &mem,
                                 .most_bytes = ram / 2 < MOST_BYTES ? ram / 2 : MOST_BYTES,
                                 .direct_io = !o->no_direct_io};
    b.compute = (struct compute){.kern = m->kern, .bf16 = o->activations == ACTIVATIONS_BF16};
    enum status rc = pool_open(&b.compute.pool, m->threads, e);
    if (rc) return rc;
    mem_init(&mem, 0);
    rc = bench_speed(&m->speed, &b, e);
    mem_close(&mem);
    pool_close(b.compute.pool);
    return rc;
}

static enum status keep(const struct cmd_model *m, struct db *db, const char *key, struct err *e)
{
    struct buf text = {0};
    enum status rc = plan_speed_to_text(&m->speed, &text, e);
    if (!rc) rc = speeds_put(db, key, text.data, e);
    buf_free(&text);
    return rc;
}

enum status cmd_speed_take(struct cmd_model *m, const struct cmd_options *o, struct db *db,
                           struct err *e)
{
    char key[KEY_BYTES], *text = NULL;
    key_of(m, o, key);
    enum status rc = db ? speeds_get(db, key, &text, e) : OK;
    bool kept = !rc && text && plan_speed_from_text(&m->speed, text);
    free(text);
    if (rc || kept) return rc;
    rc = measure(m, o, e);
    return rc || !db ? rc : keep(m, db, key, e);
}

/* What the run had been expected to do, had the disk been known. */
static void look_back(struct cmd_model *m, const struct engine_stats *g)
{
    struct plan_speed s = m->speed;
    struct forecast f;
    if (g->read_s < LEAST_READ_S || !(s.read_bytes_s > 0)) return;
    m->planned_bytes_s = s.read_bytes_s;
    m->disk_bytes_s = s.read_bytes_s = (double)(g->expert_bytes + g->trunk_bytes) / g->read_s;
    forecast_init(&f, &m->sizes, &m->plan, &s);
    forecast_night(&f, &m->mix, &m->seen);
}

enum status cmd_speed_learn(struct cmd_model *m, const struct cmd_options *o, struct db *db,
                            const struct cmd_speed_run *run, struct err *e)
{
    const struct engine_stats *g = run->engine;
    double done = (double)run->done;
    char key[KEY_BYTES];
    look_back(m, g);
    if (g->sweeps < LEAST_SWEEPS || run->done == 0 || g->tokens == 0) return OK;
    struct forecast_run showed = {.uses = (double)g->expert_uses / (double)g->sweeps,
                                  .seconds = run->seconds};
    showed.mix = (struct plan_mix){.jobs = run->done,
                                   .prompt_rows = (double)g->prefill_rows / done,
                                   .output_tokens = (double)g->tokens / done,
                                   .image_rows = m->mix.image_rows};
    forecast_learn(&m->speed, &m->sizes, &m->plan, &showed);
    key_of(m, o, key);
    return keep(m, db, key, e);
}
