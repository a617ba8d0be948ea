/* Job states in SQL. */
#include "jobs/queue.h"

#include "src/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOCK_TRIES   5
#define LOCK_WAIT_NS 40000000L

/* The lock lies beside the file itself: one queue under two names has one lock. */
static enum status lock_path(struct buf *path, const char *db_path, struct err *e)
{
    char *end = os_follow(db_path);
    if (!end) return err_set(e, E_IO, "%s: the link cannot be followed", db_path);
    enum status rc = buf_addf(path, e, "%s.lock", end);
    free(end);
    return rc;
}

enum status queue_lock(int *fd, const char *db_path, bool shared, struct err *e)
{
    struct buf path = {0};
    *fd = -1;
    enum status rc = lock_path(&path, db_path, e);
    /* `status` holds it for a moment to see whether somebody does. */
    for (int tries = 0; !rc && *fd < 0 && tries < LOCK_TRIES; tries++) {
        rc = os_lock(fd, path.data, shared, e);
        if (rc == E_LOCKED) err_set(e, rc, "%s is being worked by another process", db_path);
        if (rc != E_LOCKED || tries + 1 == LOCK_TRIES) break;
        nanosleep(&(struct timespec){.tv_nsec = LOCK_WAIT_NS}, NULL);
        rc = OK;
    }
    buf_free(&path);
    return rc;
}

bool queue_is_locked(const char *db_path)
{
    struct buf path = {0};
    int fd = -1;
    bool locked = false;
    if (!lock_path(&path, db_path, NULL) && os_exists(path.data))
        locked = os_lock(&fd, path.data, false, NULL) == E_LOCKED;
    os_unlock(&fd);
    buf_free(&path);
    return locked;
}

void queue_unlock(int *fd)
{
    os_unlock(fd);
}

void queue_job_free(struct queue_job *j)
{
    free(j->source);
    free(j->custom_id);
    free(j->spec);
    free(j->tokens);
    for (size_t i = 0; i < j->n_images; i++) free(j->images[i].path);
    free(j->images);
    *j = (struct queue_job){0};
}

/* Makes those claimable whose wait or lease is over. Looks before it writes: most of the time there
 * is nothing. The worker's own jobs run, whatever its clock says after a step or a sleep. */
static enum status wake(struct db *db, const char *worker, int64_t now, struct err *e)
{
    int64_t any = 0;
    enum status rc = db_int(db, &any, 0, e,
                            "SELECT EXISTS(SELECT 1 FROM jobs WHERE state='retry_wait' AND "
                            "due_ms<=?1) OR EXISTS(SELECT 1 FROM jobs WHERE state='running' AND "
                            "lease_until_ms<=?1 AND worker IS NOT ?2)",
                            "is", now, worker);
    if (rc || !any) return rc;
    return db_run(db, e,
                  "UPDATE jobs SET state='pending', worker=NULL, lease_until_ms=NULL, due_ms=NULL "
                  "WHERE (state='retry_wait' AND due_ms<=?1) OR (state='running' AND "
                  "lease_until_ms<=?1 AND worker IS NOT ?2)",
                  "is", now, worker);
}

static enum status read_claim(struct db *db, sqlite3_stmt *s, struct queue_job *j, struct err *e)
{
    j->id = sqlite3_column_int64(s, 0);
    j->fence = sqlite3_column_int64(s, 1);
    j->attempt = sqlite3_column_int64(s, 2) + 1;
    j->input_id = sqlite3_column_int64(s, 3);
    j->line = sqlite3_column_int64(s, 4);
    j->offset = sqlite3_column_int64(s, 5);
    enum status rc = db_text(db, s, 6, &j->custom_id, NULL, e);
    return rc ? rc : db_text(db, s, 7, &j->spec, &j->spec_len, e);
}

