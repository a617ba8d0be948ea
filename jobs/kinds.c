/* One row a kind. */
#include "jobs/kinds.h"

#include <stdlib.h>

enum status kinds_load(struct db *db, const char *model_sha256, struct affinity *a, struct err *e)
{
    sqlite3_stmt *s;
    bool row = true;
    enum status rc =
        db_stmt(db, &s, "SELECT record FROM expert_use WHERE model_sha256=?1 ORDER BY kind", e);
    if (!rc) rc = db_bind(db, s, e, "s", model_sha256);
    while (!rc) {
        rc = db_step(db, s, &row, e);
        if (rc || !row) break;
        affinity_read(a, sqlite3_column_blob(s, 0), (size_t)sqlite3_column_bytes(s, 0));
    }
    return rc;
}

enum status kinds_store(struct db *db, const char *model_sha256, const struct affinity *a,
                        const struct config *c, struct err *e)
{
    size_t bytes = affinity_record_bytes(c);
    void *record = malloc(bytes);
    if (!record) return err_set(e, E_NOMEM, "kinds of prompts: no memory");
    enum status rc = db_begin(db, "kinds", e);
    if (!rc) rc = db_run(db, e, "DELETE FROM expert_use", "");
    for (unsigned k = 0; k < affinity_kinds(a) && !rc; k++) {
        affinity_write(a, k, record);
        rc = db_run(db, e, "INSERT INTO expert_use(kind, model_sha256, record) VALUES(?1, ?2, ?3)",
                    "isb", (int64_t)k, model_sha256, record, bytes);
    }
    if (!rc) rc = db_commit(db, e);
    if (rc) db_rollback(db);
    free(record);
    return rc;
}
