/* cache_sim: counts known by hand or by exhaustion, bad traces told. */
#include "src/cache_sim.h"

#include "tests/lib/test.h"

static struct err e;
static struct mem mem;
static struct cache_sim *s;

static enum status parse(const char *text)
{
    mem_init(&mem, 0);
    return cache_sim_parse(&s, &mem, "trace", text, strlen(text), &e);
}

static void end(void)
{
    cache_sim_close(s);
    s = NULL;
    mem_close(&mem);
}

static struct cache_sim_result run(enum cache_policy p, uint32_t sequences, double share)
{
    struct cache_sim_result r = {0};
    struct cache_sim_opts o = {p, sequences, share};
    if (cache_sim_run(s, &o, &r, &e)) test_failed(__FILE__, __LINE__, "%s", e.text);
    return r;
}

/* Three experts in turn, room for two: recency always misses, foresight saves every third read. */
TEST(three_in_two)
{
    static const char turn[] = "{\"layers\":[[0]]}\n{\"layers\":[[1]]}\n{\"layers\":[[2]]}\n";
    char text[3 * sizeof turn];
    snprintf(text, sizeof text, "%s%s%s", turn, turn, turn);
    CHECK_OK(parse(text), e);
    struct cache_sim_result r = run(CACHE_LRU, 1, 0.7);
    CHECK_INT(r.slots, 2);
    CHECK_INT(r.uses, 9);
    CHECK_INT(r.misses, 9);
    CHECK_INT(r.first_uses, 3);
    r = run(CACHE_BELADY, 1, 0.7);
    CHECK_INT(r.misses, 6);
    CHECK_INT(r.hits, 3);
    CHECK_NEAR(r.reads_per_token, 6.0 / 9, 1e-12);
    CHECK_INT(run(CACHE_LRU, 1, 1).misses, 3);
    end();
}

/* Expert 0 in every sweep among two others that change: recency loses it each time, use counts keep
 * it. */
TEST(hot_expert)
{
    static const char two[] = "{\"layers\":[[],[0,1,2]]}\n{\"layers\":[[],[4,3,0]]}\n";
    char text[3 * sizeof two];
    snprintf(text, sizeof text, "%s%s%s", two, two, two);
    CHECK_OK(parse(text), e);
    struct cache_sim_facts f;
    cache_sim_facts(s, &f);
    CHECK_INT(f.tokens, 6);
    CHECK_INT(f.layers, 1);
    CHECK_INT(f.experts, 5);
    CHECK_INT(run(CACHE_LRU, 1, 0.4).misses, 18);
    CHECK_INT(run(CACHE_HEAT, 1, 0.4).misses, 13);
    end();
}

/* Windows of one document share their experts within a sweep; left-over tokens are not used. */
TEST(windows)
{
    CHECK_OK(parse("{\"layers\":[[0,1]]}\n{\"layers\":[[2]]}\n"
                   "{\"layers\":[[1,2]]}\n\n{\"layers\":[[2]]} \n{\"tok\":4,\"layers\":[[3]]}"),
             e);
    struct cache_sim_result r = run(CACHE_LRU, 2, 1);
    CHECK_INT(r.tokens, 4);
    CHECK_INT(r.uses, 4);
    CHECK_INT(r.hits, 1);
    CHECK_NEAR(r.reads_per_token, 0.75, 1e-12);
    r = run(CACHE_LRU, 5, 1);
    CHECK_INT(r.uses, 4);
    CHECK_INT(r.hits, 0);
    struct cache_sim_opts o = {CACHE_LRU, 6, 1};
    CHECK_ERR(cache_sim_run(s, &o, &r, &e), E_USAGE, e, "5 tokens");
    o = (struct cache_sim_opts){CACHE_LRU, 1, 1.5};
    CHECK_ERR(cache_sim_run(s, &o, &r, &e), E_USAGE, e, "1.5");
    end();
}

/* The least misses of all ways to choose two of the keys' slots: set is what is resident. */
static unsigned fewest(const unsigned *keys, size_t n, unsigned set)
{
    if (!n) return 0;
    unsigned key = 1u << keys[0];
    if (set & key) return fewest(keys + 1, n - 1, set);
    if (!(set & (set - 1))) return 1 + fewest(keys + 1, n - 1, set | key);
    unsigned a = fewest(keys + 1, n - 1, (set & (set - 1)) | key);
    unsigned b = fewest(keys + 1, n - 1, (set & -set) | key);
    return 1 + (a < b ? a : b);
}

/* Foresight is as good as trying everything, and no policy beats it. */
TEST(belady_is_the_optimum)
{
    unsigned long long seed = 3;
    for (int n = 0; n < 40; n++) {
        unsigned keys[14];
        struct buf text = {0};
        for (int i = 0; i < 14; i++) {
            keys[i] = i ? (unsigned)(test_rand(&seed) % 5) : 4;
            CHECK_OK(buf_addf(&text, &e, "{\"layers\":[[%u]]}\n", keys[i]), e);
        }
        CHECK_OK(parse(text.data), e);
        buf_free(&text);
        uint64_t best = fewest(keys, 14, 0);
        CHECK_INT(run(CACHE_BELADY, 1, 0.5).misses, best);
        for (int p = 0; p < CACHE_POLICIES; p++) {
            struct cache_sim_result r = run((enum cache_policy)p, 1, 0.5);
            CHECK(r.misses >= best);
            CHECK_INT(r.hits + r.misses, 14);
        }
        end();
    }
}

/* Faults of a trace are told with the line. */
TEST(bad_traces)
{
    static const char *const cases[][2] = {
        {"", "holds no routes"},
        {"{\"layers\":[[],[]]}", "holds no routes"},
        {"{\"layers\":[[1]]}\n{\"layers\":[[1],[2]]}", "line 2: another number of layers"},
        {"\n\n{\"layers\":[[1]]", "line 3: not JSON"},
        {"{\"layers\":[[1]]} x", "line 1: not JSON"},
        {"[]", "line 1: no list \"layers\""},
        {"{\"layers\":7}", "line 1: no list \"layers\""},
        {"{\"layers\":[7]}", "line 1: a layer is not a list"},
        {"{\"layers\":[[-1]]}", "line 1: an expert id"},
        {"{\"layers\":[[1.5]]}", "line 1: an expert id"},
        {"{\"layers\":[[65536]]}", "line 1: an expert id"},
        {"{\"layers\":[[\"1\"]]}", "line 1: an expert id"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_ERR(parse(cases[i][0]), E_INPUT, e, cases[i][1]);
        CHECK(s == NULL);
        end();
    }
    mem_init(&mem, 0);
    CHECK_ERR(cache_sim_open(&s, &mem, test_path("none"), &e), E_IO, e, "none");
    end();
}

/* A trace file is the same as its text; each failed allocation leaves nothing behind. */
TEST(allocations)
{
    static const char text[] = "{\"layers\":[[3],[1,2]]}\n{\"layers\":[[3],[2]]}\n";
    const char *path = test_path("trace.jsonl");
    test_write(path, text, sizeof text - 1);
    int n = 0;
    for (enum status rc = E_NOMEM; rc; n++) {
        struct cache_sim_opts o = {CACHE_HEAT, 1, 1};
        struct cache_sim_result r;
        mem_init(&mem, 0);
        mem.fail_at = n;
        rc = cache_sim_open(&s, &mem, path, &e);
        if (!rc) rc = cache_sim_run(s, &o, &r, &e);
        CHECK(rc == OK || rc == E_NOMEM);
        CHECK(rc || (r.uses == 5 && r.hits == 2));
        end();
    }
    CHECK(n > 8);
}

TEST_MAIN
