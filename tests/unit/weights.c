/* weights: a layer is the same however it comes; streamed ones come ahead of use, past the page
 * cache, and every byte is counted. */
#include "src/weights.h"

#include "src/os.h"
#include "tests/lib/k3_model.h"
#include "tests/lib/test.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

static struct err e;
static struct mem mem;
static struct config config;
static struct safetensors *files;
static struct readers *readers;
static struct weights *w;

/* Matrices of 64 kB and more, and smaller ones. */
static enum status write_model(void)
{
    struct k3_sizes s = {
#define X(name, standard, tiny, least, most, help) .name = tiny,
        COUNTS(X) REALS(X)
#undef X
    };
    struct ckpt c;
    int16_t *topics = NULL;
    s.hidden = 512;
    s.dense_width = 1024;
    s.kda_heads = 4;
    s.kda_dim = 128;
    s.shard_mb = 32;
    s.mla_heads = 8;
    s.vit_layers = 1;
    ckpt_init(&c, s.seed, s.shard_mb << 20);
    enum status rc = k3_tensors(&s, &c, &topics, &e);
    if (!rc) rc = k3_config_write(&s, test_dir(), &e);
    if (!rc) rc = ckpt_write(&c, test_dir(), &e);
    ckpt_free(&c);
    free(topics);
    return rc ? rc : config_load(&config, test_dir(), &e);
}

static void begin(size_t pinned, bool direct, unsigned threads)
{
    mem_init(&mem, 0);
    readers = NULL;
    if (threads) CHECK_OK(readers_open(&readers, threads, &e), e);
    CHECK_OK(safetensors_open(&files, test_dir(), direct, &e), e);
    struct weights_source from = {&mem, &config, files};
    CHECK_OK(weights_open(&w, &from, pinned, readers, &e), e);
}

static void end(void)
{
    weights_close(w);
    readers_close(readers);
    safetensors_close(files);
    mem_close(&mem);
}

static uint64_t add(uint64_t sum, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) sum = (sum ^ ((const uint8_t *)data)[i]) * 0x100000001b3u;
    return sum;
}

/* Of all matrices and of the vectors that are derived. */
static uint64_t sum_of(const struct layer_weights *l, unsigned layer)
{
    const struct linear *all[] = {
        &l->kda.q,   &l->kda.k,    &l->kda.v,   &l->kda.o,       &l->kda.g,    &l->kda.g_a,
        &l->kda.g_b, &l->kda.f_a,  &l->kda.f_b, &l->kda.b,       &l->mla.q_a,  &l->mla.q_b,
        &l->mla.q,   &l->mla.kv_a, &l->mla.g,   &l->mla.o,       &l->mla.kv_b, &l->mlp.gate,
        &l->mlp.up,  &l->mlp.down, &l->router,  &l->latent_down, &l->latent_up};
    uint64_t sum = 1, bytes, scale;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!all[i]->w || !linear_bytes(all[i]->type, all[i]->out, all[i]->in, &bytes, &scale))
            continue;
        if ((uintptr_t)all[i]->w % (all[i]->type == DT_F32 ? 4 : 2)) abort();
        sum = add(sum, all[i]->w, bytes);
        if (scale) sum = add(sum, all[i]->scale, scale);
    }
    sum = add(sum, l->input_norm, config.hidden * sizeof(float));
    sum = add(sum, l->attn_res, config.hidden * sizeof(float));
    sum = add(sum, l->mlp_res, config.hidden * sizeof(float));
    if (config.kind[layer] == LAYER_KDA) sum = add(sum, l->kda.a, config.kda_heads * sizeof(float));
    return sum;
}

static uint64_t layer_sum(unsigned layer)
{
    const struct layer_weights *l;
    if (weights_layer(w, layer, &l, &e)) return 0;
    return sum_of(l, layer);
}

static uint64_t streamed(void)
{
    uint64_t bytes;
    double wait;
    weights_stats(w, &bytes, &wait);
    return bytes;
}

