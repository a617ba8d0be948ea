/* spec: drafts come from where the same tokens stood before, the surest first, and stop where they
 * do not pay. */
#include "src/spec.h"
#include "tests/lib/test.h"

static struct mem mem;

static struct spec *open_spec(size_t ring, size_t fixed)
{
    struct err e;
    struct spec *s = NULL;
    mem_init(&mem, 0);
    struct spec_opts o = {.mem = &mem, .ring_tokens = ring, .fixed = fixed};
    if (spec_open(&s, &o, &e)) test_failed(__FILE__, __LINE__, "%s", e.text);
    return s;
}

static void close_spec(struct spec *s)
{
    spec_close(s);
    mem_close(&mem);
}

/* Own text: what followed the same two tokens before, as far as asked for. */
TEST(own_text_is_searched)
{
    struct spec *s = open_spec(1000, 16);
    struct spec_draft d = {.n = 0};
    const int32_t known[] = {9, 1, 2, 3, 4, 5, 8, 1, 2};
    spec_draft(s, known, 9, 3, &d);
    CHECK_INT(d.n, 3);
    CHECK_INT(d.ids[0], 3);
    CHECK_INT(d.ids[2], 5);
    spec_draft(s, known, 9, 0, &d);
    CHECK_INT(d.n, 0);
    const int32_t fresh[] = {9, 1, 2, 3, 4, 5, 8, 2, 1};
    spec_draft(s, fresh, 9, 3, &d);
    CHECK_INT(d.n, 0);
    spec_draft(s, known, 2, 3, &d);
    CHECK_INT(d.n, 0);
    close_spec(s);
}

/* A finished output is found by others, with the end of its prompt; not beyond its own end. */
TEST(finished_outputs_are_searched)
{
    struct spec *s = open_spec(1000, 16);
    struct spec_draft d = {.n = 0};
    const int32_t done[] = {50, 51, 52, 1, 2, 3}, other[] = {60, 61, 62};
    const int32_t known[] = {70, 51, 52};
    spec_learn(s, done, 6, 3);
    spec_learn(s, other, 3, 1);
    spec_draft(s, known, 3, 16, &d);
    CHECK_INT(d.n, 3);
    for (int i = 0; i < 3; i++) CHECK_INT(d.ids[i], i + 1);
    close_spec(s);
}

/* So is the output of one that runs beside it and is ahead; its prompt is not, nor is itself. */
TEST(running_outputs_are_searched)
{
    struct spec *s = open_spec(1000, 16);
    struct spec_draft d = {.n = 0};
    const int32_t ahead[] = {70, 80, 9, 9, 50, 51, 52, 53, 54, 55, 56, 57, 1, 2, 3};
    const int32_t known[] = {60, 51, 70, 80}, late[] = {60, 51, 57, 1};
    const struct spec_text live[] = {{late, 4, 2}, {ahead, 15, 12}, {known, 4, 4}};
    spec_begin(s, false, live, 3);
    spec_draft(s, late, 4, 16, &d);
    CHECK_INT(d.n, 2);
    CHECK(d.ids[0] == 2 && d.ids[1] == 3);
    spec_draft(s, known, 4, 16, &d);
    CHECK_INT(d.n, 0);
    spec_begin(s, false, live, 1);
    spec_draft(s, late, 4, 16, &d);
    CHECK_INT(d.n, 0);
    close_spec(s);
}

/* The longer match counts more than several short ones, and the majority among equals. */
TEST(places_vote)
{
    struct spec *s = open_spec(1000, 1);
    struct spec_draft d = {.n = 0};
    const int32_t shorter[] = {7, 5, 6, 100}, longer[] = {2, 3, 4, 5, 6, 200};
    for (int i = 0; i < 2; i++) spec_learn(s, shorter, 4, 0);
    spec_learn(s, longer, 6, 0);
    const int32_t known[] = {1, 2, 3, 4, 5, 6};
    spec_draft(s, known, 6, 1, &d);
    CHECK_INT(d.n, 1);
    CHECK_INT(d.ids[0], 200);
    const int32_t plain[] = {0, 5, 6};
    spec_learn(s, shorter, 4, 0);
    spec_draft(s, plain, 3, 1, &d);
    CHECK_INT(d.ids[0], 100);
    close_spec(s);
}

