/* pipeline: whatever happens on the way, the answers are those of an undisturbed run. */
#include "jobs/spool.h"
#include "tests/lib/jobs.h"
#include "tests/lib/night.h"
#include "tests/lib/test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Jobs of all kinds: plain, drawn, with pictures, with thinking, a bad line, a duplicate. */
static const char *mixed(void)
{
    static char text[8192];
    if (*text) return text;
    test_write(test_path("p1"), "picture one", 11);
    test_write(test_path("p2"), "picture two", 11);
    test_write(test_path("p3"), "bad picture", 11);
    size_t n = 0;
#define LINE(...) n += (size_t)snprintf(text + n, sizeof text - n, __VA_ARGS__)
    for (int i = 0; i < 12; i++)
        LINE("{\"id\":\"t%d\",\"prompt\":\"What is %d?\",\"max_tokens\":%d}\n", i, i, 4 + 3 * i);
    LINE("{\"id\":\"d1\",\"prompt\":\"Hello\",\"temperature\":1}\n");
    LINE("{\"id\":\"d2\",\"prompt\":\"Hello\",\"temperature\":1,\"metadata\":{\"k\": 1.50}}\n");
    LINE("{\"id\":\"i1\",\"image\":\"p1\",\"prompt\":\"What is it?\"}\n");
    LINE("{\"id\":\"i2\",\"image\":\"p2\",\"prompt\":\"What is it?\"}\n");
    LINE("{\"id\":\"i3\",\"image\":\"p3\",\"prompt\":\"What is it?\"}\n");
    LINE("{\"id\":\"i4\",\"image\":\"none\",\"prompt\":\"What is it?\"}\n");
    LINE("{\"id\":\"i5\",\"image\":\"p1\",\"prompt\":\"What else?\"}\n");
    LINE("{\"id\":\"r1\",\"prompt\":\"Think!\",\"reasoning_effort\":\"low\"}\n");
    LINE("{\"id\":\"t3\",\"prompt\":\"again\"}\n");
    LINE("this is no JSON\n");
    LINE("{\"id\":\"long\",\"prompt\":\"x\",\"max_tokens\":100000}\n");
    LINE("{\"id\":\"other\",\"prompt\":\"x\",\"model\":\"gpt-4\"}\n");
#undef LINE
    return text;
}

static char *undisturbed(void)
{
    struct err e;
    struct night n;
    static int round;
    char name[32];
    snprintf(name, sizeof name, "plain%d.db", round++);
    if (!night_open(&n, name)) return NULL;
    if (night_import(&n, "mixed.jsonl", mixed(), &e) || night_run(&n, &e))
        test_failed(__FILE__, __LINE__, "%s", e.text);
    char *out = night_output(&n);
    night_close(&n);
    return out;
}

/* Every line ends as an answer or a failure, in input order, and the counts say so. */
TEST(everything_ends)
{
    struct err e;
    struct night n;
    CHECK(night_open(&n, "ends.db"));
    CHECK_OK(night_import(&n, "mixed.jsonl", mixed(), &e), e);
    CHECK_OK(night_run(&n, &e), e);
    CHECK_INT(n.report.end, PIPELINE_FINISHED);
    CHECK_INT(n.report.done, 18);
    CHECK_INT(n.report.unfinished, 0);
    CHECK_INT(jobs_int(n.db, "SELECT count(*) FROM answers"), 18);
    CHECK_INT(jobs_int(n.db, "SELECT count(*) FROM failures"), 6);
    CHECK_INT(jobs_int(n.db, "SELECT count(*) FROM failures WHERE (custom_id, code) IN (VALUES "
                             "('i3','image_unreadable'), ('i4','image_missing'), "
                             "('t3','duplicate_id'), ('long','prompt_too_long'), "
                             "('other','invalid_request'))"),
              5);
    CHECK_INT(jobs_int(n.db, "SELECT count(*) FROM partial"), 0);
    CHECK_INT(jobs_int(n.db, "SELECT done FROM runs"), 18);
    char *out = night_output(&n);
    CHECK_HAS(out, "{\"id\":\"batch_req_1-1\",\"custom_id\":\"t0\"");
    CHECK_HAS(out, "\"metadata\":{\"k\": 1.50}");
    CHECK_HAS(out, "\"custom_id\":null");
    free(out);
    night_close(&n);
}

