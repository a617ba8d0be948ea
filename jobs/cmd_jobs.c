/* `list`, `errors`, `show`: looking at jobs. `retry`, `cancel`: changing them. */
#include "jobs/cmd_queue.h"

#include "jobs/export.h"
#include "jobs/queue.h"
#include "src/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_ROWS 1000

/* A column as a JSON member or as text. What a terminal would obey is made harmless. */
static enum status add_value(struct buf *out, sqlite3_stmt *s, int i, bool json, struct err *e)
{
    const char *text = (const char *)sqlite3_column_text(s, i);
    size_t len = (size_t)sqlite3_column_bytes(s, i);
    if (json) {
        enum status rc = buf_addf(out, e, "%s\"%s\":", i ? "," : "", sqlite3_column_name(s, i));
        if (rc) return rc;
        if (sqlite3_column_type(s, i) == SQLITE_INTEGER) return buf_add(out, text, len, e);
        return export_quote(out, text, len, e);
    }
    size_t at = out->len;
    enum status rc = len ? buf_add(out, text, len, e) : OK;
    for (; !rc && at < out->len; at++)
        if ((unsigned char)out->data[at] < 0x20 || out->data[at] == 0x7f) out->data[at] = ' ';
    return rc;
}

static enum status add_row(struct buf *out, sqlite3_stmt *s, int columns, bool json, struct err *e)
{
    enum status rc = json ? buf_addf(out, e, "{") : OK;
    for (int i = 0; i < columns && !rc; i++) {
        if (i && !json) rc = buf_addf(out, e, "\t");
        if (!rc) rc = add_value(out, s, i, json, e);
    }
    return rc ? rc : buf_addf(out, e, json ? "}\n" : "\n");
}

static enum status add_head(struct buf *out, sqlite3_stmt *s, int columns, struct err *e)
{
    enum status rc = OK;
    for (int i = 0; i < columns && !rc; i++)
        rc = buf_addf(out, e, "%s%s", sqlite3_column_name(s, i), i + 1 < columns ? "\t" : "\n");
    return rc;
}

/* sql: rows after (?4, ?5), which are its last two columns and are not shown. Each page is read as
 * a whole before it is written: a reader whose output waits would keep the queue from its run. */
static enum status list(struct db *db, const struct cmd_options *o, const char *sql, struct err *e)
{
    struct buf page = {0};
    uint64_t left = o->limit ? o->limit : UINT64_MAX;
    int64_t input = -1, line = 0, got = 0, most;
    enum status rc = OK;
    do {
        sqlite3_stmt *s;
        bool row = true, first = input < 0;
        most = left < PAGE_ROWS ? (int64_t)left : PAGE_ROWS;
        got = 0;
        rc = db_stmt(db, &s, sql, e);
        if (!rc) rc = db_bind(db, s, e, "ssiii", o->state, o->code, most, input, line);
        if (rc) break;
        int shown = sqlite3_column_count(s) - 2;
        if (first && !o->json) rc = add_head(&page, s, shown, e);
        while (!rc) {
            rc = db_step(db, s, &row, e);
            if (rc || !row) break;
            rc = add_row(&page, s, shown, o->json, e);
            input = sqlite3_column_int64(s, shown);
            line = sqlite3_column_int64(s, shown + 1);
            got++;
        }
        left -= (uint64_t)got;
        if (page.len) fwrite(page.data, 1, page.len, stdout);
        page.len = 0;
    } while (!rc && got == most && left);
    buf_free(&page);
    return rc;
}

