/* db and schema: opening, transactions, errors of SQLite as ours. */
#include "jobs/schema.h"
#include "tests/lib/test.h"

#include <unistd.h>

static struct db *open_new(const char *name)
{
    struct err e;
    struct db *db = NULL;
    if (db_open(&db, test_path(name), &(struct db_opts){.busy_ms = 50}, &e))
        test_failed(__FILE__, __LINE__, "%s", e.text);
    return db;
}

/* The journal is a rollback journal, and a commit waits for the folder too. */
TEST(durable_by_default)
{
    struct err e;
    int64_t v;
    struct db *db = open_new("durable.db");
    CHECK_OK(db_int(db, &v, -1, &e, "PRAGMA synchronous", ""), e);
    CHECK_INT(v, 3);
    sqlite3_stmt *s;
    bool row;
    CHECK_OK(db_stmt(db, &s, "PRAGMA journal_mode", &e), e);
    CHECK_OK(db_step(db, s, &row, &e), e);
    CHECK_STR((const char *)sqlite3_column_text(s, 0), "truncate");
    db_close(db);
}

/* WAL is refused for every version with the reset bug, and only for those. */
TEST(wal_only_where_safe)
{
    CHECK(!db_wal_safe(3040001));
    CHECK(!db_wal_safe(3044005));
    CHECK(db_wal_safe(3044006));
    CHECK(!db_wal_safe(3045000));
    CHECK(!db_wal_safe(3050006));
    CHECK(db_wal_safe(3050007));
    CHECK(!db_wal_safe(3051000));
    CHECK(!db_wal_safe(3051002));
    CHECK(db_wal_safe(3051003));
    CHECK(db_wal_safe(3060000));
    struct err e;
    struct db *db;
    enum status rc = db_open(&db, test_path("wal.db"), &(struct db_opts){.wal = true}, &e);
    CHECK_INT(rc, db_wal_safe(sqlite3_libversion_number()) ? OK : E_USAGE);
    db_close(db);
}

/* A file that is no database is E_DB, one that is missing E_IO; neither is made or changed. */
TEST(foreign_files)
{
    struct err e;
    struct db *db;
    const char *path = test_path("text.db");
    test_write(path,
               "this is a long text and surely no database at all, not even nearly one. "
               "More than a hundred bytes are wanted.",
               100);
    CHECK_ERR(db_open(&db, path, &(struct db_opts){0}, &e), E_DB, e, path);
    CHECK(db == NULL);
    path = test_path("missing.db");
    CHECK_ERR(db_open(&db, path, &(struct db_opts){.must_exist = true}, &e), E_IO, e, path);
    CHECK(access(path, F_OK) != 0);
}

/* What was committed stays, what was rolled back never was. */
TEST(commit_and_rollback)
{
    struct err e;
    int64_t n;
    struct db *db = open_new("commit.db");
    CHECK_OK(db_exec(db, "CREATE TABLE t(a INTEGER, b TEXT, c BLOB) STRICT", &e), e);
    CHECK_OK(db_begin(db, "one", &e), e);
    CHECK_OK(db_run(db, &e, "INSERT INTO t VALUES(?1,?2,?3)", "itb", (int64_t)1, "a\0b", (size_t)3,
                    "xyz", (size_t)3),
             e);
    CHECK_INT(db_changes(db), 1);
    CHECK_OK(db_commit(db, &e), e);
    CHECK_OK(db_begin(db, "two", &e), e);
    CHECK_OK(db_run(db, &e, "INSERT INTO t VALUES(?1,?2,?3)", "isn", (int64_t)2, NULL), e);
    db_rollback(db);
    CHECK_OK(db_int(db, &n, 0, &e, "SELECT count(*) FROM t", ""), e);
    CHECK_INT(n, 1);
    sqlite3_stmt *s;
    bool row;
    char *text;
    size_t len;
    CHECK_OK(db_stmt(db, &s, "SELECT b FROM t", &e), e);
    CHECK_OK(db_step(db, s, &row, &e), e);
    CHECK_OK(db_text(db, s, 0, &text, &len, &e), e);
    CHECK_INT(len, 3);
    CHECK(!memcmp(text, "a\0b", 4));
    free(text);
    db_close(db);
}

/* A second writer waits its time and then is told that the file is locked, by what. */
TEST(second_writer_is_locked_out)
{
    struct err e;
    struct db *a = open_new("two.db"), *b = open_new("two.db");
    CHECK_OK(db_begin(a, "first", &e), e);
    CHECK_ERR(db_begin(b, "second", &e), E_LOCKED, e, "second");
    db_rollback(a);
    CHECK_OK(db_begin(b, "second", &e), e);
    db_rollback(b);
    db_close(a);
    db_close(b);
}

struct reader {
    struct db *db;
    sqlite3_stmt *s;
    int calls, most; /* calls of wait; then it gives up */
};

/* The reader leaves at the third call. */
static bool wait_for_reader(void *user, double waited_s)
{
    struct reader *r = user;
    if (r->calls == 0 && waited_s > 0) r->most = 0;
    if (++r->calls == 3) sqlite3_reset(r->s);
    return r->calls < r->most;
}

