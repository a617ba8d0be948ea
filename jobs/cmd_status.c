/* `status`: where a queue stands, while it is worked or not. */
#include "jobs/cmd_queue.h"

#include "jobs/eta.h"
#include "jobs/export.h"
#include "jobs/progress.h"
#include "jobs/queue.h"
#include "src/os.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct status_of_queue {
    struct queue_counts counts;
    bool worked;         /* some process holds its lock */
    struct buf failures; /* "code n, code n" or JSON members */
    /* the last run */
    int64_t runs, run_done, run_failed, run_tokens, run_rows, run_bytes, run_started;
    double run_seconds;
    double eta_s; /* below 0: not known */
};

static enum status read_failures(struct db *db, bool json, struct buf *b, struct err *e)
{
    sqlite3_stmt *s;
    bool row = true;
    enum status rc = db_stmt(db, &s, "SELECT code, jobs FROM failure_counts ORDER BY jobs DESC", e);
    while (!rc) {
        rc = db_step(db, s, &row, e);
        if (rc || !row) break;
        rc = buf_addf(b, e, json ? "%s\"%s\":%lld" : "%s%s %lld", b->len ? json ? "," : ", " : "",
                      (const char *)sqlite3_column_text(s, 0),
                      (long long)sqlite3_column_int64(s, 1));
    }
    return rc;
}

static enum status read_run(struct db *db, struct status_of_queue *q, struct err *e)
{
    sqlite3_stmt *s;
    bool row = false;
    enum status rc = db_stmt(db, &s,
                             "SELECT id, done, failed, completion_tokens, prompt_rows, "
                             "bytes_read, started_at, seconds FROM runs ORDER BY id DESC LIMIT 1",
                             e);
    if (!rc) rc = db_step(db, s, &row, e);
    if (rc || !row) return rc;
    q->runs = sqlite3_column_int64(s, 0);
    q->run_done = sqlite3_column_int64(s, 1);
    q->run_failed = sqlite3_column_int64(s, 2);
    q->run_tokens = sqlite3_column_int64(s, 3);
    q->run_rows = q->run_tokens + sqlite3_column_int64(s, 4);
    q->run_bytes = sqlite3_column_int64(s, 5);
    q->run_started = sqlite3_column_int64(s, 6);
    q->run_seconds = sqlite3_column_double(s, 7);
    sqlite3_reset(s);
    return OK;
}

/* Rows left by what finished jobs needed, at the rate of the last run. */
static enum status estimate(struct db *db, struct status_of_queue *q, struct err *e)
{
    struct eta t = {.left = {.jobs = (double)queue_unfinished(&q->counts)}};
    sqlite3_stmt *s;
    struct queue_load load;
    bool row = false;
    q->eta_s = -1;
    enum status rc = queue_load(db, ETA_IMAGE_ROWS, &load, e);
    if (!rc)
        rc = db_stmt(db, &s,
                     "SELECT count(*), total(j.text_bytes), total(r.prompt_tokens), "
                     "total(r.completion_tokens), total((SELECT sum(m.tokens) FROM job_images m "
                     "WHERE m.job_id=j.id)) FROM jobs j JOIN results r ON r.job_id=j.id "
                     "WHERE r.code IS NULL",
                     e);
    if (!rc) rc = db_step(db, s, &row, e);
    if (rc || !row) return rc;
    t.left.text_bytes = (double)load.text_bytes;
    t.left.image_rows = (double)load.image_rows;
    t.answers = sqlite3_column_double(s, 0);
    t.answer_tokens = sqlite3_column_double(s, 3);
    t.image_tokens = t.prepared.image_rows = sqlite3_column_double(s, 4);
    t.prepared.text_bytes = sqlite3_column_double(s, 1);
    t.text_tokens = sqlite3_column_double(s, 2) - t.image_tokens;
    sqlite3_reset(s);
    if (q->run_rows > 0 && q->run_seconds > 0)
        q->eta_s = eta_rows(&t) / ((double)q->run_rows / q->run_seconds);
    return OK;
}

static enum status read_status(const struct cmd_options *o, struct status_of_queue *q,
                               struct err *e)
{
    struct cmd_queue file;
    *q = (struct status_of_queue){.eta_s = -1};
    enum status rc = cmd_queue_open(&file, o->db, true, LOCK_NONE, e);
    if (rc) return rc;
    int64_t leases = 0;
    rc = queue_counts(file.db, &q->counts, e);
    if (!rc)
        rc = db_int(file.db, &leases, 0, e,
                    "SELECT count(*) FROM jobs WHERE state='running' AND lease_until_ms>?1", "i",
                    os_unix_time() * 1000);
    q->worked = queue_is_locked(o->db) || leases > 0;
    if (!rc) rc = read_failures(file.db, o->json, &q->failures, e);
    if (!rc) rc = read_run(file.db, q, e);
    if (!rc) rc = estimate(file.db, q, e);
    cmd_queue_close(&file);
    return rc;
}

