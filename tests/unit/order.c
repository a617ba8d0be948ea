/* Which jobs come together, which goes next, and when: place, turn, order. */
#include "jobs/order.h"
#include "jobs/place.h"
#include "jobs/turn.h"
#include "tests/lib/jobs.h"
#include "tests/lib/test.h"

static int64_t place(const char *line, const char *const *sha256)
{
    struct job j;
    struct err e;
    int64_t at = -1;
    if (job_parse(&j, line, strlen(line), NULL, &e))
        test_failed(__FILE__, __LINE__, "%s", e.text);
    else
        at = place_of(&j, sha256);
    job_free(&j);
    return at;
}

/* The system text counts first, then the first picture by its content, then the text. */
TEST(jobs_that_begin_alike_are_near)
{
    const char *one[] = {"aaaa"}, *two[] = {"bbbb"};
    int64_t a = place("{\"id\":\"1\",\"image\":\"x.png\",\"prompt\":\"q\"}", one);
    int64_t b = place("{\"id\":\"2\",\"image\":\"y.png\",\"prompt\":\"r\"}", one);
    int64_t c = place("{\"id\":\"3\",\"image\":\"x.png\",\"prompt\":\"q\"}", two);
    CHECK(place_beginning(a) == place_beginning(b) && a != b);
    CHECK(place_beginning(a) != place_beginning(c));
    CHECK(a < PLACE_SYSTEM && a >= 0);
    int64_t d = place("{\"id\":\"1\",\"system\":\"s\",\"image\":\"x.png\",\"prompt\":\"q\"}", one);
    int64_t f = place("{\"id\":\"2\",\"system\":\"s\",\"image\":\"x.png\",\"prompt\":\"q\"}", two);
    int64_t g = place("{\"id\":\"2\",\"system\":\"t\",\"image\":\"x.png\",\"prompt\":\"q\"}", two);
    CHECK(d >= PLACE_SYSTEM && d / PLACE_SYSTEM == f / PLACE_SYSTEM);
    CHECK(f / PLACE_SYSTEM != g / PLACE_SYSTEM);
    CHECK_INT(place("{\"id\":\"9\",\"image\":\"z.png\",\"prompt\":\"q\"}", one), a);
}

static size_t claim(struct db *db, struct turn *t, struct queue_worker *w, size_t max, int64_t *ids)
{
    struct queue_job j[64];
    struct err e;
    size_t n = 0;
    if (turn_next(db, t, w, &e) || queue_claim(db, w, 0, j, max, &n, &e))
        test_failed(__FILE__, __LINE__, "%s", e.text);
    turn_claimed(t, w, j, n);
    for (size_t i = 0; i < n; i++) {
        ids[i] = j[i].id;
        queue_job_free(&j[i]);
    }
    return n;
}

/* Claims walk on through the places from the oldest job's, and begin again at the first one. */
TEST(claims_walk_through_the_places)
{
    struct err e;
    struct turn t = {.limit = 1000};
    struct queue_worker w = {.name = "w", .lease_ms = 1000000};
    int64_t ids[64];
    struct db *db = jobs_open("walk.db", NULL);
    jobs_add(db, 12);
    /* places 1..4 three times each; the oldest job has place 3 */
    CHECK_OK(db_exec(db, "UPDATE jobs SET place=(id+1)%4+1", &e), e);
    static const int64_t want[] = {1, 5, 9, 2, 6, 10, 3, 7, 11, 4, 8, 12};
    for (size_t at = 0; at < 12; at += 4) {
        CHECK_INT(claim(db, &t, &w, 4, ids), 4);
        for (size_t i = 0; i < 4; i++) CHECK_INT(ids[i], want[at + i]);
    }
    CHECK_INT(claim(db, &t, &w, 4, ids), 0);
    db_close(db);
}

/* Whatever the places and priorities are, no job lets more of its priority past than twice the
 * limit and one claim; a higher priority always goes first. */