/* A filter that nothing can fit is a slip of the hand. */
static enum status check_filters(const struct cmd_options *o, struct err *e)
{
    static const char *const states[] = {"pending", "running", "retry_wait",
                                         "done",    "failed",  "cancelled"};
    size_t i = 0, n = sizeof states / sizeof *states;
    while (o->state && i < n && strcmp(states[i], o->state) != 0) i++;
    if (o->state && i == n)
        return err_set(e, E_USAGE,
                       "%s: --state: expected pending, running, retry_wait, done, failed or "
                       "cancelled, found \"%.100s\"",
                       o->command, o->state);
    if (o->code && status_by_name(o->code) == STATUS_COUNT)
        return err_set(e, E_USAGE, "%s: --code: there is no code \"%.100s\"", o->command, o->code);
    return OK;
}

static int with_queue(const struct cmd_options *o,
                      enum status (*fn)(struct db *, const struct cmd_options *, struct err *))
{
    struct err e;
    struct cmd_queue q;
    if (!o->db) return cmd_usage("%s: needs --db FILE", o->command);
    enum status rc = check_filters(o, &e);
    if (!rc) rc = cmd_queue_open(&q, o->db, true, LOCK_NONE, &e);
    if (rc) return cmd_fail(&e);
    rc = fn(q.db, o, &e);
    cmd_queue_close(&q);
    return rc ? cmd_fail(&e) : EXIT_DONE;
}

static enum status list_jobs(struct db *db, const struct cmd_options *o, struct err *e)
{
    return list(
        db, o,
        "SELECT j.id AS job, j.custom_id, j.state, j.line, j.attempt, r.code, "
        "r.finish_reason, r.prompt_tokens, r.completion_tokens, j.input_id, j.line FROM jobs j "
        "LEFT JOIN results r ON r.job_id=j.id WHERE j.line>0 AND "
        "(j.input_id, j.line)>(?4, ?5) AND (?1 IS NULL OR j.state=?1) AND "
        "(?2 IS NULL OR r.code=?2) ORDER BY j.input_id, j.line LIMIT ?3",
        e);
}

int cmd_list(const struct cmd_options *o)
{
    return with_queue(o, list_jobs);
}

static enum status list_errors(struct db *db, const struct cmd_options *o, struct err *e)
{
    return list(
        db, o,
        "SELECT j.id AS job, j.custom_id, j.line, r.code, r.message, j.input_id, j.line FROM "
        "jobs j CROSS JOIN results r ON r.job_id=j.id WHERE r.code IS NOT NULL AND "
        "j.line>0 AND (j.input_id, j.line)>(?4, ?5) AND ?1 IS NULL AND "
        "(?2 IS NULL OR r.code=?2) ORDER BY j.input_id, j.line LIMIT ?3",
        e);
}

int cmd_errors(const struct cmd_options *o)
{
    return with_queue(o, list_errors);
}

/* Adds "name  value" of each column, or all rows as a JSON array. */
static enum status part(struct buf *out, struct db *db, const struct cmd_options *o,
                        const char *sql, const char *name, struct err *e)
{
    sqlite3_stmt *s;
    bool row = true;
    enum status rc = db_stmt(db, &s, sql, e);
    if (!rc) rc = db_bind(db, s, e, "s", o->operands.at[0]);
    if (!rc && o->json) rc = buf_addf(out, e, ",\"%s\":[", name);
    for (int n = 0; !rc; n++) {
        rc = db_step(db, s, &row, e);
        if (rc || !row) break;
        rc = o->json ? buf_addf(out, e, n ? ",{" : "{") : buf_addf(out, e, "%s\n", name);
        for (int i = 0; i < sqlite3_column_count(s) && !rc; i++) {
            if (o->json) {
                rc = add_value(out, s, i, true, e);
            } else if (sqlite3_column_type(s, i) != SQLITE_NULL) {
                rc = buf_addf(out, e, "  %-18s", sqlite3_column_name(s, i));
                if (!rc) rc = add_value(out, s, i, false, e);
                if (!rc) rc = buf_addf(out, e, "\n");
            }
        }
        if (!rc && o->json) rc = buf_addf(out, e, "}");
    }
    if (!rc && o->json) rc = buf_addf(out, e, "]");
    return rc;
}

