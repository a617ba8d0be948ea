/* Sidecars. A temporary table of the names finds those that two answers would share; it is the
 * connection's own and touches the queue file in no way. */
#include "jobs/export_txt.h"

#include "src/os.h"

#include <stdlib.h>
#include <string.h>

#define MOST_BYTES (64u << 20)

/* The picture's path with the end of its name replaced. */
static enum status sidecar(struct buf *b, const char *path, struct err *e)
{
    const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
    size_t n = dot && dot > (slash ? slash + 1 : path) ? (size_t)(dot - path) : strlen(path);
    b->len = 0;
    enum status rc = buf_add(b, path, n, e);
    return rc ? rc : buf_addf(b, e, ".txt");
}

static enum status note(struct db *db, int64_t job, const char *path, const char *target,
                        struct err *e)
{
    enum status rc = db_run(db, e,
                            "INSERT OR IGNORE INTO temp.sidecars(target, job, path) "
                            "VALUES(?1, ?2, ?3)",
                            "sis", target, job, path);
    if (rc || db_changes(db)) return rc;
    return err_set(e, E_USAGE, "%s would hold the answers of two jobs, one of them about %s",
                   target, path);
}

static enum status note_all(struct db *db, struct err *e)
{
    sqlite3_stmt *s;
    bool row = true;
    struct buf target = {0};
    enum status rc =
        db_exec(db,
                "DROP TABLE IF EXISTS temp.sidecars; "
                "CREATE TEMP TABLE sidecars(job INTEGER PRIMARY KEY, target TEXT UNIQUE, "
                "path TEXT)",
                e);
    if (!rc)
        rc = db_stmt(db, &s,
                     "SELECT m.job_id, m.path FROM job_images m JOIN results r ON "
                     "r.job_id=m.job_id JOIN jobs j ON j.id=m.job_id WHERE j.line>0 AND "
                     "r.code IS NULL AND m.n=0 AND m.path IS NOT NULL",
                     e);
    while (!rc) {
        rc = db_step(db, s, &row, e);
        if (rc || !row) break;
        const char *path = (const char *)sqlite3_column_text(s, 1);
        rc = sidecar(&target, path, e);
        if (!rc) rc = note(db, sqlite3_column_int64(s, 0), path, target.data, e);
        if (rc) sqlite3_reset(s);
    }
    buf_free(&target);
    return rc;
}

/* What the file is to hold: the answer, joined with what is there. *skip: leave it alone. */
static enum status combine(struct buf *b, const char *target, enum export_existing existing,
                           bool *skip, struct err *e)
{
    char *old = NULL;
    size_t len = 0;
    *skip = false;
    if (!os_exists(target)) return OK;
    enum status rc = os_read_file(target, MOST_BYTES, &old, &len, e);
    if (rc) return rc;
    bool same = len == b->len && !memcmp(old, b->data, len);
    /* An answer that was joined before is not joined again. */
    bool has = same ||
               (len >= b->len && existing == EXPORT_APPEND &&
                !memcmp(old + len - b->len, b->data, b->len)) ||
               (len >= b->len && existing == EXPORT_PREPEND && !memcmp(old, b->data, b->len));
    if (has || existing == EXPORT_SKIP) {
        *skip = true;
    } else if (existing == EXPORT_ERROR) {
        rc = err_set(e, E_USAGE,
                     "%s is there already and holds something else; --on-existing "
                     "skip|overwrite|append|prepend",
                     target);
    } else if (existing == EXPORT_PREPEND) {
        rc = buf_add(b, old, len, e);
    } else if (existing == EXPORT_APPEND) {
        struct buf joined = {0};
        rc = buf_add(&joined, old, len, e);
        if (!rc && len && old[len - 1] != '\n') rc = buf_add(&joined, "\n", 1, e);
        if (!rc) rc = buf_add(&joined, b->data, b->len, e);
        buf_free(b);
        *b = joined;
    }
    free(old);
    return rc;
}

static enum status write_one(const char *target, struct buf *b, enum export_existing existing,
                             struct err *e)
{
    struct os_publish p;
    bool skip = false;
    enum status rc = OK;
    if (b->len == 0 || b->data[b->len - 1] != '\n') rc = buf_add(b, "\n", 1, e);
    if (!rc) rc = combine(b, target, existing, &skip, e);
    if (rc || skip) return rc;
    rc = os_publish_begin(&p, target, e);
    if (rc) return rc;
    os_publish_write(&p, b->data, b->len);
    return os_publish_commit(&p, e);
}

/* The next one after *job, copied, so that no read stays open while files are written. */
static enum status next(struct db *db, int64_t *job, char **target, struct buf *content,
                        struct err *e)
{
    sqlite3_stmt *s;
    bool row = false;
    *target = NULL;
    content->len = 0;
    enum status rc = db_stmt(db, &s,
                             "SELECT t.job, t.target, r.content FROM temp.sidecars t JOIN results "
                             "r ON r.job_id=t.job WHERE t.job>?1 ORDER BY t.job LIMIT 1",
                             e);
    if (!rc) rc = db_bind(db, s, e, "i", *job);
    if (!rc) rc = db_step(db, s, &row, e);
    if (rc || !row) return rc;
    *job = sqlite3_column_int64(s, 0);
    rc = db_text(db, s, 1, target, NULL, e);
    if (!rc)
        rc = buf_add(content, sqlite3_column_text(s, 2), (size_t)sqlite3_column_bytes(s, 2), e);
    sqlite3_reset(s);
    return rc;
}

enum status export_txt(struct db *db, enum export_existing existing, struct export_counts *out,
                       struct err *e)
{
    struct buf content = {0};
    char *target = NULL;
    int64_t job = 0;
    *out = (struct export_counts){0};
    enum status rc = note_all(db, e);
    while (!rc) {
        rc = next(db, &job, &target, &content, e);
        if (rc || !target) break;
        rc = write_one(target, &content, existing, e);
        out->answers += !rc;
        free(target);
        target = NULL;
    }
    free(target);
    buf_free(&content);
    return rc;
}
