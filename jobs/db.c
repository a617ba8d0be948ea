/* SQLite behind one small face.
 *
 * Statements are prepared once per connection and kept in a list keyed by the address of their
 * text; a job uses a dozen of them. SQLite's result codes become ours by whose fault they are:
 * full disk and I/O errors are the machine's, a damaged or foreign file is the database's. */
#include "jobs/db.h"

#include "src/os.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_STATEMENTS 96
#define WAIT_STEP_MS   5 /* each pause of a wait is longer than the last by this */
#define WAIT_MOST_MS   100

struct db {
    sqlite3 *h;
    char *path;
    struct db_opts opts;
    const char *what; /* the open transaction, or NULL */
    double wait_began;
    bool gave_up; /* opts.wait said so */
    size_t n;
    struct {
        const char *sql;
        sqlite3_stmt *stmt;
    } cache[MAX_STATEMENTS];
};

static enum status status_of(int code)
{
    if (code == SQLITE_IOERR_NOMEM) return E_NOMEM;
    switch (code & 0xff) {
    case SQLITE_FULL:
        return E_NOSPACE;
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
        return E_IO;
    case SQLITE_NOMEM:
        return E_NOMEM;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_FORMAT:
        return E_DB;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return E_LOCKED;
    default:
        return E_INTERNAL;
    }
}

static bool disk_fault(int errnum)
{
    return errnum == EIO || errnum == ENXIO;
}

/* SQLite calls a file damaged when the disk does not give one of its pages. last: errno, for a
 * journal, which is closed by then. */
static bool unreadable(struct db *db, int last)
{
    int errnum = 0;
    sqlite3_file_control(db->h, "main", SQLITE_FCNTL_LAST_ERRNO, &errnum);
    return disk_fault(errnum) || disk_fault(last);
}

static enum status fail(struct db *db, int code, const char *doing, struct err *e)
{
    int last = errno, ext = sqlite3_extended_errcode(db->h);
    if ((ext & 0xff) != (code & 0xff)) ext = code;
    enum status rc = status_of(ext);
    if (rc == E_LOCKED && db->gave_up)
        return err_set(e, E_STOPPED, "%s: stopped while another program uses it", db->path);
    int os = sqlite3_system_errno(db->h);
    if (rc == E_DB && unreadable(db, last))
        return err_set(e, E_IO, "%s: cannot be read: %s (SQLite %d)", db->path, doing, ext);
    if (rc == E_IO && (os == ENOSPC || os == EDQUOT)) rc = E_NOSPACE;
    return err_set(e, rc, "%s: %s%s%s: %s (SQLite %d)", db->path, db->what ? db->what : "",
                   db->what ? ": " : "", doing, sqlite3_errmsg(db->h), ext);
}

bool db_wal_safe(int version)
{
    return version >= 3051003 || (version >= 3050007 && version < 3051000) ||
           (version >= 3044006 && version < 3045000);
}