static double rate(const struct status_of_queue *q)
{
    return q->run_seconds > 0 ? (double)q->run_tokens / q->run_seconds : 0;
}

static void print_json(const struct cmd_options *o, const struct status_of_queue *q)
{
    const struct queue_counts *c = &q->counts;
    struct buf name = {0};
    export_quote(&name, o->db, strlen(o->db), NULL);
    printf("{\"db\":%s,\"total\":%lld,\"pending\":%lld,\"running\":%lld,\"retry_wait\":%lld,"
           "\"done\":%lld,\"failed\":%lld,\"cancelled\":%lld,\"failures\":{%s},\"worked\":%s,"
           "\"run\":{\"number\":%lld,\"started_at\":%lld,\"seconds\":%.3f,\"done\":%lld,"
           "\"failed\":%lld,\"tokens\":%lld,\"tokens_per_s\":%.3f,\"bytes_read\":%lld},\"eta_s\":",
           name.data ? name.data : "null", (long long)queue_total(c), (long long)c->pending,
           (long long)c->running, (long long)c->retry_wait, (long long)c->done,
           (long long)c->failed, (long long)c->cancelled, q->failures.len ? q->failures.data : "",
           q->worked ? "true" : "false", (long long)q->runs, (long long)q->run_started,
           q->run_seconds, (long long)q->run_done, (long long)q->run_failed,
           (long long)q->run_tokens, rate(q), (long long)q->run_bytes);
    if (q->eta_s < 0)
        printf("null}\n");
    else
        printf("%.0f}\n", q->eta_s);
    buf_free(&name);
}

static void print_text(const struct cmd_options *o, const struct status_of_queue *q)
{
    const struct queue_counts *c = &q->counts;
    const struct {
        const char *name;
        int64_t n;
    } rows[] = {{"pending", c->pending}, {"running", c->running}, {"retry_wait", c->retry_wait},
                {"done", c->done},       {"failed", c->failed},   {"cancelled", c->cancelled}};
    printf("%s: %lld jobs, %s\n", o->db, (long long)queue_total(c),
           q->worked ? "being worked" : "nobody works on it");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        printf("  %-11s%9lld%s%s\n", rows[i].name, (long long)rows[i].n,
               i == 4 && q->failures.len ? "  " : "",
               i == 4 && q->failures.len ? q->failures.data : "");
    if (q->runs) {
        char time[32], read[24];
        progress_duration(time, sizeof time, q->run_seconds);
        progress_bytes(read, sizeof read, (double)q->run_bytes);
        printf("run %lld: %s, %lld done, %lld failed, %.1f tok/s, %s read\n", (long long)q->runs,
               time, (long long)q->run_done, (long long)q->run_failed, rate(q), read);
    }
    if (q->eta_s >= 0 && queue_unfinished(c)) {
        char left[32], when[32];
        progress_duration(left, sizeof left, q->eta_s);
        progress_time(when, sizeof when, os_unix_time() + (int64_t)q->eta_s);
        printf("about %s of work left%s%s\n", left,
               q->worked ? ", done by "
               : o->eta  ? "; begun now, done by "
                         : "",
               q->worked || o->eta ? when : "");
    }
}

int cmd_status(const struct cmd_options *o)
{
    struct err e;
    struct status_of_queue q;
    if (!o->db) return cmd_usage("status: needs --db FILE");
    cmd_catch_signals();
    for (;;) {
        enum status rc = read_status(o, &q, &e);
        if (rc) {
            buf_free(&q.failures);
            return cmd_fail(&e);
        }
        if (o->watch_s > 0 && !o->json && isatty(STDOUT_FILENO)) printf("\033[H\033[J");
        if (o->json)
            print_json(o, &q);
        else
            print_text(o, &q);
        buf_free(&q.failures);
        fflush(stdout);
        if (o->watch_s <= 0 || !queue_unfinished(&q.counts)) return EXIT_DONE;
        struct timespec wait = {(time_t)o->watch_s,
                                (long)((o->watch_s - (double)(time_t)o->watch_s) * 1e9)};
        /* A signal ends the wait. */
        if (nanosleep(&wait, NULL) != 0 || cmd_stop_wanted()) return cmd_stop_exit();
    }
}
