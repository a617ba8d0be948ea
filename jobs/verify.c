/* Checks of a queue file. */
#include "jobs/verify.h"

#include "jobs/export_line.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Each query counts what must not be; `what` names it. */
static const struct {
    const char *what, *sql;
} rules[] = {
    {"finished jobs without a result",
     "SELECT count(*) FROM jobs j WHERE state IN ('done','failed','cancelled') AND NOT EXISTS "
     "(SELECT 1 FROM results r WHERE r.job_id=j.id)"},
    {"results of unfinished jobs",
     "SELECT count(*) FROM results r JOIN jobs j ON j.id=r.job_id WHERE j.state IN "
     "('pending','running','retry_wait')"},
    {"results of no job",
     "SELECT count(*) FROM results r WHERE NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id=r.job_id)"},
    {"jobs done with an error, or failed without one",
     "SELECT count(*) FROM jobs j JOIN results r ON r.job_id=j.id WHERE (j.state='done') <> "
     "(r.code IS NULL)"},
    {"stored tokens of finished jobs",
     "SELECT count(*) FROM partial p JOIN jobs j ON j.id=p.job_id WHERE j.state IN "
     "('done','failed','cancelled')"},
    {"results of jobs that ran without an attempt",
     "SELECT count(*) FROM results r WHERE r.run_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM "
     "attempts a WHERE a.job_id=r.job_id AND a.attempt=r.attempt)"},
    {"tries that ended twice",
     "SELECT count(*) FROM (SELECT 1 FROM attempts GROUP BY job_id, fence "
     "HAVING count(*)>1)"},
    {"jobs of lines that were never read",
     "SELECT count(*) FROM jobs j JOIN inputs i ON i.id=j.input_id WHERE i.kind='lines' AND "
     "j.line>i.items"},
    {"jobs with another job's id", "SELECT count(*) FROM (SELECT 1 FROM jobs WHERE custom_id IS "
                                   "NOT NULL AND duplicate_of IS NULL "
                                   "GROUP BY custom_id HAVING count(*)>1)"},
    {"jobs running without a lease",
     "SELECT count(*) FROM jobs WHERE state='running' AND (worker IS NULL OR lease_until_ms IS "
     "NULL)"},
};

struct findings {
    void (*tell)(void *user, const char *what);
    void *user;
    uint64_t *n;
};

static void found(struct findings *f, const char *what)
{
    f->tell(f->user, what);
    ++*f->n;
}

static enum status check_file(struct db *db, struct findings *f, const char *sql, struct err *e)
{
    sqlite3_stmt *s;
    bool row = true;
    enum status rc = db_stmt(db, &s, sql, e);
    while (!rc) {
        rc = db_step(db, s, &row, e);
        if (rc || !row) break;
        const char *text = (const char *)sqlite3_column_text(s, 0);
        if (text && strcmp(text, "ok") != 0) found(f, text);
    }
    return rc;
}

enum status verify_file(struct db *db, void (*tell)(void *user, const char *what), void *user,
                        uint64_t *n, struct err *e)
{
    struct findings f = {tell, user, n};
    return check_file(db, &f, "PRAGMA integrity_check", e);
}

enum status verify_queue(struct db *db, void (*tell)(void *user, const char *what), void *user,
                         uint64_t *n, struct err *e)
{
    struct findings f = {tell, user, n};
    *n = 0;
    enum status rc = verify_file(db, tell, user, n, e);
    if (!rc)
        rc = check_file(db, &f,
                        "SELECT 'row without its parent in ' || \"table\" FROM "
                        "pragma_foreign_key_check",
                        e);
    for (size_t i = 0; i < sizeof rules / sizeof *rules && !rc; i++) {
        int64_t count;
        rc = db_int(db, &count, 0, e, rules[i].sql, "");
        if (rc || !count) continue;
        char what[160];
        snprintf(what, sizeof what, "%lld %s", (long long)count, rules[i].what);
        found(&f, what);
    }
    return rc;
}

enum status verify_export(struct db *db, const char *path, uint64_t *line, struct err *e)
{
    struct export_lines x = {0};
    char *text = NULL;
    size_t cap = 0;
    bool more = true, same = true;
    *line = 0;
    FILE *f = fopen(path, "rbe");
    if (!f) return err_errno(e, errno, "cannot open %s", path);
    enum status rc = OK;
    while (!rc && more && same) {
        rc = export_line_next(&x, db, &more, e);
        if (rc) break;
        ++*line;
        ssize_t n = getline(&text, &cap, f);
        same = more ? n == (ssize_t)x.text.len && !memcmp(text, x.text.data, x.text.len) : n < 0;
    }
    if (same) *line = 0;
    if (!rc && ferror(f)) rc = err_errno(e, errno, "cannot read %s", path);
    free(text);
    fclose(f);
    buf_free(&x.text);
    return rc;
}
