/* queue: claims, leases, fences, retry, cancel, the lock. */
#include "jobs/queue.h"
#include "src/os.h"
#include "tests/lib/jobs.h"
#include "tests/lib/test.h"

#include <sys/wait.h>
#include <unistd.h>

static const struct queue_worker w1 = {.name = "one", .lease_ms = 1000};
static const struct queue_worker w2 = {.name = "two", .lease_ms = 1000};

/* Claims in order of priority, then of place; never more than asked for; then none. */
TEST(claims_in_order)
{
    struct err e;
    struct queue_job j[8];
    size_t n;
    struct db *db = jobs_open("order.db", NULL);
    jobs_add(db, 5);
    CHECK_OK(db_exec(db, "UPDATE jobs SET priority=7 WHERE id=4", &e), e);
    CHECK_OK(db_exec(db, "UPDATE jobs SET place=1 WHERE id=5", &e), e);
    CHECK_OK(queue_claim(db, &w1, 0, j, 3, &n, &e), e);
    CHECK_INT(n, 3);
    CHECK_STR(j[0].custom_id, "a3");
    CHECK_STR(j[1].custom_id, "a0");
    CHECK_STR(j[2].custom_id, "a4");
    CHECK_INT(j[0].fence, 1);
    CHECK_INT(j[0].attempt, 1);
    CHECK_STR(j[0].source, "/in.jsonl");
    for (size_t i = 0; i < n; i++) queue_job_free(&j[i]);
    CHECK_OK(queue_claim(db, &w2, 0, j, 8, &n, &e), e);
    CHECK_INT(n, 2);
    for (size_t i = 0; i < n; i++) queue_job_free(&j[i]);
    CHECK_OK(queue_claim(db, &w2, 0, j, 8, &n, &e), e);
    CHECK_INT(n, 0);
    db_close(db);
}

/* What a process of this machine held goes back when it is gone; what others hold does not. */
TEST(jobs_of_the_dead_go_back)
{
    struct err e;
    struct queue_job j[2];
    size_t n;
    char dead[160], live[160], far[160], old[160];
    struct db *db = jobs_open("dead.db", NULL);
    jobs_add(db, 10);
    os_process_name(live, sizeof live);
    int name[2];
    CHECK_INT(pipe(name), 0);
    pid_t child = fork();
    if (child == 0) {
        os_process_name(dead, sizeof dead);
        _exit(write(name[1], dead, sizeof dead) != sizeof dead);
    }
    CHECK_INT(read(name[0], dead, sizeof dead), sizeof dead);
    CHECK_INT(waitpid(child, NULL, 0), child);
    close(name[0]);
    close(name[1]);
    /* Where other processes are counted, and as it was before that was told. */
    char *last = strrchr(dead, ':');
    CHECK(last && strlen(last) == 9);
    snprintf(far, sizeof far, "%.*s:%c%s", (int)(last - dead), dead, last[1] == '0' ? '1' : '0',
             last + 2);
    snprintf(old, sizeof old, "%.*s", (int)(last - dead), dead);
    const char *names[] = {dead, old, live, "elsewhere:1:1", far};
    for (int i = 0; i < 5; i++) {
        struct queue_worker w = {.name = names[i], .lease_ms = 1000000};
        CHECK_OK(queue_claim(db, &w, 0, j, 2, &n, &e), e);
        CHECK_INT(n, 2);
        for (size_t k = 0; k < n; k++) queue_job_free(&j[k]);
    }
    CHECK_OK(queue_release_gone(db, &e), e);
    for (int i = 0; i < 5; i++) {
        int64_t held;
        CHECK_OK(
            db_int(db, &held, 0, &e, "SELECT count(*) FROM jobs WHERE worker=?1", "s", names[i]),
            e);
        CHECK_INT(held, i < 2 ? 0 : 2);
    }
    db_close(db);
}

/* In input order the place does not count. */
TEST(claims_in_input_order)
{
    struct err e;
    struct queue_job j[4];
    size_t n;
    struct queue_worker w = {.name = "w", .lease_ms = 1000, .input_order = true};
    struct db *db = jobs_open("input_order.db", NULL);
    jobs_add(db, 4);
    CHECK_OK(db_exec(db, "UPDATE jobs SET place=10-id", &e), e);
    CHECK_OK(queue_claim(db, &w, 0, j, 4, &n, &e), e);
    for (size_t i = 0; i < n; i++) {
        CHECK_INT(j[i].id, i + 1);
        queue_job_free(&j[i]);
    }
    db_close(db);
}