/* A picture of two jobs is encoded once; both answers name it. */
TEST(shared_picture_is_encoded_once)
{
    struct err e;
    struct night n;
    CHECK(night_open(&n, "shared.db"));
    mixed();
    CHECK_OK(night_import(&n, "shared.jsonl",
                          "{\"id\":\"a\",\"image\":\"p1\",\"prompt\":\"q\"}\n"
                          "{\"id\":\"b\",\"image\":\"p2\",\"prompt\":\"q\"}\n"
                          "{\"id\":\"c\",\"image\":\"p1\",\"prompt\":\"r\"}\n",
                          &e),
             e);
    CHECK_OK(night_run(&n, &e), e);
    CHECK_INT(n.encoded, 2);
    CHECK_INT(jobs_int(n.db, "SELECT count(*) FROM image_answers WHERE width=3 AND height=2"), 3);
    night_close(&n);
}

static int stop_after(void *user)
{
    int *left = user;
    return --*left < 0;
}

/* Stopped again and again, at every possible sweep: the file is the same, byte for byte. */
TEST(stops_and_resumes_to_the_same_bytes)
{
    struct err e;
    struct night n;
    char *want = undisturbed();
    CHECK(night_open(&n, "stops.db"));
    CHECK_OK(night_import(&n, "mixed.jsonl", mixed(), &e), e);
    int rounds = 0, left;
    n.o.stop = stop_after;
    n.o.user = &left;
    do {
        left = 2 + rounds % 3;
        CHECK_OK(night_run(&n, &e), e);
        CHECK(++rounds < 500);
    } while (n.report.end == PIPELINE_STOPPED);
    CHECK(rounds > 10);
    CHECK(jobs_int(n.db, "SELECT max(fence) FROM jobs") > 2);
    CHECK_INT(jobs_int(n.db, "SELECT max(attempt) FROM attempts"), 1);
    char *got = night_output(&n);
    CHECK_STR(got, want);
    free(got);
    free(want);
    night_close(&n);
}

/* One sequence at a time, or many, in input order or not: the same bytes. */
TEST(number_and_order_do_not_show)
{
    struct err e;
    char *want = undisturbed();
    for (int i = 0; i < 3; i++) {
        struct night n;
        char name[32];
        snprintf(name, sizeof name, "order%d.db", i);
        CHECK(night_open(&n, name));
        n.o.sequences = n.engine.sequences = i == 0 ? 1 : 20;
        n.o.worker.input_order = i == 2;
        CHECK_OK(night_import(&n, "mixed.jsonl", mixed(), &e), e);
        CHECK_OK(night_run(&n, &e), e);
        char *got = night_output(&n);
        CHECK_STR(got, want);
        free(got);
        night_close(&n);
    }
    free(want);
}

/* A fault of the machine ends the run with its message; what was given so far is kept, and the next
 * run ends with the same bytes. */
TEST(machine_fault_keeps_all)
{
    struct err e;
    struct night n;
    char *want = undisturbed();
    CHECK(night_open(&n, "fault.db"));
    CHECK_OK(night_import(&n, "mixed.jsonl", mixed(), &e), e);
    n.engine.fail_sweep = 6;
    CHECK_ERR(night_run(&n, &e), E_IO, e, "the disk went away");
    CHECK_INT(jobs_int(n.db, "SELECT count(*) FROM jobs WHERE state='running'"), 0);
    CHECK(jobs_int(n.db, "SELECT count(*) FROM partial") > 0);
    n.engine.fail_sweep = 0;
    CHECK_OK(night_run(&n, &e), e);
    char *got = night_output(&n);
    CHECK_STR(got, want);
    free(got);
    free(want);
    night_close(&n);
}

/* After a death, leases of the dead worker are void for the one that holds the lock. */
TEST(dead_worker_is_succeeded)
{
    struct err e;
    struct night n;
    struct queue_job j[4];
    size_t k;
    CHECK(night_open(&n, "dead.db"));
    CHECK_OK(night_import(&n, "mixed.jsonl", mixed(), &e), e);
    struct queue_worker dead = {.name = "dead", .lease_ms = 1000000};
    CHECK_OK(queue_claim(n.db, &dead, (int64_t)time(NULL) * 1000, j, 4, &k, &e), e);
    for (size_t i = 0; i < k; i++) queue_job_free(&j[i]);
    CHECK_OK(night_run(&n, &e), e);
    CHECK_INT(n.report.unfinished, 0);
    night_close(&n);
}

/* A finished queue has nothing to do, and nothing changes. */
TEST(finished_queue_is_left_alone)
{
    struct err e;
    struct night n;
    CHECK(night_open(&n, "again.db"));
    CHECK_OK(night_import(&n, "mixed.jsonl", mixed(), &e), e);
    CHECK_OK(night_run(&n, &e), e);
    char *want = night_output(&n);
    CHECK_OK(night_import(&n, "mixed.jsonl", mixed(), &e), e);
    CHECK_INT(n.counts.outcome[ROW_KNOWN], 24);
    CHECK_OK(night_run(&n, &e), e);
    CHECK_INT(n.report.done + n.report.failed, 0);
    char *got = night_output(&n);
    CHECK_STR(got, want);
    free(got);
    free(want);
    night_close(&n);
}

