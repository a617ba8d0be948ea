/* Queue files for tests. */
#include "tests/lib/jobs.h"

#include "tests/lib/test.h"

struct db *jobs_open(const char *name, const struct db_opts *o)
{
    struct err e;
    struct db *db = NULL;
    struct db_opts none = {.busy_ms = 50};
    enum status rc = db_open(&db, test_path(name), o ? o : &none, &e);
    if (!rc) rc = schema_apply(db, &e);
    if (rc) {
        test_failed(__FILE__, __LINE__, "%s", e.text);
        db_close(db);
        return NULL;
    }
    return db;
}

void jobs_add(struct db *db, int n)
{
    struct err e;
    char sql[900];
    enum status rc =
        db_exec(db,
                "INSERT INTO inputs(id, path, kind, bytes, sha256, options_sha256, items, "
                "complete, imported_at) VALUES(1, '/in.jsonl', 'lines', 1, '', '', 1, 1, 0)",
                &e);
    snprintf(sql, sizeof sql,
             "WITH RECURSIVE c(n) AS (SELECT 0 UNION ALL SELECT n+1 FROM c WHERE n+1<%d) "
             "INSERT INTO jobs(id, input_id, line, byte_offset, byte_length, custom_id, spec, "
             "params_sha256, text_bytes, n_images, max_tokens, priority, place, state) "
             "SELECT n+1, 1, n+1, 0, 0, 'a'||n, '{}', '', 0, 0, 16, 0, n+1, 'pending' FROM c; "
             "UPDATE inputs SET items=%d",
             n, n);
    if (!rc) rc = db_exec(db, sql, &e);
    if (rc) test_failed(__FILE__, __LINE__, "%s", e.text);
}

int64_t jobs_int(struct db *db, const char *sql)
{
    sqlite3_stmt *s = NULL;
    int64_t v = -1;
    struct err e;
    bool row = false;
    if (db_stmt(db, &s, sql, &e) || db_step(db, s, &row, &e))
        test_failed(__FILE__, __LINE__, "%s", e.text);
    if (row) v = sqlite3_column_int64(s, 0);
    if (s) sqlite3_reset(s);
    return v;
}
