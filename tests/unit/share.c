/* share: where prompts part. */
#include "jobs/share.h"
#include "tests/lib/test.h"

#define ROWS 40

static uint64_t rows[4][ROWS];

static struct share_rows row(int i, size_t n, size_t differs_at)
{
    for (size_t k = 0; k < ROWS; k++)
        rows[i][k] = share_token((int32_t)k) + (k >= differs_at) * 1000u * (unsigned)(i + 1);
    return (struct share_rows){rows[i], n};
}

/* A cut is where two prompts part, once, in order. */
TEST(cut_where_prompts_part)
{
    size_t cuts[SHARE_CUTS], n = 0;
    struct share_rows a = row(0, ROWS, ROWS), b = row(1, ROWS, 30), c = row(2, ROWS, 20);
    n = share_cut(cuts, n, &a, &b);
    n = share_cut(cuts, n, &a, &c);
    n = share_cut(cuts, n, &a, &b);
    CHECK_INT(n, 2);
    CHECK_INT(cuts[0], 20);
    CHECK_INT(cuts[1], 30);
}

/* The last row of a prompt is always computed; short beginnings are not kept. */
TEST(cut_within_bounds)
{
    size_t cuts[SHARE_CUTS];
    struct share_rows a = row(0, ROWS, ROWS), b = row(1, ROWS, ROWS),
                      c = row(2, ROWS, SHARE_LEAST - 1);
    CHECK_INT(share_cut(cuts, 0, &a, &b), 1);
    CHECK_INT(cuts[0], ROWS - 1);
    CHECK_INT(share_cut(cuts, 0, &a, &c), 0);
    struct share_rows none = {NULL, 0};
    CHECK_INT(share_cut(cuts, 0, &none, &none), 0);
}

/* When there are too many, the longest stay. */
TEST(longest_cuts_stay)
{
    size_t cuts[SHARE_CUTS], n = 0;
    struct share_rows a = row(0, ROWS, ROWS);
    for (size_t at = SHARE_LEAST; at < SHARE_LEAST + SHARE_CUTS + 3; at++) {
        struct share_rows b = row(1, ROWS, at);
        n = share_cut(cuts, n, &a, &b);
    }
    CHECK_INT(n, SHARE_CUTS);
    for (size_t i = 0; i < n; i++) CHECK_INT(cuts[i], SHARE_LEAST + 3 + i);
    struct share_rows b = row(1, ROWS, SHARE_LEAST);
    CHECK_INT(share_cut(cuts, n, &a, &b), SHARE_CUTS);
    CHECK_INT(cuts[0], SHARE_LEAST + 3);
}

/* Rows of one picture differ from each other, from those of another, and from every token. */
TEST(rows_are_told_apart)
{
    const char *a = "00000000000000010000", *b = "00000000000000020000";
    CHECK(share_picture(a, 0) != share_picture(a, 1));
    CHECK(share_picture(a, 0) != share_picture(b, 0));
    CHECK(share_picture(a, 0) > UINT32_MAX);
    CHECK(share_token(-1) <= UINT32_MAX);
}

/* Cuts close to the one before, or to the start, are not worth a sweep. */
TEST(close_cuts_are_dropped)
{
    size_t cuts[] = {SHARE_APART - 1, SHARE_APART, SHARE_APART + 5, 2 * SHARE_APART,
                     2 * SHARE_APART + 1};
    CHECK_INT(share_thin(cuts, 5), 2);
    CHECK_INT(cuts[0], SHARE_APART);
    CHECK_INT(cuts[1], 2 * SHARE_APART);
    CHECK_INT(share_thin(cuts, 0), 0);
}

TEST_MAIN
