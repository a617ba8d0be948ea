/* pipeline: which jobs are tried again, and which are ended. */
#include "tests/lib/jobs.h"
#include "tests/lib/night.h"
#include "tests/lib/test.h"

#include <sys/stat.h>
#include <unistd.h>

/* A text that runs in a circle ends, and says why. */
TEST(loop_in_the_text)
{
    struct err e;
    struct night n;
    CHECK(night_open(&n, "loop.db"));
    CHECK_OK(
        night_import(&n, "loop.jsonl", "{\"id\":\"a\",\"prompt\":\"x\",\"max_tokens\":900}\n", &e),
        e);
    n.engine.ids = 1;
    n.engine.length = 1u << 30;
    CHECK_OK(night_run(&n, &e), e);
    CHECK_INT(n.report.done, 1);
    char *out = night_output(&n);
    CHECK_HAS(out, "\"finish_reason\":\"repetition\"");
    free(out);
    night_close(&n);
}

struct delays {
    struct db *db;
    int64_t ms[2];
};

/* The clock of due_ms goes by seconds. */
static void note_retry(void *user, const struct pipeline_state *s)
{
    struct delays *d = user;
    if (s->event != PIPELINE_RETRY || s->job->attempt > 2) return;
    d->ms[s->job->attempt - 1] =
        jobs_int(d->db, "SELECT due_ms % 1000 FROM jobs WHERE state='retry_wait'");
}

/* What cannot be read may be there later and is tried again, each time after a longer wait; what is
 * missing or damaged is not. */
TEST(retries)
{
    struct err e;
    struct night n;
    CHECK(night_open(&n, "retries.db"));
    struct delays d = {.db = n.db};
    test_write(test_path("damaged"), "bad picture", 11);
    test_write(test_path("unread"), "picture", 7);
    test_write(test_path("missing"), "picture", 7);
    CHECK_OK(night_import(&n, "retries.jsonl",
                          "{\"id\":\"unread\",\"image\":\"unread\",\"prompt\":\"x\"}\n"
                          "{\"id\":\"damaged\",\"image\":\"damaged\",\"prompt\":\"x\"}\n"
                          "{\"id\":\"missing\",\"image\":\"missing\",\"prompt\":\"x\"}\n",
                          &e),
             e);
    CHECK(unlink(test_path("missing")) == 0 && unlink(test_path("unread")) == 0);
    CHECK(mkdir(test_path("unread"), 0777) == 0);
    n.o.retries = 2;
    n.o.retry_s = 0.02;
    n.o.event = note_retry;
    n.o.user = &d;
    CHECK_OK(night_run(&n, &e), e);
    CHECK_INT(n.report.failed, 3);
    CHECK_INT(jobs_int(n.db, "SELECT attempt FROM failures WHERE custom_id='unread'"), 3);
    CHECK_INT(jobs_int(n.db, "SELECT attempt FROM failures WHERE custom_id='damaged'"), 1);
    CHECK_INT(jobs_int(n.db, "SELECT attempt FROM failures WHERE custom_id='missing'"), 1);
    CHECK_INT(d.ms[0], 20);
    CHECK_INT(d.ms[1], 80);
    /* Who wants it tried again gets as many tries as before. */
    int64_t again;
    CHECK_OK(queue_retry(n.db, &(struct queue_filter){.custom_id = "unread"}, &again, &e), e);
    CHECK_OK(night_run(&n, &e), e);
    CHECK_INT(jobs_int(n.db, "SELECT attempt FROM failures WHERE custom_id='unread'"), 6);
    night_close(&n);
}

/* An answer whose logits are no numbers is tried again, then that job alone fails. */
TEST(no_numbers)
{
    for (uint64_t times = 1; times < 3; times++) {
        struct err e;
        struct night n;
        CHECK(night_open(&n, times == 1 ? "once.db" : "twice.db"));
        CHECK_OK(night_import(&n, "numbers.jsonl",
                              "{\"id\":\"a\",\"prompt\":\"x\",\"max_tokens\":7}\n"
                              "{\"id\":\"b\",\"prompt\":\"y\",\"max_tokens\":9}\n",
                              &e),
                 e);
        n.engine.length = 1u << 30;
        n.engine.broken_max = 7;
        n.engine.broken = times;
        n.o.retries = 1;
        n.o.retry_s = 0.01;
        CHECK_OK(night_run(&n, &e), e);
        CHECK_INT(n.report.retried, 1);
        CHECK_INT(n.report.failed, times - 1);
        char *out = night_output(&n);
        CHECK_HAS(out, "\"completion_tokens\":9");
        CHECK_HAS(out, times == 1 ? "\"completion_tokens\":7" : "\"code\":\"engine_error\"");
        if (times == 2) CHECK_HAS(out, "logits for token 3 of the answer are no numbers");
        free(out);
        night_close(&n);
    }
}

TEST_MAIN