/* --max-jobs ends after exactly so many; the rest is left. */
TEST(limit_of_jobs)
{
    struct err e;
    struct night n;
    CHECK(night_open(&n, "limit.db"));
    CHECK_OK(night_import(&n, "mixed.jsonl", mixed(), &e), e);
    n.o.max_jobs = 5;
    CHECK_OK(night_run(&n, &e), e);
    CHECK_INT(n.report.end, PIPELINE_LIMIT);
    CHECK_INT(n.report.done + n.report.failed, 5);
    CHECK(n.report.unfinished > 0);
    night_close(&n);
}

/* A deadline that has passed lets nothing begin. */
TEST(deadline)
{
    struct err e;
    struct night n;
    CHECK(night_open(&n, "deadline.db"));
    CHECK_OK(night_import(&n, "mixed.jsonl", mixed(), &e), e);
    n.o.deadline = 1;
    CHECK_OK(night_run(&n, &e), e);
    CHECK_INT(n.report.end, PIPELINE_LIMIT);
    CHECK_INT(n.report.done, 0);
    night_close(&n);
}

/* Too many failures halt the run. */
TEST(halt_on_failures)
{
    struct err e;
    struct night n;
    char text[4096] = "";
    for (int i = 0; i < 20; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "{\"id\":\"x%d\",\"prompt\":\"x\",\"model\":\"gpt-4\"}\n", i);
    CHECK(night_open(&n, "halt.db"));
    CHECK_OK(night_import(&n, "halt.jsonl", text, &e), e);
    n.o.halt_fails = 3;
    CHECK_OK(night_run(&n, &e), e);
    CHECK_INT(n.report.end, PIPELINE_HALTED);
    CHECK(n.report.failed >= 3 && n.report.failed < 20);
    night_close(&n);
}

/* Asked for JSON and given none: a greedy job fails at once with its text kept; a drawn one is
 * tried again, each time with other draws. */
TEST(no_json_where_asked_for)
{
    struct err e;
    struct night n;
    CHECK(night_open(&n, "json.db"));
    CHECK_OK(night_import(&n, "json.jsonl",
                          "{\"id\":\"g\",\"prompt\":\"x\",\"response_format\":{\"type\":"
                          "\"json_object\"}}\n"
                          "{\"id\":\"d\",\"prompt\":\"x\",\"temperature\":1,"
                          "\"response_format\":{\"type\":\"json_object\"}}\n",
                          &e),
             e);
    CHECK_OK(night_run(&n, &e), e);
    CHECK_INT(jobs_int(n.db, "SELECT count(*) FROM failures WHERE code='invalid_output_json'"), 2);
    CHECK_INT(jobs_int(n.db, "SELECT attempt FROM failures WHERE custom_id='g'"), 1);
    CHECK_INT(jobs_int(n.db, "SELECT attempt FROM failures WHERE custom_id='d'"), 3);
    CHECK_INT(jobs_int(n.db, "SELECT count(*) FROM attempts"), 4);
    CHECK_INT(jobs_int(n.db, "SELECT count(content) FROM results"), 2);
    CHECK_INT(n.report.retried, 2);
    CHECK_INT(jobs_int(n.db, "SELECT r.seed - (j.spec ->> 'seed') FROM results r JOIN jobs j ON "
                             "j.id=r.job_id WHERE j.custom_id='d'"),
              2);
    night_close(&n);
}

