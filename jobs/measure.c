/* The longest job, found by bounds: a job's text has at most as many tokens as its spec has bytes,
 * so jobs are taken in the order of that bound until it falls below the longest found. */
#include "jobs/measure.h"

#include "jobs/job.h"
#include "src/prompt.h"

#include <stdlib.h>

#define MARKUP "1024" /* more than the tokens that the template adds beside the spec's own */
#define MOST   4096   /* jobs tokenised; what remains counts with a quarter of its bound */
#define SAMPLE 24     /* jobs tokenised for the average */
#define GUESS  256    /* tokens of an answer that may be longer, while there are none to go by */

#define SPECS                                                                                      \
    "SELECT spec, images, length(CAST(spec AS BLOB))+" MARKUP "+images+max_tokens AS bound, "      \
    "max_tokens FROM (SELECT j.id, j.spec, j.max_tokens, (SELECT coalesce(sum(coalesce(m.tokens, " \
    "?1)), 0) FROM job_images m WHERE m.job_id=j.id) AS images FROM jobs j "                       \
    "WHERE j.state IN ('pending','running','retry_wait')) "
static const char by_bound[] = SPECS "ORDER BY bound DESC LIMIT ?2";
static const char by_chance[] = SPECS "ORDER BY (id * 2654435761) & 4294967295 LIMIT ?2";

struct candidate {
    const char *spec;
    size_t len;
    uint64_t images; /* rows of its pictures */
};

static enum status rows_of(const struct candidate *c, const struct tok *t, int32_t pad,
                           uint64_t *rows, struct err *e)
{
    struct job j;
    struct chat_prompt chat = {0};
    struct prompt prompt = {0};
    unsigned *each = NULL;
    enum status rc = job_from_spec(&j, c->spec, c->len, e);
    if (rc == E_DB) rc = E_INVALID_REQUEST; /* of this job, as in prepare.c */
    if (rc) goto out;
    struct chat_options o = {.thinking = j.settings.effort != NULL,
                             .effort = j.settings.effort,
                             .format = j.format,
                             .schema = j.schema};
    each = calloc(j.n_images + 1, sizeof *each);
    if (!each) {
        rc = err_set(e, E_NOMEM, "measuring jobs: no memory");
        goto out;
    }
    for (size_t i = 0; i < j.n_images; i++) {
        each[i] = 1;
        job_set_image_size(&j, i, 99999, 99999); /* as long as a size gets in words */
    }
    rc = chat_render(&chat, j.messages, j.n_messages, &o, e);
    if (!rc) rc = prompt_build(&prompt, t, &chat, pad, each, j.n_images, e);
    if (!rc) *rows = prompt.ids.n - j.n_images + c->images + j.settings.max_tokens;
out:
    prompt_free(&prompt);
    chat_prompt_free(&chat);
    free(each);
    job_free(&j);
    return rc;
}

static enum status longest(struct db *db, const struct config *c, const struct tok *t,
                           unsigned image_rows, uint64_t *context, struct err *e)
{
    sqlite3_stmt *s;
    bool row = true;
    int64_t seen = 0;
    enum status rc = db_stmt(db, &s, by_bound, e);
    if (!rc) rc = db_bind(db, s, e, "ii", (int64_t)image_rows, (int64_t)MOST);
    while (!rc) {
        rc = db_step(db, s, &row, e);
        if (rc || !row) break;
        uint64_t bound = (uint64_t)sqlite3_column_int64(s, 2), rows = 0;
        if (bound <= *context) break;
        struct candidate job = {sqlite3_column_blob(s, 0), (size_t)sqlite3_column_bytes(s, 0),
                                (uint64_t)sqlite3_column_int64(s, 1)};
        rc = rows_of(&job, t, c->media_pad, &rows, e);
        /* It will fail when its turn comes. */
        if (rc && status_fault(rc) == FAULT_JOB) rc = OK;
        if (++seen == MOST) rows = bound / 4;
        if (rows <= c->context && rows > *context) *context = rows;
    }
    if (row) sqlite3_reset(s);
    return rc;
}

/* Averages over some of the jobs, and over the answers so far. */
static enum status average(struct db *db, const struct config *c, const struct tok *t,
                           unsigned image_rows, struct plan_mix *mix, struct err *e)
{
    sqlite3_stmt *s;
    bool row = true;
    double n = 0, all = 0, most = 0, images = 0;
    enum status rc = db_stmt(db, &s, by_chance, e);
    if (!rc) rc = db_bind(db, s, e, "ii", (int64_t)image_rows, (int64_t)SAMPLE);
    while (!rc) {
        rc = db_step(db, s, &row, e);
        if (rc || !row) break;
        uint64_t rows = 0;
        struct candidate job = {sqlite3_column_blob(s, 0), (size_t)sqlite3_column_bytes(s, 0),
                                (uint64_t)sqlite3_column_int64(s, 1)};
        rc = rows_of(&job, t, c->media_pad, &rows, e);
        if (rc && status_fault(rc) == FAULT_JOB) rc = OK;
        if (rc || rows == 0 || rows > c->context) continue;
        n++;
        all += (double)rows;
        most += sqlite3_column_double(s, 3);
        images += (double)job.images;
    }
    if (row) sqlite3_reset(s);
    int64_t answer = 0;
    if (!rc)
        rc = db_int(db, &answer, 0, e,
                    "SELECT avg(completion_tokens) FROM results WHERE code IS NULL", "");
    if (rc || n == 0) return rc;
    mix->room_rows = all / n;
    mix->prompt_rows = (all - most) / n;
    mix->image_rows = images / n;
    mix->output_tokens = answer > 0 ? (double)answer : most / n < GUESS ? most / n : GUESS;
    return OK;
}

static enum status pictures(struct db *db, struct measure *out, struct err *e)
{
    sqlite3_stmt *s;
    bool row = false;
    enum status rc =
        db_stmt(db, &s,
                "SELECT count(*), sum(m.decode_bytes IS NULL), "
                "max(m.bytes+m.decode_bytes), max(m.tokens) FROM jobs j JOIN "
                "job_images m ON m.job_id=j.id WHERE j.state IN ('pending','running','retry_wait')",
                e);
    if (!rc) rc = db_step(db, s, &row, e);
    if (rc || !row) return rc;
    out->images = (uint64_t)sqlite3_column_int64(s, 0);
    out->unknown = (uint64_t)sqlite3_column_int64(s, 1);
    out->picture = (uint64_t)sqlite3_column_int64(s, 2);
    out->picture_rows = (uint64_t)sqlite3_column_int64(s, 3);
    sqlite3_reset(s);
    return OK;
}

enum status measure_queue(struct db *db, const struct config *c, const struct tok *t,
                          unsigned image_rows, struct measure *out, struct err *e)
{
    int64_t jobs = 0;
    *out = (struct measure){0};
    enum status rc = db_int(db, &jobs, 0, e,
                            "SELECT count(*) FROM jobs WHERE state IN "
                            "('pending','running','retry_wait')",
                            "");
    out->jobs = out->mix.jobs = (uint64_t)jobs;
    if (!rc) rc = pictures(db, out, e);
    if (!rc) rc = average(db, c, t, image_rows, &out->mix, e);
    return rc ? rc : longest(db, c, t, image_rows, &out->context, e);
}
