/* Everything is read in one transaction, so that writers at work do not show halfway. */
#include "tests/lib/watch.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct look {
    struct watch *w;
    sqlite3 *db;
    bool right;
};

static void wrong(struct look *l, const char *what, int64_t n)
{
    printf("WRONG: %s (%lld)\n", what, (long long)n);
    l->right = false;
}

static sqlite3_stmt *query(struct look *l, const char *sql)
{
    sqlite3_stmt *s = NULL;
    if (sqlite3_prepare_v2(l->db, sql, -1, &s, NULL)) {
        printf("WRONG: %s: %s\n", sql, sqlite3_errmsg(l->db));
        l->right = false;
    }
    return s;
}

static bool next(struct look *l, sqlite3_stmt *s)
{
    int rc = s ? sqlite3_step(s) : SQLITE_DONE;
    if (rc == SQLITE_ROW) return true;
    if (rc != SQLITE_DONE) {
        printf("WRONG: %s: %s\n", sqlite3_sql(s), sqlite3_errmsg(l->db));
        l->right = false;
    }
    sqlite3_finalize(s);
    return false;
}

static int64_t one(struct look *l, const char *sql)
{
    int64_t n = -1;
    for (sqlite3_stmt *s = query(l, sql); next(l, s);) n = sqlite3_column_int64(s, 0);
    return n;
}

static uint64_t hash_row(sqlite3_stmt *s)
{
    uint64_t h = 1469598103934665603u;
    for (int i = 0; i < sqlite3_column_count(s); i++) {
        const unsigned char *text = sqlite3_column_text(s, i);
        int n = sqlite3_column_bytes(s, i);
        for (int k = 0; k < n; k++) h = (h ^ text[k]) * 1099511628211u;
        h = (h ^ (uint64_t)(text ? 0x100 + n : 1)) * 1099511628211u;
    }
    return h ? h : 1;
}

/* Rows that were seen are still there as they were; the first column is the row's number. */
static void keep(struct look *l, const char *sql, uint64_t *known, const char *what)
{
    uint64_t now[WATCH_JOBS] = {0};
    for (sqlite3_stmt *s = query(l, sql); next(l, s);) {
        int64_t id = sqlite3_column_int64(s, 0);
        if (id < 0 || id >= WATCH_JOBS || now[id]) {
            wrong(l, what, id);
            continue;
        }
        now[id] = hash_row(s);
    }
    for (int64_t id = 0; id < WATCH_JOBS && l->right; id++) {
        if (known[id] && known[id] != now[id]) wrong(l, what, id);
        known[id] = now[id];
    }
}

/* The tokens of a try only ever get more. */
static void keep_partial(struct look *l)
{
    for (sqlite3_stmt *s = query(l, "SELECT p.job_id, p.tokens, j.attempt FROM partial p JOIN jobs "
                                    "j ON j.id=p.job_id");
         next(l, s);) {
        int64_t id = sqlite3_column_int64(s, 0), attempt = sqlite3_column_int64(s, 2);
        const unsigned char *tokens = sqlite3_column_blob(s, 1);
        size_t n = (size_t)sqlite3_column_bytes(s, 1), had;
        if (id < 0 || id >= WATCH_JOBS) continue;
        had = l->w->partial[id].attempt == attempt ? l->w->partial[id].bytes : 0;
        if (n < had || (had && memcmp(tokens, l->w->partial[id].tokens, had) != 0))
            wrong(l, "stored tokens went or changed, job", id);
        free(l->w->partial[id].tokens);
        l->w->partial[id].tokens = malloc(n + 1);
        if (!l->w->partial[id].tokens) abort();
        if (n) memcpy(l->w->partial[id].tokens, tokens, n);
        l->w->partial[id].bytes = n;
        l->w->partial[id].attempt = attempt;
    }
}

static void never(struct look *l, const char *what, const char *sql)
{
    int64_t n = one(l, sql);
    if (n) wrong(l, what, n);
}

