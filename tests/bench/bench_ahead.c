/* What it is worth to prepare pictures beside the sweeps: the same queue of large photos worked
 * twice, once as a run does it and once with every picture prepared between sweeps:
 *
 *     bench_ahead [PHOTOS [QUESTIONS [MODEL]]]     6 photos of 12 megapixels, 48 questions on each
 *
 * Told are the seconds that pictures took, and how many of them the engine waited. The answers must
 * be the same to the byte; else it fails. */
#include "jobs/cmd_model.h"
#include "jobs/export.h"
#include "jobs/import.h"
#include "jobs/pipeline.h"
#include "jobs/runs.h"
#include "tests/lib/jobs.h"
#include "tests/lib/photo.h"
#include "tests/lib/test.h"

#include <unistd.h>

#define TOKENS    160
#define SEQUENCES 16

static void or_die(enum status rc, const struct err *e)
{
    if (!rc) return;
    fprintf(stderr, "%s\n", e->text);
    test_dir_remove();
    exit(1);
}

/* Photos that differ, and jobs in the order of the photos. */
static void write_queue(unsigned photos, unsigned questions)
{
    uint8_t *bytes;
    unsigned long len;
    photo_make(&(struct photo){.w = 4000, .h = 3000, .orientation = 1}, &bytes, &len);
    uint8_t *longer = realloc(bytes, len + 1);
    if (!longer) abort();
    bytes = longer;
    uint8_t *exif = memmem(bytes, len, "Exif", 4);
    size_t room = 200 * (size_t)photos * questions + 1, at = 0;
    char *text = malloc(room);
    if (!text || !exif) abort();
    for (unsigned i = 0; i < photos; i++) {
        char name[32];
        snprintf(name, sizeof name, "%u.jpg", i);
        exif[24] = (uint8_t)(1 + i % 8);
        bytes[len] = (uint8_t)i; /* behind its end */
        test_write(test_path(name), bytes, len + 1);
        for (unsigned k = 0; k < questions; k++)
            at += (size_t)snprintf(text + at, room - at,
                                   "{\"id\":\"%u-%u\",\"image\":\"%s\",\"prompt\":\"Describe it.\","
                                   "\"max_tokens\":%d,\"temperature\":1.5,\"seed\":%u}\n",
                                   i, k, name, TOKENS, k);
    }
    test_write(test_path("jobs.jsonl"), text, at);
    free(text);
    free(bytes);
}

/* id and answer of all jobs, one a line; malloc'ed. */
static char *answers(struct db *db)
{
    struct buf b = {0};
    struct err e;
    sqlite3_stmt *s;
    bool row = true;
    or_die(db_stmt(db, &s, "SELECT custom_id, content FROM answers ORDER BY custom_id", &e), &e);
    while (row) {
        or_die(db_step(db, s, &row, &e), &e);
        if (row)
            or_die(buf_addf(&b, &e, "%s: %s\n", (const char *)sqlite3_column_text(s, 0),
                            (const char *)sqlite3_column_text(s, 1)),
                   &e);
    }
    return b.data;
}

/* The queue of one way, worked from its beginning. Returns its answers. */
static char *work(struct cmd_model *m, bool ahead, struct pipeline_report *r)
{
    struct err e;
    const char *jobs = test_path("jobs.jsonl");
    struct import_counts counts;
    struct db *db = jobs_open(ahead ? "ahead.db" : "between.db", NULL);
    if (!db) exit(1);
    struct import_opts in = {.paths = &jobs,
                             .n_paths = 1,
                             .row = {.mem = &m->mem,
                                     .probe = vision_probe,
                                     .processor = &m->processor,
                                     .limits = &m->limits}};
    or_die(import_files(db, &in, &counts, &e), &e);
    struct pipeline_opts o = {
        .db = db,
        .worker = {.name = "bench", .lease_ms = 600000},
        .alone = true,
        .engine = {m->engine, engine_add, engine_remove, engine_sweep, engine_stats, NULL},
        .sequences = m->plan.sequences,
        .prefill_rows = m->plan.prefill_rows,
        .prepare = {.mem = &m->mem,
                    .config = &m->config,
                    .tok = m->tok,
                    .vocab = m->vocab,
                    .encode = vision_encode,
                    .times = vision_times,
                    .vision = m->vision,
                    .image_bytes = m->store_bytes,
                    .verify_stat = true,
                    .model_name = m->name},
        .checkpoint_s = 1000,
        .patient = !ahead,
    };
    struct run_info info = {"bench", m->name, m->sha256, "", ""};
    or_die(run_begin(db, &info, &o.run_id, &e), &e);
    or_die(pipeline_run(&o, r, &e), &e);
    char *text = answers(db);
    db_close(db);
    return text;
}

static char *way(const char *dir, bool ahead)
{
    struct err e;
    struct cmd_model m;
    struct pipeline_report r;
    struct cmd_options o = {.command = "run", .model = dir, .max_sequences = SEQUENCES};
    or_die(cmd_model_begin(&m, &o, &e), &e);
    or_die(cmd_model_plan(&m, &o, NULL, &e), &e);
    or_die(cmd_model_load(&m, &o, &e), &e);
    char *text = work(&m, ahead, &r);
    const struct ahead_waits *w = &r.waits;
    printf("%-16s %6llu %8.2f %8.2f %8.2f %8.2f %8.2f %8.2f %8.2f\n",
           ahead ? "beside sweeps" : "between sweeps", (unsigned long long)r.done, r.seconds,
           r.engine.sweep_s, w->all.decode_s, w->all.encode_s, w->seconds, w->waited.decode_s,
           w->waited.encode_s);
    fflush(stdout);
    cmd_model_close(&m);
    return text;
}

int main(int argc, char **argv)
{
    unsigned photos = argc > 1 ? (unsigned)atoi(argv[1]) : 6;
    unsigned questions = argc > 2 ? (unsigned)atoi(argv[2]) : 48;
    const char *dir = argc > 3 ? argv[3] : "examples/demo-model";
    if (photos < 1 || photos > 255 || questions < 1 || questions > 1000) return 2;
    write_queue(photos, questions);
    printf("%u photos of 4000 x 3000, %u questions on each; seconds\n"
           "%-16s %6s %8s %8s %8s %8s %8s %8s %8s\n",
           photos, questions, "prepared", "done", "all", "sweeps", "decode", "tower", "waited",
           "for dec.", "for tow.");
    char *between = way(dir, false), *beside = way(dir, true);
    bool same = between && beside && !strcmp(between, beside);
    printf("%s\n", same ? "the answers are the same" : "THE ANSWERS DIFFER");
    free(between);
    free(beside);
    test_dir_remove();
    return same ? 0 : 1;
}
