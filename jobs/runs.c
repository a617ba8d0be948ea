/* Settings and counts of runs. */
#include "jobs/runs.h"

#include <stdlib.h>
#include <string.h>

enum status run_setting(struct db *db, const char *name, char **value, struct err *e)
{
    sqlite3_stmt *s;
    bool row = false;
    *value = NULL;
    enum status rc = db_stmt(db, &s, "SELECT value FROM settings WHERE name=?1", e);
    if (!rc) rc = db_bind(db, s, e, "s", name);
    if (!rc) rc = db_step(db, s, &row, e);
    if (row) {
        rc = db_text(db, s, 0, value, NULL, e);
        sqlite3_reset(s);
    }
    return rc;
}

static enum status differences(struct db *db, const struct run_setting *list, size_t n,
                               struct buf *hard, struct buf *all, struct err *e)
{
    enum status rc = OK;
    for (size_t i = 0; i < n && !rc; i++) {
        char *old;
        rc = run_setting(db, list[i].name, &old, e);
        if (!rc && old && strcmp(old, list[i].value) != 0) {
            struct buf *lists[] = {all, list[i].soft ? NULL : hard};
            for (int k = 0; k < 2 && !rc; k++)
                if (lists[k])
                    rc = buf_addf(lists[k], e, "%s%s was %.80s and is %.80s",
                                  lists[k]->len ? ", " : "", list[i].name, old, list[i].value);
        }
        free(old);
    }
    return rc;
}

static enum status store_settings(struct db *db, const struct run_setting *list, size_t n,
                                  bool forget, struct err *e)
{
    enum status rc = db_begin(db, "settings", e);
    if (rc) return rc;
    if (forget) rc = db_run(db, e, "DELETE FROM partial", "");
    for (size_t i = 0; i < n && !rc; i++)
        rc = db_run(db, e, "INSERT OR REPLACE INTO settings(name, value) VALUES(?1, ?2)", "ss",
                    list[i].name, list[i].value);
    if (!rc) rc = db_commit(db, e);
    if (rc) db_rollback(db);
    return rc;
}

enum status run_settings(struct db *db, const struct run_setting *list, size_t n, bool allow_change,
                         struct buf *changed, struct err *e)
{
    struct buf hard = {0}, all = {0};
    int64_t computed = 0;
    enum status rc = differences(db, list, n, &hard, &all, e);
    if (!rc)
        rc = db_int(db, &computed, 0, e,
                    "SELECT EXISTS(SELECT 1 FROM attempts) OR EXISTS(SELECT 1 FROM partial) OR "
                    "EXISTS(SELECT 1 FROM jobs WHERE state='running')",
                    "");
    if (!rc && hard.len && computed && !allow_change)
        rc =
            err_set(e, E_MODEL,
                    "%s was begun with other settings: %s; --allow-model-change goes on with these",
                    db_path(db), hard.data);
    if (!rc) rc = store_settings(db, list, n, hard.len > 0, e);
    if (!rc && changed && all.len && computed) rc = buf_add(changed, all.data, all.len, e);
    buf_free(&hard);
    buf_free(&all);
    return rc;
}

enum status run_begin(struct db *db, const struct run_info *r, int64_t *id, struct err *e)
{
    db_point(db, "begin:commit");
    enum status rc = db_run(db, e,
                            "INSERT INTO runs(worker, model, model_sha256, settings, machine, "
                            "started_at, updated_at) "
                            "VALUES(?1, ?2, ?3, ?4, ?5, unixepoch(), unixepoch())",
                            "sssss", r->worker, r->model, r->model_sha256, r->settings, r->machine);
    *id = db_last_id(db);
    db_point(db, "begin:done");
    return rc;
}

enum status run_update(struct db *db, int64_t id, const struct run_counts *c, int exit_code,
                       struct err *e)
{
    db_point(db, "counts:commit");
    enum status rc =
        db_run(db, e,
               "UPDATE runs SET updated_at=unixepoch(), done=?2, failed=?3, prompt_rows=?4, "
               "completion_tokens=?5, sweeps=?6, bytes_read=?7, seconds=?8, "
               "exit_code=nullif(?9, -1), ended_at=CASE WHEN ?9<0 THEN NULL ELSE unixepoch() END "
               "WHERE id=?1",
               "iiiiiiidi", id, (int64_t)c->done, (int64_t)c->failed, (int64_t)c->prompt_rows,
               (int64_t)c->completion_tokens, (int64_t)c->sweeps, (int64_t)c->bytes_read,
               c->seconds, (int64_t)exit_code);
    db_point(db, "counts:done");
    return rc;
}