/* After its lease ran out a job goes to another worker, and the first one's answer is refused. */
TEST(fence_refuses_the_old_claim)
{
    struct err e;
    struct queue_job a, b;
    size_t n;
    struct db *db = jobs_open("fence.db", NULL);
    jobs_add(db, 1);
    CHECK_OK(queue_claim(db, &w1, 0, &a, 1, &n, &e), e);
    CHECK_OK(queue_claim(db, &w2, 999, &b, 1, &n, &e), e);
    CHECK_INT(n, 0);
    CHECK_OK(queue_claim(db, &w2, 1000, &b, 1, &n, &e), e);
    CHECK_INT(n, 1);
    CHECK_INT(b.fence, 2);
    CHECK_INT(b.attempt, 1);
    CHECK_ERR(queue_finish(db, a.id, a.fence, "done", &e), E_LEASE, e, "job 1");
    CHECK_ERR(queue_renew(db, a.id, a.fence, 9000, &e), E_LEASE, e, "job 1");
    CHECK_OK(queue_renew(db, b.id, b.fence, 9000, &e), e);
    CHECK_INT(jobs_int(db, "SELECT lease_until_ms FROM jobs"), 9000);
    CHECK_OK(queue_finish(db, b.id, b.fence, "done", &e), e);
    CHECK_ERR(queue_finish(db, b.id, b.fence, "done", &e), E_LEASE, e, "job 1");
    queue_job_free(&a);
    queue_job_free(&b);
    db_close(db);
}

/* A worker does not take its own jobs from itself, however far its clock jumps. */
TEST(own_jobs_stay)
{
    struct err e;
    struct queue_job a, b;
    size_t n;
    struct db *db = jobs_open("own.db", NULL);
    jobs_add(db, 1);
    CHECK_OK(queue_claim(db, &w1, 0, &a, 1, &n, &e), e);
    CHECK_INT(n, 1);
    CHECK_OK(queue_claim(db, &w1, 1000000, &b, 1, &n, &e), e);
    CHECK_INT(n, 0);
    CHECK_OK(queue_finish(db, a.id, a.fence, "done", &e), e);
    queue_job_free(&a);
    db_close(db);
}

/* A postponed job comes back when it is due, as its next attempt. */
TEST(postponed_until_due)
{
    struct err e;
    struct queue_job j;
    size_t n;
    int64_t due;
    struct db *db = jobs_open("due.db", NULL);
    jobs_add(db, 1);
    CHECK_OK(queue_claim(db, &w1, 0, &j, 1, &n, &e), e);
    CHECK_OK(queue_next_due(db, &due, &e), e);
    CHECK_INT(due, 1000);
    CHECK_OK(queue_postpone(db, j.id, j.fence, 5000, &e), e);
    queue_job_free(&j);
    CHECK_OK(queue_next_due(db, &due, &e), e);
    CHECK_INT(due, 5000);
    CHECK_OK(queue_claim(db, &w1, 4999, &j, 1, &n, &e), e);
    CHECK_INT(n, 0);
    CHECK_OK(queue_claim(db, &w1, 5000, &j, 1, &n, &e), e);
    CHECK_INT(n, 1);
    CHECK_INT(j.attempt, 2);
    queue_job_free(&j);
    db_close(db);
}

/* A worker gives back its own jobs and nobody else's; they continue, they are not retried. */
TEST(release_own)
{
    struct err e;
    struct queue_job j;
    size_t n;
    struct queue_counts c;
    struct db *db = jobs_open("release.db", NULL);
    jobs_add(db, 2);
    CHECK_OK(queue_claim(db, &w1, 0, &j, 1, &n, &e), e);
    queue_job_free(&j);
    CHECK_OK(queue_claim(db, &w2, 0, &j, 1, &n, &e), e);
    queue_job_free(&j);
    CHECK_OK(queue_release(db, "one", &e), e);
    CHECK_OK(queue_counts(db, &c, &e), e);
    CHECK_INT(c.pending, 1);
    CHECK_INT(c.running, 1);
    CHECK_OK(queue_release(db, NULL, &e), e);
    CHECK_OK(queue_counts(db, &c, &e), e);
    CHECK_INT(c.pending, 2);
    CHECK_INT(jobs_int(db, "SELECT sum(attempt) FROM jobs"), 0);
    CHECK_INT(queue_total(&c), 2);
    CHECK_INT(queue_unfinished(&c), 2);
    db_close(db);
}

/* Cancelled jobs get a result that says so; retry takes them back; a running one loses its lease.
 */
TEST(cancel_and_retry)
{
    struct err e;
    struct queue_job j;
    size_t n;
    int64_t k;
    struct db *db = jobs_open("cancel.db", NULL);
    jobs_add(db, 3);
    CHECK_OK(queue_claim(db, &w1, 0, &j, 1, &n, &e), e);
    CHECK_OK(queue_cancel(db, &(struct queue_filter){.custom_id = "a0"}, 5000, &k, &e), e);
    CHECK_INT(k, 1);
    CHECK_ERR(queue_finish(db, j.id, j.fence, "done", &e), E_LEASE, e, "job 1");
    queue_job_free(&j);
    CHECK_OK(queue_cancel(db, &(struct queue_filter){.state = "pending"}, 5000, &k, &e), e);
    CHECK_INT(k, 2);
    CHECK_INT(jobs_int(db, "SELECT count(*) FROM failures WHERE code='cancelled'"), 3);
    CHECK_OK(queue_retry(db, &(struct queue_filter){.code = "timeout"}, &k, &e), e);
    CHECK_INT(k, 0);
    CHECK_OK(
        queue_retry(db, &(struct queue_filter){.code = "cancelled", .custom_id = "a1"}, &k, &e), e);
    CHECK_INT(k, 1);
    CHECK_INT(jobs_int(db, "SELECT count(*) FROM results"), 2);
    CHECK_INT(jobs_int(db, "SELECT id FROM jobs WHERE state='pending'"), 2);
    db_close(db);
}