/* Leaves `text` in the picture, written at second `at`. */
static void write_at(const char *path, const char *text, time_t at)
{
    struct timespec times[2] = {{.tv_sec = at}, {.tv_sec = at}};
    test_write(path, text, strlen(text));
    CHECK_INT(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* A picture that changed since the import is not used, unless that was asked for: by its bytes, or
 * by size and time, which take a touched file for a changed one and miss one that keeps both. */
TEST(changed_picture)
{
    enum { CONTENT, STAT, KEEP };
    static const struct {
        const char *name, *text;
        time_t at;
        bool refused[3];
    } rows[] = {
        {"as it was", "before", 1000, {false, false, false}},
        {"rewritten", "after!", 2000, {true, true, false}},
        {"rewritten in secret", "after!", 1000, {true, false, false}},
        {"longer in secret", "after!!", 1000, {true, true, false}},
        {"touched", "before", 2000, {false, true, false}},
    };
    struct err e;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int how = CONTENT; how <= KEEP; how++) {
            struct night n;
            char name[32];
            snprintf(name, sizeof name, "changed%zu%d.db", i, how);
            CHECK(night_open(&n, name));
            write_at(test_path("p9"), "before", 1000);
            CHECK_OK(night_import(&n, "changed.jsonl",
                                  "{\"id\":\"a\",\"image\":\"p9\",\"prompt\":\"q\"}\n", &e),
                     e);
            write_at(test_path("p9"), rows[i].text, rows[i].at);
            n.o.prepare.keep_changed = how == KEEP;
            n.o.prepare.verify_stat = how == STAT;
            CHECK_OK(night_run(&n, &e), e);
            bool refused =
                jobs_int(n.db, "SELECT count(*) FROM failures WHERE code='image_changed'");
            if (refused != rows[i].refused[how])
                test_failed(__FILE__, __LINE__, "%s, %d: %d", rows[i].name, how, refused);
            CHECK_INT(n.report.done, !refused);
            night_close(&n);
        }
}

struct watch {
    struct night *n;
    int sweep;
    uint64_t used[3];
};

static void note_use(void *user)
{
    struct watch *w = user;
    if (w->sweep < 3) w->used[w->sweep++] = w->n->mem.used;
}

/* A picture's rows are given back with the first token, not kept until the last. */
TEST(rows_end_with_the_first_token)
{
    struct err e;
    struct night n;
    CHECK(night_open(&n, "rows.db"));
    mixed();
    CHECK_OK(night_import(&n, "rows.jsonl",
                          "{\"id\":\"a\",\"image\":\"p1\",\"prompt\":\"q\",\"max_tokens\":9}\n",
                          &e),
             e);
    struct watch w = {.n = &n};
    n.engine.on_sweep = note_use;
    n.engine.user = &w;
    n.engine.length = 200;
    n.o.prepare.image_bytes = 0;
    CHECK_OK(night_run(&n, &e), e);
    CHECK(w.used[0] > 0);
    CHECK_INT(w.used[1], 0);
    night_close(&n);
}

struct thief {
    struct night *n;
    int at;
};

static void steal(void *user)
{
    struct thief *t = user;
    if (++t->at != 4) return;
    struct err e;
    int64_t k;
    queue_cancel(t->n->db, &(struct queue_filter){.custom_id = "t11"}, 1000, &k, &e);
}

/* A job cancelled while it runs stays cancelled; the others are not touched. */
TEST(cancelled_while_running)
{
    struct err e;
    struct night n;
    CHECK(night_open(&n, "steal.db"));
    CHECK_OK(night_import(&n, "steal.jsonl",
                          "{\"id\":\"t11\",\"prompt\":\"What is 11?\",\"max_tokens\":37}\n"
                          "{\"id\":\"t10\",\"prompt\":\"What is 10?\",\"max_tokens\":37}\n",
                          &e),
             e);
    struct thief t = {.n = &n};
    n.engine.on_sweep = steal;
    n.engine.user = &t;
    n.engine.length = 200;
    n.o.checkpoint_s = 0;
    CHECK_OK(night_run(&n, &e), e);
    CHECK_INT(n.report.lost, 1);
    CHECK_INT(n.report.done, 1);
    CHECK(n.report.engine.tokens < 37 + 10);
    CHECK_INT(jobs_int(n.db, "SELECT count(*) FROM failures WHERE code='cancelled'"), 1);
    night_close(&n);
}

/* A job over its time is stopped with what it has, and the next ones run. */
TEST(timeout)
{
    struct err e;
    struct night n;
    CHECK(night_open(&n, "timeout.db"));
    CHECK_OK(night_import(&n, "timeout.jsonl",
                          "{\"id\":\"slow\",\"prompt\":\"x\",\"timeout_s\":0.000001}\n"
                          "{\"id\":\"fine\",\"prompt\":\"x\"}\n",
                          &e),
             e);
    n.engine.length = 1000;
    CHECK_OK(night_run(&n, &e), e);
    CHECK_INT(jobs_int(n.db, "SELECT count(*) FROM failures WHERE code='timeout'"), 1);
    CHECK_INT(jobs_int(n.db, "SELECT count(*) FROM answers"), 1);
    night_close(&n);
}

enum { CROWD = 900, PASSED = 20, AT_ONCE = 4, LONGEST = 6 };

struct ends {
    uint64_t sweep[CROWD + 1]; /* in which each job ended */
    int n, important;          /* so far; of them with priority */
    int early;                 /* others that ended before the last of those */
};

static void note_end(void *user, const struct pipeline_state *s)
{
    struct ends *x = user;
    if (s->event != PIPELINE_JOB) return;
    x->sweep[s->job->id] = s->sweeps;
    x->n++;
    if (s->job->priority)
        x->important++;
    else
        x->early += x->important < CROWD / 100;
}

/* Jobs whose places have nothing to do with their order, one in a hundred with priority. */
static bool crowd(const char *name, bool input, struct ends *ends)
{
    struct err e;
    struct night n;
    struct buf b = {0};
    enum status rc = night_open(&n, name) ? OK : E_INTERNAL;
    for (int i = 0; i < CROWD && !rc; i++)
        rc = buf_addf(&b, &e, "{\"id\":\"j%d\",\"prompt\":\"What is %d?\"}\n", i, i);
    if (!rc) rc = night_import(&n, "crowd.jsonl", b.data, &e);
    if (!rc)
        rc = db_exec(n.db, "UPDATE jobs SET place=1+(id*7919+450)%911, priority=id%100=99", &e);
    n.o.sequences = n.engine.sequences = AT_ONCE;
    n.engine.length = LONGEST;
    n.o.passed = PASSED;
    n.o.worker.input_order = input;
    n.o.event = note_end;
    n.o.user = ends;
    if (!rc) rc = night_run(&n, &e);
    if (rc) test_failed(__FILE__, __LINE__, "%s", e.text);
    buf_free(&b);
    night_close(&n);
    return !rc;
}

/* However the plan likes others better, a job ends at most so many sweeps later than by input
 * order as those take that it lets past: twice PASSED, a claim, and those ahead of it already.
 * Priority goes first in either order. */
TEST(waiting_is_bounded)
{
    static struct ends input, planned;
    CHECK(crowd("crowd0.db", true, &input));
    CHECK(crowd("crowd1.db", false, &planned));
    CHECK_INT(input.n, CROWD);
    CHECK_INT(planned.n, CROWD);
    int64_t most = 0, bound = (3 * PASSED + 64 + 2 * AT_ONCE) * LONGEST / AT_ONCE;
    for (int i = 1; i <= CROWD; i++) {
        int64_t later = (int64_t)planned.sweep[i] - (int64_t)input.sweep[i];
        if (later > most) most = later;
    }
    CHECK(most > PASSED / AT_ONCE);
    if (most > bound) FAIL("%lld sweeps later, %lld allowed", (long long)most, (long long)bound);
    CHECK(input.early <= AT_ONCE && planned.early <= AT_ONCE);
}

/* Each life with another order and another number of sequences: no token is given twice, and with
 * the spool no picture is encoded twice. */
TEST(nothing_is_done_twice)
{
    struct err e;
    struct night n;
    struct buf b = {0};
    mixed(); /* writes the pictures */
    for (int i = 0; i < 30; i++)
        CHECK_OK(buf_addf(&b, &e, "{\"id\":\"j%d\",\"prompt\":\"%d?\"%s}\n", i, i,
                          i % 3 == 0   ? ",\"image\":\"p1\""
                          : i % 3 == 1 ? ",\"image\":\"p2\""
                                       : ""),
                 e);
    CHECK(night_open(&n, "once.db"));
    CHECK_OK(night_import(&n, "once.jsonl", b.data, &e), e);
    CHECK_OK(night_run(&n, &e), e);
    uint64_t want = n.report.engine.tokens, got = 0;
    CHECK_INT(n.encoded, 2);
    night_close(&n);
    CHECK(night_open(&n, "twice.db"));
    CHECK_OK(night_import(&n, "once.jsonl", b.data, &e), e);
    int rounds = 0, left;
    n.o.stop = stop_after;
    n.o.user = &left;
    do {
        struct spool_opts s = {
            .dir = test_path("twice.images"), .scope = "", .limit_bytes = 1 << 20};
        s.width = n.config.hidden;
        CHECK_OK(spool_open(&n.o.prepare.spool, &s, &e), e);
        left = 3 + rounds % 3;
        n.o.worker.input_order = rounds & 1;
        n.o.sequences = n.engine.sequences = 1 + (size_t)rounds % 5;
        CHECK_OK(night_run(&n, &e), e);
        spool_close(n.o.prepare.spool, false);
        got += n.report.engine.tokens;
        CHECK(++rounds < 500);
    } while (n.report.end == PIPELINE_STOPPED);
    CHECK(rounds > 10);
    CHECK_INT(got, want);
    CHECK_INT(n.encoded, 2);
    night_close(&n);
    buf_free(&b);
}

TEST_MAIN