#define THE_JOB                                                                                    \
    "(SELECT id FROM jobs WHERE custom_id=?1 UNION SELECT id FROM jobs WHERE CAST(id AS TEXT)=?1)"

static enum status show(struct db *db, const struct cmd_options *o, struct err *e)
{
    static const struct {
        const char *name, *sql;
    } parts[] = {
        {"job",
         "SELECT j.id AS job, j.custom_id, i.path AS input, j.line, j.state, j.attempt, "
         "j.worker, j.spec FROM jobs j JOIN inputs i ON i.id=j.input_id WHERE j.id IN " THE_JOB
         " ORDER BY j.id"},
        {"image", "SELECT n, ref, path, sha256, width, height, orientation, tokens, warnings FROM "
                  "job_images WHERE job_id IN " THE_JOB " ORDER BY job_id, n"},
        {"partial", "SELECT length(tokens)/4 AS tokens, datetime(stored_at, 'unixepoch') AS stored "
                    "FROM partial WHERE job_id IN " THE_JOB},
        {"attempt", "SELECT attempt, code, message, tokens, datetime(ended_at, 'unixepoch') AS "
                    "ended FROM attempts WHERE job_id IN " THE_JOB " ORDER BY id"},
        {"result", "SELECT code, message, finish_reason, prompt_tokens, completion_tokens, seed, "
                   "reasoning, content FROM results WHERE job_id IN " THE_JOB},
    };
    int64_t found = 0;
    struct buf out = {0};
    enum status rc = db_int(db, &found, 0, e, "SELECT count(*) FROM jobs WHERE id IN " THE_JOB, "s",
                            o->operands.at[0]);
    if (!rc && !found) rc = err_set(e, E_USAGE, "%s: there is no such job", o->operands.at[0]);
    if (!rc && o->json) rc = buf_addf(&out, e, "{\"found\":%d", (int)found);
    for (size_t i = 0; i < sizeof parts / sizeof *parts && !rc; i++)
        rc = part(&out, db, o, parts[i].sql, parts[i].name, e);
    if (!rc && o->json) rc = buf_addf(&out, e, "}\n");
    if (!rc) fwrite(out.data, 1, out.len, stdout);
    buf_free(&out);
    return rc;
}

int cmd_show(const struct cmd_options *o)
{
    return with_queue(o, show);
}

/* Which jobs retry and cancel mean: the ids given, or all that fit the filters. */
static enum status change(struct db *db, const struct cmd_options *o, struct err *e)
{
    bool retry = !strcmp(o->command, "retry");
    int64_t n = 0, sum = 0, now = os_unix_time() * 1000;
    enum status rc = OK;
    if (!o->operands.n && !o->all && !o->state && !o->code)
        return err_set(e, E_USAGE, "%s: needs ids, --state, --code or --all", o->command);
    for (size_t i = 0; !rc && i < (o->operands.n ? o->operands.n : 1); i++) {
        struct queue_filter f = {.custom_id = o->operands.n ? o->operands.at[i] : NULL,
                                 .state = o->state,
                                 .code = o->code,
                                 .dry = o->dry_run};
        rc = retry ? queue_retry(db, &f, &n, e) : queue_cancel(db, &f, now, &n, e);
        if (!rc && !n && f.custom_id)
            rc = err_set(e, E_USAGE, "%s: there is no job \"%s\" to %s", o->command, f.custom_id,
                         o->command);
        sum += n;
    }
    if (!rc && !o->quiet)
        fprintf(stderr, "%lld jobs %s\n", (long long)sum,
                o->dry_run ? retry ? "would run again" : "would be cancelled"
                : retry    ? "will run again"
                           : "cancelled");
    return rc;
}

int cmd_retry(const struct cmd_options *o)
{
    return with_queue(o, change);
}

int cmd_cancel(const struct cmd_options *o)
{
    return with_queue(o, change);
}
