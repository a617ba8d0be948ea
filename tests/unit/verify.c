/* verify: what is wrong with a queue is found and named. */
#include "jobs/verify.h"

#include "jobs/backup.h"
#include "jobs/merge.h"
#include "tests/lib/jobs.h"
#include "tests/lib/night.h"
#include "tests/lib/test.h"

static struct err e;

static char told[2000];

static void tell(void *user, const char *what)
{
    (void)user;
    strncat(told, what, sizeof told - strlen(told) - 1);
    strncat(told, "; ", sizeof told - strlen(told) - 1);
}

/* Each broken promise between tables is found and named. */
TEST(verify_finds_what_is_wrong)
{
    uint64_t n;
    struct db *db = jobs_open("verify.db", NULL);
    jobs_add(db, 5);
    CHECK_OK(verify_queue(db, tell, NULL, &n, &e), e);
    CHECK_INT(n, 0);
    CHECK_OK(db_exec(db,
                     "UPDATE jobs SET state='done' WHERE id=1;"
                     "INSERT INTO results(job_id, attempt, code, message, prompt_tokens, "
                     "completion_tokens, prefill_s, decode_s, finished_at) "
                     "VALUES(2, 1, 'timeout', 'x', 0, 0, 0, 0, 0);"
                     "UPDATE jobs SET state='running' WHERE id=3;"
                     "INSERT INTO partial VALUES(1, x'', 0, 0, 0);"
                     "PRAGMA foreign_keys=OFF; UPDATE jobs SET input_id=99 WHERE id=4",
                     &e),
             e);
    *told = 0;
    CHECK_OK(verify_queue(db, tell, NULL, &n, &e), e);
    CHECK_HAS(told, "1 finished jobs without a result");
    CHECK_HAS(told, "1 results of unfinished jobs");
    CHECK_HAS(told, "1 jobs running without a lease");
    CHECK_HAS(told, "1 stored tokens of finished jobs");
    CHECK_HAS(told, "row without its parent in jobs");
    CHECK_INT(n, 5);
    db_close(db);
}

/* Damage of each kind, alone, on a queue that is whole otherwise. */
TEST(each_damage_is_said)
{
    static const struct {
        const char *damage, *said;
    } cases[] = {
        {"DELETE FROM results WHERE job_id=1", "1 finished jobs without a result; "},
        {"UPDATE jobs SET state='pending' WHERE id=1",
         "1 results of unfinished jobs; 1 jobs done with an error, or failed without one; "},
        {"UPDATE jobs SET state='failed' WHERE id=1",
         "1 jobs done with an error, or failed without one; "},
        {"INSERT INTO partial VALUES(1, x'01000000', 0, 0, 0)",
         "1 stored tokens of finished jobs; "},
        {"DELETE FROM attempts WHERE job_id=1", "1 results of jobs that ran without an attempt; "},
        {"INSERT INTO attempts(job_id, attempt, fence, tokens, ended_at) SELECT job_id, attempt+1, "
         "fence, tokens, ended_at FROM attempts WHERE job_id=1",
         "1 tries that ended twice; "},
        {"UPDATE inputs SET items=1", "1 jobs of lines that were never read; "},
        {"DROP INDEX jobs_custom_id; UPDATE jobs SET custom_id='a'",
         "1 jobs with another job's id; "},
        {"UPDATE jobs SET state='running' WHERE id=1; DELETE FROM results WHERE job_id=1",
         "1 jobs running without a lease; "},
        {"PRAGMA foreign_keys=OFF; DELETE FROM jobs WHERE id=1",
         "row without its parent in results; 1 results of no job; "},
    };
    struct night n;
    uint64_t found;
    CHECK(night_open(&n, "damage.db"));
    CHECK_OK(night_import(&n, "damage.jsonl",
                          "{\"id\":\"a\",\"prompt\":\"x\"}\n{\"id\":\"b\",\"prompt\":\"y\"}\n", &e),
             e);
    CHECK_OK(night_run(&n, &e), e);
    CHECK_OK(verify_queue(n.db, tell, NULL, &found, &e), e);
    CHECK_INT(found, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[24];
        struct db *db;
        snprintf(name, sizeof name, "damage%zu.db", i);
        CHECK_OK(backup_queue(n.db, test_path(name), &e), e);
        CHECK_OK(db_open(&db, test_path(name), &(struct db_opts){.must_exist = true}, &e), e);
        CHECK_OK(db_exec(db, cases[i].damage, &e), e);
        *told = 0;
        CHECK_OK(verify_queue(db, tell, NULL, &found, &e), e);
        CHECK_STR(told, cases[i].said);
        db_close(db);
    }
    night_close(&n);
}

/* Where a file of these bytes first differs from an export of db. */
static uint64_t differs(struct db *db, const char *text, size_t len)
{
    uint64_t line = 99;
    const char *path = test_path("altered.jsonl");
    test_write(path, text, len);
    if (verify_export(db, path, &line, &e)) test_failed(__FILE__, __LINE__, "%s", e.text);
    return line;
}

/* An export is compared byte by byte; the first line that is missing, altered or too much is named.
 */
TEST(verify_compares_exports)
{
    struct night n;
    size_t len;
    CHECK(night_open(&n, "compare.db"));
    CHECK_OK(night_import(&n, "compare.jsonl",
                          "{\"id\":\"a\",\"prompt\":\"x\"}\n{\"id\":\"b\",\"prompt\":\"y\"}\n", &e),
             e);
    CHECK_OK(night_run(&n, &e), e);
    free(night_output(&n));
    const char *path = test_path("out.jsonl");
    char *text = test_read(path, &len), *second = text ? strchr(text, '\n') + 1 : NULL;
    CHECK(text);
    CHECK_INT(differs(n.db, text, len), 0);
    CHECK_INT(differs(n.db, "", 0), 1);
    CHECK_INT(differs(n.db, text, (size_t)(second - text)), 2);
    CHECK_INT(differs(n.db, second, len - (size_t)(second - text)), 1);
    CHECK_INT(differs(n.db, text, len - 1), 2);
    text[len - 4] ^= 1;
    CHECK_INT(differs(n.db, text, len), 2);
    text[len - 4] ^= 1;
    char *longer = realloc(text, len + 1);
    CHECK(longer);
    longer[len] = '{';
    CHECK_INT(differs(n.db, longer, len + 1), 3);
    free(longer);
    night_close(&n);
}

/* A merge refuses a job of an input that the queue does not know. */
TEST(merge_of_a_damaged_queue)
{
    struct night n;
    struct merge_counts c;
    CHECK(night_open(&n, "far.db"));
    CHECK_OK(night_import(&n, "far.jsonl", "{\"id\":\"a\",\"prompt\":\"x\"}\n", &e), e);
    CHECK_OK(night_run(&n, &e), e);
    CHECK_OK(db_exec(n.db, "PRAGMA foreign_keys=OFF; UPDATE jobs SET input_id=100000000000", &e),
             e);
    CHECK_ERR(merge_queues(&n.db, 1, test_path("far.out"), &c, &e), E_DB, e,
              "a job of input 100000000000");
    night_close(&n);
}

TEST_MAIN
