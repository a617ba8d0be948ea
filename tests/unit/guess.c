/* Guesses about the next layer's experts: worth a read where nearly all the like were right. */
#include "src/guess.h"
#include "tests/lib/test.h"

#define EXPERTS 16
#define TOP     4

static struct mem mem;
static struct guess *g;
static struct err e;

static void begin(void)
{
    mem_init(&mem, 0);
    CHECK_OK(guess_open(&g, &mem, EXPERTS, &e), e);
}

static void end(void)
{
    guess_close(g);
    mem_close(&mem);
}

/* The early router ranks experts 3, 2, 1, 0 (3 best) for one row; then those of the mask `needed`
 * were. Experts of the mask `cached` are in memory. Returns those worth a read, or keeping. */
static unsigned sweep(size_t rows, bool router, unsigned cached, unsigned needed)
{
    static const uint32_t ids[TOP] = {0, 1, 2, 3};
    float scores[EXPERTS] = {0.1f, 0.2f, 0.3f, 0.4f};
    uint32_t start[EXPERTS + 1] = {0};
    unsigned worth = 0;
    guess_begin(g, 5, rows, router);
    if (router) guess_row(g, ids, TOP, scores);
    for (uint32_t x = 0; x < EXPERTS; x++) {
        worth |= (unsigned)guess_worth(g, x, cached >> x & 1) << x;
        start[x + 1] = start[x] + (needed >> x & 1);
    }
    guess_judge(g, 5, start);
    return worth;
}

/* Without evidence nothing is read; with it, what was right is, and what was wrong half of the time
 * is not. */
TEST(only_what_was_right)
{
    begin();
    CHECK_INT(sweep(1, true, 0, 0xc), 0);
    for (int i = 0; i < 40; i++) sweep(1, true, 0, i % 2 ? 0xc : 0x8);
    CHECK_INT(sweep(1, true, 0, 0xc), 0x8);
    end();
}

/* Sweeps of other sizes, and layers without a router, have evidence of their own; thousands of rows
 * need everything, and are seen to. */
TEST(sizes_apart)
{
    begin();
    for (int i = 0; i < 40; i++) sweep(1, true, 0, 0xf);
    CHECK_INT(sweep(1, true, 0, 0xf), 0xf);
    CHECK_INT(sweep(2, true, 0, 0xf), 0);
    CHECK_INT(sweep(1, false, 0, 0xf), 0);
    for (int i = 0; i < 40; i++) sweep(5000, false, 0, 0xffff);
    CHECK_INT(sweep(5000, false, 0, 0xffff), 0xffff);
    CHECK_INT(sweep(1, false, 0, 0xffff), 0);
    end();
}

/* An expert in memory tells nothing about those that would have to be read: they are the hot ones.
 */
TEST(cached_ones_are_no_evidence)
{
    begin();
    for (int i = 0; i < 40; i++) sweep(1, true, 0xf, 0xf);
    CHECK_INT(sweep(1, true, 0, 0xf), 0);
    end();
}

/* A sweep that ended before the layer was reached is forgotten, and so is a guess for another one.
 */
TEST(judged_once_and_for_its_layer)
{
    uint32_t all[EXPERTS + 1];
    begin();
    for (uint32_t x = 0; x <= EXPERTS; x++) all[x] = x;
    for (int i = 0; i < 20; i++) {
        guess_begin(g, 5, 1, false);
        for (uint32_t x = 0; x < EXPERTS; x++) guess_worth(g, x, false);
        guess_judge(g, 4, all);
    }
    for (int i = 0; i < 2; i++) guess_judge(g, 5, all); /* of the last one only: 16 seen */
    CHECK_INT(sweep(1, false, 0, 0xffff), 0);
    CHECK_INT(sweep(1, false, 0, 0xffff), 0xffff);
    end();
}

/* However sure the guesses were, wrong ones stay a small part of what is read. */
TEST(waste_is_bounded)
{
    begin();
    unsigned reads = 0, wrong = 0;
    for (int i = 0; i < 2000; i++) {
        unsigned needed = i % 50 < 40 ? 0xf : 0x3, worth = sweep(1, true, 0, needed);
        reads += (unsigned)__builtin_popcount(needed);
        wrong += (unsigned)__builtin_popcount(worth & ~needed);
    }
    CHECK(wrong > 0);
    CHECK(wrong <= reads / 50);
    end();
}

TEST_MAIN
