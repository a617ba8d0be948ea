/* kinds: what was learned about prompts in one run is there in the next, for the same model. */
#include "jobs/kinds.h"

#include "tests/lib/jobs.h"
#include "tests/lib/test.h"

enum { HIDDEN = 4, LAYERS = 2, EXPERTS = 6 };

static struct mem mem;
static struct config config;
static struct linear embed;

static struct affinity *open_affinity(void)
{
    static float rows[4 * HIDDEN] = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1};
    struct affinity *a;
    struct err e;
    embed = (struct linear){.type = DT_F32, .w = rows, .in = HIDDEN, .out = 4};
    config = (struct config){.hidden = HIDDEN, .vocab = 4, .layers = LAYERS, .experts = EXPERTS};
    config.top_k = 2;
    config.is_moe[0] = config.is_moe[1] = true;
    if (affinity_open(&a, &mem, &config, &embed, &e)) test_failed(__FILE__, __LINE__, "%s", e.text);
    return a;
}

/* Two kinds, each with experts of its own. */
static void learn(struct affinity *a)
{
    for (int32_t t = 0; t < 2; t++) {
        unsigned kind = affinity_kind(a, &t, 1, false);
        const uint32_t experts[] = {2 * (uint32_t)t, 2 * (uint32_t)t + 1};
        for (int i = 0; i < 100; i++)
            for (unsigned l = 0; l < LAYERS; l++) affinity_used(a, kind, l, experts, 2);
    }
}

static struct affinity *load(struct db *db, const char *model)
{
    struct err e;
    struct affinity *a = open_affinity();
    if (kinds_load(db, model, a, &e)) test_failed(__FILE__, __LINE__, "%s", e.text);
    return a;
}

/* What is stored is found again, all of it; storing twice leaves it once. */
TEST(kinds_come_back)
{
    struct err e;
    struct db *db = jobs_open("kinds.db", NULL);
    mem_init(&mem, 0);
    struct affinity *a = open_affinity();
    learn(a);
    for (int i = 0; i < 2; i++) CHECK_OK(kinds_store(db, "m", a, &config, &e), e);
    CHECK_INT(jobs_int(db, "SELECT count(*) FROM expert_use"), 2);
    struct affinity *b = load(db, "m");
    CHECK_INT(affinity_kinds(b), 2);
    CHECK_INT(affinity_rows(b), affinity_rows(a));
    unsigned running[AFFINITY_KINDS] = {3};
    double first[AFFINITY_KINDS], again[AFFINITY_KINDS];
    affinity_extra(a, running, first);
    affinity_extra(b, running, again);
    CHECK(first[0] < first[1]);
    for (int k = 0; k < 2; k++) CHECK(first[k] == again[k]);
    int32_t other = 1;
    CHECK_INT(affinity_kind(b, &other, 1, false), 1);
    affinity_close(a);
    affinity_close(b);
    mem_close(&mem);
    db_close(db);
}

/* Another model's kinds are not taken, nor is a record that is damaged; the others are. */
TEST(only_sound_kinds_of_this_model)
{
    struct err e;
    struct db *db = jobs_open("sound.db", NULL);
    mem_init(&mem, 0);
    struct affinity *a = open_affinity();
    learn(a);
    CHECK_OK(kinds_store(db, "m", a, &config, &e), e);
    struct affinity *b = load(db, "other");
    CHECK_INT(affinity_kinds(b), 0);
    affinity_close(b);
    CHECK_OK(db_exec(db, "UPDATE expert_use SET record=x'00112233' WHERE kind=0", &e), e);
    b = load(db, "m");
    CHECK_INT(affinity_kinds(b), 1);
    affinity_close(b);
    CHECK_OK(kinds_store(db, "other", a, &config, &e), e);
    b = load(db, "m");
    CHECK_INT(affinity_kinds(b), 0);
    affinity_close(b);
    affinity_close(a);
    mem_close(&mem);
    db_close(db);
}

TEST_MAIN