/* The ring forgets the oldest and never drafts what was overwritten; every draft is of tokens that
 * were learned, whatever goes round. */
TEST(ring_wraps_around)
{
    struct spec *s = open_spec(64, 0);
    struct spec_draft d = {.n = 0};
    unsigned long long r = 1;
    const int32_t first[] = {1000, 1001, 1002, 1003}, known[] = {7, 1000, 1001};
    spec_learn(s, first, 4, 0);
    spec_draft(s, known, 3, 4, &d);
    CHECK_INT(d.n, 2);
    for (int round = 0; round < 200; round++) {
        int32_t text[20];
        size_t n = 3 + test_rand(&r) % 17;
        for (size_t i = 0; i < n; i++) text[i] = (int32_t)(test_rand(&r) % 5);
        spec_learn(s, text, n, test_rand(&r) % n);
        spec_draft(s, text, n, 16, &d);
        CHECK(d.n <= 16);
        for (size_t i = 0; i < d.n; i++) CHECK(d.ids[i] >= 0 && d.ids[i] < 5);
    }
    spec_draft(s, known, 3, 4, &d);
    CHECK_INT(d.n, 0);
    /* One that is longer than the ring is left alone. */
    static int32_t huge[100];
    spec_learn(s, huge, 100, 0);
    close_spec(s);
}

/* A pair at one place of the ring in two laps, nothing like it between, and the ring about to write
 * there again: the search ends all the same. */
TEST(oldest_place)
{
    struct spec *s = open_spec(64, 4);
    struct spec_draft d = {.n = 0};
    const int32_t known[] = {1, 7, 8};
    int32_t text[31];
    for (int i = 0; i < 31; i++) text[i] = 500;
    for (int lap = 0; lap < 2; lap++) {
        text[4] = 7;
        text[5] = 8;
        spec_learn(s, text, 31, 0);
        text[4] = text[5] = 500;
        spec_learn(s, text, 31, 0);
    }
    spec_learn(s, text, 4, 0);
    spec_begin(s, false, NULL, 0);
    spec_draft(s, known, 3, 4, &d);
    CHECK(d.n <= 4);
    close_spec(s);
}

/* Drafts that are always wrong stop; they come back when they have become right. */
static size_t drafted(struct spec *s, const int32_t *known, size_t n, int rounds, bool right)
{
    struct spec_draft d = {.n = 0};
    size_t sum = 0;
    for (int i = 0; i < rounds; i++) {
        spec_draft(s, known, n, 4, &d);
        sum += d.n;
        if (d.n) spec_judge(s, &d, right ? d.n : 0);
    }
    return sum;
}

TEST(drafts_that_do_not_pay_stop)
{
    struct spec *s = open_spec(1000, 0);
    struct spec_stats t;
    const int32_t known[] = {1, 2, 3, 4, 1, 2};
    drafted(s, known, 6, 100, false);
    CHECK(drafted(s, known, 6, 1000, false) < 60);
    spec_stats(s, &t);
    CHECK_INT(t.accepted, 0);
    drafted(s, known, 6, 40000, true);
    CHECK_INT(drafted(s, known, 6, 1, true), 4);
    spec_stats(s, &t);
    CHECK(t.accepted > 0 && t.accepted <= t.drafted);
    close_spec(s);
}

/* 50 sweeps of up to 5 rows and 6 drafts, a token for each: so much for a sweep, each row and each
 * draft of it. */