TEST(no_job_waits_for_ever)
{
    enum { JOBS = 600, LIMIT = 50, CLAIM = 10 };
    struct err e;
    struct turn t = {.limit = LIMIT};
    struct queue_worker w = {.name = "w", .lease_ms = 1000000};
    static int64_t at[JOBS + 1], ids[64];
    struct db *db = jobs_open("ever.db", NULL);
    jobs_add(db, JOBS);
    CHECK_OK(db_exec(db, "UPDATE jobs SET place=1+id*7919%601, priority=id%3=0", &e), e);
    int64_t n = 0;
    for (size_t got; (got = claim(db, &t, &w, CLAIM, ids)) > 0;)
        for (size_t i = 0; i < got; i++) at[ids[i]] = n++;
    CHECK_INT(n, JOBS);
    int64_t most = 0;
    for (int64_t a = 1; a <= JOBS; a++) {
        int64_t passed = 0;
        for (int64_t b = a + 1; b <= JOBS; b++) {
            bool high_a = a % 3 == 0, high_b = b % 3 == 0;
            if (high_a == high_b)
                passed += at[b] < at[a];
            else
                CHECK(high_a == (at[a] < at[b]));
        }
        if (passed > most) most = passed;
    }
    CHECK(most > LIMIT / 2);
    CHECK(most <= 2 * LIMIT + CLAIM);
    db_close(db);
}

/* After an interruption the walk goes on where work was begun. */
TEST(walk_goes_on_at_begun_work)
{
    struct err e;
    struct turn t = {.limit = 1000};
    struct queue_worker w = {.name = "w", .lease_ms = 1000000};
    int64_t ids[64];
    struct db *db = jobs_open("begun.db", NULL);
    jobs_add(db, 9);
    CHECK_OK(db_exec(db, "INSERT INTO partial VALUES(6, x'01000000', 0, 0, 0)", &e), e);
    CHECK_INT(claim(db, &t, &w, 2, ids), 2);
    CHECK_INT(ids[0], 6);
    CHECK_INT(ids[1], 7);
    db_close(db);
}

enum { FLIGHTS = 12 };

static struct order *open_order(struct flight *f, bool input)
{
    struct err e;
    struct order *o;
    struct order_opts opts = {
        .input = input, .sequences = 8, .prefill_rows = 512, .window = FLIGHTS};
    memset(f, 0, FLIGHTS * sizeof *f);
    if (order_open(&o, &opts, &e)) test_failed(__FILE__, __LINE__, "%s", e.text);
    for (int i = 0; i < FLIGHTS; i++) f[i].job.id = i;
    return o;
}

static void begins(struct flight *f, int64_t beginning, int64_t text_bytes)
{
    f->job.place = beginning << 30 | f->job.id;
    f->job.text_bytes = text_bytes;
}

/* Jobs 5 and up run, of the groups 5, 6, ..., as many as groups may be. */
static void run_groups(struct flight *f, int n)
{
    for (int i = 5; i < 5 + n; i++) {
        f[i].where = FLIGHT_RUNNING;
        begins(&f[i], i, 1000);
    }
}

/* Where enough long beginnings are under way, a job that begins like one of them goes first, a
 * higher priority before it; else the order of claims; in input order nothing but that. */
TEST(what_goes_next)
{
    struct flight f[FLIGHTS];
    for (int input = 0; input < 2; input++) {
        struct order *o = open_order(f, input);
        run_groups(f, 6);
        for (int i = 1; i < 5; i++) {
            begins(&f[i], i == 3 ? 6 : i, 1000);
            order_wait(o, &f[i]);
        }
        f[4].job.priority = 1;
        static const int want[2][4] = {{4, 3, 1, 2}, {1, 2, 3, 4}};
        for (int i = 0; i < 4; i++) CHECK_INT(order_next(o, f, FLIGHTS)->job.id, want[input][i]);
        CHECK(!order_next(o, f, FLIGHTS));
        order_close(o);
    }
}

/* Those that begin alike give drafts to each other when they run at different times: new long
 * beginnings go first while there are few, then the one with the fewest under way; short ones that
 * begin like one under way go last. */
TEST(alike_jobs_are_spread)
{
    struct flight f[FLIGHTS];
    struct order *o = open_order(f, false);
    run_groups(f, 3);
    f[9].where = FLIGHT_RUNNING;
    begins(&f[9], 5, 1000); /* two of group 5 */
    f[10].where = FLIGHT_RUNNING;
    begins(&f[10], 20, 10);
    begins(&f[0], 20, 10);
    begins(&f[1], 5, 1000);
    begins(&f[2], 6, 1000);
    begins(&f[3], 21, 10);
    begins(&f[4], 4, 1000);
    static const int want[] = {4, 2, 1, 3, 0};
    for (int i = 0; i < 5; i++) order_wait(o, &f[i]);
    for (int i = 0; i < 5; i++) {
        struct flight *next = order_next(o, f, FLIGHTS);
        CHECK_INT(next->job.id, want[i]);
        next->where = FLIGHT_READY;
    }
    order_close(o);
}

/* Beginnings shared with what runs or is ready end where the rows differ; with what only waits,
 * behind the picture, if it begins alike. */