static enum status pragmas(struct db *db, struct err *e)
{
    if (db->opts.wal) {
        if (!db_wal_safe(sqlite3_libversion_number()))
            return err_set(e, E_USAGE,
                           "WAL is not safe with SQLite %s (3.51.3 or later is); leave it off",
                           sqlite3_libversion());
        if (os_is_remote(db->path))
            return err_set(e, E_USAGE, "%s is on a network file system, where WAL is not safe",
                           db->path);
        return db_exec(db, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL", e);
    }
    return db_exec(db, "PRAGMA journal_mode=TRUNCATE; PRAGMA synchronous=EXTRA", e);
}

/* Of SQLite, about a lock that was refused for the (n+1)-th time; 0: give up. */
static int on_busy(void *user, int n)
{
    struct db *db = user;
    double now = os_now();
    if (n == 0) db->wait_began = now;
    if (!db->gave_up) db->gave_up = !db->opts.wait(db->opts.wait_user, now - db->wait_began);
    if (db->gave_up) return 0;
    long ms = n < WAIT_MOST_MS / WAIT_STEP_MS ? 1 + n * WAIT_STEP_MS : WAIT_MOST_MS;
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
    return 1;
}

enum status db_open(struct db **out, const char *path, const struct db_opts *o, struct err *e)
{
    *out = NULL;
    struct db *db = calloc(1, sizeof *db);
    if (!db) return err_set(e, E_NOMEM, "%s: no memory", path);
    db->opts = *o;
    db->path = strdup(path);
    int flags = SQLITE_OPEN_READWRITE | (o->must_exist ? 0 : SQLITE_OPEN_CREATE);
    int code = db->path ? sqlite3_open_v2(path, &db->h, flags, o->vfs) : SQLITE_NOMEM;
    enum status rc = OK;
    if (!db->path || !db->h) {
        rc = err_set(e, E_NOMEM, "%s: no memory", path);
    } else if (code) {
        rc = fail(db, code, "open", e);
    } else {
        sqlite3_extended_result_codes(db->h, 1);
        if (o->wait)
            sqlite3_busy_handler(db->h, on_busy, db);
        else
            sqlite3_busy_timeout(db->h, o->busy_ms ? o->busy_ms : 60000);
        rc = db_exec(
            db, "PRAGMA foreign_keys=ON; PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON", e);
        /* The first read of the file: here a file that is no database shows itself. */
        if (!rc) rc = db_exec(db, "SELECT count(*) FROM sqlite_schema", e);
        if (!rc) rc = pragmas(db, e);
    }
    if (rc)
        db_close(db);
    else
        *out = db;
    return rc;
}

void db_close(struct db *db)
{
    if (!db) return;
    for (size_t i = 0; i < db->n; i++) sqlite3_finalize(db->cache[i].stmt);
    sqlite3_close(db->h);
    free(db->path);
    free(db);
}

const char *db_path(const struct db *db)
{
    return db->path;
}

void db_point(struct db *db, const char *name)
{
    if (db->opts.point) db->opts.point(db->opts.point_user, name);
}

static void point(struct db *db, const char *what, const char *step)
{
    char name[64];
    if (!db->opts.point) return;
    snprintf(name, sizeof name, "%s:%s", what, step);
    db_point(db, name);
}

enum status db_begin(struct db *db, const char *what, struct err *e)
{
    assert(!db->what);
    enum status rc = db_exec(db, "BEGIN IMMEDIATE", e);
    if (rc)
        err_wrap(e, "%s", what);
    else
        db->what = what;
    return rc;
}

enum status db_commit(struct db *db, struct err *e)
{
    assert(db->what);
    const char *what = db->what;
    point(db, what, "commit");
    enum status rc = db_exec(db, "COMMIT", e);
    if (rc) return rc;
    db->what = NULL;
    point(db, what, "done");
    return OK;
}

void db_rollback(struct db *db)
{
    db->what = NULL;
    if (sqlite3_get_autocommit(db->h)) return;
    /* A statement still under way would keep the transaction's locks. */
    for (size_t i = 0; i < db->n; i++) sqlite3_reset(db->cache[i].stmt);
    sqlite3_exec(db->h, "ROLLBACK", NULL, NULL, NULL);
}

enum status db_exec(struct db *db, const char *sql, struct err *e)
{
    int code = sqlite3_exec(db->h, sql, NULL, NULL, NULL);
    if (!code) return OK;
    char doing[48];
    snprintf(doing, sizeof doing, "%.47s", sql);
    return fail(db, code, doing, e);
}

enum status db_stmt(struct db *db, sqlite3_stmt **out, const char *sql, struct err *e)
{
    *out = NULL;
    for (size_t i = 0; i < db->n; i++)
        if (db->cache[i].sql == sql) {
            *out = db->cache[i].stmt;
            sqlite3_reset(*out);
            sqlite3_clear_bindings(*out);
            return OK;
        }
    if (db->n == MAX_STATEMENTS) return err_set(e, E_INTERNAL, "statement cache is full");
    int code =
        sqlite3_prepare_v3(db->h, sql, -1, SQLITE_PREPARE_PERSISTENT, &db->cache[db->n].stmt, NULL);
    if (code) return fail(db, code, sql, e);
    db->cache[db->n].sql = sql;
    *out = db->cache[db->n++].stmt;
    return OK;
}

static int bind_one(sqlite3_stmt *s, int i, char type, va_list *ap)
{
    switch (type) {
    case 'i':
        return sqlite3_bind_int64(s, i, va_arg(*ap, int64_t));
    case 'd':
        return sqlite3_bind_double(s, i, va_arg(*ap, double));
    case 's':
        return sqlite3_bind_text(s, i, va_arg(*ap, const char *), -1, SQLITE_STATIC);
    case 'n':
        return sqlite3_bind_null(s, i);
    case 't':
    case 'b': {
        const void *p = va_arg(*ap, const void *);
        size_t len = va_arg(*ap, size_t);
        return type == 't' ? sqlite3_bind_text64(s, i, p, len, SQLITE_STATIC, SQLITE_UTF8)
                           : sqlite3_bind_blob64(s, i, p, len, SQLITE_STATIC);
    }
    }
    return SQLITE_MISUSE;
}

static enum status bind_all(struct db *db, sqlite3_stmt *s, struct err *e, const char *types,
                            va_list *ap)
{
    int code = SQLITE_OK;
    for (int i = 0; types[i] && !code; i++) code = bind_one(s, i + 1, types[i], ap);
    return code ? fail(db, code, "bind", e) : OK;
}

enum status db_bind(struct db *db, sqlite3_stmt *s, struct err *e, const char *types, ...)
{
    va_list ap;
    va_start(ap, types);
    enum status rc = bind_all(db, s, e, types, &ap);
    va_end(ap);
    return rc;
}

enum status db_step(struct db *db, sqlite3_stmt *s, bool *row, struct err *e)
{
    int code = sqlite3_step(s);
    *row = code == SQLITE_ROW;
    if (*row) return OK;
    enum status rc = code == SQLITE_DONE ? OK : fail(db, code, sqlite3_sql(s), e);
    sqlite3_reset(s);
    return rc;
}

static enum status run(struct db *db, struct err *e, sqlite3_stmt **s, const char *sql,
                       const char *types, va_list *ap)
{
    enum status rc = db_stmt(db, s, sql, e);
    return rc ? rc : bind_all(db, *s, e, types, ap);
}

enum status db_run(struct db *db, struct err *e, const char *sql, const char *types, ...)
{
    sqlite3_stmt *s;
    va_list ap;
    va_start(ap, types);
    enum status rc = run(db, e, &s, sql, types, &ap);
    va_end(ap);
    bool row = true;
    while (!rc && row) rc = db_step(db, s, &row, e);
    return rc;
}

enum status db_int(struct db *db, int64_t *out, int64_t none, struct err *e, const char *sql,
                   const char *types, ...)
{
    sqlite3_stmt *s;
    *out = none;
    va_list ap;
    va_start(ap, types);
    enum status rc = run(db, e, &s, sql, types, &ap);
    va_end(ap);
    bool row = false;
    if (!rc) rc = db_step(db, s, &row, e);
    if (!rc && row && sqlite3_column_type(s, 0) != SQLITE_NULL) *out = sqlite3_column_int64(s, 0);
    if (!rc && row) sqlite3_reset(s);
    return rc;
}

enum status db_copy(struct db *from, struct db *to, struct err *e)
{
    sqlite3_backup *b = sqlite3_backup_init(to->h, "main", from->h, "main");
    if (!b) return fail(to, sqlite3_errcode(to->h), "copy", e);
    int step = sqlite3_backup_step(b, -1), code = sqlite3_backup_finish(b);
    if (step == SQLITE_DONE && !code) return OK;
    return fail(to, code ? code : step, "copy", e);
}

int64_t db_changes(const struct db *db)
{
    return sqlite3_changes64(db->h);
}

int64_t db_last_id(const struct db *db)
{
    return sqlite3_last_insert_rowid(db->h);
}

enum status db_text(struct db *db, sqlite3_stmt *s, int column, char **out, size_t *len,
                    struct err *e)
{
    *out = NULL;
    if (len) *len = 0;
    if (sqlite3_column_type(s, column) == SQLITE_NULL) return OK;
    const void *text = sqlite3_column_blob(s, column);
    size_t n = (size_t)sqlite3_column_bytes(s, column);
    char *p = text || !n ? malloc(n + 1) : NULL;
    if (!p) return err_set(e, E_NOMEM, "%s: no memory for %zu bytes of text", db->path, n);
    if (n) memcpy(p, text, n);
    p[n] = 0;
    *out = p;
    if (len) *len = n;
    return OK;
}