/* Pinned or streamed, direct or not, by so many readers or by none: the same bytes. */
TEST(same_bytes)
{
    uint64_t want[CONFIG_MAX_LAYERS];
    CHECK_OK(write_model(), e);
    begin(config.layers, false, 0);
    for (unsigned i = 0; i < config.layers; i++) CHECK((want[i] = layer_sum(i)) != 0);
    end();
    for (int direct = 0; direct < 2; direct++)
        for (unsigned threads = 0; threads < 5; threads += threads + 1)
            for (size_t pinned = 0; pinned <= config.layers; pinned++) {
                begin(pinned, direct, threads);
                for (unsigned i = 0; i < 3 * config.layers; i++)
                    CHECK(layer_sum(i % config.layers) == want[i % config.layers]);
                end();
            }
}

/* The layer that comes next is read without being asked for; two layers stay in the two buffers. */
TEST(read_ahead_of_use)
{
    uint64_t at[4] = {0};
    CHECK_OK(write_model(), e);
    unsigned first = config.layers - 3;
    begin(first, true, 0);
    for (unsigned i = 0; i < 3; i++) {
        CHECK(layer_sum(first + i) != 0);
        at[i + 1] = streamed(); /* without readers, what was asked for and no more */
        CHECK(at[i + 1] > at[i]);
    }
    end();
    begin(first, true, 3);
    for (unsigned i = 0; i < 2; i++) {
        CHECK(layer_sum(first + i) != 0);
        while (streamed() < at[i + 2]) sched_yield();
        CHECK(streamed() == at[i + 2]);
    }
    CHECK(readers_read_s(readers) > 0);
    end();
    begin(first + 1, true, 3);
    for (unsigned i = 0; i < 3 * config.layers; i++) CHECK(layer_sum(i % config.layers) != 0);
    CHECK(streamed() == at[3] - at[1]);
    end();
}

/* Share of the model's pages that the page cache holds. */
static double resident(void)
{
    uint64_t pages = 0, in = 0;
    for (unsigned i = 0; i < safetensors_files(files); i++) {
        int fd = open(safetensors_path(files, i), O_RDONLY | O_CLOEXEC);
        off_t size = lseek(fd, 0, SEEK_END);
        size_t n = ((size_t)size + 4095) / 4096;
        unsigned char *map = calloc(n, 1);
        void *p = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, fd, 0);
        if (fd < 0 || !map || p == MAP_FAILED || mincore(p, (size_t)size, map)) abort();
        for (size_t k = 0; k < n; k++) in += map[k] & 1;
        pages += n;
        munmap(p, (size_t)size);
        free(map);
        close(fd);
    }
    return (double)in / (double)pages;
}

static void drop_pages(void)
{
    for (unsigned i = 0; i < safetensors_files(files); i++) {
        int fd = open(safetensors_path(files, i), O_RDONLY | O_CLOEXEC);
        CHECK(fd >= 0 && fdatasync(fd) == 0);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
}

/* What streams leaves nothing in the page cache where direct I/O works: memory has one budget. */
TEST(past_the_page_cache)
{
    double share[2];
    CHECK_OK(write_model(), e);
    for (int direct = 0; direct < 2; direct++) {
        begin(0, direct, 2);
        if (direct && !safetensors_direct(files, 0)) {
            test_skip("no direct I/O here");
            end();
            return;
        }
        drop_pages();
        for (unsigned i = 0; i < config.layers; i++) CHECK(layer_sum(i) != 0);
        share[direct] = resident();
        end();
    }
    CHECK(share[0] > 0.4);

    CHECK(share[1] < share[0] / 2);
}

/* A layer that cannot be read is told, by whom it was asked for, and may be asked for again. */
TEST(read_errors)
{
    CHECK_OK(write_model(), e);
    for (unsigned threads = 0; threads < 3; threads += 2) {
        const struct layer_weights *l;
        begin(0, true, threads);
        uint64_t want = layer_sum(1);
        os_fault(OS_FAULT_READ, 3, true);
        enum status rc = OK;
        for (unsigned i = 2; !rc && i < 6; i++) rc = weights_layer(w, i % config.layers, &l, &e);
        os_fault(OS_FAULT_READ, -1, false);
        CHECK_ERR(rc, E_IO, e, "tensor ");
        for (unsigned i = 0; i < 2; i++) weights_layer(w, i, &l, &e);
        CHECK(layer_sum(1) == want);
        end();
    }
}

TEST_MAIN
