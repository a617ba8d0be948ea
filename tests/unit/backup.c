/* backup: a copy of a queue that is whole and goes on. */
#include "jobs/backup.h"

#include "jobs/verify.h"
#include "tests/lib/jobs.h"
#include "tests/lib/night.h"
#include "tests/lib/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static struct err e;

static const char jobs[] = "{\"id\":\"a\",\"prompt\":\"one\"}\n"
                           "{\"id\":\"b\",\"prompt\":\"two\"}\n"
                           "no JSON\n"
                           "{\"id\":\"c\",\"prompt\":\"three\"}\n";

/* A copy made half way holds what was done, goes on with the rest, and ends as the original. */
TEST(copy_goes_on)
{
    struct night n;
    CHECK(night_open(&n, "half.db"));
    CHECK_OK(night_import(&n, "half.jsonl", jobs, &e), e);
    n.o.max_jobs = 1;
    CHECK_OK(night_run(&n, &e), e);
    CHECK_OK(backup_queue(n.db, test_path("copy.db"), &e), e);
    int64_t done = jobs_int(n.db, "SELECT count(*) FROM results");
    n.o.max_jobs = 0;
    CHECK_OK(night_run(&n, &e), e);
    char *whole = night_output(&n);
    db_close(n.db);

    n.db = n.o.db = jobs_open("copy.db", NULL);
    CHECK(n.db);
    CHECK_INT(jobs_int(n.db, "SELECT count(*) FROM results"), done);
    CHECK(done > 0 && done < 4);
    CHECK_OK(night_run(&n, &e), e);
    char *copied = night_output(&n);
    CHECK_STR(copied, whole);
    free(whole);
    free(copied);
    night_close(&n);
}

/* What is there already stays as it is. */
TEST(replaces_nothing)
{
    size_t len;
    struct db *db = jobs_open("source.db", NULL);
    test_write(test_path("precious"), "mine", 4);
    CHECK_ERR(backup_queue(db, test_path("precious"), &e), E_USAGE, e, "is there already");
    CHECK_ERR(backup_queue(db, test_path("source.db"), &e), E_USAGE, e, "is there already");
    char *text = test_read(test_path("precious"), &len);
    CHECK_STR(text, "mine");
    free(text);
    db_close(db);
}

/* A folder that is not there is an error, and no part of a copy stays behind. */
TEST(no_folder)
{
    struct db *db = jobs_open("other.db", NULL);
    CHECK(backup_queue(db, test_path("none/copy.db"), &e) == E_IO);
    db_close(db);
}

struct writer {
    pthread_t thread;
    const char *path;
    atomic_bool stop;
    atomic_int rounds;
};

/* Keeps two rows equal, each change of both one transaction. */
static void *write_on(void *user)
{
    struct writer *w = user;
    struct db *db;
    struct err why;
    if (db_open(&db, w->path, &(struct db_opts){.must_exist = true}, &why)) return NULL;
    db_exec(db, "PRAGMA synchronous=OFF", &why);
    while (!w->stop) {
        if (db_begin(db, "test", &why)) break;
        db_exec(db, "UPDATE jobs SET attempt=attempt+1 WHERE id=1", &why);
        db_exec(db, "UPDATE jobs SET attempt=attempt+1 WHERE id=2000", &why);
        if (db_commit(db, &why)) break;
        w->rounds++;
    }
    db_close(db);
    return NULL;
}

/* Copies taken while another connection writes show one state each, never half of a transaction. */
TEST(consistent_while_written)
{
    struct writer w = {.path = test_path("busy.db")};
    struct db *db = jobs_open("busy.db", &(struct db_opts){.busy_ms = 20000});
    jobs_add(db, 2000);
    CHECK(pthread_create(&w.thread, NULL, write_on, &w) == 0);
    enum status rc = OK;
    for (int i = 0; i < 20 && !rc; i++) {
        char name[24];
        uint64_t found = 0;
        int before = w.rounds;
        while (w.rounds == before) usleep(100);
        snprintf(name, sizeof name, "busy%d.db", i);
        rc = backup_queue(db, test_path(name), &e);
        struct db *copy = rc ? NULL : jobs_open(name, NULL);
        if (!copy) break;
        if (jobs_int(copy, "SELECT count(DISTINCT attempt) FROM jobs WHERE id IN (1, 2000)") != 1 ||
            jobs_int(copy, "SELECT attempt FROM jobs WHERE id=1") < before)
            test_failed(__FILE__, __LINE__, "copy %d is not one state", i);
        if (verify_file(copy, NULL, NULL, &found, &e))
            test_failed(__FILE__, __LINE__, "%s", e.text);
        db_close(copy);
    }
    w.stop = true;
    pthread_join(w.thread, NULL);
    db_close(db);
    CHECK_OK(rc, e);
}

/* A damaged queue gives no copy, and the message says what is wrong. */
TEST(damage_is_not_copied)
{
    struct db *db = jobs_open("damaged.db", NULL);
    jobs_add(db, 2000);
    db_close(db);
    FILE *f = fopen(test_path("damaged.db"), "r+b");
    CHECK(f && fseek(f, -3 * 4096, SEEK_END) == 0);
    for (int i = 0; i < 4096; i++) fputc(0x5a, f);
    CHECK(fclose(f) == 0);
    CHECK_OK(db_open(&db, test_path("damaged.db"), &(struct db_opts){.must_exist = true}, &e), e);
    CHECK(backup_queue(db, test_path("damaged_copy.db"), &e) == E_DB);
    CHECK(access(test_path("damaged_copy.db"), F_OK) != 0);
    db_close(db);
}

TEST_MAIN
