/* One row for each machine and model. A copy of a queue file on another machine measures anew. */
#include "jobs/speeds.h"

#include "src/os.h"

enum status speeds_get(struct db *db, const char *key, char **value, struct err *e)
{
    sqlite3_stmt *s;
    bool row = false;
    *value = NULL;
    enum status rc = db_stmt(db, &s, "SELECT value FROM speeds WHERE machine=?1", e);
    if (!rc) rc = db_bind(db, s, e, "s", key);
    if (!rc) rc = db_step(db, s, &row, e);
    if (row) {
        rc = db_text(db, s, 0, value, NULL, e);
        sqlite3_reset(s);
    }
    return rc;
}

enum status speeds_put(struct db *db, const char *key, const char *value, struct err *e)
{
    enum status rc = db_begin(db, "speeds", e);
    if (rc) return rc;
    rc = db_run(db, e,
                "INSERT INTO speeds(machine, value, measured_at) VALUES (?1, ?2, ?3) ON CONFLICT "
                "(machine) DO UPDATE SET value=excluded.value, measured_at=excluded.measured_at",
                "ssi", key, value, os_unix_time());
    if (!rc) rc = db_commit(db, e);
    if (rc) db_rollback(db);
    return rc;
}
