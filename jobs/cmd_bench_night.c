/* A queue of captions from picture files to answers in a database, as `run` does it: one job at a
 * time, and as planned. Pictures are made up, all different; the question is 32 tokens of the
 * model's own vocabulary; answers are drawn at temperature 1, so that they run to their end. */
#include "jobs/cmd_bench.h"

#include "jobs/cmd_queue.h"
#include "src/os.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define JOBS     64
#define FIRST    3 /* jobs one at a time; the others would take as long each */
#define SIDE     448
#define WORDS    32
#define TOKENS   64
#define MARKUP   24 /* prompt rows beside the question and the picture, about */
#define TARGET   12
#define MOST_DIR 1024

struct captions {
    struct cmd_bench *b;
    char dir[MOST_DIR];
    struct buf question;
    uint64_t pictures; /* written so far */
};

/* What became of a queue. */
struct caption_run {
    struct plan plan;
    struct forecast_night night, seen;
    double planned_bytes_s, disk_bytes_s;
    double done, rows, tokens, sweeps, bytes, seconds;
};

static const char *in_dir(const struct captions *c, const char *name, char path[MOST_DIR + 64])
{
    snprintf(path, MOST_DIR + 64, "%s/%s", c->dir, name);
    return path;
}

static void put32(uint8_t *at, uint32_t v)
{
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(v >> 8 * i);
}

static enum status write_picture(const struct captions *c, uint64_t n, struct err *e)
{
    static const size_t head = 54;
    size_t bytes = head + (size_t)SIDE * SIDE * 3;
    char name[32], path[MOST_DIR + 64];
    uint8_t *p = calloc(1, bytes);
    if (!p) return err_set(e, E_NOMEM, "captions: no memory");
    p[0] = 'B';
    p[1] = 'M';
    put32(p + 2, (uint32_t)bytes);
    put32(p + 10, (uint32_t)head);
    put32(p + 14, 40);
    put32(p + 18, SIDE);
    put32(p + 22, SIDE);
    p[26] = 1;
    p[28] = 24;
    for (size_t i = head; i < bytes; i++) p[i] = (uint8_t)((i * (n + 3) + (i >> 9)) >> 3);
    snprintf(name, sizeof name, "%llu.bmp", (unsigned long long)n);
    struct os_publish out;
    enum status rc = os_publish_begin(&out, in_dir(c, name, path), e);
    if (!rc) {
        os_publish_write(&out, p, bytes);
        rc = os_publish_commit(&out, e);
    }
    free(p);
    return rc;
}

static bool is_plain(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)text[i]) && text[i] != ' ') return false;
    return n > 1;
}

/* Words of the vocabulary that stay one token each beside one another. */
static enum status make_question(struct captions *c, struct err *e)
{
    const struct tok *t = c->b->m.tok;
    enum status rc = OK;
    size_t words = 0;
    for (int32_t id = 0; (uint32_t)id < tok_vocab(t) && words < WORDS && !rc; id++) {
        size_t len, before = c->question.len;
        const char *text = tok_bytes(t, id, &len);
        struct ids ids = {0};
        if (tok_is_special(t, id) || !is_plain(text, len)) continue;
        rc = buf_add(&c->question, text, len, e);
        if (!rc) rc = tok_encode(t, c->question.data, c->question.len, false, &ids, e);
        if (!rc && ids.n != words + 1)
            c->question.data[c->question.len = before] = 0;
        else
            words++;
        ids_free(&ids);
    }
    if (!rc && words == 0) rc = buf_addf(&c->question, e, "?");
    return rc;
}

/* n jobs with pictures that no job had before. */
static enum status write_jobs(struct captions *c, const char *path, uint64_t n, struct err *e)
{
    struct os_publish out;
    enum status rc = os_publish_begin(&out, path, e);
    if (rc) return rc;
    for (uint64_t i = 0; i < n && !rc; i++) {
        struct buf line = {0};
        uint64_t id = c->pictures++;
        rc = write_picture(c, id, e);
        if (!rc)
            rc = buf_addf(&line, e,
                          "{\"id\":\"%llu\",\"image\":\"%llu.bmp\",\"prompt\":\"%s\","
                          "\"max_tokens\":%d,\"temperature\":1,\"seed\":%llu}\n",
                          (unsigned long long)id, (unsigned long long)id, c->question.data, TOKENS,
                          (unsigned long long)id);
        if (!rc) os_publish_write(&out, line.data, line.len);
        buf_free(&line);
    }
    if (!rc) return os_publish_commit(&out, e);
    os_publish_abort(&out);
    return rc;
}

