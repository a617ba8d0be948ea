/* A queue copied page by page through SQLite's online backup.
 *
 * All pages are read under one lock, so that the copy is one state of the queue; writers wait that
 * long, readers do not. Nothing is synced before the end, which keeps the wait to the time that
 * reading takes: the copy becomes durable when it is published. */
#include "jobs/backup.h"

#include "jobs/verify.h"
#include "src/os.h"

#include <stdio.h>

static void keep_first(void *user, const char *what)
{
    char *first = user;
    if (!*first) snprintf(first, ERR_TEXT_BYTES / 2, "%s", what);
}

static enum status copy(struct db *db, const char *path, struct err *e)
{
    char first[ERR_TEXT_BYTES / 2] = "";
    struct db *to;
    uint64_t n = 0;
    enum status rc = db_open(&to, path, &(struct db_opts){.must_exist = true}, e);
    if (rc) return rc;
    rc = db_exec(to, "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF", e);
    if (!rc) rc = db_copy(db, to, e);
    if (!rc) rc = verify_file(to, keep_first, first, &n, e);
    if (!rc && n) rc = err_set(e, E_DB, "the copy of %s is damaged: %s", db_path(db), first);
    db_close(to);
    return rc;
}

enum status backup_queue(struct db *db, const char *path, struct err *e)
{
    struct os_publish p;
    if (os_exists(path))
        return err_set(e, E_USAGE, "%s is there already; a backup replaces nothing", path);
    enum status rc = os_publish_begin(&p, path, e);
    if (rc) return rc;
    rc = copy(db, p.tmp, e);
    db_point(db, "backup:commit");
    if (rc)
        os_publish_abort(&p);
    else
        rc = os_publish_commit(&p, e);
    if (!rc) db_point(db, "backup:done");
    return rc;
}