static void open_reader(struct reader *r, const char *name)
{
    struct err e;
    bool row = false;
    r->db = open_new(name);
    if (db_exec(r->db, "CREATE TABLE IF NOT EXISTS t(a); INSERT INTO t VALUES(1),(2)", &e) ||
        db_stmt(r->db, &r->s, "SELECT a FROM t", &e) || db_step(r->db, r->s, &row, &e) || !row)
        test_failed(__FILE__, __LINE__, "no reader");
}

/* A commit waits for a reader as long as the connection's owner wants. */
TEST(waits_for_a_reader)
{
    struct err e;
    struct db *db;
    struct reader r = {.most = 10};
    struct db_opts o = {.busy_ms = 1, .wait = wait_for_reader, .wait_user = &r};
    CHECK_OK(db_open(&db, test_path("reader.db"), &o, &e), e);
    open_reader(&r, "reader.db");
    CHECK_OK(db_begin(db, "write", &e), e);
    CHECK_OK(db_exec(db, "INSERT INTO t VALUES(3)", &e), e);
    CHECK_INT(r.calls, 0);
    CHECK_OK(db_commit(db, &e), e);
    CHECK_INT(r.calls, 3);
    db_close(r.db);
    db_close(db);
}

/* When the owner gives up it is a stop, and nothing waits from then on; what needs no wait works.
 */
TEST(gives_up_when_told)
{
    struct err e;
    struct db *db;
    struct reader r = {.most = 2};
    struct db_opts o = {.wait = wait_for_reader, .wait_user = &r};
    CHECK_OK(db_open(&db, test_path("stop.db"), &o, &e), e);
    open_reader(&r, "stop.db");
    for (int i = 0; i < 2; i++) {
        CHECK_OK(db_begin(db, "write", &e), e);
        CHECK_OK(db_exec(db, "INSERT INTO t VALUES(3)", &e), e);
        CHECK_ERR(db_commit(db, &e), E_STOPPED, e, "another program");
        CHECK_INT(r.calls, 2);
        db_rollback(db);
    }
    sqlite3_reset(r.s);
    CHECK_OK(db_exec(db, "INSERT INTO t VALUES(3)", &e), e);
    db_close(r.db);
    db_close(db);
}

static void count_point(void *user, const char *name)
{
    char *seen = user;
    strcat(seen, name);
    strcat(seen, " ");
}

/* The points before and after a commit are reported in order. */
TEST(commit_points)
{
    struct err e;
    char seen[200] = "";
    struct db *db;
    struct db_opts o = {.point = count_point, .point_user = seen};
    CHECK_OK(db_open(&db, test_path("points.db"), &o, &e), e);
    CHECK_OK(db_begin(db, "result", &e), e);
    CHECK_OK(db_commit(db, &e), e);
    CHECK_STR(seen, "result:commit result:done ");
    db_close(db);
}

/* Every table is STRICT, the file carries its identity, and applying the schema twice is once. */
TEST(schema_is_strict_and_marked)
{
    struct err e;
    int64_t v;
    struct db *db = open_new("schema.db");
    CHECK_ERR(schema_check(db, &e), E_DB, e, "not a queue file");
    CHECK_OK(schema_apply(db, &e), e);
    CHECK_OK(schema_apply(db, &e), e);
    CHECK_OK(schema_check(db, &e), e);
    CHECK_OK(db_int(db, &v, 0, &e, "PRAGMA application_id", ""), e);
    CHECK_INT(v, SCHEMA_APPLICATION_ID);
    CHECK_OK(db_int(db, &v, 0, &e, "PRAGMA user_version", ""), e);
    CHECK_INT(v, SCHEMA_VERSION);
    CHECK_OK(db_int(db, &v, 0, &e,
                    "SELECT count(*) FROM pragma_table_list WHERE type='table' AND NOT strict AND "
                    "name NOT LIKE 'sqlite%'",
                    ""),
             e);
    CHECK_INT(v, 0);
    CHECK(db_exec(db, "INSERT INTO settings VALUES('a', x'00')", &e) != OK);
    db_close(db);
}

/* Every view of the schema can be queried. */
TEST(views_work)
{
    struct err e;
    struct db *db = open_new("views.db");
    CHECK_OK(schema_apply(db, &e), e);
    sqlite3_stmt *s;
    bool row;
    char *name;
    CHECK_OK(db_stmt(db, &s, "SELECT name FROM sqlite_schema WHERE type='view'", &e), e);
    int n = 0;
    for (;;) {
        CHECK_OK(db_step(db, s, &row, &e), e);
        if (!row) break;
        CHECK_OK(db_text(db, s, 0, &name, NULL, &e), e);
        char sql[200];
        snprintf(sql, sizeof sql, "SELECT * FROM %s", name);
        free(name);
        CHECK_OK(db_exec(db, sql, &e), e);
        n++;
    }
    CHECK(n >= 5);
    db_close(db);
}

/* Another program's database and a queue of a later version are refused and left alone. */
TEST(schema_refuses_strangers)
{
    struct err e;
    struct db *db = open_new("other.db");
    CHECK_OK(db_exec(db, "CREATE TABLE theirs(a)", &e), e);
    CHECK_ERR(schema_apply(db, &e), E_DB, e, "another program");
    db_close(db);
    db = open_new("later.db");
    CHECK_OK(schema_apply(db, &e), e);
    CHECK_OK(db_exec(db, "PRAGMA user_version=99", &e), e);
    CHECK_ERR(schema_apply(db, &e), E_DB, e, "version 99");
    db_close(db);
}

TEST_MAIN