static enum status read_run(struct db *db, struct caption_run *r, struct err *e)
{
    sqlite3_stmt *s;
    bool row = false;
    enum status rc = db_stmt(db, &s,
                             "SELECT done, prompt_rows, completion_tokens, sweeps, bytes_read, "
                             "seconds FROM runs ORDER BY id DESC LIMIT 1",
                             e);
    if (!rc) rc = db_step(db, s, &row, e);
    if (rc || !row) return rc;
    double *to[] = {&r->done, &r->rows, &r->tokens, &r->sweeps, &r->bytes, &r->seconds};
    for (int i = 0; i < 6; i++) *to[i] = sqlite3_column_double(s, i);
    sqlite3_reset(s);
    return OK;
}

static struct cmd_options run_options(const struct captions *c, uint64_t sequences)
{
    struct cmd_options o = *c->b->o;
    o.command = "run";
    o.operands = (struct cmd_list){0};
    o.quiet = true;
    o.json = false;
    o.max_jobs = 0;
    if (sequences) o.max_sequences = sequences;
    return o;
}

/* The jobs of a file, in a queue that keeps what it learned from the file before. */
static enum status run_queue(struct captions *c, const char *jobs, uint64_t sequences,
                             struct caption_run *r, struct err *e)
{
    struct cmd_options o = run_options(c, sequences);
    struct cmd_model m;
    struct cmd_queue q = {.lock = -1};
    struct import_counts counts = {0};
    char db[MOST_DIR + 64];
    int code = EXIT_DONE;
    o.operands = (struct cmd_list){&jobs, 1};
    enum status rc = cmd_model_begin(&m, &o, e);
    if (rc) return rc;
    rc = cmd_queue_open(&q, in_dir(c, "queue.db", db), false, LOCK_ALONE, e);
    if (!rc) {
        rc = cmd_import(q.db, &o, &m, &counts, e);
        if (!rc) rc = cmd_night(&q, &o, &m, &code, e);
        if (!rc) rc = read_run(q.db, r, e);
        r->plan = m.plan;
        r->night = m.night;
        r->seen = m.seen;
        r->planned_bytes_s = m.planned_bytes_s;
        r->disk_bytes_s = m.disk_bytes_s;
        cmd_queue_close(&q);
    }
    cmd_model_close(&m);
    if (!rc && !cmd_stop_wanted() && code != EXIT_DONE)
        rc = err_set(e, E_INTERNAL, "captions: the run ended with exit code %d", code);
    return rc;
}

/* As many of the jobs as may be done in the time, by the forecast. */
static enum status fit_jobs(const struct captions *c, uint64_t sequences, uint64_t *jobs,
                            struct err *e)
{
    struct cmd_options o = run_options(c, sequences);
    struct cmd_model m;
    enum status rc = cmd_model_begin(&m, &o, e);
    if (rc) return rc;
    m.speed = c->b->m.speed;
    double cells = SIDE / (double)(m.processor.patch * m.processor.merge);
    struct measure need = {.jobs = *jobs, .images = *jobs};
    need.picture_rows = (uint64_t)(cells * cells + 0.5);
    need.picture = (uint64_t)SIDE * SIDE * 8;
    need.mix = (struct plan_mix){.jobs = *jobs, .output_tokens = TOKENS};
    need.mix.image_rows = (double)need.picture_rows;
    need.mix.prompt_rows = need.mix.image_rows + WORDS + MARKUP;
    need.context = (uint64_t)need.mix.prompt_rows + 2 * TOKENS;
    need.mix.room_rows = (double)need.context;
    rc = cmd_model_plan(&m, &o, &need, e);
    double most = 2 * c->b->most_s, n = (double)*jobs;
    if (!rc && m.night.seconds > most) n *= most / m.night.seconds;
    if (!rc) *jobs = n < 2 ? 2 : (uint64_t)n;
    cmd_model_close(&m);
    return rc;
}

