/* `list`, `errors`, `show`: looking at jobs. `retry`, `cancel`: changing them. */
#include "jobs/cmd_queue.h"

#include "jobs/export.h"
#include "jobs/queue.h"
#include "src/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A column as a JSON member or as text. What a terminal would obey is made harmless. */
static void print_value(sqlite3_stmt *s, int i, bool json)
{
    const char *text = (const char *)sqlite3_column_text(s, i);
    size_t len = (size_t)sqlite3_column_bytes(s, i);
    if (json) {
        struct buf b = {0};
        bool number = sqlite3_column_type(s, i) == SQLITE_INTEGER;
        enum status rc =
            number ? buf_addf(&b, NULL, "%s", text) : export_quote(&b, text, len, NULL);
        if (!rc) printf("%s\"%s\":%s", i ? "," : "", sqlite3_column_name(s, i), b.data);
        buf_free(&b);
        return;
    }
    for (size_t k = 0; k < len; k++)
        putchar((unsigned char)text[k] < 0x20 || text[k] == 0x7f ? ' ' : text[k]);
}

static enum status print_rows(struct db *db, sqlite3_stmt *s, bool json, struct err *e)
{
    bool row = true;
    enum status rc = OK;
    while (!rc) {
        rc = db_step(db, s, &row, e);
        if (rc || !row) break;
        if (json) printf("{");
        for (int i = 0; i < sqlite3_column_count(s); i++) {
            if (i && !json) printf("\t");
            print_value(s, i, json);
        }
        printf(json ? "}\n" : "\n");
    }
    return rc;
}

static enum status list(struct db *db, const struct cmd_options *o, const char *sql, struct err *e)
{
    sqlite3_stmt *s;
    enum status rc = db_stmt(db, &s, sql, e);
    if (!rc) rc = db_bind(db, s, e, "ssi", o->state, o->code, o->limit ? (int64_t)o->limit : -1);
    if (rc) return rc;
    if (!o->json)
        for (int i = 0; i < sqlite3_column_count(s); i++)
            printf("%s%s", sqlite3_column_name(s, i),
                   i + 1 < sqlite3_column_count(s) ? "\t" : "\n");
    return print_rows(db, s, o->json, e);
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
    return list(db, o,
                "SELECT j.id AS job, j.custom_id, j.state, j.line, j.attempt, r.code, "
                "r.finish_reason, r.prompt_tokens, r.completion_tokens FROM jobs j LEFT JOIN "
                "results r ON r.job_id=j.id WHERE j.line>0 AND (?1 IS NULL OR j.state=?1) AND "
                "(?2 IS NULL OR r.code=?2) ORDER BY j.input_id, j.line LIMIT ?3",
                e);
}

int cmd_list(const struct cmd_options *o)
{
    return with_queue(o, list_jobs);
}

static enum status list_errors(struct db *db, const struct cmd_options *o, struct err *e)
{
    return list(db, o,
                "SELECT job, custom_id, line, code, message FROM failures WHERE ?1 IS NULL AND "
                "(?2 IS NULL OR code=?2) LIMIT ?3",
                e);
}

int cmd_errors(const struct cmd_options *o)
{
    return with_queue(o, list_errors);
}

/* Prints "name  value" of each column, or all rows as a JSON array. */
static enum status part(struct db *db, const struct cmd_options *o, const char *sql,
                        const char *name, struct err *e)
{
    sqlite3_stmt *s;
    bool row = true;
    enum status rc = db_stmt(db, &s, sql, e);
    if (!rc) rc = db_bind(db, s, e, "s", o->operands.at[0]);
    if (rc) return rc;
    if (o->json) printf(",\"%s\":[", name);
    for (int n = 0; !rc; n++) {
        rc = db_step(db, s, &row, e);
        if (rc || !row) break;
        if (o->json)
            printf(n ? ",{" : "{");
        else
            printf("%s\n", name);
        for (int i = 0; i < sqlite3_column_count(s); i++) {
            if (o->json) {
                print_value(s, i, true);
            } else if (sqlite3_column_type(s, i) != SQLITE_NULL) {
                printf("  %-18s", sqlite3_column_name(s, i));
                print_value(s, i, false);
                printf("\n");
            }
        }
        if (o->json) printf("}");
    }
    if (o->json) printf("]");
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
    enum status rc = db_int(db, &found, 0, e, "SELECT count(*) FROM jobs WHERE id IN " THE_JOB, "s",
                            o->operands.at[0]);
    if (!rc && !found) rc = err_set(e, E_USAGE, "%s: there is no such job", o->operands.at[0]);
    if (!rc && o->json) printf("{\"found\":%d", (int)found);
    for (size_t i = 0; i < sizeof parts / sizeof *parts && !rc; i++)
        rc = part(db, o, parts[i].sql, parts[i].name, e);
    if (!rc && o->json) printf("}\n");
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