static void check_counts(struct look *l)
{
    never(l, "jobs whose state and results disagree",
          "SELECT count(*) FROM jobs j LEFT JOIN results r ON r.job_id=j.id WHERE "
          "(j.state IN ('done','failed','cancelled')) <> (r.job_id IS NOT NULL) OR (j.state='done' "
          "AND r.code IS NOT NULL) OR (j.state='failed' AND r.code IS NULL)");
    never(l, "jobs answered other than once",
          "SELECT count(*) FROM jobs j WHERE (SELECT count(*) FROM attempts a WHERE a.job_id=j.id "
          "AND a.code IS NULL) <> (j.state='done')");
    never(l, "jobs whose attempts are not counted",
          "SELECT count(*) FROM jobs j WHERE j.attempt <> (SELECT count(*) FROM attempts a WHERE "
          "a.job_id=j.id)");
    never(l, "attempts with one number",
          "SELECT count(*) FROM (SELECT 1 FROM attempts GROUP BY job_id, attempt HAVING "
          "count(*)>1)");
    never(l, "attempts under one fence",
          "SELECT count(*) FROM (SELECT 1 FROM attempts GROUP BY job_id, fence HAVING count(*)>1)");
    never(l, "results that are not of their job's last attempt",
          "SELECT count(*) FROM results r JOIN jobs j ON j.id=r.job_id WHERE r.run_id IS NOT NULL "
          "AND r.attempt <> j.attempt");
    never(l, "tokens kept of jobs that ended",
          "SELECT count(*) FROM partial p JOIN jobs j ON j.id=p.job_id WHERE j.state IN "
          "('done','failed','cancelled')");
    never(l, "jobs that run for nobody",
          "SELECT count(*) FROM jobs WHERE (state='running') <> (worker IS NOT NULL AND "
          "lease_until_ms IS NOT NULL)");
    never(l, "inputs whose count of lines is not that of their jobs",
          "SELECT count(*) FROM inputs i WHERE kind='lines' AND items <> (SELECT count(*) FROM "
          "jobs j WHERE j.input_id=i.id)");
    never(l, "rows without their parents", "SELECT count(*) FROM pragma_foreign_key_check");
}

static void check_all(struct look *l)
{
    for (sqlite3_stmt *s = query(l, "PRAGMA integrity_check"); next(l, s);)
        if (strcmp((const char *)sqlite3_column_text(s, 0), "ok") != 0)
            wrong(l, (const char *)sqlite3_column_text(s, 0), 0);
    if (one(l, "SELECT count(*) FROM sqlite_schema WHERE name='results'") < 1) {
        if (l->w->jobs) wrong(l, "the tables are gone", l->w->jobs);
        return;
    }
    keep(l, "SELECT * FROM results", l->w->results, "a result went or changed, job");
    keep(l, "SELECT * FROM attempts", l->w->attempts, "an attempt went or changed");
    keep_partial(l);
    check_counts(l);
    int64_t jobs = one(l, "SELECT count(*) FROM jobs");
    if (jobs < l->w->jobs) wrong(l, "jobs are gone, of", l->w->jobs);
    l->w->jobs = jobs;
    l->w->finished = one(l, "SELECT count(*) FROM results");
}

bool watch_look(struct watch *w, const char *db_path)
{
    struct look l = {.w = w, .right = true};
    if (access(db_path, F_OK) != 0) {
        if (w->jobs) wrong(&l, "the file is gone, jobs", w->jobs);
        return l.right;
    }
    if (sqlite3_open_v2(db_path, &l.db, SQLITE_OPEN_READWRITE, NULL)) {
        wrong(&l, sqlite3_errmsg(l.db), 0);
    } else {
        sqlite3_busy_timeout(l.db, 30000);
        if (sqlite3_exec(l.db, "BEGIN; SELECT count(*) FROM sqlite_schema", NULL, NULL, NULL))
            wrong(&l, sqlite3_errmsg(l.db), 0);
        if (l.right) check_all(&l);
        sqlite3_exec(l.db, "COMMIT", NULL, NULL, NULL);
    }
    sqlite3_close(l.db);
    return l.right;
}

void watch_free(struct watch *w)
{
    for (int i = 0; i < WATCH_JOBS; i++) free(w->partial[i].tokens);
    memset(w, 0, sizeof *w);
}

bool watch_unlocked(const char *db_path)
{
    sqlite3 *db;
    int rc = sqlite3_open_v2(db_path, &db, SQLITE_OPEN_READWRITE, NULL);
    sqlite3_busy_timeout(db, 300);
    if (!rc) rc = sqlite3_exec(db, "BEGIN EXCLUSIVE; ROLLBACK", NULL, NULL, NULL);
    sqlite3_close(db);
    return !rc;
}