TEST(where_prompts_part)
{
    struct flight f[FLIGHTS];
    struct order *o = open_order(f, false);
    uint64_t rows[3][100];
    struct engine_image picture = {.first = 40, .n = 20};
    size_t cuts[SHARE_CUTS];
    for (int i = 0; i < 3; i++) {
        for (size_t k = 0; k < 100; k++) rows[i][k] = k + (k >= 80) * (uint64_t)i * 1000;
        f[i].ready.row_hash = rows[i];
        f[i].ready.prompt.ids.n = 100;
        f[i].where = FLIGHT_FREE;
        begins(&f[i], 1, 1000);
    }
    f[0].where = FLIGHT_READY;
    CHECK_INT(order_cuts(&f[0], f, FLIGHTS, cuts), 0);
    f[1].where = FLIGHT_RUNNING;
    CHECK_INT(order_cuts(&f[0], f, FLIGHTS, cuts), 1);
    CHECK_INT(cuts[0], 80);
    f[1].where = FLIGHT_WAITING;
    CHECK_INT(order_cuts(&f[0], f, FLIGHTS, cuts), 0);
    f[0].ready.images = &picture;
    f[0].ready.n_images = 1;
    CHECK_INT(order_cuts(&f[0], f, FLIGHTS, cuts), 1);
    CHECK_INT(cuts[0], 60);
    begins(&f[1], 2, 1000);
    CHECK_INT(order_cuts(&f[0], f, FLIGHTS, cuts), 0);
    f[2].where = FLIGHT_READY;
    CHECK_INT(order_cuts(&f[0], f, FLIGHTS, cuts), 1);
    order_close(o);
}

/* A job that better ones go past again and again goes at last. */
TEST(passed_over_long_enough)
{
    struct flight f[FLIGHTS];
    struct order *o = open_order(f, false);
    run_groups(f, 6);
    begins(&f[1], 1, 1000);
    begins(&f[2], 5, 1000);
    order_wait(o, &f[1]);
    int went = 0;
    for (; went < 3 * ORDER_PASSED; went++) {
        order_wait(o, &f[2]);
        if (order_next(o, f, FLIGHTS) == &f[1]) break;
    }
    CHECK_INT(went, ORDER_PASSED + 1);
    order_close(o);
}

static void sweeps(struct order *o, struct engine_stats *s, int n, uint64_t with, uint64_t without)
{
    for (int i = 0; i < n; i++) {
        s->prefill_rows += i % 4 == 0 ? 20 : 0;
        s->expert_bytes += i % 4 == 0 ? with : without;
        s->tokens += 8;
        order_swept(o, s, 8);
    }
}

/* Prompts wait for company when their sweeps read much more than others: then for seven eighths of
 * the places at most; not when nothing else runs, nothing else comes, or it saves nothing. */
TEST(when_jobs_are_admitted)
{
    struct flight f[FLIGHTS];
    struct order *o = open_order(f, false);
    struct engine_stats s = {0};
    struct order_now one = {.free = 1, .ready = 5, .running = true, .coming = true}, now = one;
    CHECK(order_admit(o, &one));
    sweeps(o, &s, 40, 1000, 1000);
    order_admitted(o);
    CHECK(order_admit(o, &one));
    for (int i = 0; i < 20; i++) order_admitted(o);
    sweeps(o, &s, 40, 10000, 1000);
    CHECK(!order_admit(o, &one));
    now.free = now.ready = 7;
    CHECK(order_admit(o, &now));
    now.ready = 1;
    int waits = 0, again = 0; /* one idle place is worth a wait, but not for ever */
    while (!order_admit(o, &now)) waits++;
    while (!order_admit(o, &now)) again++;
    CHECK(waits > 30 && waits < 300 && again == waits);
    now = one;
    now.running = false;
    CHECK(order_admit(o, &now));
    now = one;
    now.coming = false;
    CHECK(!order_admit(o, &now)); /* five are left, one place is free */
    now.ready = 1;
    CHECK(order_admit(o, &now));
    s.spec.drafted += 60; /* with drafts that pay, sweeps with prompts are welcome */
    s.decode_rows += 60;
    s.spec.accepted += 40;
    now = one;
    sweeps(o, &s, 1, 10000, 1000);
    CHECK(order_admit(o, &now));
    order_close(o);
    o = open_order(f, true);
    sweeps(o, &s, 40, 10000, 1000);
    CHECK(order_admit(o, &one));
    order_close(o);
}

TEST_MAIN
