/* affinity: kinds of prompts, what joins whom cheaply, and what another run may read back. */
#include "src/affinity.h"
#include "tests/lib/test.h"

#define VOCAB  8
#define HIDDEN 4

static struct mem mem;
static struct config config;
static struct linear embed;

/* Tokens 2i and 2i + 1 point the same way. */
static struct affinity *open_affinity(void)
{
    static float rows[VOCAB * HIDDEN];
    struct affinity *a;
    struct err e;
    mem_init(&mem, 0);
    for (int t = 0; t < VOCAB; t++)
        for (int d = 0; d < HIDDEN; d++) rows[t * HIDDEN + d] = d == t / 2 ? 1 + 0.1f * (t & 1) : 0;
    embed = (struct linear){.type = DT_F32, .w = rows, .in = HIDDEN, .out = VOCAB};
    config = (struct config){.hidden = HIDDEN, .vocab = VOCAB, .layers = 3, .experts = 8};
    config.top_k = 2;
    config.is_moe[1] = config.is_moe[2] = true;
    if (affinity_open(&a, &mem, &config, &embed, &e)) test_failed(__FILE__, __LINE__, "%s", e.text);
    return a;
}

static void close_affinity(struct affinity *a)
{
    affinity_close(a);
    mem_close(&mem);
}

static unsigned kind(struct affinity *a, int32_t first, bool picture)
{
    const int32_t ids[] = {first, first};
    return affinity_kind(a, ids, 2, picture);
}

/* What begins alike is one kind, with a picture another; ids out of range and no text at all do no
 * harm; the number of kinds is bounded. */
TEST(prompts_fall_into_kinds)
{
    struct affinity *a = open_affinity();
    unsigned red = kind(a, 0, false), blue = kind(a, 2, false), green = kind(a, 4, false);
    CHECK(red != blue && blue != green && red != green);
    CHECK_INT(kind(a, 1, false), red);
    CHECK_INT(kind(a, 3, false), blue);
    CHECK(kind(a, 2, true) != blue);
    kind(a, -5, false);
    kind(a, 1000, true);
    affinity_kind(a, NULL, 0, false);
    for (int i = 0; i < 100; i++) CHECK(kind(a, i % VOCAB, i & 8) < AFFINITY_KINDS);
    CHECK(affinity_kinds(a) <= AFFINITY_KINDS);
    close_affinity(a);
}

static void use(struct affinity *a, unsigned k, uint32_t first, int rows)
{
    const uint32_t experts[] = {first, first + 1};
    for (int r = 0; r < rows; r++)
        for (unsigned layer = 1; layer < 3; layer++) affinity_used(a, k, layer, experts, 2);
}

/* A job of the kind that runs needs hardly anything more, one of another kind its own experts, and
 * with nothing running each needs all of its own. Counts are halved before they overflow. */
TEST(the_same_kind_joins_cheaply)
{
    struct affinity *a = open_affinity();
    unsigned red = kind(a, 0, false), blue = kind(a, 2, false), running[AFFINITY_KINDS] = {0};
    double extra[AFFINITY_KINDS];
    for (int round = 0; round < 2; round++) {
        use(a, red, 0, round ? 200000 : 500);
        use(a, blue, 4, round ? 200000 : 500);
        memset(running, 0, sizeof running);
        affinity_extra(a, running, extra);
        CHECK(fabs(extra[red] - 4) < 0.2 && fabs(extra[blue] - 4) < 0.2);
        running[red] = 3;
        affinity_extra(a, running, extra);
        CHECK(extra[red] < 0.2 && extra[blue] > 3.5);
    }
    CHECK(affinity_rows(a) < 130000);
    close_affinity(a);
}

/* Written and read, a kind is the same; what is damaged or of another model is refused and leaves
 * nothing behind. */
TEST(records_come_back)
{
    struct affinity *a = open_affinity();
    char record[400], damaged[400];
    size_t n = affinity_record_bytes(&config);
    CHECK(n <= sizeof record);
    unsigned red = kind(a, 0, false);
    use(a, red, 2, 100);
    affinity_write(a, red, record);
    close_affinity(a);
    a = open_affinity();
    CHECK(!affinity_read(a, record, n - 1));
    memcpy(damaged, record, n);
    damaged[0] ^= 1;
    CHECK(!affinity_read(a, damaged, n));
    memcpy(damaged, record, n);
    memset(damaged + n - 2, 0xff, 2); /* more uses than rows */
    CHECK(!affinity_read(a, damaged, n));
    memcpy(damaged, record, n);
    memset(damaged + 24, 0xff, 4); /* not a number */
    CHECK(!affinity_read(a, damaged, n));
    CHECK_INT(affinity_kinds(a), 0);
    CHECK(affinity_read(a, record, n));
    CHECK_INT(affinity_rows(a), 100);
    unsigned none[AFFINITY_KINDS] = {0};
    double extra[AFFINITY_KINDS];
    affinity_extra(a, none, extra);
    CHECK(fabs(extra[0] - 4) < 0.2);
    while (affinity_read(a, record, n)) {
    }
    CHECK_INT(affinity_kinds(a), AFFINITY_KINDS);
    close_affinity(a);
}

TEST_MAIN