/* Bad lines and duplicates fail again whatever is done, so retry leaves them. */
TEST(retry_leaves_bad_lines)
{
    struct err e;
    int64_t k;
    struct db *db = jobs_open("bad.db", NULL);
    jobs_add(db, 3);
    CHECK_OK(db_exec(db, "UPDATE jobs SET state='failed'", &e), e);
    CHECK_OK(db_exec(db, "UPDATE jobs SET spec=NULL WHERE id=1", &e), e);
    CHECK_OK(db_exec(db, "UPDATE jobs SET duplicate_of=1 WHERE id=2", &e), e);
    CHECK_OK(queue_retry(db, &(struct queue_filter){0}, &k, &e), e);
    CHECK_INT(k, 1);
    CHECK_INT(jobs_int(db, "SELECT id FROM jobs WHERE state='pending'"), 3);
    db_close(db);
}

/* An exclusive lock keeps others out until it is given back; shared ones share. */
TEST(lock_is_exclusive)
{
    struct err e;
    int a, b;
    const char *path = test_path("lock.db");
    CHECK_OK(queue_lock(&a, path, false, &e), e);
    CHECK_ERR(queue_lock(&b, path, false, &e), E_LOCKED, e, "being worked");
    CHECK_ERR(queue_lock(&b, path, true, &e), E_LOCKED, e, "being worked");
    queue_unlock(&a);
    CHECK_OK(queue_lock(&a, path, true, &e), e);
    CHECK_OK(queue_lock(&b, path, true, &e), e);
    queue_unlock(&a);
    queue_unlock(&b);
}

/* A link and what it names have one lock. */
TEST(lock_follows_links)
{
    struct err e;
    int a, b;
    const char *path = test_path("real.db"), *link = test_path("link.db");
    test_write(path, "", 0);
    CHECK(symlink("real.db", link) == 0);
    CHECK_OK(queue_lock(&a, path, false, &e), e);
    CHECK_ERR(queue_lock(&b, link, false, &e), E_LOCKED, e, "being worked");
    CHECK(queue_is_locked(link));
    queue_unlock(&a);
}

/* The lock ends with its process, even one that is killed. */
TEST(lock_dies_with_its_holder)
{
    struct err e;
    int fd, ready[2];
    char c;
    const char *path = test_path("dead.db");
    CHECK(pipe(ready) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (queue_lock(&fd, path, false, NULL) == OK && write(ready[1], "x", 1) == 1) pause();
        _exit(1);
    }
    CHECK(read(ready[0], &c, 1) == 1);
    CHECK_INT(queue_lock(&fd, path, false, &e), E_LOCKED);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    CHECK_OK(queue_lock(&fd, path, false, &e), e);
    queue_unlock(&fd);
    close(ready[0]);
    close(ready[1]);
}

/* Several processes claim until nothing is left: each job goes to exactly one of them. */
TEST(processes_share_without_doubles)
{
    enum { JOBS = 60, PROCESSES = 3 };
    struct err e;
    const char *path = test_path("share.db");
    struct db *db = jobs_open("share.db", NULL);
    jobs_add(db, JOBS);
    db_close(db);
    pid_t pids[PROCESSES];
    for (int p = 0; p < PROCESSES; p++) {
        pids[p] = fork();
        if (pids[p]) continue;
        char name[16];
        snprintf(name, sizeof name, "p%d", p);
        struct queue_worker w = {.name = name, .lease_ms = 1000000};
        struct queue_job j;
        size_t n = 1;
        enum status rc = db_open(&db, path, &(struct db_opts){0}, &e);
        while (!rc && n) {
            rc = queue_claim(db, &w, 0, &j, 1, &n, &e);
            if (!rc && n) rc = queue_finish(db, j.id, j.fence, "done", &e);
            queue_job_free(&j);
        }
        db_close(db);
        if (rc) fprintf(stderr, "%s\n", e.text);
        _exit(rc ? 1 : 0);
    }
    int bad = 0, status;
    for (int p = 0; p < PROCESSES; p++) {
        waitpid(pids[p], &status, 0);
        bad += status != 0;
    }
    CHECK_INT(bad, 0);
    CHECK_OK(db_open(&db, path, &(struct db_opts){0}, &e), e);
    CHECK_INT(
        jobs_int(db, "SELECT count(*) FROM jobs WHERE state='done' AND fence=1 AND attempt=1"),
        JOBS);
    db_close(db);
}

TEST_MAIN
