/* Reading loops read what they say, on the demo model. */
#include "src/bench_io.h"
#include "src/config.h"
#include "src/moe.h"
#include "src/os.h"
#include "tests/lib/test.h"

#define MODEL "examples/demo-model"

static struct mem mem;
static struct config config;
static struct safetensors *files;
static struct expert_io *io;
static uint64_t place;

static bool begin(struct bench_io_opts *o)
{
    struct err e;
    mem_init(&mem, 0);
    io = NULL;
    files = NULL;
    bool ok = config_load(&config, MODEL, &e) == OK &&
              safetensors_open(&files, MODEL, true, &e) == OK &&
              moe_experts_open(&io, &mem, files, &config, &e) == OK;
    *o = (struct bench_io_opts){.mem = &mem, .files = files, .io = io, .is_moe = config.is_moe};
    o->layers = config.layers;
    o->experts = config.experts;
    o->direct = true;
    o->seconds = 60;
    o->place = &place;
    place = 0;
    return ok;
}

static void end(void)
{
    expert_io_close(io);
    safetensors_close(files);
    mem_close(&mem);
}

/* With time enough every expert comes through the cache once, whatever its size. */
TEST(stream_of_all)
{
    struct bench_io_opts o;
    struct bench_io_stream s;
    struct err e;
    CHECK(begin(&o));
    size_t all = (size_t)config_moe_layers(&config) * config.experts;
    size_t first = 7;
    for (size_t slots = 2; slots < 2 * all; slots *= 5) {
        CHECK_OK(bench_io_stream(&o, slots, &first, &s, &e), e);
        CHECK_INT(s.experts, all);
        CHECK_INT(first % all, 7);
        CHECK(s.bytes_s > 0);
    }
    end();
}

/* The slots hold the experts they are said to hold. */
TEST(experts_stay)
{
    struct bench_io_opts o;
    struct err e;
    double rate;
    CHECK(begin(&o));
    o.seconds = 0.02;
    struct bench_io_slots s = {.n = 8, .slot_bytes = expert_slot_bytes(io)};
    char *one;
    size_t at;
    CHECK_OK(mem_alloc_aligned(&mem, &s.slots, s.n * s.slot_bytes, OS_DIRECT_ALIGN, "t", &e), e);
    CHECK_OK(mem_alloc_aligned(&mem, &one, s.slot_bytes, OS_DIRECT_ALIGN, "t", &e), e);
    CHECK_OK(mem_array(&mem, &s.at, s.n, sizeof *s.at, "t", &e), e);
    CHECK_OK(mem_array(&mem, &s.keys, s.n, sizeof *s.keys, "t", &e), e);
    CHECK_OK(bench_io_experts(&o, &s, &rate, &e), e);
    CHECK(rate > 0);
    for (size_t i = 0; i < s.n; i++) {
        CHECK_OK(expert_io_fetch(io, s.keys[i], one, &at, &e), e);
        CHECK_INT(at, s.at[i]);
        CHECK(!memcmp(one + at, s.slots + i * s.slot_bytes + at, expert_bytes(io)));
    }
    mem_free(&mem, s.slots);
    mem_free(&mem, one);
    mem_free(&mem, s.at);
    mem_free(&mem, s.keys);
    end();
}

/* Every loop of the table reads and says where it ended; small files have small blocks. */
TEST(plain_loops)
{
    struct bench_io_opts o;
    struct err e;
    CHECK(begin(&o));
    o.seconds = 0.02;
    for (size_t i = 0; i < BENCH_IO_LOOPS; i++) {
        struct bench_io_loop l = bench_io_loops[i];
        uint64_t before = place;
        CHECK_OK(bench_io_plain(&o, &l, &e), e);
        CHECK(l.bytes_s > 0 && l.block <= 16u << 20);
        CHECK(place > before && (place - before) % l.block == 0);
    }
    end();
}

/* In a region, streams and plain loops read the same: all bytes of its experts, and no others but
 * what lies between them. */
TEST(region)
{
    struct bench_io_opts o;
    struct bench_io_stream s;
    struct err e;
    CHECK(begin(&o));
    size_t first = 0;
    o.region = config.experts;
    CHECK_OK(bench_io_stream(&o, 4, &first, &s, &e), e);
    CHECK_INT(s.experts, config.experts);
    struct bench_io_loop l = {1, OS_DIRECT_ALIGN, 0};
    CHECK_OK(bench_io_plain(&o, &l, &e), e);
    CHECK(place + 2 * OS_DIRECT_ALIGN > config.experts * expert_bytes(io));
    uint64_t part = place;
    place = o.region = 0;
    CHECK_OK(bench_io_plain(&o, &l, &e), e);
    CHECK(place > 2 * part);
    end();
}

/* A disk that fails ends the loop with its error. */
TEST(read_errors)
{
    struct bench_io_opts o;
    struct bench_io_loop l = bench_io_loops[0];
    struct bench_io_stream s;
    struct err e = {0};
    size_t first = 0;
    CHECK(begin(&o));
    os_fault(OS_FAULT_READ, 0, true);
    enum status plain = bench_io_plain(&o, &l, &e);
    enum status stream = bench_io_stream(&o, 8, &first, &s, &e);
    os_fault(OS_FAULT_READ, -1, false);
    CHECK_INT(plain, E_IO);
    CHECK_INT(stream, E_IO);
    CHECK_HAS(e.text, "model.safetensors");
    end();
}

TEST_MAIN
