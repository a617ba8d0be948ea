/* result: answers, retries and partial tokens are stored whole or not at all. */
#include "jobs/result.h"
#include "tests/lib/jobs.h"
#include "tests/lib/test.h"

static const struct queue_worker worker = {.name = "w", .lease_ms = 1000};
static const struct queue_worker other = {.name = "other", .lease_ms = 1000};

static bool claim_as(const struct queue_worker *w, struct db *db, struct queue_job *j, int64_t now)
{
    struct err e;
    size_t n = 0;
    if (queue_claim(db, w, now, j, 1, &n, &e)) test_failed(__FILE__, __LINE__, "%s", e.text);
    return n == 1;
}

static bool claim(struct db *db, struct queue_job *j, int64_t now)
{
    return claim_as(&worker, db, j, now);
}

static const struct result answer = {
    .content = "a\0b",
    .content_len = 3,
    .reasoning = "",
    .finish_reason = "stop",
    .prompt_tokens = 7,
    .completion_tokens = 2,
    .now = 5000,
};

/* Answer, state, attempt and picture facts are stored together, the tokens so far go. */
TEST(answer_is_stored_whole)
{
    struct err e;
    struct queue_job j;
    struct db *db = jobs_open("store.db", NULL);
    jobs_add(db, 1);
    CHECK_OK(db_exec(db, "INSERT INTO job_images(job_id, n) VALUES(1, 0)", &e), e);
    CHECK(claim(db, &j, 0));
    int32_t tokens[] = {5};
    struct result_partial p = {.id = j.id, .fence = j.fence, .tokens = tokens, .n_tokens = 1};
    CHECK_OK(result_checkpoint(db, &p, 1, 100, 1000, &e), e);
    CHECK_INT(jobs_int(db, "SELECT count(*) FROM partial"), 1);
    struct result_image m = {.sha256 = "ab",
                             .width = 3,
                             .height = 4,
                             .orientation = 6,
                             .tokens = 1,
                             .warnings = "[]",
                             .path = "/p.png"};
    struct result r = answer;
    r.images = &m;
    r.n_images = 1;
    CHECK_OK(result_store(db, &j, &r, &e), e);
    CHECK_INT(jobs_int(db, "SELECT count(*) FROM jobs WHERE state='done' AND attempt=1"), 1);
    CHECK_INT(jobs_int(db, "SELECT count(*) FROM results WHERE CAST(content AS BLOB)=x'610062' AND "
                           "finish_reason='stop' AND prompt_tokens=7 AND finished_at=5"),
              1);
    CHECK_INT(jobs_int(db, "SELECT count(*) FROM attempts WHERE code IS NULL AND worker='w'"), 1);
    CHECK_INT(jobs_int(db, "SELECT count(*) FROM partial"), 0);
    CHECK_INT(jobs_int(db, "SELECT width*1000+height*100+orientation*10+tokens FROM job_images"),
              3461);
    CHECK_INT(jobs_int(db, "SELECT count(*) FROM job_images WHERE path='/p.png'"), 1);
    queue_job_free(&j);
    db_close(db);
}

/* An answer under a lost lease leaves no trace. */
TEST(lost_lease_leaves_nothing)
{
    struct err e;
    struct queue_job a, b;
    struct db *db = jobs_open("lost.db", NULL);
    jobs_add(db, 1);
    CHECK(claim(db, &a, 0));
    CHECK(claim_as(&other, db, &b, 2000));
    CHECK_ERR(result_store(db, &a, &answer, &e), E_LEASE, e, "job 1");
    CHECK_INT(jobs_int(db, "SELECT count(*) FROM results"), 0);
    CHECK_INT(jobs_int(db, "SELECT count(*) FROM attempts"), 0);
    CHECK_OK(result_store(db, &b, &answer, &e), e);
    queue_job_free(&a);
    queue_job_free(&b);
    db_close(db);
}

/* Tokens come back bit for bit with the next claim, negative ones too; a lost job is named, and
 * does not keep the others from being stored. */
TEST(tokens_come_back)
{
    struct err e;
    struct queue_job j[2];
    size_t n;
    struct db *db = jobs_open("tokens.db", NULL);
    jobs_add(db, 2);
    CHECK_OK(queue_claim(db, &worker, 0, j, 2, &n, &e), e);
    int32_t t[] = {1, -2, 0x01020304, 163839};
    struct result_partial p[2] = {
        {.id = j[0].id, .fence = j[0].fence + 1, .tokens = t, .n_tokens = 4},
        {.id = j[1].id, .fence = j[1].fence, .tokens = t, .n_tokens = 4, .prefill_s = 1.5},
    };
    CHECK_OK(result_checkpoint(db, p, 2, 100, 1000, &e), e);
    CHECK(p[0].lost);
    CHECK(!p[1].lost);
    for (size_t i = 0; i < n; i++) queue_job_free(&j[i]);
    CHECK_OK(queue_release(db, "w", &e), e);
    CHECK_OK(queue_claim(db, &worker, 200, j, 2, &n, &e), e);
    CHECK_INT(j[0].n_tokens, 0);
    CHECK_INT(j[1].n_tokens, 4);
    CHECK(!memcmp(j[1].tokens, t, sizeof t));
    CHECK_NEAR(j[1].prefill_s, 1.5, 0);
    for (size_t i = 0; i < n; i++) queue_job_free(&j[i]);
    db_close(db);
}

/* A failed try is kept as an attempt; the job waits and begins anew. */
TEST(retry_keeps_the_attempt)
{
    struct err e;
    struct queue_job j;
    struct db *db = jobs_open("retry.db", NULL);
    jobs_add(db, 1);
    CHECK(claim(db, &j, 0));
    struct result r = {.code = E_ENGINE, .message = "broke", .now = 5000};
    CHECK_OK(result_retry(db, &j, &r, 700, &e), e);
    queue_job_free(&j);
    CHECK_INT(jobs_int(db, "SELECT count(*) FROM results"), 0);
    CHECK(!claim(db, &j, 5699));
    CHECK(claim(db, &j, 5700));
    CHECK_INT(j.attempt, 2);
    r.code = E_TIMEOUT;
    r.message = "slow";
    CHECK_OK(result_store(db, &j, &r, &e), e);
    queue_job_free(&j);
    CHECK_INT(jobs_int(db, "SELECT count(*) FROM attempts"), 2);
    CHECK_INT(jobs_int(db, "SELECT count(*) FROM failures WHERE code='timeout' AND attempt=2"), 1);
    db_close(db);
}

TEST_MAIN