static void run_row(struct cmd_bench *b, const char *how, const struct caption_run *r)
{
    double hour = r->done / r->seconds * 3600;
    cmd_bench_row(
        b,
        (struct bench_value[]){{.name = "how", .text = how},
                               {.name = "jobs", r->done},
                               {.name = "sequences", (double)r->plan.sequences},
                               {.name = "prompt rows", (double)r->plan.prefill_rows},
                               {.name = "layers kept", (double)r->plan.pinned_layers},
                               {.name = "slots", (double)r->plan.expert_slots},
                               {.name = "rows/job", r->rows / r->done, 1},
                               {.name = "tokens/job", r->tokens / r->done, 1},
                               {.name = "sweeps", r->sweeps},
                               {.name = "MB/job", r->bytes / r->done * 1e-6, 1},
                               {.name = "s/job", r->seconds / r->done, 2},
                               {.name = "jobs/hour", hour, 1},
                               {.name = "forecast", r->night.jobs_per_hour, 1},
                               {.name = "forecast/real", r->night.jobs_per_hour / hour, 3},
                               {.name = "disk MB/s", r->planned_bytes_s * 1e-6},
                               {.name = "had MB/s", r->disk_bytes_s * 1e-6},
                               {.name = "with that", r->seen.jobs_per_hour / hour, 3}},
        17);
}

/* Seconds of a job's matrix products, each at `peak` and none waiting: no plan can take less. */
static double least_s(const struct cmd_bench *b, const struct caption_run *r, double peak)
{
    const struct config *c = &b->m.config;
    struct forecast f;
    forecast_init(&f, &b->m.sizes, &r->plan, &b->m.speed);
    double cells = SIDE / (double)(b->m.processor.patch * b->m.processor.merge);
    double routed = 3.0 * c->expert_width * (c->latent ? c->latent : c->hidden) * c->top_k;
    double weights = f.trunk_weights + routed * config_moe_layers(c);
    double rows = (r->rows + r->tokens) / r->done;
    return (2 * weights * rows + r->plan.vision_flop * cells * cells) / peak;
}

static enum status compare(struct cmd_bench *b, const struct caption_run r[2], struct err *e)
{
    double peak, one = r[0].seconds / r[0].done, planned = r[1].seconds / r[1].done;
    enum status rc = cmd_bench_peak(b, &peak, e);
    if (rc) return rc;
    double least = least_s(b, &r[1], peak);
    cmd_bench_row(b,
                  (struct bench_value[]){{.name = "planned / one at a time", one / planned, 2},
                                         {.name = "target", TARGET},
                                         {.name = "peak GFLOP/s", peak * 1e-9, 1},
                                         {.name = "s/job at peak", least, 2},
                                         {.name = "most possible", one / least, 2},
                                         {.name = "% of possible", 100 * least / planned, 1}},
                  6);
    return OK;
}

static enum status both_ways(struct captions *c, struct err *e)
{
    static const char *const how[] = {"one at a time", "as planned"};
    struct cmd_bench *b = c->b;
    struct caption_run r[2] = {0};
    uint64_t all = b->o->max_jobs ? b->o->max_jobs : JOBS;
    for (int i = 0; i < 2; i++) {
        char path[MOST_DIR + 64];
        uint64_t jobs = i || all < FIRST ? all : FIRST, wanted = jobs;
        enum status rc = fit_jobs(c, i ? 0 : 1, &jobs, e);
        if (!rc) rc = write_jobs(c, in_dir(c, i ? "b.jsonl" : "a.jsonl", path), jobs, e);
        if (!rc) rc = run_queue(c, path, i ? 0 : 1, &r[i], e);
        if (cmd_stop_wanted()) return OK;
        if (rc) return cmd_bench_left_out(b, how[i], &rc, e) ? OK : rc;
        run_row(b, how[i], &r[i]);
        if (jobs < wanted)
            cmd_bench_skip(b, "more jobs", "they would take too long; see --seconds");
    }
    return compare(b, r, e);
}

static void clean_up(const struct captions *c)
{
    static const char *const names[] = {"a.jsonl",         "b.jsonl",      "queue.db",
                                        "queue.db-wal",    "queue.db-shm", "queue.db.lock",
                                        "queue.db-journal"};
    char path[MOST_DIR + 64], name[32];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unlink(in_dir(c, names[i], path));
    for (uint64_t i = 0; i < c->pictures; i++) {
        snprintf(name, sizeof name, "%llu.bmp", (unsigned long long)i);
        unlink(in_dir(c, name, path));
    }
    rmdir(c->dir);
}

enum status cmd_bench_captions(struct cmd_bench *b, struct err *e)
{
    struct captions c = {.b = b};
    const char *tmp = getenv("TMPDIR");
    if (!b->m.has_vision) {
        cmd_bench_skip(b, "captions", "the model takes no pictures");
        return OK;
    }
    snprintf(c.dir, sizeof c.dir, "%s/nightshift-bench-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(c.dir)) return err_set(e, E_IO, "cannot make a folder %s", c.dir);
    enum status rc = make_question(&c, e);
    if (!rc) rc = both_ways(&c, e);
    clean_up(&c);
    buf_free(&c.question);
    return rc;
}
