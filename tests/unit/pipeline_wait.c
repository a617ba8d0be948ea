/* pipeline: sweeps and the jobs that are being prepared wait for each other. */
#include "jobs/flight.h"
#include "tests/lib/jobs.h"
#include "tests/lib/night.h"
#include "tests/lib/test.h"

#include <stdatomic.h>
#include <unistd.h>

/* A clock that goes on a second of decoding and two of the tower whenever it is read. */
static atomic_int ticks;
static void ticking(struct vision *v, struct vision_times *out)
{
    (void)v;
    int n = ++ticks;
    *out = (struct vision_times){n, 2.0 * n};
}

/* Not before somebody waits for it, if within ten seconds. */
static enum status encode_late(struct vision *v, const void *bytes, size_t len,
                               struct picture_info *info, float **rows, struct err *e)
{
    for (int i = 0; i < 10000 && ticks == 0; i++) usleep(1000);
    return fake_encode(v, bytes, len, info, rows, e);
}

/* What the engine waits for is told apart: here one reading of the clock passes in each wait. The
 * first job of a run is always waited for. */
TEST(waits_are_told_apart)
{
    struct err e;
    struct night n;
    CHECK(night_open(&n, "waits.db"));
    test_write(test_path("p1"), "picture one", 11);
    CHECK_OK(
        night_import(&n, "waits.jsonl", "{\"id\":\"a\",\"image\":\"p1\",\"prompt\":\"q\"}\n", &e),
        e);
    ticks = 0;
    n.o.prepare.times = ticking;
    n.o.prepare.encode = encode_late;
    n.o.patient = true;
    CHECK_OK(night_run(&n, &e), e);
    const struct ahead_waits *w = &n.report.waits;
    CHECK(w->seconds > 0 && w->waited.decode_s >= 1);
    CHECK(w->waited.encode_s == 2 * w->waited.decode_s);
    CHECK(w->all.decode_s == ticks && w->all.encode_s == 2 * ticks);
    night_close(&n);
}

static enum status encode_slowly(struct vision *v, const void *bytes, size_t len,
                                 struct picture_info *info, float **rows, struct err *e)
{
    usleep(20000);
    return fake_encode(v, bytes, len, info, rows, e);
}

/* Sweeps that keep the cores busy for long wait until all places are taken; but not for pictures
 * that wait themselves, for room that only sweeps give back. */
TEST(sweeps_wait_for_pictures)
{
    enum { JOBS = 6 };
    for (int full = 0; full < 2; full++) {
        struct err e;
        struct night n;
        struct buf b = {0};
        for (int i = 0; i < JOBS; i++) {
            char name[] = {'q', (char)('0' + i), 0};
            test_write(test_path(name), name, 2);
            CHECK_OK(
                buf_addf(&b, &e, "{\"id\":\"%s\",\"image\":\"%s\",\"prompt\":\"q\"}\n", name, name),
                e);
        }
        CHECK(night_open(&n, full ? "full.db" : "wait.db"));
        CHECK_OK(night_import(&n, "pictures.jsonl", b.data, &e), e);
        n.o.sequences = n.engine.sequences = JOBS;
        n.engine.length = 1;
        n.o.sweep_s = 1000;
        n.o.prepare.encode = encode_slowly;
        if (full) n.o.prepare.image_bytes = 1;
        CHECK_OK(night_run(&n, &e), e);
        CHECK_INT(n.report.done, JOBS);
        if (full)
            CHECK(n.report.engine.sweeps > 1);
        else
            CHECK_INT(n.report.engine.sweeps, 1);
        buf_free(&b);
        night_close(&n);
    }
}

/* Jobs that run on a limited time, for which nothing is waited. */
TEST(limits)
{
    struct flight f = {.where = FLIGHT_READY};
    CHECK(flight_limit(&f, 5) == 0);
    f.where = FLIGHT_RUNNING;
    CHECK(flight_limit(&f, 0) == 0 && flight_limit(&f, 5) == 5);
    f.ready.job.settings.has = JOB_HAS_TIMEOUT;
    f.ready.job.settings.timeout_s = 2;
    CHECK(flight_limit(&f, 5) == 2 && flight_limit(&f, 0) == 2);
}

struct most {
    struct night *n;
    int64_t claimed;
    size_t ready;
};

static void note_claims(void *user)
{
    struct most *m = user;
    int64_t n = jobs_int(m->n->db, "SELECT count(*) FROM jobs WHERE state='running'");
    if (n > m->claimed) m->claimed = n;
}

static void note_ready(void *user, const struct pipeline_state *s)
{
    struct most *m = user;
    if (s->ready > m->ready) m->ready = s->ready;
}

/* Of jobs with long texts few are claimed and fewer prepared, of others as many as there is room.
 */
TEST(long_texts_are_few)
{
    enum { JOBS = 60, AT_ONCE = 8 };
    for (int huge = 0; huge < 2; huge++) {
        struct err e;
        struct night n;
        struct buf b = {0};
        for (int i = 0; i < JOBS; i++)
            CHECK_OK(buf_addf(&b, &e, "{\"id\":\"j%d\",\"prompt\":\"q\"}\n", i), e);
        CHECK(night_open(&n, huge ? "huge.db" : "short.db"));
        CHECK_OK(night_import(&n, "texts.jsonl", b.data, &e), e);
        /* what they claim to be is enough */
        if (huge) CHECK_OK(db_exec(n.db, "UPDATE jobs SET text_bytes=3000000", &e), e);
        struct most m = {.n = &n};
        n.o.sequences = n.engine.sequences = AT_ONCE;
        n.engine.on_sweep = note_claims;
        n.engine.user = n.o.user = &m;
        n.o.event = note_ready;
        CHECK_OK(night_run(&n, &e), e);
        CHECK_INT(n.report.done, JOBS);
        if (huge)
            CHECK(m.claimed <= AT_ONCE + 2 + 11 && m.ready <= 2);
        else
            CHECK(m.claimed > 2 * AT_ONCE && m.ready > 2);
        buf_free(&b);
        night_close(&n);
    }
}

TEST_MAIN
