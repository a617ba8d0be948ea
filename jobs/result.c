/* Results, attempts and partial tokens in SQL. */
#include "jobs/result.h"

#include <stdio.h>
#include <stdlib.h>

static const char *code_of(const struct result *r)
{
    return r->code ? status_name(r->code) : NULL;
}

static enum status insert_attempt(struct db *db, const struct queue_job *job,
                                  const struct result *r, struct err *e)
{
    return db_run(db, e,
                  "INSERT INTO attempts(job_id, attempt, fence, code, message, tokens, ended_at, "
                  "worker) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, "
                  "(SELECT worker FROM jobs WHERE id=?1))",
                  "iiissii", job->id, job->attempt, job->fence, code_of(r), r->message,
                  (int64_t)r->completion_tokens, r->now / 1000);
}

static enum status insert_result(struct db *db, const struct queue_job *job, const struct result *r,
                                 struct err *e)
{
    char seed[24];
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)r->seed);
    return db_run(db, e,
                  "INSERT INTO results(job_id, attempt, code, message, content, reasoning, "
                  "finish_reason, prompt_tokens, completion_tokens, prefill_s, decode_s, "
                  "finished_at, seed, run_id) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, "
                  "?11, ?12, ?13, nullif(?14, 0))",
                  "iissttsiiddisi", job->id, job->attempt, code_of(r), r->message, r->content,
                  r->content_len, r->reasoning, r->reasoning_len, r->finish_reason,
                  (int64_t)r->prompt_tokens, (int64_t)r->completion_tokens, r->prefill_s,
                  r->decode_s, r->now / 1000, r->prompt_tokens ? seed : NULL, r->run_id);
}

static enum status update_images(struct db *db, const struct queue_job *job, const struct result *r,
                                 struct err *e)
{
    enum status rc = OK;
    for (size_t i = 0; i < r->n_images && !rc; i++) {
        const struct result_image *m = &r->images[i];
        rc = db_run(db, e,
                    "UPDATE job_images SET sha256=?3, width=?4, height=?5, orientation=?6, "
                    "tokens=?7, warnings=?8, path=coalesce(path, ?9) WHERE job_id=?1 AND n=?2",
                    "iisiiiiss", job->id, (int64_t)i, m->sha256, (int64_t)m->width,
                    (int64_t)m->height, (int64_t)m->orientation, (int64_t)m->tokens, m->warnings,
                    m->path);
    }
    return rc;
}

static enum status delete_partial(struct db *db, int64_t id, struct err *e)
{
    return db_run(db, e, "DELETE FROM partial WHERE job_id=?1", "i", id);
}

static enum status end(struct db *db, const struct queue_job *job, enum status rc, struct err *e)
{
    if (!rc) rc = db_commit(db, e);
    if (rc) {
        db_rollback(db);
        err_wrap(e, "job %lld", (long long)job->id);
    }
    return rc;
}

enum status result_store(struct db *db, const struct queue_job *job, const struct result *r,
                         struct err *e)
{
    enum status rc = db_begin(db, "result", e);
    if (rc) return rc;
    rc = insert_attempt(db, job, r, e);
    if (!rc) rc = queue_finish(db, job->id, job->fence, r->code ? "failed" : "done", e);
    if (!rc) rc = insert_result(db, job, r, e);
    if (!rc) rc = update_images(db, job, r, e);
    if (!rc) rc = delete_partial(db, job->id, e);
    return end(db, job, rc, e);
}

enum status result_retry(struct db *db, const struct queue_job *job, const struct result *r,
                         int64_t delay_ms, struct err *e)
{
    enum status rc = db_begin(db, "retry", e);
    if (rc) return rc;
    rc = insert_attempt(db, job, r, e);
    if (!rc) rc = queue_postpone(db, job->id, job->fence, r->now + delay_ms, e);
    if (!rc) rc = delete_partial(db, job->id, e);
    return end(db, job, rc, e);
}

static enum status store_partial(struct db *db, const struct result_partial *p, int64_t now,
                                 struct err *e)
{
    unsigned char *b = malloc(p->n_tokens * 4 + 1);
    if (!b) return err_set(e, E_NOMEM, "job %lld: no memory for its tokens", (long long)p->id);
    for (size_t i = 0; i < p->n_tokens; i++) {
        uint32_t v = (uint32_t)p->tokens[i];
        for (int k = 0; k < 4; k++) b[4 * i + (size_t)k] = (unsigned char)(v >> (8 * k));
    }
    enum status rc = db_run(db, e,
                            "INSERT OR REPLACE INTO partial(job_id, tokens, prefill_s, decode_s, "
                            "stored_at) VALUES(?1, ?2, ?3, ?4, ?5)",
                            "ibddi", p->id, (const void *)b, p->n_tokens * 4, p->prefill_s,
                            p->decode_s, now / 1000);
    free(b);
    return rc;
}

enum status result_checkpoint(struct db *db, struct result_partial *p, size_t n, int64_t now,
                              int64_t lease_ms, struct err *e)
{
    enum status rc = db_begin(db, "checkpoint", e);
    if (rc) return rc;
    for (size_t i = 0; i < n && !rc; i++) {
        rc = queue_renew(db, p[i].id, p[i].fence, now + lease_ms, e);
        p[i].lost = rc == E_LEASE;
        if (p[i].lost)
            rc = OK;
        else if (!rc && p[i].n_tokens)
            rc = store_partial(db, &p[i], now, e);
    }
    if (!rc) rc = db_commit(db, e);
    if (rc) db_rollback(db);
    return rc;
}