/* One transaction. turn: only what stands from w->place on. */
static enum status take(struct db *db, const struct queue_worker *w, bool turn, int64_t now,
                        struct queue_job *out, size_t max, size_t *n, struct err *e)
{
/* INDEXED BY: the planner would take all of a state's jobs and sort them. */
#define CLAIM(index, which, order)                                                                 \
    "UPDATE jobs SET state='running', fence=fence+1, worker=?1, lease_until_ms=?2 "                \
    "WHERE id IN (SELECT id FROM jobs INDEXED BY " index " WHERE state='pending'" which            \
    " ORDER BY " order " LIMIT ?3) "                                                               \
    "RETURNING id, fence, attempt, input_id, line, byte_offset, custom_id, spec, place, "          \
    "priority, text_bytes, tried"
    static const char by_place_sql[] = CLAIM("jobs_next", "", "priority DESC, place, id");
    static const char from_place_sql[] =
        CLAIM("jobs_next", " AND priority=?4 AND place>=?5", "place, id");
    static const char by_input_sql[] = CLAIM("jobs_next_input", "", "priority DESC, id");
    sqlite3_stmt *s;
    bool from = turn && w->place;
    enum status rc = db_stmt(db, &s,
                             w->input_order ? by_input_sql
                             : from         ? from_place_sql
                                            : by_place_sql,
                             e);
    if (!rc)
        rc = db_bind(db, s, e, from ? "siiii" : "sii", w->name, now + w->lease_ms,
                     (int64_t)(max - *n), w->priority, w->place);
    bool row = !rc;
    while (row) {
        enum status step = db_step(db, s, &row, e);
        if (step) return step;
        if (!row || rc || *n == max) continue;
        rc = read_claim(db, s, &out[*n], e);
        out[*n].place = sqlite3_column_int64(s, 8);
        out[*n].priority = sqlite3_column_int64(s, 9);
        out[*n].text_bytes = sqlite3_column_int64(s, 10);
        out[(*n)++].tried = sqlite3_column_int64(s, 11);
    }
    return rc;
}

