/* One connection to the SQLite file: opening, transactions, statements, and SQLite's errors as
 * ours.
 *
 * Every writing transaction is BEGIN IMMEDIATE: a deferred one that writes later fails under
 * contention. The rollback journal with synchronous=EXTRA is the default; WAL has to be asked for
 * and is refused where the library has the WAL-reset bug or the file system is remote. A
 * connection belongs to one thread. */
#ifndef NS_DB_H
#define NS_DB_H

#include "src/err.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct db;

struct db_opts {
    bool must_exist; /* do not make a new file */
    bool wal;        /* E_USAGE where it is not safe */
    const char *vfs; /* tests; NULL: the system's */
    int busy_ms;     /* wait this long for other connections; 0: a minute */
    /* Or NULL; called again and again while another connection is in the way, with 0 first: false
     * ends the wait, and every later one, with E_STOPPED. busy_ms does not count then. */
    bool (*wait)(void *user, double waited_s);
    void *wait_user;
    /* Tests: called with a name before and after each commit and rename ("result:commit",
     * "result:done"). */
    void (*point)(void *user, const char *name);
    void *point_user;
};

/* Ends of the names of the files that a database has, its own first. */
#define DB_FILES "", "-journal", "-wal", "-shm"

/* E_DB when the file is no database, E_IO when it cannot be opened. */
enum status db_open(struct db **out, const char *path, const struct db_opts *o, struct err *e);
void db_close(struct db *db);
const char *db_path(const struct db *db);
/* Whether WAL is free of the reset bug in this version of SQLite (its SQLITE_VERSION_NUMBER). */
bool db_wal_safe(int version);

/* what: names the transaction in messages and points; it must outlive it (a literal). */
enum status db_begin(struct db *db, const char *what, struct err *e);
enum status db_commit(struct db *db, struct err *e);
/* Harmless outside a transaction. */
void db_rollback(struct db *db);
void db_point(struct db *db, const char *name);

/* A cached statement, reset and unbound. sql must be a literal: the cache goes by its address. */
enum status db_stmt(struct db *db, sqlite3_stmt **out, const char *sql, struct err *e);
/* Binds ?1, ?2, ... in order by type letter: i int64_t, d double, s const char * (NULL: null),
 * t const char * and size_t, b const void * and size_t, n nothing (null). Text and blobs must live
 * until the statement ends. */
enum status db_bind(struct db *db, sqlite3_stmt *s, struct err *e, const char *types, ...);
/* *row: there is one. At the end, and on an error, the statement is reset. */
enum status db_step(struct db *db, sqlite3_stmt *s, bool *row, struct err *e);
/* Statement, bind, and run to its end. */
enum status db_run(struct db *db, struct err *e, const char *sql, const char *types, ...);
/* The same for one integer: the first column of the first row, or `none` without rows or when null.
 */
enum status db_int(struct db *db, int64_t *out, int64_t none, struct err *e, const char *sql,
                   const char *types, ...);
/* Plain SQL text, several statements. */
enum status db_exec(struct db *db, const char *sql, struct err *e);
/* Replaces all of `to` by one state of `from`; waits for writers of `from` as any read does. */
enum status db_copy(struct db *from, struct db *to, struct err *e);
/* Rows that the last statement changed; id of the last inserted row. */
int64_t db_changes(const struct db *db);
int64_t db_last_id(const struct db *db);

/* A column's text, malloc'ed and NUL-terminated, NULL when null; *len may be NULL. E_NOMEM. */
enum status db_text(struct db *db, sqlite3_stmt *s, int column, char **out, size_t *len,
                    struct err *e);

#endif
