/* schema: queue files of every earlier version are brought up to date and gone on with. */
#include "jobs/schema.h"

#include "jobs/verify.h"
#include "tests/lib/jobs.h"
#include "tests/lib/night.h"
#include "tests/lib/test.h"

static struct err e;

/* The file as that version left it: from its dump. */
static struct db *old_file(int version)
{
    static int n;
    char path[64], name[24];
    struct db *db = NULL;
    snprintf(path, sizeof path, "tests/golden/schema/%d.sql", version);
    snprintf(name, sizeof name, "old%d.db", n++);
    char *sql = test_read(path, NULL);
    if (sql && (db_open(&db, test_path(name), &(struct db_opts){.busy_ms = 50}, &e) ||
                db_exec(db, sql, &e)))
        test_failed(__FILE__, __LINE__, "%s", e.text);
    free(sql);
    return db;
}

static void keep_first(void *user, const char *what)
{
    (void)user;
    test_failed(__FILE__, __LINE__, "%s", what);
}

/* Names and texts of all tables, indexes and views. */
static char *shape(struct db *db)
{
    sqlite3_stmt *s;
    bool row = false;
    char *text = NULL;
    if (db_stmt(db, &s,
                "SELECT group_concat(name || ' ' || coalesce(sql, ''), char(10)) FROM (SELECT * "
                "FROM sqlite_schema ORDER BY name)",
                &e) ||
        db_step(db, s, &row, &e) || db_text(db, s, 0, &text, NULL, &e))
        test_failed(__FILE__, __LINE__, "%s", e.text);
    sqlite3_reset(s);
    return text;
}

/* A migrated file has the tables of a new one. */
TEST(same_tables_as_new)
{
    struct db *fresh = jobs_open("new.db", NULL);
    CHECK(fresh);
    char *want = shape(fresh);
    db_close(fresh);
    for (int v = 1; v < SCHEMA_VERSION; v++) {
        struct db *db = old_file(v);
        CHECK(db);
        CHECK_INT(jobs_int(db, "PRAGMA user_version"), v);
        CHECK_ERR(schema_check(db, &e), E_DB, e, "not a queue file of version");
        CHECK_OK(schema_apply(db, &e), e);
        CHECK_OK(schema_check(db, &e), e);
        char *have = shape(db);
        CHECK_STR(have, want);
        free(have);
        db_close(db);
    }
    free(want);
}

/* The jobs of an old file are there, answered ones keep their answer, and the rest is worked. */
TEST(old_queue_goes_on)
{
    for (int v = 1; v < SCHEMA_VERSION; v++) {
        struct night n;
        uint64_t found;
        CHECK(night_begin(&n));
        n.db = n.o.db = old_file(v);
        CHECK(n.db);
        CHECK_OK(schema_apply(n.db, &e), e);
        CHECK_OK(verify_queue(n.db, keep_first, NULL, &found, &e), e);
        CHECK_OK(night_run(&n, &e), e);
        CHECK_INT(n.report.done, 2);
        CHECK_INT(jobs_int(n.db, "SELECT count(*) FROM jobs WHERE state='done'"), 3);
        CHECK_INT(jobs_int(n.db, "SELECT count(*) FROM failures"), 3);
        CHECK_INT(jobs_int(n.db, "SELECT content='5' FROM answers WHERE custom_id='done'"), 1);
        /* The tokens of the job that was under way. */
        CHECK_INT(jobs_int(n.db, "SELECT content LIKE 'AB%' FROM answers WHERE custom_id='begun'"),
                  1);
        CHECK_OK(verify_queue(n.db, keep_first, NULL, &found, &e), e);
        night_close(&n);
    }
}

/* A migration that is cut off leaves the old version as it was. */
TEST(all_or_nothing)
{
    struct db *db = old_file(1);
    CHECK(db);
    CHECK_OK(db_exec(db, "CREATE TABLE expert_use(in_the_way)", &e), e);
    char *before = shape(db);
    CHECK(schema_apply(db, &e) != OK);
    CHECK_INT(jobs_int(db, "PRAGMA user_version"), 1);
    char *after = shape(db);
    CHECK_STR(after, before);
    free(before);
    free(after);
    db_close(db);
}

TEST_MAIN