static int by_place(const void *a, const void *b)
{
    const struct queue_job *x = a, *y = b;
    if (x->priority != y->priority) return x->priority < y->priority ? 1 : -1;
    if (x->place != y->place) return x->place < y->place ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static int by_input(const void *a, const void *b)
{
    const struct queue_job *x = a, *y = b;
    if (x->priority != y->priority) return x->priority < y->priority ? 1 : -1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static enum status read_source(struct db *db, struct queue_job *j, struct err *e)
{
    sqlite3_stmt *s;
    enum status rc = db_stmt(db, &s, "SELECT path FROM inputs WHERE id=?1 AND kind='lines'", e);
    if (!rc) rc = db_bind(db, s, e, "i", j->input_id);
    bool row = false;
    if (!rc) rc = db_step(db, s, &row, e);
    if (!rc && row) rc = db_text(db, s, 0, &j->source, NULL, e);
    if (row) sqlite3_reset(s);
    return rc;
}

static enum status read_partial(struct db *db, struct queue_job *j, struct err *e)
{
    sqlite3_stmt *s;
    enum status rc =
        db_stmt(db, &s, "SELECT tokens, prefill_s, decode_s FROM partial WHERE job_id=?1", e);
    if (!rc) rc = db_bind(db, s, e, "i", j->id);
    bool row = false;
    if (!rc) rc = db_step(db, s, &row, e);
    if (!rc && row) {
        const unsigned char *b = sqlite3_column_blob(s, 0);
        j->n_tokens = b ? (size_t)sqlite3_column_bytes(s, 0) / 4 : 0;
        j->prefill_s = sqlite3_column_double(s, 1);
        j->decode_s = sqlite3_column_double(s, 2);
        j->tokens = calloc(j->n_tokens + 1, sizeof *j->tokens);
        if (!j->tokens)
            rc = err_set(e, E_NOMEM, "job %lld: no memory for its tokens", (long long)j->id);
        for (size_t i = 0; !rc && i < j->n_tokens; i++, b += 4)
            j->tokens[i] = (int32_t)((uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 |
                                     (uint32_t)b[3] << 24);
    }
    if (row) sqlite3_reset(s);
    return rc;
}

static enum status read_images(struct db *db, struct queue_job *j, struct err *e)
{
    int64_t n = 0;
    enum status rc =
        db_int(db, &n, 0, e, "SELECT count(*) FROM job_images WHERE job_id=?1", "i", j->id);
    if (rc || n == 0) return rc;
    j->images = calloc((size_t)n, sizeof *j->images);
    if (!j->images) return err_set(e, E_NOMEM, "job %lld: no memory", (long long)j->id);
    sqlite3_stmt *s;
    rc = db_stmt(db, &s,
                 "SELECT path, sha256, tokens, EXISTS(SELECT 1 FROM job_images o WHERE "
                 "o.sha256=m.sha256 AND o.job_id<>?1), bytes, mtime_ns FROM job_images m WHERE "
                 "job_id=?1 ORDER BY n",
                 e);
    if (!rc) rc = db_bind(db, s, e, "i", j->id);
    bool row = !rc;
    while (row && !rc) {
        rc = db_step(db, s, &row, e);
        if (!row || rc || j->n_images == (size_t)n) continue;
        struct queue_image *m = &j->images[j->n_images++];
        const unsigned char *sha = sqlite3_column_text(s, 1);
        if (sha) snprintf(m->sha256, sizeof m->sha256, "%s", (const char *)sha);
        m->rows = sqlite3_column_int64(s, 2);
        m->shared = sqlite3_column_int(s, 3);
        m->bytes = sqlite3_column_int64(s, 4);
        m->mtime_ns = sqlite3_column_int64(s, 5);
        rc = db_text(db, s, 0, &m->path, NULL, e);
    }
    return rc;
}

static enum status read_rest(struct db *db, struct queue_job *j, struct err *e)
{
    enum status rc = read_source(db, j, e);
    if (!rc) rc = read_partial(db, j, e);
    if (!rc) rc = read_images(db, j, e);
    if (!rc)
        rc = db_int(db, &j->redraws, 0, e,
                    "SELECT count(*) FROM attempts WHERE job_id=?1 AND code='invalid_output_json'",
                    "i", j->id);
    return rc;
}

enum status queue_claim(struct db *db, const struct queue_worker *w, int64_t now,
                        struct queue_job *out, size_t max, size_t *n, struct err *e)
{
    *n = 0;
    memset(out, 0, max * sizeof *out);
    enum status rc = wake(db, w->name, now, e);
    if (rc) return rc;
    db_point(db, "claim:commit");
    if (!w->input_order && w->place) rc = take(db, w, true, now, out, max, n, e);
    size_t turned = *n;
    if (!rc && *n < max) rc = take(db, w, false, now, out, max, n, e);
    if (rc) goto out;
    db_point(db, "claim:done");
    /* RETURNING keeps no order. */
    qsort(out, turned, sizeof *out, by_place);
    qsort(out + turned, *n - turned, sizeof *out, w->input_order ? by_input : by_place);
    for (size_t i = 0; i < *n && !rc; i++) rc = read_rest(db, &out[i], e);
out:
    if (rc) {
        for (size_t i = 0; i < *n; i++) queue_job_free(&out[i]);
        *n = 0;
    }
    return rc;
}

static enum status lease_lost(struct db *db, int64_t id, struct err *e)
{
    if (db_changes(db)) return OK;
    return err_set(e, E_LEASE, "job %lld: its lease was lost", (long long)id);
}

enum status queue_finish(struct db *db, int64_t id, int64_t fence, const char *state, struct err *e)
{
    enum status rc = db_run(db, e,
                            "UPDATE jobs SET state=?3, attempt=attempt+1, worker=NULL, "
                            "lease_until_ms=NULL, due_ms=NULL "
                            "WHERE id=?1 AND fence=?2 AND state='running'",
                            "iis", id, fence, state);
    return rc ? rc : lease_lost(db, id, e);
}

enum status queue_renew(struct db *db, int64_t id, int64_t fence, int64_t until, struct err *e)
{
    enum status rc = db_run(
        db, e, "UPDATE jobs SET lease_until_ms=?3 WHERE id=?1 AND fence=?2 AND state='running'",
        "iii", id, fence, until);
    return rc ? rc : lease_lost(db, id, e);
}

enum status queue_postpone(struct db *db, int64_t id, int64_t fence, int64_t due, struct err *e)
{
    enum status rc = db_run(db, e,
                            "UPDATE jobs SET state='retry_wait', attempt=attempt+1, worker=NULL, "
                            "lease_until_ms=NULL, due_ms=?3 "
                            "WHERE id=?1 AND fence=?2 AND state='running'",
                            "iii", id, fence, due);
    return rc ? rc : lease_lost(db, id, e);
}

enum status queue_release(struct db *db, const char *worker, struct err *e)
{
    db_point(db, "release:commit");
    enum status rc = db_run(db, e,
                            "UPDATE jobs SET state='pending', worker=NULL, lease_until_ms=NULL "
                            "WHERE state='running' AND (?1 IS NULL OR worker=?1)",
                            "s", worker);
    db_point(db, "release:done");
    return rc;
}

enum status queue_release_gone(struct db *db, struct err *e)
{
    sqlite3_stmt *s;
    struct buf gone = {0};
    bool row = true;
    enum status rc = db_stmt(db, &s, "SELECT DISTINCT worker FROM jobs WHERE state='running'", e);
    while (!rc && row) {
        rc = db_step(db, s, &row, e);
        const char *name = rc || !row ? NULL : (const char *)sqlite3_column_text(s, 0);
        if (name && os_process_gone(name)) rc = buf_add(&gone, name, strlen(name) + 1, e);
    }
    for (size_t at = 0; at < gone.len && !rc; at += strlen(gone.data + at) + 1)
        rc = queue_release(db, gone.data + at, e);
    buf_free(&gone);
    return rc;
}

enum status queue_release_dead(struct db *db, bool alone, struct err *e)
{
    return alone ? queue_release(db, NULL, e) : queue_release_gone(db, e);
}

enum status queue_counts(struct db *db, struct queue_counts *out, struct err *e)
{
    *out = (struct queue_counts){0};
    const struct {
        const char *name;
        int64_t *n;
    } states[] = {
        {"pending", &out->pending}, {"running", &out->running}, {"retry_wait", &out->retry_wait},
        {"done", &out->done},       {"failed", &out->failed},   {"cancelled", &out->cancelled},
    };
    sqlite3_stmt *s;
    enum status rc =
        db_stmt(db, &s, "SELECT state, count(*) FROM jobs WHERE line>0 GROUP BY state", e);
    bool row = !rc;
    while (row) {
        rc = db_step(db, s, &row, e);
        for (size_t i = 0; row && i < sizeof states / sizeof *states; i++)
            if (!strcmp(states[i].name, (const char *)sqlite3_column_text(s, 0)))
                *states[i].n = sqlite3_column_int64(s, 1);
    }
    return rc;
}

int64_t queue_total(const struct queue_counts *c)
{
    return queue_unfinished(c) + c->done + c->failed + c->cancelled;
}

int64_t queue_unfinished(const struct queue_counts *c)
{
    return c->pending + c->running + c->retry_wait;
}

enum status queue_load(struct db *db, int64_t unknown, struct queue_load *out, struct err *e)
{
    sqlite3_stmt *s;
    bool row = false;
    *out = (struct queue_load){0};
    enum status rc = db_stmt(db, &s,
                             "SELECT sum(text_bytes), max(text_bytes) FROM jobs WHERE state IN "
                             "('pending','running','retry_wait')",
                             e);
    if (!rc) rc = db_step(db, s, &row, e);
    if (rc) return rc;
    out->text_bytes = sqlite3_column_int64(s, 0);
    out->longest = sqlite3_column_int64(s, 1);
    sqlite3_reset(s);
    return db_int(db, &out->image_rows, 0, e,
                  "SELECT sum(coalesce(m.tokens, ?1)) FROM jobs j JOIN job_images m ON "
                  "m.job_id=j.id WHERE j.state IN ('pending','running','retry_wait')",
                  "i", unknown);
}

enum status queue_next_due(struct db *db, int64_t *at, struct err *e)
{
    int64_t lease = INT64_MAX;
    enum status rc =
        db_int(db, at, INT64_MAX, e, "SELECT min(due_ms) FROM jobs WHERE state='retry_wait'", "");
    if (!rc)
        rc = db_int(db, &lease, INT64_MAX, e,
                    "SELECT min(lease_until_ms) FROM jobs WHERE state='running'", "");
    if (lease < *at) *at = lease;
    return rc;
}

/* The jobs a filter means, as a condition on jobs with ?1 id, ?2 state, ?3 code. */
#define FILTER                                                                                     \
    "(?1 IS NULL OR custom_id=?1) AND (?2 IS NULL OR state=?2) AND (?3 IS NULL OR "                \
    "(SELECT r.code FROM results r WHERE r.job_id=jobs.id)=?3)"

enum status queue_retry(struct db *db, const struct queue_filter *f, int64_t *n, struct err *e)
{
    *n = 0;
    enum status rc = db_begin(db, "retry", e);
    if (rc) return rc;
    rc = db_run(db, e,
                "UPDATE jobs SET state='pending', due_ms=NULL, tried=attempt WHERE state IN "
                "('failed','cancelled') AND spec IS NOT NULL AND duplicate_of IS NULL AND " FILTER,
                "sss", f->custom_id, f->state, f->code);
    if (rc) goto out;
    *n = db_changes(db);
    if (f->dry) goto out;
    /* Pending jobs with a result are those just set. */
    rc = db_run(db, e,
                "UPDATE job_images SET sha256=NULL, mtime_ns=NULL WHERE path IS NOT NULL AND "
                "job_id IN (SELECT "
                "r.job_id FROM results r JOIN jobs j ON j.id=r.job_id WHERE j.state='pending')",
                "");
    if (!rc)
        rc = db_run(db, e,
                    "DELETE FROM results WHERE code IS NOT NULL AND job_id IN (SELECT id FROM jobs "
                    "WHERE state='pending')",
                    "");
    if (!rc) rc = db_commit(db, e);
out:
    if (rc || f->dry) db_rollback(db);
    return rc;
}

enum status queue_cancel(struct db *db, const struct queue_filter *f, int64_t now, int64_t *n,
                         struct err *e)
{
    *n = 0;
    enum status rc = db_begin(db, "cancel", e);
    if (rc) return rc;
    rc = db_run(db, e,
                "UPDATE jobs SET state='cancelled', fence=fence+1, worker=NULL, "
                "lease_until_ms=NULL, due_ms=NULL WHERE state IN "
                "('pending','retry_wait','running') AND " FILTER,
                "sss", f->custom_id, f->state, f->code);
    if (rc) goto out;
    *n = db_changes(db);
    if (f->dry) goto out;
    rc = db_run(db, e,
                "INSERT INTO results(job_id, attempt, code, message, prompt_tokens, "
                "completion_tokens, prefill_s, decode_s, finished_at) "
                "SELECT id, attempt, 'cancelled', 'cancelled by the user', 0, 0, 0, 0, ?1 "
                "FROM jobs WHERE state='cancelled' "
                "AND NOT EXISTS (SELECT 1 FROM results r WHERE r.job_id=jobs.id)",
                "i", now / 1000);
    if (!rc)
        rc = db_run(db, e,
                    "DELETE FROM partial WHERE job_id IN (SELECT id FROM jobs WHERE "
                    "state='cancelled')",
                    "");
    if (!rc) rc = db_commit(db, e);
out:
    if (rc || f->dry) db_rollback(db);
    return rc;
}