static void sweeps(struct spec *s, bool prompts, const double seconds[3], const double bytes[3])
{
    for (size_t i = 1; i <= 50; i++) {
        size_t rows = 1 + i % 5, drafts = i % 7;
        struct spec_sweep w = {.prompts = prompts, .rows = rows + drafts, .drafts = drafts};
        w.tokens = w.rows;
        w.seconds = seconds[0] + seconds[1] * (double)rows + seconds[2] * (double)drafts;
        w.bytes = bytes[0] + bytes[1] * (double)rows + bytes[2] * (double)drafts;
        spec_cost(s, &w);
    }
    spec_begin(s, prompts, NULL, 0);
}

/* When drafts are dear, in time or in bytes, a doubtful one is not made; when they cost nothing it
 * is, however dear other rows are; a fixed length asks nobody. */
TEST(cost_decides)
{
    const int32_t known[] = {1, 2, 3, 4, 1, 2};
    static const double none[3] = {10, 3, 0}, dear[3] = {0, 1, 1};
    struct spec_draft d = {.n = 0};
    for (int k = 0; k < 4; k++) {
        struct spec *s = open_spec(1000, 0);
        sweeps(s, false, k & 1 ? dear : none, k & 2 ? dear : none);
        spec_draft(s, known, 6, 4, &d);
        CHECK_INT(d.n, k ? 0 : 4);
        close_spec(s);
    }
    struct spec *fixed = open_spec(1000, 2);
    drafted(fixed, known, 6, 500, false);
    spec_draft(fixed, known, 6, 4, &d);
    CHECK_INT(d.n, 2);
    close_spec(fixed);
}

/* In a sweep with prompts, which reads everything anyway, drafts are made that do not pay in one
 * without; going by bytes alone, time does not matter. */
TEST(prompts_make_drafts_cheap)
{
    const int32_t known[] = {1, 2, 3, 4, 1, 2};
    static const double none[3] = {10, 3, 0}, dear[3] = {0, 1, 1};
    struct spec_draft d = {.n = 0};
    struct err e;
    struct spec *s = open_spec(1000, 0);
    sweeps(s, true, none, none);
    sweeps(s, false, none, dear);
    spec_draft(s, known, 6, 4, &d);
    CHECK_INT(d.n, 0);
    spec_begin(s, true, NULL, 0);
    spec_draft(s, known, 6, 4, &d);
    CHECK_INT(d.n, 4);
    close_spec(s);
    mem_init(&mem, 0);
    struct spec_opts o = {.mem = &mem, .ring_tokens = 1000, .no_clock = true};
    CHECK_OK(spec_open(&s, &o, &e), e);
    sweeps(s, false, dear, none);
    spec_draft(s, known, 6, 4, &d);
    CHECK_INT(d.n, 4);
    close_spec(s);
}

/* A sequence whose drafts are always wrong gets none, where others do. */
TEST(each_sequence_for_itself)
{
    const int32_t known[] = {1, 2, 3, 4, 1, 2};
    struct spec *s = open_spec(1000, 0);
    struct spec_draft good = {.n = 0}, bad = {.n = 0};
    size_t last = 0;
    for (int i = 0; i < 200; i++) {
        for (int k = 0; k < 8; k++) {
            spec_draft(s, known, 6, 1, &good);
            spec_judge(s, &good, good.n);
        }
        spec_draft(s, known, 6, 1, &bad);
        if ((last = bad.n)) spec_judge(s, &bad, 0);
    }
    CHECK_INT(good.n, 1);
    CHECK_INT(last, 0);
    close_spec(s);
}

/* What the form of an answer gives is tried until it proves wrong. */
TEST(given_drafts_are_judged)
{
    struct spec *s = open_spec(1000, 0);
    struct spec_draft d = {.ids = {5, 6}};
    CHECK(!spec_take(s, 0, &d));
    CHECK(spec_take(s, 2, &d) && d.n == 2);
    spec_judge(s, &d, 2);
    for (int i = 0; i < 100 && spec_take(s, 2, &d); i++) spec_judge(s, &d, 0);
    CHECK(!spec_take(s, 2, &d));
    CHECK_INT(d.n, 0);
    close_spec(s);
}

TEST_MAIN
