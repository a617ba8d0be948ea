/* The disk or the memory fails at every step of a night in turn: the run says so, the queue stays
 * whole, and the next run ends with the bytes of an undisturbed one. */
#include "jobs/verify.h"
#include "tests/lib/fault_vfs.h"
#include "tests/lib/jobs.h"
#include "tests/lib/night.h"
#include "tests/lib/test.h"

#include <sqlite3.h>
#include <unistd.h>

static const char lines[] = "{\"id\":\"a\",\"prompt\":\"one\",\"max_tokens\":9}\n"
                            "{\"id\":\"b\",\"image\":\"f1\",\"prompt\":\"two\",\"max_tokens\":12}\n"
                            "{\"id\":\"c\",\"prompt\":\"three\",\"temperature\":1}\n"
                            "nonsense\n"
                            "{\"id\":\"d\",\"image\":\"f1\",\"prompt\":\"four\"}\n";

__attribute__((constructor)) static void first_of_all(void)
{
    fault_vfs_register();
}

static void tell(void *user, const char *what)
{
    (void)user;
    test_failed(__FILE__, __LINE__, "%s", what);
}

/* One attempt at the whole night with whatever faults are set; the queue is closed after it. */
static enum status night(const char *name, char **out, struct err *e)
{
    struct night n;
    struct db_opts o = {.vfs = FAULT_VFS, .busy_ms = 50};
    *out = NULL;
    if (!night_begin(&n)) return E_INTERNAL;
    n.o.checkpoint_s = 0;
    n.mem.fail_at = -1;
    enum status rc = db_open(&n.db, test_path(name), &o, e);
    if (!rc) rc = schema_apply(n.db, e);
    if (!rc) rc = night_import(&n, "fault.jsonl", lines, e);
    n.o.db = n.db;
    if (!rc) rc = night_run(&n, e);
    if (!rc) rc = night_export(&n, out, e);
    night_close(&n);
    return rc;
}

static bool whole(const char *name)
{
    struct err e;
    struct db *db;
    uint64_t n = 0;
    struct db_opts o = {.vfs = FAULT_VFS};
    if (db_open(&db, test_path(name), &o, &e)) {
        test_failed(__FILE__, __LINE__, "%s", e.text);
        return false;
    }
    int64_t tables = 0;
    db_int(db, &tables, 0, &e, "SELECT count(*) FROM sqlite_schema", "");
    if (tables && verify_queue(db, tell, NULL, &n, &e))
        test_failed(__FILE__, __LINE__, "%s", e.text);
    db_close(db);
    return n == 0;
}

static void forget(const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s-journal", test_path(name));
    unlink(path);
    unlink(test_path(name));
}

struct trial {
    long *counter; /* of fault_vfs */
    int code;
    bool forever;
};

/* Steps 1, 2, 3, ... and then in growing strides, until nothing fails any more. */
static void fail_each(const struct trial *t, const char *want)
{
    static const char name[] = "fault.db";
    long step = 0;
    for (bool survived = false; !survived; step += 1 + step / 12) {
        struct err e;
        char *out;
        forget(name);
        fault_vfs_reset();
        fault_vfs.code = t->code;
        fault_vfs.forever = t->forever;
        *t->counter = step;
        enum status rc = night(name, &out, &e);
        survived = fault_vfs.failed == 0;
        fault_vfs_reset();
        bool memory = t->counter == &fault_vfs.memory;
        if (rc && (memory ? rc != E_NOMEM : rc != E_NOSPACE && rc != E_IO))
            FAIL("step %ld: %s: %s", step, status_name(rc), e.text);
        if (survived && rc) FAIL("nothing failed, and yet: %s", e.text);
        if (!whole(name)) FAIL("step %ld: the queue is not whole", step);
        free(out);
        if (night(name, &out, &e)) FAIL("step %ld: the next run: %s", step, e.text);
        if (strcmp(out, want) != 0) FAIL("step %ld: %s\nis not\n%s", step, out, want);
        free(out);
    }
    if (step < 100) FAIL("only %ld steps", step);
}

static char *undisturbed(void)
{
    struct err e;
    char *out;
    test_write(test_path("f1"), "picture", 7);
    fault_vfs_reset();
    forget("plain.db");
    if (night("plain.db", &out, &e)) test_failed(__FILE__, __LINE__, "%s", e.text);
    return out;
}

/* The disk is full from some write on. */
TEST(disk_full)
{
    char *want = undisturbed();
    fail_each(&(struct trial){&fault_vfs.disk, SQLITE_FULL, true}, want);
    free(want);
}

/* One write, sync or truncation fails, and the next ones work again. */
TEST(one_disk_error)
{
    char *want = undisturbed();
    fail_each(&(struct trial){&fault_vfs.disk, SQLITE_IOERR_WRITE, false}, want);
    free(want);
}

/* One allocation of SQLite fails. */
TEST(one_allocation)
{
    char *want = undisturbed();
    fail_each(&(struct trial){&fault_vfs.memory, SQLITE_FULL, false}, want);
    free(want);
}

/* An allocation from the budget fails: the run ends, or that job alone, and nothing is lost. */
TEST(budget_allocation)
{
    struct err e;
    test_write(test_path("f1"), "picture", 7);
    for (long step = 0; step < 4; step++) {
        struct night n;
        char *out;
        forget("budget.db");
        fault_vfs_reset();
        CHECK(night_open(&n, "budget.db"));
        CHECK_OK(night_import(&n, "fault.jsonl", lines, &e), e);
        n.mem.fail_at = step;
        enum status rc = night_run(&n, &e);
        CHECK(rc == OK || rc == E_NOMEM);
        night_close(&n);
        CHECK(whole("budget.db"));
        CHECK_OK(night("budget.db", &out, &e), e);
        CHECK_HAS(out, "\"custom_id\":\"d\",\"response\":{\"status_code\":200");
        free(out);
    }
}

TEST_MAIN
